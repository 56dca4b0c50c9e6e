//! Counters for the calls and holds of one primitive, or of one name.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::error::{Error, ErrorKind};
use crate::base::histogram::{AtomicHistogram, Histogram};
use crate::base::loss::LossReason;
use crate::os::OnceLock;

/// Room for every [`ErrorKind`], by its number.
const ERROR_KINDS: usize = 32;

/// How a call that was to take something ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome<'e> {
    /// With a grant.
    Granted,
    /// It added a level to a hold that the thread already had.
    Reentered,
    /// It found it taken, and had no time to wait.
    Busy,
    /// It waited, and its time was up.
    TimedOut,
    Failed(&'e Error),
}

/// How a thread got a lock without a request of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandOver {
    /// The hold was passed on to it, and nothing was sent.
    PassedOn,
    /// The release of the holder before was its grant, or the thread before it sent this acquire
    /// together with its own release.
    WithRelease,
    /// It joined the read hold of another thread.
    Joined,
}

/// Changed only by relaxed additions: their order is not guaranteed.
#[derive(Default)]
pub(crate) struct Counters {
    at_once: AtomicU64,
    after_wait: AtomicU64,
    reentered: AtomicU64,
    busy: AtomicU64,
    timed_out: AtomicU64,
    contended: AtomicU64,
    errors: [AtomicU64; ERROR_KINDS],
    hand_overs: [AtomicU64; 3],
    renewals: AtomicU64,
    renewal_failures: AtomicU64,
    losses: [AtomicU64; LossReason::ALL.len()],
    /// Made when the first duration is recorded: most names are never waited for.
    waits: OnceLock<Box<AtomicHistogram>>,
    holds: OnceLock<Box<AtomicHistogram>>,
}

fn one_more(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// `waited`: how long the call waited, if it had to.
    pub(crate) fn ended(&self, outcome: Outcome<'_>, waited: Option<Duration>) {
        match (outcome, waited) {
            (Outcome::Granted, None) => one_more(&self.at_once),
            (Outcome::Granted, Some(_)) => one_more(&self.after_wait),
            (Outcome::Reentered, _) => one_more(&self.reentered),
            (Outcome::Busy, _) => one_more(&self.busy),
            (Outcome::TimedOut, _) => one_more(&self.timed_out),
            (Outcome::Failed(error), _) => {
                if let Some(errors) = self.errors.get(error.kind() as usize) {
                    one_more(errors);
                }
            }
        }
        if let Some(waited) = waited {
            self.waits.get_or_init(Box::default).record(waited);
        }
        if waited.is_some() || matches!(outcome, Outcome::Busy | Outcome::TimedOut) {
            one_more(&self.contended);
        }
    }

    pub(crate) fn handed_over(&self, how: HandOver) {
        one_more(&self.hand_overs[how as usize]);
    }

    pub(crate) fn held(&self, held: Duration) {
        self.holds.get_or_init(Box::default).record(held);
    }

    pub(crate) fn renewed(&self, done: bool) {
        one_more(if done { &self.renewals } else { &self.renewal_failures });
    }

    pub(crate) fn lost(&self, reason: LossReason) {
        one_more(&self.losses[reason as usize]);
    }

    /// The sum of all waits, in nanoseconds.
    pub(crate) fn waited(&self) -> u64 {
        self.waits.get().map_or(0, |waits| waits.sum())
    }

    pub(crate) fn read(&self) -> Figures {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let histogram = |durations: &OnceLock<Box<AtomicHistogram>>| {
            durations.get().map_or_else(Histogram::default, |recorded| recorded.read())
        };
        Figures {
            at_once: read(&self.at_once),
            after_wait: read(&self.after_wait),
            reentered: read(&self.reentered),
            busy: read(&self.busy),
            timed_out: read(&self.timed_out),
            contended: read(&self.contended),
            errors: std::array::from_fn(|kind| read(&self.errors[kind])),
            hand_overs: std::array::from_fn(|how| read(&self.hand_overs[how])),
            renewals: read(&self.renewals),
            renewal_failures: read(&self.renewal_failures),
            losses: std::array::from_fn(|reason| read(&self.losses[reason])),
            waits: histogram(&self.waits),
            holds: histogram(&self.holds),
        }
    }
}

/// What was counted for one primitive, for one name, or for all together: part of
/// [`Stats`](crate::observe::Stats). All counts are since the client was built.
///
/// [As JSON](crate::observe#as-json) it is an object with `calls`, `granted_at_once`,
/// `granted_after_wait`, `reentered`, `busy`, `timed_out`, `stopped`, `failed`, `errors` (the count
/// of each kind of error that occurred, such as `no_quorum`), `contended`, `passed_on`,
/// `acquired_with_release`, `joined`, `renewals`, `renewal_failures`, `lost`, `losses` (the count
/// of each reason that occurred, such as `taken_away`), and the histograms `waits` and `holds`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    at_once: u64,
    after_wait: u64,
    reentered: u64,
    busy: u64,
    timed_out: u64,
    contended: u64,
    errors: [u64; ERROR_KINDS],
    hand_overs: [u64; 3],
    renewals: u64,
    renewal_failures: u64,
    losses: [u64; LossReason::ALL.len()],
    waits: Histogram,
    holds: Histogram,
}

impl Figures {
    /// Calls that were to take something and have ended. Each has one of the outcomes
    /// [`granted_at_once`](Self::granted_at_once),
    /// [`granted_after_wait`](Self::granted_after_wait), [`reentered`](Self::reentered),
    /// [`busy`](Self::busy), [`timed_out`](Self::timed_out), [`stopped`](Self::stopped),
    /// [`failed`](Self::failed).
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.granted()
            + self.reentered
            + self.busy
            + self.timed_out
            + self.errors.iter().sum::<u64>()
    }

    /// Calls that took it, whether at once or after a wait. For a latch, calls that found it open.
    #[must_use]
    pub fn granted(&self) -> u64 {
        self.at_once + self.after_wait
    }

    /// Calls that took it without waiting.
    #[must_use]
    pub fn granted_at_once(&self) -> u64 {
        self.at_once
    }

    /// Calls that took it after they had waited.
    #[must_use]
    pub fn granted_after_wait(&self) -> u64 {
        self.after_wait
    }

    /// Calls that added a level to a hold that their thread had already.
    #[must_use]
    pub fn reentered(&self) -> u64 {
        self.reentered
    }

    /// Calls without time to wait (`try_lock`) that found it taken.
    #[must_use]
    pub fn busy(&self) -> u64 {
        self.busy
    }

    /// Calls with a timeout that returned `None`.
    #[must_use]
    pub fn timed_out(&self) -> u64 {
        self.timed_out
    }

    /// Calls that this program ended itself, or did not let begin: by a cancel token, by stopping
    /// all waits, or by closing the client.
    #[must_use]
    pub fn stopped(&self) -> u64 {
        self.errors().filter(|(kind, _)| kind.is_stop()).map(|(_, count)| count).sum()
    }

    /// Calls that failed with any other error.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.errors.iter().sum::<u64>() - self.stopped()
    }

    /// Calls that failed with this kind of error.
    #[must_use]
    pub fn failed_with(&self, kind: ErrorKind) -> u64 {
        self.errors.get(kind as usize).copied().unwrap_or(0)
    }

    /// Every kind of error with which a call has failed, with the count.
    pub(crate) fn errors(&self) -> impl Iterator<Item = (ErrorKind, u64)> + '_ {
        ErrorKind::ALL
            .iter()
            .map(|kind| (*kind, self.failed_with(*kind)))
            .filter(|(_, count)| *count > 0)
    }

    /// Calls that found it taken: that waited, or returned `None`.
    #[must_use]
    pub fn contended(&self) -> u64 {
        self.contended
    }

    /// The part of the calls that found it taken, from 0 to 1; 0 if there were no calls.
    #[must_use]
    pub fn contended_share(&self) -> f64 {
        let calls = self.calls();
        if calls == 0 { 0.0 } else { self.contended as f64 / calls as f64 }
    }

    /// Grants of a hold that passed on from another thread of this client, without a request: a
    /// part of [`granted`](Self::granted).
    #[must_use]
    pub fn passed_on(&self) -> u64 {
        self.hand_overs[HandOver::PassedOn as usize]
    }

    /// Grants by the release of the holder before: another thread of this client sent the request
    /// of this one with it, or it is a fair lock on Redis, whoever released it. A part of
    /// [`granted`](Self::granted).
    #[must_use]
    pub fn acquired_with_release(&self) -> u64 {
        self.hand_overs[HandOver::WithRelease as usize]
    }

    /// Grants that joined the read hold of another thread of this client, without a request: a part
    /// of [`granted`](Self::granted).
    #[must_use]
    pub fn joined(&self) -> u64 {
        self.hand_overs[HandOver::Joined as usize]
    }

    /// Renewals that the store has confirmed; inspections of fixed leases do not count.
    #[must_use]
    pub fn renewals(&self) -> u64 {
        self.renewals
    }

    /// Renewals and inspections that failed. A failed one is repeated, and loses nothing by itself.
    #[must_use]
    pub fn renewal_failures(&self) -> u64 {
        self.renewal_failures
    }

    /// Holds that were lost, for whatever reason. Holds given up by closing the client do not
    /// count.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses.iter().sum()
    }

    /// Holds that were lost for this reason.
    #[must_use]
    pub fn lost_by(&self, reason: LossReason) -> u64 {
        self.losses[reason as usize]
    }

    /// Every reason for which a hold was lost, with the count.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (LossReason, u64)> + '_ {
        LossReason::ALL
            .iter()
            .map(|reason| (*reason, self.lost_by(*reason)))
            .filter(|(_, count)| *count > 0)
    }

    /// How long calls waited that had to wait, whatever their outcome: from the answer that it is
    /// taken until the end of the call.
    #[must_use]
    pub fn waits(&self) -> &Histogram {
        &self.waits
    }

    /// How long finished holds lasted: from the request that took them until they were given up or
    /// lost.
    #[must_use]
    pub fn holds(&self) -> &Histogram {
        &self.holds
    }

    /// Adds the other figures to these.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self { at_once, after_wait, reentered, busy, timed_out, contended, .. } = other;
        self.at_once += at_once;
        self.after_wait += after_wait;
        self.reentered += reentered;
        self.busy += busy;
        self.timed_out += timed_out;
        self.contended += contended;
        for (own, theirs) in self.errors.iter_mut().zip(other.errors) {
            *own += theirs;
        }
        for (own, theirs) in self.hand_overs.iter_mut().zip(other.hand_overs) {
            *own += theirs;
        }
        self.renewals += other.renewals;
        self.renewal_failures += other.renewal_failures;
        for (own, theirs) in self.losses.iter_mut().zip(other.losses) {
            *own += theirs;
        }
        self.waits.add(&other.waits);
        self.holds.add(&other.holds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_one_outcome() {
        let counters = Counters::default();
        let waited = Some(Duration::from_millis(3));
        let (closed, down) =
            (Error::new(ErrorKind::Closed, ""), Error::new(ErrorKind::Unreachable, ""));
        let outcomes = [
            (Outcome::Granted, None),
            (Outcome::Granted, waited),
            (Outcome::Reentered, None),
            (Outcome::Busy, None),
            (Outcome::TimedOut, waited),
            (Outcome::Failed(&closed), waited),
            (Outcome::Failed(&down), None),
        ];
        for (calls, (outcome, waited)) in (1..).zip(outcomes) {
            counters.ended(outcome, waited);
            assert_eq!(counters.read().calls(), calls, "{outcome:?}");
        }
        let read = counters.read();
        assert_eq!(
            (read.granted_at_once(), read.granted_after_wait(), read.reentered()),
            (1, 1, 1)
        );
        assert_eq!((read.busy(), read.timed_out(), read.stopped(), read.failed()), (1, 1, 1, 1));
        assert_eq!(
            (read.failed_with(ErrorKind::Unreachable), read.contended(), read.waits().count()),
            (1, 4, 3)
        );
        assert!((read.contended_share() - 4.0 / 7.0).abs() < 1e-9);
        assert_eq!(read.errors().count(), 2);
        let mut twice = read.clone();
        twice.add(&read);
        assert_eq!((twice.calls(), twice.failed(), twice.waits().count()), (14, 2, 6));
    }
}
