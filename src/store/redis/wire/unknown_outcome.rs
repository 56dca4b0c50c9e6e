//! What is known of a request whose connection failed, and of the server behind that connection.

use std::sync::Arc;
use std::time::Duration;

use super::request::{ConnectionArgs, Request};
use crate::base::error::Error;
use crate::base::lease::Moment;

/// What a connection learned when it was made.
#[derive(Debug)]
pub(super) struct Facts {
    /// `CLIENT KILL ID .. ADDR ..` of this connection, where the server may be asked that.
    pub(super) kill: Option<(u64, String)>,
    /// Which process of the server this is. After a restart connection ids begin again and belong to others.
    pub(super) run_id: Option<String>,
    /// The server's clock in microseconds, read between these two moments.
    pub(super) server_micros: u64,
    pub(super) asked_at: Moment,
    pub(super) answered_at: Moment,
}

impl Facts {
    /// The server's clock now is at least this (as long as it is not stepped back).
    pub(super) fn server_now_at_least(&self, now: Moment) -> u64 {
        self.server_micros.saturating_add(micros(now.since(self.answered_at)))
    }

    fn server_now_at_most(&self, now: Moment) -> u64 {
        self.server_micros.saturating_add(micros(now.since(self.asked_at)))
    }

    pub(super) fn connection_args(&self, now: Moment, io_timeout: Duration) -> ConnectionArgs {
        ConnectionArgs {
            // The first part is above every token given before whatever broke the older connections; the second
            // covers proxies that keep connections over a failover.
            floor: self.server_micros.max(self.server_now_at_least(now).saturating_sub(1_000_000)),
            not_after: if self.kill.is_some() { 0 } else { self.server_now_at_most(now) + micros(io_timeout) },
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A request that went out on a connection which then failed: it can still run, until the connection is known to be
/// gone at the server's end.
#[derive(Debug, Clone)]
pub(crate) struct UnknownOutcome {
    pub(super) facts: Arc<Facts>,
    /// 0: what was sent may run at any time, and does no harm then.
    pub(super) not_after: u64,
}

#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing of it has reached the server.
    NotSent(Error),
    /// It may have run, or still run. `stale`: the connection had ended while it lay idle, so the server at its
    /// other end is probably fine and can be asked again at once.
    Unknown { error: Error, unknown: UnknownOutcome, stale: bool },
}

/// What settles a [`UnknownOutcome`].
pub(super) enum Remedy {
    /// That server process is gone, or the not-after has passed.
    None,
    Kill(Request),
    Wait(Duration),
}

impl UnknownOutcome {
    /// False when `here` describes another process of the server than the one that the request was sent to.
    pub(super) fn may_have_run_at(&self, here: &Facts) -> bool {
        let (here, there) = (&here.run_id, &self.facts.run_id);
        here.is_none() || there.is_none() || here == there
    }

    /// What must happen on a connection with the facts `here` before the request can no longer run.
    pub(super) fn remedy(&self, here: &Facts, now: Moment) -> Remedy {
        if !self.may_have_run_at(here) {
            return Remedy::None;
        }
        if let Some((id, addr)) = &self.facts.kill {
            return Remedy::Kill(Request::plain(&["CLIENT", "KILL", "ID", &id.to_string(), "ADDR", addr]));
        }
        let late = self.not_after.saturating_sub(here.server_now_at_least(now));
        if late == 0 { Remedy::None } else { Remedy::Wait(Duration::from_micros(late)) }
    }

    /// An earlier request on the same connection may still run as well.
    pub(crate) fn includes(&mut self, earlier: &Self) {
        self.not_after = self.not_after.max(earlier.not_after);
    }

    /// Whether both are unknown outcomes about one connection: one kill settles them.
    pub(crate) fn same_connection(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.facts, &other.facts)
    }
}
