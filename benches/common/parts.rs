//! The parts that are the same for every noun, with the roles of their other processes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use leasehold::LockClient;

use super::load::{Tally, load, rate_of};
use super::noun::{Noun, Ours, Raw};
use super::player::{Player, lines, tell, wall_nanos};
use super::server::{Counter, connect};
use super::table::{Table, jain, median, micros, millis, percentile, rate};
use super::{Bench, open};

/// The roles of the processes that the parts of this file start. False: it is none of them.
pub(crate) fn play(role: &[&str]) -> bool {
    match *role {
        ["contend", noun, url, name, threads] => play_contend(Noun::parse(noun), url, name, number(threads)),
        ["wait", noun, url, name, raw_name] => play_wait(Noun::parse(noun), url, name, raw_name),
        _ => return false,
    }
    true
}

pub(crate) fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

/// Taken and given back by one thread, with nobody else there. `budget`: the least ratio.
pub(crate) fn cycle(bench: &Bench, table: &mut Table, what: &str, noun: Noun, budget: Option<f64>) {
    let (rounds, span) = bench.rounds((21, 120), (5, 40));
    let mut raw = Raw::new(noun, bench.url(), "cycle-raw");
    let client = bench.client();
    noun.prepare(&client, "cycle-raw");
    let ours = Ours::new(noun, &client, "cycle");
    let (mut raw_rates, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        raw_rates.push(rate_of(span, || raw.cycle()));
        rates.push(rate_of(span, || ours.once(&mut || ())));
    }
    table.compare(what, median(&raw_rates), median(&rates), budget, "raw");
    // The next noun may want another kind of key there.
    clear(bench, &["cycle-raw", "cycle"]);
}

fn clear(bench: &Bench, names: &[&str]) {
    redis::cmd("DEL").arg(names).exec(&mut bench.server.connect()).expect("our own server");
}

/// 32 threads of one process on one name, against one thread alone that sends the bare scripts.
pub(crate) fn one_lock(bench: &Bench, table: &mut Table, noun: Noun, least: f64, least_jain: f64) {
    const THREADS: usize = 32;
    let (rounds, span) = bench.rounds((5, 800), (2, 200));
    let mut alone = Raw::new(noun, bench.url(), "alone");
    let mut pollers: Vec<_> = (0..THREADS).map(|_| Raw::new(noun, bench.url(), "polled")).collect();
    let client = bench.client();
    let mut threads: Vec<_> = (0..THREADS).map(|_| Ours::new(noun, &client, "one")).collect();
    let (mut raw_rates, mut ours, mut polls) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        raw_rates.push(rate_of(span / 4, || alone.cycle()));
        ours.push(load(&mut threads, span, |ours, granted| ours.once(granted)));
        raw_rates.push(rate_of(span / 4, || alone.cycle()));
        polls.push(load(&mut pollers, span, |raw, granted| raw.poll(granted)));
    }
    let bare = median(&raw_rates);
    let rate_of = |tallies: &[Tally]| median(&tallies.iter().map(Tally::rate).collect::<Vec<_>>());
    let jain_of = |tallies: &[Tally]| median(&tallies.iter().map(|t| jain(&t.grants)).collect::<Vec<_>>());
    let longest_of = |tallies: &[Tally]| tallies.iter().map(|t| t.longest_wait).max().unwrap_or_default();
    let what = format!("32 threads on one {}", if noun == Noun::Mutex { "lock" } else { noun.name() });
    table.compare(&what, bare, rate_of(&ours), Some(least), "raw cycles");
    let fair = jain_of(&ours);
    let met = Some(fair >= least_jain);
    table.row("  Jain index over threads", "", &format!("{fair:.3}"), None, &format!("≥ {least_jain}"), met);
    let longest = longest_of(&ours);
    let met = Some(longest <= Duration::from_millis(50));
    table.row("  longest wait", "", &millis(longest), None, "≤ 50 ms", met);
    table.note(format!(
        "32 raw pollers on one {}, for comparison: {} = {:.2} raw cycles, Jain index {:.2}, longest wait {}",
        if noun == Noun::Mutex { "lock" } else { noun.name() },
        rate(rate_of(&polls)),
        rate_of(&polls) / bare,
        jain_of(&polls),
        millis(longest_of(&polls))
    ));
}

/// What a grant costs while 32 threads of one process want it.
pub(crate) fn commands_contended(bench: &Bench, table: &mut Table, what: &str, noun: Noun) {
    let (_, span) = bench.rounds((1, 1000), (1, 300));
    let client = bench.client();
    let mut counter = Counter::start(bench);
    let mut threads: Vec<_> = (0..32).map(|_| Ours::new(noun, &client, "counted")).collect();
    let tally = load(&mut threads, span, |ours, granted| ours.once(granted));
    let per_operation = counter.now().total() as f64 / tally.all as f64;
    table.row(what, "", &format!("{per_operation:.2}"), None, "≤ 2.2", Some(per_operation <= 2.2));
}

/// 4 processes of 8 threads each on one name.
pub(crate) fn processes(bench: &Bench, table: &mut Table, noun: Noun, least_jain: f64) {
    const PROCESSES: usize = 4;
    const THREADS: usize = 8;
    let (rounds, span) = bench.rounds((3, 1000), (1, 400));
    let mut alone = Raw::new(noun, bench.url(), "alone");
    let role = ["contend", noun.name(), bench.url(), "crowd", &THREADS.to_string()];
    let mut crowd: Vec<_> = (0..PROCESSES).map(|_| Player::start(&role)).collect();
    crowd.iter_mut().for_each(|p| assert_eq!(p.hear(), "ready"));
    let mut raw_rates = Vec::new();
    let (mut to_threads, mut to_processes, mut fair, mut longest) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let (mut all_grants, mut all_commands) = (0, 0);
    for _ in 0..rounds {
        raw_rates.push(rate_of(span / 4, || alone.cycle()));
        let mut counted = Counter::start(bench);
        let begin = wall_nanos() + 20_000_000;
        let end = begin + span.as_nanos() as u64;
        crowd.iter_mut().for_each(|p| p.say(&format!("{begin} {end}")));
        // Tokens grow with every grant, so sorted they are the order in which the lock went round.
        let mut history = BTreeMap::new();
        let mut shares = [0; PROCESSES];
        for (process, player) in crowd.iter_mut().enumerate() {
            for thread in 0..THREADS {
                let line = player.hear();
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
            pairs.filter(|(before, after)| changed(before, after)).count() as f64 / span.as_secs_f64()
        };
        to_threads.push(changes(|before, after| before != after));
        to_processes.push(changes(|before, after| before.0 != after.0));
        fair.push(jain(&shares));
        raw_rates.push(rate_of(span / 4, || alone.cycle()));
    }
    let (bare, ours, fair) = (median(&raw_rates), median(&to_threads), median(&fair));
    let on = if noun == Noun::Mutex { "lock" } else { noun.name() };
    let what = format!("4 processes x 8 threads on one {on}, to another thread");
    table.compare(&what, bare, ours, Some(0.7), "raw cycles");
    let met = Some(fair >= least_jain);
    table.row("  Jain index over processes", "", &format!("{fair:.3}"), None, &format!("≥ {least_jain}"), met);
    table.row("  longest wait", "", &millis(Duration::from_micros(longest)), None, "", None);
    table.note(format!(
        "4 x 8, {on}: handed to another process {}, {:.2} commands per grant",
        rate(median(&to_processes)),
        all_commands as f64 / all_grants as f64
    ));
}

/// Between the two moments it is told, each thread takes and gives back as fast as it can, and tells its tokens.
fn play_contend(noun: Noun, url: &str, name: &str, threads: usize) {
    let client = open(url);
    Ours::new(noun, &client, &format!("warm-{}", std::process::id())).once(&mut || ());
    tell("ready");
    for line in lines() {
        let (begin, end) = line.split_once(' ').expect("two moments");
        let (begin, end) = (number(begin) as u64, number(end) as u64);
        let contend = || contend_until(&Ours::new(noun, &client, name), begin, end);
        let reports: Vec<String> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(contend)).collect();
            running.into_iter().map(|t| t.join().expect("a thread")).collect()
        });
        reports.iter().for_each(|report| tell(report));
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
    tokens.iter().for_each(|token| report.push_str(&format!(" {token}")));
    report
}

/// From the start of a release in this process until a waiter in another has it.
pub(crate) fn hand_off(bench: &Bench, table: &mut Table, what: &str, noun: Noun) {
    let rounds = bench.or_quick(400, 40);
    let url = bench.url();
    let client = bench.client();
    let (name, raw_name) = (format!("hand {}", noun.name()), format!("hand-raw {}", noun.name()));
    noun.prepare(&client, &raw_name);
    let ours = Ours::new(noun, &client, &name);
    let mut raw = Raw::new(noun, url, &raw_name);
    let mut waiter = Player::start(&["wait", noun.name(), url, &name, &raw_name]);
    assert_eq!(waiter.hear(), "ready");
    let (mut trips, mut raw_times, mut times) = (Vec::new(), Vec::new(), Vec::new());
    let mut rested = Vec::new();
    for round in 0..rounds {
        // Long enough for the other to have tried, subscribed and tried again; not always the same.
        let settle = Duration::from_micros(2500 + 37 * (round * 7 % 40));
        let grip = ours.take();
        waiter.say("leasehold");
        std::thread::sleep(settle);
        let sent = wall_nanos();
        grip.give_back();
        times.push(waiter.since(sent));

        assert!(raw.try_acquire());
        waiter.say("raw");
        std::thread::sleep(settle);
        let sent = wall_nanos();
        raw.release();
        raw_times.push(waiter.since(sent));

        // The unit is a PING from rest, as a hand-off begins. One after another they are two or three times as quick
        // here (client and server share a core then), which no way through three processes can be.
        std::thread::sleep(settle);
        rested.push(raw.ping());
        trips.extend((0..10).map(|_| raw.ping()));
    }
    [&mut trips, &mut rested, &mut raw_times, &mut times].iter_mut().for_each(|v| v.sort());
    let trip = percentile(&rested, 50);
    for (percent, budget) in [(50, 300.0), (99, 700.0)] {
        let (bare, ours) = (percentile(&raw_times, percent), percentile(&times, percent));
        let in_trips = ours.as_secs_f64() / trip.as_secs_f64();
        let budget = budget / 70.0;
        table.row(
            &format!("{what}, p{percent}"),
            &micros(bare),
            &micros(ours),
            Some(ours.as_secs_f64() / bare.as_secs_f64()),
            &format!("≤ {budget:.1} PINGs from rest of {} = {}", micros(trip), micros(trip.mul_f64(budget))),
            Some(in_trips <= budget),
        );
    }
    // The same for all nouns.
    if matches!(noun, Noun::Mutex | Noun::Fair) {
        table.note(format!(
            "hand-off, raw: a waiter with a subscriber connection of its own that sends one try per message. Budgets are \
             300 (700) µs where a round trip is 70 µs, so they scale with it; PINGs one after another take {}",
            micros(percentile(&trips, 50))
        ));
    }
}

/// Told which, it waits for what the parent holds, and tells when it got it.
fn play_wait(noun: Noun, url: &str, name: &str, raw_name: &str) {
    let ours = Ours::new(noun, &open(url), name);
    let mut raw = Raw::new(noun, url, raw_name);
    let mut subscriber = connect(url);
    let mut ear = subscriber.as_pubsub();
    ear.subscribe(raw.channel()).expect("subscribed");
    tell("ready");
    for line in lines() {
        let granted = if line == "raw" {
            while !raw.try_wait() {
                ear.get_message().expect("a message");
            }
            let granted = wall_nanos();
            if noun != Noun::Latch {
                raw.release();
            }
            granted
        } else {
            let grip = ours.wait();
            let granted = wall_nanos();
            grip.give_back();
            granted
        };
        tell(&granted.to_string());
    }
}

/// What one wait costs, the first of its client and a later one: one waiter, one release.
pub(crate) fn commands_waiting(bench: &Bench, table: &mut Table, noun: Noun, long: Duration) {
    let build = || LockClient::builder().url(bench.url()).lease(Duration::from_secs(10)).build();
    let (holder, waiter) = (build().expect("a client"), build().expect("a client"));
    let name = format!("long {}", noun.name());
    // A reader waits for a writer.
    let held = if noun == Noun::Read { Noun::Write } else { noun };
    let (held, waited) = (Ours::new(held, &holder, &name), Ours::new(noun, &waiter, &name));
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
        // What follows when the subscription is let go; the scripts of the waiter's own release are not its wait's.
        if !bench.quick {
            std::thread::sleep(Duration::from_millis(1800));
            spent.subscriptions = counter.now().subscriptions;
        }
        // The holder's release.
        spent.scripts -= 1;
        // Only a latch's waiter sends GET; the script of its holder does so once.
        let gets = if noun == Noun::Latch { spent.gets - 1 } else { 0 };
        let total = spent.total() + gets;
        let tries = if noun == Noun::Latch { format!("{gets} GET") } else { format!("{} scripts", spent.scripts) };
        let what = match noun {
            Noun::Mutex => format!("commands per wait of {} s, {which}", long.as_secs_f64()),
            _ => format!("commands per wait of {} s, {}, {which}", long.as_secs_f64(), noun.name()),
        };
        let ours = format!("{total} ({tries}, {} (P)(UN)SUBSCRIBE)", spent.subscriptions);
        let wanted = budget.map_or(String::new(), |b: u64| format!("≤ {b}"));
        table.row(&what, "", &ours, None, &wanted, budget.map(|b| total <= b));
    }
}
