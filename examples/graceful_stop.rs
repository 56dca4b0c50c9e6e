//! A pool of workers that ends within a time limit when it gets SIGTERM, as at every deploy:
//! workers that wait for a lock end at once, jobs get some time to finish, and the rest are asked
//! to stop.
//!
//! The exit code is 0 if everything was released. Otherwise it is 1, and the last lines say what
//! may still be locked, and for how long.
//!
//! `cargo run --example graceful_stop -- redis://127.0.0.1/`, then Ctrl-C or `kill` it.

use std::error::Error;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use leasehold::{CancelToken, ErrorKind, LockClient, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

const WORKERS: u32 = 4;
/// The limit from the signal to the exit; less than the service manager waits before it kills.
const BOUND: Duration = Duration::from_secs(8);
/// How long jobs may go on before they are asked to stop.
const GRACE: Duration = Duration::from_secs(1);
/// The part of the limit that is reserved for the close.
const CLOSE: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(100);

fn main() -> std::result::Result<ExitCode, Box<dyn Error>> {
    // Installed before the first job: from here on a signal does not end the program by itself.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let client = LockClient::open(&url)?;
    let jobs = CancelToken::new();
    // Nothing is sent on this channel: it is disconnected once the last worker has ended.
    let (alive, ended) = mpsc::channel::<()>();
    for worker in 0..WORKERS {
        let (client, job, alive) = (client.clone(), jobs.child(), alive.clone());
        std::thread::Builder::new().name(format!("worker-{worker}")).spawn(move || {
            let _alive = alive;
            match work(worker, &client, &job) {
                Err(e) if !matches!(e.kind(), ErrorKind::Closed | ErrorKind::Cancelled) => {
                    eprintln!("worker {worker}: {e}");
                }
                _ => println!("worker {worker} has ended"),
            }
        })?;
    }
    drop(alive);

    signals.forever().next();
    println!("stopping");
    Ok(stop(&client, &jobs, &ended))
}

fn stop(client: &LockClient, jobs: &CancelToken, ended: &mpsc::Receiver<()>) -> ExitCode {
    let deadline = Instant::now() + BOUND;
    let all_end_within =
        |time| ended.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Disconnected);
    // 1. Nobody takes a lock any more; locks that are held stay held and are renewed.
    client.stop_waiting();
    // 2. Jobs end by themselves, or are asked to.
    let in_time = all_end_within(GRACE) || {
        jobs.cancel();
        all_end_within(deadline.saturating_duration_since(Instant::now()).saturating_sub(CLOSE))
    };
    if !in_time {
        eprintln!("a job does not stop: it loses its lock now");
    }
    // 3. Whatever is still held is released, and guards that still exist report the loss.
    match client.close(deadline.saturating_duration_since(Instant::now())) {
        Ok(()) if in_time => {
            println!("stopped: nothing is locked");
            ExitCode::SUCCESS
        }
        Ok(()) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// One job after the other, each under the lock of its subject. Two workers share a subject, so
/// half of them wait.
fn work(worker: u32, client: &LockClient, job: &CancelToken) -> Result<()> {
    let subject = if worker.is_multiple_of(2) { "invoices" } else { "report" };
    // Short jobs end by themselves; the report takes far longer than anybody waits.
    let steps = if worker.is_multiple_of(2) { 5 } else { 6_000 };
    let lock = client.mutex(format!("example-stop:{subject}")).with_cancel(job);
    loop {
        let guard = lock.lock()?;
        println!("worker {worker} works on the {subject}");
        for _ in 0..steps {
            // This represents a step of the work, which ends early at a loss or when the token is
            // cancelled.
            if guard.wait_lost_or_cancelled(STEP, job)?.is_lost() {
                break;
            }
        }
        guard.unlock()?;
    }
}
