//! The session as a lease: until when it is known to be alive, computed from the instants of
//! requests and answers. Pure: time comes in as an argument.
//!
//! Only the leader ends a session, one session timeout after it last heard of it. A server that is
//! cut off from the leader goes on answering pings and reads. So does a leader that a majority has
//! replaced and that has not noticed it: for `syncLimit` ticks and one more it answers `sync`, and
//! lets sessions reconnect. None of these answers proves anything.
//!
//! The answer to a *write* does prove something, because a majority has agreed to it: whoever
//! proposed it was the leader at that time, and a leader that is elected later gives every session
//! a full timeout. What had that leader heard of the session? The link from a server to its leader
//! is one ordered stream, and on it the server reports, within the *lag*, which sessions it has
//! heard of. So if a write `k` was sent at least the lag after the answer to an earlier request `j`
//! of the same connection (a ping will do), the leader knew of `j` when `k` was agreed to, and the
//! session is alive for a timeout from `j` on. When a connection is accepted, the leader itself
//! hears of it.
//!
//! Assumption: the leader asks for those reports within the lag as long as its writes are agreed
//! to.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::lease::{Moment, valid_until};

/// Added to the lag for a leader that asks a little late.
const SLACK: Duration = Duration::from_millis(100);

/// The rhythms of a session, all parts of its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rhythm {
    pub(super) timeout: Duration,
    /// The longest time after which a server reports that it has heard of the session.
    pub(super) lag: Duration,
    /// The interval of writes to which a majority agrees, while something is held.
    pub(super) heartbeat: Duration,
    /// How long the connection may be silent otherwise.
    pub(super) ping: Duration,
    /// How long an answer may take before the connection counts as dead.
    pub(super) silence: Duration,
}

impl Rhythm {
    /// `tick`: the `tickTime` of the servers, if the user has set it. Without it: by default
    /// servers grant no session shorter than two ticks, so half a tick is at most a quarter of the
    /// timeout.
    pub(super) fn of(timeout: Duration, tick: Option<Duration>) -> Self {
        let lag = tick.map_or(timeout / 4, |tick| tick / 2 + SLACK);
        // A heartbeat is written to the disks of a majority, a ping to none. After the answer to a
        // heartbeat the session is known to be alive for at least five twelfths of the timeout: all
        // of it less the lag, a ping and a heartbeat.
        Self { timeout, lag, heartbeat: timeout / 4, ping: timeout / 12, silence: timeout / 3 }
    }
}

/// What one connection of a session has proved. A new connection starts from nothing: what the
/// server of the old one had heard may never have reached the leader.
#[derive(Debug)]
pub(super) struct SessionLease {
    rhythm: Rhythm,
    /// What the server has heard of the session, oldest first.
    heard: VecDeque<Heard>,
    until: Moment,
}

#[derive(Debug, Clone, Copy)]
struct Heard {
    sent_at: Moment,
    /// A leader that gets a write sent at this time or later knows of the request.
    reported_at: Moment,
}

impl SessionLease {
    /// A session was made by a request that was sent at `sent_at`: a majority has agreed to it.
    pub(super) fn new(rhythm: Rhythm, sent_at: Moment) -> Self {
        Self::connected(rhythm, sent_at, valid_until(sent_at, rhythm.timeout))
    }

    /// A session goes on over a connection that was asked for at `sent_at`. That counts only once a
    /// write was answered on it: whoever accepted the connection may no longer be the leader.
    /// `until`: what earlier connections have proved. `is_shorter`: the timeout is shorter than
    /// before, and the leader applies it from that request on.
    pub(super) fn resumed(
        rhythm: Rhythm,
        sent_at: Moment,
        until: Moment,
        is_shorter: bool,
    ) -> Self {
        let most = if is_shorter { valid_until(sent_at, rhythm.timeout) } else { Moment::NEVER };
        Self::connected(rhythm, sent_at, until.min(most))
    }

    fn connected(rhythm: Rhythm, sent_at: Moment, until: Moment) -> Self {
        Self { rhythm, heard: [Heard { sent_at, reported_at: sent_at }].into(), until }
    }

    /// The server has answered a request, whatever it was.
    pub(super) fn answered(&mut self, sent_at: Moment, answered_at: Moment) {
        // Not all are recorded: the list has at most a few dozen entries for each lag.
        let is_news = self
            .heard
            .back()
            .is_none_or(|last| sent_at.since(last.sent_at) >= self.rhythm.timeout / 96);
        if is_news {
            // Older ones can no longer prove anything.
            while self
                .heard
                .front()
                .is_some_and(|first| first.sent_at.plus(self.rhythm.timeout) < sent_at)
            {
                self.heard.pop_front();
            }
            self.heard.push_back(Heard { sent_at, reported_at: answered_at.plus(self.rhythm.lag) });
        }
    }

    /// A majority has agreed to a write that was sent at `sent_at`. Returns until when the session
    /// is alive.
    pub(super) fn agreed(&mut self, sent_at: Moment) -> Moment {
        if let Some(known) = self.heard.iter().rposition(|heard| heard.reported_at <= sent_at) {
            self.heard.drain(..known);
            self.until = self.until.max(valid_until(self.heard[0].sent_at, self.rhythm.timeout));
        }
        self.until
    }

    pub(super) fn until(&self) -> Moment {
        self.until
    }

    /// When the last request that the server has answered was sent.
    pub(super) fn heard_at(&self) -> Option<Moment> {
        self.heard.back().map(|heard| heard.sent_at)
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
