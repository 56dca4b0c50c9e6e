//! A worker pool of several *processes* that take jobs and add up a result in an SQLite file, one
//! at a time, while one of them is killed in its critical section, one is suspended past its lease,
//! and the server is killed and comes back empty. The total stays exact.
//!
//! `sh examples/try.sh` runs it. Without arguments it is the supervisor: it starts a private server
//! (the program named by LEASEHOLD_SERVER, or redis-server) and the workers, plays the faults, and
//! checks the result. The lock saves the workers duplicate work; the fencing token, which the table
//! checks, keeps the total exact: for a third of a lease after the restart two workers may both
//! believe that they have the lock.
//!
//! With `--store postgres` (cargo feature `postgres`) the locks are in PostgreSQL, under the same
//! faults: there the server crashes, and comes back with its locks. Its programs are taken from
//! LEASEHOLD_POSTGRES, from the path, or from Debian's package. With `--store zookeeper` (cargo
//! feature `zookeeper`) they are in ZooKeeper, which also comes back with its locks; it runs from
//! the jar that LEASEHOLD_ZOOKEEPER_JAR names, which `try.sh` builds with Maven.
//!
//! No process outlives it, even after Ctrl-C, SIGTERM or SIGKILL: a second process, the sweeper,
//! reads from a pipe which processes to end, and ends them when that pipe is closed.
//!
//! Its inaccuracies: a hand-over is timed by the workers' own lines, so it includes the write of a
//! line; and the lines also show which turns had to wait, so a wait shorter than the write of a
//! line is not counted.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold::fencing::{FencingToken, Placeholders, SqlFence};
use leasehold::{ErrorKind, LockClient, ReentrantMutexGuard};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

type Outcome<T> = Result<T, Box<dyn Error>>;

const WORKERS: usize = 5;
/// Enough that the slowest hundredth of the hand-overs is more than one of them.
const JOBS: i64 = 1000;
const LEASE: Duration = Duration::from_millis(1500);
const WORK: Duration = Duration::from_millis(4);
/// Which worker meets which fault, and in which of its jobs.
const KILLED: (usize, u32) = (1, 12);
const SUSPENDED: (usize, u32) = (2, 18);
/// How many turns of others the suspended one sleeps through.
const SLEEPS_THROUGH: u32 = 20;
const GIVE_UP: Duration = Duration::from_secs(300);

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker", number, url, file, fate] => worker(number.parse()?, url, file, fate.parse()?),
        ["sweep", dir] => sweep(Path::new(dir)),
        [] | ["--store", "redis" | "postgres" | "zookeeper"] => {
            let store = match args.last().map(String::as_str) {
                Some("postgres") => Store::postgres()?,
                Some("zookeeper") => Store::zookeeper()?,
                _ => Store::redis(),
            };
            let dir = std::env::temp_dir().join(format!("lh-pool-{}", std::process::id()));
            let sweeper = Sweeper::start(&dir)?;
            std::fs::create_dir(&dir)?;
            let outcome = supervise(store, &dir, &sweeper);
            // The sweeper removes the directory, now or when this process is killed before this
            // point.
            outcome.and(sweeper.end())
        }
        _ => Err("usage: worker_pool [--store redis|postgres|zookeeper]".into()),
    }
}

fn fence() -> leasehold::Result<SqlFence> {
    Ok(SqlFence::new("result", "id", "fence")?.placeholders(Placeholders::Numbered))
}

fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_micros() as u64)
}

// ---------------------------------------------------------------- a worker

/// What a worker reports to its supervisor, one line each.
fn tell(event: &str) {
    if writeln!(std::io::stdout(), "{} {event}", micros()).is_err() {
        // Nobody reads the line: the supervisor is gone, and the sweeper is about to end this
        // process.
        std::process::exit(1);
    }
}

fn worker(number: usize, url: &str, file: &str, fate: u32) -> Outcome<()> {
    let client = LockClient::builder()
        .url(url)
        .lease(LEASE)
        // The default, a quarter of this lease, would be short for a busy machine.
        .io_timeout(LEASE / 5 * 4)
        .client_name(format!("worker-{number}"))
        .build()?;
    let mut db = Connection::open(file)?;
    db.busy_timeout(Duration::from_secs(10))?;
    let mut jobs = 0;
    loop {
        tell("ask");
        // A first attempt against a dead server fails at once; a call that is already waiting goes
        // on waiting.
        let guard = match client.lock("pool") {
            Ok(guard) => guard,
            Err(e) => {
                tell(&format!("error {e}"));
                std::thread::sleep(Duration::from_millis(30));
                continue;
            }
        };
        tell("take");
        jobs += 1;
        let outcome = one_job(&mut db, &guard, number, jobs == fate);
        // Reported before the request is sent: the next holder may have the lock before the reply
        // arrives.
        tell("free");
        let released = guard.unlock();
        match outcome {
            Ok(true) => {}
            Ok(false) => {
                tell("done");
                return Ok(());
            }
            // Refused: nothing was written, so the next holder still has to do the job. Any other
            // failure is a bug in this program, and ends it.
            Err(e) => match e.downcast_ref::<leasehold::Error>() {
                Some(stale) if stale.kind() == ErrorKind::Stale => {
                    tell(&format!("refused {stale}"));
                }
                _ => return Err(e),
            },
        }
        if let Err(e) = released {
            tell(&format!("unlock {e}"));
        }
    }
}

/// Reads, works, writes. Returns false when nothing is left to do.
fn one_job(
    db: &mut Connection,
    guard: &ReentrantMutexGuard,
    number: usize,
    fateful: bool,
) -> Outcome<bool> {
    let token: FencingToken = guard.fencing_token()?;
    let fence = fence()?;
    // Claims *before* it reads: from here on no older holder can write any more.
    fence.expect_one(
        db.execute(&fence.claim(), params![token.as_i64(), 1, token.as_i64()])?,
        token,
    )?;
    let total: i64 = db.query_row("SELECT total FROM result WHERE id = 1", [], |row| row.get(0))?;
    // Each worker prefers a share of its own. If all took the first one, the mark of a job done
    // meanwhile would refuse a late write too, and the token would not be needed. All shares add to
    // one total.
    let next = db
        .query_row(
            "SELECT id, amount FROM job WHERE done = 0 ORDER BY id % ?1 = ?2 DESC, id LIMIT 1",
            params![WORKERS as i64, number as i64],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
        )
        .optional()?;
    let Some((job, amount)) = next else { return Ok(false) };
    std::thread::sleep(WORK);
    if fateful {
        tell("critical");
        std::io::stdin().read_line(&mut String::new())?;
    }
    // The result and the job's mark are written in one transaction: neither can exist without the
    // other.
    let write = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let rows =
        write.execute(&fence.write(&["total"])?, params![total + amount, 1, token.as_i64()])?;
    fence.expect_one(rows, token)?;
    if write.execute("UPDATE job SET done = 1 WHERE id = ?1 AND done = 0", [job])? != 1 {
        return Err("a job was done twice".into());
    }
    write.commit()?;
    Ok(true)
}

// ---------------------------------------------------------------- the server

/// Where the locks are.
enum Store {
    /// The program of the server.
    Redis(String),
    /// The directory of the server's programs.
    Postgres(PathBuf),
    /// The jar of the server, and its port.
    ZooKeeper(PathBuf, u16),
}

impl Store {
    fn redis() -> Self {
        Self::Redis(std::env::var("LEASEHOLD_SERVER").unwrap_or_else(|_| "redis-server".to_owned()))
    }

    fn postgres() -> Outcome<Self> {
        let named = std::env::var_os("LEASEHOLD_POSTGRES").map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let debian = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
        let mut all = named.into_iter().chain(std::env::split_paths(&path)).chain(debian);
        let found = all.find(|dir| dir.join("initdb").exists() && dir.join("postgres").exists());
        let found = found.ok_or(
            "no initdb and postgres (Debian: apt-get install postgresql; or LEASEHOLD_POSTGRES)",
        )?;
        // The path may be a link, and the programs look for each other in their own directory.
        let program = std::fs::canonicalize(found.join("postgres"))?;
        Ok(Self::Postgres(program.parent().ok_or("no directory")?.to_owned()))
    }

    fn zookeeper() -> Outcome<Self> {
        let jar = std::env::var_os("LEASEHOLD_ZOOKEEPER_JAR")
            .map(PathBuf::from)
            .filter(|jar| jar.exists());
        let jar = jar.ok_or(
            "LEASEHOLD_ZOOKEEPER_JAR names no jar of a ZooKeeper: `sh examples/try.sh --store zookeeper` makes one",
        )?;
        // Below the ports that the system uses for outgoing connections: a connection to a server
        // that is down could get the server's own port, and connect to itself.
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let first = 20_000 + (std::process::id() % 10_000) as u16;
        let port = (first..first + 1000).find(is_free).ok_or("no free port")?;
        Ok(Self::ZooKeeper(jar, port))
    }

    fn after_a_crash(&self) -> &'static str {
        match self {
            Self::Redis(_) => "empty",
            Self::Postgres(_) | Self::ZooKeeper(..) => "with its locks",
        }
    }

    fn url(&self, dir: &Path) -> String {
        match self {
            Self::Redis(_) => format!("redis+unix://{}", dir.join("s").display()),
            Self::Postgres(_) => format!("postgres://pool@/postgres?host={}", dir.display()),
            Self::ZooKeeper(_, port) => format!("zookeeper://127.0.0.1:{port}/pool"),
        }
    }

    /// Called once, before the first start.
    fn prepare(&self, dir: &Path) -> Outcome<()> {
        let programs = match self {
            Self::Redis(_) => return Ok(()),
            Self::Postgres(programs) => programs,
            Self::ZooKeeper(_, port) => {
                let settings = format!(
                    "dataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=500\nmaxClientCnxns=0\n\
                     admin.enableServer=false\n",
                    dir.join("data").display()
                );
                return Ok(std::fs::write(dir.join("zoo.cfg"), settings)?);
            }
        };
        if is_root() {
            std::os::unix::fs::chown(dir, Some(NOBODY), Some(NOBODY))?;
        }
        let mut initdb = as_user(&programs.join("initdb"));
        initdb.arg("-D").arg(dir.join("data")).args([
            "-U",
            "pool",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-locale",
            "-N",
        ]);
        let made = initdb
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?
            .success();
        if made { Ok(()) } else { Err("initdb failed".into()) }
    }

    fn command(&self, dir: &Path) -> Command {
        match self {
            Self::Redis(program) => {
                let mut command = Command::new(program);
                command.args(["--port", "0", "--save", "", "--appendonly", "no"]);
                command.arg("--unixsocket").arg(dir.join("s")).arg("--dir").arg(dir);
                command
            }
            Self::Postgres(programs) => {
                let mut command = as_user(&programs.join("postgres"));
                command
                    .arg("-D")
                    .arg(dir.join("data"))
                    .arg("-k")
                    .arg(dir)
                    .args(["-c", "listen_addresses="]);
                command
            }
            Self::ZooKeeper(jar, _) => {
                let mut command = Command::new("java");
                command
                    .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
                    .arg(jar);
                command
                    .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
                    .arg(dir.join("zoo.cfg"));
                command
            }
        }
    }
}

/// PostgreSQL refuses to run as root: then it runs as this user (nobody).
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn as_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args([
            format!("--reuid={NOBODY}"),
            format!("--regid={NOBODY}"),
            "--clear-groups".to_owned(),
        ])
        .arg(program);
    command
}

struct Server {
    store: Store,
    dir: PathBuf,
    process: Swept,
    sweeper: Sweeper,
}

impl Server {
    fn start(store: Store, dir: &Path, sweeper: &Sweeper) -> Outcome<Self> {
        store.prepare(dir)?;
        let process = Self::launch(&store, dir, sweeper)?;
        let server = Self { store, dir: dir.to_owned(), process, sweeper: sweeper.clone() };
        server.wait_ready()?;
        Ok(server)
    }

    fn launch(store: &Store, dir: &Path, sweeper: &Sweeper) -> Outcome<Swept> {
        let mut command = store.command(dir);
        let process =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        sweeper.watch(process.map_err(|e| format!("{command:?} cannot be started: {e}"))?)
    }

    fn url(&self) -> String {
        self.store.url(&self.dir)
    }

    fn wait_ready(&self) -> Outcome<()> {
        let start = Instant::now();
        while let Err(e) = LockClient::open(&self.url()) {
            // A Java program takes seconds to start, and longer on a busy machine.
            if start.elapsed() > Duration::from_secs(30) {
                return Err(format!("the server does not answer: {e}").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Ends the server as a crash does.
    fn kill(&mut self) -> Outcome<()> {
        if matches!(self.store, Store::Postgres(_)) {
            // It has child processes, and ends them.
            signal(self.process.process.id(), "QUIT")?;
            self.process.process.wait()?;
            return Ok(());
        }
        self.process.end();
        std::fs::remove_file(self.dir.join("s")).or_else(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(e),
        })?;
        Ok(())
    }

    fn start_again(&mut self) -> Outcome<()> {
        self.process = Self::launch(&self.store, &self.dir, &self.sweeper)?;
        self.wait_ready()
    }

    /// Commands that clients sent, for their locks (without the handshakes of connections). The
    /// server counts them, not the workers; `eval` and `evalsha` never run inside a script, so none
    /// counts twice. `None` where the server does not count them.
    fn commands(&self) -> Outcome<Option<u64>> {
        if !matches!(self.store, Store::Redis(_)) {
            return Ok(None);
        }
        let mut connection = redis::Client::open(self.url())?.get_connection()?;
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection)?;
        let of = |name: &str| {
            let rest =
                stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
            rest.and_then(|rest| rest.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        Ok(Some(of("evalsha") + of("eval") + of("subscribe") + of("unsubscribe")))
    }
}

// ---------------------------------------------------------------- what ends with the supervisor

/// Ends the processes it was given, even when the supervisor could not: `Drop` does not run on a
/// signal.
#[derive(Clone)]
struct Sweeper {
    process: Arc<Mutex<Child>>,
}

/// A process that the sweeper knows for as long as the process lives.
struct Swept {
    process: Child,
    sweeper: Sweeper,
}

impl Sweeper {
    fn start(dir: &Path) -> Outcome<Self> {
        let process = Command::new(std::env::current_exe()?)
            .arg("sweep")
            .arg(dir)
            .stdin(Stdio::piped())
            // It gets a process group of its own: Ctrl-C goes to the whole group of the supervisor.
            .process_group(0)
            .spawn()?;
        Ok(Self { process: Arc::new(Mutex::new(process)) })
    }

    fn tell(&self, line: &str) -> Outcome<()> {
        let mut process = self.process.lock().map_err(|_| "a thread panicked")?;
        Ok(writeln!(process.stdin.as_mut().ok_or("the sweeper has been ended")?, "{line}")?)
    }

    fn watch(&self, process: Child) -> Outcome<Swept> {
        let swept = Swept { process, sweeper: self.clone() };
        self.tell(&format!("watch {}", swept.process.id()))?;
        Ok(swept)
    }

    fn end(&self) -> Outcome<()> {
        let mut process = self.process.lock().map_err(|_| "a thread panicked")?;
        drop(process.stdin.take());
        if process.wait()?.success() { Ok(()) } else { Err("the sweeper failed".into()) }
    }
}

impl Swept {
    fn end(&mut self) {
        let pid = self.process.id();
        let _ = self.process.kill();
        // The sweeper forgets it before it is reaped: after that, the id may belong to another
        // process.
        let _ = self.sweeper.tell(&format!("forget {pid}"));
        let _ = self.process.wait();
    }
}

impl Drop for Swept {
    fn drop(&mut self) {
        self.end();
    }
}

fn sweep(dir: &Path) -> Outcome<()> {
    let mut pids = std::collections::BTreeSet::new();
    for line in std::io::stdin().lines() {
        match line?.split_once(' ') {
            Some(("watch", pid)) => drop(pids.insert(pid.to_owned())),
            Some(("forget", pid)) => drop(pids.remove(pid)),
            _ => return Err("the sweeper does not understand".into()),
        }
    }
    if !pids.is_empty() {
        // This fails if one of them has ended by itself. SIGKILL also ends a suspended process.
        let _ = Command::new("kill").arg("-KILL").args(&pids).stderr(Stdio::null()).status();
    }
    // A process that is being killed may still create a file.
    let removed = || std::fs::remove_dir_all(dir).is_ok() || !dir.exists();
    let gone = (0..100).any(|_| {
        removed() || {
            std::thread::sleep(Duration::from_millis(20));
            false
        }
    });
    if gone { Ok(()) } else { Err(format!("{} cannot be removed", dir.display()).into()) }
}

// ---------------------------------------------------------------- the supervisor

struct Worker {
    process: Swept,
    stdin: ChildStdin,
}

struct Event {
    at: u64,
    worker: usize,
    what: String,
}

/// The arguments of all workers.
struct Post<'a> {
    url: &'a str,
    file: &'a Path,
    events: Sender<Event>,
    sweeper: &'a Sweeper,
}

fn hire(number: usize, fate: u32, post: &Post<'_>) -> Outcome<Worker> {
    let process = Command::new(std::env::current_exe()?)
        .args(["worker", &number.to_string(), post.url])
        .arg(post.file)
        .arg(fate.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut process = post.sweeper.watch(process)?;
    let lines = BufReader::new(process.process.stdout.take().ok_or("no stdout")?).lines();
    let events = post.events.clone();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let Some((at, what)) = line.split_once(' ') else { continue };
            let event =
                Event { at: at.parse().unwrap_or(0), worker: number, what: what.to_owned() };
            if events.send(event).is_err() {
                return;
            }
        }
        let _ = events.send(Event { at: micros(), worker: number, what: "gone".to_owned() });
    });
    let stdin = process.process.stdin.take().ok_or("no stdin")?;
    Ok(Worker { process, stdin })
}

fn signal(pid: u32, name: &str) -> Outcome<()> {
    let sent =
        Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status()?.success();
    if sent { Ok(()) } else { Err(format!("kill -{name} {pid} failed").into()) }
}

fn sum(before: Option<u64>, more: Option<u64>) -> Option<u64> {
    Some(before? + more?)
}

/// Which fault was injected into which worker, and when.
#[derive(Default)]
struct Faults {
    killed: Option<u64>,
    suspended: Option<(u64, u64)>,
    down: Option<(u64, u64)>,
    refused: Option<String>,
}

fn supervise(store: Store, dir: &Path, sweeper: &Sweeper) -> Outcome<()> {
    let mut server = Server::start(store, dir, sweeper)?;
    let url = server.url();
    let file = dir.join("result.db");
    let db = Connection::open(&file)?;
    db.execute_batch(
        "CREATE TABLE result (id INTEGER PRIMARY KEY, total INTEGER NOT NULL);
         CREATE TABLE job (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL, done INTEGER NOT NULL DEFAULT 0);
         INSERT INTO result (id, total) VALUES (1, 0);",
    )?;
    db.execute_batch(&fence()?.add_token_column())?;
    for job in 1..=JOBS {
        db.execute("INSERT INTO job (id, amount) VALUES (?1, ?1)", [job])?;
    }
    println!("{WORKERS} worker processes, {JOBS} jobs, a lease of {LEASE:?}");

    let (sender, events) = channel();
    let post = Post { url: &url, file: &file, events: sender, sweeper };
    let mut workers = BTreeMap::new();
    for number in 0..WORKERS {
        let fate =
            [KILLED, SUSPENDED].iter().find(|(who, _)| *who == number).map_or(0, |(_, job)| *job);
        workers.insert(number, hire(number, fate, &post)?);
    }
    let mut log = Vec::new();
    let mut faults = Faults::default();
    let mut commands = Some(0);
    let start = Instant::now();
    let mut done = 0;
    let mut takes = 0;
    let mut replaced = false;
    let mut asleep = None;
    let mut finished = Vec::new();
    while done < WORKERS {
        if start.elapsed() > GIVE_UP {
            return Err("the workers do not come to an end".into());
        }
        let Ok(event) = events.recv_timeout(Duration::from_millis(200)) else { continue };
        match event.what.as_str() {
            "critical" if event.worker == KILLED.0 => {
                println!("  worker {} is killed in its critical section", event.worker);
                workers.remove(&event.worker);
                faults.killed = Some(micros());
                workers.insert(WORKERS, hire(WORKERS, 0, &post)?);
            }
            "critical" => {
                println!("  worker {} is suspended between its read and its write", event.worker);
                signal(
                    workers.get(&event.worker).ok_or("the worker is gone")?.process.process.id(),
                    "STOP",
                )?;
                asleep = Some((micros(), takes));
            }
            "done" => {
                done += 1;
                finished.push(event.worker);
            }
            "gone" if workers.contains_key(&event.worker) && !finished.contains(&event.worker) => {
                return Err(
                    format!("worker {} ended before its work was done", event.worker).into()
                );
            }
            "take" => {
                takes += 1;
                replaced |= event.worker == WORKERS;
            }
            _ => {}
        }
        if let Some((from, before)) = asleep
            && takes >= before + SLEEPS_THROUGH
        {
            println!(
                "  worker {} is continued, {SLEEPS_THROUGH} turns of others later",
                SUSPENDED.0
            );
            let worker = workers.get_mut(&SUSPENDED.0).ok_or("the worker is gone")?;
            // The worker waits for this line, so the first thing that it does when it resumes is
            // write.
            worker.stdin.write_all(b"\n")?;
            signal(worker.process.process.id(), "CONT")?;
            faults.suspended = Some((from, micros()));
            asleep = None;
        }
        note_refusal(&event, &mut faults)?;
        log.push(event);
        if takes % 100 == 0 && log.last().is_some_and(|e| e.what == "take") {
            println!("  {takes} turns taken");
        }
        // Not before the killed worker's lease has ended and its successor has had a turn: an empty
        // server has forgotten that lease, and a process that starts while the server is down
        // cannot wait.
        if faults.down.is_none() && replaced && faults.suspended.is_some() && takes > 180 {
            commands = sum(commands, server.commands()?);
            println!("  the server is killed; it comes back {}", server.store.after_a_crash());
            let from = micros();
            server.kill()?;
            std::thread::sleep(Duration::from_millis(300));
            server.start_again()?;
            faults.down = Some((from, micros()));
        }
    }
    commands = sum(commands, server.commands()?);
    drop(workers);
    for event in events.try_iter() {
        note_refusal(&event, &mut faults)?;
        log.push(event);
    }
    report(&db, log, &faults, commands)
}

/// The first report of the suspended worker after it was continued has to be the refusal: a later
/// one concerns another write.
fn note_refusal(event: &Event, faults: &mut Faults) -> Outcome<()> {
    if event.worker != SUSPENDED.0 || faults.suspended.is_none() || faults.refused.is_some() {
        return Ok(());
    }
    if let Some(text) = event.what.strip_prefix("refused ") {
        faults.refused = Some(text.to_owned());
    } else if matches!(event.what.as_str(), "ask" | "take" | "done") {
        return Err("the suspended worker's late write was taken".into());
    }
    Ok(())
}

// ---------------------------------------------------------------- the report

fn report(
    db: &Connection,
    mut log: Vec<Event>,
    faults: &Faults,
    commands: Option<u64>,
) -> Outcome<()> {
    log.sort_by_key(|event| event.at);
    let holds = holds(&log, faults);
    time_line(&holds, faults);
    hand_overs(&holds, faults);
    if let Some(commands) = commands {
        commands_per_wait(&holds, commands);
    }

    let total: i64 = db.query_row("SELECT total FROM result WHERE id = 1", [], |row| row.get(0))?;
    let done: i64 =
        db.query_row("SELECT count(*) FROM job WHERE done = 1", [], |row| row.get(0))?;
    let expected = JOBS * (JOBS + 1) / 2;
    match &faults.refused {
        Some(text) => println!("the suspended worker's late write was refused: {text}"),
        None => return Err("the suspended worker's late write was not refused".into()),
    }
    if faults.killed.is_none() || faults.suspended.is_none() || faults.down.is_none() {
        return Err("a planned fault did not happen".into());
    }
    if done != JOBS || total != expected {
        return Err(format!(
            "LOST: {done} of {JOBS} jobs done, total {total} instead of {expected}"
        )
        .into());
    }
    println!("total {total} of {expected}: exact");
    Ok(())
}

struct Held {
    worker: usize,
    asked: u64,
    from: u64,
    to: u64,
}

fn holds(log: &[Event], faults: &Faults) -> Vec<Held> {
    let mut asked: BTreeMap<usize, u64> = BTreeMap::new();
    let mut open: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    let mut holds = Vec::new();
    for event in log {
        match event.what.as_str() {
            "ask" => drop(asked.insert(event.worker, event.at)),
            "take" => {
                let asked = asked.remove(&event.worker).unwrap_or(event.at);
                open.insert(event.worker, (asked, event.at));
            }
            "free" => {
                if let Some((asked, from)) = open.remove(&event.worker) {
                    holds.push(Held { worker: event.worker, asked, from, to: event.at });
                }
            }
            _ => {}
        }
    }
    if let (Some((asked, from)), Some(to)) = (open.remove(&KILLED.0), faults.killed) {
        holds.push(Held { worker: KILLED.0, asked, from, to });
    }
    holds.sort_by_key(|held| held.from);
    holds
}

fn time_line(holds: &[Held], faults: &Faults) {
    const COLUMNS: u64 = 100;
    let (Some(first), Some(last)) = (holds.first(), holds.iter().map(|h| h.to).max()) else {
        return;
    };
    let (from, step) = (first.from, ((last - first.from) / COLUMNS).max(1));
    let cell =
        |a: u64, b: u64, column: u64| a < from + (column + 1) * step && b > from + column * step;
    println!(
        "\nwho held the lock, {} ms a column (# held, ~ suspended, K killed, X server down):",
        step / 1000
    );
    for worker in 0..=WORKERS {
        let row: String = (0..COLUMNS)
            .map(|column| {
                if worker == SUSPENDED.0
                    && faults.suspended.is_some_and(|(a, b)| cell(a, b, column))
                {
                    '~'
                } else if worker == KILLED.0
                    && faults.killed.is_some_and(|at| cell(at, at + 1, column))
                {
                    'K'
                } else if holds.iter().any(|h| h.worker == worker && cell(h.from, h.to, column)) {
                    '#'
                } else {
                    '.'
                }
            })
            .collect();
        println!("  worker {worker} {row}");
    }
    let down = |column| faults.down.is_some_and(|(a, b)| cell(a, b, column));
    println!(
        "  server   {}\n",
        (0..COLUMNS).map(|c| if down(c) { 'X' } else { ' ' }).collect::<String>()
    );
}

/// The time from a release to the next holder in another process, if no fault lies between them:
/// after a kill or a suspension the next holder waits for the end of the lease, and after the
/// restart for connections.
fn hand_overs(holds: &[Held], faults: &Faults) {
    let faulty = |before: &Held, after: &Held| {
        let killed = faults.killed == Some(before.to);
        let ended_by_time = before.to > after.from;
        let lease = LEASE.as_micros() as u64;
        let restart = faults.down.is_some_and(|(a, b)| a <= after.from && b + lease >= before.to);
        killed || ended_by_time || restart
    };
    let changes: Vec<_> =
        holds.windows(2).filter(|pair| pair[0].worker != pair[1].worker).collect();
    let mut pauses: Vec<u64> = changes
        .iter()
        .filter(|pair| !faulty(&pair[0], &pair[1]))
        .map(|pair| pair[1].from - pair[0].to)
        .collect();
    pauses.sort_unstable();
    let at = |share: f64| {
        pauses.get(((pauses.len() as f64 * share) as usize).min(pauses.len().saturating_sub(1)))
    };
    let text = |micros: Option<&u64>| {
        micros.map_or("-".to_owned(), |m| format!("{:.2} ms", *m as f64 / 1000.0))
    };
    println!(
        "the lock was taken {} times and changed hands {} times; from release to next holder: p50 {}, p99 {}, longest {} \
         (of {}, without those that a fault delayed)",
        holds.len(),
        changes.len(),
        text(at(0.5)),
        text(at(0.99)),
        text(pauses.last()),
        pauses.len(),
    );
}

/// A turn that finds the lock free costs two commands, an acquire and a release; the other commands
/// were sent for waiters.
fn commands_per_wait(holds: &[Held], commands: u64) {
    let waits = holds.windows(2).filter(|pair| {
        // A lease that ended by time counts as ended when the next one began, whatever its holder
        // believed.
        pair[0].worker != pair[1].worker && pair[0].to.min(pair[1].from) > pair[1].asked
    });
    let waits = waits.count() as u64;
    let without = 2 * (holds.len() as u64 - waits);
    println!(
        "{commands} commands for {} turns, {waits} of which had to wait: {:.1} a turn, {:.1} a wait (acquire and release \
         included)",
        holds.len(),
        commands as f64 / holds.len() as f64,
        commands.saturating_sub(without) as f64 / waits as f64,
    );
}
