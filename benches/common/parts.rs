//! The parts that are the same for every primitive, with the roles of their other processes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use leasehold::LockClient;

use super::load::{Tally, load, rate_of};
use super::player::{Player, lines, report, wall_nanos};
use super::primitive::{Ours, Primitive, Raw};
use super::server::{Counter, connect};
use super::table::{Table, jain, median, micros, millis, percentile, rate};
use super::{Bench, open};

/// Plays the roles of the processes that the parts of this file start. False if it is none of them.
pub(crate) fn play(role: &[&str]) -> bool {
    match *role {
        ["contend", primitive, url, name, threads] => {
            play_contend(Primitive::parse(primitive), url, name, number(threads));
        }
        ["herd", primitive, url, name, threads] => {
            play_herd(Primitive::parse(primitive), url, name, number(threads));
        }
        ["wait", primitive, url, name, raw_name] => {
            play_wait(Primitive::parse(primitive), url, name, raw_name);
        }
        _ => return false,
    }
    true
}

pub(crate) fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

/// Acquired and released by one thread, without contention. `budget`: the minimum ratio.
pub(crate) fn cycle(
    bench: &Bench,
    table: &mut Table,
    what: &str,
    primitive: Primitive,
    budget: Option<f64>,
) {
    let (rounds, span) = bench.rounds((21, 120), (5, 40));
    let mut raw = Raw::new(primitive, bench.url(), "cycle-raw");
    let client = bench.client();
    primitive.prepare(&client, "cycle-raw");
    let ours = Ours::new(primitive, &client, "cycle");
    let (mut raw_rates, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        raw_rates.push(rate_of(span, || raw.cycle()));
        rates.push(rate_of(span, || ours.once(&mut || ())));
    }
    table.compare_rounds(what, &raw_rates, &rates, budget, "raw");
    // The next primitive may need a key of another type under these names.
    clear(bench, &["cycle-raw", "cycle"]);
}

fn clear(bench: &Bench, names: &[&str]) {
    redis::cmd("DEL").arg(names).exec(&mut bench.server.connect()).expect("our own server");
}

/// 32 threads of one process on one name, compared with a single thread that sends the bare
/// scripts.
pub(crate) fn one_lock(
    bench: &Bench,
    table: &mut Table,
    primitive: Primitive,
    least: f64,
    least_jain: f64,
) {
    const THREADS: usize = 32;
    let (rounds, span) = bench.rounds((5, 800), (2, 200));
    let mut alone = Raw::new(primitive, bench.url(), "alone");
    let mut pollers: Vec<_> =
        (0..THREADS).map(|_| Raw::new(primitive, bench.url(), "polled")).collect();
    let client = bench.client();
    let mut threads: Vec<_> = (0..THREADS).map(|_| Ours::new(primitive, &client, "one")).collect();
    let (mut raw_rates, mut ours, mut polls) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        raw_rates.push(rate_of(span / 4, || alone.cycle()));
        ours.push(load(&mut threads, span, |ours, granted| ours.once(granted)));
        raw_rates.push(rate_of(span / 4, || alone.cycle()));
        polls.push(load(&mut pollers, span, |raw, granted| raw.poll(granted)));
    }
    let bare = median(&raw_rates);
    let rate_of = |tallies: &[Tally]| median(&tallies.iter().map(Tally::rate).collect::<Vec<_>>());
    let jain_of =
        |tallies: &[Tally]| median(&tallies.iter().map(|t| jain(&t.grants)).collect::<Vec<_>>());
    let longest_of =
        |tallies: &[Tally]| tallies.iter().map(|t| t.longest_wait).max().unwrap_or_default();
    let what = format!(
        "32 threads on one {}",
        if primitive == Primitive::Mutex { "lock" } else { primitive.name() }
    );
    table.compare(&what, bare, rate_of(&ours), bench.budget(least, least), "raw cycles");
    let fair = jain_of(&ours);
    let met = Some(fair >= least_jain);
    table.row(
        "  Jain index over threads",
        "",
        &format!("{fair:.3}"),
        None,
        &format!("≥ {least_jain}"),
        met,
    );
    let longest = longest_of(&ours);
    let (budget, met) = match bench.budget(20.0, 20.0) {
        Some(_) => ("≤ 20 ms", Some(longest <= Duration::from_millis(20))),
        None => ("", None),
    };
    table.row("  longest wait", "", &millis(longest), None, budget, met);
    table.note(format!(
        "32 raw pollers on one {}, for comparison: {} = {:.2} raw cycles, Jain index {:.2}, longest wait {}",
        if primitive == Primitive::Mutex { "lock" } else { primitive.name() },
        rate(rate_of(&polls)),
        rate_of(&polls) / bare,
        jain_of(&polls),
        millis(longest_of(&polls))
    ));
}

/// The cost of a grant while 32 threads of one process contend for it.
pub(crate) fn commands_contended(
    bench: &Bench,
    table: &mut Table,
    what: &str,
    primitive: Primitive,
    most: f64,
) {
    let (_, span) = bench.rounds((1, 1000), (1, 300));
    let client = bench.client();
    let mut counter = Counter::start(bench);
    let mut threads: Vec<_> = (0..32).map(|_| Ours::new(primitive, &client, "counted")).collect();
    let tally = load(&mut threads, span, |ours, granted| ours.once(granted));
    let per_operation = counter.now().total() as f64 / tally.all as f64;
    table.row(
        what,
        "",
        &format!("{per_operation:.2}"),
        None,
        &format!("≤ {most}"),
        Some(per_operation <= most),
    );
}

/// 4 processes of 8 threads each on one name, compared with a naive herd: as many threads that send
/// the bare scripts until they are granted.
pub(crate) fn processes(
    bench: &Bench,
    table: &mut Table,
    primitive: Primitive,
    least: f64,
    least_jain: f64,
) {
    const PROCESSES: usize = 4;
    const THREADS: usize = 8;
    let (rounds, span) = bench.rounds((3, 1000), (1, 400));
    let start = |role: &str, name: &str| {
        let role = [role, primitive.name(), bench.url(), name, &THREADS.to_string()];
        let mut crowd: Vec<_> = (0..PROCESSES).map(|_| Player::start(&role)).collect();
        for p in &mut crowd {
            assert_eq!(p.receive(), "ready");
        }
        crowd
    };
    let (mut crowd, mut herd) = (start("contend", "crowd"), start("herd", "herd"));
    let mut herd_rates = Vec::new();
    let (mut to_threads, mut to_processes, mut fair, mut longest) =
        (Vec::new(), Vec::new(), Vec::new(), 0);
    let (mut all_grants, mut all_commands) = (0, 0);
    for _ in 0..rounds {
        let together = |players: &mut [Player]| {
            let begin = wall_nanos() + 20_000_000;
            let end = begin + span.as_nanos() as u64;
            for p in players {
                p.send(&format!("{begin} {end}"));
            }
        };
        together(&mut herd);
        let grants: usize = herd.iter_mut().map(|p| number(&p.receive())).sum();
        herd_rates.push(grants as f64 / span.as_secs_f64());
        let mut counted = Counter::start(bench);
        together(&mut crowd);
        // Tokens increase with every grant, so sorting them gives the order of the grants.
        let mut history = BTreeMap::new();
        let mut shares = [0; PROCESSES];
        for (process, player) in crowd.iter_mut().enumerate() {
            for thread in 0..THREADS {
                let line = player.receive();
                let mut words = line.split(' ').map(|w| w.parse::<u64>().expect("a number"));
                longest = longest.max(words.next().expect("the longest wait"));
                all_grants += words.next().expect("the number of grants");
                for token in words {
                    shares[process] += 1;
                    history.insert(token, (process, thread));
                }
            }
        }
        all_commands += counted.now().total();
        let changes = |changed: fn(&(usize, usize), &(usize, usize)) -> bool| {
            let pairs = history.values().zip(history.values().skip(1));
            pairs.filter(|(before, after)| changed(before, after)).count() as f64
                / span.as_secs_f64()
        };
        to_threads.push(changes(|before, after| before != after));
        to_processes.push(changes(|before, after| before.0 != after.0));
        fair.push(jain(&shares));
    }
    let fair = median(&fair);
    let on = if primitive == Primitive::Mutex { "lock" } else { primitive.name() };
    let what = format!("4 processes x 8 threads on one {on}, to another thread");
    table.compare_rounds(&what, &herd_rates, &to_threads, Some(least), "of a herd");
    let met = Some(fair >= least_jain);
    table.row(
        "  Jain index over processes",
        "",
        &format!("{fair:.3}"),
        None,
        &format!("≥ {least_jain}"),
        met,
    );
    let longest = Duration::from_micros(longest);
    let met = Some(longest <= Duration::from_millis(50));
    table.row("  longest wait", "", &millis(longest), None, "≤ 50 ms", met);
    table.note(format!(
        "4 x 8, {on}: handed to another process {}, {:.2} commands per grant",
        rate(median(&to_processes)),
        all_commands as f64 / all_grants as f64
    ));
}

/// Between the two moments on its input, threads with one connection each poll for the lock.
/// Reports how often they acquired it.
fn play_herd(primitive: Primitive, url: &str, name: &str, threads: usize) {
    let mut raws: Vec<_> = (0..threads).map(|_| Raw::new(primitive, url, name)).collect();
    report("ready");
    for line in lines() {
        let (begin, end) = line.split_once(' ').expect("two moments");
        let (begin, end) = (number(begin) as u64, number(end) as u64);
        std::thread::sleep(Duration::from_nanos(begin.saturating_sub(wall_nanos())));
        let tally = load(&mut raws, Duration::from_nanos(end.saturating_sub(begin)), Raw::poll);
        report(&tally.grants.iter().sum::<u64>().to_string());
    }
}

/// Between the two moments on its input, each thread acquires and releases as fast as it can, and
/// reports its tokens.
fn play_contend(primitive: Primitive, url: &str, name: &str, threads: usize) {
    let client = open(url);
    Ours::new(primitive, &client, &format!("warm-{}", std::process::id())).once(&mut || ());
    report("ready");
    for line in lines() {
        let (begin, end) = line.split_once(' ').expect("two moments");
        let (begin, end) = (number(begin) as u64, number(end) as u64);
        let contend = || contend_until(&Ours::new(primitive, &client, name), begin, end);
        let reports: Vec<String> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(contend)).collect();
            running.into_iter().map(|t| t.join().expect("a thread")).collect()
        });
        for line in &reports {
            report(line);
        }
    }
}

fn contend_until(ours: &Ours, begin: u64, end: u64) -> String {
    std::thread::sleep(Duration::from_nanos(begin.saturating_sub(wall_nanos())));
    let (mut tokens, mut grants, mut longest) = (Vec::new(), 0, Duration::ZERO);
    while wall_nanos() < end {
        let asked = Instant::now();
        let grip = ours.take();
        longest = longest.max(asked.elapsed());
        grants += 1;
        if wall_nanos() < end {
            tokens.push(grip.token());
        }
        grip.give_back();
    }
    let mut report = format!("{} {grants}", longest.as_micros());
    for token in &tokens {
        report.push_str(&format!(" {token}"));
    }
    report
}

/// From the start of a release in this process until a waiter in another acquires the lock.
pub(crate) fn hand_off(bench: &Bench, table: &mut Table, what: &str, primitive: Primitive) {
    let rounds = bench.or_quick(400, 40);
    let url = bench.url();
    let client = bench.client();
    let (name, raw_name) =
        (format!("hand {}", primitive.name()), format!("hand-raw {}", primitive.name()));
    primitive.prepare(&client, &raw_name);
    let ours = Ours::new(primitive, &client, &name);
    let mut raw = Raw::new(primitive, url, &raw_name);
    let mut waiter = Player::start(&["wait", primitive.name(), url, &name, &raw_name]);
    assert_eq!(waiter.receive(), "ready");
    let (mut trips, mut raw_times, mut times) = (Vec::new(), Vec::new(), Vec::new());
    let mut rested = Vec::new();
    for round in 0..rounds {
        // Long enough for the waiter to try, subscribe and try again; varied between rounds.
        let settle = Duration::from_micros(2500 + 37 * (round * 7 % 40));
        let grip = ours.take();
        waiter.send("leasehold");
        std::thread::sleep(settle);
        let sent = wall_nanos();
        grip.give_back();
        times.push(waiter.since(sent));

        assert!(raw.try_acquire());
        waiter.send("raw");
        std::thread::sleep(settle);
        let sent = wall_nanos();
        raw.release();
        raw_times.push(waiter.since(sent));

        // Without pauses PINGs are two or three times as fast (client and server then share a
        // core), which no path through three processes can be.
        std::thread::sleep(settle);
        rested.push(raw.ping());
        trips.extend((0..10).map(|_| raw.ping()));
    }
    for v in &mut [&mut trips, &mut rested, &mut raw_times, &mut times] {
        v.sort();
    }
    for percent in [50, 99] {
        let (bare, ours) = (percentile(&raw_times, percent), percentile(&times, percent));
        let ratio = ours.as_secs_f64() / bare.as_secs_f64();
        let what = format!("{what}, p{percent}");
        table.row(
            &what,
            &micros(bare),
            &micros(ours),
            Some(ratio),
            "≤ 1.0 of a bare waiter",
            Some(ratio <= 1.0),
        );
    }
    // The same for all primitives.
    if matches!(primitive, Primitive::Mutex | Primitive::Fair) {
        table.note(format!(
            "hand-off, raw: a waiter with a subscriber connection of its own that sends one attempt per message. A PING after \
             a pause takes {}, PINGs one after another {}",
            micros(percentile(&rested, 50)),
            micros(percentile(&trips, 50))
        ));
    }
}

/// Its input names the variant. It waits for what the parent holds, and reports when it has
/// acquired it.
fn play_wait(primitive: Primitive, url: &str, name: &str, raw_name: &str) {
    let ours = Ours::new(primitive, &open(url), name);
    let mut raw = Raw::new(primitive, url, raw_name);
    let mut subscriber = connect(url);
    let mut subscription = subscriber.as_pubsub();
    subscription.subscribe(raw.channel()).expect("subscribed");
    report("ready");
    for line in lines() {
        let granted = if line == "raw" {
            while !raw.try_wait() {
                subscription.get_message().expect("a message");
            }
            let granted = wall_nanos();
            if primitive != Primitive::Latch {
                raw.release();
            }
            granted
        } else {
            let grip = ours.wait();
            let granted = wall_nanos();
            grip.give_back();
            granted
        };
        report(&granted.to_string());
    }
}

/// The commands of one wait, the first of its client and a later one: one waiter, one release.
pub(crate) fn commands_waiting(
    bench: &Bench,
    table: &mut Table,
    primitive: Primitive,
    long: Duration,
) {
    let build = || LockClient::builder().url(bench.url()).lease(Duration::from_secs(10)).build();
    let (holder, waiter) = (build().expect("a client"), build().expect("a client"));
    let name = format!("long {}", primitive.name());
    // A reader waits for a writer.
    let held = if primitive == Primitive::Read { Primitive::Write } else { primitive };
    let (held, waited) = (Ours::new(held, &holder, &name), Ours::new(primitive, &waiter, &name));
    for (which, budget) in [("first wait of a client", None), ("later wait", Some(4))] {
        let grip = held.take();
        let mut counter = Counter::start(bench);
        let mut spent = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let grip = waited.wait();
                let spent = counter.now();
                grip.give_back();
                spent
            });
            std::thread::sleep(long);
            grip.give_back();
            waiting.join().expect("a waiter")
        });
        // Includes the end of the subscription, but not the scripts of the waiter's own release.
        if !bench.quick {
            std::thread::sleep(Duration::from_millis(1800));
            spent.subscriptions = counter.now().subscriptions;
        }
        // The holder's release.
        spent.scripts -= 1;
        // Only a latch's waiter sends GET; the script of its holder does so once.
        let gets = if primitive == Primitive::Latch { spent.gets - 1 } else { 0 };
        let total = spent.total() + gets;
        let attempts = if primitive == Primitive::Latch {
            format!("{gets} GET")
        } else {
            format!("{} scripts", spent.scripts)
        };
        let what = match primitive {
            Primitive::Mutex => format!("commands per wait of {} s, {which}", long.as_secs_f64()),
            _ => format!(
                "commands per wait of {} s, {}, {which}",
                long.as_secs_f64(),
                primitive.name()
            ),
        };
        let ours = format!("{total} ({attempts}, {} (P)(UN)SUBSCRIBE)", spent.subscriptions);
        let wanted = budget.map_or(String::new(), |b: u64| format!("≤ {b}"));
        table.row(&what, "", &ours, None, &wanted, budget.map(|b| total <= b));
    }
}
