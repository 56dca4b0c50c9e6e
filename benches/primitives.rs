//! Fair and read-write locks, semaphores and latches compared with their own scripts sent bare, in
//! one run. The bench `budget` measures the plain lock.
//!
//! ```text
//! cargo bench --bench primitives                       the whole table, two and a half minutes
//! cargo bench --bench primitives -- --quick            a check that everything works, 15 s; its numbers mean little
//! cargo bench --bench primitives -- cycle several      some of: cycle several hand-off commands fair-threads fair-processes
//!                                                      fair-queue mix writer patterns redlock
//! ```
//!
//! `--tcp`, `--markdown`, the server and *raw* are those of `budget`. Read the ratios.

mod common;
mod redlock;
mod several;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::load::{load, rate_of};
use common::parts::{self, number};
use common::player::{Player, lines, report, wall_nanos};
use common::primitive::{Ours, Primitive, Raw};
use common::server::connect;
use common::table::{Table, median, micros, millis, percentile};
use common::{Bench, Part, open};

const PARTS: &[Part] = &[
    ("cycle", cycle),
    ("several", several::several),
    ("hand-off", hand_off),
    ("commands", commands),
    ("fair-threads", fair_threads),
    ("fair-processes", |bench, table| parts::processes(bench, table, Primitive::Fair, 4.0, 0.99)),
    ("fair-queue", fair_queue),
    ("mix", mix),
    ("writer", writer),
    ("patterns", patterns),
    ("redlock", redlock::redlock),
];

fn main() {
    common::run(PARTS, &[], |role| {
        match *role {
            ["queue", url, name, raw_name, threads] => {
                play_queue(url, name, raw_name, number(threads));
            }
            ["read", url, name, threads] => play_read(url, name, number(threads)),
            _ => return false,
        }
        true
    });
}

fn cycle(bench: &Bench, table: &mut Table) {
    for primitive in [
        Primitive::Fair,
        Primitive::Read,
        Primitive::Write,
        Primitive::Semaphore,
        Primitive::Counting,
        Primitive::Latch,
    ] {
        let what = match primitive {
            Primitive::Latch => "uncontended latch, set to 1 + count down".to_owned(),
            _ => format!("uncontended {}", primitive.name()),
        };
        parts::cycle(bench, table, &what, primitive, None);
    }
}

fn hand_off(bench: &Bench, table: &mut Table) {
    for primitive in [Primitive::Fair, Primitive::Write, Primitive::Semaphore, Primitive::Latch] {
        parts::hand_off(
            bench,
            table,
            &format!("hand-off between processes, {}", primitive.name()),
            primitive,
        );
    }
}

fn commands(bench: &Bench, table: &mut Table) {
    let long = bench.or_quick(Duration::from_secs(1), Duration::from_millis(100));
    for primitive in [
        Primitive::Fair,
        Primitive::Read,
        Primitive::Write,
        Primitive::Semaphore,
        Primitive::Counting,
        Primitive::Latch,
    ] {
        parts::commands_waiting(bench, table, primitive, long);
    }
}

fn fair_threads(bench: &Bench, table: &mut Table) {
    parts::one_lock(bench, table, Primitive::Fair, 1.5, 0.99);
    parts::commands_contended(bench, table, "  commands per acquisition", Primitive::Fair, 2.0);
}

// ---- a long queue
// --------------------------------------------------------------------------------------------------

/// How long each holder keeps the lock: long enough for the previous holder to queue again, so that
/// all threads wait.
const REST: Duration = Duration::from_millis(2);

/// From the start of a release until the next waiter has the lock, while 32 wait.
fn fair_queue(bench: &Bench, table: &mut Table) {
    let (rounds, span) = bench.rounds((3, 1000), (1, 300));
    for processes in [1, 4] {
        let threads = (32 / processes).to_string();
        let (name, raw_name) = (format!("queue-{processes}"), format!("queue-raw-{processes}"));
        let role = ["queue", bench.url(), &name, &raw_name, &threads];
        let mut players: Vec<_> = (0..processes).map(|_| Player::start(&role)).collect();
        for p in &mut players {
            assert_eq!(p.receive(), "ready");
        }
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (which, times) in ["raw", "leasehold"].iter().zip(&mut times) {
                let begin = wall_nanos() + 20_000_000;
                let end = begin + span.as_nanos() as u64;
                for p in &mut players {
                    p.send(&format!("{which} {begin} {end}"));
                }
                let mut history = Vec::new();
                for player in &mut players {
                    let line = player.receive();
                    let moments: Vec<u64> =
                        line.split_whitespace().map(|w| number(w) as u64).collect();
                    history.extend(moments.chunks_exact(2).map(|pair| (pair[0], pair[1])));
                }
                history.sort_unstable();
                // Only while all threads take part: after the first ones have arrived, before the
                // first one stops.
                let begun = history.len().min(128) / 2;
                let full = history
                    .iter()
                    .zip(&history[1..])
                    .skip(begun)
                    .filter(|((_, released), _)| *released < end);
                times.extend(full.map(|((_, released), (granted, _))| {
                    Duration::from_nanos(granted.saturating_sub(*released))
                }));
            }
        }
        for times in &mut times {
            times.sort();
        }
        let [bare, ours] = times;
        let where_from = if processes == 1 {
            "one process".to_owned()
        } else {
            format!("{processes} processes")
        };
        for percent in [50, 99] {
            let (bare, ours) = (percentile(&bare, percent), percentile(&ours, percent));
            let what = format!("fair hand-off, 32 waiters of {where_from} queued, p{percent}");
            let ratio = ours.as_secs_f64() / bare.as_secs_f64();
            table.row(&what, &micros(bare), &micros(ours), Some(ratio), "", None);
        }
    }
}

/// Threads that acquire and release between two moments, and then report the times.
fn play_queue(url: &str, name: &str, raw_name: &str, threads: usize) {
    let client = open(url);
    let mut waiters: Vec<_> = (0..threads)
        .map(|_| {
            let raw = Raw::new(Primitive::Fair, url, raw_name);
            let subscriber = connect(url);
            (Ours::new(Primitive::Fair, &client, name), raw, subscriber)
        })
        .collect();
    report("ready");
    for line in lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [which, begin, end] = words[..] else { panic!("{line:?}") };
        let (begin, end) = (number(begin) as u64, number(end) as u64);
        let moments: Vec<String> = std::thread::scope(|scope| {
            let running: Vec<_> = waiters
                .iter_mut()
                .map(|(ours, raw, subscriber)| {
                    scope.spawn(move || match which {
                        "raw" => {
                            let mut subscription = subscriber.as_pubsub();
                            subscription.subscribe(raw.channel()).expect("subscribed");
                            queue_until(begin, end, |work| {
                                while !raw.try_acquire() {
                                    subscription.get_message().expect("a message");
                                }
                                work();
                                raw.release();
                            })
                        }
                        _ => queue_until(begin, end, |work| ours.once(work)),
                    })
                })
                .collect();
            running.into_iter().map(|t| t.join().expect("a thread")).collect()
        });
        report(&moments.join(" "));
    }
}

fn queue_until(begin: u64, end: u64, mut once: impl FnMut(&mut dyn FnMut())) -> String {
    std::thread::sleep(Duration::from_nanos(begin.saturating_sub(wall_nanos())));
    let mut moments = Vec::new();
    while wall_nanos() < end {
        once(&mut || {
            let granted = wall_nanos();
            std::thread::sleep(REST);
            moments.push(format!("{granted} {}", wall_nanos()));
        });
    }
    moments.join(" ")
}

// ---- readers and writers
// -------------------------------------------------------------------------------------------

/// 16 threads that read 19 times, write once, and repeat.
fn mix(bench: &Bench, table: &mut Table) {
    const THREADS: usize = 16;
    const READS: usize = 19;
    let (rounds, span) = bench.rounds((5, 800), (2, 200));
    let client = bench.client();
    let (mut reader, mut writer) = (
        Raw::new(Primitive::Read, bench.url(), "mix-raw"),
        Raw::new(Primitive::Write, bench.url(), "mix-raw"),
    );
    let mut workers: Vec<_> = (0..THREADS)
        .map(|i| {
            (
                Ours::new(Primitive::Read, &client, "mix"),
                Ours::new(Primitive::Write, &client, "mix"),
                i,
            )
        })
        .collect();
    let longest_write = AtomicU64::new(0);
    let (mut raw_rates, mut rates, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
    for _ in 0..rounds {
        let turns = rate_of(span / 2, || {
            for _ in 0..READS {
                reader.cycle();
            }
            writer.cycle();
        });
        raw_rates.push(turns * (READS + 1) as f64);
        let tally = load(&mut workers, span, |(read, write, turn), granted| {
            *turn += 1;
            if *turn % (READS + 1) != 0 {
                return read.once(granted);
            }
            let asked = Instant::now();
            write.once(&mut || {
                longest_write.fetch_max(asked.elapsed().as_micros() as u64, Ordering::Relaxed);
                granted();
            });
        });
        rates.push(tally.rate());
        longest = longest.max(tally.longest_wait);
    }
    let what = format!("{THREADS} threads on one read-write lock, 5 % writes");
    table.compare_rounds(&what, &raw_rates, &rates, bench.budget(1.5, 1.5), "raw");
    let written = Duration::from_micros(longest_write.into_inner());
    let met = Some(written <= Duration::from_millis(20));
    table.row("  longest wait for writing", "", &millis(written), None, "≤ 20 ms", met);
    table.row("  longest wait", "", &millis(longest), None, "", None);
}

/// How long a writer waits while others read in a tight loop. Median and longest.
fn writer(bench: &Bench, table: &mut Table) {
    let rounds = bench.or_quick(40, 20);
    for threads in [8, 16] {
        let name = format!("readers-{threads}");
        let client = bench.client();
        let mut readers: Vec<_> =
            (0..threads).map(|_| Ours::new(Primitive::Read, &client, &name)).collect();
        let lock = Ours::new(Primitive::Write, &client, &name);
        let raw_name = format!("raw-readers-{threads}");
        let mut raws: Vec<_> =
            (0..threads).map(|_| Raw::new(Primitive::Read, bench.url(), &raw_name)).collect();
        let mut raw = Raw::new(Primitive::Write, bench.url(), &raw_name);
        let bare =
            while_they_run(&mut raws, Raw::poll, || waits_for(rounds, |granted| raw.poll(granted)));
        let ours = while_they_run(
            &mut readers,
            |r, granted| r.once(granted),
            || write_waits(&lock, rounds),
        );
        release_channel(
            table,
            &format!("{threads} threads reading in a loop, one writer: until it is in"),
            Some(bare),
            ours,
        );

        let name = format!("far-readers-{threads}");
        let lock = Ours::new(Primitive::Write, &client, &name);
        for processes in [1, 2] {
            let role = ["read", bench.url(), &name, &(threads / processes).to_string()];
            let mut players: Vec<_> = (0..processes).map(|_| Player::start(&role)).collect();
            for p in &mut players {
                assert_eq!(p.receive(), "ready");
            }
            for p in &mut players {
                p.send("go");
            }
            let ours = write_waits(&lock, rounds);
            for p in &mut players {
                p.send("stop");
            }
            let reads: usize = players.iter_mut().map(|p| number(&p.receive())).sum();
            assert!(reads > 0, "they read");
            let others = if processes == 1 { "another process" } else { "2 other processes" };
            release_channel(
                table,
                &format!("{threads} in {others}, one writer: until it is in"),
                None,
                ours,
            );
        }
    }
}

/// Runs `work` in a thread for each of them, while `measure` runs here.
fn while_they_run<W: Send, T>(
    workers: &mut [W],
    work: impl Fn(&mut W, &mut dyn FnMut()) + Sync,
    measure: impl FnOnce() -> T,
) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in workers {
            let (stop, work) = (&stop, &work);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    work(worker, &mut || ());
                }
            });
        }
        let measured = measure();
        stop.store(true, Ordering::Relaxed);
        measured
    })
}

fn write_waits(lock: &Ours, rounds: usize) -> Vec<Duration> {
    waits_for(rounds, |granted| lock.once(granted))
}

fn waits_for(rounds: usize, mut once: impl FnMut(&mut dyn FnMut())) -> Vec<Duration> {
    let mut waits = Vec::new();
    for _ in 0..rounds {
        std::thread::sleep(Duration::from_millis(10));
        let asked = Instant::now();
        once(&mut || waits.push(asked.elapsed()));
    }
    waits.sort();
    waits
}

fn release_channel(
    table: &mut Table,
    what: &str,
    bare: Option<Vec<Duration>>,
    ours: Vec<Duration>,
) {
    let half = |waits: &[Duration]| percentile(waits, 50);
    let in_words = |waits: &[Duration]| {
        format!("{}, at most {}", millis(half(waits)), millis(percentile(waits, 100)))
    };
    let ratio = bare.as_ref().map(|bare| half(&ours).as_secs_f64() / half(bare).as_secs_f64());
    let met = Some(percentile(&ours, 100) <= Duration::from_millis(50));
    table.row(
        what,
        &bare.map_or(String::new(), |bare| in_words(&bare)),
        &in_words(&ours),
        ratio,
        "≤ 50 ms",
        met,
    );
}

/// Reads in a loop from one line of input until the next, and reports how often.
fn play_read(url: &str, name: &str, threads: usize) {
    let client = open(url);
    let mut readers: Vec<_> =
        (0..threads).map(|_| Ours::new(Primitive::Read, &client, name)).collect();
    report("ready");
    let mut release_channel = lines();
    while release_channel.next().is_some() {
        let reads = AtomicU64::new(0);
        let once = |reader: &mut Ours, granted: &mut dyn FnMut()| {
            reader.once(granted);
            reads.fetch_add(1, Ordering::Relaxed);
        };
        while_they_run(&mut readers, once, || release_channel.next());
        report(&reads.into_inner().to_string());
    }
}

// ---- what a pattern costs all other clients
// ---------------------------------------------------------------------------

/// A client that waits for fair locks has one pattern subscription, and Redis compares every
/// message with every pattern.
fn patterns(bench: &Bench, table: &mut Table) {
    let (batches, batch) = bench.or_quick((21, 500), (5, 200));
    let client = bench.client();
    let mut sender = bench.server.connect();
    let mut raw = Raw::new(Primitive::Mutex, bench.url(), "among-patterns");
    let ours = Ours::new(Primitive::Mutex, &client, "also-among-patterns");
    let channels = [
        ("a plain lock's channel", "redisson_lock__channel:{some:lock:42}".to_owned()),
        ("a fair waiter's", format!("redisson_lock__channel:{{some:lock:42}}:{}:1", uuid(1 << 20))),
        ("a read-write lock's", "redisson_rwlock:{some:lock:42}".to_owned()),
    ];
    let in_micros = |seconds: f64| format!("{:.1} µs", seconds * 1e6);
    let mut listeners = Vec::new();
    let mut without: Vec<f64> = Vec::new();
    for count in [0, 100, 1000] {
        while listeners.len() < count {
            let mut listener = bench.server.connect();
            let pattern = format!("redisson_lock__channel:*:{}:*", uuid(listeners.len()));
            redis::cmd("PSUBSCRIBE").arg(pattern).exec(&mut listener).expect("our own server");
            listeners.push(listener);
        }
        for (at, (which, channel)) in channels.iter().enumerate() {
            let mut pipeline = redis::pipe();
            (0..batch).for_each(|_| {
                pipeline.cmd("PUBLISH").arg(channel).arg("0").ignore();
            });
            let mut send = || pipeline.exec(&mut sender).expect("our own server");
            let each = median(
                &std::iter::repeat_with(|| timed(&mut send)).take(batches).collect::<Vec<_>>(),
            ) / f64::from(batch);
            if count == 0 {
                without.push(each);
                continue;
            }
            let what =
                format!("PUBLISH on {which}, {count} clients wait for fair locks (raw: none does)");
            table.row(
                &what,
                &in_micros(without[at]),
                &in_micros(each),
                Some(each / without[at]),
                "",
                None,
            );
        }
        // Medians of single cycles, because a preempted thread would distort a rate.
        let (mut bare, mut times) = (Vec::new(), Vec::new());
        for _ in 0..bench.or_quick(2000, 200) {
            bare.push(timed(|| raw.cycle()));
            times.push(timed(|| ours.once(&mut || ())));
        }
        let (bare, ours) = (median(&bare), median(&times));
        let what = format!("  plain lock + unlock beside {count} of them");
        table.row(&what, &in_micros(bare), &in_micros(ours), Some(ours / bare), "", None);
    }
}

fn timed(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64()
}

fn uuid(number: usize) -> String {
    let bits = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!(
        "{:08x}-{:04x}-8{:03x}-8{:03x}-{number:012x}",
        bits >> 32,
        bits & 0xffff,
        bits >> 16 & 0xfff,
        bits >> 28 & 0xfff
    )
}
