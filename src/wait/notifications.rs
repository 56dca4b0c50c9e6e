//! Release messages for waiters: one subscriber connection and thread per client.
//!
//! A message is a hint to try again, or the [grant](crate::wait::grants) of a fair lock, and no
//! wait relies on it: each has a timer of its own. Waiters send their subscriptions directly, on
//! the same connection. The thread connects; who reads is decided in
//! [`reading`](crate::wait::reading).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::error::{ErrorKind, Result};
use crate::base::log;
use crate::os::{self, Condvar, Mutex};
use crate::signal::event::{Awaited, Event};
use crate::signal::worker::{Phase, Worker};
use crate::store::{LockStore, Topic};
use crate::wait::reading::Patience;
use crate::wait::subscriber::{Role, SubscriberState, SubscriberThread};

pub(crate) struct Notifications {
    inner: Arc<SubscriberThread>,
    worker: Worker,
}

/// A waiter's interest in a topic.
pub(crate) struct Listening<'w> {
    notifications: &'w Notifications,
    topic: Topic,
    event: Arc<Event>,
}

impl Notifications {
    /// `lease`: the longest time that a waiter sleeps.
    pub(crate) fn new(client_name: String, store: Arc<dyn LockStore>, lease: Duration) -> Self {
        let state = Mutex::default();
        let changed = Condvar::new();
        let inner =
            SubscriberThread { client_name, store, patience: Patience::of(lease), state, changed };
        Self { inner: Arc::new(inner), worker: Worker::default() }
    }

    /// Until the returned value is dropped, notifies `event` at every message on the topic, and
    /// once when the store has confirmed the subscription. Does not wait for the store.
    pub(crate) fn listen(&self, topic: Topic, event: &Arc<Event>) -> Listening<'_> {
        let mut state = self.inner.state.lock();
        let is_new = !state.topics.contains_key(&topic);
        let watch = state.topics.entry(topic.clone()).or_default();
        if watch.waiters == 0 {
            // The previous waiter's event, kept while the subscription lingered.
            watch.events.clear();
        }
        if !watch.events.iter().any(|known| Arc::ptr_eq(known, event)) {
            watch.events.push(event.clone());
        }
        watch.waiters += 1;
        watch.idle_since = None;
        let started = self.start(&mut state);
        // Without a connection nothing can be sent: a new connection subscribes to everything in
        // the map.
        let watched = match &mut state.sender {
            Some(sender) if is_new => sender.watch(&[&topic]).map(|confirmed| {
                if confirmed && let Some(watch) = state.topics.get_mut(&topic) {
                    watch.confirmed = true;
                }
            }),
            _ => Ok(()),
        };
        if watched.is_err() {
            state.give_up();
        }
        drop(state);
        // Logged after the mutex is unlocked: a logger that blocks would keep every waiter from its
        // message.
        if let Err(e) = started
            && e.kind() != ErrorKind::Closed
        {
            log::warn!("no thread for release messages, waiting by timer: {}", e.chain());
        }
        if let Err(e) = watched {
            log::debug!("the subscriber connection ended: {}", e.chain());
        }
        let listening = Listening { notifications: self, topic, event: event.clone() };
        // Messages about earlier releases must not wake the new waiter.
        self.catch_up();
        listening
    }

    /// Whether messages about the topic reach this client now.
    pub(crate) fn is_subscribed(&self, topic: &Topic) -> bool {
        let state = self.inner.state.lock();
        // A connection that is late with its reply to a ping may be half open.
        if state.pinged.is_some_and(|pinged| os::since(pinged) > self.inner.patience.answer / 2) {
            return false;
        }
        match state.topics.get(topic) {
            Some(watch) => watch.confirmed,
            None => state.sender.as_ref().is_some_and(|sender| sender.covers(topic)),
        }
    }

    /// A waiter's timer ended without a message, and the lock is taken again: the message of a
    /// release may have been lost. Pings the connection, and does not wait for the reply.
    pub(crate) fn mistrust(&self) {
        let mut state = self.inner.state.lock();
        if state.pinged.is_none() && state.ping().is_err() {
            state.give_up();
        }
    }

    /// Processes the messages that came while nobody was reading. Does not wait for more.
    pub(crate) fn catch_up(&self) {
        let Some(mut role) = self.inner.take_role() else { return };
        if let Err(e) = role.catch_up() {
            role.fail(e);
        }
    }

    /// Wakes the waiter for a topic, if this client has one, before its message arrives.
    pub(crate) fn notify(&self, topic: &Topic) {
        for event in &self.inner.events_of(topic) {
            event.notify();
        }
    }

    /// The same for the waiter for this turn, to whom a release of this client has given the lock.
    pub(crate) fn grant(&self, topic: &Topic, token: u64) {
        if let Some(holder) = &topic.turn_of {
            for event in &self.inner.events_of(topic) {
                event.grant(holder.clone(), token);
            }
        }
    }

    /// Asks the thread to end and waits for it until `deadline`. False: it is still reading.
    pub(crate) fn stop(&self, deadline: Instant) -> bool {
        let mut state = self.inner.state.lock();
        // Ends the thread's read, whatever the store does.
        state.give_up();
        self.worker.stop(state, |state| &mut state.phase, &self.inner.changed, deadline)
    }

    fn start(&self, state: &mut SubscriberState) -> Result<()> {
        let inner = self.inner.clone();
        let phase = &mut state.phase;
        self.worker
            .start(phase, format_args!("lh-notify-{}", self.inner.client_name), move || inner.run())
    }
}

impl Listening<'_> {
    /// Waits until this waiter's event has what it awaits, at most for `timeout`; false if it did
    /// not come. Reads the messages of all waiters meanwhile, unless another thread does.
    pub(crate) fn wait_for(&self, awaited: Awaited, timeout: Duration) -> bool {
        let inner = &self.notifications.inner;
        let give_up = os::now() + timeout;
        if let Some(has_come) =
            inner.take_role().and_then(|role| self.read_until(role, awaited, give_up))
        {
            return has_come;
        }
        let sleeper = {
            let mut state = inner.state.lock();
            let sleeper = state.reading.sleeps(&self.event, awaited);
            if state.reading.is_free() {
                // The role was given back in between.
                inner.changed.notify_all();
            }
            sleeper
        };
        let has_come = self.event.wait_for(awaited, give_up.saturating_duration_since(os::now()));
        inner.state.lock().reading.woken(sleeper);
        has_come
    }

    /// `None`: the connection has ended.
    fn read_until(&self, mut role: Role<'_>, awaited: Awaited, give_up: Instant) -> Option<bool> {
        let tick = role.inner.patience.tick;
        // The interrupt is set before the event is checked: a notification before this is seen, and
        // a later one ends the read.
        let _interrupted = self.event.interrupt_by(role.interrupt.clone());
        loop {
            let left = give_up.saturating_duration_since(os::now());
            let has_come = self.event.has_come(awaited);
            if has_come || left.is_zero() {
                return Some(has_come);
            }
            let read = role
                .read(left.min(tick))
                .and_then(|_| if self.event.has_come(awaited) { Ok(()) } else { role.maintain() });
            if let Err(e) = read {
                role.fail(e);
                return None;
            }
        }
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        let mut state = self.notifications.inner.state.lock();
        let SubscriberState { topics, sender, phase, .. } = &mut *state;
        let Some(watch) = topics.get_mut(&self.topic) else { return };
        watch.waiters -= 1;
        if watch.waiters > 0 {
            // The last event stays: another waiter may have been given the same one.
            if watch.events.len() > 1 {
                watch.events.retain(|event| !Arc::ptr_eq(event, &self.event));
            }
            return;
        }
        if self.topic.turn_of.is_none() && *phase == Phase::Running {
            // The event stays for the next waiter of its local queue. The thread ends the
            // subscription, if there is one.
            watch.idle_since = Some(os::now());
            return;
        }
        // No other waiter will ever wait for this holder's turn, or there is no thread.
        topics.remove(&self.topic);
        if sender.as_mut().is_some_and(|sender| sender.unwatch(&self.topic).is_err()) {
            state.give_up();
        }
    }
}
