//! The socket of a connection, with every wait on it bounded. A `redis::Connection` would not do:
//! it has no limit for the connect of a unix socket (which blocks while the server's accept queue
//! is full), and restarts its read timeout with every byte.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::address::Address;
use super::limits::{KEEPALIVE_PAUSE, is_timeout, time_left, within_limit};
use super::names::Network;
#[cfg(feature = "tls-core")]
use super::tls_stream::TlsStream;
use super::waits::{is_readable, read_in_time, read_now};
use super::waker::Waker;
use crate::report::traffic::Meter;
#[cfg(feature = "tls-core")]
use crate::store::tls::TlsClient;

/// How often keepalive probes are sent.
const PROBES_EVERY: Duration = Duration::from_secs(2);

/// The shortest timeout of a socket: what is less counts as none for the system, which keeps
/// microseconds, or on Windows milliseconds.
const SHORTEST: Duration = Duration::from_micros(if cfg!(windows) { 1000 } else { 1 });

fn keepalive() -> socket2::TcpKeepalive {
    socket2::TcpKeepalive::new().with_time(KEEPALIVE_PAUSE).with_interval(PROBES_EVERY)
}

/// How long a connection lives without a sign of the peer while it owes one. On Linux this also
/// replaces the number of keepalive probes: as the I/O timeout alone it would end an idle
/// connection when a single probe, or its answer, is lost. So three of them may be. Whoever waits
/// for a reply gives up after its I/O timeout in any case.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
fn user_timeout(io_timeout: Duration) -> Duration {
    io_timeout.max(KEEPALIVE_PAUSE + 3 * PROBES_EVERY)
}

/// A socket, and the meter of its traffic. A [twin](Self::twin) is the same socket: one thread
/// reads from the one while another writes to the other. The socket is closed with the last of
/// them.
pub(crate) struct Stream {
    socket: Socket,
    /// Counts the traffic of the connection, without what TLS adds to it.
    pub(crate) meter: Meter,
    /// How long the other end has for the handshake, and later for each write and each reply.
    limit: Duration,
}

enum Socket {
    Tcp(Arc<TcpStream>),
    #[cfg(unix)]
    Unix(Arc<UnixStream>),
    #[cfg(feature = "tls-core")]
    Tls(TlsStream),
}

impl Socket {
    #[cfg_attr(
        not(any(target_os = "android", target_os = "fuchsia", target_os = "linux")),
        expect(
            unused_variables,
            reason = "only Linux can limit by it how long a peer may be silent"
        )
    )]
    fn connect(
        address: &Address,
        timeout: Duration,
        deadline: Instant,
        network: &Network,
    ) -> io::Result<Self> {
        match address {
            Address::Tcp { host, port } => {
                let addresses = network.names.resolve(host, *port, deadline)?;
                let stream = connect_tcp(&addresses, deadline)?;
                #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
                SockRef::from(&stream).set_tcp_user_timeout(Some(user_timeout(timeout)))?;
                Ok(Self::Tcp(Arc::new(stream)))
            }
            #[cfg(unix)]
            Address::Unix(path) => {
                let socket =
                    socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
                // On Linux this also limits the connect; elsewhere a full accept queue refuses at
                // once.
                socket.set_write_timeout(Some(time_left(deadline)?.max(SHORTEST)))?;
                socket.connect(&socket2::SockAddr::unix(path)?)?;
                Ok(Self::Unix(Arc::new(UnixStream::from(std::os::fd::OwnedFd::from(socket)))))
            }
        }
    }
}

impl Stream {
    /// Looks the host name up and connects, until `deadline`, which is that of all handshakes as
    /// well. `timeout`: the I/O timeout, for errors and for what the system limits by it.
    pub(crate) fn connect(
        address: &Address,
        timeout: Duration,
        deadline: Instant,
        network: &Network,
    ) -> io::Result<Self> {
        let socket = within_limit(Socket::connect(address, timeout, deadline, network), timeout)?;
        Ok(Self { socket, meter: Meter::opened(&network.traffic), limit: timeout })
    }

    /// A stream over a socket that is already connected.
    #[cfg(all(test, unix))]
    pub(crate) fn of_unix(socket: UnixStream) -> Self {
        Self {
            socket: Socket::Unix(Arc::new(socket)),
            meter: Meter::opened(&std::sync::Arc::default()),
            limit: Duration::ZERO,
        }
    }

    /// Counts what a read has returned.
    fn metered(&self, read: io::Result<usize>) -> io::Result<usize> {
        match &read {
            // The other end has closed it.
            Ok(0) => self.meter.broke(),
            Ok(bytes) => _ = self.meter.traffic.received.fetch_add(*bytes as u64, Relaxed),
            Err(e) if is_timeout(e) => {}
            Err(_) => self.meter.broke(),
        }
        read
    }

    /// The handshake of TLS over a connection that has none yet.
    #[cfg(feature = "tls-core")]
    pub(crate) fn secure(
        self,
        client: &TlsClient,
        host: &str,
        deadline: Instant,
    ) -> io::Result<Self> {
        let stream = match self.socket {
            Socket::Tcp(stream) => Arc::into_inner(stream),
            _ => None,
        };
        let Some(stream) = stream else {
            let why = "only TCP without TLS and without a twin can have TLS";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        let socket = TlsStream::connect(stream, client, host, deadline).map(Socket::Tls)?;
        Ok(Self { socket, meter: self.meter, limit: self.limit })
    }

    /// Whether its bytes cross a network unencrypted: not on this machine, and not with TLS.
    pub(crate) fn is_exposed(&self) -> bool {
        let is_remote =
            |stream: &TcpStream| !stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback());
        matches!(&self.socket, Socket::Tcp(stream) if is_remote(stream))
    }

    /// The server's certificate, where there is TLS.
    #[cfg(feature = "tls-core")]
    pub(crate) fn server_certificate(&self) -> Option<Vec<u8>> {
        match &self.socket {
            Socket::Tls(stream) => stream.server_certificate(),
            _ => None,
        }
    }

    pub(crate) fn twin(&self) -> Self {
        let socket = match &self.socket {
            Socket::Tcp(stream) => Socket::Tcp(stream.clone()),
            #[cfg(unix)]
            Socket::Unix(stream) => Socket::Unix(stream.clone()),
            #[cfg(feature = "tls-core")]
            Socket::Tls(stream) => Socket::Tls(stream.clone()),
        };
        Self { socket, meter: self.meter.clone(), limit: self.limit }
    }

    /// From now on each write has this limit, and so has each reply; `read` is shorter for a reader
    /// that checks something else in between.
    pub(crate) fn set_timeouts(&mut self, read: Duration, write: Duration) -> io::Result<()> {
        self.limit = write;
        self.set_socket_timeouts(read, write)
    }

    fn set_socket_timeouts(&self, read: Duration, write: Duration) -> io::Result<()> {
        let socket = SockRef::from(self);
        socket.set_read_timeout(Some(read.max(SHORTEST)))?;
        socket.set_write_timeout(Some(write.max(SHORTEST)))
    }

    /// From now on reads and writes return at once, with `WouldBlock` if they cannot proceed.
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        let socket = SockRef::from(self);
        // It would still be waited for, see `read_in_time`.
        #[cfg(windows)]
        socket.set_read_timeout(None)?;
        socket.set_nonblocking(true)
    }

    /// Whether a read would return now, also because the connection has ended. With TLS: whether it
    /// would return data for the caller, because the socket also carries data for TLS itself.
    pub(crate) fn has_input(&self) -> bool {
        match &self.socket {
            #[cfg(feature = "tls-core")]
            Socket::Tls(stream) => stream.has_input(),
            _ => is_readable(self),
        }
    }

    /// Whether bytes were read from the socket but not yet returned, so that poll does not report
    /// them.
    pub(crate) fn has_read_ahead(&self) -> bool {
        match &self.socket {
            #[cfg(feature = "tls-core")]
            Socket::Tls(stream) => stream.has_read_ahead(),
            _ => false,
        }
    }

    /// One read of the socket. `None` if it returned nothing for the caller: a part of a TLS
    /// record.
    fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        // On Linux a read with a timeout ends with EINTR when the process is stopped and continued,
        // even without a signal handler. The connection still works, so it reads again.
        loop {
            let outcome = match &mut self.socket {
                Socket::Tcp(stream) => read_in_time(stream, buffer),
                #[cfg(unix)]
                Socket::Unix(stream) => (&**stream).read(buffer),
                #[cfg(feature = "tls-core")]
                Socket::Tls(stream) => match stream.read_some(buffer) {
                    Ok(None) => return Ok(None),
                    read => read.map(Option::unwrap_or_default),
                },
            };
            match outcome {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                outcome => return self.metered(outcome).map(Some),
            }
        }
    }

    /// One write. With TLS it ends at `deadline`; without TLS the socket has its timeout.
    #[cfg_attr(
        not(feature = "tls-core"),
        expect(unused_variables, reason = "with TLS it is needed")
    )]
    fn write_by(&mut self, bytes: &[u8], deadline: Option<Instant>) -> io::Result<usize> {
        let written = match &mut self.socket {
            Socket::Tcp(stream) => (&**stream).write(bytes),
            #[cfg(unix)]
            Socket::Unix(stream) => (&**stream).write(bytes),
            #[cfg(feature = "tls-core")]
            Socket::Tls(stream) => stream.write(bytes, deadline),
        };
        if let Ok(bytes) = &written {
            self.meter.traffic.sent.fetch_add(*bytes as u64, Relaxed);
        }
        written
    }

    /// Reads what has arrived, without waiting; `WouldBlock` if there is nothing for the caller.
    pub(crate) fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.socket {
            Socket::Tcp(stream) => read_now(stream, buffer),
            #[cfg(unix)]
            Socket::Unix(stream) => read_now(stream, buffer),
            #[cfg(feature = "tls-core")]
            Socket::Tls(stream) => stream.read_now(buffer),
        };
        self.metered(read)
    }

    /// Sends a few bytes before the connection is closed. If they cannot be sent, nobody cares.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn say_last(&self, bytes: &[u8]) {
        let _ = match &self.socket {
            Socket::Tcp(stream) => (&**stream).write(bytes),
            #[cfg(unix)]
            Socket::Unix(stream) => (&**stream).write(bytes),
            #[cfg(feature = "tls-core")]
            Socket::Tls(stream) => stream.write(bytes, None),
        };
    }

    pub(crate) fn shutdown(&self) {
        self.meter.ends();
        // Without the close_notify of TLS: this may be called while another thread writes.
        let _ = SockRef::from(self).shutdown(Shutdown::Both);
    }

    /// For the handshake: neither reads nor writes go on after `deadline`, even while single bytes
    /// still arrive. It changes the timeouts of the socket.
    pub(crate) fn within(&mut self, deadline: Instant) -> Within<'_> {
        Within { stream: self, deadline }
    }

    /// For one reply that arrives in pieces: after `deadline` only what has arrived is read. A
    /// process that was stopped meanwhile finds the deadline passed, but still reads the reply. A
    /// read over TCP that begins before has the timeout of the socket.
    pub(crate) fn until(&mut self, deadline: Instant) -> Until<'_> {
        Until { stream: self, deadline }
    }

    /// For what has already arrived: does not wait.
    pub(crate) fn now(&mut self) -> Now<'_> {
        Now(self)
    }

    /// For what arrives within `timeout` and before the waker is used. Does not wait at all for a
    /// timeout of zero.
    pub(crate) fn until_woken<'s>(
        &'s mut self,
        waker: &'s Waker,
        timeout: Duration,
    ) -> UntilWoken<'s> {
        UntilWoken { stream: self, waker, timeout }
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for Stream {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
            #[cfg(feature = "tls-core")]
            Socket::Tls(stream) => stream.socket().as_fd(),
        }
    }
}

#[cfg(windows)]
impl std::os::windows::io::AsSocket for Stream {
    fn as_socket(&self) -> std::os::windows::io::BorrowedSocket<'_> {
        match &self.socket {
            Socket::Tcp(stream) => stream.as_socket(),
            #[cfg(feature = "tls-core")]
            Socket::Tls(stream) => stream.socket().as_socket(),
        }
    }
}

/// Each address gets an equal share of the remaining time, so that one that drops all packets does
/// not use up the time of the others.
fn connect_tcp(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for (address, untried) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
        let share = time_left(deadline)? / untried;
        match TcpStream::connect_timeout(address, share.max(SHORTEST)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                let socket = SockRef::from(&stream);
                socket.set_tcp_keepalive(&keepalive())?;
                // Closing then discards what the kernel has not sent yet, so that those requests
                // cannot run.
                socket.set_linger(Some(Duration::ZERO))?;
                return Ok(stream);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(read) = self.read_some(buffer)? {
                return Ok(read);
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.write_by(bytes, None) {
            Ok(written) => Ok(written),
            failed => within_limit(failed, self.limit),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct Within<'s> {
    stream: &'s mut Stream,
    deadline: Instant,
}

impl Within<'_> {
    fn stream(&mut self) -> io::Result<&mut Stream> {
        let left = time_left(self.deadline)?;
        self.stream.set_socket_timeouts(left, left)?;
        Ok(self.stream)
    }
}

impl Read for Within<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let limit = self.stream.limit;
        loop {
            let read = self.stream().and_then(|stream| stream.read_some(buffer));
            if let Some(read) = within_limit(read, limit)? {
                return Ok(read);
            }
        }
    }
}

impl Write for Within<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let limit = self.stream.limit;
        #[cfg(feature = "tls-core")]
        if matches!(self.stream.socket, Socket::Tls(_)) {
            return within_limit(self.stream.write_by(bytes, Some(self.deadline)), limit);
        }
        within_limit(self.stream().and_then(|stream| stream.write_by(bytes, None)), limit)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct Until<'s> {
    stream: &'s mut Stream,
    deadline: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(unix)]
        if let Socket::Unix(stream) = &self.stream.socket {
            let read = match super::waits::read_until(stream, buffer, self.deadline) {
                Ok(read) => Ok(read),
                failed => within_limit(failed, self.stream.limit),
            };
            return self.stream.metered(read);
        }
        loop {
            let read = if Instant::now() >= self.deadline {
                Err(io::ErrorKind::TimedOut.into())
            } else {
                self.stream.read_some(buffer)
            };
            let read = match read {
                Err(e) if is_timeout(&e) && self.stream.has_input() => {
                    self.stream.read_some(buffer)
                }
                read => read,
            };
            // A partial record is no reason to wait beyond the deadline.
            if let Some(read) = within_limit(read, self.stream.limit)? {
                return Ok(read);
            }
        }
    }
}

pub(crate) struct Now<'s>(&'s mut Stream);

impl Read for Now<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_now(buffer)
    }
}

pub(crate) struct UntilWoken<'s> {
    stream: &'s mut Stream,
    waker: &'s Waker,
    timeout: Duration,
}

impl Read for UntilWoken<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // A caller that does not wait need not call poll first. With TLS the last reader may have
        // left a message that poll does not report.
        if !self.timeout.is_zero() && !self.stream.has_read_ahead() {
            self.waker.wait_with(std::iter::once(&*self.stream), self.timeout);
        }
        self.stream.read_now(buffer)
    }
}

#[cfg(all(test, target_os = "linux"))]
#[path = "stream_tests.rs"]
mod tests;
