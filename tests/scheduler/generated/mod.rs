//! Programs that nobody wrote: made from a seed, played under many schedules beside a model, and
//! made smaller if they fail.

mod after;
mod bounds;
mod ears;
mod guards;
mod jobs;
mod ledger;
mod make;
mod play;
mod program;
mod rates;
mod shrink;
mod take;
mod terms;
mod text;

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::os::{Check, Failure, Order};

pub(crate) use self::program::Program;
use crate::runs::{Subject, batch};

/// The number of schedules of one program. Another program finds more than another schedule.
const SCHEDULES: usize = 16;

/// The number of schedules in which a smaller program is tried.
pub(crate) const MOST: usize = 2 * SCHEDULES;

const ORDERS: [Order; 4] =
    [Order::Priorities(3), Order::Random, Order::Priorities(2), Order::Priorities(4)];

/// The time to make a failed program smaller.
const SHRINKING: Duration = Duration::from_secs(20);

/// A program that has failed, as small as it became.
pub(crate) struct Failed {
    pub(crate) program: Arc<Program>,
    pub(crate) order: Order,
    pub(crate) seed: u64,
    pub(crate) why: Failure,
}

/// What was run so far.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Ran {
    pub(crate) programs: u64,
    pub(crate) schedules: usize,
}

/// Runs programs from this seed on until one fails or the time is over.
pub(crate) fn explore(seed: u64, until: Instant, ran: &mut Ran) -> Option<Failed> {
    while Instant::now() < until {
        let n = ran.programs;
        let program = Arc::new(make::make(seed.wrapping_add(n)));
        ran.programs += 1;
        match play(
            &program,
            ORDERS[(n % ORDERS.len() as u64) as usize],
            seed.wrapping_add(n),
            SCHEDULES,
        ) {
            Ok(schedules) => ran.schedules += schedules,
            Err(failed) => return Some(make_smaller(failed)),
        }
    }
    None
}

fn play(program: &Arc<Program>, order: Order, seed: u64, times: usize) -> Result<usize, Failed> {
    let subject = Subject::Program(program.clone());
    let failed = |why| Failed { program: program.clone(), order, seed, why };
    batch(&subject, order, seed, times, true).map_err(failed)
}

/// Takes parts away as long as the rest still fails, in whatever way.
fn make_smaller(mut failed: Failed) -> Failed {
    let until = Instant::now() + SHRINKING;
    'smaller: loop {
        for program in shrink::smaller(&failed.program).into_iter().map(Arc::new) {
            for attempt in 0..8 {
                if Instant::now() >= until {
                    return failed;
                }
                let (order, seed) = match attempt {
                    0 => (failed.order, failed.seed),
                    n => (ORDERS[n % ORDERS.len()], failed.seed.wrapping_add(n as u64)),
                };
                if let Err(smaller) = play(&program, order, seed, MOST) {
                    failed = smaller;
                    continue 'smaller;
                }
            }
        }
        return failed;
    }
}

/// Plays a program under the schedules of one seed after another.
pub(crate) fn explore_one(
    program: &Arc<Program>,
    seed: u64,
    until: Instant,
    ran: &mut Ran,
) -> Option<Failed> {
    while Instant::now() < until {
        let n = ran.schedules as u64;
        match play(
            program,
            ORDERS[n as usize / SCHEDULES % ORDERS.len()],
            seed.wrapping_add(n),
            SCHEDULES,
        ) {
            Ok(schedules) => ran.schedules += schedules,
            Err(failed) => return Some(failed),
        }
    }
    None
}

pub(crate) fn parse(text: &str) -> Result<Program, String> {
    text::parse(text)
}

/// What the scheduler runs for a program.
pub(crate) fn check(program: &Arc<Program>) -> Check {
    play::choose_program(program.clone());
    Check { run: play::play, limit: program.limit() }
}

/// Called on the thread of an execution that has failed.
pub(crate) fn forget() {
    ledger::forget();
}
