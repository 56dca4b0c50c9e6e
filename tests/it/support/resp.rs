//! Just enough of the Redis protocol to tell where a request or a reply ends.

/// What stands at the start of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framed<T> {
    /// Something complete of this length.
    Complete(usize, T),
    /// More bytes are needed.
    Partial,
    /// Not the protocol: nobody can tell where it ends.
    Alien,
}

/// The words of a request: an array of bulk strings, or a bare line as people type it.
pub(super) fn request(bytes: &[u8]) -> Framed<Vec<Vec<u8>>> {
    let Some((line, mut at)) = line(bytes, 0) else { return Framed::Partial };
    if !line.starts_with(b"*") {
        let words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        return Framed::Complete(at, words.map(<[u8]>::to_vec).collect());
    }
    let Some(count) = number(&line[1..]) else { return Framed::Alien };
    let mut words = Vec::new();
    for _ in 0..count {
        match bulk(bytes, at) {
            Framed::Complete(end, word) => {
                words.push(word.to_vec());
                at = end;
            }
            Framed::Partial => return Framed::Partial,
            Framed::Alien => return Framed::Alien,
        }
    }
    Framed::Complete(at, words)
}

/// A reply of any type, of RESP2 or RESP3.
pub(super) fn reply(bytes: &[u8]) -> Framed<()> {
    // Aggregates nest, but it is enough to count how many values are still to come.
    let (mut at, mut values) = (0, 1_i64);
    while values > 0 {
        values -= 1;
        let Some((line, end)) = line(bytes, at) else { return Framed::Partial };
        let Some((kind, rest)) = line.split_first() else { return Framed::Alien };
        at = end;
        match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {}
            b'$' | b'!' | b'=' => match number(rest) {
                Some(-1) => {}
                Some(length) => at += usize::try_from(length).unwrap_or(0) + 2,
                None => return Framed::Alien,
            },
            b'*' | b'~' | b'>' => match number(rest) {
                Some(count) => values += count.max(0),
                None => return Framed::Alien,
            },
            // Attributes stand before the value that they belong to.
            b'%' | b'|' => match number(rest) {
                Some(count) => values += 2 * count.max(0) + i64::from(*kind == b'|'),
                None => return Framed::Alien,
            },
            _ => return Framed::Alien,
        }
        if at > bytes.len() {
            return Framed::Partial;
        }
    }
    Framed::Complete(at, ())
}

/// The first word of an array reply such as a pub/sub message.
pub(super) fn first_word(reply: &[u8]) -> Option<&[u8]> {
    let (head, at) = line(reply, 0)?;
    if !head.starts_with(b"*") && !head.starts_with(b">") {
        return None;
    }
    match bulk(reply, at) {
        Framed::Complete(_, word) => Some(word),
        _ => None,
    }
}

fn bulk(bytes: &[u8], at: usize) -> Framed<&[u8]> {
    let Some((line, start)) = line(bytes, at) else { return Framed::Partial };
    let length = line.strip_prefix(b"$").and_then(number).and_then(|length| usize::try_from(length).ok());
    let Some(length) = length else { return Framed::Alien };
    match bytes.get(start..start + length + 2) {
        Some(word) => Framed::Complete(start + length + 2, &word[..length]),
        None => Framed::Partial,
    }
}

/// The line that starts here, without its end, and where the next one starts.
fn line(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(at..)?;
    let length = rest.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&rest[..length], at + length + 2))
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
