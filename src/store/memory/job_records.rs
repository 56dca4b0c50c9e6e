//! What is known of each scheduled job and its occurrences.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::os::HashMap;
use crate::store::JobState;

/// With this many jobs or more, expired records are removed.
const SWEEP_AT: usize = 1024;

/// By the key of the lease.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    jobs: HashMap<Arc<str>, Job>,
    sweep_at: usize,
}

#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) records: HashMap<Arc<str>, Record>,
    /// The newest occurrence that was done, and how long it is remembered.
    pub(super) newest: Option<(Arc<str>, Moment)>,
    /// Who has begun an occurrence last, and which.
    pub(super) begun: Option<Begun>,
}

#[derive(Debug)]
pub(super) struct Begun {
    pub(super) holder: Holder,
    pub(super) by: String,
    pub(super) occurrence: Arc<str>,
}

#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) attempts: u32,
    /// Who began the last attempt.
    pub(super) holder: Option<Holder>,
    pub(super) not_before: Option<Moment>,
    pub(super) done: Option<Done>,
    /// It was forgotten, and may run again although a newer one was done.
    pub(super) is_open_again: bool,
    pub(super) until: Option<Moment>,
}

#[derive(Debug, Clone)]
pub(super) struct Done {
    pub(super) holder: Holder,
    pub(super) by: String,
    pub(super) at: Duration,
}

impl Jobs {
    /// The job with this lease, without what has expired.
    pub(super) fn get(&mut self, lease: &Arc<str>, now: Moment) -> &mut Job {
        if self.jobs.len() >= self.sweep_at.max(SWEEP_AT) {
            self.jobs.retain(|_, job| {
                job.drop_ended(now);
                !job.records.is_empty() || job.newest.is_some()
            });
            self.sweep_at = 2 * self.jobs.len();
        }
        let known = self.jobs.entry(lease.clone()).or_default();
        known.drop_ended(now);
        known
    }
}

impl Record {
    fn is_over(&self, now: Moment) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl Job {
    fn drop_ended(&mut self, now: Moment) {
        self.records.retain(|_, record| !record.is_over(now));
        self.newest.take_if(|(_, until)| *until <= now);
    }

    /// Why an occurrence must not begin; whether the lease is free is another question.
    pub(super) fn refusal(&self, occurrence: &str, most: u32, now: Moment) -> Option<JobState> {
        let record = self.records.get(occurrence);
        if let Some(Done { by, at, .. }) = record.and_then(|record| record.done.clone()) {
            return Some(JobState::Done { by, at });
        }
        let may_be_old = record.is_some_and(|record| record.is_open_again);
        if let Some((newest, _)) = &self.newest
            && !may_be_old
            && occurrence.cmp(newest) != Ordering::Greater
        {
            return Some(JobState::Passed { newest: newest.to_string() });
        }
        let record = record?;
        if record.attempts >= most {
            return Some(JobState::GaveUp { attempts: record.attempts });
        }
        let left = record.not_before.map(|at| at.since(now)).filter(|left| !left.is_zero())?;
        Some(JobState::Pausing { left })
    }
}
