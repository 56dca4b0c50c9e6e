//! Reads requests and replies from a stream.

use std::io::Read;
use std::os::unix::net::UnixStream;

/// The next complete request, raw and as words.
pub(crate) fn next_request(client: &mut UnixStream, pending: &mut Vec<u8>) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let mut chunk = [0; 16 * 1024];
    loop {
        if let Some((length, words)) = parse_request(pending) {
            let rest = pending.split_off(length);
            return Some((std::mem::replace(pending, rest), words));
        }
        match client.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(n) => pending.extend_from_slice(&chunk[..n]),
        }
    }
}

fn line(bytes: &[u8], from: usize) -> Option<(usize, &str)> {
    let end = bytes[from..].windows(2).position(|w| w == b"\r\n")?;
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

pub(crate) fn read_reply(server: &mut UnixStream) -> Option<Vec<u8>> {
    let mut reply = Vec::new();
    let mut chunk = [0; 16 * 1024];
    while reply_length(&reply, 0).is_none() {
        match server.read(&mut chunk) {
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
