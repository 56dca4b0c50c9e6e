//! Wakes a thread that waits for input of several connections.

use std::io::{self, Read, Write};
#[cfg(windows)]
use std::net::TcpStream as Socket;
#[cfg(unix)]
use std::os::unix::net::UnixStream as Socket;
use std::time::Duration;

// On Windows they stand for `AsSocket` and `BorrowedSocket`.
use rustix::fd::{AsFd, BorrowedFd};

use super::waits::readable;
use crate::signal::event::Interrupt;

/// A pair of sockets: a byte written to one ends a wait that includes the other.
#[derive(Debug)]
pub(crate) struct Waker {
    sender: Socket,
    receiver: Socket,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, receiver) = pair()?;
        sender.set_nonblocking(true)?;
        receiver.set_nonblocking(true)?;
        Ok(Self { sender, receiver })
    }

    pub(crate) fn wake(&self) {
        // A full buffer wakes as well.
        let _ = (&self.sender).write(&[1]);
    }

    /// Waits for input of a stream, for a wake-up, or for `timeout`.
    pub(crate) fn wait_with<'s, S: AsFd + 's>(
        &'s self,
        streams: impl Iterator<Item = &'s S>,
        timeout: Duration,
    ) {
        let own = std::iter::once(self.receiver.as_fd());
        let streams = streams.map(|stream| -> BorrowedFd<'_> { stream.as_fd() });
        let all: Vec<BorrowedFd<'_>> = own.chain(streams).collect();
        let woken = readable(&all.iter().collect::<Vec<_>>(), timeout);
        if woken[0] {
            self.forget();
        }
    }

    /// Reads what [`wake`](Self::wake) has written.
    fn forget(&self) {
        let mut bytes = [0; 64];
        while (&self.receiver).read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
    }
}

impl Interrupt for Waker {
    fn interrupt(&self) {
        self.wake();
    }
}

#[cfg(unix)]
fn pair() -> io::Result<(Socket, Socket)> {
    Socket::pair()
}

/// Windows has no pairs of sockets. Both ends of this one are on the loopback interface, where any
/// program of the machine may connect to the listener before it is closed: such a connection is
/// dropped, because it could wake the thread.
#[cfg(windows)]
fn pair() -> io::Result<(Socket, Socket)> {
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    let sender = Socket::connect(listener.local_addr()?)?;
    let own = sender.local_addr()?;
    loop {
        // Ours is in the queue of the listener, so this ends.
        let (receiver, peer) = listener.accept()?;
        if peer == own {
            sender.set_nodelay(true)?;
            return Ok((sender, receiver));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_wait_ends_when_it_is_woken_and_not_before() {
        let waker = Waker::new().unwrap();
        let other = Waker::new().unwrap();
        let start = Instant::now();
        let wait = |ms| {
            waker.wait_with(std::iter::once(&other.receiver), Duration::from_millis(ms));
        };
        wait(20);
        assert!(start.elapsed() >= Duration::from_millis(20), "{:?}", start.elapsed());
        waker.wake();
        waker.wake();
        wait(60_000);
        other.wake();
        wait(60_000);
        assert!(start.elapsed() < Duration::from_secs(60), "woken, and later by input");
        let start = Instant::now();
        other.forget();
        wait(20);
        assert!(start.elapsed() >= Duration::from_millis(20), "earlier wake-ups are forgotten");
    }
}
