//! A pool of workers with a lock on the master that sentinels name, while that master is killed.
//!
//! Only the URLs and the master's name differ from a program for one server. While the sentinels
//! choose another master, a call that already waits goes on waiting, and a first attempt fails: the
//! workers try again. Replication is asynchronous, so a failover can forget a lock that was just
//! granted; the gate refuses its former holder by the fencing token, so the total stays exact.
//!
//! It starts a master, two replicas and three sentinels itself (LEASEHOLD_SERVER, or redis-server)
//! in a temporary directory, and stops them.
//!
//! `cargo run --example sentinel`

use std::collections::HashMap;
use std::error::Error;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::fencing::FenceGate;
use leasehold::{ErrorKind, LockClient, ReentrantMutexGuard, Sentinel};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const WORKERS: u32 = 4;
const TURNS: u32 = 500;
/// How long the servers may take for each step that the example waits for.
const PATIENCE: Duration = Duration::from_secs(30);

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that is removed when this is dropped.
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Starts a server that has a directory and a configuration file of its own.
fn start(dir: &Path, port: u16, config: &str, args: &[&str]) -> Outcome<Process> {
    let dir = dir.join(port.to_string());
    std::fs::create_dir_all(&dir)?;
    let file = dir.join("conf");
    std::fs::write(&file, format!("port {port}\nbind 127.0.0.1\ndir {}\n{config}", dir.display()))?;
    let program = std::env::var("LEASEHOLD_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let child = Command::new(&program)
        .arg(&file)
        .args(args)
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| format!("{program} cannot be started ({e}); set LEASEHOLD_SERVER"))?;
    Ok(Process(child))
}

fn free_ports(count: usize) -> Outcome<Vec<u16>> {
    let listeners =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
    Ok(listeners
        .iter()
        .map(|listener| listener.local_addr().map(|address| address.port()))
        .collect::<Result<_, _>>()?)
}

/// The sentinels must have found each other and both replicas, or they cannot replace the master.
fn wait_until_ready(urls: &[String]) -> Outcome<()> {
    let deadline = Instant::now() + PATIENCE;
    for url in urls {
        let knows_all = || -> redis::RedisResult<bool> {
            let mut sentinel = redis::Client::open(url.as_str())?.get_connection()?;
            let facts: HashMap<String, String> =
                redis::cmd("SENTINEL").arg(&["MASTER", "shop"]).query(&mut sentinel)?;
            Ok(["num-slaves", "num-other-sentinels"].iter().all(|fact| facts[*fact] == "2"))
        };
        while !matches!(knows_all(), Ok(true)) {
            if Instant::now() > deadline {
                return Err(format!("the sentinel {url} does not find the other servers").into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    // A replica can be chosen once it follows the master.
    while LockClient::builder()
        .sentinel(Sentinel::new(urls, "shop").replicas(2))
        .build()?
        .lock("ready")
        .is_err()
    {
        if Instant::now() > deadline {
            return Err("the replicas do not follow the master".into());
        }
    }
    Ok(())
}

/// A lock call that outlasts a failover: the first attempt of [`LockClient::lock`] does not.
fn lock(client: &LockClient) -> Outcome<ReentrantMutexGuard> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match client.lock("total") {
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::Unreachable | ErrorKind::NotReady | ErrorKind::ReadOnly
                ) && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            outcome => return Ok(outcome?),
        }
    }
}

fn work(client: &LockClient, total: &FenceGate<u32>) -> Outcome<()> {
    let mut turns = 0;
    while turns < TURNS {
        let guard = lock(client)?;
        let Ok(claim) = total.claim(guard.fencing_token()?) else { continue };
        let Ok(old) = claim.read(|total| *total) else { continue };
        if claim.write(|total| *total = old + 1).is_ok() {
            turns += 1;
        }
        // Dropping the guard releases the lock; if that fails, the release is repeated in the
        // background.
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let dir = Dir(std::env::temp_dir().join(format!("sentinel-{}", std::process::id())));
    let ports = free_ports(6)?;
    let (servers, sentinels) = ports.split_at(3);
    let data = "save \"\"\nrepl-diskless-sync-delay 0\n";
    let mut master = Some(start(&dir.0, servers[0], data, &[])?);
    let replica = format!("{data}replicaof 127.0.0.1 {}\n", servers[0]);
    let _replicas = servers[1..]
        .iter()
        .map(|port| start(&dir.0, *port, &replica, &[]))
        .collect::<Outcome<Vec<_>>>()?;
    let watch = format!(
        "sentinel monitor shop 127.0.0.1 {} 2\nsentinel down-after-milliseconds shop 1000\n\
         sentinel failover-timeout shop 5000\n",
        servers[0]
    );
    let watched = |port: &u16| start(&dir.0, *port, &watch, &["--sentinel"]);
    let _sentinels = sentinels.iter().map(watched).collect::<Outcome<Vec<_>>>()?;
    let urls: Vec<String> =
        sentinels.iter().map(|port| format!("redis://127.0.0.1:{port}/")).collect();
    wait_until_ready(&urls)?;

    let client = LockClient::builder().sentinel(Sentinel::new(&urls, "shop")).build()?;
    let before = client.nodes()[0].address().to_owned();
    println!("the sentinels name {before}");
    let total = FenceGate::new(0u32);
    std::thread::scope(|scope| -> Outcome<()> {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(|| work(&client, &total))).collect();
        std::thread::sleep(Duration::from_millis(20));
        drop(master.take());
        let killed = Instant::now();
        println!("the master is killed");
        drop(lock(&client)?);
        println!("the next lock is granted {:.1} s later", killed.elapsed().as_secs_f64());
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker panicked")?)
    })?;

    let after = client.nodes()[0].address().to_owned();
    let total = total.into_inner();
    println!("the sentinels name {after}, total {total} of {}", WORKERS * TURNS);
    (after != before).then_some(()).ok_or("the master was not replaced")?;
    (total == WORKERS * TURNS).then_some(()).ok_or("the total is wrong")?;
    println!("exact on two masters, one after the other");
    Ok(())
}
