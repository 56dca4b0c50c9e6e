//! A run: turns of threads of one client, one after another, at one hold in the store; and when it
//! has to end because others wait.
//!
//! When a thread gives up a plain lock and another thread of its client waits for it, the hold
//! stays in the store under its holder and passes on by a wake-up in the process (lock cohorting:
//! Dice, Marathe, Shavit, PPoPP 2012). Each turn has a grant of its own: guard, token, callbacks,
//! `max_hold`. What the turns share is the holder and the lease that the store has confirmed.
//!
//! **The holder.** Elsewhere a holder belongs to one acquire, so that a late undo, renewal or
//! release can touch nothing else. In a run it may touch a later turn. So a hold passes on only
//! when nothing of it is under way that takes it from the store: it was held by the clock, its last
//! renewal did not fail, and its release was not sent. What can still arrive late lengthens the
//! lease or sets the hold count, which the next request corrects.
//!
//! **The lease.** A turn begins with what is left of the lease that the store has confirmed, and
//! never believes in more. It is taken on only before its first renewal would be due. A fixed lease
//! never passes on: its user asked for all of it.
//!
//! **Losses.** If the store loses the hold (by force, by `FLUSHALL`), the turn that has it then, or
//! a later one, is told: by its renewal, or by the release that ends the run. A turn before it that
//! passed on was told nothing; that is bounded by how long a run lasts without a request.
//!
//! **Others.** No other client can get in during a run, and no message tells this client that one
//! waits: only the reply to a release does. So a run ends after some time even if nobody was there
//! the last time.

use std::time::{Duration, Instant};

use crate::lease::store_hold::RunLength;
use crate::os;

/// How many acquisitions in a row, with other clients waiting, before this client yields to them. A
/// client that releases and takes again at once always beats one that a message has to reach first.
pub(super) const FIRST_BOUND: u32 = 32;
/// Turns in a row also end after this long (multiplied as the bound grows), if there were a few.
const FIRST_SPAN: Duration = Duration::from_millis(4);
const SHORTEST_RUN: u32 = 4;
/// The bound doubles up to this when no other client takes the lock while this one yields: then the
/// other subscriptions only linger.
const LAST_BOUND: u32 = 1024;
/// How long a run lasts at most while no other client waits, as far as is known. It doubles with
/// each release that finds nobody, from [`FIRST_SPAN`] up to this. One who comes waits that long
/// until a release shows that it is there, and what `unlock` knows of the store is no older.
const LONGEST_ALONE: Duration = Duration::from_millis(16);
/// How long a client keeps a lock without a moment in which it is free at the store. Waiters that
/// no release can count (they may not subscribe, are reconnecting, or subscribe at a replica) would
/// otherwise never find it free.
pub(crate) const LONGEST_UNBROKEN: Duration = Duration::from_millis(150);
/// How long the lock then stays free at the store: a waiter of another library needs up to 5.5 ms
/// from a message to its request.
pub(crate) const GAP: Duration = Duration::from_millis(6);
/// How long a fairness counter is remembered.
pub(super) const MEMORY: Duration = Duration::from_secs(1);
/// How much later than the others a client tries, for each of them that may not have had the lock
/// since: about what a message and an attempt take.
const COURTESY: Duration = Duration::from_micros(150);
const MOST_COURTESIES: u32 = 8;
/// The most tokens drawn at once.
const MOST_TOKENS: u32 = 1024;

/// How often this client had the lock in a row while others waited.
#[derive(Debug)]
pub(super) struct FairnessCounter {
    in_a_row: u32,
    pub(super) bound: u32,
    /// How many messages will have been received when the one of this client's own last release has
    /// arrived.
    pub(super) messages: u64,
    /// How many other clients the last release reached.
    others: u64,
    /// Until how many messages have been received this client comes after the others.
    last_until: u64,
    /// When the first of them began.
    first: Option<Instant>,
    /// When a release last found others.
    pub(super) last: Option<Instant>,
    /// How long a run lasts while nobody else waits.
    alone: Duration,
    /// How many tokens the next acquire draws.
    tokens: u32,
    /// Since when the lock was never free at the store, because each release took an acquire along.
    unbroken_since: Option<Instant>,
    /// When it was released without one because that lasted too long. A gap has to follow.
    gap_from: Option<Instant>,
}

impl Default for FairnessCounter {
    fn default() -> Self {
        Self {
            in_a_row: 0,
            bound: FIRST_BOUND,
            messages: 0,
            others: 0,
            last_until: 0,
            first: None,
            last: None,
            alone: FIRST_SPAN,
            tokens: 1,
            unbroken_since: None,
            gap_from: None,
        }
    }
}

impl FairnessCounter {
    pub(super) fn is_yield_due(&self) -> bool {
        self.is_over(RunLength { turns: 0, ..RunLength::ONE })
    }

    /// Whether it is time to yield to others after a run that has not been counted yet.
    pub(super) fn is_over(&self, run: RunLength) -> bool {
        let turns = self.in_a_row.saturating_add(run.turns);
        let span = FIRST_SPAN * (self.bound / FIRST_BOUND);
        let lasted = self.first.map_or(run.lasted, os::since);
        let is_long = turns >= SHORTEST_RUN && lasted > span;
        (is_long || turns >= self.bound) && self.knows_others()
    }

    /// Whether the release after this run may take the acquire of another thread along: then the
    /// lock is not free at the store in between. Counts for how long that goes on.
    pub(super) fn may_hand_over(&mut self, run: RunLength) -> bool {
        let now = os::now();
        let since = *self.unbroken_since.get_or_insert(now.checked_sub(run.lasted).unwrap_or(now));
        let is_unbroken = now.duration_since(since) >= LONGEST_UNBROKEN;
        if is_unbroken {
            self.gap_from = Some(now);
        }
        !is_unbroken && !self.is_over(run)
    }

    /// The lock is released without an acquire behind it.
    pub(super) fn is_released(&mut self) {
        self.unbroken_since = None;
    }

    /// Whether this client has to leave the lock free for [`GAP`], which no message shortens.
    pub(super) fn owes_gap(&self) -> bool {
        self.gap_from.is_some_and(|from| os::since(from) < MEMORY)
    }

    pub(super) fn left_gap(&mut self) {
        self.gap_from = None;
    }

    /// Whether a run may go on without a request.
    pub(super) fn goes_on(&self, run: RunLength) -> bool {
        !self.is_over(run) && run.lasted < if self.knows_others() { LONGEST_ALONE } else { self.alone }
    }

    pub(super) fn knows_others(&self) -> bool {
        self.last.is_some_and(|last| os::since(last) < MEMORY)
    }

    /// How many tokens an acquire draws: its own, and some for the turns after it.
    pub(super) fn tokens(&self) -> u32 {
        self.tokens
    }

    /// A run has ended with a release that found nobody else. `waiters`: whether threads of this
    /// client wait.
    pub(super) fn released_alone(&mut self, run: RunLength, waiters: bool) {
        (self.in_a_row, self.first, self.last) = (0, None, None);
        self.alone = (self.alone * 2).min(LONGEST_ALONE);
        self.tokens = tokens_after(run, waiters);
    }

    /// A run has ended with a release that found others. `messages`: how many will have been
    /// received when its own has arrived.
    pub(super) fn released_beside(&mut self, others: u64, run: RunLength, waiters: bool, messages: u64) {
        let now = os::now();
        (self.others, self.messages) = (others, messages);
        if self.in_a_row == 0 {
            self.first = now.checked_sub(run.lasted).or(Some(now));
        }
        self.in_a_row = self.in_a_row.saturating_add(run.turns);
        (self.last, self.alone) = (Some(now), FIRST_SPAN);
        self.tokens = tokens_after(run, waiters);
    }

    /// This client has yielded. `taken`: another client had the lock meanwhile.
    pub(super) fn yielded(&mut self, taken: bool) {
        // A new run begins with the next release: it is as long as the first was.
        (self.in_a_row, self.first) = (0, None);
        self.bound = if taken { FIRST_BOUND } else { (self.bound * 2).min(LAST_BOUND) };
        self.last_until = if taken { self.messages + self.others } else { 0 };
    }

    /// Whether it may still let others go first.
    pub(super) fn owes_courtesy(&self) -> bool {
        self.last_until > 0
    }

    /// How long this client lets others go first, now that it has received so many messages. A
    /// message reaches the clients always in the same order, so after a run the first two would
    /// take turns and the others starve: whoever has seen fewer releases since its own last run
    /// waits longer.
    pub(super) fn courtesy(&self, messages: u64) -> Option<Duration> {
        let before = self.last_until.checked_sub(messages).filter(|before| *before > 0 && self.knows_others())?;
        Some(COURTESY * u32::try_from(before).map_or(MOST_COURTESIES, |before| before.min(MOST_COURTESIES)))
    }
}

/// Twice as many as the last run used, so that the number grows with the runs. At most one for
/// every two microseconds that it lasted: a token that the server has forgotten is replaced by its
/// clock in microseconds, which must be ahead of all tokens ever drawn.
fn tokens_after(run: RunLength, waiters: bool) -> u32 {
    if !waiters {
        return 1;
    }
    let most = u32::try_from(run.lasted.as_micros() / 2).unwrap_or(MOST_TOKENS).min(MOST_TOKENS);
    run.turns.saturating_mul(2).min(most).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(turns: u32, millis: u64) -> RunLength {
        RunLength { turns, lasted: Duration::from_millis(millis) }
    }

    #[test]
    fn alone_a_run_ends_by_time_and_the_next_ones_last_longer() {
        let mut fairness = FairnessCounter::default();
        assert!(fairness.goes_on(run(10_000, 3)) && !fairness.goes_on(run(2, 4)));
        for longest in [8, 16, 16] {
            fairness.released_alone(run(10, 5), true);
            assert!(fairness.goes_on(run(10_000, longest - 1)) && !fairness.goes_on(run(1, longest)));
            assert!(!fairness.is_yield_due());
        }
    }

    #[test]
    fn beside_others_a_run_ends_at_the_bound_and_the_others_come_first() {
        let mut fairness = FairnessCounter::default();
        fairness.released_beside(3, run(20, 0), true, 7);
        assert!(fairness.goes_on(run(11, 0)) && !fairness.goes_on(run(12, 0)), "{FIRST_BOUND} in all");
        fairness.released_beside(3, run(12, 0), true, 9);
        assert!(fairness.is_yield_due());
        fairness.yielded(true);
        assert!(!fairness.is_yield_due());
        assert_eq!(fairness.courtesy(10), Some(2 * COURTESY));
        assert_eq!(fairness.courtesy(11), Some(COURTESY));
        assert_eq!(fairness.courtesy(12), None, "as many have had it as there are others");
        fairness.released_beside(3, run(32, 0), true, 20);
        fairness.yielded(false);
        assert_eq!((fairness.bound, fairness.courtesy(20)), (2 * FIRST_BOUND, None), "nobody wanted it");
    }

    #[test]
    fn a_run_after_a_yield_has_its_full_length() {
        let mut fairness = FairnessCounter::default();
        fairness.released_beside(3, run(FIRST_BOUND, 3), true, 7);
        std::thread::sleep(FIRST_SPAN);
        fairness.yielded(true);
        assert!(!fairness.is_over(run(SHORTEST_RUN, 0)), "the time of the run before does not count");
        assert!(fairness.goes_on(run(FIRST_BOUND - 1, 0)) && !fairness.goes_on(run(FIRST_BOUND, 0)));
    }

    #[test]
    fn a_lock_that_was_never_free_for_long_is_left_free() {
        let mut fairness = FairnessCounter::default();
        let most = LONGEST_UNBROKEN.as_millis() as u64;
        assert!(fairness.may_hand_over(run(2, most - 50)) && !fairness.owes_gap());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!fairness.may_hand_over(run(2, 1)) && fairness.owes_gap(), "the run before counts as well");
        fairness.is_released();
        assert!(fairness.owes_gap());
        fairness.left_gap();
        assert!(fairness.may_hand_over(run(2, 1)) && !fairness.owes_gap());
        fairness.is_released();
        assert!(fairness.may_hand_over(run(2, most - 1)), "it was free in between");
    }

    /// The server's clock in microseconds must stay ahead of all tokens.
    #[test]
    fn tokens_are_drawn_no_faster_than_time_passes() {
        let mut fairness = FairnessCounter::default();
        assert_eq!(fairness.tokens(), 1);
        let (mut drawn, mut micros) = (0_u64, 0_u64);
        for micros_of_a_turn in [1, 2, 5, 50, 3, 1, 1, 1, 200, 1] {
            for _ in 0..50 {
                let turns = fairness.tokens();
                drawn += u64::from(turns);
                let lasted = 60 + u64::from(turns) * micros_of_a_turn;
                micros += lasted;
                fairness.released_alone(RunLength { turns, lasted: Duration::from_micros(lasted) }, true);
            }
        }
        assert!(drawn < micros * 3 / 4, "{drawn} in {micros} µs");
        assert!(fairness.tokens() > 50, "and enough for a run: {}", fairness.tokens());
        fairness.released_alone(run(1000, 5), false);
        assert_eq!(fairness.tokens(), 1, "nobody waits");
    }
}
