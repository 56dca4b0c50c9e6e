//! Locks in ZooKeeper compared with a bare create and delete of a node on one connection for each
//! thread, and with a live Apache Curator, in one run, with the minimum ratio that each part must
//! reach.
//!
//! ```text
//! cargo bench --bench zookeeper --features zookeeper                     the whole table, about a minute
//! cargo bench --bench zookeeper --features zookeeper -- --quick          a check that everything works
//! cargo bench --bench zookeeper --features zookeeper -- cycle hand-off   some of: cycle threads one-lock hand-off
//!                                                                        held waiting
//! cargo bench --bench zookeeper --features zookeeper -- --three          on three servers instead of one
//! cargo bench --bench zookeeper --features zookeeper -- --markdown       the table as in BENCHMARKS.md
//! ```
//!
//! It starts private servers (a JDK 17 and Maven are needed), with the settings of a fresh
//! installation: each change is flushed to the disk. The variants alternate, round by round, and
//! medians are compared: read the ratios.

#[path = "../tests/curator/driver.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod driver;
#[path = "../tests/support/java/jvm.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod java;
#[path = "common/load.rs"]
#[allow(dead_code, reason = "the other benches use the rest")]
mod load;
#[path = "common/player.rs"]
#[allow(dead_code, reason = "the other benches use the rest")]
mod player;
#[path = "common/surroundings.rs"]
#[allow(dead_code, reason = "the other benches use the rest")]
mod surroundings;
#[path = "common/table.rs"]
#[allow(dead_code, reason = "the other benches use the rest")]
mod table;

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use leasehold::{LockClient, ReentrantMutex};
use leasehold_rig as rig;

use driver::curator;
use java::Jvm;
use load::{Tally, load, rate_of};
use rig::zookeeper::{EPHEMERAL_SEQUENTIAL, Ensemble, EnsembleOptions, PERSISTENT, Raw, ZooKeeper};
use table::{Table, jain, median, micros, percentile};

/// A group of rows of the table, selected by name.
type Part = (&'static str, fn(&Bench, &mut Table));

const PARTS: &[Part] = &[
    ("cycle", cycle),
    ("threads", threads),
    ("one-lock", one_lock),
    ("hand-off", hand_off),
    ("held", held),
    ("waiting", waiting),
];

/// If other programs use more of the machine than this, the results are worthless.
const BUSY: f64 = 0.2;

/// The settings of a fresh installation, where the rig's differ.
const INSTALLED: &str = "tickTime=2000\ninitLimit=10\nforceSync=yes\npreAllocSize=65536\n\
                         # -Dznode.container.checkIntervalMs=60000";

enum Servers {
    One(ZooKeeper),
    Three(Ensemble),
}

struct Bench {
    jvm: Jvm,
    servers: Servers,
    quick: bool,
}

impl Bench {
    fn start(three: bool, quick: bool) -> Self {
        let servers = if three {
            let options = EnsembleOptions {
                tick: Duration::from_secs(2),
                patience: Duration::from_secs(10),
                settings: INSTALLED,
            };
            Servers::Three(Ensemble::start_with(options))
        } else {
            Servers::One(ZooKeeper::start_with(INSTALLED))
        };
        let url = servers.url();
        let jvm = curator(url.trim_start_matches("zookeeper://"), &["session=30000"]);
        Self { jvm, servers, quick }
    }

    fn rounds(&self, full: (usize, u64), quick: (usize, u64)) -> (usize, Duration) {
        let (rounds, millis) = if self.quick { quick } else { full };
        (rounds, Duration::from_millis(millis))
    }

    fn client(&self) -> LockClient {
        LockClient::open(&self.servers.url()).expect("the private server answers")
    }

    /// Figures of Curator's own bench.
    fn curator(&self, command: &str, figures: &[&str]) -> Vec<f64> {
        let name = command.replace(' ', "-");
        let thread = self.jvm.thread();
        thread.begin(&format!("bench curator-{name} {command}"));
        let answer = thread.answer_within(Duration::from_secs(60));
        figures.iter().map(|figure| driver::figure(&answer, figure)).collect()
    }

    /// Each index uses another server, if there are several.
    fn raw(&self, index: usize, directory: &str) -> Bare {
        let server = self.servers.server(index);
        let mut session = server.raw();
        let _ = session.create(directory, b"", PERSISTENT);
        Bare { session, prefix: format!("{directory}/n-") }
    }
}

impl Servers {
    fn url(&self) -> String {
        match self {
            Self::One(server) => server.url(),
            Self::Three(ensemble) => ensemble.url(),
        }
    }

    fn server(&self, index: usize) -> &ZooKeeper {
        match self {
            Self::One(server) => server,
            Self::Three(ensemble) => ensemble.server(index % 3),
        }
    }

    /// Packets from clients, including four-letter words.
    fn packets(&self) -> u64 {
        let of = |server: &ZooKeeper| server.figure("zk_packets_received");
        match self {
            Self::One(server) => of(server),
            Self::Three(ensemble) => ensemble.servers().iter().map(of).sum(),
        }
    }

    fn count(&self) -> u64 {
        if matches!(self, Self::One(_)) { 1 } else { 3 }
    }
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let mut flag = |name: &str| {
        let before = args.len();
        args.retain(|arg| arg != name);
        args.len() < before
    };
    let (quick, markdown, three) = (flag("--quick"), flag("--markdown"), flag("--three"));
    if let Some(unknown) = args.iter().find(|arg| !PARTS.iter().any(|(name, _)| name == arg)) {
        let known: Vec<_> = PARTS.iter().map(|(name, _)| *name).collect();
        eprintln!(
            "unknown argument {unknown:?}; known: --quick --markdown --three {}",
            known.join(" ")
        );
        std::process::exit(2);
    }
    let bench = Bench::start(three, quick);
    let (mut table, mut busiest, started) = (Table::default(), 0.0_f64, Instant::now());
    for (name, part) in
        PARTS.iter().filter(|(name, _)| args.is_empty() || args.iter().any(|arg| arg == name))
    {
        eprintln!("{name} ... ({:.0} s)", started.elapsed().as_secs_f64());
        busiest = busiest.max(surroundings::used_by_others().unwrap_or(0.0));
        part(&bench, &mut table);
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "ZooKeeper on {} server(s) over loopback, {cores} cores, session 30 s",
        bench.servers.count()
    );
    println!(
        "raw = create an ephemeral sequential node, delete it; one connection for each thread"
    );
    println!("ratio = the median over the rounds, with the quartiles where there are several\n");
    print!("{}", if markdown { table.as_markdown() } else { table.as_text() });
    println!("\n{}", table.verdict());
    let percent = busiest * 100.0;
    if busiest > BUSY {
        println!(
            "DO NOT BELIEVE IT: other programs used up to {percent:.0} % of this machine meanwhile"
        );
    } else {
        println!(
            "other programs used {percent:.0} % of this machine at most, looked at before each part"
        );
    }
    eprintln!("{:.0} s", started.elapsed().as_secs_f64());
}

/// A connection that creates and deletes nodes.
struct Bare {
    session: Raw,
    prefix: String,
}

impl Bare {
    fn once(&mut self, granted: &mut dyn FnMut()) {
        let path = self.session.create(&self.prefix, b"", EPHEMERAL_SEQUENTIAL).expect("a node");
        granted();
        self.session.delete(&path).expect("the node exists");
    }
}

fn once(lock: &ReentrantMutex, granted: &mut dyn FnMut()) {
    let guard = lock.lock().expect("the private server answers");
    granted();
    guard.unlock().expect("held");
}

fn cycle(bench: &Bench, table: &mut Table) {
    let (rounds, span) = bench.rounds((11, 250), (3, 100));
    let (client, mut raw) = (bench.client(), bench.raw(0, "/bare-cycle"));
    let lock = client.mutex("cycle");
    let (mut raws, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        raws.push(rate_of(span, || raw.once(&mut || ())));
        ours.push(rate_of(span, || once(&lock, &mut || ())));
        theirs.extend(bench.curator(&format!("own 1 {}", span.as_millis()), &["rate"]));
    }
    table.compare_rounds("uncontended lock + unlock", &raws, &ours, Some(0.8), "raw");
    table.compare_rounds("  against Curator", &theirs, &ours, Some(1.5), "Curator");
}

fn threads(bench: &Bench, table: &mut Table) {
    let (rounds, span) = bench.rounds((5, 400), (2, 200));
    for (count, least, of_curator) in [(8, None, None), (64, Some(0.9), Some(1.5))] {
        let client = bench.client();
        let mut locks: Vec<_> = (0..count).map(|n| client.mutex(format!("own-{n}"))).collect();
        let mut bare: Vec<_> = (0..count).map(|n| bench.raw(n, &format!("/bare-{n}"))).collect();
        let (mut raws, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        // The first round, which is long, does not count: a server that has just started compiles
        // what it is asked for.
        for round in 0..=rounds {
            let span = if round == 0 { 6 * span } else { span };
            raws.push(load(&mut bare, span, |bare, granted| bare.once(granted)).rate());
            ours.push(load(&mut locks, span, |lock, granted| once(lock, granted)).rate());
            theirs.extend(bench.curator(&format!("own {count} {}", span.as_millis()), &["rate"]));
        }
        for rates in [&mut raws, &mut ours, &mut theirs] {
            rates.remove(0);
        }
        table.compare_rounds(&format!("{count} threads, a lock each"), &raws, &ours, least, "raw");
        table.compare_rounds("  against Curator", &theirs, &ours, of_curator, "Curator");
    }
}

fn one_lock(bench: &Bench, table: &mut Table) {
    const THREADS: usize = 32;
    let (rounds, span) = bench.rounds((5, 600), (2, 300));
    let client = bench.client();
    let alone = client.mutex("alone");
    let mut locks: Vec<_> = (0..THREADS).map(|_| client.mutex("one")).collect();
    let (mut ones, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        ones.push(rate_of(span, || once(&alone, &mut || ())));
        ours.push(load(&mut locks, span, |lock, granted| once(lock, granted)));
        theirs.extend(bench.curator(&format!("one {THREADS} {}", span.as_millis()), &["rate"]));
    }
    let rates: Vec<f64> = ours.iter().map(Tally::rate).collect();
    let fair = median(&ours.iter().map(|tally| jain(&tally.grants)).collect::<Vec<_>>());
    table.compare_rounds(
        "32 threads on one lock, against one thread alone",
        &ones,
        &rates,
        Some(1.2),
        "alone",
    );
    table.row(
        "  Jain index over threads",
        "",
        &format!("{fair:.3}"),
        None,
        "≥ 0.99",
        Some(fair >= 0.99),
    );
    table.compare_rounds("  against Curator", &theirs, &rates, Some(2.5), "Curator");
}

/// From before the release in one session until after the acquire in another.
fn hand_off(bench: &Bench, table: &mut Table) {
    let times = if bench.quick { 20 } else { 200 };
    let clients = [bench.client(), bench.client()];
    let mut took = Vec::new();
    let (sender, granted) = channel();
    for turn in 0..times {
        let guard =
            clients[turn % 2].mutex("hand-off").lock_owned().expect("the private server answers");
        let (next, sender) = (clients[1 - turn % 2].clone(), sender.clone());
        let waiter = std::thread::spawn(move || {
            let guard = next.mutex("hand-off").lock_owned().expect("the private server answers");
            let _ = sender.send(Instant::now());
            guard.unlock().expect("held");
        });
        // Like Curator's bench: waits until the next one is in the queue, and has set its watch.
        while bench.servers.server(0).children("/hand-off").len() < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(5));
        let released = Instant::now();
        guard.unlock().expect("held");
        took.push(granted.recv().expect("a waiter") - released);
        waiter.join().expect("a waiter");
    }
    took.sort();
    let theirs = bench.curator(&format!("handoff {times}"), &["p50_us", "p99_us"]);
    for (percent, theirs) in [50, 99].into_iter().zip(theirs) {
        let own = percentile(&took, percent);
        let theirs = Duration::from_secs_f64(theirs / 1e6);
        let ratio = own.as_secs_f64() / theirs.as_secs_f64();
        let what = format!("hand-off to another session, p{percent}, against Curator");
        table.row(
            &what,
            &micros(theirs),
            &micros(own),
            Some(ratio),
            "≤ 1.0 Curator",
            Some(ratio <= 1.0),
        );
    }
}

/// What the client sends while it holds many locks.
fn held(bench: &Bench, table: &mut Table) {
    let (count, span) = if bench.quick { (100, 3.0) } else { (1000, 8.0) };
    let before = rig::threads_named("lh-");
    let client = bench.client();
    let guards: Vec<_> = (0..count)
        .map(|n| client.mutex(format!("held/{n}")).lock_owned().expect("the server answers"))
        .collect();
    // A hold is queried once after a third of the lease, to set the watch that reports its loss.
    let watched = packets_in(bench, 12.0) * 12.0;
    let rate = packets_in(bench, span);
    let threads = rig::threads_named("lh-") - before;
    let what = format!("requests a second while {count} locks are held");
    table.row(&what, "", &format!("{rate:.2}"), None, "≤ 1", Some(rate <= 1.0));
    table.row("  requests before, in the first 12 s", "", &format!("{watched:.0}"), None, "", None);
    table.row("  threads of that client", "", &threads.to_string(), None, "", None);
    let start = Instant::now();
    client.close(Duration::from_secs(10)).expect("nothing else uses it");
    let took = micros(start.elapsed());
    table.row("  closing that client", "", &took, None, "", None);
    drop(guards);
}

/// What a waiter and the holder send: the heartbeats of two sessions.
fn waiting(bench: &Bench, table: &mut Table) {
    let span = if bench.quick { 3.0 } else { 8.0 };
    let (holder, waiter) = (bench.client(), bench.client());
    let guard = holder.lock("waited for").expect("the private server answers");
    let rate = std::thread::scope(|scope| {
        let waits = scope.spawn(|| waiter.lock("waited for").map(drop));
        std::thread::sleep(Duration::from_secs(4));
        let rate = packets_in(bench, span);
        guard.unlock().expect("held");
        waits.join().expect("a waiter").expect("granted");
        rate
    });
    // Each sends a heartbeat every twelfth of 30 s, and pings in between.
    table.row(
        "requests a second of a holder and a waiter",
        "",
        &format!("{rate:.2}"),
        None,
        "≤ 1",
        Some(rate <= 1.0),
    );
}

/// Packets per second, without Curator's pings (one per 10 s) and the two queries.
fn packets_in(bench: &Bench, seconds: f64) -> f64 {
    let before = bench.servers.packets();
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let asked = 2 * bench.servers.count();
    bench.servers.packets().saturating_sub(before + asked) as f64 / seconds
}
