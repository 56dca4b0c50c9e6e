//! A start signal: many workers wait until all of them are ready and begin together, and one thread
//! waits until all are done.
//!
//! Three count-down latches, as a load test or a migration needs them. A latch has no lease: the
//! count of a worker that dies before it has counted down never comes. So everybody waits with a
//! timeout, and the thread that set the latches removes them in any case.
//!
//! `cargo run --example start_signal -- redis://127.0.0.1/`

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::{CountDownLatch, LockClient};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const WORKERS: u32 = 4;
/// Much longer than the example takes; it matters only if a worker dies.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Outcome<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let client = LockClient::open(&url)?;
    let latches = Latches::new(&client);
    // A run that was killed may have left its latches behind, with their old counts.
    latches.delete()?;
    let outcome = run(&url, &latches);
    // This also ends the waits of workers that still wait after a failure.
    latches.delete()?;
    outcome
}

struct Latches {
    ready: CountDownLatch,
    start: CountDownLatch,
    finished: CountDownLatch,
}

impl Latches {
    /// Handles only: the counts are in Redis.
    fn new(client: &LockClient) -> Self {
        let [ready, start, finished] =
            ["load-test:ready", "load-test:start", "load-test:finished"].map(|n| client.latch(n));
        Self { ready, start, finished }
    }

    fn delete(&self) -> leasehold::Result<()> {
        [&self.ready, &self.start, &self.finished]
            .into_iter()
            .try_for_each(|latch| latch.delete().map(|_| ()))
    }
}

fn run(url: &str, latches: &Latches) -> Outcome<()> {
    // All are set before the first worker starts: a latch that was never set looks open.
    latches.ready.set_count(WORKERS)?;
    latches.start.set_count(1)?;
    latches.finished.set_count(WORKERS)?;
    let signal = AtomicBool::new(false);

    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|n| {
                let signal = &signal;
                scope.spawn(move || worker(n, url, signal))
            })
            .collect();
        all(&latches.ready, "ready")?;
        println!("all are ready: go");
        signal.store(true, Ordering::SeqCst);
        latches.start.count_down()?;
        all(&latches.finished, "finished")?;
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    println!("all {WORKERS} workers finished, none began before the signal");
    Ok(())
}

/// Waits until all have counted down.
fn all(latch: &CountDownLatch, what: &str) -> Outcome<()> {
    if latch.wait_for(PATIENCE)? {
        return Ok(());
    }
    Err(format!("{} of {WORKERS} workers are not {what} after {PATIENCE:?}", latch.count()?).into())
}

/// Has a client of its own, as another process would.
fn worker(n: u32, url: &str, signal: &AtomicBool) -> Outcome<()> {
    let client = LockClient::open(url)?;
    let latches = Latches::new(&client);
    // ... loads what it needs ...
    latches.ready.count_down()?;
    if !latches.start.wait_for(PATIENCE)? {
        return Err(format!("worker {n}: no start signal after {PATIENCE:?}").into());
    }
    if !signal.load(Ordering::SeqCst) {
        return Err(format!("worker {n}: began before the signal").into());
    }
    println!("worker {n}: works");
    // ... the work ...
    latches.finished.count_down()?;
    Ok(())
}
