//! Where leases live. The code above calls a [`LockStore`] and gets typed outcomes.
//!
//! These types mean the same in every store: a name, a holder, a lease, a fencing token. Two of
//! them only the store can read: the [spelling](crate::base::lock_name::LockName::spelling) of a
//! name, and [`UnknownOutcomes`]. What only some stores can do is a capability, which is requested
//! when a handle is made.

mod capabilities;
mod findings;
mod listing;
pub(crate) mod memory;
mod net;
mod owners;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod redlock;
mod resolve;
#[cfg(feature = "tls")]
pub(crate) mod tls;
mod unknown_outcomes;
mod wake_ups;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;

pub(crate) use capabilities::{
    AcquireAll, AcquiredAll, Count, CountAnswer, CountStore, FenceAnswer, FenceStatements, FenceStore, MultiStore,
    Part, QueueStore,
};
pub(crate) use findings::Diagnose;
pub(crate) use listing::{Found, FoundHolder, FoundWaiter, ListingStore, MOST_LISTED, Wanted};
pub(crate) use owners::{Announced, LockStatus, OwnerStore};
pub(crate) use unknown_outcomes::UnknownOutcomes;
pub(crate) use wake_ups::{Received, Subscriber, SubscriptionSender, Topic};

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::base::diagnosis::Finding;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lease::{Moment, SessionTerm};
use crate::base::limits::{IDEMPOTENCY_TTL, TAKEN_TTL};
use crate::base::lock_name::{Kind, LockName};
use crate::base::node_status::NodeStatus;

/// Whether a grant comes with a fencing token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenRule {
    Off,
    On,
    /// With a token, and the store must never forget the counter, because others rely on it.
    Kept,
}

/// Whether the caller tries again if the lock is busy: the store may then enqueue it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    No,
    Yes,
    /// It was enqueued before. If its wait marker is gone, its place in the queue is still its own.
    Again,
}

/// One acquisition, outermost (`held` = 0) or re-entrant.
#[derive(Debug, Clone)]
pub(crate) struct Acquire<'a> {
    pub(crate) name: &'a Arc<LockName>,
    pub(crate) holder: &'a Holder,
    /// Of a semaphore; 1 for all other kinds.
    pub(crate) permits: u32,
    pub(crate) lease: Duration,
    /// The hold count before this acquisition. The store sets the count rather than increments it,
    /// so that a repeated request changes nothing more.
    pub(crate) held: u32,
    pub(crate) token: TokenRule,
    /// How many fencing tokens in a row it draws, 1 or more: the first is granted, and the others
    /// are for the turns of other threads at the same hold. Only a plain lock may draw more than 1.
    pub(crate) tokens: u32,
    pub(crate) waiting: Waiting,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Granted {
    /// 0 if there is none; of several, the first.
    pub(crate) token: u64,
    /// When the lease began: the instant before the request was sent.
    pub(crate) sent_at: Moment,
    /// In a store whose holds share a session, the one that the hold ends with.
    pub(crate) session: Option<Arc<SessionTerm>>,
    /// The holder at the front of the queue, if the store has one: a hint.
    pub(crate) next: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    Granted(Granted),
    /// Held by another for up to `ttl`; `None` if that is unlimited or unknown.
    Busy {
        ttl: Option<Duration>,
    },
    /// The holder held it before, and has lost it.
    Gone,
    /// The semaphore has only `permits` permits in all, fewer than were requested.
    TooFew {
        permits: u64,
    },
}

/// How often a holder holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HoldCounts {
    /// Of a read-write lock, the write holds; of all others, the holds.
    pub(crate) main: u32,
    /// Of a read-write lock, the read holds.
    pub(crate) reads: u32,
}

impl HoldCounts {
    pub(crate) const NONE: Self = Self { main: 0, reads: 0 };
}

/// Reduces a hold to the counts in `left`. With none left, a waiter also leaves the queue.
#[derive(Debug, Clone)]
pub(crate) struct Release<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) holder: &'a Holder,
    /// As many as were acquired.
    pub(crate) permits: u32,
    pub(crate) left: HoldCounts,
    /// Whether it is known to be granted; otherwise it may have been, or may still be.
    pub(crate) granted: bool,
    /// With no counts left: the lock stays taken until then, and ends by itself. Under the
    /// holder's [kept](Holder::kept) id, so that a request of the holder that runs late finds
    /// nothing. Waiters are told as of a lock that was freed, because they may sleep for longer. A
    /// repeat never puts the end off. The answer is [`StillHeld`](Released::StillHeld).
    pub(crate) kept_until: Option<Moment>,
}

impl Release<'_> {
    /// For how long from now the lock stays taken; `None`: it is freed. The clock is read only for
    /// one that may stay: most do not.
    pub(crate) fn keeps_for(&self, now: impl FnOnce() -> Moment) -> Option<Duration> {
        let left = self.kept_until.filter(|_| self.left == HoldCounts::NONE)?.since(now());
        (!left.is_zero()).then_some(left)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// The holder does not hold the lock.
    NotHeld,
    /// The holder still holds it, or other readers do, or it is [kept](Release::kept_until).
    StillHeld,
    /// Freed. `listeners`: how many subscribers got the message, if the store can count them.
    /// `next`: the waiter at the front of the queue, if the store has one.
    Freed { listeners: Option<u64>, next: Option<String> },
}

/// The two outcomes of a hand-over. `unknowns` are those of the acquisition.
#[derive(Debug)]
pub(crate) struct HandedOver {
    pub(crate) released: Result<Released>,
    pub(crate) acquired: Result<Acquired>,
    pub(crate) unknowns: UnknownOutcomes,
}

/// A hold to be renewed, or only checked.
#[derive(Debug, Clone)]
pub(crate) struct Renewal {
    pub(crate) name: Arc<LockName>,
    pub(crate) holder: Holder,
    pub(crate) permits: u32,
    /// Zero only checks whether the hold is still there.
    pub(crate) lease: Duration,
    /// The fencing token of the hold; 0 if it has none.
    pub(crate) token: u64,
}

#[derive(Debug)]
pub(crate) enum Renewed {
    /// `again`: the hold was missing on some server and was taken anew there. If it was released
    /// meanwhile, that must be undone. `beside`: holders of another library share the lock, and may
    /// shorten its lease to this at any time from now on.
    Held {
        sent_at: Moment,
        again: bool,
        beside: Option<Duration>,
    },
    Gone,
    Failed(Error),
}

/// A hold that may exist although nobody uses it. The store reduces it to `left` (mostly nothing)
/// once none of the requests in `unknowns` can run any more.
#[derive(Debug, Clone)]
pub(crate) struct Undo {
    pub(crate) name: Arc<LockName>,
    pub(crate) holder: Holder,
    pub(crate) permits: u32,
    pub(crate) left: HoldCounts,
    /// Whether it is known to be granted.
    pub(crate) granted: bool,
    pub(crate) unknowns: UnknownOutcomes,
    /// When the lease ends by itself, unless a request runs late. For permits without leases: when
    /// a repeat could begin to return them twice.
    pub(crate) expires: Moment,
    /// As in [`Release`].
    pub(crate) kept_until: Option<Moment>,
}

/// How long a request that returns permits without leases may be repeated after it may have run:
/// half the TTL of its idempotency key, because the last repeat may be slow.
const REPEATED: Duration = Duration::from_nanos(IDEMPOTENCY_TTL.as_nanos() as u64 / 2);

impl Undo {
    /// Returns permits without leases. It does not expire until a request for it may have run.
    pub(crate) fn of_permits(
        name: Arc<LockName>,
        holder: Holder,
        permits: u32,
        unknowns: UnknownOutcomes,
        asked_at: Moment,
    ) -> Self {
        let never = Moment::from_nanos(u64::MAX);
        let expires = if unknowns.is_empty() { never } else { asked_at.plus(REPEATED) };
        Self { name, holder, permits, left: HoldCounts::NONE, granted: true, unknowns, expires, kept_until: None }
    }

    pub(crate) fn release(&self) -> Release<'_> {
        let Self { name, holder, permits, left, granted, kept_until, .. } = self;
        let (permits, left, granted, kept_until) = (*permits, *left, *granted, *kept_until);
        Release { name, holder, permits, left, granted, kept_until }
    }

    /// A request that was sent at `asked_at` may have run.
    pub(crate) fn note_possible_run(&mut self, asked_at: Moment) {
        if self.permits_without_lease().is_some() {
            self.expires = self.expires.min(asked_at.plus(REPEATED));
        }
    }

    /// The store refused it at `asked_at`. That may last: a full store, another type of value under
    /// the name.
    pub(crate) fn note_refusal(&mut self, asked_at: Moment) {
        self.unknowns.clear();
        if self.permits_without_lease().is_some() {
            self.expires = self.expires.min(asked_at.plus(TAKEN_TTL));
        }
    }

    /// How many permits without leases it returns. Without this undo they would be lost.
    pub(crate) fn permits_without_lease(&self) -> Option<u32> {
        (self.name.kind == Kind::CountingSemaphore && self.granted).then_some(self.permits)
    }

    /// Called when the undo is given up, without any mutex held.
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

/// What guards, watchdog and wait loop need of the place where leases live.
///
/// A call takes one round trip. If it fails, it adds the requests that may have run to `unknowns`.
/// A call with earlier `unknowns` first makes sure that those requests can no longer run. Every
/// request may be repeated with the same holder.
///
/// A store with one lease for each hold renews every hold of a batch. A store whose holds share a
/// session keeps the session alive by itself, and only says which holds are still there.
pub(crate) trait LockStore: Any + Send + Sync + std::fmt::Debug {
    /// Whether the store has this kind of lock and can hold this name; no I/O.
    fn check(&self, name: &LockName) -> Result<()>;

    /// Whether a lock can be [kept](Release::kept_until) for this long; no I/O.
    fn check_min_hold(&self, _least: Duration) -> Result<()> {
        Ok(())
    }

    fn acquire(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired>;

    fn release(&self, release: &Release<'_>, unknowns: &mut UnknownOutcomes) -> Result<Released>;

    /// Releases the last hold count and acquires the lock for `next`, in one round trip: from one
    /// thread of this client to another. `None` if that is not possible now; nothing was sent.
    fn hand_over(
        &self,
        release: &Release<'_>,
        next: &Acquire<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Option<HandedOver>;

    /// Whether every waiter has a place in a queue in the store, whatever it waits for. Then each
    /// that has one asks for itself: if it slept behind another thread of this client, its place
    /// could keep out that thread, for ever.
    fn queues_all(&self) -> bool {
        false
    }

    /// The lease that the store has granted the whole client, if holds share one.
    fn shared_lease(&self) -> Option<Duration> {
        None
    }

    /// Whether the hold of a plain lock may pass from one thread of this client to another without
    /// a request, under the same holder. Not where a renewal may take a hold anew after its
    /// release: undoing that would end the turn of the next thread.
    fn passes_on(&self) -> bool {
        true
    }

    /// Called in the background, beside calls of locks. One outcome for each hold, in order.
    fn renew(&self, batch: &[Renewal]) -> Vec<Renewed>;

    /// Called in the background: performs the first few undos, and keeps those that are not done.
    fn resolve(&self, undos: &mut Vec<Undo>);

    /// Extends holds of one kind at the caller's request. One outcome for each hold, in order.
    fn extend(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>>;

    fn inspect(&self, name: &LockName) -> Result<Option<LockStatus>>;

    /// Frees the lock, whoever holds it; false if it was free. Never repeated: a repeat could take
    /// the lock from the next holder.
    fn force_unlock(&self, name: &LockName) -> Result<bool>;

    /// Opens a subscription to releases. A read waits for at most `read_timeout`.
    fn subscribe(&self, read_timeout: Duration) -> Result<(Box<dyn Subscriber>, Box<dyn SubscriptionSender>)>;

    /// Whether the listeners that a release tells of include this client, if it is subscribed.
    fn counts_own_listener(&self) -> bool {
        true
    }

    /// How many messages one release causes.
    fn messages_per_release(&self) -> u64 {
        1
    }

    /// Called in the background, for work that no caller waits for, such as reaching servers that
    /// were down. Returns when to call it again; `None` if never.
    fn maintain(&self) -> Option<Moment> {
        None
    }

    /// How often the holds have come to a server that may have older leases of them (a failover):
    /// then all of them are renewed at once. No I/O.
    fn moves(&self) -> u64 {
        0
    }

    /// The state of each server, as far as it is known.
    fn nodes(&self) -> Vec<NodeStatus>;

    /// What there is to say of each server, for operators. Takes ten I/O timeouts at most, and
    /// three more where the servers have to be found first. Changes nothing there.
    fn diagnose(&self, asked: &Diagnose<'_>) -> Vec<Finding>;

    /// How many grants needed a second round for their fencing token.
    fn token_rounds(&self) -> u64 {
        0
    }

    /// Multi-locks: several plain locks as one.
    fn multi(&self) -> Result<&dyn MultiStore>;

    /// The queue of fair locks.
    fn queue(&self) -> Result<&dyn QueueStore>;

    /// Latches, and the number of a semaphore's permits.
    fn counts(&self) -> Result<&dyn CountStore>;

    /// Values that reject stale holders.
    fn fence(&self) -> Result<&dyn FenceStore>;

    /// The statements with which a transaction of the user is fenced, where the locks live in the
    /// user's own database.
    fn fence_statements(&self) -> Result<FenceStatements> {
        Err(Error::new(ErrorKind::Unsupported, NO_TRANSACTIONS))
    }

    /// What stands in the store, for people.
    fn listing(&self) -> &dyn ListingStore;

    /// Where clients say who they are, apart from their holds.
    fn owners(&self) -> Option<&dyn OwnerStore> {
        None
    }

    /// Ends all connections; later calls fail with `Closed`.
    fn close(&self);
}

const NO_TRANSACTIONS: &str = "these locks are not in a database, so no transaction can be fenced by them; compare the \
                               fencing token at the resource, see the module fencing";
