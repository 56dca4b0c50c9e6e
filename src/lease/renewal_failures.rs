//! What is logged when leases cannot be renewed.

use std::sync::Arc;

use crate::base::error::{Error, ErrorKind};
use crate::base::lease::{LeaseState, Moment};
use crate::base::log;
use crate::lease::records::StoreHold;
use crate::store::Renewed;

/// Lines for the log, kept until the batch is back in the table: a logger may block.
#[derive(Debug, Default)]
pub(crate) struct News(Vec<(log::Level, String)>);

impl News {
    pub(crate) fn warn(&mut self, line: String) {
        self.0.push((log::Level::Warn, line));
    }

    pub(crate) fn debug(&mut self, line: impl FnOnce() -> String) {
        if log::wants(log::Level::Debug) {
            self.0.push((log::Level::Debug, line()));
        }
    }

    pub(crate) fn log(self) {
        for (level, line) in self.0 {
            log::line!(level, "{line}");
        }
    }
}

/// Whether this keeps all leases from being renewed, and not one alone. A refused certificate does
/// that as an outage does.
fn concerns_all(error: &Error) -> bool {
    error.kind().is_outage() || error.kind() == ErrorKind::Tls
}

impl StoreHold {
    /// Its last renewal failed, for a reason that concerns others as well.
    pub(super) fn is_in_an_outage(&self) -> bool {
        self.why_it_failed().as_ref().is_some_and(concerns_all)
    }
}

/// Whether the server can be asked for renewals. Logged once when it cannot, so that the person on
/// call knows before the first lease is lost, and once more when it can again.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    since: Option<Moment>,
}

impl Outages {
    pub(super) fn has_begun(&self) -> bool {
        self.since.is_some()
    }

    /// Processes the outcomes of one batch, one for each hold. Returns what is to be logged.
    pub(super) fn record(
        &mut self,
        holds: &[(Arc<StoreHold>, Moment)],
        outcomes: &[Renewed],
        now: Moment,
    ) -> News {
        let mut news = News::default();
        let mut failed: Vec<(&Arc<StoreHold>, &Error)> = Vec::new();
        for ((hold, _), outcome) in holds.iter().zip(outcomes) {
            match outcome {
                Renewed::Failed(error) if concerns_all(error) => failed.push((hold, error)),
                // This concerns one lock alone, so it is logged for this lock, at its first
                // failure.
                Renewed::Failed(error) if hold.lease.state(now) == LeaseState::Held => {
                    let name = &hold.asked.name.name;
                    let left = hold.remaining();
                    news.warn(format!(
                        "the lease of {name:?} cannot be renewed, and ends in {left:.1?}: {}",
                        error.chain()
                    ));
                }
                _ => {}
            }
        }
        if let Some((_, error)) = failed.first()
            && self.since.is_none()
        {
            self.since = Some(now);
            let first = failed.iter().map(|(hold, _)| hold.remaining()).min().unwrap_or_default();
            let count = failed.len();
            let cause = error.chain();
            news.warn(format!(
                "{count} leases cannot be renewed, still trying; the first ends in {first:.1?}: {cause}"
            ));
        }
        news
    }

    /// A lease was renewed, and none fails any more. Returns what is to be logged.
    pub(super) fn end(&mut self, now: Moment) -> Option<String> {
        let since = self.since.take()?;
        let lasted = now.since(since);
        Some(format!("leases are renewed again, after {lasted:.1?} without renewals"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::error::ErrorKind;
    use crate::lease::store_hold::tests::tenure;
    use crate::signal::clock::FakeClock;

    #[test]
    fn an_outage_is_logged_once_when_it_begins_and_a_refusal_for_its_lock() {
        let clock = Arc::new(FakeClock::default());
        let at = Moment::from_nanos(5);
        let holds: Vec<_> = ["a", "b"]
            .map(|name| (tenure(name, &clock, Duration::from_secs(10)).store_hold.clone(), at))
            .into();
        let held = || Renewed::Held { sent_at: at, again: false, beside: None, asked: 0 };
        let failed = |kind| {
            Renewed::Failed(
                Error::new(kind, "why").caused_by(std::io::Error::other("too many files")),
            )
        };
        let mut trouble = Outages::default();
        let mut lines = |outcomes: [Renewed; 2]| {
            trouble
                .record(&holds, &outcomes, at)
                .0
                .into_iter()
                .map(|(_, line)| line)
                .collect::<Vec<_>>()
        };
        assert!(lines([held(), held()]).is_empty());
        let logged = lines([failed(ErrorKind::Unreachable), failed(ErrorKind::Unreachable)]);
        assert!(
            logged.len() == 1
                && logged[0].contains("2 leases")
                && logged[0].contains("too many files"),
            "{logged:?}"
        );
        assert!(lines([failed(ErrorKind::Unreachable), failed(ErrorKind::NotReady)]).is_empty());
        assert!(lines([held(), held()]).is_empty());
        let logged = lines([failed(ErrorKind::WrongType), held()]);
        assert!(logged.len() == 1 && logged[0].contains("\"a\""), "{logged:?}");
        holds[0].0.lease.suspect(at);
        assert!(
            lines([failed(ErrorKind::WrongType), held()]).is_empty(),
            "it concerns one lock, and was logged before"
        );
    }
}
