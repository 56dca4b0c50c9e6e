//! What a diagnosis finds out about the servers of a client, for operators.

use std::fmt;
use std::time::Duration;

use crate::base::advice::Advice;
use crate::base::error::Error;
use crate::base::lease::margin;
use crate::base::limits::SHORTEST_LEASE;

/// How much a [`Finding`] matters. Ordered: `Ok` is the least.
///
/// [As JSON](crate::observe#as-json) it is its [label](Self::label).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Nothing is wrong.
    Ok,
    /// Worth knowing, or could not be checked. Nothing has to be done.
    Note,
    /// Locks work, and can be lost or delayed by something that is likely to happen.
    Warning,
    /// Locks do not work, or are lost in normal operation.
    Problem,
}

impl Severity {
    /// `ok`, `note`, `warning` or `problem`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// The subject of a [`Finding`].
///
/// [As JSON](crate::observe#as-json) it is its [label](Self::label).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Check {
    /// Whether the server answers, and how long a connect takes.
    Reachable,
    /// Whether the connection has TLS, and when the server's certificate ends.
    Tls,
    /// Whether the server lets the user in.
    LogIn,
    /// Which server and version it is, compared with what this crate supports.
    Version,
    /// Whether it takes writes: a primary, and not read-only.
    Role,
    /// Whether locks can be removed when memory is full.
    Eviction,
    /// What a restart forgets.
    Persistence,
    /// What a failover forgets, and whether replicas that are missing stop writes.
    Replication,
    /// The server's wall clock compared with ours.
    Clock,
    /// One right of the user that locks need; if none is missing, one finding says so.
    Right,
    /// Whether scripts may run.
    Scripts,
    /// Whether a request that was given up can be stopped at the server.
    Kill,
    /// Whether the server has connections left.
    Connections,
    /// How long a round trip takes.
    Latency,
    /// The configured lease, compared with what the latency allows.
    Lease,
    /// A connection made in the same way as those of locks.
    Connect,
    /// Redlock: whether enough masters can be reached and vote.
    Quorum,
    /// A cluster: whether each slot has a primary.
    Slots,
    /// Whether enough sentinels answer, and agree on the master.
    Sentinels,
    /// Tables and functions in the database.
    Schema,
    /// Whether a pooler between client and server shares backends among clients.
    Pooler,
    /// The ZooKeeper ensemble: how many servers it has, and how many it can lose.
    Ensemble,
    /// The session timeout that was granted, compared with the lease that was asked for.
    Session,
    /// Whether a transaction or a slot keeps old versions of rows in a database, which makes locks
    /// that are taken often slower.
    Transactions,
}

impl Check {
    /// The name in lower case with underscores, such as `log_in`: for programs.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Reachable => "reachable",
            Self::Tls => "tls",
            Self::LogIn => "log_in",
            Self::Version => "version",
            Self::Role => "role",
            Self::Eviction => "eviction",
            Self::Persistence => "persistence",
            Self::Replication => "replication",
            Self::Clock => "clock",
            Self::Right => "right",
            Self::Scripts => "scripts",
            Self::Kill => "kill",
            Self::Connections => "connections",
            Self::Latency => "latency",
            Self::Lease => "lease",
            Self::Connect => "connect",
            Self::Quorum => "quorum",
            Self::Slots => "slots",
            Self::Sentinels => "sentinels",
            Self::Schema => "schema",
            Self::Pooler => "pooler",
            Self::Ensemble => "ensemble",
            Self::Session => "session",
            Self::Transactions => "transactions",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// One thing that a [`Diagnosis`] has found out about one server, or about all of them.
///
/// `Display` writes one line, without the server's address.
///
/// [As JSON](crate::observe#as-json) it is an object with `check`, `severity`, `node`, `found` and
/// `advice`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    check: Check,
    severity: Severity,
    node: Option<String>,
    found: String,
    advice: Option<Advice>,
}

impl Finding {
    pub(crate) fn new(check: Check, severity: Severity, found: impl Into<String>) -> Self {
        Self { check, severity, node: None, found: found.into(), advice: None }
    }

    pub(crate) fn ok(check: Check, found: impl Into<String>) -> Self {
        Self::new(check, Severity::Ok, found)
    }

    pub(crate) fn note(check: Check, found: impl Into<String>) -> Self {
        Self::new(check, Severity::Note, found)
    }

    pub(crate) fn warning(check: Check, found: impl Into<String>) -> Self {
        Self::new(check, Severity::Warning, found)
    }

    pub(crate) fn problem(check: Check, found: impl Into<String>) -> Self {
        Self::new(check, Severity::Problem, found)
    }

    /// What to do about it.
    pub(crate) fn advise(self, advice: impl Into<Advice>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// The advice of the error that was found, if it has one.
    pub(crate) fn advised_by(self, error: &Error) -> Self {
        Self { advice: error.advice().cloned().or(self.advice), ..self }
    }

    /// Lowers the severity to this one if it is worse.
    pub(crate) fn at_worst(self, severity: Severity) -> Self {
        Self { severity: self.severity.min(severity), ..self }
    }

    pub(crate) fn at(self, node: impl Into<String>) -> Self {
        Self { node: Some(node.into()), ..self }
    }

    /// The subject of the finding.
    #[must_use]
    pub fn check(&self) -> Check {
        self.check
    }

    /// How much it matters.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// The address of the server, without the password; `None` for a finding on all servers
    /// together.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// What was found, in plain words.
    #[must_use]
    pub fn found(&self) -> &str {
        &self.found
    }

    /// What to do about it; `None` if there is nothing to do.
    #[must_use]
    pub fn advice(&self) -> Option<&Advice> {
        self.advice.as_ref()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {:<12} {}", self.severity, self.check, self.found)?;
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

/// What was found out about the servers of a client, and what to do about it. Made by
/// [`LockClient::diagnose`](crate::LockClient::diagnose).
///
/// `Display` writes one line for each finding, under the address of its server.
///
/// [As JSON](crate::observe#as-json) it is an object with `severity`, the counts `problems`,
/// `warnings` and `notes`, and the list `findings`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Diagnosis {
    findings: Vec<Finding>,
}

impl Diagnosis {
    pub(crate) fn new(findings: Vec<Finding>) -> Self {
        Self { findings }
    }

    /// All findings: server by server, in the order of the checks, then those on all servers
    /// together.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The worst of all findings.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.findings.iter().map(Finding::severity).max().unwrap_or(Severity::Ok)
    }

    /// How many findings have this severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// Whether there is neither a warning nor a problem.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.severity() < Severity::Warning
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = None;
        for finding in &self.findings {
            if shown != Some(finding.node()) {
                writeln!(f, "{}", finding.node().unwrap_or("all together"))?;
                shown = Some(finding.node());
            }
            writeln!(f, "  {finding}")?;
        }
        let counted = |severity, word: &str| {
            let count = self.count(severity);
            format!("{count} {word}{}", if count == 1 { "" } else { "s" })
        };
        let (problems, warnings) =
            (counted(Severity::Problem, "problem"), counted(Severity::Warning, "warning"));
        writeln!(f, "{problems}, {warnings}, {}", counted(Severity::Note, "note"))
    }
}

/// About how long an outage may last without costing a hold with this lease: two thirds of it are
/// left when it is renewed, less the margin and the pause before the next try.
pub(crate) fn survivable_outage(lease: Duration) -> Duration {
    (lease * 2 / 3)
        .saturating_sub(margin(lease))
        .saturating_sub((lease / 10).min(Duration::from_secs(1)))
}

/// The shortest lease for round trips that take this long: a renewal waits for a quarter of the
/// lease at most.
pub(crate) fn least_lease(slowest: Duration) -> Duration {
    (slowest * 4).max(SHORTEST_LEASE)
}

/// The configured lease, compared with the slowest round trip that was measured.
pub(crate) fn lease_finding(lease: Duration, slowest: Duration) -> Finding {
    let least = least_lease(slowest);
    let allowed =
        format!("the slowest round trip of {slowest:.1?} allows a lease of {least:.1?} at least");
    if lease < least {
        return Finding::warning(
            Check::Lease,
            format!("the lease of {lease:?} is too short: {allowed}"),
        )
        .advise("set a longer lease, or find out what makes the server slow");
    }
    let outage = survivable_outage(lease);
    let found = format!("a lease of {lease:?} survives an outage of about {outage:.1?}; {allowed}");
    if lease < Duration::from_millis(200) {
        let advice =
            "set a longer lease: below 200 ms a thread that waits for a core can cost the lock";
        return Finding::note(Check::Lease, found).advise(advice);
    }
    Finding::ok(Check::Lease, found)
}

/// Requires at least one measured round trip.
pub(crate) fn latency_finding(mut round_trips: Vec<Duration>, io_timeout: Duration) -> Finding {
    round_trips.sort_unstable();
    let count = round_trips.len();
    let at = |percent: usize| round_trips[(count * percent / 100).min(count - 1)];
    let p50 = at(50);
    let p99 = at(99);
    let max = round_trips[count - 1];
    let found = format!("{count} round trips: p50 {p50:.1?}, p99 {p99:.1?}, max {max:.1?}");
    if p99 > io_timeout / 2 {
        return Finding::warning(Check::Latency, format!("{found}; the I/O timeout is {io_timeout:?}"))
            .advise("raise the I/O timeout, or find out what makes the server slow: calls fail at the timeout");
    }
    Finding::ok(Check::Latency, found)
}

/// The wall clock of a server when it was asked, and ours. Both in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockSample {
    pub(crate) server: u64,
    /// Our clock when the question was sent, and when the answer arrived.
    pub(crate) asked: u64,
    pub(crate) answered: u64,
}

impl ClockSample {
    /// How far the server's clock is ahead of ours (behind: negative), as far as that is certain.
    pub(crate) fn offset_micros(self) -> i64 {
        let micros = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
        let (server, asked, answered) =
            (micros(self.server), micros(self.asked), micros(self.answered));
        if server > answered { server - answered } else { (server - asked).min(0) }
    }
}

/// Half of the margin of a lease: clocks that differ by more are not properly synchronised.
pub(crate) fn tolerated_offset(lease: Duration) -> Duration {
    margin(lease) / 2
}

/// A server's clock compared with ours.
pub(crate) fn clock_finding(sample: ClockSample, lease: Duration) -> Finding {
    let offset = sample.offset_micros();
    let by = Duration::from_micros(offset.unsigned_abs());
    let tolerated = tolerated_offset(lease);
    if by <= tolerated {
        return Finding::ok(
            Check::Clock,
            format!("the server's clock and ours differ by less than {tolerated:?}"),
        );
    }
    let way = if offset > 0 { "ahead of" } else { "behind" };
    Finding::warning(
        Check::Clock,
        format!("the server's clock is {by:.1?} {way} ours, more than {tolerated:?}"),
    )
    .advise(
        "synchronise both clocks (NTP), without steps; no lease here depends on them, but fencing \
                 tokens after a restart, Java's permits and what people read in logs do",
    )
}

#[cfg(test)]
#[path = "diagnosis_tests.rs"]
mod tests;
