//! The count-down latch: `client.latch(name)`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::background::piggyback::Piggyback;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock_name::Kind;
use crate::session::Shared;
use crate::session::attempt::{AcquireAttempt, Tried};
use crate::session::wait_loop::{Contender, contend};
use crate::store::{Acquired, Count, TokenRule, UnknownOutcomes};
use crate::sync::handle::{Handle, handle_methods};
use crate::sync::remote_counter::Counter;

/// A count that many wait for and many count down, everywhere: threads, processes, machines, and Java processes with
/// Redisson's `RCountDownLatch`. At zero all who wait go on.
///
/// A cheap handle: making and cloning one costs no I/O. Made by [`LockClient::latch`](crate::LockClient::latch).
///
/// # Beginning and end
/// Somebody sets the count, others count it down. At zero the key is gone, and the latch can be set anew. A latch that is
/// not set counts as zero: whoever waits for it goes on at once, so set it before those who wait are started. Nothing of
/// it has a lease: a process that dies before it has counted down leaves the others waiting, so give
/// [`wait_for`](Self::wait_for) a time, or [`delete`](Self::delete) the latch.
///
/// # Name
/// A latch, a semaphore and a counting semaphore are each one number under their name, as Redisson has them, and Redis cannot
/// tell them apart. A client that has used a name for one of them refuses it for the others with
/// [`WrongType`](ErrorKind::WrongType) as long as the number stands. Otherwise nobody sees it: `count_down` of one client takes
/// a permit from the semaphore of another, and an acquired permit counts a latch down. Give each a name
/// of its own.
///
/// # Waiting
/// By message, with a look every few seconds besides: a lost message, a flush or a restart of the server delays whoever
/// waits, and strands nobody.
///
/// A latch may be set anew right behind its last count, or after [`delete`](Self::delete): Redis remembers for a minute when
/// it was opened, so those who waited go on all the same. Not so when a Java process opened it, which leaves no more than a
/// message: a waiter whose look comes when the latch is counting again waits for the new count. (Java's waiters do so
/// whoever opened it.) There, take a new name for each turn.
///
/// # Source
/// Redisson's `RCountDownLatch` on the wire. What differs: counting down can be repeated after a lost reply, deleting wakes
/// those who wait, waits have a timer.
/// # Examples
/// ```no_run
/// # use std::time::Duration;
/// # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
/// let done = client.latch("import done");
/// done.set_count(3)?; // before the three are started
/// // ... each of the three, somewhere: client.latch("import done").count_down()?
/// if !done.wait_for(Duration::from_secs(600))? {
///     done.delete()?; // one of them has died: let all go on who wait
/// }
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CountDownLatch {
    handle: Handle,
}

/// How often whoever waits looks by itself.
const RECHECK: Duration = Duration::from_secs(5);

impl CountDownLatch {
    pub(crate) fn new(shared: &Arc<Shared>, name: &str) -> Self {
        Self { handle: Handle::new(shared, name, Kind::Latch) }
    }

    handle_methods!(name);

    /// Sets the count, if the latch is not counting: false, and nothing is changed, if it is. 1 to 2^31 − 1. One round
    /// trip, repeat-safe.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a count out of range, [`WrongType`](ErrorKind::WrongType) when
    /// something else stands under the name, or when the server cannot be asked.
    pub fn try_set_count(&self, count: u32) -> Result<bool> {
        self.counter().set(count)
    }

    /// Sets the count, for one who means to be the first. 1 to 2^31 − 1. One round trip, repeat-safe.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) when the latch is counting already; otherwise as
    /// [`try_set_count`](Self::try_set_count).
    pub fn set_count(&self, count: u32) -> Result<()> {
        if self.try_set_count(count)? {
            return Ok(());
        }
        Err(Error::named(ErrorKind::Conflict, self.name(), "the latch is counting already; delete it to begin anew"))
    }

    /// Counts down by one, and at zero lets everybody go on who waits. Answers what is left; 0 also when the latch was
    /// not counting. One round trip; after a lost reply it is repeated, for a few I/O timeouts, and counts once all the
    /// same.
    ///
    /// # Errors
    /// [`WrongType`](ErrorKind::WrongType) when something else stands under the name, or when the server cannot be asked. If
    /// it could no longer be asked *after* the request went out, it may have counted.
    pub fn count_down(&self) -> Result<u32> {
        self.counter().change(Count::Down).map(|answer| u32::try_from(answer.value).unwrap_or(0))
    }

    /// What is left to count; 0 for a latch that is open or not set. One round trip; out of date as soon as it is told.
    ///
    /// # Errors
    /// When the server cannot be asked, or the key is no count.
    pub fn count(&self) -> Result<u32> {
        self.counter().ask().map(|(left, _)| u32::try_from(left.max(0)).unwrap_or(u32::MAX))
    }

    /// Blocks until the count is zero, for as long as it takes.
    ///
    /// # Errors
    /// As [`count`](Self::count); [`Closed`](ErrorKind::Closed). One who is already waiting rides out an outage for
    /// [`outage_timeout`](crate::Builder::outage_timeout).
    pub fn wait(&self) -> Result<()> {
        self.wait_with_piggyback(Deadline::Never).map(|_| ())
    }

    /// Whether the count is zero now: [`wait`](Self::wait) in its form that does not block. One round trip.
    ///
    /// # Errors
    /// As [`count`](Self::count).
    pub fn try_wait(&self) -> Result<bool> {
        self.wait_with_piggyback(Deadline::Now)
    }

    /// Blocks until the count is zero (true), or for `timeout` and one round trip (false).
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for(&self, timeout: Duration) -> Result<bool> {
        self.wait_with_piggyback(Deadline::after(Instant::now(), timeout))
    }

    /// Blocks until the count is zero (true), or until `deadline` and one round trip (false).
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_until(&self, deadline: Instant) -> Result<bool> {
        self.wait_with_piggyback(Deadline::At(deadline))
    }

    /// Removes the latch, which lets everybody go on who waits; false when it was not counting. One round trip,
    /// repeat-safe.
    ///
    /// # Errors
    /// [`WrongType`](ErrorKind::WrongType) when something else stands under the name, or when the server cannot be asked.
    pub fn delete(&self) -> Result<bool> {
        self.counter().change(Count::Delete).map(|answer| answer.done)
    }

    fn counter(&self) -> Counter<'_> {
        Counter::new(&self.handle)
    }

    fn wait_with_piggyback(&self, deadline: Deadline) -> Result<bool> {
        let (shared, name) = (&self.handle.shared, self.handle.usable()?);
        let attempt = AcquireAttempt::new(shared, name, 1, RECHECK, TokenRule::Off)?;
        contend(&mut Waiter { attempt, opened: None }, deadline).map(|opened| opened.is_some())
    }
}

/// A call that waits for the count.
struct Waiter<'a> {
    attempt: AcquireAttempt<'a>,
    /// When the latch had been opened last, at the first look of this call, which found it counting.
    opened: Option<i64>,
}

impl<'a> Contender<'a> for Waiter<'a> {
    type Won = ();

    fn attempt(&mut self) -> &mut AcquireAttempt<'a> {
        &mut self.attempt
    }

    fn try_once(&mut self, _waits: bool) -> Result<Tried<()>> {
        let AcquireAttempt { shared, name, .. } = self.attempt;
        let (left, opened) =
            shared.store.counts().and_then(|counts| counts.counted(name)).map_err(|e| e.for_name(&name.name))?;
        // Counting again does not mean counting still: whoever opened it may have set it anew before this look.
        if left <= 0 || opened > *self.opened.get_or_insert(opened) {
            return Ok(Tried::Won(()));
        }
        Ok(Tried::Busy(Some(RECHECK)))
    }

    fn piggyback(&mut self) -> Option<Piggyback> {
        None
    }

    fn on_piggyback_reply(&mut self, _: Result<Acquired>, _: UnknownOutcomes) -> Result<Tried<()>> {
        self.try_once(true)
    }
}
