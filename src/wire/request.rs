//! A command on its way: packed as far as it can be before its connection is known.

use crate::script::Script;

#[derive(Debug, Clone)]
enum Verb {
    Script(&'static Script),
    /// With its source, which runs and loads a script that the server does not know in one round trip.
    WholeScript(&'static Script),
    Plain,
}

/// Values that only the connection knows that the request leaves on (a queued request does not know which one that
/// will be, and after a failover a floor of the old one would be too low).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamps {
    /// The fencing token floor, server time in microseconds.
    pub(crate) floor: u64,
    /// Server time in microseconds past which an acquire must not run; 0 for no limit.
    pub(crate) not_after: u64,
}

/// Which of the stamps a script takes, as its last arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stamped {
    No,
    NotAfter,
    FloorAndNotAfter,
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    verb: Verb,
    /// All arguments, packed as RESP bulk strings.
    body: Vec<u8>,
    args: usize,
    stamped: Stamped,
    replicas: Option<Replicas>,
}

/// How many replicas must have what a request wrote before its answer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub(crate) count: u32,
    /// How long the server waits for them, in milliseconds.
    pub(crate) millis: u64,
    /// It asks for a grant, whose answer begins with 1; else it renews, and has a 1 for every hold that stands.
    pub(crate) grant: bool,
}

impl Request {
    pub(crate) fn plain(words: &[&str]) -> Self {
        let mut request = Self { verb: Verb::Plain, body: Vec::new(), args: 0, stamped: Stamped::No, replicas: None };
        for word in words {
            request = request.arg(*word);
        }
        request
    }

    pub(crate) fn script(script: &'static Script, keys: &[&[u8]]) -> Self {
        let request = Self { verb: Verb::Script(script), body: Vec::with_capacity(256), ..Self::plain(&[]) };
        let mut request = request.number(keys.len() as u64);
        for key in keys {
            request = request.arg(*key);
        }
        request
    }

    pub(crate) fn arg(mut self, value: impl AsRef<[u8]>) -> Self {
        pack(&mut self.body, value.as_ref());
        self.args += 1;
        self
    }

    pub(crate) fn number(mut self, value: u64) -> Self {
        pack_number(&mut self.body, value);
        self.args += 1;
        self
    }

    /// The connection appends both its [`Stamps`]: for what gives a fencing token.
    pub(crate) fn stamped(mut self) -> Self {
        self.stamped = Stamped::FloorAndNotAfter;
        self
    }

    /// The connection appends the not-after.
    pub(crate) fn limited(mut self) -> Self {
        self.stamped = Stamped::NotAfter;
        self
    }

    /// `WAIT` follows in the same write, and its answer is part of this one's.
    pub(crate) fn acknowledged_by(mut self, replicas: Option<Replicas>) -> Self {
        self.replicas = replicas;
        self
    }

    pub(crate) fn replicas(&self) -> Option<Replicas> {
        self.replicas
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.stamped != Stamped::No
    }

    /// The same request for a server that does not know its script; `None` when that cannot be the trouble.
    pub(crate) fn whole(&self) -> Option<Self> {
        let Verb::Script(script) = self.verb else { return None };
        Some(Self { verb: Verb::WholeScript(script), ..self.clone() })
    }

    /// Appends the request in wire form, for a connection that is not a [`Link`](super::Link) yet.
    pub(crate) fn write_unstamped(&self, out: &mut Vec<u8>) {
        self.write(out, Stamps { floor: 0, not_after: 0 });
    }

    /// Appends the request in wire form.
    pub(crate) fn write(&self, out: &mut Vec<u8>, stamps: Stamps) {
        let verb_words = if matches!(self.verb, Verb::Plain) { 0 } else { 2 };
        let stamp_words = match self.stamped {
            Stamped::No => 0,
            Stamped::NotAfter => 1,
            Stamped::FloorAndNotAfter => 2,
        };
        let words = verb_words + self.args + stamp_words;
        out.push(b'*');
        digits(out, words as u64);
        out.extend_from_slice(b"\r\n");
        match &self.verb {
            Verb::Plain => {}
            Verb::WholeScript(script) => {
                pack(out, b"EVAL");
                pack(out, script.source.as_bytes());
            }
            Verb::Script(script) => {
                pack(out, b"EVALSHA");
                pack(out, script.sha().as_bytes());
            }
        }
        out.extend_from_slice(&self.body);
        if self.stamped == Stamped::FloorAndNotAfter {
            pack_number(out, stamps.floor);
        }
        if self.stamped != Stamped::No {
            pack_number(out, stamps.not_after);
        }
        if let Some(Replicas { count, millis, .. }) = self.replicas {
            out.extend_from_slice(b"*3\r\n$4\r\nWAIT\r\n");
            pack_number(out, count.into());
            pack_number(out, millis);
        }
    }
}

fn pack(out: &mut Vec<u8>, word: &[u8]) {
    out.push(b'$');
    digits(out, word.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

fn pack_number(out: &mut Vec<u8>, value: u64) {
    let length = value.checked_ilog10().map_or(1, |log| u64::from(log) + 1);
    out.push(b'$');
    digits(out, length);
    out.extend_from_slice(b"\r\n");
    digits(out, value);
    out.extend_from_slice(b"\r\n");
}

/// Without the allocation of `to_string`: a request has half a dozen numbers, and this is the path of every lock call.
fn digits(out: &mut Vec<u8>, mut value: u64) {
    let mut text = [0; 20];
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(request: &Request) -> String {
        let mut out = Vec::new();
        request.write(&mut out, Stamps { floor: 5, not_after: 0 });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_packed_as_their_text() {
        for n in [0, 9, 10, 99, 100, 1_763_700_000_000_001, u64::MAX] {
            let (number, word) = (Request::plain(&["X"]).number(n), Request::plain(&["X"]).arg(n.to_string()));
            assert_eq!(text(&number), text(&word));
        }
    }

    #[test]
    fn packs_as_resp() {
        assert_eq!(text(&Request::plain(&["PING"])), "*1\r\n$4\r\nPING\r\n");
        assert_eq!(
            text(&Request::plain(&["GET"]).arg("a\r\n").stamped()),
            "*4\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n$1\r\n5\r\n$1\r\n0\r\n"
        );
        assert_eq!(text(&Request::plain(&["DEL"]).limited()), "*2\r\n$3\r\nDEL\r\n$1\r\n0\r\n");
    }
}
