//! `client.snapshot()`: what a client holds and waits for, and who blocks it.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use leasehold::observe::Blocker;
use leasehold::{CancelToken, LockClient, Primitive};

use crate::rig::{CAP, Server, ms, wait_until};
use crate::support::Clients;

fn named<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| {
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn_scoped(s, work)
            .unwrap()
            .join()
            .unwrap()
    })
}

#[test]
fn holds_and_waits_are_shown_with_their_threads() {
    let server = Server::start();
    let client = server.client();
    let held = client.lock("job").unwrap();
    drop(client.lock("job").unwrap());
    let twice = client.lock("job").unwrap();
    let owned = client.mutex("owned").lock_owned().unwrap();
    let begin = Instant::now();
    std::thread::scope(|s| {
        s.spawn(|| {
            named("patient", || assert!(client.try_lock_for("job", CAP).unwrap().is_some()));
        });
        wait_until("it waits", || client.snapshot().waits().len() == 1);
        let snapshot = client.snapshot();

        let hold = snapshot.holds().iter().find(|hold| hold.name() == "job").unwrap();
        assert_eq!(
            (hold.primitive(), hold.hold_count(), hold.is_owned(), hold.is_held()),
            (Primitive::Mutex, 2, false, true)
        );
        assert_eq!(
            (hold.thread().id(), hold.fencing_token()),
            (std::thread::current().id(), held.fencing_token().ok())
        );
        assert!(
            hold.remaining().unwrap() > Duration::from_secs(20)
                && hold.held_for() < begin.elapsed() + CAP
        );
        assert!(snapshot.holds().iter().any(|hold| hold.name() == "owned" && hold.is_owned()));
        assert_eq!(snapshot.holds().len(), 2);

        let wait = &snapshot.waits()[0];
        assert_eq!(
            (wait.name(), wait.primitive(), wait.thread().name()),
            ("job", Primitive::Mutex, Some("patient"))
        );
        assert!(wait.time_left().unwrap() <= CAP && wait.waited() <= begin.elapsed());
        assert!(
            matches!(wait.blockers(), [Blocker::Thread(thread)] if thread.id() == std::thread::current().id())
        );
        assert!(snapshot.deadlocks().is_empty());
        let text = snapshot.to_string();
        for part in [
            "2 held, 1 waiting",
            "held    \"job\" mutex x2 by",
            "\"patient\" (ThreadId(",
            "gives up in",
            "token ",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        drop((twice, held));
    });
    drop(owned);
    let snapshot = client.snapshot();
    assert!(snapshot.holds().is_empty() && snapshot.waits().is_empty(), "{snapshot}");
    drop(client);
    server.assert_clean();
}

#[test]
fn another_client_is_in_the_way_where_this_one_has_nothing() {
    let server = Server::start();
    let (one, other) = (server.client(), server.client());
    let held = other.fair("job").lock().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| one.fair("job").lock().map(drop).unwrap());
        wait_until("it waits", || one.snapshot().waits().len() == 1);
        let snapshot = one.snapshot();
        let wait = &snapshot.waits()[0];
        assert_eq!(
            (wait.primitive(), wait.time_left(), wait.blockers()),
            (Primitive::Fair, None, &[][..])
        );
        assert!(
            snapshot.to_string().contains("without a timeout; another client has it"),
            "{snapshot}"
        );
        held.unlock().unwrap();
    });
    drop((one, other));
    server.assert_clean();
}

#[test]
fn nobody_is_named_who_need_not_exist() {
    let client = LockClient::in_memory();
    let stop = CancelToken::new();
    std::thread::scope(|s| {
        let job = client.once("report", "1").with_cancel(&stop);
        s.spawn(move || job.wait_done().unwrap_err());
        let pool = client.counting_semaphore("pool").with_cancel(&stop);
        pool.try_set_permits(0).unwrap();
        s.spawn(move || pool.acquire().map(drop).unwrap_err());
        wait_until("both wait", || client.snapshot().waits().len() == 2);
        let snapshot = client.snapshot().to_string();
        stop.cancel();
        for part in ["a timeout; it is not done", "a timeout; too few permits are free"] {
            assert!(snapshot.contains(part), "{part}: {snapshot}");
        }
    });
}

/// Two threads that acquire two locks in different orders.
fn cross(client: &LockClient) {
    let both_hold = Barrier::new(2);
    let take = |own: &str, theirs: &str, patience: Duration| {
        let _held = client.lock(own).unwrap();
        both_hold.wait();
        client.try_lock_for(theirs, patience).unwrap().is_some()
    };
    std::thread::scope(|s| {
        let ann = s.spawn(|| named("ann", || take("a", "b", CAP)));
        let bob = s.spawn(|| named("bob", || take("b", "a", ms(6_000))));
        // A third one waits for one of them, and is not in the cycle.
        s.spawn(|| {
            wait_until("the deadlock", || !client.snapshot().deadlocks().is_empty());
            named("eve", || client.lock("b").map(drop).unwrap());
        });
        wait_until("all wait", || client.snapshot().waits().len() == 3);
        let snapshot = client.snapshot();
        assert_eq!(snapshot.deadlocks().len(), 1, "{snapshot}");
        let mut circle: Vec<_> = snapshot.deadlocks()[0]
            .waits()
            .iter()
            .map(|wait| (wait.thread().name().unwrap().to_owned(), wait.name().to_owned()))
            .collect();
        circle.sort();
        assert_eq!(circle, [("ann".into(), "b".into()), ("bob".into(), "a".into())]);
        let line = snapshot
            .to_string()
            .lines()
            .find(|line| line.starts_with("deadlock: "))
            .unwrap()
            .to_owned();
        for part in ["\"ann\" (", "\"bob\" (", "waits for", "(\"a\")", "(\"b\")"] {
            assert!(line.contains(part), "{line}");
        }
        // The deadlock ends because one of them has a shorter timeout.
        assert!(!bob.join().unwrap() && ann.join().unwrap());
    });
    assert!(client.snapshot().deadlocks().is_empty());
}

#[test]
fn two_threads_that_wait_for_each_other_are_seen() {
    cross(&LockClient::in_memory());
    let server = Server::start();
    cross(&server.client());
    server.assert_clean();
}

#[test]
fn a_reader_and_a_writer_are_in_each_others_way() {
    let client = LockClient::in_memory();
    let read = client.rw_lock("config").read().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| client.rw_lock("config").write().map(drop).unwrap());
        wait_until("the writer waits", || client.snapshot().waits().len() == 1);
        let snapshot = client.snapshot();
        assert_eq!(
            (snapshot.waits()[0].primitive(), snapshot.waits()[0].blockers().len()),
            (Primitive::Write, 1)
        );
        drop(read);
    });
}

#[test]
fn it_works_while_the_server_hangs() {
    let server = Server::start();
    let client = server.client();
    let _held = client.lock("held").unwrap();
    let other = server.client();
    let taken = other.lock("taken").unwrap();
    std::thread::scope(|s| {
        s.spawn(|| client.lock("taken").map(drop).unwrap());
        wait_until("it waits", || client.snapshot().waits().len() == 1);
        server.suspend();
        // A call that hangs in its request, and keeps a connection busy.
        let hangs = s.spawn(|| client.try_lock("new").map(drop).is_err());
        std::thread::sleep(ms(100));
        let begin = Instant::now();
        for _ in 0..100 {
            let (snapshot, stats) = (client.snapshot(), client.stats());
            assert!(
                snapshot.waits().len() == 1
                    && snapshot.holds().iter().any(|hold| hold.name() == "held")
            );
            assert!(!snapshot.to_string().is_empty() && !stats.to_string().is_empty());
        }
        assert!(begin.elapsed() < ms(5_000), "{:?}", begin.elapsed());
        server.resume();
        let _ = hangs.join();
        taken.unlock().unwrap();
    });
    drop((_held, client, other));
    server.assert_clean();
}

#[test]
fn a_lost_hold_is_shown_as_lost_until_its_guard_is_dropped() {
    let server = Server::start();
    let client = server.client();
    let held = client.lock("job").unwrap();
    assert!(client.mutex("job").force_unlock().unwrap());
    let snapshot = client.snapshot();
    assert!(!snapshot.holds()[0].is_held() && snapshot.to_string().contains("LOST"), "{snapshot}");
    held.unlock().unwrap_err();
    assert!(client.snapshot().holds().is_empty());
    drop(client);
    server.assert_clean();
}

#[test]
fn a_long_list_is_cut() {
    let client = LockClient::in_memory();
    let held: Vec<_> =
        (0..150).map(|n: u32| client.mutex(format!("n{n}")).lock_owned().unwrap()).collect();
    let text = client.snapshot().to_string();
    assert_eq!((client.snapshot().holds().len(), text.lines().count()), (150, 102));
    assert!(text.ends_with("and 50 more\n"));
    drop(held);
}
