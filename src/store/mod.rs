//! Where leases live. Everything above asks a [`LockStore`] and gets typed outcomes, never a reply.
//!
//! What stands in these types means the same in every store: a name, a holder, a lease, a fencing token. What only one
//! store understands is opaque here: the [spelling](crate::base::lock_name::LockName::spelling) of a name, and
//! [`UnknownOutcomes`]. What not every store can do is a capability that is asked for when a handle is made.

pub(crate) mod memory;
pub(crate) mod redis;
pub(crate) mod redlock;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::limits::{IDEMPOTENCY_TTL, TAKEN_TTL};
use crate::base::lock_name::{Kind, LockName};
use crate::base::node_status::NodeStatus;

/// Whether a grant comes with a fencing token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenRule {
    Off,
    On,
    /// And the store must never forget the counter, because others rely on it.
    Kept,
}

/// Whether whoever asks will ask again if it is busy: the store may note that it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    No,
    Yes,
    /// It was noted before: if the note is gone, the place in the queue belongs to it all the same.
    Again,
}

/// One acquisition, outermost (`held` = 0) or one more of a hold.
#[derive(Debug, Clone)]
pub(crate) struct Acquire<'a> {
    pub(crate) name: &'a Arc<LockName>,
    pub(crate) holder: &'a Holder,
    /// Of a semaphore; 1 for all others.
    pub(crate) permits: u32,
    pub(crate) lease: Duration,
    /// The hold count now. It is told, so that a store can set it, and a repeated request changes nothing more.
    pub(crate) held: u32,
    pub(crate) token: TokenRule,
    pub(crate) waiting: Waiting,
}

/// What a holder was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Granted {
    /// 0 for none.
    pub(crate) token: u64,
    /// The lease counts from here: the instant before the request went out; in a store whose holds share one session, the
    /// instant from which the session is known to live.
    pub(crate) sent_at: Moment,
    /// The holder whose turn is next, where the store has a queue: a hint.
    pub(crate) next: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    Granted(Granted),
    /// Held by another, for `ttl` still; `None`: for ever, or nobody knows.
    Busy {
        ttl: Option<Duration>,
    },
    /// The holder had it and has lost it.
    Gone,
    /// More permits than there are in all.
    TooFew {
        permits: u64,
    },
}

/// How often a holder holds: what stands, or what a release leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HoldCounts {
    /// Of the lock itself; of a read-write lock, for writing.
    pub(crate) main: u32,
    /// Of a read-write lock, for reading.
    pub(crate) reads: u32,
}

impl HoldCounts {
    pub(crate) const NONE: Self = Self { main: 0, reads: 0 };
}

/// Leaves a hold with the counts of `left`; with none, a holder that only waited leaves as well.
#[derive(Debug, Clone)]
pub(crate) struct Release<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) holder: &'a Holder,
    /// As it was acquired.
    pub(crate) permits: u32,
    pub(crate) left: HoldCounts,
    /// It was granted for certain; else it may have been, or may still be.
    pub(crate) granted: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// The hold was not there.
    NotHeld,
    /// The holder still holds, or other readers do.
    StillHeld,
    /// Freed. `listeners`: how many subscribers the message reached, where the store can count them; `next`: the waiter
    /// whose turn it is, where the store has a queue.
    Freed { listeners: Option<u64>, next: Option<String> },
}

/// The two outcomes of a hand-over; the unknown outcomes are the next holder's.
#[derive(Debug)]
pub(crate) struct HandedOver {
    pub(crate) released: Result<Released>,
    pub(crate) acquired: Result<Acquired>,
    pub(crate) unknowns: UnknownOutcomes,
}

/// A hold to be renewed, or looked after.
#[derive(Debug, Clone)]
pub(crate) struct Renewal {
    pub(crate) name: Arc<LockName>,
    pub(crate) holder: Holder,
    pub(crate) permits: u32,
    /// Zero only asks whether the hold is still there.
    pub(crate) lease: Duration,
    /// The hold's fencing token, 0 for none.
    pub(crate) token: u64,
}

#[derive(Debug)]
pub(crate) enum Renewed {
    /// `again`: where it was missing it has been put again, so if it was given up meanwhile it must be undone there.
    /// `beside`: others that are not of this crate share the lock, and may cut it to this any time from now on.
    Held {
        sent_at: Moment,
        again: bool,
        beside: Option<Duration>,
    },
    Gone,
    Failed(Error),
}

/// Requests of one call that may have run, or may still run, because no reply came. Only the store that left it here can
/// read it; an empty one says that nothing is unknown.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnknownOutcomes(Option<Arc<dyn Any + Send + Sync>>);

impl UnknownOutcomes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    pub(crate) fn set<T: Any + Send + Sync>(&mut self, unknown: T) {
        self.0 = Some(Arc::new(unknown));
    }

    pub(crate) fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.downcast_ref()
    }
}

/// A hold that must not stand as it may stand now: it is cut down to what shall be left of it (mostly nothing) once none
/// of the requests whose outcome is unknown can run any more.
#[derive(Debug, Clone)]
pub(crate) struct Undo {
    pub(crate) name: Arc<LockName>,
    pub(crate) holder: Holder,
    pub(crate) permits: u32,
    pub(crate) left: HoldCounts,
    /// It was granted for certain.
    pub(crate) granted: bool,
    pub(crate) unknowns: UnknownOutcomes,
    /// From here on the lease has ended by itself, if no request runs late. Of permits without leases: from here on a
    /// repeat could give them back twice.
    pub(crate) expires: Moment,
}

/// How long permits without leases may be given back anew once a request for it may have run: for half the time that its
/// idempotency key is kept, because the last repeat may be slow.
const REPEATED: Duration = Duration::from_nanos(IDEMPOTENCY_TTL.as_nanos() as u64 / 2);

impl Undo {
    /// Gives back permits that have no lease: no time ends it, until a request that may have run makes repeats a risk.
    pub(crate) fn of_permits(
        name: Arc<LockName>,
        holder: Holder,
        permits: u32,
        unknowns: UnknownOutcomes,
        asked_at: Moment,
    ) -> Self {
        let never = Moment::from_nanos(u64::MAX);
        let expires = if unknowns.is_empty() { never } else { asked_at.plus(REPEATED) };
        Self { name, holder, permits, left: HoldCounts::NONE, granted: true, unknowns, expires }
    }

    pub(crate) fn release(&self) -> Release<'_> {
        let Self { name, holder, permits, left, granted, .. } = self;
        Release { name, holder, permits: *permits, left: *left, granted: *granted }
    }

    /// A request that was sent at `asked_at` may have run.
    pub(crate) fn may_have_run(&mut self, asked_at: Moment) {
        if self.permits_without_lease().is_some() {
            self.expires = self.expires.min(asked_at.plus(REPEATED));
        }
    }

    /// The store refused it at `asked_at`: it may be full, or something else stands under the name for good.
    pub(crate) fn was_refused(&mut self, asked_at: Moment) {
        self.unknowns.clear();
        if self.permits_without_lease().is_some() {
            self.expires = self.expires.min(asked_at.plus(TAKEN_TTL));
        }
    }

    /// How many permits without leases it gives back: nothing else would.
    pub(crate) fn permits_without_lease(&self) -> Option<u32> {
        (self.name.kind == Kind::CountingSemaphore && self.granted).then_some(self.permits)
    }

    /// It is given up. To be called without any mutex.
    pub(crate) fn warn_of_a_leak(&self) {
        if let Some(what) = self.leak() {
            log::warn!("{what}");
        }
    }

    pub(crate) fn leak(&self) -> Option<String> {
        let (permits, name) = (self.permits_without_lease()?, &self.name.name);
        Some(format!(
            "{permits} permits of the counting semaphore {name:?} could not be given back for certain, and this is not \
             tried again: if it has too few from now on, put them back with add_permits({permits})"
        ))
    }
}

/// What stands under a lock's name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LockStatus {
    /// `None`: the lock would never expire.
    pub(crate) ttl: Option<Duration>,
    /// Each holder id with its hold count.
    pub(crate) holders: Vec<(String, u64)>,
}

/// What a waiter waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Topic {
    pub(crate) kind: Kind,
    pub(crate) key: Arc<str>,
    /// That it is this holder's turn, of a lock whose queue is in the store; else that something under the name came free.
    pub(crate) turn_of: Option<Arc<str>>,
}

impl Topic {
    pub(crate) fn freed(name: &LockName) -> Self {
        // Readers and writers wait for each other.
        let kind = if name.kind == Kind::Read { Kind::Write } else { name.kind };
        Self { kind, key: name.key.clone(), turn_of: None }
    }

    pub(crate) fn turn(name: &LockName, holder: &str) -> Self {
        Self { kind: name.kind, key: name.key.clone(), turn_of: Some(holder.into()) }
    }
}

/// What the receiving half of a subscription brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Perhaps it is worth trying again: a hint, never a grant.
    Notified(Vec<Topic>),
    /// From here on nothing that happens to these is missed.
    Watching(Vec<Topic>),
    /// Anything else that shows that the store is there.
    Alive,
    /// Nothing within the read timeout.
    Timeout,
}

/// The half that one thread reads. Any error ends both halves.
pub(crate) trait Subscriber: Send {
    fn receive(&mut self) -> Result<Received>;
}

/// The half by which anybody says what is waited for; used under a mutex. It never waits for an answer.
pub(crate) trait SubscriptionSender: Send {
    /// True: its messages are received already.
    fn watch(&mut self, topics: &[&Topic]) -> Result<bool>;

    fn unwatch(&mut self, topic: &Topic) -> Result<()>;

    /// Whether messages of the topic would be received although nobody watches it yet.
    fn covers(&self, _topic: &Topic) -> bool {
        false
    }

    /// Asks for a sign of life.
    fn ping(&mut self) -> Result<()>;

    /// From time to time.
    fn maintain(&mut self) -> Result<()> {
        Ok(())
    }

    /// Ends the read of the other half, too.
    fn close(&self);
}

/// What guards, watchdog and wait loop need from the place where leases live.
///
/// Every call is one round trip, or a failure that leaves what may have run in `unknowns`. A call that finds something
/// there makes sure first that it can no longer run. Every request may be repeated with the same holder.
///
/// A store with a lease for each hold renews each of a batch; one whose holds share a session keeps that alive, and answers
/// for all of them from when it is known to live.
pub(crate) trait LockStore: Any + Send + Sync + std::fmt::Debug {
    /// Whether the store has this kind of lock, and can hold the name. Asked when a handle is made; no I/O.
    fn check(&self, name: &LockName) -> Result<()>;

    fn acquire(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired>;

    fn release(&self, release: &Release<'_>, unknowns: &mut UnknownOutcomes) -> Result<Released>;

    /// Frees the lock (the last of a hold's counts) and tries it for `next`, in one round trip: a hand-over between two
    /// threads of this client. `None`: not now; nothing was sent.
    fn hand_over(
        &self,
        release: &Release<'_>,
        next: &Acquire<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Option<HandedOver>;

    /// In the background, apart from the calls of locks; one answer for each, in order.
    fn renew(&self, batch: &[Renewal]) -> Vec<Renewed>;

    /// In the background: tries to resolve the first few, and keeps those that are not done.
    fn resolve(&self, undos: &mut Vec<Undo>);

    /// Lengthens holds of one kind at the caller's request; one answer for each, in order.
    fn extend(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>>;

    fn inspect(&self, name: &LockName) -> Result<Option<LockStatus>>;

    /// Frees the lock whoever holds it; false when it was free. Sent once: a repeat could force out the next holder.
    fn force_unlock(&self, name: &LockName) -> Result<bool>;

    /// A connection that brings the releases; reads of it wait for `read_timeout`.
    fn subscribe(&self, read_timeout: Duration) -> Result<(Box<dyn Subscriber>, Box<dyn SubscriptionSender>)>;

    /// How many messages one release brings.
    fn messages_per_release(&self) -> u64 {
        1
    }

    /// In the background: looks after what nobody waits for (servers that were down). When to be called again; `None`: never.
    fn maintain(&self) -> Option<Moment> {
        None
    }

    /// What is known of each server.
    fn nodes(&self) -> Vec<NodeStatus>;

    /// How many grants took a second round for their fencing token.
    fn token_rounds(&self) -> u64 {
        0
    }

    /// Several plain locks as one.
    fn multi(&self) -> Result<&dyn MultiStore>;

    /// The queue of fair locks.
    fn queue(&self) -> Result<&dyn QueueStore>;

    /// Latches, and the number of a semaphore's permits.
    fn counts(&self) -> Result<&dyn CountStore>;

    /// Values that refuse stale holders.
    fn fence(&self) -> Result<&dyn FenceStore>;

    /// Ends all connections; later calls fail with `Closed`.
    fn close(&self);
}

/// One of several locks that are taken as one, freshly (`held` = 0) or once more.
#[derive(Debug, Clone)]
pub(crate) struct Part<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) holder: &'a Holder,
    pub(crate) held: u32,
}

/// All of them or none.
#[derive(Debug, Clone)]
pub(crate) struct AcquireAll<'a> {
    pub(crate) parts: Vec<Part<'a>>,
    pub(crate) lease: Duration,
    pub(crate) token: TokenRule,
}

/// What became of several locks taken as one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AcquiredAll {
    /// All taken, on a request sent at this moment; one token each, 0 for a part that was held already.
    Granted { tokens: Vec<u64>, sent_at: Moment },
    /// None taken: the part at `at` is held by another, for `ttl` still; `None`: for ever, or nobody knows.
    Busy { at: usize, ttl: Option<Duration> },
    /// None taken: the holder had the part at `at` and has lost it.
    Gone { at: usize },
}

pub(crate) trait MultiStore {
    /// Takes several plain locks, all or none.
    fn acquire_all(&self, acquire: &AcquireAll<'_>, unknowns: &mut UnknownOutcomes) -> Result<AcquiredAll>;

    /// Leaves several holds of plain locks at once; one answer for each, in order.
    fn release_all(&self, releases: &[Release<'_>], unknowns: &mut UnknownOutcomes) -> Result<Vec<Result<Released>>>;
}

pub(crate) trait QueueStore {
    /// How long the queue of a fair lock is, and how many are before the first waiter of a client, if it has one.
    fn queue_of(&self, name: &LockName, client: &str) -> Result<(usize, Option<usize>)>;
}

/// A change of a count, which carries an id so that a repeat does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// Begins it, if there is none.
    Set(u32),
    /// More permits, or fewer.
    Add(i64),
    Down,
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CountAnswer {
    /// Whether anything was changed.
    pub(crate) done: bool,
    /// What stands after it.
    pub(crate) value: i64,
}

pub(crate) trait CountStore {
    /// Changes a count that nobody holds. `id`: the same for all repeats, which then change nothing more.
    fn count(&self, name: &LockName, change: Count, id: &str, unknowns: &mut UnknownOutcomes) -> Result<CountAnswer>;

    /// What is left of a count or free of the permits; and how many permits are held, of a latch when it was opened last.
    fn counted(&self, name: &LockName) -> Result<(i64, i64)>;
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FenceAnswer {
    /// The claim stands; for a claim, with the value that is there.
    Accepted(Option<Vec<u8>>),
    /// A newer claim stands (or, for a write, none does).
    Refused { standing: Option<u64> },
}

pub(crate) trait FenceStore {
    /// Whether a value may stand under this key.
    fn check_key(&self, key: &str) -> Result<()>;

    fn claim(&self, key: &str, token: u64) -> Result<FenceAnswer>;

    /// With the unknown outcomes of earlier writes of the same claim, which must not run after this one.
    fn write(&self, key: &str, token: u64, value: &[u8], unknowns: &mut UnknownOutcomes) -> Result<FenceAnswer>;
}
