//! Tests of the ZooKeepers that the other tests start.

use std::collections::HashSet;
use std::time::Instant;

use crate::rig::zookeeper::{
    EPHEMERAL, EPHEMERAL_SEQUENTIAL, Ensemble, EnsembleOptions, Mode, NO_NODE, PERSISTENT, Raw,
    ZooKeeper,
};
use crate::rig::{Child, Fault, Proxy, ms, signal, wait_until};

#[test]
fn a_server_says_what_its_clients_leave_behind() {
    // Sessions last two seconds at most.
    let server = ZooKeeper::start_with("tickTime=100");
    assert_eq!(server.mode(), Some(Mode::Standalone));
    server.assert_clean();
    let mut session = server.raw();
    let path =
        session.create_below_containers("/a/b/_c_1-lock-", b"me", EPHEMERAL_SEQUENTIAL).unwrap();
    assert_eq!(path, "/a/b/_c_1-lock-0000000000");
    let node = server.node(&path).unwrap();
    assert_eq!(
        (node.data.as_slice(), node.owner, node.children),
        (&b"me"[..], session.session(), 0)
    );
    assert!(node.is_ephemeral());
    assert_eq!(server.nodes(), ["/a", "/a/b", &path]);
    assert_eq!(server.children("/a/b"), ["_c_1-lock-0000000000"]);
    session.watch(&path).unwrap();
    assert_eq!(server.watches(), [(session.session(), path.clone())]);
    assert_eq!(server.ephemerals(), [(session.session(), path.clone())]);
    assert_eq!(server.sessions(), [session.session()]);
    assert_eq!(server.connections().len(), 1);

    let earlier = server.node(&path).unwrap().czxid;
    session.delete(&path).unwrap();
    assert_eq!(session.delete(&path), Err(NO_NODE));
    wait_until("the containers go", || server.nodes().is_empty());
    let path =
        session.create_below_containers("/a/b/_c_1-lock-", b"", EPHEMERAL_SEQUENTIAL).unwrap();
    assert!(path.ends_with("0000000000") && server.node(&path).unwrap().czxid > earlier);
    session.create("/stays", b"", PERSISTENT).unwrap();
    session.create("/stays/too", b"", PERSISTENT).unwrap();
    // Its session is not closed.
    drop(session);
    server.assert_clean_but(&["/stays/too"]);
    assert!(server.figure("zk_packets_received") > 10);
}

#[test]
fn a_missing_java_is_a_failure_with_its_remedy() {
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    program.args(["rig_zookeeper::asks_for_a_server", "--exact", "--ignored"]);
    let output = program.env("PATH", "/no/such/directory").output().unwrap();
    let says = String::from_utf8_lossy(&output.stdout);
    assert!(
        !output.status.success() && says.contains("--skip zookeeper") && says.contains("JDK 17"),
        "{says}"
    );
}

#[test]
#[ignore = "a program for another test"]
fn asks_for_a_server() {
    let _ = crate::rig::zookeeper::CURATOR.jar();
}

#[test]
fn a_session_outlives_its_server() {
    let server = ZooKeeper::start();
    let mut session = server.raw();
    session.create("/n", b"1", EPHEMERAL).unwrap();
    session.create("/p", b"1", PERSISTENT).unwrap();
    server.suspend();
    assert_eq!(server.mode(), None);
    server.resume();
    server.restart();
    let resume =
        |password: &[u8]| Raw::resume(server.port(), ms(10_000), session.session(), password);
    assert!(resume(&[1; 16]).is_none(), "another password");
    let mut session = resume(session.password()).expect("the session still exists");
    session.set("/p", b"2").unwrap();
    let node = session.get("/p").unwrap();
    assert_eq!((node.data, node.version, node.owner), (b"2".to_vec(), 1, 0));
    assert_eq!(session.get("/n").unwrap().owner, session.session());
    session.close();
    assert!(server.node("/n").is_none());
}

#[test]
fn a_server_ends_with_the_process_that_started_it() {
    let mut child = Child::spawn("rig_zookeeper::starts_a_server", &[]);
    let directories = child.expect("directories: ");
    let pids: Vec<u32> =
        child.expect("pids: ").split(' ').map(|pid| pid.parse().unwrap()).collect();
    let runs = |pid: u32| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
    };
    assert!(pids.iter().all(|pid| runs(*pid)));
    // A suspended one ends too.
    signal(pids[1], "STOP");
    child.kill();
    wait_until("the servers end", || !pids.iter().any(|pid| runs(*pid)));
    let mut directories = directories.split(' ').map(std::path::Path::new);
    assert!(!directories.next().unwrap().exists());
    // The kernel ends a suspended one with a signal, so its directory remains.
    let _ = std::fs::remove_dir_all(directories.next().unwrap());
}

#[test]
#[ignore = "a program for another test"]
fn starts_a_server() {
    let servers = [ZooKeeper::start(), ZooKeeper::start()];
    println!("@@directories: {} {}", servers[0].dir().display(), servers[1].dir().display());
    println!("@@pids: {} {}", servers[0].pid(), servers[1].pid());
    std::thread::park();
}

#[test]
fn an_ensemble_elects_another_leader_and_keeps_what_it_had() {
    let ensemble = Ensemble::start();
    let first = ensemble.leader();
    let created = |index: usize, path: &str| {
        let mut session = ensemble.server(index).raw();
        session.create(path, b"", PERSISTENT).unwrap();
        session.close();
        ensemble.server(index).node(path).unwrap().czxid
    };
    let before = created(ensemble.followers()[0], "/a");
    ensemble.server(first).kill();
    let second = ensemble.leader();
    assert_ne!(first, second);
    let after = created(second, "/b");
    assert!(after >> 32 > before >> 32, "{before:x} {after:x}");
    ensemble.start_all_again();
    ensemble.server(second).suspend();
    let third = ensemble.leader();
    assert_ne!(third, second);
    ensemble.server(second).resume();
    ensemble.wait_for_all();
    ensemble.kill_all();
    ensemble.start_all_again();
    for server in ensemble.servers() {
        assert_eq!(server.nodes(), ["/a", "/b"]);
    }
    ensemble.assert_clean_but(&["/a", "/b"]);
}

#[test]
fn a_follower_that_is_cut_off_serves_on_for_a_while() {
    let options = EnsembleOptions { patience: ms(6000), ..EnsembleOptions::default() };
    let ensemble = Ensemble::start_with(options);
    let [follower, other] = ensemble.followers();
    let mut session = Raw::connect(ensemble.server(follower).port(), ms(1_000)).unwrap();
    session.create("/n", b"", EPHEMERAL).unwrap();
    let start = Instant::now();
    ensemble.cut_off(follower, true);
    wait_until("the leader ends the session", || {
        session.get("/n").expect("the follower answers, though the node is gone");
        ensemble.server(other).node("/n").is_none()
    });
    assert!(start.elapsed() > ms(500));
    wait_until("the follower gives up", || ensemble.server(follower).mode().is_none());
    ensemble.cut_off(follower, false);
    drop(session);
    ensemble.wait_for_all();
    assert!(ensemble.server(follower).node("/n").is_none());
    ensemble.assert_clean();
}

#[test]
fn a_follower_that_lags_shows_late_what_others_have() {
    let ensemble = Ensemble::start();
    let follower = ensemble.followers()[0];
    ensemble.lag(follower, ms(3_000));
    let mut late = ensemble.server(follower).raw();
    let mut leader = ensemble.server(ensemble.leader()).raw();
    leader.create("/n", b"", PERSISTENT).unwrap();
    assert_eq!(late.get("/n"), Err(NO_NODE));
    late.sync("/n").unwrap();
    late.get("/n").expect("after a sync it shows what existed before");
    ensemble.lag(follower, ms(0));
    late.close();
    leader.close();
    ensemble.assert_clean_but(&["/n"]);
}

#[test]
fn faults_of_frames_hit_where_they_should() {
    let server = ZooKeeper::start();
    let proxy = Proxy::before_zookeeper(&server);
    assert_eq!(proxy.zookeeper_url(), format!("zookeeper://127.0.0.1:{}", proxy.port()));
    let connect = || Raw::connect(proxy.port(), ms(10_000)).expect("a session through the proxy");
    let create = |path: &str| connect().try_create(path);
    assert!(create("/plain"));
    let faults = [
        (Fault::CutBeforeSend, false),
        (Fault::CutRequestAt(9), false),
        (Fault::CutAfterApplied, true),
        (Fault::CutReplyAt(2), true),
        (Fault::BlackHoleReply, true),
        (Fault::StallThenCut(ms(50)), true),
        (Fault::Garbage, false),
    ];
    for (number, (fault, applied)) in faults.into_iter().enumerate() {
        let path = format!("/marked-{number}");
        proxy.inject(&format!("create2 {path}"), fault);
        assert!(!create(&path), "{fault:?}");
        let is_there = || server.node(&path).is_some();
        if applied {
            wait_until("the create arrives", is_there);
        } else {
            assert!(!is_there(), "{fault:?}");
        }
    }
    proxy.inject("sync", Fault::StallReply(ms(300)));
    let start = Instant::now();
    connect().sync("/").unwrap();
    assert!(start.elapsed() >= ms(300));

    proxy.inject("connect", Fault::CutBeforeSend);
    assert!(Raw::connect(proxy.port(), ms(10_000)).is_none());
    proxy.inject("create2 /held", Fault::Hold);
    assert!(!create("/held"));
    assert!(server.node("/held").is_none());
    proxy.release_held();
    wait_until("the held request arrives", || server.node("/held").is_some());

    let hits = proxy.hits();
    proxy.cut_one_in(10);
    let outcomes: HashSet<bool> =
        (0..200).map(|n| connect_through(&proxy, &format!("/many-{n}"))).collect();
    proxy.cut_one_in(0);
    assert!(outcomes.len() == 2 && proxy.hits() > hits, "some fail, some do not");
    assert!(create("/again"));
}

fn connect_through(proxy: &Proxy, path: &str) -> bool {
    Raw::connect(proxy.port(), ms(10_000)).is_some_and(|mut session| session.try_create(path))
}
