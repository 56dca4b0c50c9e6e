//! One request to a store, its outcome, and what may have run without a reply.

use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::lease::SessionTerm;
use crate::base::limits::IDEMPOTENCY_TTL;
use crate::base::limits::TAKEN_TTL;
use crate::base::lock_name::LockName;
use crate::base::log;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

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
    /// It was enqueued before. If its wait marker is gone, it is still entitled to its place.
    Again,
}

/// One acquisition, outermost (`held` = 0) or re-entrant.
#[derive(Debug, Clone)]
pub(crate) struct Acquire<'a> {
    pub(crate) name: &'a Arc<LockName>,
    pub(crate) holder: &'a Holder,
    /// Number of permits; 1 for everything but a semaphore.
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
    /// Whether the call goes on if it is busy. It may do so and leave nothing in the store yet: the
    /// user is told of the wait first.
    pub(crate) goes_on: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Granted {
    /// The fencing token, 0 if there is none; for several, the first.
    pub(crate) token: u64,
    /// When the lease began: the instant before the request was sent.
    pub(crate) sent_at: Moment,
    /// In a store whose holds share a session: the session that the hold ends with.
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
    /// The same for a waiter that has a place in the queue of a fair lock, since this request if
    /// `is_new`, in a store whose releases [give the lock](crate::store::Received::Granted) to the
    /// first waiter.
    Queued {
        ttl: Option<Duration>,
        is_new: bool,
    },
    /// Nobody has it: several callers had a part of it each, in a round that took `round`, and give
    /// their parts back. It is worth another try after a random pause.
    Split {
        round: Duration,
    },
    /// The holder held it before, and has lost it.
    Gone,
    /// The semaphore has only `permits` permits in all, fewer than were requested.
    TooFew {
        permits: u64,
    },
}

/// How many times a holder holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HoldCounts {
    /// The write holds of a read-write lock, or the holds of any other lock.
    pub(crate) main: u32,
    /// The read holds of a read-write lock.
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
    /// The number of permits that were acquired.
    pub(crate) permits: u32,
    pub(crate) left: HoldCounts,
    /// Whether the hold is known to be granted; otherwise it may have been, or may still be.
    pub(crate) granted: bool,
    /// Whether the hold has a fencing token, so that the next one may need one. False for an
    /// attempt.
    pub(crate) has_token: bool,
    /// With no counts left: the lock stays taken until then, and expires by itself, under the
    /// holder's [kept](Holder::kept) id, so that a late request of the holder finds nothing.
    /// Waiters are notified as if the lock were freed, because they may be sleeping for longer. A
    /// repeat never postpones the end. The answer is [`StillHeld`](Released::StillHeld).
    pub(crate) kept_until: Option<Moment>,
}

impl<'a> Release<'a> {
    /// Gives up all of a hold that was granted, and frees the lock.
    pub(crate) fn of_all(name: &'a LockName, holder: &'a Holder, permits: u32) -> Self {
        let left = HoldCounts::NONE;
        let has_token = false;
        Self { name, holder, permits, left, granted: true, has_token, kept_until: None }
    }

    /// [`of_all`](Self::of_all), for a hold of which it is not known whether it was granted.
    pub(crate) fn of_attempt(name: &'a LockName, holder: &'a Holder, permits: u32) -> Self {
        Self { granted: false, ..Self::of_all(name, holder, permits) }
    }

    /// How long from now the lock stays taken; `None`: it is freed. Reads the clock only if the
    /// lock may stay taken: most do not.
    pub(crate) fn keeps_for(&self, now: impl FnOnce() -> Moment) -> Option<Duration> {
        let until = self.kept_until?;
        if self.left != HoldCounts::NONE {
            return None;
        }
        let left = until.since(now());
        if left.is_zero() { None } else { Some(left) }
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
    Freed { listeners: Option<u64>, next: Option<NextUp> },
}

/// The waiter whose turn it is after a release.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NextUp {
    pub(crate) holder: String,
    /// The fencing token, 0 for none, if the release has given it the lock already: see
    /// [`Received::Granted`](crate::store::Received::Granted).
    pub(crate) grant: Option<u64>,
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

#[derive(Debug, Clone)]
pub(crate) enum Renewed {
    /// `again`: the hold was missing on some server and was taken anew there. If it was released in
    /// the meantime, that must be undone. `beside`: holders of another library share the lock, and
    /// may shorten its lease to this at any time from now on. `asked`: not 0 if somebody has
    /// [asked](crate::store::DataStore::ask_for) for the lock; each question has another number.
    Held {
        sent_at: Moment,
        again: bool,
        beside: Option<Duration>,
        asked: u64,
    },
    Gone,
    Failed(Error),
}

/// A hold that may exist although nobody uses it. The store reduces it to `left` (usually nothing)
/// once none of the requests in `unknowns` can run any more.
#[derive(Debug, Clone)]
pub(crate) struct Undo {
    pub(crate) name: Arc<LockName>,
    pub(crate) holder: Holder,
    pub(crate) permits: u32,
    pub(crate) left: HoldCounts,
    /// Whether the hold is known to be granted.
    pub(crate) granted: bool,
    /// The same as in [`Release`].
    pub(crate) has_token: bool,
    pub(crate) unknowns: UnknownOutcomes,
    /// When the lease ends by itself, unless a request runs late. For permits without leases: when
    /// a repeat could begin to return them twice.
    pub(crate) expires: Moment,
    /// The same as in [`Release`].
    pub(crate) kept_until: Option<Moment>,
}

/// How long a request that returns permits without leases may be repeated after it may have run:
/// half the TTL of its idempotency key, because the last repeat may be slow.
pub(super) const REPEATED: Duration = Duration::from_nanos(IDEMPOTENCY_TTL.as_nanos() as u64 / 2);

impl Undo {
    /// Repeats a release of the lock `name` in the background.
    pub(crate) fn of_release(
        release: &Release<'_>,
        name: &Arc<LockName>,
        unknowns: UnknownOutcomes,
        expires: Moment,
    ) -> Self {
        let Release { holder, permits, left, granted, has_token, kept_until, .. } = *release;
        Self {
            name: name.clone(),
            holder: holder.clone(),
            permits,
            left,
            granted,
            has_token,
            unknowns,
            expires,
            kept_until,
        }
    }

    /// Undoes an attempt of which it is not known whether it was granted.
    pub(crate) fn of_attempt(
        name: Arc<LockName>,
        holder: Holder,
        permits: u32,
        unknowns: UnknownOutcomes,
        expires: Moment,
    ) -> Self {
        let left = HoldCounts::NONE;
        let granted = false;
        let has_token = false;
        let kept_until = None;
        Self { name, holder, permits, left, granted, has_token, unknowns, expires, kept_until }
    }

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
        Self { granted: true, ..Self::of_attempt(name, holder, permits, unknowns, expires) }
    }

    pub(crate) fn release(&self) -> Release<'_> {
        let Self { name, holder, permits, left, granted, has_token, kept_until, .. } = self;
        Release {
            name,
            holder,
            permits: *permits,
            left: *left,
            granted: *granted,
            has_token: *has_token,
            kept_until: *kept_until,
        }
    }

    /// A request that was sent at `asked_at` may have run.
    pub(crate) fn note_possible_run(&mut self, asked_at: Moment) {
        if self.permits_without_lease().is_some() {
            self.expires = self.expires.min(asked_at.plus(REPEATED));
        }
    }

    /// The store refused it at `asked_at`. The reason may last: a full store, or another type of
    /// value under the name.
    pub(crate) fn note_refusal(&mut self, asked_at: Moment) {
        self.unknowns.clear();
        if self.permits_without_lease().is_some() {
            self.expires = self.expires.min(asked_at.plus(TAKEN_TTL));
        }
    }

    /// How many permits without leases it returns. Without this undo they would be leaked.
    pub(crate) fn permits_without_lease(&self) -> Option<u32> {
        (!self.name.kind.has_lease() && self.granted).then_some(self.permits)
    }

    /// Called when the undo is given up, with no mutex locked.
    pub(crate) fn warn_of_a_leak(&self) {
        if let Some(what) = self.leak() {
            log::warn!("{what}");
        }
    }

    pub(crate) fn leak(&self) -> Option<String> {
        let permits = self.permits_without_lease()?;
        let name = &self.name.name;
        Some(format!(
            "{permits} permits of the counting semaphore {name:?} could not be given back for certain, and this is not \
             tried again: if it has too few from now on, put them back with add_permits({permits})"
        ))
    }
}

/// The requests of one call that may have run, or may still run, because no reply came. Only the
/// store that wrote this value can read it. Empty: the outcome of every request is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnknownOutcomes {
    requests: Option<Arc<dyn Any + Send + Sync>>,
    spent: Option<Spent>,
}

/// The holder of an acquire must not be asked for again, because a release with no counts left is
/// sent for it. That release may run late, and would then remove what a later request of the same
/// holder was granted: another client could take a lock that this client believes it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    /// The store has sent the release. If something may be left, it is among the unknown outcomes.
    Released,
    /// The holder may hold something that does not count, and the caller has to release it.
    Unreleased,
}

impl UnknownOutcomes {
    /// A request may have run, and whatever the store knew of it is lost. No store finds anything
    /// of its own in this, so it undoes the hold and keeps the connection.
    pub(crate) fn of_a_panic() -> Self {
        Self { requests: Some(Arc::new(())), spent: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_none()
    }

    pub(crate) fn clear(&mut self) {
        self.requests = None;
    }

    pub(crate) fn set<T: Any + Send + Sync>(&mut self, unknown: T) {
        self.requests = Some(Arc::new(unknown));
    }

    pub(crate) fn get<T: Any>(&self) -> Option<&T> {
        self.requests.as_deref()?.downcast_ref()
    }

    /// The unknown outcomes of a store that keeps each request.
    pub(crate) fn list<T: Any>(&self) -> &[T] {
        match self.get::<Vec<T>>() {
            Some(list) => list,
            None => &[],
        }
    }

    /// Adds one to the [list](Self::list).
    pub(crate) fn push<T: Any + Send + Sync + Clone>(&mut self, unknown: T) {
        let mut list = self.list().to_vec();
        list.push(unknown);
        self.set(list);
    }

    /// Called by a store in an acquire. If something was released and something else was not, the
    /// caller releases everything.
    pub(crate) fn spend(&mut self, spent: Spent) {
        if self.spent != Some(Spent::Unreleased) {
            self.spent = Some(spent);
        }
    }

    pub(crate) fn take_spent(&mut self) -> Option<Spent> {
        self.spent.take()
    }
}
