//! The stores of the locks in a run, and their faults.

mod cluster;
mod lines;
mod memory;
mod mysql;
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
    /// The kinds of locks that its clients can take.
    fn kinds(&self) -> Vec<Kind> {
        Kind::ALL.to_vec()
    }

    /// Whether it supports a minimum hold time.
    fn has_min_hold(&self) -> bool {
        true
    }

    /// Whether every waiter has an entry in a queue of the store.
    fn queues_all(&self) -> bool {
        false
    }

    /// The address for the process in this slot, through its own proxies.
    fn address(&self, slot: usize) -> Address;

    /// The address for operators, without proxies. `None` for a store within one process, which
    /// prepares the store and checks for leftovers itself.
    fn direct(&self) -> Option<Address>;

    /// The faults that it adds to those of processes.
    fn faults(&self) -> Vec<Fault>;

    /// Injects one of its faults. Returns whom it affects.
    fn begin(&mut self, fault: Fault, slot: usize, rng: &mut StdRng) -> String;

    /// The command to send to the process, if the fault happens within it.
    fn line(&self, _fault: Fault, _rng: &mut StdRng) -> Option<String> {
        None
    }

    /// Ends the fault, and returns once everything works again.
    fn end(&mut self, fault: Fault, slot: usize);

    /// How much the servers keep and serve at present, which must not grow in a long run. All
    /// servers work.
    fn kept(&self) -> Vec<(&'static str, u64)>;

    /// Panics if something is left after all clients have ended.
    fn assert_clean(&self);
}

/// The names of all deployments.
pub(crate) const NAMES: [&str; 11] = [
    "redis",
    "replicas",
    "sentinel",
    "cluster",
    "redlock",
    "postgres",
    "postgres-standby",
    "mysql",
    "zookeeper",
    "zookeeper-three",
    "memory",
];

/// Starts one for this many processes. Panics with the remedy if a server is missing.
pub(crate) fn start(name: &str, slots: usize) -> Box<dyn Deployment> {
    match name {
        "redis" => Box::new(redis::Redis::start(slots)),
        "replicas" => Box::new(sentinel::Sentinel::start(slots, 2)),
        "sentinel" => Box::new(sentinel::Sentinel::start(slots, 0)),
        "cluster" => Box::new(cluster::Cluster::start(slots)),
        "redlock" => Box::new(redlock::Redlock::start(slots)),
        "postgres" => Box::new(postgres::Postgres::start(slots)),
        "postgres-standby" => Box::new(standby::Standby::start(slots)),
        "mysql" => Box::new(mysql::Mysql::start(slots)),
        "zookeeper" => Box::new(zookeeper::One::start(slots)),
        "memory" => Box::new(memory::Memory),
        "zookeeper-three" => Box::new(zookeeper::Three::start(slots)),
        _ => panic!("no deployment {name}: one of {NAMES:?}"),
    }
}
