//! One MySQL or MariaDB.

use rand::rngs::StdRng;

use super::Deployment;
use super::lines::{Lines, OF_CONNECTIONS};
use crate::event::Kind;
use crate::fault::Fault;
use crate::rig::{Mysql as Rig, Proxy};
use crate::worker::Address;

/// The names, which are literals of the statements.
const WORDS: &[&str] = &["m0", "m1"];

/// The end of a list, and an OK that is not the first packet of an answer. (One that is could not be
/// told from the answer.)
const FRAMES: &[&[u8]] = &[b"\x05\0\0\x01\xfe\0\0\x02\0", b"\x07\0\0\x09\0\x01\0\x02\0\0\0"];

pub(super) struct Mysql {
    /// Dropped first: its proxies are in the directory of the server.
    lines: Lines,
    server: Rig,
}

impl Mysql {
    pub(super) fn start(slots: usize) -> Self {
        let server = Rig::start();
        let mut lines = Lines::new(WORDS, FRAMES);
        for _ in 0..slots {
            lines.add_own([Proxy::before_mysql(&server)]);
        }
        Self { lines, server }
    }
}

impl Deployment for Mysql {
    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::Plain, Kind::Read, Kind::Write, Kind::Permit, Kind::Multi]
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
        match fault {
            Fault::KillServer => self.server.kill(),
            Fault::StopServer => self.server.suspend(),
            Fault::EndBackends => self.server.end_connections(),
            Fault::MakeReadOnly => {
                // Connections of root may write until they end.
                self.server.query("SET GLOBAL read_only=1");
                self.server.end_connections();
            }
            _ => panic!("{fault:?} is not for MySQL"),
        }
        "the server".to_owned()
    }

    fn end(&mut self, fault: Fault, slot: usize) {
        self.lines.end(slot);
        match fault {
            Fault::KillServer => self.server.run(),
            Fault::StopServer => self.server.resume(),
            Fault::MakeReadOnly => drop(self.server.query("SET GLOBAL read_only=0")),
            _ => {}
        }
    }

    fn kept(&self) -> Vec<(&'static str, u64)> {
        let rows = "SELECT (SELECT COUNT(*) FROM leasehold_lock)+(SELECT COUNT(*) FROM leasehold_share)+(SELECT COUNT(*) FROM leasehold_client)";
        let number = |number: i64| u64::try_from(number).unwrap();
        vec![
            ("rows", number(self.server.number_of(rows))),
            ("connections", number(self.server.connections())),
        ]
    }

    fn assert_clean(&self) {
        self.server.assert_clean();
    }
}
