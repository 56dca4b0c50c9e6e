//! Redlock compared with a bare scatter and gather of the same commands, and with one server.
//!
//! raw = the same two scripts, packed once, sent to all masters before the first reply is read, by
//! one thread with one connection to each.

use std::time::{Duration, Instant};

use leasehold::observe::NodeState;
use leasehold::{LockClient, Redlock};

use crate::common::Bench;
use crate::common::scripts::script;
use crate::common::server::Server;
use crate::common::table::{Table, median, micros};

pub(crate) fn redlock(bench: &Bench, table: &mut Table) {
    cycle(bench, table);
    dead(bench, table);
    contended(bench, table);
}

struct Masters {
    servers: Vec<Server>,
    client: LockClient,
}

impl Masters {
    fn start(count: usize) -> Self {
        let servers: Vec<Server> = (0..count).map(|_| Server::start(false)).collect();
        let urls: Vec<&str> = servers.iter().map(|server| &*server.url).collect();
        let client = LockClient::builder()
            .redlock(Redlock::new(urls).admit_fresh_nodes(true))
            .build()
            .expect("private servers");
        let give_up = Instant::now() + Duration::from_secs(10);
        while client.nodes().iter().any(|node| node.state() != NodeState::Voting) {
            assert!(Instant::now() < give_up, "{:?}", client.nodes());
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { servers, client }
    }
}

/// One bare cycle: two scripts on every master.
struct Raw {
    connections: Vec<redis::Connection>,
    /// Packed once for each master, because it contains the id of the server process.
    acquire: Vec<Vec<u8>>,
    release: Vec<u8>,
}

impl Raw {
    fn new(masters: &Masters) -> Self {
        let mut connections: Vec<_> = masters.servers.iter().map(Server::connect).collect();
        let mut acquire = Vec::new();
        let take = redis::Script::new(script("redlock_acquire"));
        let free = redis::Script::new(script("mutex_release"));
        for connection in &mut connections {
            take.load(connection).and_then(|_| free.load(connection)).expect("the private server");
            let info: String =
                redis::cmd("INFO").arg("server").query(connection).expect("the private server");
            let run_id = info
                .lines()
                .find_map(|line| line.strip_prefix("run_id:"))
                .expect("a run_id")
                .trim();
            let mut cmd = redis::cmd("EVALSHA");
            cmd.arg(take.get_hash())
                .arg(3)
                .arg("raw")
                .arg("redisson_lock_token:{raw}")
                .arg("leasehold:node");
            cmd.arg("aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa:1").arg(30_000).arg(0).arg(86_400_000);
            cmd.arg(1_700_000_000_000_000_u64).arg(run_id).arg(0);
            acquire.push(cmd.get_packed_command());
        }
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(free.get_hash())
            .arg(1)
            .arg("raw")
            .arg("aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa:1")
            .arg(1);
        cmd.arg("redisson_lock__channel:{raw}");
        Self { connections, acquire, release: cmd.get_packed_command() }
    }

    fn cycle(&mut self) {
        for (connection, acquire) in self.connections.iter_mut().zip(&self.acquire) {
            connection.send_packed_command(acquire).expect("the private server");
        }
        self.gather();
        for connection in &mut self.connections {
            connection.send_packed_command(&self.release).expect("the private server");
        }
        self.gather();
    }

    fn gather(&mut self) {
        for connection in &mut self.connections {
            connection.recv_response().expect("the private server");
        }
    }
}

/// The rate of a loop that runs for a while.
fn rate(span: Duration, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut done = 0u32;
    while start.elapsed() < span {
        work();
        done += 1;
    }
    f64::from(done) / start.elapsed().as_secs_f64()
}

fn ours(client: &LockClient, name: &str) {
    client.lock(name).and_then(|guard| guard.unlock()).expect("the private servers");
}

fn cycle(bench: &Bench, table: &mut Table) {
    let (rounds, span) = bench.rounds((12, 400), (3, 50));
    let single = bench.client();
    for count in [3, 5] {
        let masters = Masters::start(count);
        let mut raw = Raw::new(&masters);
        let (mut bare, mut own, mut one) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(rate(span, || raw.cycle()));
            own.push(rate(span, || ours(&masters.client, "own")));
            one.push(rate(span, || ours(&single, "own")));
        }
        let (bare, own, one) = (median(&bare), median(&own), median(&one));
        table.compare(&format!("Redlock cycle over {count} masters"), bare, own, None, "");
        table.compare(
            &format!("  the same, against one server (raw: a cycle of a plain lock), {count}"),
            one,
            own,
            None,
            "",
        );
    }
}

fn dead(bench: &Bench, table: &mut Table) {
    let (rounds, span) = bench.rounds((12, 400), (3, 50));
    let (mut maimed, whole) = (Masters::start(3), Masters::start(3));
    drop(maimed.servers.remove(1));
    let mut longest = Duration::ZERO;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        with.push(rate(span, || {
            let start = Instant::now();
            ours(&maimed.client, "own");
            longest = longest.max(start.elapsed());
        }));
        without.push(rate(span, || ours(&whole.client, "own")));
    }
    table.compare(
        "one of 3 masters dead (raw: leasehold with all alive)",
        median(&without),
        median(&with),
        None,
        "",
    );
    table.row("  longest cycle with it, the first included", "", &micros(longest), None, "", None);
}

fn contended(bench: &Bench, table: &mut Table) {
    let (rounds, span) = bench.rounds((6, 500), (2, 100));
    let masters = Masters::start(3);
    let mut raw = Raw::new(&masters);
    let (mut bare, mut own) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        bare.push(rate(span, || raw.cycle()));
        let threads: u32 = 8;
        let done: f64 = std::thread::scope(|scope| {
            let work = || rate(span, || ours(&masters.client, "one"));
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|thread| thread.join().expect("a worker")).sum()
        });
        own.push(done);
    }
    table.compare(
        "8 threads on one lock of 3 masters (raw: one thread alone)",
        median(&bare),
        median(&own),
        None,
        "",
    );
}
