//! What a server refuses for a reason that only its configuration shows.

use leasehold::observe::Severity;
use leasehold::{ErrorKind, LockClient};

use super::{client_of, server};
use crate::rig::zookeeper::{Ensemble, EnsembleOptions, ZooKeeper};
use crate::rig::{Fault, Proxy, ms, threads_named, wait_until};

/// The server grants a session, then refuses every request in it, and ends the connection after
/// that one answer. A caller that read "unreachable" would try again for ever.
#[test]
fn a_client_without_the_identity_that_the_server_demands_is_denied() {
    let sasl = "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
    let digest = "enforce.auth.enabled=true\nenforce.auth.schemes=digest";
    for settings in [digest.to_owned(), format!("sessionRequireClientSASLAuth=true\n{sasl}")] {
        let server = ZooKeeper::start_with(&settings);
        let denied = |what: &str, error: leasehold::Error| {
            assert_eq!(error.kind(), ErrorKind::Denied, "{what}: {error}");
            assert!(error.to_string().contains("identify themselves"), "{what}: {error}");
        };
        let plain = || LockClient::builder().url(server.url()).client_name("zk-refused");
        denied("open", plain().build().unwrap_err());
        wait_until("a client that could not be built leaves no thread", || {
            threads_named("lh-zk-zk-refused") == 0
        });
        let client = plain().connect_lazily().build().unwrap();
        for round in 0..20 {
            denied("try", client.try_lock("job").map(|won| won.is_some()).unwrap_err());
            denied("lock", client.lock("job").map(|guard| guard.is_held()).unwrap_err());
            denied(
                "wait",
                client.try_lock_for("job", ms(500)).map(|won| won.is_some()).unwrap_err(),
            );
            denied(
                "multi",
                client.multi(["a", "b"]).try_lock().map(|won| won.is_some()).unwrap_err(),
            );
            denied(
                "permit",
                client.semaphore("s").try_acquire().map(|won| won.is_some()).unwrap_err(),
            );
            denied("latch", client.latch("l").count().map(|count| count > 0).unwrap_err());
            denied("wait for a latch", client.latch("l").wait_for(ms(300)).map(drop).unwrap_err());
            denied("look", client.mutex("job").holder().map(drop).unwrap_err());
            denied("force", client.mutex("job").force_unlock().map(drop).unwrap_err());
            // A write that fails because the server has already ended the connection is another
            // way to the same answer.
            std::thread::sleep(ms(round % 4));
        }
        let diagnosis = client.diagnose();
        let problem =
            diagnosis.findings().iter().find(|finding| finding.severity() == Severity::Problem);
        assert!(
            problem.is_some_and(|problem| problem.found().contains("identify themselves")),
            "{diagnosis:?}"
        );
        drop(client);
        if settings == digest {
            let url = server.url().replace("//", "//app:s3cret@");
            client_of(&url, |builder| builder).lock("job").unwrap().unlock().unwrap();
        }
    }
}

#[test]
fn a_server_with_too_many_connections_of_this_host_is_said_to_be_so() {
    let server = ZooKeeper::start_with("maxClientCnxns=1");
    let first = client_of(&server.url(), |builder| builder);
    let error = LockClient::builder().url(server.url()).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("maxClientCnxns"), "{error}");
    drop(first);
}

#[test]
fn servers_whose_sessions_stay_local_are_named() {
    let settings = "localSessionsEnabled=true\nlocalSessionsUpgradingEnabled=false";
    let ensemble =
        server!(Ensemble::start_with(EnsembleOptions { settings, ..EnsembleOptions::default() }));
    let client = client_of(&ensemble.url_of(&[ensemble.followers()[0]]), |builder| builder);
    let error = client.try_lock("job").map(|won| won.is_some()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("localSessionsUpgradingEnabled"), "{error}");
}

/// ZooKeeper takes no character above U+FFFF. It says so without words, and only when it is asked.
#[test]
fn an_emoji_in_a_name_is_refused_in_words() {
    let server = server!();
    let client = client_of(&server.url(), |builder| builder);
    let error = client.try_lock("deploy \u{1f680}").map(|won| won.is_some()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("emoji"), "{error}");
    let error = LockClient::builder().url(server.url_in("/\u{1f680}")).build().unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidInput && error.to_string().contains("emoji"),
        "{error}"
    );
    drop(client);
    server.assert_clean();
}

/// An overloaded server refuses a request that only prepares another one.
#[test]
fn a_refused_request_is_never_taken_for_one_that_was_done() {
    const OVERLOADED: i32 = -127;
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    // Opening a client.
    proxy.inject("sync", Fault::Refuse(OVERLOADED));
    let error = LockClient::builder().url(proxy.zookeeper_url()).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReady, "{error}");
    // A refused watch is asked for again at the next ping.
    let client = client_of(&proxy.zookeeper_url(), |builder| builder.lease(ms(6000)));
    // The watch on a latch: the waiter must not sleep without it.
    let latch = client.latch("start");
    assert!(latch.try_set_count(1).unwrap());
    std::thread::scope(|s| {
        let hits = proxy.hits();
        proxy.inject("exists /start", Fault::Refuse(OVERLOADED));
        let waits = s.spawn(|| latch.wait_for(super::LONG));
        wait_until("it is refused", || proxy.hits() > hits);
        wait_until("it is watched all the same", || {
            server.watches().iter().any(|(_, path)| path == "/start")
        });
        latch.count_down().unwrap();
        assert!(waits.join().unwrap().unwrap());
    });
    assert!(latch.delete().unwrap());
    // A diagnosis.
    let hits = proxy.hits();
    proxy.inject("sync", Fault::Refuse(OVERLOADED));
    let diagnosis = client.diagnose();
    assert!(proxy.hits() > hits, "it asks");
    assert!(
        diagnosis.findings().iter().any(|one| one.severity() > Severity::Note),
        "{diagnosis:?}"
    );
    drop((latch, client, proxy));
    server.assert_clean();
}

/// As often as the session is pinged, and not as fast as the server answers.
#[test]
fn a_watch_that_is_refused_is_asked_for_at_the_pace_of_pings() {
    const TIMES: u32 = 6;
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    // Pinged every 500 ms.
    let client = client_of(&proxy.zookeeper_url(), |builder| builder.lease(ms(6000)));
    let latch = client.latch("start");
    assert!(latch.try_set_count(1).unwrap());
    std::thread::scope(|s| {
        proxy.inject_times("exists /start", TIMES, Fault::Refuse(-127));
        let start = std::time::Instant::now();
        let waits = s.spawn(|| latch.wait_for(super::LONG));
        proxy.wait_hits(TIMES);
        // The first ping may be due at once, and one after a late one comes sooner.
        assert!(start.elapsed() >= ms(500) * (TIMES / 2), "{:?}", start.elapsed());
        wait_until("it is watched in the end", || {
            server.watches().iter().any(|(_, path)| path == "/start")
        });
        latch.count_down().unwrap();
        assert!(waits.join().unwrap().unwrap());
    });
    assert!(latch.delete().unwrap());
    drop((latch, client, proxy));
    server.assert_clean();
}
