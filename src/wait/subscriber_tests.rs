use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

use super::*;
use crate::store::memory::{Memory, MemoryStore};

struct Nobody;

impl Interrupt for Nobody {
    fn interrupt(&self) {}
}

/// Never receives anything.
struct Silent {
    panics: bool,
}

impl Subscriber for Silent {
    fn receive(&mut self) -> Result<Received> {
        unreachable!("it is read in turns")
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        Some(Arc::new(Nobody))
    }

    fn receive_within(&mut self, _timeout: Duration) -> Result<Received> {
        if self.panics {
            panic_any("injected");
        }
        Ok(Received::Timeout)
    }
}

/// The state in which the thread leaves it after connecting.
fn connected(panics: bool) -> SubscriberThread {
    let second = Duration::from_secs(1);
    let store = Arc::new(MemoryStore::new(&Arc::new(Memory::new()), second));
    let state = Mutex::default();
    let changed = Condvar::new();
    let inner = SubscriberThread {
        client_name: "c".to_owned(),
        store,
        patience: Patience::of(second),
        state,
        changed,
    };
    let mut state = inner.state.lock();
    state.phase = Phase::Running;
    state.reading.begin(Box::new(Silent { panics }), Arc::new(Nobody));
    drop(state);
    inner
}

#[test]
fn one_has_the_role_at_a_time() {
    let inner = connected(false);
    let mut role = inner.take_role().unwrap();
    assert!(inner.take_role().is_none());
    assert!(!role.read(Duration::ZERO).unwrap());
    drop(role);
    assert!(inner.take_role().is_some());
    inner.state.lock().phase = Phase::Stopping;
    assert!(inner.take_role().is_none());
}

#[test]
fn a_panic_during_a_read_ends_the_connection() {
    let inner = connected(true);
    let read = || inner.take_role().unwrap().read(Duration::ZERO);
    assert!(catch_unwind(AssertUnwindSafe(read)).is_err());
    assert!(inner.take_role().is_none());
    assert!(inner.state.lock().reading.take_trouble().is_some(), "so the thread connects again");
}

/// What a guard does that is dropped by a panic of its user.
#[test]
fn a_thread_that_panics_already_can_read() {
    struct Reads<'i>(&'i SubscriberThread);
    impl Drop for Reads<'_> {
        fn drop(&mut self) {
            assert!(!self.0.take_role().unwrap().read(Duration::ZERO).unwrap());
        }
    }
    let inner = connected(false);
    let panics = || {
        let _reads = Reads(&inner);
        panic_any("of the user");
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert!(inner.take_role().is_some());
}

#[test]
fn when_the_thread_ends_nothing_is_subscribed() {
    struct Covers;
    impl SubscriptionSender for Covers {
        fn watch(&mut self, _topics: &[&Topic]) -> Result<bool> {
            Ok(true)
        }
        fn unwatch(&mut self, _topic: &Topic) -> Result<()> {
            Ok(())
        }
        fn covers(&self, _topic: &Topic) -> bool {
            true
        }
        fn ping(&mut self) -> Result<()> {
            Ok(())
        }
        fn close(&self) {}
    }
    let inner = connected(false);
    inner.state.lock().sender = Some(Box::new(Covers));
    drop(SubscriberExit(&inner));
    assert!(inner.state.lock().sender.is_none());
}

#[test]
fn who_fails_is_followed_by_nobody() {
    let inner = connected(false);
    inner.take_role().unwrap().fail(Error::new(ErrorKind::Unreachable, "it ended"));
    assert!(inner.take_role().is_none());
    assert!(inner.state.lock().reading.take_trouble().is_some());
}
