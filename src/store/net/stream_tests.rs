use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::waits::readable;
use super::*;

/// Its queue is full, so the kernel drops new connections, like a firewall.
fn swallows_connects() -> (socket2::Socket, SocketAddr, Vec<TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let fillers = std::iter::from_fn(connect).collect();
    (socket, address, fillers)
}

#[test]
fn the_addresses_of_a_host_share_one_deadline() {
    let full = swallows_connects();
    let live = TcpListener::bind("127.0.0.1:0").unwrap();
    let deadline = Instant::now() + Duration::from_secs(9);
    let stream = connect_tcp(&[full.1, full.1, live.local_addr().unwrap()], deadline).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), live.local_addr().unwrap());
    assert!(Instant::now() < deadline);

    let start = Instant::now();
    let none = connect_tcp(&[full.1; 8], start + Duration::from_millis(400)).unwrap_err();
    assert_eq!(none.kind(), io::ErrorKind::TimedOut);
    assert!(start.elapsed() < Duration::from_millis(8 * 400), "{:?}", start.elapsed());
}

/// The kernel ends a connection when a probe is unanswered and the user timeout has passed
/// since the last sign of the peer.
#[test]
fn an_idle_connection_outlives_lost_keepalive_probes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address =
        Address::Tcp { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
    for (io_timeout, at_least) in
        [(2, 11), (60, 60)].map(|(io, least)| (Duration::from_secs(io), Duration::from_secs(least)))
    {
        let stream =
            Stream::connect(&address, io_timeout, Instant::now() + io_timeout, &Network::default())
                .unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        let first = socket.tcp_keepalive_time().unwrap();
        assert!(first + 3 * socket.tcp_keepalive_interval().unwrap() <= at_least);
        assert!(socket.tcp_user_timeout().unwrap().unwrap() >= at_least);
    }
}

/// A process that is stopped while it waits finds the deadline passed, and the reply in the
/// buffer.
#[test]
fn what_has_come_is_read_after_the_deadline() {
    let (mut server, client) = UnixStream::pair().unwrap();
    let mut stream = Stream::of_unix(client);
    stream.set_timeouts(Duration::from_millis(1), Duration::from_secs(1)).unwrap();
    let over = Instant::now();
    let mut reply = stream.until(over);
    assert!(is_timeout(&reply.read(&mut [0; 8]).unwrap_err()));
    server.write_all(b"+OK").unwrap();
    let mut bytes = [0; 8];
    assert_eq!((reply.read(&mut bytes).unwrap(), &bytes[..3]), (3, &b"+OK"[..]));
    assert!(is_timeout(&reply.read(&mut bytes).unwrap_err()), "and no more");
}

/// A stream over TCP and its other end, and what the client counts.
fn tcp() -> (Stream, TcpStream, Network) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = Address::Tcp { host: "127.0.0.1".into(), port };
    let network = Network::default();
    let stream = Stream::connect(&address, LONG, Instant::now() + LONG, &network).unwrap();
    (stream, listener.accept().unwrap().0, network)
}

/// The same over a unix socket.
fn unix() -> (Stream, UnixStream, Network) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::SeqCst);
    let file = format!("leasehold-{}-{number}.sock", std::process::id());
    let path = std::env::temp_dir().join(file);
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let network = Network::default();
    let address = Address::Unix(path.clone());
    let stream = Stream::connect(&address, LONG, Instant::now() + LONG, &network).unwrap();
    std::fs::remove_file(&path).unwrap();
    (stream, listener.accept().unwrap().0, network)
}

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a test needs of both kinds of socket.
trait Other: Read + Write + Send + 'static {}
impl<T: Read + Write + Send + 'static> Other for T {}

fn both() -> [(Stream, Box<dyn Other>, Network); 2] {
    let (tcp, other, network) = tcp();
    let (unix, other_end, network_of_unix) = unix();
    [(tcp, Box::new(other), network), (unix, Box::new(other_end), network_of_unix)]
}

fn read<R: Read>(mut from: R) -> io::Result<Vec<u8>> {
    let mut bytes = [0; 16];
    from.read(&mut bytes).map(|length| bytes[..length].to_vec())
}

#[test]
fn bytes_go_both_ways_and_are_counted() {
    for (mut stream, mut other, network) in both() {
        stream.set_timeouts(LONG, LONG).unwrap();
        stream.write_all(b"PING").unwrap();
        stream.flush().unwrap();
        let mut asked = [0; 4];
        other.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"PING");
        assert!(!stream.has_input() && !stream.has_read_ahead());
        other.write_all(b"+PONG").unwrap();
        wait_until("it has come", || stream.has_input());
        assert_eq!(read(&mut stream).unwrap(), b"+PONG");
        assert!(!stream.has_input());
        let counts = network.traffic.counts();
        assert_eq!((counts.opened, counts.sent, counts.received), (1, 4, 5));
        assert_eq!(counts.broken, 0);
        assert!(!stream.is_exposed(), "it does not leave this machine");
    }
}

/// What has not been sent yet when a connection is closed cannot run any more.
#[test]
fn a_connection_sends_at_once_and_is_closed_without_what_is_unsent() {
    let (stream, ..) = tcp();
    let socket = SockRef::from(&stream);
    assert!(socket.tcp_nodelay().unwrap());
    assert_eq!(socket.linger().unwrap(), Some(Duration::ZERO));
}

#[test]
fn a_twin_is_the_same_socket() {
    for (stream, mut other, network) in both() {
        let mut twin = stream.twin();
        drop(stream);
        twin.write_all(b"PING").unwrap();
        let mut asked = [0; 4];
        other.read_exact(&mut asked).unwrap();
        assert_eq!((network.traffic.counts().opened, network.traffic.counts().sent), (1, 4));
        drop(twin);
        assert_eq!(other.read(&mut asked).unwrap_or(0), 0, "it is closed with the last of them");
    }
}

#[test]
fn an_end_is_told_from_silence() {
    for (mut stream, other, network) in both() {
        let nothing = stream.read_now(&mut [0; 8]).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(network.traffic.counts().broken, 0, "silence is no end");
        drop(other);
        wait_until("the end is seen", || stream.has_input());
        assert_eq!(read(stream.now()).unwrap(), b"");
        assert_eq!(network.traffic.counts().broken, 1);
    }
}

#[test]
fn a_shutdown_ends_both_ways_and_is_no_failure() {
    for (mut stream, mut other, network) in both() {
        stream.shutdown();
        assert_eq!(other.read(&mut [0; 8]).unwrap(), 0);
        assert_eq!(read(&mut stream).unwrap(), b"");
        assert_eq!(network.traffic.counts().broken, 0, "this end closed it");
    }
}

#[test]
fn every_wait_ends_with_its_limit() {
    for (mut stream, _other, _) in both() {
        let limit = |e: io::Error| super::super::limits::no_answer(&e).unwrap();
        // The handshake names the I/O timeout, of which it has a part.
        let late = read(stream.within(Instant::now() + SHORT)).unwrap_err();
        assert!(limit(late).contains("within 60s"));
        let over = read(stream.within(Instant::now())).unwrap_err();
        assert!(is_timeout(&over));
        let over = stream.within(Instant::now()).write(b"x").unwrap_err();
        assert!(limit(over).contains("within 60s"));
        // Each reply has the limit of a write.
        stream.set_timeouts(SHORT, Duration::from_millis(30)).unwrap();
        let late = read(stream.until(Instant::now() + SHORT)).unwrap_err();
        assert!(limit(late).contains("within 30ms"));
        assert!(is_timeout(&read(&mut stream).unwrap_err()));
        // The other end reads nothing, until no buffer has room.
        let full = loop {
            if let Err(e) = stream.write(&[0; 1 << 16]) {
                break e;
            }
        };
        assert!(limit(full).contains("within 30ms"));
    }
}

#[test]
fn a_handshake_goes_on_within_its_deadline() {
    for (mut stream, mut other, _) in both() {
        stream.within(Instant::now() + LONG).write_all(b"HELLO").unwrap();
        stream.within(Instant::now() + LONG).flush().unwrap();
        let mut asked = [0; 5];
        other.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"HELLO");
        other.write_all(b"+OK").unwrap();
        assert_eq!(read(stream.within(Instant::now() + LONG)).unwrap(), b"+OK");
    }
}

/// Every byte would begin the timeout of the socket again.
#[test]
fn a_reply_that_comes_in_pieces_has_one_deadline() {
    for (mut stream, mut other, _) in both() {
        stream.set_timeouts(LONG, LONG).unwrap();
        other.write_all(b"+").unwrap();
        let deadline = Instant::now() + SHORT;
        assert_eq!(read(stream.until(deadline)).unwrap(), b"+");
        while Instant::now() < deadline {
            std::thread::yield_now();
        }
        // Now only what has arrived is read, whoever reads.
        let began = Instant::now();
        assert!(is_timeout(&read(stream.until(deadline)).unwrap_err()));
        assert!(began.elapsed() < LONG, "it has waited for the rest");
        other.write_all(b"OK").unwrap();
        let began = Instant::now();
        let rest = loop {
            match read(stream.until(deadline)) {
                Err(e) if is_timeout(&e) && began.elapsed() < LONG => {}
                rest => break rest,
            }
        };
        assert_eq!(rest.unwrap(), b"OK");
    }
}

#[test]
fn a_stream_that_does_not_block_says_so() {
    for (mut stream, mut other, _) in both() {
        stream.set_nonblocking().unwrap();
        let nothing = read(&mut stream).unwrap_err();
        assert!(is_timeout(&nothing));
        other.write_all(b"+OK").unwrap();
        wait_until("it has come", || stream.has_input());
        assert_eq!(read(&mut stream).unwrap(), b"+OK");
    }
}

#[test]
fn a_wait_ends_with_input_or_a_wake_up_or_its_time() {
    for (mut stream, mut other, _) in both() {
        let waker = Waker::new().unwrap();
        let is_nothing = |read: io::Result<Vec<u8>>| is_timeout(&read.unwrap_err());
        assert!(is_nothing(read(stream.until_woken(&waker, Duration::ZERO))));
        let began = Instant::now();
        assert!(is_nothing(read(stream.until_woken(&waker, SHORT))));
        assert!(began.elapsed() >= SHORT);
        waker.wake();
        assert!(is_nothing(read(stream.until_woken(&waker, LONG))));
        assert!(began.elapsed() < LONG);
        other.write_all(b"+OK").unwrap();
        assert_eq!(read(stream.until_woken(&waker, LONG)).unwrap(), b"+OK");
        other.write_all(b"+OK").unwrap();
        wait_until("it has come", || stream.has_input());
        assert_eq!(read(stream.until_woken(&waker, Duration::ZERO)).unwrap(), b"+OK");
    }
}

#[test]
fn the_first_of_several_streams_that_has_input_is_found() {
    let (first, mut other, _) = tcp();
    let (second, _silent, _) = unix();
    let ready = |timeout| readable(&[&first, &second], timeout);
    assert_eq!(ready(Duration::ZERO), [false, false]);
    let began = Instant::now();
    assert_eq!(ready(SHORT), [false, false]);
    assert!(began.elapsed() >= SHORT);
    other.write_all(b"x").unwrap();
    assert_eq!(ready(LONG), [true, false]);
    // So long a time does not fit into what the system takes.
    assert_eq!(ready(Duration::MAX), [true, false]);
}

#[test]
fn a_host_without_an_address_and_one_where_nobody_listens_are_told_apart() {
    let none = connect_tcp(&[], Instant::now() + LONG).unwrap_err();
    assert_eq!(none.kind(), io::ErrorKind::NotFound);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let refused = connect_tcp(&[address], Instant::now() + LONG).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    let late = Stream::connect(
        &Address::Tcp { host: "127.0.0.1".into(), port: address.port() },
        SHORT,
        Instant::now(),
        &Network::default(),
    );
    assert!(super::super::limits::no_answer(&late.err().unwrap()).unwrap().contains("20ms"));
    let missing = Address::Unix("/nowhere/leasehold.sock".into());
    let missing = Stream::connect(&missing, LONG, Instant::now() + LONG, &Network::default());
    assert_eq!(missing.err().unwrap().kind(), io::ErrorKind::NotFound);
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
#[test]
fn the_last_words_are_sent_or_not() {
    for (stream, mut other, _) in both() {
        stream.say_last(b"BYE");
        let mut said = [0; 3];
        other.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"BYE");
        drop(other);
        // Nobody cares.
        stream.say_last(b"BYE");
        stream.say_last(b"BYE");
    }
}

/// TLS can be begun only by the one that has the connection, before anybody else uses it.
#[cfg(feature = "tls-core")]
#[test]
fn a_stream_with_a_twin_cannot_have_tls() {
    let client = TlsClient::new(crate::base::tls::Tls::new());
    let deadline = Instant::now() + LONG;
    let (stream, ..) = unix();
    let error = stream.secure(&client, "localhost", deadline).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let (stream, ..) = tcp();
    assert!(stream.server_certificate().is_none());
    let _twin = stream.twin();
    let error = stream.secure(&client, "localhost", deadline).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

/// Whether no thread of the process runs; true on a system that does not show it.
fn all_threads_sleep(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    let stats = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")));
    stats.map(Result::unwrap_or_default).all(|stat| stat.contains(") S "))
}

/// On Linux a read with a timeout ends with EINTR then, although no signal is handled. The test
/// runs itself as the process that is stopped.
#[test]
fn a_process_that_is_stopped_while_it_waits_reads_on() {
    const PORT: &str = "LEASEHOLD_TEST_STOPPED";
    if let Ok(port) = std::env::var(PORT) {
        let address = Address::Tcp { host: "127.0.0.1".into(), port: port.parse().unwrap() };
        let deadline = Instant::now() + LONG;
        let mut stream = Stream::connect(&address, LONG, deadline, &Network::default()).unwrap();
        stream.set_timeouts(LONG, LONG).unwrap();
        stream.write_all(b"x").unwrap();
        assert_eq!(read(stream.until(deadline)).unwrap(), b"+OK");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let test = "store::net::stream::tests::a_process_that_is_stopped_while_it_waits_reads_on";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--quiet"])
        .env(PORT, listener.local_addr().unwrap().port().to_string())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut socket = listener.accept().unwrap().0;
    socket.read_exact(&mut [0]).unwrap();
    // It begins to wait, and is stopped.
    let begun = Instant::now();
    while !all_threads_sleep(child.id()) {
        assert!(begun.elapsed() < LONG);
    }
    for signal in ["-STOP", "-CONT"] {
        std::thread::sleep(SHORT);
        let pid = child.id().to_string();
        let sent = std::process::Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
    }
    std::thread::sleep(SHORT);
    socket.write_all(b"+OK").unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_rest_of_a_reply_is_waited_for_until_its_deadline() {
    for (mut stream, mut other, _) in both() {
        stream.set_timeouts(LONG, LONG).unwrap();
        let mut reply = stream.until(Instant::now() + LONG);
        other.write_all(b"+").unwrap();
        assert_eq!(read(&mut reply).unwrap(), b"+");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(SHORT);
                other.write_all(b"OK").unwrap();
            });
            assert_eq!(read(&mut reply).unwrap(), b"OK");
        });
    }
}
