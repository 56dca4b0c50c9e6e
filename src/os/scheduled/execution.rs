//! Executions of a check, each with a schedule of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use shuttle::scheduler::{
    PctScheduler, RandomScheduler, ReplayScheduler, Schedule, Scheduler, Task, TaskId,
};
use shuttle::{Config, MaxSteps, Runner};

use super::time::{self, Time};
use super::{network, thread};

/// How the next thread is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Burckhardt, Kothari, Musuvathi, Nagarakatte: A randomized scheduler with probabilistic
    /// guarantees of finding bugs (PCT). Threads have priorities, and at `depth - 1` random steps,
    /// with this depth, one of them loses its priority. So one thread is held back for long, which
    /// rarely happens by chance.
    Priorities(usize),
    /// By chance at each step.
    Random,
}

/// What is run in each execution.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    pub run: fn(),
    /// In time of the execution's clock.
    pub limit: Duration,
}

/// What a failed execution reported.
#[derive(Debug)]
pub struct Failure(pub String);

/// Runs the check `times` times. The panic hook writes the schedule of a failed execution to
/// standard error, for [`replay`].
///
/// Call it on a thread of its own: after a failure that thread counts as panicking.
pub fn explore(
    check: Check,
    order: Order,
    seed: u64,
    times: usize,
    config: Config,
) -> Result<usize, Failure> {
    let scheduler: Box<dyn Scheduler + Send> = match order {
        Order::Priorities(depth) => Box::new(PctScheduler::new_from_seed(seed, depth, times)),
        Order::Random => Box::new(RandomScheduler::new_from_seed(seed, times)),
    };
    run(check, HidesClock { others: scheduler, dice: seed }, config)
}

/// Repeats one execution.
pub fn replay(check: Check, schedule: &str, config: Config) -> Result<usize, Failure> {
    run(check, ReplayScheduler::new_from_encoded(schedule.trim()), config)
}

fn run(
    check: Check,
    scheduler: impl Scheduler + 'static,
    mut config: Config,
) -> Result<usize, Failure> {
    config.stack_size = 0x4_0000;
    config.max_steps = MaxSteps::FailAfter(200_000);
    config.silence_warnings = true;
    let runner = Runner::new(scheduler, config);
    let result = catch_unwind(AssertUnwindSafe(|| runner.run(move || execute(check))));
    result.map_err(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        Failure(
            text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default(),
        )
    })
}

fn execute(check: Check) {
    network::forget();
    let time = Time::begin(check.limit);
    let clock = shuttle::thread::spawn({
        // A coroutine on this thread, so it finds the time in the thread-local.
        || time::current().expect("it has begun").run()
    });
    (check.run)();
    let left = thread::running();
    assert!(left.is_empty(), "threads are left: {left:?}");
    time.end();
    clock.join().expect("the clock ends");
    drop(time);
    Time::forget();
    network::forget();
}

/// Chooses among all threads except the clock, as long as one of them can go on.
struct HidesClock {
    others: Box<dyn Scheduler + Send>,
    dice: u64,
}

impl Scheduler for HidesClock {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.others.new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let time = time::current();
        let clock = time.as_ref().and_then(|time| time.task());
        let hidden =
            clock.filter(|_| !time.is_some_and(|time| time.may_run_beside(self.dice >> 33)));
        let others: Vec<&Task> =
            runnable.iter().copied().filter(|task| Some(task.id()) != hidden).collect();
        if others.is_empty() {
            hidden
        } else {
            self.others.next_task(&others, current, is_yielding)
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.others.next_u64()
    }
}
