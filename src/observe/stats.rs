//! The figures of a client, as users read them, and as a table for people.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::counters::Figures;
use crate::base::primitive::Primitive;
use crate::os;
use crate::report::outcomes::{ElectionStats, JobStats, RunOutcome};
use crate::report::traffic::TrafficCounts;
use crate::wait::client_state::ClientState;

/// No line of the table is wider.
const WIDTH: usize = 100;
const LABEL: usize = 24;

/// What a client has done since it was built, in figures: a copy that does not change afterwards.
/// Made by [`LockClient::stats`](crate::LockClient::stats).
///
/// `Display` writes a table for people, not wider than 100 columns;
/// [`to_prometheus`](Self::to_prometheus) writes the text that Prometheus scrapes. What the figures
/// mean, and which to alarm on, is in [`guide::operations`](crate::guide::operations#figures).
///
/// The counts are read one after the other while other threads go on: a call that ends meanwhile
/// may be in one figure and not yet in another.
///
/// [As JSON](crate::observe#as-json) it is an object with `client_name`, `uptime_ms`, `holds`,
/// `waiting`, `unknown_outcomes`, `requests`, `bytes_sent`, `bytes_received`, `connections_opened`,
/// `connections_broken`, `reconnects`, `total` and, for each primitive that was used, `primitives`
/// ([`Figures`] under its name), `names` (a list of [`NameStats`]), `jobs` (of [`JobStats`]) and
/// `elections` (of [`ElectionStats`]).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stats {
    pub(super) client_name: String,
    pub(super) uptime: Duration,
    pub(super) total: Figures,
    pub(super) primitives: Vec<(Primitive, Figures)>,
    pub(super) names: Vec<NameStats>,
    pub(super) jobs: Vec<JobStats>,
    pub(super) elections: Vec<ElectionStats>,
    pub(super) holds: usize,
    pub(super) waiting: usize,
    pub(super) unknown_outcomes: usize,
    pub(super) traffic: Option<TrafficCounts>,
}

/// The figures of one name: part of [`Stats`].
///
/// [As JSON](crate::observe#as-json) it is an object with `name`, `kind` and `figures`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NameStats {
    pub(super) name: Arc<str>,
    pub(super) primitive: Primitive,
    pub(super) figures: Figures,
}

impl NameStats {
    /// The name, as the caller gave it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the name is used for. A name with two uses has an entry for each; the calls and holds
    /// of multi-locks count with the plain lock, because each of their names is one.
    #[must_use]
    pub fn primitive(&self) -> Primitive {
        self.primitive
    }

    /// The figures of the name.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.figures
    }
}

impl Stats {
    pub(crate) fn of(client: &ClientState) -> Self {
        // In a forked child the tables may be locked for ever, and they describe the parent.
        let is_forked = client.is_forked();
        let (primitives, names) = if is_forked {
            Default::default()
        } else {
            (client.seen.observer.primitives(), client.seen.observer.names())
        };
        let (jobs, elections) = if is_forked {
            Default::default()
        } else {
            (client.seen.outcomes.jobs(), client.seen.outcomes.elections())
        };
        let mut total = Figures::default();
        for (_, figures) in &primitives {
            total.add(figures);
        }
        let named = |(name, primitive, figures)| NameStats { name, primitive, figures };
        let live = |count: &dyn Fn() -> usize| if is_forked { 0 } else { count() };
        Self {
            client_name: client.who.client_name.clone(),
            uptime: os::since(client.who.built_at),
            total,
            primitives,
            names: names.into_iter().map(named).collect(),
            jobs,
            elections,
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

    /// How long ago the client was built, which is when the figures begin.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.uptime
    }

    /// All primitives together.
    #[must_use]
    pub fn total(&self) -> &Figures {
        &self.total
    }

    /// The figures of one primitive; `None` if the client has not used it.
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
    /// The first 64 names of a client are among them, but for one that is made just when another
    /// thread uses the list: it is added late. After that, a name that was waited for longer, in
    /// total, replaces the one with the least waiting time. A name that is added late counts its
    /// calls from its first wait on.
    #[must_use]
    pub fn names(&self) -> &[NameStats] {
        &self.names
    }

    /// The entry of one name for one use, if it is among [`names`](Self::names).
    #[must_use]
    pub fn name(&self, name: &str, primitive: Primitive) -> Option<&Figures> {
        let named =
            self.names.iter().find(|named| *named.name == *name && named.primitive == primitive);
        named.map(NameStats::figures)
    }

    /// What became of the calls for each [scheduled job](crate::ScheduledJob) that the client has
    /// asked for: the first 64, and all others together.
    #[must_use]
    pub fn jobs(&self) -> &[JobStats] {
        &self.jobs
    }

    /// The terms of the client in each [election](crate::Election) that it has won: the first 64,
    /// and all others together.
    #[must_use]
    pub fn elections(&self) -> &[ElectionStats] {
        &self.elections
    }

    /// The current holds of the client, those of a multi-lock one by one. A hold that is lost does
    /// not count, even while its guard exists.
    #[must_use]
    pub fn holds(&self) -> usize {
        self.holds
    }

    /// Calls that are waiting now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Requests of unknown outcome that the background has yet to resolve: each may leave something
    /// at the server for a lease.
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

    /// Connections opened to replace one that broke. `None` as [`requests`](Self::requests).
    #[must_use]
    pub fn reconnects(&self) -> Option<u64> {
        self.traffic.map(|counts| counts.reopened)
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = shortened(&self.client_name, 40);
        let Self { uptime, holds, waiting, unknown_outcomes, .. } = self;
        writeln!(f, "client {label}, up {uptime:.0?}")?;
        writeln!(f, "  now: {holds} held, {waiting} waiting, {unknown_outcomes} unknown outcomes")?;
        if let Some(traffic) = &self.traffic {
            let sent = bytes(traffic.sent);
            let received = bytes(traffic.received);
            writeln!(f, "  {} requests, {sent} sent, {received} received", traffic.requests)?;
            let opened = traffic.opened;
            let broken = traffic.broken;
            let again = traffic.reopened;
            writeln!(
                f,
                "  {opened} connections opened, {broken} broken, {again} of those replaced"
            )?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "{:LABEL$} {:>9} {:>9} {:>6} {:>23} {:>23}",
            "", "calls", "granted", "cont.", "wait p50, p99, max", "hold p50, p99, max"
        )?;
        row(f, "all", &self.total)?;
        for (primitive, figures) in self.primitives() {
            row(f, primitive.as_str(), figures)?;
        }
        for named in &self.names {
            row(f, &shortened(named.name(), LABEL), named.figures())?;
        }
        for job in &self.jobs {
            wrapped(f, &line_of_job(job))?;
        }
        for election in &self.elections {
            let ElectionStats { name, terms, leads } = election;
            let leads = if *leads { ", leads now" } else { "" };
            wrapped(f, &format!("election \"{}\": {terms} terms led{leads}", shortened(name, 60)))?;
        }
        let all = self
            .primitives()
            .filter_map(|(primitive, figures)| Some((primitive, trouble_of(figures)?)));
        for (primitive, trouble) in all {
            wrapped(f, &format!("{primitive}: {}", trouble.join(", ")))?;
        }
        Ok(())
    }
}

/// Without what has not happened.
fn line_of_job(job: &JobStats) -> String {
    let happened = RunOutcome::ALL.into_iter().filter(|outcome| job.count(*outcome) > 0);
    let parts: Vec<String> = happened
        .map(|outcome| format!("{} {}", job.count(outcome), outcome.label().replace('_', " ")))
        .collect();
    format!("job \"{}\": {}", shortened(job.name(), 60), parts.join(", "))
}

fn row(f: &mut fmt::Formatter<'_>, label: &str, figures: &Figures) -> fmt::Result {
    let waits = figures.waits();
    let holds = figures.holds();
    let share = 100.0 * figures.contended_share();
    write!(f, "{label:LABEL$} {:>9} {:>9} {share:>5.1}%", figures.calls(), figures.granted())?;
    for durations in [waits, holds] {
        for duration in [durations.p50(), durations.p99(), durations.max()] {
            if durations.count() == 0 {
                write!(f, " {:>7}", "-")?;
            } else {
                write!(f, " {:>7}", short(duration))?;
            }
        }
    }
    writeln!(f)
}

/// Everything but grants, unless it is zero.
fn trouble_of(figures: &Figures) -> Option<Vec<String>> {
    let counts = [
        (figures.reentered(), "re-entered"),
        (figures.busy(), "busy"),
        (figures.timed_out(), "timed out"),
        (figures.passed_on(), "passed on"),
        (figures.acquired_with_release(), "acquired with a release"),
        (figures.joined(), "joined"),
        (figures.renewals(), "renewals"),
        (figures.renewal_failures(), "renewals failed"),
    ];
    let mut parts: Vec<_> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    parts.extend(
        figures
            .losses()
            .map(|(reason, count)| format!("{count} lost ({})", reason.label().replace('_', " "))),
    );
    parts.extend(figures.errors().map(|(kind, count)| format!("{count} with the error {kind:?}")));
    (!parts.is_empty()).then_some(parts)
}

/// Breaks a line between words.
fn wrapped(f: &mut fmt::Formatter<'_>, line: &str) -> fmt::Result {
    let mut width = 0;
    for word in line.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            write!(f, "\n  ")?;
            width = 2;
        } else if width > 0 {
            write!(f, " ")?;
            width += 1;
        }
        write!(f, "{word}")?;
        width += length;
    }
    writeln!(f)
}

/// Cuts a name to this many columns, with control characters escaped.
pub(super) fn shortened(name: &str, columns: usize) -> String {
    let escaped: String = name.escape_debug().collect();
    if escaped.chars().count() <= columns {
        return escaped;
    }
    escaped.chars().take(columns - 1).chain(['…']).collect()
}

/// In at most seven columns.
fn short(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    // What would be rounded up to the next unit is in that unit.
    match seconds {
        ..0.999e-3 => format!("{:.0}us", seconds * 1e6),
        ..0.9999 => format!("{:.1}ms", seconds * 1e3),
        ..9999.9 => format!("{seconds:.1}s"),
        ..3.6e7 => format!("{:.0}h", seconds / 3600.0),
        _ => "long".to_owned(),
    }
}

fn bytes(count: u64) -> String {
    let mut size = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            return if unit == "B" { format!("{count} B") } else { format!("{size:.1} {unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_names_keep_their_columns() {
        let powers = (0..64).map(|bits| (1_u64 << bits) - 1);
        for nanos in powers.chain([999_960, 999_960_000, 9_999_960_000_000]) {
            let text = short(Duration::from_nanos(nanos));
            assert!(text.len() <= 7 && !text.starts_with("1000"), "{text}");
        }
        assert_eq!(short(Duration::from_micros(250)), "250us");
        assert_eq!(short(Duration::from_secs(9_999)), "9999.0s");
        assert_eq!(shortened("a\nb", 10), "a\\nb");
        assert_eq!(shortened(&"x".repeat(30), 24).chars().count(), 24);
        assert_eq!((bytes(1023), bytes(1536)), ("1023 B".to_owned(), "1.5 KiB".to_owned()));
    }
}
