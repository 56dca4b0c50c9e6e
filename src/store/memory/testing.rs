//! What a test does to the clients of a memory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::faults::{Failure, Operation, cut_off};
use super::shared::Memory;
use crate::base::clock::Clock;

impl Memory {
    /// `look_again`: called when something has changed that those who sleep would find by a timer;
    /// false: not any more.
    pub(crate) fn add_client(&self, look_again: impl Fn() -> bool + Send + Sync + 'static) {
        self.clients.lock().push(Box::new(look_again));
    }

    /// Nobody has to wait for a timer to see what was changed.
    fn wake_all(&self) {
        self.state.lock().subscriptions.publish_all();
        self.clients.lock().retain(|look_again| look_again());
    }

    pub(crate) fn advance(&self, by: Duration) {
        let mut state = self.state.lock();
        self.clock.advance(by);
        // Those who wait were not asked meanwhile whether they live: nobody's place may depend on
        // who wakes up first.
        state.queues.values_mut().for_each(|queue| queue.postpone(by));
        state.markers.values_mut().for_each(|marker| marker.until = marker.until.plus(by));
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

    pub(crate) fn fail_next(&self, operation: Operation, failure: Failure) {
        self.state.lock().faults.add(operation, failure);
    }

    pub(crate) fn held(&self) -> BTreeSet<Arc<str>> {
        self.state.lock().held(self.clock.now())
    }

    /// How many clients are told when something under the name comes free.
    pub(crate) fn listeners(&self, key: &str) -> usize {
        self.state.lock().subscriptions.listeners(key)
    }
}
