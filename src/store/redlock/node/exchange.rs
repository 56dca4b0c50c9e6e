//! Requests on one connection to a master, and their replies: the same for a caller that waits for
//! them and for one that has left them unread.

use std::sync::Arc;

use crate::store::redis::script;
use crate::store::redis::wire::{
    Connection, InFlight, RedisFailure, Reply, Request, UnknownOutcome,
};

/// Requests that were sent in one write, and the replies that have come so far.
pub(super) struct Exchange {
    pub(super) connection: Connection,
    /// A call has the connection.
    pub(super) out: Arc<()>,
    pub(super) flight: InFlight,
    /// How many replies to earlier requests come before.
    pub(super) earlier: usize,
    /// The requests. The first `kills` of them kill the connections of `resolves`.
    pub(super) requests: Vec<Request>,
    pub(super) replies: Vec<Reply>,
    pub(super) kills: usize,
    /// The unknown outcomes that end with this exchange: their connections are killed right before
    /// its own requests, or had ended. Those added after the requests were sent are not among them.
    pub(super) resolves: Vec<UnknownOutcome>,
    /// An earlier reply says that the master has no vote.
    pub(super) quarantined: bool,
}

impl Exchange {
    /// How many replies are still to come.
    pub(super) fn missing(&self) -> usize {
        self.earlier + self.requests.len() - self.replies.len()
    }

    pub(super) fn take_in(&mut self, reply: Reply) {
        if self.earlier == 0 {
            return self.replies.push(reply);
        }
        self.earlier -= 1;
        self.quarantined |= script::says_quarantined(&reply);
    }

    /// Reads what has arrived, without waiting. True when all replies have been read.
    pub(super) fn read_available(&mut self) -> std::result::Result<bool, RedisFailure> {
        let mut fresh = true;
        while self.missing() > 0 {
            match self.connection.recv_now(&self.flight, std::mem::take(&mut fresh))? {
                Some(reply) => self.take_in(reply),
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}
