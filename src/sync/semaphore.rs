//! The semaphore with leases: `client.semaphore(name)` and its permits.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::base::deadline::Deadline;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::limits::{MOST_PERMITS_AT_ONCE, check_count};
use crate::base::lock_name::Kind;
use crate::session::Shared;
use crate::session::hold::Hold;
use crate::store::{Count, HoldCounts, Release, Released, UnknownOutcomes};
use crate::sync::guard::{Guard, Movable, guard_methods};
use crate::sync::handle::{Handle, handle_methods, waiting_method};
use crate::sync::remote_counter::Counter;

/// So many permits, shared by everybody who uses the same name on the same server, among them Java processes with
/// Redisson's `RPermitExpirableSemaphore`. Permits have leases: those of a process that dies come back by themselves.
///
/// A cheap handle: making and cloning one costs no I/O. Made by [`LockClient::semaphore`](crate::LockClient::semaphore).
///
/// # Beginning
/// The permits are set once, by whoever comes first: [`try_set_permits`](Self::try_set_permits). Until then nobody can
/// have one, and asking says so.
///
/// # Name
/// A latch, a semaphore and a counting semaphore are each one number under their name, as Redisson has them, and Redis cannot
/// tell them apart. A client that has used a name for one of them refuses it for the others with
/// [`WrongType`](crate::ErrorKind::WrongType) as long as the number stands. Otherwise nobody sees it: a permit taken from the latch of
/// another client counts it down, and the last one opens it. Give each a name
/// of its own.
///
/// # Order
/// Threads of one client are served first come, first served, so one that wants many is not passed by those that want
/// few. Between clients there is no order: one that wants many can wait for long beside others that want few.
///
/// # Leases
/// A permit is renewed by the watchdog until its guard is dropped, and knows when it is lost. It comes back two seconds
/// after its lease has ended, because Java counts by its own clock.
///
/// # Source
/// Redisson's `RPermitExpirableSemaphore` on the wire. What differs: permits are renewed, and taking and giving back can be
/// repeated after a lost reply.
/// # Examples
/// ```no_run
/// # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
/// let calls = client.semaphore("api");
/// calls.try_set_permits(10)?; // whoever comes first
/// let permit = calls.acquire()?;
/// // ... call the API ...
/// permit.ensure_held()?;
/// permit.unlock()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore {
    handle: Handle,
}

impl Semaphore {
    pub(crate) fn new(shared: &Arc<Shared>, name: &str) -> Self {
        Self { handle: Handle::new(shared, name, Kind::Semaphore) }
    }

    handle_methods!(name, lease);

    waiting_method! {
        /// Takes one permit, blocking until one is free.
        ///
        /// # Errors
        /// [`Conflict`](crate::ErrorKind::Conflict) when the semaphore has no permits; otherwise as
        /// [`ReentrantMutex::lock`](crate::ReentrantMutex::lock).
        acquire, try_acquire, try_acquire_for, try_acquire_until() -> SemaphorePermit, take_one
    }

    waiting_method! {
        /// Takes `permits` permits, all or none, blocking until so many are free. 1 to 10 000.
        ///
        /// # Errors
        /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a number out of range;
        /// [`Conflict`](crate::ErrorKind::Conflict) when the semaphore has fewer permits in all; otherwise as
        /// [`ReentrantMutex::lock`](crate::ReentrantMutex::lock).
        acquire_many, try_acquire_many, try_acquire_many_for, try_acquire_many_until(permits: u32) -> SemaphorePermit,
        take
    }

    /// Gives the semaphore its permits, if it has none yet; false, and nothing is changed, if it
    /// has. 1 to 2^31 − 1. One round trip. It may be repeated.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a number out of range, or when the
    /// server cannot be asked.
    pub fn try_set_permits(&self, permits: u32) -> Result<bool> {
        Counter::new(&self.handle).set(permits)
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

    /// How many permits are held now, everywhere. One round trip.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub fn acquired_permits(&self) -> Result<u64> {
        Counter::new(&self.handle).ask().map(|(_, held)| held.unsigned_abs())
    }

    /// Gives back the permits of a guard that was [forgotten](SemaphorePermit::forget), here or in another process.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when they were given back before, or their lease has ended;
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for what is no id; otherwise when the server cannot be asked.
    pub fn release(&self, id: &PermitId) -> Result<()> {
        let name = self.handle.usable()?;
        let told = |e: Error| e.for_name(&name.name);
        let mut unknowns = UnknownOutcomes::default();
        let shared = &self.handle.shared;
        let PermitId { holder, permits } = id;
        let release = Release { name, holder, permits: *permits, left: HoldCounts::NONE, granted: true };
        match shared.store.release(&release, &mut unknowns).map_err(told)? {
            Released::NotHeld => Err(Error::named(
                ErrorKind::Lost,
                &name.name,
                "these permits were given back already, or their lease has ended",
            )),
            _ => {
                shared.local_queues.notify(&name.key);
                Ok(())
            }
        }
    }

    /// Removes the semaphore with all its permits; false when there was none. Whoever holds permits loses them: holders of
    /// this client are told at once, others learn of it at their next renewal, a third of their lease later. Whoever waits
    /// gets [`Conflict`](crate::ErrorKind::Conflict). One round trip, repeat-safe.
    ///
    /// # Errors
    /// When the server cannot be asked: then it may have happened.
    pub fn delete(&self) -> Result<bool> {
        let name = self.handle.usable()?;
        // Listed before: permits that are taken once it is gone are those of another semaphore.
        let ours = self.handle.shared.holds.under(&name.key);
        let deleted = Counter::new(&self.handle).change(Count::Delete)?.done;
        if deleted {
            ours.iter().filter(|hold| hold.grant.name.kind.is_same_primitive_as(name.kind)).for_each(|h| h.tell_lost());
        }
        Ok(deleted)
    }

    fn take_one(&self, deadline: Deadline) -> Result<Option<SemaphorePermit>> {
        self.take(1, deadline)
    }

    fn take(&self, permits: u32, deadline: Deadline) -> Result<Option<SemaphorePermit>> {
        check_count(permits, MOST_PERMITS_AT_ONCE).map_err(|e| e.for_name(self.name()))?;
        Ok(self.handle.permits(permits, deadline)?.map(SemaphorePermit))
    }
}

/// One permit or several, held while this lives; it can go to another thread and be dropped there.
#[must_use = "if unused the permit is given back at once"]
#[clippy::has_significant_drop]
pub struct SemaphorePermit(Guard<Arc<Hold>, Movable>);

guard_methods!(SemaphorePermit);

impl SemaphorePermit {
    /// How many permits it is.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.0.parts()[0].grant.permits
    }

    /// Goes on without the guard: the permits stay taken and are renewed no more, so they come back two seconds after the
    /// lease ends that they had from the last renewal, unless somebody [gives them back](Semaphore::release) by this id
    /// before. Nobody is told of that end. No I/O.
    #[must_use = "the id can give the permits back"]
    pub fn forget(self) -> PermitId {
        let hold = self.0.forget();
        PermitId { holder: hold.grant.holder.clone(), permits: hold.grant.permits }
    }
}

/// Permits that are taken, without a guard: to be given back by [`Semaphore::release`], here or in another process. Its
/// text form can be parsed again.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PermitId {
    holder: Holder,
    permits: u32,
}

impl PermitId {
    /// How many permits it is.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// The ids that Redisson knows these permits by, 32 hexadecimal digits each.
    #[must_use]
    pub fn redisson_ids(&self) -> Vec<String> {
        (1..=self.permits).map(|number| format!("{}{number:08x}", self.holder.as_str())).collect()
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.holder.as_str(), self.permits)
    }
}

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PermitId({self})")
    }
}

impl FromStr for PermitId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = text.split_once(':').and_then(|(holder, permits)| {
            let permits = permits.parse().ok().filter(|n| check_count(*n, MOST_PERMITS_AT_ONCE).is_ok())?;
            Some(Self { holder: Holder::parse_permits(holder)?, permits })
        });
        parsed.ok_or_else(|| Error::new(ErrorKind::InvalidInput, format!("{text:?} is no permit id")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_through_their_text() {
        let id = PermitId { holder: Holder::random_permits(), permits: 2 };
        assert_eq!(id.to_string().parse::<PermitId>().unwrap(), id);
        assert_eq!(id.redisson_ids()[1], format!("{}00000002", id.holder.as_str()));
        for bad in ["", "x", "00:1", &format!("{}:0", id.holder.as_str()), &format!("{}:10001", id.holder.as_str())] {
            assert_eq!(bad.parse::<PermitId>().unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }
}
