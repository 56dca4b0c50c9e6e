//! Servers that cannot be reached, or stop answering.

use std::os::unix::net::UnixListener;
use std::time::Instant;

use leasehold::ErrorKind;

use super::fake_server::{Fake, bounded};
use super::{LEASE, SECRET, SOON, all_methods_fail, client, fails, nothing_left, settings, works};
use crate::rig::{Proxy, Server, wait_until};

#[test]
fn a_missing_server_is_reported_at_once() {
    let server = Server::start();
    let dead = server.dir().join("dead");
    drop(UnixListener::bind(&dead).unwrap());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for url in [
        "redis+unix:///nonexistent/socket".to_owned(),
        format!("redis+unix://{}", dead.display()),
        format!("redis://127.0.0.1:{port}/"),
    ] {
        fails(ErrorKind::Unreachable, None, "no server listens at", || settings(&url).build());
        let lazy = settings(&url).connect_lazily().build().unwrap();
        all_methods_fail(&lazy, "job", ErrorKind::Unreachable, "no server listens at");
    }
    // A file that is not a socket.
    let file = server.dir().join("file");
    std::fs::write(&file, "").unwrap();
    fails(ErrorKind::Unreachable, None, "", || {
        settings(&format!("redis+unix://{}", file.display())).build()
    });
}

#[test]
fn a_server_that_accepts_and_says_nothing_is_unreachable() {
    let fake = Fake::saying(b"");
    fails(ErrorKind::Unreachable, None, "io_timeout", || settings(&fake.url()).build());
    let lazy = settings(&fake.url()).connect_lazily().build().unwrap();
    all_methods_fail(&lazy, "job", ErrorKind::Unreachable, "io_timeout");
    drop(lazy);
    fake.assert_left();

    // The connection is not even accepted: it stays in the kernel's queue.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://127.0.0.1:{}/", listener.local_addr().unwrap().port());
    fails(ErrorKind::Unreachable, None, "io_timeout", || settings(&url).build());
    let url = format!("redis://:{SECRET}@127.0.0.1:{}/", listener.local_addr().unwrap().port());
    fails(ErrorKind::Unreachable, None, "io_timeout", || settings(&url).build());
}

/// The message says what did not answer, after how long, and which setting that is, rather than the
/// system's words for a read that timed out ("Resource temporarily unavailable").
#[test]
fn a_timeout_says_after_how_long_and_by_which_setting() {
    let says = |error: leasehold::Error, address: &str, after: &str| {
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{text}");
        for word in ["did not answer within", after, "io_timeout", address] {
            assert!(text.contains(word), "no {word:?}: {text}");
        }
        assert!(!text.contains("os error"), "{text}");
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut urls = vec![format!("redis://{address}/")];
    if cfg!(feature = "postgres") {
        urls.push(format!("postgres://me@{address}/db?sslmode=disable"));
    }
    if cfg!(feature = "zookeeper") {
        urls.push(format!("zookeeper://{address}/locks"));
    }
    for url in urls {
        let builder = leasehold::LockClient::builder()
            .url(&url)
            .io_timeout(std::time::Duration::from_millis(187));
        // The servers of an ensemble share the time.
        let after = if url.starts_with("zookeeper") { "ms" } else { "187ms" };
        says(builder.build().unwrap_err(), &address, after);
    }

    for server in [Server::start(), Server::start_tcp(&[])] {
        let builder = leasehold::LockClient::builder().url(server.url());
        let builder = builder.io_timeout(std::time::Duration::from_millis(187));
        let client = builder.connect_lazily().build().unwrap();
        wait_until("it works", || client.lock("job").is_ok());
        server.suspend();
        let error = client.try_lock("job").unwrap_err();
        server.resume();
        says(error, "", "187ms");
    }
}

/// A connect to a Unix socket whose queue is full blocks, and has no timeout of its own.
#[test]
fn a_server_whose_queue_is_full_is_unreachable_within_the_timeout() {
    let server = Server::start_with(&["--tcp-backlog", "1"]);
    let client = client(&server);
    works(&client, "job");
    server.suspend();
    let (url, handle) = (server.url(), client.clone());
    let returned = bounded(move || {
        for _ in 0..5 {
            fails(ErrorKind::Unreachable, None, "", || settings(&url).build());
            fails(ErrorKind::Unreachable, Some("job"), "", || handle.try_lock("job"));
        }
    });
    server.resume();
    assert_eq!(returned, Some(()), "a connect blocks beyond its timeout");
    nothing_left(&server);
    wait_until("the lock can be acquired", || {
        client.try_lock("job").is_ok_and(|guard| guard.is_some())
    });
}

#[test]
fn a_server_that_falls_silent_is_unreachable_and_the_client_recovers() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = settings(&proxy.url()).build().unwrap();
    let guard = client.lock("held").unwrap();
    works(&client, "job");
    proxy.silence(true);
    all_methods_fail(&client, "job", ErrorKind::Unreachable, "io_timeout");
    fails(ErrorKind::Unreachable, Some("held"), "io_timeout", || guard.unlock());
    fails(ErrorKind::Unreachable, None, "io_timeout", || settings(&proxy.url()).build());
    proxy.silence(false);
    nothing_left(&server);
    wait_until("the client works again", || {
        client.try_lock("job").is_ok_and(|guard| guard.is_some())
    });
    // The same with connections that are closed immediately.
    proxy.refuse(true);
    proxy.cut_all();
    all_methods_fail(&client, "job", ErrorKind::Unreachable, "");
    proxy.refuse(false);
    works(&client, "job");
    nothing_left(&server);
    drop((client, proxy));
    server.assert_clean();
}

#[test]
fn a_server_that_dies_between_two_calls_and_comes_back() {
    let mut server = Server::start();
    let client = client(&server);
    for round in 0..3 {
        works(&client, "job");
        let guard = client.lock("held").unwrap();
        server.kill();
        all_methods_fail(&client, "job", ErrorKind::Unreachable, "no server listens at");
        fails(ErrorKind::Unreachable, Some("held"), "", || client.mutex("held").holder());
        fails(ErrorKind::Unreachable, Some("held"), "", || guard.extend(LEASE * 2));
        if round == 0 {
            fails(ErrorKind::Unreachable, Some("held"), "", || guard.unlock());
        } else {
            drop(guard);
        }
        server.start_again();
        works(&client, "job");
        works(&client, "held");
        nothing_left(&server);
    }
    drop(client);
    server.assert_clean();
}

/// Dropping the client while the server does not answer must not hang, and the server has no
/// leftovers once it is back.
#[test]
fn a_client_that_is_dropped_while_the_server_is_away_leaves_no_thread() {
    let server = Server::start();
    let client = settings(&server.url()).client_name("away").build().unwrap();
    let guard = client.lock("held").unwrap();
    server.suspend();
    let start = Instant::now();
    drop((guard, client));
    assert!(start.elapsed() < SOON * 2, "{:?}", start.elapsed());
    server.resume();
    wait_until("its connections are gone", || {
        server.client_lines().iter().all(|line| !line.contains("name=away"))
    });
}

/// It sends this to every connection from another machine, and closes it.
#[test]
fn a_server_in_protected_mode_says_why_it_refuses() {
    let fake = Fake::start(|mut stream| {
        let _ = std::io::Write::write_all(
            &mut stream,
            b"-DENIED Redis is running in protected mode\r\n",
        );
    });
    fails(ErrorKind::Denied, None, "running in protected mode", || settings(&fake.url()).build());
    let diagnosis = settings(&fake.url()).connect_lazily().build().unwrap().diagnose();
    assert!(diagnosis.to_string().contains("running in protected mode"), "{diagnosis}");
    fake.assert_left();
}
