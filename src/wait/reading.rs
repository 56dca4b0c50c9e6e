//! Who reads the subscription of a client: one thread at a time has the *role* of the reader, and
//! delivers the messages for all.
//!
//! Usually that is a thread that waits for one of the messages: it reads its own message and need
//! not be woken by another thread. The client's own thread takes the role only while a sleeper
//! needs it, and gives it back when none is left.
//!
//! **No wake-up is lost.** A waiter that finds the role taken enters itself among the sleepers
//! before it sleeps, under the mutex under which the role is given back. So whoever gives it back
//! sees the sleeper and wakes the client's own thread, which checks for sleepers under the same
//! mutex before it goes to sleep itself. A message that comes while nobody has the role stays in
//! the socket.
//!
//! **Only the thread that has the role ends the connection.** It reports an error by giving up the
//! role for good; the client's own thread then connects again. So nobody reads an old connection
//! beside the new one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Error;
use crate::signal::event::{Awaited, Event, Interrupt};
use crate::store::Subscriber;

/// The receiving half of the present connection, and who waits for its messages.
#[derive(Default)]
pub(super) struct Reading {
    /// `Some` while nobody has the role.
    subscriber: Option<Box<dyn Subscriber>>,
    /// Interrupts the wait of the thread that has the role.
    interrupt: Option<Arc<dyn Interrupt>>,
    /// Why the present connection is no longer usable.
    trouble: Option<Error>,
    /// Waiters that sleep while another thread has the role, in order of arrival.
    sleepers: BTreeMap<u64, (Arc<Event>, Awaited)>,
    next: u64,
}

impl Reading {
    /// A new connection, for which any thread may take the role.
    pub(super) fn begin(&mut self, subscriber: Box<dyn Subscriber>, interrupt: Arc<dyn Interrupt>) {
        self.subscriber = Some(subscriber);
        self.interrupt = Some(interrupt);
        self.trouble = None;
    }

    /// The present connection has ended. Returns its receiving half, if nobody has the role.
    pub(super) fn end(&mut self) -> Option<Box<dyn Subscriber>> {
        self.interrupt = None;
        self.trouble = None;
        self.subscriber.take()
    }

    /// `None`: another thread has the role, or there is no connection.
    pub(super) fn take_role(&mut self) -> Option<Box<dyn Subscriber>> {
        if self.trouble.is_some() { None } else { self.subscriber.take() }
    }

    /// Whether somebody could take the role.
    pub(super) fn is_free(&self) -> bool {
        self.subscriber.is_some() && self.trouble.is_none()
    }

    /// True if the client's own thread has to take the role now.
    pub(super) fn give_back(&mut self, subscriber: Box<dyn Subscriber>) -> bool {
        self.subscriber = Some(subscriber);
        self.is_needed()
    }

    /// In place of [`give_back`](Self::give_back), after an error.
    pub(super) fn fail(&mut self, trouble: Error) {
        self.trouble = Some(trouble);
    }

    pub(super) fn take_trouble(&mut self) -> Option<Error> {
        self.trouble.take()
    }

    pub(super) fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        self.interrupt.clone()
    }

    /// Whether this interrupt belongs to the present connection. After a panic of the client's own
    /// thread, a thread may still have the role for the connection before.
    pub(super) fn is_present(&self, interrupt: &Arc<dyn Interrupt>) -> bool {
        self.interrupt
            .as_ref()
            .is_some_and(|present| std::ptr::addr_eq(Arc::as_ptr(present), Arc::as_ptr(interrupt)))
    }

    /// Whether a sleeper has not been notified yet. One that was notified does not count: it is
    /// waking up, and may take the role itself when it waits again.
    pub(super) fn is_needed(&self) -> bool {
        self.sleepers.values().any(|(event, awaited)| !event.has_come(*awaited))
    }

    /// The event's waiter sleeps from now on, until [`woken`](Self::woken).
    pub(super) fn sleeps(&mut self, event: &Arc<Event>, awaited: Awaited) -> u64 {
        self.next += 1;
        self.sleepers.insert(self.next, (event.clone(), awaited));
        self.next
    }

    pub(super) fn woken(&mut self, sleeper: u64) {
        self.sleepers.remove(&sleeper);
    }
}

/// How soon a half-open connection (its packets vanish) is given up. Until then only the waiters'
/// timers, which run for up to a lease, reveal that a message was lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// How long a read waits. Between reads the reader checks whether to end a subscription, and
    /// the client's thread whether to stop.
    pub(super) tick: Duration,
    /// A connection that is silent for this long is pinged.
    pub(super) silence: Duration,
    /// How long the reply to a ping may take.
    pub(super) answer: Duration,
}

impl Patience {
    pub(super) fn of(lease: Duration) -> Self {
        let ms = Duration::from_millis;
        Self {
            tick: (lease / 20).clamp(ms(25), ms(500)),
            silence: (lease / 3).clamp(ms(100), ms(10_000)),
            answer: (lease / 4).clamp(ms(200), ms(3_000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_has_to_read_while_one_sleeps_that_was_not_notified() {
        let mut reading = Reading::default();
        let events: [Arc<Event>; 3] = std::array::from_fn(|_| Arc::default());
        assert!(!reading.is_needed());
        let first = reading.sleeps(&events[0], Awaited::Notification);
        let second = reading.sleeps(&events[1], Awaited::Messages(1));
        events[1].notify();
        events[0].notify();
        assert!(reading.is_needed(), "the second awaits a message");
        events[1].notify_by_message();
        assert!(!reading.is_needed(), "both are waking up");
        events[0].clear();
        assert!(reading.is_needed());
        reading.woken(first);
        reading.woken(second);
        assert!(!reading.is_needed());
    }

    #[test]
    fn a_connection_is_watched_as_closely_as_leases_are_short() {
        let ms = Duration::from_millis;
        for (lease, [tick, silence, answer]) in [
            (100, [25, 100, 200]),
            (1_200, [60, 400, 300]),
            (30_000, [500, 10_000, 3_000]),
            (600_000, [500, 10_000, 3_000]),
        ] {
            let patience = Patience::of(ms(lease));
            let all = [patience.tick, patience.silence, patience.answer];
            assert_eq!(all, [ms(tick), ms(silence), ms(answer)], "{lease}");
        }
    }
}
