//! The count-down latch: `client.latch(name)`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::deadline::Deadline;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock_name::Kind;
use crate::base::primitive::Primitive;
use crate::os;
use crate::store::Count;
use crate::sync::handle::{Handle, handle_methods};
use crate::sync::remote_counter::Counter;
use crate::wait::attempt::{AcquireAttempt, Tried, Wanted};
use crate::wait::client_state::ClientState;
use crate::wait::contend::contend;
use crate::wait::contender::Contender;

/// A count that many can wait for and many can count down: threads, processes, machines, and Java
/// processes with Redisson's `RCountDownLatch`. At zero all waiters continue.
///
/// A cheap handle, created by [`LockClient::latch`](crate::LockClient::latch): creating and cloning
/// it costs no I/O.
///
/// # Start and end
/// One caller sets the count, others count it down. At zero the key is removed (over ZooKeeper a
/// node with a count of 0 stays), and the latch can be set again. A latch that is not set cannot be
/// distinguished from one that has opened: it lets waiters continue at once, so [set
/// it](Self::set_count) before you start the waiters. A latch has no lease: a process that dies
/// before it has counted down leaves the others waiting. So give [`wait_for`](Self::wait_for) a
/// timeout, or [`delete`](Self::delete) the latch.
///
/// # Name
/// A latch, a semaphore and a counting semaphore are each stored as one number under their name, as
/// in Redisson, and Redis cannot distinguish them. A client that has used a name for one of them
/// refuses the name for the others with [`WrongType`](ErrorKind::WrongType) as long as the number
/// exists. Redis does not detect a conflict between clients (PostgreSQL does): `count_down` of one
/// client takes a permit from the semaphore of another, and an acquired permit counts a latch down.
/// Give each primitive its own name.
///
/// # Waiting
/// A waiter is woken by a message, and also asks the server every few seconds: a lost message, a
/// flush or a restart of the server delays waiters, but none waits for ever.
///
/// A latch may be set again right after its last count, or after [`delete`](Self::delete): Redis
/// remembers for a minute when it was opened, so the earlier waiters still continue. This is not
/// the case if a Java process opened the latch, because Java only sends a message: a waiter that
/// asks when the latch is counting again then waits for the new count. (Java's waiters do so
/// whoever opened it.) If Java takes part, use a new name for each round.
///
/// # Source
/// Redisson's `RCountDownLatch` on the wire. What differs: counting down can be repeated after a
/// lost reply, deleting wakes the waiters, and waits have a timer.
///
/// # Examples
/// ```no_run
/// # use std::time::Duration;
/// # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
/// let done = client.latch("import done");
/// done.set_count(3)?; // before the three workers start
/// // ... each of the three, somewhere: client.latch("import done").count_down()?
/// if !done.wait_for(Duration::from_secs(600))? {
///     done.delete()?; // a worker has died: let all waiters continue
/// }
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CountDownLatch {
    handle: Handle,
}

/// How often a waiter asks the server without a message.
const RECHECK: Duration = Duration::from_secs(5);

impl CountDownLatch {
    pub(crate) fn new(client: &Arc<ClientState>, name: &str) -> Self {
        Self { handle: Handle::new(client, name, Kind::Latch) }
    }

    handle_methods!(name, cancel);

    /// Sets the count (1 to 2^31 − 1) if the latch is not counting. If it is, returns false and
    /// changes nothing. One round trip. Safe to repeat.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a count out of range,
    /// [`WrongType`](ErrorKind::WrongType) when the name is used for something else, or when the
    /// request fails.
    pub fn try_set_count(&self, count: u32) -> Result<bool> {
        self.counter().set_from(1, count).map(|answer| answer.done)
    }

    /// Sets the count (1 to 2^31 − 1), for a caller that expects to be the first. One round trip.
    /// Safe to repeat: a repeat returns [`Conflict`](ErrorKind::Conflict).
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) when the latch is already counting; otherwise the same as
    /// [`try_set_count`](Self::try_set_count).
    pub fn set_count(&self, count: u32) -> Result<()> {
        if self.try_set_count(count)? {
            return Ok(());
        }
        Err(Error::named(
            ErrorKind::Conflict,
            self.name(),
            "the latch is already counting; delete it to start again",
        ))
    }

    /// Counts down by one, and at zero lets all waiters continue. Returns the remaining count; also
    /// 0 if the latch was not counting. One round trip. After a lost reply the request is repeated,
    /// for a few I/O timeouts, and still counts once.
    ///
    /// # Errors
    /// [`WrongType`](ErrorKind::WrongType) when the name is used for something else, or when the
    /// request fails. If the server stopped answering *after* the request was sent, the
    /// call may have counted.
    pub fn count_down(&self) -> Result<u32> {
        self.counter().change(Count::Down).map(|answer| u32::try_from(answer.value).unwrap_or(0))
    }

    /// The remaining count; 0 for a latch that is open or not set. One round trip; the answer may
    /// be outdated when it arrives.
    ///
    /// # Errors
    /// When the request fails, or the key is not a count.
    pub fn count(&self) -> Result<u32> {
        self.counter().ask().map(|(left, _)| u32::try_from(left.max(0)).unwrap_or(u32::MAX))
    }

    /// Blocks until the count is zero, for as long as it takes.
    ///
    /// # Errors
    /// The same as [`count`](Self::count); [`Closed`](ErrorKind::Closed) when the client was
    /// closed, or has [stopped waiting](crate::LockClient::stop_waiting); and
    /// [`Cancelled`](ErrorKind::Cancelled) when the token of the handle was cancelled. A call that
    /// is already waiting survives an outage of up to
    /// [`outage_timeout`](crate::Builder::outage_timeout).
    pub fn wait(&self) -> Result<()> {
        self.wait_with(Deadline::Never).map(|_| ())
    }

    /// Returns whether the count is zero now, without waiting. One round trip.
    ///
    /// # Errors
    /// The same as [`count`](Self::count).
    pub fn try_wait(&self) -> Result<bool> {
        self.wait_with(Deadline::Now)
    }

    /// Blocks until the count is zero and returns true, or returns false after `timeout` plus one
    /// round trip.
    ///
    /// # Errors
    /// The same as [`wait`](Self::wait).
    pub fn wait_for(&self, timeout: Duration) -> Result<bool> {
        self.wait_with(Deadline::after(os::now(), timeout))
    }

    /// Blocks until the count is zero and returns true, or returns false after `deadline` plus one
    /// round trip.
    ///
    /// # Errors
    /// The same as [`wait`](Self::wait).
    pub fn wait_until(&self, deadline: Instant) -> Result<bool> {
        self.wait_with(Deadline::At(deadline))
    }

    /// Removes the latch, which lets all waiters continue. Returns false if it was not counting.
    /// One round trip. Safe to repeat.
    ///
    /// # Errors
    /// [`WrongType`](ErrorKind::WrongType) when the name is used for something else, or when the
    /// request fails.
    pub fn delete(&self) -> Result<bool> {
        self.counter().change(Count::Delete).map(|answer| answer.done)
    }

    fn counter(&self) -> Counter<'_> {
        Counter::new(&self.handle)
    }

    fn wait_with(&self, deadline: Deadline) -> Result<bool> {
        let client = &self.handle.client;
        let name = self.handle.begin(Kind::Latch)?;
        let cancel = self.handle.terms.cancel.as_ref();
        let opened = client.seen.observer.record(
            Primitive::Latch,
            std::slice::from_ref(&name),
            deadline,
            |record| {
                let attempt =
                    AcquireAttempt::new(client, &name, Wanted::permits(&name, 1, RECHECK), cancel)?;
                let mut waiter = LatchCall { attempt, opened: None };
                contend(&mut waiter, deadline, record)
            },
        )?;
        Ok(opened.is_some())
    }
}

/// A call that waits for the count.
struct LatchCall<'a> {
    attempt: AcquireAttempt<'a>,
    /// When the latch was last opened, as reported to the first attempt of this call that found it
    /// counting.
    opened: Option<i64>,
}

impl<'a> Contender<'a> for LatchCall<'a> {
    type Won = ();

    fn attempt(&mut self) -> &mut AcquireAttempt<'a> {
        &mut self.attempt
    }

    fn try_once(&mut self, _waits: bool) -> Result<Tried<()>> {
        let AcquireAttempt { client, name, .. } = self.attempt;
        let (left, opened) = client
            .store
            .counts()
            .and_then(|counts| counts.counted(name))
            .map_err(|e| e.for_name(&name.name))?;
        // A latch that counts now may have been opened and set again since the first attempt.
        if left <= 0 || opened > *self.opened.get_or_insert(opened) {
            return Ok(Tried::Won(()));
        }
        Ok(Tried::Busy(Some(RECHECK)))
    }
}
