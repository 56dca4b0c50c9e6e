//! Replies that nobody wrote: any values, cut, changed, and in pieces of any size.

use std::io::{self, Read};

use super::pubsub::frame;
use super::reply::{Malformed, Reply, ReplyReader, Shape, fail_on_error, server_time};
use super::server_error::ServerError;
use crate::base::error::Error;
use crate::base::fuzz_tests::{Dice, fuzz};

/// Words with which errors begin, or which they contain.
const ERRORS: [&str; 12] = [
    "ERR",
    "MOVED 1 h:1",
    "ASK 3999 :2",
    "TOOFEWREPLICAS",
    "TOOLATE",
    "NOAUTH",
    "NOPERM",
    "WRONGTYPE",
    "NOSCRIPT",
    "ERR unknown command, with args beginning with",
    "-",
    "max number of clients",
];

/// A reply with lists up to that depth.
pub(in crate::store::redis) fn any(dice: &mut Dice, depth: usize) -> Reply {
    match dice.below(if depth == 0 { 8 } else { 12 }) {
        0 => Reply::Nil,
        1 => {
            let text =
                format!("{} {}", dice.choose(&ERRORS), dice.text().replace(['\r', '\n'], " "));
            Reply::Error(ServerError::from(if dice.one_in(2) { text.trim_end() } else { &text }))
        }
        2..=4 => Reply::Int(dice.number()),
        5 => Reply::Bytes(dice.number().to_string().into_bytes()),
        6 | 7 => Reply::Bytes(dice.text().into_bytes()),
        _ => Reply::list((0..dice.below(6)).map(|_| any(dice, depth - 1)).collect()),
    }
}

/// As a server sends it.
pub(in crate::store::redis) fn sent(reply: &Reply) -> Vec<u8> {
    match reply {
        Reply::Nil => b"$-1\r\n".to_vec(),
        Reply::Int(number) => format!(":{number}\r\n").into_bytes(),
        Reply::Bytes(bytes) => {
            [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
        }
        Reply::Error(error) => format!("-{}\r\n", error.text).into_bytes(),
        Reply::Pair(first, second) => format!("*2\r\n:{first}\r\n:{second}\r\n").into_bytes(),
        Reply::Array(elements) => {
            let elements: Vec<u8> = elements.iter().flat_map(sent).collect();
            [format!("*{}\r\n", reply.clone().into_list().unwrap().len()).into_bytes(), elements]
                .concat()
        }
    }
}

/// Comes in pieces of that size.
struct Pieces<'b>(&'b [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (now, later) = self.0.split_at(self.1.min(self.0.len()).min(buffer.len()));
        buffer[..now.len()].copy_from_slice(now);
        self.0 = later;
        Ok(now.len())
    }
}

/// All replies up to the end, or up to what is malformed.
fn read_in_pieces(bytes: &[u8], size: usize) -> (Vec<Reply>, Result<(), Malformed>) {
    let (mut reader, mut pieces, mut replies) =
        (ReplyReader::default(), Pieces(bytes, size), Vec::new());
    loop {
        match reader.next() {
            Ok(Some(reply)) => replies.push(reply),
            Err(malformed) => return (replies, Err(malformed)),
            Ok(None) if reader.fill(&mut pieces).is_err() => return (replies, Ok(())),
            Ok(None) => {}
        }
    }
}

pub(in crate::store::redis) fn read(bytes: &[u8]) -> Vec<Reply> {
    read_in_pieces(bytes, usize::MAX).0
}

#[test]
fn fuzzed_replies_are_the_same_in_pieces_of_any_size() {
    fuzz(
        |dice| {
            let replies: Vec<Reply> = (0..=dice.below(3)).map(|_| any(dice, 3)).collect();
            let bytes: Vec<u8> = replies.iter().flat_map(sent).collect();
            assert_eq!(read_in_pieces(&bytes, 1 + dice.below(9)), (replies, Ok(())));
            bytes
        },
        |bytes, dice| {
            let (replies, outcome) = read_in_pieces(bytes, usize::MAX);
            assert_eq!(read_in_pieces(bytes, 1 + dice.below(9)), (replies, outcome));
        },
    );
}

#[test]
fn fuzzed_replies_have_a_meaning_or_are_errors() {
    let shapes = [
        Shape::Any,
        Shape::Number,
        Shape::Text,
        Shape::Pair,
        Shape::List,
        Shape::Each(2),
        Shape::status(3),
    ];
    fuzz(
        |dice| sent(&any(dice, 2)),
        move |bytes, _| {
            for reply in read(bytes) {
                let fitting = shapes.iter().filter(|shape| shape.fits(&reply)).count();
                assert!(fitting <= shapes.len());
                let _ = (
                    reply.is_demotion(),
                    reply.is_refused_here(),
                    reply.is_unknown_command(),
                    reply.redirect(),
                );
                let errors = [
                    fail_on_error(reply.clone()).err(),
                    server_time(reply.clone()).err(),
                    frame(reply).err(),
                ];
                errors.iter().flatten().for_each(assert_is_told);
            }
        },
    );
}

/// An error that says something.
pub(in crate::store::redis) fn assert_is_told(error: &Error) {
    assert!(!error.chain().to_string().is_empty(), "{error:?}");
}
