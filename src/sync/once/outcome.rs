//! How a call for an occurrence ends.

use std::time::{Duration, SystemTime};

use crate::base::error::Error;
use crate::store::JobState;

/// How [`run`](crate::ScheduledJob::run) ended. None of these is an error of the call: an error
/// means that nothing has run.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "an attempt that failed, or a success that was not recorded, is in it"]
pub enum Once<T, E> {
    /// The closure has run, and its success is recorded: nobody runs this occurrence again while
    /// the store remembers it.
    Done(T),
    /// It was done before, by this one (its [owner](crate::Builder::owner), or the id of its client
    /// if it publishes none), at this time by the clock of the store.
    #[non_exhaustive]
    AlreadyDone {
        /// Who has done it.
        by: String,
        /// When, by the clock of the store.
        at: SystemTime,
    },
    /// Somebody else runs an occurrence of the job: this one, or another that has not ended yet.
    #[non_exhaustive]
    Running {
        /// Who runs it: its owner. The id of the holder until its attempt has begun.
        by: String,
        /// Which one; `None` until its attempt has begun.
        occurrence: Option<String>,
    },
    /// The closure has run and returned this error. The attempt counts.
    Failed(E),
    /// The closure has run and returned this value, but whether that was recorded is unknown, or it
    /// was not: the lease was lost meanwhile, or the store did not answer until
    /// [`outage_timeout`](crate::Builder::outage_timeout) or the lease was over. Somebody else may
    /// run this occurrence again, or does so now. The error says why.
    Unrecorded(T, Error),
    /// An attempt has failed, and the next one may begin when this time is over.
    #[non_exhaustive]
    Pausing {
        /// How long that is.
        left: Duration,
    },
    /// So many attempts have begun and none has succeeded, as many as
    /// [`attempts`](crate::ScheduledJob::attempts) allows.
    #[non_exhaustive]
    GaveUp {
        /// How many have begun.
        attempts: u32,
    },
    /// Its time has passed: the [grace](crate::Every::grace) is over, or a newer one was done, or
    /// this one was done so long ago that nothing else is known of it.
    #[non_exhaustive]
    Passed {
        /// The newest occurrence that was done, if that is the reason.
        newest: Option<String>,
    },
}

/// What became of an occurrence, for those that [wait](crate::ScheduledJob::wait_done) for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// It is done.
    #[non_exhaustive]
    Done {
        /// Who has done it.
        by: String,
        /// When, by the clock of the store.
        at: SystemTime,
    },
    /// Like [`Once::GaveUp`].
    #[non_exhaustive]
    GaveUp {
        /// How many attempts have begun.
        attempts: u32,
    },
    /// Like [`Once::Passed`].
    #[non_exhaustive]
    Passed {
        /// The newest occurrence that was done, if that is the reason.
        newest: Option<String>,
    },
}

pub(super) fn system_time(since_1970: Duration) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(since_1970).unwrap_or(SystemTime::UNIX_EPOCH)
}

impl<T, E> Once<T, E> {
    /// Why an occurrence does not run. `None` for one that may.
    pub(super) fn refusal(state: JobState) -> Option<Self> {
        Some(match state {
            JobState::Done { by, at } => Self::AlreadyDone { by, at: system_time(at) },
            JobState::Passed { newest } => Self::Passed { newest: Some(newest) },
            JobState::Running { by, occurrence, .. } => Self::Running { by, occurrence },
            JobState::GaveUp { attempts } => Self::GaveUp { attempts },
            JobState::Pausing { left } => Self::Pausing { left },
            JobState::Open | JobState::Begun { .. } | JobState::NotHeld => return None,
        })
    }
}

impl Settled {
    /// `None`: it may still be done.
    pub(super) fn of(state: &JobState) -> Option<Self> {
        Some(match state {
            JobState::Done { by, at } => Self::Done { by: by.clone(), at: system_time(*at) },
            JobState::Passed { newest } => Self::Passed { newest: Some(newest.clone()) },
            JobState::GaveUp { attempts } => Self::GaveUp { attempts: *attempts },
            _ => return None,
        })
    }
}
