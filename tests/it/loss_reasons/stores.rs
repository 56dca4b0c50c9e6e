//! The main paths over Redlock, PostgreSQL and ZooKeeper.

use leasehold::{ErrorKind, LossReason};

use super::{lost, told, troubles};
use crate::rig::{CAP, ms};
#[cfg(feature = "postgres")]
use crate::support::Clients;
use crate::support::{Masters, wait_for_votes};

#[test]
fn without_a_majority_of_masters() {
    let mut masters = Masters::fresh(3);
    let lease = ms(4500);
    let client = masters
        .builder_with(|masters| masters.longest_lease(lease))
        .lease(lease)
        .io_timeout(ms(2000))
        .build()
        .unwrap();
    wait_for_votes(&client, 3);
    let guard = client.lock("job").unwrap();
    let before = told(&guard);
    for master in &masters.0 {
        master.cmd::<u32>(&["DEL", "job"]);
    }
    lost(&guard, &before, LossReason::TakenAway, None);
    drop(guard);
    let guard = client.lock("job").unwrap();
    let (before, trouble) = (told(&guard), troubles(&guard));
    for master in masters.0.iter_mut().take(2) {
        master.kill();
    }
    assert_eq!(trouble.recv_timeout(CAP).unwrap().error().kind(), ErrorKind::NoQuorum);
    lost(&guard, &before, LossReason::NotRenewed, Some(ErrorKind::NoQuorum));
    drop(guard);
    for master in masters.0.iter_mut().take(2) {
        master.start_again();
    }
}

#[cfg(feature = "postgres")]
#[test]
fn over_postgres() {
    let server = crate::rig::Postgres::start();
    let client = server.builder().lease(ms(4000)).io_timeout(ms(3000)).build().unwrap();
    let guard = client.lock("forced").unwrap();
    let before = told(&guard);
    assert!(server.client().mutex("forced").force_unlock().unwrap());
    lost(&guard, &before, LossReason::TakenAway, None);
    drop(guard);
    let fixed = client.mutex("fixed").with_lease(ms(1000)).lock().unwrap();
    let before = told(&fixed);
    lost(&fixed, &before, LossReason::FixedLease, None);
    drop(fixed);
    let guard = client.lock("outage").unwrap();
    let (before, trouble) = (told(&guard), troubles(&guard));
    server.suspend();
    assert_eq!(trouble.recv_timeout(CAP).unwrap().error().kind(), ErrorKind::Unreachable);
    lost(&guard, &before, LossReason::NotRenewed, Some(ErrorKind::Unreachable));
    server.resume();
    drop(guard);
    let guard = client.lock("closed").unwrap();
    let before = told(&guard);
    client.close(CAP).unwrap();
    lost(&guard, &before, LossReason::Closed, None);
}

#[cfg(feature = "zookeeper")]
mod zookeeper {
    use leasehold::LockClient;

    use super::*;
    use crate::on_zookeeper::{SETTINGS, server};
    use crate::rig::zookeeper::{Pipe, ZooKeeper};
    use crate::rig::{Child, wait_until};

    fn client(url: &str) -> LockClient {
        LockClient::builder().url(url).lease(ms(4000)).io_timeout(ms(3000)).build().unwrap()
    }

    #[test]
    fn a_session_that_nobody_answers_and_a_node_that_is_deleted() {
        let server = server!(ZooKeeper::lend(SETTINGS));
        let pipe = Pipe::to(server.port());
        let (far, near) =
            (client(&format!("zookeeper://127.0.0.1:{}", pipe.port())), client(&server.url()));
        let guard = far.lock("forced").unwrap();
        let before = told(&guard);
        assert!(near.mutex("forced").force_unlock().unwrap());
        lost(&guard, &before, LossReason::TakenAway, None);
        drop(guard);
        let fixed = far.mutex("fixed").with_lease(ms(1000)).lock().unwrap();
        let before = told(&fixed);
        lost(&fixed, &before, LossReason::FixedLease, None);
        drop(fixed);
        let guard = far.lock("outage").unwrap();
        let (before, trouble) = (told(&guard), troubles(&guard));
        pipe.silence(true);
        lost(&guard, &before, LossReason::NotRenewed, Some(ErrorKind::Unreachable));
        assert_eq!(trouble.recv_timeout(CAP).unwrap().error().kind(), ErrorKind::Unreachable);
        pipe.silence(false);
        drop(guard);
        wait_until("it is back", || far.try_lock("again").is_ok());
        drop((far, near));
        server.assert_clean();
    }

    /// The session has expired while the process was suspended, and the first thread that checks
    /// may be the one that learns it from the server.
    #[test]
    fn a_session_that_expired_while_the_process_stood_still() {
        let server = server!(ZooKeeper::lend(SETTINGS));
        let mut child = Child::spawn(
            "loss_reasons::stores::zookeeper::suspended_process",
            &[("LEASEHOLD_TEST_URL", &server.url())],
        );
        child.expect("held");
        child.signal("STOP");
        let other = client(&server.url());
        drop(other.lock("job").unwrap());
        child.signal("CONT");
        assert!(child.expect("loss=").starts_with("NotRenewed"));
        child.wait();
        drop(other);
    }

    #[test]
    #[ignore = "a program for other tests"]
    fn suspended_process() {
        let client = client(&std::env::var("LEASEHOLD_TEST_URL").unwrap());
        let guard = client.lock("job").unwrap();
        println!("@@held");
        let _ = guard.lost().recv();
        wait_until("it has a session again", || client.try_lock("again").is_ok());
        let loss = guard.loss().unwrap();
        println!("@@loss={:?} {loss}", loss.reason());
    }
}
