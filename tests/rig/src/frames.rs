//! Reads requests and replies of Redis', PostgreSQL's or MySQL's protocol from a stream.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How often the other end of a connection is looked at while no request is under way.
const IDLE_LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Redis,
    Postgres,
    /// Behind the greeting, which the server sends first.
    Mysql,
}

/// The next complete request, raw and as words. `idle` is called every [`IDLE_LOOK`] until it
/// comes; false ends the wait.
pub fn next_request(
    protocol: Protocol,
    client: &mut UnixStream,
    pending: &mut Vec<u8>,
    mut idle: impl FnMut(&mut UnixStream) -> bool,
) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    client.set_read_timeout(Some(IDLE_LOOK)).ok()?;
    let mut chunk = [0; 16 * 1024];
    loop {
        let parsed = match protocol {
            Protocol::Redis => parse_request(pending),
            Protocol::Postgres => {
                parse_transaction(pending).map(|length| (length, vec![pending[..length].to_vec()]))
            }
            Protocol::Mysql => {
                packet_end(pending, 0).map(|length| (length, with_literals(&pending[..length])))
            }
        };
        if let Some((length, words)) = parsed {
            let rest = pending.split_off(length);
            client.set_read_timeout(None).ok()?;
            return Some((std::mem::replace(pending, rest), words));
        }
        match client.read(&mut chunk) {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                if !idle(client) {
                    return None;
                }
            }
            Ok(0) | Err(_) => return None,
            Ok(n) => pending.extend_from_slice(&chunk[..n]),
        }
    }
}

fn line(bytes: &[u8], from: usize) -> Option<(usize, &str)> {
    let end = bytes.get(from..)?.windows(2).position(|w| w == b"\r\n")?;
    Some((from + end + 2, std::str::from_utf8(&bytes[from..from + end]).ok()?))
}

fn parse_request(bytes: &[u8]) -> Option<(usize, Vec<Vec<u8>>)> {
    let (mut at, head) = line(bytes, 0)?;
    let count: usize = head.strip_prefix('*')?.parse().ok()?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (start, head) = line(bytes, at)?;
        let length: usize = head.strip_prefix('$')?.parse().ok()?;
        words.push(bytes.get(start..start + length)?.to_vec());
        at = start + length + 2;
    }
    (at <= bytes.len()).then_some((at, words))
}

pub fn read_reply(protocol: Protocol, server: &mut UnixStream) -> Option<Vec<u8>> {
    let mut reply = Vec::new();
    let mut chunk = [0; 16 * 1024];
    let is_complete = |reply: &[u8]| match protocol {
        Protocol::Redis => reply_length(reply, 0).is_some(),
        Protocol::Postgres => answers_all(reply),
        Protocol::Mysql => answers_query(reply),
    };
    while !is_complete(&reply) {
        match server.read(&mut chunk) {
            // The last bytes of a server that ends the connection.
            Ok(0) if !reply.is_empty() => return Some(reply),
            Ok(0) | Err(_) => return None,
            Ok(n) => reply.extend_from_slice(&chunk[..n]),
        }
    }
    Some(reply)
}

/// The end of the reply that begins at `from`, if it is complete.
fn reply_length(bytes: &[u8], from: usize) -> Option<usize> {
    let (at, head) = line(bytes, from)?;
    let number = || head[1..].parse::<i64>().ok();
    match head.as_bytes().first()? {
        b'$' => match number()? {
            -1 => Some(at),
            length => {
                let end = at + usize::try_from(length).ok()? + 2;
                (end <= bytes.len()).then_some(end)
            }
        },
        b'*' => (0..number()?.max(0)).try_fold(at, |at, _| reply_length(bytes, at)),
        _ => Some(at),
    }
}

/// Where the next PostgreSQL message with a type byte ends.
fn message_end(bytes: &[u8], from: usize) -> Option<usize> {
    let length = bytes.get(from + 1..from + 5)?.try_into().ok().map(u32::from_be_bytes)?;
    let end = from + 1 + length as usize;
    (end <= bytes.len()).then_some(end)
}

/// The end of the first transaction: the messages up to a sync, a simple query, or a message of the
/// log-in. The first message of a connection has no type byte.
fn parse_transaction(bytes: &[u8]) -> Option<usize> {
    if bytes.first() == Some(&0) {
        let length = bytes.get(..4)?.try_into().ok().map(u32::from_be_bytes)? as usize;
        return (length <= bytes.len()).then_some(length);
    }
    let mut at = 0;
    loop {
        let end = message_end(bytes, at)?;
        if matches!(bytes[at], b'S' | b'Q' | b'p' | b'X') {
            return Some(end);
        }
        at = end;
    }
}

/// Whether the server has answered: it is ready again, or asks for the next message of the log-in.
fn answers_all(bytes: &[u8]) -> bool {
    let (mut at, mut is_over) = (0, false);
    while let Some(end) = message_end(bytes, at) {
        let asks_for_more = bytes[at] == b'R'
            && bytes.get(at + 5..at + 9).is_some_and(|code| ![0, 12].contains(&code[3]));
        is_over = bytes[at] == b'Z' || asks_for_more;
        at = end;
    }
    is_over && at == bytes.len()
}

/// The packet, and what its hexadecimal literals say: names and holders.
fn with_literals(packet: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(packet);
    let literals = text.split("x'").skip(1).filter_map(|rest| rest.split('\'').next());
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let decoded = literals.filter_map(|digits| digits.as_bytes().chunks(2).map(byte).collect());
    std::iter::once(packet.to_vec()).chain(decoded).collect()
}

/// Where the packet of MySQL that begins here ends.
fn packet_end(bytes: &[u8], from: usize) -> Option<usize> {
    let head = bytes.get(from..from + 4)?;
    let end = from + 4 + u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
    (end <= bytes.len()).then_some(end)
}

/// Whether MySQL has answered: by an error, by what a log-in needs next, or by the last result.
/// (Our queries have no result of 254 columns, and the log-in no table.)
fn answers_query(bytes: &[u8]) -> bool {
    const MORE_RESULTS: u8 = 8;
    let (mut at, mut ends) = (0, 0);
    while let Some(end) = packet_end(bytes, at) {
        let packet = &bytes[at + 4..end];
        let is_first = ends == 0;
        let status = match packet.first() {
            Some(0xff) => Some(0),
            // OK: two packed numbers, and the status.
            Some(0) if is_first => {
                let width = |at: usize| match packet.get(at) {
                    Some(0xfc) => 3,
                    Some(0xfd) => 4,
                    Some(0xfe) => 9,
                    _ => 1,
                };
                let affected = 1 + width(1);
                packet.get(affected + width(affected)).copied()
            }
            // The log-in goes on.
            Some(1) if is_first && packet.len() == 2 => Some(0),
            Some(0xfe) if is_first => Some(0),
            Some(0xfe) if packet.len() < 9 && ends == 2 => packet.get(3).copied(),
            Some(0xfe) if packet.len() < 9 => {
                ends = 2;
                None
            }
            _ => {
                ends = ends.max(1);
                None
            }
        };
        if let Some(status) = status {
            ends = 0;
            if status & MORE_RESULTS == 0 {
                return end == bytes.len();
            }
        }
        at = end;
    }
    false
}
