//! Polling for a reply for a short while before sleeping until it comes.
//!
//! Over loopback on two idle cores a round trip is 8 µs of work, and several times that for falling
//! asleep and waking up. A thread that polls for the reply is awake when it comes. But it uses a
//! core meanwhile, and if other threads need that core, or client and server share one, it is
//! slower than a thread that sleeps. No rule distinguishes the two cases, so both ways are
//! measured, in runs of calls, and the quicker one is used. Only a call that is alone polls: beside
//! another call of the client, the core is better used for that.

use std::time::Duration;

use crate::os::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::os::{self, Mutex};

/// How long a thread polls for a reply. For one that takes longer it sleeps: then waking up adds
/// little to the total.
const WINDOW: Duration = Duration::from_micros(50);
/// How much a reply that was not found within the window counts, if one that was found counts one.
/// With less than a fourth of misses, polling goes on.
const MISS: u32 = 3;
/// This many misses in a row end a run: their cost is CPU time, which the measured times do not
/// show.
const MOST_MISSES: u32 = 3;
/// Number of calls that are measured together.
const RUN: u32 = 64;
/// After how many runs the other way is tried for one run: at first, and at most. It doubles
/// whenever the other way has turned out to be no quicker.
const FIRST_WAIT: u32 = 16;
const LONGEST_WAIT: u32 = 512;

/// How the threads of one client wait for replies. All of it is advice: a thread that reads it
/// while another changes it does no harm.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    allowed: bool,
    /// Calls of the client under way.
    calls: AtomicUsize,
    /// Whether calls poll for their replies in this run.
    looks: AtomicBool,
    /// A measure of how many polls have missed lately.
    in_vain: AtomicU32,
    trials: Mutex<Trials>,
}

/// A call under way.
#[derive(Debug)]
pub(super) struct CallUnderWay<'p>(&'p BusyPoll);

impl Drop for CallUnderWay<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BusyPoll {
    /// `allowed`: whether the user lets threads use a core while they wait.
    pub(crate) fn new(allowed: bool) -> Self {
        Self {
            allowed,
            calls: AtomicUsize::new(0),
            looks: AtomicBool::new(false),
            in_vain: AtomicU32::new(0),
            trials: Mutex::default(),
        }
    }

    /// Counts a call until the returned value is dropped.
    pub(super) fn begin_call(&self) -> CallUnderWay<'_> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        CallUnderWay(self)
    }

    /// Whether a call under way is the only one, which may poll and is measured.
    pub(super) fn is_alone(&self) -> bool {
        self.allowed && self.calls.load(Ordering::Relaxed) == 1
    }

    /// Returns what `look` finds, if that is soon. `None`: the caller should sleep.
    pub(super) fn poll<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        if !self.looks.load(Ordering::Relaxed) {
            return None;
        }
        let began = os::now();
        while self.is_alone() {
            let found = look();
            if found.is_some() {
                let in_vain = self.in_vain.load(Ordering::Relaxed);
                self.in_vain.store(in_vain.saturating_sub(1), Ordering::Relaxed);
                return found;
            }
            if os::since(began) >= WINDOW {
                self.note_miss();
                return None;
            }
            std::hint::spin_loop();
        }
        None
    }

    #[cold]
    fn note_miss(&self) {
        let in_vain = self.in_vain.load(Ordering::Relaxed) + MISS;
        if in_vain < MISS * MOST_MISSES {
            self.in_vain.store(in_vain, Ordering::Relaxed);
            return;
        }
        self.in_vain.store(0, Ordering::Relaxed);
        let looks = self.trials.lock().end_run(Duration::MAX);
        self.looks.store(looks, Ordering::Relaxed);
    }

    /// An instance whose calls poll now.
    #[cfg(test)]
    pub(super) fn looking() -> Self {
        let busy_poll = Self::new(true);
        for _ in 0..RUN {
            busy_poll.measured(Duration::from_micros(200));
        }
        assert!(busy_poll.looks.load(Ordering::Relaxed));
        busy_poll
    }

    /// A call that was alone took this long, from before its request was sent.
    pub(super) fn measured(&self, took: Duration) {
        if let Some(mut trials) = self.trials.try_lock()
            && let Some(looks) = trials.add(took)
        {
            self.looks.store(looks, Ordering::Relaxed);
        }
    }
}

/// Which of the two ways is quicker, found by trial.
#[derive(Debug)]
struct Trials {
    /// Whether the calls of the present run poll.
    looks: bool,
    /// The way that was quicker so far.
    favourite: bool,
    /// Number of calls in the present run.
    calls: u32,
    sum: Duration,
    /// The recent cost of a call, asleep and polling; `None` before the first run of its kind.
    costs: [Option<Duration>; 2],
    /// The cost in the last run of the favourite. The better of its last two runs counts, so that a
    /// disturbed run changes nothing.
    last: Duration,
    /// Runs of the favourite since the other way was tried, and how many there have to be.
    runs: u32,
    wait: u32,
}

impl Default for Trials {
    /// The first run sleeps, and the second one polls.
    fn default() -> Self {
        let looks = false;
        let favourite = false;
        let costs = [None; 2];
        Self {
            looks,
            favourite,
            calls: 0,
            sum: Duration::ZERO,
            costs,
            last: Duration::MAX,
            runs: 0,
            wait: 1,
        }
    }
}

impl Trials {
    /// Records a call. At the end of a run it returns whether the calls of the next one poll.
    fn add(&mut self, took: Duration) -> Option<bool> {
        self.calls += 1;
        self.sum = self.sum.saturating_add(took);
        (self.calls >= RUN).then(|| self.end_run(self.sum / RUN))
    }

    /// `cost`: that of a call of the run that ends.
    fn end_run(&mut self, cost: Duration) -> bool {
        self.calls = 0;
        self.sum = Duration::ZERO;
        self.looks = if self.looks == self.favourite {
            self.judge_favourite(cost)
        } else {
            self.judge_trial(cost)
        };
        self.looks
    }

    fn judge_favourite(&mut self, cost: Duration) -> bool {
        let lately = if cost == Duration::MAX { cost } else { cost.min(self.last) };
        self.last = cost;
        self.costs[usize::from(self.favourite)] = Some(lately);
        self.runs += 1;
        let other = self.costs[usize::from(!self.favourite)];
        if other.is_some_and(|other| is_quicker(other, lately)) {
            self.choose(!self.favourite);
        } else if self.runs >= self.wait {
            return !self.favourite;
        }
        self.favourite
    }

    fn judge_trial(&mut self, cost: Duration) -> bool {
        self.costs[usize::from(self.looks)] = Some(cost);
        let present = self.costs[usize::from(self.favourite)].unwrap_or(Duration::MAX);
        if is_quicker(cost, present) {
            self.choose(self.looks);
        } else {
            self.runs = 0;
            self.wait = (2 * self.wait).clamp(FIRST_WAIT, LONGEST_WAIT);
        }
        self.favourite
    }

    fn choose(&mut self, way: bool) {
        self.favourite = way;
        self.last = Duration::MAX;
        self.runs = 0;
        self.wait = FIRST_WAIT;
    }
}

/// Quicker by more than a tenth, because measurements differ by chance.
fn is_quicker(one: Duration, other: Duration) -> bool {
    one.saturating_add(one / 9) < other
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// How many of `runs` runs poll, if a call takes this long asleep and polling.
    fn looking(trials: &mut Trials, runs: u32, asleep: Duration, looking: Duration) -> u32 {
        let mut looked = 0;
        for _ in 0..runs {
            looked += u32::from(trials.looks);
            let took = if trials.looks { looking } else { asleep };
            while trials.add(took).is_none() {}
        }
        looked
    }

    #[test]
    fn the_quicker_way_is_found_and_the_other_tried_ever_more_rarely() {
        let trials = &mut Trials::default();
        assert_eq!(looking(trials, 2, micros(50), micros(20)), 1);
        assert!(looking(trials, 2000, micros(50), micros(20)) > 1980);
        // Now client and server share a core.
        let looked = looking(trials, 2000, micros(16), micros(24));
        assert!((3..600).contains(&looked), "{looked}");
        assert!((2..20).contains(&looking(trials, 3000, micros(16), micros(24))));
        // And now they do not.
        assert!(looking(trials, 2000, micros(50), micros(20)) > 1000);
    }

    #[test]
    fn no_difference_is_no_reason_to_look() {
        assert!(looking(&mut Trials::default(), 2000, micros(250), micros(250)) < 12);
    }

    #[test]
    fn one_run_that_was_disturbed_changes_nothing() {
        let trials = &mut Trials::default();
        looking(trials, 20, micros(50), micros(20));
        for _ in 0..5 {
            looking(trials, 1, micros(50), micros(500));
            assert!(looking(trials, 10, micros(50), micros(20)) >= 9);
        }
    }

    /// How often a call that never gets its reply polls for it.
    fn looks(busy_poll: &BusyPoll) -> u32 {
        let mut looks = 0;
        let found: Option<()> = busy_poll.poll(|| {
            looks += 1;
            None
        });
        assert_eq!(found, None);
        looks
    }

    #[test]
    fn only_a_call_that_is_alone_looks_and_only_where_it_is_allowed() {
        let forbidden = BusyPoll { allowed: false, ..BusyPoll::looking() };
        let _call = forbidden.begin_call();
        assert_eq!(looks(&forbidden), 0);
        let busy_poll = BusyPoll::looking();
        let _own = busy_poll.begin_call();
        let other = busy_poll.begin_call();
        assert_eq!(looks(&busy_poll), 0);
        drop(other);
        assert!(looks(&busy_poll) > 0);
    }

    #[test]
    fn a_call_that_begins_meanwhile_ends_the_looking() {
        let busy_poll = BusyPoll::looking();
        let _own = busy_poll.begin_call();
        let mut other = None;
        let mut looks = 0;
        let found: Option<()> = busy_poll.poll(|| {
            other.get_or_insert_with(|| busy_poll.begin_call());
            looks += 1;
            None
        });
        assert_eq!((found, looks), (None, 1));
    }

    #[test]
    fn misses_in_a_row_end_the_looking() {
        let busy_poll = BusyPoll::looking();
        let _call = busy_poll.begin_call();
        // One miss among many hits changes nothing.
        for _ in 0..20 {
            assert!(looks(&busy_poll) > 0);
            for _ in 0..4 {
                assert_eq!(busy_poll.poll(|| Some(1)), Some(1));
            }
        }
        for _ in 0..MOST_MISSES {
            assert!(looks(&busy_poll) > 0);
        }
        assert_eq!(looks(&busy_poll), 0);
        let mut tried = 0;
        for _ in 0..100 * RUN {
            busy_poll.measured(micros(200));
            tried += u32::from(looks(&busy_poll) > 0);
        }
        assert!((1..5 * MOST_MISSES).contains(&tried), "{tried}");
    }
}
