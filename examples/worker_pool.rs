//! A worker pool of several *processes* that take jobs and add up a result in an SQLite file, one at a time, while one of
//! them is killed in its critical section, one is suspended past its lease, and the server is killed and comes back
//! empty. The total is exact all the same.
//!
//! `sh examples/try.sh` runs it. Without arguments it is the supervisor: it starts a private server (the program named by
//! LEASEHOLD_SERVER, or redis-server) and the workers, plays the faults, and checks the result. The lock keeps the
//! workers apart for speed; what keeps the total exact is the fencing token, which the table checks: for a third of a
//! lease after the restart two workers may both believe that they have the lock.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold::fencing::{FencingToken, Placeholders, SqlFence};
use leasehold::{LockClient, ReentrantMutexGuard};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

type Outcome<T> = Result<T, Box<dyn Error>>;

const WORKERS: usize = 5;
const JOBS: i64 = 400;
const LEASE: Duration = Duration::from_millis(1500);
const WORK: Duration = Duration::from_millis(4);
/// Which worker meets which fate, in its how-manieth job.
const KILLED: (usize, u32) = (1, 12);
const SUSPENDED: (usize, u32) = (2, 18);
/// How many turns of others the suspended one sleeps through.
const SLEEPS_THROUGH: u32 = 20;
const GIVE_UP: Duration = Duration::from_secs(40);

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker", number, url, file, fate] => worker(number.parse()?, url, file, fate.parse()?),
        _ => {
            let dir = std::env::temp_dir().join(format!("lh-pool-{}", std::process::id()));
            std::fs::create_dir_all(&dir)?;
            let outcome = supervise(&dir);
            std::fs::remove_dir_all(&dir)?;
            outcome
        }
    }
}

fn fence() -> leasehold::Result<SqlFence> {
    Ok(SqlFence::new("result", "id", "fence")?.placeholders(Placeholders::Numbered))
}

fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_micros() as u64)
}

// ---------------------------------------------------------------- a worker

/// What a worker tells its supervisor, one line each.
fn tell(event: &str) {
    println!("{} {event}", micros());
}

fn worker(number: usize, url: &str, file: &str, fate: u32) -> Outcome<()> {
    let client = LockClient::builder().url(url).lease(LEASE).client_name(format!("worker-{number}")).build()?;
    let mut db = Connection::open(file)?;
    db.busy_timeout(Duration::from_secs(10))?;
    let mut jobs = 0;
    loop {
        // A first attempt against a dead server fails at once; a call that is already waiting rides it out.
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
        let outcome = one_job(&mut db, &guard, jobs == fate);
        let released = guard.unlock();
        tell("free");
        match outcome {
            Ok(true) => {}
            Ok(false) => {
                tell("done");
                return Ok(());
            }
            // Refused: nothing was written, so the job is still to be done, by whoever comes next.
            Err(e) => tell(&format!("refused {e}")),
        }
        if let Err(e) = released {
            tell(&format!("unlock {e}"));
        }
    }
}

/// Read, work, write. False when there is nothing left to do.
fn one_job(db: &mut Connection, guard: &ReentrantMutexGuard, fateful: bool) -> Outcome<bool> {
    let token: FencingToken = guard.fencing_token().ok_or("fencing is on by default")?;
    let fence = fence()?;
    // Claimed *before* it is read: from here on no older holder can write any more.
    fence.expect_one(db.execute(&fence.claim(), params![token.as_i64(), 1, token.as_i64()])?, token)?;
    let total: i64 = db.query_row("SELECT total FROM result WHERE id = 1", [], |row| row.get(0))?;
    let next = db
        .query_row("SELECT id, amount FROM job WHERE done = 0 ORDER BY id LIMIT 1", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })
        .optional()?;
    let Some((job, amount)) = next else { return Ok(false) };
    std::thread::sleep(WORK);
    if fateful {
        tell("critical");
        std::io::stdin().read_line(&mut String::new())?;
    }
    // The result and the job's mark in one transaction: neither can be without the other.
    let write = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let rows = write.execute(&fence.write(&["total"])?, params![total + amount, 1, token.as_i64()])?;
    fence.expect_one(rows, token)?;
    if write.execute("UPDATE job SET done = 1 WHERE id = ?1 AND done = 0", [job])? != 1 {
        return Err("a job was done twice".into());
    }
    write.commit()?;
    Ok(true)
}

// ---------------------------------------------------------------- the server

struct Server {
    program: String,
    dir: PathBuf,
    process: Child,
}

impl Server {
    fn start(dir: &Path) -> Outcome<Self> {
        let program = std::env::var("LEASEHOLD_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let process = Self::launch(&program, dir)?;
        let server = Self { program, dir: dir.to_owned(), process };
        server.wait_ready()?;
        Ok(server)
    }

    fn launch(program: &str, dir: &Path) -> Outcome<Child> {
        Command::new(program)
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(dir.join("s"))
            .arg("--dir")
            .arg(dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{program} cannot be started ({e}); set LEASEHOLD_SERVER").into())
    }

    fn url(&self) -> String {
        format!("redis+unix://{}", self.dir.join("s").display())
    }

    fn wait_ready(&self) -> Outcome<()> {
        let start = Instant::now();
        while LockClient::open(&self.url()).is_err() {
            if start.elapsed() > Duration::from_secs(10) {
                return Err("the server does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn kill(&mut self) -> Outcome<()> {
        self.process.kill()?;
        self.process.wait()?;
        std::fs::remove_file(self.dir.join("s")).or_else(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(e),
        })?;
        Ok(())
    }

    fn start_again(&mut self) -> Outcome<()> {
        self.process = Self::launch(&self.program, &self.dir)?;
        self.wait_ready()
    }

    /// Commands that clients sent, as far as the locks are concerned. Not counted by the workers themselves.
    fn commands(&self) -> Outcome<u64> {
        let mut connection = redis::Client::open(self.url())?.get_connection()?;
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection)?;
        let of = |name: &str| {
            let rest = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
            rest.and_then(|rest| rest.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        Ok(of("evalsha") + of("eval") + of("subscribe") + of("unsubscribe"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

// ---------------------------------------------------------------- the supervisor

struct Worker {
    process: Child,
    stdin: ChildStdin,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Event {
    at: u64,
    worker: usize,
    what: String,
}

fn hire(number: usize, url: &str, file: &Path, fate: u32, events: &Sender<Event>) -> Outcome<Worker> {
    let mut process = Command::new(std::env::current_exe()?)
        .args(["worker", &number.to_string(), url])
        .arg(file)
        .arg(fate.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(process.stdout.take().ok_or("no stdout")?).lines();
    let events = events.clone();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let Some((at, what)) = line.split_once(' ') else { continue };
            let event = Event { at: at.parse().unwrap_or(0), worker: number, what: what.to_owned() };
            if events.send(event).is_err() {
                return;
            }
        }
    });
    let stdin = process.stdin.take().ok_or("no stdin")?;
    Ok(Worker { process, stdin })
}

fn signal(pid: u32, name: &str) -> Outcome<()> {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status()?.success();
    if sent { Ok(()) } else { Err(format!("kill -{name} {pid} failed").into()) }
}

/// What was done to whom, and when.
#[derive(Default)]
struct Faults {
    killed: Option<u64>,
    suspended: Option<(u64, u64)>,
    down: Option<(u64, u64)>,
    refused: Option<String>,
}

fn supervise(dir: &Path) -> Outcome<()> {
    let mut server = Server::start(dir)?;
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
    let mut workers = BTreeMap::new();
    for number in 0..WORKERS {
        let fate = [KILLED, SUSPENDED].iter().find(|(who, _)| *who == number).map_or(0, |(_, job)| *job);
        workers.insert(number, hire(number, &url, &file, fate, &sender)?);
    }
    let mut log = Vec::new();
    let mut faults = Faults::default();
    let mut commands = 0;
    let start = Instant::now();
    let mut done = 0;
    let mut takes = 0;
    let mut asleep = None;
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
                workers.insert(WORKERS, hire(WORKERS, &url, &file, 0, &sender)?);
            }
            "critical" => {
                println!("  worker {} is suspended between its read and its write", event.worker);
                let worker = workers.get_mut(&event.worker).ok_or("the worker is gone")?;
                signal(worker.process.id(), "STOP")?;
                asleep = Some((micros(), takes));
                // Nothing but SIGCONT keeps it from writing now.
                worker.stdin.write_all(b"\n")?;
            }
            "done" => done += 1,
            "take" => takes += 1,
            _ => {}
        }
        if let Some((from, before)) = asleep
            && takes >= before + SLEEPS_THROUGH
        {
            println!("  worker {} is continued, {SLEEPS_THROUGH} turns of others later", SUSPENDED.0);
            signal(workers.get(&SUSPENDED.0).ok_or("the worker is gone")?.process.id(), "CONT")?;
            faults.suspended = Some((from, micros()));
            asleep = None;
        }
        note_refusal(&event, &mut faults);
        log.push(event);
        if takes % 50 == 0 && log.last().is_some_and(|e| e.what == "take") {
            println!("  {takes} turns taken");
        }
        if faults.down.is_none() && faults.killed.is_some() && faults.suspended.is_some() && takes > 180 {
            commands += server.commands()?;
            println!("  the server is killed; it comes back empty");
            let from = micros();
            server.kill()?;
            std::thread::sleep(Duration::from_millis(300));
            server.start_again()?;
            faults.down = Some((from, micros()));
        }
    }
    commands += server.commands()?;
    drop(workers);
    for event in events.try_iter() {
        note_refusal(&event, &mut faults);
        log.push(event);
    }
    report(&db, log, &faults, commands)
}

fn note_refusal(event: &Event, faults: &mut Faults) {
    if event.worker == SUSPENDED.0
        && faults.refused.is_none()
        && let Some(text) = event.what.strip_prefix("refused ")
    {
        faults.refused = Some(text.to_owned());
    }
}

// ---------------------------------------------------------------- the report

fn report(db: &Connection, mut log: Vec<Event>, faults: &Faults, commands: u64) -> Outcome<()> {
    log.sort_by_key(|event| event.at);
    let holds = holds(&log, faults);
    time_line(&holds, faults);
    hand_overs(&holds, faults);
    println!("commands sent per turn: {:.2}", commands as f64 / holds.len() as f64);

    let total: i64 = db.query_row("SELECT total FROM result WHERE id = 1", [], |row| row.get(0))?;
    let done: i64 = db.query_row("SELECT count(*) FROM job WHERE done = 1", [], |row| row.get(0))?;
    let expected = JOBS * (JOBS + 1) / 2;
    match &faults.refused {
        Some(text) => println!("the suspended worker's late write was refused: {text}"),
        None => return Err("the suspended worker's late write was not refused".into()),
    }
    if faults.killed.is_none() || faults.suspended.is_none() || faults.down.is_none() {
        return Err("a planned fault did not happen".into());
    }
    if done != JOBS || total != expected {
        return Err(format!("LOST: {done} of {JOBS} jobs done, total {total} instead of {expected}").into());
    }
    println!("total {total} of {expected}: exact");
    Ok(())
}

struct Held {
    worker: usize,
    from: u64,
    to: u64,
}

fn holds(log: &[Event], faults: &Faults) -> Vec<Held> {
    let mut open: BTreeMap<usize, u64> = BTreeMap::new();
    let mut holds = Vec::new();
    for event in log {
        match event.what.as_str() {
            "take" => drop(open.insert(event.worker, event.at)),
            "free" => {
                if let Some(from) = open.remove(&event.worker) {
                    holds.push(Held { worker: event.worker, from, to: event.at });
                }
            }
            _ => {}
        }
    }
    if let (Some(from), Some(to)) = (open.remove(&KILLED.0), faults.killed) {
        holds.push(Held { worker: KILLED.0, from, to });
    }
    holds.sort_by_key(|held| held.from);
    holds
}

fn time_line(holds: &[Held], faults: &Faults) {
    const COLUMNS: u64 = 100;
    let (Some(first), Some(last)) = (holds.first(), holds.iter().map(|h| h.to).max()) else { return };
    let (from, step) = (first.from, ((last - first.from) / COLUMNS).max(1));
    let cell = |a: u64, b: u64, column: u64| a < from + (column + 1) * step && b > from + column * step;
    println!("\nwho held the lock, {} ms a column (# held, ~ suspended, K killed, X server down):", step / 1000);
    for worker in 0..=WORKERS {
        let row: String = (0..COLUMNS)
            .map(|column| {
                if worker == SUSPENDED.0 && faults.suspended.is_some_and(|(a, b)| cell(a, b, column)) {
                    '~'
                } else if worker == KILLED.0 && faults.killed.is_some_and(|at| cell(at, at + 1, column)) {
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
    println!("  server   {}\n", (0..COLUMNS).map(|c| if down(c) { 'X' } else { ' ' }).collect::<String>());
}

/// From a release to the next holder in another process, where no fault is in between.
fn hand_overs(holds: &[Held], faults: &Faults) {
    let faulty = |from: u64, to: u64| {
        let near = |a: u64, b: u64| a <= to && b + LEASE.as_micros() as u64 >= from;
        faults.killed.is_some_and(|at| near(at, at))
            || faults.suspended.is_some_and(|(a, b)| near(a, b))
            || faults.down.is_some_and(|(a, b)| near(a, b))
    };
    let changes: Vec<_> = holds.windows(2).filter(|pair| pair[0].worker != pair[1].worker).collect();
    let mut pauses: Vec<u64> = changes
        .iter()
        .filter(|pair| !faulty(pair[0].to, pair[1].from))
        .map(|pair| pair[1].from.saturating_sub(pair[0].to))
        .collect();
    pauses.sort_unstable();
    let at = |share: f64| pauses.get(((pauses.len() as f64 * share) as usize).min(pauses.len().saturating_sub(1)));
    let text = |micros: Option<&u64>| micros.map_or("-".to_owned(), |m| format!("{:.2} ms", *m as f64 / 1000.0));
    println!(
        "the lock was taken {} times and changed hands {} times; from release to next holder: p50 {}, p99 {}, longest {}",
        holds.len(),
        changes.len(),
        text(at(0.5)),
        text(at(0.99)),
        text(pauses.last())
    );
}
