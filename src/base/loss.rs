//! Why a hold was lost, and what its holder learns before that.

use std::fmt;
use std::time::Duration;

use crate::base::error::Error;

/// What ended a hold that its holder had not given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease ended before it was renewed. [`Loss::cause`] is the error of the last renewal.
    /// Without a cause no renewal failed: the process or the machine was suspended, or too busy to
    /// send one.
    NotRenewed,
    /// The server answered that it does not know the hold: somebody freed the lock by force, or the
    /// server forgot it (a flush, an eviction, a failover, a restart without persistence, a session
    /// that somebody ended).
    TakenAway,
    /// The `max_hold` of the hold was over, so it was no longer renewed, and its lease ended.
    MaxHold,
    /// The fixed lease (`with_lease`) ended.
    FixedLease,
    /// Closing the client gave up the hold.
    Closed,
}

impl LossReason {
    pub(crate) const ALL: [Self; 5] =
        [Self::NotRenewed, Self::TakenAway, Self::MaxHold, Self::FixedLease, Self::Closed];

    /// The name of the reason as a label of metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::NotRenewed => "not_renewed",
            Self::TakenAway => "taken_away",
            Self::MaxHold => "max_hold",
            Self::FixedLease => "fixed_lease",
            Self::Closed => "closed",
        }
    }
}

/// How a hold was lost. `Display` writes one line for people, with the cause.
#[derive(Debug, Clone)]
pub struct Loss {
    reason: LossReason,
    cause: Option<Error>,
    held_for: Duration,
}

impl Loss {
    #[cold]
    pub(crate) fn new(reason: LossReason, cause: Option<Error>, held_for: Duration) -> Self {
        Self { reason, cause, held_for }
    }

    /// What ended the hold.
    #[must_use]
    pub fn reason(&self) -> LossReason {
        self.reason
    }

    /// The error of the last renewal, if the lease ended because renewals failed.
    #[must_use]
    pub fn cause(&self) -> Option<&Error> {
        self.cause.as_ref()
    }

    /// How long the hold lasted, from the request that acquired it to the end of its lease, or to
    /// the moment at which this client learned that it had been taken away, or closed.
    #[must_use]
    pub fn held_for(&self) -> Duration {
        self.held_for
    }

    /// The reason in words, without the cause and the time.
    #[must_use]
    pub fn message(&self) -> &'static str {
        match (self.reason, &self.cause) {
            (LossReason::NotRenewed, Some(_)) => "its lease could not be renewed",
            (LossReason::NotRenewed, None) => {
                "its lease was not renewed in time: the process or the machine was suspended or too busy"
            }
            (LossReason::TakenAway, _) => {
                "it was taken away: somebody freed it by force, or the server forgot it"
            }
            (LossReason::MaxHold, _) => "its maximum hold was over",
            (LossReason::FixedLease, _) => "its fixed lease ended",
            (LossReason::Closed, _) => "the client was closed",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())?;
        if let Some(cause) = &self.cause {
            write!(f, ": {}", cause.chain())?;
        }
        write!(f, " (held for {:.1?})", self.held_for)
    }
}

/// How a wait for a loss ended. Returned by
/// [`wait_lost`](crate::ReentrantMutexGuard::wait_lost) of a guard.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use leasehold::LossWait;
/// # let client = leasehold::LockClient::in_memory();
///
/// let guard = client.lock("job")?;
/// match guard.wait_lost(Duration::from_millis(1)) {
///     LossWait::StillHeld => println!("go on"),
///     LossWait::Lost => println!("stop: {}", guard.loss().expect("it is lost")),
///     LossWait::Released => println!("there is nothing to lose any more"),
/// }
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "it says whether the lock is lost"]
pub enum LossWait {
    /// The lease was lost, or closing the client gave it up: `loss` of the guard says which.
    Lost,
    /// The time was over, and the lock was still held.
    StillHeld,
    /// There is no hold that could be lost any more, and it was not lost. Its thread has ended,
    /// which gave it up although the guard still exists (as a leaked guard does); or this is a
    /// forked child, where guards of the parent hold nothing. Every further wait returns this at
    /// once.
    Released,
}

impl LossWait {
    /// Whether the lock is lost. A loop that goes on until this is true does not end for a hold
    /// that was [released](Self::Released), and does not block either: ask
    /// [`is_still_held`](Self::is_still_held) there.
    #[must_use]
    pub const fn is_lost(self) -> bool {
        matches!(self, Self::Lost)
    }

    /// Whether the time was over with the lock still held: whether another wait makes sense.
    #[must_use]
    pub const fn is_still_held(self) -> bool {
        matches!(self, Self::StillHeld)
    }
}

/// A renewal that failed, with the lease still running. `Display` writes one line for people.
#[derive(Debug, Clone)]
pub struct RenewalFailure {
    error: Error,
    remaining: Duration,
}

impl RenewalFailure {
    #[cold]
    pub(crate) fn new(error: Error, remaining: Duration) -> Self {
        Self { error, remaining }
    }

    /// Why the renewal failed.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// How much of the lease was left when it failed. Renewal is tried again for that long.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.remaining
    }
}

impl fmt::Display for RenewalFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the lease cannot be renewed, and ends in {:.1?}: {}",
            self.remaining,
            self.error.chain()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;

    #[test]
    fn all_reasons_are_listed() {
        let listed = LossReason::ALL.map(|reason| reason as usize);
        assert_eq!(listed, [0, 1, 2, 3, 4]);
        assert_eq!(LossReason::Closed as usize + 1, LossReason::ALL.len());
    }

    #[test]
    fn one_line_says_what_why_and_after_how_long() {
        let reset = Error::named(ErrorKind::Unreachable, "job", "no answer")
            .caused_by(std::io::Error::other("reset"));
        let loss =
            Loss::new(LossReason::NotRenewed, Some(reset.clone()), Duration::from_millis(12_340));
        assert_eq!(
            loss.to_string(),
            "its lease could not be renewed: \"job\": no answer: reset (held for 12.3s)"
        );
        let loss = Loss::new(LossReason::NotRenewed, None, Duration::from_secs(1));
        assert!(loss.to_string().contains("suspended or too busy (held for 1.0s)"), "{loss}");
        let trouble = RenewalFailure::new(reset, Duration::from_secs(20));
        assert_eq!(
            trouble.to_string(),
            "the lease cannot be renewed, and ends in 20.0s: \"job\": no answer: reset"
        );
    }
}
