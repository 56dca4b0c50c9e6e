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
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::os::{Check, Failure, Order};

use crate::runs::{Subject, batch};

/// The number of schedules of one program. Another program finds more than another schedule.
const SCHEDULES: usize = 16;

/// The number of schedules in which a smaller program is tried.
pub(crate) const MOST: usize = 2 * SCHEDULES;

const ORDERS: [Order; 4] =
    [Order::Priorities(3), Order::Random, Order::Priorities(2), Order::Priorities(4)];

/// The time to make a failed program smaller.
const SHRINKING: Duration = Duration::from_secs(20);

/// Of so many programs one runs over servers. The others run over the store in memory.
const OVER_SERVERS: u64 = 4;

#[derive(Clone)]
pub(crate) enum Program {
    /// Over the store in memory, with its faults.
    Memory(Arc<program::Program>),
    /// Over servers of the scheduler's network.
    Wire(Arc<wire::Program>),
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(program) => program.fmt(f),
            Self::Wire(program) => program.fmt(f),
        }
    }
}

impl Program {
    fn make(seed: u64, n: u64) -> Self {
        if n % OVER_SERVERS == OVER_SERVERS - 1 {
            Self::Wire(Arc::new(wire::make(seed)))
        } else {
            Self::Memory(Arc::new(make::make(seed)))
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with("wire") {
            wire::parse(text).map(Arc::new).map(Self::Wire)
        } else {
            text::parse(text).map(Arc::new).map(Self::Memory)
        }
    }

    fn smaller(&self) -> Vec<Self> {
        match self {
            Self::Memory(program) => {
                shrink::smaller(program).into_iter().map(Arc::new).map(Self::Memory).collect()
            }
            Self::Wire(program) => {
                program.smaller().into_iter().map(Arc::new).map(Self::Wire).collect()
            }
        }
    }

    /// What the scheduler runs, on the thread that calls this.
    pub(crate) fn check(&self) -> Check {
        match self {
            Self::Memory(program) => {
                play::choose_program(program.clone());
                Check { run: play::play, limit: program.limit() }
            }
            Self::Wire(program) => {
                wire::choose_program(program.clone());
                Check { run: wire::play, limit: program.limit() }
            }
        }
    }
}

/// A program that has failed, as small as it became.
pub(crate) struct Failed {
    pub(crate) program: Program,
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
        let program = Program::make(seed.wrapping_add(n), n);
        ran.programs += 1;
        match play(
            &program,
            // Each kind of program meets each order.
            ORDERS[((n + n / OVER_SERVERS) % ORDERS.len() as u64) as usize],
            seed.wrapping_add(n),
            SCHEDULES,
        ) {
            Ok(schedules) => ran.schedules += schedules,
            Err(failed) => return Some(make_smaller(failed)),
        }
    }
    None
}

fn play(program: &Program, order: Order, seed: u64, times: usize) -> Result<usize, Failed> {
    let subject = Subject::Program(program.clone());
    let failed = |why| Failed { program: program.clone(), order, seed, why };
    batch(&subject, order, seed, times, true).map_err(failed)
}

/// Takes parts away as long as the rest still fails, in whatever way.
fn make_smaller(mut failed: Failed) -> Failed {
    let until = Instant::now() + SHRINKING;
    'smaller: loop {
        for program in failed.program.smaller() {
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
    program: &Program,
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

/// Called on the thread of an execution that has failed.
pub(crate) fn forget() {
    ledger::forget();
}
