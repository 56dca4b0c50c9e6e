//! Findings that several stores report in the same words.

use std::time::{Duration, Instant};

use crate::base::error::{Error, ErrorKind, Result};
use crate::report::diagnosis::{
    Check, ClockSample, Finding, Severity, clock_finding, latency_finding, lease_finding,
};
use crate::signal::clock::Clock;
use crate::store::net::Stream;

/// The longest time that all questions to one server take together, in I/O timeouts.
pub(super) const PATIENCE: u32 = 8;

/// How many round trips are measured.
const ROUND_TRIPS: usize = 50;

/// A certificate that expires sooner than this is a warning.
#[cfg(feature = "tls-core")]
const SOON: Duration = Duration::from_secs(14 * 86_400);

/// Why a server cannot be asked.
pub(super) fn failed(error: &Error) -> Finding {
    let found = error.message().to_owned();
    let finding = match error.kind() {
        ErrorKind::Denied => Finding::problem(Check::LogIn, found)
            .advise("check the user and the password, and whether the server lets this host in"),
        ErrorKind::Tls => Finding::problem(Check::Tls, found),
        ErrorKind::Unsupported => Finding::problem(Check::Version, found),
        ErrorKind::ReadOnly => Finding::problem(Check::Role, found),
        _ => Finding::problem(Check::Reachable, found).advise(
            "check that the server runs, its address and port, and what is in between (a firewall)",
        ),
    };
    finding.advised_by(error)
}

pub(super) fn reachable(after: Duration) -> Finding {
    Finding::ok(Check::Reachable, format!("connected in {after:.1?}, and the server answers"))
}

/// How a connection is secured.
pub(super) fn secured(stream: &Stream, clock: &dyn Clock) -> Finding {
    #[cfg(feature = "tls-core")]
    if let Some(certificate) = stream.server_certificate() {
        return ends(crate::store::tls::end_of(&certificate), clock.wall());
    }
    let _ = clock;
    if stream.is_exposed() {
        return Finding::note(Check::Tls, "the connection is not encrypted").advise(
            "use TLS (cargo feature tls) where others can see or change what crosses the network",
        );
    }
    Finding::ok(Check::Tls, "the connection has no TLS, and does not leave this machine")
}

#[cfg(feature = "tls-core")]
fn ends(end: Option<Duration>, now: Duration) -> Finding {
    let Some(end) = end else { return Finding::ok(Check::Tls, "the connection has TLS") };
    let days = |time: Duration| time.as_secs() / 86_400;
    match end.checked_sub(now) {
        None => Finding::problem(
            Check::Tls,
            format!(
                "the connection has TLS, with a certificate that ended {} days ago",
                days(now - end)
            ),
        )
        .advise("renew the certificate of the server: clients that check it cannot connect"),
        Some(left) if left < SOON => {
            let found = format!(
                "the connection has TLS, with a certificate that ends in {} days",
                days(left)
            );
            Finding::warning(Check::Tls, found).advise("renew the certificate of the server")
        }
        Some(left) => {
            let found = format!(
                "the connection has TLS, with a certificate that ends in {} days",
                days(left)
            );
            Finding::ok(Check::Tls, found)
        }
    }
}

/// Our wall clock, in microseconds since 1970.
pub(super) fn wall_micros(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.wall().as_micros()).unwrap_or(u64::MAX)
}

/// Measures round trips, for at most one I/O timeout: the finding, and the slowest.
pub(super) fn measure<E>(
    io_timeout: Duration,
    mut ask: impl FnMut() -> std::result::Result<(), E>,
) -> std::result::Result<(Finding, Duration), E> {
    let began = Instant::now();
    let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
    // Once at least, however short the time is.
    loop {
        let sent = Instant::now();
        ask()?;
        round_trips.push(sent.elapsed());
        if round_trips.len() == ROUND_TRIPS || began.elapsed() >= io_timeout {
            break;
        }
    }
    let slowest = round_trips.iter().max().copied().unwrap_or_default();
    Ok((latency_finding(round_trips, io_timeout), slowest))
}

/// Whether a connection for locks can be made. `None`: not, and one of the other findings already
/// states the reason.
pub(super) fn connects<T>(connected: &Result<T>, others: &[Finding]) -> Option<Finding> {
    let has_problem = || others.iter().any(|finding| finding.severity() == Severity::Problem);
    match connected {
        Ok(_) => Some(Finding::ok(Check::Connect, "a connection for locks can be made")),
        Err(_) if has_problem() => None,
        Err(e) => Some(Finding::problem(Check::Connect, e.message().to_owned()).advised_by(e)),
    }
}

/// The configured lease, compared with the slowest of all servers.
pub(super) fn lease_of(examined: &[Examined], lease: Duration) -> Option<Finding> {
    let slowest = examined.iter().filter_map(|examined| examined.slowest).max()?;
    Some(lease_finding(lease, slowest))
}

/// The findings of each server, with its address. `enough`: locks work, whatever those are missing
/// that cannot be used.
pub(super) fn of_each(
    addresses: Vec<String>,
    examined: Vec<Examined>,
    enough: bool,
) -> Vec<Finding> {
    let mut all = Vec::new();
    for (address, examined) in addresses.into_iter().zip(examined) {
        let examined = if enough { examined.spared() } else { examined };
        all.extend(examined.findings.into_iter().map(|finding| finding.at(&address)));
    }
    all
}

/// Examines all targets side by side, each on a thread that ends with its questions and whose I/O
/// is bounded. If the system cannot start a thread, the caller asks.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "zookeeper"))]
pub(super) fn examine_each<X: Sync>(
    targets: &[X],
    ask: impl Fn(&X) -> Examined + Sync,
) -> Vec<Examined> {
    let ask = &ask;
    std::thread::scope(|scope| {
        let begin = |target| {
            let builder = std::thread::Builder::new().name("lh-diagnose".to_owned());
            (target, builder.spawn_scoped(scope, move || ask(target)).ok())
        };
        let begun: Vec<_> = targets.iter().map(begin).collect();
        let end = |(target, thread): (&X, Option<std::thread::ScopedJoinHandle<'_, Examined>>)| {
            match thread {
                Some(thread) => thread.join().unwrap_or_default(),
                None => ask(target),
            }
        };
        begun.into_iter().map(end).collect()
    })
}

/// What was found out about one server, and the values that are compared between servers.
#[derive(Debug, Default)]
pub(crate) struct Examined {
    pub(super) findings: Vec<Finding>,
    pub(super) slowest: Option<Duration>,
    pub(super) clock: Option<ClockSample>,
    /// Which process it is, whatever its address.
    #[cfg(feature = "redis")]
    pub(super) run_id: Option<String>,
    /// It answers, and as far as is known locks can be taken there.
    pub(super) usable: bool,
}

impl Examined {
    pub(super) fn failed(error: &Error) -> Self {
        Self { findings: vec![failed(error)], ..Self::default() }
    }

    pub(super) fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    pub(super) fn add_clock(&mut self, sample: ClockSample, lease: Duration) {
        self.clock = Some(sample);
        self.add(clock_finding(sample, lease));
    }

    /// The last question has failed. That the server answers, as was found before, no longer holds.
    pub(super) fn fail(&mut self, error: &Error) {
        self.findings.retain(|finding| finding.check() != Check::Reachable);
        self.findings.insert(0, failed(error));
        self.usable = false;
    }

    /// Measures round trips, for at most one I/O timeout.
    pub(super) fn measure(
        &mut self,
        io_timeout: Duration,
        ask: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let (finding, slowest) = measure(io_timeout, ask)?;
        self.slowest = Some(slowest);
        self.add(finding);
        Ok(())
    }

    /// Where the other servers suffice, a problem of a server that cannot be used is only a
    /// warning: locks work.
    fn spared(self) -> Self {
        if self.usable {
            return self;
        }
        let findings =
            self.findings.into_iter().map(|finding| finding.at_worst(Severity::Warning)).collect();
        Self { findings, ..self }
    }
}

#[cfg(all(test, feature = "tls-core"))]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_ends_soon_is_a_warning() {
        let day = Duration::from_secs(86_400);
        let now = Duration::from_secs(1_800_000_000);
        for (end, severity) in [
            (Some(now + 15 * day), Severity::Ok),
            (Some(now + 13 * day), Severity::Warning),
            (Some(now - 2 * day), Severity::Problem),
            (None, Severity::Ok),
        ] {
            assert_eq!(ends(end, now).severity(), severity, "{end:?}");
        }
        assert!(ends(Some(now - 2 * day), now).found().contains("2 days ago"));
    }
}
