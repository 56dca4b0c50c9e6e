//! The cost of a lock call besides time: CPU, context switches, allocations.

use std::time::Duration;

use leasehold::LockClient;
use nix::sys::resource::{UsageWho, getrusage};

use super::ALLOCATOR;
use super::common::Bench;
use super::common::load::{load, rate_of};
use super::common::primitive::{Ours, Primitive, Raw};
use super::common::table::{Table, median};

/// The resources that this process has used so far.
#[derive(Clone, Copy)]
struct Usage {
    micros: f64,
    switches: f64,
    allocations: usize,
}

impl Usage {
    fn now() -> Self {
        let usage =
            getrusage(UsageWho::RUSAGE_SELF).expect("every process may ask for its own usage");
        let micros =
            |time: nix::sys::time::TimeVal| time.tv_sec() as f64 * 1e6 + time.tv_usec() as f64;
        Self {
            micros: micros(usage.user_time()) + micros(usage.system_time()),
            switches: (usage.voluntary_context_switches() + usage.involuntary_context_switches())
                as f64,
            allocations: ALLOCATOR.stats().allocations + ALLOCATOR.stats().reallocations,
        }
    }
}

/// The rounds of one variant.
#[derive(Default)]
struct Spent {
    micros: Vec<f64>,
    switches: Vec<f64>,
}

impl Spent {
    fn add(&mut self, before: Usage, cycles: f64) {
        let after = Usage::now();
        self.micros.push((after.micros - before.micros) / cycles);
        self.switches.push((after.switches - before.switches) / cycles);
    }
}

/// User and system time of the client for each lock and unlock: without busy polling, which uses
/// CPU on purpose, and with it in a separate row.
pub(crate) fn cpu(bench: &Bench, table: &mut Table) {
    let (rounds, span) = bench.rounds((7, 300), (2, 80));
    for count in [1, 8, 64] {
        let mut raws: Vec<_> = (0..count)
            .map(|i| Raw::new(Primitive::Mutex, bench.url(), &format!("cpu-raw-{i}")))
            .collect();
        let asleep = LockClient::builder()
            .url(bench.url())
            .busy_poll(false)
            .build()
            .expect("the private server answers");
        let polling = bench.client();
        let locks = |client| {
            (0..count).map(|i| Ours::new(Primitive::Mutex, client, &format!("cpu-{i}"))).collect()
        };
        let (mut asleep, mut polling): (Vec<Ours>, Vec<Ours>) = (locks(&asleep), locks(&polling));
        let mut spent: [Spent; 3] = Default::default();
        for _ in 0..rounds {
            let before = Usage::now();
            let cycles = load(&mut raws, span, |raw, granted| raw.poll(granted)).all;
            spent[0].add(before, cycles as f64);
            for (locks, spent) in [&mut asleep, &mut polling].into_iter().zip(&mut spent[1..]) {
                let before = Usage::now();
                let cycles = load(locks, span, |lock, granted| lock.once(granted)).all;
                spent.add(before, cycles as f64);
            }
        }
        let budget = (count <= 8).then_some(1.2);
        add_rows(table, count, &spent, budget);
    }
}

fn add_rows(
    table: &mut Table,
    count: usize,
    [raw, asleep, polling]: &[Spent; 3],
    budget: Option<f64>,
) {
    let [raw_micros, micros, polling_micros] =
        [raw, asleep, polling].map(|spent| median(&spent.micros));
    let shown = |micros: f64| format!("{micros:.1} µs");
    let wanted = budget.map_or(String::new(), |most| format!("≤ {most:.2} raw"));
    let ratio = micros / raw_micros;
    let threads = if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") };
    let what = format!("client CPU per cycle, {threads}, busy_poll(false)");
    let met = budget.map(|most| ratio <= most);
    table.row(&what, &shown(raw_micros), &shown(micros), Some(ratio), &wanted, met);
    let ratio = polling_micros / raw_micros;
    table.row("  with busy polling", "", &shown(polling_micros), Some(ratio), "", None);
    let [raw, asleep, polling] =
        [raw, asleep, polling].map(|spent| format!("{:.1}", median(&spent.switches)));
    table.row(
        "  context switches per cycle",
        &raw,
        &format!("{asleep}, polling {polling}"),
        None,
        "",
        None,
    );
}

/// Heap allocations of the process for each lock and unlock by one thread.
pub(crate) fn allocations(bench: &Bench, table: &mut Table) {
    let mut raw = Raw::new(Primitive::Mutex, bench.url(), "heap-raw");
    let client = bench.client();
    let by_name = Ours::new(Primitive::Mutex, &client, "heap");
    let handle = client.mutex("heap");
    let raw = allocations_of(|| raw.cycle());
    let what = "heap allocations per cycle, lock(name)";
    let ours = allocations_of(|| by_name.once(&mut || ()));
    table.row(what, &format!("{raw:.1}"), &format!("{ours:.1}"), None, "≤ 4", Some(ours <= 4.05));
    let ours = allocations_of(|| drop(handle.lock().expect("the private server answers")));
    table.row("  by a handle", "", &format!("{ours:.1}"), None, "≤ 4", Some(ours <= 4.05));
}

fn allocations_of(mut cycle: impl FnMut()) -> f64 {
    // Tables and buffers grow first.
    rate_of(Duration::from_millis(50), &mut cycle);
    const CYCLES: usize = 2000;
    let before = Usage::now().allocations;
    for _ in 0..CYCLES {
        cycle();
    }
    (Usage::now().allocations - before) as f64 / CYCLES as f64
}
