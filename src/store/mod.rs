//! Where leases live. Everything above asks a [`LeaseStore`] and gets typed outcomes, never a reply.
//!
//! One Redis server is the first implementation, Redlock over several masters the second; both are under the same guards,
//! watchdog and wait loop.

pub(crate) mod redis;
pub(crate) mod redlock;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::redis::RedisStore;
pub(crate) use self::redlock::{QuarantineSettings, RedlockStore};
use crate::base::error::{Error, Result};
use crate::base::holder::Holder;
use crate::base::key::{Kind, LockKeys};
use crate::base::lease::Moment;
use crate::base::limits::{ONCE, TAKEN};
use crate::base::node_status::{NodeState, NodeStatus};
pub(crate) use crate::store::redis::script::{
    Acquire, AcquireAll, Count, CountAnswer, FenceAnswer, HoldCounts, Leaving, LockStatus, Part, TokenRule, Waiting,
};
pub(crate) use crate::store::redis::wire::{Received, Subscriber, SubscriptionSender, UnknownOutcome};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// Taken. The lease counts from `sent_at`, the instant before the request went out. `next`: who waits next for a
    /// fair lock.
    Granted { token: u64, sent_at: Moment, next: Option<String> },
    /// Held by another, for `ttl` still; `None`: for ever, or nobody knows.
    Busy { ttl: Option<Duration> },
    /// The holder had it and has lost it.
    Gone,
    /// More permits than there are in all.
    TooFew { permits: u64 },
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

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// The hold was not there.
    NotHeld,
    /// Levels stay, or other readers do.
    StillHeld,
    /// Freed. `listeners`: how many subscribers the message reached; `next`: the waiter of a fair lock whose turn it is.
    Freed { listeners: u64, next: Option<String> },
}

/// The two outcomes of a hand-over; the unknown outcomes of the second are the next holder's.
#[derive(Debug)]
pub(crate) struct HandedOver {
    pub(crate) released: Result<Released>,
    pub(crate) acquired: Result<Acquired>,
    pub(crate) unknowns: UnknownOutcomes,
}

#[derive(Debug, Clone)]
pub(crate) struct Renewal {
    pub(crate) keys: Arc<LockKeys>,
    pub(crate) holder: Holder,
    /// Zero only asks whether the hold is still there.
    pub(crate) lease: Duration,
    /// The hold's fencing token, 0 for none.
    pub(crate) token: u64,
}

#[derive(Debug)]
pub(crate) enum Renewed {
    /// `again`: where it was missing it has been put again, so if it was given up meanwhile it must be undone there.
    /// `beside`: others that are not of ours have a part in the lock, and may cut it to this any time from now on.
    Held {
        sent_at: Moment,
        again: bool,
        beside: Option<Duration>,
    },
    Gone,
    Failed(Error),
}

/// The requests of one call whose outcome is unknown, because their connection failed. Each can still run until it is
/// resolved: its connection killed at the server, the server process gone, or its not-after passed.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnknownOutcomes {
    requests: Vec<UnknownOutcome>,
    /// The masters of Redlock on which something may stand, by place. What keeps the order there is theirs.
    nodes: u64,
    /// Those of them that were sent the release right behind it, on the same connection: only its reply is owed.
    owed: u64,
}

impl UnknownOutcomes {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.nodes == 0
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn push(&mut self, unknown: UnknownOutcome) {
        self.requests.push(unknown);
    }

    fn iter(&self) -> impl Iterator<Item = &UnknownOutcome> {
        self.requests.iter()
    }
}

/// A hold that must not stand as it may stand now: it is cut down to what shall be left of it (mostly nothing) once
/// nothing of the requests in unknown outcome can run any more.
#[derive(Debug, Clone)]
pub(crate) struct Undo {
    pub(crate) keys: Arc<LockKeys>,
    pub(crate) holder: Holder,
    pub(crate) left: HoldCounts,
    pub(crate) unknowns: UnknownOutcomes,
    /// From here on the lease has ended by itself, if none of the unknown outcomes runs late. Of permits without leases: from here on
    /// a repeat could give them back twice.
    pub(crate) expires: Moment,
}

/// How long permits without leases may be given back anew once a request for it may have run: for half the time that its
/// mark is kept, because the last repeat may be slow.
const REPEATED: Duration = Duration::from_nanos(ONCE.as_nanos() as u64 / 2);

impl Undo {
    /// Gives back permits that have no lease: no time ends it, until a request that may have run makes repeats a risk.
    pub(crate) fn of_permits(keys: Arc<LockKeys>, holder: Holder, unknowns: UnknownOutcomes, asked_at: Moment) -> Self {
        let never = Moment::from_nanos(u64::MAX);
        let expires = if unknowns.is_empty() { never } else { asked_at.plus(REPEATED) };
        Self { keys, holder, left: HoldCounts::NONE, unknowns, expires }
    }

    /// A request that was sent at `asked_at` may have run.
    fn may_have_run(&mut self, asked_at: Moment) {
        if self.permits().is_some() {
            self.expires = self.expires.min(asked_at.plus(REPEATED));
        }
    }

    /// The server refused it at `asked_at`: it may be full, or something else stands under the name for good.
    fn was_refused(&mut self, asked_at: Moment) {
        self.unknowns.clear();
        if self.permits().is_some() {
            self.expires = self.expires.min(asked_at.plus(TAKEN));
        }
    }

    /// How many permits without leases it gives back: nothing else would.
    pub(crate) fn permits(&self) -> Option<u32> {
        match self.keys.kind {
            Kind::Counting { permits, taken: true } => Some(permits),
            _ => None,
        }
    }

    /// It is given up. To be called without any mutex.
    pub(crate) fn warn_of_a_leak(&self) {
        if let Some(what) = self.leak() {
            log::warn!("{what}");
        }
    }

    fn leak(&self) -> Option<String> {
        let (permits, name) = (self.permits()?, &self.keys.name);
        Some(format!(
            "{permits} permits of the counting semaphore {name:?} could not be given back for certain, and this is not \
             tried again: if it has too few from now on, put them back with add_permits({permits})"
        ))
    }
}

/// What guards, watchdog and wait loop need from the place where leases live.
///
/// Every call is one round trip, or a failure that leaves its unknown outcome in `unknowns`. A call that finds unknown outcomes there
/// settles them first, on a connection of its own and in the same write.
pub(crate) trait LeaseStore: Send + Sync + std::fmt::Debug {
    fn acquire(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired>;

    /// Leaves a hold with the levels of `left`; with none, a holder that only waited leaves as well.
    fn release(
        &self,
        keys: &LockKeys,
        holder: &Holder,
        left: HoldCounts,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Released>;

    /// Takes several plain locks, all or none.
    fn acquire_all(&self, acquire: &AcquireAll<'_>, unknowns: &mut UnknownOutcomes) -> Result<AcquiredAll>;

    /// Leaves several holds of plain locks at once; one answer for each, in order.
    fn release_all(&self, leaving: &[Leaving<'_>], unknowns: &mut UnknownOutcomes) -> Result<Vec<Result<Released>>>;

    /// Frees the lock (the last level of a hold) and tries it for `next`, in one write: a hand-over between two threads
    /// of this client. `None`: not now; nothing was sent.
    fn hand_over(
        &self,
        keys: &LockKeys,
        holder: &Holder,
        unknowns: &mut UnknownOutcomes,
        next: &Acquire<'_>,
    ) -> Option<HandedOver>;

    /// In the background, on a connection of its own; one answer for each, in order.
    fn renew(&self, batch: &[Renewal]) -> Vec<Renewed>;

    /// In the background: tries to resolve the first few, and keeps those that are not done.
    fn resolve(&self, undos: &mut Vec<Undo>);

    /// Lengthens holds of one kind at the caller's request, in the foreground; one answer for each, in order.
    fn extend(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>>;

    fn inspect(&self, keys: &LockKeys) -> Result<Option<LockStatus>>;

    /// Frees the lock whoever holds it; false when it was free. Sent once: a repeat could force out the next holder.
    fn force_unlock(&self, keys: &LockKeys) -> Result<bool>;

    /// How long the queue of a fair lock is, and how many are before the first waiter of a client, if it has one.
    fn queue(&self, keys: &LockKeys, client: &str) -> Result<(usize, Option<usize>)>;

    /// Changes a count that nobody holds. `id`: the same for all repeats, which then change nothing more.
    fn count(&self, keys: &LockKeys, change: Count, id: &str, unknowns: &mut UnknownOutcomes) -> Result<CountAnswer>;

    /// What is left of a count or free of the permits; and how many permits are held, of a latch when it was opened last.
    fn counted(&self, keys: &LockKeys) -> Result<(i64, i64)>;

    /// In the background: looks after what nobody waits for (servers that were down, or have no vote yet). When to be
    /// called again; `None`: never.
    fn maintain(&self) -> Option<Moment> {
        None
    }

    /// How many servers send each message.
    fn copies(&self) -> u64 {
        1
    }

    /// What is known of each server.
    fn nodes(&self) -> Vec<NodeStatus>;

    /// How many grants took a second round for their fencing token.
    fn token_rounds(&self) -> u64 {
        0
    }

    /// A connection that hears the releases: one half to read from, one to ask for channels with.
    fn listen(&self, read_timeout: Duration) -> Result<(Subscriber, SubscriptionSender)>;

    fn fence_claim(&self, key: &str, token: u64) -> Result<FenceAnswer>;

    /// With the unknown outcomes of earlier writes of the same claim, which must not run after this one.
    fn fence_write(&self, key: &str, token: u64, value: &[u8], unknowns: &mut UnknownOutcomes) -> Result<FenceAnswer>;

    /// Ends all connections; later calls fail with `Closed`.
    fn close(&self);
}
