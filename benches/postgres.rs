//! Locks in PostgreSQL compared with `BEGIN; SELECT … FOR UPDATE; COMMIT` on one connection for
//! each thread, in one run, with the minimum ratio that each part must reach.
//!
//! ```text
//! cargo bench --bench postgres --features postgres                     the whole table, about a minute
//! cargo bench --bench postgres --features postgres -- --quick          a check that everything works
//! cargo bench --bench postgres --features postgres -- cycle hand-off   some of: cycle threads one-lock hand-off
//!                                                                      waiting
//! cargo bench --bench postgres --features postgres -- --markdown       the table as in BENCHMARKS.md
//! ```
//!
//! It starts a private server on a Unix socket, with the settings of a fresh installation: each
//! grant is flushed to the disk, like each commit of a row lock that has written. The variants
//! alternate, round by round, and medians are compared: read the ratios.

#[path = "common/load.rs"]
#[allow(dead_code, reason = "the benches of Redis use the rest")]
mod load;
#[path = "common/player.rs"]
#[allow(dead_code, reason = "the benches of Redis use the rest")]
mod player;
#[path = "common/surroundings.rs"]
#[allow(dead_code, reason = "the benches of Redis use the rest")]
mod surroundings;
#[path = "common/table.rs"]
#[allow(dead_code, reason = "the benches of Redis use the rest")]
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::{LockClient, ReentrantMutex};

use load::{Tally, load, rate_of};
use player::{Player, lines, report, wall_nanos};
use table::{Table, jain, median, micros, percentile};

/// A group of rows of the table, selected by name.
type Part = (&'static str, fn(&Bench, &mut Table));

const PARTS: &[Part] = &[
    ("cycle", cycle),
    ("threads", threads),
    ("one-lock", one_lock),
    ("hand-off", hand_off),
    ("waiting", waiting),
];

/// If other programs use more of the machine than this, the results are worthless.
const BUSY: f64 = 0.2;

/// How often a naive waiter polls.
const POLL: Duration = Duration::from_millis(50);

struct Bench {
    server: Server,
    quick: bool,
}

impl Bench {
    fn rounds(&self, full: (usize, u64), quick: (usize, u64)) -> (usize, Duration) {
        let (rounds, millis) = if self.quick { quick } else { full };
        (rounds, Duration::from_millis(millis))
    }

    fn client(&self) -> LockClient {
        LockClient::open(&self.server.url).expect("the private server answers")
    }
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if args.first().is_some_and(|arg| arg == "--role") {
        let role: Vec<&str> = args[1..].iter().map(String::as_str).collect();
        match role[..] {
            ["wait", url, dir] => play_wait(url, Path::new(dir)),
            _ => panic!("no such role: {role:?}"),
        }
        return;
    }
    let mut flag = |name: &str| {
        let before = args.len();
        args.retain(|arg| arg != name);
        args.len() < before
    };
    let (quick, markdown) = (flag("--quick"), flag("--markdown"));
    if let Some(unknown) = args.iter().find(|arg| !PARTS.iter().any(|(name, _)| name == arg)) {
        let known: Vec<_> = PARTS.iter().map(|(name, _)| *name).collect();
        eprintln!("unknown argument {unknown:?}; known: --quick --markdown {}", known.join(" "));
        std::process::exit(2);
    }
    let bench = Bench { server: Server::start(), quick };
    let (mut table, mut busiest) = (Table::default(), 0.0_f64);
    for (name, part) in
        PARTS.iter().filter(|(name, _)| args.is_empty() || args.iter().any(|arg| arg == name))
    {
        eprintln!("{name} ...");
        busiest = busiest.max(surroundings::used_by_others().unwrap_or(0.0));
        part(&bench, &mut table);
    }
    let version: String =
        bench.server.connect().query_one("SHOW server_version", &[]).expect("a version").get(0);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("PostgreSQL {version} over a unix socket, {cores} cores, lease 30 s");
    println!("raw = BEGIN; SELECT … FOR UPDATE; COMMIT, one connection for each thread");
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
}

/// A row lock, which lasts as long as its transaction.
struct RowLock {
    connection: postgres::Client,
    take: postgres::Statement,
    try_take: postgres::Statement,
}

impl RowLock {
    fn new(dir: &Path, name: &str) -> Self {
        let mut connection = connect(dir);
        connection
            .execute("INSERT INTO raw VALUES ($1) ON CONFLICT DO NOTHING", &[&name])
            .expect("a row");
        let sql = format!("SELECT 1 FROM raw WHERE name = '{name}' FOR UPDATE");
        let take = connection.prepare(&sql).expect("a statement");
        let try_take = connection.prepare(&format!("{sql} SKIP LOCKED")).expect("a statement");
        Self { connection, take, try_take }
    }

    fn once(&mut self, granted: &mut dyn FnMut()) {
        let mut transaction = self.connection.transaction().expect("BEGIN");
        transaction.query(&self.take, &[]).expect("SELECT");
        granted();
        transaction.commit().expect("COMMIT");
    }

    fn is_free(&mut self) -> bool {
        let mut transaction = self.connection.transaction().expect("BEGIN");
        let free = !transaction.query(&self.try_take, &[]).expect("SELECT").is_empty();
        transaction.commit().expect("COMMIT");
        free
    }
}

fn once(lock: &ReentrantMutex, granted: &mut dyn FnMut()) {
    let guard = lock.lock().expect("the private server answers");
    granted();
    guard.unlock().expect("held");
}

fn cycle(bench: &Bench, table: &mut Table) {
    let (rounds, span) = bench.rounds((21, 200), (3, 60));
    let (client, mut raw) = (bench.client(), RowLock::new(&bench.server.dir, "cycle"));
    let lock = client.mutex("cycle");
    let (mut raws, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        raws.push(rate_of(span, || raw.once(&mut || ())));
        ours.push(rate_of(span, || once(&lock, &mut || ())));
    }
    table.compare_rounds("uncontended lock + unlock", &raws, &ours, Some(0.6), "raw");
}

fn threads(bench: &Bench, table: &mut Table) {
    let (rounds, span) = bench.rounds((9, 400), (2, 100));
    for (count, least) in [(8, None), (64, Some(1.5))] {
        let client = bench.client();
        let mut locks: Vec<_> = (0..count).map(|n| client.mutex(format!("own-{n}"))).collect();
        let mut rows: Vec<_> =
            (0..count).map(|n| RowLock::new(&bench.server.dir, &format!("own-{n}"))).collect();
        let (mut raws, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            raws.push(load(&mut rows, span, |row, granted| row.once(granted)).rate());
            ours.push(load(&mut locks, span, |lock, granted| once(lock, granted)).rate());
        }
        drop(rows);
        let what = format!("{count} threads, a lock each");
        table.compare_rounds(&what, &raws, &ours, least, "raw");
        let backends = bench
            .server
            .number("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'");
        table.row(
            "  connections",
            &count.to_string(),
            &backends.to_string(),
            None,
            "≤ 6",
            Some(backends <= 6),
        );
    }
}

fn one_lock(bench: &Bench, table: &mut Table) {
    const THREADS: usize = 32;
    let (rounds, span) = bench.rounds((7, 800), (2, 200));
    let client = bench.client();
    let mut locks: Vec<_> = (0..THREADS).map(|_| client.mutex("one")).collect();
    let mut rows: Vec<_> = (0..THREADS).map(|_| RowLock::new(&bench.server.dir, "one")).collect();
    let (mut raws, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        raws.push(load(&mut rows, span, |row, granted| row.once(granted)));
        ours.push(load(&mut locks, span, |lock, granted| once(lock, granted)));
    }
    let rates = |tallies: &[Tally]| tallies.iter().map(Tally::rate).collect::<Vec<_>>();
    let fair = |tallies: &[Tally]| {
        median(&tallies.iter().map(|tally| jain(&tally.grants)).collect::<Vec<_>>())
    };
    table.compare_rounds("32 threads on one lock", &rates(&raws), &rates(&ours), Some(1.0), "raw");
    let (raw, own) = (fair(&raws), fair(&ours));
    let met = Some(own >= 0.95);
    table.row(
        "  Jain index over threads",
        &format!("{raw:.3}"),
        &format!("{own:.3}"),
        None,
        "≥ 0.95",
        met,
    );
}

/// From the release in one process to the grant in another.
fn hand_off(bench: &Bench, table: &mut Table) {
    let rounds = if bench.quick { 10 } else { 150 };
    let settle = Duration::from_millis(8);
    let (client, dir) = (bench.client(), bench.server.dir.clone());
    let mut waiter = Player::start(&["wait", &bench.server.url, dir.to_str().expect("text")]);
    assert_eq!(waiter.receive(), "ready");
    let mut row = RowLock::new(&dir, "hand-off");
    let (mut raws, mut ours, mut polls) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let guard = client.lock("hand-off").expect("the private server answers");
        waiter.send("ours");
        std::thread::sleep(settle);
        let sent = wall_nanos();
        guard.unlock().expect("held");
        ours.push(waiter.since(sent));
        for (times, how) in [(&mut raws, "raw"), (&mut polls, "poll")] {
            // A poller is slow, so it gets fewer rounds, and they begin at any point of its pause.
            if how == "poll" && round % 4 > 0 {
                continue;
            }
            let mut transaction = row.connection.transaction().expect("BEGIN");
            transaction.query(&row.take, &[]).expect("SELECT");
            waiter.send(how);
            std::thread::sleep(settle + Duration::from_micros(307 * round));
            let sent = wall_nanos();
            transaction.commit().expect("COMMIT");
            times.push(waiter.since(sent));
        }
    }
    for times in &mut [&mut raws, &mut ours, &mut polls] {
        times.sort();
    }
    for (percent, most) in [(50, 1.2), (99, 1.0)] {
        let (raw, own) = (percentile(&raws, percent), percentile(&ours, percent));
        let ratio = own.as_secs_f64() / raw.as_secs_f64();
        let what = format!("hand-off to a waiter in another process, p{percent}");
        let budget = format!("≤ {most:.1} raw");
        table.row(&what, &micros(raw), &micros(own), Some(ratio), &budget, Some(ratio <= most));
    }
    let (poll, own) = (percentile(&polls, 50), percentile(&ours, 50));
    let ratio = poll.as_secs_f64() / own.as_secs_f64();
    let what = "  a poller of 50 ms takes so many times as long, p50";
    table.row(what, &micros(poll), &micros(own), Some(ratio), "≥ 20", Some(ratio >= 20.0));
}

fn play_wait(url: &str, dir: &Path) {
    let client = LockClient::open(url).expect("the private server answers");
    let mut row = RowLock::new(dir, "hand-off");
    report("ready");
    for line in lines() {
        let granted = match &*line {
            "ours" => {
                let guard = client.lock("hand-off").expect("the private server answers");
                let granted = wall_nanos();
                guard.unlock().expect("held");
                granted
            }
            "raw" => {
                let mut granted = 0;
                row.once(&mut || granted = wall_nanos());
                granted
            }
            _ => {
                while !row.is_free() {
                    std::thread::sleep(POLL);
                }
                wall_nanos()
            }
        };
        report(&granted.to_string());
    }
}

/// What a wait writes to the server's log, measured after its start and before its end.
fn waiting(bench: &Bench, table: &mut Table) {
    let long = Duration::from_millis(if bench.quick { 600 } else { 3000 });
    // Short, so that the measurement includes the waiter's timer for lost messages.
    let impatient =
        || LockClient::builder().url(&bench.server.url).lease(Duration::from_millis(500)).build();
    let (holder, waiter) = (bench.client(), impatient().expect("the private server answers"));
    let guard = holder.lock("waited for").expect("the private server answers");
    let written = std::thread::scope(|scope| {
        let waits = scope.spawn(|| waiter.lock("waited for").map(drop));
        std::thread::sleep(Duration::from_millis(300));
        // The server itself sometimes writes; one quiet second shows what waiting writes.
        let position = || {
            bench
                .server
                .number("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
        };
        let written = (0..3).map(|_| {
            let before = position();
            std::thread::sleep(long / 3);
            position() - before
        });
        let least = written.min().unwrap_or_default();
        guard.unlock().expect("held");
        waits.join().expect("a waiter").expect("granted");
        least
    });
    table.row(
        "bytes that a wait writes to the log",
        "",
        &written.to_string(),
        None,
        "0",
        Some(written == 0),
    );
}

/// A private server, which ends with this value.
struct Server {
    dir: PathBuf,
    binaries: PathBuf,
    url: String,
}

impl Server {
    fn start() -> Self {
        let binaries = binaries()
            .expect("initdb and pg_ctl on PATH, of Debian's package, or in LEASEHOLD_POSTGRES");
        let dir = PathBuf::from(format!("/tmp/lh-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        #[cfg(unix)]
        if is_root() {
            std::os::unix::fs::chown(&dir, Some(NOBODY), Some(NOBODY))
                .expect("a directory of nobody");
        }
        let url = format!("postgres://leasehold@/postgres?host={}", dir.display());
        let server = Self { dir, binaries, url };
        let data = server.dir.join("data");
        let mut initdb = server.command("initdb");
        initdb.arg("-D").arg(&data).args([
            "-U",
            "leasehold",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-locale",
            "--no-sync",
        ]);
        assert!(initdb.status().expect("initdb").success());
        let settings =
            format!("-k {} -c listen_addresses='' -c max_connections=120", server.dir.display());
        let mut start = server.command("pg_ctl");
        start
            .arg("-D")
            .arg(&data)
            .arg("-l")
            .arg(server.dir.join("log"))
            .args(["-w", "-o", &settings, "start"]);
        assert!(start.status().expect("pg_ctl").success());
        server
            .connect()
            .batch_execute("CREATE TABLE raw (name text PRIMARY KEY)")
            .expect("a table");
        server
    }

    /// PostgreSQL refuses to run as root.
    fn command(&self, program: &str) -> Command {
        let program = self.binaries.join(program);
        let mut command = if is_root() { Command::new("setpriv") } else { Command::new(&program) };
        if is_root() {
            command.args([
                format!("--reuid={NOBODY}"),
                format!("--regid={NOBODY}"),
                "--clear-groups".to_owned(),
            ]);
            command.arg(&program);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn connect(&self) -> postgres::Client {
        connect(&self.dir)
    }

    fn number(&self, sql: &str) -> i64 {
        self.connect().query_one(sql, &[]).expect("a number").get(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self
            .command("pg_ctl")
            .arg("-D")
            .arg(self.dir.join("data"))
            .args(["-m", "immediate", "stop"])
            .status();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The uid of the user `nobody`.
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn connect(dir: &Path) -> postgres::Client {
    let mut config = postgres::Config::new();
    config.host_path(dir).user("leasehold").dbname("postgres");
    config.connect(postgres::NoTls).expect("the private server answers")
}

/// The directory of the server's programs, with links resolved: they look for each other in their
/// own directory.
fn binaries() -> Option<PathBuf> {
    let named = std::env::var_os("LEASEHOLD_POSTGRES").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let debian = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    let mut all = named.into_iter().chain(std::env::split_paths(&path)).chain(debian);
    let found = all.find(|dir| dir.join("initdb").exists() && dir.join("pg_ctl").exists())?;
    Some(std::fs::canonicalize(found.join("pg_ctl")).ok()?.parent()?.to_owned())
}
