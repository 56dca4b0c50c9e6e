//! An ensemble.

use leasehold::LockClient;
use leasehold::observe::{Check, Severity};

use super::{IO_TIMEOUT, diagnosed, diagnosis_of, is_healthy, only, says};
use crate::on_zookeeper::{SETTINGS, server};
use crate::rig::zookeeper::{Ensemble, ZooKeeper};
use crate::rig::{ms, wait_until};

#[test]
fn a_server_that_is_as_it_should_be_has_neither_warnings_nor_problems() {
    let server = server!();
    let client = LockClient::builder().url(server.url()).connect_lazily().build().unwrap();
    let diagnosis = diagnosis_of(&client);
    is_healthy(&diagnosis);
    for (check, text) in [
        (Check::Reachable, "connected"),
        (Check::Version, "ZooKeeper 3."),
        (Check::Role, "standalone"),
        (Check::Connect, "session"),
        (Check::Session, "was granted"),
        (Check::Right, "anybody"),
        (Check::Latency, "round trips"),
        (Check::Lease, "survives"),
    ] {
        says(&diagnosis, check, Severity::Ok, text);
    }
    drop(client);
    server.assert_clean();
}

#[test]
fn an_ensemble_says_how_many_may_fail() {
    let ensemble = server!(Ensemble::start());
    let ask = |url: String| {
        diagnosed(LockClient::builder().url(url).lease(ms(8000)).io_timeout(ms(2000)))
    };
    let all = ask(ensemble.url());
    is_healthy(&all);
    says(&all, Check::Ensemble, Severity::Ok, "3 servers vote, 2 are needed; 3 of the 3");
    says(&ask(ensemble.url_of(&[0])), Check::Ensemble, Severity::Note, "name all servers");
    ensemble.server(ensemble.followers()[0]).kill();
    let one_down = ask(ensemble.url());
    says(&one_down, Check::Ensemble, Severity::Warning, "2 of the 3");
    says(&one_down, Check::Reachable, Severity::Warning, "no server listens");
    only(&one_down, &[Check::Ensemble, Check::Reachable]);
    ensemble.server(ensemble.leader()).kill();
    // It takes the last one a while to notice.
    wait_until("it says that it serves nobody", || {
        let diagnosis = ask(ensemble.url());
        let mut roles =
            diagnosis.findings().iter().filter(|finding| finding.check() == Check::Role);
        roles.any(|role| {
            role.severity() == Severity::Problem && role.found().contains("no majority")
        })
    });
}

#[test]
fn a_session_that_is_shorter_than_asked_for_is_a_warning() {
    let server = server!(ZooKeeper::start_with("tickTime=100\nmaxSessionTimeout=5000"));
    // A server that has just started may be slow to answer.
    let diagnosis = diagnosed(LockClient::builder().url(server.url()).io_timeout(ms(6000)));
    says(&diagnosis, Check::Session, Severity::Warning, "maxSessionTimeout");
    only(&diagnosis, &[Check::Session]);
}

#[test]
fn a_chroot_that_is_not_for_this_client_is_a_problem() {
    let server = server!(ZooKeeper::lend(SETTINGS));
    let mut look = server.raw();
    look.create("/locks", b"", crate::rig::zookeeper::PERSISTENT).unwrap();
    let ask = || diagnosed(LockClient::builder().url(server.url_in("/locks")));
    is_healthy(&ask());
    // Without the right to create nodes.
    look.allow("/locks", 31 - 4).unwrap();
    says(&ask(), Check::Right, Severity::Problem, "ACL");
    look.allow_only("/locks", 31, "ip", "127.0.0.1").unwrap();
    says(&ask(), Check::Right, Severity::Ok, "which may be this client's");
    look.allow("/locks", 31).unwrap();
    is_healthy(&diagnosed(LockClient::builder().url(server.url_in("/none"))));
    assert!(server.node("/none").is_none(), "nothing is created");
}

#[test]
fn a_server_that_is_stopped_or_gone_is_a_finding() {
    let server = server!();
    let ask = || diagnosed(LockClient::builder().url(server.url()).io_timeout(IO_TIMEOUT));
    server.suspend();
    let diagnosis = ask();
    server.resume();
    says(&diagnosis, Check::Reachable, Severity::Problem, "io_timeout");
    server.kill();
    let gone = ask();
    says(&gone, Check::Reachable, Severity::Problem, "no server listens");
    assert_eq!(gone.findings().len(), 1, "{gone}");
}
