//! One server.

use std::sync::atomic::Ordering;

use leasehold::LockClient;
use leasehold::observe::{Check, Severity};

use super::{IO_TIMEOUT, diagnosed, diagnosis_of, found, is_healthy, only, says};
use crate::rig::{Server, ms, wait_until};
use crate::support::{Clients, builder_with};

/// Persistent, as recommended.
const GOOD: [&str; 2] = ["--appendonly", "yes"];

#[test]
fn a_server_that_is_as_it_should_be_has_neither_warnings_nor_problems() {
    let server = Server::start_with(&GOOD);
    let before: Vec<String> = server.cmd(&["KEYS", "*"]);
    let diagnosis = diagnosed(server.builder());
    is_healthy(&diagnosis);
    for check in [
        Check::Reachable,
        Check::Tls,
        Check::Version,
        Check::Role,
        Check::Eviction,
        Check::Persistence,
        Check::Replication,
        Check::Clock,
        Check::Right,
        Check::Scripts,
        Check::Kill,
        Check::Connections,
        Check::Latency,
        Check::Lease,
        Check::Connect,
    ] {
        found(&diagnosis, check);
    }
    let of_server =
        diagnosis.findings().iter().find(|finding| finding.check() == Check::Version).unwrap();
    assert!(server.url().contains(of_server.node().unwrap()), "{of_server:?}");
    assert!(diagnosis.to_string().contains("0 problems, 0 warnings"), "{diagnosis}");
    assert_eq!(server.cmd::<Vec<String>>(&["KEYS", "*"]), before, "nothing is left");
    if server.major() >= 7 {
        let log: Vec<redis::Value> = server.cmd(&["ACL", "LOG"]);
        assert!(log.is_empty(), "a forbidden command was tried: {log:?}");
    }
    server.assert_clean();
}

#[test]
fn a_diagnosis_disturbs_no_lock_and_may_be_repeated() {
    let server = Server::start_with(&GOOD);
    let client = server.client();
    let guard = client.lock("job").unwrap();
    for _ in 0..3 {
        is_healthy(&diagnosis_of(&client));
        assert!(guard.is_held() && !server.hash("job").is_empty());
    }
    guard.unlock().unwrap();
    drop(client);
    server.assert_clean();
}

#[test]
fn what_is_set_up_wrongly_is_found() {
    let server = Server::start_with(&GOOD);
    let set = |name: &str, value: &str| server.cmd::<()>(&["CONFIG", "SET", name, value]);
    let ask = || diagnosed(server.builder());

    set("maxmemory-policy", "allkeys-lru");
    says(&ask(), Check::Eviction, Severity::Note, "allkeys-lru");
    set("maxmemory", "500mb");
    says(&ask(), Check::Eviction, Severity::Problem, "noeviction");
    says(&ask(), Check::Eviction, Severity::Problem, "when 500 MiB are used");
    only(&ask(), &[Check::Eviction]);
    set("maxmemory-policy", "noeviction");
    is_healthy(&ask());
    let used: u64 = server.info("memory", "used_memory").parse().unwrap();
    set("maxmemory", &(used + used / 50).to_string());
    says(&ask(), Check::Eviction, Severity::Warning, "no lock is granted");
    set("maxmemory", "0");

    says(&ask(), Check::Persistence, Severity::Note, "about the last second");
    set("appendfsync", "always");
    says(&ask(), Check::Persistence, Severity::Ok, "before it is answered");
    set("appendonly", "no");
    says(&ask(), Check::Persistence, Severity::Warning, "forgets every lock");
    set("save", "900 1");
    says(&ask(), Check::Persistence, Severity::Warning, "since the last one");
    set("appendonly", "yes");
    set("appendfsync", "everysec");

    set("min-replicas-to-write", "1");
    says(&ask(), Check::Replication, Severity::Problem, "writes are refused");
    set("min-replicas-to-write", "0");
    says(
        &diagnosed(builder_with(&server, |redis| redis.replicas(1))),
        Check::Replication,
        Severity::Problem,
        "0 replicas of the 1",
    );

    set("maxclients", "20");
    let others: Vec<redis::Connection> = (0..17).map(|_| server.connect()).collect();
    if server.major() >= 7 {
        says(&ask(), Check::Connections, Severity::Warning, "maxclients");
    }
    drop(others);
    set("maxclients", "100");
    is_healthy(&ask());
}

#[test]
fn a_replica_is_a_problem_and_its_primary_is_named() {
    let (primary, replica) = (Server::start_tcp(&[]), Server::start_with(&GOOD));
    replica.cmd::<()>(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    wait_until("it follows", || replica.follows_a_master() && primary.feeds(1));
    let diagnosis = diagnosed(replica.builder());
    says(&diagnosis, Check::Role, Severity::Problem, &format!("127.0.0.1:{}", primary.port()));
    only(&diagnosis, &[Check::Role]);
    // Its primary has a replica, but no setting that prevents it from granting alone.
    says(
        &diagnosed(primary.builder()),
        Check::Replication,
        Severity::Note,
        "let each grant wait for replicas",
    );
    let waits = diagnosed(builder_with(&primary, |redis| redis.replicas(1)));
    says(&waits, Check::Replication, Severity::Ok, "waits for 1");
}

#[test]
fn a_server_that_is_stopped_or_gone_is_a_finding() {
    let mut server = Server::start();
    server.suspend();
    let diagnosis = diagnosed(server.builder().io_timeout(IO_TIMEOUT));
    server.resume();
    says(&diagnosis, Check::Reachable, Severity::Problem, "io_timeout");
    only(&diagnosis, &[Check::Reachable]);
    server.kill();
    let diagnosis = diagnosed(server.builder().io_timeout(IO_TIMEOUT));
    says(&diagnosis, Check::Reachable, Severity::Problem, "no server listens");
    assert_eq!(diagnosis.findings().len(), 1, "{diagnosis}");
    // A client that was connected earlier reports the same.
    server.start_again();
    let client = server.builder().io_timeout(IO_TIMEOUT).build().unwrap();
    server.kill();
    says(&diagnosis_of(&client), Check::Reachable, Severity::Problem, "no server listens");
    server.start_again();
}

#[test]
fn a_wrong_password_is_a_finding_without_the_password() {
    let server = Server::start_with(&["--requirepass", "right"]);
    for url in [server.url(), format!("{}?pass=wr0ng", server.url())] {
        let diagnosis = diagnosed(LockClient::builder().url(&url));
        says(&diagnosis, Check::LogIn, Severity::Problem, "password");
        assert!(!format!("{diagnosis} {diagnosis:?}").contains("wr0ng"), "{diagnosis}");
    }
}

#[test]
fn a_node_of_a_cluster_that_is_named_alone_is_a_problem() {
    let server = Server::start_with(&["--cluster-enabled", "yes"]);
    says(&diagnosed(server.builder()), Check::Version, Severity::Problem, "Builder::cluster");
}

#[test]
fn a_lease_below_what_the_latency_allows_is_a_warning() {
    let server = Server::start_with(&GOOD);
    // The server is repeatedly suspended for 60 ms: too long for a lease of 150 ms.
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                server.suspend();
                std::thread::sleep(ms(60));
                server.resume();
                std::thread::sleep(ms(5));
            }
        });
        // A round trip between two suspensions meets none.
        wait_until("a round trip meets a stop, or the rig has failed", || {
            let slow = diagnosed(server.builder().lease(ms(150)).io_timeout(ms(140)));
            let mut leases =
                slow.findings().iter().filter(|finding| finding.check() == Check::Lease);
            sleeper.is_finished()
                || leases
                    .any(|f| f.severity() == Severity::Warning && f.found().contains("too short"))
        });
        assert!(!sleeper.is_finished());
        stop.store(true, Ordering::Relaxed);
    });
}

#[cfg(feature = "tls")]
#[test]
fn the_end_of_the_certificate_of_tls_is_told() {
    let certificates = crate::rig::Certificates::new();
    let server = Server::start_tls(&certificates, &GOOD);
    let with = |tls: leasehold::Tls| diagnosed(LockClient::builder().url(server.url()).tls(tls));
    let trusting = || leasehold::Tls::new().ca_file(certificates.ca_file());
    let diagnosis = with(trusting());
    says(&diagnosis, Check::Tls, Severity::Ok, "ends in");
    is_healthy(&diagnosis);
    server.present(&certificates.expired());
    says(&with(trusting()), Check::Tls, Severity::Problem, "expired");
    let blind = with(trusting().danger_accept_any_certificate());
    says(&blind, Check::Tls, Severity::Problem, "days ago");
    only(&blind, &[Check::Tls]);
}
