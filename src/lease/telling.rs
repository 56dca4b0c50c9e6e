//! Who is notified when a tenure ends, or when its hold cannot be renewed: threads that wait for
//! that, callbacks, and threads that wait for any of several tenures.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::base::deadline::Deadline;
use crate::base::lease::LeaseState;
use crate::base::loss::{LossWait, RenewalFailure};
use crate::lease::callbacks::{Callback, OnLost, OnTrouble};
use crate::lease::records::Tenure;
use crate::lease::schedule::tick;
use crate::os;
use crate::report::spans::Span;
use crate::signal::cancel::CancelToken;
use crate::signal::event::{Event, Interrupt};

impl Tenure {
    /// Wakes the threads that wait for its end, after it has ended.
    pub(crate) fn wake(&self) {
        // The mutex is needed for `ended` too: a waiter that has read the state and does not wait
        // yet must not miss this.
        if let Some(listeners) = &*self.listeners.lock() {
            for event in &listeners.events {
                event.notify();
            }
        }
        self.ended.notify_all();
    }

    /// From now on the event is notified when the tenure has ended, until it is
    /// [removed](Self::remove_event). An end by time alone may not notify it: the waiting thread
    /// must keep that deadline itself.
    pub(crate) fn add_event(&self, event: &Arc<Event>) {
        self.listeners.lock().get_or_insert_default().events.push(event.clone());
    }

    pub(crate) fn remove_event(&self, event: &Arc<Event>) {
        if let Some(listeners) = &mut *self.listeners.lock() {
            listeners.events.retain(|other| !Arc::ptr_eq(other, event));
        }
    }

    /// Blocks until it is lost, closed or released, `timeout` has passed, or `cancel` is cancelled;
    /// for the last two it returns `StillHeld`. It keeps the deadline itself: the watchdog may be
    /// blocked in a connect.
    pub(crate) fn wait_lost(
        self: &Arc<Self>,
        timeout: Duration,
        cancel: Option<&CancelToken>,
    ) -> LossWait {
        let deadline = Deadline::after(os::now(), timeout);
        let _woken = cancel.map(|token| token.wakes(self.clone()));
        let mut listeners = self.listeners.lock();
        loop {
            match self.state() {
                LeaseState::Lost | LeaseState::Closed => return LossWait::Lost,
                LeaseState::Released => return LossWait::Released,
                LeaseState::Held | LeaseState::Suspect => {}
            }
            let left = deadline.remaining(os::now()).unwrap_or(Duration::MAX);
            if left.is_zero() || cancel.is_some_and(CancelToken::is_cancelled) {
                return LossWait::StillHeld;
            }
            self.ended.wait_for(&mut listeners, left.min(self.pause()));
        }
    }

    pub(crate) fn has_span(&self) -> bool {
        cfg!(feature = "tracing")
            && self.listeners.lock().as_ref().is_some_and(|listeners| listeners.span.is_some())
    }

    /// Keeps the span until its end. If the tenure is lost before this, whoever gives it up ends
    /// the span.
    pub(crate) fn keep_span(&self, span: Span) {
        self.listeners.lock().get_or_insert_default().span = Some(span);
    }

    /// For whoever ends the span: of several threads, one gets it.
    pub(crate) fn take_span(&self) -> Option<Span> {
        if cfg!(feature = "tracing") { self.listeners.lock().as_mut()?.span.take() } else { None }
    }

    /// How long until its state must be read again, while it is live.
    pub(crate) fn pause(&self) -> Duration {
        tick(self.store_hold.asked.lease).min(self.remaining()).max(Duration::from_micros(50))
    }

    /// True for the first callback.
    pub(super) fn add_callback(&self, OnLost(place): &OnLost) -> bool {
        let mut listeners = self.listeners.lock();
        let listeners = listeners.get_or_insert_default();
        if listeners.callbacks.len() == listeners.callbacks.capacity() {
            listeners.callbacks.retain(|callback| callback.strong_count() > 0);
        }
        listeners.callbacks.push(Arc::downgrade(place));
        !std::mem::replace(&mut listeners.is_watched, true)
    }

    /// Takes the callbacks that have neither run nor been taken back.
    pub(super) fn take_callbacks(&self) -> Vec<Callback> {
        let callbacks = self
            .listeners
            .lock()
            .as_mut()
            .map(|listeners| std::mem::take(&mut listeners.callbacks));
        callbacks.iter().flatten().filter_map(|place| place.upgrade()?.lock().take()).collect()
    }

    /// Registers the callback for when renewal begins to fail. If renewal is already failing,
    /// returns what the callback must be called with now.
    pub(crate) fn add_on_trouble(&self, callback: &Arc<OnTrouble>) -> Option<RenewalFailure> {
        let mut listeners = self.listeners.lock();
        let of_trouble = &mut listeners.get_or_insert_default().on_trouble;
        if of_trouble.len() == of_trouble.capacity() {
            of_trouble.retain(|callback| callback.strong_count() > 0);
        }
        of_trouble.push(Arc::downgrade(callback));
        drop(listeners);
        // Checked after it was added: an earlier failure is found here, and a later one calls it.
        let error = self.store_hold.trouble().filter(|_| self.state() == LeaseState::Suspect)?;
        let begins = self.is_renewed_at(self.now()) && callback.begin();
        begins.then(|| RenewalFailure::new(error, self.remaining()))
    }

    /// The callbacks to call when renewal begins to fail.
    pub(super) fn told_of_trouble(&self) -> Vec<Arc<OnTrouble>> {
        let listeners = self.listeners.lock();
        let living =
            listeners.iter().flat_map(|listeners| &listeners.on_trouble).filter_map(Weak::upgrade);
        living.filter(|callback| callback.begin()).collect()
    }

    /// A renewal has succeeded again.
    pub(super) fn end_trouble(&self) {
        let listeners = self.listeners.lock();
        let living =
            listeners.iter().flat_map(|listeners| &listeners.on_trouble).filter_map(Weak::upgrade);
        for callback in living {
            callback.end();
        }
    }
}

/// Called by a token that is cancelled: each thread that waits for a loss checks whether the token
/// is its own.
impl Interrupt for Tenure {
    fn interrupt(&self) {
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::store_hold::tests::{SPAN, tenure};
    use crate::signal::clock::{Clock, FakeClock};

    #[test]
    fn wait_lost_ends_on_loss_release_and_timeout() {
        let clock = Arc::new(FakeClock::default());
        let lost = tenure("a", &clock, SPAN);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| lost.wait_lost(Duration::from_secs(60), None));
            lost.store_hold.lose();
            assert_eq!(waiter.join().unwrap(), LossWait::Lost);
        });
        let released = tenure("b", &clock, SPAN);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| released.wait_lost(Duration::from_secs(60), None));
            released.release(clock.now());
            released.wake();
            assert_eq!(waiter.join().unwrap(), LossWait::Released);
        });
        let held = tenure("c", &clock, SPAN);
        assert_eq!(held.wait_lost(Duration::from_millis(1), None), LossWait::StillHeld);
        let token = CancelToken::new();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| held.wait_lost(Duration::from_secs(60), Some(&token)));
            token.cancel();
            assert_eq!(waiter.join().unwrap(), LossWait::StillHeld);
        });
        let both = lost.wait_lost(Duration::ZERO, Some(&token));
        assert_eq!(both, LossWait::Lost, "a loss counts before the cancel");
    }

    #[test]
    fn an_event_is_notified_until_it_is_removed() {
        let held = tenure("a", &Arc::new(FakeClock::default()), SPAN);
        let [removed, kept] = [(); 2].map(|()| Arc::<Event>::default());
        for event in [&removed, &kept] {
            held.add_event(event);
        }
        held.remove_event(&removed);
        held.wake();
        assert!(kept.is_notified() && !removed.is_notified());
    }
}
