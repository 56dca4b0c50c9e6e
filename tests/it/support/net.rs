//! Unix and TCP streams as one type, and short temporary directories.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::Rng;
use rand::distr::Alphanumeric;

/// Where a server or a proxy listens.
#[derive(Debug, Clone)]
pub(crate) enum Address {
    Unix(PathBuf),
    Tcp(u16),
}

impl Address {
    /// The URL in the form of the redis crate.
    pub(crate) fn url(&self, password: Option<&str>) -> String {
        match (self, password) {
            (Self::Unix(path), None) => format!("redis+unix://{}", path.display()),
            (Self::Unix(path), Some(word)) => format!("redis+unix://{}?pass={word}", path.display()),
            (Self::Tcp(port), None) => format!("redis://127.0.0.1:{port}/"),
            (Self::Tcp(port), Some(word)) => format!("redis://:{word}@127.0.0.1:{port}/"),
        }
    }

    /// A plain byte stream to it.
    pub(crate) fn connect(&self) -> io::Result<Stream> {
        Ok(match self {
            Self::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
            Self::Tcp(port) => Stream::tcp(TcpStream::connect(("127.0.0.1", *port))?)?,
        })
    }
}

/// Either kind of stream.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn tcp(stream: TcpStream) -> io::Result<Self> {
        // Nagle's algorithm would add 40 ms to a request that arrives in pieces.
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Another handle to the same stream.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
        })
    }

    /// Lets reads fail after this time.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(timeout).unwrap(),
            Self::Tcp(stream) => stream.set_read_timeout(timeout).unwrap(),
        }
    }

    /// Ends the stream for all handles; a stream that has ended already is fine.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(how),
            Self::Tcp(stream) => stream.shutdown(how),
        };
    }

    /// Ends the stream so that the peer sees a plain end of file: closing with unread input would reset it instead.
    pub(crate) fn end(&mut self) {
        self.shutdown(Shutdown::Both);
        let mut waste = [0; 4096];
        while matches!(self.read(&mut waste), Ok(n) if n > 0) {}
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Either kind of listener.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens in `dir` or on a port of the kernel's choice, after the kind of `like`.
    pub(crate) fn bind(like: &Address, dir: &Path) -> (Self, Address) {
        match like {
            Address::Unix(_) => {
                let path = dir.join("p");
                (Self::Unix(UnixListener::bind(&path).unwrap()), Address::Unix(path))
            }
            Address::Tcp(_) => {
                let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
                let port = listener.local_addr().unwrap().port();
                (Self::Tcp(listener), Address::Tcp(port))
            }
        }
    }

    /// The next connection.
    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener) => Ok(Stream::Unix(listener.accept()?.0)),
            Self::Tcp(listener) => Stream::tcp(listener.accept()?.0),
        }
    }
}

/// A port that is free and likely to stay so while its server is down.
///
/// It is not from the kernel's range for outgoing connections (32768 and up on Linux): there a client that tries to
/// reconnect to the dead server may be given that very port as its own, connect to itself, and keep the server from
/// coming back.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = rand::rng().random_range(10_240..32_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A directory with a short name (a socket path has about 100 bytes), removed on drop.
#[derive(Debug)]
pub(crate) struct TempDir {
    path: PathBuf,
    owner: u32,
}

impl TempDir {
    pub(crate) fn new() -> Self {
        loop {
            let random: String = rand::rng().sample_iter(Alphanumeric).take(8).map(char::from).collect();
            let path = PathBuf::from(format!("/tmp/lh-{random}"));
            match std::fs::create_dir(&path) {
                Ok(()) => return Self { path, owner: std::process::id() },
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot create {}: {error}", path.display()),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A forked child has a copy of this value; the directory is its parent's.
        if self.owner == std::process::id() {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
