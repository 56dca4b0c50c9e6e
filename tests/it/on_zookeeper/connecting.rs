//! URLs, settings, identities, threads.

use std::time::{Duration, Instant};

use leasehold::observe::NodeState;
use leasehold::{ErrorKind, LockClient};

use super::{LONG, children, client, client_of, server};
use crate::rig::zookeeper::{Ensemble, Raw, ZooKeeper};
use crate::rig::{Fault, Proxy, ms, threads_named, wait_for, wait_until};

#[test]
fn settings_that_do_not_fit_are_refused() {
    let ensemble = || leasehold::ZooKeeper::new("zookeeper://127.0.0.1:1");
    let build = |ensemble| LockClient::builder().zookeeper(ensemble).client_name("zk-none").build();
    for wrong in [ensemble().creator_only(true), ensemble().server_tick(Duration::ZERO)] {
        assert_eq!(build(wrong).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let elsewhere = build(leasehold::ZooKeeper::new("redis://127.0.0.1:1").token_base(5));
    assert!(elsewhere.unwrap_err().to_string().contains("zookeeper://"));
    assert_eq!(build(ensemble()).unwrap_err().kind(), ErrorKind::Unreachable);
    wait_until("a client that could not be built leaves no thread", || {
        threads_named("lh-zk-zk-none") == 0
    });
    let shown = format!("{:?}", LockClient::builder().url("zookeeper://u:secret@h/c"));
    assert!(shown.contains("h:2181/c") && !shown.contains("secret"), "{shown}");
}

#[test]
fn a_chroot_is_made_and_stays_and_containers_go() {
    let server = server!();
    let client = client_of(&server.url_in("/app/locks"), |builder| builder.key_prefix("billing/"));
    drop(client.lock("a/b").unwrap());
    let nodes = server.nodes();
    assert!(nodes.contains(&"/app/locks".to_owned()), "{nodes:?}");
    client.lock("a").unwrap().unlock().unwrap();
    drop(client);
    server.assert_clean_but(&["/app/locks"]);
}

/// The directory of one lock is a node in that of the other. A node that sorts before the numbers
/// would be waited for forever.
#[test]
fn a_name_below_another_one_is_refused_or_disturbs_nobody() {
    let server = server!();
    let client = client(&server);
    let (behind, before) = (client.lock("jobs/1").unwrap(), client.lock("all/!").unwrap());
    client.lock("jobs").unwrap().unlock().unwrap();
    let error = client.lock("all").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert!(behind.is_held() && before.is_held());
    drop((behind, before, client));
    server.assert_clean();
}

#[test]
fn a_digest_identity_keeps_others_out() {
    let server = server!();
    let with = |identity: &str| format!("zookeeper://{identity}127.0.0.1:{}", server.port());
    let ours = || {
        let ensemble = leasehold::ZooKeeper::new(with("app:s3cret@")).creator_only(true);
        LockClient::builder().zookeeper(ensemble).lease(LONG).build().unwrap()
    };
    let (ours, same, other) = (ours(), ours(), client(&server));
    // A name of its own: the directory remains for a moment, and other tests use this server next.
    let guard = ours.lock("ours alone").unwrap();
    assert!(same.try_lock("ours alone").unwrap().is_none());
    let error = other.try_lock("ours alone").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!format!("{error} {ours:?}").contains("s3cret"));
    guard.unlock().unwrap();
    drop(same.lock("ours alone").unwrap());
    drop((ours, same, other));
    server.assert_clean();
}

#[test]
fn a_token_base_is_added() {
    let server = server!();
    let based = leasehold::ZooKeeper::new(server.url()).token_base(1 << 50);
    let based = LockClient::builder().zookeeper(based).lease(LONG);
    let (plain, based) = (client(&server), based.build().unwrap());
    let token = plain.lock("job").unwrap().fencing_token().unwrap().get();
    let next = based.lock("job").unwrap().fencing_token().unwrap().get();
    assert!(token < 1 << 40 && next > 1 << 50 && next - (1 << 50) > token, "{next} after {token}");
    drop((plain, based));
    server.assert_clean();
}

/// It holds nothing: no thread before the first call, one for the session, and none after the end.
#[test]
fn a_client_has_one_thread_and_a_session_of_its_own() {
    let server = server!();
    let url = server.url();
    let lazy = client_of(&url, |builder| builder.client_name("zk-lazy").connect_lazily());
    assert_eq!((threads_named("lh-zk-zk-lazy"), server.sessions().len()), (0, 0));
    assert_eq!(lazy.nodes()[0].state(), NodeState::Voting);
    drop(lazy.lock("job").unwrap());
    assert_eq!((threads_named("lh-zk-zk-lazy"), server.sessions().len()), (1, 1));
    drop(lazy);
    wait_until("it ends", || threads_named("lh-zk-zk-lazy") == 0);
    server.assert_clean();
}

/// A thousand holds cost as much as one.
#[test]
fn many_holds_cost_no_more_heartbeats_than_one() {
    let server = server!();
    let client = client_of(&server.url(), |builder| builder.lease(ms(6000)));
    let guards: Vec<_> = (0..300).map(|n| client.lock(format!("many/job-{n}")).unwrap()).collect();
    // After a third of the lease each is queried once, and watched from then on.
    wait_until("each is watched", || server.watches().len() == 300);
    let start = Instant::now();
    let before = server.figure("zk_packets_received");
    std::thread::sleep(ms(4000));
    let packets = server.figure("zk_packets_received") - before;
    // A ping in each half second, or a heartbeat.
    let most = 4 + start.elapsed().as_millis() / 500;
    assert!(packets >= 4 && u128::from(packets) <= most, "{packets} packets, {most} at most");
    assert!(guards.iter().all(|guard| guard.is_held()));
    drop((guards, client));
    server.assert_clean();
}

/// Another client gives back its permits, of which it is not told.
#[test]
fn forgotten_permits_cost_no_heartbeats() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let owner = client_of(&proxy.zookeeper_url(), |builder| builder.lease(ms(3000)));
    let worker = client(&server);
    let pool = owner.semaphore("pool");
    pool.try_set_permits(100).unwrap();
    let ids: Vec<_> = (0..100).map(|_| pool.acquire().unwrap().forget()).collect();
    for id in &ids {
        worker.semaphore("pool").release(id).unwrap();
    }
    assert_eq!(pool.available_permits().unwrap(), 100);
    assert!(pool.delete().unwrap());
    drop(worker);
    let received = || -> u64 {
        let line = server.connections().pop().unwrap();
        let (_, behind) = line.split_once("recved=").unwrap();
        behind.split(',').next().unwrap().parse().unwrap()
    };
    proxy.inject("check /", Fault::CutBeforeSend);
    let before = received();
    // A third as many if they were heartbeats.
    wait_until("it pings for a whole session", || proxy.hits() > 0 || received() >= before + 12);
    assert!(proxy.disarm(), "it sent a heartbeat");
    drop((pool, owner, proxy));
    server.assert_clean();
}

/// A server that disappears is replaced by another within the session.
#[test]
fn another_server_is_found_within_the_session() {
    // The session is long: an election takes many seconds on a busy machine.
    let ensemble = server!(Ensemble::start());
    ensemble.wait_for_all();
    let client = client_of(&ensemble.url(), |builder| builder.outage_timeout(LONG));
    let guard = client.lock("job").unwrap();
    let is_at = |server: &ZooKeeper| server.runs() && !server.connections().is_empty();
    let first = ensemble.servers().iter().position(is_at).expect("it is connected");
    ensemble.server(first).kill();
    wait_for(LONG, "it uses another server", || client.mutex("job").holder().is_ok());
    assert!(guard.is_held());
    // The election may continue after a first reply.
    wait_for(LONG, "it has its session there", || ensemble.servers().iter().any(is_at));
    wait_for(LONG, "it has the lock there", || guard.extend(LONG).is_ok());
    ensemble.start_all_again();
    guard.unlock().unwrap();
    drop(client);
    ensemble.assert_clean();
}

/// A check sends only reads, and an attempt leaves nothing behind.
#[test]
fn a_try_leaves_nothing() {
    let server = server!();
    let (a, b) = (client(&server), client(&server));
    let mut look = server.raw();
    let guard = a.lock("job").unwrap();
    for _ in 0..20 {
        assert!(b.try_lock("job").unwrap().is_none());
        assert!(b.fair("job").try_lock().unwrap().is_none());
        assert!(b.rw_lock("data").try_read().unwrap().is_some());
    }
    wait_until("nothing is left", || children(&mut look, "/job").len() == 1);
    let changes = |look: &mut Raw| look.get("/job").unwrap().cversion;
    let before = changes(&mut look);
    for _ in 0..20 {
        assert!(b.try_lock("job").unwrap().is_none());
        assert!(b.multi(["other", "job"]).try_lock().unwrap().is_none());
    }
    assert_eq!(changes(&mut look), before, "a recently busy lock is checked without a change");
    drop(guard);
    assert!(b.try_lock("job").unwrap().is_some(), "it is free at once");
    look.close();
    drop((a, b));
    server.assert_clean();
}
