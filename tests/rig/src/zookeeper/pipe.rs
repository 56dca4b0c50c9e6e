//! A pipe between a follower and its leader, or before a client's port: it carries bytes, swallows
//! them, or delays those that come back.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use crate::free_port;

#[derive(Default)]
struct State {
    silent: AtomicBool,
    delay_ms: AtomicU64,
    stop: AtomicBool,
    /// The near and the far end of each connection.
    streams: Mutex<Vec<[TcpStream; 2]>>,
    /// Closing a near end does not close its far end.
    is_half_open: AtomicBool,
    /// See [`Pipe::answers_come_through`].
    answers: Mutex<Option<[u16; 2]>>,
}

impl State {
    fn cut(&self) {
        for stream in self.streams.lock().drain(..).flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

pub struct Pipe {
    port: u16,
    state: Arc<State>,
    acceptor: Option<JoinHandle<()>>,
}

impl Pipe {
    /// A pipe to a port of 127.0.0.1, where nothing needs to listen yet.
    pub fn to(target: u16) -> Self {
        // Another process may take a free port first.
        let bind = || TcpListener::bind(("127.0.0.1", free_port()));
        let listener = std::iter::repeat_with(bind).take(5).find_map(Result::ok).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = state.clone();
        let acceptor = std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if shared.stop.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(far) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                carry(&near, &far, &shared);
            }
        });
        Self { port, state, acceptor: Some(acceptor) }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// A server that asks for votes names its own port, and the other server connects to that. This
    /// makes it connect to the other pipe instead of `port`: otherwise the two would bypass the
    /// pipes during a cut.
    pub fn answers_come_through(&self, port: u16, other: &Self) {
        assert_eq!(
            port.to_string().len(),
            other.port.to_string().len(),
            "the message has a length before the address"
        );
        *self.state.answers.lock() = Some([port, other.port]);
    }

    /// Sets whether everything sent from now on is swallowed, also on new connections. Setting it
    /// to false cuts the existing connections, because a part of what they carried is missing.
    pub fn silence(&self, silent: bool) {
        self.state.silent.store(silent, Ordering::SeqCst);
        if !silent {
            self.state.is_half_open.store(false, Ordering::SeqCst);
            self.state.cut();
        }
    }

    /// Swallows everything from now on; those that have connected see the end of their connection,
    /// and the target does not.
    pub fn leave_target_half_open(&self) {
        self.state.is_half_open.store(true, Ordering::SeqCst);
        self.silence(true);
        for [near, _] in &*self.state.streams.lock() {
            let _ = near.shutdown(Shutdown::Both);
        }
    }

    /// Cuts the existing connections. New ones are carried.
    pub fn cut(&self) {
        self.state.cut();
    }

    /// Sets how much later what the target sends arrives, from now on.
    pub fn delay(&self, delay: Duration) {
        self.state.delay_ms.store(u64::try_from(delay.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        self.state.cut();
        // Wakes the acceptor.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn carry(near: &TcpStream, far: &TcpStream, state: &Arc<State>) {
    let copy = |stream: &TcpStream| {
        stream.set_nodelay(true).unwrap();
        stream.try_clone().unwrap()
    };
    state.streams.lock().push([copy(near), copy(far)]);
    let (there, shared) = ((copy(near), copy(far)), state.clone());
    std::thread::spawn(move || pass_on(there.0, there.1, &shared));
    let (late, due) = unbounded();
    let (back, to, shared) = (copy(far), copy(near), state.clone());
    std::thread::spawn(move || put_off(back, &late, &shared));
    std::thread::spawn(move || deliver(&due, to));
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, state: &State) {
    let mut chunk = [0; 16 * 1024];
    let mut answers = *state.answers.lock();
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        // A connection that names the real port must not survive into a cut: an election could
        // succeed over it.
        if answers.take().is_some_and(|ports| !name_another_port(&mut chunk[..length], ports)) {
            break;
        }
        if !state.silent.load(Ordering::SeqCst) && to.write_all(&chunk[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    if !state.is_half_open.load(Ordering::SeqCst) {
        let _ = to.shutdown(Shutdown::Both);
    }
}

/// Changes the address of the sender in the first message of a connection for elections. False if
/// the message does not contain it.
fn name_another_port(message: &mut [u8], [own, other]: [u16; 2]) -> bool {
    let (own, other) = (format!("127.0.0.1:{own}"), format!("127.0.0.1:{other}"));
    let Some(at) = message.windows(own.len()).position(|part| part == own.as_bytes()) else {
        return false;
    };
    message[at..at + own.len()].copy_from_slice(other.as_bytes());
    true
}

/// Reads without delay and schedules each piece for the time at which it arrives.
fn put_off(mut from: TcpStream, late: &Sender<(Instant, Vec<u8>)>, state: &State) {
    let mut chunk = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        let due = Instant::now() + Duration::from_millis(state.delay_ms.load(Ordering::SeqCst));
        if !state.silent.load(Ordering::SeqCst)
            && late.send((due, chunk[..length].to_vec())).is_err()
        {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
}

fn deliver(due: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream) {
    for (when, bytes) in due {
        std::thread::sleep(when.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
