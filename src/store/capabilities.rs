//! Capabilities of only some stores: locks that are acquired as one, queues, counts, rates, data
//! and fences.

use std::sync::Arc;
use std::time::Duration;

use crate::base::data::HoldData;
use crate::base::error::{Error, Result, invalid};
use crate::base::holder::Holder;
use crate::base::lease::{Moment, SessionTerm};
use crate::base::lock_name::LockName;
use crate::store::requests::UnknownOutcomes;
use crate::store::requests::{Release, Released, TokenRule};

/// The capabilities that a store implements itself, among the methods of its `LockStore`.
macro_rules! has {
    ($($method:ident: $capability:ident),+) => {$(
        fn $method(&self) -> Result<&dyn $capability> {
            Ok(self)
        }
    )+};
}
pub(crate) use has;

/// One of several locks that are acquired as one, outermost (`held` = 0) or re-entrant.
#[derive(Debug, Clone)]
pub(crate) struct Part<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) holder: &'a Holder,
    pub(crate) held: u32,
}

/// Acquires all parts, or none.
#[derive(Debug, Clone)]
pub(crate) struct AcquireAll<'a> {
    pub(crate) parts: Vec<Part<'a>>,
    pub(crate) lease: Duration,
    pub(crate) token: TokenRule,
    /// Whether the caller tries again if one of them is busy: the store may then enqueue it for
    /// each.
    pub(crate) waits: bool,
    /// Whether the call goes on if it is busy. It may do so and leave nothing in the store yet: the
    /// user is told of the wait first.
    pub(crate) goes_on: bool,
    /// The caller leads the local queue of one of the names, and others wait behind it for that
    /// name alone: the store must not wait for a server that it knows to be away.
    pub(crate) leads: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AcquiredAll {
    /// All are acquired, by a request sent at `sent_at`. One token each; 0 for a part that was
    /// already held.
    Granted { tokens: Vec<u64>, sent_at: Moment, session: Option<Arc<SessionTerm>> },
    /// The part at index `at` is held by another for up to `ttl`; `None`: unlimited or unknown.
    /// Never one that the caller holds: it waits in the queue of this name.
    Busy { at: usize, ttl: Option<Duration> },
    /// None is acquired: the holder held the part at index `at` before, and has lost it.
    Gone { at: usize },
}

pub(crate) trait MultiStore {
    /// Acquires several plain locks, all or none.
    ///
    /// # Errors
    /// If the locks are at several servers, an outage of one of them is [of a
    /// part](crate::base::error::Error::is_of_a_part): nothing is held at the others meanwhile.
    fn acquire_all(
        &self,
        acquire: &AcquireAll<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<AcquiredAll>;

    /// Releases several plain locks at once. One outcome for each, in order.
    fn release_all(
        &self,
        releases: &[Release<'_>],
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Vec<Result<Released>>>;
}

pub(crate) trait QueueStore {
    /// The length of a fair lock's queue, and how many waiters are in front of the client's first
    /// one, if it has one there.
    fn queue_of(&self, name: &LockName, client: &str) -> Result<(usize, Option<usize>)>;
}

/// A change of a count. Its request carries an id, so that a repeat changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// Sets it, unless there is a count already.
    Set(u32),
    /// Adds permits, or removes them.
    Add(i64),
    Down,
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CountAnswer {
    /// Whether anything was changed.
    pub(crate) done: bool,
    /// The count after it.
    pub(crate) value: i64,
}

/// Why permits are not added or removed.
#[cold]
pub(crate) fn out_of_range(free: i64) -> Error {
    invalid(format!("with {free} permits free now, the result would not be within 2^31 - 1"))
}

pub(crate) trait CountStore {
    /// Changes a count that has no holder. Repeats have the same `id` and change nothing more.
    fn count(
        &self,
        name: &LockName,
        change: Count,
        id: &str,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<CountAnswer>;

    /// For a semaphore, the free and the held permits. For a latch, the remaining count and when it
    /// was last opened.
    fn counted(&self, name: &LockName) -> Result<(i64, i64)>;
}

/// At most `permits` within any `per`, which has whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) permits: u64,
    pub(crate) per: Duration,
}

/// A change of a rate limiter. Its request carries an id, so that a repeat changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RateChange {
    /// Sets the rate, unless there is one already.
    Set(Rate),
    /// Sets it in any case. Nothing is taken then.
    Replace(Rate),
    Delete,
}

/// Permits are taken by [`acquire`](crate::store::LockStore::acquire), and come back by themselves.
/// A [`release`](crate::store::LockStore::release) undoes an acquisition of unknown outcome.
pub(crate) trait RateStore {
    /// Returns whether anything was changed. Repeats have the same `id` and change nothing more.
    fn change_rate(
        &self,
        name: &LockName,
        change: RateChange,
        id: &str,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<bool>;

    /// The rate and how many permits are free; `None` if there is no limiter.
    fn rate_of(&self, name: &LockName) -> Result<Option<(Rate, i64)>>;
}

/// How long a store remembers the last holder that had data.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(60 * 60);

/// The last holder of a lock that had data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastHold {
    pub(crate) holder: String,
    pub(crate) data: HoldData,
    /// How long ago its hold ended, or its lease if nobody gave it up; `None`: it has the lock.
    pub(crate) ended: Option<Duration>,
}

/// Data beside the hold of a mutex or a fair lock. A holder that [has data](Holder::data) writes it
/// with the grant, in the same step, in place of that of an earlier holder. It is shown
/// ([`LockStatus`](crate::store::LockStatus), [`Found`](crate::store::Found)) only while that
/// holder has the lock.
pub(crate) trait DataStore {
    /// Replaces the data of a holder, unless it was replaced with this `number` or a higher one.
    /// False: the holder does not have the lock. May be repeated, and may run late.
    fn set_data(
        &self,
        name: &LockName,
        holder: &Holder,
        number: u64,
        data: &HoldData,
    ) -> Result<bool>;

    /// Asks the holder for the lock: its next renewal
    /// [learns of it](crate::store::Renewed::Held). False: nobody with data has it. May be
    /// repeated, and goes with the hold.
    fn ask_for(&self, name: &LockName) -> Result<bool>;

    /// [Remembered](REMEMBERED) after its end.
    fn last_hold(&self, name: &LockName) -> Result<Option<LastHold>>;
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FenceAnswer {
    /// The claim is valid; the answer to a claim contains the current value.
    Accepted(Option<Vec<u8>>),
    /// `standing`: the token of a newer claim; `None`: nobody has claimed, so nothing may be
    /// written.
    Refused { standing: Option<u64> },
}

pub(crate) trait FenceStore {
    /// Whether a fenced value may have this key.
    fn check_key(&self, key: &str) -> Result<()>;

    fn claim(&self, key: &str, token: u64) -> Result<FenceAnswer>;

    /// `unknowns`: those of earlier writes of the same claim, which must not run after this one.
    fn write(
        &self,
        key: &str,
        token: u64,
        value: &[u8],
        unknowns: &mut UnknownOutcomes,
    ) -> Result<FenceAnswer>;
}

/// Statements for the user's own transaction. Each takes the key of the lock and the token of the
/// hold, and fails if another holder has taken the lock since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FenceStatements {
    /// From this statement to the end of the transaction nobody else gets the lock.
    pub(crate) at_once: &'static str,
    /// Checked when the transaction commits.
    pub(crate) at_commit: &'static str,
}
