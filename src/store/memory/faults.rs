//! What a test has asked to go wrong.
// Asked on every call, set only with the feature `testing`.
#![cfg_attr(not(feature = "testing"), allow(dead_code, unreachable_pub))]

use std::time::Duration;

use crate::base::error::{Error, ErrorKind};
use crate::base::lease::Moment;

/// What a client asks its store, for [`Faults::fail_next`](crate::testing::Faults::fail_next).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Takes a lock or permits, also once more, and several as one.
    Acquire,
    /// Gives them back, or leaves a queue. Also a hand-over from one thread of a client to the
    /// next.
    Release,
    /// The watchdog's renewal, which also looks after leases that are not renewed.
    Renew,
    /// Lengthens a lease at the caller's request.
    Extend,
    /// Asks who has a lock, how long a queue is, or what a count is.
    Look,
    /// Frees a lock whoever has it.
    ForceUnlock,
    /// Changes a latch, or how many permits there are.
    Count,
    /// Claims or writes a fenced value.
    Fence,
    /// Begins to listen to releases.
    Subscribe,
}

/// How a call of the store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// The request does not arrive: nothing is changed.
    BeforeItRan,
    /// The request has run, and its reply is lost: the client cannot know that it has.
    AfterItRan,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    cut_until: Option<Moment>,
    next: Vec<(Operation, Failure)>,
}

impl Faults {
    pub(super) fn cut(&mut self, until: Moment) {
        self.cut_until = Some(until);
    }

    pub(super) fn add(&mut self, operation: Operation, failure: Failure) {
        self.next.push((operation, failure));
    }

    pub(super) fn is_cut(&self, now: Moment) -> bool {
        self.cut_until.is_some_and(|until| now < until)
    }

    /// Whether the next of these would fail.
    pub(super) fn concern(&self, operations: &[Operation], now: Moment) -> bool {
        self.is_cut(now) || self.next.iter().any(|(operation, _)| operations.contains(operation))
    }

    /// How this call fails, if it does.
    pub(super) fn next(&mut self, operation: Operation, now: Moment) -> Option<(Failure, Error)> {
        if let Some(until) = self.cut_until
            && self.is_cut(now)
        {
            return Some((Failure::BeforeItRan, cut_off(until.since(now))));
        }
        let at = self.next.iter().position(|(asked, _)| *asked == operation)?;
        let failure = self.next.remove(at).1;
        Some((failure, failed(failure)))
    }
}

#[cold]
pub(super) fn cut_off(left: Duration) -> Error {
    Error::new(ErrorKind::Unreachable, format!("the test has cut off the store, for another {left:?}"))
}

#[cold]
fn failed(failure: Failure) -> Error {
    let why = match failure {
        Failure::BeforeItRan => "the test let this request fail before it ran",
        Failure::AfterItRan => "the test let this request run and its reply be lost",
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
        assert!(faults.concern(&[Operation::Renew], at(1)) && !faults.concern(&[Operation::Acquire], at(1)));
        assert_eq!(faults.next(Operation::Renew, at(1)).unwrap().0, Failure::AfterItRan);
        assert!(faults.next(Operation::Renew, at(1)).is_none());
        faults.cut(at(5));
        assert_eq!(faults.next(Operation::Look, at(4)).unwrap().0, Failure::BeforeItRan);
        assert!(faults.next(Operation::Look, at(5)).is_none());
    }
}
