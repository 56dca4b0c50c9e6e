//! What a server reports about itself, without a session: its answer to the word `srvr`, which
//! servers answer unless their configuration forbids it.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use super::connect::{Servers, to_error};
use crate::base::diagnosis::Finding;
use crate::base::error::Result;
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
        // The server closes the connection after its answer.
        match stream.within(deadline).take(LONGEST).read_to_end(&mut answer) {
            Err(e) if answer.is_empty() => return Err(to_error(e, address)),
            _ => {}
        }
        Ok(ServerStatus { connected_in, security, text: String::from_utf8_lossy(&answer).into_owned() })
    }
}

impl ServerStatus {
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
