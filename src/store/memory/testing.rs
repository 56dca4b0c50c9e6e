//! What a test can do to the clients of an in-memory store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::faults::{Failure, Operation, cut_off};
use super::state::Memory;
use crate::signal::clock::Clock;

impl Memory {
    /// `recheck` wakes the client's waiting threads; it returns false when the client is gone.
    pub(crate) fn add_client(&self, recheck: impl Fn() -> bool + Send + Sync + 'static) {
        self.clients.lock().push(Arc::new(recheck));
    }

    /// Wakes all waiting threads of all clients, so that they see a change before a timer fires.
    fn wake_all(&self) {
        self.state.lock().subscriptions.publish_all();
        // Called after the mutex is unlocked: a client whose last handle is dropped meanwhile ends
        // inside this call, and its callbacks may call into this memory.
        let clients = self.clients.lock().clone();
        let gone: Vec<_> = clients.into_iter().filter(|recheck| !recheck()).collect();
        self.clients.lock().retain(|client| !gone.iter().any(|gone| Arc::ptr_eq(client, gone)));
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

    pub(crate) fn lose(&self, key: &str) -> bool {
        let lost = self.state.lock().lose(&key.into(), self.clock.now());
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

    pub(crate) fn held(&self) -> BTreeSet<Arc<str>> {
        self.state.lock().held(self.clock.now())
    }

    /// How many clients are subscribed to releases under the name.
    pub(crate) fn listeners(&self, key: &str) -> usize {
        self.state.lock().subscriptions.listeners(key)
    }
}
