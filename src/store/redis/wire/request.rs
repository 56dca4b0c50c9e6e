//! A command on its way: packed as far as it can be before its connection is known.

use super::Reply;
use crate::store::redis::script::Script;

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
pub(crate) struct ConnectionArgs {
    /// The fencing token floor, server time in microseconds.
    pub(crate) floor: u64,
    /// Server time in microseconds past which an acquire must not run; 0 for no limit.
    pub(crate) not_after: u64,
}

/// Which of the stamps a script takes, as its last arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NeededArgs {
    No,
    NotAfter,
    FloorAndNotAfter,
}

/// What a reply must look like to be the answer to its request. Error replies fit every request.
///
/// A frame too many (of a proxy, or a server's bug) shifts all later replies by one, and then a reply that says "granted"
/// belongs to another lock. So what does not fit ends its connection, before anything can be read from it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Judged by who asked, on a connection that nobody else has.
    Any,
    Number,
    /// A string, or nil.
    Text,
    /// Two numbers.
    Pair,
    /// A list of anything, with something in it.
    List,
    /// A list of `least` to `most` values, of which the first is a number from 0 to `top` and none is a list.
    Status {
        top: u8,
        least: u8,
        most: u16,
        /// The holder is fresh: 2, that it has lost what it held, is an answer to somebody else.
        fresh: bool,
    },
    /// A number or an error for each of so many holds.
    Each(u32),
    /// That, or an empty list: the master has no vote.
    EachOrNone(u32),
}

impl Shape {
    /// The answer of most scripts: what became of it, and one value or two about that.
    pub(crate) const fn status(top: u8) -> Self {
        Self::Status { top, least: 2, most: 3, fresh: false }
    }

    /// The same, where the holder has held nothing before.
    fn of_fresh_holder(self) -> Self {
        match self {
            Self::Status { top, least, most, .. } => Self::Status { top, least, most, fresh: true },
            other => other,
        }
    }

    pub(crate) fn fits(self, reply: &Reply) -> bool {
        let is_answer = |reply: &Reply| matches!(reply, Reply::Int(_) | Reply::Error(_));
        match (self, reply) {
            // One that no server sends to any of our scripts: it may be a frame too many.
            (_, Reply::Error(e)) => e.is_known(),
            (Self::Any, _) => true,
            (Self::Number, reply) => matches!(reply, Reply::Int(_)),
            (Self::Text, reply) => matches!(reply, Reply::Bytes(_) | Reply::Nil),
            (Self::Pair, reply) => {
                matches!(reply, Reply::Array(values) if matches!(values[..], [Reply::Int(_), Reply::Int(_)]))
            }
            (Self::List, reply) => matches!(reply, Reply::Array(values) if !values.is_empty()),
            (Self::Status { top, least, most, fresh }, Reply::Array(values)) => {
                let may_be = |status| (0..=i64::from(top)).contains(&status) && !(fresh && status == 2);
                (usize::from(least)..=usize::from(most)).contains(&values.len())
                    && matches!(values[0], Reply::Int(status) if may_be(status))
                    && !values.iter().any(|value| matches!(value, Reply::Array(_) | Reply::Error(_)))
            }
            (Self::Each(count), Reply::Array(answers)) => {
                answers.len() == count as usize && answers.iter().all(is_answer)
            }
            (Self::EachOrNone(count), Reply::Array(answers)) => {
                (answers.len() == count as usize || answers.is_empty()) && answers.iter().all(is_answer)
            }
            _ => false,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    verb: Verb,
    /// All arguments, packed as RESP bulk strings.
    body: Vec<u8>,
    args: usize,
    with_floor_and_limit: NeededArgs,
    replicas: Option<Replicas>,
    shape: Shape,
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
        let mut request = Self {
            verb: Verb::Plain,
            body: Vec::new(),
            args: 0,
            with_floor_and_limit: NeededArgs::No,
            replicas: None,
            shape: Shape::Any,
        };
        for word in words {
            request = request.arg(*word);
        }
        request
    }

    pub(crate) fn script(script: &'static Script, keys: &[&[u8]]) -> Self {
        let (verb, shape) = (Verb::Script(script), script.shape);
        let request = Self { verb, body: Vec::with_capacity(256), shape, ..Self::plain(&[]) };
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

    /// The connection appends both its [`ConnectionArgs`]: for what gives a fencing token.
    pub(crate) fn with_floor_and_limit(mut self) -> Self {
        self.with_floor_and_limit = NeededArgs::FloorAndNotAfter;
        self
    }

    /// The connection appends the not-after.
    pub(crate) fn with_limit(mut self) -> Self {
        self.with_floor_and_limit = NeededArgs::NotAfter;
        self
    }

    /// `WAIT` follows in the same write, and its answer is part of this one's.
    pub(crate) fn acknowledged_by(mut self, replicas: Option<Replicas>) -> Self {
        self.replicas = replicas;
        self
    }

    /// What the reply must look like, where that is not known by the script alone.
    pub(crate) fn answered_by(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    /// An acquire that is no re-entry. See [`Shape::Status`].
    pub(crate) fn for_fresh_holder(mut self) -> Self {
        self.shape = self.shape.of_fresh_holder();
        self
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) fn replicas(&self) -> Option<Replicas> {
        self.replicas
    }

    pub(crate) fn has_limit(&self) -> bool {
        self.with_floor_and_limit != NeededArgs::No
    }

    /// The same request for a server that does not know its script; `None` when that cannot be the trouble.
    pub(crate) fn whole(&self) -> Option<Self> {
        let Verb::Script(script) = self.verb else { return None };
        Some(Self { verb: Verb::WholeScript(script), ..self.clone() })
    }

    /// Appends the request in wire form, for a connection that is not a [`Connection`](super::Connection) yet.
    pub(crate) fn write_plain(&self, out: &mut Vec<u8>) {
        self.write(out, ConnectionArgs { floor: 0, not_after: 0 });
    }

    /// Appends the request in wire form.
    pub(crate) fn write(&self, out: &mut Vec<u8>, connection_args: ConnectionArgs) {
        let verb_words = if matches!(self.verb, Verb::Plain) { 0 } else { 2 };
        let arg_words = match self.with_floor_and_limit {
            NeededArgs::No => 0,
            NeededArgs::NotAfter => 1,
            NeededArgs::FloorAndNotAfter => 2,
        };
        let words = verb_words + self.args + arg_words;
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
        if self.with_floor_and_limit == NeededArgs::FloorAndNotAfter {
            pack_number(out, connection_args.floor);
        }
        if self.with_floor_and_limit != NeededArgs::No {
            pack_number(out, connection_args.not_after);
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

    #[test]
    fn what_does_not_fit_its_request_is_seen() {
        let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        let list = |numbers: &[i64]| Reply::Array(numbers.iter().map(|n| Reply::Int(*n)).collect());
        let error = |text: &str| Reply::Error(crate::store::redis::wire::ServerError::from(text));
        let stray = [Reply::Int(7), text("OK"), Reply::Nil, error("ERR x"), list(&[])];
        for shape in [Shape::status(4), Shape::Status { top: 3, least: 2, most: 1001, fresh: true }, Shape::Each(1)] {
            assert!(stray.iter().all(|reply| !shape.fits(reply)), "{shape:?}");
            assert!(shape.fits(&error("WRONGTYPE Operation")), "{shape:?}");
        }
        assert!(Shape::status(4).fits(&list(&[4, 0])) && Shape::status(4).fits(&list(&[0, 1, 2])));
        for other in [&[5, 0][..], &[-1, 0], &[1], &[1, 2, 3, 4]] {
            assert!(!Shape::status(4).fits(&list(other)), "{other:?}");
        }
        let gone = list(&[2, 0]);
        assert!(Shape::status(4).fits(&gone) && !Shape::status(4).of_fresh_holder().fits(&gone));
        let mixed = Reply::Array(vec![Reply::Int(1), error("ERR of one lock")]);
        assert!(Shape::Each(2).fits(&mixed) && !Shape::Each(3).fits(&mixed) && !Shape::status(4).fits(&mixed));
        assert!(Shape::EachOrNone(2).fits(&list(&[])) && !Shape::EachOrNone(2).fits(&list(&[1])));
        assert!(Shape::Number.fits(&Reply::Int(0)) && !Shape::Number.fits(&Reply::Nil));
        assert!(Shape::Text.fits(&Reply::Nil) && !Shape::Text.fits(&Reply::Int(0)));
    }

    fn text(request: &Request) -> String {
        let mut out = Vec::new();
        request.write(&mut out, ConnectionArgs { floor: 5, not_after: 0 });
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
            text(&Request::plain(&["GET"]).arg("a\r\n").with_floor_and_limit()),
            "*4\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n$1\r\n5\r\n$1\r\n0\r\n"
        );
        assert_eq!(text(&Request::plain(&["DEL"]).with_limit()), "*2\r\n$3\r\nDEL\r\n$1\r\n0\r\n");
    }
}
