//! A nightly report on three hosts: cron starts it on each, their clocks differ, and the host that
//! begins it dies in the middle. Another one makes it, once, and a host that comes late does not
//! make it again.
//!
//! The program starts itself as the hosts. The lease of a second keeps the example short: with the
//! usual 30 s the next host may begin that long after the death.
//!
//! `cargo run --example nightly_report -- redis://127.0.0.1/`

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::{LockClient, Once, ScheduledJob, Settled};

type Outcome<T> = Result<T, Box<dyn Error>>;

const LEASE: Duration = Duration::from_secs(1);
/// How much later the clock of the next host strikes.
const CLOCKS_DIFFER: Duration = Duration::from_millis(150);
/// In a real job: `Every::new(Duration::from_secs(86_400)).offset(Duration::from_secs(2 * 3600))`,
/// which takes the night from the store's clock.
const NIGHT: &str = "2026-11-23";

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let url = args.first().map_or("redis://127.0.0.1/", String::as_str);
    let host = args.get(1);
    // The default I/O timeout, a quarter of that lease, would be short for a busy machine.
    let builder = LockClient::builder().url(url).lease(LEASE).io_timeout(LEASE / 5 * 4);
    let client = builder.owner(format!("host {}", host.map_or("", String::as_str))).build()?;
    let report = client.once("example-report", NIGHT).keep(Duration::from_secs(60));
    match host {
        Some(host) => night_on(host.parse()?, &report),
        None => supervise(url, &report),
    }
}

fn supervise(url: &str, report: &ScheduledJob) -> Outcome<()> {
    // What an earlier run of this example has left: nobody does this in a real job.
    report.forget()?;
    let mut doomed = start(url, 0)?;
    let mut first = BufReader::new(doomed.stdout.take().ok_or("no stdout")?).lines();
    println!("{}", first.next().ok_or("it says nothing")??);
    doomed.kill()?;
    doomed.wait()?;
    println!("host 0 dies in the middle of it");

    let others = [start(url, 1)?, start(url, 2)?];
    let mut made = 0;
    for other in others {
        let output = other.wait_with_output()?;
        output.status.success().then_some(()).ok_or("a host failed")?;
        let said = String::from_utf8(output.stdout)?;
        print!("{said}");
        made += said.matches("has made it").count();
    }
    let Settled::Done { by, .. } = report.wait_done()? else { return Err("nobody made it".into()) };
    println!("the store remembers {by}");
    let late = report.run(|_| Ok::<_, std::io::Error>(()))?;
    if !matches!(late, Once::AlreadyDone { .. }) || made != 1 {
        return Err(format!("made {made} times, and then {late:?}").into());
    }
    println!("three hosts, one death, one report");
    Ok(())
}

fn start(url: &str, host: u32) -> Outcome<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    // The supervisor has the other end of both pipes, so the hosts notice when it is gone.
    command.args([url, &host.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(command.spawn()?)
}

/// What the crontab of a host starts, again and again until the report is made or given up.
fn night_on(host: u32, report: &ScheduledJob) -> Outcome<()> {
    std::thread::sleep(CLOCKS_DIFFER * host);
    let mut said = String::new();
    loop {
        let once = report.run(|job| make_report(host, job.occurrence(), job.attempt()))?;
        let now = match once {
            Once::Done(()) => format!("host {host} has made it"),
            Once::AlreadyDone { by, .. } => format!("host {host}: it was made by {by}"),
            Once::Running { by, .. } => format!("host {host}: {by} is at it"),
            other => format!("host {host}: {other:?}"),
        };
        if now != said {
            // Not `println!`, which panics when the supervisor is gone and nobody reads.
            writeln!(std::io::stdout(), "{now}")?;
            said = now;
        }
        // Woken when it is made. Whoever made it may have died instead.
        if report.wait_done_for(LEASE / 2)?.is_some() {
            return Ok(());
        }
    }
}

fn make_report(host: u32, night: &str, attempt: u32) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "host {host} begins the report of {night}, attempt {attempt}")?;
    if host == 0 {
        std::io::stdin().read_line(&mut String::new())?;
    }
    Ok(())
}
