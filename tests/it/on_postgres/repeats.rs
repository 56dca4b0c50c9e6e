//! What is sent again at once, because a connection that has ended, or has become useless, says
//! nothing about the server: and that nothing which a dead connection did, or has left in its
//! buffer, counts for another request.

use std::time::Duration;

use leasehold::{ErrorKind, LockClient, Result};

use super::server;
use crate::rig::{Fault, Postgres, Proxy, ms, wait_until};
use crate::support::Clients;

const LONG: Duration = Duration::from_secs(600);

fn over(proxy: &Proxy) -> LockClient {
    LockClient::builder()
        .url(proxy.url())
        .client_name("over")
        .connections(1)
        .lease(LONG)
        .build()
        .unwrap()
}

/// The whole answer, and parts of it that end within a message and between two.
const AGAIN: [usize; 5] = [usize::MAX, 1, 5, 7, 40];

#[test]
fn an_answer_that_comes_twice_is_not_taken_for_that_of_the_next_request() {
    let server = server!();
    let other = server.client();
    let _held = other.lock("held").unwrap();
    let proxy = Proxy::before_postgres(&server);
    let client = over(&proxy);
    // All statements are prepared: from here on, all answers of one statement have the same form.
    for name in ["held", "free"] {
        drop(client.try_lock(name).unwrap());
    }
    for n in AGAIN {
        proxy.inject("free", Fault::ReplyAgain(n));
        let free = client.try_lock("free").unwrap().expect("it is free");
        assert!(
            client.try_lock("held").unwrap().is_none(),
            "{n} bytes again: another client has it"
        );
        proxy.inject("free", Fault::ReplyAgain(n));
        free.unlock().unwrap();
        assert!(
            client.try_lock("held").unwrap().is_none(),
            "{n} bytes again: another client has it"
        );
        assert_eq!(server.held(), ["held"], "{n} bytes again");
    }
    assert_eq!(proxy.hits(), 2 * u32::try_from(AGAIN.len()).unwrap());
    drop(client);
}

#[test]
fn the_answer_to_a_renewal_that_comes_twice_renews_nothing() {
    let server = server!();
    let proxy = Proxy::before_postgres(&server);
    let client = LockClient::builder()
        .url(proxy.url())
        .lease(ms(9000))
        .io_timeout(ms(6000))
        .build()
        .unwrap();
    let guard = client.lock("renewed").unwrap();
    proxy.inject("9000", Fault::ReplyAgain(usize::MAX));
    proxy.wait_hits(1);
    server.run_sql("UPDATE leasehold.lock SET holder = NULL WHERE name = 'renewed'");
    // Only counts them.
    proxy.inject_times("9000", 20, Fault::StallReply(Duration::ZERO));
    wait_until("the holder is notified", || !guard.is_held());
    assert!(proxy.hits() <= 2, "the first renewal after that takes no earlier answer for its own");
    proxy.disarm();
    drop((guard, client));
    server.assert_clean();
}

/// A call that uses an idle connection.
type Call<'a> = (&'a str, &'a dyn Fn() -> Result<()>);

#[test]
fn a_call_whose_connection_had_ended_unseen_is_repeated() {
    let server = server!();
    let proxy = Proxy::before_postgres(&server);
    proxy.hide_ends(true);
    let client = over(&proxy);
    client.semaphore("semaphore").try_set_permits(5).unwrap();
    client.latch("latch").try_set_count(50).unwrap();
    let held = std::cell::RefCell::new(Vec::new());
    let hold = |name: &str| held.borrow_mut().push(client.mutex(name).lock_owned().unwrap());
    let release = || held.borrow_mut().pop().unwrap().unlock();
    let calls: [Call<'_>; 18] = [
        ("try_lock", &|| client.try_lock("m").map(|won| drop(won.unwrap()))),
        ("try_lock_for", &|| client.try_lock_for("m", ms(500)).map(|won| drop(won.unwrap()))),
        ("lock", &|| client.lock("m").map(drop)),
        ("fair lock", &|| client.fair("f").lock().map(drop)),
        ("read", &|| client.rw_lock("rw").read().map(drop)),
        ("write", &|| client.rw_lock("rw").write().map(drop)),
        ("acquire", &|| client.semaphore("semaphore").acquire().map(drop)),
        ("several", &|| client.multi(["m3", "m4"]).lock().map(drop)),
        ("holder", &|| client.mutex("m").holder().map(drop)),
        ("inspect", &|| client.inspect("m").map(drop)),
        ("locks", &|| client.locks("*").map(drop)),
        ("available", &|| client.semaphore("semaphore").available_permits().map(drop)),
        ("permits", &|| client.semaphore("s2").try_set_permits(3).map(drop)),
        ("down", &|| client.latch("latch").count_down().map(drop)),
        ("count", &|| client.latch("latch").count().map(drop)),
        ("extend", &|| held.borrow().last().unwrap().extend(LONG * 2)),
        ("unlock", &release),
        ("force_unlock", &|| client.mutex("m").force_unlock().map(drop)),
    ];
    for (what, call) in calls {
        if what == "extend" {
            hold("held");
        }
        client.mutex("warm").is_locked().unwrap();
        server.end_backends();
        call().unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    drop((client, proxy));
    let left = "SELECT count(*) FROM leasehold.lock WHERE holder IS NOT NULL";
    wait_until("nothing is left", || server.number_of(left) == 0);
}

/// A release that ran, and whose answer is lost with its connection, has freed the lock: the repeat
/// finds no holder.
#[test]
fn a_request_that_ran_and_is_repeated_says_that_it_ran() {
    let server = server!();
    let proxy = Proxy::before_postgres(&server);
    let client = over(&proxy);
    for keeps in [false, true] {
        proxy.keep_backends(keeps);
        let guard = client.lock("one").unwrap();
        proxy.inject("one", Fault::CutAfterApplied);
        guard.unlock().unwrap();
        let guard = client.multi(["one", "two"]).lock().unwrap();
        proxy.inject("one", Fault::CutAfterApplied);
        guard.unlock().unwrap();
        proxy.inject("one", Fault::CutAfterApplied);
        client.multi(["one", "two"]).lock().unwrap().unlock().unwrap();
        client.latch("latch").try_set_count(2).unwrap();
        proxy.inject("latch", Fault::CutAfterApplied);
        client.latch("latch").count_down().unwrap();
        assert_eq!(client.latch("latch").count().unwrap(), 1, "it was counted once");
        client.latch("latch").delete().unwrap();
    }
    assert_eq!(proxy.hits(), 8);
    proxy.keep_backends(false);
    drop((client, proxy));
    server.assert_clean();
}

/// What must not run twice is not repeated once a byte of it was sent.
#[test]
fn a_forced_unlock_whose_answer_is_lost_is_not_repeated() {
    let server = server!();
    let proxy = Proxy::before_postgres(&server);
    let client = over(&proxy);
    proxy.inject("forced", Fault::CutAfterApplied);
    let error = client.mutex("forced").force_unlock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("may have been freed"), "{error}");
    assert_eq!(proxy.hits(), 1);
}

/// Each thread would need a connection to end the backend of its own request.
#[test]
fn threads_whose_write_is_lost_make_no_more_connections_than_the_client_may_have() {
    const CONNECTIONS: usize = 4;
    const THREADS: usize = 50;
    let server = server!(Postgres::start());
    let proxy = Proxy::before_postgres(&server);
    // They have to be ended, which takes a while.
    proxy.keep_backends(true);
    let holder = server.builder().lease(LONG).build().unwrap();
    let builder =
        LockClient::builder().url(proxy.url()).client_name("herd").connections(CONNECTIONS);
    let client = builder.lease(LONG).build().unwrap();
    let names: Vec<String> = (0..THREADS).map(|n| format!("herd-{n}")).collect();
    let guards: Vec<_> =
        names.iter().map(|name| holder.mutex(name).lock_owned().unwrap()).collect();
    let ended = std::sync::atomic::AtomicBool::new(false);
    let client_of_all = &client;
    let most = std::thread::scope(|s| {
        let waits: Vec<_> = names
            .iter()
            .map(|name| {
                s.spawn(move || client_of_all.mutex(name.as_str()).lock_owned().unwrap().unlock())
            })
            .collect();
        let waiting = "SELECT count(*) FROM leasehold.lock WHERE wants IS NOT NULL";
        wait_until("all wait", || server.number_of(waiting) == i64::try_from(THREADS).unwrap());
        let watch = s.spawn(|| {
            let (mut db, mut most) = (server.connect(), 0);
            let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'herd'";
            while !ended.load(std::sync::atomic::Ordering::SeqCst) {
                most = most.max(db.query_one(count, &[]).unwrap().get::<_, i64>(0));
                std::thread::sleep(ms(1));
            }
            most
        });
        proxy.inject_times("herd-", 8, Fault::CutAfterApplied);
        for guard in guards {
            guard.unlock().unwrap();
        }
        let outcomes: Vec<_> = waits.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        ended.store(true, std::sync::atomic::Ordering::SeqCst);
        for outcome in outcomes {
            outcome.unwrap().unwrap();
        }
        watch.join().unwrap()
    });
    assert!(proxy.hits() > 0);
    // One for renewals, one for messages, one beside the pool; and each backend that was left alone
    // is counted until it was ended.
    let most_allowed = i64::try_from(CONNECTIONS).unwrap() + 3 + i64::from(proxy.hits());
    assert!(most <= most_allowed, "{most} connections at once");
    proxy.keep_backends(false);
    drop((client, holder, proxy));
    server.assert_clean();
}
