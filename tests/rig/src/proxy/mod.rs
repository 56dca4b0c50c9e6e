//! A proxy in front of a server that breaks one chosen exchange at one chosen byte.

mod zookeeper;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::frames::{Protocol, next_request, read_reply};
use crate::{Server, free_port, wait_until};

/// What happens to the request that the fault is injected into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The server never receives the request.
    CutBeforeSend,
    /// The connection ends, and the server runs the request only after `run_late`: as a server does
    /// that had read it and was too busy to hand it on.
    RunLate,
    /// The server receives this many bytes of the request and no more.
    CutRequestAt(usize),
    /// The server runs the request; the reply is lost.
    CutAfterApplied,
    /// The server runs the request; this many bytes of the reply arrive.
    CutReplyAt(usize),
    /// The server runs the request; the connection stays up and delivers nothing more.
    BlackHoleReply,
    /// The reply of a ZooKeeper, and whatever comes behind it, is held back until `release_held`.
    HoldReply,
    /// Nothing: it only shows that the request came. Of a ZooKeeper.
    Pass,
    /// The reply arrives this much later.
    StallReply(Duration),
    /// The server runs the request; the connection ends this much later, without a reply.
    StallThenCut(Duration),
    /// The request is held back while the client sees a silent connection. `release_held` sends it,
    /// whether or not the client is still connected.
    Hold,
    /// The server never receives the request; the client receives this reply.
    Reply(&'static [u8]),
    /// The server never receives the request; the client receives this ZooKeeper error.
    Refuse(i32),
    /// The server runs the request; of the body of a ZooKeeper's reply this many bytes arrive, as a
    /// whole frame.
    ShortBody(usize),
    /// The client receives bytes that are not RESP.
    Garbage,
    /// Right behind the reply come its first bytes again, this many.
    ReplyAgain(usize),
    /// The client receives an extra frame before the reply.
    Stray(&'static [u8]),
    /// The client receives an extra frame this long after the reply.
    StrayAfter(&'static [u8], Duration),
}

impl Fault {
    /// Whether it happens before the server has the request, and so not to a message that answers
    /// none.
    fn meets_the_request(self) -> bool {
        matches!(
            self,
            Self::CutBeforeSend
                | Self::RunLate
                | Self::CutRequestAt(_)
                | Self::Hold
                | Self::Reply(_)
                | Self::Refuse(_)
                | Self::Garbage
        )
    }
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

/// A request that runs after its connection.
#[derive(Default)]
enum Late {
    #[default]
    None,
    Kept(Vec<u8>),
    Wanted(Vec<u8>),
    Sent,
    /// It has its answer.
    Over,
}

#[derive(Default)]
struct State {
    rule: Mutex<Option<Rule>>,
    hits: AtomicU32,
    release_held: AtomicBool,
    held_over: AtomicBool,
    /// The request that runs late.
    late: Mutex<Late>,
    /// See `keep_backends`.
    keep_backends: AtomicBool,
    /// See `hide_ends`.
    hide_ends: AtomicBool,
    /// The length of the last reply that was only partly forwarded.
    reply_length: AtomicUsize,
    /// How many requests have no reply yet.
    under_way: AtomicU32,
    refuse: AtomicBool,
    silent: AtomicBool,
    servers_cut_off: AtomicBool,
    /// The number of connections so far.
    accepted: AtomicU32,
    /// The number of connections that have subscribed so far, and the number of the last of them
    /// that is half open.
    subscribers: AtomicU32,
    half_open: AtomicU32,
    /// One frame in this many ends its connection to a ZooKeeper; 0 for none.
    cut_one_in: AtomicU32,
    stop: AtomicBool,
    /// The sockets, each with whether its peer is a server.
    streams: Mutex<Vec<(Arc<AtomicBool>, UnixStream)>>,
}

impl State {
    fn shut(&self, of_servers: bool) {
        self.streams.lock().retain(|(of_server, stream)| {
            let goes = of_server.load(Ordering::SeqCst) == of_servers;
            if goes {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            !goes
        });
    }
}

/// The kind of peer at the other end of a connection to the proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// It has sent only `AUTH` and `PING` so far.
    Unknown,
    Client,
    /// A replica or a sentinel.
    Server,
}

impl Peer {
    fn of(request: &[Vec<u8>]) -> Self {
        match request[0].as_slice() {
            b"AUTH" | b"PING" => Self::Unknown,
            b"REPLCONF" | b"PSYNC" | b"SYNC" => Self::Server,
            b"CLIENT" if request.get(2).is_some_and(|name| name.starts_with(b"sentinel-")) => {
                Self::Server
            }
            _ => Self::Client,
        }
    }
}

enum Address {
    Unix(PathBuf),
    Tcp(u16),
    /// The socket, and the URL that connects to it.
    Postgres(PathBuf, String),
}

/// All uses of sockets here work the same on both kinds.
fn as_unix(stream: TcpStream) -> UnixStream {
    stream.set_nodelay(true).unwrap();
    UnixStream::from(OwnedFd::from(stream))
}

/// In front of a server of a group, faults, silence, refusals and cuts affect its clients; its
/// replicas and the sentinels are only affected by `cut_off_servers`.
pub struct Proxy {
    address: Address,
    state: Arc<State>,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    pub fn start(server: &Server) -> Self {
        let path = server.dir().join("p");
        let listener = UnixListener::bind(&path).unwrap();
        let accept = move || listener.accept().ok().map(|(stream, _)| stream);
        Self::listen(
            Address::Unix(path),
            accept,
            to_socket(server.socket()),
            carries(Protocol::Redis, Peer::Client),
        )
    }

    /// On a socket beside that of the server.
    pub fn before_postgres(server: &crate::Postgres) -> Self {
        let number = crate::Postgres::fresh_number();
        let path = server.dir().join(format!(".s.PGSQL.{number}"));
        let listener = UnixListener::bind(&path).unwrap();
        let accept = move || listener.accept().ok().map(|(stream, _)| stream);
        let address = Address::Postgres(path, server.url_at(number));
        Self::listen(
            address,
            accept,
            to_socket(server.socket()),
            carries(Protocol::Postgres, Peer::Client),
        )
    }

    /// On a socket beside that of the server.
    pub fn before_mysql(server: &crate::Mysql) -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        let path = server.dir().join(format!("p{}", NEXT.fetch_add(1, Ordering::SeqCst)));
        let listener = UnixListener::bind(&path).unwrap();
        let accept = move || listener.accept().ok().map(|(stream, _)| stream);
        let url = server.url_of(&path);
        let carry = |mut client: UnixStream,
                     mut server: UnixStream,
                     state: &State,
                     flag: &AtomicBool| {
            // The server speaks first.
            let mut greeting = [0; 4];
            let greeted = server.read_exact(&mut greeting).and_then(|()| {
                let length = u32::from_le_bytes([greeting[0], greeting[1], greeting[2], 0]);
                let mut rest = vec![0; length as usize];
                server.read_exact(&mut rest)?;
                let is_silent = state.silent.load(Ordering::SeqCst);
                if is_silent { Ok(()) } else { client.write_all(&[&greeting[..], &rest].concat()) }
            });
            if greeted.is_err() {
                return close(&client, &server);
            }
            carry(client, server, state, Protocol::Mysql, Peer::Client, flag);
        };
        Self::listen(Address::Postgres(path, url), accept, to_socket(server.socket()), carry)
    }

    /// On a port of its own.
    pub fn before_postgres_on_a_port(server: &crate::Postgres) -> Self {
        Self::listen_on_a_port(
            to_socket(server.socket()),
            carries(Protocol::Postgres, Peer::Client),
        )
    }

    /// A proxy on a port of its own, which a server that will run in a group can announce.
    pub fn before(server: &Server) -> Self {
        Self::listen_on_a_port(to_socket(server.socket()), carries(Protocol::Redis, Peer::Unknown))
    }

    fn listen_on_a_port(
        connect: impl Fn() -> Option<UnixStream> + Send + 'static,
        carry: impl Fn(UnixStream, UnixStream, &State, &AtomicBool) + Clone + Send + 'static,
    ) -> Self {
        // Another process may take a free port first.
        let bind = || TcpListener::bind(("127.0.0.1", free_port()));
        let listener = std::iter::repeat_with(bind).take(5).find_map(Result::ok).unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap().port());
        let accept = move || listener.accept().ok().map(|(stream, _)| as_unix(stream));
        Self::listen(address, accept, connect, carry)
    }

    fn listen(
        address: Address,
        accept: impl FnMut() -> Option<UnixStream> + Send + 'static,
        connect: impl Fn() -> Option<UnixStream> + Send + 'static,
        carry: impl Fn(UnixStream, UnixStream, &State, &AtomicBool) + Clone + Send + 'static,
    ) -> Self {
        let state = Arc::new(State::default());
        let shared = state.clone();
        let acceptor = std::thread::spawn(move || {
            for client in std::iter::from_fn(accept) {
                if shared.stop.load(Ordering::SeqCst) {
                    return;
                }
                shared.accepted.fetch_add(1, Ordering::SeqCst);
                let Some(server) = connect() else { continue };
                let of_server = Arc::new(AtomicBool::new(false));
                let streams = [client.try_clone().unwrap(), server.try_clone().unwrap()];
                shared.streams.lock().extend(streams.map(|stream| (of_server.clone(), stream)));
                let state = shared.clone();
                let carry = carry.clone();
                std::thread::spawn(move || {
                    carry(client, server, &state, &of_server);
                    // A test opens and closes thousands of connections.
                    if !state.keep_backends.load(Ordering::SeqCst) {
                        state.streams.lock().retain(|(flag, _)| !Arc::ptr_eq(flag, &of_server));
                    }
                });
            }
        });
        Self { address, state, acceptor: Some(acceptor) }
    }

    pub fn url(&self) -> String {
        match &self.address {
            Address::Unix(path) => format!("redis+unix://{}", path.display()),
            Address::Tcp(port) => format!("redis://127.0.0.1:{port}/"),
            Address::Postgres(_, url) => url.clone(),
        }
    }

    /// The port; 0 on a Unix socket.
    pub fn port(&self) -> u16 {
        match self.address {
            Address::Tcp(port) => port,
            _ => 0,
        }
    }

    pub fn path(&self) -> &std::path::Path {
        match &self.address {
            Address::Unix(path) => path,
            _ => panic!("not a Unix socket of Redis"),
        }
    }

    /// Injects the fault once, into the next request that contains `word`. The text of a script
    /// does not count.
    pub fn inject(&self, word: &str, fault: Fault) {
        self.inject_after(word, 0, fault);
    }

    pub fn inject_after(&self, word: &str, skip: u32, fault: Fault) {
        self.set(word, skip, 1, fault);
    }

    /// Injects the fault into the next `times` requests that contain `word`, including repeats of
    /// the first one. Every request contains the empty word.
    pub fn inject_times(&self, word: &str, times: u32, fault: Fault) {
        self.set(word, 0, times, fault);
    }

    fn set(&self, word: &str, skip: u32, times: u32, fault: Fault) {
        *self.state.rule.lock() = Some(Rule { word: word.as_bytes().to_vec(), skip, times, fault });
    }

    /// Waits until `n` faults have happened.
    pub fn wait_hits(&self, n: u32) {
        wait_until("the injected fault happens", || self.state.hits.load(Ordering::SeqCst) >= n);
    }

    /// How many faults have happened.
    pub fn hits(&self) -> u32 {
        self.state.hits.load(Ordering::SeqCst)
    }

    /// Does not count the last fault, which only prepared another one.
    pub fn forget_hit(&self) {
        self.state.hits.fetch_sub(1, Ordering::SeqCst);
    }

    /// Removes a fault that has not happened yet. False if it has happened.
    pub fn disarm(&self) -> bool {
        self.state.rule.lock().take().is_some()
    }

    /// Sends the held request and waits until the server has answered it or closed its connection.
    pub fn release_held(&self) {
        self.state.release_held.store(true, Ordering::SeqCst);
        wait_until("the held request is over", || self.state.held_over.load(Ordering::SeqCst));
    }

    /// Sets whether a fault that ends a connection ends it only for the client, as if a router in
    /// between died: the server continues to run the request, and its end seems to be connected.
    pub fn keep_backends(&self, keep: bool) {
        self.state.keep_backends.store(keep, Ordering::SeqCst);
    }

    /// Sets whether the end of a connection at the server is noticed only when the client sends its
    /// next request, which then ends it: as with a router, or the address of a cluster that moves.
    pub fn hide_ends(&self, hide: bool) {
        self.state.hide_ends.store(hide, Ordering::SeqCst);
    }

    /// The full length of the last reply that a fault cut.
    pub fn reply_length(&self) -> usize {
        self.state.reply_length.load(Ordering::SeqCst)
    }

    /// Sets whether new connections are closed at once.
    pub fn refuse(&self, refuse: bool) {
        self.state.refuse.store(refuse, Ordering::SeqCst);
    }

    /// Sets whether everything sent from now on is dropped, also on new connections. After setting
    /// it to false, new connections work again.
    pub fn silence(&self, silent: bool) {
        self.state.silent.store(silent, Ordering::SeqCst);
    }

    /// Drops all packets, in both directions, of the connections that have subscribed so far. Other
    /// connections continue.
    pub fn leave_subscribers_half_open(&self) {
        self.state.half_open.store(self.subscribers(), Ordering::SeqCst);
    }

    /// How many connections clients have made so far.
    pub fn connections(&self) -> u32 {
        self.state.accepted.load(Ordering::SeqCst)
    }

    pub fn subscribers(&self) -> u32 {
        self.state.subscribers.load(Ordering::SeqCst)
    }

    pub fn cut_all(&self) {
        self.state.shut(false);
    }

    /// Whether each request has received its reply.
    pub fn is_at_rest(&self) -> bool {
        self.state.under_way.load(Ordering::SeqCst) == 0
    }

    /// Sets whether all packets between the server and its replicas and the sentinels are dropped.
    /// Clients and the bus of a cluster are not affected.
    pub fn cut_off_servers(&self, cut_off: bool) {
        self.state.servers_cut_off.store(cut_off, Ordering::SeqCst);
        if !cut_off {
            // A part of what they have received is missing.
            self.state.shut(true);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        self.state.release_held.store(true, Ordering::SeqCst);
        self.cut_all();
        self.state.shut(true);
        // Wakes the acceptor.
        match &self.address {
            Address::Unix(path) => drop(UnixStream::connect(path)),
            Address::Postgres(path, _) => drop(UnixStream::connect(path)),
            Address::Tcp(port) => drop(TcpStream::connect(("127.0.0.1", *port))),
        }
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        if let Address::Unix(path) = &self.address {
            // The next proxy of the same server listens there.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn close(a: &UnixStream, b: &UnixStream) {
    let _ = a.shutdown(std::net::Shutdown::Both);
    let _ = b.shutdown(std::net::Shutdown::Both);
}

/// Connects to a server on a Unix socket.
fn to_socket(path: PathBuf) -> impl Fn() -> Option<UnixStream> {
    move || UnixStream::connect(&path).ok()
}

/// Carries the requests and replies of this protocol between such a peer and the server.
fn carries(
    protocol: Protocol,
    peer: Peer,
) -> impl Fn(UnixStream, UnixStream, &State, &AtomicBool) + Clone {
    move |client, server, state, of_server| carry(client, server, state, protocol, peer, of_server)
}

/// Forwards one request at a time until the client subscribes or the replica has its snapshot; from
/// then on bytes flow freely both ways.
fn carry(
    mut client: UnixStream,
    mut server: UnixStream,
    state: &State,
    protocol: Protocol,
    mut peer: Peer,
    of_server: &AtomicBool,
) {
    if peer == Peer::Client && state.refuse.load(Ordering::SeqCst) {
        return close(&client, &server);
    }
    let mut pending = Vec::new();
    loop {
        let idle = |client: &mut UnixStream| {
            let hides = if peer == Peer::Server { &state.servers_cut_off } else { &state.silent };
            state.hide_ends.load(Ordering::SeqCst)
                || hides.load(Ordering::SeqCst)
                || pass_end_on(&mut server, client)
        };
        let Some((request, words)) = next_request(protocol, &mut client, &mut pending, idle) else {
            return close(&client, &server);
        };
        if peer == Peer::Unknown {
            peer = Peer::of(&words);
            of_server.store(peer == Peer::Server, Ordering::SeqCst);
            if peer == Peer::Client && state.refuse.load(Ordering::SeqCst) {
                return close(&client, &server);
            }
        }
        let dropped = match peer {
            Peer::Unknown => false,
            Peer::Client => state.silent.load(Ordering::SeqCst),
            Peer::Server => state.servers_cut_off.load(Ordering::SeqCst),
        };
        if dropped {
            continue;
        }
        let streams = |word: &Vec<u8>| {
            [&b"SUBSCRIBE"[..], b"PSUBSCRIBE", b"SSUBSCRIBE", b"PSYNC", b"SYNC"]
                .contains(&word.as_slice())
                || word.get(5..12) == Some(b"LISTEN ")
        };
        if words.first().is_some_and(streams) {
            let _ = server.write_all(&request);
            let _ = server.write_all(&pending);
            if peer == Peer::Server {
                return flow(client, server, &|| state.servers_cut_off.load(Ordering::SeqCst));
            }
            let number = state.subscribers.fetch_add(1, Ordering::SeqCst) + 1;
            return flow(client, server, &move || state.half_open.load(Ordering::SeqCst) >= number);
        }
        let fault = if peer == Peer::Server { None } else { take_fault(state, &words) };
        state.under_way.fetch_add(1, Ordering::SeqCst);
        let done = match fault {
            None => exchange(protocol, &mut client, &mut server, &request, None, state).is_some(),
            Some(fault) => {
                state.hits.fetch_add(1, Ordering::SeqCst);
                meet(fault, protocol, &mut client, &mut server, &request, state)
            }
        };
        state.under_way.fetch_sub(1, Ordering::SeqCst);
        if !done {
            if fault.is_some() && state.keep_backends.load(Ordering::SeqCst) {
                // The server's end stays open, because `streams` holds it too.
                let _ = client.shutdown(std::net::Shutdown::Both);
                return;
            }
            return close(&client, &server);
        }
    }
}

fn take_fault(state: &State, words: &[Vec<u8>]) -> Option<Fault> {
    let mut place = state.rule.lock();
    let rule = place.as_mut()?;
    // The text of a script names no lock, and may contain the word of a test.
    let text = if words.first().is_some_and(|word| word == b"EVAL") { 1 } else { usize::MAX };
    let has_word = |w: &Vec<u8>| {
        rule.word.is_empty() || w.windows(rule.word.len()).any(|part| part == rule.word)
    };
    if !words.iter().enumerate().any(|(at, word)| at != text && has_word(word)) {
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

/// Applies a fault to a request. False if the connection is over.
fn meet(
    fault: Fault,
    protocol: Protocol,
    client: &mut UnixStream,
    server: &mut UnixStream,
    request: &[u8],
    state: &State,
) -> bool {
    match fault {
        Fault::CutBeforeSend => false,
        Fault::CutRequestAt(n) => {
            let _ = server.write_all(&request[..n.min(request.len())]);
            false
        }
        Fault::CutAfterApplied => {
            let _ = exchange(protocol, client, server, request, Some(0), state);
            false
        }
        Fault::CutReplyAt(n) => {
            let _ = exchange(protocol, client, server, request, Some(n), state);
            false
        }
        Fault::BlackHoleReply => {
            let _ = exchange(protocol, client, server, request, Some(0), state);
            let _ = client.read_to_end(&mut Vec::new());
            false
        }
        Fault::StallReply(pause) => {
            let _ = server.write_all(request);
            let Some(reply) = read_reply(protocol, server) else { return false };
            std::thread::sleep(pause);
            client.write_all(&reply).is_ok()
        }
        Fault::StallThenCut(pause) => {
            let _ = exchange(protocol, client, server, request, Some(0), state);
            std::thread::sleep(pause);
            false
        }
        Fault::Hold => {
            wait_until("a held request is released", || state.release_held.load(Ordering::SeqCst));
            let _ = server.write_all(request);
            let _ = read_reply(protocol, server);
            state.held_over.store(true, Ordering::SeqCst);
            false
        }
        Fault::Stray(frame) => {
            let _ = client.write_all(frame);
            exchange(protocol, client, server, request, None, state).is_some()
        }
        Fault::StrayAfter(frame, pause) => {
            let done = exchange(protocol, client, server, request, None, state).is_some();
            std::thread::sleep(pause);
            done && client.write_all(frame).is_ok()
        }
        Fault::ReplyAgain(n) => {
            let _ = server.write_all(request);
            let Some(mut reply) = read_reply(protocol, server) else { return false };
            reply.extend_from_within(..n.min(reply.len()));
            client.write_all(&reply).is_ok()
        }
        Fault::Reply(reply) => client.write_all(reply).is_ok(),
        Fault::Refuse(_)
        | Fault::ShortBody(_)
        | Fault::RunLate
        | Fault::HoldReply
        | Fault::Pass => {
            unreachable!("only for ZooKeeper")
        }
        Fault::Garbage => {
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = client.read(&mut [0; 64]);
            false
        }
    }
}

/// Forwards a request and its reply, or only the first `most` bytes of the reply.
fn exchange(
    protocol: Protocol,
    client: &mut UnixStream,
    server: &mut UnixStream,
    request: &[u8],
    most: Option<usize>,
    state: &State,
) -> Option<()> {
    // Also if it has ended the connection: its last words may say why.
    let _ = server.write_all(request);
    let reply = read_reply(protocol, server)?;
    let end = most.map_or(reply.len(), |n| n.min(reply.len()));
    if most.is_some() {
        state.reply_length.store(reply.len(), Ordering::SeqCst);
    }
    client.write_all(&reply[..end]).ok()
}

/// What the server has sent while it owed no reply: its last words, or its end. False after the
/// end.
fn pass_end_on(server: &mut UnixStream, client: &mut UnixStream) -> bool {
    let mut chunk = [0; 1024];
    let _ = server.set_nonblocking(true);
    let read = server.read(&mut chunk);
    let _ = server.set_nonblocking(false);
    match read {
        Ok(0) => false,
        Ok(length) => client.write_all(&chunk[..length]).is_ok(),
        Err(e) => e.kind() == std::io::ErrorKind::WouldBlock,
    }
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
