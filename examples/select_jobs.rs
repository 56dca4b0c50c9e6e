//! A worker that waits for jobs and for the loss of its lock at the same time, with `select!` of
//! crossbeam-channel.
//!
//! Only one worker of many takes jobs, the one that holds the lock. When it loses the lock, it
//! stops at once, even while it waits for a job, and another worker takes over.
//!
//! `cargo run --example select_jobs -- redis://127.0.0.1/`

use std::time::Duration;

use crossbeam_channel::{Receiver, select, unbounded};
use leasehold::{Held, LockClient, LossReason, Result};

/// How a worker ended.
#[derive(Debug, PartialEq)]
enum Ended {
    NoMoreJobs,
    Lost(LossReason),
}

/// Takes jobs for as long as the lock is held. It accepts any guard.
fn work(guard: &impl Held, jobs: &Receiver<u32>, done: &mut Vec<u32>) -> Ended {
    let lost = guard.lost();
    loop {
        select! {
            recv(lost) -> _ => {
                let loss = guard.loss().expect("the channel is ready, and the guard lives");
                println!("stopped: {loss}");
                return Ended::Lost(loss.reason());
            }
            recv(jobs) -> job => {
                let Ok(job) = job else { return Ended::NoMoreJobs };
                // Both may be ready, and `select!` takes either: the lock decides.
                if !guard.is_held() {
                    continue;
                }
                println!("job {job}");
                done.push(job);
            }
        }
    }
}

fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let lease = Duration::from_secs(1);
    let builder = LockClient::builder().url(&url).lease(lease);
    // A busy machine may need longer than a quarter of the lease.
    let client = builder.io_timeout(lease / 5 * 4).build()?;
    let operator = LockClient::open(&url)?;
    let (to_workers, jobs) = unbounded();
    let mut done = Vec::new();

    to_workers.send(1).expect("the worker has not gone");
    let guard = client.lock("worker")?;
    std::thread::scope(|scope| {
        // The worker now waits for the next job or for the loss, whichever comes first.
        let waiting = scope.spawn(|| work(&guard, &jobs, &mut done));
        while !jobs.is_empty() {
            std::thread::yield_now();
        }
        println!("the operator frees the lock: {}", operator.mutex("worker").force_unlock()?);
        assert_eq!(
            waiting.join().expect("the worker does not panic"),
            Ended::Lost(LossReason::TakenAway)
        );
        Result::Ok(())
    })?;
    drop(guard);

    // The next worker takes the lock, and the jobs that are left.
    to_workers.send(2).expect("the channel is open");
    drop(to_workers);
    let guard = operator.lock("worker")?;
    assert_eq!(work(&guard, &jobs, &mut done), Ended::NoMoreJobs);
    guard.unlock()?;
    assert_eq!(done, [1, 2]);
    println!("both jobs are done, one by each worker");
    Ok(())
}
