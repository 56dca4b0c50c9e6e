//! Scheduled jobs: what a store keeps of them, so that one success is recorded for each occurrence.
//!
//! The lease of a job is a lock of the kind `Job`, taken, renewed and lost as any other. Its holder
//! begins an occurrence, and ends it in the step that gives up the lease.

use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::job_name::JobName;
use crate::store::requests::UnknownOutcomes;

/// How long the newest label is remembered after the last success.
pub(crate) const NEWEST_KEPT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The holder of the lease is about to run the occurrence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BeginJob<'a> {
    pub(crate) job: &'a JobName,
    pub(crate) holder: &'a Holder,
    /// Who it is, for people.
    pub(crate) by: &'a str,
    /// The maximum number of attempts.
    pub(crate) attempts: u32,
    /// How long what is recorded of the occurrence is kept.
    pub(crate) keep: Duration,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    Done,
    /// The next attempt may begin after the pause.
    Failed {
        pause: Duration,
    },
}

impl AttemptEnd {
    /// Whether it has been recorded although the holder is missing. `repeated`: an earlier attempt
    /// of this request may have run. It has removed the holder then, as a release does. For a
    /// success the record says whether it has run.
    pub(crate) fn ran_before(self, repeated: bool) -> bool {
        repeated && matches!(self, Self::Failed { .. })
    }
}

/// The holder of the lease gives it up, and has or has not done the occurrence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndJob<'a> {
    pub(crate) job: &'a JobName,
    pub(crate) holder: &'a Holder,
    pub(crate) by: &'a str,
    pub(crate) end: AttemptEnd,
    pub(crate) keep: Duration,
}

/// What a store answers about an occurrence, in the order in which it looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobState {
    Done {
        by: String,
        /// Since 1970, by the clock of the store.
        at: Duration,
    },
    /// This one, which is newer or was forgotten since, was done.
    Passed {
        newest: String,
    },
    /// Only as an answer to a look: somebody holds the lease.
    Running {
        by: String,
        /// `None`: the holder has not begun an occurrence yet.
        occurrence: Option<String>,
        left: Option<Duration>,
    },
    GaveUp {
        attempts: u32,
    },
    Pausing {
        left: Duration,
    },
    /// An attempt may begin.
    Open,
    /// This attempt has begun, and is counted.
    Begun {
        attempt: u32,
    },
    /// The holder does not hold the lease.
    NotHeld,
}

pub(crate) trait JobStore {
    /// The clock of the store, since 1970.
    fn time(&self, job: &JobName) -> Result<Duration>;

    /// Changes nothing. `attempts`: the maximum.
    fn look_at_job(&self, job: &JobName, attempts: u32) -> Result<JobState>;

    /// Counts an attempt of the holder of the lease, unless the occurrence must not run. A repeat
    /// counts nothing more.
    fn begin_job(&self, begin: &BeginJob<'_>, unknowns: &mut UnknownOutcomes) -> Result<JobState>;

    /// Records how the attempt ended and gives up the lease, in one step. False if the holder does
    /// not hold it: then nothing is changed. A repeat of a success finds what it has recorded.
    fn end_job(&self, end: &EndJob<'_>, unknowns: &mut UnknownOutcomes) -> Result<bool>;

    /// The occurrence may run again, although it or a newer one was done. Returns whether anything
    /// was known of it. Never repeated: a repeat could forget the next success.
    fn forget_job(&self, job: &JobName, keep: Duration) -> Result<bool>;

    /// The statement with which a transaction of the user records a success, where the jobs live in
    /// the user's own database.
    fn done_statement(&self) -> Result<&'static str> {
        let why = "these jobs are not in a database, so no transaction can record that one is done; check the fencing \
                   token at the resource, see the module fencing";
        Err(Error::new(ErrorKind::Unsupported, why))
    }
}
