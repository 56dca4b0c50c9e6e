//! The counting semaphore: `client.counting_semaphore(name)` and its permits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::deadline::Deadline;
use crate::base::error::{ErrorKind, Result};
use crate::base::limits::{MOST_PERMITS, TAKEN_TTL, check_count};
use crate::base::lock_name::Kind;
use crate::base::log;
use crate::base::primitive::Primitive;
use crate::hold::permits::TakenPermits;
use crate::report::record::Taken;
use crate::store::{Count, CountAnswer, Granted};
use crate::sync::handle::{Handle, handle_methods, waiting_method};
use crate::sync::remote_counter::{Counter, drain};
use crate::sync::semaphore::SetPermits;
use crate::wait::attempt::{AcquireAttempt, Tried, Wanted};
use crate::wait::client_state::ClientState;
use crate::wait::contend::contend;
use crate::wait::contender::Contender;

/// A number of permits without leases: **a process that dies leaks its permits**. So use
/// [`Semaphore`](crate::Semaphore), unless you share this one with Java processes that use
/// Redisson's `RSemaphore`, or count something that nobody holds, such as jobs that are ready.
///
/// A cheap handle, created by
/// [`LockClient::counting_semaphore`](crate::LockClient::counting_semaphore): creating and cloning
/// it costs no I/O.
///
/// # Start
/// The permits of a counting semaphore, like those of a [`Semaphore`](crate::Semaphore#start), must
/// be set first; until then an acquire returns an error. If callers are to wait for permits that
/// others will [add](Self::add_permits), such as jobs that are ready, [set](Self::try_set_permits)
/// it to 0. (Java's `RSemaphore` waits even if nobody has set it.)
///
/// # Name
/// A latch, a semaphore and a counting semaphore are each stored as one number under their name, as
/// in Redisson, and Redis cannot distinguish them. A client that has used a name for one of them
/// refuses the name for the others with [`WrongType`](crate::ErrorKind::WrongType) as long as the
/// number exists. Redis does not detect a conflict between clients (PostgreSQL does): a permit
/// taken from another client's latch counts the latch down, and the last one opens it. Give each
/// primitive its own name.
///
/// # Order
/// The same as [`Semaphore`](crate::Semaphore).
///
/// # Repeats
/// Every request leaves an idempotency key in Redis (`leasehold_once:{name}:..`, one for each
/// acquisition and each change), so that a request whose reply was lost counts only once when it is
/// repeated. The key of a change lives for a minute. The key of an acquisition lives until the
/// permits are returned, 10 minutes at most, and for a minute after that.
///
/// # Source
/// Redisson's `RSemaphore` on the wire. What differs: the idempotency keys, and waits with a timer.
///
/// # Examples
/// ```no_run
/// # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
/// let jobs = client.counting_semaphore("jobs that are ready");
/// jobs.try_set_permits(0)?; // each program, when it begins: the first one sets it
/// jobs.add_permits(1)?; // the producer of a job
/// jobs.acquire()?.forget(); // the consumer of a job
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CountingSemaphore {
    handle: Handle,
}

/// How often a waiter asks the server without a message.
const RECHECK: Duration = Duration::from_secs(5);

impl CountingSemaphore {
    pub(crate) fn new(client: &Arc<ClientState>, name: &str) -> Self {
        Self { handle: Handle::new(client, name, Kind::CountingSemaphore) }
    }

    handle_methods!(name, cancel);

    waiting_method! {
        /// Takes one permit, blocking until one is free.
        ///
        /// # Errors
        /// [`Conflict`](crate::ErrorKind::Conflict) when nobody has set its permits, or it was
        /// removed; otherwise the same as [`ReentrantMutex::lock`](crate::ReentrantMutex::lock).
        acquire, try_acquire, try_acquire_for, try_acquire_until() -> CountingPermit, take_one
    }

    waiting_method! {
        /// Takes `permits` permits (1 to 2^31 − 1), all or none, blocking until that many are free.
        ///
        /// # Errors
        /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a number out of range; otherwise
        /// the same as [`acquire`](Self::acquire).
        acquire_many, try_acquire_many, try_acquire_many_for, try_acquire_many_until(permits: u32) -> CountingPermit,
        take
    }

    /// Sets the number of permits (0 to 2^31 − 1) if nobody has set it yet
    /// ([`New`](SetPermits::New)). Otherwise it changes nothing and returns
    /// [`SetBefore`](SetPermits::SetBefore): nothing records how many are taken, so it is unknown
    /// whether another number was set. One round trip. Safe to repeat: a repeat returns
    /// `SetBefore`.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a number out of range;
    /// [`WrongType`](crate::ErrorKind::WrongType) when the name is used for something else;
    /// otherwise when the request fails.
    pub fn try_set_permits(&self, permits: u32) -> Result<SetPermits> {
        let CountAnswer { done, value } = Counter::new(&self.handle).set_from(0, permits)?;
        Ok(if done { SetPermits::New } else { SetPermits::SetBefore { free: value } })
    }

    /// Adds permits, or removes some for good if `permits` is negative. If more are removed than
    /// are free, the number of free permits is negative until enough have been returned. Returns
    /// the number of free permits. One round trip. A lost reply does not make a call count twice,
    /// but every call counts.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for 0, or when the number of free permits
    /// would not be within 2^31 − 1; otherwise when the request fails.
    pub fn add_permits(&self, permits: i64) -> Result<i64> {
        Counter::new(&self.handle).add(permits)
    }

    /// The number of free permits; negative after more were removed than were free. One round trip;
    /// the answer may be outdated when it arrives.
    ///
    /// # Errors
    /// When the request fails.
    pub fn available_permits(&self) -> Result<i64> {
        Counter::new(&self.handle).ask().map(|(free, _)| free)
    }

    /// Takes all permits that are free now as one guard; `None` if none is free. Does not
    /// wait. Two round trips, and two more each time that somebody else takes permits in
    /// between, ten times at most; then it returns `None` too. A permit that becomes free meanwhile
    /// may be left.
    ///
    /// # Errors
    /// The same as [`acquire`](Self::acquire).
    pub fn drain_permits(&self) -> Result<Option<CountingPermit>> {
        drain(MOST_PERMITS, || self.available_permits(), |permits| self.try_acquire_many(permits))
    }

    /// Removes the semaphore. Returns false if there was none. Waiters get
    /// [`Conflict`](crate::ErrorKind::Conflict). Permits that are returned later create it again,
    /// so wait until all have been returned. One round trip. Safe to repeat.
    ///
    /// # Errors
    /// When the request fails.
    pub fn delete(&self) -> Result<bool> {
        Counter::new(&self.handle).change(Count::Delete).map(|answer| answer.done)
    }

    fn take_one(&self, deadline: Deadline) -> Result<Option<CountingPermit>> {
        self.take(1, deadline)
    }

    fn take(&self, permits: u32, deadline: Deadline) -> Result<Option<CountingPermit>> {
        check_count(permits, MOST_PERMITS).map_err(|e| e.for_name(self.name()))?;
        let client = &self.handle.client;
        let name = self.handle.begin(Kind::CountingSemaphore)?;
        let cancel = self.handle.terms.cancel.as_ref();
        client.seen.observer.record(
            Primitive::CountingSemaphore,
            std::slice::from_ref(&name),
            deadline,
            |record| {
                let attempt = AcquireAttempt::new(
                    client,
                    &name,
                    Wanted::permits(&name, permits, TAKEN_TTL),
                    cancel,
                )?;
                let mut call = PermitCall { attempt, permits };
                contend(&mut call, deadline, record)
            },
        )
    }
}

/// A call that acquires permits.
struct PermitCall<'a> {
    attempt: AcquireAttempt<'a>,
    permits: u32,
}

impl<'a> Contender<'a> for PermitCall<'a> {
    type Won = CountingPermit;

    fn attempt(&mut self) -> &mut AcquireAttempt<'a> {
        &mut self.attempt
    }

    fn try_once(&mut self, waits: bool) -> Result<Tried<CountingPermit>> {
        match self.attempt.ask(waits)? {
            Tried::Won(Granted { sent_at, .. }) => {
                let AcquireAttempt { client, name, holder, .. } = &self.attempt;
                let taken = TakenPermits::begin(client, name, holder, self.permits, sent_at)?;
                Ok(Tried::Won(CountingPermit { taken, given_up: false }))
            }
            Tried::Busy(_) => Ok(Tried::Busy(Some(RECHECK))),
        }
    }
}

/// One or more permits, taken while this guard lives. The guard can move to another thread and be
/// dropped there. The permits have no lease: they cannot be lost, and if the process dies they
/// never come back.
#[must_use = "if unused the permit is given back at once; write `let _permit = ..`"]
#[clippy::has_significant_drop]
pub struct CountingPermit {
    taken: TakenPermits,
    given_up: bool,
}

impl CountingPermit {
    /// The name of the semaphore, as the caller gave it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.taken.name()
    }

    /// The number of permits.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.taken.permits()
    }

    /// Returns the permits. Dropping the guard does the same, but this returns the outcome. One
    /// round trip, or a few I/O timeouts if the server hangs.
    ///
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed) when closing the client returned them: somebody else
    /// may have them.
    ///
    /// When the request fails, it is repeated in the background until the server answers, for as
    /// long as the client lives, with two limits. If a request may have reached the server and its
    /// reply was lost, it is repeated only for half a minute from then (Redis remembers the request
    /// for a minute, and a later repeat would return the permits twice). If the server refuses it,
    /// it is repeated for 10 minutes. Permits that are given up after that are logged at WARN.
    pub fn release(mut self) -> Result<()> {
        self.given_up = true;
        self.taken.give_back()
    }

    /// Ends the guard and keeps the permits taken. They never come back, unless somebody
    /// [adds](CountingSemaphore::add_permits) as many. No I/O.
    pub fn forget(mut self) {
        self.given_up = true;
        self.taken.forget();
    }
}

impl Taken for CountingPermit {
    fn begin_span(&self) {
        self.taken.begin_span();
    }
}

impl Drop for CountingPermit {
    /// Returns the permits, blocking for one round trip, or a few I/O timeouts if the server hangs;
    /// one round trip more if it was the last handle of its client. Never panics. Logs a failure at
    /// WARN, but nothing when closing the client returned them. Does nothing in a forked child.
    fn drop(&mut self) {
        if self.given_up {
            return;
        }
        if self.taken.is_forked() {
            self.taken.leave_to_parent();
            return;
        }
        match self.taken.give_back() {
            Err(e) if e.kind() != ErrorKind::Closed => {
                log::warn!("returning permits failed: {}", e.chain());
            }
            _ => {}
        }
    }
}

impl fmt::Debug for CountingPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountingPermit")
            .field("name", &self.name())
            .field("permits", &self.permits())
            .finish_non_exhaustive()
    }
}
