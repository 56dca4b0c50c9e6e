//! The requests of scheduled jobs.

use std::time::Duration;

use super::entry::Entry;
use super::job_records::{Begun, Done, Job, Record};
use super::state::MemoryState;
use crate::base::error::Result;
use crate::base::holder::Holder;
use crate::base::job_name::JobName;
use crate::base::lease::Moment;
use crate::base::lock_name::Kind;
use crate::store::{AttemptEnd, BeginJob, EndJob, JobState, NEWEST_KEPT, Release};

impl MemoryState {
    /// The job, without what has expired.
    fn job(&mut self, job: &JobName, now: Moment) -> &mut Job {
        self.jobs.get(&job.lease.key, now)
    }

    /// Who holds the lease, and for how long.
    fn runner(&mut self, job: &JobName, now: Moment) -> Result<Option<(Holder, Duration)>> {
        let lease = self.typed(&job.lease.key, now, Entry::lock)?;
        Ok(lease.map(|current| (current.holder.clone(), current.until.since(now))))
    }

    pub(super) fn look_at_job(
        &mut self,
        job: &JobName,
        most: u32,
        now: Moment,
    ) -> Result<JobState> {
        let runner = self.runner(job, now)?;
        let known = self.job(job, now);
        let refusal = known.refusal(&job.occurrence, most, now);
        let is_settled = matches!(refusal, Some(JobState::Done { .. } | JobState::Passed { .. }));
        let Some((holder, left)) = runner.filter(|_| !is_settled) else {
            return Ok(refusal.unwrap_or(JobState::Open));
        };
        let left = Some(left);
        Ok(match known.begun.as_ref().filter(|begun| begun.holder == holder) {
            Some(Begun { by, occurrence, .. }) => {
                JobState::Running { by: by.clone(), occurrence: Some(occurrence.to_string()), left }
            }
            None => JobState::Running { by: holder.as_str().to_owned(), occurrence: None, left },
        })
    }

    pub(super) fn begin_job(&mut self, begin: &BeginJob<'_>, now: Moment) -> Result<JobState> {
        let BeginJob { job, holder, by, attempts: most, keep } = *begin;
        if self.runner(job, now)?.is_none_or(|(runner, _)| runner != *holder) {
            return Ok(JobState::NotHeld);
        }
        let known = self.job(job, now);
        let has_begun = known.begun.as_ref().is_some_and(|begun| begun.holder == *holder);
        if has_begun && let Some(record) = known.records.get(&job.occurrence) {
            // Not 0, if it was forgotten since.
            return Ok(JobState::Begun { attempt: record.attempts.max(1) });
        }
        if let Some(refusal) = known.refusal(&job.occurrence, most, now) {
            return Ok(refusal);
        }
        let record = known.records.entry(job.occurrence.clone()).or_default();
        record.attempts += 1;
        record.holder = Some(holder.clone());
        record.until = Some(now.plus(keep));
        let attempt = record.attempts;
        known.begun = Some(Begun {
            holder: holder.clone(),
            by: by.to_owned(),
            occurrence: job.occurrence.clone(),
        });
        Ok(JobState::Begun { attempt })
    }

    pub(super) fn end_job(&mut self, end: &EndJob<'_>, now: Moment) -> Result<bool> {
        let EndJob { job, holder, by, end, keep } = *end;
        let is_held = self.runner(job, now)?.is_some_and(|(runner, _)| runner == *holder);
        let wall = self.clock.wall();
        let known = self.job(job, now);
        let done = known.records.get(&job.occurrence).and_then(|record| record.done.as_ref());
        if end == AttemptEnd::Done && done.is_some_and(|done| done.holder == *holder) {
            return Ok(true);
        }
        if !is_held {
            return Ok(false);
        }
        let record = known.records.entry(job.occurrence.clone()).or_default();
        record.until = Some(now.plus(keep));
        match end {
            AttemptEnd::Failed { pause } => record.not_before = Some(now.plus(pause)),
            AttemptEnd::Done => {
                record.is_open_again = false;
                record.done = Some(Done { holder: holder.clone(), by: by.to_owned(), at: wall });
                let newest = match known.newest.take() {
                    Some((newest, _)) => newest.max(job.occurrence.clone()),
                    None => job.occurrence.clone(),
                };
                known.newest = Some((newest, now.plus(NEWEST_KEPT)));
            }
        }
        self.release_mutex(&Release::of_all(&job.lease, holder, 1), now);
        self.publish(Kind::Done, &job.record.key);
        Ok(true)
    }

    pub(super) fn forget_job(&mut self, job: &JobName, keep: Duration, now: Moment) -> bool {
        let known = self.job(job, now);
        let was_newest = known.newest.take_if(|(newest, _)| *newest == job.occurrence).is_some();
        let was_known = known
            .records
            .remove(&job.occurrence)
            .is_some_and(|record| record.attempts > 0 || record.done.is_some());
        let record =
            Record { is_open_again: true, until: Some(now.plus(keep)), ..Record::default() };
        known.records.insert(job.occurrence.clone(), record);
        self.publish(Kind::Done, &job.record.key);
        was_known || was_newest
    }
}
