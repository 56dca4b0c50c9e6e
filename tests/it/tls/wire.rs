//! The wire between a client and a TLS port: cut or stopped at a byte, or slow. It does not
//! interpret the bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::rig::{Server, ms};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Toward {
    Server,
    Client,
}

#[derive(Debug, Clone, Copy)]
struct Limit {
    toward: Toward,
    left: usize,
    /// At the limit the connection stays up and carries nothing more.
    silent: bool,
}

#[derive(Default)]
struct State {
    limit: Mutex<Option<Limit>>,
    /// The pause between two bytes toward the client, in milliseconds.
    pause: AtomicU64,
    stop: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

pub(crate) struct Wire {
    port: u16,
    state: Arc<State>,
    acceptor: Option<JoinHandle<()>>,
}

impl Wire {
    pub(super) fn to(server: &Server) -> Self {
        Self::to_port(server.port())
    }

    pub(crate) fn to_port(upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = state.clone();
        let acceptor = std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.stop.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", upstream)) else { continue };
                client.set_nodelay(true).unwrap();
                let clones = || [client.try_clone().unwrap(), server.try_clone().unwrap()];
                shared.streams.lock().extend(clones());
                let ([from_client, to_server], state) = (clones(), shared.clone());
                std::thread::spawn(move || carry(from_client, to_server, Toward::Server, &state));
                let state = shared.clone();
                std::thread::spawn(move || carry(server, client, Toward::Client, &state));
            }
        });
        Self { port, state, acceptor: Some(acceptor) }
    }

    pub(super) fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}/", self.port)
    }

    #[cfg(feature = "zookeeper")]
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the connection after this many more bytes in this direction.
    pub(crate) fn cut_at(&self, toward: Toward, bytes: usize) {
        *self.state.limit.lock() = Some(Limit { toward, left: bytes, silent: false });
    }

    /// The same, but without closing it.
    pub(crate) fn silent_at(&self, toward: Toward, bytes: usize) {
        *self.state.limit.lock() = Some(Limit { toward, left: bytes, silent: true });
    }

    /// Removes the limit. True if it was not reached.
    pub(crate) fn repair(&self) -> bool {
        self.state.limit.lock().take().is_some_and(|limit| limit.left > 0)
    }

    /// Sets how long each byte toward the client takes from now on.
    pub(super) fn trickle(&self, millis: u64) {
        self.state.pause.store(millis, Ordering::SeqCst);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        for stream in self.state.streams.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, toward: Toward, state: &State) {
    let mut chunk = [0; 16 * 1024];
    let mut silent = false;
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        let mut bytes = &chunk[..length];
        let mut cut = false;
        if let Some(limit) = &mut *state.limit.lock()
            && limit.toward == toward
        {
            bytes = &bytes[..limit.left.min(length)];
            limit.left -= bytes.len();
            silent |= limit.left == 0 && limit.silent;
            cut = limit.left == 0 && !limit.silent;
        }
        let pause = state.pause.load(Ordering::SeqCst);
        let piece = if pause > 0 && toward == Toward::Client { 1 } else { bytes.len().max(1) };
        for piece in bytes.chunks(piece) {
            if to.write_all(piece).is_err() {
                return close(&from, &to);
            }
            std::thread::sleep(ms(if piece.len() == 1 { pause } else { 0 }));
        }
        if cut {
            break;
        }
        if silent {
            let _ = from.read_to_end(&mut Vec::new());
            return;
        }
    }
    close(&from, &to);
}

fn close(a: &TcpStream, b: &TcpStream) {
    let _ = a.shutdown(Shutdown::Both);
    let _ = b.shutdown(Shutdown::Both);
}
