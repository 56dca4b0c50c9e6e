//! Three masters that do not know each other.

use rand::RngExt;
use rand::rngs::StdRng;

use super::Deployment;
use super::lines::{Lines, OF_CONNECTIONS};
use super::redis::{self, FRAMES};
use crate::event::Kind;
use crate::fault::Fault;
use crate::rig::{Proxy, ms};
use crate::support::Masters;
use crate::worker::{Address, Mode};

const MASTERS: usize = 3;

pub(super) struct Redlock {
    rig: Masters,
    lines: Lines,
    /// The master that the current fault affects.
    met: usize,
}

impl Redlock {
    pub(super) fn start(slots: usize) -> Self {
        let rig = Masters::fresh(MASTERS);
        // A majority never needs it, and its answers are read when the round is over.
        let lines = Lines::new(&["EVALSHA", "EVALSHA", "m0", "m1"], FRAMES);
        let mut lines = lines.with_a_late_one(MASTERS - 1, [ms(1), ms(5), ms(20)]);
        for _ in 0..slots {
            lines.add_own(rig.0.iter().map(Proxy::before));
        }
        Self { rig, lines, met: 0 }
    }
}

impl Deployment for Redlock {
    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::Plain]
    }

    fn address(&self, slot: usize) -> Address {
        let urls = self.lines.of(slot).iter().map(|proxy| proxy.url()).collect();
        Address { mode: Mode::Redlock, urls, replicas: 0 }
    }

    fn direct(&self) -> Option<Address> {
        Some(Address { mode: Mode::Redlock, urls: self.rig.urls(), replicas: 0 })
    }

    fn faults(&self) -> Vec<Fault> {
        // Each of them affects one master: a minority.
        let own = [
            Fault::EmptyServer,
            Fault::StopServer,
            Fault::FillServer,
            Fault::MakeReadOnly,
            Fault::Flush,
            Fault::EndBackends,
        ];
        [&OF_CONNECTIONS[..], &own].concat()
    }

    fn begin(&mut self, fault: Fault, slot: usize, rng: &mut StdRng) -> String {
        if self.lines.begin(fault, slot, rng) {
            return format!("p{slot}");
        }
        self.met = rng.random_range(0..MASTERS);
        redis::begin(&mut self.rig.0[self.met], fault);
        format!("master {}", self.met)
    }

    fn end(&mut self, fault: Fault, slot: usize) {
        self.lines.end(slot);
        redis::end(&mut self.rig.0[self.met], fault);
    }

    fn kept(&self) -> Vec<(&'static str, u64)> {
        redis::kept(self.rig.0.iter())
    }

    fn assert_clean(&self) {
        self.rig.assert_clean();
    }
}
