//! At most ten calls within 300 ms to an API, from three processes together.
//!
//! A permit of the rate limiter is taken and never returned: it comes back by itself when the
//! interval has passed. A worker waits for one as long as it takes; what can be left out is left
//! out when there is none.
//!
//! The program starts itself as the workers.
//!
//! `cargo run --example calls_per_second -- redis://127.0.0.1/`

use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold::{LockClient, RateLimiter};

type Outcome<T> = Result<T, Box<dyn Error>>;

const PERMITS: u32 = 10;
const PER: Duration = Duration::from_millis(300);
const WORKERS: u32 = 3;
const CALLS: u32 = 12;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let url = args.first().map_or("redis://127.0.0.1/", String::as_str);
    let limiter = LockClient::open(url)?.rate_limiter("example-calls");
    if args.get(1).is_some() {
        return worker(&limiter);
    }
    // What an earlier run has left behind: a limiter never expires.
    limiter.delete()?;
    let begun = Instant::now();
    let start = || Command::new(std::env::current_exe()?).args([url, "worker"]).spawn();
    let workers = (0..WORKERS).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
    for mut worker in workers {
        worker.wait()?.success().then_some(()).ok_or("a worker failed")?;
    }
    let took = begun.elapsed();
    limiter.delete()?;
    println!("{} calls took {:.1} s", WORKERS * CALLS, took.as_secs_f32());
    // Ten at once, and then at most ten in each interval.
    let intervals = (WORKERS * CALLS - 1) / PERMITS;
    if took < PER * intervals {
        return Err("they were too fast".into());
    }
    println!("{WORKERS} processes made at most {PERMITS} calls within {PER:?}");
    Ok(())
}

fn worker(limiter: &RateLimiter) -> Outcome<()> {
    // Every process does this when it begins: the first one sets the rate.
    limiter.try_set_rate(PERMITS, PER)?;
    for call in 0..CALLS {
        limiter.acquire(1)?;
        println!("call {call}");
        if limiter.try_acquire(PERMITS / 2)? {
            println!("half of the rate was free: time for something that can wait");
        }
    }
    Ok(())
}
