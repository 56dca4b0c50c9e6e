//! The reply to each request is cut at each byte: the call fails with `Unreachable` or works, and
//! nothing of it is left.

use std::time::Duration;

use leasehold::{ErrorKind, LockClient, Result};

use super::{LONG, children, client, client_of, server};
use crate::rig::zookeeper::{Lent, PERSISTENT, ZooKeeper};
use crate::rig::{CAP, Fault, Proxy, ms, threads_named, wait_until};

/// A server whose directories remain, and its client behind a proxy.
pub(super) struct Rig {
    pub(super) server: Lent,
    pub(super) proxy: Proxy,
    pub(super) client: LockClient,
    stay: &'static [&'static str],
}

impl Rig {
    pub(super) fn start(stay: &'static [&'static str]) -> Self {
        let server = ZooKeeper::lend(super::SETTINGS);
        server.look(|session| {
            for path in stay {
                session.create(path, b"", PERSISTENT).unwrap();
            }
        });
        let proxy = Proxy::before_zookeeper(&server);
        let client = client_of(&proxy.zookeeper_url(), |builder| builder);
        Self { server, proxy, client, stay }
    }

    /// Runs `act` once for each length of the reply to the request with this word that follows
    /// `skip` others, and checks afterwards that nothing is left. `act` returns false if the
    /// request was not sent, and is then repeated.
    fn cut(&self, word: &str, skip: u32, sessions: usize, act: impl FnMut(&str) -> bool) {
        self.at_each(Fault::CutReplyAt, 1, word, skip, sessions, act);
    }

    /// The same for a reply that resembles another one: at each third length, and in the next run
    /// at others.
    fn cut_at_some(&self, word: &str, skip: u32, sessions: usize, act: impl FnMut(&str) -> bool) {
        self.at_each(Fault::CutReplyAt, 3, word, skip, sessions, act);
    }

    pub(super) fn at_each(
        &self,
        fault: impl Fn(usize) -> Fault,
        step: usize,
        word: &str,
        skip: u32,
        sessions: usize,
        mut act: impl FnMut(&str) -> bool,
    ) {
        let mut at = rand::random_range(0..step);
        for _ in 0..5000 {
            let (what, hits) = (format!("{word} cut at {at}"), self.proxy.hits());
            self.proxy.inject_after(word, skip, fault(at));
            if !act(&what) {
                self.proxy.disarm();
                continue;
            }
            wait_until(&format!("{what}: the fault happens"), || self.proxy.hits() == hits + 1);
            self.is_clean(&what, sessions);
            if at >= self.proxy.reply_length() {
                assert!(at >= 20, "{what}: a reply is longer");
                return;
            }
            at += step;
        }
        panic!("{word}: it was not sent");
    }

    fn is_clean(&self, what: &str, sessions: usize) {
        wait_until(&format!("{what}: its nodes are deleted, and only its session is left"), || {
            let (all, ephemerals) = self.server.sessions_and_ephemerals();
            ephemerals.is_empty() && all.len() == sessions
        });
        wait_until(&format!("{what}: its watches are removed"), || {
            self.server.watches().is_empty()
        });
    }

    pub(super) fn end(self) {
        let Self { server, proxy, client, stay } = self;
        drop((client, proxy));
        server.look(|session| {
            for path in stay.iter().rev() {
                session.delete(path).unwrap_or_else(|code| panic!("{path} stays: error {code}"));
            }
        });
        server.assert_clean();
    }
}

/// The result of the call, if its reply was not lost.
#[track_caller]
fn unless_lost<T>(what: &str, outcome: Result<T>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::Unreachable, "{what}: {e}");
            None
        }
    }
}

#[test]
fn of_a_lock() {
    let rig = server!(Rig::start(&["/job"]));
    for word in ["create2 /job", "getChildren /job", "delete /job"] {
        rig.cut(word, 0, 1, |what| {
            if let Some(won) = unless_lost(what, rig.client.try_lock("job")) {
                let _ = unless_lost(what, won.expect(what).unlock());
            }
            true
        });
    }
    rig.end();
}

/// The directory is missing, and is created with its first child.
#[test]
fn of_a_lock_whose_directory_is_missing() {
    let rig = server!(Rig::start(&[]));
    let mut number = 0;
    for word in ["create2 /fresh", "exists /fresh", "multi /fresh", "getChildren /fresh"] {
        rig.cut_at_some(word, u32::from(word.starts_with("getC")), 1, |what| {
            number += 1;
            if let Some(won) = unless_lost(what, rig.client.try_lock(format!("fresh-{number}"))) {
                let _ = unless_lost(what, won.expect(what).unlock());
            }
            true
        });
    }
    rig.end();
}

#[test]
fn of_a_hand_over() {
    let rig = server!(Rig::start(&["/job"]));
    let client = &rig.client;
    rig.cut("multi /job", 0, 1, |what| {
        let hits = rig.proxy.hits();
        let Some(guard) = unless_lost(what, client.lock("job")) else { return false };
        std::thread::scope(|s| {
            let next =
                s.spawn(|| client.lock("job").map(|guard| (guard.is_held(), guard.unlock())));
            // Nothing shows that it waits. If this was too short, the test tries again.
            std::thread::sleep(ms(10));
            let _ = unless_lost(what, guard.unlock());
            if let Some((is_held, unlocked)) = unless_lost(what, next.join().unwrap()) {
                assert!(is_held && unlocked.is_ok(), "{what}: {unlocked:?}");
            }
        });
        rig.proxy.hits() > hits
    });
    rig.end();
}

#[test]
fn of_a_downgrade() {
    let rig = server!(Rig::start(&["/data"]));
    rig.cut("multi /data", 0, 1, |what| {
        let taken = rig.client.rw_lock("data").write();
        let Some(guard) = unless_lost(what, taken) else { return false };
        if let Some(guard) = unless_lost(what, guard.downgrade()) {
            let _ = unless_lost(what, guard.unlock());
        }
        true
    });
    rig.end();
}

#[test]
fn of_several_locks_as_one() {
    let rig = server!(Rig::start(&["/a", "/b"]));
    // They are queued in one transaction, listed, and released in another.
    for (word, skip) in
        [("multi /a", 0), ("getChildren /a", 0), ("getChildren /b", 0), ("multi /a", 1)]
    {
        rig.cut_at_some(word, skip, 1, |what| {
            if let Some(won) = unless_lost(what, rig.client.multi(["b", "a"]).try_lock()) {
                let _ = unless_lost(what, won.expect(what).unlock());
            }
            true
        });
    }
    rig.end();
}

#[test]
fn of_permits() {
    let rig = server!(Rig::start(&["/pool", "/pool/locks", "/pool/leases"]));
    let pool = rig.client.semaphore("pool");
    assert_eq!(pool.try_set_permits(3).unwrap(), leasehold::SetPermits::New);
    let acquires = [
        "create2 /pool/locks",
        "getChildren /pool/locks",
        "getData /pool/permits",
        "multi /pool/leases",
    ];
    let releases = ["getChildren /pool/leases", "delete /pool/leases"];
    for word in acquires.into_iter().chain(releases) {
        rig.cut_at_some(word, 0, 1, |what| {
            if let Some(won) = unless_lost(what, pool.try_acquire_many(2)) {
                drop(won.expect(what));
            }
            true
        });
        assert_eq!(
            (pool.available_permits().unwrap(), pool.acquired_permits().unwrap()),
            (3, 0),
            "{word}"
        );
    }
    assert!(pool.delete().unwrap());
    drop(pool);
    rig.end();
}

/// A change is made exactly once, whichever reply is lost.
#[test]
fn of_a_count() {
    let rig = server!(Rig::start(&[]));
    let (latch, direct) = (rig.client.latch("start"), client(&rig.server));
    for (word, skip) in
        [("getData /start", 0), ("multi /start", 0), ("delete /leasehold-sessions/once", 0)]
    {
        latch.set_count(1000).unwrap();
        let mut count = 1000;
        rig.cut_at_some(word, skip, 2, |what| {
            count -= 1;
            assert_eq!(latch.count_down().unwrap(), count, "{what}");
            assert_eq!(direct.latch("start").count().unwrap(), count, "{what}");
            true
        });
        assert!(latch.delete().unwrap());
    }
    rig.cut_at_some("multi /start", 0, 2, |what| {
        assert!(latch.try_set_count(5).unwrap(), "{what}");
        assert_eq!(direct.latch("start").count().unwrap(), 5, "{what}");
        assert!(latch.delete().unwrap(), "{what}");
        true
    });
    rig.cut_at_some("multi /start", 1, 2, |what| {
        assert!(latch.try_set_count(5).unwrap(), "{what}");
        assert!(latch.delete().unwrap(), "{what}");
        assert_eq!(direct.latch("start").count().unwrap(), 0, "{what}");
        true
    });
    drop((latch, direct));
    rig.end();
}

/// A waiter reads the node before its own, and watches it for its deletion.
#[test]
fn of_a_waiters_watch() {
    let rig = server!(Rig::start(&["/job"]));
    let other = client(&rig.server);
    let mut look = rig.server.raw();
    let (mut guard, mut place) = (None, Vec::new());
    rig.cut_at_some("getData /job", 0, 3, |what| {
        if guard.is_none() {
            guard = Some(other.lock("job").unwrap());
            place = children(&mut look, "/job");
        }
        if let Some(won) = unless_lost(what, rig.client.try_lock_for("job", ms(40))) {
            assert!(won.is_none(), "{what}: another client has it");
        }
        wait_until(&format!("{what}: its queue entry is removed"), || {
            children(&mut look, "/job") == place
        });
        wait_until(&format!("{what}: its watch is removed"), || {
            // The watch of a waiter that has left is removed with the node that it was on.
            guard.take();
            rig.server.watches().is_empty()
        });
        true
    });
    look.close();
    drop(other);
    rig.end();
}

/// The message that the turn has come.
#[test]
fn of_a_message_about_a_watch() {
    let rig = server!(Rig::start(&["/job"]));
    let other = client(&rig.server);
    rig.cut("event", 0, 2, |what| {
        let guard = other.lock("job").unwrap();
        std::thread::scope(|s| {
            let waits = s.spawn(|| rig.client.fair("job").lock().map(|guard| guard.unlock()));
            wait_until("it waits", || !rig.server.watches().is_empty());
            // Replies arrive in order, so it has been told to wait.
            assert!(rig.client.mutex("job").is_locked().unwrap());
            guard.unlock().unwrap();
            let start = std::time::Instant::now();
            waits.join().unwrap().expect(what).expect(what);
            assert!(start.elapsed() < CAP, "{what}: {:?}", start.elapsed());
        });
        true
    });
    drop(other);
    rig.end();
}

#[test]
fn of_a_heartbeat_and_of_an_extension() {
    let rig = server!(Rig::start(&["/job"]));
    let brief = client_of(&rig.proxy.zookeeper_url(), |builder| {
        builder.lease(ms(6000)).io_timeout(ms(2000))
    });
    // Each round waits for a heartbeat, so few lengths are cut.
    rig.at_each(Fault::CutReplyAt, 8, "check /", 0, 2, |what| {
        let (guard, hits) = (brief.lock("job").unwrap(), rig.proxy.hits());
        wait_until("a heartbeat", || rig.proxy.hits() > hits);
        wait_until("it is back", || brief.mutex("job").holder().is_ok());
        assert!(guard.is_held(), "{what}");
        guard.unlock().unwrap();
        true
    });
    drop(brief);
    for word in ["check /", "exists /job"] {
        rig.cut_at_some(word, 0, 1, |what| {
            let guard = rig.client.mutex("job").with_lease(LONG / 2).lock().unwrap();
            let _ = unless_lost(what, guard.extend(LONG / 2));
            assert!(guard.is_held(), "{what}");
            guard.unlock().unwrap();
            true
        });
    }
    rig.end();
}

/// A create whose reply was lost is looked up after a write, whose reply is lost too.
#[test]
fn of_the_look_for_what_became_of_a_create() {
    let rig = server!(Rig::start(&["/job"]));
    for (word, skip) in
        [("check /", 0), ("getChildren /job", 0), ("getData /job", 0), ("delete /job", 0)]
    {
        rig.cut_at_some(word, skip, 1, |what| {
            // One fault at a time: that of the create is armed first.
            rig.proxy.disarm();
            let (hits, at) = (rig.proxy.hits(), what.rsplit(' ').next().unwrap().parse().unwrap());
            rig.proxy.inject("create2 /job", Fault::StallThenCut(ms(30)));
            std::thread::scope(|s| {
                let call = s.spawn(|| unless_lost(what, rig.client.try_lock("job")).map(drop));
                wait_until("the create is in transit", || rig.proxy.hits() > hits);
                rig.proxy.inject(word, Fault::CutReplyAt(at));
                call.join().unwrap();
            });
            let is_over = || rig.proxy.hits() == hits + 2 || rig.server.ephemerals().is_empty();
            wait_until("the second fault happens, or the node is deleted without it", is_over);
            if rig.proxy.disarm() {
                // The client was faster than this thread.
                rig.proxy.forget_hit();
                return false;
            }
            wait_until("the second fault happens", || rig.proxy.hits() == hits + 2);
            // Counts as if there had been only one.
            rig.proxy.forget_hit();
            true
        });
    }
    rig.end();
}

#[test]
fn of_a_look() {
    let rig = server!(Rig::start(&["/job"]));
    let look = |what: &str| {
        let guard = rig.client.lock("job").unwrap();
        let _ = unless_lost(what, rig.client.mutex("job").holder());
        let _ = unless_lost(what, guard.unlock());
    };
    // The lists of the lock, and of the lookup.
    for (word, skip) in [("getChildren /job", 1), ("getData /job", 0)] {
        rig.cut_at_some(word, skip, 1, |what| {
            look(what);
            true
        });
    }
    rig.end();
}

/// A session whose creation was not confirmed belongs to nobody, and ends by itself.
#[test]
fn of_a_connect() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let url = proxy.zookeeper_url().replace("//", "//app:s3cret@");
    for word in ["connect", "auth"] {
        for at in 0.. {
            proxy.inject(word, Fault::CutReplyAt(at));
            let ensemble = leasehold::ZooKeeper::new(&url).creator_only(true);
            let brief =
                LockClient::builder().lease(ms(1500)).io_timeout(ms(1000)).client_name("zk-cut");
            let built = brief.zookeeper(ensemble).build();
            assert!(!proxy.disarm(), "{word} is sent");
            if let Some(client) = unless_lost(&format!("{word} cut at {at}"), built) {
                assert!(
                    at >= proxy.reply_length(),
                    "{word} cut at {at}: it works with a part of its reply"
                );
                // No other client may have a lock of this name for a moment.
                client.lock("ours alone").unwrap().unlock().unwrap();
            }
            wait_until("no thread is left", || threads_named("lh-zk-zk-cut") == 0);
            if at >= proxy.reply_length() {
                break;
            }
        }
    }
    drop(proxy);
    server.assert_clean();
}

/// The same session continues.
#[test]
fn of_a_resumed_connect() {
    let rig = server!(Rig::start(&["/job"]));
    let guard = rig.client.lock("job").unwrap();
    let sessions = rig.server.sessions();
    for at in 0..60 {
        let hits = rig.proxy.hits();
        rig.proxy.inject("connect", Fault::CutReplyAt(at));
        rig.proxy.cut_all();
        wait_until("the fault happens", || rig.proxy.hits() == hits + 1);
        wait_until("it is back", || rig.client.mutex("job").holder().is_ok());
        assert!(guard.is_held(), "cut at {at}");
        assert_eq!(rig.server.sessions(), sessions, "cut at {at}");
    }
    assert!(rig.proxy.reply_length() < 60, "{}", rig.proxy.reply_length());
    guard.unlock().unwrap();
    rig.end();
}

#[test]
fn of_a_close() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    for at in 0..24 {
        let client = client_of(&proxy.zookeeper_url(), |builder| builder.client_name("zk-end"));
        let (guard, hits) = (client.lock("job").unwrap(), proxy.hits());
        proxy.inject("closeSession", Fault::CutReplyAt(at));
        let _ = client.close(Duration::from_secs(2));
        wait_until("the fault happens", || proxy.hits() == hits + 1);
        assert!(!guard.is_held(), "cut at {at}");
        drop((guard, client));
        wait_until("its session ends", || server.sessions().is_empty());
        wait_until("its nodes are deleted", || server.ephemerals().is_empty());
        wait_until("no thread is left", || threads_named("lh-zk-zk-end") == 0);
    }
    assert!(proxy.reply_length() < 24, "{}", proxy.reply_length());
    drop(proxy);
    server.assert_clean();
}
