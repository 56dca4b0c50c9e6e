//! Where leases live. The code above calls a [`LockStore`] and gets typed outcomes.
//!
//! These types mean the same in every store: a name, a holder, a lease, a fencing token. Only the
//! store itself can read two of them: the [spelling](crate::base::lock_name::LockName::spelling) of
//! a name, and [`UnknownOutcomes`]. What only some stores can do is a capability, which is
//! requested when a handle is made.

mod capabilities;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod database;
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql", feature = "zookeeper"))]
mod findings;
mod jobs;
mod listing;
pub(crate) mod memory;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql", feature = "zookeeper"))]
pub(crate) mod net;
mod owners;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "redlock")]
pub(crate) mod redlock;
mod requests;
mod resolve;
pub(crate) mod schemes;
#[cfg(feature = "tls-core")]
pub(crate) mod tls;
mod topics;
mod wake_ups;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;

pub(crate) use capabilities::{
    AcquireAll, AcquiredAll, Count, CountAnswer, CountStore, DataStore, FenceAnswer,
    FenceStatements, FenceStore, LastHold, MultiStore, Part, QueueStore, REMEMBERED, Rate,
    RateChange, RateStore, has, out_of_range,
};
pub(crate) use jobs::{AttemptEnd, BeginJob, EndJob, JobState, JobStore, NEWEST_KEPT};
pub(crate) use listing::{Found, FoundHolder, FoundWaiter, ListingStore, MOST_LISTED, NameFilter};
pub(crate) use owners::{Announced, LockStatus, MOST_CLIENTS, OwnerStore};
pub(crate) use requests::{
    Acquire, Acquired, Granted, HandedOver, HoldCounts, NextUp, Release, Released, Renewal,
    Renewed, Spent, TokenRule, Undo, UnknownOutcomes, Waiting,
};
pub(crate) use wake_ups::{Received, Subscriber, SubscriptionSender, Topic};

use crate::base::error::Error;
use crate::base::error::ErrorKind;
use crate::base::error::Result;
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::lock_name::LockName;
use crate::base::node_status::NodeStatus;
use crate::report::diagnosis::Finding;
use std::any::Any;
use std::time::Duration;

/// Extends holds one after the other. After a failure the others are not asked for, because each of
/// them could wait in vain as well.
#[cfg(any(feature = "redis", feature = "mysql"))]
pub(crate) fn each_until_failure(
    renewals: &[Renewal],
    extend: impl Fn(&Renewal) -> Result<Renewed>,
) -> Vec<Renewed> {
    let mut failed = None;
    let outcome = |one| {
        let outcome = failed.clone().map_or_else(|| extend(one), Err);
        outcome.unwrap_or_else(|error: Error| Renewed::Failed(failed.insert(error).clone()))
    };
    renewals.iter().map(outcome).collect()
}

/// What a diagnosis needs to know about the client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Diagnose<'a> {
    pub(crate) lease: Duration,
    pub(crate) key_prefix: &'a str,
}

/// What guards, watchdog and wait loop need from the place where leases live.
///
/// A call takes one round trip. If it fails, it adds the requests that may have run to `unknowns`.
/// A call with earlier `unknowns` first makes sure that those requests can no longer run. Every
/// request may be repeated with the same holder, except an acquire for which the store had to take
/// a grant back: it reports that by [`UnknownOutcomes::spend`], and the next acquire has another
/// holder.
///
/// A store with one lease per hold renews every hold of a batch. A store whose holds share a
/// session keeps the session alive by itself, and only reports which holds still exist.
pub(crate) trait LockStore: Any + Send + Sync + std::fmt::Debug {
    /// What kind of store it is, for the spans of a tracer: a word in lower case.
    #[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "only spans say it"))]
    fn kind(&self) -> &'static str;

    /// Whether the store has this kind of lock and can hold this name; no I/O.
    fn check(&self, name: &LockName) -> Result<()>;

    /// Whether a lease can be as long as this, of a hold that is entered once more or extended; no
    /// I/O. An acquire is checked by the store.
    fn check_lease(&self, _lease: Duration) -> Result<()> {
        Ok(())
    }

    /// Whether a lock can be [kept](Release::kept_until) for this long; no I/O.
    fn check_min_hold(&self, _least: Duration) -> Result<()> {
        Ok(())
    }

    fn acquire(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired>;

    fn release(&self, release: &Release<'_>, unknowns: &mut UnknownOutcomes) -> Result<Released>;

    /// This client does nothing more for the hold, which stays in the store; no I/O.
    fn forget(&self, _name: &LockName, _holder: &Holder) {}

    /// Releases the last hold count and acquires the lock for `next`, in one round trip: a
    /// hand-over between two threads of this client. `None` if that is not possible now; nothing
    /// was sent.
    fn hand_over(
        &self,
        release: &Release<'_>,
        next: &Acquire<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Option<HandedOver>;

    /// Whether every waiter has a place in a queue in the store, whatever it waits for. Then each
    /// waiter with a place sends its own requests: if it slept behind another thread of this
    /// client, its place could keep out that thread for ever.
    fn queues_all(&self) -> bool {
        false
    }

    /// The lease that the store has granted the whole client, if holds share one.
    fn shared_lease(&self) -> Option<Duration> {
        None
    }

    /// Whether a plain lock may pass from one thread of this client to another without a request.
    /// The holder stays the same. False for a store whose renewals may take a hold anew after its
    /// release: to undo that would end the turn of the next thread.
    fn passes_on(&self) -> bool {
        true
    }

    /// Whether a waiter has the lock as soon as it hears of its [grant](Received::Granted). False
    /// for a store in which a grant counts only once others have it as well: the waiter asks for
    /// it.
    fn trusts_grants(&self) -> bool {
        true
    }

    /// Called in the background, beside calls of locks. One outcome for each hold, in order.
    fn renew(&self, batch: &[Renewal]) -> Vec<Renewed>;

    /// Called in the background: performs the first few undos, and keeps those that are not done.
    fn resolve(&self, undos: &mut Vec<Undo>);

    /// Extends holds at the caller's request, all of one kind, with or without data. One outcome
    /// for each hold, in order: what is known of one is not lost with the answer about another.
    fn extend(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>>;

    fn inspect(&self, name: &LockName) -> Result<Option<LockStatus>>;

    /// Frees the lock, whoever holds it; false if it was free. Never repeated: a repeat could take
    /// the lock from the next holder.
    fn force_unlock(&self, name: &LockName) -> Result<bool>;

    /// Opens a subscription to releases. A read waits for at most `read_timeout`.
    fn subscribe(
        &self,
        read_timeout: Duration,
    ) -> Result<(Box<dyn Subscriber>, Box<dyn SubscriptionSender>)>;

    /// Whether the number of listeners that a release returns includes this client, if it is
    /// subscribed.
    fn counts_own_listener(&self) -> bool {
        true
    }

    /// How many messages one release causes.
    fn messages_per_release(&self) -> u64 {
        1
    }

    /// Called in the background, for work that no caller waits for, such as reconnecting to servers
    /// that were down. Returns when to call it again; `None` if never.
    fn maintain(&self) -> Option<Moment> {
        None
    }

    /// How often the holds have moved to a server that may have older leases of them (a failover):
    /// after each move all of them are renewed at once. No I/O.
    fn moves(&self) -> u64 {
        0
    }

    /// Called once. From then on the store calls `told`, on a thread of its own or in
    /// [`maintain`](Self::maintain), when it learns that a hold is gone, or may be missing at one
    /// of its servers: all holds are then visited at once.
    fn tell_losses(&self, _told: Box<dyn Fn() + Send + Sync>) {}

    /// The state of each server, as far as it is known.
    fn nodes(&self) -> Vec<NodeStatus>;

    /// What the store can find out about each server, for operators. Takes at most ten I/O
    /// timeouts, and three more where the servers have to be found first. Changes nothing there.
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

    /// Rate limiters. A store without them refuses their handles by [`check`](Self::check).
    fn rates(&self) -> Result<&dyn RateStore> {
        Err(Error::new(ErrorKind::Unsupported, NO_RATES))
    }

    /// Data beside the holds of mutexes and fair locks.
    fn data(&self) -> Result<&dyn DataStore>;

    /// Scheduled jobs.
    fn jobs(&self) -> Result<&dyn JobStore>;

    /// Values that reject stale holders.
    fn fence(&self) -> Result<&dyn FenceStore>;

    /// The statements with which a transaction of the user is fenced, where the locks live in the
    /// user's own database. A store that keeps something for each fenced name makes it first.
    fn fence_statements(&self, _name: &LockName) -> Result<FenceStatements> {
        Err(Error::new(ErrorKind::Unsupported, NO_TRANSACTIONS))
    }

    /// Lists what is in the store, for people.
    fn listing(&self) -> &dyn ListingStore;

    /// Where clients announce their owner, apart from their holds.
    fn owners(&self) -> Option<&dyn OwnerStore> {
        None
    }

    /// Ends all connections; later calls fail with `Closed`.
    fn close(&self);
}

const NO_TRANSACTIONS: &str = "these locks are not in a database, so no transaction can be fenced by them; compare the \
                               fencing token at the resource, see the module fencing";

/// Why a store refuses a rate limiter.
pub(crate) const NO_RATES: &str = "rate limiters are kept on Redis (one server, behind sentinels, a cluster) or in memory; use a \
                                   client for one of these";
