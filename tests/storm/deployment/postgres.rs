//! One PostgreSQL.

use rand::rngs::StdRng;

use super::Deployment;
use super::lines::{Lines, OF_CONNECTIONS};
use crate::event::Kind;
use crate::fault::Fault;
use crate::rig::{Postgres as Rig, Proxy};
use crate::worker::Address;

/// The names, which are parameters of the statements.
pub(super) const WORDS: &[&str] = &["m0", "m1", "f0", "r0", "s0"];

/// A notice, a row, the end of a command, and "ready for query".
pub(super) const FRAMES: &[&[u8]] = &[
    b"N\0\0\0\x0bSNOTE\0\0",
    b"D\0\0\0\x0b\0\x01\0\0\0\x017",
    b"C\0\0\0\x0dSELECT 1\0",
    b"Z\0\0\0\x05I",
];

pub(super) struct Postgres {
    /// Dropped first: its proxies are in the directory of the server.
    lines: Lines,
    server: Rig,
}

impl Postgres {
    pub(super) fn start(slots: usize) -> Self {
        let server = Rig::start();
        let mut lines = Lines::new(WORDS, FRAMES).with_repeats();
        for _ in 0..slots {
            lines.add_own([Proxy::before_postgres(&server)]);
        }
        Self { server, lines }
    }
}

/// Faults that affect a single server.
pub(super) fn begin(server: &Rig, fault: Fault) {
    match fault {
        Fault::KillServer => server.stop("immediate"),
        Fault::StopServer => server.suspend(),
        Fault::EndBackends => server.end_backends(),
        Fault::MakeReadOnly => {
            // Affects sessions that begin from now on.
            server.run_sql("ALTER DATABASE postgres SET default_transaction_read_only = on");
            server.end_backends();
        }
        _ => panic!("{fault:?} is not for PostgreSQL"),
    }
}

pub(super) fn end(server: &Rig, fault: Fault) {
    match fault {
        Fault::KillServer => server.run(),
        Fault::StopServer => server.resume(),
        Fault::MakeReadOnly => {
            let mut db = server.connect();
            db.batch_execute("SET default_transaction_read_only = off").unwrap();
            db.batch_execute("ALTER DATABASE postgres RESET default_transaction_read_only")
                .unwrap();
            server.end_backends();
        }
        _ => {}
    }
}

/// What a server keeps: rows, with those that a later sweep removes, and the size of the tables.
pub(super) fn kept(server: &Rig) -> Vec<(&'static str, u64)> {
    let number = |sql: &str| u64::try_from(server.number_of(sql)).unwrap();
    let rows = "SELECT (SELECT count(*) FROM leasehold.lock) + (SELECT count(*) FROM leasehold.share) + \
                (SELECT count(*) FROM leasehold.waiter) + (SELECT count(*) FROM leasehold.once) + \
                (SELECT count(*) FROM leasehold.client)";
    let bytes = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c \
                 JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'leasehold' AND c.relkind = 'r'";
    vec![
        ("rows", number(rows)),
        ("connections", u64::try_from(server.backends()).unwrap()),
        ("bytes", number(bytes)),
    ]
}

impl Deployment for Postgres {
    fn kinds(&self) -> Vec<Kind> {
        // No fault of this one forgets a count.
        [&Kind::ALL[..], &[Kind::Count]].concat()
    }

    fn address(&self, slot: usize) -> Address {
        Address::one(self.lines.of(slot)[0].url())
    }

    fn direct(&self) -> Option<Address> {
        Some(Address::one(self.server.url()))
    }

    fn faults(&self) -> Vec<Fault> {
        let own = [Fault::KillServer, Fault::StopServer, Fault::EndBackends, Fault::MakeReadOnly];
        [&OF_CONNECTIONS[..], &own].concat()
    }

    fn begin(&mut self, fault: Fault, slot: usize, rng: &mut StdRng) -> String {
        if self.lines.begin(fault, slot, rng) {
            return format!("p{slot}");
        }
        begin(&self.server, fault);
        "the server".to_owned()
    }

    fn end(&mut self, fault: Fault, slot: usize) {
        self.lines.end(slot);
        end(&self.server, fault);
    }

    fn kept(&self) -> Vec<(&'static str, u64)> {
        kept(&self.server)
    }

    fn assert_clean(&self) {
        self.server.assert_clean();
    }
}
