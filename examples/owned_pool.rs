//! Guards that change threads: one thread takes the locks, a pool of workers does the work and
//! releases them.
//!
//! `lock_owned` binds a hold to its guard and not to the thread, so it never re-enters: a second
//! `lock_owned` of the same name waits, even on the same thread. The workers here take one job
//! after the other; for a pool that steals work, where a thread can begin a job in the middle of
//! another, see `rayon_pool`.
//!
//! `cargo run --example owned_pool -- redis://127.0.0.1/`

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use leasehold::{LockClient, OwnedMutexGuard, Result};

fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let client = LockClient::open(&url)?;
    let (sender, jobs) = mpsc::channel::<(u32, OwnedMutexGuard)>();
    let jobs = Mutex::new(jobs);

    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|n| {
                scope.spawn({
                    let jobs = &jobs;
                    move || work(n, jobs)
                })
            })
            .collect();
        for customer in [1, 2, 3, 1, 2, 1] {
            // Two jobs of one customer must not overlap; those of different customers may.
            let guard = client.mutex(format!("customer:{customer}")).lock_owned()?;
            sender.send((customer, guard)).expect("the workers live");
        }
        drop(sender);
        let done = workers.into_iter().map(|worker| worker.join().expect("no worker panics"));
        println!("{} jobs done", done.sum::<Result<u32>>()?);
        Ok(())
    })
}

fn work(worker: u32, jobs: &Mutex<mpsc::Receiver<(u32, OwnedMutexGuard)>>) -> Result<u32> {
    let mut done = 0;
    loop {
        let next = jobs.lock().expect("no worker panics").recv();
        let Ok((customer, guard)) = next else { return Ok(done) };
        std::thread::sleep(Duration::from_millis(20));
        guard.ensure_held()?;
        println!("worker {worker} did a job of customer {customer}");
        guard.unlock()?;
        done += 1;
    }
}
