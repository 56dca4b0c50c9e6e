//! Frames that no server sends, and nodes that no client has made.

use super::frames::FrameReader;
use super::jute::Encoder;
use super::reply::{Connected, Reply};
use super::request::{Acl, Mode, Opcode, Request};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::fuzz_tests::{Dice, fuzz};
use crate::base::lock_name::Kind;
use crate::store::zookeeper::{inspect, names};

fn frame(body: &[u8]) -> Vec<u8> {
    [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], body].concat()
}

fn stat(message: Encoder, dice: &mut Dice) -> Encoder {
    let message = (0..4).fold(message, |message, _| message.long(dice.number()));
    let message =
        (0..3).fold(message, |message, _| message.int(dice.number() as i32)).long(dice.number());
    (0..2).fold(message, |message, _| message.int(dice.number() as i32)).long(dice.number())
}

fn requested() -> [Request; 3] {
    let create = Request::create("/a", b"", Acl::Open, Mode::EphemeralSequential);
    [create, Request::delete("/a"), Request::set_data("/a", b"", -1)]
}

/// A reply of any kind, with any values in it.
fn any_reply(dice: &mut Dice) -> Vec<u8> {
    let code = if dice.one_in(3) { dice.number() as i32 } else { 0 };
    let message = Encoder::default().int(dice.number() as i32).long(dice.number()).int(code);
    let body = match dice.below(7) {
        0 => stat(message.text(&dice.text()), dice),
        1 => stat(message.bytes(dice.text().as_bytes()), dice),
        2 => stat(message.int(2).text(&dice.text()).text(&dice.text()), dice),
        3 => stat(message.int(1).int(dice.number() as i32).text("digest").text(&dice.text()), dice),
        4 => {
            let created = message.int(Opcode::Create2 as i32).bool(false).int(0).text(&dice.text());
            let deleted = stat(created, dice).int(Opcode::Delete as i32).bool(false).int(0);
            let set = stat(deleted.int(Opcode::SetData as i32).bool(false).int(0), dice);
            set.int(-1).bool(true).int(-1)
        }
        5 => {
            let failed = |message: Encoder, code| message.int(-1).bool(false).int(code).int(code);
            (0..3)
                .fold(message, |message, _| failed(message, dice.number() as i32))
                .int(-1)
                .bool(true)
                .int(-1)
        }
        _ => message.int(dice.below(5) as i32).int(3).text(&dice.text()),
    };
    body.0
}

/// All frames up to the end, or up to a length that none has.
fn frames(bytes: &[u8], size: usize) -> (Vec<Vec<u8>>, bool) {
    let (mut reader, mut frames, mut pieces) =
        (FrameReader::default(), Vec::new(), bytes.chunks(size));
    loop {
        match reader.next() {
            Ok(Some(frame)) => frames.push(frame),
            Err(error) => {
                is_told(&error);
                return (frames, true);
            }
            Ok(None) => match pieces.next() {
                Some(mut piece) => reader.fill(&mut piece).unwrap(),
                None => return (frames, false),
            },
        }
    }
}

fn is_told(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error:?}");
}

fn judge<T>(outcome: Result<T>) {
    if let Err(error) = outcome {
        is_told(&error);
    }
}

#[test]
fn fuzzed_frames_are_the_same_in_pieces_of_any_size() {
    fuzz(
        |dice| {
            let whole: Vec<Vec<u8>> = (0..=dice.below(3)).map(|_| any_reply(dice)).collect();
            let bytes: Vec<u8> = whole.iter().flat_map(|body| frame(body)).collect();
            assert_eq!(frames(&bytes, 1 + dice.below(9)), (whole, false));
            bytes
        },
        |bytes, dice| assert_eq!(frames(bytes, 4096), frames(bytes, 1 + dice.below(9))),
    );
}

#[test]
fn fuzzed_frames_are_replies_or_errors() {
    let requested = requested();
    let multi = Request::multi(&requested).shape;
    fuzz(any_reply, move |bytes, _| {
        judge(Connected::decode(bytes));
        let reply = match Reply::decode(bytes) {
            Ok(reply) => reply,
            Err(error) => return is_told(&error),
        };
        judge(reply.created());
        judge(reply.data());
        judge(reply.acl());
        judge(reply.children());
        judge(reply.transacted(&requested));
        judge(reply.verdict(&multi));
        judge(reply.split([&multi].into_iter()));
        judge(reply.split_looks(2));
        let _ = reply.reports_numbers(&multi);
        judge(reply.event());
        assert!(!reply.code.to_error("/a").message().is_empty());
    });
}

#[test]
fn fuzzed_nodes_have_a_place() {
    let id = "0123cdef-0000-4000-8000-0123456789ab";
    fuzz(
        move |dice| {
            let mark = *dice.choose(&["lock-", "__READ__", "__WRIT__", "lease-", ""]);
            format!(
                "_c_{id}-{mark}{:010}\n{id}:{} label pid 7 on host\nmain",
                dice.number(),
                dice.number()
            )
            .into_bytes()
        },
        move |bytes, _| {
            let text = String::from_utf8_lossy(bytes);
            let (node, data) = text.split_once('\n').unwrap_or((&text, ""));
            let holder = inspect::holder_in(data.as_bytes(), node);
            let _ = inspect::owner_in(data.as_bytes(), &holder);
            let _ = (
                names::is_of(node, id),
                names::is_read(node),
                names::last_of(node),
                names::check_path(node).is_ok(),
            );
            for kind in [Kind::Mutex, Kind::Read, Kind::Write, Kind::Semaphore] {
                let _ = names::sequence(kind, node);
                let nodes = names::sorted(kind, vec![node.to_owned(), holder.clone()]);
                let _ =
                    (names::predecessor(kind, &nodes, 1), names::keeps_out(kind, nodes.clone()));
            }
        },
    );
}
