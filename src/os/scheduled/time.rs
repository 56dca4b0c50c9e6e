//! Time that passes only when no thread can go on, or when a scenario lets deadlines race with
//! what happens before them.
//!
//! Each execution has a clock, which is a thread of its own. It knows all threads that sleep until
//! a deadline. The scheduler lets it run when nobody else can: then it moves to the nearest
//! deadline and wakes whoever sleeps until it. Each reading of the clock also takes a little time,
//! because otherwise everything would happen at the same moment.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use shuttle::current::TaskId;
use shuttle::rand::RngCore;
use shuttle::thread;

use super::parker::Parker;

/// Where the clock of each execution begins, so that it can represent earlier times.
const START: u64 = 3_600_000_000_000;

/// How long one reading of the clock takes, by execution: with the first value, a thread's turn is
/// shorter than any limit of the library; with the last, a few turns are longer than most.
const TICKS: [u64; 3] = [10, 500, 20_000];

/// How near a deadline must be to race with what happens before it.
const NEAR: u64 = 2_000_000;

thread_local! {
    static TIME: RefCell<Option<Rc<Time>>> = const { RefCell::new(None) };
}

/// The clock and the random numbers of an execution.
pub(super) struct Time {
    nanos: Cell<u64>,
    tick: u64,
    /// An execution that has not ended by then has lost a wake-up.
    limit: Cell<u64>,
    /// By deadline; the number distinguishes those with the same deadline.
    sleepers: RefCell<BTreeMap<(u64, u64), Arc<Parker>>>,
    next_sleeper: Cell<u64>,
    /// The clock's thread sleeps here while nobody else has a deadline.
    idle: RefCell<Option<Arc<Parker>>>,
    task: Cell<Option<TaskId>>,
    races: Cell<bool>,
    is_over: Cell<bool>,
    random: Cell<u64>,
    /// Threads that run.
    pub(super) threads: RefCell<Vec<Option<String>>>,
}

/// The time of the present execution; none between two executions, when their remains are dropped.
pub(super) fn current() -> Option<Rc<Time>> {
    TIME.with(|time| time.borrow().clone())
}

impl Time {
    /// Begins an execution that must be over within `limit`.
    pub(super) fn begin(limit: Duration) -> Rc<Self> {
        let random = shuttle::rand::thread_rng().next_u64();
        let time = Rc::new(Self {
            nanos: Cell::new(START),
            tick: TICKS[(random % 3) as usize],
            limit: Cell::new(START + nanos_of(limit)),
            sleepers: RefCell::default(),
            next_sleeper: Cell::new(0),
            idle: RefCell::default(),
            task: Cell::new(None),
            races: Cell::new(false),
            is_over: Cell::new(false),
            random: Cell::new(random),
            threads: RefCell::default(),
        });
        TIME.with(|current| current.replace(Some(time.clone())));
        time
    }

    pub(super) fn end(&self) {
        self.is_over.set(true);
        self.wake_clock();
    }

    pub(super) fn forget() {
        // Dropped outside the cell: destructors may read the clock.
        let ended = TIME.with(|time| time.borrow_mut().take());
        drop(ended);
    }

    fn look(&self) -> u64 {
        self.nanos.set(self.nanos.get() + self.tick);
        self.nanos.get()
    }

    fn random(&self) -> u64 {
        // Steele, Lea, Flood: Fast splittable pseudorandom number generators (SplitMix64).
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn wake_clock(&self) {
        let idle = self.idle.borrow_mut().take();
        if let Some(idle) = idle {
            idle.wake();
        }
    }

    /// Sleeps on `parker`, at most until the deadline.
    pub(super) fn park_until(&self, deadline: u64, parker: &Arc<Parker>) {
        let entry = (deadline, self.next_sleeper.get());
        self.next_sleeper.set(entry.1 + 1);
        self.sleepers.borrow_mut().insert(entry, parker.clone());
        self.wake_clock();
        parker.park();
        self.sleepers.borrow_mut().remove(&entry);
    }

    /// The thread of the clock. It wakes one sleeper each time the scheduler lets it run.
    pub(super) fn run(&self) {
        self.task.set(Some(shuttle::current::me()));
        loop {
            thread::yield_now();
            if self.is_over.get() {
                return;
            }
            let nearest = self.sleepers.borrow_mut().pop_first();
            let Some(((deadline, _), parker)) = nearest else {
                let idle = Arc::new(Parker::default());
                *self.idle.borrow_mut() = Some(idle.clone());
                idle.park();
                continue;
            };
            assert!(
                deadline <= self.limit.get(),
                "nobody could go on for {:?}: a wake-up was lost, or a call takes too long",
                Duration::from_nanos(deadline - self.nanos.get())
            );
            self.nanos.set(self.nanos.get().max(deadline));
            parker.wake();
        }
    }

    /// Whether the scheduler may choose the clock while other threads can go on: its nearest
    /// deadline has passed, or is near and races.
    pub(super) fn may_run_beside(&self, dice: u64) -> bool {
        let nearest = self.sleepers.borrow().first_key_value().map(|((deadline, _), _)| *deadline);
        nearest.is_some_and(|deadline| {
            let away = deadline.saturating_sub(self.nanos.get());
            away == 0 || (self.races.get() && away < NEAR && dice.is_multiple_of(20))
        })
    }

    pub(super) fn task(&self) -> Option<TaskId> {
        self.task.get()
    }
}

pub(super) fn nanos_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2)
}

/// The `Instant` at which the clocks of all executions show zero.
fn zero() -> Instant {
    static ZERO: OnceLock<Instant> = OnceLock::new();
    *ZERO.get_or_init(Instant::now)
}

pub fn now() -> Instant {
    zero() + Duration::from_nanos(boot_nanos())
}

pub fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}

/// The nanoseconds of the clock at a time that it has shown or will show.
pub(super) fn nanos_at(instant: Instant) -> u64 {
    nanos_of(instant.saturating_duration_since(zero()))
}

pub(crate) fn boot_nanos() -> u64 {
    current().map_or(START, |time| time.look())
}

pub fn wall() -> Duration {
    Duration::from_secs(1_800_000_000) + Duration::from_nanos(boot_nanos())
}

pub(crate) fn random_number() -> u64 {
    current().map_or(0, |time| time.random())
}

/// From here on a near deadline may pass while other threads can go on.
pub fn deadlines_race() {
    if let Some(time) = current() {
        time.races.set(true);
    }
}
