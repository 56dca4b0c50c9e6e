//! A pool of workers with a lock on three independent masters, one of which is killed while they
//! work.
//!
//! The workers run the same code as with one server; only the list of URLs differs. They read and
//! write a total in separate steps, so only the lock keeps it exact; a gate checks the fencing
//! token of every write, because no lock can promise that nobody is late.
//!
//! It starts the masters itself (LEASEHOLD_SERVER, or redis-server) in a temporary directory, and
//! stops them.
//!
//! `cargo run --example three_masters`

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::LockClient;
use leasehold::Redlock;
use leasehold::fencing::FenceGate;
use leasehold::observe::NodeState;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const WORKERS: u32 = 4;
const TURNS: u32 = 50;

struct Master(Child);

impl Drop for Master {
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

fn start(dir: &Path) -> Outcome<Master> {
    std::fs::create_dir_all(dir)?;
    let program = std::env::var("LEASEHOLD_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let child = Command::new(&program)
        .args(["--port", "0", "--save", "", "--unixsocket", "s", "--dir"])
        .arg(dir)
        .current_dir(dir)
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| format!("{program} cannot be started ({e}); set LEASEHOLD_SERVER"))?;
    Ok(Master(child))
}

fn work(client: &LockClient, total: &FenceGate<u32>) -> Outcome<()> {
    for _ in 0..TURNS {
        let guard = client.lock("total")?;
        let claim = total.claim(guard.fencing_token()?)?;
        let old = claim.read(|total| *total)?;
        claim.write(|total| *total = old + 1)?;
        guard.unlock()?;
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let dir = Dir(std::env::temp_dir().join(format!("three-masters-{}", std::process::id())));
    let dirs: Vec<PathBuf> = (1..=3).map(|n| dir.0.join(n.to_string())).collect();
    let mut masters = dirs.iter().map(|dir| start(dir)).collect::<Outcome<Vec<_>>>()?;
    let urls: Vec<String> =
        dirs.iter().map(|dir| format!("redis+unix://{}/s", dir.display())).collect();

    // A first installation: nobody can have a lock on these masters yet. Without
    // `admit_fresh_nodes` they would vote after one `longest_lease`, which is what makes a restart
    // of one of them safe.
    let deadline = Instant::now() + Duration::from_secs(20);
    let client = loop {
        match LockClient::builder().redlock(Redlock::new(&urls).admit_fresh_nodes(true)).build() {
            Ok(client) if client.nodes().iter().all(|node| node.state() == NodeState::Voting) => {
                break client;
            }
            Err(e) if Instant::now() > deadline => return Err(e.into()),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    };

    let total = FenceGate::new(0u32);
    std::thread::scope(|scope| -> Outcome<()> {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(|| work(&client, &total))).collect();
        std::thread::sleep(Duration::from_millis(20));
        drop(masters.remove(0));
        println!("one of three masters is killed");
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker panicked")?)
    })?;

    let down = client.nodes().iter().filter(|node| node.state() == NodeState::Down).count();
    let total = total.into_inner();
    println!("{down} master down, total {total} of {}", WORKERS * TURNS);
    (total == WORKERS * TURNS).then_some(()).ok_or("the total is wrong")?;
    println!("exact on two of three masters");
    Ok(())
}
