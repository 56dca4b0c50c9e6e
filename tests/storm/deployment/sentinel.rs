//! A master with two replicas behind sentinels; with or without waiting for the replicas.

use std::sync::Arc;

use rand::rngs::StdRng;

use super::Deployment;
use super::lines::{Lines, OF_CONNECTIONS};
use super::redis::{self, FRAMES, WORDS};
use crate::fault::Fault;
use crate::rig::{SentinelOptions, Sentinels, wait_until};
use crate::worker::{Address, Mode};

pub(super) struct Sentinel {
    rig: Sentinels,
    lines: Lines,
    /// The number of replicas that must have a grant.
    replicas: u32,
    /// The server that the current fault affects.
    met: usize,
}

impl Sentinel {
    /// `replicas`, if used, is all of them: whichever is promoted has every grant.
    pub(super) fn start(slots: usize, replicas: u32) -> Self {
        // A failover that no fault caused leaves the replicas incomplete for ten seconds.
        let patient = &["sentinel down-after-milliseconds mymaster 2000"];
        let options = SentinelOptions {
            proxies: true,
            sentinel_lines: patient,
            ..SentinelOptions::default()
        };
        let rig = Sentinels::start_with(options);
        let mut lines = Lines::new(WORDS, FRAMES);
        // The sentinels announce one address for all clients, so a fault of one client's
        // connections affects all.
        let proxies: Vec<_> = (0..3).map(|index| rig.server(index).shared_proxy()).collect();
        for _ in 0..slots {
            lines.add(proxies.iter().map(Arc::clone).collect());
        }
        Self { rig, lines, replicas, met: 0 }
    }

    /// Waits for a single master with both replicas.
    fn wait_until_well(&self) {
        wait_until("the master feeds both replicas", || {
            let master = self.rig.master_server();
            master.runs() && master.info("replication", "role") == "master" && master.feeds(2)
        });
    }
}

impl Deployment for Sentinel {
    fn address(&self, slot: usize) -> Address {
        // Where nobody has to wait, one process waits for one of the two.
        let replicas = if self.replicas == 0 && slot == 0 { 1 } else { self.replicas };
        Address { mode: Mode::Sentinel, urls: self.rig.urls(), replicas }
    }

    fn direct(&self) -> Option<Address> {
        Some(Address { mode: Mode::Sentinel, urls: self.rig.urls(), replicas: self.replicas })
    }

    fn faults(&self) -> Vec<Fault> {
        let own = [
            Fault::Failover,
            Fault::KillServer,
            Fault::StopServer,
            Fault::StopReplica,
            Fault::EndBackends,
        ];
        // All three servers forget their data at once, whichever replicas a grant waited for.
        let forgets = if self.replicas == 0 { &[Fault::Flush][..] } else { &[] };
        [&OF_CONNECTIONS[..], &own, forgets].concat()
    }

    fn begin(&mut self, fault: Fault, slot: usize, rng: &mut StdRng) -> String {
        if self.lines.begin(fault, slot, rng) {
            return "all clients".to_owned();
        }
        let master = self.rig.master();
        self.met = master;
        match fault {
            Fault::Failover => drop(self.rig.failover()),
            Fault::StopReplica => {
                self.met = (master + 1) % 3;
                self.rig.server(self.met).suspend();
            }
            fault => redis::begin(self.rig.server_mut(master), fault),
        }
        format!("server {}", self.met)
    }

    fn end(&mut self, fault: Fault, slot: usize) {
        self.lines.end(slot);
        match fault {
            // A server that restarts without its data must no longer be the master.
            Fault::KillServer => {
                let port = self.rig.server(self.met).announced_port();
                self.rig.wait_for_other_master(port);
                self.rig.server_mut(self.met).start_again();
            }
            Fault::StopReplica => self.rig.server(self.met).resume(),
            fault => redis::end(self.rig.server_mut(self.met), fault),
        }
        // The old master becomes a replica about ten seconds after a failover, and a failover can
        // follow any fault: some of them also end the connections of the sentinels.
        self.wait_until_well();
    }

    fn kept(&self) -> Vec<(&'static str, u64)> {
        redis::kept((0..3).map(|index| self.rig.server(index)))
    }

    fn assert_clean(&self) {
        self.rig.assert_clean();
    }
}
