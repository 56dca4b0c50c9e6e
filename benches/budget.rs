//! The plain lock compared with its own two scripts sent bare, in one run, with the minimum ratio
//! that each part must reach.
//!
//! ```text
//! cargo bench --bench budget                           the whole table, about two minutes
//! cargo bench --bench budget -- --quick                a check that everything works, 20 s; its numbers mean little
//! cargo bench --bench budget -- cycle hand-off         some of: cycle threads cpu allocations one-lock processes
//!                                                      hand-off kill commands holds is-held tls (--features tls)
//! cargo bench --bench budget -- --hogs                 only beside two processes that keep the processor busy;
//!                                                      --delayed: only 0.2 ms away; --quiet: neither
//! cargo bench --bench budget -- --tcp                  over TCP on the loopback interface, not a unix socket
//! cargo bench --bench budget -- --markdown             the table as in BENCHMARKS.md
//! ```
//!
//! It starts a private server on a Unix socket: `LEASEHOLD_SERVER`, or the `redis-server` or
//! `valkey-server` on PATH. *raw* is one blocking connection per thread with nothing between it and
//! the server: the requests are packed once, and nothing is checked, renewed or stored. Variants
//! alternate, round by round, and medians are compared. Read the ratios: the absolute numbers
//! depend on the machine and its load. The bench `primitives` measures the other primitives.

mod common;
#[cfg(feature = "tls")]
mod tls;
mod usage;

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::{Duration, Instant};

use leasehold::LockClient;

use common::load::load;
use common::parts::{self, number};
use common::player::{Player, lines, report};
use common::primitive::{Ours, Primitive, Raw};
use common::table::{Table, median};
use common::{Bench, Part};

const PARTS: &[Part] = &[
    ("cycle", cycle),
    ("threads", threads),
    ("cpu", usage::cpu),
    ("allocations", usage::allocations),
    ("one-lock", |bench, table| parts::one_lock(bench, table, Primitive::Mutex, 8.0, 0.95)),
    ("processes", |bench, table| parts::processes(bench, table, Primitive::Mutex, 4.0, 0.95)),
    ("hand-off", hand_off),
    ("kill", kill),
    ("commands", commands),
    ("holds", holds),
    ("is-held", is_held),
    #[cfg(feature = "tls")]
    ("tls", tls::cycle),
];

/// The parts that are also measured beside hogs and through a slow network.
const EVERYWHERE: &[&str] = &["cycle", "threads", "one-lock"];

/// Needed by the part `allocations`.
#[global_allocator]
static ALLOCATOR: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

fn main() {
    common::run(PARTS, EVERYWHERE, |role| {
        match *role {
            ["hold", url, name, lease] => {
                play_hold(url, name, Duration::from_millis(number(lease) as u64));
            }
            ["many", url, count, seconds] => play_many(url, number(count), seconds),
            _ => return false,
        }
        true
    });
}

fn cycle(bench: &Bench, table: &mut Table) {
    parts::cycle(
        bench,
        table,
        "uncontended lock + unlock",
        Primitive::Mutex,
        bench.budget(1.5, 0.95),
    );
}

fn threads(bench: &Bench, table: &mut Table) {
    let (rounds, span) = bench.rounds((7, 300), (2, 80));
    for (count, budget) in [(8, bench.budget(1.1, 1.1)), (64, bench.budget(1.5, 1.5)), (256, None)]
    {
        let mut raws: Vec<_> = (0..count)
            .map(|i| Raw::new(Primitive::Mutex, bench.url(), &format!("raw-{i}")))
            .collect();
        let client = bench.client();
        let mut locks: Vec<_> =
            (0..count).map(|i| Ours::new(Primitive::Mutex, &client, &format!("own-{i}"))).collect();
        let (mut raw_rates, mut rates) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            raw_rates.push(load(&mut raws, span, |raw, granted| raw.poll(granted)).rate());
            rates.push(load(&mut locks, span, |lock, granted| lock.once(granted)).rate());
        }
        let what = format!("{count} threads, a lock each");
        table.compare_rounds(&what, &raw_rates, &rates, budget, "raw");
    }
}

fn hand_off(bench: &Bench, table: &mut Table) {
    parts::hand_off(bench, table, "hand-off to a waiter in another process", Primitive::Mutex);
}

fn kill(bench: &Bench, table: &mut Table) {
    let runs = bench.or_quick(8, 2);
    let client = bench.client();
    let mut control = bench.server.connect();
    let mut late: Vec<f64> = Vec::new();
    for run in 0..runs {
        let name = &format!("kill-{run}");
        let mut holder = Player::start(&["hold", bench.url(), name, "1000"]);
        assert_eq!(holder.receive(), "held");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let guard = client.lock(name).expect("the private server answers");
                let granted = Instant::now();
                drop(guard);
                granted
            });
            std::thread::sleep(Duration::from_millis(150 + 67 * run));
            holder.child.kill().expect("SIGKILL");
            holder.child.wait().expect("a killed child");
            let before = Instant::now();
            let remaining: u64 = redis::cmd("PTTL").arg(name).query(&mut control).expect("a lease");
            let due = before + before.elapsed() / 2 + Duration::from_millis(remaining);
            let granted = waiter.join().expect("a waiter");
            let lateness = granted.saturating_duration_since(due).as_secs_f64();
            // PTTL is in whole milliseconds, so this can be slightly below zero.
            late.push(if granted < due {
                -due.duration_since(granted).as_secs_f64()
            } else {
                lateness
            });
        });
    }
    let most = late.iter().copied().fold(f64::MIN, f64::max) * 1e3;
    let what = "next holder after SIGKILL, later than the lease";
    let ours = format!("{most:.1} ms (median {:.1})", median(&late) * 1e3);
    table.row(what, "", &ours, None, "≤ 5 ms", Some(most <= 5.0));
}

fn commands(bench: &Bench, table: &mut Table) {
    let what = "commands per contended operation, 32 threads";
    parts::commands_contended(bench, table, what, Primitive::Mutex, 1.0);
    let long = bench.or_quick(Duration::from_secs(2), Duration::from_millis(300));
    parts::commands_waiting(bench, table, Primitive::Mutex, long);
}

fn holds(bench: &Bench, table: &mut Table) {
    let (count, watched) = bench.or_quick((10_000, 6), (2_000, 2));
    let mut player =
        Player::start(&["many", bench.url(), &count.to_string(), &watched.to_string()]);
    let answer = player.receive();
    let numbers: Vec<f64> = answer.split(' ').filter_map(|w| w.parse().ok()).collect();
    let [threads, bytes, cpu] = numbers[..] else {
        table.note(format!("{count} held, renewed locks: not measured without /proc ({answer})"));
        return;
    };
    drop(player);
    let what = format!("{count} held, renewed locks: threads");
    table.row(&what, "", &format!("{threads}"), None, "1", Some(threads <= 1.0));
    table.row("  bytes each", "", &format!("{bytes:.0}"), None, "< 1024", Some(bytes < 1024.0));
    // Measured with a lease of 3 s, which is renewed ten times as often as one of 30 s.
    let share = cpu / f64::from(watched) / 10.0 * 100.0;
    let ours = format!("{share:.2} %");
    table.row(
        "  watchdog, of a core at a lease of 30 s",
        "",
        &ours,
        None,
        "< 1 %",
        Some(share < 1.0),
    );
    table.note(format!(
        "CPU of the watchdog thread: {:.0} ms in {watched} s at a lease of 3 s, divided by ten; the server's is not in it",
        cpu * 1e3
    ));
}

fn is_held(bench: &Bench, table: &mut Table) {
    let calls = bench.or_quick(3_000_000, 300_000);
    let guard = bench.client().lock("looked-at").expect("the private server answers");
    let mut nanos = Vec::new();
    for _ in 0..5 {
        let begin = Instant::now();
        for _ in 0..calls {
            assert!(black_box(&guard).is_held());
        }
        nanos.push(begin.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    let ours = median(&nanos);
    table.row(
        "is_held(), in a tight loop",
        "",
        &format!("{ours:.0} ns"),
        None,
        "< 50 ns",
        Some(ours < 50.0),
    );
    // The loop does some work between two calls, so that no call benefits from the previous one.
    let apart = |call: bool| {
        let mut nanos = Vec::new();
        for _ in 0..calls / 300 {
            let last = Instant::now();
            while last.elapsed() < Duration::from_micros(30) {
                std::hint::spin_loop();
            }
            let begin = Instant::now();
            if call {
                black_box(black_box(&guard).is_held());
            }
            nanos.push(begin.elapsed().as_nanos() as f64);
        }
        median(&nanos)
    };
    let empty = apart(false);
    let ours = (apart(true) - empty).max(0.0);
    table.row(
        "is_held(), every 30 µs",
        "",
        &format!("{ours:.0} ns"),
        None,
        "< 50 ns",
        Some(ours < 50.0),
    );
}

// ---- roles
// ---------------------------------------------------------------------------------------------------------

fn play_hold(url: &str, name: &str, lease: Duration) {
    let client = LockClient::builder().url(url).lease(lease).build().expect("a client");
    let _guard = client.lock(name).expect("the private server answers");
    report("held");
    lines().for_each(drop);
}

/// Holds many locks for some seconds, and reports leasehold's threads, bytes for each hold, and CPU
/// seconds.
fn play_many(url: &str, count: usize, seconds: &str) {
    let seconds: f64 = seconds.parse().expect("a number");
    let client =
        LockClient::builder().url(url).lease(Duration::from_secs(3)).build().expect("a client");
    drop(client.lock("warm").expect("the private server answers"));
    let mut guards = Vec::with_capacity(count);
    let before = resident_bytes();
    guards.extend(
        (0..count)
            .map(|i| client.lock(format!("many-{i:05}")).expect("the private server answers")),
    );
    let after = resident_bytes();
    let cpu_before = cpu_of_threads();
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let cpu_after = cpu_of_threads();
    assert!(guards.iter().all(leasehold::ReentrantMutexGuard::is_held), "all were renewed");
    match (before, after, cpu_before, cpu_after) {
        (Some(before), Some(after), Some((_, cpu_before)), Some((threads, cpu_after))) => {
            let bytes = after.saturating_sub(before) as f64 / count as f64;
            report(&format!("{} {bytes} {}", threads.len(), cpu_after - cpu_before));
        }
        _ => report("no /proc"),
    }
    // The parent kills this process: 10 000 releases would only take time.
    lines().for_each(drop);
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    Some(kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// Leasehold's threads in this process, and the CPU seconds that they have used.
fn cpu_of_threads() -> Option<(BTreeSet<String>, f64)> {
    let (mut names, mut cpu) = (BTreeSet::new(), 0.0);
    for task in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        if name.starts_with("lh-") {
            names.insert(format!("{} {}", task.file_name().to_string_lossy(), name.trim_end()));
            let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            cpu += stat.split(' ').next()?.parse::<f64>().ok()? / 1e9;
        }
    }
    Some((names, cpu))
}
