//! The threads that call one server: how many connections they share, and whether one that is alone
//! polls for its answer for a short while before it sleeps until it comes.
//!
//! Over loopback on two idle cores a round trip is 8 µs of work, and several times that for falling
//! asleep and waking up. A thread that polls for the reply is awake when it comes. But it uses a
//! core meanwhile, and if other threads need that core, or client and server share one, it is
//! slower than a thread that sleeps. No rule distinguishes the two cases, so both ways are
//! measured, in runs of calls, and the quicker one is used. Only a call that is alone polls: beside
//! another call, the core is better used for that.

use std::time::Duration;

use crate::os::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::os::{self, Mutex};

/// Up to so many callers have a connection each: nobody has to be woken.
pub(super) const FEW: usize = 4;
/// From so many callers on, what takes the time is to wake all of them.
const MANY: usize = 32;
/// They use all connections, each for one batch at a time.
pub(super) const ALL: usize = usize::MAX;
/// Over the loopback interface an answer takes 15 to 60 µs, most of which is work of the
/// processors. From a server that is further away it takes long enough for others to wait in vain.
const NEAR: u32 = 100;
/// How slowly longer times count: on a busy machine most of them are long, also from near.
const SLOWLY: u32 = 64;
const UNKNOWN: u32 = u32::MAX;
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

/// All of it is advice: a thread that reads it while another changes it does no harm.
#[derive(Debug)]
pub(crate) struct Callers {
    /// How many threads call now.
    count: AtomicUsize,
    /// A low estimate of how long an answer takes, if nothing else is under way on its connection.
    micros: AtomicU32,
    may_poll: bool,
    /// Whether calls poll for their answers in this run.
    polls: AtomicBool,
    /// A measure of how many polls have missed lately.
    in_vain: AtomicU32,
    trials: Mutex<Trials>,
}

/// A call under way.
pub(crate) struct Call<'c>(&'c Callers);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Callers {
    /// `may_poll`: whether the user lets threads use a core while they wait.
    pub(super) fn new(may_poll: bool) -> Self {
        Self {
            count: AtomicUsize::new(0),
            micros: AtomicU32::new(UNKNOWN),
            may_poll,
            polls: AtomicBool::new(false),
            in_vain: AtomicU32::new(0),
            trials: Mutex::default(),
        }
    }

    /// Counts a call until the returned value is dropped.
    pub(crate) fn begin_call(&self) -> Call<'_> {
        self.count.fetch_add(1, Ordering::Relaxed);
        Call(self)
    }

    /// How many of the connections that carry requests behind each other serve the callers. One:
    /// callers that can share a write, a read and a wake-up meet. [`ALL`] for a server that is not
    /// near, because it is idle while a batch travels; and for many callers, because the threads
    /// that read then share the work of waking the others.
    pub(super) fn share(&self) -> usize {
        if self.micros.load(Ordering::Relaxed) > NEAR {
            return ALL;
        }
        match self.count.load(Ordering::Relaxed) {
            0..=FEW => FEW,
            MANY.. => ALL,
            _ => 1,
        }
    }

    /// Whether a call under way is the only one.
    pub(super) fn is_alone(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 1
    }

    /// Returns what `look` finds, if that is soon. `None`: the caller should sleep.
    pub(crate) fn poll<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        if !self.polls.load(Ordering::Relaxed) {
            return None;
        }
        let began = os::now();
        while self.may_poll && self.is_alone() {
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
        let polls = self.trials.lock().end_run(Duration::MAX);
        self.polls.store(polls, Ordering::Relaxed);
    }

    /// An exchange took this long, with nothing else under way on its connection.
    pub(super) fn measured(&self, took: Duration) {
        let micros = u32::try_from(took.as_micros()).unwrap_or(UNKNOWN);
        let before = self.micros.load(Ordering::Relaxed);
        self.micros.store(micros.min(before.saturating_add(micros / SLOWLY)), Ordering::Relaxed);
        if self.may_poll
            && self.is_alone()
            && let Some(mut trials) = self.trials.try_lock()
            && let Some(polls) = trials.add(took)
        {
            self.polls.store(polls, Ordering::Relaxed);
        }
    }

    /// The next connection may lead to another server.
    pub(super) fn forget_distance(&self) {
        self.micros.store(UNKNOWN, Ordering::Relaxed);
    }

    /// An instance whose calls poll now.
    #[cfg(test)]
    pub(crate) fn polling() -> Self {
        let callers = Self::new(true);
        let call = callers.begin_call();
        for _ in 0..RUN {
            callers.measured(Duration::from_micros(200));
        }
        assert!(callers.polls.load(Ordering::Relaxed));
        drop(call);
        callers
    }
}

/// Which of the two ways is quicker, found by trial.
#[derive(Debug)]
struct Trials {
    /// Whether the calls of the present run poll.
    polls: bool,
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
        let polls = false;
        let favourite = false;
        let costs = [None; 2];
        Self {
            polls,
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
        if self.calls < RUN { None } else { Some(self.end_run(self.sum / RUN)) }
    }

    /// `cost`: that of a call of the run that ends.
    fn end_run(&mut self, cost: Duration) -> bool {
        self.calls = 0;
        self.sum = Duration::ZERO;
        self.polls = if self.polls == self.favourite {
            self.judge_favourite(cost)
        } else {
            self.judge_trial(cost)
        };
        self.polls
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
        self.costs[usize::from(self.polls)] = Some(cost);
        let present = self.costs[usize::from(self.favourite)].unwrap_or(Duration::MAX);
        if is_quicker(cost, present) {
            self.choose(self.polls);
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
#[path = "callers_tests.rs"]
mod tests;
