//! What others do to the nodes of a client: they write into them, delete them, change counts. And
//! what servers refuse.

use std::time::{Duration, Instant};

use leasehold::ErrorKind;

use super::{LONG, children, client, client_of, server};
use crate::rig::zookeeper::{PERSISTENT, Pipe, Raw};
use crate::rig::{CAP, Fault, PROMPT, Proxy, ms, wait_until};

/// The path of the only node of a lock.
fn only_node(look: &mut Raw, directory: &str) -> String {
    let nodes = children(look, directory);
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    format!("{directory}/{}", nodes[0])
}

/// Curator's `Revoker` or an operator does this: the lock is still held, and its end is still
/// noticed.
#[test]
fn data_in_the_node_of_a_holder_is_no_loss() {
    let server = server!();
    let lease = ms(9000);
    let client = client_of(&server.url(), |builder| builder.lease(lease));
    let mut look = server.raw();
    let guard = client.lock("job").unwrap();
    wait_until("it is watched", || !server.watches().is_empty());
    let node = only_node(&mut look, "/job");
    for _ in 0..2 {
        look.set(&node, b"__REVOKE__").unwrap();
        // Longer than until the next check.
        std::thread::sleep(lease * 2 / 5);
        guard.ensure_held().unwrap();
    }
    wait_until("it is watched again", || !server.watches().is_empty());
    look.delete(&node).unwrap();
    assert!(guard.wait_lost(CAP).is_lost());
    drop(guard);
    look.close();
    drop(client);
    server.assert_clean();
}

/// The session is so long that no check is due: only the watch can report it.
#[test]
fn a_node_that_is_deleted_is_a_loss_at_once() {
    let server = server!();
    let client = client_of(&server.url(), |builder| builder.lease(Duration::from_secs(60)));
    let mut look = server.raw();
    let names = ["one", "two", "three"];
    let guards: Vec<_> = names.iter().map(|name| client.lock(name).unwrap()).collect();
    let permits = client.semaphore("permits");
    permits.try_set_permits(3).unwrap();
    let three = permits.acquire_many(3).unwrap();
    // After a third of the session.
    wait_until("all are watched", || server.watches().len() == names.len() + 3);
    let start = Instant::now();
    let node = only_node(&mut look, "/one");
    look.delete(&node).unwrap();
    assert!(guards[0].wait_lost(PROMPT / 2).is_lost(), "by the watch, not by the next check");
    assert!(client.mutex("two").force_unlock().unwrap());
    assert!(guards[1].wait_lost(PROMPT / 2).is_lost());
    let lease = children(&mut look, "/permits/leases").pop().unwrap();
    look.delete(&format!("/permits/leases/{lease}")).unwrap();
    assert!(three.wait_lost(PROMPT / 2).is_lost());
    wait_until("the other permits are returned", || {
        children(&mut look, "/permits/leases").is_empty()
    });
    assert!(start.elapsed() < PROMPT && guards[2].is_held());
    drop((guards, three));
    permits.delete().unwrap();
    look.close();
    drop((permits, client));
    server.assert_clean();
}

/// This uses up the watch, which must be set again.
#[test]
fn data_in_the_node_before_a_waiter_keeps_nobody_waiting() {
    let server = server!();
    let (holder, waiter) = (client(&server), client(&server));
    let mut look = server.raw();
    let guard = holder.lock("job").unwrap();
    let node = only_node(&mut look, "/job");
    std::thread::scope(|s| {
        let waits = s.spawn(|| waiter.lock("job").unwrap().unlock().unwrap());
        let is_watched = || server.watches().iter().any(|(_, path)| *path == node);
        wait_until("it waits", is_watched);
        for _ in 0..3 {
            look.set(&node, b"anything").unwrap();
            wait_until("it is watched again", is_watched);
        }
        let start = Instant::now();
        guard.unlock().unwrap();
        waits.join().unwrap();
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    });
    look.close();
    drop((holder, waiter));
    server.assert_clean();
}

#[test]
fn permits_that_are_added_wake_who_waits_for_them() {
    let server = server!();
    let (a, b) = (client(&server), client(&server));
    let semaphore = a.semaphore("pool");
    semaphore.try_set_permits(1).unwrap();
    let first = semaphore.acquire().unwrap();
    // A holder watches its node once it has held it for some time.
    let nobody_waits =
        || server.watches().iter().all(|(_, path)| path.starts_with("/pool/leases/"));
    std::thread::scope(|s| {
        let waits = s.spawn(|| b.semaphore("pool").acquire().unwrap());
        wait_until("it waits", || server.watches().iter().any(|(_, path)| path == "/pool/permits"));
        let start = Instant::now();
        semaphore.add_permits(1).unwrap();
        let second = waits.join().unwrap();
        assert!(start.elapsed() < PROMPT && second.is_held(), "{:?}", start.elapsed());
        wait_until("nobody watches for a turn any more", nobody_waits);
        // Woken in the other way: nobody watches the number any more either.
        let waits = s.spawn(|| b.semaphore("pool").acquire().unwrap());
        wait_until("it waits", || server.watches().iter().any(|(_, path)| path == "/pool/permits"));
        drop(first);
        drop(waits.join().unwrap());
        wait_until("nobody watches for a turn any more", nobody_waits);
    });
    semaphore.delete().unwrap();
    drop((semaphore, a, b));
    server.assert_clean();
}

/// The call that was first loses its queue entry. If it queued again in that queue alone, it would
/// be behind the other call there, which is behind it in the other queue.
#[test]
fn a_part_of_a_waiting_multi_lock_that_is_forced_open_makes_no_circle() {
    let server = server!();
    let [holder, first, second] = [(); 3].map(|()| client(&server));
    let mut look = server.raw();
    let guard = holder.lock("b").unwrap();
    std::thread::scope(|s| {
        let wait = |client| s.spawn(move || take_both(client));
        let waits = wait(&first);
        wait_until("the first one waits", || children(&mut look, "/b").len() == 2);
        let behind = wait(&second);
        wait_until("the second one waits", || children(&mut look, "/b").len() == 3);
        assert!(holder.mutex("a").force_unlock().unwrap(), "the first one is first there");
        guard.unlock().unwrap();
        assert!(waits.join().unwrap() && behind.join().unwrap(), "each waited for the other");
    });
    look.close();
    drop((holder, first, second));
    server.assert_clean();
}

fn take_both(client: &leasehold::LockClient) -> bool {
    client
        .multi(["a", "b"])
        .try_lock_for(CAP)
        .unwrap()
        .map(|guard| guard.unlock().unwrap())
        .is_some()
}

/// Servers end the connection of a client that sends more than a megabyte, with everything else on
/// it.
#[test]
fn what_is_too_long_for_a_server_is_refused_before_it_is_sent() {
    let server = server!();
    // The server has much to do for some of these requests.
    let client = client_of(&server.url(), |builder| builder.io_timeout(CAP));
    let semaphore = client.semaphore("pool");
    semaphore.try_set_permits(20_000).unwrap();
    let guard = client.lock("job").unwrap();
    let connection = server.connections().pop().unwrap();
    let port = |connection: &str| connection.split('[').next().unwrap().to_owned();
    let error = semaphore.try_acquire_many(10_000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let names: Vec<String> = (0..1000).map(|n| format!("{n}-{}", "x".repeat(1000))).collect();
    let error = client.multi(names.iter().map(String::as_str)).try_lock().unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidInput && error.to_string().contains("jute.maxbuffer"),
        "{error}"
    );
    assert_eq!(
        port(&server.connections().pop().unwrap()),
        port(&connection),
        "on the same connection"
    );
    assert!(guard.is_held() && server.children("/pool/locks").is_empty());
    let some = semaphore.try_acquire_many(1000).unwrap().expect("there are enough");
    assert!(some.is_held());
    // More than a transaction can delete.
    let more: Vec<_> = (0..11).map(|_| semaphore.acquire_many(1000).unwrap()).collect();
    assert!(semaphore.delete().unwrap());
    assert!(server.children("/pool/leases").is_empty());
    drop((some, more, guard));
    drop((semaphore, client));
    server.assert_clean();
}

/// The server has restarted with a shorter `maxSessionTimeout`: the session continues with that,
/// and ends that long after the client's last message.
#[test]
fn a_session_that_is_resumed_with_a_shorter_timeout_is_believed_in_for_no_longer() {
    let server = server!(crate::rig::zookeeper::ZooKeeper::start_with(
        "tickTime=100\nmaxSessionTimeout=60000"
    ));
    let pipe = Pipe::to(server.port());
    let url = format!("zookeeper://127.0.0.1:{}", pipe.port());
    let far =
        client_of(&url, |builder| builder.lease(Duration::from_secs(30)).outage_timeout(LONG));
    let guard = far.lock("job").unwrap();
    server.kill();
    server.configure("maxSessionTimeout=2000");
    server.start_again();
    wait_until("it is back", || far.mutex("other").holder().is_ok());
    let near = client(&server);
    assert_eq!(far.lease(), SHORTER);
    pipe.silence(true);
    let next = near.mutex("job").try_lock_for(LONG).unwrap().expect("the session ends");
    assert!(!guard.is_held(), "two guards believed at the same time");
    pipe.silence(false);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    drop((next, far, near));
    server.assert_clean();
}

const SHORTER: Duration = ms(2000);

/// The server is overloaded (-127): the node is deleted a little later, and does not block others
/// until the session ends.
#[test]
fn a_deletion_that_the_server_puts_off_is_repeated() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let client = client_of(&proxy.zookeeper_url(), |builder| builder.lease(Duration::from_secs(6)));
    let mut look = server.raw();
    look.create("/job", b"", PERSISTENT).unwrap();
    let theirs = look.create("/job/_c_6c1d4dfc-7a43-4e2c-9a9a-0d3e1e1d2c3b-lock-", b"", 3).unwrap();
    proxy.inject("delete /job", Fault::Refuse(-127));
    assert!(client.try_lock("job").unwrap().is_none());
    proxy.wait_hits(1);
    wait_until("its node is deleted", || children(&mut look, "/job").len() == 1);
    look.delete(&theirs).unwrap();
    look.delete("/job").unwrap();
    look.close();
    drop((client, proxy));
    server.assert_clean();
}

/// At 2^31 the server gives the same number to several nodes, and then negative numbers, which sort
/// before all others: two would be the first at once.
#[test]
fn a_number_behind_the_last_one_is_refused() {
    let server = server!();
    let client = client(&server);
    let mut look = server.raw();
    look.create("/job", b"", PERSISTENT).unwrap();
    server.say("cversion /job 2147483645");
    let number = |look: &mut Raw| {
        let node = look.create("/job/x-lock-", b"", 3).unwrap();
        look.delete(&node).unwrap();
        node.rsplit("lock-").next().unwrap().to_owned()
    };
    wait_until("the server counts from there", || number(&mut look) == "2147483646");
    let mut seen = Vec::new();
    for _ in 0..4 {
        let error = client.try_lock("job").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        seen.push(number(&mut look));
    }
    println!("{seen:?}");
    wait_until("nothing of it is left", || children(&mut look, "/job").is_empty());
    look.delete("/job").unwrap();
    look.close();
    drop(client);
    server.assert_clean();
}
