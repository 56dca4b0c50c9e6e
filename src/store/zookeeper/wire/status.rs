//! What a server reports about itself, without a session: its answer to the word `srvr`, which
//! servers answer unless their configuration forbids it.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use super::connect::{Servers, to_error};
use crate::base::error::Result;
use crate::report::diagnosis::Finding;
use crate::store::findings::secured;
use crate::store::net::Address;

/// The answer is a dozen lines.
const LONGEST: u64 = 16 * 1024;

pub(crate) struct ServerStatus {
    pub(crate) connected_in: Duration,
    pub(crate) security: Finding,
    text: String,
}

impl Servers {
    /// Asks one server. Blocks for `within` at most.
    pub(crate) fn status(&self, address: &Address, within: Duration) -> Result<ServerStatus> {
        let began = Instant::now();
        let (mut stream, deadline) = self.dial(address, within)?;
        let connected_in = began.elapsed();
        let security = secured(&stream, &*self.clock);
        let mut answer = Vec::new();
        stream.within(deadline).write_all(b"srvr").map_err(|e| to_error(e, address))?;
        // The server closes the connection after its answer; with TLS not always properly.
        let ended = stream.within(deadline).take(LONGEST).read_to_end(&mut answer);
        let status = ServerStatus { connected_in, security, text: whole_lines(&answer) };
        match ended {
            Err(e) if !status.is_complete() => Err(to_error(e, address)),
            _ => Ok(status),
        }
    }
}

/// Without a last line that was cut: `Zookeeper version: 3` is not the version 3.
fn whole_lines(answer: &[u8]) -> String {
    let end = answer.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    String::from_utf8_lossy(&answer[..end]).into_owned()
}

impl ServerStatus {
    /// Whether the lines that are read from it have arrived.
    fn is_complete(&self) -> bool {
        self.mode().is_some() || self.is_not_serving() || self.is_forbidden()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }

    /// The version as the server writes it, such as `3.8.4`.
    pub(crate) fn version(&self) -> Option<&str> {
        self.field("Zookeeper version:")?.split(['-', ',']).next()
    }

    /// `leader`, `follower`, `observer`, `standalone` or `read-only`.
    pub(crate) fn mode(&self) -> Option<&str> {
        self.field("Mode:")
    }

    /// Least, mean and longest time in milliseconds that a request took there.
    pub(crate) fn latency(&self) -> Option<&str> {
        self.field("Latency min/avg/max:")
    }

    /// Whether it runs without a majority.
    pub(crate) fn is_not_serving(&self) -> bool {
        self.text.contains("not currently serving requests")
    }

    /// Whether its configuration forbids the answer.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.text.contains("not in the whitelist")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_line_is_no_line() {
        let answer =
            "Zookeeper version: 3.9.5-x, built\nLatency min/avg/max: 0/0.5/3\nMode: follower\n";
        for end in 0..answer.len() {
            let text = whole_lines(&answer.as_bytes()[..end]);
            assert!(
                answer.starts_with(&text) && (text.is_empty() || text.ends_with('\n')),
                "{text:?}"
            );
            assert!(!text.contains("Mode"), "{text:?}");
        }
        assert_eq!(whole_lines(answer.as_bytes()), answer);
    }

    #[test]
    fn an_answer_has_fields_or_says_why_not() {
        let status = |text: &str| {
            let security = Finding::ok(crate::report::diagnosis::Check::Connect, "x");
            ServerStatus { connected_in: Duration::ZERO, security, text: text.to_owned() }
        };
        let whole = status(
            "Zookeeper version: 3.9.5-x, built\nLatency min/avg/max: 0/0.5/3\nMode: follower\n",
        );
        assert_eq!(
            (whole.version(), whole.latency(), whole.mode()),
            (Some("3.9.5"), Some("0/0.5/3"), Some("follower"))
        );
        let flags = |status: &ServerStatus| {
            (status.is_complete(), status.is_not_serving(), status.is_forbidden())
        };
        assert_eq!(flags(&whole), (true, false, false));
        assert_eq!(
            flags(&status("This ZooKeeper instance is not currently serving requests\n")),
            (true, true, false)
        );
        let forbidden = "srvr is not executed because it is not in the whitelist.\n";
        assert_eq!(flags(&status(forbidden)), (true, false, true));
        assert_eq!(flags(&status("Zookeeper version: 3.9.5\n")), (false, false, false));
    }
}
