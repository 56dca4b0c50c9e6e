//! Streams of a build with `--cfg shuttle`, over the network of its scheduler: the same interface
//! as the sockets of the system have in a normal build.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::address::Address;
use super::limits::{is_timeout, time_left, within_limit};
use super::names::Network;
use crate::os::network::{self, Socket};
use crate::os::now;
use crate::report::traffic::Meter;
use crate::signal::event::Interrupt;

pub(crate) struct Stream {
    socket: Socket,
    pub(crate) meter: Meter,
    read_timeout: Duration,
    limit: Duration,
    never_waits: AtomicBool,
}

/// Which of them can be read or have ended. Waits at most `timeout` for the first.
pub(crate) fn readable(streams: &[&Stream], timeout: Duration) -> Vec<bool> {
    let sockets: Vec<&Socket> = streams.iter().map(|stream| &stream.socket).collect();
    network::readable(&sockets, Some(timeout))
}

impl Stream {
    pub(crate) fn connect(
        address: &Address,
        timeout: Duration,
        deadline: Instant,
        network: &Network,
    ) -> io::Result<Self> {
        let socket = within_limit(Self::connect_by(address, deadline, network), timeout)?;
        let meter = Meter::opened(&network.traffic);
        Ok(Self {
            socket,
            meter,
            read_timeout: timeout,
            limit: timeout,
            never_waits: AtomicBool::new(false),
        })
    }

    fn connect_by(address: &Address, deadline: Instant, network: &Network) -> io::Result<Socket> {
        let Address::Tcp { host, port } = address else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut last = io::ErrorKind::NotFound.into();
        for address in network.names.resolve(host, *port, deadline)? {
            time_left(deadline)?;
            match Socket::connect(address) {
                Ok(socket) => return Ok(socket),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    pub(crate) fn is_exposed(&self) -> bool {
        false
    }

    pub(crate) fn twin(&self) -> Self {
        let Self { socket, meter, read_timeout, limit, never_waits } = self;
        let never_waits = AtomicBool::new(never_waits.load(Ordering::Relaxed));
        Self {
            socket: socket.clone(),
            meter: meter.clone(),
            read_timeout: *read_timeout,
            limit: *limit,
            never_waits,
        }
    }

    pub(crate) fn set_timeouts(&mut self, read: Duration, write: Duration) -> io::Result<()> {
        self.read_timeout = read;
        self.limit = write;
        Ok(())
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        self.never_waits.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn has_input(&self) -> bool {
        network::readable(&[&self.socket], Some(Duration::ZERO))[0]
    }

    pub(crate) fn has_read_ahead(&self) -> bool {
        false
    }

    fn read_within(&self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        network::readable(&[&self.socket], Some(timeout));
        let read = self.socket.read_now(buffer);
        match &read {
            Ok(0) => self.meter.broke(),
            Ok(read) => _ = self.meter.traffic.received.fetch_add(*read as u64, Ordering::Relaxed),
            Err(e) if is_timeout(e) => {}
            Err(_) => self.meter.broke(),
        }
        read
    }

    pub(crate) fn shutdown(&self) {
        self.meter.ends();
        self.socket.close();
    }

    pub(crate) fn within(&mut self, deadline: Instant) -> Until<'_> {
        Until { stream: self, deadline }
    }

    pub(crate) fn until(&mut self, deadline: Instant) -> Until<'_> {
        Until { stream: self, deadline }
    }

    pub(crate) fn now(&mut self) -> Until<'_> {
        Until { stream: self, deadline: now() }
    }

    pub(crate) fn until_woken<'s>(
        &'s mut self,
        waker: &'s Waker,
        timeout: Duration,
    ) -> UntilWoken<'s> {
        UntilWoken { stream: self, waker, timeout }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let never_waits = self.never_waits.load(Ordering::Relaxed);
        self.read_within(buffer, if never_waits { Duration::ZERO } else { self.read_timeout })
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)?;
        self.meter.traffic.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads until a deadline; a write never waits.
pub(crate) struct Until<'s> {
    stream: &'s mut Stream,
    deadline: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(now());
        within_limit(self.stream.read_within(buffer, left), self.stream.limit)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        within_limit(time_left(self.deadline), self.stream.limit)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct UntilWoken<'s> {
    stream: &'s mut Stream,
    waker: &'s Waker,
    timeout: Duration,
}

impl Read for UntilWoken<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.waker.wait_with(std::iter::once(&*self.stream), self.timeout);
        self.stream.read_within(buffer, Duration::ZERO)
    }
}

/// Wakes a thread that waits for input of several connections.
#[derive(Debug)]
pub(crate) struct Waker {
    sender: Socket,
    receiver: Socket,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, receiver) = Socket::pair();
        Ok(Self { sender, receiver })
    }

    pub(crate) fn wake(&self) {
        let _ = self.sender.write(&[1]);
    }

    /// Waits for input of a stream, for a wake-up, or for `timeout`.
    pub(crate) fn wait_with<'s>(
        &'s self,
        streams: impl Iterator<Item = &'s Stream>,
        timeout: Duration,
    ) {
        let own = std::iter::once(&self.receiver);
        let all: Vec<&Socket> = own.chain(streams.map(|stream| &stream.socket)).collect();
        if network::readable(&all, Some(timeout))[0] {
            while self.receiver.read_now(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        }
    }
}

impl Interrupt for Waker {
    fn interrupt(&self) {
        self.wake();
    }
}
