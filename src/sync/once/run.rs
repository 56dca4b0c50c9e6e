//! One attempt: from the look at the occurrence to the record of its success.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use super::ScheduledJob;
use super::outcome::Once;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::job_name::JobName;
use crate::base::log;
use crate::base::loss::{Loss, LossWait, RenewalFailure};
use crate::base::random::Backoff;
use crate::fencing::{DoneStatement, FencingToken};
use crate::hold::acquire::acquire_for_thread;
use crate::hold::guarded::{Hold, Side};
use crate::os;
use crate::report::outcomes::RunOutcome;
use crate::signal::cancel::CancelToken;
use crate::store::{AttemptEnd, BeginJob, EndJob, JobState, Released, UnknownOutcomes};
use crate::sync::guard::{Guard, ThreadBound};
use crate::sync::held::{Held, sealed::Sealed};
use crate::wait::client_state::ClientState;

/// How often a call that found the lease taken, and nobody running when it looked, tries again.
const TRIES: u32 = 10;

/// One run of a [`ScheduledJob`], for its closure. Its lease is renewed like that of a lock, until
/// the closure ends.
pub struct JobRun {
    guard: Guard<Hold, ThreadBound>,
    job: ScheduledJob,
    name: JobName,
    attempt: u32,
}

impl JobRun {
    /// The name of the job, as the caller gave it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// The label of the occurrence.
    #[must_use]
    pub fn occurrence(&self) -> &str {
        &self.name.occurrence
    }

    /// The number of this attempt at the occurrence, from 1 on. Above 1, an earlier one failed, or
    /// its process died or lost the lease: it may have done a part of the work, or all of it.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The fencing token of this run: larger than that of every earlier run of this job, whichever
    /// occurrence that was for. Send it to the resource with every write, and let the resource
    /// reject smaller ones: [`fencing`](crate::fencing).
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.hold().tenure().token)
    }

    /// Whether the lease is certainly still held, like
    /// [`is_held`](crate::ReentrantMutexGuard::is_held) of a guard. If it is not, somebody else may
    /// run this occurrence now. No I/O.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Returns an error unless [`is_held`](Self::is_held); for use with `?`. No I/O.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost), [`Closed`](ErrorKind::Closed) or [`Forked`](ErrorKind::Forked).
    pub fn ensure_held(&self) -> Result<()> {
        self.guard.ensure_held()
    }

    /// How long the lease is certain to be held without another renewal. No I/O.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// A channel that is disconnected when the lease is lost, like
    /// [`lost`](crate::ReentrantMutexGuard::lost) of a guard.
    #[must_use]
    pub fn lost(&self) -> Receiver<Infallible> {
        self.guard.lost()
    }

    /// Runs `callback` once if the lease is lost, like
    /// [`on_lost`](crate::ReentrantMutexGuard::on_lost) of a guard.
    pub fn on_lost(&self, callback: impl FnOnce(&Loss) + Send + 'static) {
        self.guard.on_lost(callback);
    }

    /// The statement that records the success in a transaction of your own, where the jobs are kept
    /// in the same PostgreSQL database: the work and its record are committed, or neither. No I/O.
    /// See [`DoneStatement`].
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) with any other store.
    pub fn done_sql(&self) -> Result<DoneStatement> {
        let client = &self.job.handle.client;
        let jobs = client.check_usable().and_then(|()| client.store.jobs());
        let sql = jobs.and_then(|jobs| jobs.done_statement());
        let sql = sql.map_err(|e| e.for_name(self.name()))?;
        Ok(DoneStatement::new(sql, &self.name, self.fencing_token()))
    }

    fn hold(&self) -> &Hold {
        &self.guard.parts()[0]
    }

    /// Ends the attempt, and the lease with it.
    fn end(&mut self, end: AttemptEnd) -> Result<()> {
        let Self { guard, job, name, .. } = self;
        let client = &job.handle.client;
        guard.end(|hold, _| {
            // After the hold was given up nothing renews it.
            let patience = hold.remaining().min(client.config.outage_timeout);
            let by = job.by();
            // Without the record nobody would know of the pause, nor of the attempts.
            let keep = match end {
                AttemptEnd::Failed { pause } => job.keep + pause,
                AttemptEnd::Done => job.keep,
            };
            let ended = EndJob { job: name, holder: hold.holder(), by: &by, end, keep };
            hold.release_by(|unknowns| repeat_end(client, &ended, patience, unknowns))
        })
    }
}

impl Sealed for JobRun {}

/// The run of a job is a guard of its lease, for functions that take any guard. To
/// [unlock](Held::unlock) it would end it as one that failed; the closure has only a reference.
impl Held for JobRun {
    fn name(&self) -> &str {
        self.guard.name()
    }

    fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    fn ensure_held(&self) -> Result<()> {
        self.guard.ensure_held()
    }

    fn wait_lost(&self, timeout: Duration) -> LossWait {
        self.guard.wait_lost(timeout)
    }

    fn wait_lost_or_cancelled(&self, timeout: Duration, token: &CancelToken) -> Result<LossWait> {
        self.guard.wait_lost_or_cancelled(timeout, token)
    }

    fn lost(&self) -> Receiver<Infallible> {
        self.guard.lost()
    }

    fn loss(&self) -> Option<Loss> {
        self.guard.loss()
    }

    fn on_lost(&self, callback: Box<dyn FnOnce(&Loss) + Send>) {
        self.guard.on_lost(callback);
    }

    fn on_renewal_failed(&self, callback: Box<dyn Fn(&RenewalFailure) + Send + Sync>) {
        self.guard.on_renewal_failed(callback);
    }

    fn fencing_token(&self) -> Result<FencingToken> {
        Ok(Self::fencing_token(self))
    }

    fn hold_count(&self) -> u32 {
        self.guard.hold_count()
    }

    fn extend(&self, lease: Duration) -> Result<()> {
        self.guard.extend(lease)
    }

    fn unlock(mut self) -> Result<()> {
        self.end(AttemptEnd::Failed { pause: self.job.pause })
    }
}

/// A closure that panicked, or returned an error: the attempt has failed.
impl Drop for JobRun {
    fn drop(&mut self) {
        // In a forked child the guard does nothing either.
        if self.guard.is_given_up() || self.guard.is_forked() {
            return;
        }
        let ended = self.end(AttemptEnd::Failed { pause: self.job.pause });
        if let Err(e) = ended
            && !matches!(e.kind(), ErrorKind::Closed | ErrorKind::Lost)
        {
            log::warn!("the end of an attempt could not be recorded: {}", e.chain());
        }
    }
}

impl std::fmt::Debug for JobRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut run = f.debug_struct("JobRun");
        let run = run.field("name", &self.name()).field("occurrence", &self.occurrence());
        run.field("attempt", &self.attempt)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

/// Sends the end of an attempt. That of a success is repeated for `patience` while it is unknown
/// whether it has run: to release the lease instead would let the next caller do the work again.
fn repeat_end(
    client: &Arc<ClientState>,
    end: &EndJob<'_>,
    patience: Duration,
    unknowns: &mut UnknownOutcomes,
) -> Result<Released> {
    let mut pause = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));
    let first = client.clock.now();
    loop {
        let error = match client.store.jobs()?.end_job(end, unknowns) {
            Ok(true) => return Ok(Released::Freed { listeners: None, next: None }),
            Ok(false) => return Ok(Released::NotHeld),
            Err(error) => error,
        };
        let may_repeat = end.end == AttemptEnd::Done
            && (!unknowns.is_empty() || error.is_transient())
            && client.clock.now().since(first) < patience
            && !client.life.is_closed();
        if !may_repeat {
            return Err(error);
        }
        os::thread::sleep(pause.next());
    }
}

/// Counts how a run has ended, when it is dropped.
struct Counts<'j> {
    job: &'j ScheduledJob,
    outcome: RunOutcome,
}

impl Drop for Counts<'_> {
    fn drop(&mut self) {
        let done_at = (self.outcome == RunOutcome::Done).then(os::wall);
        self.job.count(self.outcome, done_at);
    }
}

impl ScheduledJob {
    /// Runs `f`, unless this occurrence was done, runs now, or must not run for another reason:
    /// [`Once`] says which. It does not wait for anybody.
    ///
    /// Three round trips before the closure and one after it if the occurrence may run; one if it
    /// may not; one more if it is [the last fire time](crate::Every) (with ZooKeeper two). Each can
    /// take a few I/O timeouts if the server hangs. The lease is renewed while the closure runs.
    /// If the store does not answer when the closure has succeeded, the call repeats that for the
    /// rest of the lease, for [`outage_timeout`](crate::Builder::outage_timeout) at most.
    ///
    /// The attempt is counted before the closure runs, so that one whose process dies counts. A
    /// panic of the closure is an attempt that failed, and goes on to the caller.
    ///
    /// To repeat the call is safe: at most one success is recorded.
    ///
    /// # Errors
    /// The closure has not run. An attempt may have been counted if the error is one of the
    /// connection.
    /// - [`InvalidInput`](ErrorKind::InvalidInput) for a name, a label or a setting out of range;
    /// - [`Conflict`](ErrorKind::Conflict) when this thread runs an occurrence of this job;
    /// - [`Unsupported`](ErrorKind::Unsupported) with Redlock and MySQL;
    /// - [`WrongType`](ErrorKind::WrongType) when one of its keys is used for something else;
    /// - [`Lost`](ErrorKind::Lost) when the lease was lost before the attempt could begin;
    /// - [`Closed`](ErrorKind::Closed), [`Cancelled`](ErrorKind::Cancelled), and any error of the
    ///   requests to the server.
    pub fn run<T, E>(
        &self,
        f: impl FnOnce(&JobRun) -> std::result::Result<T, E>,
    ) -> Result<Once<T, E>> {
        let Some(name) = self.occurrence_now()? else {
            self.count(RunOutcome::NotRun, None);
            return Ok(Once::Passed { newest: None });
        };
        let mut run = match self.begin(&name)? {
            Ok(run) => run,
            Err(refused) => {
                self.count_refusal(&refused);
                let refused = Once::refusal(refused);
                return refused.ok_or_else(|| unexpected(&name));
            }
        };
        // A panic is a failure as well.
        let mut counts = Counts { job: self, outcome: RunOutcome::Failed };
        match f(&run) {
            Err(error) => Ok(Once::Failed(error)),
            Ok(value) => Ok(match run.end(AttemptEnd::Done) {
                Ok(()) => {
                    counts.outcome = RunOutcome::Done;
                    Once::Done(value)
                }
                Err(why) => {
                    counts.outcome = RunOutcome::Unrecorded;
                    Once::Unrecorded(value, why)
                }
            }),
        }
    }

    fn count(&self, outcome: RunOutcome, done_at: Option<Duration>) {
        let client = &self.handle.client;
        // The closure may have forked.
        if !client.is_forked() {
            client.seen.outcomes.job_ended(self.name(), outcome, done_at);
        }
    }

    fn count_refusal(&self, why: &JobState) {
        match why {
            JobState::Done { at, .. } => self.count(RunOutcome::AlreadyDone, Some(*at)),
            JobState::GaveUp { .. } => self.count(RunOutcome::GaveUp, None),
            _ => self.count(RunOutcome::NotRun, None),
        }
    }

    /// Takes the lease and begins an attempt; otherwise why the occurrence does not run.
    fn begin(&self, name: &JobName) -> Result<std::result::Result<JobRun, JobState>> {
        let client = &self.handle.client;
        let named = |e: Error| e.for_name(&name.lease.name);
        let jobs = client.store.jobs().map_err(named)?;
        let mut pause = Backoff::new(Duration::from_millis(1), Duration::from_millis(50));
        for _ in 0..TRIES {
            // A look first: a lease taken in vain would say "running" to others meanwhile.
            let found = jobs.look_at_job(name, self.attempts).map_err(named)?;
            if found != JobState::Open && !self.runs_on_this_thread(name) {
                return Ok(Err(found));
            }
            let held = acquire_for_thread(client, &name.lease, &self.handle.terms, Deadline::Now)?;
            let Some(hold) = held else {
                // Somebody else was faster, and may have ended by now.
                os::thread::sleep(pause.next());
                continue;
            };
            return self.begin_with(hold, name);
        }
        let why = "others took and gave up the lease of the job again and again: try again";
        Err(Error::named(ErrorKind::NotReady, &name.lease.name, why))
    }

    /// Whether to ask for the lease would be a re-entry, which is refused.
    fn runs_on_this_thread(&self, name: &JobName) -> bool {
        let thread = os::thread::current().id();
        Hold::of_thread(&self.handle.client, &name.lease.key, thread).is_some()
    }

    fn begin_with(
        &self,
        hold: Hold,
        name: &JobName,
    ) -> Result<std::result::Result<JobRun, JobState>> {
        let client = &self.handle.client;
        let by = self.by();
        let holder = hold.holder().clone();
        // Given up when it is dropped.
        let guard = Guard::new(hold, Side::Main);
        let attempts = self.attempts;
        let begin = BeginJob { job: name, holder: &holder, by: &by, attempts, keep: self.keep };
        let begun = client.store.jobs()?.begin_job(&begin, &mut UnknownOutcomes::default());
        match begun.map_err(|e| e.for_name(&name.lease.name))? {
            JobState::Begun { attempt } => {
                // The answer may have been slow.
                guard.ensure_held()?;
                Ok(Ok(JobRun { guard, job: self.clone(), name: name.clone(), attempt }))
            }
            JobState::NotHeld => {
                guard.parts()[0].report_loss();
                Err(guard.unlock().err().unwrap_or_else(|| unexpected(name)))
            }
            refused => Ok(Err(refused)),
        }
    }
}

#[cold]
fn unexpected(name: &JobName) -> Error {
    let why = "the store answered that the job runs, and it was only asked whether it may";
    Error::named(ErrorKind::Protocol, &name.lease.name, why)
}
