//! The cost of a lock and its unlock in each store: the figures in the guide's chapter
//! `choosing_a_store`.

use leasehold::{LockClient, Redlock};

use crate::rig::{Fault, Proxy, Server, ms};
use crate::support::{Clients, Masters};

const CYCLES: u32 = 10;

/// How many exchanges about this name pass each proxy in `CYCLES` cycles. The first cycle is not
/// counted, because it creates what is created only once.
fn exchanges(client: &LockClient, proxies: &[Proxy]) -> Vec<u32> {
    client.lock("costs").unwrap().unlock().unwrap();
    for proxy in proxies {
        proxy.inject_times("costs", u32::MAX, Fault::StallReply(ms(0)));
    }
    for _ in 0..CYCLES {
        client.lock("costs").unwrap().unlock().unwrap();
    }
    proxies.iter().map(Proxy::hits).collect()
}

#[test]
fn redis_is_asked_once_for_a_lock_and_once_for_its_unlock() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = LockClient::open(&proxy.url()).unwrap();
    assert_eq!(exchanges(&client, &[proxy]), [2 * CYCLES]);
    drop(client);
    server.assert_clean();
}

#[test]
fn each_master_of_redlock_is_asked_as_often_as_one_redis() {
    let masters = Masters::fresh(3);
    let proxies: Vec<Proxy> = masters.0.iter().map(Proxy::start).collect();
    let client = LockClient::builder()
        .redlock(Redlock::new(proxies.iter().map(Proxy::url)))
        .io_timeout(ms(5000))
        .build()
        .unwrap();
    crate::support::wait_for_votes(&client, 3);
    let asked = exchanges(&client, &proxies);
    assert!(asked.iter().all(|asked| *asked <= 2 * CYCLES), "{asked:?}");
    // A call does not wait for the slowest master, which may be a different one each time.
    assert!(
        asked.iter().sum::<u32>() >= 2 * 2 * CYCLES,
        "a majority is asked each time: {asked:?}"
    );
    drop((client, proxies));
    masters.assert_clean();
}

/// Whatever the number of its threads and holds: eight for calls, one for renewals, one for
/// messages.
#[test]
fn a_redis_has_ten_connections_of_a_client_at_most() {
    let server = Server::start();
    let lease = ms(6000);
    let client = server.builder().lease(lease).io_timeout(ms(5000)).build().unwrap();
    has_ten_connections_at_most(&client, &server);
    drop(client);
    server.assert_clean();
    let masters = Masters::fresh(3);
    let client = masters
        .builder_with(|masters| masters.longest_lease(lease).admit_fresh_nodes(true))
        .lease(lease)
        .io_timeout(ms(5000))
        .build()
        .unwrap();
    crate::support::wait_for_votes(&client, 3);
    has_ten_connections_at_most(&client, &masters.0[0]);
    drop(client);
    masters.assert_clean();
}

fn has_ten_connections_at_most(client: &LockClient, server: &Server) {
    std::thread::scope(|s| {
        let work = |n: usize| {
            let guard = client.lock(format!("own-{n}")).unwrap();
            for _ in 0..5 {
                client.lock("shared").unwrap().unlock().unwrap();
            }
            // Longer than until the first renewal.
            assert!(guard.wait_lost(ms(3000)).is_still_held(), "renewed");
            guard.unlock().unwrap();
        };
        let threads: Vec<_> = (0..32).map(|n| s.spawn(move || work(n))).collect();
        let mut most = 0;
        while threads.iter().any(|thread| !thread.is_finished()) {
            let lines = server.client_lines();
            most = most.max(lines.iter().filter(|line| line.contains("name=it-")).count());
            std::thread::sleep(ms(20));
        }
        assert!((2..=10).contains(&most), "{most}");
    });
}

/// One run of a script renews up to a fixed number of holds, instead of one run each.
#[test]
fn the_renewals_of_a_hundred_holds_travel_together() {
    let server = Server::start();
    let client = server.builder().lease(ms(6000)).io_timeout(ms(5000)).build().unwrap();
    let guards: Vec<_> = (0..100).map(|n| client.lock(format!("held-{n}")).unwrap()).collect();
    server.cmd::<()>(&["CONFIG", "RESETSTAT"]);
    assert!(guards[0].wait_lost(ms(6000)).is_still_held(), "renewed");
    let calls = server.call_count("evalsha");
    assert!((2..=50).contains(&calls), "{calls} scripts in a lease");
    assert!(guards.iter().all(|guard| guard.is_held()));
    drop((guards, client));
    server.assert_clean();
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_is_asked_once_for_a_lock_and_once_for_its_unlock() {
    let server = crate::rig::Postgres::shared();
    let proxy = Proxy::before_postgres(&server);
    let client = LockClient::open(&proxy.url()).unwrap();
    assert_eq!(exchanges(&client, &[proxy]), [2 * CYCLES]);
    drop(client);
    server.assert_clean();
}

/// Waiters are notified by a request of its own after a release that leaves the lock taken, and
/// after no other one.
#[cfg(feature = "postgres")]
#[test]
fn postgres_is_asked_twice_only_for_an_unlock_that_keeps_the_lock() {
    let server = crate::rig::Postgres::shared();
    let proxy = Proxy::before_postgres(&server);
    let client = LockClient::open(&proxy.url()).unwrap();
    let (short, long) = (std::time::Duration::from_nanos(1), ms(300_000));
    proxy.inject_times("costs", u32::MAX, Fault::StallReply(ms(0)));
    let asked = |work: &mut dyn FnMut()| {
        let before = proxy.hits();
        work();
        proxy.hits() - before
    };
    let rw = client.rw_lock("costs of a writer").min_hold(long);
    let (write, read) = (rw.write().unwrap(), client.rw_lock("costs of a writer").read().unwrap());
    assert_eq!(asked(&mut || drop(rw.write().unwrap())), 2, "an inner level");
    let mut write = Some(write);
    assert_eq!(asked(&mut || drop(write.take())), 1, "a downgrade");
    drop(read);
    let many: Vec<String> = (0..9).map(|n| format!("costs {n}")).collect();
    for (min_hold, last) in [(short, 1), (long, 2)] {
        let mutex = client.mutex(format!("costs {min_hold:?}")).min_hold(min_hold);
        let mut outer = Some(mutex.lock().unwrap());
        assert_eq!(asked(&mut || mutex.lock().unwrap().unlock().unwrap()), 2, "an inner level");
        assert_eq!(asked(&mut || outer.take().unwrap().unlock().unwrap()), last, "{min_hold:?}");
        let several = client.multi(&many).min_hold(min_hold);
        let mut outer = Some(several.lock().unwrap());
        assert_eq!(asked(&mut || several.lock().unwrap().unlock().unwrap()), 2, "inner levels");
        assert_eq!(asked(&mut || outer.take().unwrap().unlock().unwrap()), last, "{min_hold:?}");
    }
    drop(client);
}

#[cfg(feature = "mysql")]
#[test]
fn mysql_is_asked_once_for_a_lock_and_once_for_its_unlock() {
    let server = crate::rig::Mysql::shared();
    let proxy = Proxy::before_mysql(&server);
    let client = LockClient::open(&proxy.url()).unwrap();
    assert_eq!(exchanges(&client, &[proxy]), [2 * CYCLES]);
    drop(client);
    server.assert_clean();
}

/// How many transaction ids of the server are used up: each transaction that writes, also one that
/// only locks a row, takes one.
#[cfg(feature = "postgres")]
fn transactions_of(server: &crate::rig::Postgres, work: impl FnOnce()) -> i64 {
    let next = || server.number_of("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint");
    let before = next();
    work();
    next() - before
}

/// Neither a lock nor several, nor readers, nor permits: a program that tries again and again must not
/// fill the log of the server. The few that are allowed are the client's own, in the background.
#[cfg(feature = "postgres")]
#[test]
fn a_try_that_finds_a_lock_taken_writes_nothing_in_postgres() {
    type Try = fn(&LockClient) -> bool;
    let tries: [(&str, Try); 7] = [
        ("a mutex", |client| client.try_lock("m2").unwrap().is_none()),
        ("several locks", |client| client.multi(["m1", "m2", "m3"]).try_lock().unwrap().is_none()),
        ("a fair lock", |client| client.fair("f").try_lock().unwrap().is_none()),
        ("a reader beside a writer", |client| client.rw_lock("w").try_read().unwrap().is_none()),
        ("a writer beside a writer", |client| client.rw_lock("w").try_write().unwrap().is_none()),
        ("a writer beside a reader", |client| client.rw_lock("r").try_write().unwrap().is_none()),
        ("a permit", |client| client.semaphore("s").try_acquire().unwrap().is_none()),
    ];
    let server = crate::rig::Postgres::start_with("autovacuum = off");
    let (holder, client) =
        (LockClient::open(&server.url()).unwrap(), LockClient::open(&server.url()).unwrap());
    holder.semaphore("s").try_set_permits(1).unwrap();
    let guards = (
        holder.lock("m2").unwrap(),
        holder.fair("f").lock().unwrap(),
        holder.semaphore("s").acquire().unwrap(),
    );
    let shared = (holder.rw_lock("w").write().unwrap(), holder.rw_lock("r").read().unwrap());
    let mut wrote = Vec::new();
    for (what, fails) in tries {
        let used =
            transactions_of(&server, || (0..100).for_each(|_| assert!(fails(&client), "{what}")));
        if used >= 20 {
            wrote.push((what, used));
        }
    }
    assert!(wrote.is_empty(), "transactions that write in 100 tries: {wrote:?}");
    drop((guards, shared, holder, client));
    server.assert_clean();
}

/// One client waits for the other, each with a session of 30 s: only heartbeats are sent.
#[cfg(feature = "zookeeper")]
#[test]
fn a_wait_in_zookeeper_sends_nothing_but_heartbeats() {
    let server = crate::rig::zookeeper::ZooKeeper::start_with("tickTime=2000");
    let (holder, waiter) =
        (LockClient::open(&server.url()).unwrap(), LockClient::open(&server.url()).unwrap());
    let guard = holder.lock("costs").unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| waiter.lock("costs").unwrap().unlock().unwrap());
        crate::rig::wait_until("it waits", || {
            server.watches().iter().any(|(_, path)| path.starts_with("/costs/"))
        });
        std::thread::sleep(ms(500));
        let (before, start) = (server.figure("zk_packets_received"), std::time::Instant::now());
        std::thread::sleep(ms(5000));
        // A heartbeat is sent every twelfth of a session, 2.5 s; the query itself counts too.
        let packets = server.figure("zk_packets_received") - before;
        let passed = start.elapsed();
        let most = passed.as_secs() * 2 / 5 * 2 + 4;
        assert!(packets <= most, "{packets} packets in {passed:?}");
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
    drop((holder, waiter));
    server.assert_clean();
}

/// Three requests, of which the first two are sent together, and two changes.
#[cfg(feature = "zookeeper")]
#[test]
fn a_zookeeper_makes_two_changes_in_two_round_trips() {
    let server = crate::rig::zookeeper::ZooKeeper::start();
    // Not a container: the server would occasionally delete it, which is a change too.
    server
        .look(|session| session.create("/costs", b"", crate::rig::zookeeper::PERSISTENT).unwrap());
    let proxy = Proxy::before_zookeeper(&server);
    let client = LockClient::open(&proxy.zookeeper_url()).unwrap();
    let token = || client.lock("costs").unwrap().fencing_token().unwrap().get();
    let before = token();
    assert_eq!(exchanges(&client, std::slice::from_ref(&proxy)), [3 * CYCLES]);
    // Each change of the server gets the next number. One more cycle is not counted as an exchange.
    assert_eq!(token() - before, 2 * u64::from(CYCLES + 2));
    assert_eq!(server.connections().len(), 1);
    drop((client, proxy));

    let pipe = crate::rig::zookeeper::Pipe::to(server.port());
    let client = LockClient::open(&format!("zookeeper://127.0.0.1:{}", pipe.port())).unwrap();
    client.lock("costs").unwrap().unlock().unwrap();
    let delay = ms(100);
    pipe.delay(delay);
    let took = (0..5).map(|_| {
        let start = std::time::Instant::now();
        client.lock("costs").unwrap().unlock().unwrap();
        start.elapsed()
    });
    // The fastest cycle counts, because a busy machine may delay any of them.
    let least = took.min().unwrap();
    assert!(least >= delay * 2 && least < delay * 3, "{least:?}");
    drop((client, pipe));
    server.look(|session| session.delete("/costs").unwrap());
    server.assert_clean();
}
