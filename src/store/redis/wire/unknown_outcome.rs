//! What is known of the server at the other end of a connection, and of requests whose connection
//! failed before the reply: whether they can have run, or can still run.

use std::sync::Arc;
use std::time::Duration;

use crate::base::lease::Moment;
use crate::os::atomic::{AtomicBool, Ordering};
use crate::store::net::Failure;

/// By how much the server's clock may fall behind ours while a connection lives, if nobody sets it
/// back.
const CLOCKS_DIFFER: Duration = Duration::from_secs(10);

/// The command by which releases are published. Publishers and subscribers must agree: a sharded
/// message reaches no classic subscriber, and a classic message reaches no sharded one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Publishing {
    Classic,
    Sharded,
}

/// Arguments that the connection adds when it sends the request. A queued request does not know its
/// connection yet, and after a failover the floor of an old connection would be too low.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionArgs {
    /// The fencing token floor, server time in microseconds.
    pub(crate) floor: u64,
    /// Server time in microseconds after which an acquire must not run; 0: no limit.
    pub(crate) not_after: u64,
    pub(crate) publishing: Publishing,
    /// Every script is sent with its source.
    pub(crate) by_source: bool,
}

/// The period in which one server is the master. A connection that was made in it is worth nothing
/// after it: the server may still take writes, on our side of a partition, and discards them when
/// it becomes a replica.
#[derive(Debug, Clone, Default)]
pub(crate) struct Epoch(Arc<AtomicBool>);

impl Epoch {
    pub(crate) fn end(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What the handshake of a connection learned about the server.
#[derive(Debug)]
pub(super) struct ConnectionFacts {
    /// The id of this connection for `CLIENT KILL`, if the user may send it. A server process never
    /// gives an id twice. The address is left out: that of a unix socket is a path, and what
    /// `CLIENT INFO` says of one with a space cannot be read back. A kill that finds nothing looks
    /// like one whose connection has ended, so the request could still run.
    pub(super) kill: Option<u64>,
    /// The server process. After a restart, connection ids start again and denote other
    /// connections.
    pub(super) run_id: Option<String>,
    /// The server's clock in microseconds, read between `asked_at` and `answered_at`.
    pub(super) server_micros: u64,
    pub(super) asked_at: Moment,
    pub(super) answered_at: Moment,
    pub(super) publishing: Publishing,
    /// The server, or a proxy before it, knows `EVAL` and not `EVALSHA`.
    pub(super) by_source: bool,
    /// The server returns the numbers of a [`Fence`](super::fence::Fence).
    pub(super) fences: bool,
    /// If the master can change: the epoch in which it is this server.
    pub(super) epoch: Option<Epoch>,
    /// The server has answered a kill of it: nothing that was sent on it can run any more. One kill
    /// serves all threads that had requests on it.
    pub(super) ended: AtomicBool,
}

impl ConnectionFacts {
    /// Whether another server is the master by now.
    pub(super) fn is_outdated(&self) -> bool {
        self.epoch.as_ref().is_some_and(Epoch::is_over)
    }

    /// A lower bound of the server's clock, unless that is set back.
    pub(super) fn server_now_at_least(&self, now: Moment) -> u64 {
        self.server_micros.saturating_add(micros(now.since(self.answered_at)))
    }

    /// When the server's clock has passed `micros`, by our clock, unless that is set back.
    fn has_passed(&self, micros: u64) -> Moment {
        self.answered_at.plus(Duration::from_micros(micros.saturating_sub(self.server_micros)))
    }

    fn server_now_at_most(&self, now: Moment) -> u64 {
        self.server_micros.saturating_add(micros(now.since(self.asked_at)))
    }

    pub(super) fn connection_args(&self, now: Moment, io_timeout: Duration) -> ConnectionArgs {
        ConnectionArgs {
            // `server_micros` is above every token given before this connection was made, and so
            // before the failover that may have ended an older one. The second part covers proxies
            // that keep connections over a failover.
            floor: self.server_micros.max(self.server_now_at_least(now).saturating_sub(1_000_000)),
            not_after: if self.kill.is_some() {
                0
            } else {
                self.server_now_at_most(now).saturating_add(micros(io_timeout))
            },
            publishing: self.publishing,
            by_source: self.by_source,
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A request was sent on a connection that then failed. It can still run until the server has
/// closed its end of the connection.
#[derive(Debug, Clone)]
pub(crate) struct UnknownOutcome {
    pub(super) facts: Arc<ConnectionFacts>,
    /// Server time in microseconds after which the request refuses to run; 0: no limit.
    pub(super) not_after: u64,
    /// False if no byte of it was sent, because the connection was found to have ended.
    pub(super) sent: bool,
}

pub(crate) type RedisFailure = Failure<UnknownOutcome>;

/// How to make sure that a request of unknown outcome can no longer run.
pub(super) enum Remedy {
    /// Nothing to do: its server process has ended, or its not-after time has passed.
    None,
    /// The connection with this id.
    Kill(u64),
    Wait(Duration),
}

impl UnknownOutcome {
    /// For a request that has run in part: nothing is under way any more, but its effects remain.
    pub(crate) fn partly(now: Moment) -> Self {
        let facts = ConnectionFacts {
            kill: None,
            run_id: None,
            server_micros: 0,
            asked_at: now,
            answered_at: now,
            publishing: Publishing::Classic,
            by_source: false,
            fences: false,
            epoch: None,
            ended: AtomicBool::new(true),
        };
        Self { facts: Arc::new(facts), not_after: 0, sent: true }
    }

    /// A real connection always knows the server's clock.
    pub(crate) fn is_partly(&self) -> bool {
        self.facts.server_micros == 0
    }

    /// False when `here` describes another process of the server than the one that the request was
    /// sent to. After a failover that process may still be alive and run the request. But what it
    /// writes then never reaches the new master, which no longer listens to it, and is discarded
    /// when the process becomes a replica itself.
    pub(super) fn may_have_run_at(&self, here: &ConnectionFacts) -> bool {
        let here = &here.run_id;
        let there = &self.facts.run_id;
        here.is_none() || there.is_none() || here == there
    }

    /// What must happen on a connection with the facts `here` before a repeat or an undo.
    pub(super) fn remedy(&self, here: &ConnectionFacts, now: Moment) -> Remedy {
        if self.can_no_longer_run(here) {
            return Remedy::None;
        }
        if let Some(id) = self.facts.kill {
            return Remedy::Kill(id);
        }
        let late =
            Duration::from_micros(self.not_after.saturating_sub(here.server_now_at_least(now)));
        // If the server's clock was set back by an hour, the script would run within that hour. A
        // request that has been under way for so much longer than its caller waited does not
        // arrive any more; one that does nevertheless leaves a lock that ends with its lease.
        let late = late.min(self.facts.has_passed(self.not_after).plus(CLOCKS_DIFFER).since(now));
        if late.is_zero() { Remedy::None } else { Remedy::Wait(late) }
    }

    /// Whether it has ended for sure, so that a repeat or an undo needs no remedy.
    pub(super) fn can_no_longer_run(&self, here: &ConnectionFacts) -> bool {
        self.facts.ended.load(Ordering::Acquire) || !self.may_have_run_at(here)
    }

    /// The server has answered the kill of its connection.
    pub(super) fn has_ended(&self) {
        self.facts.ended.store(true, Ordering::Release);
    }

    /// Whether only time ends it: its connection cannot be killed.
    pub(crate) fn needs_time(&self) -> bool {
        self.not_after > 0 && self.facts.kill.is_none() && !self.facts.ended.load(Ordering::Acquire)
    }

    /// From now on also covers an earlier request on the same connection.
    pub(crate) fn includes(&mut self, earlier: &Self) {
        self.not_after = self.not_after.max(earlier.not_after);
        self.sent |= earlier.sent;
    }

    /// Whether a byte of it may have been sent.
    pub(crate) fn was_sent(&self) -> bool {
        self.sent
    }

    /// Whether both were sent on one connection: then one kill resolves both.
    pub(crate) fn same_connection(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.facts, &other.facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// What a connection learns that is made at this second of our clock and of the server's.
    fn facts(ours: u64, server: u64) -> ConnectionFacts {
        let now = Moment::from_nanos(ours * 1_000_000_000);
        let run_id = Some("same".to_owned());
        let publishing = Publishing::Classic;
        ConnectionFacts {
            kill: None,
            run_id,
            server_micros: server * SECOND,
            asked_at: now,
            answered_at: now,
            publishing,
            by_source: false,
            fences: false,
            epoch: None,
            ended: AtomicBool::new(false),
        }
    }

    /// How long after the request a connection that is made `later` waits for its not-after time,
    /// if the server's clock was set to `server` by then.
    fn wait(later: u64, server: u64) -> Option<Duration> {
        let (sent_at, io_timeout) =
            (Moment::from_nanos(100 * 1_000_000_000), Duration::from_secs(2));
        let there = facts(50, 1050);
        let not_after = there.connection_args(sent_at, io_timeout).not_after;
        assert_eq!(not_after, (1100 + 2) * SECOND);
        let unknown = UnknownOutcome { facts: Arc::new(there), not_after, sent: true };
        match unknown
            .remedy(&facts(100 + later, server), Moment::from_nanos((100 + later) * 1_000_000_000))
        {
            Remedy::Wait(wait) => Some(wait),
            Remedy::None => None,
            Remedy::Kill(_) => panic!("the user may not kill"),
        }
    }

    #[test]
    fn a_request_that_cannot_be_killed_is_waited_for_by_the_servers_clock() {
        assert_eq!(wait(0, 1100), Some(Duration::from_secs(2)));
        assert_eq!(wait(1, 1101), Some(Duration::from_secs(1)));
        assert_eq!(wait(2, 1102), None);
        // The server's clock is slower than ours.
        assert_eq!(wait(2, 1099), Some(Duration::from_secs(3)));
    }

    #[test]
    fn a_clock_that_is_set_back_is_not_waited_for() {
        assert_eq!(wait(2, 10), Some(CLOCKS_DIFFER));
        assert_eq!(wait(2 + CLOCKS_DIFFER.as_secs(), 20), None);
        // Nor one that is set forward: the script refuses what comes late.
        assert_eq!(wait(0, 5000), None);
    }

    /// A proxy, or a server whose clock was set wrongly, may say anything.
    #[test]
    fn a_time_without_sense_overflows_nothing() {
        let there = ConnectionFacts { server_micros: u64::MAX, ..facts(50, 0) };
        let now = Moment::from_nanos(100 * 1_000_000_000);
        let args = there.connection_args(now, Duration::from_secs(2));
        assert_eq!((args.floor, args.not_after), (u64::MAX, u64::MAX));
    }
}
