//! Requests on one connection to a master, and their replies: the same for a caller that waits for
//! them and for one that has left them unread.

use crate::base::lease::Moment;
use crate::store::redis::script;
use crate::store::redis::wire::{
    Connection, InFlight, RedisFailure, Reply, Request, UnknownOutcome,
};

/// Requests that were sent in one write, and the replies that have come so far.
pub(super) struct Exchange {
    pub(super) connection: Connection,
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
    /// `kills` and `own` were sent in this order, and `earlier` replies are due before theirs.
    pub(super) fn new(
        connection: Connection,
        flight: InFlight,
        earlier: usize,
        mut kills: Vec<Request>,
        own: Vec<Request>,
        resolves: Vec<UnknownOutcome>,
    ) -> Self {
        let killed = kills.len();
        kills.extend(own);
        let requests = kills;
        let replies = Vec::new();
        Self {
            connection,
            flight,
            earlier,
            requests,
            replies,
            kills: killed,
            resolves,
            quarantined: false,
        }
    }

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

    /// Sends the scripts again, with their source, that the master did not know; the others have
    /// run. For replies that were left unread: nobody else would do it. Returns when they were
    /// sent; `None` if the master knew all.
    ///
    /// The order of one holder's requests is kept: until the new replies have come, the connection
    /// remains with its holder. Had the holder sent another request in the meantime, that would
    /// have taken over the connection, and these replies would not be read here.
    pub(super) fn repeat_unknown_scripts(
        &mut self,
    ) -> std::result::Result<Option<Moment>, RedisFailure> {
        let is_unknown = |(reply, request): (&Reply, &Request)| {
            if reply.is_error("NOSCRIPT") { request.whole() } else { None }
        };
        let wholes: Vec<Request> =
            self.replies.iter().zip(&self.requests).filter_map(is_unknown).collect();
        if wholes.is_empty() {
            return Ok(None);
        }
        let again = self.connection.send(wholes.iter())?;
        self.flight.unknown.includes(&again.unknown);
        self.quarantined |= self.replies.iter().any(script::says_quarantined);
        self.requests = wholes;
        self.replies = Vec::new();
        // What was to be killed is killed once more, by a later exchange.
        self.kills = 0;
        self.resolves = Vec::new();
        Ok(Some(again.sent_at))
    }
}
