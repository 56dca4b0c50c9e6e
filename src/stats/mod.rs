//! The figures of a client, as users read them.

mod display;
mod families;
mod prometheus;
#[cfg(feature = "metrics")]
mod publish;

pub(crate) use self::display::shortened;

use std::sync::Arc;
use std::time::Duration;

use crate::base::counters::Figures;
use crate::base::primitive::Primitive;
use crate::base::traffic::TrafficCounts;
use crate::wait::client_state::ClientState;

/// What a client has done since it was built, in figures: a copy, which does not change any more.
/// Made by [`LockClient::stats`](crate::LockClient::stats).
///
/// `Display` writes a table for people, not wider than 100 columns;
/// [`to_prometheus`](Self::to_prometheus) writes the text that Prometheus scrapes. What the figures
/// mean, and which to alarm on, is in [`guide::operations`](crate::guide::operations#figures).
///
/// The counts are taken one after the other while other threads go on: a call that ends meanwhile
/// may be in one figure and not yet in another.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stats {
    client_name: String,
    uptime: Duration,
    total: Figures,
    primitives: Vec<(Primitive, Figures)>,
    names: Vec<NameStats>,
    holds: usize,
    waiting: usize,
    unknown_outcomes: usize,
    traffic: Option<TrafficCounts>,
}

/// What was counted of one name: part of [`Stats`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NameStats {
    name: Arc<str>,
    primitive: Primitive,
    figures: Figures,
}

impl NameStats {
    /// The name, as the caller gave it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the name is used for. A name in two uses has an entry for each; the calls and holds of
    /// multi-locks count with the plain lock, because each of their names is one.
    #[must_use]
    pub fn primitive(&self) -> Primitive {
        self.primitive
    }

    /// What was counted.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.figures
    }
}

impl Stats {
    pub(crate) fn of(client: &ClientState) -> Self {
        // In a fork the tables may be locked for ever, and what they say is of the parent.
        let is_forked = client.is_forked();
        let (primitives, names) = if is_forked {
            Default::default()
        } else {
            (client.seen.observer.primitives(), client.seen.observer.names())
        };
        let mut total = Figures::default();
        primitives.iter().for_each(|(_, figures)| total.add(figures));
        let named = |(name, primitive, figures)| NameStats { name, primitive, figures };
        let live = |count: &dyn Fn() -> usize| if is_forked { 0 } else { count() };
        Self {
            client_name: client.who.client_name.clone(),
            uptime: client.who.built_at.elapsed(),
            total,
            primitives,
            names: names.into_iter().map(named).collect(),
            holds: live(&|| client.holds.live() + client.holds.outstanding_permits.lock().len()),
            waiting: live(&|| client.seen.waits.len()),
            unknown_outcomes: live(&|| client.watchdog.open_undos()),
            traffic: client.seen.traffic.as_ref().map(|traffic| traffic.counts()),
        }
    }

    /// The name of the client, see [`Builder::client_name`](crate::Builder::client_name).
    #[must_use]
    pub fn client_name(&self) -> &str {
        &self.client_name
    }

    /// Since when the figures count: how long ago the client was built.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.uptime
    }

    /// All primitives together.
    #[must_use]
    pub fn total(&self) -> &Figures {
        &self.total
    }

    /// What was counted of one primitive; `None` if the client has not used it.
    #[must_use]
    pub fn primitive(&self, primitive: Primitive) -> Option<&Figures> {
        self.primitives().find(|(used, _)| *used == primitive).map(|(_, figures)| figures)
    }

    /// Every primitive that the client has used.
    pub fn primitives(&self) -> impl Iterator<Item = (Primitive, &Figures)> {
        self.primitives.iter().map(|(primitive, figures)| (*primitive, figures))
    }

    /// The names that matter most, at most 64: those with the most waiting time first.
    ///
    /// The first 64 names of a client are all among them. From then on a name gets in that was
    /// waited for longer, in all, than the one with the least waiting time, which leaves. A name
    /// that comes late counts its calls from its first wait on.
    #[must_use]
    pub fn names(&self) -> &[NameStats] {
        &self.names
    }

    /// The entry of one name for one use, if it is among [`names`](Self::names).
    #[must_use]
    pub fn name(&self, name: &str, primitive: Primitive) -> Option<&Figures> {
        let named = self.names.iter().find(|named| *named.name == *name && named.primitive == primitive);
        named.map(NameStats::figures)
    }

    /// Holds that the client has now, those of a multi-lock one by one. A hold that is lost is
    /// none, also while its guard lives.
    #[must_use]
    pub fn holds(&self) -> usize {
        self.holds
    }

    /// Calls that wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Requests whose outcome is not known, and that the background has yet to resolve: for each,
    /// something may stay at the server for a lease.
    #[must_use]
    pub fn unknown_outcomes(&self) -> usize {
        self.unknown_outcomes
    }

    /// Requests (commands, statements) sent to the servers that keep the locks; handshakes,
    /// renewals and subscriptions included. `None` for a client in memory, which sends nothing.
    #[must_use]
    pub fn requests(&self) -> Option<u64> {
        self.traffic.map(|counts| counts.requests)
    }

    /// Bytes sent to those servers, without what TLS adds. `None` as [`requests`](Self::requests).
    #[must_use]
    pub fn bytes_sent(&self) -> Option<u64> {
        self.traffic.map(|counts| counts.sent)
    }

    /// Bytes received from those servers, without what TLS adds. `None` as
    /// [`requests`](Self::requests).
    #[must_use]
    pub fn bytes_received(&self) -> Option<u64> {
        self.traffic.map(|counts| counts.received)
    }

    /// Connections opened to those servers. `None` as [`requests`](Self::requests).
    #[must_use]
    pub fn connections_opened(&self) -> Option<u64> {
        self.traffic.map(|counts| counts.opened)
    }

    /// Connections that the other end has closed, that failed, or that did not answer in time.
    /// `None` as [`requests`](Self::requests).
    #[must_use]
    pub fn connections_broken(&self) -> Option<u64> {
        self.traffic.map(|counts| counts.broken)
    }

    /// Connections opened in the place of one that broke. `None` as [`requests`](Self::requests).
    #[must_use]
    pub fn reconnects(&self) -> Option<u64> {
        self.traffic.map(|counts| counts.reopened)
    }
}
