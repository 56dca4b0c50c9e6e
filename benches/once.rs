//! How often a job runs that several machines start, each by its own clock: the cases of
//! `benches/shedlock/ShedLock.java`. A thread with a client of its own is a machine. Arguments: the
//! URLs of the stores.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{LockClient, Once, ScheduledJob};

const LEASE: Duration = Duration::from_secs(1);
const OCCURRENCE: &str = "2026-11-23T02:00Z";
/// How much later each machine fires.
const APART: [u64; 10] = [300, 267, 233, 200, 167, 133, 100, 67, 33, 0];
const ONE_IS_LATE: [u64; 10] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 3000];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [role, url, name] = &args[..]
        && role == "die"
    {
        let died = job(url, name).run(|_| -> Result<(), ()> { std::process::abort() });
        unreachable!("{died:?}");
    }
    for url in &args {
        println!("{}", url.split(':').next().unwrap_or_default());
        play(url);
    }
}

fn job(url: &str, name: &str) -> ScheduledJob {
    let client = LockClient::builder().url(url).lease(LEASE).io_timeout(LEASE * 9 / 10);
    client.build().expect("the store answers").once(name, OCCURRENCE)
}

fn play(url: &str) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let name =
        |case: &str| format!("bench-{}-{case}", now.as_ref().expect("after 1970").as_nanos());
    let (a, c, d, e, f) = (name("a"), name("c"), name("d"), name("e"), name("f"));
    say("ten machines, clocks 300 ms apart, 2 ms of work", fire(url, &a, &APART, 2).0);
    say("a machine 3 s late", fire(url, &c, &ONE_IS_LATE, 2).0);
    let (runs, overlaps) = fire(url, &d, &[0, 1500], 2000);
    say(&format!("2 s of work, a machine 1.5 s late (overlaps: {overlaps})"), runs);
    let this = std::env::current_exe().expect("it runs");
    let died = Command::new(this).args(["die", url, &e]).output().expect("it starts");
    assert!(!died.status.success(), "{died:?}");
    say("its holder has died, two machines 1 s later, a lease of 1 s", fire(url, &e, &[0; 2], 2).0);
    let failed = job(url, &f).run(|_| Err::<(), _>("the job has failed"));
    assert!(matches!(failed, Ok(Once::Failed(_))), "{failed:?}");
    say("the job has failed, two machines 1 s later", fire(url, &f, &[0; 2], 2).0);
}

fn say(what: &str, runs: u32) {
    println!("  {what}: {runs}");
}

/// How often the job ran, and how often while it ran already.
fn fire(url: &str, name: &str, late: &[u64], work: u64) -> (u32, u32) {
    let [runs, inside, overlaps] = [(); 3].map(|()| AtomicU32::new(0));
    let at = Instant::now() + Duration::from_millis(1100);
    let work_once = || {
        overlaps.fetch_add(inside.fetch_add(1, Ordering::SeqCst).min(1), Ordering::SeqCst);
        runs.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(work));
        inside.fetch_sub(1, Ordering::SeqCst);
    };
    std::thread::scope(|scope| {
        for ms in late {
            let (machine, work_once) = (job(url, name), &work_once);
            scope.spawn(move || {
                let fires = at + Duration::from_millis(*ms);
                std::thread::sleep(fires.saturating_duration_since(Instant::now()));
                let ran = machine.run(|_| {
                    work_once();
                    Ok::<_, ()>(())
                });
                let is_wrong = matches!(ran, Err(_) | Ok(Once::Failed(()) | Once::Unrecorded(..)));
                assert!(!is_wrong, "{ran:?}");
            });
        }
    });
    (runs.into_inner(), overlaps.into_inner())
}
