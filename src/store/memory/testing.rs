//! What a test can do to the clients of an in-memory store.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::faults::{Failure, Operation, cut_off};
use super::state::{ClientInTest, Memory};
use crate::base::job_keys::key_for_user;
use crate::os;
use crate::signal::clock::Clock;

/// [`Memory::settle`] waits this long at most: a callback may wait for whoever settles.
const LONGEST_SETTLE: Duration = Duration::from_secs(5);

/// How often it looks. The threads are asked, and do not notify: only tests want to know.
const SETTLE_PAUSE: Duration = Duration::from_micros(200);

impl Memory {
    pub(crate) fn add_client(&self, client: Weak<dyn ClientInTest>) {
        let mut clients = self.clients.lock();
        clients.retain(|client| client.strong_count() > 0);
        clients.push(client);
    }

    /// The clients that are still there. Use them without a mutex of the memory: one whose last
    /// handle is dropped meanwhile ends in the hands of the caller, and its callbacks may call into
    /// this memory.
    fn living(&self) -> Vec<Arc<dyn ClientInTest>> {
        let mut living = Vec::new();
        self.clients.lock().retain(|client| match client.upgrade() {
            Some(client) => {
                living.push(client);
                true
            }
            None => false,
        });
        living
    }

    /// Wakes all waiting threads of all clients, so that they see a change before a timer fires.
    fn wake_all(&self) {
        self.state.lock().subscriptions.publish_all();
        for client in self.living() {
            client.recheck();
        }
    }

    /// Waits until the threads of the library have done what is due for all clients. Called by such
    /// a thread, which would wait for itself, it returns at once.
    pub(crate) fn settle(&self) {
        let give_up = os::now() + LONGEST_SETTLE;
        let is_caller_ours = os::thread::current().name().is_some_and(|n| n.starts_with("lh-"));
        while !is_caller_ours
            && !self.living().iter().all(|client| client.is_settled())
            && os::now() < give_up
        {
            os::thread::sleep(SETTLE_PAUSE);
        }
    }

    pub(crate) fn advance(&self, by: Duration) {
        let mut state = self.state.lock();
        self.clock.advance(by);
        // No waiter could renew its place during the jump. If places expired, the order of the
        // queue would depend on which waiter wakes up first.
        for queue in state.queues.values_mut() {
            queue.postpone(by);
        }
        for marker in state.markers.values_mut() {
            marker.until = marker.until.plus(by);
        }
        drop(state);
        self.wake_all();
    }

    /// `key`: the one that a user knows, as below.
    pub(crate) fn lose(&self, key: &str) -> bool {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let mut keys = state.held(now);
        keys.retain(|one| key_for_user(one) == key);
        let lost = keys.iter().filter(|key| state.lose(key, now)).count() > 0;
        drop(state);
        self.wake_all();
        lost
    }

    pub(crate) fn cut(&self, how_long: Duration) {
        let mut state = self.state.lock();
        state.faults.cut(self.clock.now().plus(how_long));
        if !how_long.is_zero() {
            state.subscriptions.end(None, &cut_off(how_long));
        }
        drop(state);
        self.wake_all();
    }

    /// A cut during which each request takes this time before it fails.
    #[cfg(shuttle)]
    pub(crate) fn hang(&self, how_long: Duration, each: Duration) {
        self.state.lock().faults.set_hanging(each);
        self.cut(how_long);
    }

    pub(crate) fn fail_next(&self, operation: Operation, failure: Failure) {
        self.state.lock().faults.add(operation, failure);
    }

    pub(crate) fn held(&self) -> BTreeSet<String> {
        let held = self.state.lock().held(self.clock.now());
        held.iter().map(|key| key_for_user(key).to_owned()).collect()
    }

    /// How many clients are subscribed to releases under the name.
    pub(crate) fn listeners(&self, key: &str) -> usize {
        self.state.lock().subscriptions.listeners(key)
    }
}
