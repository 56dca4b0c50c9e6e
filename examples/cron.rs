//! Cron-style: many processes wake up at the same time, one of them runs the job.
//!
//! It calls `try_lock` and not `lock`, because those that come second have nothing to do. The lock
//! stays taken for a minimum time, even when the job is over and its process has ended. Otherwise a
//! process whose clock is a little behind would wake up after the job, find the lock free, and run
//! the job once more.
//!
//! This is not enough for jobs that must run exactly once, because a holder can lose its lease
//! while it works. Such a job passes the fencing token to what it changes (see `fencing_sqlite`).
//!
//! `cargo run --example cron -- redis://127.0.0.1/`

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{LockClient, Result};

/// More than the difference between the machines' clocks, and less than the time between two runs.
const MINIMUM_HOLD: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let runs = AtomicU32::new(0);
    std::thread::scope(|scope| {
        // Each thread represents a process, with clocks up to 200 ms apart.
        let processes: Vec<_> = (0..8)
            .map(|n| {
                let (url, runs) = (&url, &runs);
                scope.spawn(move || process(n, url, runs))
            })
            .collect();
        processes.into_iter().try_for_each(|process| process.join().expect("no process panics"))
    })?;
    let runs = runs.load(Ordering::SeqCst);
    println!("the job ran {runs} time(s)");
    assert_eq!(runs, 1);
    Ok(())
}

fn process(n: u32, url: &str, runs: &AtomicU32) -> Result<()> {
    let client = LockClient::open(url)?;
    std::thread::sleep(Duration::from_millis(u64::from(n) * 25));
    let Some(guard) = client.mutex("cron:report").min_hold(MINIMUM_HOLD).try_lock()? else {
        println!("process {n}: somebody else runs it");
        return Ok(());
    };
    println!("process {n}: runs the job");
    runs.fetch_add(1, Ordering::SeqCst);
    // ... the job ...
    // This returns at once: the process may end, and the lock stays taken until its time is over.
    guard.unlock()
}
