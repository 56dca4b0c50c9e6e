//! Failovers: the old master is killed, suspended, replaced by hand, or cut off alive.

use std::time::Instant;

use leasehold::observe::NodeState;
use leasehold::{ErrorKind, LockClient, Once, Sentinel};

use super::{LEASE, address, assert_left, builder, builder_with, client, works};
use crate::rig::{
    CAP, FAIL_OVER_SOON, MASTER_NAME, SentinelOptions, Sentinels, Server, ms, sentinel_of,
    wait_until,
};
use crate::support::Load;

fn hasty() -> SentinelOptions<'static> {
    SentinelOptions { sentinel_lines: &[FAIL_OVER_SOON], ..SentinelOptions::default() }
}

/// The sum stays exact under load during the failover that `fail` causes, and nothing is left.
#[track_caller]
fn stays_exact(fail: impl FnOnce(&mut Sentinels, &Load)) {
    stays_exact_on(Sentinels::start_with(hasty()), fail);
}

#[track_caller]
fn stays_exact_on(mut rig: Sentinels, fail: impl FnOnce(&mut Sentinels, &Load)) {
    let sum = Server::start();
    let clients = [client(&rig), client(&rig)];
    let late = Load::run(&[&clients[0], &clients[1]], &sum, |load| {
        load.wait_for_more(50);
        fail(&mut rig, load);
        load.wait_for_more(50);
        for client in &clients {
            // On a busy machine the sentinels may have named another one in between.
            wait_until("it follows the sentinels", || {
                client.nodes()[0].address() == address(rig.master_server())
            });
        }
    });
    // Each client may have had a grant that the new master never received (replication is
    // asynchronous), and one that the old master granted after it came back.
    assert!(late <= 4, "{late} writes were late");
    drop(clients);
    assert_left(&rig);
    rig.assert_clean();
}

#[test]
fn a_master_is_killed_under_load() {
    stays_exact(|rig, _| {
        let port = rig.server(0).announced_port();
        rig.server_mut(0).kill();
        rig.wait_for_other_master(port);
    });
}

/// It comes back and still accepts writes until a sentinel makes it a replica.
#[test]
fn a_master_hangs_under_load_and_comes_back() {
    stays_exact(|rig, load| {
        let old = rig.server(0);
        old.suspend();
        rig.wait_for_other_master(old.announced_port());
        load.wait_for_more(50);
        old.resume();
        load.wait_for_more(50);
        wait_until("it is a replica", || old.info("replication", "role") == "slave");
    });
}

/// Back and forth: the old master works all the time.
#[test]
fn masters_are_replaced_by_hand_under_load() {
    stays_exact(|rig, load| {
        for _ in 0..2 {
            rig.failover();
            load.wait_for_more(50);
        }
    });
}

/// The new master has the hold, and the watchdog renews it there.
#[test]
fn a_hold_that_the_new_master_has_is_renewed_there() {
    let mut rig = Sentinels::start_with(hasty());
    // A failover takes some two seconds, and several times as much on a busy machine.
    let lease = ms(12_000);
    let client = builder(&rig).lease(lease).build().unwrap();
    let guard = client.lock("held").unwrap();
    wait_until("the replicas have it", || (1..3).all(|n| !rig.server(n).hash("held").is_empty()));
    let port = rig.server(0).announced_port();
    rig.server_mut(0).kill();
    rig.wait_for_other_master(port);
    let left = || rig.master_server().cmd::<i64>(&["PTTL", "held"]);
    let before = left();
    wait_until("the hold is renewed there", || left() > before);
    assert!(guard.is_held());
    assert_eq!(client.nodes()[0].state(), NodeState::Voting, "renewals reach it");
    // Two sentinels may each have led a failover, to one server after another.
    assert_eq!(rig.master_server().hash("held").len(), 1);
    assert!(super::client(&rig).try_lock("held").unwrap().is_none());
    guard.unlock().unwrap();
    drop(client);
    rig.assert_clean();
}

/// A sentinel that starts from the file of its first day, as in a container, names the master of
/// that day and knows no other sentinel. It is often the first to answer, and outvotes nobody.
#[test]
fn a_sentinel_that_was_set_up_anew_does_not_lead_back() {
    let mut rig = Sentinels::start();
    let old = rig.master();
    let port = rig.server(old).announced_port();
    rig.failover();
    // It would tell the sentinel of the others.
    rig.server_mut(old).kill();
    rig.kill_sentinel(2);
    let (anew, _) = sentinel_of(port);
    anew.cmd::<()>(&["SENTINEL", "MONITOR", MASTER_NAME, "127.0.0.1", &port.to_string(), "2"]);
    let mut urls = rig.urls();
    urls[2] = format!("redis://127.0.0.1:{}", anew.port());
    let new = address(rig.master_server());
    for _ in 0..12 {
        let sentinels = Sentinel::new(urls.clone(), MASTER_NAME);
        let client = LockClient::builder().sentinel(sentinels).lease(LEASE).build().unwrap();
        works(&client, "job");
        assert_eq!(client.nodes()[0].address(), new);
    }
    rig.assert_clean();
}

/// A job that is at work: its success is recorded at the new master, which has its lease, and
/// nobody does it again.
#[test]
fn a_job_that_is_at_work_is_recorded_at_the_new_master() {
    let mut rig = Sentinels::start_with(hasty());
    let [one, other] = [(); 2].map(|()| builder(&rig).lease(ms(12_000)).build().unwrap());
    let done = one.once("report", "1").run(|job| {
        wait_until("the replicas have it", || {
            (1..3).all(|n| !rig.server(n).hash("leasehold_done:{report}/1").is_empty())
        });
        let port = rig.server(0).announced_port();
        rig.server_mut(0).kill();
        rig.wait_for_other_master(port);
        assert!(job.is_held());
        Ok::<_, ()>(job.attempt())
    });
    let done = done.unwrap();
    assert!(matches!(done, Once::Done(1)), "{done:?}");
    for client in [&one, &other] {
        let again = client.once("report", "1").run(|_| Ok::<_, ()>(())).unwrap();
        assert!(matches!(again, Once::AlreadyDone { .. }), "{again:?}");
    }
    let master = rig.master_server();
    assert!(master.hash("leasehold_job:{report}").is_empty(), "its lease was given up");
    drop((one, other));
}

/// A master and one client are alone on one side of a partition. The master accepts writes all the
/// time, but nobody uses it once the sentinels name another one.
#[test]
fn a_master_that_is_cut_off_alive_is_left() {
    let rig = behind_proxies();
    let old = rig.server(0);
    // Far longer than the test, so that no renewal is due before the failover.
    let client = builder(&rig).lease(LEASE * 20).build().unwrap();
    let careful =
        builder_with(&rig, |sentinels| sentinels.replicas(1)).lease(LEASE * 20).build().unwrap();
    let held = client.lock("held").unwrap();
    works(&careful, "job");
    wait_until("the replicas have it", || (1..3).all(|n| !rig.server(n).hash("held").is_empty()));

    let cut_at = Instant::now();
    old.proxy().cut_off_servers(true);
    let lost = client.lock("lost").unwrap();
    let e = careful.lock("job").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotReplicated, "{e:?}");
    let mut last = 0;
    let mut grow = |client: &LockClient| {
        let guard = client.lock("counted").unwrap();
        let token = guard.fencing_token().unwrap().get();
        assert!(token > last, "{token} after {last}");
        last = token;
        guard.unlock().unwrap();
    };
    // The counter of the replicas falls behind.
    for _ in 0..20 {
        grow(&client);
    }
    let next = rig.wait_for_other_master(old.announced_port());
    wait_until("the clients use it", || {
        [&client, &careful]
            .iter()
            .all(|client| client.nodes()[0].address() == address(rig.server(next)))
    });
    for _ in 0..20 {
        grow(&client);
    }
    assert!(lost.wait_lost(CAP).is_lost(), "the new master never had it");
    assert_eq!(lost.unlock().unwrap_err().kind(), ErrorKind::Lost);

    let used = |server: &Server| server.call_count("evalsha");
    let before = used(old);
    // If it was not renewed since the cut, less than its lease is left of that time.
    let is_renewed = || {
        let left = u64::try_from(rig.server(next).pttl("held")).unwrap_or(0);
        cut_at.elapsed() + ms(left) > LEASE * 20
    };
    wait_until("it is renewed at the new master at once", is_renewed);
    assert_eq!(old.info("replication", "role"), "master");
    works(&careful, "job");
    assert!(held.is_held(), "renewed at the new master");
    assert_eq!(used(old), before, "and not at the old one");
    held.unlock().unwrap();
    old.proxy().cut_off_servers(false);
    wait_until("it is a replica", || old.follows_a_master());
    grow(&client);
    drop((client, careful));
    assert_left(&rig);
    rig.assert_clean();
}

fn behind_proxies() -> Sentinels {
    Sentinels::start_with(SentinelOptions { proxies: true, ..hasty() })
}

#[test]
fn a_master_is_cut_off_alive_under_load() {
    stays_exact_on(behind_proxies(), |rig, load| {
        let old = rig.server(0);
        old.proxy().cut_off_servers(true);
        load.wait_for_more(50);
        rig.wait_for_other_master(old.announced_port());
        load.wait_for_more(50);
        old.proxy().cut_off_servers(false);
        wait_until("it is a replica", || old.follows_a_master());
    });
}

/// A waiter is subscribed at the old master when the holder releases at the new one.
#[test]
fn waiters_are_woken_at_the_new_master() {
    let rig = Sentinels::start();
    let (holder, waiter) = (builder(&rig).lease(LEASE * 20), builder(&rig).lease(LEASE * 20));
    let (holder, waiter) = (holder.build().unwrap(), waiter.build().unwrap());
    let guard = holder.lock("job").unwrap();
    std::thread::scope(|s| {
        let waiting = s.spawn(|| waiter.lock("job").map(|guard| guard.unlock()));
        wait_until("the waiter is subscribed", || !subscribed(rig.server(0)).is_empty());
        let next = rig.failover();
        wait_until("it subscribes at the new master", || !subscribed(rig.server(next)).is_empty());
        let start = Instant::now();
        guard.unlock().unwrap();
        waiting.join().unwrap().unwrap().unwrap();
        assert!(start.elapsed() < LEASE * 5, "woken by its timer");
    });
}

fn subscribed(server: &Server) -> Vec<String> {
    server.channels().into_iter().filter(|channel| channel.contains("redisson")).collect()
}

/// Prints for how long a failover makes locks unavailable: from the kill of the master until the
/// sentinels name another one, and until repeated calls are granted a lock there; and then, how
/// long a release takes to wake a waiter that began to wait before the kill.
#[test]
#[ignore = "a measurement"]
fn from_the_kill_to_the_next_grant() {
    for _ in 0..5 {
        let mut rig = Sentinels::start_with(hasty());
        let (client, other, port) = (client(&rig), client(&rig), rig.server(0).announced_port());
        let held = client.lock("held").unwrap();
        works(&other, "job");
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                other.lock("held").unwrap().unlock().unwrap();
                Instant::now()
            });
            wait_until("it waits", || !subscribed(rig.server(0)).is_empty());
            rig.server_mut(0).kill();
            let killed = Instant::now();
            let rig = &rig;
            let named = s.spawn(move || {
                rig.wait_for_other_master(port);
                killed.elapsed()
            });
            while client.try_lock("job").is_err() {
                std::thread::sleep(ms(1));
            }
            let granted = killed.elapsed();
            let named = named.join().unwrap();
            wait_until("it subscribes at the new master", || {
                !subscribed(rig.master_server()).is_empty()
            });
            let released = Instant::now();
            held.unlock().unwrap();
            let woken = waiter.join().unwrap() - released;
            println!(
                "killed; another master named after {named:?}, granted after {granted:?}; woken after {woken:?}"
            );
        });
    }
}
