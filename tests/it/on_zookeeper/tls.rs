//! TLS: which servers are trusted, what errors say about the others, and that everything else is
//! unchanged.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use leasehold::{Builder, Error, ErrorKind, LockClient, Tls};

use super::{LONG, SETTINGS, children, client, server};
use crate::rig::zookeeper::{Pipe, ZooKeeper};
use crate::rig::{CAP, Certificates, Identity, ms, wait_until};
use crate::tls::wire::{Toward, Wire};

/// A Java server that has just started takes seconds for its first handshake.
const IO_TIMEOUT: Duration = ms(9000);

/// A generous bound for "within the I/O timeout" on a busy machine.
const SOON: Duration = Duration::from_secs(20);

fn start(certificates: &Certificates, identity: &Identity, settings: &str) -> ZooKeeper {
    ZooKeeper::start_tls(
        certificates,
        identity,
        &format!("{SETTINGS}\nssl.clientAuth=none\n{settings}"),
    )
}

fn trusting(certificates: &Certificates) -> Tls {
    Tls::new().ca_file(certificates.ca_file())
}

fn settings(url: &str, tls: Tls) -> Builder {
    LockClient::builder().url(url).tls(tls).lease(LONG).io_timeout(IO_TIMEOUT)
}

fn open(url: &str, tls: Tls) -> LockClient {
    settings(url, tls).build().unwrap()
}

/// Creating a client fails soon, with this kind of error, and so does a call of a client that
/// connects lazily. The message contains each of `says`.
#[track_caller]
fn refused(kind: ErrorKind, says: &[&str], builder: impl Fn() -> Builder) -> Error {
    let start = Instant::now();
    let error = builder().build().unwrap_err();
    assert!(start.elapsed() < SOON, "it took {:?}: {error:?}", start.elapsed());
    assert_eq!(error.kind(), kind, "{error:?}");
    for says in says {
        assert!(error.to_string().contains(says), "{error} does not say {says:?}");
    }
    let lazy = builder().connect_lazily().build().unwrap();
    let later = lazy.try_lock("job").unwrap_err();
    assert_eq!((later.kind(), later.name()), (kind, Some("job")), "{later}");
    assert!(!format!("{error:?} {later:?}").contains("PRIVATE KEY"), "{error:?}");
    error
}

#[track_caller]
fn works(client: &LockClient) {
    let guard = client.try_lock("job").unwrap().expect("no other client has it");
    assert!(guard.is_held());
    guard.unlock().unwrap();
}

#[test]
fn locks_waits_and_tokens_are_those_without_tls() {
    let certificates = Certificates::new();
    let server = server!(start(&certificates, certificates.server(), ""));
    let by_name = server.secure_url().replace("127.0.0.1", "localhost");
    let text = std::fs::read(certificates.ca_file()).unwrap();
    let clients = [
        open(&server.secure_url(), trusting(&certificates)),
        open(&by_name, Tls::new().ca_pem(text)),
        open(&server.secure_url(), trusting(&certificates).server_name("localhost")),
        client(&server),
    ];
    let guard = clients[0].lock("job").unwrap();
    let mut tokens = vec![guard.fencing_token().unwrap().get()];
    assert!(clients[1].try_lock("job").unwrap().is_none());
    std::thread::scope(|s| {
        for (n, client) in clients.iter().enumerate().skip(1) {
            s.spawn(|| client.fair("job").lock().unwrap().unlock().unwrap());
            wait_until("it waits", || clients[0].fair("job").queue_len().unwrap() == n);
        }
        let next =
            s.spawn(|| clients[0].fair("job").lock().unwrap().fencing_token().unwrap().get());
        wait_until("it waits", || clients[0].fair("job").queue_len().unwrap() == 4);
        guard.unlock().unwrap();
        tokens.push(next.join().unwrap());
    });
    assert!(tokens[1] > tokens[0], "{tokens:?}");
    clients[0].multi(["a", "b"]).lock().unwrap().unlock().unwrap();
    drop(clients);
    server.assert_clean();
}

/// More than fits into a record, in both directions.
#[test]
fn long_lists_come_whole() {
    let certificates = Certificates::new();
    let server = server!(start(&certificates, certificates.server(), ""));
    let client = open(&server.secure_url(), trusting(&certificates));
    client.semaphore("permits").try_set_permits(900).unwrap();
    let permits = client.semaphore("permits").acquire_many(900).unwrap();
    assert_eq!(client.semaphore("permits").available_permits().unwrap(), 0);
    drop(permits);
    client.semaphore("permits").delete().unwrap();
    drop(client);
    server.assert_clean();
}

#[test]
fn a_certificate_that_is_wrong_is_refused_with_the_reason() {
    let certificates = Certificates::new();
    let server = server!(start(&certificates, certificates.server(), ""));
    let refused_as = |says: &[&str], tls: Tls| {
        let error = refused(ErrorKind::Tls, says, || settings(&server.secure_url(), tls.clone()));
        assert!(
            error
                .to_string()
                .starts_with(server.secure_url().trim_start_matches("zookeeper+tls://")),
            "{error}"
        );
    };
    refused_as(&["authority", "ca_file"], Tls::new());
    refused_as(&["authority", "ca_file"], trusting(&Certificates::new()));
    let wrong: [(Identity, &[&str]); 4] = [
        (certificates.expired(), &["expired", "days ago", "clock"]),
        (certificates.other_name(), &["redis.example", "127.0.0.1", "server_name"]),
        (certificates.self_signed(), &["self-signed", "ca_file"]),
        (certificates.other_ca(), &["not trusted", "ca_file"]),
    ];
    for (identity, says) in wrong {
        server.present(&identity);
        server.restart();
        refused_as(says, trusting(&certificates));
        works(&open(&server.secure_url(), Tls::new().danger_accept_any_certificate()));
    }
    server.present(&certificates.other_name());
    server.restart();
    works(&open(&server.secure_url(), trusting(&certificates).server_name("redis.example")));
    server.assert_clean();
}

/// One good server is enough, and the problem of the other one is reported if none is.
#[test]
fn a_server_with_a_wrong_certificate_does_not_hide_a_good_one() {
    let certificates = Certificates::new();
    let good = server!(start(&certificates, certificates.server(), ""));
    let wrong = server!(start(&certificates, &certificates.other_name(), ""));
    let both = format!("{},127.0.0.1:{}", wrong.secure_url(), good.secure_port());
    for _ in 0..4 {
        works(&open(&both, trusting(&certificates)));
    }
    good.kill();
    refused(ErrorKind::Tls, &["redis.example", "no server listens"], || {
        settings(&both, trusting(&certificates))
    });
    wrong.assert_clean();
}

#[test]
fn a_port_without_tls_asked_in_tls_and_the_other_way_round() {
    let certificates = Certificates::new();
    let server = server!(start(&certificates, certificates.server(), ""));
    let with_tls = server.url().replace("zookeeper://", "zookeeper+tls://");
    refused(ErrorKind::Unreachable, &["TLS", "the URL is zookeeper://"], || {
        settings(&with_tls, trusting(&certificates))
    });
    let without = server.secure_url().replace("+tls", "");
    refused(ErrorKind::Unreachable, &["zookeeper+tls://"], || {
        LockClient::builder().url(&without).lease(LONG).io_timeout(IO_TIMEOUT)
    });
    let useless = settings(&server.url(), trusting(&certificates)).build().unwrap_err();
    assert_eq!(useless.kind(), ErrorKind::InvalidInput);
    assert!(useless.to_string().contains("zookeeper+tls://"), "{useless}");
    server.assert_clean();
}

/// A listener that sends nothing.
#[test]
fn a_port_that_is_silent_costs_one_io_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("zookeeper+tls://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let certificates = Certificates::new();
    // An eighth of it is for the thread that connects, to say what it waited for.
    let builder = || settings(&url, trusting(&certificates)).io_timeout(ms(2400));
    refused(ErrorKind::Unreachable, &["TLS handshake", "io_timeout", "zookeeper://"], builder);
}

#[test]
fn settings_that_cannot_work_are_refused_when_the_client_is_built() {
    let url = "zookeeper+tls://127.0.0.1:1";
    for (tls, says) in [
        (Tls::new().ca_file("/no/such.pem"), "/no/such.pem"),
        (Tls::new().ca_pem("no certificate"), "no certificate"),
        (Tls::new().server_name("no name"), "server_name"),
    ] {
        let error = settings(url, tls).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// `ssl.clientAuth=need`.
#[test]
fn a_server_that_asks_for_a_client_certificate_gets_one() {
    let certificates = Certificates::new();
    let (own, strange) = (certificates.client().clone(), Certificates::new());
    for version in ["TLSv1.3", "TLSv1.2"] {
        let asks =
            format!("ssl.clientAuth=need\nssl.protocol={version}\nssl.enabledProtocols={version}");
        let server = server!(ZooKeeper::start_tls(
            &certificates,
            certificates.server(),
            &format!("{SETTINGS}\n{asks}")
        ));
        let [first, other] = [(); 2].map(|()| {
            open(
                &server.secure_url(),
                trusting(&certificates).identity_files(&own.certificate, &own.key),
            )
        });
        let guard = first.lock("job").unwrap();
        std::thread::scope(|s| {
            let waits = s.spawn(|| other.lock("job").unwrap().unlock());
            wait_until("it waits", || first.fair("job").queue_len().unwrap() == 1);
            guard.unlock().unwrap();
            waits.join().unwrap().unwrap();
        });
        drop((first, other));
        let url = server.secure_url();
        for _ in 0..5 {
            refused(ErrorKind::Tls, &["asks for a client certificate", "identity_files"], || {
                settings(&url, trusting(&certificates))
            });
            refused(ErrorKind::Tls, &["refused the client certificate"], || {
                let strange = strange.client();
                settings(
                    &url,
                    trusting(&certificates).identity_files(&strange.certificate, &strange.key),
                )
            });
        }
        server.assert_clean();
    }
}

/// The session continues over the next connection, with its holds and queue entries.
#[test]
fn a_connection_that_ends_is_resumed() {
    let certificates = Certificates::new();
    let server = server!(start(&certificates, certificates.server(), ""));
    let pipe = Pipe::to(server.secure_port());
    let client =
        open(&format!("zookeeper+tls://127.0.0.1:{}", pipe.port()), trusting(&certificates));
    let other = open(&server.secure_url(), trusting(&certificates));
    let (guard, theirs) = (client.lock("job").unwrap(), other.lock("theirs").unwrap());
    let mut look = server.raw();
    std::thread::scope(|s| {
        let waits = s.spawn(|| client.fair("theirs").lock().map(|guard| guard.unlock()));
        wait_until("it waits", || children(&mut look, "/theirs").len() == 2);
        let places = children(&mut look, "/theirs");
        // Replies arrive in order, so one that has been told to wait knows of it now.
        works_on(&client);
        let sessions = server.sessions();
        for _ in 0..3 {
            // Cuts all connections.
            pipe.silence(false);
            wait_until("it is back", || client.mutex("job").holder().is_ok());
            assert!(guard.is_held());
        }
        pipe.silence(true);
        std::thread::sleep(ms(200));
        pipe.silence(false);
        wait_until("it is back", || client.mutex("job").holder().is_ok());
        assert!(guard.is_held());
        assert_eq!(children(&mut look, "/theirs"), places);
        assert_eq!(server.sessions(), sessions, "no new session is created");
        theirs.unlock().unwrap();
        waits.join().unwrap().unwrap().unwrap();
    });
    look.close();
    // Also with another certificate of the same authority.
    server.present(&certificates.renewed());
    server.restart();
    wait_until("it is back", || client.mutex("job").holder().is_ok());
    assert!(guard.is_held());
    guard.unlock().unwrap();
    drop((client, other));
    server.assert_clean();
}

fn works_on(client: &LockClient) {
    client.lock("another").unwrap().unlock().unwrap();
}

/// Cut, or silent from a byte on, in the handshakes and in calls.
#[test]
fn a_connection_that_breaks_at_any_byte_leaves_nothing_behind() {
    let certificates = Certificates::new();
    let server = server!(start(&certificates, certificates.server(), ""));
    let wire = Wire::to_port(server.secure_port());
    let url = format!("zookeeper+tls://127.0.0.1:{}", wire.port());
    let mut met = 0;
    works(&open(&server.secure_url(), trusting(&certificates)));
    for toward in [Toward::Client, Toward::Server] {
        for at in (1..40).chain((40..).step_by(61)) {
            wire.cut_at(toward, at);
            // A session whose creation was not confirmed is not ended by any client.
            let built = settings(&url, trusting(&certificates))
                .lease(ms(6000))
                .io_timeout(ms(5900))
                .build();
            if wire.repair() {
                works(&built.unwrap());
                assert!(at > 400, "a handshake has more than {at} bytes");
                break;
            }
            met += 1;
            if let Err(error) = built {
                assert_eq!(error.kind(), ErrorKind::Unreachable, "{toward:?} {at}: {error:?}");
            }
        }
    }
    assert!(met > 80, "{met}");
    let client = open(&url, trusting(&certificates));
    let mut look = server.raw();
    for toward in [Toward::Client, Toward::Server] {
        for at in (1..12).chain((12..60).step_by(4)).chain((60..500).step_by(31)) {
            wait_until("it works", || client.try_lock("job").is_ok_and(|won| won.is_some()));
            wire.cut_at(toward, at);
            match client.try_lock("job") {
                Ok(guard) => drop(guard.expect("no other client has it").unlock()),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unreachable, "{toward:?} {at}: {error:?}");
                }
            }
            wire.repair();
            wait_until("nothing is left", || children(&mut look, "/job").is_empty());
        }
    }
    look.close();
    for (toward, at) in
        [(Toward::Client, 1), (Toward::Client, 40), (Toward::Server, 1), (Toward::Server, 90)]
    {
        // Long enough for a handshake with a busy machine's Java.
        let client = settings(&url, trusting(&certificates)).io_timeout(ms(2000)).build().unwrap();
        wire.silent_at(toward, at);
        let start = Instant::now();
        let error = client.try_lock("job").unwrap_err();
        assert!(start.elapsed() < SOON, "{toward:?} {at}: {:?}", start.elapsed());
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        wire.repair();
        let start = Instant::now();
        wait_until("it works", || client.try_lock("job").is_ok_and(|won| won.is_some()));
        assert!(start.elapsed() < CAP);
        // While the wire is there: a session that cannot be told its end lasts for its lease.
        client.close(CAP).unwrap();
    }
    client.close(CAP).unwrap();
    drop(wire);
    server.assert_clean();
}
