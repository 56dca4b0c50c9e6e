//! The two records of a hold: what the store has granted to one holder, and how one user uses it.
//!
//! Each refers to the other: a user is valid only while its hold is, and whoever learns something
//! about a hold notifies its users. Their methods are in [`store_hold`](crate::lease::store_hold)
//! and [`tenure`](crate::lease::tenure).

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::error::Error;
use crate::base::holder::Holder;
use crate::base::lease::{Ends, Lease, Moment};
use crate::base::lock_name::LockName;
use crate::base::primitive::Primitive;
use crate::lease::callbacks::Listeners;
use crate::lease::ending::{EndMarks, ReleaseRace};
use crate::os::{
    Condvar, Mutex,
    atomic::{AtomicBool, AtomicU64},
    thread::{Thread, ThreadId},
};

/// What was asked for; it is the same at every renewal.
#[derive(Debug, Clone)]
pub(crate) struct HoldRequest {
    pub(crate) name: Arc<LockName>,
    /// The primitive that took it: a multi-lock takes plain locks.
    pub(crate) primitive: Primitive,
    pub(crate) holder: Holder,
    /// Number of permits; 1 for everything but a semaphore.
    pub(crate) permits: u32,
    /// The lease of the acquire, and of every renewal.
    pub(crate) lease: Duration,
    /// Whether the lease is renewed. A fixed one is only inspected, so that its user learns when it
    /// was forced out.
    pub(crate) is_renewed: bool,
    /// The instant before the acquire was sent.
    pub(crate) at: Moment,
    /// The [generation](crate::lease::watchdog::Watchdog::generation) read before it was sent.
    pub(crate) generation: u64,
}

pub(crate) struct StoreHold {
    pub(crate) asked: HoldRequest,
    /// The next waiter of a fair lock when it was granted: a hint.
    pub(crate) next: Option<Box<str>>,
    pub(crate) lease: Lease,
    /// Locked while they are used to change the lease.
    pub(super) ends: Mutex<Ends>,
    /// The longest lease that was ever asked for, in nanoseconds, answered or not: the server may
    /// have it.
    pub(super) longest: AtomicU64,
    /// Whether its tenures have fencing tokens.
    pub(super) has_token: bool,
    /// Others may hold the lock as well, and readers of other libraries among them may cut its TTL,
    /// so it is inspected often.
    pub(super) has_others: AtomicBool,
    pub(super) visits: Visits,
    pub(super) release_race: ReleaseRace,
    /// Until when the lock stays taken, in nanoseconds, or one of the special values in
    /// [`give_up`](crate::lease::give_up). Only one word, because every hold has it and few use
    /// it.
    pub(super) kept_until: AtomicU64,
    pub(super) users: Mutex<Users>,
    pub(super) caretaker: Arc<dyn Caretaker>,
}

/// The last question that a renewal has brought: others ask the holder for its lock.
#[derive(Debug, Default)]
pub(super) struct AskedFor {
    /// Its id; 0 for none.
    pub(super) id: AtomicU64,
    /// When it came, in nanoseconds.
    pub(super) at: AtomicU64,
}

/// Renews holds, and gives up those that nobody else gives up: the watchdog of a client.
pub(crate) trait Caretaker: Send + Sync {
    fn now(&self) -> Moment;

    /// Gives up a hold whose last user never began. Does no I/O, logs nothing and runs no code of
    /// the user.
    fn give_up(&self, hold: &Arc<StoreHold>);
}

pub(super) struct Users {
    /// Those that have guards, even if they are lost.
    pub(super) tenures: SmallVec<[Arc<Tenure>; 1]>,
    /// How many users it is kept for in the store: tenures that have not left, and
    /// [admissions](crate::lease::store_hold::Admission) that have not become tenures yet. At zero
    /// the last has left, and nobody else is admitted.
    pub(super) members: u32,
    /// Until when other readers may join.
    pub(super) open_until: Moment,
    /// How many tenures there have been.
    pub(super) turns: u32,
    /// The fencing token of the last of them; 0 for none.
    pub(super) token: u64,
    /// How many tokens are left for later tenures; `None`: it does not pass on.
    pub(super) spare_tokens: Option<u32>,
    /// Why the last renewal failed; `None` if it did not. Guarded together with the tenures,
    /// because those present when it is set are notified.
    pub(super) failed: Option<Error>,
}

pub(crate) struct Tenure {
    pub(crate) store_hold: Arc<StoreHold>,
    pub(crate) user: User,
    /// The thread that took it.
    pub(crate) thread: Thread,
    /// The fencing token; 0 for none.
    pub(crate) token: u64,
    /// When its user got it; for the first tenure of a hold, when the hold was asked for.
    pub(crate) since: Moment,
    /// Its own state, and its end if others outlast it.
    pub(super) own: Lease,
    /// How many guards of each side there are, reads in the upper half. Sent to the server, never
    /// read from it. Changed only by the one thread that the tenure, or its single owned guard,
    /// belongs to.
    pub(super) counts: AtomicU64,
    pub(super) marks: EndMarks,
    /// Made when it is first needed, because few tenures need it.
    pub(super) listeners: Mutex<Option<Box<Listeners>>>,
    pub(super) ended: Condvar,
}

/// Who uses a tenure, and on which terms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct User {
    pub(crate) owner: Owner,
    /// Whether calls on its thread may re-enter it.
    pub(crate) reentrant: bool,
    pub(crate) max_hold: Option<Duration>,
}

/// Who a tenure belongs to in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Re-entered by calls on this thread.
    Thread(ThreadId),
    /// One owned guard; never re-entered.
    Guard,
}

/// The side of a hold to which the level of a guard belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The lock; for a read-write lock, its write side.
    Main,
    /// The read side of a read-write lock.
    Read,
}

/// The watchdog does not visit the hold.
pub(super) const NOT_SCHEDULED: u64 = u64::MAX;

/// What the watchdog knows of its visits to a hold.
#[derive(Debug)]
pub(super) struct Visits {
    /// When the next one is, in nanoseconds, or [`NOT_SCHEDULED`]. Changed only under the mutex of
    /// the watchdog's table.
    pub(super) due: AtomicU64,
    /// When the renewal was sent that has not been answered, in nanoseconds; 0 for none.
    pub(super) sent: AtomicU64,
    /// Whether others ask for the lock; `None` for a hold without data.
    pub(super) asked_for: Option<Box<AskedFor>>,
}
