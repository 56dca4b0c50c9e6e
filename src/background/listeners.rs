//! Who is told when a lease ends: threads that wait for it, callbacks, and threads that wait for
//! any of several leases.

use std::sync::Arc;
use std::time::Duration;

use crate::background::callbacks::{Callback, OnLost};
use crate::background::grant::{Grant, tick};
use crate::base::cancel::CancelToken;
use crate::base::deadline::Deadline;
use crate::base::event::{Event, Interrupt};
use crate::base::lease::State;
use crate::os;

impl Grant {
    /// Wakes the threads that wait for the end of the lease, after it has ended.
    pub(crate) fn wake(&self) {
        // The mutex is taken also for `ended`: a waiter that has read the state and does not wait
        // yet must not miss this.
        self.listeners.lock().iter().flat_map(|listeners| &listeners.events).for_each(|event| event.notify());
        self.ended.notify_all();
    }

    /// From now on the event is notified when the lease has ended, until it is
    /// [removed](Self::remove_event). The end by time alone may not notify it: the waiting thread
    /// keeps that deadline itself.
    pub(crate) fn add_event(&self, event: &Arc<Event>) {
        self.listeners.lock().get_or_insert_default().events.push(event.clone());
    }

    pub(crate) fn remove_event(&self, event: &Arc<Event>) {
        if let Some(listeners) = &mut *self.listeners.lock() {
            listeners.events.retain(|other| !Arc::ptr_eq(other, event));
        }
    }

    /// Blocks until the lease is lost or closed (true), released (false), `timeout` has passed
    /// (false), or `cancel` is cancelled (false). Keeps the deadline itself: the watchdog may be
    /// blocked in a connect.
    pub(crate) fn wait_lost(self: &Arc<Self>, timeout: Duration, cancel: Option<&CancelToken>) -> bool {
        let deadline = Deadline::after(os::now(), timeout);
        let _woken = cancel.map(|token| token.wakes(self.clone()));
        let mut listeners = self.listeners.lock();
        loop {
            let now = self.now();
            match self.lease.state(now) {
                State::Lost | State::Closed => return true,
                State::Released => return false,
                State::Held | State::Suspect => {}
            }
            let left = deadline.remaining(os::now()).unwrap_or(Duration::MAX);
            if left.is_zero() || cancel.is_some_and(CancelToken::is_cancelled) {
                return false;
            }
            let pause = left.min(tick(self.span)).min(self.lease.until().since(now));
            self.ended.wait_for(&mut listeners, pause.max(Duration::from_micros(50)));
        }
    }

    /// True for the first callback of a grant.
    pub(crate) fn add_callback(&self, OnLost(place): &OnLost) -> bool {
        let mut listeners = self.listeners.lock();
        let listeners = listeners.get_or_insert_default();
        if listeners.callbacks.len() == listeners.callbacks.capacity() {
            listeners.callbacks.retain(|callback| callback.strong_count() > 0);
        }
        listeners.callbacks.push(Arc::downgrade(place));
        !std::mem::replace(&mut listeners.watched, true)
    }

    /// Takes those that have neither run nor been taken back.
    pub(crate) fn take_callbacks(&self) -> Vec<Callback> {
        let callbacks = self.listeners.lock().as_mut().map(|listeners| std::mem::take(&mut listeners.callbacks));
        callbacks.iter().flatten().filter_map(|place| place.upgrade()?.lock().take()).collect()
    }
}

/// By a token that is cancelled: whoever waits for a loss looks whether it is theirs.
impl Interrupt for Grant {
    fn interrupt(&self) {
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::background::grant::RenewalPolicy;
    use crate::background::grant::tests::grant;
    use crate::base::clock::{Clock, FakeClock};

    #[test]
    fn wait_lost_ends_on_loss_release_and_timeout() {
        let clock = Arc::new(FakeClock::default());
        let span = Duration::from_secs(10);
        let lost = grant("a", &clock, span, RenewalPolicy::Fixed);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| lost.wait_lost(Duration::from_secs(60), None));
            lost.lose();
            assert!(waiter.join().unwrap());
        });
        let released = grant("b", &clock, span, RenewalPolicy::Fixed);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| released.wait_lost(Duration::from_secs(60), None));
            released.lease.release(clock.now());
            released.wake();
            assert!(!waiter.join().unwrap());
        });
        let held = grant("c", &clock, span, RenewalPolicy::Fixed);
        assert!(!held.wait_lost(Duration::from_millis(1), None));
        let token = CancelToken::new();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| held.wait_lost(Duration::from_secs(60), Some(&token)));
            token.cancel();
            assert!(!waiter.join().unwrap());
        });
        assert!(lost.wait_lost(Duration::ZERO, Some(&token)), "a loss counts before the cancel");
    }
}
