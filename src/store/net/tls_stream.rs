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

use parking_lot::Mutex;
use rustls::ClientConnection;

use super::limits::time_left;
use super::waits::{read_in_time, read_now};
use crate::base::log;
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
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
    use rustls::{
        HandshakeKind, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion,
    };

    use super::super::address::Address;
    use super::super::names::Network;
    use super::super::stream::Stream;
    use super::super::waker::Waker;
    use super::*;
    use crate::base::tls::Tls;

    type Server = StreamOwned<ServerConnection, TcpStream>;

    /// A server's settings, and a certificate that is its own authority.
    fn a_server(versions: &[&'static SupportedProtocolVersion]) -> (Arc<ServerConfig>, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key =
            PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let config = config
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        (Arc::new(config), made.cert.pem())
    }

    fn connected(config: &Arc<ServerConfig>, client: &TlsClient) -> (Server, TlsStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let config = config.clone();
        let accepted = std::thread::spawn(move || {
            let mut server =
                Server::new(ServerConnection::new(config).unwrap(), listener.accept().unwrap().0);
            server.conn.complete_io(&mut server.sock).unwrap();
            // Session tickets.
            server.flush().unwrap();
            server
        });
        let deadline = Instant::now() + Duration::from_secs(10);
        let stream = TlsStream::connect(socket, client, "localhost", deadline).unwrap();
        (accepted.join().unwrap(), stream)
    }

    fn pair() -> (Server, TlsStream) {
        let (config, authority) = a_server(rustls::ALL_VERSIONS);
        connected(&config, &TlsClient::new(Tls::new().ca_pem(authority)))
    }

    /// Whether a connection resumed the session of an earlier one. It reads something, and with it
    /// the tickets that came before.
    fn is_resumed(config: &Arc<ServerConfig>, client: &TlsClient) -> bool {
        let (mut server, stream) = connected(config, client);
        server.write_all(b"+OK").unwrap();
        while stream.read_some(&mut [0; 8]).unwrap().is_none() {}
        let certificate = stream.server_certificate().expect("needed for the log-in to PostgreSQL");
        assert!(certificate.len() > 100 && certificate[0] == 0x30, "the DER of a certificate");
        let session = stream.0.session.lock();
        session.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    #[test]
    fn a_second_connection_resumes_the_session_unless_the_settings_differ() {
        for version in rustls::ALL_VERSIONS {
            let (config, authority) = a_server(&[version]);
            let file = std::env::temp_dir().join(format!(
                "leasehold-{}-{:?}.pem",
                std::process::id(),
                version.version
            ));
            std::fs::write(&file, &authority).unwrap();
            let client = TlsClient::new(Tls::new().ca_file(&file));
            assert_eq!(
                [(); 3].map(|()| is_resumed(&config, &client)),
                [false, true, true],
                "{version:?}"
            );
            std::fs::write(&file, format!("{authority}\n")).unwrap();
            let kinds = [(); 2].map(|()| is_resumed(&config, &client));
            assert_eq!(kinds, [false, true], "a changed file ends the sessions: {version:?}");
            std::fs::remove_file(&file).unwrap();
            let other = TlsClient::new(Tls::new().ca_pem(&authority));
            assert!(!is_resumed(&config, &other), "each client has its own: {version:?}");
            let never = TlsClient::new(Tls::new().ca_pem(&authority).resume_sessions(false));
            assert_eq!([(); 2].map(|()| is_resumed(&config, &never)), [false; 2], "{version:?}");
        }
    }

    fn wait_until(mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn has_arrived(stream: &TlsStream) {
        wait_until(|| stream.socket().peek(&mut [0]).unwrap() > 0);
    }

    #[test]
    fn what_tls_keeps_for_itself_is_no_input() {
        let (mut server, stream) = pair();
        has_arrived(&stream);
        assert!(!stream.has_input(), "session tickets");
        server.conn.refresh_traffic_keys().unwrap();
        server.conn.write_tls(&mut server.sock).unwrap();
        has_arrived(&stream);
        assert!(!stream.has_input(), "new keys");
        assert_eq!(stream.read_now(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        server.write_all(b"+OK").unwrap();
        wait_until(|| stream.has_input());
        let mut bytes = [0; 8];
        assert_eq!((stream.read_now(&mut bytes).unwrap(), &bytes[..3]), (3, &b"+OK"[..]));
        assert!(!stream.has_input());
        // The answer to the new keys is sent with the next write.
        stream.write(b"PING", None).unwrap();
        let mut asked = [0; 4];
        server.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"PING");

        server.conn.send_close_notify();
        server.conn.write_tls(&mut server.sock).unwrap();
        wait_until(|| stream.has_input());
        assert_eq!(stream.read_now(&mut bytes).unwrap(), 0, "an orderly end");
    }

    #[test]
    fn an_end_without_a_goodbye_is_an_end() {
        let (server, stream) = pair();
        drop(server);
        wait_until(|| stream.has_input());
        assert_eq!(stream.read_some(&mut [0; 8]).unwrap(), Some(0));
    }

    #[test]
    fn nothing_is_lost_of_records_larger_than_a_read() {
        let (mut server, stream) = pair();
        let sent: Vec<u8> = (0..100_000u32).map(|n| n.to_le_bytes()[0]).collect();
        let copy = sent.clone();
        let writer = std::thread::spawn(move || {
            server.write_all(&copy).unwrap();
            server
        });
        let mut received = Vec::new();
        let mut buffer = [0; 1000];
        let mut was_ahead = false;
        while received.len() < sent.len() {
            match stream.read_now(&mut buffer) {
                Ok(length) => received.extend_from_slice(&buffer[..length]),
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock, "{e}"),
            }
            was_ahead |= stream.has_read_ahead();
        }
        assert!(received == sent && was_ahead && !stream.has_read_ahead());
        drop(writer.join().unwrap());
    }

    /// A partial record makes the socket readable, and returns nothing yet.
    #[test]
    fn a_part_of_a_record_is_not_waited_for() {
        let (mut server, stream) = pair();
        server.conn.writer().write_all(b"+OK").unwrap();
        let mut record = Vec::new();
        server.conn.write_tls(&mut record).unwrap();
        let (first, rest) = record.split_at(record.len() - 1);
        server.sock.write_all(first).unwrap();
        has_arrived(&stream);
        assert!(!stream.has_input());
        assert_eq!(stream.read_now(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        server.sock.write_all(rest).unwrap();
        wait_until(|| stream.has_input() && stream.has_read_ahead());
        assert_eq!(stream.read_some(&mut [0; 8]).unwrap(), Some(3));
    }

    /// What a store has of a connection with TLS: the same as without.
    #[test]
    fn a_stream_with_tls_is_a_stream() {
        let (config, authority) = a_server(rustls::ALL_VERSIONS);
        let client = TlsClient::new(Tls::new().ca_pem(authority));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = std::thread::spawn(move || {
            let mut server =
                Server::new(ServerConnection::new(config).unwrap(), listener.accept().unwrap().0);
            server.conn.complete_io(&mut server.sock).unwrap();
            server.flush().unwrap();
            server
        });
        let long = Duration::from_secs(60);
        let deadline = Instant::now() + long;
        let network = Network::default();
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port };
        let stream = Stream::connect(&address, long, deadline, &network).unwrap();
        assert!(stream.server_certificate().is_none());
        let mut stream = stream.secure(&client, "localhost", deadline).unwrap();
        let mut server = accepted.join().unwrap();
        assert!(stream.server_certificate().is_some_and(|der| der.len() > 100));
        assert!(!stream.is_exposed() && !stream.has_input() && !stream.has_read_ahead());
        stream.set_timeouts(long, long).unwrap();
        let mut asked = |text: &[u8]| {
            let mut bytes = vec![0; text.len()];
            server.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, text);
            server.write_all(b"+OK").unwrap();
        };
        let mut bytes = [0; 8];
        stream.within(deadline).write_all(b"HELLO").unwrap();
        asked(b"HELLO");
        assert_eq!(stream.within(deadline).read(&mut bytes).unwrap(), 3);
        stream.twin().write_all(b"PING").unwrap();
        asked(b"PING");
        wait_until(|| stream.has_input());
        assert!(stream.has_read_ahead(), "poll does not report it any more");
        let waker = Waker::new().unwrap();
        assert_eq!(stream.until_woken(&waker, long).read(&mut bytes).unwrap(), 3);
        stream.write_all(b"GET").unwrap();
        asked(b"GET");
        assert_eq!(stream.until(deadline).read(&mut bytes).unwrap(), 3);
        let nothing = stream.now().read(&mut bytes).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let counts = network.traffic.counts();
        assert_eq!((counts.opened, counts.sent, counts.received), (1, 12, 9), "without TLS's own");
        stream.shutdown();
        assert_eq!(stream.read(&mut bytes).unwrap(), 0);
        assert_eq!(network.traffic.counts().broken, 0);
    }
}
