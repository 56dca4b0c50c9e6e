//! The session is the lease: a hold ends with it, in the client before it does at the server.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient};

use super::{LONG, SHORT, children, client, client_of, server};
use crate::rig::zookeeper::{EPHEMERAL_SEQUENTIAL, Ensemble, EnsembleOptions, Pipe};
use crate::rig::{CAP, Child, Fault, Proxy, ms, wait_for, wait_until};

fn short(url: &str) -> LockClient {
    client_of(url, |builder| builder.lease(SHORT).io_timeout(SHORT / 4 * 3).outage_timeout(LONG))
}

fn holder(url: &str) -> Child {
    let mut child =
        Child::spawn("on_zookeeper::loss::holder_process", &[("LEASEHOLD_TEST_URLS", url)]);
    child.expect("held");
    child
}

#[test]
#[ignore = "a program for other tests"]
fn holder_process() {
    let client = short(&std::env::var("LEASEHOLD_TEST_URLS").unwrap());
    let guards: Vec<_> = ["job", "other"].map(|name| client.lock(name).unwrap()).into();
    println!("@@held");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    println!("@@looks={:?}", guards.iter().map(|guard| guard.is_held()).collect::<Vec<_>>());
    let again = client.lock("again").unwrap();
    println!("@@again={}", again.is_held());
    println!(
        "@@unlock={:?}",
        guards.into_iter().map(|guard| guard.unlock().map_err(|e| e.kind())).collect::<Vec<_>>()
    );
}

/// The first check after the process resumes reports it, for every hold.
#[test]
fn a_stopped_holder_has_lost_all_when_it_goes_on() {
    let server = server!();
    let client = client(&server);
    let mut child = holder(&server.url());
    child.signal("STOP");
    let mine = client.lock("job").unwrap();
    child.signal("CONT");
    child.say("look");
    assert_eq!(child.expect("looks="), "[false, false]");
    assert_eq!(child.expect("again="), "true", "in a new session");
    assert_eq!(child.expect("unlock="), "[Err(Lost), Err(Lost)]");
    child.wait();
    assert!(mine.is_held() && client.lock("other").unwrap().is_held());
    drop((mine, client));
    server.assert_clean();
}

/// Cut off from the server: a hold is lost by time, before any other client can have the lock, and
/// a waiting call gets in with a new session.
#[test]
fn a_cut_off_client_loses_by_time_and_begins_anew() {
    let server = server!();
    let pipe = Pipe::to(server.port());
    let far = short(&format!("zookeeper://127.0.0.1:{}", pipe.port()));
    let near = client(&server);
    let guard = far.lock("job").unwrap();
    let theirs = near.lock("theirs").unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| far.lock("theirs").map(|guard| guard.is_held()));
        wait_until("it waits", || {
            server.watches().iter().any(|(_, path)| path.starts_with("/theirs/"))
        });
        // Replies arrive in order, so one that has been told to wait knows of it now.
        far.lock("other").unwrap().unlock().unwrap();
        pipe.silence(true);
        let next = s.spawn(|| {
            let next = near.mutex("job").lock_owned().unwrap();
            assert!(!guard.is_held(), "the holder believed longer than the server");
            next
        });
        assert!(guard.wait_lost(CAP).is_lost());
        assert!(!guard.is_held());
        next.join().unwrap().unlock().unwrap();
        wait_until("the queue entry is deleted with the session", || {
            near.fair("theirs").queue_len().unwrap() == 0
        });
        pipe.silence(false);
        wait_until("it is queued again, or has failed", || {
            near.fair("theirs").queue_len().unwrap() == 1 || waits.is_finished()
        });
        theirs.unlock().unwrap();
        assert!(waits.join().unwrap().unwrap(), "the waiting call continues in a new session");
    });
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    drop((far, near));
    server.assert_clean();
}

/// A re-entry asks no server, so it renews nothing: the trouble goes on, and is the cause of the
/// loss.
#[test]
fn a_re_entry_ends_no_trouble() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let client = client_of(&proxy.zookeeper_url(), |builder| {
        builder.lease(ms(6000)).io_timeout(ms(800)).outage_timeout(LONG)
    });
    let guard = client.lock("job").unwrap();
    let both = client.multi(["a", "b"]).lock().unwrap();
    let (tell, told) = leasehold::crossbeam_channel::unbounded();
    guard.on_renewal_failed(move |_| {
        let _ = tell.send(());
    });
    proxy.refuse(true);
    proxy.cut_all();
    told.recv_timeout(CAP).unwrap();
    while !guard.wait_lost(ms(10)).is_lost() {
        // Both fail once the session is over.
        drop((client.try_lock("job"), client.multi(["a", "b"]).try_lock()));
    }
    assert_eq!(told.try_iter().count(), 0, "it was told again");
    assert!(guard.loss().unwrap().cause().is_some());
    assert!(both.wait_lost(CAP).is_lost());
    assert!(both.loss().unwrap().cause().is_some());
    drop((guard, both, client, proxy));
    server.assert_clean();
}

/// The end of a connection costs nothing: the session continues over the next one.
#[test]
fn a_hold_survives_its_connection_and_a_restart() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let client = client_of(&proxy.zookeeper_url(), |builder| builder);
    let guard = client.lock("job").unwrap();
    for _ in 0..3 {
        let connections = proxy.connections();
        proxy.cut_all();
        wait_until("it connects again", || proxy.connections() > connections);
        wait_until("it is back", || client.mutex("job").holder().is_ok());
        assert!(guard.is_held());
    }
    server.restart();
    wait_until("it is back", || client.mutex("job").holder().is_ok());
    assert!(guard.is_held());
    let token = guard.fencing_token().unwrap();
    guard.unlock().unwrap();
    let next = client.lock("job").unwrap();
    assert!(next.fencing_token().unwrap() > token);
    drop((next, client, proxy));
    server.assert_clean();
}

/// A starting server may accept a connection and never answer on it. That costs an I/O timeout, and
/// not a part of the session, which is two minutes long here.
#[test]
fn a_connection_without_an_answer_is_given_up() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let client = client_of(&proxy.zookeeper_url(), |builder| builder);
    let guard = client.lock("job").unwrap();
    proxy.inject("connect", Fault::BlackHoleReply);
    proxy.cut_all();
    proxy.wait_hits(1);
    wait_until("it is back", || client.mutex("job").holder().is_ok());
    assert!(guard.is_held());
    guard.unlock().unwrap();
    drop((client, proxy));
    server.assert_clean();
}

/// A server that has lost its data refuses clients that have seen more than it knows. The client
/// starts again once nobody can believe in its session any more.
#[test]
fn a_server_that_lost_its_data_is_used_again() {
    let server = server!();
    let client = short(&server.url());
    for _ in 0..20 {
        client.lock("job").unwrap().unlock().unwrap();
    }
    let guard = client.lock("job").unwrap();
    let token = guard.fencing_token().unwrap();
    server.kill();
    std::fs::remove_dir_all(server.dir().join("data")).unwrap();
    server.start_again();
    assert!(guard.wait_lost(CAP).is_lost());
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    let mut next = None;
    wait_until("it has a session again", || {
        next = client.try_lock("job").ok().flatten().map(|guard| guard.fencing_token().unwrap());
        next.is_some()
    });
    assert!(next.unwrap() < token, "numbers start again, as documented");
    drop(client);
    server.assert_clean();
}

/// The servers were away for so long that the client begins a new session. When they are back they
/// give the old one a whole timeout: what a call has made in that is no place in the new one.
#[test]
fn a_place_of_the_last_session_is_nobodys() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let lease = ms(4000);
    let far = client_of(&proxy.zookeeper_url(), |builder| {
        builder.lease(lease).io_timeout(ms(1000)).outage_timeout(LONG)
    });
    let near = client(&server);
    let guard = near.lock("job").unwrap();
    let mut look = server.raw();
    let before = look
        .create("/job/_c_6c1d4dfc-7a43-4e2c-9a9a-0d3e1e1d2c3b-lock-", b"", EPHEMERAL_SEQUENTIAL)
        .unwrap();
    let last = |nodes: Vec<String>| {
        format!("/job/{}", nodes.into_iter().max_by_key(|node| node[40..].to_owned()).unwrap())
    };
    std::thread::scope(|s| {
        let waits = s.spawn(|| far.fair("job").lock_owned());
        wait_until("it waits", || server.watches().iter().any(|(_, path)| *path == before));
        // It has to make its place again, and gets no answer.
        let place = last(children(&mut look, "/job"));
        // First, because it may look at any time.
        proxy.refuse(true);
        proxy.inject("create2 /job", Fault::CutAfterApplied);
        look.delete(&place).unwrap();
        look.delete(&before).unwrap();
        proxy.wait_hits(1);
        let place = last(children(&mut look, "/job"));
        let old = look.get(&place).unwrap().owner;
        look.close();
        let known = server.sessions();
        server.kill();
        // Longer than any server would keep the session.
        std::thread::sleep(lease * 9 / 4);
        proxy.inject_times("connect again", u32::MAX, Fault::CutBeforeSend);
        server.start_again();
        proxy.refuse(false);
        wait_until("it has a new session", || {
            server.sessions().iter().any(|session| !known.contains(session))
        });
        println!("the old session still exists: {}", server.sessions().contains(&old));
        wait_until("the other one is back", || near.mutex("x").holder().is_ok());
        guard.unlock().unwrap();
        let next = waits.join().unwrap().unwrap();
        let owner = server.node(&last(server.children("/job"))).map(|node| node.owner);
        assert!(owner.is_some_and(|owner| owner != old), "{owner:?}");
        next.unlock().unwrap();
    });
    drop((far, near, proxy));
    server.assert_clean();
}

/// A session that has expired leaves nothing behind that a server without its data would refuse.
#[test]
fn a_server_that_lost_its_data_after_a_session_has_expired_is_used_again() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let client = short(&proxy.zookeeper_url());
    for _ in 0..20 {
        client.lock("job").unwrap().unlock().unwrap();
    }
    proxy.silence(true);
    wait_until("its session ends", || server.sessions().is_empty());
    // It hears of that, and its next connect is held.
    proxy.inject_after("connect", 1, Fault::Hold);
    proxy.silence(false);
    wait_until("it begins again", || {
        let _ = client.try_lock("job");
        proxy.hits() == 1
    });
    server.kill();
    std::fs::remove_dir_all(server.dir().join("data")).unwrap();
    proxy.release_held();
    server.start_again();
    wait_until("it has a session again", || client.try_lock("job").is_ok());
    drop((client, proxy));
    server.assert_clean();
}

/// The client's server is cut off from the leader, and answers all pings and reads. A client that
/// trusted those would believe until that server notices.
#[test]
fn a_client_whose_server_is_cut_off_from_the_leader_says_false_first() {
    let options = EnsembleOptions {
        tick: ms(100),
        patience: Duration::from_secs(10),
        ..EnsembleOptions::default()
    };
    let ensemble = server!(Ensemble::start_with(options));
    ensemble.wait_for_all();
    let (follower, leader) = (ensemble.followers()[0], ensemble.leader());
    let lease = ms(6000);
    let client = client_of(&ensemble.server(follower).url(), |builder| {
        builder.lease(lease).io_timeout(ms(2000))
    });
    let other = client_of(&ensemble.server(leader).url(), |builder| builder);
    let guard = client.lock("job").unwrap();
    let start = Instant::now();
    std::thread::scope(|s| {
        let next = s.spawn(|| {
            let next = other.mutex("job").lock_owned().unwrap();
            assert!(!guard.is_held(), "two guards believed at the same time");
            next
        });
        wait_until("it waits", || other.fair("job").queue_len().unwrap() == 1);
        ensemble.cut_off(follower, true);
        assert!(guard.wait_lost(CAP).is_lost());
        assert!(start.elapsed() < lease + CAP / 2, "{:?}", start.elapsed());
        next.join().unwrap().unlock().unwrap();
    });
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    ensemble.cut_off(follower, false);
    ensemble.wait_for_all();
    wait_for(Duration::from_secs(60), "the client is back", || {
        client.try_lock("job").is_ok_and(|won| won.is_some())
    });
    drop((client, other));
    ensemble.assert_clean();
}

/// Two of three servers are down: holds end in time, and nobody gets in until they are back.
#[test]
fn without_a_majority_a_hold_ends_in_time_and_nobody_gets_in() {
    let options = EnsembleOptions { tick: ms(100), ..EnsembleOptions::default() };
    let ensemble = server!(Ensemble::start_with(options));
    ensemble.wait_for_all();
    let settings = |builder: leasehold::Builder| builder.lease(ms(6000)).io_timeout(ms(2000));
    let (a, b) = (client_of(&ensemble.url(), settings), client_of(&ensemble.url(), settings));
    let guard = a.lock("job").unwrap();
    let token = guard.fencing_token().unwrap();
    let gone = ensemble.followers();
    for index in &gone {
        ensemble.server(*index).suspend();
    }
    assert!(guard.wait_lost(CAP).is_lost() && !guard.is_held());
    for client in [&a, &b] {
        let error = client.try_lock("other").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    }
    for index in &gone {
        ensemble.server(*index).resume();
    }
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    let next =
        || b.try_lock("job").ok().flatten().map(|guard| guard.fencing_token().unwrap() > token);
    wait_for(Duration::from_secs(60), "the next one gets in", || next().is_some_and(|grows| grows));
    ensemble.wait_for_all();
    drop((a, b));
    ensemble.assert_clean();
}

/// The leader dies: holds and queue entries are kept, tokens increase.
#[test]
fn holds_and_places_survive_the_leader() {
    let options = EnsembleOptions { tick: ms(200), ..EnsembleOptions::default() };
    let ensemble = server!(Ensemble::start_with(options));
    ensemble.wait_for_all();
    let settings = |builder: leasehold::Builder| builder.lease(LONG).outage_timeout(LONG);
    let (a, b) =
        (client_of(&ensemble.url(), settings), client_of(&ensemble.url_of(&[2, 1, 0]), settings));
    let guard = a.lock("job").unwrap();
    let token = guard.fencing_token().unwrap();
    std::thread::scope(|s| {
        let waits = s
            .spawn(|| b.lock("job").map(|guard| (guard.is_held(), guard.fencing_token().unwrap())));
        // A first attempt without a reply would fail: the client must know that it waits.
        wait_until("it waits", || {
            a.fair("job").queue_len().unwrap() == 1 && b.snapshot().waits().len() == 1
        });
        let leader = ensemble.leader();
        ensemble.server(leader).kill();
        wait_for(Duration::from_secs(60), "the others continue", || {
            a.mutex("job").holder().is_ok()
        });
        assert!(guard.is_held());
        wait_for(Duration::from_secs(60), "the queue entry is kept", || {
            a.fair("job").queue_len().is_ok_and(|length| length == 1)
        });
        // The election may continue after a first reply: then the hold is released in the
        // background.
        if let Err(e) = guard.unlock() {
            assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}");
        }
        let (is_held, next) = waits.join().unwrap().unwrap();
        assert!(is_held && next > token, "{next:?} after {token:?}");
        ensemble.start_all_again();
    });
    drop((a, b));
    ensemble.assert_clean();
}
