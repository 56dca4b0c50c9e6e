//! A socket secured by TLS. Decrypting and encrypting need the same session, so the halves of a
//! subscriber, of which one reads while the other writes, share it in a mutex. Nobody holds that
//! mutex while waiting for the socket's input.
//!
//! The goodbye of TLS (close_notify) is never sent: connections are closed to discard what is on
//! its way, and a forked child that drops its copy must not write to its parent's socket. A goodbye
//! that is received is an orderly end, and so is an end without it, because Redis does not always
//! send one.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use rustls::ClientConnection;

use super::limits::time_left;
use super::waits::{read_in_time, read_now};
use crate::base::log;
use crate::os::Mutex;
use crate::store::tls::{TlsClient, TlsFailure};

/// The size of one read of the socket. A record has up to 16 KiB, but replies are short.
const CHUNK: usize = 4096;

/// A handle; clones share the connection. Only one of them may read.
#[derive(Clone)]
pub(crate) struct TlsStream(Arc<SharedSession>);

struct SharedSession {
    socket: TcpStream,
    session: Mutex<Session>,
}

impl TlsStream {
    /// Performs the handshake, in which each read and write ends at the deadline.
    pub(crate) fn connect(
        socket: TcpStream,
        client: &TlsClient,
        host: &str,
        deadline: Instant,
    ) -> io::Result<Self> {
        let has_identity = client.has_identity();
        let mut session = Session {
            tls: client.session(host)?,
            raw: Vec::new(),
            start: 0,
            has_ended: false,
            has_identity,
        };
        session.shake_hands(&socket, deadline).map_err(TlsFailure::in_handshake)?;
        if let (true, Ok(address)) = (log::wants(log::Level::Debug), socket.peer_addr()) {
            let version = session.tls.protocol_version();
            let kind = session.tls.handshake_kind();
            let resumed = matches!(kind, Some(rustls::HandshakeKind::Resumed));
            let how = if resumed { "a resumed session" } else { "a full handshake" };
            log::debug!(
                "TLS with {host:?} at {address}: {how}, {}",
                version.and_then(|v| v.as_str()).unwrap_or("?")
            );
        }
        Ok(Self(Arc::new(SharedSession { socket, session: Mutex::new(session) })))
    }

    pub(crate) fn server_certificate(&self) -> Option<Vec<u8>> {
        let session = self.0.session.lock();
        session.tls.peer_certificates()?.first().map(|certificate| certificate.to_vec())
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.0.socket
    }

    /// At most one read of the socket, with its timeout. `None` if it returned nothing for the
    /// caller.
    pub(crate) fn read_some(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if let Some(read) = self.0.session.lock().take(buffer)? {
            return Ok(Some(read));
        }
        let mut chunk = [0; CHUNK];
        let length = read_in_time(&self.0.socket, &mut chunk)?;
        let mut session = self.0.session.lock();
        session.feed(&chunk[..length])?;
        session.take(buffer)
    }

    /// Returns the data for the caller that has arrived, without waiting; `WouldBlock` if there is
    /// none.
    pub(crate) fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut session = self.0.session.lock();
        loop {
            if let Some(read) = session.take(buffer)? {
                return Ok(read);
            }
            session.feed_from(&self.0.socket)?;
        }
    }

    /// Whether data for the caller has arrived, or an end or an error. Data for TLS itself does not
    /// count: servers send session tickets after the handshake, and may change keys at any time.
    pub(crate) fn has_input(&self) -> bool {
        let mut session = self.0.session.lock();
        loop {
            match session.has_plaintext() {
                Ok(false) => {}
                Ok(true) | Err(_) => return true,
            }
            match session.feed_from(&self.0.socket) {
                Ok(()) => {}
                Err(e) => return e.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Whether data for the caller was already read from the socket; also true after an error.
    pub(crate) fn has_read_ahead(&self) -> bool {
        self.0.session.lock().has_plaintext().unwrap_or(true)
    }

    /// Encrypts and sends; each write to the socket has its timeout, or ends at the deadline. Keeps
    /// the mutex locked until all is sent: records must not be reordered.
    pub(crate) fn write(&self, bytes: &[u8], deadline: Option<Instant>) -> io::Result<usize> {
        let mut session = self.0.session.lock();
        let taken = session.tls.writer().write(bytes)?;
        session.flush(&self.0.socket, deadline)?;
        Ok(taken)
    }
}

struct Session {
    tls: ClientConnection,
    /// Bytes from the socket that TLS has not taken yet, from `start`: it takes no more while
    /// decrypted bytes are waiting to be read.
    raw: Vec<u8>,
    start: usize,
    /// The other end has closed the connection.
    has_ended: bool,
    /// Needed for the text of an alert.
    has_identity: bool,
}

impl Session {
    fn shake_hands(&mut self, socket: &TcpStream, deadline: Instant) -> io::Result<()> {
        let mut chunk = [0; CHUNK];
        loop {
            self.flush(socket, Some(deadline))?;
            if !self.tls.is_handshaking() {
                return Ok(());
            }
            if self.raw.is_empty() {
                socket.set_read_timeout(Some(time_left(deadline)?))?;
                match read_in_time(socket, &mut chunk) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(length) => self.feed(&chunk[..length])?,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(e) => return Err(e),
                }
            }
            if let Err(e) = self.process() {
                // Sends the alert that states the reason, for the server's log.
                let _ = self.flush(socket, Some(deadline));
                return Err(e);
            }
        }
    }

    /// Takes in bytes of the socket; no bytes mean its end.
    fn feed(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            self.has_ended = true;
            return self.tls.read_tls(&mut io::empty()).map(drop);
        }
        self.raw.extend_from_slice(bytes);
        Ok(())
    }

    /// One read of the socket that does not wait.
    fn feed_from(&mut self, socket: &TcpStream) -> io::Result<()> {
        let mut chunk = [0; CHUNK];
        let length = read_now(socket, &mut chunk)?;
        self.feed(&chunk[..length])
    }

    /// Decrypts some of what was fed.
    fn process(&mut self) -> io::Result<()> {
        let mut rest = &self.raw[self.start..];
        let length = rest.len();
        self.tls.read_tls(&mut rest)?;
        self.start += length - rest.len();
        if self.start == self.raw.len() {
            self.raw.clear();
            self.start = 0;
        }
        match self.tls.process_new_packets() {
            Ok(_) => Ok(()),
            Err(e) => Err(TlsFailure::of(e, self.has_identity).into()),
        }
    }

    /// Decrypted bytes; 0 at the end of the connection; `None` if more must be fed.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(0)),
                read => return read.map(Some),
            }
            if self.raw.is_empty() {
                return Ok(None);
            }
            self.process()?;
        }
    }

    /// Whether [`take`](Self::take) would return something.
    fn has_plaintext(&mut self) -> io::Result<bool> {
        loop {
            let state = self
                .tls
                .process_new_packets()
                .map_err(|e| io::Error::from(TlsFailure::of(e, self.has_identity)))?;
            if state.plaintext_bytes_to_read() > 0 || state.peer_has_closed() || self.has_ended {
                return Ok(true);
            }
            if self.raw.is_empty() {
                return Ok(false);
            }
            self.process()?;
        }
    }

    /// Sends what TLS has to send. After the handshake that is only what the caller wrote: answers
    /// of TLS itself, such as new keys, wait for the next write.
    fn flush(&mut self, socket: &TcpStream, deadline: Option<Instant>) -> io::Result<()> {
        let mut socket = socket;
        while self.tls.wants_write() {
            if let Some(deadline) = deadline {
                socket.set_write_timeout(Some(time_left(deadline)?))?;
            }
            match self.tls.write_tls(&mut socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                // Not returned to the caller, who would send the same bytes again.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

// Their server needs ring.
#[cfg(all(test, feature = "tls"))]
#[path = "tls_stream_tests.rs"]
mod tests;
