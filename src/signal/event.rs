//! A latched wake-up for the one waiter of a name.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::os::{self, Condvar, Mutex};

/// Ends a wait of a thread, such as one that waits for input.
pub(crate) trait Interrupt: Send + Sync {
    fn interrupt(&self);
}

/// What a waiter waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Awaited {
    Notification,
    /// A total of this many received messages.
    Messages(u64),
    /// No notification: it lets others go first.
    Nothing,
}

/// Notified by release messages and by local releases. Its waits are also [ended](Self::end_wait),
/// whatever they are for, when the client is closed or stops waiting, or when the waiter's call is
/// cancelled.
///
/// Latched: a notification between the reply "busy" and the wait is not lost. The waiter clears the
/// latch *before* it sends an attempt, because a message that arrives during the attempt may
/// announce a later release.
#[derive(Default)]
pub(crate) struct Event {
    state: Mutex<EventState>,
    notified: Condvar,
}

#[derive(Default)]
struct EventState {
    latched: bool,
    /// How often the latch was cleared.
    round: u64,
    /// The waiter must check whether its wait is over.
    ended: bool,
    /// Set while the waiter does not sleep on the condition variable but waits for input.
    interrupt: Option<Arc<dyn Interrupt>>,
    /// The lock that a release has given to this holder, with this fencing token, 0 for none.
    grant: Option<(Arc<str>, u64)>,
    /// Messages received so far, including those that releases of this client caused.
    messages: u64,
    /// When the store last answered a waiter of this queue.
    answered: Option<Instant>,
}

impl Event {
    pub(crate) fn notify(&self) {
        self.wake(|state| state.latched = true);
    }

    /// [`notify`](Self::notify) of a release that has given the lock to the waiter, if that still
    /// asks as `holder`.
    pub(crate) fn grant(&self, holder: Arc<str>, token: u64) {
        self.wake(|state| (state.latched, state.grant) = (true, Some((holder, token))));
    }

    /// The fencing token, 0 for none, of the lock that was given to this holder.
    pub(crate) fn take_grant(&self, holder: &str) -> Option<u64> {
        let mut state = self.state.lock();
        if state.grant.as_ref().is_some_and(|(granted, _)| **granted != *holder) {
            return None;
        }
        state.grant.take().map(|(_, token)| token)
    }

    /// Ends the current wait, and those that begin before the waiter [clears](Self::clear) the
    /// latch. Call it only after setting the state from which the waiter learns why its wait is
    /// over.
    pub(crate) fn end_wait(&self) {
        self.wake(|state| (state.latched, state.ended) = (true, true));
    }

    fn wake(&self, set: impl FnOnce(&mut EventState)) {
        let mut state = self.state.lock();
        set(&mut state);
        let interrupt = state.interrupt.clone();
        drop(state);
        self.notified.notify_all();
        if let Some(interrupt) = interrupt {
            interrupt.interrupt();
        }
    }

    /// Called by the thread that reads the messages: the waiter of this event sleeps, or is that
    /// thread.
    pub(crate) fn notify_by_message(&self) {
        self.take_message(|_| ());
    }

    /// [`grant`](Self::grant), called as [`notify_by_message`](Self::notify_by_message) is.
    pub(crate) fn grant_by_message(&self, holder: Arc<str>, token: u64) {
        self.take_message(|state| state.grant = Some((holder, token)));
    }

    fn take_message(&self, set: impl FnOnce(&mut EventState)) {
        let mut state = self.state.lock();
        set(&mut state);
        state.latched = true;
        state.messages += 1;
        drop(state);
        self.notified.notify_all();
    }

    /// Clears the latch and begins a new round, whose number it returns. Any notification from now
    /// on belongs to this round.
    pub(crate) fn clear(&self) -> u64 {
        let mut state = self.state.lock();
        state.latched = false;
        state.ended = false;
        state.round += 1;
        state.round
    }

    pub(crate) fn round(&self) -> u64 {
        self.state.lock().round
    }

    /// Until the returned value is dropped, the waiter does not sleep in
    /// [`wait_for`](Self::wait_for) but waits for input, and is woken by `interrupt`.
    pub(crate) fn interrupt_by(&self, interrupt: Arc<dyn Interrupt>) -> Interruptible<'_> {
        self.state.lock().interrupt = Some(interrupt);
        Interruptible(self)
    }

    /// Whether what the waiter awaits has come.
    pub(crate) fn has_come(&self, awaited: Awaited) -> bool {
        self.state.lock().has_come(awaited)
    }

    /// Waits for a notification, at most for `timeout`; false if there was none. Does not clear the
    /// latch.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        self.wait_for(Awaited::Notification, timeout)
    }

    /// [`wait`](Self::wait) for what the waiter awaits.
    pub(crate) fn wait_for(&self, awaited: Awaited, timeout: Duration) -> bool {
        let give_up = os::now() + timeout;
        let mut state = self.state.lock();
        while !state.has_come(awaited) {
            if self.notified.wait_until(&mut state, give_up).timed_out() {
                return state.has_come(awaited);
            }
        }
        true
    }

    pub(crate) fn is_notified(&self) -> bool {
        self.state.lock().latched
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().ended
    }

    pub(crate) fn messages(&self) -> u64 {
        self.state.lock().messages
    }

    /// Records that the store has answered an attempt.
    pub(crate) fn answered(&self) {
        self.state.lock().answered = Some(os::now());
    }

    /// Whether the store has answered an attempt within `age`.
    pub(crate) fn is_answered_within(&self, age: Duration) -> bool {
        self.state.lock().answered.is_some_and(|at| os::since(at) < age)
    }
}

/// See [`Event::interrupt_by`].
pub(crate) struct Interruptible<'e>(&'e Event);

impl Drop for Interruptible<'_> {
    fn drop(&mut self) {
        self.0.state.lock().interrupt = None;
    }
}

impl EventState {
    fn has_come(&self, awaited: Awaited) -> bool {
        let has_come = match awaited {
            Awaited::Notification => self.latched,
            Awaited::Messages(count) => self.messages >= count,
            Awaited::Nothing => false,
        };
        has_come || self.ended
    }
}

/// For a token that is cancelled.
impl Interrupt for Event {
    fn interrupt(&self) {
        self.end_wait();
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_notification_ends_a_wait_for_input() {
        struct Counted(AtomicU32);
        impl Interrupt for Counted {
            fn interrupt(&self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let event = Event::default();
        let counted = Arc::new(Counted(AtomicU32::new(0)));
        let interrupted = event.interrupt_by(counted.clone());
        event.notify_by_message();
        assert!(event.has_come(Awaited::Notification) && event.has_come(Awaited::Messages(1)));
        assert_eq!(counted.0.load(Ordering::Relaxed), 0, "it has read the message itself");
        event.notify();
        assert_eq!(counted.0.load(Ordering::Relaxed), 1);
        drop(interrupted);
        event.notify();
        assert_eq!(
            counted.0.load(Ordering::Relaxed),
            1,
            "it sleeps on the condition variable again"
        );
        assert!(event.wait(Duration::ZERO));
    }

    #[test]
    fn a_wait_that_is_ended_is_over_whatever_it_is_for() {
        let event = Event::default();
        event.end_wait();
        for awaited in [Awaited::Notification, Awaited::Messages(1), Awaited::Nothing] {
            assert!(event.wait_for(awaited, Duration::from_secs(60)));
        }
        event.clear();
        assert!(!event.is_ended() && !event.wait_for(Awaited::Nothing, Duration::from_millis(1)));
    }
}
