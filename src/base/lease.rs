//! One lease as a state machine over injected time.

use std::sync::Arc;
use std::time::Duration;

use crate::os::atomic::{AtomicBool, AtomicU64, Ordering};

/// A point on the lease clock (see `clock`): nanoseconds of a clock that also counts suspended
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// At most `u64::MAX`, which is some 580 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The part at the end of a lease that is not used, because clocks run at different speeds: 1 % + 2
/// ms, the drift allowance of the Redlock algorithm.
pub(crate) fn margin(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// When a lease ends for its holder. `sent`: the instant *before* the first byte of the request was
/// sent. The server counts from when it received the request, which can only be later.
pub(crate) fn valid_until(sent: Moment, lease: Duration) -> Moment {
    sent.plus(lease.saturating_sub(margin(lease)))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseState {
    Held,
    /// A renewal failed or the machine slept, but time remains, and the store has not said that the
    /// hold is lost.
    Suspect,
    /// Final: no later reply makes it held again.
    Lost,
    /// Released by its holder. Final, and never a loss.
    Released,
    /// Given up because the client was closed; the user of the lock may still be at work. Final,
    /// and reported like a loss.
    Closed,
}

/// How a lease was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LostBy {
    /// Its own lease ended.
    Time,
    /// Its session ended.
    Session,
    /// The store no longer knows it.
    Store,
    /// Nobody was left to renew it.
    Neglect,
    Closing,
}

/// The state and the end of one lease, in one atomic word so that they change together.
///
/// `word` = end in nanoseconds with the three lowest bits replaced by the [`Mark`]. When the lease
/// is lost, that end becomes the moment of the loss. Transitions:
///
/// | from | to | by |
/// |---|---|---|
/// | Held, Suspect | Held, end moved | `renewed`, before the end |
/// | Held, Suspect | the same, end moved either way | `inspected`, before the end |
/// | Held | Suspect | `suspect` |
/// | Held, Suspect | Lost | `lose`, or the first call of any method after the end |
/// | Held, Suspect | Released | `release` |
/// | Held, Suspect | Closed | `close` |
///
/// Reading the state after the end stores the loss. Otherwise thread A could see that the lease has
/// ended and act on it, and then thread B, which read its clock just before, could store a renewal
/// and make the lease held again. For the same reason an earlier end is stored in the word, and not
/// beside it. [`Ends`] computes the end.
///
/// Where many leases share a session, each also ends with the session, whatever its own end is. A
/// lease that is read after the session's known end is `Lost` for good. One that nobody has read in
/// the meantime goes on if the session turns out to be alive: the store never released it.
#[derive(Debug)]
pub(crate) struct Lease {
    word: AtomicU64,
    session: Option<Arc<SessionTerm>>,
}

/// Until when a session is known to be alive. Each session has its own term.
#[derive(Debug)]
pub(crate) struct SessionTerm {
    /// In nanoseconds; 0 once the session is over.
    until: AtomicU64,
    /// Whether the store ended it while it was known to be alive.
    is_forgotten: AtomicBool,
}

impl SessionTerm {
    pub(crate) fn until(&self) -> Moment {
        Moment(self.until.load(Ordering::Acquire))
    }

    /// The session is known to be alive until then. Never shortens the term, and never revives one
    /// that is over.
    #[cfg(any(feature = "zookeeper", test))]
    pub(crate) fn lengthen(&self, until: Moment) {
        let longer = |known: u64| (known > 0 && known < until.0).then_some(until.0);
        let _ = self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, longer);
    }

    /// The session may end earlier than known, because the store has granted less. Never lengthens
    /// the term.
    #[cfg(any(feature = "zookeeper", test))]
    pub(crate) fn shorten(&self, until: Moment) {
        // 0 would end it for good.
        self.until.fetch_min(until.0.max(1), Ordering::AcqRel);
    }

    /// The session is over for good: the store said so at `now`, or nobody keeps it alive any more
    /// ([`Moment::NEVER`]).
    #[cfg(any(feature = "zookeeper", test))]
    pub(crate) fn end(&self, now: Moment) {
        // Set before the end: whoever sees the end must also see why.
        self.is_forgotten.fetch_or(now < self.until(), Ordering::Release);
        self.until.store(0, Ordering::Release);
    }
}

impl Default for SessionTerm {
    fn default() -> Self {
        Self { until: AtomicU64::new(1), is_forgotten: AtomicBool::new(false) }
    }
}

impl PartialEq for SessionTerm {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for SessionTerm {}

/// What determines the end of a lease: the grant, and a bound that other holders may set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    own: Moment,
    /// [`Moment::NEVER`] for none.
    bound: Moment,
    inspected_at: Moment,
}

impl Ends {
    pub(crate) fn new(own: Moment) -> Self {
        Self { own, bound: Moment::NEVER, inspected_at: Moment(0) }
    }

    /// The store granted the hold until `until`. Never shortens it.
    pub(crate) fn granted(&mut self, until: Moment) {
        self.own = self.own.max(until);
    }

    /// An inspection of the lock, sent at `asked`, found that other holders may end the hold at
    /// `bound` (`None`: they cannot). It counts until the next inspection.
    pub(crate) fn inspected(&mut self, asked: Moment, bound: Option<Moment>) {
        // The replies to two inspections may be read in the wrong order.
        if asked >= self.inspected_at {
            self.inspected_at = asked;
            self.bound = bound.unwrap_or(Moment::NEVER);
        }
    }

    /// The end of the grant.
    pub(crate) fn own(&self) -> Moment {
        self.own
    }

    /// The end of the lease.
    pub(crate) fn end(&self) -> Moment {
        self.own.min(self.bound)
    }
}

const MARK_BITS: u64 = 7;

/// The state as stored in the word; a loss includes how it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Held,
    Suspect,
    Released,
    Lost(LostBy),
}

impl Mark {
    fn state(self) -> LeaseState {
        match self {
            Self::Held => LeaseState::Held,
            Self::Suspect => LeaseState::Suspect,
            Self::Released => LeaseState::Released,
            Self::Lost(LostBy::Closing) => LeaseState::Closed,
            Self::Lost(_) => LeaseState::Lost,
        }
    }

    fn is_live(self) -> bool {
        matches!(self, Self::Held | Self::Suspect)
    }
}

fn pack(mark: Mark, until: Moment) -> u64 {
    let bits = match mark {
        Mark::Held => 0,
        Mark::Suspect => 1,
        Mark::Released => 2,
        Mark::Lost(LostBy::Time) => 3,
        Mark::Lost(LostBy::Session) => 4,
        Mark::Lost(LostBy::Store) => 5,
        Mark::Lost(LostBy::Neglect) => 6,
        Mark::Lost(LostBy::Closing) => 7,
    };
    (until.0 & !MARK_BITS) | bits
}

fn unpack(word: u64) -> (Mark, Moment) {
    let mark = match word & MARK_BITS {
        0 => Mark::Held,
        1 => Mark::Suspect,
        2 => Mark::Released,
        3 => Mark::Lost(LostBy::Time),
        4 => Mark::Lost(LostBy::Session),
        5 => Mark::Lost(LostBy::Store),
        6 => Mark::Lost(LostBy::Neglect),
        _ => Mark::Lost(LostBy::Closing),
    };
    (mark, Moment(word & !MARK_BITS))
}

impl Lease {
    pub(crate) fn new(until: Moment) -> Self {
        Self { word: AtomicU64::new(pack(Mark::Held, until)), session: None }
    }

    /// A lease that also ends with the session.
    pub(crate) fn in_session(until: Moment, session: Option<Arc<SessionTerm>>) -> Self {
        Self { session, ..Self::new(until) }
    }

    pub(crate) fn is_in_session(&self) -> bool {
        self.session.is_some()
    }

    fn session_ends(&self) -> Moment {
        match &self.session {
            Some(session) => session.until(),
            None => Moment::NEVER,
        }
    }

    /// The state at `now`. Past the end it is `Lost`, for good.
    pub(crate) fn state(&self, now: Moment) -> LeaseState {
        let (mark, until) = unpack(self.word.load(Ordering::Acquire));
        if mark.is_live() && now >= until.min(self.session_ends()) {
            return self.step(now, |mark, until| (mark, until));
        }
        mark.state()
    }

    pub(crate) fn is_held(&self, now: Moment) -> bool {
        matches!(self.state(now), LeaseState::Held | LeaseState::Suspect)
    }

    /// How and when it was lost or closed, if somebody has seen that.
    pub(crate) fn lost(&self) -> Option<(LostBy, Moment)> {
        match unpack(self.word.load(Ordering::Acquire)) {
            (Mark::Lost(how), at) => Some((how, at)),
            _ => None,
        }
    }

    /// The end of the lease, even if it has passed.
    pub(crate) fn until(&self) -> Moment {
        unpack(self.word.load(Ordering::Acquire)).1.min(self.session_ends())
    }

    /// The end of the lease, unless somebody has already seen that it is over.
    pub(crate) fn live_until(&self) -> Option<Moment> {
        match unpack(self.word.load(Ordering::Acquire)) {
            (Mark::Held | Mark::Suspect, until) => Some(until.min(self.session_ends())),
            _ => None,
        }
    }

    /// The store confirmed the hold, and the lease now ends at `end`. Does not revive a lease that
    /// is over. Returns the state after it.
    pub(crate) fn renewed(&self, now: Moment, end: Moment) -> LeaseState {
        self.step(now, |_, _| (Mark::Held, end))
    }

    /// The lease now ends at `end`, earlier or later than before. Does not revive a lease that is
    /// over. Returns the state after it.
    pub(crate) fn inspected(&self, now: Moment, end: Moment) -> LeaseState {
        self.step(now, |mark, _| (mark, end))
    }

    /// The store could not be reached. That ends no lease: only time does, or the store's reply
    /// that the hold is gone.
    pub(crate) fn suspect(&self, now: Moment) -> LeaseState {
        self.step(now, |_, until| (Mark::Suspect, until))
    }

    /// The store said that the hold is gone, or nobody renews it any more. Changes nothing after a
    /// release.
    pub(crate) fn lose(&self, now: Moment, how: LostBy) -> LeaseState {
        self.step(now, |_, until| (Mark::Lost(how), until))
    }

    /// Its holder releases it. Returns the state *before*: only one caller ever sees a live one.
    pub(crate) fn release(&self, now: Moment) -> LeaseState {
        self.give_up(now, Mark::Released)
    }

    /// [`release`](Self::release) for a client that is closed: the guard then reports that it holds
    /// nothing.
    pub(crate) fn close(&self, now: Moment) -> LeaseState {
        self.give_up(now, Mark::Lost(LostBy::Closing))
    }

    fn give_up(&self, now: Moment, to: Mark) -> LeaseState {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let (mark, until) = unpack(word);
            if !mark.is_live() {
                return mark.state();
            }
            let end = self.end_by(now, until);
            let (next, at) = end.unwrap_or((to, now));
            match self.word.compare_exchange_weak(
                word,
                pack(next, at),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) if end.is_none() => return mark.state(),
                Ok(_) => return LeaseState::Lost,
                Err(seen) => word = seen,
            }
        }
    }

    /// Applies `change` to a live lease. A lease whose end has come by `now` becomes `Lost`, and
    /// one that is over stays as it is.
    fn step(&self, now: Moment, change: impl Fn(Mark, Moment) -> (Mark, Moment)) -> LeaseState {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let (mark, until) = unpack(word);
            if !mark.is_live() {
                return mark.state();
            }
            let next = self.end_by(now, until).unwrap_or_else(|| match change(mark, until) {
                // The new end has already passed: the holder relied on the lease until now.
                (_, end) if end <= now => (Mark::Lost(LostBy::Time), now),
                (Mark::Lost(how), _) => (Mark::Lost(how), now),
                live => live,
            });
            let next_word = pack(next.0, next.1);
            if next_word == word {
                return next.0.state();
            }
            match self.word.compare_exchange_weak(
                word,
                next_word,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return next.0.state(),
                Err(seen) => word = seen,
            }
        }
    }

    /// Whether the lease is over at `now`, by its own end or by that of its session: how, and since
    /// when.
    fn end_by(&self, now: Moment, until: Moment) -> Option<(Mark, Moment)> {
        let session_ends = self.session_ends();
        if now < until && now < session_ends {
            return None;
        }
        let is_forgotten = || {
            self.session
                .as_ref()
                .is_some_and(|session| session.is_forgotten.load(Ordering::Acquire))
        };
        Some(match session_ends {
            Moment(0) if until <= now => (Mark::Lost(LostBy::Time), until),
            _ if until <= session_ends => (Mark::Lost(LostBy::Time), until),
            Moment(0) if is_forgotten() => (Mark::Lost(LostBy::Store), now),
            Moment(0) => (Mark::Lost(LostBy::Session), now),
            at => (Mark::Lost(LostBy::Session), at),
        })
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
