//! The times and kinds of the faults, drawn from a seed.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::fault::Fault;
use crate::rig::ms;

/// The length of a run and its parts: bursts of faults, each followed by a quiet time in which
/// nothing explains a wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) bursts: usize,
    pub(crate) burst: Duration,
    pub(crate) rest: Duration,
    pub(crate) lease: Duration,
    /// The number of processes.
    pub(crate) slots: usize,
    /// How many of them, the first ones, are never killed.
    pub(crate) steady: usize,
    /// The number of threads of each process.
    pub(crate) threads: u32,
    /// How long each thread rests between two turns, on average.
    pub(crate) pause: Duration,
}

impl Shape {
    fn first_slot(&self, fault: Fault) -> usize {
        if fault == Fault::Kill { self.steady } else { 0 }
    }
}

/// One fault.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The pause before it.
    pub(crate) after: Duration,
    pub(crate) fault: Fault,
    /// The process that it affects, if it affects one.
    pub(crate) slot: usize,
    pub(crate) lasts: Duration,
    /// Whether that process keeps its locks during the fault.
    pub(crate) keeps: bool,
    /// A second fault, halfway through it.
    pub(crate) meanwhile: Option<(Fault, usize)>,
}

/// A burst is a list of steps.
pub(crate) fn plan(shape: &Shape, faults: &[Fault], rng: &mut StdRng) -> Vec<Vec<Step>> {
    let mut bag = Vec::new();
    let mut burst = || {
        let (mut steps, mut length) = (Vec::new(), Duration::ZERO);
        while length < shape.burst {
            if bag.is_empty() {
                bag = faults.to_vec();
                bag.shuffle(rng);
            }
            let fault = bag.pop().expect("there are faults");
            let after = ms(rng.random_range(100..1200));
            let lasts = length_of(fault, shape.lease, rng);
            let slot = rng.random_range(shape.first_slot(fault)..shape.slots);
            // An election takes longer than a hold normally lasts.
            let keeps = fault == Fault::Depose || rng.random_bool(0.4);
            let other = [Fault::Kill, Fault::Cut][rng.random_range(0..2)];
            let meanwhile = rng.random_bool(0.25) && lasts > ms(300) && faults.contains(&other);
            let meanwhile =
                meanwhile.then(|| (other, rng.random_range(shape.first_slot(other)..shape.slots)));
            // A stopped process can be neither killed nor stopped again.
            let meanwhile = meanwhile.filter(|(_, other)| fault != Fault::Stop || *other != slot);
            length += after + lasts;
            steps.push(Step { after, fault, slot, lasts, keeps, meanwhile });
        }
        steps
    };
    (0..shape.bursts).map(|_| burst()).collect()
}

/// The time from the start of a fault to its end; zero if it is instantaneous.
fn length_of(fault: Fault, lease: Duration, rng: &mut StdRng) -> Duration {
    match fault {
        Fault::Stop => lease.mul_f64(rng.random_range(1.1..1.6)),
        Fault::HalfOpen | Fault::Refuse | Fault::StopServer | Fault::KillServer => {
            lease.mul_f64(rng.random_range(0.1..1.4))
        }
        Fault::FillServer | Fault::MakeReadOnly | Fault::Lag => {
            lease.mul_f64(rng.random_range(0.1..0.8))
        }
        Fault::StopReplica => lease.mul_f64(rng.random_range(1.0..2.5)),
        // Long enough for an election, and a session after it.
        Fault::Depose => ms(rng.random_range(6000..9500)) + lease,
        Fault::Delay
        | Fault::LoseReply
        | Fault::TruncateRequest
        | Fault::TruncateReply
        | Fault::DuplicateFrame
        | Fault::ForeignFrame => ms(rng.random_range(100..900)),
        Fault::EmptyServer => ms(rng.random_range(1..500)),
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults_and_each_comes_in_its_turn() {
        let shape = Shape {
            bursts: 2,
            burst: ms(20_000),
            rest: ms(1),
            lease: ms(2000),
            slots: 3,
            threads: 3,
            steady: 0,
            pause: ms(12),
        };
        let faults = [Fault::Kill, Fault::Stop, Fault::Cut, Fault::HalfOpen];
        let plan = |seed| plan(&shape, &faults, &mut StdRng::seed_from_u64(seed));
        assert_eq!(format!("{:?}", plan(7)), format!("{:?}", plan(7)));
        assert_ne!(format!("{:?}", plan(7)), format!("{:?}", plan(8)));
        for burst in plan(7) {
            assert!(faults.iter().all(|fault| burst.iter().any(|step| step.fault == *fault)));
        }
    }
}
