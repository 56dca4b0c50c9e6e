//! Wakes a thread that waits for input of several connections.

#[cfg(unix)]
use std::os::fd::AsFd;
use std::time::Duration;

use super::waits::readable;
use crate::base::event::Interrupt;

/// A pair of sockets: a byte written to one ends a wait that includes the other.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Waker {
    sender: std::os::unix::net::UnixStream,
    receiver: std::os::unix::net::UnixStream,
}

#[cfg(unix)]
impl Waker {
    pub(crate) fn new() -> std::io::Result<Self> {
        let (sender, receiver) = std::os::unix::net::UnixStream::pair()?;
        sender.set_nonblocking(true)?;
        receiver.set_nonblocking(true)?;
        Ok(Self { sender, receiver })
    }

    pub(crate) fn wake(&self) {
        use std::io::Write;
        // A full buffer wakes as well.
        let _ = (&self.sender).write(&[1]);
    }

    /// Waits for input of the stream, for a wake-up, or for `timeout`. True if it has input.
    pub(super) fn wait_with_one(&self, stream: &impl AsFd, timeout: Duration) -> bool {
        let ready = readable(&[&stream.as_fd(), &self.receiver.as_fd()], timeout);
        if ready[1] {
            self.forget();
        }
        ready[0]
    }

    /// Waits for input of a stream, for a wake-up, or for `timeout`.
    pub(crate) fn wait_with<'s, S: AsFd + 's>(&'s self, streams: impl Iterator<Item = &'s S>, timeout: Duration) {
        use std::os::fd::BorrowedFd;
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
        use std::io::Read;
        let mut bytes = [0; 64];
        while (&self.receiver).read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
    }
}

impl Interrupt for Waker {
    fn interrupt(&self) {
        self.wake();
    }
}

/// Without poll nothing wakes the thread, which checks again after a few milliseconds.
#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) struct Waker;

#[cfg(not(unix))]
impl Waker {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    pub(crate) fn wake(&self) {}

    pub(crate) fn wait_with<'s, S: 's>(&self, streams: impl Iterator<Item = &'s S>, timeout: Duration) {
        readable(&streams.collect::<Vec<_>>(), timeout.min(Duration::from_millis(5)));
    }

    pub(super) fn wait_with_one<S>(&self, stream: &S, timeout: Duration) -> bool {
        readable(&[stream], timeout.min(Duration::from_millis(5))).contains(&true)
    }
}
