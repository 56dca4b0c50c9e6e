//! A request, packed as far as possible before its connection is known, and the script that it
//! runs.

use std::sync::{LazyLock, OnceLock};

use super::reply::{Reply, Shape};
use super::server_error::{ServerError, TOO_FEW_REPLICAS};
use super::unknown_outcome::{ConnectionArgs, Publishing, UnknownOutcome};
use crate::base::digits::Digits;

/// A Lua file, assembled with the libraries it shares with others.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) source: &'static str,
    /// The shape of its replies, as far as it does not depend on the arguments.
    pub(crate) shape: Shape,
    sha: LazyLock<String>,
    /// For a cluster with sharded channels.
    sharded: OnceLock<Sharded>,
}

/// A script that publishes to sharded channels or counts their subscribers, and its hash.
#[derive(Debug)]
struct Sharded {
    source: String,
    sha: String,
}

impl Script {
    /// `sha` computes the SHA-1 of `source`, on first use.
    pub(crate) const fn new(source: &'static str, shape: Shape, sha: fn() -> String) -> Self {
        Self { source, shape, sha: LazyLock::new(sha), sharded: OnceLock::new() }
    }

    pub(crate) fn source(&self, publishing: Publishing) -> &str {
        match publishing {
            Publishing::Classic => self.source,
            Publishing::Sharded => &self.sharded().source,
        }
    }

    pub(crate) fn sha(&self, publishing: Publishing) -> &str {
        match publishing {
            Publishing::Classic => &self.sha,
            Publishing::Sharded => &self.sharded().sha,
        }
    }

    fn sharded(&self) -> &Sharded {
        self.sharded.get_or_init(|| {
            let source =
                self.source.replace("'publish'", "'spublish'").replace("'numsub'", "'shardnumsub'");
            Sharded { sha: sha_of(&source), source }
        })
    }
}

pub(crate) fn sha_of(source: &str) -> String {
    redis::Script::new(source).get_hash().to_owned()
}

#[derive(Debug, Clone)]
enum Command {
    Script(&'static Script),
    /// With its source: one round trip loads and runs a script that the server does not know.
    WholeScript(&'static Script),
    Plain,
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    command: Command,
    /// All arguments, packed as RESP bulk strings.
    body: Vec<u8>,
    args: usize,
    /// Of the [`ConnectionArgs`], the script takes these as its last ones.
    takes_floor: bool,
    pub(super) takes_limit: bool,
    pub(super) replicas: Option<Replicas>,
    pub(super) asking: bool,
    alone: bool,
    pub(super) shape: Shape,
    /// Its earlier attempts, which must have ended before it runs: their connections are killed
    /// first, in the same write.
    pub(crate) earlier: Vec<UnknownOutcome>,
}

/// How many replicas must have the write of a request before its reply counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub(crate) count: u32,
    /// How long the server waits for them, in milliseconds.
    pub(crate) millis: u64,
    /// True for an acquire, whose reply begins with 1 if it is granted. False for a renewal, whose
    /// reply has a number other than 0 for each hold that was renewed: more than 1 beside a
    /// Redisson reader, a negative one if somebody asks for the lock.
    pub(crate) grant: bool,
}

impl Replicas {
    /// Appends the `WAIT` that covers all earlier writes of the connection.
    pub(super) fn write_wait(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"*3\r\n$4\r\nWAIT\r\n");
        pack(out, Digits::of(self.count.into()).as_bytes());
        pack(out, Digits::of(self.millis).as_bytes());
    }

    /// What one `WAIT` has to ask for, so that it serves both.
    pub(super) fn and(self, other: Self) -> Self {
        Self { count: self.count.max(other.count), millis: self.millis.max(other.millis), ..self }
    }

    /// Returns `reply` if enough replicas have the write that it reports; otherwise an error.
    /// `acknowledged` is the reply of `WAIT`. An error, and a reply that reports no write, are
    /// returned unchanged.
    pub(super) fn check(self, reply: Reply, acknowledged: Reply) -> Reply {
        let changed = match &reply {
            reply if self.grant => reply.status() == Some(1),
            Reply::Pair(first, second) => *first != 0 || *second != 0,
            Reply::Array(parts) => {
                parts.iter().any(|part| matches!(part, Reply::Int(number) if *number != 0))
            }
            _ => false,
        };
        match acknowledged {
            _ if !changed => reply,
            Reply::Int(count)
                if u64::try_from(count).is_ok_and(|count| count >= self.count.into()) =>
            {
                reply
            }
            Reply::Int(count) => Reply::Error(ServerError {
                code: TOO_FEW_REPLICAS.to_owned(),
                text: format!(
                    "{TOO_FEW_REPLICAS} {count} replicas acknowledged it in time, not {}",
                    self.count
                ),
            }),
            error => error,
        }
    }
}

impl Request {
    pub(crate) fn plain(words: &[&str]) -> Self {
        let mut request = Self {
            command: Command::Plain,
            body: Vec::with_capacity(256),
            args: 0,
            takes_floor: false,
            takes_limit: false,
            replicas: None,
            asking: false,
            alone: false,
            shape: Shape::Any,
            earlier: Vec::new(),
        };
        for word in words {
            request = request.arg(*word);
        }
        request
    }

    pub(crate) fn script(script: &'static Script, keys: &[&[u8]]) -> Self {
        let command = Command::Script(script);
        let shape = script.shape;
        let mut request = Self { command, shape, ..Self::plain(&[]) }.number(keys.len() as u64);
        for key in keys {
            request = request.arg(*key);
        }
        request
    }

    /// Has the server close a connection.
    pub(super) fn kill(id: u64) -> Self {
        Self::plain(&["CLIENT", "KILL", "ID"]).number(id)
    }

    pub(crate) fn arg(mut self, value: impl AsRef<[u8]>) -> Self {
        pack(&mut self.body, value.as_ref());
        self.args += 1;
        self
    }

    pub(crate) fn number(mut self, value: u64) -> Self {
        pack(&mut self.body, Digits::of(value).as_bytes());
        self.args += 1;
        self
    }

    /// The connection appends both [`ConnectionArgs`]: for acquires that give a fencing token.
    pub(crate) fn with_floor_and_limit(mut self) -> Self {
        self.takes_floor = true;
        self.takes_limit = true;
        self
    }

    /// The connection appends the token floor.
    pub(crate) fn with_floor(mut self) -> Self {
        self.takes_floor = true;
        self
    }

    /// The connection appends the not-after time.
    pub(crate) fn with_limit(mut self) -> Self {
        self.takes_limit = true;
        self
    }

    /// One `WAIT` follows at the end of the write, and its reply decides whether this one's counts.
    pub(crate) fn acknowledged_by(mut self, replicas: Option<Replicas>) -> Self {
        self.replicas = replicas;
        self
    }

    /// `ASKING` precedes it in the same write: a cluster node then serves a slot that it is still
    /// importing.
    pub(crate) fn asking(mut self, asking: bool) -> Self {
        self.asking = asking;
        self
    }

    /// Nothing else is under way on its connection, which is looked at before it is sent: for what
    /// is not repeated. Behind others it would be lost with a connection that has ended already.
    pub(crate) fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Whether it may be sent behind others whose replies are due, and others behind it. The server
    /// runs nothing of a connection that waits for replicas.
    pub(crate) fn may_follow(&self) -> bool {
        !self.alone && self.replicas.is_none()
    }

    /// The shape of the reply, where the script alone does not determine it.
    pub(crate) fn answered_by(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    /// For an acquire that is not a re-entry. See [`Shape::Status`].
    pub(crate) fn for_fresh_holder(mut self) -> Self {
        if let Shape::Status { fresh, .. } = &mut self.shape {
            *fresh = true;
        }
        self
    }

    /// The same request for a server that does not know its script; `None` for a plain command.
    pub(crate) fn whole(&self) -> Option<Self> {
        let Command::Script(script) = self.command else { return None };
        Some(Self { command: Command::WholeScript(script), ..self.clone() })
    }

    /// Appends the request in wire form, without arguments of a connection: for handshakes and
    /// subscriptions.
    pub(crate) fn write_plain(&self, out: &mut Vec<u8>) {
        self.write_as(out, Publishing::Classic);
    }

    /// The same, for a script that publishes.
    pub(crate) fn write_as(&self, out: &mut Vec<u8>, publishing: Publishing) {
        self.write(out, ConnectionArgs { floor: 0, not_after: 0, publishing, by_source: false });
    }

    /// Appends the request in wire form.
    pub(crate) fn write(&self, out: &mut Vec<u8>, connection_args: ConnectionArgs) {
        if self.asking {
            out.extend_from_slice(b"*1\r\n$6\r\nASKING\r\n");
        }
        let command_words = if matches!(self.command, Command::Plain) { 0 } else { 2 };
        let arg_words = usize::from(self.takes_floor) + usize::from(self.takes_limit);
        header(out, b'*', command_words + self.args + arg_words);
        match &self.command {
            Command::Plain => {}
            Command::Script(script) if !connection_args.by_source => {
                pack(out, b"EVALSHA");
                pack(out, script.sha(connection_args.publishing).as_bytes());
            }
            Command::Script(script) | Command::WholeScript(script) => {
                pack(out, b"EVAL");
                pack(out, script.source(connection_args.publishing).as_bytes());
            }
        }
        out.extend_from_slice(&self.body);
        if self.takes_floor {
            pack(out, Digits::of(connection_args.floor).as_bytes());
        }
        if self.takes_limit {
            pack(out, Digits::of(connection_args.not_after).as_bytes());
        }
    }
}

fn pack(out: &mut Vec<u8>, word: &[u8]) {
    header(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// What comes before a list (`*`) or a word (`$`): how long it is.
fn header(out: &mut Vec<u8>, kind: u8, length: usize) {
    match length {
        0..10 => out.extend_from_slice(&[kind, b'0' + length as u8, b'\r', b'\n']),
        10..100 => {
            let tens = b'0' + (length / 10) as u8;
            let ones = b'0' + (length % 10) as u8;
            out.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
        }
        _ => {
            out.push(kind);
            out.extend_from_slice(Digits::of(length as u64).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(request: &Request) -> String {
        let mut out = Vec::new();
        let publishing = Publishing::Classic;
        request.write(
            &mut out,
            ConnectionArgs { floor: 5, not_after: 0, publishing, by_source: false },
        );
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_packed_as_their_text() {
        for n in [0, 9, 10, 99, 100, 1_763_700_000_000_001, u64::MAX] {
            let number = Request::plain(&["X"]).number(n);
            let word = Request::plain(&["X"]).arg(n.to_string());
            assert_eq!(text(&number), text(&word));
        }
        for length in [9, 10, 99, 100, 1000] {
            let word = "x".repeat(length);
            assert_eq!(text(&Request::plain(&[&word])), format!("*1\r\n${length}\r\n{word}\r\n"));
        }
    }

    #[test]
    fn packs_as_resp() {
        assert_eq!(text(&Request::plain(&["PING"])), "*1\r\n$4\r\nPING\r\n");
        assert_eq!(
            text(&Request::plain(&["GET"]).arg("a\r\n").with_floor_and_limit()),
            "*4\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n$1\r\n5\r\n$1\r\n0\r\n"
        );
        assert_eq!(
            text(&Request::plain(&["DEL"]).asking(true)),
            "*1\r\n$6\r\nASKING\r\n*1\r\n$3\r\nDEL\r\n"
        );
        assert_eq!(text(&Request::plain(&["DEL"]).with_limit()), "*2\r\n$3\r\nDEL\r\n$1\r\n0\r\n");
    }
}
