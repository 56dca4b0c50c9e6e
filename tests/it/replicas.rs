//! Grants and renewals that replicas must acknowledge.

use std::time::Instant;

use leasehold::{Builder, ErrorKind, Held, LockClient, Once, Redis};

use crate::lua::{script, sha};
use crate::rig::{CAP, Fault, PROMPT, Proxy, Server, ms, wait_until};
use crate::support::{Clients, ShortLease, builder_with};

/// A server with a replica that follows it.
pub(crate) struct Pair {
    pub(crate) primary: Server,
    pub(crate) replica: Server,
}

impl Pair {
    pub(crate) fn start() -> Self {
        let primary = Server::start_tcp(&["--repl-diskless-sync-delay", "0"]);
        let port = primary.url().trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
        let replica = Server::start();
        replica.cmd::<()>(&["REPLICAOF", "127.0.0.1", &port]);
        let pair = Self { primary, replica };
        pair.wait_until_it_follows();
        pair
    }

    fn wait_until_it_follows(&self) {
        // WAIT covers the writes of its own connection.
        let mut connection = self.primary.connect();
        let mut followed = |millis: u32| {
            redis::cmd("SET").arg("follow").arg(1).exec(&mut connection).unwrap();
            redis::cmd("WAIT").arg(1).arg(millis).query::<u32>(&mut connection).unwrap() == 1
        };
        wait_until("the replica has the data", || followed(100));
        // That write may have been part of the snapshot: the command stream begins up to a second
        // later.
        assert!(followed(10_000));
        self.primary.cmd::<u32>(&["DEL", "follow"]);
    }

    /// The client has several idle connections from then on.
    fn fill_pool_of(&self, client: &LockClient) {
        std::thread::scope(|s| {
            for n in 0..4 {
                s.spawn(move || {
                    for _ in 0..50 {
                        client.lock(format!("fill-{n}")).unwrap().unlock().unwrap();
                    }
                });
            }
        });
    }

    /// Ends a connection at the primary while it waits for the replica.
    fn end_one_that_waits(&self) {
        let waits = |line: &str| line.contains("cmd=wait") && line.contains("flags=b");
        let id = |line: &str| Some(line.split(' ').next()?.strip_prefix("id=")?.to_owned());
        let mut one = None;
        wait_until("one waits for the replica", || {
            let list = self.primary.cmd::<String>(&["CLIENT", "LIST"]);
            one = list.lines().find(|line| waits(line)).and_then(id);
            one.is_some()
        });
        self.primary.cmd::<u32>(&["CLIENT", "KILL", "ID", &one.unwrap_or_default()]);
    }

    fn builder(&self) -> Builder {
        builder_with(&self.primary, |redis| redis.replicas(1))
    }

    /// A client whose replica may take as long as a busy machine needs: half of this.
    fn patient(&self) -> LockClient {
        self.builder().io_timeout(ms(7500)).build().unwrap()
    }
}

#[test]
fn a_grant_is_on_the_replica_when_the_call_returns() {
    let pair = Pair::start();
    let client = pair.patient();
    for name in ["a", "b", "c"] {
        let guard = client.lock(name).unwrap();
        assert_eq!(pair.replica.hash(name).len(), 1);
        let inner = client.lock(name).unwrap();
        inner.unlock().unwrap();
        guard.unlock().unwrap();
    }
    let several = client.multi(["x", "y"]).lock().unwrap();
    assert!(!pair.replica.hash("x").is_empty() && !pair.replica.hash("y").is_empty());
    several.unlock().unwrap();
    let permit = {
        client.semaphore("s").try_set_permits(2).unwrap();
        client.semaphore("s").acquire().unwrap()
    };
    assert_eq!(pair.replica.cmd::<u32>(&["ZCARD", "{s}:timeout"]), 1);
    permit.release().unwrap();
}

/// The wait is in the same write as the grant; a release does not wait for replicas.
#[test]
fn each_grant_waits_once_for_the_replica() {
    let pair = Pair::start();
    let client = pair.patient();
    client.lock("l").unwrap().unlock().unwrap();
    pair.primary.cmd::<()>(&["CONFIG", "RESETSTAT"]);
    for _ in 0..10 {
        client.lock("l").unwrap().unlock().unwrap();
    }
    let calls = pair.primary.calls();
    assert_eq!((calls["evalsha"], calls["wait"]), (20, 10), "{calls:?}");
}

/// The answer to such a renewal is not 1: it says how long the Redisson reader may leave the lock.
#[test]
fn a_renewal_beside_a_redisson_reader_needs_its_replicas_as_well() {
    let pair = Pair::start();
    // Two clients, because one would renew both locks in one request.
    let [client, another] = [(); 2].map(|()| pair.builder().short_lease(ms(4000)).build().unwrap());
    let (one, other) =
        (client.rw_lock("rw").read().unwrap(), another.rw_lock("other").read().unwrap());
    let java = "0b5f2c1e-3c4d-4a55-9b1e-0123456789ab:1";
    pair.primary.cmd::<()>(&["HSET", "rw", java, "1"]);
    pair.primary.cmd::<()>(&[
        "SET",
        &format!("{{rw}}:{java}:rwlock_timeout:1"),
        "1",
        "PX",
        "600000",
    ]);
    let mut least = i64::MAX;
    wait_until("a renewal", || {
        let pttl = pair.primary.pttl("rw");
        least = least.min(pttl);
        pttl > least
    });
    assert!(one.is_held() && other.is_held());
    pair.replica.suspend();
    assert!(!other.wait_lost(CAP).is_still_held());
    assert!(
        !one.wait_lost(ms(8000)).is_still_held(),
        "no replica has had its renewals for two leases"
    );
    pair.replica.resume();
}

/// The answer to such a renewal is not 1 either: it says when somebody asked for the lock.
#[test]
fn a_renewal_of_what_somebody_asks_for_needs_its_replicas_as_well() {
    let pair = Pair::start();
    let client = pair.builder().short_lease(ms(4000)).build().unwrap();
    let guard = client.mutex("job").with_data("here").lock().unwrap();
    assert!(pair.primary.client().election("job").request().unwrap());
    let mut least = i64::MAX;
    wait_until("a renewal", || {
        let pttl = pair.primary.pttl("job");
        least = least.min(pttl);
        pttl > least
    });
    assert!(guard.is_held());
    pair.replica.suspend();
    assert!(!guard.wait_lost(CAP).is_still_held(), "no replica has had its renewals");
    pair.replica.resume();
}

/// Requests that queue for a connection travel in one write, which waits once for all of them. If
/// each waited, a replica that hangs would cost the last caller the time of all.
#[test]
fn the_grants_of_one_write_wait_together_for_a_replica_that_hangs() {
    const THREADS: u64 = 16;
    let pair = Pair::start();
    let client = pair.builder().connections(1).io_timeout(ms(4000)).build().unwrap();
    client.lock("warm").unwrap().unlock().unwrap();
    pair.replica.suspend();
    pair.primary.cmd::<()>(&["CONFIG", "RESETSTAT"]);
    std::thread::scope(|s| {
        for n in 0..THREADS {
            let client = &client;
            s.spawn(move || {
                let refused = client.try_lock(format!("job-{n}")).map(|guard| guard.is_some());
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotReplicated);
            });
        }
    });
    let waits = pair.primary.call_count("wait");
    assert!((2..=THREADS / 2).contains(&waits), "{waits} waits for {THREADS} calls");
    pair.replica.resume();
}

#[test]
fn a_grant_that_too_few_replicas_have_is_undone() {
    let pair = Pair::start();
    let client = &pair.builder().io_timeout(ms(5000)).build().unwrap();
    pair.replica.suspend();
    let calls: [fn(&LockClient) -> Option<leasehold::Error>; 6] = [
        |client| client.lock("l").err(),
        |client| client.fair("f").lock().err(),
        |client| client.rw_lock("w").write().err(),
        |client| client.rw_lock("r").read().err(),
        |client| client.multi(["x", "y"]).lock().err(),
        |client| client.mutex("o").try_lock_owned().err(),
    ];
    std::thread::scope(|s| {
        for call in calls {
            s.spawn(move || {
                let error = call(client).expect("an error");
                assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
                let says = "0 replicas acknowledged it in time, not 1";
                assert!(error.to_string().contains(says), "{error}");
            });
        }
    });
    wait_until("nothing of it is left", || pair.primary.lock_keys().is_empty());
    pair.replica.resume();
    pair.wait_until_it_follows();
    assert!(client.lock("l").unwrap().is_held());
    // Another client's hold is reported as such, whatever the replica does.
    let other = pair.primary.client();
    let _guard = other.lock("l").unwrap();
    pair.replica.suspend();
    assert!(client.try_lock("l").unwrap().is_none());
    pair.replica.resume();
}

#[test]
fn a_renewal_that_too_few_replicas_have_does_not_count() {
    let pair = Pair::start();
    let client = pair.builder().lease(ms(5000)).io_timeout(ms(4500)).build().unwrap();
    let guard = client.lock("l").unwrap();
    assert!(guard.wait_lost(ms(6000)).is_still_held(), "renewed");
    pair.replica.suspend();
    assert_eq!(guard.extend(ms(8000)).unwrap_err().kind(), ErrorKind::NotReplicated);
    assert!(guard.wait_lost(CAP).is_lost(), "nobody acknowledges it");
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    pair.replica.resume();
}

/// An extension that no replica had leaves a long lease at the primary, so the renewals after it find
/// nothing to change. They write all the same: see below.
#[test]
fn a_renewal_that_has_nothing_to_change_needs_its_replicas_as_well() {
    let pair = Pair::start();
    // What else is written on the connection of renewals would count for them: so one client each,
    // which announces nothing.
    let silent = || pair.builder().announce_owner(false).short_lease(ms(3000));
    let clients = [(); 4].map(|()| silent().build().unwrap());
    clients[1].semaphore("s").try_set_permits(2).unwrap();
    let lock = clients[0].mutex("l").lock_owned().unwrap();
    let permits = clients[1].semaphore("s").acquire_many(2).unwrap();
    let reader = clients[2].rw_lock("r").read_owned().unwrap();
    let writer = clients[3].rw_lock("w").write_owned().unwrap();
    let guards: [&(dyn Held + Sync); 4] = [&lock, &permits, &reader, &writer];
    assert!(lock.wait_lost(ms(1300)).is_still_held(), "all are renewed once");
    pair.replica.suspend();
    std::thread::scope(|s| {
        for guard in guards {
            s.spawn(move || {
                let refused = guard.extend(CAP * 20).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::NotReplicated, "{refused}");
            });
        }
    });
    let held: Vec<&str> = guards
        .iter()
        .filter(|guard| guard.wait_lost(CAP).is_still_held())
        .map(|guard| guard.name())
        .collect();
    assert!(held.is_empty(), "{held:?}");
    pair.replica.resume();
}

/// The attempt before has taken them, and its connection has ended before the replicas had that. In
/// Valkey `WAIT` covers what its own connection has written, and nothing else: a repeat over another
/// one that writes nothing is acknowledged by replicas that have nothing of it.
#[test]
fn a_repeat_that_finds_its_permits_needs_its_replicas_as_well() {
    let pair = Pair::start();
    let client = pair.builder().io_timeout(ms(8000)).build().unwrap();
    pair.fill_pool_of(&client);
    let semaphore = client.counting_semaphore("s");
    semaphore.try_set_permits(1).unwrap();
    pair.replica.suspend();
    std::thread::scope(|s| {
        let taken = s.spawn(|| semaphore.try_acquire().map(|permit| permit.is_some()));
        pair.end_one_that_waits();
        let refused = taken.join().unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotReplicated, "{refused}");
    });
    pair.replica.resume();
    wait_until("it is back", || semaphore.available_permits().is_ok_and(|free| free == 1));
}

#[test]
fn a_success_that_is_found_recorded_needs_its_replicas_as_well() {
    let pair = Pair::start();
    let builder = pair.builder().lease(CAP).io_timeout(ms(2000)).outage_timeout(ms(4000));
    let client = builder.build().unwrap();
    pair.fill_pool_of(&client);
    std::thread::scope(|s| {
        let done = s.spawn(|| {
            client.once("report", "1").run(|_| {
                pair.replica.suspend();
                Ok::<_, ()>(())
            })
        });
        pair.end_one_that_waits();
        let done = done.join().unwrap().unwrap();
        assert!(matches!(done, Once::Unrecorded((), _)), "{done:?}");
    });
    pair.replica.resume();
}

/// A waiting call continues through it.
#[test]
fn a_waiting_call_goes_on_when_the_replica_is_back() {
    let pair = Pair::start();
    let client = pair.builder().lease(ms(3000)).outage_timeout(CAP).build().unwrap();
    let other = pair.primary.client();
    let guard = other.lock("l").unwrap();
    let asked = || pair.primary.call_count("wait");
    let first = asked();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.lock("l").map(|guard| guard.is_held()));
        wait_until("it is subscribed", || !pair.primary.channels().is_empty());
        wait_until("it has tried again since", || asked() >= first + 2);
        pair.replica.suspend();
        let before = asked();
        guard.unlock().unwrap();
        wait_until("it has been refused, and asks again", || asked() >= before + 2);
        pair.replica.resume();
        assert!(waiter.join().unwrap().unwrap());
    });
}

#[test]
fn a_grant_that_did_not_count_is_undone_when_the_server_refuses_its_release() {
    let pair = Pair::start();
    let proxy = Proxy::start(&pair.primary);
    let builder = LockClient::builder()
        .redis(Redis::new(proxy.url()).replicas(1))
        .lease(CAP * 8)
        .io_timeout(ms(5000));
    let client = builder.build().unwrap();
    client.lock("l").unwrap().unlock().unwrap();
    pair.replica.suspend();
    proxy.inject(&sha(script("mutex_release")), Fault::Reply(b"-OOM command not allowed\r\n"));
    assert_eq!(client.lock("l").unwrap_err().kind(), ErrorKind::NotReplicated);
    proxy.wait_hits(1);
    wait_until("nothing of it is left", || pair.primary.lock_keys().is_empty());
    pair.replica.resume();
}

/// It has lost its queue entry, and waits for its next turn under another holder.
#[test]
fn a_fair_waiter_whose_grant_did_not_count_queues_again_and_is_woken() {
    let pair = Pair::start();
    // Without a message it would try again after 20 seconds.
    let waits = |builder: Builder| {
        builder.lease(CAP * 8).waiter_timeout(CAP * 4).outage_timeout(CAP).build().unwrap()
    };
    let (client, other) = (waits(pair.builder()), waits(pair.primary.builder()));
    let queued =
        |n| wait_until("they are in the queue", || other.fair("f").queue_len().unwrap() == n);
    let guard = other.fair("f").lock_owned().unwrap();
    std::thread::scope(|s| {
        let refused = s.spawn(|| client.fair("f").lock().map(|guard| guard.is_held()));
        queued(1);
        let next = s.spawn(|| other.fair("f").lock_owned());
        queued(2);
        pair.replica.suspend();
        guard.unlock().unwrap();
        let next = next.join().unwrap().unwrap();
        queued(1);
        pair.replica.resume();
        pair.wait_until_it_follows();
        let start = Instant::now();
        next.unlock().unwrap();
        assert!(refused.join().unwrap().unwrap());
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    });
}

/// This is the purpose of the option: the replica that takes over knows the hold.
#[test]
fn a_failover_to_the_replica_keeps_the_hold() {
    let mut pair = Pair::start();
    let client = pair.patient();
    let guard = client.lock("l").unwrap();
    pair.primary.kill();
    pair.replica.cmd::<()>(&["REPLICAOF", "NO", "ONE"]);
    let next = pair.replica.client();
    assert!(next.try_lock("l").unwrap().is_none());
    std::mem::forget(guard);
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let server = Server::start();
    assert_eq!(
        builder_with(&server, |redis| redis.replicas(0)).build().unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    // Without a replica nothing is acknowledged. That takes half of the I/O timeout; the other half
    // allows for a busy machine.
    let alone =
        builder_with(&server, |redis| redis.replicas(1)).io_timeout(ms(5000)).build().unwrap();
    assert_eq!(alone.lock("l").unwrap_err().kind(), ErrorKind::NotReplicated);
    drop(alone);
    server.assert_clean();
}
