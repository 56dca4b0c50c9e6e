//! A PostgreSQL with a synchronous standby that takes over.

use std::fs;

use rand::rngs::StdRng;

use super::Deployment;
use super::lines::{Lines, OF_CONNECTIONS};
use super::postgres::{self, FRAMES, WORDS};
use crate::event::Kind;
use crate::fault::Fault;
use crate::rig::{Postgres as Rig, Proxy, wait_until};
use crate::worker::Address;

pub(super) struct Standby {
    /// Dropped first: its proxies are in the directories of the servers.
    lines: Lines,
    servers: [Rig; 2],
    primary: usize,
}

fn is_synchronous(primary: &Rig) -> bool {
    primary.try_connect().is_ok_and(|mut db| {
        let sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        db.query_one(sync, &[]).is_ok_and(|row| row.get::<_, i64>(0) == 1)
    })
}

/// From now on nothing is granted without the standby.
fn ask_for_a_synchronous_one(primary: &Rig) {
    let mut db = primary.connect();
    // The change itself must not wait for a standby.
    db.batch_execute("SET synchronous_commit = off").unwrap();
    db.batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'").unwrap();
    db.batch_execute("SELECT pg_reload_conf()").unwrap();
}

impl Standby {
    pub(super) fn start(slots: usize) -> Self {
        let primary = Rig::start_with("wal_level = replica\nhot_standby = on");
        primary.run_sql(leasehold::POSTGRES_SCHEMA);
        let standby = primary.standby("wal_level = replica\nhot_standby = on");
        standby.run();
        ask_for_a_synchronous_one(&primary);
        wait_until("the standby is synchronous", || is_synchronous(&primary));
        let mut lines = Lines::new(WORDS, FRAMES).with_repeats();
        for _ in 0..slots {
            lines.add_own([&primary, &standby].map(Proxy::before_postgres));
        }
        Self { servers: [primary, standby], primary: 0, lines }
    }

    /// A URL with both hosts, at these ports.
    fn url(&self, ports: [&str; 2]) -> String {
        let [a, b] = &self.servers;
        let (hosts, ports) =
            (format!("{},{}", a.dir().display(), b.dir().display()), ports.join(","));
        format!("postgres://leasehold@/postgres?host={hosts}&port={ports}")
    }

    /// The old primary follows the new one, with a copy of its data: its own unconfirmed writes may
    /// differ.
    fn follow(&self, old: usize) {
        let (old, new) = (&self.servers[old], &self.servers[1 - old]);
        let copy = new.standby("");
        fs::remove_dir_all(old.data()).unwrap();
        fs::rename(copy.data(), old.data()).unwrap();
        old.run();
    }
}

impl Deployment for Standby {
    fn kinds(&self) -> Vec<Kind> {
        // No fault of this one forgets a count.
        [&Kind::ALL[..], &[Kind::Count]].concat()
    }

    fn address(&self, slot: usize) -> Address {
        let urls: Vec<String> = self.lines.of(slot).iter().map(|proxy| proxy.url()).collect();
        let port = |url: &'_ str| url.rsplit_once("port=").unwrap().1.to_owned();
        Address::one(self.url([&port(&urls[0]), &port(&urls[1])]))
    }

    fn direct(&self) -> Option<Address> {
        Some(Address::one(self.url(["5432", "5432"])))
    }

    fn faults(&self) -> Vec<Fault> {
        let own = [
            Fault::Failover,
            Fault::Failover,
            Fault::StopReplica,
            Fault::KillServer,
            Fault::StopServer,
            Fault::EndBackends,
        ];
        [&OF_CONNECTIONS[..], &own].concat()
    }

    fn begin(&mut self, fault: Fault, slot: usize, rng: &mut StdRng) -> String {
        if self.lines.begin(fault, slot, rng) {
            return format!("p{slot}");
        }
        match fault {
            Fault::Failover => {
                // Like a promotion tool, makes sure that the old primary is stopped.
                self.servers[self.primary].stop("immediate");
                self.primary = 1 - self.primary;
                // Before anything is granted: the settings that it copied are older.
                let primary = &self.servers[self.primary];
                primary.promote();
                ask_for_a_synchronous_one(primary);
            }
            Fault::StopReplica => self.servers[1 - self.primary].suspend(),
            fault => postgres::begin(&self.servers[self.primary], fault),
        }
        format!("server {}", self.primary)
    }

    fn end(&mut self, fault: Fault, slot: usize) {
        self.lines.end(slot);
        match fault {
            Fault::Failover => self.follow(1 - self.primary),
            Fault::StopReplica => self.servers[1 - self.primary].resume(),
            fault => postgres::end(&self.servers[self.primary], fault),
        }
        if !OF_CONNECTIONS.contains(&fault) {
            wait_until("the standby is synchronous", || {
                is_synchronous(&self.servers[self.primary])
            });
        }
    }

    fn kept(&self) -> Vec<(&'static str, u64)> {
        postgres::kept(&self.servers[self.primary])
    }

    fn assert_clean(&self) {
        self.servers[self.primary].assert_clean();
    }
}
