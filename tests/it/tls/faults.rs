//! TLS connections that break, hang, or deliver their bytes in odd pieces.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient, Redlock, ReentrantMutexGuard, Tls};

use super::wire::{Toward, Wire};
use super::{IO_TIMEOUT, LEASE, SOON, client, settings, trusting, works};
use crate::rig::{Certificates, Child, Fault, Proxy, Server, TlsFront, ms, wait_until};
use crate::support::{Clients, Masters, wait_for_votes};

/// The connections that the server has accepted so far.
fn accepted(server: &Server) -> u64 {
    server.info("stats", "total_connections_received").parse().unwrap()
}

#[test]
fn a_handshake_that_is_cut_at_any_byte_is_an_error_and_the_next_one_works() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    let wire = Wire::to(&server);
    let builder = || settings(&wire.url(), trusting(&certificates));
    for toward in [Toward::Client, Toward::Server] {
        // Each byte of the first records, and then every 97th.
        let points = (1..120).chain((120..).step_by(97));
        for at in points {
            wire.cut_at(toward, at);
            let built = builder().build();
            if wire.repair() {
                works(&built.unwrap());
                assert!(at > 1000, "a handshake has more than {at} bytes");
                break;
            }
            let Err(error) = built else { continue };
            assert!(matches!(error.kind(), ErrorKind::Unreachable), "{toward:?} {at}: {error:?}");
        }
    }
    works(&builder().build().unwrap());
    wait_until("the server has closed all connections", || server.client_lines().len() == 1);
    server.assert_clean();
}

#[test]
fn a_call_that_is_cut_at_any_byte_is_undone_or_repeated() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    let wire = Wire::to(&server);
    let client = settings(&wire.url(), trusting(&certificates)).connections(1).build().unwrap();
    for toward in [Toward::Client, Toward::Server] {
        for at in (1..60).chain((60..400).step_by(31)) {
            works(&client);
            wire.cut_at(toward, at);
            match client.try_lock("job") {
                Ok(guard) => drop(guard.expect("no other client has it")),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unreachable, "{toward:?} {at}: {error:?}");
                }
            }
            wire.repair();
            wait_until("nothing is left", || server.lock_keys().is_empty());
        }
    }
    drop(client);
    server.assert_clean();
}

#[test]
fn an_end_that_falls_silent_costs_one_io_timeout() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    let wire = Wire::to(&server);
    let builder = || settings(&wire.url(), trusting(&certificates)).io_timeout(ms(1500));
    for (toward, at) in
        [(Toward::Client, 1), (Toward::Client, 700), (Toward::Server, 1), (Toward::Server, 250)]
    {
        wire.silent_at(toward, at);
        let start = Instant::now();
        let error = builder().build().unwrap_err();
        assert!(start.elapsed() < SOON, "{toward:?} {at}: {:?}", start.elapsed());
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(error.to_string().contains("io_timeout"), "{error}");
        wire.repair();
    }
    let client = builder().build().unwrap();
    works(&client);
    for (toward, at) in
        [(Toward::Client, 1), (Toward::Client, 20), (Toward::Server, 1), (Toward::Server, 40)]
    {
        wire.silent_at(toward, at);
        let start = Instant::now();
        let error = client.try_lock("job").unwrap_err();
        assert!(start.elapsed() < SOON, "{toward:?} {at}: {:?}", start.elapsed());
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        wire.repair();
        wait_until("nothing is left", || server.lock_keys().is_empty());
        works(&client);
    }
}

/// Every byte would restart a plain socket timeout.
#[test]
fn bytes_that_trickle_extend_no_deadline() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    let wire = Wire::to(&server);
    let client =
        settings(&wire.url(), trusting(&certificates)).io_timeout(ms(1500)).build().unwrap();
    works(&client);
    wire.trickle(120);
    let start = Instant::now();
    let error = client.try_lock("job").unwrap_err();
    assert!(error.to_string().contains("io_timeout"), "{error}");
    let error =
        settings(&wire.url(), trusting(&certificates)).io_timeout(ms(1500)).build().unwrap_err();
    assert!(error.to_string().contains("io_timeout"), "{error}");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    wire.trickle(0);
    wait_until("nothing is left", || server.lock_keys().is_empty());
}

/// TLS 1.3 sends session tickets right after the handshake: bytes without a request, which must not
/// end the connection.
#[test]
fn idle_connections_are_used_again() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    for versions in ["TLSv1.3", "TLSv1.2"] {
        server.cmd::<()>(&["CONFIG", "SET", "tls-protocols", versions]);
        let client = client(&server, trusting(&certificates));
        works(&client);
        let before = accepted(&server);
        for _ in 0..5 {
            std::thread::sleep(ms(20));
            works(&client);
        }
        let asked = accepted(&server) - before;
        assert_eq!(asked, 1, "only the connection that asks");
    }
}

#[test]
fn replies_in_tiny_records_and_in_large_ones_are_whole() {
    let certificates = Certificates::new();
    let server = Server::start();
    let front = TlsFront::start(&certificates, server.socket());
    for bytes in [1, 7, 5000, 0] {
        front.send_in_pieces_of(bytes);
        let client = settings(&front.url(), trusting(&certificates))
            .io_timeout(IO_TIMEOUT * 5)
            .build()
            .unwrap();
        works(&client);
        let guard = client.lock("held").unwrap();
        wakes_up(&server, &front.url(), trusting(&certificates), guard);
    }
    server.assert_clean();
}

/// An unsolicited frame is detected although it is encrypted.
#[test]
fn a_stray_frame_costs_the_connection() {
    let certificates = Certificates::new();
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let front = TlsFront::of(&certificates, &proxy);
    let other = server.client();
    let _held = other.lock("held").unwrap();
    let client = settings(&front.url(), trusting(&certificates)).connections(1).build().unwrap();
    for frame in [&b":7\r\n"[..], b"$3\r\nabc\r\n", b"-ERR x\r\n"] {
        let guard = client.try_lock("free").unwrap().unwrap();
        proxy.inject("free", Fault::StrayAfter(frame, ms(10)));
        guard.unlock().unwrap();
        wait_until("the frame is under way", || proxy.is_at_rest());
        std::thread::sleep(ms(100));
        for _ in 0..10 {
            assert!(client.try_lock("held").unwrap().is_none(), "another client has it");
            client.try_lock("free2").unwrap().expect("it is free").unlock().unwrap();
        }
    }
}

/// A waiter behind thousands of messages, in records larger than a read, gets the lock.
#[track_caller]
fn wakes_up(server: &Server, url: &str, tls: Tls, guard: ReentrantMutexGuard) {
    let client = settings(url, tls).io_timeout(IO_TIMEOUT * 5).build().unwrap();
    let start = Instant::now();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.lock("held").unwrap().unlock());
        wait_until("the waiter has subscribed", || !server.channels().is_empty());
        let mut burst = redis::pipe();
        for channel in server.channels() {
            for _ in 0..3000 {
                // Wakes nobody.
                burst.cmd("PUBLISH").arg(&channel).arg("00").ignore();
            }
        }
        burst.exec(&mut server.connect()).unwrap();
        guard.unlock().unwrap();
        waiter.join().unwrap().unwrap();
    });
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn a_waiter_is_woken_behind_a_burst_of_messages() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    let client = client(&server, trusting(&certificates));
    wakes_up(&server, &server.url(), trusting(&certificates), client.lock("held").unwrap());
    drop(client);
    server.assert_clean();
}

#[test]
fn a_server_that_restarts_or_hangs_is_ridden_out() {
    let certificates = Certificates::new();
    let mut server =
        Server::start_tls(&certificates, &["--appendonly", "yes", "--appendfsync", "always"]);
    // Its record would stay for a lease if it was written while the server hangs.
    let client =
        || settings(&server.url(), trusting(&certificates)).announce_owner(false).build().unwrap();
    let [holder, other] = [client(), client()];
    let guard = holder.lock("job").unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| other.lock("job").map(|guard| guard.unlock()));
        wait_until("the waiter has subscribed", || !server.channels().is_empty());
        server.restart();
        guard.ensure_held().unwrap();
        // Its idle connections have ended; this needs a new one.
        holder.lock("else").unwrap().unlock().unwrap();
        server.suspend();
        let error = holder.try_lock("free").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
        server.resume();
        guard.unlock().unwrap();
        waiter.join().unwrap().unwrap().unwrap();
    });
    wait_until("the request of unknown outcome is undone", || server.lock_keys().is_empty());
    drop((holder, other));
    server.assert_clean();
}

#[test]
fn redlock_works_over_tls_with_a_master_that_hangs_or_dies() {
    let certificates = Certificates::new();
    let mut masters = Masters((0..3).map(|_| Server::start_tls(&certificates, &[])).collect());
    let build = || {
        let builder = LockClient::builder()
            .redlock(Redlock::new(masters.urls()).admit_fresh_nodes(true))
            .tls(trusting(&certificates));
        builder.io_timeout(IO_TIMEOUT).build()
    };
    let clients: Vec<LockClient> = (0..2).map(|_| build().unwrap()).collect();
    wait_for_votes(&clients[0], 3);
    wait_for_votes(&clients[1], 3);
    let counter = std::sync::atomic::AtomicU32::new(0);
    let count = || {
        std::thread::scope(|s| {
            for client in clients.iter().chain(&clients) {
                s.spawn(|| {
                    for _ in 0..10 {
                        let guard = client.lock("job").unwrap();
                        let old = counter.load(std::sync::atomic::Ordering::SeqCst);
                        std::thread::sleep(ms(1));
                        counter.store(old + 1, std::sync::atomic::Ordering::SeqCst);
                        guard.unlock().unwrap();
                    }
                });
            }
        });
    };
    count();
    masters.0[0].suspend();
    count();
    masters.0[0].resume();
    for client in &clients {
        wait_for_votes(client, 3);
    }
    masters.0[1].kill();
    count();
    assert_eq!(counter.into_inner(), 3 * 40);
    drop(clients);
    masters.0[1].start_again();
    masters.assert_clean();
}

/// An expired certificate costs one master.
#[test]
fn redlock_goes_on_without_a_master_whose_certificate_is_refused() {
    let certificates = Certificates::new();
    let masters = Masters((0..3).map(|_| Server::start_tls(&certificates, &[])).collect());
    let builder = || {
        LockClient::builder()
            .redlock(Redlock::new(masters.urls()).admit_fresh_nodes(true))
            .tls(trusting(&certificates))
    };
    masters.0[1].present(&certificates.expired());
    let client = builder().build().unwrap();
    wait_for_votes(&client, 2);
    works(&client);
    let nodes = client.nodes();
    let error =
        nodes.iter().find_map(|node| node.last_error()).expect("the third reports why it is down");
    assert!(error.to_string().contains("expired"), "{error}");
    masters.0[1].present(certificates.server());
    wait_for_votes(&client, 3);
    works(&client);
    for server in &masters.0 {
        server.present(&certificates.expired());
    }
    let error = builder().build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
    drop(client);
    masters.assert_clean();
}

#[test]
fn a_server_with_too_many_clients_is_named_among_the_reasons() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    let mut other = server.connect();
    redis::cmd("CONFIG").arg(&["SET", "maxclients", "1"]).exec(&mut other).unwrap();
    let error = settings(&server.url(), trusting(&certificates)).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    assert!(error.to_string().contains("maxclients"), "{error}");
}

/// A socket with a part of a record has nothing to read yet.
#[test]
fn redlock_does_not_wait_for_a_record_that_trickles() {
    let certificates = Certificates::new();
    let masters = Masters((0..3).map(|_| Server::start_tls(&certificates, &[])).collect());
    let wire = Wire::to(&masters.0[0]);
    let urls = [wire.url(), masters.0[1].url(), masters.0[2].url()];
    let builder = LockClient::builder()
        .redlock(Redlock::new(urls).admit_fresh_nodes(true))
        .tls(trusting(&certificates));
    let client = builder.lease(LEASE).io_timeout(IO_TIMEOUT * 2).build().unwrap();
    wait_for_votes(&client, 3);
    works(&client);
    wire.trickle(300);
    let start = Instant::now();
    works(&client);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    wire.trickle(0);
    wait_for_votes(&client, 3);
    drop(client);
    masters.assert_clean();
}

/// The replies of all masters arrive in records of one byte: none of them may be waited for alone.
#[test]
fn redlock_gathers_replies_that_come_in_tiny_records() {
    let certificates = Certificates::new();
    let masters = Masters::fresh(3);
    let fronts: Vec<_> =
        masters.0.iter().map(|server| TlsFront::start(&certificates, server.socket())).collect();
    let urls: Vec<String> = fronts.iter().map(TlsFront::url).collect();
    let client = LockClient::builder().redlock(Redlock::new(urls)).tls(trusting(&certificates));
    let client = client.lease(Duration::from_secs(60)).io_timeout(IO_TIMEOUT * 5).build().unwrap();
    wait_for_votes(&client, 3);
    for bytes in [1, 3, 0] {
        for front in &fronts {
            front.send_in_pieces_of(bytes);
        }
        for _ in 0..20 {
            works(&client);
        }
    }
    drop(client);
    masters.assert_clean();
}

/// A process that is suspended while it waits for a reply finds that its timeout has passed and the
/// reply has arrived.
#[test]
fn a_client_that_was_stopped_finds_its_reply() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    let (url, ca) = (server.url(), certificates.ca_file());
    let env = [("LEASEHOLD_TEST_URL", &*url), ("LEASEHOLD_TEST_CA", ca.to_str().unwrap())];
    let mut child = Child::spawn("tls::faults::asking_process", &env);
    child.expect("ready");
    server.suspend();
    child.say("ask");
    child.expect("asks");
    std::thread::sleep(ms(1000));
    child.signal("STOP");
    server.resume();
    wait_until("the server has answered", || !server.lock_keys().is_empty());
    std::thread::sleep(ms(5000));
    child.signal("CONT");
    assert_eq!(child.expect("got="), "true");
    child.wait();
}

#[test]
#[ignore = "a program for other tests"]
fn asking_process() {
    let (url, ca) =
        (std::env::var("LEASEHOLD_TEST_URL").unwrap(), std::env::var("LEASEHOLD_TEST_CA").unwrap());
    let client = settings(&url, Tls::new().ca_file(ca)).io_timeout(ms(5000)).build().unwrap();
    works(&client);
    println!("@@ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    println!("@@asks");
    let guard = client.try_lock("job");
    println!("@@got={}", guard.is_ok_and(|guard| guard.is_some()));
}

#[test]
fn a_fork_owns_nothing_and_writes_nothing() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    let (url, ca) = (server.url(), certificates.ca_file());
    let env = [("LEASEHOLD_TEST_URL", &*url), ("LEASEHOLD_TEST_CA", ca.to_str().unwrap())];
    let mut child = Child::spawn("tls::faults::forking_process", &env);
    assert_eq!(child.expect("child "), "held=false lock=Forked");
    let before = {
        child.expect("child ended");
        accepted(&server)
    };
    child.say("go on");
    assert_eq!(child.expect("parent "), "held=true");
    let asked = accepted(&server) - before;
    assert_eq!(asked, 1, "the parent's connections still work: only the one that asks is new");
    child.say("end");
    child.wait();
    server.assert_clean();
}

#[test]
#[ignore = "a program for other tests"]
fn forking_process() {
    let (url, ca) =
        (std::env::var("LEASEHOLD_TEST_URL").unwrap(), std::env::var("LEASEHOLD_TEST_CA").unwrap());
    let client = settings(&url, Tls::new().ca_file(ca)).build().unwrap();
    let guard = client.lock("job").unwrap();
    let mut lines = std::io::stdin().lines();
    match fork::fork().unwrap() {
        fork::Fork::Child => {
            let lock = client.try_lock("other").map_err(|e| e.kind());
            println!("@@child held={} lock={:?}", guard.is_held(), lock.unwrap_err());
            // A close_notify of TLS on the parent's socket would end its connections.
            drop(guard);
            drop(client);
            std::process::exit(0);
        }
        fork::Fork::Parent(pid) => {
            let _ = fork::waitpid(pid);
            println!("@@child ended");
            lines.next();
            for _ in 0..3 {
                client
                    .try_lock("again")
                    .unwrap()
                    .expect("no other client has it")
                    .unlock()
                    .unwrap();
            }
            println!("@@parent held={}", guard.is_held());
            lines.next();
            guard.unlock().unwrap();
        }
    }
}
