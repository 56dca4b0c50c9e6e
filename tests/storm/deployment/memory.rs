//! A store in memory: one process with several clients, which injects the faults itself.

use rand::RngExt;
use rand::rngs::StdRng;

use super::Deployment;
use crate::fault::Fault;
use crate::worker::{Address, Mode};

pub(super) struct Memory;

impl Deployment for Memory {
    fn address(&self, _: usize) -> Address {
        Address { mode: Mode::Memory, urls: Vec::new(), replicas: 0 }
    }

    fn direct(&self) -> Option<Address> {
        None
    }

    fn faults(&self) -> Vec<Fault> {
        vec![Fault::StepClock, Fault::Refuse, Fault::Lose, Fault::LoseReply, Fault::Cut]
    }

    fn begin(&mut self, fault: Fault, _: usize, _: &mut StdRng) -> String {
        panic!("{fault:?} is not for a store in memory")
    }

    fn line(&self, fault: Fault, rng: &mut StdRng) -> Option<String> {
        let names = ["m0", "m1", "f0", "r0", "e0"];
        Some(match fault {
            Fault::StepClock => format!("advance {}", rng.random_range(100..6000)),
            Fault::Refuse => format!("cut {}", rng.random_range(50..3000)),
            Fault::Lose => format!("lose {}", names[rng.random_range(0..names.len())]),
            Fault::LoseReply => format!("fail after {}", rng.random_range(0..5)),
            Fault::Cut => format!("fail before {}", rng.random_range(0..5)),
            _ => return None,
        })
    }

    fn end(&mut self, _: Fault, _: usize) {}

    fn kept(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn assert_clean(&self) {}
}
