//! A proxy in front of a server that breaks one chosen exchange at one chosen byte.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Server, ms, wait_until};

/// What happens to the request that the fault is injected into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server never receives the request.
    CutBeforeSend,
    /// The server receives this many bytes of the request and no more.
    CutRequestAt(usize),
    /// The server runs the request; the reply is lost.
    CutAfterApplied,
    /// The server runs the request; this many bytes of the reply arrive.
    CutReplyAt(usize),
    /// The server runs the request; the connection stays up and delivers nothing any more.
    BlackHoleReply,
    /// The reply comes this much later.
    StallReply(Duration),
    /// The server runs the request; the connection ends this much later, without a reply.
    StallThenCut(Duration),
    /// Held back while the client sees a silent connection. Sent by `release_held`, whether or not
    /// the client is still connected.
    Hold,
    /// The client receives bytes that are not RESP.
    Garbage,
    /// The client receives an extra frame before the reply.
    Stray(&'static [u8]),
    /// The client receives an extra frame this long after the reply.
    StrayAfter(&'static [u8], Duration),
}

struct Rule {
    /// A part of a word of the request.
    word: Vec<u8>,
    /// How many requests with the word pass before the fault.
    skip: u32,
    /// How many requests get the fault after those.
    times: u32,
    fault: Fault,
}

#[derive(Default)]
struct State {
    rule: Mutex<Option<Rule>>,
    hits: AtomicU32,
    release_held: AtomicBool,
    held_over: AtomicBool,
    refuse: AtomicBool,
    silent: AtomicBool,
    /// The number of connections that have subscribed so far, and the number of the last one that
    /// is half open.
    subscribers: AtomicU32,
    half_open: AtomicU32,
    stop: AtomicBool,
    streams: Mutex<Vec<UnixStream>>,
}

pub(crate) struct Proxy {
    path: PathBuf,
    state: Arc<State>,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    pub(crate) fn start(server: &Server) -> Self {
        let path = server.dir().join("p");
        let upstream = server.socket();
        let listener = UnixListener::bind(&path).unwrap();
        let state = Arc::new(State::default());
        let shared = state.clone();
        let acceptor = std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.stop.load(Ordering::SeqCst) {
                    return;
                }
                if shared.refuse.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = UnixStream::connect(&upstream) else { continue };
                shared.streams.lock().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                let state = shared.clone();
                std::thread::spawn(move || carry(client, server, &state));
            }
        });
        Self { path, state, acceptor: Some(acceptor) }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.path.display())
    }

    #[cfg(feature = "tls")]
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// The next request that contains `word` gets the fault, once.
    pub(crate) fn inject(&self, word: &str, fault: Fault) {
        self.inject_after(word, 0, fault);
    }

    pub(crate) fn inject_after(&self, word: &str, skip: u32, fault: Fault) {
        self.set(word, skip, 1, fault);
    }

    /// The next `times` requests that contain `word` get the fault, including repeats of the first
    /// one.
    pub(crate) fn inject_times(&self, word: &str, times: u32, fault: Fault) {
        self.set(word, 0, times, fault);
    }

    fn set(&self, word: &str, skip: u32, times: u32, fault: Fault) {
        *self.state.rule.lock() = Some(Rule { word: word.as_bytes().to_vec(), skip, times, fault });
    }

    /// Waits until `n` faults have happened.
    pub(crate) fn wait_hits(&self, n: u32) {
        wait_until("the injected fault happens", || self.state.hits.load(Ordering::SeqCst) >= n);
    }

    /// Removes a fault that has not happened yet. False if it has happened.
    pub(crate) fn disarm(&self) -> bool {
        self.state.rule.lock().take().is_some()
    }

    /// Sends the held request and waits until the server has answered it or closed its connection.
    pub(crate) fn release_held(&self) {
        self.state.release_held.store(true, Ordering::SeqCst);
        wait_until("the held request is over", || self.state.held_over.load(Ordering::SeqCst));
    }

    /// Sets whether new connections are closed at once.
    pub(crate) fn refuse(&self, refuse: bool) {
        self.state.refuse.store(refuse, Ordering::SeqCst);
    }

    /// Sets whether everything sent from now on is dropped, on new connections too. Once false, new
    /// connections work again.
    pub(crate) fn silence(&self, silent: bool) {
        self.state.silent.store(silent, Ordering::SeqCst);
    }

    /// Drops all packets, in both directions, of the connections that have subscribed so far. Other
    /// connections go on.
    pub(crate) fn leave_subscribers_half_open(&self) {
        self.state.half_open.store(self.subscribers(), Ordering::SeqCst);
    }

    pub(crate) fn subscribers(&self) -> u32 {
        self.state.subscribers.load(Ordering::SeqCst)
    }

    pub(crate) fn cut_all(&self) {
        for stream in self.state.streams.lock().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        self.state.release_held.store(true, Ordering::SeqCst);
        self.cut_all();
        let _ = UnixStream::connect(&self.path);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        // The next proxy of the same server listens there.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn close(a: &UnixStream, b: &UnixStream) {
    let _ = a.shutdown(std::net::Shutdown::Both);
    let _ = b.shutdown(std::net::Shutdown::Both);
}

/// Forwards request by request until the client subscribes; from then on bytes flow freely both
/// ways.
fn carry(mut client: UnixStream, mut server: UnixStream, state: &State) {
    let mut pending = Vec::new();
    loop {
        let Some((request, words)) = next_request(&mut client, &mut pending) else { return close(&client, &server) };
        if state.silent.load(Ordering::SeqCst) {
            continue;
        }
        let subscribes = |word: &Vec<u8>| [&b"SUBSCRIBE"[..], b"PSUBSCRIBE"].contains(&word.as_slice());
        if words.first().is_some_and(subscribes) {
            let _ = server.write_all(&request);
            let _ = server.write_all(&pending);
            let number = state.subscribers.fetch_add(1, Ordering::SeqCst) + 1;
            return flow(client, server, &move || state.half_open.load(Ordering::SeqCst) >= number);
        }
        let done = match take_fault(state, &words) {
            None => exchange(&mut client, &mut server, &request, None).is_some(),
            Some(fault) => {
                state.hits.fetch_add(1, Ordering::SeqCst);
                meet(fault, &mut client, &mut server, &request, state)
            }
        };
        if !done {
            return close(&client, &server);
        }
    }
}

fn take_fault(state: &State, words: &[Vec<u8>]) -> Option<Fault> {
    let mut place = state.rule.lock();
    let rule = place.as_mut()?;
    if !words.iter().any(|w| w.windows(rule.word.len().max(1)).any(|part| part == rule.word)) {
        return None;
    }
    if rule.skip > 0 {
        rule.skip -= 1;
        return None;
    }
    rule.times -= 1;
    let (fault, over) = (rule.fault, rule.times == 0);
    if over {
        *place = None;
    }
    Some(fault)
}

/// False if the connection is over.
fn meet(fault: Fault, client: &mut UnixStream, server: &mut UnixStream, request: &[u8], state: &State) -> bool {
    match fault {
        Fault::CutBeforeSend => false,
        Fault::CutRequestAt(n) => {
            let _ = server.write_all(&request[..n.min(request.len())]);
            false
        }
        Fault::CutAfterApplied => {
            let _ = exchange(client, server, request, Some(0));
            false
        }
        Fault::CutReplyAt(n) => {
            let _ = exchange(client, server, request, Some(n));
            false
        }
        Fault::BlackHoleReply => {
            let _ = exchange(client, server, request, Some(0));
            let _ = client.read_to_end(&mut Vec::new());
            false
        }
        Fault::StallReply(pause) => {
            let _ = server.write_all(request);
            let Some(reply) = read_reply(server) else { return false };
            std::thread::sleep(pause);
            client.write_all(&reply).is_ok()
        }
        Fault::StallThenCut(pause) => {
            let _ = exchange(client, server, request, Some(0));
            std::thread::sleep(pause);
            false
        }
        Fault::Hold => {
            wait_until("a held request is released", || state.release_held.load(Ordering::SeqCst));
            let _ = server.write_all(request);
            let _ = read_reply(server);
            state.held_over.store(true, Ordering::SeqCst);
            false
        }
        Fault::Stray(frame) => {
            let _ = client.write_all(frame);
            exchange(client, server, request, None).is_some()
        }
        Fault::StrayAfter(frame, pause) => {
            let done = exchange(client, server, request, None).is_some();
            std::thread::sleep(pause);
            done && client.write_all(frame).is_ok()
        }
        Fault::Garbage => {
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = client.read(&mut [0; 64]);
            false
        }
    }
}

/// Forwards a request and its reply, or only the first `most` bytes of the reply.
fn exchange(client: &mut UnixStream, server: &mut UnixStream, request: &[u8], most: Option<usize>) -> Option<()> {
    server.write_all(request).ok()?;
    let reply = read_reply(server)?;
    let end = most.map_or(reply.len(), |n| n.min(reply.len()));
    client.write_all(&reply[..end]).ok()
}

fn flow(client: UnixStream, server: UnixStream, swallow: &(dyn Fn() -> bool + Sync)) {
    let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::scope(|s| {
        s.spawn(move || pass_on(from_client, to_server, swallow));
        pass_on(server, client, swallow);
    });
}

fn pass_on(mut from: UnixStream, mut to: UnixStream, swallow: &(dyn Fn() -> bool + Sync)) {
    let mut chunk = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        if !swallow() && to.write_all(&chunk[..length]).is_err() {
            break;
        }
    }
    close(&from, &to);
}

/// The next complete request, raw and as words.
fn next_request(client: &mut UnixStream, pending: &mut Vec<u8>) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let mut chunk = [0; 16 * 1024];
    loop {
        if let Some((length, words)) = parse_request(pending) {
            let rest = pending.split_off(length);
            return Some((std::mem::replace(pending, rest), words));
        }
        match client.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(n) => pending.extend_from_slice(&chunk[..n]),
        }
    }
}

fn line(bytes: &[u8], from: usize) -> Option<(usize, &str)> {
    let end = bytes[from..].windows(2).position(|w| w == b"\r\n")?;
    Some((from + end + 2, std::str::from_utf8(&bytes[from..from + end]).ok()?))
}

fn parse_request(bytes: &[u8]) -> Option<(usize, Vec<Vec<u8>>)> {
    let (mut at, head) = line(bytes, 0)?;
    let count: usize = head.strip_prefix('*')?.parse().ok()?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (start, head) = line(bytes, at)?;
        let length: usize = head.strip_prefix('$')?.parse().ok()?;
        words.push(bytes.get(start..start + length)?.to_vec());
        at = start + length + 2;
    }
    (at <= bytes.len()).then_some((at, words))
}

fn read_reply(server: &mut UnixStream) -> Option<Vec<u8>> {
    let mut reply = Vec::new();
    let mut chunk = [0; 16 * 1024];
    while reply_length(&reply, 0).is_none() {
        match server.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(n) => reply.extend_from_slice(&chunk[..n]),
        }
    }
    Some(reply)
}

/// The end of the reply that begins at `from`, if it is complete.
fn reply_length(bytes: &[u8], from: usize) -> Option<usize> {
    let (at, head) = line(bytes, from)?;
    let number = || head[1..].parse::<i64>().ok();
    match head.as_bytes().first()? {
        b'$' => match number()? {
            -1 => Some(at),
            length => {
                let end = at + usize::try_from(length).ok()? + 2;
                (end <= bytes.len()).then_some(end)
            }
        },
        b'*' => (0..number()?.max(0)).try_fold(at, |at, _| reply_length(bytes, at)),
        _ => Some(at),
    }
}

#[test]
fn faults_hit_where_they_should() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let connect = || {
        let c = redis::Client::open(proxy.url()).unwrap().get_connection_with_timeout(ms(1000)).unwrap();
        c.set_read_timeout(Some(ms(200))).unwrap();
        c
    };
    let set = |value: &str| redis::cmd("SET").arg("k").arg(value).query::<String>(&mut connect());
    let value = || server.cmd::<Option<String>>(&["GET", "k"]);

    set("plain").unwrap();
    for (fault, applied) in [
        (Fault::CutBeforeSend, false),
        (Fault::CutRequestAt(9), false),
        (Fault::CutAfterApplied, true),
        (Fault::CutReplyAt(2), true),
        (Fault::BlackHoleReply, true),
        (Fault::StallReply(ms(500)), true),
        (Fault::Garbage, false),
    ] {
        server.cmd::<()>(&["SET", "k", "before"]);
        proxy.inject("marked", fault);
        assert!(set("marked").is_err(), "{fault:?}");
        assert_eq!(value().as_deref() == Some("marked"), applied, "{fault:?}");
    }
    proxy.inject_after("held", 1, Fault::Hold);
    set("held first").unwrap();
    assert!(set("held").is_err());
    assert_eq!(value().as_deref(), Some("held first"));
    proxy.release_held();
    wait_until("the held request arrives", || value().as_deref() == Some("held"));
    proxy.wait_hits(8);
}
