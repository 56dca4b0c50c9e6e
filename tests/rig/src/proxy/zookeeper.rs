//! The proxy in front of a ZooKeeper: frames flow both ways at any time, so a fault is kept with
//! the number of its request until the reply arrives.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::{Fault, Late, Proxy, State, as_unix, close, take_fault};
use crate::wait_until;
use crate::zookeeper::ZooKeeper;

/// Stands in for the number of the connect request, which carries none.
const CONNECT: i32 = i32::MIN;

/// The number of a watch event, which answers no request.
const WATCH: i32 = -1;

/// The number of a request that runs late, of which its client knows nothing.
const LATE: i32 = i32::MAX - 1;

/// The bytes before the body of a reply: length, number, zxid and code.
const HEADER: usize = 20;

/// The request that checks that a node exists, which clients send in transactions.
const CHECK: i32 = 13;

/// One connection.
struct Connection<'a> {
    state: &'a State,
    /// Faults for replies, by the number of the request.
    faults: Mutex<HashMap<i32, Fault>>,
    /// Something was swallowed, so whatever follows would make no sense.
    is_dead: AtomicBool,
}

impl Proxy {
    /// A proxy in front of a ZooKeeper, on a port of its own. The word of a fault may be a part of
    /// a path (`/job`), the name of a request (`connect`, `create2`, `sync`, ...) or both (`delete
    /// /job`). A transaction that only checks a node is a `check`, one that makes one change if a
    /// check passes has the name of the change, and a watch event is an `event`. The `connect` of
    /// a session that goes on is a `connect again`.
    pub fn before_zookeeper(server: &ZooKeeper) -> Self {
        let port = server.port();
        let connect = move || Some(as_unix(TcpStream::connect(("127.0.0.1", port)).ok()?));
        Self::listen_on_a_port(connect, |client, server, state, _| carry(&client, &server, state))
    }

    /// The URL of the ZooKeeper behind this proxy.
    pub fn zookeeper_url(&self) -> String {
        format!("zookeeper://127.0.0.1:{}", self.port())
    }

    /// Lets the request of a [`Fault::RunLate`] run in front of the next request of its session,
    /// and waits for that.
    pub fn run_late(&self) {
        let mut late = self.state.late.lock();
        let Late::Kept(frame) = &mut *late else { panic!("no request was kept back") };
        *late = Late::Wanted(std::mem::take(frame));
        drop(late);
        wait_until("it has run", || matches!(*self.state.late.lock(), Late::Over));
    }

    /// From now on one frame in `frames` ends its connection; half of these are delivered up to
    /// their middle, the others not at all. 0 stops that.
    pub fn cut_one_in(&self, frames: u32) {
        self.state.cut_one_in.store(frames, Ordering::SeqCst);
    }
}

fn carry(client: &UnixStream, server: &UnixStream, state: &State) {
    if state.refuse.load(Ordering::SeqCst) {
        return close(client, server);
    }
    let connection =
        Connection { state, faults: Mutex::default(), is_dead: AtomicBool::new(false) };
    std::thread::scope(|s| {
        s.spawn(|| {
            connection.requests(client.try_clone().unwrap(), server.try_clone().unwrap());
            close(client, server);
        });
        connection.replies(server.try_clone().unwrap(), client.try_clone().unwrap());
        close(client, server);
    });
}

/// Behind the number of a request: whether there is a root, without a watch.
const EXISTS_ROOT: [u8; 10] = [0, 0, 0, 3, 0, 0, 0, 1, b'/', 0];

impl Connection<'_> {
    fn requests(&self, mut client: UnixStream, mut server: UnixStream) {
        let mut is_first = true;
        while let Some(frame) = next_frame(&mut client) {
            let words = words(&frame, is_first);
            let number = if is_first { CONNECT } else { int(&frame, 4) };
            let is_connect = std::mem::take(&mut is_first);
            if self.swallows() {
                continue;
            }
            if self.cuts(&frame, &mut server) {
                return;
            }
            if !is_connect && self.runs_late(&mut server).is_err() {
                return;
            }
            let fault = take_fault(self.state, &words);
            if fault.is_some() {
                self.state.hits.fetch_add(1, Ordering::SeqCst);
            }
            match fault {
                None => {}
                Some(Fault::CutBeforeSend) => return,
                Some(Fault::RunLate) => {
                    *self.state.late.lock() = Late::Kept(frame);
                    return;
                }
                Some(Fault::CutRequestAt(n)) => {
                    let _ = server.write_all(&frame[..n.min(frame.len())]);
                    return;
                }
                Some(Fault::Hold) => {
                    self.faults.lock().insert(number, Fault::Hold);
                    wait_until("a held request is released", || {
                        self.state.release_held.load(Ordering::SeqCst)
                    });
                }
                Some(Fault::Reply(reply)) => {
                    if client.write_all(reply).is_err() {
                        return;
                    }
                    continue;
                }
                Some(refuse @ Fault::Refuse(_)) => {
                    self.faults.lock().insert(number, refuse);
                    // In place of the request, so that the refusal comes in its turn.
                    let look = [&number.to_be_bytes()[..], &EXISTS_ROOT].concat();
                    let length = i32::try_from(look.len()).unwrap().to_be_bytes();
                    if server.write_all(&[&length[..], &look].concat()).is_err() {
                        return;
                    }
                    continue;
                }
                Some(Fault::Garbage) => {
                    let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                    let _ = client.read(&mut [0; 64]);
                    return;
                }
                Some(of_reply) => {
                    self.faults.lock().insert(number, of_reply);
                }
            }
            if server.write_all(&frame).is_err() {
                self.state.held_over.store(true, Ordering::SeqCst);
                return;
            }
        }
    }

    /// Sends the request that was kept back, in front of the present one, once that is wanted.
    fn runs_late(&self, server: &mut UnixStream) -> std::io::Result<()> {
        let mut late = self.state.late.lock();
        let Late::Wanted(frame) = &mut *late else { return Ok(()) };
        let mut frame = std::mem::take(frame);
        *late = Late::Sent;
        frame[4..8].copy_from_slice(&LATE.to_be_bytes());
        server.write_all(&frame)
    }

    fn replies(&self, mut server: UnixStream, mut client: UnixStream) {
        let mut is_first = true;
        while let Some(frame) = next_frame(&mut server) {
            let number = if is_first { CONNECT } else { int(&frame, 4) };
            is_first = false;
            if number == LATE {
                *self.state.late.lock() = Late::Over;
                continue;
            }
            if self.swallows() {
                continue;
            }
            if self.cuts(&frame, &mut client) {
                return;
            }
            let fault = match number {
                WATCH => self.fault_of_an_event(&frame),
                _ => self.faults.lock().remove(&number),
            };
            let goes_on = match fault {
                Some(fault) => self.meet(fault, &frame, &mut client),
                None => client.write_all(&frame).is_ok() || self.holds(),
            };
            if !goes_on {
                return;
            }
        }
        self.state.held_over.store(true, Ordering::SeqCst);
    }

    /// A path is in requests and in events, and some faults are for requests only.
    fn fault_of_an_event(&self, frame: &[u8]) -> Option<Fault> {
        if self.state.rule.lock().as_ref()?.fault.meets_the_request() {
            return None;
        }
        let fault = take_fault(self.state, &event_words(frame))?;
        self.state.hits.fetch_add(1, Ordering::SeqCst);
        Some(fault)
    }

    /// A request is held, which must reach the server although its client is gone.
    fn holds(&self) -> bool {
        self.faults.lock().values().any(|fault| *fault == Fault::Hold)
    }

    /// Applies a fault to a reply. False if the connection is over.
    fn meet(&self, fault: Fault, reply: &[u8], client: &mut UnixStream) -> bool {
        match fault {
            Fault::CutAfterApplied => false,
            Fault::CutReplyAt(n) => {
                self.state.reply_length.store(reply.len(), Ordering::SeqCst);
                let _ = client.write_all(&reply[..n.min(reply.len())]);
                false
            }
            Fault::Refuse(code) => {
                let length = 16_i32.to_be_bytes();
                client.write_all(&[&length, &reply[4..16], &code.to_be_bytes()].concat()).is_ok()
            }
            Fault::ShortBody(n) => {
                self.state.reply_length.store(reply.len(), Ordering::SeqCst);
                let frame = &reply[4..reply.len().min(HEADER + n)];
                let length = i32::try_from(frame.len()).unwrap().to_be_bytes();
                client.write_all(&[&length, frame].concat()).is_ok()
            }
            Fault::BlackHoleReply => {
                self.is_dead.store(true, Ordering::SeqCst);
                true
            }
            Fault::HoldReply => {
                wait_until("a held reply is released", || {
                    self.state.release_held.load(Ordering::SeqCst)
                });
                self.state.held_over.store(true, Ordering::SeqCst);
                client.write_all(reply).is_ok()
            }
            Fault::Pass => client.write_all(reply).is_ok(),
            Fault::StallReply(pause) => {
                std::thread::sleep(pause);
                client.write_all(reply).is_ok()
            }
            Fault::StallThenCut(pause) => {
                std::thread::sleep(pause);
                false
            }
            Fault::Hold => {
                self.state.held_over.store(true, Ordering::SeqCst);
                false
            }
            Fault::Stray(frame) => {
                client.write_all(frame).is_ok() && client.write_all(reply).is_ok()
            }
            Fault::ReplyAgain(n) => {
                let again = [reply, &reply[..n.min(reply.len())]].concat();
                client.write_all(&again).is_ok()
            }
            Fault::StrayAfter(frame, pause) => {
                let sent = client.write_all(reply).is_ok();
                std::thread::sleep(pause);
                sent && client.write_all(frame).is_ok()
            }
            Fault::CutBeforeSend
            | Fault::RunLate
            | Fault::CutRequestAt(_)
            | Fault::Reply(_)
            | Fault::Garbage => {
                unreachable!("these meet the request")
            }
        }
    }

    fn swallows(&self) -> bool {
        if self.state.silent.load(Ordering::SeqCst) {
            self.is_dead.store(true, Ordering::SeqCst);
        }
        self.is_dead.load(Ordering::SeqCst)
    }

    /// Whether this frame ends the connection by chance.
    fn cuts(&self, frame: &[u8], to: &mut UnixStream) -> bool {
        let one_in = self.state.cut_one_in.load(Ordering::SeqCst);
        if one_in == 0 || rand::random_range(0..one_in) > 0 {
            return false;
        }
        self.state.hits.fetch_add(1, Ordering::SeqCst);
        if rand::random() {
            let _ = to.write_all(&frame[..frame.len() / 2]);
        }
        true
    }
}

/// The changes of a transaction: the number of each, and where its path begins.
fn changes_of(frame: &[u8]) -> Vec<(i32, usize)> {
    let mut changes = Vec::new();
    let mut at = 12;
    while let op = int(frame, at)
        && op > 0
    {
        let path = at + 13;
        changes.push((op, path));
        at = path + length_at(frame, path - 4);
        at = match op {
            // A version.
            2 | CHECK => at + 4,
            5 => at + 8 + length_at(frame, at),
            // Data, who may do what with the node, and its kind.
            _ => {
                at += 4 + length_at(frame, at);
                let identities = length_at(frame, at);
                at += 4;
                for _ in 0..identities {
                    at += 8 + length_at(frame, at + 4);
                    at += 4 + length_at(frame, at);
                }
                at + 4
            }
        };
    }
    changes
}

fn length_at(frame: &[u8], at: usize) -> usize {
    usize::try_from(int(frame, at)).unwrap_or(0)
}

/// Including its length prefix.
fn next_frame(from: &mut UnixStream) -> Option<Vec<u8>> {
    let mut frame = vec![0; 4];
    from.read_exact(&mut frame).ok()?;
    let length = u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
    frame.resize(4 + length, 0);
    from.read_exact(&mut frame[4..]).ok()?;
    Some(frame)
}

fn int(frame: &[u8], at: usize) -> i32 {
    frame.get(at..at + 4).map_or(0, |bytes| i32::from_be_bytes(bytes.try_into().unwrap()))
}

/// The name of the request, the name with the path, and the whole frame.
fn words(frame: &[u8], is_first: bool) -> Vec<Vec<u8>> {
    let is_resumed = || int(frame, 20) != 0 || int(frame, 24) != 0;
    let name = match is_first {
        true if is_resumed() => "connect again",
        true => "connect",
        false => name_of(int(frame, 8)),
    };
    let (name, start) = if name == "multi" {
        // Most begin with the check of a gate, which says nothing.
        match changes_of(frame)[..] {
            [(CHECK, path)] => ("check", path),
            [(CHECK, _), (op, path)] => (name_of(op), path),
            [(CHECK, _), (_, path), ..] | [(_, path), ..] => (name, path),
            [] => (name, 16),
        }
    } else {
        (name, 16)
    };
    let path = frame.get(start..start + length_at(frame, start - 4)).unwrap_or_default();
    let named = [name.as_bytes(), b" ", path].concat();
    vec![name.as_bytes().to_vec(), named, frame.to_vec()]
}

fn event_words(frame: &[u8]) -> Vec<Vec<u8>> {
    let path = frame.get(32..).unwrap_or_default();
    vec![[b"event ", path].concat()]
}

fn name_of(op: i32) -> &'static str {
    match op {
        1 => "create",
        2 => "delete",
        3 => "exists",
        4 => "getData",
        5 => "setData",
        8 => "getChildren",
        9 => "sync",
        11 => "ping",
        12 => "getChildren2",
        13 => "check",
        14 => "multi",
        15 => "create2",
        18 => "removeWatches",
        19 => "createContainer",
        22 => "multiRead",
        100 => "auth",
        106 => "addWatch",
        -11 => "closeSession",
        _ => "other",
    }
}
