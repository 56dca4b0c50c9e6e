//! The budget of `design.md` §6, measured: leasehold against the same two scripts sent bare, in one run.
//!
//! ```text
//! cargo bench --bench budget                           the whole table, about a minute and a half
//! cargo bench --bench budget -- --quick                a look that everything works, 20 s; its numbers say little
//! cargo bench --bench budget -- cycle hand-off         some of: cycle threads one-lock processes hand-off kill
//!                                                      commands holds is-held
//! cargo bench --bench budget -- --tcp                  over TCP on the loopback interface, not a unix socket
//! cargo bench --bench budget -- --markdown             the table as in the README
//! ```
//!
//! It starts a server of its own on a unix socket: `LEASEHOLD_SERVER`, or the `redis-server` or `valkey-server` on
//! PATH. *raw* is one blocking connection per thread with nothing between it and the server: the requests are packed
//! once, nothing is checked, renewed or remembered. Variants take turns, round by round, and medians are compared, so
//! read the ratios: the absolute numbers are those of the machine, and of whatever else it did.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold::LockClient;
use redis::IntoConnectionInfo;
use redis::io::tcp::TcpSettings;

const ACQUIRE: &str = concat!(include_str!("../src/lua/mutex_acquire.lua"), include_str!("../src/lua/lib/grant.lua"));
const RELEASE: &str = include_str!("../src/lua/mutex_release.lua");
/// leasehold's defaults, which raw sends as well.
const LEASE_MS: u64 = 30_000;
const TOKEN_TTL_MS: u64 = 24 * 60 * 60 * 1000;

/// Whoever is asked for by name, in this order.
type Part = fn(&Bench, &mut Table);
const PARTS: &[(&str, Part)] = &[
    ("cycle", cycle),
    ("threads", threads),
    ("one-lock", one_lock),
    ("processes", processes),
    ("hand-off", hand_off),
    ("kill", kill),
    ("commands", commands),
    ("holds", holds),
    ("is-held", is_held),
];

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "--role") {
        return play(&args[1..]);
    }
    // What cargo adds.
    args.retain(|a| a != "--bench");
    let (flags, names): (Vec<_>, Vec<_>) = args.into_iter().partition(|a| a.starts_with("--"));
    let unknown_flag = flags.iter().find(|f| !["--quick", "--tcp", "--markdown"].contains(&f.as_str()));
    let unknown_name = names.iter().find(|n| !PARTS.iter().any(|(name, _)| name == n));
    if let Some(unknown) = unknown_flag.or(unknown_name) {
        let known: Vec<_> = PARTS.iter().map(|(name, _)| *name).collect();
        eprintln!("unknown argument {unknown:?}; known: --quick --tcp --markdown {}", known.join(" "));
        std::process::exit(2);
    }
    let [quick, tcp, markdown] = ["--quick", "--tcp", "--markdown"].map(|flag| flags.iter().any(|f| f == flag));
    let started = Instant::now();
    let bench = Bench { server: Server::start(tcp), quick };
    let mut table = Table::default();
    for (name, part) in PARTS {
        if names.is_empty() || names.iter().any(|n| n == name) {
            eprintln!("{name} ...");
            part(&bench, &mut table);
        }
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let socket = if tcp { "TCP on the loopback interface" } else { "a unix socket" };
    let caution = if quick { ", quick: the numbers say little" } else { "" };
    println!("{} over {socket}, {cores} cores, lease 30 s{caution}", bench.server.version);
    println!("raw = the same two scripts, packed once, one blocking connection per thread; raw cycles = its rate");
    println!("with one thread and nobody else, measured in turns with what it is compared with\n");
    print!("{}", if markdown { table.as_markdown() } else { table.as_text() });
    println!("\n{}", table.verdict());
    eprintln!("{:.0} s", started.elapsed().as_secs_f64());
}

struct Bench {
    server: Server,
    quick: bool,
}

impl Bench {
    fn or_quick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    fn client(&self) -> LockClient {
        open(&self.server.url)
    }
}

fn open(url: &str) -> LockClient {
    LockClient::open(url).expect("the private server answers")
}

// ---- the table ---------------------------------------------------------------------------------------------------

#[derive(Default)]
struct Table {
    rows: Vec<[String; 6]>,
    missed: Vec<String>,
    notes: Vec<String>,
}

const HEADINGS: [&str; 6] = ["what", "raw", "leasehold", "ratio", "budget", "met"];

impl Table {
    /// `raw`, `ratio` and `budget` may be empty.
    fn row(&mut self, what: &str, raw: &str, ours: &str, ratio: Option<f64>, budget: &str, met: Option<bool>) {
        let met = match met {
            Some(true) => "yes",
            Some(false) => {
                self.missed.push(what.to_owned());
                "NO"
            }
            None => "",
        };
        let ratio = ratio.map_or(String::new(), |r| format!("{r:.2}"));
        self.rows.push([what, raw, ours, &ratio, budget, met].map(str::to_owned));
    }

    fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    fn as_text(&self) -> String {
        let heads = HEADINGS.map(str::to_owned);
        let all = || std::iter::once(&heads).chain(&self.rows);
        let widths: Vec<usize> = (0..6).map(|i| all().map(|r| r[i].chars().count()).max().unwrap_or(0)).collect();
        let mut text = String::new();
        for row in all() {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text + &self.notes.iter().map(|n| format!("- {n}\n")).collect::<String>()
    }

    fn as_markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = line(&HEADINGS.map(str::to_owned)) + "|---|---|---|---|---|---|\n";
        text.extend(self.rows.iter().map(|row| line(row)));
        text.push('\n');
        text + &self.notes.iter().map(|n| format!("- {n}\n")).collect::<String>()
    }

    fn verdict(&self) -> String {
        match &self.missed[..] {
            [] => "every budget measured here is met".to_owned(),
            missed => format!("missed: {}", missed.join("; ")),
        }
    }
}

fn rate(n: f64) -> String {
    format!("{n:.0}/s")
}

fn micros(d: Duration) -> String {
    format!("{:.0} µs", d.as_secs_f64() * 1e6)
}

fn millis(d: Duration) -> String {
    format!("{:.1} ms", d.as_secs_f64() * 1e3)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// 1 when all have the same, 1/n when one has everything.
fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&n| n as f64).sum();
    let squares: f64 = shares.iter().map(|&n| (n as f64).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

// ---- the server, and raw -----------------------------------------------------------------------------------------

/// A private server that ends with this process, however that ends.
struct Server {
    guard: Child,
    dir: PathBuf,
    url: String,
    version: String,
}

impl Server {
    fn start(tcp: bool) -> Self {
        let binary = find_server();
        let mut dir = std::env::temp_dir().join(format!("leasehold-bench-{}", std::process::id()));
        // A socket's path has about 100 bytes, and macOS has long temporary directories.
        if dir.as_os_str().len() > 80 {
            dir = PathBuf::from(format!("/tmp/leasehold-bench-{}", std::process::id()));
        }
        std::fs::create_dir_all(&dir).expect("a directory for the server");
        let socket = dir.join("s");
        // Free a moment ago, and nobody else is likely to be given it now.
        let port = if tcp {
            let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port");
            free.port()
        } else {
            0
        };
        // The shell outlives us by a moment: at the end of its input, which is our end, it ends the server.
        let guard = Command::new("sh")
            .args(["-c", "trap '' INT TERM HUP; \"$@\" & read -r _; kill $!; wait", "sh"])
            .arg(&binary)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--loglevel", "warning", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a shell");
        let url = if tcp { format!("redis://127.0.0.1:{port}/") } else { format!("redis+unix://{}", socket.display()) };
        let mut server = Self { guard, dir, url, version: String::new() };
        let give_up = Instant::now() + Duration::from_secs(10);
        let info = loop {
            let asked = redis::Client::open(&*server.url).and_then(|c| c.get_connection());
            match asked.and_then(|mut c| redis::cmd("INFO").arg("server").query::<String>(&mut c)) {
                Ok(info) => break info,
                Err(e) if Instant::now() > give_up => panic!("{} does not answer: {e}", binary.display()),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let field = |name: &str| info.lines().find_map(|l| l.strip_prefix(name)).unwrap_or("?").to_owned();
        server.version = match field("valkey_version:").as_str() {
            "?" => format!("Redis {}", field("redis_version:")),
            version => format!("Valkey {version}"),
        };
        server
    }

    fn connect(&self) -> redis::Connection {
        connect(&self.url)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn find_server() -> PathBuf {
    if let Some(path) = std::env::var_os("LEASEHOLD_SERVER") {
        return path.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.extend(["/usr/local/bin", "/opt/homebrew/bin", "/usr/sbin"].map(PathBuf::from));
    ["redis-server", "valkey-server"]
        .iter()
        .flat_map(|name| dirs.iter().map(move |dir| dir.join(name)))
        .find(|candidate| candidate.is_file())
        .expect("redis-server or valkey-server on PATH, or LEASEHOLD_SERVER; `sh tests/server.sh` gets one")
}

fn connect(url: &str) -> redis::Connection {
    let info = url.into_connection_info().expect("an address");
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let connection = redis::Client::open(info).and_then(|c| c.get_connection()).expect("the private server answers");
    connection.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket takes a timeout");
    connection
}

/// The two scripts on a connection of its own, and nothing else.
struct Raw {
    connection: redis::Connection,
    acquire: Vec<u8>,
    release: Vec<u8>,
}

impl Raw {
    fn new(url: &str, name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut connection = connect(url);
        let mut load = |source: &str| -> String {
            redis::cmd("SCRIPT").arg("LOAD").arg(source).query(&mut connection).expect("the script is loaded")
        };
        let (acquire, release) = (load(ACQUIRE), load(RELEASE));
        let (seconds, fraction): (u64, u64) = redis::cmd("TIME").query(&mut connection).expect("TIME");
        // As long as leasehold's.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let holder = format!("{:08x}-0000-8000-8000-{number:012x}:1", std::process::id());
        let pack = |sha: &str, keys: &[String], args: &[String]| {
            redis::cmd("EVALSHA").arg(sha).arg(keys.len()).arg(keys).arg(args).get_packed_command()
        };
        let token = format!("redisson_lock_token:{{{name}}}");
        let numbers = [LEASE_MS, 0, TOKEN_TTL_MS, seconds * 1_000_000 + fraction, 0].map(|n| n.to_string());
        let acquire_args: Vec<String> = std::iter::once(holder.clone()).chain(numbers).collect();
        let release_args = [holder, "1".to_owned(), channel_of(name)];
        Self {
            acquire: pack(&acquire, &[name.to_owned(), token], &acquire_args),
            release: pack(&release, &[name.to_owned()], &release_args),
            connection,
        }
    }

    fn try_acquire(&mut self) -> bool {
        self.connection.send_packed_command(&self.acquire).expect("the private server answers");
        first_number(self.connection.recv_response()) == 1
    }

    fn release(&mut self) {
        self.connection.send_packed_command(&self.release).expect("the private server answers");
        assert_eq!(first_number(self.connection.recv_response()), 2, "freed");
    }

    fn ping(&mut self) -> Duration {
        let sent = Instant::now();
        self.connection.send_packed_command(b"*1\r\n$4\r\nPING\r\n").expect("the private server answers");
        self.connection.recv_response().expect("PONG");
        sent.elapsed()
    }

    fn cycle(&mut self) {
        assert!(self.try_acquire(), "nobody else uses this lock");
        self.release();
    }
}

fn channel_of(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

fn first_number(reply: redis::RedisResult<redis::Value>) -> i64 {
    match reply {
        Ok(redis::Value::Array(parts)) if matches!(parts.first(), Some(redis::Value::Int(_))) => {
            let redis::Value::Int(n) = parts[0] else { unreachable!() };
            n
        }
        other => panic!("a script answered {other:?}"),
    }
}

// ---- load ----------------------------------------------------------------------------------------------------------

/// What the threads of one round did.
struct Tally {
    /// Grants before the end of the round.
    grants: Vec<u64>,
    longest_wait: Duration,
    took: Duration,
    /// Grants with those after the end, by threads that were waiting.
    all: u64,
}

impl Tally {
    fn rate(&self) -> f64 {
        self.grants.iter().sum::<u64>() as f64 / self.took.as_secs_f64()
    }
}

/// One thread for each worker, all at once, each in a loop of `work` for `span`. `work` takes and gives back, and
/// calls its second argument between the two.
fn load<W: Send>(workers: &mut [W], span: Duration, work: impl Fn(&mut W, &mut dyn FnMut()) + Sync) -> Tally {
    let start = Barrier::new(workers.len() + 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let (start, stop, work) = (&start, &stop, &work);
                scope.spawn(move || {
                    let (mut grants, mut all, mut longest) = (0, 0, Duration::ZERO);
                    start.wait();
                    while !stop.load(Ordering::Relaxed) {
                        let asked = Instant::now();
                        work(worker, &mut || {
                            longest = longest.max(asked.elapsed());
                            all += 1;
                            grants += u64::from(!stop.load(Ordering::Relaxed));
                        });
                    }
                    (grants, all, longest)
                })
            })
            .collect();
        start.wait();
        let begin = Instant::now();
        std::thread::sleep(span);
        stop.store(true, Ordering::Relaxed);
        let took = begin.elapsed();
        let mut tally = Tally { grants: Vec::new(), longest_wait: Duration::ZERO, took, all: 0 };
        for thread in threads {
            let (grants, all, longest) = thread.join().expect("a worker");
            tally.grants.push(grants);
            tally.all += all;
            tally.longest_wait = tally.longest_wait.max(longest);
        }
        tally
    })
}

fn lock_once(client: &LockClient, name: &str, granted: &mut dyn FnMut()) {
    let guard = client.lock(name).expect("the private server answers");
    granted();
    guard.unlock().expect("it was held");
}

/// Rate of raw's cycles, one thread on this one.
fn raw_rate(raw: &mut Raw, span: Duration) -> f64 {
    let begin = Instant::now();
    let mut cycles = 0;
    while begin.elapsed() < span {
        raw.cycle();
        cycles += 1;
    }
    f64::from(cycles) / begin.elapsed().as_secs_f64()
}

/// Poll without a pause: what people write by hand.
fn poll(raw: &mut Raw, granted: &mut dyn FnMut()) {
    while !raw.try_acquire() {}
    granted();
    raw.release();
}

// ---- the parts -----------------------------------------------------------------------------------------------------

fn cycle(bench: &Bench, table: &mut Table) {
    let (rounds, span) = bench.or_quick((21, Duration::from_millis(120)), (5, Duration::from_millis(40)));
    let mut raw = Raw::new(&bench.server.url, "cycle-raw");
    let client = bench.client();
    let (mut raw_rates, mut rates) = (Vec::new(), Vec::new());
    let mut one_round = || {
        raw_rates.push(raw_rate(&mut raw, span));
        let (begin, mut cycles) = (Instant::now(), 0);
        while begin.elapsed() < span {
            lock_once(&client, "cycle", &mut || cycles += 1);
        }
        rates.push(f64::from(cycles) / begin.elapsed().as_secs_f64());
    };
    (0..rounds).for_each(|_| one_round());
    let (bare, ours) = (median(&raw_rates), median(&rates));
    let ratio = ours / bare;
    table.row("uncontended lock + unlock", &rate(bare), &rate(ours), Some(ratio), "≥ 0.95 raw", Some(ratio >= 0.95));
}

fn threads(bench: &Bench, table: &mut Table) {
    let (rounds, span) = bench.or_quick((7, Duration::from_millis(300)), (2, Duration::from_millis(80)));
    for (count, budget) in [(8, Some(1.1)), (64, Some(2.0)), (256, None)] {
        let mut raws: Vec<_> = (0..count).map(|i| Raw::new(&bench.server.url, &format!("raw-{i}"))).collect();
        let client = bench.client();
        let mut names: Vec<_> = (0..count).map(|i| format!("own-{i}")).collect();
        let (mut raw_rates, mut rates) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            raw_rates.push(load(&mut raws, span, |raw, granted| poll(raw, granted)).rate());
            rates.push(load(&mut names, span, |name, granted| lock_once(&client, name, granted)).rate());
        }
        let (bare, ours) = (median(&raw_rates), median(&rates));
        let ratio = ours / bare;
        let what = format!("{count} threads, a lock each");
        let wanted = budget.map_or(String::new(), |b: f64| format!("≥ {b:.1} raw"));
        table.row(&what, &rate(bare), &rate(ours), Some(ratio), &wanted, budget.map(|b| ratio >= b));
    }
}

fn one_lock(bench: &Bench, table: &mut Table) {
    const THREADS: usize = 32;
    let (rounds, span) = bench.or_quick((5, Duration::from_millis(800)), (2, Duration::from_millis(200)));
    let mut alone = Raw::new(&bench.server.url, "alone");
    let mut pollers: Vec<_> = (0..THREADS).map(|_| Raw::new(&bench.server.url, "polled")).collect();
    let client = bench.client();
    let mut threads = [(); THREADS];
    let (mut raw_rates, mut ours, mut polls) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        raw_rates.push(raw_rate(&mut alone, span / 4));
        ours.push(load(&mut threads, span, |(), granted| lock_once(&client, "one", granted)));
        raw_rates.push(raw_rate(&mut alone, span / 4));
        polls.push(load(&mut pollers, span, |raw, granted| poll(raw, granted)));
    }
    let bare = median(&raw_rates);
    let rate_of = |tallies: &[Tally]| median(&tallies.iter().map(Tally::rate).collect::<Vec<_>>());
    let jain_of = |tallies: &[Tally]| median(&tallies.iter().map(|t| jain(&t.grants)).collect::<Vec<_>>());
    let longest_of = |tallies: &[Tally]| tallies.iter().map(|t| t.longest_wait).max().unwrap_or_default();
    let ratio = rate_of(&ours) / bare;
    let met = Some(ratio >= 1.0);
    table.row("32 threads on one lock", &rate(bare), &rate(rate_of(&ours)), Some(ratio), "≥ 1.0 raw cycles", met);
    let fair = jain_of(&ours);
    table.row("  Jain index over threads", "", &format!("{fair:.3}"), None, "≥ 0.95", Some(fair >= 0.95));
    let longest = longest_of(&ours);
    let met = Some(longest <= Duration::from_millis(50));
    table.row("  longest wait", "", &millis(longest), None, "≤ 50 ms", met);
    table.note(format!(
        "32 raw pollers on one lock, for comparison: {} = {:.2} raw cycles, Jain index {:.2}, longest wait {}",
        rate(rate_of(&polls)),
        rate_of(&polls) / bare,
        jain_of(&polls),
        millis(longest_of(&polls))
    ));
}

fn processes(bench: &Bench, table: &mut Table) {
    const PROCESSES: usize = 4;
    const THREADS: usize = 8;
    let (rounds, span) = bench.or_quick((3, Duration::from_millis(1000)), (1, Duration::from_millis(400)));
    let mut alone = Raw::new(&bench.server.url, "alone");
    let mut crowd: Vec<_> =
        (0..PROCESSES).map(|_| Player::start(&["contend", &bench.server.url, "crowd", &THREADS.to_string()])).collect();
    crowd.iter_mut().for_each(|p| assert_eq!(p.hear(), "ready"));
    let mut raw_rates = Vec::new();
    let (mut to_threads, mut to_processes, mut fair, mut longest) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let (mut all_grants, mut all_commands) = (0, 0);
    for _ in 0..rounds {
        raw_rates.push(raw_rate(&mut alone, span / 4));
        let counted = Counter::start(bench);
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
        all_commands += counted.stop().total();
        let changes = |changed: fn(&(usize, usize), &(usize, usize)) -> bool| {
            let pairs = history.values().zip(history.values().skip(1));
            pairs.filter(|(before, after)| changed(before, after)).count() as f64 / span.as_secs_f64()
        };
        to_threads.push(changes(|before, after| before != after));
        to_processes.push(changes(|before, after| before.0 != after.0));
        fair.push(jain(&shares));
        raw_rates.push(raw_rate(&mut alone, span / 4));
    }
    let (bare, ours, fair) = (median(&raw_rates), median(&to_threads), median(&fair));
    let ratio = ours / bare;
    let what = "4 processes x 8 threads on one lock, to another thread";
    table.row(what, &rate(bare), &rate(ours), Some(ratio), "≥ 0.7 raw cycles", Some(ratio >= 0.7));
    table.row("  Jain index over processes", "", &format!("{fair:.3}"), None, "≥ 0.9", Some(fair >= 0.9));
    table.row("  longest wait", "", &millis(Duration::from_micros(longest)), None, "", None);
    table.note(format!(
        "4 x 8: handed to another process {}, {:.2} commands per grant",
        rate(median(&to_processes)),
        all_commands as f64 / all_grants as f64
    ));
}

fn hand_off(bench: &Bench, table: &mut Table) {
    let rounds = bench.or_quick(400, 40);
    let url = &bench.server.url;
    let mut waiter = Player::start(&["wait", url, "hand", "hand-raw"]);
    assert_eq!(waiter.hear(), "ready");
    let client = bench.client();
    let mut raw = Raw::new(url, "hand-raw");
    let (mut trips, mut raw_times, mut times) = (Vec::new(), Vec::new(), Vec::new());
    let mut rested = Vec::new();
    for round in 0..rounds {
        // Long enough for the other to have tried, subscribed and tried again; not always the same.
        let settle = Duration::from_micros(2500 + 37 * (round * 7 % 40));
        let guard = client.lock("hand").expect("the private server answers");
        waiter.say("leasehold");
        std::thread::sleep(settle);
        let sent = wall_nanos();
        guard.unlock().expect("it was held");
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
            &format!("hand-off to a waiter in another process, p{percent}"),
            &micros(bare),
            &micros(ours),
            Some(ours.as_secs_f64() / bare.as_secs_f64()),
            &format!("≤ {budget:.1} PINGs from rest of {} = {}", micros(trip), micros(trip.mul_f64(budget))),
            Some(in_trips <= budget),
        );
    }
    table.note(format!(
        "hand-off, raw: a waiter with a subscriber connection of its own that sends one try per message. Budgets are \
         300 (700) µs where a round trip is 70 µs, so they scale with it; PINGs one after another take {}",
        micros(percentile(&trips, 50))
    ));
}

fn kill(bench: &Bench, table: &mut Table) {
    let runs = bench.or_quick(8, 2);
    let client = bench.client();
    let mut control = bench.server.connect();
    let mut late: Vec<f64> = Vec::new();
    for run in 0..runs {
        let name = &format!("kill-{run}");
        let mut holder = Player::start(&["hold", &bench.server.url, name, "1000"]);
        assert_eq!(holder.hear(), "held");
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
            // PTTL is in whole milliseconds, so this can be a hair below zero.
            late.push(if granted < due { -due.duration_since(granted).as_secs_f64() } else { lateness });
        });
    }
    let most = late.iter().copied().fold(f64::MIN, f64::max) * 1e3;
    let what = "next holder after SIGKILL, later than the lease";
    let ours = format!("{most:.1} ms (median {:.1})", median(&late) * 1e3);
    table.row(what, "", &ours, None, "≤ 5 ms", Some(most <= 5.0));
}

fn commands(bench: &Bench, table: &mut Table) {
    let span = bench.or_quick(Duration::from_millis(1000), Duration::from_millis(300));
    let client = bench.client();
    let counter = Counter::start(bench);
    let tally = load(&mut [(); 32], span, |(), granted| lock_once(&client, "counted", granted));
    let per_operation = counter.stop().total() as f64 / tally.all as f64;
    let what = "commands per contended operation, 32 threads";
    table.row(what, "", &format!("{per_operation:.2}"), None, "≤ 2.2", Some(per_operation <= 2.2));

    let long = bench.or_quick(Duration::from_secs(2), Duration::from_millis(300));
    let build = || LockClient::builder().url(&*bench.server.url).lease(Duration::from_secs(10)).build();
    let (holder, waiter) = (build().expect("a client"), build().expect("a client"));
    for (which, budget) in [("first wait of a client", None), ("later wait", Some(4))] {
        let held = holder.lock("long").expect("the private server answers");
        let mut counter = Counter::start(bench);
        let mut spent = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let guard = waiter.lock("long").expect("the private server answers");
                let spent = counter.now();
                drop(guard);
                spent
            });
            std::thread::sleep(long);
            held.unlock().expect("it was held");
            waiting.join().expect("a waiter")
        });
        // What follows when the subscription is let go; the scripts of the waiter's own release are not its wait's.
        if !bench.quick {
            std::thread::sleep(Duration::from_millis(1800));
            let after = counter.now();
            spent.subscriptions = after.subscriptions;
            spent.publishes = after.publishes;
        }
        // The holder's release.
        spent.scripts -= 1;
        let what = format!("commands per wait of {} s, {which}", long.as_secs_f64());
        let ours = format!("{} ({})", spent.total(), spent.in_words());
        let wanted = budget.map_or(String::new(), |b: u64| format!("≤ {b}"));
        table.row(&what, "", &ours, None, &wanted, budget.map(|b| spent.total() <= b));
    }
}

fn holds(bench: &Bench, table: &mut Table) {
    let (count, watched) = bench.or_quick((10_000, 6), (2_000, 2));
    let mut player = Player::start(&["many", &bench.server.url, &count.to_string(), &watched.to_string()]);
    let answer = player.hear();
    let numbers: Vec<f64> = answer.split(' ').filter_map(|w| w.parse().ok()).collect();
    let [threads, bytes, cpu] = numbers[..] else {
        table.note(format!("{count} held, renewed locks: not measured without /proc ({answer})"));
        return;
    };
    drop(player);
    let what = format!("{count} held, renewed locks: threads");
    table.row(&what, "", &format!("{threads}"), None, "1", Some(threads <= 1.0));
    table.row("  bytes each", "", &format!("{bytes:.0}"), None, "< 1024", Some(bytes < 1024.0));
    // Measured at a lease of 3 s, renewed ten times as often as at 30 s.
    let share = cpu / f64::from(watched) / 10.0 * 100.0;
    let ours = format!("{share:.2} %");
    table.row("  watchdog, of a core at a lease of 30 s", "", &ours, None, "< 1 %", Some(share < 1.0));
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
    table.row("is_held(), in a tight loop", "", &format!("{ours:.0} ns"), None, "< 100 ns", Some(ours < 100.0));
    // What one call remembers for the next is of no use to a loop that does some work in between.
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
    table.row("is_held(), every 30 µs", "", &format!("{ours:.0} ns"), None, "< 100 ns", Some(ours < 100.0));
}

// ---- commands sent by clients --------------------------------------------------------------------------------------

/// What clients have sent since the start.
struct Counter {
    connection: redis::Connection,
}

/// Commands inside scripts are not counted.
struct Sent {
    scripts: u64,
    subscriptions: u64,
    publishes: u64,
}

impl Sent {
    fn total(&self) -> u64 {
        self.scripts + self.subscriptions + self.publishes
    }

    fn in_words(&self) -> String {
        format!("{} scripts, {} (UN)SUBSCRIBE, {} PUBLISH", self.scripts, self.subscriptions, self.publishes)
    }
}

impl Counter {
    fn start(bench: &Bench) -> Self {
        let mut connection = bench.server.connect();
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut connection).expect("our own server");
        Self { connection }
    }

    fn now(&mut self) -> Sent {
        let text: String = redis::cmd("INFO").arg("commandstats").query(&mut self.connection).expect("our own server");
        let calls = |name: &str| -> u64 {
            let line = text.lines().find_map(|l| l.strip_prefix(&format!("cmdstat_{name}:calls=")));
            line.and_then(|l| l.split(',').next()).and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        // A script runs HDEL only to free a lock, and a freed lock is published: the rest came from clients.
        Sent {
            scripts: calls("evalsha") + calls("eval"),
            subscriptions: calls("subscribe") + calls("unsubscribe"),
            publishes: calls("publish").saturating_sub(calls("hdel")),
        }
    }

    fn stop(mut self) -> Sent {
        self.now()
    }
}

// ---- other processes: this program again, in a role ----------------------------------------------------------------

fn wall_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_nanos() as u64
}

/// A process in a role. Killed when dropped; it ends by itself when its input does.
struct Player {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Player {
    fn start(role: &[&str]) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("our own path"))
            .arg("--role")
            .args(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, input, output: BufReader::new(output) }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("a process that listens");
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        assert!(line.ends_with('\n'), "a process of the benchmark ended early");
        line.trim_end().to_owned()
    }

    /// From `sent` until the moment that the process tells next.
    fn since(&mut self, sent: u64) -> Duration {
        Duration::from_nanos(self.hear().parse::<u64>().expect("a moment").saturating_sub(sent))
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("a parent that listens");
}

fn lines() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map_while(Result::ok)
}

fn play(args: &[String]) {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["contend", url, name, threads] => play_contend(url, name, threads.parse().expect("a number")),
        ["wait", url, name, raw_name] => play_wait(url, name, raw_name),
        ["hold", url, name, lease] => {
            let lease = Duration::from_millis(lease.parse().expect("a number"));
            let client = LockClient::builder().url(url).lease(lease).build().expect("a client");
            let _guard = client.lock(name).expect("the private server answers");
            tell("held");
            lines().for_each(drop);
        }
        ["many", url, count, seconds] => play_many(url, count.parse().expect("a number"), seconds),
        _ => panic!("no such role: {args:?}"),
    }
}

/// Between the two moments it is told, each thread takes and gives back as fast as it can, and tells its tokens.
fn play_contend(url: &str, name: &str, threads: usize) {
    let client = open(url);
    drop(client.lock(&format!("warm-{}", std::process::id())).expect("the private server answers"));
    tell("ready");
    for line in lines() {
        let (begin, end) = line.split_once(' ').expect("two moments");
        let (begin, end): (u64, u64) = (begin.parse().expect("a moment"), end.parse().expect("a moment"));
        let reports: Vec<String> = std::thread::scope(|scope| {
            let running: Vec<_> =
                (0..threads).map(|_| scope.spawn(|| contend_until(&client, name, begin, end))).collect();
            running.into_iter().map(|t| t.join().expect("a thread")).collect()
        });
        reports.iter().for_each(|report| tell(report));
    }
}

fn contend_until(client: &LockClient, name: &str, begin: u64, end: u64) -> String {
    std::thread::sleep(Duration::from_nanos(begin.saturating_sub(wall_nanos())));
    let (mut tokens, mut grants, mut longest) = (Vec::new(), 0, Duration::ZERO);
    while wall_nanos() < end {
        let asked = Instant::now();
        let guard = client.lock(name).expect("the private server answers");
        longest = longest.max(asked.elapsed());
        grants += 1;
        if wall_nanos() < end {
            tokens.push(guard.fencing_token().expect("fencing is on").get());
        }
        guard.unlock().expect("it was held");
    }
    let mut report = format!("{} {grants}", longest.as_micros());
    tokens.iter().for_each(|token| report.push_str(&format!(" {token}")));
    report
}

/// Told which, it waits for a lock that the parent holds, and tells when it got it.
fn play_wait(url: &str, name: &str, raw_name: &str) {
    let client = open(url);
    let mut raw = Raw::new(url, raw_name);
    let mut subscriber = connect(url);
    let mut ear = subscriber.as_pubsub();
    ear.subscribe(channel_of(raw_name)).expect("subscribed");
    tell("ready");
    for line in lines() {
        let granted = if line == "raw" {
            while !raw.try_acquire() {
                ear.get_message().expect("a message");
            }
            let granted = wall_nanos();
            raw.release();
            granted
        } else {
            let guard = client.lock(name).expect("the private server answers");
            let granted = wall_nanos();
            guard.unlock().expect("it was held");
            granted
        };
        tell(&granted.to_string());
    }
}

/// Holds many locks for some seconds: how many threads of ours there are, bytes for each hold, CPU seconds.
fn play_many(url: &str, count: usize, seconds: &str) {
    let seconds: f64 = seconds.parse().expect("a number");
    let client = LockClient::builder().url(url).lease(Duration::from_secs(3)).build().expect("a client");
    drop(client.lock("warm").expect("the private server answers"));
    let mut guards = Vec::with_capacity(count);
    let before = resident_bytes();
    guards.extend((0..count).map(|i| client.lock(&format!("many-{i:05}")).expect("the private server answers")));
    let after = resident_bytes();
    let cpu_before = cpu_of_threads();
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let cpu_after = cpu_of_threads();
    assert!(guards.iter().all(leasehold::ReentrantMutexGuard::is_held), "all were renewed");
    match (before, after, cpu_before, cpu_after) {
        (Some(before), Some(after), Some((_, cpu_before)), Some((threads, cpu_after))) => {
            let bytes = after.saturating_sub(before) as f64 / count as f64;
            tell(&format!("{} {bytes} {}", threads.len(), cpu_after - cpu_before));
        }
        _ => tell("no /proc"),
    }
    // The parent kills us: 10 000 releases would only take time.
    lines().for_each(drop);
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    Some(kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// The threads of this process that are leasehold's, and the CPU seconds they have used.
fn cpu_of_threads() -> Option<(BTreeSet<String>, f64)> {
    let (mut names, mut cpu) = (BTreeSet::new(), 0.0);
    for task in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        if name.starts_with("leasehold-") {
            names.insert(format!("{} {}", task.file_name().to_string_lossy(), name.trim_end()));
            let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            cpu += stat.split(' ').next()?.parse::<f64>().ok()? / 1e9;
        }
    }
    Some((names, cpu))
}
