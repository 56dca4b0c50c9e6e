//! A master that answers later than the others: nobody waits for its reply, and only the reply says
//! whether the request ran.

use std::time::Duration;

use leasehold::{ErrorKind, LockClient};

use super::behind;
use crate::rig::{CAP, Fault, Proxy, Server, ms, wait_until};
use crate::support::{Masters, wait_for_votes};

/// Nothing that remains is gone by itself while a test waits for it, and no renewal comes.
const LONG: Duration = ms(90_000);
/// Later than the round goes on after the others have answered, and far below the I/O timeout.
const LATE: Fault = Fault::StallReply(ms(200));

/// Three masters with votes, and a client that reaches the third through a proxy.
fn with_a_late_master() -> (Masters, Proxy, LockClient) {
    let masters = Masters::fresh(3);
    let proxy = Proxy::start(&masters.0[2]);
    let client = behind(&masters, &[(2, &proxy)]).lease(LONG).io_timeout(ms(5000)).build().unwrap();
    wait_for_votes(&client, 3);
    (masters, proxy, client)
}

/// Waits until `n` requests met the fault, and all replies have come back.
fn wait_for_late_replies(proxy: &Proxy, n: u32) {
    proxy.wait_hits(n);
    wait_until("the late replies have come", || proxy.is_at_rest());
}

/// How often the server has answered with this error.
fn errors(server: &Server, code: &str) -> u64 {
    let counted = server.info("errorstats", &format!("errorstat_{code}"));
    counted
        .strip_prefix("count=")
        .and_then(|count| count.split(',').next())
        .map_or(0, |count| count.parse().unwrap())
}

/// Makes the server refuse a release, and lets it take one again.
type Refusal = (&'static str, fn(&Server), fn(&Server));

const REFUSALS: [Refusal; 4] = [
    ("NOSCRIPT", |server| server.cmd(&["SCRIPT", "FLUSH"]), |_| {}),
    (
        "NOREPLICAS",
        |server| server.cmd(&["CONFIG", "SET", "min-replicas-to-write", "1"]),
        |server| server.cmd(&["CONFIG", "SET", "min-replicas-to-write", "0"]),
    ),
    (
        "READONLY",
        |server| server.cmd(&["REPLICAOF", "127.0.0.1", "1"]),
        |server| server.cmd(&["REPLICAOF", "NO", "ONE"]),
    ),
    ("BUSY", run_a_script_for_ever, end_the_script),
];

/// Waits until other requests are refused because of it.
fn run_a_script_for_ever(server: &Server) {
    server.cmd::<()>(&["CONFIG", "SET", "lua-time-limit", "1"]);
    let mut connection = server.connect();
    std::thread::spawn(move || {
        let _ = redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut connection);
    });
    let mut other = server.connect();
    let is_busy = |e: redis::RedisError| e.code() == Some("BUSY");
    wait_until("the script runs", || {
        redis::cmd("PING").query::<()>(&mut other).is_err_and(is_busy)
    });
}

/// The server ends the script a moment after it has answered.
fn end_the_script(server: &Server) {
    server.cmd::<()>(&["SCRIPT", "KILL"]);
    let mut other = server.connect();
    wait_until("the script has ended", || redis::cmd("PING").query::<()>(&mut other).is_ok());
}

#[test]
fn a_release_that_a_late_master_refuses_is_sent_again() {
    std::thread::scope(|s| {
        for (what, begin, end) in REFUSALS {
            s.spawn(move || {
                let (masters, proxy, client) = with_a_late_master();
                let guard = client.lock("l").unwrap();
                wait_until(&format!("{what}: all have it"), || masters.holding("l") == 3);
                begin(&masters.0[2]);
                proxy.inject("l", LATE);
                guard.unlock().unwrap();
                wait_for_late_replies(&proxy, 1);
                end(&masters.0[2]);
                wait_until(&format!("{what}: nothing is left"), || masters.holding("l") == 0);
                drop(client);
                masters.assert_clean();
            });
        }
    });
}

/// The masters have never seen this release, and lost its script later.
#[test]
fn a_late_master_keeps_a_lock_for_its_minimum_and_no_longer() {
    let (masters, proxy, client) = with_a_late_master();
    for flush in [false, true] {
        let guard = client.mutex("l").min_hold(ms(1000)).lock().unwrap();
        wait_until("all have it", || masters.holding("l") == 3);
        if flush {
            masters.0[2].cmd::<()>(&["SCRIPT", "FLUSH"]);
        }
        proxy.inject("l", LATE);
        guard.unlock().unwrap();
        wait_until("its time is over everywhere", || masters.holding("l") == 0);
    }
}

/// Left out, it would keep the lock until its lease ends.
#[test]
fn a_forced_release_waits_for_a_late_master() {
    let (masters, proxy, client) = with_a_late_master();
    let holder = masters.builder().lease(LONG).build().unwrap();
    let guard = holder.lock("l").unwrap();
    wait_until("all have it", || masters.holding("l") == 3);
    proxy.inject("l", LATE);
    assert!(client.try_lock("l").unwrap().is_none());
    assert!(client.mutex("l").force_unlock().unwrap());
    assert_eq!(masters.holding("l"), 0);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
}

/// The kill makes sure that the release can never run, which is not the same as that it ran.
#[test]
fn a_release_whose_connection_another_thread_has_killed_is_sent_again() {
    let (masters, proxy, client) = with_a_late_master();
    // Opens a second connection, so that the master does not count as down without the first.
    let before = proxy.connections();
    wait_until("it has a second connection", || {
        proxy.inject_times("warm", 2, LATE);
        std::thread::scope(|s| {
            let lock = |name| client.lock(name).unwrap().unlock().unwrap();
            s.spawn(move || lock("warm1"));
            s.spawn(move || lock("warm2"));
        });
        wait_until("nothing is held", || masters.holding("warm1") + masters.holding("warm2") == 0);
        wait_until("the late replies have come", || proxy.is_at_rest());
        proxy.connections() > before
    });
    let guard = client.lock("job").unwrap();
    wait_until("all have it", || masters.holding("job") == 3);
    // The master never receives it, and the connection ends after the round.
    let before = proxy.hits();
    proxy.inject("job", Fault::Hold);
    guard.unlock().unwrap();
    proxy.wait_hits(before + 1);
    proxy.cut_all();
    client.lock("other").unwrap().unlock().unwrap();
    wait_until("nothing is left", || masters.holding("job") == 0);
}

/// Another holder has two of three masters, and the third grants too late. What it has granted is
/// taken back, and that is refused.
#[test]
fn a_grant_that_comes_late_and_cannot_be_taken_back_at_once_is_taken_back_later() {
    let (masters, proxy, client) = with_a_late_master();
    for server in &masters.0[..2] {
        server.cmd::<()>(&["HSET", "l", "somebody", "1"]);
        server.cmd::<()>(&["PEXPIRE", "l", "600000"]);
    }
    proxy.inject_times("l", 2, Fault::StallReply(ms(1500)));
    assert!(client.try_lock("l").unwrap().is_none());
    wait_until("the third has granted it", || !masters.0[2].hash("l").is_empty());
    // The connection carries nothing else before that reply has come.
    masters.0[2].cmd::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    wait_for_late_replies(&proxy, 2);
    assert!(!masters.0[2].hash("l").is_empty(), "it was too slow to refuse");
    masters.0[2].cmd::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    wait_until("it is taken back", || masters.0[2].hash("l").is_empty());
}

/// The first has no vote, and the third is not asked at first, because it is late with an earlier
/// reply: the second one's reply counts, although it comes when these two have decided the round.
#[test]
fn a_reply_that_comes_while_a_late_master_is_asked_counts() {
    let mut masters = Masters::fresh(3);
    let proxies = [1, 2].map(|master| Proxy::start(&masters.0[master]));
    let through = [(1, &proxies[0]), (2, &proxies[1])];
    let client = behind(&masters, &through).lease(LONG).io_timeout(ms(5000)).build().unwrap();
    wait_for_votes(&client, 3);
    drop(client.lock("before").unwrap());
    proxies[1].inject("earlier", Fault::StallReply(ms(1500)));
    let earlier = client.lock("earlier").unwrap();
    masters.0[0].restart();
    proxies[0].inject("job", Fault::StallReply(ms(60)));
    let guard = client.try_lock("job").unwrap().expect("two of three have a vote");
    drop((guard, earlier));
}

/// The first has no vote, and the third is late with an earlier reply: the renewal needs it.
#[test]
fn an_extension_asks_a_late_master_if_another_one_has_no_vote() {
    let (mut masters, proxy, client) = with_a_late_master();
    let guard = client.lock("l").unwrap();
    wait_until("all have it", || masters.holding("l") == 3);
    proxy.inject("earlier", Fault::StallReply(ms(1500)));
    let earlier = client.lock("earlier").unwrap();
    masters.0[0].restart();
    guard.extend(LONG).unwrap();
    drop((guard, earlier));
}

/// Otherwise the hold would depend on the two others until its first renewal.
#[test]
fn a_late_master_takes_a_lock_whose_script_it_does_not_know() {
    let (masters, proxy, client) = with_a_late_master();
    masters.0[2].cmd::<()>(&["SCRIPT", "FLUSH"]);
    proxy.inject("l", LATE);
    let guard = client.lock("l").unwrap();
    wait_until("the third has it", || !masters.0[2].hash("l").is_empty());
    masters.0[0].suspend();
    guard.extend(LONG).unwrap();
    masters.0[0].resume();
    guard.unlock().unwrap();
    wait_until("nothing is left", || masters.holding("l") == 0);
}

/// Each connection has loaded what a round may leave unread.
#[test]
fn no_master_refuses_the_first_request_of_a_kind() {
    let masters = Masters::fresh(3);
    for server in &masters.0 {
        server.cmd::<()>(&["SCRIPT", "FLUSH"]);
    }
    let client = masters.client();
    wait_for_votes(&client, 3);
    let before: Vec<u64> = masters.0.iter().map(|server| errors(server, "NOSCRIPT")).collect();
    client.lock("l").unwrap().unlock().unwrap();
    client.mutex("m").min_hold(ms(1)).lock().unwrap().unlock().unwrap();
    let guard = client.mutex("n").min_hold(ms(500)).lock().unwrap();
    guard.extend(ms(1000)).unwrap();
    guard.unlock().unwrap();
    let after: Vec<u64> = masters.0.iter().map(|server| errors(server, "NOSCRIPT")).collect();
    assert_eq!(after, before);
    wait_until("nothing is left", || ["l", "m", "n"].iter().all(|name| masters.holding(name) == 0));
}

/// The acquire was never answered, and can still run. A kill that was refused does not stop it.
#[test]
fn an_acquire_that_could_not_be_killed_is_undone_when_it_can() {
    let (masters, proxy, client) = with_a_late_master();
    let third = &masters.0[2];
    // The handshake of a new connection calls each command once.
    let releases = || i128::from(third.call_count("hdel")) - i128::from(third.call_count("lpop"));
    proxy.inject("job", Fault::Hold);
    let guard = client.lock("job").unwrap();
    proxy.wait_hits(1);
    third.cmd::<()>(&["ACL", "SETUSER", "default", "-client", "+client|setname", "+client|info"]);
    let before = releases();
    guard.unlock().unwrap();
    // The release in the background runs at once, behind a kill that does not.
    wait_until("the release has run", || releases() > before);
    third.cmd::<()>(&["ACL", "SETUSER", "default", "+client"]);
    client.close(CAP).unwrap();
    // Its connection has ended: the master does not receive it any more.
    proxy.release_held();
    assert_eq!(masters.holding("job"), 0);
}
