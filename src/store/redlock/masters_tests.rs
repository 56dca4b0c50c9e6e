//! Masters in this process, over sockets. Each keeps what the scripts of a real one would keep, and
//! answers the next requests of a kind otherwise where a test says so: with an error, late, half,
//! not at all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::quarantine::QuarantineSettings;
use super::store::RedlockStore;
use crate::base::error::Result;
use crate::base::holder::{ClientId, Holder};
use crate::base::lease::Moment;
use crate::base::lock_name::{Kind, LockName};
use crate::os::{Condvar, Mutex};
use crate::signal::clock::{Clock, SystemClock};
use crate::store::redis::script;
use crate::store::redis::wire::{Connector, Endpoint, sha_of};
use crate::store::{
    Acquire, Acquired, LockStore, Release, Released, Renewal, TokenRule, Undo, UnknownOutcomes,
    Waiting,
};

/// Nothing that answers is ever slower, however busy the machine is. Time passes when a test says so.
pub(super) const IO_TIMEOUT: Duration = Duration::from_secs(60);
pub(super) const LEASE: Duration = Duration::from_secs(10);
pub(super) const LONGEST_LEASE: Duration = Duration::from_secs(100);
/// The wall clock of the client and of all masters, unless a test sets one.
pub(super) const WALL: u64 = 1_800_000_000_000_000;
pub(super) const NOBODY_ELSE: &str = "11111111-1111-8111-8111-111111111111:1";
pub(super) const SOMEBODY: &str = "22222222-2222-8222-8222-222222222222:1";
pub(super) const OF_JAVA: &str = "33333333-3333-4333-8333-333333333333:30";
pub(super) const OF_JAVA_ELSEWHERE: &str = "44444444-4444-4444-8444-444444444444:30";

/// The clock of the system, and what a test adds to it.
#[derive(Debug, Default)]
pub(super) struct TestClock {
    ahead: AtomicU64,
    wall_micros: AtomicU64,
}

impl TestClock {
    pub(super) fn advance(&self, by: Duration) {
        self.ahead.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }

    pub(super) fn set_wall(&self, micros: u64) {
        self.wall_micros.store(micros, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        SystemClock.now().plus(Duration::from_nanos(self.ahead.load(Ordering::SeqCst)))
    }

    fn wall(&self) -> Duration {
        Duration::from_micros(self.wall_micros.load(Ordering::SeqCst))
    }
}

/// What a master does with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Does {
    /// Answers this; nothing runs.
    Says(String),
    /// It runs, and the answer is this one.
    RunsAndSays(String),
    /// The connection ends after it has run.
    RunsAndCuts,
    /// It runs when the test lets it.
    Waits,
    /// It answers this when the test lets it; nothing runs.
    WaitsAndSays(String),
    /// It runs, and a part of the answer comes; then the I/O timeout passes, when the masters have
    /// answered this many requests of the kind.
    Stalls(usize),
    /// What is not said otherwise.
    Runs,
    /// The same when the masters have answered this many requests of the kind.
    After(usize, Box<Self>),
}

impl Does {
    pub(super) fn after(self, answers: usize) -> Self {
        Self::After(answers, Box::new(self))
    }
}

/// A request as a master has read it. A script by its name, with keys and arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) what: String,
    pub(super) words: Vec<String>,
}

#[derive(Default)]
struct State {
    /// The connections that it has accepted, by their ids.
    sockets: BTreeMap<u64, TcpStream>,
    last_id: u64,
    killed: BTreeSet<u64>,
    run_id: String,
    may_kill: bool,
    /// Every connection is closed at once.
    is_down: bool,
    votes: bool,
    mark: Option<String>,
    highest: Option<u64>,
    wall_micros: u64,
    /// By the key of the lock.
    held: BTreeMap<String, (String, u64)>,
    tokens: BTreeMap<String, u64>,
    loaded: BTreeSet<String>,
    orders: Vec<(String, VecDeque<Does>)>,
    log: Vec<Asked>,
    /// Requests that were let run.
    let_run: bool,
    subscribers: i64,
}

pub(super) struct Master {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    clock: Arc<TestClock>,
    /// Answers of all masters by the kind of request.
    answers: Arc<Answers>,
}

#[derive(Default)]
struct Answers {
    count: Mutex<BTreeMap<String, usize>>,
    changed: Condvar,
}

pub(super) fn error(text: &str) -> Does {
    Does::Says(format!("-{text}\r\n"))
}

pub(super) fn int(n: i64) -> String {
    format!(":{n}\r\n")
}

pub(super) fn pair(a: i64, b: i64) -> String {
    format!("*2\r\n:{a}\r\n:{b}\r\n")
}

pub(super) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

pub(super) fn list(parts: &[String]) -> String {
    format!("*{}\r\n{}", parts.len(), parts.concat())
}

/// The answer of a master at which another one has the lock.
pub(super) fn busy(ttl: i64, holder: &str) -> Does {
    Does::Says(list(&[int(0), int(ttl), bulk(holder)]))
}

impl Master {
    fn start(clock: &Arc<TestClock>, answers: &Arc<Answers>, run_id: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State {
            run_id: run_id.to_owned(),
            may_kill: true,
            votes: true,
            wall_micros: WALL,
            ..State::default()
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            clock: clock.clone(),
            answers: answers.clone(),
        });
        let serving = Arc::downgrade(&shared);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let Some(shared) = serving.upgrade() else { return };
                let Ok(socket) = socket else { return };
                socket.set_nodelay(true).unwrap();
                let mut state = shared.state.lock();
                if state.is_down {
                    continue;
                }
                state.last_id += 1;
                let id = state.last_id;
                state.sockets.insert(id, socket.try_clone().unwrap());
                drop(state);
                std::thread::spawn(move || {
                    shared.serve(id, socket);
                    let mut state = shared.state.lock();
                    state.sockets.remove(&id);
                    drop(state);
                    shared.changed.notify_all();
                });
            }
        });
        Self { port, shared }
    }

    /// What it does with the next requests of this kind.
    pub(super) fn next<const N: usize>(&self, what: &str, does: [Does; N]) {
        self.shared.state.lock().orders.push((what.to_owned(), does.into()));
    }

    /// Whether what was told to wait runs from now on.
    pub(super) fn let_run(&self, let_run: bool) {
        self.shared.state.lock().let_run = let_run;
        self.shared.changed.notify_all();
    }

    pub(super) fn refuse_kills(&self) {
        self.shared.state.lock().may_kill = false;
    }

    pub(super) fn set_votes(&self, votes: bool) {
        self.shared.state.lock().votes = votes;
    }

    /// The highest token that it remembers.
    pub(super) fn remembers(&self, highest: Option<u64>) {
        self.shared.state.lock().highest = highest;
    }

    pub(super) fn set_clock(&self, micros: u64) {
        self.shared.state.lock().wall_micros = micros;
    }

    pub(super) fn set_token(&self, key: &str, token: u64) {
        self.shared.state.lock().tokens.insert(key.to_owned(), token);
    }

    /// Another process with this run id, which remembers nothing of its holds, and has no vote.
    pub(super) fn restart(&self, run_id: &str) {
        let mut state = self.shared.state.lock();
        state.run_id = run_id.to_owned();
        state.held.clear();
        state.loaded.clear();
        state.mark = None;
        state.votes = false;
        drop(state);
        self.cut();
    }

    /// Ends all connections, and what waits on them.
    pub(super) fn cut(&self) {
        let sockets: Vec<TcpStream> = {
            let mut state = self.shared.state.lock();
            let ids: Vec<u64> = state.sockets.keys().copied().collect();
            state.killed.extend(ids);
            state.sockets.values().map(|socket| socket.try_clone().unwrap()).collect()
        };
        self.shared.changed.notify_all();
        for socket in sockets {
            let _ = socket.shutdown(Shutdown::Both);
        }
        wait_until("its connections end", || self.connections() == 0);
    }

    /// New connections are refused, and those that there are go on.
    pub(super) fn is_full(&self) {
        let refusal = error("ERR max number of clients reached");
        self.next("CLIENT SETNAME", std::array::from_fn::<_, 1000, _>(|_| refusal.clone()));
    }

    pub(super) fn has_room(&self) {
        self.shared.state.lock().orders.retain(|(what, _)| what != "CLIENT SETNAME");
    }

    pub(super) fn goes_down(&self) {
        self.shared.state.lock().is_down = true;
        self.cut();
    }

    pub(super) fn comes_back(&self) {
        self.shared.state.lock().is_down = false;
    }

    pub(super) fn connections(&self) -> usize {
        self.shared.state.lock().sockets.len()
    }

    /// How many connections it has had.
    pub(super) fn connects(&self) -> u64 {
        self.shared.state.lock().last_id
    }

    pub(super) fn holder(&self, key: &str) -> Option<String> {
        self.shared.state.lock().held.get(key).map(|(holder, _)| holder.clone())
    }

    /// The mark of its quarantine.
    pub(super) fn mark(&self) -> String {
        self.shared.state.lock().mark.clone().expect("it has none")
    }

    /// The holder has the lock here, with a count of one.
    pub(super) fn give(&self, key: &str, holder: &str) {
        self.shared.state.lock().held.insert(key.to_owned(), (holder.to_owned(), 1));
    }

    pub(super) fn lose(&self, key: &str) {
        self.shared.state.lock().held.remove(key);
    }

    /// What it was asked of this kind, in its order.
    pub(super) fn asked(&self, what: &str) -> Vec<Asked> {
        let state = self.shared.state.lock();
        state.log.iter().filter(|asked| asked.what == what).cloned().collect()
    }

    /// The kinds of all requests, in their order.
    pub(super) fn log(&self) -> Vec<String> {
        self.shared.state.lock().log.iter().map(|asked| asked.what.clone()).collect()
    }

    pub(super) fn forget_log(&self) {
        self.shared.state.lock().log.clear();
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.let_run(true);
        self.shared.state.lock().is_down = true;
        for socket in self.shared.state.lock().sockets.values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        // The thread that accepts ends when nobody has it any more.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn serve(&self, id: u64, mut socket: TcpStream) {
        let mut input = BufReader::new(socket.try_clone().unwrap());
        while let Some(words) = read_request(&mut input) {
            let Some((what, words)) = self.meaning(&words) else {
                if socket.write_all(b"-NOSCRIPT No matching script.\r\n").is_err() {
                    return;
                }
                continue;
            };
            let mut does = self.note(id, &what, &words);
            while let Does::After(answers, then) = does {
                self.answers.wait_for(&what, answers);
                does = *then;
            }
            let waits = matches!(does, Does::Waits | Does::WaitsAndSays(_));
            if waits {
                let mut state = self.state.lock();
                while !state.let_run && !state.killed.contains(&id) {
                    self.changed.wait(&mut state);
                }
            }
            // Of a connection that was killed nothing runs any more.
            if self.state.lock().killed.contains(&id) {
                let _ = socket.shutdown(Shutdown::Both);
                return;
            }
            let reply = match does {
                Does::Says(reply) | Does::WaitsAndSays(reply) => reply,
                Does::RunsAndSays(reply) => {
                    self.run(&what, &words);
                    reply
                }
                Does::RunsAndCuts => {
                    self.run(&what, &words);
                    let _ = socket.shutdown(Shutdown::Both);
                    return;
                }
                Does::Stalls(after) => {
                    self.run(&what, &words);
                    self.answers.wait_for(&what, after);
                    // More than once, because the client may not have begun to wait yet.
                    let mut part: &[u8] = b"*";
                    while !Self::has_ended(&socket) {
                        self.clock.advance(IO_TIMEOUT + Duration::from_millis(1));
                        let _ = socket.write_all(part);
                        part = b"1";
                        std::thread::sleep(Duration::from_millis(100));
                    }
                    return;
                }
                Does::Runs | Does::Waits | Does::After(..) => self.run(&what, &words),
            };
            if socket.write_all(reply.as_bytes()).is_err() {
                return;
            }
            self.answers.add(&what);
        }
    }

    /// Whether the client has closed the connection. Nothing else comes.
    fn has_ended(socket: &TcpStream) -> bool {
        socket.set_nonblocking(true).unwrap();
        let peeked = socket.peek(&mut [0]);
        let is_silent = peeked.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
        socket.set_nonblocking(false).unwrap();
        !is_silent
    }

    /// The kind of a request, and its words without those that say it. `None`: a script that it
    /// does not know.
    fn meaning(&self, words: &[String]) -> Option<(String, Vec<String>)> {
        let name = |sha: &str| script::name_of(sha).unwrap_or("another script").to_owned();
        let mut state = self.state.lock();
        match &*words[0] {
            "EVALSHA" if !state.loaded.contains(&words[1]) => None,
            "EVALSHA" => Some((name(&words[1]), words[2..].to_vec())),
            "EVAL" => {
                let sha = sha_of(&words[1]);
                state.loaded.insert(sha.clone());
                Some((name(&sha), words[2..].to_vec()))
            }
            "CLIENT" | "INFO" | "SCRIPT" | "PUBSUB" => {
                Some((format!("{} {}", words[0], words[1]), words[2..].to_vec()))
            }
            _ => Some((words[0].clone(), words[1..].to_vec())),
        }
    }

    /// What it does with the request.
    fn note(&self, id: u64, what: &str, words: &[String]) -> Does {
        const OF_EVERY_CONNECTION: [&str; 8] = [
            "CLIENT SETNAME",
            "CLIENT INFO",
            "INFO server",
            "INFO replication",
            "INFO memory",
            "SCRIPT LOAD",
            "ECHO",
            "connect_probe",
        ];
        let mut state = self.state.lock();
        let is_probe = what == "CLIENT KILL" && words[1] == i64::MAX.to_string();
        if is_probe {
            return if state.may_kill { Does::Says(int(0)) } else { error("NOPERM no kills") };
        }
        let order = state.orders.iter_mut().find(|(of, does)| of == what && !does.is_empty());
        let does = order.and_then(|(_, does)| does.pop_front());
        if !OF_EVERY_CONNECTION.contains(&what) && what != "TIME" {
            state.log.push(Asked { what: what.to_owned(), words: words.to_vec() });
        }
        does.unwrap_or_else(|| match what {
            "CLIENT INFO" => Does::Says(bulk(&format!("id={id} user=default"))),
            _ => Does::Runs,
        })
    }

    fn run(&self, what: &str, words: &[String]) -> String {
        let mut state = self.state.lock();
        let number = |text: &String| text.parse::<u64>().unwrap_or(0);
        match what {
            "CLIENT SETNAME" | "SET" => "+OK\r\n".to_owned(),
            "INFO server" => bulk(&format!("redis_version:7.2.0\r\nrun_id:{}\r\n", state.run_id)),
            "INFO replication" => bulk("role:master"),
            "INFO memory" => bulk("maxmemory:0"),
            "SCRIPT LOAD" => {
                let sha = sha_of(&words[0]);
                state.loaded.insert(sha.clone());
                bulk(&sha)
            }
            "TIME" => {
                let micros = state.wall_micros;
                list(&[micros / 1_000_000, micros % 1_000_000].map(|n| bulk(&n.to_string())))
            }
            "ECHO" => bulk(&words[0]),
            "PING" => "+PONG\r\n".to_owned(),
            "SUBSCRIBE" => list(&[bulk("subscribe"), bulk(&words[0]), int(1)]),
            "connect_probe" => list(&[]),
            "PUBLISH" | "DEL" | "ZREM" => int(0),
            "CLIENT KILL" => {
                let id = number(&words[1]);
                let found = state.sockets.get(&id).map(|socket| socket.shutdown(Shutdown::Both));
                state.killed.insert(id);
                self.changed.notify_all();
                int(i64::from(found.is_some()))
            }
            "redlock_acquire" => acquire(&mut state, words),
            "mutex_release" => {
                let (key, holder, count) = (&words[1], &words[2], number(&words[3]));
                match state.held.get_mut(key).filter(|(by, _)| by == holder) {
                    None => pair(0, 0),
                    Some((_, left)) if count > 1 => {
                        *left = count - 1;
                        pair(1, 0)
                    }
                    Some(_) => {
                        state.held.remove(key);
                        pair(2, if words[4].is_empty() { 0 } else { state.subscribers })
                    }
                }
            }
            "redlock_token" => {
                let (key, holder) = (&words[1], &words[4]);
                let has_it = state.votes && state.held.get(key).is_some_and(|(by, _)| by == holder);
                if has_it {
                    state.tokens.insert(key.clone(), number(&words[5]));
                }
                int(i64::from(has_it))
            }
            "redlock_renew" => {
                let locks = words[0].parse::<usize>().unwrap() - 1;
                let holders = &words[locks + 2..];
                let holds = |n: usize| {
                    state.held.get(&words[1 + n]).is_some_and(|(by, _)| *by == holders[n])
                };
                let held: Vec<String> = (0..locks).map(|n| int(i64::from(holds(n)))).collect();
                list(if state.votes { &held } else { &[] })
            }
            "redlock_look" => {
                let highest = bulk(&state.highest.map_or(String::new(), |n| n.to_string()));
                if state.votes {
                    return list(&[int(1), highest, bulk("")]);
                }
                let nonce = words[3].clone();
                let mark = state.mark.get_or_insert(nonce).clone();
                list(&[int(0), highest, bulk(&mark)])
            }
            "redlock_admit" => {
                let admitted = state.mark.as_ref() == Some(&words[3]);
                if admitted {
                    state.votes = true;
                    state.highest = state.highest.max(words[4].parse().ok());
                    state.mark = None;
                }
                int(i64::from(admitted))
            }
            "mutex_inspect" => {
                let Some((holder, count)) = state.held.get(&words[1]) else {
                    return list(&[int(-2), "$-1\r\n".to_owned()]);
                };
                let nil = "$-1\r\n".to_owned();
                list(&[int(5000), nil, bulk(holder), bulk(&count.to_string())])
            }
            "mutex_force_unlock" => int(i64::from(state.held.remove(&words[1]).is_some())),
            other => format!("-ERR the test does not say what {other} answers\r\n"),
        }
    }
}

fn acquire(state: &mut State, words: &[String]) -> String {
    let (key, holder, held) = (&words[1], &words[4], words[6].parse::<u64>().unwrap());
    if !state.votes {
        return pair(5, 0);
    }
    let entry = state.held.get(key).cloned();
    match entry {
        Some((by, _)) if by != *holder && held == 0 => list(&[int(0), int(5000), bulk(&by)]),
        Some((by, _)) if by != *holder => pair(2, 0),
        None if held > 0 => pair(2, 0),
        _ => {
            state.held.insert(key.clone(), (holder.clone(), held + 1));
            if words[7] == "-1" || held > 0 {
                return pair(1, 0);
            }
            let last = state.tokens.get(key).copied().unwrap_or(0);
            let token = words[8].parse::<u64>().unwrap().max(last + 1);
            state.tokens.insert(key.clone(), token);
            pair(1, token as i64)
        }
    }
}

impl Answers {
    fn add(&self, what: &str) {
        *self.count.lock().entry(what.to_owned()).or_default() += 1;
        self.changed.notify_all();
    }

    fn wait_for(&self, what: &str, count: usize) {
        let until = Instant::now() + Duration::from_secs(20);
        let mut answered = self.count.lock();
        while answered.get(what).copied().unwrap_or(0) < count {
            assert!(!self.changed.wait_until(&mut answered, until).timed_out(), "{what}");
        }
    }
}

fn read_request(input: &mut impl BufRead) -> Option<Vec<String>> {
    let mut line = String::new();
    let mut number = |input: &mut dyn BufRead| {
        line.clear();
        input.read_line(&mut line).ok()?;
        line.get(1..)?.trim_end().parse::<usize>().ok()
    };
    let count = number(input)?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let mut word = vec![0; number(input)? + 2];
        input.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8(word).ok()?);
    }
    Some(words)
}

pub(super) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Masters, and a client of them.
pub(super) struct Stage {
    pub(super) store: RedlockStore,
    pub(super) clock: Arc<TestClock>,
    pub(super) masters: Vec<Master>,
    answers: Arc<Answers>,
    client: ClientId,
    pub(super) name: Arc<LockName>,
}

/// What a client is set to.
pub(super) struct Client {
    pub(super) io_timeout: Duration,
    pub(super) rounds: usize,
    pub(super) fresh: bool,
    pub(super) durable: bool,
}

impl Default for Client {
    fn default() -> Self {
        Self { io_timeout: IO_TIMEOUT, rounds: 4, fresh: true, durable: false }
    }
}

impl Stage {
    /// All are connected and vote.
    pub(super) fn new(masters: usize) -> Self {
        let stage = Self::lazy(masters, Client::default());
        stage.store.connect_now().unwrap();
        stage.forget();
        stage
    }

    /// Nothing is connected yet.
    pub(super) fn lazy(masters: usize, client: Client) -> Self {
        let clock = Arc::new(TestClock::default());
        clock.set_wall(WALL);
        let answers = Arc::<Answers>::default();
        let masters: Vec<Master> = (0..masters)
            .map(|index| Master::start(&clock, &answers, &format!("run{index}")))
            .collect();
        let urls: Vec<String> = masters.iter().map(Master::url).collect();
        let store = store_of(&urls, &clock, client);
        let name = Arc::new(LockName::new("", "l", Kind::Mutex).unwrap());
        let client = ClientId::random(Duration::from_secs(5));
        Self { store, clock, masters, answers, client, name }
    }

    /// A store of its own over the same masters.
    pub(super) fn other_client(&self, client: Client) -> RedlockStore {
        let urls: Vec<String> = self.masters.iter().map(Master::url).collect();
        store_of(&urls, &self.clock, client)
    }

    /// Nothing was asked yet.
    pub(super) fn forget(&self) {
        for master in &self.masters {
            master.forget_log();
        }
        self.answers.count.lock().clear();
    }

    /// Does this while a part of the I/O timeout passes: for what waits that long for a late answer.
    pub(super) fn while_time_passes<T>(&self, run: impl FnOnce() -> T) -> T {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Slower and slower, because it may begin to wait late. Two thirds of the timeout in
                // all, so that nothing is overdue.
                let mut pause = Duration::from_millis(2);
                for _ in 0..16 {
                    std::thread::sleep(pause);
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    self.clock.advance(IO_TIMEOUT / 24);
                    pause = pause * 3 / 2;
                }
            });
            let done = run();
            is_over.store(true, Ordering::SeqCst);
            done
        })
    }

    pub(super) fn clock_now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn holder(&self) -> Holder {
        self.client.fresh_holder()
    }

    pub(super) fn acquire<'a>(&'a self, holder: &'a Holder) -> Acquire<'a> {
        Acquire {
            name: &self.name,
            holder,
            permits: 1,
            lease: LEASE,
            held: 0,
            token: TokenRule::On,
            tokens: 1,
            waiting: Waiting::No,
            goes_on: false,
        }
    }

    pub(super) fn lock(&self, holder: &Holder) -> (Result<Acquired>, UnknownOutcomes) {
        self.lock_with(&self.acquire(holder))
    }

    pub(super) fn lock_with(&self, acquire: &Acquire<'_>) -> (Result<Acquired>, UnknownOutcomes) {
        let mut unknowns = UnknownOutcomes::default();
        let acquired = self.store.acquire(acquire, &mut unknowns);
        (acquired, unknowns)
    }

    /// Takes the lock on all masters, and returns its token.
    pub(super) fn locked(&self, holder: &Holder) -> u64 {
        self.settle();
        let token = granted(self.lock(holder).0);
        wait_until("all have it", || self.holding(holder) == self.masters.len());
        self.settle();
        self.forget();
        token
    }

    /// No master owes an answer.
    pub(super) fn settle(&self) {
        for node in self.store.nodes.iter() {
            wait_until("its answers are read", || {
                node.read_unread();
                node.probe_at().is_none()
            });
        }
    }

    pub(super) fn unlock(&self, holder: &Holder) -> (Result<Released>, UnknownOutcomes) {
        let mut unknowns = UnknownOutcomes::default();
        let release = Release::of_all(&self.name, holder, 1);
        (self.store.release(&release, &mut unknowns), unknowns)
    }

    /// What the background does with an attempt that did not succeed, until nothing is left of it.
    pub(super) fn undo(&self, holder: &Holder, unknowns: UnknownOutcomes) {
        let mut undos = vec![self.undo_of(holder, unknowns)];
        let began = Instant::now();
        while !undos[0].unknowns.is_empty() {
            self.store.maintain();
            self.store.resolve(&mut undos);
            if undos.is_empty() {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{undos:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn undo_of(&self, holder: &Holder, unknowns: UnknownOutcomes) -> Undo {
        let expires = self.clock.now().plus(LONGEST_LEASE);
        Undo::of_attempt(self.name.clone(), holder.clone(), 1, unknowns, expires)
    }

    pub(super) fn renewal(&self, holder: &Holder, token: u64) -> Renewal {
        let (name, holder) = (self.name.clone(), holder.clone());
        Renewal { name, holder, permits: 1, lease: LEASE, token }
    }

    /// How many masters have the lock held by this holder.
    pub(super) fn holding(&self, holder: &Holder) -> usize {
        let has_it =
            |master: &&Master| master.holder("l").is_some_and(|held| held == holder.as_str());
        self.masters.iter().filter(has_it).count()
    }

    /// How many masters were asked this.
    pub(super) fn asked(&self, what: &str) -> Vec<usize> {
        self.masters.iter().map(|master| master.asked(what).len()).collect()
    }

    pub(super) fn all_do(&self, what: &str, does: &Does) {
        for master in &self.masters {
            master.next(what, [does.clone()]);
        }
    }
}

pub(super) fn store_of(urls: &[String], clock: &Arc<TestClock>, client: Client) -> RedlockStore {
    let connector = |url: &String| Connector {
        endpoint: Endpoint::parse(url).unwrap().into(),
        client_name: "test".into(),
        handshake: script::handshake_with_master(""),
        io_timeout: client.io_timeout,
        clock: clock.clone(),
        busy_poll: true,
        memory_seen: Arc::default(),
        introduced: Arc::default(),
        cluster: None,
    };
    let Client { fresh, durable, rounds, .. } = client;
    let settings = QuarantineSettings { longest_lease: LONGEST_LEASE, fresh, durable };
    RedlockStore::new(urls.iter().map(connector).collect(), rounds, settings)
}

/// The token of a grant.
pub(super) fn granted(acquired: Result<Acquired>) -> u64 {
    match acquired {
        Ok(Acquired::Granted(granted)) => granted.token,
        other => panic!("{other:?}"),
    }
}
