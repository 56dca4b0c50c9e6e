//! Scheduled jobs. All keys of one share its hash tag.

use std::time::Duration;

use super::keys::RedisKeys;
use super::{RedisStore, script};
use crate::base::error::Result;
use crate::base::job_name::JobName;
use crate::store::{AttemptEnd, BeginJob, EndJob, JobState, JobStore, UnknownOutcomes};

impl JobStore for RedisStore {
    fn time(&self, job: &JobName) -> Result<Duration> {
        script::time_answer(
            self.servers.ask_repeatable(RedisKeys::of(&job.lease).slot, script::time)?.reply,
        )
    }

    fn look_at_job(&self, job: &JobName, attempts: u32) -> Result<JobState> {
        let request = || script::look_at_job(job, attempts);
        script::job_state(
            self.servers.ask_repeatable(RedisKeys::of(&job.lease).slot, request)?.reply,
        )
    }

    fn begin_job(&self, begin: &BeginJob<'_>, unknowns: &mut UnknownOutcomes) -> Result<JobState> {
        let slot = RedisKeys::of(&begin.job.lease).slot;
        let answered = self.servers.ask(slot, || script::begin_job(begin), unknowns)?;
        script::job_state(answered.reply).inspect(|_| unknowns.clear())
    }

    fn end_job(&self, end: &EndJob<'_>, unknowns: &mut UnknownOutcomes) -> Result<bool> {
        // A success that a failover would forget is no success.
        let replicas = self.replicas.filter(|_| end.end == AttemptEnd::Done);
        let request = || script::end_job(end).acknowledged_by(replicas);
        let answered = self.servers.ask(RedisKeys::of(&end.job.lease).slot, request, unknowns)?;
        let ended = script::job_ended(answered.reply)?;
        unknowns.clear();
        Ok(ended || end.end.ran_before(answered.repeated))
    }

    fn forget_job(&self, job: &JobName, keep: Duration) -> Result<bool> {
        let slot = RedisKeys::of(&job.lease).slot;
        script::job_forgotten(self.servers.ask_once(slot, || script::forget_job(job, keep))?)
    }
}
