//! A cluster of three primaries with one replica each.

use std::sync::Arc;

use rand::RngExt;
use rand::rngs::StdRng;

use super::Deployment;
use super::lines::{Lines, OF_CONNECTIONS};
use super::redis::{self, FRAMES, WORDS};
use crate::fault::Fault;
use crate::rig::{Cluster as Rig, ClusterOptions};
use crate::worker::{Address, Mode};

pub(super) struct Cluster {
    rig: Rig,
    lines: Lines,
    /// The node that the current fault affects.
    met: usize,
}

const NODES: usize = 6;

impl Cluster {
    pub(super) fn start(slots: usize) -> Self {
        let rig = Rig::start_with(ClusterOptions { proxies: true, ..ClusterOptions::default() });
        let mut lines = Lines::new(WORDS, FRAMES);
        // The nodes announce one address for all clients, so a fault of one client's connections
        // affects all.
        let proxies: Vec<_> = (0..NODES).map(|index| rig.node(index).shared_proxy()).collect();
        for _ in 0..slots {
            lines.add(proxies.iter().map(Arc::clone).collect());
        }
        Self { rig, lines, met: 0 }
    }

    /// The slot of a lock.
    fn slot(&self, rng: &mut StdRng) -> u16 {
        let names = ["m0", "m1", "f0", "r0", "s0"];
        self.rig.slot(names[rng.random_range(0..names.len())])
    }

    fn primaries(&self) -> Vec<usize> {
        (0..NODES)
            .filter(|index| self.rig.node(*index).info("replication", "role") == "master")
            .collect()
    }
}

impl Deployment for Cluster {
    fn address(&self, _: usize) -> Address {
        Address { mode: Mode::Cluster, urls: self.rig.urls(), replicas: 0 }
    }

    fn direct(&self) -> Option<Address> {
        Some(self.address(0))
    }

    fn faults(&self) -> Vec<Fault> {
        let own = [
            Fault::KillServer,
            Fault::StopServer,
            Fault::MoveSlots,
            Fault::MoveSlots,
            Fault::EndBackends,
        ];
        [&OF_CONNECTIONS[..], &own].concat()
    }

    fn begin(&mut self, fault: Fault, slot: usize, rng: &mut StdRng) -> String {
        if self.lines.begin(fault, slot, rng) {
            return "all clients".to_owned();
        }
        let slot = self.slot(rng);
        self.met = self.rig.owner(slot);
        match fault {
            Fault::MoveSlots => {
                let others: Vec<usize> =
                    self.primaries().into_iter().filter(|index| *index != self.met).collect();
                let to = others[rng.random_range(0..others.len())];
                self.rig.begin_migration(slot, to);
                // The slot is half-moved for a moment: some keys of the lock are on one node, some
                // on the other.
                std::thread::sleep(crate::rig::ms(rng.random_range(0..300)));
                self.rig.move_keys(slot, to);
                self.rig.finish_migration(slot, to);
                return format!("slot {slot} from {} to {to}", self.met);
            }
            fault => redis::begin(self.rig.node_mut(self.met), fault),
        }
        format!("node {}", self.met)
    }

    fn end(&mut self, fault: Fault, slot: usize) {
        self.lines.end(slot);
        match fault {
            Fault::KillServer => {
                // A node that restarts without its data must no longer own its slots.
                self.rig.wait_ok();
                self.rig.node_mut(self.met).start_again();
            }
            Fault::MoveSlots => {}
            fault => redis::end(self.rig.node_mut(self.met), fault),
        }
        if !OF_CONNECTIONS.contains(&fault) {
            self.rig.wait_ok();
        }
    }

    fn kept(&self) -> Vec<(&'static str, u64)> {
        redis::kept((0..NODES).map(|index| self.rig.node(index)))
    }

    fn assert_clean(&self) {
        // A replica does not answer for its keys.
        for index in self.primaries() {
            self.rig.node(index).assert_clean();
        }
    }
}
