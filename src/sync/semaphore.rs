//! The semaphore with leases: `client.semaphore(name)` and its permits.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::base::deadline::Deadline;
use crate::base::error::{Error, ErrorKind, Result, invalid};
use crate::base::holder::Holder;
use crate::base::limits::{MOST_PERMITS_AT_ONCE, check_count, check_lease};
use crate::base::lock_name::{Kind, LockName};
use crate::hold::guarded::Hold;
use crate::store::{Count, Release, Released, Renewal, Renewed, UnknownOutcomes};
use crate::sync::guard::{Guard, Movable, guard_methods};
use crate::sync::handle::{Handle, handle_methods, waiting_method};
use crate::sync::remote_counter::{Counter, drain};
use crate::wait::client_state::ClientState;

/// A fixed number of permits, shared by everyone who uses the same name on the same server,
/// including Java processes with Redisson's `RPermitExpirableSemaphore`. Permits have leases: those
/// of a process that dies become free again when the leases end.
///
/// A cheap handle, created by [`LockClient::semaphore`](crate::LockClient::semaphore): creating and
/// cloning it costs no I/O.
///
/// # Start
/// The first caller of [`try_set_permits`](Self::try_set_permits) sets the number of permits, once.
/// So let every program call it when it starts. Until then an acquire returns
/// [`Conflict`](crate::ErrorKind::Conflict), as it does for a
/// [`CountingSemaphore`](crate::CountingSemaphore): otherwise callers would wait for ever if nobody
/// has set up the semaphore, or a flush has removed it.
///
/// # Name
/// A latch, a semaphore and a counting semaphore are each stored as one number under their name, as
/// in Redisson, and Redis cannot distinguish them. A client that has used a name for one of them
/// refuses the name for the others with [`WrongType`](crate::ErrorKind::WrongType) as long as the
/// number exists. Redis does not detect a conflict between clients (databases do): a permit
/// taken from another client's latch counts the latch down, and the last one opens it. Give each
/// primitive its own name.
///
/// # Order
/// Threads of one client are served first come, first served, so a thread that wants many permits
/// is not overtaken by those that want few. Clients are unordered, except over ZooKeeper: a call
/// for many permits can wait for a long time while other clients take few.
///
/// # Leases
/// The watchdog renews a permit until its guard is dropped, and the guard reports when the permit
/// is lost. In Redis a permit becomes free two seconds after its lease has ended, because Java uses
/// its own clock.
///
/// # Source
/// Redisson's `RPermitExpirableSemaphore` on the wire. What differs: permits are renewed, and
/// taking and returning them can be repeated after a lost reply.
///
/// # Examples
/// ```no_run
/// # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
/// let calls = client.semaphore("api");
/// calls.try_set_permits(10)?; // the first caller sets them
/// let permit = calls.acquire()?;
/// // ... call the API ...
/// permit.ensure_held()?;
/// permit.release()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore {
    handle: Handle,
}

impl Semaphore {
    pub(crate) fn new(client: &Arc<ClientState>, name: &str) -> Self {
        Self { handle: Handle::new(client, name, Kind::Semaphore) }
    }

    handle_methods!(name, lease, cancel);

    waiting_method! {
        /// Takes one permit, blocking until one is free.
        ///
        /// # Errors
        /// [`Conflict`](crate::ErrorKind::Conflict) when the semaphore has no permits; otherwise
        /// the same as [`ReentrantMutex::lock`](crate::ReentrantMutex::lock).
        acquire, try_acquire, try_acquire_for, try_acquire_until() -> SemaphorePermit, take_one
    }

    waiting_method! {
        /// Takes `permits` permits (1 to 10 000), all or none, blocking until that many are free.
        ///
        /// # Errors
        /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a number out of range;
        /// [`Conflict`](crate::ErrorKind::Conflict) when the semaphore has fewer permits in total;
        /// otherwise the same as [`ReentrantMutex::lock`](crate::ReentrantMutex::lock).
        acquire_many, try_acquire_many, try_acquire_many_for, try_acquire_many_until(permits: u32) -> SemaphorePermit,
        take
    }

    /// Sets the number of permits (1 to 2^31 − 1) if the semaphore has none yet. Otherwise it
    /// changes nothing, and the result says whether a different number is set. One round trip, or
    /// two if the semaphore already has permits. Safe to repeat: a repeat returns
    /// [`Same`](SetPermits::Same).
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a number out of range;
    /// [`WrongType`](crate::ErrorKind::WrongType) when the name is used for something else;
    /// otherwise when the request fails.
    pub fn try_set_permits(&self, permits: u32) -> Result<SetPermits> {
        let counter = Counter::new(&self.handle);
        if counter.set_from(1, permits)?.done {
            return Ok(SetPermits::New);
        }
        let (free, held) = counter.ask()?;
        let current = free + held;
        Ok(if current == i64::from(permits) {
            SetPermits::Same
        } else {
            SetPermits::Different { current }
        })
    }

    /// Adds permits, or removes some for good if `permits` is negative. If more are removed than
    /// are free, the number of free permits is negative until enough have been returned. Returns
    /// the number of free permits. One round trip (two over ZooKeeper). A lost reply does not make
    /// a call count twice, but every call counts.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for 0, or when the number of free permits
    /// would not be within 2^31 − 1 (over ZooKeeper, when that of all permits would be below 0 or
    /// above it); otherwise when the request fails.
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

    /// The number of permits that all clients hold now. One round trip; the answer may be outdated
    /// when it arrives.
    ///
    /// # Errors
    /// When the request fails.
    pub fn acquired_permits(&self) -> Result<u32> {
        Counter::new(&self.handle)
            .ask()
            .map(|(_, held)| u32::try_from(held.max(0)).unwrap_or(u32::MAX))
    }

    /// Takes all permits that are free now, 10 000 at most, as one guard; `None` if none is free.
    /// Does not wait. Two round trips, and two more each time that somebody else takes permits in
    /// between, ten times at most; then it returns `None` too. A permit that becomes free meanwhile
    /// may be left.
    ///
    /// # Errors
    /// The same as [`acquire`](Self::acquire).
    pub fn drain_permits(&self) -> Result<Option<SemaphorePermit>> {
        drain(
            MOST_PERMITS_AT_ONCE,
            || self.available_permits(),
            |permits| self.try_acquire_many(permits),
        )
    }

    /// Extends the lease of permits whose guard was [forgotten](SemaphorePermit::forget), in this
    /// or another process, to at least `lease` from now; never shortens it. Nobody renews them:
    /// call it again before the lease ends. One round trip. Safe to repeat.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when they were returned, or their lease has ended;
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an invalid name or a lease out of
    /// range; [`Unsupported`](crate::ErrorKind::Unsupported) with ZooKeeper, where a permit ends
    /// with the session of the client that took it; otherwise when the request fails, which leaves
    /// the lease as it was or extends it.
    #[doc(alias = "updateLeaseTime")]
    #[doc(alias = "renew")]
    pub fn extend(&self, id: &PermitId, lease: Duration) -> Result<()> {
        let name = self.handle.usable()?;
        let named = |e: Error| e.for_name(&name.name);
        check_lease(lease).map_err(named)?;
        let store = &self.handle.client.store;
        if store.shared_lease().is_some() {
            let why = "a permit has no lease of its own here: it ends with the session of the client that took it";
            return Err(Error::named(ErrorKind::Unsupported, &name.name, why));
        }
        let renewal = Renewal {
            name: name.clone(),
            holder: id.holder.clone(),
            permits: id.permits,
            lease,
            token: 0,
        };
        match store.extend(&[renewal]).map_err(named)?.pop() {
            Some(Renewed::Held { .. }) => Ok(()),
            Some(Renewed::Failed(e)) => Err(named(e)),
            Some(Renewed::Gone) | None => Err(not_taken(name)),
        }
    }

    /// Returns the permits of a guard that was [forgotten](SemaphorePermit::forget), in this or
    /// another process. One round trip.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when they were already returned, or their lease has ended;
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an invalid name; otherwise when the
    /// request fails.
    pub fn release(&self, id: &PermitId) -> Result<()> {
        let name = self.handle.usable()?;
        let mut unknowns = UnknownOutcomes::default();
        let client = &self.handle.client;
        let release = Release::of_all(name, &id.holder, id.permits);
        match client.store.release(&release, &mut unknowns).map_err(|e| e.for_name(&name.name))? {
            Released::NotHeld => Err(not_taken(name)),
            _ => {
                client.local_queues.notify(&name.key);
                Ok(())
            }
        }
    }

    /// Removes the semaphore and all its permits. Returns false if there was none. Holders in this
    /// client are notified of the loss at once; others notice it at their next renewal, up to a
    /// third of their lease later. Waiters get [`Conflict`](crate::ErrorKind::Conflict). One round
    /// trip. Safe to repeat.
    ///
    /// # Errors
    /// When the request fails; the semaphore may have been removed all the same.
    pub fn delete(&self) -> Result<bool> {
        let name = self.handle.usable()?;
        // Listed before the request: permits taken after the removal are those of another
        // semaphore.
        let ours = self.handle.client.holds.under(&name.key);
        let deleted = Counter::new(&self.handle).change(Count::Delete)?.done;
        if deleted {
            for hold in
                ours.iter().filter(|hold| hold.asked.name.kind.is_same_primitive_as(name.kind))
            {
                self.handle.client.report_loss(hold);
            }
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

fn not_taken(name: &LockName) -> Error {
    let why = "these permits were already returned, or their lease has ended";
    Error::named(ErrorKind::Lost, &name.name, why)
}

/// The result of `try_set_permits` of a [semaphore](Semaphore::try_set_permits) or a [counting
/// semaphore](crate::CountingSemaphore::try_set_permits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SetPermits {
    /// The semaphore had no permits, and now has these.
    New,
    /// It already has this number of permits, free and held ones together.
    Same,
    /// It has a different number of permits, and keeps it; [`add_permits`](Semaphore::add_permits)
    /// changes it. Two programs, or two versions of one, disagree.
    Different {
        /// The number it has, free and held ones together; 0 if the semaphore has just been
        /// removed.
        current: i64,
    },
    /// It was set before, and keeps its permits. Whether it was set to the same number is unknown,
    /// because nothing records how many permits of a counting semaphore are taken. A semaphore with
    /// leases never returns this.
    SetBefore {
        /// The number of free permits; negative after more were removed than were free.
        free: i64,
    },
}

impl SetPermits {
    /// Whether this call has set the permits.
    #[must_use]
    pub const fn is_new(self) -> bool {
        matches!(self, Self::New)
    }
}

/// One or more permits, held while this guard lives. The guard can move to another thread and be
/// dropped there.
#[must_use = "if unused the permit is given back at once; write `let _permit = ..`"]
#[clippy::has_significant_drop]
pub struct SemaphorePermit(Guard<Hold, Movable>);

guard_methods!(SemaphorePermit: held);

impl SemaphorePermit {
    /// The number of permits.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.0.parts()[0].tenure().store_hold.asked.permits
    }

    /// Returns the permits. Dropping the guard does the same, but this returns the outcome. One
    /// round trip, or a few I/O timeouts (for a connection, for the reply) if the server hangs.
    ///
    /// Dropping the guard blocks for just as long, and for one round trip more if it was the last
    /// handle of its client. A drop never panics. It logs a failure at WARN and undoes in the
    /// background what may still be taken. It does nothing in a forked child.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when the permits had been lost before, and
    /// [`Closed`](crate::ErrorKind::Closed) when closing the client gave them up: somebody else may
    /// have held them in the meantime. When the request fails, it is repeated in the background
    /// until the server answers or the lease has ended.
    pub fn release(self) -> Result<()> {
        self.0.unlock()
    }

    /// Ends the guard and leaves the permits taken, without renewal. They become free when the
    /// lease of their last renewal ends, in Redis two seconds later, unless they are
    /// [returned](Semaphore::release) or [extended](Semaphore::extend) with this id before; over
    /// ZooKeeper they stay taken as long as the client lives. Waiters are not notified of that. No
    /// I/O.
    #[must_use = "the id can return the permits"]
    pub fn forget(self) -> PermitId {
        let hold = self.0.forget();
        PermitId {
            holder: hold.tenure().store_hold.asked.holder.clone(),
            permits: hold.tenure().store_hold.asked.permits,
        }
    }
}

/// Permits that are taken and have no guard: return them with [`Semaphore::release`], in this or
/// another process. The text form of the id can be parsed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PermitId {
    holder: Holder,
    permits: u32,
}

impl PermitId {
    /// The number of permits.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// The ids of these permits in Redisson, 32 hexadecimal digits each.
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
            let permits =
                permits.parse().ok().filter(|n| check_count(*n, MOST_PERMITS_AT_ONCE).is_ok())?;
            Some(Self { holder: Holder::parse_permits(holder)?, permits })
        });
        parsed.ok_or_else(|| invalid(format!("{text:?} is not a permit id")))
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
        for bad in [
            "",
            "x",
            "00:1",
            &format!("{}:0", id.holder.as_str()),
            &format!("{}:10001", id.holder.as_str()),
        ] {
            assert_eq!(
                bad.parse::<PermitId>().unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{bad}"
            );
        }
    }
}
