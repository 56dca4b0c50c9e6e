//! The nodes of scheduled jobs. `contract::jobs` covers what all stores promise.

use std::convert::Infallible;
use std::time::Duration;

use leasehold::{LockClient, Once, ScheduledJob};

use super::{LONG, client, client_of, server};
use crate::rig::zookeeper::PERSISTENT;
use crate::rig::{Fault, Proxy, wait_until};

#[track_caller]
fn do_it(job: &ScheduledJob) {
    let done = job.run(|_| Ok::<_, Infallible>(())).unwrap();
    assert!(matches!(done, Once::Done(())), "{done:?}");
}

/// The server is overloaded (-127) when it is asked whether the lease exists: that is no answer.
#[test]
fn a_refused_look_at_the_lease_is_not_taken_for_its_end() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let client = client_of(&proxy.zookeeper_url(), |builder| builder);
    proxy.inject("exists /leasehold_job:{report}/_c_", Fault::Refuse(-127));
    do_it(&client.once("report", "1"));
    assert!(!proxy.disarm(), "it was asked");
    assert!(server.children("/leasehold_job:{report}").is_empty());
    do_it(&client.once("report", "2"));
    drop((client, proxy));
    server.assert_clean();
}

/// Some are kept for long, and one is none.
#[test]
fn old_records_go_whatever_else_is_there() {
    let server = server!();
    let client = client(&server);
    let of = |label: String, keep: Duration| client.once("report", label).keep(keep);
    for n in 0..4 {
        do_it(&of(format!("a{n}"), LONG * 100));
    }
    let directory = "/leasehold_done:{report}";
    server.look(|session| session.create(&format!("{directory}/a5"), b"", PERSISTENT).unwrap());
    for n in 0..10 {
        do_it(&of(format!("b{n}"), Duration::from_secs(1)));
    }
    let mut run = 0;
    wait_until("those that were kept for a second go", || {
        run += 1;
        do_it(&of(format!("c{run:05}"), Duration::from_secs(1)));
        !server.children(directory).iter().any(|label| label.starts_with('b'))
    });
    let left = server.children(directory);
    assert_eq!(left.iter().filter(|label| label.starts_with('a')).count(), 5, "{left:?}");
    drop(client);
    server.assert_clean();
}

/// Somebody has written into the nodes by hand.
#[test]
fn odd_texts_in_the_nodes_of_a_job_are_survived() {
    let server = server!();
    let client = client(&server);
    let job = client.once("report", "2");
    let running = |client: &LockClient| {
        let job = client.once("report", "1");
        job.run(|_| Ok::<_, Infallible>(())).unwrap()
    };
    let held = job.run(|_| {
        for holder in ["a:1", "\u{fc}:1", "", "0123456789abcdef01234567", ":"] {
            let text = format!("newest=\nholder={holder}\noccurrence=1\nby=x");
            server
                .look(|session| session.set("/leasehold_last:{report}", text.as_bytes()).unwrap());
            let seen = std::thread::scope(|s| s.spawn(|| running(&client)).join().unwrap());
            assert!(matches!(seen, Once::Running { .. }), "{holder}: {seen:?}");
        }
        Ok::<_, Infallible>(())
    });
    assert!(matches!(held, Ok(Once::Done(()))), "{held:?}");
    drop((job, client));
    server.assert_clean();
}
