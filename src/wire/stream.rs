//! The socket of a connection, with every wait on it bounded.
//!
//! Our own and not a `redis::Connection`, which has no bound for the connect of a unix socket (it blocks while the
//! server's queue is full), and starts its read timeout again with every byte that trickles in.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use redis::io::tcp::socket2;

use super::dial::Endpoint;

/// Probes that find a peer that is gone without a word.
fn keepalive() -> socket2::TcpKeepalive {
    socket2::TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(2))
}

pub(super) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Stream {
    /// Reads and writes wait for `timeout` each, too.
    pub(super) fn connect(endpoint: &Endpoint, timeout: Duration) -> io::Result<Self> {
        let stream = match endpoint.info().addr() {
            redis::ConnectionAddr::Tcp(host, port) => Self::Tcp(connect_tcp(host, *port, timeout)?),
            #[cfg(unix)]
            redis::ConnectionAddr::Unix(path) => {
                let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
                // On Linux it bounds the connect as well; elsewhere a full queue refuses at once.
                socket.set_write_timeout(Some(timeout))?;
                socket.connect(&socket2::SockAddr::unix(path)?)?;
                Self::Unix(UnixStream::from(std::os::fd::OwnedFd::from(socket)))
            }
            _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "this kind of address is not supported")),
        };
        stream.set_timeouts(timeout, timeout)?;
        Ok(stream)
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    pub(super) fn set_timeouts(&self, read: Duration, write: Duration) -> io::Result<()> {
        let (read, write) = (Some(read), Some(write));
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(read).and_then(|()| stream.set_write_timeout(write)),
            #[cfg(unix)]
            Self::Unix(stream) => stream.set_read_timeout(read).and_then(|()| stream.set_write_timeout(write)),
        }
    }

    /// Reads and writes bring what is there at once, or an error that says that nothing is.
    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(true),
            #[cfg(unix)]
            Self::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    /// Whether a read would bring something now, the end of the connection included.
    #[cfg(unix)]
    pub(super) fn has_input(&self) -> bool {
        super::ready::is_readable(self)
    }

    #[cfg(not(unix))]
    pub(super) fn has_input(&self) -> bool {
        let Self::Tcp(stream) = self;
        let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
        let nothing = matches!(&peeked, Err(e) if e.kind() == io::ErrorKind::WouldBlock);
        stream.set_nonblocking(false).is_err() || !nothing
    }

    pub(super) fn shutdown(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            #[cfg(unix)]
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// For one reply that arrives in pieces: after `deadline` only what has come already is read. A process that was
    /// stopped meanwhile finds the deadline over and the reply there.
    pub(super) fn until(&mut self, deadline: Instant) -> Until<'_> {
        Until { stream: self, deadline, first: true }
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for Stream {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                let socket = socket2::SockRef::from(&stream);
                socket.set_tcp_keepalive(&keepalive())?;
                // Closing drops what our kernel has not sent yet: one request less that could still run.
                socket.set_linger(Some(Duration::ZERO))?;
                #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
                socket.set_tcp_user_timeout(Some(timeout))?;
                return Ok(stream);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

impl Read for Stream {
    /// On Linux a read with a timeout ends with EINTR when the process is stopped and continued, without any signal
    /// handler: nothing has happened to the connection.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let outcome = match self {
                Self::Tcp(stream) => stream.read(buffer),
                #[cfg(unix)]
                Self::Unix(stream) => stream.read(buffer),
            };
            match outcome {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            #[cfg(unix)]
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            #[cfg(unix)]
            Self::Unix(stream) => stream.flush(),
        }
    }
}

pub(super) struct Until<'s> {
    stream: &'s mut Stream,
    deadline: Instant,
    first: bool,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let is_over = !std::mem::take(&mut self.first) && Instant::now() >= self.deadline;
        let read = if is_over { Err(io::ErrorKind::TimedOut.into()) } else { self.stream.read(buffer) };
        match read {
            Err(e) if is_timeout(&e) && self.stream.has_input() => self.stream.read(buffer),
            read => read,
        }
    }
}

pub(super) fn is_timeout(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
