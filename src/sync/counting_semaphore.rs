//! The counting semaphore: `client.counting_semaphore(name)` and its permits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::deadline::Deadline;
use crate::base::error::{ErrorKind, Result};
use crate::base::limits::{MOST_PERMITS, TAKEN_TTL, check_count};
use crate::base::lock_name::Kind;
use crate::base::primitive::Primitive;
use crate::hold::permits::TakenPermits;
use crate::store::{Count, CountAnswer, Granted, TokenRule};
use crate::sync::handle::{Handle, handle_methods, waiting_method};
use crate::sync::remote_counter::Counter;
use crate::sync::semaphore::SetPermits;
use crate::wait::attempt::{AcquireAttempt, Tried};
use crate::wait::client_state::ClientState;
use crate::wait::contender::Contender;
use crate::wait::record::recorded;
use crate::wait::wait_loop::contend;

/// A number of permits without leases: **a process that dies leaks its permits**. So use
/// [`Semaphore`](crate::Semaphore), unless you share this one with Java processes that use
/// Redisson's `RSemaphore`, or count something that nobody holds, such as jobs that are ready.
///
/// A cheap handle: making and cloning one costs no I/O. Made by
/// [`LockClient::counting_semaphore`](crate::LockClient::counting_semaphore).
///
/// # Start
/// Somebody has to set the permits first, as for a [`Semaphore`](crate::Semaphore#start). Until
/// then an acquire returns an error. To have callers wait for what others will
/// [add](Self::add_permits), such as jobs that are ready, [set](Self::try_set_permits) it to 0.
/// (Java's `RSemaphore` waits for one that nobody has set.)
///
/// # Name
/// A latch, a semaphore and a counting semaphore are each one number under their name, as in
/// Redisson, and Redis cannot tell them apart. A client that has used a name for one of them
/// refuses the name for the others with [`WrongType`](crate::ErrorKind::WrongType) as long as the
/// number exists. Across clients nothing in Redis detects it (PostgreSQL does): a permit taken from
/// the latch of another client counts it down, and the last one opens it. Give each primitive its
/// own name.
///
/// # Order
/// The same as [`Semaphore`](crate::Semaphore).
///
/// # Repeats
/// Every request leaves an idempotency key in Redis (`leasehold_once:{name}:..`, one for each
/// acquisition and each change), so that a request whose reply was lost counts once when it is
/// repeated. The key of a change lives for a minute. The key of an acquisition lives until the
/// permits are returned, 10 minutes at most, and for a minute from then on.
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
        /// removed; otherwise as [`ReentrantMutex::lock`](crate::ReentrantMutex::lock).
        acquire, try_acquire, try_acquire_for, try_acquire_until() -> CountingPermit, take_one
    }

    waiting_method! {
        /// Takes `permits` permits, all or none, blocking until that many are free. 1 to 2^31 − 1.
        ///
        /// # Errors
        /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a number out of range; otherwise as
        /// [`acquire`](Self::acquire).
        acquire_many, try_acquire_many, try_acquire_many_for, try_acquire_many_until(permits: u32) -> CountingPermit,
        take
    }

    /// Gives the semaphore its permits, if nobody has set it yet ([`New`](SetPermits::New));
    /// otherwise nothing is changed, and the answer is [`SetBefore`](SetPermits::SetBefore): nobody
    /// records how many are taken, so it is not known whether another number was set. 0 to
    /// 2^31 − 1. One round trip. Safe to repeat: a repeat answers `SetBefore`.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a number out of range;
    /// [`WrongType`](crate::ErrorKind::WrongType) when the name is used for something else;
    /// otherwise when the server cannot be asked.
    pub fn try_set_permits(&self, permits: u32) -> Result<SetPermits> {
        let CountAnswer { done, value } = Counter::new(&self.handle).set_from(0, permits)?;
        Ok(if done { SetPermits::New } else { SetPermits::SetBefore { free: value } })
    }

    /// Adds permits, or removes some for good. If more are removed than are free, the number of
    /// free permits is below zero until enough have been given back. One round trip; a lost reply
    /// does not make it count twice. Returns how many are free now.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for 0, or when the number of free permits
    /// would not be within 2^31 − 1; otherwise when the server cannot be asked.
    pub fn add_permits(&self, permits: i64) -> Result<i64> {
        Counter::new(&self.handle).add(permits)
    }

    /// How many permits are free now; below zero after more were removed than were free. One round
    /// trip; the answer is out of date as soon as it arrives.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub fn available_permits(&self) -> Result<i64> {
        Counter::new(&self.handle).ask().map(|(free, _)| free)
    }

    /// Removes the semaphore; false when there was none. Waiters get
    /// [`Conflict`](crate::ErrorKind::Conflict). Permits that are returned later create it again,
    /// so wait until all have been returned. One round trip. Safe to repeat.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub fn delete(&self) -> Result<bool> {
        Counter::new(&self.handle).change(Count::Delete).map(|answer| answer.done)
    }

    fn take_one(&self, deadline: Deadline) -> Result<Option<CountingPermit>> {
        self.take(1, deadline)
    }

    fn take(&self, permits: u32, deadline: Deadline) -> Result<Option<CountingPermit>> {
        check_count(permits, MOST_PERMITS).map_err(|e| e.for_name(self.name()))?;
        let (client, name) = (&self.handle.client, self.handle.begin(Kind::CountingSemaphore)?);
        let cancel = self.handle.terms.cancel.as_ref();
        recorded(client, Primitive::CountingSemaphore, std::slice::from_ref(&name), deadline, |record| {
            let attempt = AcquireAttempt::new(client, &name, permits, TAKEN_TTL, TokenRule::Off, cancel)?;
            let mut call = PermitCall { attempt, permits };
            let permit = contend(&mut call, deadline);
            record.take_from(&call.attempt);
            permit
        })
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

/// One or more permits, taken while this guard lives. The guard can go to another thread and be
/// dropped there. The permits have no lease: they cannot be lost, and if the process dies they
/// never come back.
#[must_use = "if unused the permit is given back at once"]
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

    /// Returns the permits, as dropping the guard does, but it reports the outcome. One round trip;
    /// a few I/O timeouts when the server hangs.
    ///
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed) when closing the client returned them: somebody else
    /// may have them.
    ///
    /// When the server could not be asked, the release is repeated in the background until the
    /// server answers, for as long as the client lives. There are two limits. Where a request may
    /// have reached the server and its reply was lost, it is repeated only for half a minute from
    /// then (Redis remembers the request for a minute, and a later repeat would return the permits
    /// twice). Where the server refuses it, it is repeated for 10 minutes. Permits that are given
    /// up after that are logged at WARN.
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

impl Drop for CountingPermit {
    /// Returns the permits, blocking for one round trip, or a few I/O timeouts when the server
    /// hangs; one round trip more when this was the last handle of its client. Never panics. Logs a
    /// failure at WARN, but nothing when closing the client returned them. Does nothing in a forked
    /// child.
    fn drop(&mut self) {
        if self.given_up {
            return;
        }
        if self.taken.is_forked() {
            self.taken.leave_to_parent();
            return;
        }
        match self.taken.give_back() {
            Err(e) if e.kind() != ErrorKind::Closed => log::warn!("giving back permits failed: {e}"),
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
