//! Replies that are not in the Redis protocol, incomplete, or too slow.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use leasehold::ErrorKind;

use super::fake_server::{Fake, bounded, bulk};
use super::{IO_TIMEOUT, SECRET, fails, nothing_left, settings, works};
use crate::rig::{Fault, Proxy, Server, ms};

#[test]
fn a_server_that_does_not_speak_redis_is_reported_as_such() {
    for words in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\0\0\0\0\0\0\0\0\r\n",
        b"*x\r\n",
        &b"*1\r\n".repeat(100_000),
    ] {
        let fake = Fake::saying(words);
        let shown = String::from_utf8_lossy(&words[..words.len().min(20)]).into_owned();
        let url = fake.url();
        let e =
            bounded(move || settings(&url).build().unwrap_err()).expect("a result of some kind");
        assert_eq!(e.kind(), ErrorKind::Protocol, "{shown:?}: {e:?}");
        assert!(e.to_string().contains("does not speak the Redis protocol"), "{shown:?}: {e}");
        let lazy = settings(&fake.url()).connect_lazily().build().unwrap();
        fails(ErrorKind::Protocol, Some("job"), "Redis protocol", || lazy.try_lock("job"));
        fails(ErrorKind::Protocol, Some("job"), "Redis protocol", || lazy.lock("job"));
        drop(lazy);
        fake.assert_left();
    }
    // The reply of a TLS port.
    let fake = Fake::saying(b"\x15\x03\x03\x00\x02\x02\x50");
    fails(ErrorKind::Protocol, None, "but TLS", || settings(&fake.url()).build());
    fake.assert_left();
    // Valid RESP, but not what Redis replies.
    for answer in ["+OK\r\n", ":1\r\n", "*0\r\n", "$-1\r\n", "-ERR unknown command\r\n"] {
        let fake = Fake::answering(|_| answer.into());
        let e = settings(&fake.url()).build().unwrap_err();
        assert!(
            matches!(e.kind(), ErrorKind::Protocol | ErrorKind::Unsupported),
            "{answer:?}: {e:?}"
        );
        fake.assert_left();
    }
}

/// A TLS port does that, and so does twemproxy, at the first command that it does not know.
#[test]
fn what_closes_during_the_handshake_may_be_a_tls_port_or_a_proxy() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    // It reads first: bytes that nobody has read would end the connection by a reset.
    let closes = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 65536]).unwrap();
    });
    let error = fails(ErrorKind::Unreachable, None, "rediss://", || settings(&url).build());
    assert!(error.to_string().contains("a proxy that does not know a command"), "{error}");
    closes.join().unwrap();
}

#[test]
fn garbage_instead_of_a_reply_is_reported_and_the_client_recovers() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = settings(&proxy.url()).build().unwrap();
    for round in 1..4 {
        // Each round has its own names, because the undo that runs in the background also contains
        // the name of its lock.
        let (taking, giving, waiting) =
            (format!("taking{round}"), format!("giving{round}"), format!("waiting{round}"));
        proxy.inject(&taking, Fault::Garbage);
        fails(ErrorKind::Protocol, Some(&taking), "does not speak the Redis protocol", || {
            client.try_lock(&taking)
        });
        proxy.wait_hits(3 * round - 2);
        nothing_left(&server);
        works(&client, &taking);

        let guard = client.lock(&giving).unwrap();
        proxy.inject(&giving, Fault::Garbage);
        fails(ErrorKind::Protocol, Some(&giving), "does not speak the Redis protocol", || {
            guard.unlock()
        });
        nothing_left(&server);
        works(&client, &giving);

        // During a wait this is an outage like any other.
        let other = settings(&server.url()).build().unwrap();
        let guard = other.lock(&waiting).unwrap();
        proxy.inject_after(&waiting, 1, Fault::Garbage);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| client.lock(&waiting).and_then(|guard| guard.unlock()));
            proxy.wait_hits(3 * round);
            guard.unlock().unwrap();
            waiter.join().unwrap().unwrap();
        });
        nothing_left(&server);
    }
    drop((client, proxy));
    server.assert_clean();
}

/// Carries requests to the server, and what it says to the client by `pass`, until that is false.
fn carry(
    mut client: UnixStream,
    upstream: &Path,
    mut pass: impl FnMut(&mut UnixStream, &[u8]) -> bool,
) {
    let mut server = UnixStream::connect(upstream).unwrap();
    let (mut from_client, mut to_server) =
        (client.try_clone().unwrap(), server.try_clone().unwrap());
    let upward = std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(std::net::Shutdown::Both);
    });
    let mut chunk = vec![0; 1 << 16];
    while let Ok(n @ 1..) = server.read(&mut chunk)
        && pass(&mut client, &chunk[..n])
    {}
    let _ = upward.join();
}

#[test]
fn half_a_reply_and_then_silence_is_unreachable() {
    for half in
        [&b"$5\r\nhe"[..], b"+O", b"*2\r\n:1\r\n", b"$999999999999\r\nx", b"*2147483647\r\n"]
    {
        let fake = Fake::saying(half);
        let shown = String::from_utf8_lossy(half);
        let e = settings(&fake.url()).build().unwrap_err();
        assert!(
            matches!(e.kind(), ErrorKind::Unreachable | ErrorKind::Protocol),
            "{shown:?}: {e:?}"
        );
        fake.assert_left();
    }

    // Later in the conversation: once armed, the proxy passes three bytes of the next reply and
    // then nothing more.
    let server = Server::start();
    let (upstream, armed) = (server.socket(), Arc::new(AtomicBool::new(false)));
    let arm = armed.clone();
    let fake = Fake::start(move |client| {
        carry(client, &upstream, |client, reply| {
            let halved = armed.swap(false, Ordering::SeqCst);
            let _ = client.write_all(if halved { &reply[..reply.len().min(3)] } else { reply });
            !halved
        });
    });
    let client = settings(&fake.url()).build().unwrap();
    works(&client, "job");
    arm.store(true, Ordering::SeqCst);
    fails(ErrorKind::Unreachable, Some("job"), "io_timeout", || client.try_lock("job"));
    nothing_left(&server);
    works(&client, "job");
    let guard = client.lock("job").unwrap();
    arm.store(true, Ordering::SeqCst);
    fails(ErrorKind::Unreachable, Some("job"), "io_timeout", || guard.unlock());
    nothing_left(&server);
    works(&client, "job");
    drop(client);
    fake.assert_left();
    server.assert_clean();
}

/// Every byte restarts a plain socket timeout, and this reply has no end.
#[test]
fn a_reply_that_trickles_without_end_is_given_up() {
    let fake = Fake::start(|mut stream| {
        let mut byte = b"+";
        while stream.write_all(byte).is_ok() {
            byte = b"x";
            std::thread::sleep(ms(40));
        }
    });
    let url = fake.url();
    let returned = bounded(move || {
        drop(fails(ErrorKind::Unreachable, None, "io_timeout", || settings(&url).build()));
    });
    assert_eq!(returned, Some(()), "it continues to read");
    fake.assert_left();
}

/// The same after the handshake, over TCP, where a read has the timeout of the socket.
#[test]
fn a_reply_in_forty_pieces_is_given_up_soon() {
    let server = Server::start();
    let (upstream, armed) = (server.socket(), Arc::new(AtomicBool::new(false)));
    let pieces = Arc::new(AtomicU32::new(0));
    let (arm, sent) = (armed.clone(), pieces.clone());
    let fake = Fake::over_tcp(move |client| {
        carry(client, &upstream, |client, reply| {
            if !armed.swap(false, Ordering::SeqCst) {
                return client.write_all(reply).is_ok();
            }
            for piece in b"$99\r\n00000000000000000000000000000000000".chunks(1) {
                if client.write_all(piece).is_err() {
                    break;
                }
                sent.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(IO_TIMEOUT / 2);
            }
            false
        });
    });
    let client = settings(&fake.url()).build().unwrap();
    works(&client, "job");
    arm.store(true, Ordering::SeqCst);
    fails(ErrorKind::Unreachable, Some("job"), "io_timeout", || client.try_lock("job"));
    let pieces = pieces.load(Ordering::SeqCst);
    assert!(pieces < 10, "{pieces}");
    nothing_left(&server);
    works(&client, "job");
    drop(client);
    fake.assert_left();
    server.assert_clean();
}

/// The I/O timeout covers all replies of a handshake together.
#[test]
fn a_handshake_that_trickles_has_one_deadline() {
    // Each single reply is in time. A password is set too: the login shares the same deadline.
    let fake = Fake::answering(|words| {
        std::thread::sleep(IO_TIMEOUT * 3 / 4);
        match &*words[0] {
            "INFO" => bulk("redis_version:7.2.4"),
            "SCRIPT" => bulk("0123456789012345678901234567890123456789"),
            "TIME" => b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n".to_vec(),
            "EVALSHA" => b"*0\r\n".to_vec(),
            _ => b"+OK\r\n".to_vec(),
        }
    });
    for url in [fake.url(), format!("{}?db=2&user=u&pass={SECRET}", fake.url())] {
        // With a deadline for each reply none would be late.
        fails(ErrorKind::Unreachable, None, "io_timeout", || settings(&url).build());
    }
    fake.assert_left();
}
