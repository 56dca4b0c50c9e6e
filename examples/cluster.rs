//! A pool of workers on a cluster of three primaries, while the slot of their lock moves from one
//! to the next.
//!
//! Only the URLs and `cluster()` differ from a program for one server. Each name is served by the
//! primary that has its slot; requests, renewals and wake-ups follow a slot that moves. The last
//! part takes locks in slots of different primaries as one.
//!
//! It starts the primaries itself (LEASEHOLD_SERVER, or redis-server) in a temporary directory, and
//! stops them.
//!
//! `cargo run --example cluster`

use std::collections::BTreeSet;
use std::error::Error;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Cluster, LockClient};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const WORKERS: u32 = 4;
const TURNS: u32 = 2000;
const SLOTS: u16 = 16384;
/// How long the servers may take for each step that the example waits for.
const PATIENCE: Duration = Duration::from_secs(30);

/// One primary. It is stopped when this value is dropped.
struct Node {
    process: Child,
    port: u16,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A directory that is removed when this is dropped.
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Node {
    fn start(dir: &Path, port: u16) -> Outcome<Self> {
        let dir = dir.join(port.to_string());
        std::fs::create_dir_all(&dir)?;
        let program =
            std::env::var("LEASEHOLD_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let process = Command::new(&program)
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--cluster-enabled",
                "yes",
                "--save",
                "",
            ])
            .current_dir(dir)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| format!("{program} cannot be started ({e}); set LEASEHOLD_SERVER"))?;
        Ok(Self { process, port })
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> Outcome<T> {
        let mut connection =
            redis::Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(2))?;
        Ok(redis::cmd(words[0]).arg(&words[1..]).query(&mut connection)?)
    }

    fn id(&self) -> Outcome<String> {
        self.ask(&["CLUSTER", "MYID"])
    }

    /// The id, the configuration epoch and the slots of every node, as this one knows them.
    fn slots_of_all(&self) -> Outcome<BTreeSet<String>> {
        let of_node = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            [&words[..1], &words[6..7], &words[8..]].concat().join(" ")
        };
        Ok(self.ask::<String>(&["CLUSTER", "NODES"])?.lines().map(of_node).collect())
    }

    fn has_all_slots(&self) -> bool {
        let info = self.ask::<String>(&["CLUSTER", "INFO"]).unwrap_or_default();
        info.contains("cluster_state:ok") && info.contains("cluster_size:3")
    }
}

/// Low enough that the port of the cluster bus, 10 000 above it, is valid too.
fn free_port() -> Outcome<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let free = |port: &u16| {
        [*port, port + 10_000].iter().all(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
    };
    let first = std::process::id() % 9000;
    let port = (0..9000)
        .map(|_| 10_000 + ((first + NEXT.fetch_add(1, Ordering::Relaxed)) % 9000) as u16)
        .find(free);
    Ok(port.ok_or("no free port")?)
}

fn wait_until(what: &str, done: impl Fn() -> bool) -> Outcome<()> {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        if Instant::now() > deadline {
            return Err(format!("in vain: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn start_cluster(dir: &Path) -> Outcome<Vec<Node>> {
    let nodes = (0..3).map(|_| Node::start(dir, free_port()?)).collect::<Outcome<Vec<_>>>()?;
    for (number, node) in nodes.iter().enumerate() {
        wait_until("the server answers", || node.ask::<String>(&["PING"]).is_ok())?;
        let own: Vec<String> = (0..SLOTS)
            .filter(|slot| usize::from(slot % 3) == number)
            .map(|s| s.to_string())
            .collect();
        let mut words = vec!["CLUSTER", "ADDSLOTS"];
        words.extend(own.iter().map(String::as_str));
        node.ask::<()>(&words)?;
        node.ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &nodes[0].port.to_string()])?;
    }
    wait_until("the cluster serves all slots", || nodes.iter().all(Node::has_all_slots))?;
    Ok(nodes)
}

/// What `redis-cli --cluster reshard` does for each slot.
fn move_slot(nodes: &[Node], slot: &str, from: usize, to: usize) -> Outcome<()> {
    let (source, target) = (&nodes[from], &nodes[to]);
    target.ask::<()>(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &source.id()?])?;
    source.ask::<()>(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &target.id()?])?;
    let (host, port) = ("127.0.0.1", target.port.to_string());
    loop {
        let keys: Vec<String> = source.ask(&["CLUSTER", "GETKEYSINSLOT", slot, "100"])?;
        if keys.is_empty() {
            break;
        }
        let mut words = vec!["MIGRATE", host, &port, "", "0", "5000", "KEYS"];
        words.extend(keys.iter().map(String::as_str));
        source.ask::<String>(&words)?;
    }
    for node in [target, source].into_iter().chain(nodes) {
        node.ask::<()>(&["CLUSTER", "SETSLOT", slot, "NODE", &target.id()?])?;
    }
    // The nodes notify each other. If one had not received this move yet when the slot moves again,
    // it could take the late message for a newer owner, and drop the keys that it has.
    wait_until("all nodes know who has which slots", || {
        let seen = nodes[0].slots_of_all().ok();
        seen.is_some() && nodes.iter().all(|node| node.slots_of_all().ok() == seen)
    })
}

/// Reads and writes are separate, so only the lock keeps the total exact.
fn work(client: &LockClient, total: &AtomicU32) -> Outcome<()> {
    for _ in 0..TURNS {
        let guard = client.lock("total")?;
        let old = total.load(Ordering::Relaxed);
        std::thread::yield_now();
        total.store(old + 1, Ordering::Relaxed);
        guard.unlock()?;
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let dir = Dir(std::env::temp_dir().join(format!("leasehold-cluster-{}", std::process::id())));
    let nodes = start_cluster(&dir.0)?;

    // A slot that moves is followed for that long; on a busy machine that takes seconds.
    let patient = LockClient::builder().io_timeout(Duration::from_secs(6));
    let client = patient.cluster(Cluster::new(nodes.iter().map(Node::url))).build()?;
    for node in client.nodes() {
        println!(
            "{} has {} slots",
            node.address(),
            node.slots().iter().map(|range| range.len()).sum::<usize>()
        );
    }

    let slot: u16 = nodes[0].ask(&["CLUSTER", "KEYSLOT", "total"])?;
    let (total, done) = (AtomicU32::new(0), AtomicBool::new(false));
    let moves = std::thread::scope(|scope| -> Outcome<u32> {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(|| work(&client, &total))).collect();
        let mover = scope.spawn(|| -> Outcome<u32> {
            let mut moves = 0;
            while !done.load(Ordering::Relaxed) {
                let from = (usize::from(slot) + moves as usize) % 3;
                move_slot(&nodes, &slot.to_string(), from, (from + 1) % 3)?;
                moves += 1;
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(moves)
        });
        let worked = workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a worker panicked")?);
        done.store(true, Ordering::Relaxed);
        let moves = mover.join().map_err(|_| "the mover panicked")??;
        worked.map(|()| moves)
    })?;
    let total = total.into_inner();
    println!("the slot of the lock moved {moves} time(s), total {total} of {}", WORKERS * TURNS);

    let both = client.multi(["account:1", "account:2", "account:3"]);
    println!("three locks in slots of their own, all or none: {:?}", both.try_lock()?.is_some());
    (moves > 0 && total == WORKERS * TURNS).then_some(()).ok_or("the total is wrong")?;
    println!("exact while the slot moved");
    Ok(())
}
