//! One Redis that writes everything to a file, and so has its data after a restart.

use rand::rngs::StdRng;

use super::Deployment;
use super::lines::{Lines, OF_CONNECTIONS};
use crate::fault::Fault;
use crate::rig::{Proxy, Server};
use crate::worker::Address;

/// Parts of requests: those of scripts, and those that contain a name.
pub(super) const WORDS: &[&str] = &["EVALSHA", "EVALSHA", "m0", "m1", "f0", "r0", "s0", "j0", "e0"];

/// Replies of the kinds that scripts send. None of them grants a lock: that would be a forgery,
/// indistinguishable from the real reply.
pub(super) const FRAMES: &[&[u8]] =
    &[b":7\r\n", b"+OK\r\n", b"$-1\r\n", b"*2\r\n:5\r\n:77\r\n", b"*0\r\n", b"-ERR x\r\n"];

pub(super) struct Redis {
    lines: Lines,
    server: Server,
}

impl Redis {
    pub(super) fn start(slots: usize) -> Self {
        // The server is killed but the machine is not, so its writes survive without a sync, which
        // is slow on a busy disk.
        let server = Server::start_tcp(&["--appendonly", "yes", "--appendfsync", "no"]);
        let mut lines = Lines::new(WORDS, FRAMES);
        for _ in 0..slots {
            lines.add_own([Proxy::before(&server)]);
        }
        Self { server, lines }
    }
}

/// Faults that affect any single Redis server.
pub(super) fn begin(server: &mut Server, fault: Fault) {
    match fault {
        Fault::KillServer => server.kill(),
        Fault::EmptyServer => {
            server.cmd::<()>(&["FLUSHALL"]);
            server.kill();
        }
        Fault::StopServer => server.suspend(),
        Fault::FillServer => server.cmd::<()>(&["CONFIG", "SET", "maxmemory", "1"]),
        Fault::MakeReadOnly => server.cmd::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]),
        Fault::Flush => server.cmd::<()>(&["FLUSHALL"]),
        Fault::EndBackends => {
            for kind in ["normal", "pubsub"] {
                server.cmd::<i64>(&["CLIENT", "KILL", "TYPE", kind]);
            }
        }
        _ => panic!("{fault:?} is not for one Redis"),
    }
}

pub(super) fn end(server: &mut Server, fault: Fault) {
    match fault {
        Fault::KillServer | Fault::EmptyServer => server.start_again(),
        Fault::StopServer => server.resume(),
        Fault::FillServer => server.cmd::<()>(&["CONFIG", "SET", "maxmemory", "0"]),
        Fault::MakeReadOnly => server.cmd::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]),
        _ => {}
    }
}

/// What these servers keep together.
pub(super) fn kept<'a>(
    servers: impl Iterator<Item = &'a Server> + Clone,
) -> Vec<(&'static str, u64)> {
    let info = |section: &str, field: &str| -> u64 {
        servers.clone().map(|server| server.info(section, field).parse::<u64>().unwrap()).sum()
    };
    let keys = servers.clone().map(|server| server.cmd::<u64>(&["DBSIZE"])).sum();
    vec![
        ("keys", keys),
        ("connections", info("clients", "connected_clients")),
        ("channels", info("stats", "pubsub_channels")),
        ("bytes", info("memory", "used_memory")),
    ]
}

impl Deployment for Redis {
    fn address(&self, slot: usize) -> Address {
        Address::one(self.lines.of(slot)[0].url())
    }

    fn direct(&self) -> Option<Address> {
        Some(Address::one(self.server.url()))
    }

    fn faults(&self) -> Vec<Fault> {
        let own = [
            Fault::KillServer,
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
        begin(&mut self.server, fault);
        "the server".to_owned()
    }

    fn end(&mut self, fault: Fault, slot: usize) {
        self.lines.end(slot);
        end(&mut self.server, fault);
    }

    fn kept(&self) -> Vec<(&'static str, u64)> {
        kept(std::iter::once(&self.server))
    }

    fn assert_clean(&self) {
        self.server.assert_clean();
    }
}
