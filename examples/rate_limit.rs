//! At most three calls at a time to an API, from several processes, one of which is killed during
//! its call.
//!
//! The limit is a semaphore whose permits have leases: the dead worker's permit comes back by
//! itself. A counting semaphore, or an INCR and a DECR, would have one permit less from then on.
//! Three calls at a time are not three calls a second: for that see `calls_per_second`.
//!
//! The program starts itself as the workers. The lease of half a second keeps the example short:
//! with the usual 30 s a dead worker's permit is missing for that long, but a worker may also be
//! held up for that long.
//!
//! `cargo run --example rate_limit -- redis://127.0.0.1/`

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold::{LockClient, Semaphore};

type Outcome<T> = Result<T, Box<dyn Error>>;

const PERMITS: u32 = 3;
const WORKERS: u32 = 5;
const CALLS: u32 = 4;
const LEASE: Duration = Duration::from_millis(500);
/// How long the API works on a call whose caller is silent: it stops before the caller's permit
/// comes back, which is two seconds after its lease has ended (Java's clocks may differ by that).
const API_TIMEOUT: Duration = Duration::from_secs(1);
/// Represents the API: a sorted set of its present calls, by the time at which it gives each up.
const LIVE: &str = "example-api:live";

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let url = args.first().map_or("redis://127.0.0.1/", String::as_str);
    // The default I/O timeout, a quarter of that lease, would be short for a busy machine.
    let client = LockClient::builder().url(url).lease(LEASE).io_timeout(LEASE / 5 * 4).build()?;
    let semaphore = client.semaphore("example-api");
    let mut db = redis::Client::open(url)?.get_connection()?;
    if let Some(number) = args.get(1) {
        return worker(number.parse()?, &semaphore, &mut db);
    }
    // This is also done at the start, for what a killed run left behind: the number of permits
    // never expires.
    let mut clear = || -> Outcome<()> {
        semaphore.delete()?;
        Ok(redis::cmd("DEL").arg(LIVE).exec(&mut db)?)
    };
    clear()?;
    let outcome = supervise(url, &semaphore);
    clear()?;
    outcome
}

fn supervise(url: &str, semaphore: &Semaphore) -> Outcome<()> {
    // The first one sets the number; a service does this at each start, whether or not it is set
    // already.
    semaphore.try_set_permits(PERMITS)?;
    let mut doomed = start(url, 0)?;
    let others = (1..WORKERS).map(|number| start(url, number)).collect::<Outcome<Vec<_>>>()?;

    // Worker 0 hangs in its first call.
    let mut line = String::new();
    BufReader::new(doomed.stdout.take().ok_or("no stdout")?).read_line(&mut line)?;
    doomed.kill()?;
    let killed = Instant::now();
    doomed.wait()?;
    println!("worker 0 is killed in its call");

    let mut peak: u32 = line.trim().parse()?;
    for other in others {
        let output = other.wait_with_output()?;
        output.status.success().then_some(()).ok_or("a worker failed")?;
        for line in String::from_utf8(output.stdout)?.lines() {
            peak = peak.max(line.parse()?);
        }
    }
    println!("{} calls made, at most {peak} at once", (WORKERS - 1) * CALLS);
    if peak > PERMITS {
        return Err(format!("{peak} calls at once").into());
    }

    // All or none: this succeeds only once the dead worker's permit is back.
    let all = semaphore.try_acquire_many_for(PERMITS, Duration::from_secs(10))?;
    all.ok_or("the dead worker's permit did not come back")?.release()?;
    println!("its permit is back {:.1} s after its death", killed.elapsed().as_secs_f32());
    println!("never more than {PERMITS} calls at once, and the dead worker's permit came back");
    Ok(())
}

fn start(url: &str, number: u32) -> Outcome<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    // The supervisor has the other end of both pipes, so the workers notice when it is gone.
    command.args([url, &number.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(command.spawn()?)
}

/// Prints for each call how many calls it saw, its own included.
fn worker(number: u32, semaphore: &Semaphore, db: &mut redis::Connection) -> Outcome<()> {
    for call in 0..CALLS {
        let permit = semaphore.acquire()?;
        let (now, call) =
            (SystemTime::now().duration_since(UNIX_EPOCH)?, format!("{number}:{call}"));
        let mut begin = redis::pipe();
        begin
            .atomic()
            .cmd("ZADD")
            .arg(LIVE)
            .arg((now + API_TIMEOUT).as_millis() as u64)
            .arg(&call)
            .ignore();
        begin.cmd("PEXPIRE").arg(LIVE).arg(60_000).ignore();
        begin.cmd("ZCOUNT").arg(LIVE).arg(now.as_millis() as u64).arg("+inf");
        let (live,): (u32,) = begin.query(db)?;
        // Not `println!`, which panics when the supervisor is gone and nobody reads.
        writeln!(std::io::stdout(), "{live}")?;
        if number == 0 {
            std::io::stdin().read_line(&mut String::new())?;
        }
        std::thread::sleep(Duration::from_millis(15));
        redis::cmd("ZREM").arg(LIVE).arg(&call).exec(db)?;
        if let Err(e) = permit.release() {
            // The call took longer than the lease. The only consequence is that the API may have
            // seen one call too many.
            eprintln!("worker {number}: {e}");
        }
    }
    Ok(())
}
