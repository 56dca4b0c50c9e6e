//! Waiting until an occurrence is settled.

use std::sync::Arc;
use std::time::Duration;

use super::ScheduledJob;
use super::outcome::Settled;
use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::base::job_name::JobName;
use crate::base::primitive::Primitive;
use crate::os;
use crate::store::JobState;
use crate::wait::attempt::{AcquireAttempt, Tried, Wanted};
use crate::wait::contend::contend;
use crate::wait::contender::Contender;

/// How often a waiter asks the server without a message.
const RECHECK: Duration = Duration::from_secs(5);

impl ScheduledJob {
    /// Blocks until this occurrence is done, was given up after as many failed attempts as
    /// [`attempts`](Self::attempts) of *this* handle allows, or has passed. It runs nothing. If
    /// nobody runs the job, it blocks for ever: see [`wait_done_for`](Self::wait_done_for).
    ///
    /// A waiter is woken by a message when an attempt ends, and asks again when the lease of a
    /// holder that died is over, and every 5 s.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name or a label out of range;
    /// [`Closed`](crate::ErrorKind::Closed) when the client was closed, or has [stopped
    /// waiting](crate::LockClient::stop_waiting); [`Cancelled`](crate::ErrorKind::Cancelled) when
    /// the token of the handle was cancelled; [`Unsupported`](crate::ErrorKind::Unsupported) with
    /// Redlock and MySQL; or when the request fails. A call that is already waiting survives an
    /// outage of up to [`outage_timeout`](crate::Builder::outage_timeout).
    pub fn wait_done(&self) -> Result<Settled> {
        let settled = self.wait_with(Deadline::Never)?;
        Ok(settled.expect("a wait without a deadline does not time out"))
    }

    /// Like [`wait_done`](Self::wait_done), but returns `None` after `timeout` plus one round trip.
    /// With a timeout of zero it asks once.
    ///
    /// # Errors
    /// The same as [`wait_done`](Self::wait_done).
    pub fn wait_done_for(&self, timeout: Duration) -> Result<Option<Settled>> {
        self.wait_with(Deadline::after(os::now(), timeout))
    }

    fn wait_with(&self, deadline: Deadline) -> Result<Option<Settled>> {
        let client = &self.handle.client;
        let Some(job) = self.occurrence_now()? else {
            return Ok(Some(Settled::Passed { newest: None }));
        };
        let cancel = self.handle.terms.cancel.as_ref();
        let mut settled = None;
        client.seen.observer.record(
            Primitive::Once,
            std::slice::from_ref(&job.record),
            deadline,
            |record| {
                let attempt = AcquireAttempt::new(
                    client,
                    &job.record,
                    Wanted::permits(&job.record, 1, RECHECK),
                    cancel,
                )?;
                let attempts = self.attempts;
                let mut waiter = Waiter { attempt, job: &job, attempts, settled: &mut settled };
                contend(&mut waiter, deadline, record)
            },
        )?;
        Ok(settled)
    }
}

/// A call that waits until an occurrence is settled.
struct Waiter<'a> {
    attempt: AcquireAttempt<'a>,
    job: &'a JobName,
    attempts: u32,
    /// The result of the call.
    settled: &'a mut Option<Settled>,
}

impl<'a> Contender<'a> for Waiter<'a> {
    type Won = ();

    fn attempt(&mut self) -> &mut AcquireAttempt<'a> {
        &mut self.attempt
    }

    /// Whether it was given up depends on the attempts that a caller allows.
    fn queue_key(&mut self) -> Arc<str> {
        format!("{}/{}", self.job.record.key, self.attempts).into()
    }

    fn try_once(&mut self, _waits: bool) -> Result<Tried<()>> {
        let Self { job, attempts, .. } = *self;
        let jobs = self.attempt.client.store.jobs();
        let found = jobs
            .and_then(|jobs| jobs.look_at_job(job, attempts))
            .map_err(|e| e.for_name(&job.record.name))?;
        *self.settled = Settled::of(&found);
        if self.settled.is_some() {
            return Ok(Tried::Won(()));
        }
        // Nobody sends a message when the lease of a holder that died is over.
        let lease = if let JobState::Running { left, .. } = found { left } else { None };
        Ok(Tried::Busy(Some(lease.unwrap_or(RECHECK).min(RECHECK))))
    }
}
