//! One ZooKeeper, or three that elect a leader.

use std::sync::Arc;

use rand::RngExt;
use rand::rngs::StdRng;

use super::Deployment;
use super::lines::{Lines, OF_CONNECTIONS};
use crate::event::Kind;
use crate::fault::Fault;
use crate::rig::zookeeper::{Ensemble, EnsembleOptions, ZooKeeper as Rig};
use crate::rig::{Proxy, ms};
use crate::worker::Address;

/// Parts of requests, and the nodes of names.
const WORDS: &[&str] =
    &["create", "delete", "multi", "sync", "getChildren", "ping", "check", "/m0", "/f0", "/r0"];

/// Messages about watches.
const MESSAGES: &[&str] = &["event", "event", "event"];

/// A reply to a request that was never sent, and a frame of an impossible length.
const FRAMES: &[&[u8]] =
    &[&[0, 0, 0, 16, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], &[0xff, 0, 0, 0]];

/// A short tick allows short sessions, which then expire soon after their end.
const SETTINGS: &str = "tickTime=100\nmaxSessionTimeout=300000";

/// All faults of connections but one: messages have no connection of their own.
fn of_connections() -> Vec<Fault> {
    OF_CONNECTIONS.into_iter().filter(|fault| *fault != Fault::HalfOpenSubscribers).collect()
}

fn url(proxies: &[Arc<Proxy>]) -> String {
    let hosts: Vec<String> =
        proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
    format!("zookeeper://{}", hosts.join(","))
}

/// What an ensemble keeps: each server has all nodes, and its own connections and watches.
fn kept<'a>(
    leader: &Rig,
    servers: impl Iterator<Item = &'a Rig> + Clone,
) -> Vec<(&'static str, u64)> {
    let sum = |figure: &str| servers.clone().map(|server| server.figure(figure)).sum();
    vec![
        ("nodes", leader.figure("zk_znode_count")),
        ("connections", sum("zk_num_alive_connections")),
        ("watches", sum("zk_watch_count")),
        ("bytes", leader.figure("zk_approximate_data_size")),
    ]
}

pub(super) struct One {
    server: Rig,
    lines: Lines,
}

impl One {
    pub(super) fn start(slots: usize) -> Self {
        let server = Rig::start_with(SETTINGS);
        let mut lines = Lines::new(WORDS, FRAMES).with_messages(MESSAGES).with_repeats();
        for _ in 0..slots {
            lines.add(vec![Arc::new(Proxy::before_zookeeper(&server))]);
        }
        Self { server, lines }
    }
}

impl Deployment for One {
    fn has_min_hold(&self) -> bool {
        false
    }

    fn queues_all(&self) -> bool {
        true
    }

    fn address(&self, slot: usize) -> Address {
        Address::one(url(self.lines.of(slot)))
    }

    fn direct(&self) -> Option<Address> {
        Some(Address::one(self.server.url()))
    }

    fn faults(&self) -> Vec<Fault> {
        [of_connections(), vec![Fault::KillServer, Fault::StopServer]].concat()
    }

    fn begin(&mut self, fault: Fault, slot: usize, rng: &mut StdRng) -> String {
        if self.lines.begin(fault, slot, rng) {
            return format!("p{slot}");
        }
        match fault {
            Fault::KillServer => self.server.kill(),
            Fault::StopServer => self.server.suspend(),
            _ => panic!("{fault:?} is not for one ZooKeeper"),
        }
        "the server".to_owned()
    }

    fn end(&mut self, fault: Fault, slot: usize) {
        self.lines.end(slot);
        match fault {
            Fault::KillServer => self.server.start_again(),
            Fault::StopServer => self.server.resume(),
            _ => {}
        }
    }

    fn kept(&self) -> Vec<(&'static str, u64)> {
        kept(&self.server, std::iter::once(&self.server))
    }

    fn assert_clean(&self) {
        self.server.assert_clean();
    }
}

pub(super) struct Three {
    rig: Ensemble,
    lines: Lines,
    slots: usize,
    /// The server that the current fault affects.
    met: usize,
}

impl Three {
    pub(super) fn start(slots: usize) -> Self {
        // A leader that is cut off serves its clients for a quarter of a minute.
        let options = EnsembleOptions { patience: ms(15_000), ..EnsembleOptions::default() };
        let rig = Ensemble::start_with(options);
        rig.wait_for_all();
        let mut lines = Lines::new(WORDS, FRAMES).with_messages(MESSAGES).with_repeats();
        for _ in 0..slots {
            lines.add(
                rig.servers()
                    .iter()
                    .map(|server| Arc::new(Proxy::before_zookeeper(server)))
                    .collect(),
            );
        }
        Self { rig, lines, slots, met: 0 }
    }

    /// One client can reach only the leader, and the others everything but the leader.
    fn divide(&self, slot: usize, leader: usize) {
        for own in 0..self.slots {
            for (index, proxy) in self.lines.of(own).iter().enumerate() {
                if (index == leader) != (own == slot) {
                    proxy.refuse(true);
                    proxy.cut_all();
                }
            }
        }
        // Long enough for it to connect there.
        std::thread::sleep(ms(300));
    }
}

impl Deployment for Three {
    fn kinds(&self) -> Vec<Kind> {
        Kind::ALL.to_vec()
    }

    fn has_min_hold(&self) -> bool {
        false
    }

    fn queues_all(&self) -> bool {
        true
    }

    fn address(&self, slot: usize) -> Address {
        let mut proxies = self.lines.of(slot).to_vec();
        proxies.rotate_left(slot % 3);
        Address::one(url(&proxies))
    }

    fn direct(&self) -> Option<Address> {
        Some(Address::one(self.rig.url()))
    }

    fn faults(&self) -> Vec<Fault> {
        let own = [Fault::Depose, Fault::Depose, Fault::KillServer, Fault::StopServer, Fault::Lag];
        [of_connections(), own.to_vec()].concat()
    }

    fn begin(&mut self, fault: Fault, slot: usize, rng: &mut StdRng) -> String {
        if self.lines.begin(fault, slot, rng) {
            return format!("p{slot}");
        }
        let leader = self.rig.leader();
        self.met = if rng.random_bool(0.6) { leader } else { rng.random_range(0..3) };
        match fault {
            Fault::Depose => {
                self.met = leader;
                self.divide(slot, leader);
                self.rig.depose(leader);
                return format!("the leader {leader}, with p{slot} beside it");
            }
            Fault::KillServer => self.rig.server(self.met).kill(),
            Fault::StopServer => self.rig.server(self.met).suspend(),
            Fault::Lag => self.rig.lag(self.met, ms(rng.random_range(50..500))),
            _ => panic!("{fault:?} is not for three ZooKeepers"),
        }
        format!("server {} ({leader} leads)", self.met)
    }

    fn end(&mut self, fault: Fault, slot: usize) {
        self.lines.end(slot);
        match fault {
            Fault::Depose => {
                self.rig.cut_off(self.met, false);
                for slot in 0..self.slots {
                    self.lines.end(slot);
                }
            }
            Fault::KillServer => self.rig.start_all_again(),
            Fault::StopServer => self.rig.server(self.met).resume(),
            Fault::Lag => self.rig.lag(self.met, ms(0)),
            _ => return,
        }
        self.rig.wait_for_all();
    }

    fn kept(&self) -> Vec<(&'static str, u64)> {
        kept(self.rig.server(self.rig.leader()), self.rig.servers().iter())
    }

    fn assert_clean(&self) {
        self.rig.assert_clean();
    }
}
