//! A small Redis on the scheduler's network. It runs the library's own scripts, one request in one
//! step; what reaches it late, is answered late or twice, or is cut, a scenario decides.

mod collections;
mod keyspace;
mod scripts;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::os::network::{Listener, Socket, readable};
use leasehold::os::thread::{Builder, sleep};
use leasehold::os::wall;

use self::keyspace::{Keyspace, Outcome, Value};

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// It runs this much later, whatever has become of its caller.
    RunsLate(Duration),
    /// Its answer comes this much later, after it has run.
    AnsweredLate(Duration),
    /// It does not run, and the answer that says so comes this much later.
    Refused(Duration),
    /// The connection ends before it runs.
    CutBefore,
    /// It has run when the connection ends.
    CutAfter,
    /// Its answer comes twice, if it is the last one of its write: within a write nobody could tell
    /// the copy from the next answer.
    AnsweredTwice,
}

#[derive(Clone)]
pub(crate) struct Server(Arc<Shared>);

struct Shared {
    address: SocketAddr,
    listener: Mutex<Option<Arc<Listener>>>,
    /// Never held over a step of the scheduler.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    run_id: String,
    starts: u32,
    keys: Keyspace,
    /// Those that were loaded, by their hash.
    scripts: BTreeMap<String, Known>,
    connections: BTreeMap<u64, Socket>,
    connected: u64,
    /// The most connections at once.
    most: usize,
    subscribers: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// Each meets the next request of its name.
    mishaps: Vec<(&'static str, Mishap)>,
    /// How much later scripts run, and how much later they are answered.
    late: [Duration; 2],
    /// The user may not kill connections.
    forbids_kills: bool,
}

/// A script, and its name in the library.
#[derive(Clone)]
struct Known {
    name: Arc<str>,
    source: Arc<str>,
}

type Request = Vec<Vec<u8>>;

impl Server {
    /// A server that listens at this port.
    pub(crate) fn start(port: u16) -> Self {
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let server =
            Self(Arc::new(Shared { address, listener: Mutex::default(), state: Mutex::default() }));
        server.listen();
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.0.address)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(&self) {
        let listener = Arc::new(Listener::new(self.0.address));
        *self.0.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener.clone());
        let mut state = self.state();
        state.starts += 1;
        state.run_id = format!("{:04x}{:036x}", self.0.address.port(), state.starts);
        drop(state);
        let server = self.clone();
        spawn(move || {
            while let Some(socket) = listener.accept() {
                let server = server.clone();
                let id = server.state().enter(&socket);
                spawn(move || server.serve(id, &socket));
            }
        });
    }

    /// Ends all connections and refuses new ones; keeps the data.
    pub(crate) fn stop(&self) {
        let listener = self.0.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        listener.inspect(|listener| listener.close());
        self.end_connections();
    }

    /// Another process, with the data or without.
    pub(crate) fn restart(&self, keeps: bool) {
        self.stop();
        if !keeps {
            self.state().keys.flush();
        }
        self.state().scripts.clear();
        self.listen();
    }

    pub(crate) fn has_restarted(&self) -> bool {
        self.state().starts > 1
    }

    /// Called in each connect, by the thread that connects.
    pub(crate) fn intervene(&self, intervene: Option<fn()>) {
        let listener = self.0.listener.lock().unwrap_or_else(PoisonError::into_inner).clone();
        listener.expect("it listens").intervene(intervene);
    }

    pub(crate) fn end_connections(&self) {
        let mut state = self.state();
        let all = std::mem::take(&mut state.connections);
        state.subscribers.clear();
        drop(state);
        for script in all.values() {
            script.close_at_once();
        }
    }

    pub(crate) fn flush_scripts(&self) {
        self.state().scripts.clear();
    }

    /// The next request of this name: a script, or a command in capitals.
    pub(crate) fn next(&self, name: &'static str, mishap: Mishap) {
        self.state().mishaps.push((name, mishap));
    }

    /// From now on scripts are answered this much later.
    pub(crate) fn answers_late(&self, delay: Duration) {
        self.state().late = [Duration::ZERO, delay];
    }

    /// From now on scripts run this much later.
    pub(crate) fn runs_late(&self, delay: Duration) {
        self.state().late = [delay, Duration::ZERO];
    }

    /// From now on nothing happens to requests any more.
    pub(crate) fn calm_down(&self) {
        self.intervene(None);
        let mut state = self.state();
        state.mishaps.clear();
        state.late = [Duration::ZERO; 2];
    }

    /// From now on the user may not kill connections.
    pub(crate) fn forbid_kills(&self) {
        self.state().forbids_kills = true;
    }

    /// What is kept for locks: the counters of tokens and what a master remembers remain.
    pub(crate) fn locks(&self) -> Vec<String> {
        self.state().keys.keys(wall(), &["leasehold:node", "redisson_lock_token:"])
    }

    /// How many connections there are, and the most that there were at once.
    pub(crate) fn connections(&self) -> (usize, usize) {
        let state = self.state();
        (state.connections.len(), state.most)
    }

    /// Reads requests from a connection until it ends, and answers each in its turn.
    fn serve(&self, id: u64, socket: &Socket) {
        let mut unread = Vec::new();
        loop {
            let Some(request) = parse(&mut unread) else {
                readable(&[socket], None);
                let mut buffer = [0; 4096];
                match socket.read_now(&mut buffer) {
                    Ok(0) => break,
                    Ok(read) => unread.extend(&buffer[..read]),
                    // It was read meanwhile, or not yet: it waits again.
                    Err(_) => {}
                }
                continue;
            };
            if !self.answer(id, socket, &request, unread.is_empty()) {
                break;
            }
        }
        self.state().leave(id);
        socket.close();
    }

    /// Returns whether the connection goes on.
    fn answer(&self, id: u64, socket: &Socket, request: &Request, is_last: bool) -> bool {
        let mishap = self.state().mishap_of(request, is_last);
        match mishap {
            Some(Mishap::RunsLate(delay)) => sleep(delay),
            Some(Mishap::CutBefore) => return false,
            _ => {}
        }
        let [runs_late, answered_late] =
            if is_script(request) { self.state().late } else { [Duration::ZERO; 2] };
        if !runs_late.is_zero() {
            sleep(runs_late);
        }
        let mut state = self.state();
        // Killed, or the server has ended: nothing that was sent before runs any more.
        if !state.connections.contains_key(&id) {
            return false;
        }
        let (answer, late) = match mishap {
            Some(Mishap::Refused(delay)) => {
                (Value::Error("BUSY Redis is busy running a script.".into()), delay)
            }
            Some(Mishap::AnsweredLate(delay)) => (state.run(id, request), delay),
            _ => (state.run(id, request), answered_late),
        };
        let mut out = Vec::new();
        answer.write(&mut out);
        if mishap == Some(Mishap::CutAfter) {
            return false;
        }
        let times = if mishap == Some(Mishap::AnsweredTwice) { 2 } else { 1 };
        (0..times).all(|_| socket.write_at_once(&out, late).is_ok())
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) {
    Builder::new()
        .name("server".to_owned())
        .spawn(run)
        .expect("the scheduler can always run another thread");
}

/// A script begins with a comment that has its name, and so does each library in front of it.
fn name_in(source: &str) -> Arc<str> {
    let mut heads =
        source.lines().filter_map(|line| Some(line.strip_prefix("-- ")?.split_once(": ")?.0));
    heads.find(|name| !name.contains(['/', ' '])).unwrap_or_default().into()
}

fn is_script(request: &Request) -> bool {
    request[0].to_ascii_uppercase().starts_with(b"EVAL")
}

impl State {
    fn enter(&mut self, socket: &Socket) -> u64 {
        self.connected += 1;
        self.connections.insert(self.connected, socket.clone());
        self.most = self.most.max(self.connections.len());
        self.connected
    }

    fn leave(&mut self, id: u64) {
        self.connections.remove(&id);
        for ids in self.subscribers.values_mut() {
            _ = ids.remove(&id);
        }
    }

    /// The name of a request, as a scenario says it.
    fn name_of(&self, request: &Request) -> Arc<str> {
        let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        match &*request[0].to_ascii_uppercase() {
            b"EVALSHA" => {
                self.scripts.get(&text(&request[1])).map_or("".into(), |known| known.name.clone())
            }
            b"EVAL" => name_in(&text(&request[1])),
            command => String::from_utf8_lossy(command).into(),
        }
    }

    fn mishap_of(&mut self, request: &Request, is_last: bool) -> Option<Mishap> {
        if self.mishaps.is_empty() {
            return None;
        }
        let name = self.name_of(request);
        let at = self.mishaps.iter().position(|(other, mishap)| {
            **other == *name && (is_last || *mishap != Mishap::AnsweredTwice)
        })?;
        Some(self.mishaps.remove(at).1)
    }

    fn run(&mut self, id: u64, request: &Request) -> Value {
        let text = |at: usize| {
            request.get(at).map(|word| String::from_utf8_lossy(word)).unwrap_or_default()
        };
        let (command, second) = (text(0).to_uppercase(), text(1).to_uppercase());
        match (&*command, &*second) {
            ("CLIENT", "INFO") => Value::text(format!("id={id} user=default")),
            ("CLIENT", "KILL") if self.forbids_kills => {
                Value::Error("NOPERM no permission to run 'client|kill'".into())
            }
            ("CLIENT", "KILL") => Value::Int(i64::from(self.kill(text(3).parse().unwrap_or(0)))),
            ("CLIENT" | "SELECT", _) => Value::Status("OK"),
            ("PING", _) => Value::Status("PONG"),
            ("ECHO", number) => Value::text(number),
            ("INFO", "SERVER") => Value::text(format!(
                "redis_version:7.4.0\r\nredis_mode:standalone\r\nrun_id:{}\r\n",
                self.run_id
            )),
            ("INFO", "REPLICATION") => Value::text("role:master\r\n"),
            ("INFO", _) => Value::text("maxmemory:0\r\n"),
            ("SCRIPT", _) => Value::text(self.learn(&text(2))),
            ("EVAL", _) => {
                let sha = self.learn(&text(1));
                self.eval(&sha, request)
            }
            ("EVALSHA", _) => self.eval(&text(1), request),
            ("SUBSCRIBE", _) => {
                let subscribe = |channel: &Vec<u8>| {
                    self.subscribers.entry(channel.clone()).or_default().insert(id);
                    Value::List(vec![
                        Value::text("subscribe"),
                        Value::text(channel.clone()),
                        Value::Int(1),
                    ])
                };
                let mut answers: Vec<Value> = request[1..].iter().map(subscribe).collect();
                let last = answers.pop().expect("it names a channel");
                self.send(id, &answers);
                last
            }
            ("UNSUBSCRIBE", _) => {
                self.subscribers.entry(request[1].clone()).or_default().remove(&id);
                Value::List(vec![
                    Value::text("unsubscribe"),
                    Value::text(request[1].clone()),
                    Value::Int(0),
                ])
            }
            _ => self.command(request).unwrap_or_else(Value::Error),
        }
    }

    fn learn(&mut self, source: &str) -> String {
        let sha = scripts::sha_of(source);
        self.scripts.insert(sha.clone(), Known { name: name_in(source), source: source.into() });
        sha
    }

    /// The client's connection ends, and nothing that it has sent runs any more.
    fn kill(&mut self, id: u64) -> bool {
        let killed = self.connections.remove(&id);
        self.leave(id);
        killed.inspect(Socket::close_at_once).is_some()
    }

    fn eval(&mut self, sha: &str, request: &Request) -> Value {
        let Some(Known { source, .. }) = self.scripts.get(sha).cloned() else {
            return Value::Error("NOSCRIPT No matching script. Please use EVAL.".into());
        };
        let keys: usize = String::from_utf8_lossy(&request[2]).parse().expect("the number of keys");
        let (keys, args) = request[3..].split_at(keys);
        scripts::run(sha, &source, keys, args, |command| self.command(command))
    }

    /// A command of a script or of a client.
    fn command(&mut self, command: &[Vec<u8>]) -> Outcome {
        match &*command[0].to_ascii_lowercase() {
            b"time" => {
                let now = wall();
                Ok(Value::List(vec![
                    Value::text(now.as_secs().to_string()),
                    Value::text(now.subsec_micros().to_string()),
                ]))
            }
            b"publish" => Ok(Value::Int(self.publish(&command[1], &command[2]))),
            _ => self.keys.run(command, wall()),
        }
    }

    fn publish(&mut self, channel: &[u8], message: &[u8]) -> i64 {
        let ids: Vec<u64> = self.subscribers.get(channel).into_iter().flatten().copied().collect();
        let message =
            Value::List(vec![Value::text("message"), Value::text(channel), Value::text(message)]);
        for id in &ids {
            self.send(*id, std::slice::from_ref(&message));
        }
        ids.len() as i64
    }

    fn send(&self, id: u64, values: &[Value]) {
        let mut out = Vec::new();
        for value in values {
            value.write(&mut out);
        }
        if let Some(socket) = self.connections.get(&id).filter(|_| !out.is_empty()) {
            // A client that is gone misses it.
            let _ = socket.write_at_once(&out, Duration::ZERO);
        }
    }
}

/// Takes the first request out of the bytes, if it is complete.
fn parse(bytes: &mut Vec<u8>) -> Option<Request> {
    let mut at = 0;
    let words = length(bytes, &mut at)?;
    let mut request = Vec::with_capacity(words);
    for _ in 0..words {
        let length = length(bytes, &mut at)?;
        request.push(bytes.get(at..at + length)?.to_vec());
        at += length + 2;
    }
    (at <= bytes.len()).then(|| {
        bytes.drain(..at);
        request
    })
}

/// The number in the next line, of elements or of bytes.
fn length(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let rest = bytes.get(*at..)?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    *at += end + 1;
    Some(String::from_utf8_lossy(&rest[1..end - 1]).parse().expect("a request is a list of texts"))
}
