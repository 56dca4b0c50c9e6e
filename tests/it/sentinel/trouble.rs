//! Sentinels that hang, are dead, reply nonsense, or are unreachable.

use std::collections::HashMap;
use std::io::Write;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use leasehold::observe::NodeState;
use leasehold::{ErrorKind, LockClient, Sentinel};

use super::{address, assert_left, builder, client, works};
use crate::rig::{
    MASTER_NAME, Sentinels, Server, free_port, logged, record_logs, sentinel_of, wait_until,
};

/// Long enough to be renewed on a busy machine.
const LONGER: Duration = Duration::from_secs(6);

/// Far longer than anything takes that does not wait for it.
const PATIENT: Duration = Duration::from_secs(10);

#[test]
fn one_that_hangs_or_is_dead_costs_nothing() {
    let mut rig = Sentinels::start();
    let patient = || builder(&rig).lease(PATIENT * 6).io_timeout(PATIENT);
    let start = Instant::now();
    rig.suspend_sentinel(0);
    let hangs = patient().build().unwrap();
    works(&hangs, "job");
    assert!(start.elapsed() < PATIENT, "{:?}", start.elapsed());
    // It also hangs during a subscription and a query.
    rig.resume_sentinel(0);
    works(&client(&rig), "job");
    rig.suspend_sentinel(0);
    rig.server(0).cmd::<u32>(&["CLIENT", "KILL", "TYPE", "normal"]);
    let start = Instant::now();
    works(&hangs, "job");
    assert!(start.elapsed() < PATIENT, "{:?}", start.elapsed());
    rig.resume_sentinel(0);

    rig.kill_sentinel(1);
    let start = Instant::now();
    let dead = builder(&rig).lease(PATIENT * 6).io_timeout(PATIENT).build().unwrap();
    works(&dead, "job");
    assert!(start.elapsed() < PATIENT, "{:?}", start.elapsed());
    drop((hangs, dead));
    assert_left(&rig);
}

/// As behind NAT: the sentinels name an address that leads nowhere from here.
#[test]
fn an_address_that_the_sentinels_name_is_said_to_be_theirs() {
    let port = free_port();
    let (process, url) = sentinel_of(port);
    let e = LockClient::builder().url(url).build().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}");
    assert!(
        e.to_string().contains(&format!("127.0.0.1:{port}; the sentinels named this address")),
        "{e}"
    );

    let (server, sentinel) =
        (Server::start_tcp(&[]), format!("redis://127.0.0.1:{}/", process.port()));
    let mapped = |to: u16| {
        let sentinels = Sentinel::new([&sentinel], format!("master-{port}"));
        LockClient::builder().sentinel(sentinels.map_addresses(move |host, named| {
            (host.to_owned(), if named == port { to } else { named })
        }))
    };
    works(&mapped(server.port()).build().unwrap(), "job");
    let e = mapped(1).build().unwrap_err();
    assert!(e.to_string().contains("map_addresses made 127.0.0.1:1 of it"), "{e}");
}

/// A majority of the sentinels is enough, and so is a single one, after the I/O timeout for the
/// others.
#[test]
fn those_that_answer_are_enough() {
    let mut rig = Sentinels::start();
    rig.kill_sentinel(0);
    rig.suspend_sentinel(1);
    let client = builder(&rig).build().unwrap();
    works(&client, "job");
    assert_eq!(client.nodes()[0].address(), address(rig.server(0)));
    rig.resume_sentinel(1);
}

#[test]
fn nonsense_is_no_answer() {
    let rig = Sentinels::start();
    for says in [
        "",
        "+OK\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "*2\r\n$1\r\na\r\n$1\r\nb\r\n*0\r\n*0\r\n$1\r\nx\r\n",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let talker = std::thread::spawn(move || {
            for stream in listener.incoming().take(4) {
                let _ = stream.unwrap().write_all(says.repeat(3).as_bytes());
            }
        });
        let mut urls = rig.urls();
        urls.insert(0, format!("redis://{address}/"));
        let client =
            LockClient::builder().sentinel(Sentinel::new(&urls, MASTER_NAME)).build().unwrap();
        works(&client, "job");
        let alone = LockClient::builder().sentinel(Sentinel::new([&urls[0]], MASTER_NAME));
        let e = alone.build().unwrap_err();
        assert!(
            [ErrorKind::Unreachable, ErrorKind::Protocol].contains(&e.kind()),
            "{says:?}: {e:?}"
        );
        drop(client);
        while !talker.is_finished() {
            drop(std::net::TcpStream::connect(address));
        }
    }
    assert_left(&rig);
}

/// Pods that were replaced stay in the lists of the others until somebody resets those, under
/// addresses that swallow packets. Then those that live are no majority of all.
#[test]
fn those_that_are_gone_for_good_cost_one_wait_and_not_one_for_each_connect() {
    const SLOW: Duration = Duration::from_millis(2500);
    let rig = Sentinels::start();
    let master = rig.server(0);
    // They accept and never answer.
    let gone: Vec<TcpListener> =
        (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let lists = |n: usize| -> Vec<HashMap<String, String>> {
        rig.sentinel(n).cmd(&["SENTINEL", "SENTINELS", MASTER_NAME])
    };
    wait_until("all of them know those that are gone, and call them down", || {
        for (n, listener) in gone.iter().enumerate() {
            let (own, port) = (listener.local_addr().unwrap().port(), master.announced_port());
            // As a sentinel announces itself to the others.
            let hello = format!(
                "127.0.0.1,{own},{:040x},0,{MASTER_NAME},127.0.0.1,{port},0",
                u64::from(own) << 8 | n as u64
            );
            master.cmd::<u32>(&["PUBLISH", "__sentinel__:hello", &hello]);
        }
        let is_down = |facts: &&HashMap<String, String>| facts["flags"].contains("s_down");
        (0..3).all(|n| lists(n).len() == 5 && lists(n).iter().filter(is_down).count() == 3)
    });
    let client = builder(&rig).lease(SLOW * 6).io_timeout(SLOW).build().unwrap();
    works(&client, "job");
    let mut took = Duration::ZERO;
    for _ in 0..5 {
        // Otherwise it has the answer to a question that was asked a moment ago.
        std::thread::sleep(SLOW / 3);
        master.cmd::<u32>(&["CLIENT", "KILL", "TYPE", "normal"]);
        let start = Instant::now();
        works(&client, "job");
        took += start.elapsed();
    }
    assert!(took < 4 * SLOW, "{took:?}");
    drop(client);
    assert_left(&rig);
}

/// They are asked for new connections only: existing ones continue to work.
#[test]
fn without_any_sentinel_open_connections_go_on() {
    record_logs();
    let rig = Sentinels::start();
    let client = builder(&rig).lease(LONGER).io_timeout(LONGER / 4).connections(1).build().unwrap();
    let guard = client.lock("held").unwrap();
    let mut last = i64::MAX;
    wait_until("the hold is renewed", || {
        let before = std::mem::replace(&mut last, rig.server(0).pttl("held"));
        last > before
    });
    std::thread::sleep(LONGER / 4);
    for n in 0..3 {
        rig.suspend_sentinel(n);
    }
    let start = Instant::now();
    while start.elapsed() < LONGER * 5 / 4 {
        works(&client, "job");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(guard.is_held(), "renewed without them");
    assert!(!logged(log::Level::Warn, &["would not be noticed", &rig.urls()[0][8..23]]).is_empty());
    let e = builder(&rig).build().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unreachable, "{e:?}");
    for n in 0..3 {
        rig.resume_sentinel(n);
    }
    works(&super::client(&rig), "job");
    guard.unlock().unwrap();
}

/// The sentinels name a server that cannot be reached.
#[test]
fn a_master_that_is_down_shows_as_down() {
    let mut rig = Sentinels::start_with(crate::rig::SentinelOptions {
        sentinel_lines: &["sentinel down-after-milliseconds mymaster 600000"],
        ..crate::rig::SentinelOptions::default()
    });
    let client = client(&rig);
    works(&client, "job");
    rig.server_mut(0).kill();
    let start = Instant::now();
    let e = client.lock("job").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unreachable, "{e:?}");
    assert!(start.elapsed() < PATIENT);
    let state = || client.nodes()[0].state();
    assert_eq!(client.nodes()[0].address(), &*address(rig.server(0)));
    wait_until("it shows as down", || state() == NodeState::Down);
    rig.server_mut(0).start_again();
    // On a busy machine the first handshake may take too long.
    wait_until("it works again", || client.lock("job").is_ok());
    wait_until("it shows as up", || state() == NodeState::Voting);
}
