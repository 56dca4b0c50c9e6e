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
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let config =
        config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
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
