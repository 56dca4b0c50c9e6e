//! A lock that stays taken for a minimum time after the acquire: what the server stores, and what
//! ends it. `contract` covers what every primitive and store promises.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient, Redlock};

use crate::rig::{CAP, Child, PROMPT, Proxy, Server, ms, wait_until};
use crate::support::{Clients, Masters};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(120);
/// Long enough to check the lock meanwhile on a busy machine.
const LEAST: Duration = ms(3000);
/// Covers the rounding to milliseconds, and the comparison of two clocks.
const SLACK: Duration = ms(100);

fn client(server: &Server, lease: Duration) -> LockClient {
    server.builder().lease(lease).io_timeout((lease * 9 / 10).min(PROMPT)).build().unwrap()
}

/// Checks that the lock `job` is kept, and ends no later than `least` after `began`.
#[track_caller]
fn assert_kept(server: &Server, least: Duration, began: Instant) {
    let fields = server.hash("job");
    let pttl = server.pttl("job");
    let passed = began.elapsed();
    assert!(fields.keys().all(|field| field == "mode" || field.contains(":kept")), "{fields:?}");
    assert!(!fields.is_empty() && pttl > 0, "it is free after {passed:?}, before {least:?}");
    let most = i64::try_from(least.as_millis()).unwrap() + 1;
    let fewest = most - 2 - i64::try_from((passed + SLACK).as_millis()).unwrap();
    assert!(
        (fewest..=most).contains(&pttl),
        "it ends in {pttl} ms, and {least:?} are over in {fewest} ms"
    );
}

fn free(server: &Server) {
    assert_eq!(server.cmd::<u32>(&["DEL", "job"]), 1);
}

#[test]
fn its_ttl_is_what_is_left_whatever_the_lease() {
    let server = Server::start();
    for lease in [ms(2000), LONG] {
        let client = client(&server, lease);
        for least in [ms(60_000), ms(600_000)] {
            let kept = client.mutex("job").min_hold(least);
            let began = Instant::now();
            let guard = kept.lock().unwrap();
            let token = guard.fencing_token().unwrap();
            guard.unlock().unwrap();
            assert_kept(&server, least, began);
            assert!(kept.is_locked().unwrap());
            let holder = kept.holder().unwrap().unwrap();
            assert!(
                holder.id().ends_with(":kept")
                    && holder.is_this_client()
                    && holder.hold_count() == 1,
                "{holder:?}"
            );
            assert!(kept.try_lock().unwrap().is_none(), "it is not re-entered");
            // An operator frees it.
            assert!(kept.force_unlock().unwrap());
            assert!(client.lock("job").unwrap().fencing_token().unwrap() > token);
        }
    }
    server.assert_clean();
}

#[test]
fn every_way_to_give_it_up_keeps_it() {
    let server = Server::start();
    let kept = |client: &LockClient| client.mutex("job").min_hold(LONG);
    let ways: [(&str, &dyn Fn(LockClient)); 6] = [
        ("drop", &|client| drop(kept(&client).lock().unwrap())),
        ("an owned guard on another thread", &|client| {
            let guard = kept(&client).lock_owned().unwrap();
            std::thread::scope(|s| s.spawn(|| drop(guard)).join().unwrap());
        }),
        ("the end of its thread", &|client| {
            std::thread::scope(|s| {
                s.spawn(|| std::mem::forget(kept(&client).lock().unwrap())).join().unwrap();
            });
            wait_until("it is released in the background", || {
                server.hash("job").keys().all(|f| f.ends_with(":kept"))
            });
            // The forgotten guard keeps its connections open.
            client.close(CAP).unwrap();
        }),
        ("close", &|client| {
            let guard = kept(&client).lock_owned().unwrap();
            client.close(CAP).unwrap();
            assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Closed);
        }),
        ("the last of its levels", &|client| {
            let outer = kept(&client).lock().unwrap();
            let inner = client.lock("job").unwrap();
            outer.unlock().unwrap();
            assert!(server.hash("job").keys().all(|field| !field.ends_with(":kept")), "it is held");
            assert!(inner.is_held());
            inner.unlock().unwrap();
        }),
        ("after stop_waiting", &|client| {
            let guard = kept(&client).lock().unwrap();
            client.stop_waiting();
            guard.unlock().unwrap();
        }),
    ];
    for (way, give_up) in ways {
        let began = Instant::now();
        println!("{way}");
        give_up(client(&server, ms(30_000)));
        assert_kept(&server, LONG, began);
        free(&server);
    }
    server.assert_clean();
}

#[test]
fn the_outermost_level_decides() {
    let server = Server::start();
    let client = client(&server, LONG);
    let outer = client.lock("job").unwrap();
    client.mutex("job").min_hold(LONG).lock().unwrap().unlock().unwrap();
    assert!(outer.is_held());
    outer.unlock().unwrap();
    assert_eq!(server.lock_keys(), [""; 0], "the level with a min_hold was an inner one");
    drop(client);
    server.assert_clean();
}

#[test]
fn a_process_that_ends_leaves_it_taken() {
    let server = Server::start();
    let began = Instant::now();
    let mut child = Child::spawn("min_hold::short_job", &[("LEASEHOLD_TEST_URL", &server.url())]);
    child.expect("done");
    child.wait();
    assert_kept(&server, LONG, began);
    free(&server);
    server.assert_clean();
}

#[test]
#[ignore = "a program for other tests"]
fn short_job() {
    let client = LockClient::open(&std::env::var("LEASEHOLD_TEST_URL").unwrap()).unwrap();
    client.mutex("job").min_hold(LONG).try_lock().unwrap().unwrap().unlock().unwrap();
    println!("@@done");
    std::process::exit(0);
}

/// Released guards report no loss.
#[test]
fn its_guards_report_no_loss() {
    let server = Server::start();
    let client = client(&server, ms(2000));
    let (sender, losses) = std::sync::mpsc::channel();
    let guard = client.mutex("job").min_hold(ms(3000)).lock().unwrap();
    let lost = guard.lost();
    guard.on_lost(move |loss| sender.send(loss.to_string()).unwrap());
    guard.unlock().unwrap();
    wait_until("its minimum hold time is over", || server.lock_keys().is_empty());
    assert_eq!(losses.recv_timeout(CAP), Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    assert!(lost.try_recv().is_err());
    assert_eq!(client.stats().total().lost(), 0);
    drop(client);
    server.assert_clean();
}

/// A waiter that is informed of each end makes one more attempt, and does not poll.
#[test]
fn waiting_for_its_end_costs_a_few_commands() {
    let server = Server::start();
    let (a, b) = (client(&server, LONG), client(&server, LONG));
    let guard = a.mutex("job").min_hold(LEAST).lock().unwrap();
    let began = Instant::now();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| {
            b.lock("job").unwrap().unlock().unwrap();
            began.elapsed()
        });
        wait_until("it waits", || !server.channels().is_empty());
        let before = server.call_count("evalsha");
        guard.unlock().unwrap();
        // The release, its message, and the last attempt and release; plus some for a timer that
        // was early.
        let passed = waiter.join().unwrap();
        assert!(passed + SLACK >= LEAST && passed < LEAST + CAP, "it got it after {passed:?}");
        let calls = server.call_count("evalsha") - before;
        assert!(calls <= 8, "{calls} commands");
    });
    drop((a, b));
    server.assert_clean();
}

#[test]
fn an_outage_when_it_is_given_up_keeps_it_too() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client =
        LockClient::builder().url(proxy.url()).lease(LONG).io_timeout(ms(1000)).build().unwrap();
    let guard = client.mutex("job").min_hold(ms(60_000)).lock().unwrap();
    let began = Instant::now();
    proxy.silence(true);
    drop(guard);
    assert!(
        server.hash("job").keys().all(|field| !field.ends_with(":kept")),
        "the release did not arrive"
    );
    assert!(server.pttl("job") > 61_000, "its lease");
    proxy.silence(false);
    wait_until("it is repeated", || {
        server.hash("job").keys().all(|field| field.ends_with(":kept"))
    });
    assert_kept(&server, ms(60_000), began);
    free(&server);
    drop(client);
    server.assert_clean();
}

/// The minimum hold time ends during an outage of the server: then the lock is freed.
#[test]
fn an_outage_that_lasts_longer_frees_it() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client =
        LockClient::builder().url(proxy.url()).lease(LONG).io_timeout(ms(1000)).build().unwrap();
    let guard = client.mutex("job").min_hold(ms(1000)).lock().unwrap();
    let began = Instant::now();
    proxy.silence(true);
    drop(guard);
    wait_until("its time is over", || began.elapsed() > ms(1100));
    proxy.silence(false);
    wait_until("it is free", || server.lock_keys().is_empty());
    drop(client);
    server.assert_clean();
}

/// A server that refuses new data accepts this, like a release.
#[test]
fn a_full_server_keeps_it() {
    let server = Server::start();
    let client = client(&server, LONG);
    for name in ["job", "fair", "rw", "m1"] {
        // The scripts are loaded.
        assert!(client.mutex(name).min_hold(ms(1)).lock().unwrap().unlock().is_ok());
    }
    std::thread::sleep(ms(5));
    let plain = client.mutex("job").min_hold(LONG).lock().unwrap();
    let fair = client.fair("fair").min_hold(LONG).lock().unwrap();
    let write = client.rw_lock("rw").min_hold(LONG).write().unwrap();
    let multi = client.multi(["m1", "m2"]).min_hold(LONG).lock().unwrap();
    server.cmd::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    plain.unlock().unwrap();
    fair.unlock().unwrap();
    write.unlock().unwrap();
    multi.unlock().unwrap();
    server.cmd::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    for name in ["job", "fair", "rw", "m1", "m2"] {
        let fields = server.hash(name);
        assert!(
            fields.keys().all(|field| field == "mode" || field.contains(":kept")),
            "{fields:?}"
        );
        assert!((1..=120_001).contains(&server.pttl(name)), "{name}");
        server.cmd::<()>(&["DEL", name]);
    }
    drop(client);
    server.assert_clean();
}

#[test]
fn a_fair_queue_keeps_its_order() {
    // Longer than the waiter timeout, within which each waiter must ask again.
    const LEAST: Duration = ms(6000);
    let server = Server::start();
    let clients =
        [(); 3].map(|()| server.builder().lease(LONG).waiter_timeout(ms(4000)).build().unwrap());
    let guard = clients[0].fair("job").min_hold(LEAST).lock().unwrap();
    let began = Instant::now();
    let (sender, served) = std::sync::mpsc::channel();
    std::thread::scope(|s| {
        for n in 0..6 {
            let (fair, sender) = (clients[n % 3].fair("job"), sender.clone());
            s.spawn(move || {
                let guard = fair.lock().unwrap();
                sender.send((n, began.elapsed())).unwrap();
                guard.unlock().unwrap();
            });
            wait_until("it waits", || {
                server.cmd::<usize>(&["LLEN", "redisson_lock_queue:{job}"]) == n + 1
            });
        }
        guard.unlock().unwrap();
        assert_kept(&server, LEAST, began);
        assert!(
            clients[1].fair("job").try_lock().unwrap().is_none(),
            "a caller that is not in the queue"
        );
        for n in 0..6 {
            let (who, when) = served.recv_timeout(CAP).unwrap();
            assert_eq!(who, n, "in the order of their arrival");
            assert!(when + SLACK >= LEAST, "served after {when:?}");
        }
    });
    drop(clients);
    server.assert_clean();
}

type Release = Box<dyn FnOnce()>;

/// Three threads of one client: the second releases early the lock for which the third waits, right
/// after it got the lock from the first. Normally the hold of a plain lock would then be passed on
/// without a request, and that of a fair lock with one.
#[test]
fn it_passes_to_no_thread_of_its_client_before_its_time() {
    const SHORT: Duration = ms(400);
    let take: [fn(&LockClient, Duration) -> Release; 2] = [
        |client, least| {
            let guard = client.mutex("job").min_hold(least).lock_owned().unwrap();
            Box::new(|| guard.unlock().unwrap())
        },
        |client, least| {
            let guard = client.fair("job").min_hold(least).lock_owned().unwrap();
            Box::new(|| guard.unlock().unwrap())
        },
    ];
    let server = Server::start();
    let client = &client(&server, LONG);
    let mut compared = 0;
    for take in take.into_iter().flat_map(|take| [take; 4]) {
        let give_up = take(client, Duration::ZERO);
        let waiters = |n| wait_until("they wait", || client.snapshot().waits().len() == n);
        std::thread::scope(|s| {
            let second = s.spawn(move || {
                let give_up = take(client, SHORT);
                let began = Instant::now();
                std::thread::sleep(ms(1));
                give_up();
                began
            });
            waiters(1);
            let third = s.spawn(move || {
                let give_up = take(client, Duration::ZERO);
                let had_it = Instant::now();
                give_up();
                had_it
            });
            waiters(2);
            // The snapshot shows a thread shortly before it falls asleep. One that is still awake may
            // get the lock before the thread that has waited longer.
            std::thread::sleep(ms(20));
            give_up();
            let (third, second) = (third.join().unwrap(), second.join().unwrap());
            if let Some(passed) = third.checked_duration_since(second) {
                assert!(passed + SLACK >= SHORT, "it was passed on after {passed:?}");
                compared += 1;
            }
        });
    }
    assert!(compared > 0, "the third thread was always first");
    client.close(CAP).unwrap();
    server.assert_clean();
}

#[test]
fn of_several_locks_each_is_kept_that_was_taken_with_them() {
    let server = Server::start();
    let client = client(&server, LONG);
    let before = client.lock("c").unwrap();
    let guard = client.multi(["a", "b", "c"]).min_hold(LONG).lock().unwrap();
    guard.unlock().unwrap();
    let is_kept = |name| {
        server.hash(name).keys().all(|field| field.ends_with(":kept")) && server.pttl(name) > 0
    };
    assert!(is_kept("a") && is_kept("b") && !is_kept("c"));
    assert!(before.is_held());
    before.unlock().unwrap();
    assert!(
        client.multi(["a", "d"]).try_lock().unwrap().is_none()
            && client.try_lock("b").unwrap().is_none()
    );
    let mut keys = server.lock_keys();
    keys.sort();
    assert_eq!(keys, ["a", "b"], "each was held with its own terms");
    // The guard reports the loss of one name, and the other is kept nevertheless.
    let guard = client.multi(["d", "e"]).min_hold(LONG).lock().unwrap();
    server.cmd::<()>(&["DEL", "d"]);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    assert!(is_kept("e"));
    server.cmd::<()>(&["DEL", "a", "b", "e"]);
    drop(client);
    server.assert_clean();
}

#[test]
fn a_writer_keeps_out_readers_and_a_reader_has_none() {
    let server = Server::start();
    let client = client(&server, LONG);
    let kept = client.rw_lock("job").min_hold(LONG);
    let began = Instant::now();
    let write = kept.write().unwrap();
    let nested = client.rw_lock("job").read().unwrap();
    nested.unlock().unwrap();
    write.unlock().unwrap();
    assert_kept(&server, LONG, began);
    assert!(
        client.rw_lock("job").try_read().unwrap().is_none()
            && client.rw_lock("job").try_write().unwrap().is_none()
    );
    free(&server);
    // A hold that only reads now is freed on release.
    let read = kept.write().unwrap().downgrade().unwrap();
    assert_eq!(server.hash("job")["mode"], "read");
    read.unlock().unwrap();
    assert_eq!(server.lock_keys(), [""; 0]);
    for refused in [kept.read().map(drop), kept.try_read().map(drop), kept.read_owned().map(drop)] {
        let refused = refused.unwrap_err();
        assert_eq!(
            (refused.kind(), refused.name()),
            (ErrorKind::InvalidInput, Some("job")),
            "{refused}"
        );
    }
    drop((kept, client));
    server.assert_clean();
}

#[test]
fn what_could_not_be_kept_is_refused() {
    let server = Server::start();
    let client = client(&server, LONG);
    let day = Duration::from_secs(86_400);
    let job = || client.mutex("job");
    for refused in [
        job().min_hold(ms(1001)).with_lease(ms(1000)),
        job().min_hold(ms(1001)).max_hold(ms(1000)),
        job().min_hold(366 * day),
        job().min_hold(Duration::MAX),
    ] {
        let error = refused.try_lock().err().unwrap();
        assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidInput, Some("job")), "{error}");
    }
    for fits in [
        job().min_hold(Duration::ZERO),
        job().min_hold(ms(1000)).with_lease(ms(1000)),
        // A fixed lease cannot have a max_hold.
        job().min_hold(ms(900)).with_lease(ms(1000)).max_hold(ms(1)),
        job().min_hold(365 * day).max_hold(365 * day),
    ] {
        fits.try_lock().unwrap().unwrap().unlock().unwrap();
        server.cmd::<()>(&["DEL", "job"]);
    }
    drop(client);
    server.assert_clean();
}

/// A master that may have lost it votes again after the longest lease.
#[test]
fn redlock_keeps_it_for_no_longer_than_its_longest_lease() {
    let masters = Masters::start(3);
    let redlock = Redlock::new(masters.urls()).longest_lease(LONG).admit_fresh_nodes(true);
    // A master that does not answer in time counts as down, and then only the majority keeps the
    // lock: on a busy machine the default of 500 ms is too short for a test of all three.
    let client =
        LockClient::builder().redlock(redlock).io_timeout(Duration::from_secs(7)).build().unwrap();
    masters.wait_until_all_vote();
    let refused = client.mutex("job").min_hold(LONG + ms(1)).try_lock().err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    let began = Instant::now();
    client.mutex("job").min_hold(LONG).try_lock().unwrap().unwrap().unlock().unwrap();
    let kept = |server: &&Server| server.hash("job").keys().any(|field| field.ends_with(":kept"));
    wait_until("all of them keep it", || masters.0.iter().filter(kept).count() == 3);
    for server in &masters.0 {
        assert_kept(server, LONG, began);
    }
    assert!(client.try_lock("job").unwrap().is_none());
    assert!(client.mutex("job").force_unlock().unwrap());
    drop(client);
    masters.assert_clean();
}

/// A job that did not begin calls this. The behaviour of every store then follows from the request,
/// which contains no end time.
#[test]
fn whoever_does_without_it_frees_the_lock_at_once() {
    let server = Server::start();
    let client = server.client();
    macro_rules! check {
        ($lock:expr, $take:ident) => {
            let lock = $lock.min_hold(LONG);
            let guard = lock.$take().unwrap();
            guard.end_min_hold();
            guard.end_min_hold();
            assert!(guard.is_held());
            drop(guard);
            assert_eq!(server.lock_keys(), [""; 0]);
            // It applied to that hold only.
            drop(lock.$take().unwrap());
            assert!(server.lock_keys().contains(&"job".to_owned()));
            server.cmd::<()>(&["DEL", "job", "other"]);
        };
    }
    check!(client.mutex("job"), lock_owned);
    check!(client.mutex("job"), lock);
    check!(client.fair("job"), lock_owned);
    check!(client.rw_lock("job"), write_owned);
    check!(client.multi(["job", "other"]), lock_owned);
}
