//! When other clients go first: three time limits for each exclusive name.
//!
//! A hold that threads of one client hand to each other stays in the store (see
//! [`parking`](crate::wait::parking)), and a release takes the acquire of the next thread along. So
//! this client alone could keep a lock for ever. It learns of waiters in other clients by two
//! signs: the reply to a release says how many other clients listen, and a "busy" says that one had
//! the lock. Each sign counts for a second.
//!
//! | time limit | what happens then |
//! |---|---|
//! | [`LONGEST_RUN`] | a run of threads at one hold ends: the hold is released, and the reply says who listens |
//! | [`FIRST_SPAN`] of possession beside known others, doubled while nobody uses it | this client leaves a gap: until it receives a message of another release, for 10 ms at most |
//! | [`LONGEST_UNBROKEN`] in which the lock was never free at the store | this client leaves a [`BLIND_GAP`] that no message shortens, for waiters that give no sign |
//!
//! Possession is unbroken while the lock was left free for less than 10 ms between two holds: a
//! client that waited longer elsewhere could have taken it.

use std::time::{Duration, Instant};

use crate::lease::store_hold::RunLength;
use crate::os;

/// How long a run lasts at most. A new waiter elsewhere waits that long until a release shows that
/// it exists, and what `unlock` knows of the store is no older.
const LONGEST_RUN: Duration = Duration::from_millis(16);
/// How long this client has the lock beside known others before it leaves a gap. A client that
/// releases and takes again at once always beats one that a message has to reach first.
const FIRST_SPAN: Duration = Duration::from_millis(8);
/// The span doubles up to this when no other client takes the lock in a gap: then the other
/// subscriptions are only lingering, for a second. It grows no further, because a client that waits
/// on a busy machine may miss some gaps in a row.
const LAST_SPAN: Duration = Duration::from_millis(32);
/// How long a gap lasts at most: a waiter of another library needs up to 5.5 ms from the message to
/// its request.
pub(super) const LONGEST_GAP: Duration = Duration::from_millis(10);
/// How long the lock has to be left free for the possession to be broken. In unit tests long enough
/// that a busy machine does not break it between two lines.
const BREAK: Duration = if cfg!(test) { Duration::from_secs(2) } else { LONGEST_GAP };
/// How long a client keeps a lock without a moment in which it is free at the store. Waiters that
/// give no sign (they may not subscribe, are reconnecting, or subscribe at a replica) would
/// otherwise never find it free.
pub(super) const LONGEST_UNBROKEN: Duration = Duration::from_millis(150);
/// How long the lock then stays free at the store.
pub(super) const BLIND_GAP: Duration = Duration::from_millis(6);
/// How long a sign of other clients counts.
pub(super) const MEMORY: Duration = Duration::from_secs(1);
/// How much longer a client waits, for each other client that may not have had the lock since its
/// own turn: about the time of a message and an attempt.
const COURTESY: Duration = Duration::from_micros(150);
const MOST_COURTESIES: u32 = 8;
/// How many tokens a first run draws when threads of this client wait: no more than one for every
/// two microseconds that an acquire and a release take.
const FIRST_TOKENS: u32 = 8;
/// The maximum number of tokens drawn at once.
const MOST_TOKENS: u32 = 4096;

/// What this client knows of other clients that want a name, and of its own share.
#[derive(Debug)]
pub(super) struct Fairness {
    /// When a release last found listeners.
    pub(super) heard: Option<Instant>,
    /// When the store last answered "busy".
    busy: Option<Instant>,
    /// Since when it has had the lock beside other clients, without a break.
    since: Option<Instant>,
    /// When it last released the lock.
    released: Option<Instant>,
    span: Duration,
    /// Since when the lock was never free at the store, because each release took an acquire along.
    unbroken_since: Option<Instant>,
    /// When it was released without an acquire because that had lasted too long. A gap has to
    /// follow.
    blind_gap_from: Option<Instant>,
    order: Order,
    /// A gap has ended without a message. Whoever took the lock in it may hold it for longer than
    /// the gap lasts, so only the messages until the next release show whether somebody did.
    gap_is_open: bool,
    /// How many tokens the next acquire draws, and how many more the time of possession allows.
    tokens: u32,
    spare_tokens: u64,
}

/// Messages about releases of a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Messages {
    /// How many this client had received before its own release.
    pub(super) received: u64,
    /// How many of them its own release causes.
    pub(super) own: u64,
}

/// Whose turn it is after a gap, by the number of messages received.
#[derive(Debug, Default)]
struct Order {
    /// The number of messages once that of this client's own last release has arrived.
    own: u64,
    /// How many other clients the last release reached.
    others: u64,
    /// Until this number of messages, this client comes after the others; 0: it need not.
    last_until: u64,
    /// At this number it has let the others go first. None of them has had the lock since then, so
    /// it asks: whoever listened may have left.
    waited_at: Option<u64>,
}

impl Default for Fairness {
    fn default() -> Self {
        Self {
            heard: None,
            busy: None,
            since: None,
            released: None,
            span: FIRST_SPAN,
            unbroken_since: None,
            blind_gap_from: None,
            order: Order::default(),
            gap_is_open: false,
            tokens: 1,
            spare_tokens: 0,
        }
    }
}

impl Fairness {
    pub(super) fn knows_others(&self) -> bool {
        let counts = |sign: Option<Instant>| sign.is_some_and(|at| os::since(at) < MEMORY);
        counts(self.heard) || counts(self.busy)
    }

    /// Whether it knows nothing that matters to the next caller: no other clients, and no threads
    /// that have handed the lock to each other.
    pub(super) fn is_forgotten(&self) -> bool {
        let hands_over = self.tokens > 1 && self.released.is_some_and(|at| os::since(at) < MEMORY);
        !(hands_over || self.knows_others())
    }

    /// Whether a run may go on without a request.
    pub(super) fn goes_on(&self, run: RunLength) -> bool {
        run.lasted < LONGEST_RUN && !self.is_over(run)
    }

    /// Whether a gap is due after a run that has not been recorded yet.
    pub(super) fn is_over(&self, run: RunLength) -> bool {
        let lasted = match self.since {
            Some(since) if !self.was_left_before(run.lasted) => os::since(since),
            _ => run.lasted,
        };
        self.knows_others() && lasted >= self.span
    }

    /// Whether a gap is due before the next request.
    pub(super) fn owes_gap(&self) -> bool {
        self.is_over(RunLength { turns: 0, lasted: Duration::ZERO })
    }

    /// Whether the lock was left free for long enough before a run that has lasted this long.
    fn was_left_before(&self, lasted: Duration) -> bool {
        self.released.is_none_or(|released| os::since(released).saturating_sub(lasted) >= BREAK)
    }

    /// The store answered that another holder has the lock.
    pub(super) fn note_busy(&mut self) {
        self.busy = Some(os::now());
        self.since = None;
        self.gap_was_taken(true);
    }

    /// Whether the messages received before the release that ends this run have to be counted.
    pub(super) fn counts_messages(&self, run: RunLength) -> bool {
        self.gap_is_open || self.is_over(run)
    }

    fn gap_was_taken(&mut self, taken: bool) {
        self.gap_is_open = false;
        self.span = if taken { FIRST_SPAN } else { (self.span * 2).min(LAST_SPAN) };
    }

    /// A run has ended with a release. `others`: how many other clients listen, as far as is known.
    /// `waiters`: whether threads of this client wait.
    pub(super) fn released(
        &mut self,
        run: RunLength,
        others: u64,
        messages: Messages,
        waiters: bool,
    ) {
        let now = os::now();
        if self.gap_is_open {
            self.gap_was_taken(messages.received > self.order.own);
        }
        self.heard = (others > 0).then_some(now);
        if self.since.is_none() || self.was_left_before(run.lasted) {
            self.since = now.checked_sub(run.lasted);
        }
        self.released = Some(now);
        let own = messages.received + messages.own;
        // When two threads release, the one that released first may get here second.
        if own >= self.order.own {
            self.order = Order { own, others, ..Order::default() };
        }
        self.tokens = self.tokens_after(run, waiters);
    }

    /// This client has left a gap. `taken`: another client took the lock in the meantime and has
    /// released it. `messages`: how many it has received.
    pub(super) fn left_gap(&mut self, taken: bool, messages: u64) {
        self.since = None;
        if taken {
            self.gap_was_taken(true);
        } else {
            self.gap_is_open = true;
        }
        self.order.last_until = self.order.own + self.order.others;
        // If nobody came, it asks at once. The answer may be that one came late, or keeps the lock
        // for longer than the gap: then the order counts from the next message on.
        self.order.waited_at = (!taken).then_some(messages);
    }

    /// The number of messages once another client has had the lock.
    pub(super) fn next_message(&self) -> u64 {
        self.order.own + 1
    }

    /// How long this client lets others go first after this number of messages. A message reaches
    /// the clients always in the same order, so after a run the first two would take turns and the
    /// others starve: whoever has seen fewer releases since its own last run waits longer.
    pub(super) fn courtesy(&self, messages: impl FnOnce() -> u64) -> Option<Duration> {
        if self.order.last_until == 0 {
            return None;
        }
        let messages = messages();
        let before = self.order.last_until.saturating_sub(messages);
        let is_first =
            before == 0 || self.order.waited_at == Some(messages) || !self.knows_others();
        (!is_first).then(|| {
            COURTESY * u32::try_from(before).map_or(MOST_COURTESIES, |n| n.min(MOST_COURTESIES))
        })
    }

    /// It has let others go first for as long as [`courtesy`](Self::courtesy) says, with this many
    /// messages received before.
    pub(super) fn showed_courtesy(&mut self, messages: u64) {
        self.order.waited_at = Some(messages);
    }

    /// Asks for the release after this run to take the acquire of another thread along: then the
    /// lock is not free at the store in between. False if that has gone on for too long.
    pub(super) fn begin_hand_over(&mut self, run: RunLength) -> bool {
        let now = os::now();
        let since = *self.unbroken_since.get_or_insert(now.checked_sub(run.lasted).unwrap_or(now));
        let is_unbroken = now.saturating_duration_since(since) >= LONGEST_UNBROKEN;
        if is_unbroken {
            self.blind_gap_from = Some(now);
        }
        !is_unbroken && !self.is_over(run)
    }

    /// The lock is released, and no acquire follows it.
    pub(super) fn note_left_free(&mut self) {
        self.unbroken_since = None;
    }

    /// Whether this client has to leave the lock free for [`BLIND_GAP`].
    pub(super) fn owes_blind_gap(&self) -> bool {
        self.blind_gap_from.is_some_and(|from| os::since(from) < MEMORY)
    }

    pub(super) fn left_blind_gap(&mut self) {
        self.blind_gap_from = None;
    }

    /// Four times as many as the last run used, if it used all; otherwise at least twice as many,
    /// and seven eighths of the previous number, because a run that had to end early says little
    /// about the next one. A run that is out of tokens costs a request, wakes all waiters in other
    /// clients, and looks to them like a turn. Half as many while nobody waits.
    ///
    /// In total at most two for every three microseconds of possession: a token that the server has
    /// forgotten is replaced by its clock in microseconds, which must be ahead of all tokens ever
    /// drawn.
    fn tokens_after(&mut self, run: RunLength, waiters: bool) -> u32 {
        let earned = u64::try_from(run.lasted.as_micros()).unwrap_or(u64::MAX / 2) * 2 / 3;
        let drawn = u64::from(self.tokens.max(run.turns));
        self.spare_tokens =
            (self.spare_tokens + earned).saturating_sub(drawn).min(u64::from(MOST_TOKENS));
        let wanted = if !waiters {
            self.tokens / 2
        } else if run.turns >= self.tokens {
            run.turns.saturating_mul(4)
        } else {
            run.turns.saturating_mul(2).max(self.tokens / 8 * 7)
        };
        wanted.min(MOST_TOKENS).min(u32::try_from(self.spare_tokens).unwrap_or(MOST_TOKENS)).max(1)
    }

    /// How many tokens an acquire draws: its own, and some for the turns after it. `has_waiters`:
    /// threads of this client wait behind it.
    pub(super) fn tokens(&self, has_waiters: bool) -> u32 {
        if has_waiters { self.tokens.max(FIRST_TOKENS) } else { self.tokens }
    }
}

#[cfg(test)]
#[path = "fairness_tests.rs"]
mod tests;
