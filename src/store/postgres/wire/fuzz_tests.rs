//! Messages that no server sends, and answers that no function gives.

use std::sync::Arc;
use std::time::Duration;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::Message;

use super::connection::read_row;
use super::messages::MessageReader;
use super::owners;
use super::request::Row;
use super::server_error::ServerError;
use super::startup::check_iterations;
use crate::base::error::{Error, Result};
use crate::base::fuzz_tests::{Dice, fuzz};
use crate::base::holder::ClientId;
use crate::base::lease::Moment;
use crate::base::lock_name::{Kind, LockName};
use crate::store::database::Protocol;
use crate::store::postgres::requests;
use crate::store::{Acquire, Release, TokenRule, Waiting};

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[tag], &length.to_be_bytes()[..], body].concat()
}

fn row_message(row: &Row) -> Vec<u8> {
    let mut body = u16::try_from(row.len()).unwrap().to_be_bytes().to_vec();
    for column in row {
        let length = column.as_ref().map_or(-1, |text| i32::try_from(text.len()).unwrap());
        body.extend(length.to_be_bytes());
        body.extend(column.iter().flat_map(|text| text.bytes()));
    }
    message(b'D', &body)
}

fn any_row(dice: &mut Dice) -> Row {
    let column = |dice: &mut Dice| match dice.below(8) {
        0 => None,
        1 | 2 => Some(dice.text()),
        3 => Some(["x", "r", "t", "LH001"][dice.below(4)].to_owned()),
        4 => Some(format!("{{{},{}}}", dice.number(), dice.number())),
        _ => Some(dice.number().to_string()),
    };
    (0..dice.below(8)).map(|_| column(dice)).collect()
}

fn any_message(dice: &mut Dice) -> Vec<u8> {
    let mut text = || [dice.text().replace('\0', ""), "\0".to_owned()].concat().into_bytes();
    let texts = [text(), text(), text()];
    match dice.below(7) {
        0 | 1 => row_message(&any_row(dice)),
        2 => {
            let state = *dice.choose(&["57P01", "42501", "53300", "LH001", "22P05", "3F000", ""]);
            let severity = *dice.choose(&["FATAL", "ERROR"]);
            let fields = [
                b"C",
                state.as_bytes(),
                b"\0V",
                severity.as_bytes(),
                b"\0M",
                &texts[0],
                b"D",
                &texts[1],
                b"\0",
            ];
            message(b'E', &fields.concat())
        }
        3 => message(b'A', &[&[0, 0, 0, 9][..], &texts[0], &texts[1]].concat()),
        4 => {
            let kind = (dice.below(14) as u32).to_be_bytes();
            message(b'R', &[&kind[..], b"SCRAM-SHA-256\0", &texts[0], b"\0"].concat())
        }
        5 => message(b'C', &texts[0]),
        _ => [message(b'1', b""), message(b'2', b""), message(b'Z', b"I")].concat(),
    }
}

/// Everything that is read from a message, in a text.
fn read(message: &Message) -> String {
    match message {
        Message::DataRow(body) => format!("{:?}", read_row(body)),
        Message::ErrorResponse(body) => match ServerError::read(body) {
            Ok(error) => told(&error.to_error()),
            Err(error) => error.to_string(),
        },
        Message::NotificationResponse(body) => {
            format!("{:?} {:?}", body.channel().ok(), body.message().ok())
        }
        Message::AuthenticationSasl(body) => {
            let offered: std::io::Result<Vec<&str>> = body.mechanisms().collect();
            format!("{:?}", offered.ok())
        }
        Message::AuthenticationSaslContinue(body) => {
            format!("{:?}", check_iterations(body.data()).err())
        }
        _ => String::new(),
    }
}

fn told(error: &Error) -> String {
    let text = error.chain().to_string();
    assert!(!text.is_empty(), "{error:?}");
    text
}

/// What is read, and whether the rest is malformed.
fn read_in_pieces(bytes: &[u8], size: usize) -> (Vec<String>, bool) {
    let (mut reader, mut texts, mut pieces) =
        (MessageReader::default(), Vec::new(), bytes.chunks(size));
    loop {
        match reader.next() {
            Ok(Some(message)) => texts.push(read(&message)),
            Err(_) => return (texts, true),
            Ok(None) => match pieces.next() {
                Some(mut piece) => reader.fill(&mut piece).unwrap(),
                None => return (texts, false),
            },
        }
    }
}

#[test]
fn fuzzed_messages_are_the_same_in_pieces_of_any_size() {
    fuzz(
        |dice| {
            let row = any_row(dice);
            let (texts, malformed) = read_in_pieces(&row_message(&row), 4096);
            assert_eq!((texts, malformed), (vec![format!("{:?}", Some(row))], false));
            (0..=dice.below(3)).flat_map(|_| any_message(dice)).collect()
        },
        |bytes, dice| {
            assert_eq!(read_in_pieces(bytes, 4096), read_in_pieces(bytes, 1 + dice.below(9)));
        },
    );
}

fn judge<T>(outcome: Result<T>) {
    if let Err(error) = outcome {
        told(&error);
    }
}

/// The rows of all messages that are whole.
fn rows(bytes: &[u8]) -> Vec<Row> {
    let mut reader = MessageReader::default();
    let mut rows = Vec::new();
    // One read takes 4096 bytes.
    for mut piece in bytes.chunks(4096) {
        reader.fill(&mut piece).unwrap();
    }
    while let Ok(Some(message)) = reader.next() {
        if let Message::DataRow(body) = message {
            rows.extend(read_row(&body));
        }
    }
    rows
}

#[test]
fn fuzzed_rows_are_outcomes_or_errors() {
    let holder = ClientId::random(Duration::from_secs(5)).fresh_holder();
    let kinds = [Kind::Mutex, Kind::Fair, Kind::CountingSemaphore];
    let names = kinds.map(|kind| Arc::new(LockName::new("", "job", kind).unwrap()));
    let sent_at = Moment::from_nanos(5);
    fuzz(
        |dice| (0..=dice.below(2)).flat_map(|_| row_message(&any_row(dice))).collect(),
        move |bytes, dice| {
            let rows = rows(bytes);
            let name = dice.choose(&names);
            let lease = Duration::from_secs(1);
            let token = TokenRule::On;
            let waiting = Waiting::No;
            let acquire = Acquire {
                name,
                holder: &holder,
                permits: 1,
                lease,
                held: 0,
                token,
                tokens: 1,
                waiting,
                goes_on: false,
            };
            judge(requests::acquire_answer(&rows, &acquire, sent_at));
            judge(requests::release_answer(
                &rows,
                &Release::of_all(name, &holder, 1),
                dice.one_in(2),
            ));
            judge(requests::renew_answers(&rows, 2, sent_at));
            judge(requests::inspect_answer(&rows));
            judge(requests::force_answer(&rows));
            judge(owners::check(&rows));
            let _ = (requests::place_of(&rows), owners::foreign(&rows));
        },
    );
}
