//! The faults that a test has requested.
// Every call checks them; only the feature `testing` can set them.
#![cfg_attr(not(feature = "testing"), allow(dead_code, unreachable_pub))]

use std::time::Duration;

use crate::base::error::{Error, ErrorKind};
use crate::base::lease::Moment;

/// A kind of request that a client sends to its store, for
/// [`Faults::fail_next`](crate::testing::Faults::fail_next).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Takes a lock or permits, re-enters a lock, takes several locks as one, or begins a run of a
    /// [job](crate::ScheduledJob) whose lease was taken by the request before.
    Acquire,
    /// Releases a lock, returns permits, or leaves a queue. A hand-over between two threads of a
    /// client is a release and an acquire. Ends a run of a job.
    Release,
    /// The watchdog renews leases, and checks holds with a fixed lease.
    Renew,
    /// Lengthens a lease at the caller's request.
    Extend,
    /// Reads who holds a lock, how long a queue is, what a count is, or what is known of a job.
    Inspect,
    /// Frees a lock, whoever holds it.
    ForceUnlock,
    /// Changes the count of a latch, the number of permits of a semaphore, or a rate limiter;
    /// forgets an occurrence of a job.
    Count,
    /// Replaces the data of a hold, or asks its holder for the lock.
    Data,
    /// Claims or writes a fenced value.
    Fence,
    /// Opens the subscription that receives release messages.
    Subscribe,
}

/// When a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// Before it runs: the store does not get it, and nothing changes.
    BeforeItRan,
    /// After it has run: the reply is lost, and the client does not know the outcome.
    AfterItRan,
    /// For an acquire: the next grant does not count, because no replica confirmed it, and it is
    /// taken back some time later.
    #[cfg(shuttle)]
    #[doc(hidden)]
    NotConfirmed,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    cut_until: Option<Moment>,
    /// How long each request takes to fail during the cut.
    #[cfg(shuttle)]
    hangs: Duration,
    next: Vec<(Operation, Failure)>,
}

impl Faults {
    pub(super) fn cut(&mut self, until: Moment) {
        self.cut_until = Some(until);
    }

    #[cfg(shuttle)]
    pub(super) fn set_hanging(&mut self, each: Duration) {
        self.hangs = each;
    }

    /// How long a request takes that fails now.
    #[cfg(shuttle)]
    pub(super) fn hangs(&self, now: Moment) -> Duration {
        if self.is_cut(now) { self.hangs } else { Duration::ZERO }
    }

    pub(super) fn add(&mut self, operation: Operation, failure: Failure) {
        self.next.push((operation, failure));
    }

    pub(super) fn is_cut(&self, now: Moment) -> bool {
        self.cut_until.is_some_and(|until| now < until)
    }

    #[cfg(shuttle)]
    pub(super) fn has(&self, operation: Operation, failure: Failure) -> bool {
        self.next.contains(&(operation, failure))
    }

    #[cfg(shuttle)]
    pub(super) fn take(&mut self, operation: Operation, failure: Failure) {
        let place = self.next.iter().position(|next| *next == (operation, failure));
        place.map(|place| self.next.remove(place));
    }

    /// Whether the next request of one of these kinds fails.
    pub(super) fn apply_to(&self, operations: &[Operation], now: Moment) -> bool {
        self.is_cut(now) || self.next.iter().any(|(operation, _)| operations.contains(operation))
    }

    /// Takes the fault of this request, if there is one.
    pub(super) fn next(&mut self, operation: Operation, now: Moment) -> Option<(Failure, Error)> {
        if let Some(until) = self.cut_until
            && self.is_cut(now)
        {
            return Some((Failure::BeforeItRan, cut_off(until.since(now))));
        }
        #[cfg(shuttle)]
        let meant = |failure: Failure| failure != Failure::NotConfirmed;
        #[cfg(not(shuttle))]
        let meant = |_: Failure| true;
        let at =
            self.next.iter().position(|(asked, failure)| *asked == operation && meant(*failure))?;
        let failure = self.next.remove(at).1;
        Some((failure, failed(failure)))
    }
}

#[cold]
pub(super) fn cut_off(left: Duration) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!("the test has cut the client off from the store for another {left:?}"),
    )
}

#[cold]
fn failed(failure: Failure) -> Error {
    let why = match failure {
        Failure::BeforeItRan => "the test made this request fail before it ran",
        Failure::AfterItRan => "the test made this request lose its reply after it ran",
        #[cfg(shuttle)]
        Failure::NotConfirmed => "the test let no replica confirm this grant",
    };
    Error::new(ErrorKind::Unreachable, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_met_once_and_a_cut_until_it_ends() {
        let mut faults = Faults::default();
        let at = Moment::from_nanos;
        faults.add(Operation::Renew, Failure::AfterItRan);
        assert!(faults.next(Operation::Acquire, at(1)).is_none());
        assert!(
            faults.apply_to(&[Operation::Renew], at(1))
                && !faults.apply_to(&[Operation::Acquire], at(1))
        );
        assert_eq!(faults.next(Operation::Renew, at(1)).unwrap().0, Failure::AfterItRan);
        assert!(faults.next(Operation::Renew, at(1)).is_none());
        faults.cut(at(5));
        assert_eq!(faults.next(Operation::Inspect, at(4)).unwrap().0, Failure::BeforeItRan);
        assert!(faults.next(Operation::Inspect, at(5)).is_none());
    }
}
