//! The data of a hold: what others see of it, for how long, and what a late change does.

use std::time::Duration;

use leasehold::observe::{LastHolder, LockHolder};
use leasehold::{
    ErrorKind, FairMutex, LockClient, OwnedFairMutexGuard, OwnedMutexGuard, ReentrantMutex, Result,
};

use super::case::Case;
use super::lost_replies::impatient;
use super::network::Network;
use super::{BRIEF, LONG, SHORT, assert_unasked};
use crate::rig::{Fault, wait_until};

const NAME: &str = "deploy";
/// Bytes of every kind, and the separator of ZooKeeper's nodes.
const ODD: &[u8] = b"build \x00 812\n\xff";

/// The two kinds of lock that have data.
trait WithData {
    fn having(&self, data: &[u8]) -> Self;
    fn take(&self) -> Box<dyn Holding>;
    fn who(&self) -> Result<Option<LockHolder>>;
    fn last(&self) -> Result<Option<LastHolder>>;
}

trait Holding: Send + Sync {
    fn set(&self, data: &[u8]) -> Result<()>;
    fn is_held(&self) -> bool;
    fn end(self: Box<Self>) -> Result<()>;
}

macro_rules! with_data {
    ($($lock:ident $guard:ident),+) => {$(
        impl WithData for $lock {
            fn having(&self, data: &[u8]) -> Self {
                self.clone().with_data(data)
            }

            fn take(&self) -> Box<dyn Holding> {
                Box::new(self.lock_owned().unwrap())
            }

            fn who(&self) -> Result<Option<LockHolder>> {
                self.holder()
            }

            fn last(&self) -> Result<Option<LastHolder>> {
                self.last_holder()
            }
        }

        impl Holding for $guard {
            fn set(&self, data: &[u8]) -> Result<()> {
                self.set_data(data)
            }

            fn is_held(&self) -> bool {
                self.is_held()
            }

            fn end(self: Box<Self>) -> Result<()> {
                self.unlock()
            }
        }
    )+};
}

with_data!(ReentrantMutex OwnedMutexGuard, FairMutex OwnedFairMutexGuard);

/// Runs a check over both kinds.
fn each_kind(case: &Case, test: impl Fn(&Case, &dyn Fn(&LockClient) -> Lock)) {
    test(case, &|client| Lock::Plain(client.mutex(NAME)));
    test(case, &|client| Lock::Fair(client.fair(NAME)));
}

enum Lock {
    Plain(ReentrantMutex),
    Fair(FairMutex),
}

impl WithData for Lock {
    fn having(&self, data: &[u8]) -> Self {
        match self {
            Self::Plain(lock) => Self::Plain(lock.having(data)),
            Self::Fair(lock) => Self::Fair(lock.having(data)),
        }
    }

    fn take(&self) -> Box<dyn Holding> {
        match self {
            Self::Plain(lock) => lock.take(),
            Self::Fair(lock) => lock.take(),
        }
    }

    fn who(&self) -> Result<Option<LockHolder>> {
        match self {
            Self::Plain(lock) => lock.who(),
            Self::Fair(lock) => lock.who(),
        }
    }

    fn last(&self) -> Result<Option<LastHolder>> {
        match self {
            Self::Plain(lock) => lock.last(),
            Self::Fair(lock) => lock.last(),
        }
    }
}

#[track_caller]
fn shows(lock: &Lock, data: Option<&[u8]>) {
    let holder = lock.who().unwrap();
    assert_eq!(holder.expect("somebody has it").data(), data);
}

/// The last holder, except over ZooKeeper, which is checked.
fn last_of(case: &Case, lock: &Lock) -> Option<Option<LastHolder>> {
    match lock.last() {
        Err(e) if case.is_over_zookeeper() => {
            assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
            None
        }
        last => Some(last.unwrap()),
    }
}

pub(super) fn it_is_shown_with_the_grant_and_only_while_its_writer_holds(case: &mut Case) {
    each_kind(case, |case, lock| {
        let [a, b] = [(); 2].map(|()| case.client(|builder| builder.lease(LONG)));
        let (ours, seen) = (lock(&a), lock(&b));
        let guard = ours.having(ODD).take();
        shows(&seen, Some(ODD));
        let text = seen.who().unwrap().unwrap().to_string();
        assert!(text.ends_with(r#"with the data "build \0 812\n\xff""#), "{text}");
        let report = b.inspect(NAME).unwrap().expect("it is held");
        assert_eq!(report.locks()[0].holders()[0].data(), Some(ODD));
        let listed = b.locks(NAME).unwrap();
        assert_eq!(listed[0].holders()[0].data(), Some(ODD), "{listed:?}");
        guard.set(b"halfway").unwrap();
        shows(&seen, Some(b"halfway"));
        guard.set(b"").unwrap();
        shows(&seen, Some(b""));
        if let Some(last) = last_of(case, &seen) {
            let last = last.expect("it has data");
            assert_eq!((last.data(), last.ended()), (&b""[..], None));
            assert_eq!(last.id(), seen.who().unwrap().unwrap().id());
        }
        guard.set(b"done").unwrap();
        let id = seen.who().unwrap().unwrap().id().to_owned();
        guard.end().unwrap();
        // The next holder, of the same client, has none.
        let next = ours.take();
        shows(&seen, None);
        assert_eq!(next.set(b"x").unwrap_err().kind(), ErrorKind::InvalidInput);
        if let Some(last) = last_of(case, &seen) {
            let last = last.expect("it had data");
            assert_eq!((last.id(), last.data()), (&*id, &b"done"[..]));
            assert!(last.ended().is_some_and(|ago| ago < LONG), "{last}");
        }
        next.end().unwrap();
    });
}

pub(super) fn it_has_a_limit_and_a_reentry_leaves_it(case: &mut Case) {
    let client = case.client(|builder| builder.lease(LONG));
    let most = [7; 1024];
    let mutex = client.mutex(NAME);
    let outer = mutex.clone().with_data(most).lock().unwrap();
    let inner = mutex.clone().with_data(b"other").lock().unwrap();
    let data = || mutex.holder().unwrap().unwrap().data().map(<[u8]>::to_vec);
    assert_eq!(data().as_deref(), Some(&most[..]));
    assert_eq!(outer.set_data([7; 1025]).unwrap_err().kind(), ErrorKind::InvalidInput);
    inner.set_data(b"new").unwrap();
    drop(inner);
    assert_eq!(data().as_deref(), Some(&b"new"[..]), "one level is left");
    outer.extend(LONG).unwrap();
    outer.unlock().unwrap();
    let refused = mutex.clone().with_data([7; 1025]).try_lock().expect_err("it is too long");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    // A hold without data has none to replace, whoever re-enters it.
    let outer = mutex.lock().unwrap();
    let inner = mutex.clone().with_data(b"late").lock().unwrap();
    assert_eq!(data(), None);
    assert_eq!(inner.set_data(b"x").unwrap_err().kind(), ErrorKind::InvalidInput);
    drop((inner, outer));
}

/// Threads of one client that wait for a lock with data each have their own: no hold passes on.
pub(super) fn each_thread_has_its_own(case: &mut Case) {
    each_kind(case, |case, lock| {
        let [a, b] = [(); 2].map(|()| case.client(|builder| builder.lease(LONG)));
        let first = lock(&a).having(b"first").take();
        std::thread::scope(|s| {
            for n in 0..3u8 {
                let (ours, seen) = (lock(&a).having(&[n]), lock(&b));
                s.spawn(move || {
                    for turn in 0..3 {
                        let guard = ours.take();
                        shows(&seen, Some(&[n]));
                        guard.set(&[n, turn]).unwrap();
                        shows(&seen, Some(&[n, turn]));
                        guard.end().unwrap();
                    }
                });
            }
            // One without data, in between.
            let (ours, seen) = (lock(&a), lock(&b));
            s.spawn(move || {
                let guard = ours.take();
                shows(&seen, None);
                guard.end().unwrap();
            });
            wait_until("all wait", || a.snapshot().waits().len() == 4);
            first.end().unwrap();
        });
    });
}

/// It neither gives up the lock nor is renewed. And it is renewed as long as its hold.
pub(super) fn a_hold_that_ended_with_its_lease_is_the_last_one(case: &mut Case) {
    each_kind(case, |case, lock| {
        let [a, b] = [(); 2].map(|()| case.client(super::short));
        let seen = lock(&b);
        let renewed = lock(&a).having(b"renewed").take();
        std::thread::sleep(SHORT * 3 / 2);
        shows(&seen, Some(b"renewed"));
        renewed.set(b"renewed twice").unwrap();
        renewed.end().unwrap();
        let fixed = match lock(&a) {
            Lock::Plain(lock) => Lock::Plain(lock.with_lease(BRIEF)),
            Lock::Fair(lock) => Lock::Fair(lock.with_lease(BRIEF)),
        };
        let guard = fixed.having(b"dies").take();
        wait_until("its lease ends", || !guard.is_held());
        assert_eq!(guard.set(b"late").unwrap_err().kind(), ErrorKind::Lost);
        let next = lock(&b).take();
        shows(&seen, None);
        if let Some(last) = last_of(case, &seen) {
            let last = last.expect("it had data");
            assert_eq!(last.data(), b"dies");
            assert!(last.ended().is_some_and(|ago| ago < LONG), "{last}");
        }
        next.end().unwrap();
        drop(guard);
    });
}

pub(super) fn a_lost_reply_changes_nothing_more(case: &mut Case) {
    const FAULTS: [Fault; 3] =
        [Fault::CutBeforeSend, Fault::CutAfterApplied, Fault::BlackHoleReply];
    let proxy = Network::start(case);
    let direct = case.client(|builder| builder.lease(LONG));
    let seen = direct.mutex(&case.name);
    let mut hits = 0;
    for fault in FAULTS {
        let client = impatient(case.builder(&proxy.urls())).build().unwrap();
        let ours = client.mutex(&case.name);
        // The client has a connection, and repeats what was lost on it.
        drop(ours.lock_owned().unwrap());
        proxy.inject(&case.name, fault);
        match ours.clone().with_data(b"granted").try_lock_owned() {
            Ok(guard) => {
                let guard = guard.expect("nobody else has it");
                let holder = seen.holder().unwrap().unwrap();
                assert_eq!(holder.data(), Some(&b"granted"[..]), "{fault:?}");
                guard.unlock().unwrap();
            }
            Err(e) => assert_unasked("the grant", &e),
        }
        hits += 1;
        proxy.wait_hits(hits);
        wait_until("nothing is held", || seen.holder().unwrap().is_none());
        let guard = ours.clone().with_data(b"0").lock_owned().unwrap();
        proxy.inject(&case.name, fault);
        if let Err(e) = guard.set_data(b"1") {
            assert_unasked("the change", &e);
        }
        hits += 1;
        proxy.wait_hits(hits);
        guard.set_data(b"2").unwrap();
        assert_eq!(seen.holder().unwrap().unwrap().data(), Some(&b"2"[..]), "{fault:?}");
        guard.unlock().unwrap();
        wait_until("nothing is held", || seen.holder().unwrap().is_none());
    }
}

/// It is held back until its writer has given up the lock and another has it.
pub(super) fn a_late_change_changes_nothing(case: &mut Case) {
    let proxy = Network::start(case);
    let [direct, other] = [(); 2].map(|()| case.client(|builder| builder.lease(LONG)));
    let client = impatient(case.builder(&proxy.urls())).build().unwrap();
    let ours = client.mutex(&case.name).with_data(b"ours");
    drop(ours.lock_owned().unwrap());
    let guard = ours.lock_owned().unwrap();
    guard.set_data(b"first").unwrap();
    // Over ZooKeeper a change reads first.
    proxy.inject_after(&case.name, u32::from(case.is_over_zookeeper()), Fault::Hold);
    let failed = guard.set_data(b"late").unwrap_err();
    assert_unasked("the change", &failed);
    proxy.wait_hits(1);
    guard.set_data(b"second").unwrap();
    // It may come before the next holder, and changes nothing then either.
    guard.unlock().unwrap();
    let theirs = other.mutex(&case.name).with_data(b"theirs").lock_owned().unwrap();
    proxy.proxies.iter().for_each(|proxy| proxy.release_held());
    for _ in 0..20 {
        let holder = direct.mutex(&case.name).holder().unwrap().unwrap();
        assert_eq!(holder.data(), Some(&b"theirs"[..]));
        std::thread::sleep(Duration::from_millis(10));
    }
    theirs.unlock().unwrap();
}

/// One store must decide: Redlock has several masters.
pub(super) fn redlock_refuses_it(case: &mut Case) {
    let client = case.client(|builder| builder.lease(LONG));
    let mutex = client.mutex(NAME);
    let refused = mutex.clone().with_data(b"x").try_lock().expect_err("no data");
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert_eq!(mutex.last_holder().unwrap_err().kind(), ErrorKind::Unsupported);
}

/// Whichever guard gives up the last level, that of several locks too.
pub(super) fn a_multi_lock_that_gives_up_the_last_level_ends_it(case: &mut Case) {
    let [a, b] = [(); 2].map(|()| case.client(|builder| builder.lease(LONG)));
    let seen = Lock::Plain(b.mutex(NAME));
    let outer = a.mutex(NAME).with_data(b"ours").lock().unwrap();
    let both = a.multi([NAME, "too"]).lock().unwrap();
    outer.unlock().unwrap();
    shows(&seen, Some(b"ours"));
    both.unlock().unwrap();
    assert!(b.multi([NAME, "too"]).try_lock().unwrap().is_some());
    if last_of(case, &seen).is_some() {
        let ended = || seen.last().unwrap().expect("it had data").ended().expect("nobody has it");
        wait_until("the end has passed", || !ended().is_zero());
    }
}
