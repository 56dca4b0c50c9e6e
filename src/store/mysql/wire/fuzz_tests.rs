//! Packets that no server sends, and answers that no statement of ours has.

use std::time::Duration;

use super::log_in::Greeting;
use super::packet::{AnswerReader, PacketReader, Set, Sets};
use super::server_error::ServerError;
use crate::base::fuzz_tests::{Dice, fuzz};
use crate::base::holder::ClientId;
use crate::base::lease::Moment;
use crate::base::lock_name::{Kind, LockName};
use crate::store::database::Protocol;
use crate::store::mysql::requests::Step;
use crate::store::mysql::{kinds, listing};
use crate::store::{Acquire, TokenRule, Waiting};

fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&length[..3], &[number], body].concat()
}

fn packed(value: u64) -> Vec<u8> {
    match value {
        0..=250 => vec![value as u8],
        251..=0xffff => [&[0xfc][..], &(value as u16).to_le_bytes()].concat(),
        _ => [&[0xfe][..], &value.to_le_bytes()].concat(),
    }
}

fn end(more: bool) -> Vec<u8> {
    vec![0xfe, 0, 0, if more { 8 } else { 2 }, 0]
}

/// The packets of one statement's part of an answer.
fn any_part(dice: &mut Dice, more: bool) -> Vec<Vec<u8>> {
    let number = |dice: &mut Dice| packed(dice.number().unsigned_abs());
    match dice.below(8) {
        0 => vec![[&b"\xff\x15\x04#28000"[..], dice.text().as_bytes()].concat()],
        1..=3 => {
            let status = if more { 8 } else { 2 };
            vec![[&[0][..], &number(dice), &number(dice), &[status, 0, 0, 0]].concat()]
        }
        _ => {
            let columns = 1 + dice.below(4);
            let mut all = vec![vec![columns as u8]];
            all.extend((0..columns).map(|_| b"\x03def".to_vec()));
            all.push(end(false));
            for _ in 0..dice.below(3) {
                let column = |dice: &mut Dice| match dice.below(4) {
                    0 => vec![0xfb],
                    1 => {
                        let text = dice.text();
                        [packed(text.len() as u64), text.into_bytes()].concat()
                    }
                    _ => {
                        let text = dice.number().to_string();
                        [packed(text.len() as u64), text.into_bytes()].concat()
                    }
                };
                all.push((0..columns).flat_map(|_| column(dice)).collect());
            }
            all.push(end(more));
            all
        }
    }
}

fn any_answer(dice: &mut Dice) -> Vec<u8> {
    let parts = 1 + dice.below(3);
    let packets = (1..=parts).flat_map(|part| any_part(dice, part < parts)).collect::<Vec<_>>();
    packets.iter().enumerate().flat_map(|(at, body)| packet(at as u8, body)).collect()
}

/// The first answer in these bytes, if it is complete, and whether it is malformed.
fn read_in_pieces(bytes: &[u8], size: usize) -> (Option<Sets>, bool) {
    let (mut reader, mut answer) = (PacketReader::default(), AnswerReader::default());
    for mut piece in bytes.chunks(size) {
        while !piece.is_empty() {
            reader.fill(&mut piece).unwrap();
        }
        loop {
            match reader.next() {
                Ok(Some(packet)) => match answer.take(&packet) {
                    Ok(None) => {}
                    Ok(sets) => return (sets, false),
                    Err(_) => return (None, true),
                },
                Ok(None) => break,
                Err(_) => return (None, true),
            }
        }
    }
    (None, false)
}

#[test]
fn any_bytes_are_an_answer_or_none() {
    fuzz(any_answer, |bytes, dice| {
        let whole = read_in_pieces(bytes, bytes.len().max(1));
        assert_eq!(whole, read_in_pieces(bytes, 1 + dice.below(9)), "in pieces of any size");
        if let (Some(sets), _) = whole {
            understand(&sets);
        }
    });
}

/// Whatever the statements answer, it is an outcome or an error.
fn understand(sets: &Sets) {
    let sets = match sets {
        Ok(sets) => sets,
        Err(error) => return assert!(!error.to_error().to_string().is_empty()),
    };
    for kind in [Kind::Mutex, Kind::Read, Kind::Write, Kind::Semaphore] {
        understand_of(kind, sets);
    }
    for set in sets {
        for row in &set.rows {
            let _ = listing::add(&mut Vec::new(), row);
        }
    }
    let _ = super::schema::found(sets);
}

fn understand_of(kind: Kind, sets: &[Set]) {
    let name = &std::sync::Arc::new(LockName::new("", "job", kind).unwrap());
    let holder = &ClientId::random(Duration::from_secs(5)).fresh_holder();
    for (held, step) in [
        (0, Step::Take),
        (0, Step::TakeFenced),
        (0, Step::Look),
        (0, Step::Insert),
        (0, Step::Bar(Duration::from_secs(1))),
        (1, Step::Take),
    ] {
        let asked = Acquire {
            name,
            holder,
            permits: 1,
            lease: Duration::from_secs(1),
            held,
            token: TokenRule::On,
            tokens: 3,
            waiting: Waiting::No,
            goes_on: false,
        };
        let bar = Duration::from_secs(5);
        let _ = kinds::acquire_answer(sets, &asked, &step, bar, Moment::from_nanos(5));
    }
}

fn any_greeting(dice: &mut Dice) -> Vec<u8> {
    greeting(&dice.text().replace('\0', ""))
}

fn greeting(version: &str) -> Vec<u8> {
    let mut greeting =
        [&[10][..], version.as_bytes(), &[0], &[7, 0, 0, 0], &[b'n'; 8], &[0]].concat();
    greeting.extend([0xff, 0xff, 45, 2, 0, 0xff, 0xff, 21]);
    greeting.extend([0; 10]);
    greeting.extend([b'n'; 12]);
    greeting.extend(b"\0caching_sha2_password\0");
    greeting
}

#[test]
fn any_bytes_are_a_greeting_or_none() {
    let read = Greeting::read(&greeting("8.4.10"));
    assert!(read.is_ok_and(|greeting| greeting.id == 7 && greeting.has_tls));
    fuzz(any_greeting, |bytes, _| {
        let _ = Greeting::read(bytes);
        let _ = ServerError::read(bytes);
    });
}
