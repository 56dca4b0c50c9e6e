//! What only Redis does: replicas that acknowledge a success, a server that forgets, one that is
//! full, and what is on the wire.

use leasehold::{ErrorKind, Once, ScheduledJob, Settled};

use crate::replicas::Pair;
use crate::rig::{Server, ms, wait_until};
use crate::support::{Clients, builder_with};

fn do_it(job: &ScheduledJob) {
    let outcome = job.run(|_| Ok::<_, ()>(())).unwrap();
    assert!(matches!(outcome, Once::Done(())), "{outcome:?}");
}

fn is_done(job: &ScheduledJob) -> bool {
    matches!(job.wait_done_for(ms(0)).unwrap(), Some(Settled::Done { .. }))
}

#[test]
fn what_is_kept_expires() {
    let server = Server::start();
    let client = server.client();
    do_it(&client.once("a{b}", "1").keep(ms(60_000)));
    let mut keys: Vec<String> = server.cmd(&["KEYS", "leasehold_*"]);
    keys.retain(|key| !key.starts_with("leasehold_client:"));
    keys.sort();
    assert_eq!(keys, ["leasehold_done:a{b}/1", "leasehold_last:a{b}"]);
    let left = server.pttl("leasehold_done:a{b}/1");
    assert!((30_000..=60_000).contains(&left), "{left}");
    let left = server.pttl("leasehold_last:a{b}");
    assert!(left > 364 * 86_400_000, "{left}");
    let record = server.hash("leasehold_done:a{b}/1");
    let names: Vec<_> = record.keys().map(String::as_str).collect();
    assert_eq!(names, ["at", "attempts", "by", "holder"]);
    assert!(record["holder"].starts_with(client.id()) && record["attempts"] == "1");
    drop(client);
    server.assert_clean();
}

/// A success that no replica has is none: another runs it again after a failover.
#[test]
fn a_success_waits_for_the_replica() {
    let pair = Pair::start();
    let builder = builder_with(&pair.primary, |redis| redis.replicas(1)).io_timeout(ms(4000));
    let client = builder.outage_timeout(ms(6000)).build().unwrap();
    let job = client.once("report", "1");
    do_it(&job);
    let on_replica: bool = pair.replica.cmd(&["EXISTS", "leasehold_done:{report}/1"]);
    assert!(on_replica, "it was written before the call returned");
    let next = client.once("report", "2");
    let outcome = next.run(|_| {
        pair.replica.suspend();
        Ok::<_, ()>("done")
    });
    pair.replica.resume();
    let Once::Unrecorded("done", why) = outcome.unwrap() else { panic!("no replica has it") };
    assert!(matches!(why.kind(), ErrorKind::NotReplicated | ErrorKind::Lost), "{why}");
}

#[test]
fn a_server_that_forgets_runs_it_again() {
    let server = Server::start();
    let client = server.client();
    let job = client.once("report", "1");
    do_it(&job);
    server.cmd::<()>(&["FLUSHALL"]);
    do_it(&job);
    // In the job: what holds the lease is gone, and so is the attempt.
    let next = client.once("report", "2");
    let outcome = next.run(|_| {
        server.cmd::<()>(&["FLUSHALL"]);
        Ok::<_, ()>(())
    });
    let Once::Unrecorded((), why) = outcome.unwrap() else { panic!("the lease is gone") };
    assert_eq!(why.kind(), ErrorKind::Lost, "{why}");
    assert!(!is_done(&next));
    do_it(&next);
}

/// A full server begins no attempt, and still records the end of one.
#[test]
fn a_full_server_records_what_was_begun() {
    let server = Server::start_with(&["--maxmemory-policy", "noeviction"]);
    let client = server.client();
    let fill = |bytes: &str| server.cmd::<()>(&["CONFIG", "SET", "maxmemory", bytes]);
    let job = client.once("report", "1");
    let outcome = job.run(|_| {
        fill("1");
        Ok::<_, ()>(())
    });
    assert!(matches!(outcome.unwrap(), Once::Done(())));
    let refused = client.once("report", "2").run(|_| Ok::<_, ()>(())).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    fill("0");
    assert!(is_done(&job));
    do_it(&client.once("report", "2"));
}

/// The lease of a process that died ends, and whoever waits runs the next attempt.
#[test]
fn a_dead_holder_delays_the_next_by_its_lease() {
    let server = Server::start();
    // Renewed every ten seconds, which is never in this test.
    let [patient, dead] = [(); 2].map(|()| server.client());
    let job = patient.once("report", "1").attempts(2);
    std::thread::scope(|s| {
        let outcome = dead.once("report", "1").run(|_| {
            // As if it were: nothing renews it any more, and it says nothing.
            server.cmd::<()>(&["PEXPIRE", "leasehold_job:{report}", "300"]);
            let waits = s.spawn(|| {
                wait_until("the lease is over", || {
                    matches!(job.run(|run| Ok::<_, ()>(run.attempt())), Ok(Once::Done(2)))
                });
            });
            waits.join().unwrap();
            Ok::<_, ()>(())
        });
        assert!(matches!(outcome.unwrap(), Once::Unrecorded((), _)));
    });
    assert!(is_done(&job));
}
