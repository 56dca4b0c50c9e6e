//! Jobs that run once for each of their occurrences: `client.once(name, occurrence)`.

mod occurrence;
mod outcome;
mod run;
mod waiting;

pub use self::occurrence::{Every, Occurrence};
pub use self::outcome::{Once, Settled};
pub use self::run::JobRun;

use std::sync::Arc;
use std::time::Duration;

use self::occurrence::label_of;
use crate::base::error::{Error, Result, invalid};
use crate::base::job_name::JobName;
use crate::base::limits::{LONGEST_LEASE, in_words};
use crate::base::lock_name::Kind;
use crate::store::TokenRule;
use crate::sync::handle::{Handle, handle_methods};
use crate::wait::client_state::ClientState;

/// A job that runs once for each of its occurrences, such as once for each fire time of a cron job
/// that ten machines start at about the same time. A lock alone does not do that: a job of 2 ms on
/// machines whose clocks differ by 300 ms finds the lock free again on each of them.
///
/// A cheap handle, created by [`LockClient::once`](crate::LockClient::once): creating and cloning
/// it costs no I/O. The chapter [scheduled jobs](crate::guide::scheduled_jobs) says what happens
/// when a process dies in the middle, and what to do about it.
///
/// # What it promises
/// **At most one success is recorded for each occurrence, and after it nobody starts that
/// occurrence while the store remembers.** It does not promise that the *work* is done at most
/// once: a holder that dies, or is suspended for longer than its lease, may have done all of it
/// before its success was recorded, and then the next attempt does it again. Where that does harm,
/// check the [fencing token](JobRun::fencing_token) at the resource, or, on PostgreSQL, record the
/// success in the transaction that does the work ([`done_sql`](JobRun::done_sql)).
///
/// The occurrences of one job never overlap, as long as its lease is held: one runs, and a call for
/// another returns [`Once::Running`].
///
/// # What the store remembers
/// Attempts and the success of each occurrence for [`keep`](Self::keep), a day if not set. The
/// newest label that was done for a year: an occurrence that is not newer is over
/// ([`Once::Passed`]), also when nothing else is known of it. So a caller that is late, or a cron
/// job that runs with the label of the day before, does nothing.
///
/// Without persistence, or after a failover to a replica that lags, Redis forgets both, and the
/// occurrence may run again. [`Redis::replicas`][crate::Redis::replicas] covers the record of a
/// success as it covers grants.
///
/// With ZooKeeper a call that only looks counts `keep` by the clock of its machine: if that is
/// ahead by more, it returns [`Once::Passed`] and not [`Once::AlreadyDone`].
///
/// # Stores
/// Redis (one server, behind sentinels, a cluster), PostgreSQL, ZooKeeper and [in
/// memory](crate::LockClient::in_memory). With MySQL and Redlock every call returns
/// [`Unsupported`](crate::ErrorKind::Unsupported): one store must decide whether a success is
/// recorded, and a majority of masters that forget one by one cannot.
///
/// # Examples
/// ```
/// use leasehold::{LockClient, Once};
/// # let client = LockClient::in_memory();
/// let report = client.once("report", "2026-11-23T02:00Z");
/// match report.run(|job| std::fs::metadata(".").map(|_| job.attempt()))? {
///     Once::Done(attempt) => println!("done by attempt {attempt}"),
///     Once::AlreadyDone { by, .. } => println!("done before, by {by}"),
///     Once::Running { by, .. } => println!("{by} is at it"),
///     Once::Failed(error) => println!("this attempt failed: {error}"),
///     Once::Unrecorded(_, why) => println!("done, but it may be done again: {why}"),
///     other => println!("nothing to do: {other:?}"),
/// }
/// # assert!(matches!(report.run(|_| Ok::<_, ()>(()))?, Once::AlreadyDone { .. }));
/// # Ok::<(), leasehold::Error>(())
/// ```
#[cfg_attr(not(feature = "redis"), doc = include_str!("../../links/redis.md"))]
#[doc(alias = "cron")]
#[doc(alias = "ShedLock")]
#[derive(Debug, Clone)]
pub struct ScheduledJob {
    /// The name of the job. What it keeps in the store has names of its own.
    handle: Handle,
    occurrence: Occurrence,
    keep: Duration,
    attempts: u32,
    pause: Duration,
}

/// How long the records are kept if nothing else is set.
const KEEP: Duration = Duration::from_secs(86_400);

/// How many attempts there are if nothing else is set.
const ATTEMPTS: u32 = 3;

const SHORTEST_KEEP: Duration = Duration::from_secs(1);

impl ScheduledJob {
    pub(crate) fn new(client: &Arc<ClientState>, name: &str, occurrence: Occurrence) -> Self {
        let mut handle = Handle::new(client, name, Kind::Job);
        handle.terms.reentrant = false;
        // Whatever the client does for locks: a job is of use only with a token.
        handle.terms.token = TokenRule::On;
        Self { handle, occurrence, keep: KEEP, attempts: ATTEMPTS, pause: Duration::ZERO }
    }

    handle_methods!(name, lease, cancel);

    /// How long the store remembers the attempts and the success of an occurrence: 1 s to 365 days,
    /// a day if not set; after an attempt that has failed, for the [`pause`](Self::pause) in
    /// addition. The first call reports a time out of range. Choose more than the time by which
    /// callers can be late, and more than the job takes.
    #[must_use]
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// How often an occurrence is tried, at least 1; 3 if not set. The first call reports 0. An
    /// attempt counts when it begins: also one whose process dies, or loses its lease.
    #[must_use]
    pub fn attempts(mut self, most: u32) -> Self {
        self.attempts = most;
        self
    }

    /// How long nobody begins another attempt after one that has failed, 365 days at most; zero if
    /// not set. Not after one whose process died: the next may begin when its lease is over.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Lets this occurrence run again, although it or a newer one was done, and with all its
    /// attempts. Returns whether anything was known of it. One round trip; the request is sent only
    /// once. A run that is under way goes on, and its success counts.
    ///
    /// If a newer one was done, it may run again for as long as this handle [keeps](Self::keep)
    /// records: then its time has [passed](Once::Passed) as before. If it is the newest that was
    /// done, what counts as the newest afterwards is an older one, or none, depending on the store.
    ///
    /// # Errors
    /// When the request fails; it may have run all the same. Do not repeat the call blindly: it
    /// could forget the success of the next run.
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) and
    /// [`Unsupported`](crate::ErrorKind::Unsupported) as for [`run`](Self::run).
    pub fn forget(&self) -> Result<bool> {
        let Some(job) = self.occurrence_now()? else { return Ok(false) };
        let client = &self.handle.client;
        let forgotten = client.store.jobs().and_then(|jobs| jobs.forget_job(&job, self.keep));
        forgotten.map_err(|e| e.for_name(self.name()))
    }

    /// Ends the lease of the run that is under way, whichever occurrence it is for and whoever it
    /// is, like [`force_unlock`](crate::ReentrantMutex::force_unlock) of a lock. The closure goes
    /// on until it notices, and its success is not recorded. Returns false if nothing runs. One
    /// round trip; the request is sent only once.
    ///
    /// # Errors
    /// The same as [`force_unlock`](crate::ReentrantMutex::force_unlock).
    pub fn force_out(&self) -> Result<bool> {
        let lease = JobName::new(self.handle.usable()?, "any")?.lease;
        let Handle { client, terms, .. } = &self.handle;
        Handle { client: client.clone(), name: Ok(lease), terms: terms.clone() }.force_unlock()
    }

    /// Who this client is, for people.
    fn by(&self) -> String {
        let client = &self.handle.client;
        let owner = client.config.owner.as_ref().map(ToString::to_string);
        owner.unwrap_or_else(|| client.who.id.as_str().to_owned())
    }

    /// The occurrence that is meant at present; `None`: it is too late for it. Asks the store for
    /// its time if that decides.
    fn occurrence_now(&self) -> Result<Option<JobName>> {
        let name = self.handle.usable()?;
        let named = |e: Error| e.for_name(&name.name);
        self.check().map_err(named)?;
        let every = match &self.occurrence {
            Occurrence::Label(label) => return JobName::new(name, label).map(Some),
            Occurrence::Every(every) => every,
        };
        every.check().map_err(named)?;
        let any = JobName::new(name, "any")?;
        let now = self.handle.client.store.jobs().and_then(|jobs| jobs.time(&any));
        let now = now.map_err(named)?;
        let due = every.last_before(now);
        if every.is_too_late(due, now) {
            return Ok(None);
        }
        JobName::new(name, &label_of(due)).map(Some)
    }

    fn check(&self) -> Result<()> {
        let refuse = |why: String| Err(invalid(why));
        if !(SHORTEST_KEEP..=LONGEST_LEASE).contains(&self.keep) {
            return refuse(format!(
                "to keep a record for {} is not between 1 s and 365 days",
                in_words(self.keep)
            ));
        }
        if self.attempts == 0 {
            return refuse("a job needs at least one attempt".to_owned());
        }
        if self.pause > LONGEST_LEASE {
            return refuse(format!("a pause of {} is more than 365 days", in_words(self.pause)));
        }
        Ok(())
    }
}
