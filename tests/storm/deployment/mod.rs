//! Where the locks live in a run, and what can be done to it.

mod cluster;
mod lines;
mod memory;
mod postgres;
mod redis;
mod redlock;
mod sentinel;
mod standby;
mod zookeeper;

use rand::rngs::StdRng;

use crate::event::Kind;
use crate::fault::Fault;
use crate::worker::Address;

/// Servers that were started for one run.
pub(crate) trait Deployment {
    /// What its clients can take.
    fn kinds(&self) -> Vec<Kind> {
        Kind::ALL.to_vec()
    }

    /// Whether a lock can stay taken after its guard.
    fn has_min_hold(&self) -> bool {
        true
    }

    /// Whether every waiter has a place in a queue of the store.
    fn queues_all(&self) -> bool {
        false
    }

    /// For the process in this slot, through proxies of its own.
    fn address(&self, slot: usize) -> Address;

    /// For operators, without proxies. `None` where all is within one process, which sets it up
    /// and looks for what is left itself.
    fn direct(&self) -> Option<Address>;

    /// What may happen to it beside what happens to processes.
    fn faults(&self) -> Vec<Fault>;

    /// Injects one of its faults. Says whom it met.
    fn begin(&mut self, fault: Fault, slot: usize, rng: &mut StdRng) -> String;

    /// For a fault that happens within a process: the line that tells the process.
    fn line(&self, _fault: Fault, _rng: &mut StdRng) -> Option<String> {
        None
    }

    /// Undoes it, and returns when everything serves again.
    fn end(&mut self, fault: Fault, slot: usize);

    /// When all clients are gone: panics if something is left.
    fn assert_clean(&self);
}

/// The names of all deployments.
pub(crate) const NAMES: [&str; 10] = [
    "redis",
    "replicas",
    "sentinel",
    "cluster",
    "redlock",
    "postgres",
    "postgres-standby",
    "zookeeper",
    "zookeeper-three",
    "memory",
];

/// Starts one for so many processes. Panics with the remedy where a server is missing.
pub(crate) fn start(name: &str, slots: usize) -> Box<dyn Deployment> {
    match name {
        "redis" => Box::new(redis::Redis::start(slots)),
        "replicas" => Box::new(sentinel::Sentinel::start(slots, 2)),
        "sentinel" => Box::new(sentinel::Sentinel::start(slots, 0)),
        "cluster" => Box::new(cluster::Cluster::start(slots)),
        "redlock" => Box::new(redlock::Redlock::start(slots)),
        "postgres" => Box::new(postgres::Postgres::start(slots)),
        "postgres-standby" => Box::new(standby::Standby::start(slots)),
        "zookeeper" => Box::new(zookeeper::One::start(slots)),
        "memory" => Box::new(memory::Memory),
        "zookeeper-three" => Box::new(zookeeper::Three::start(slots)),
        _ => panic!("no deployment {name}: one of {NAMES:?}"),
    }
}
