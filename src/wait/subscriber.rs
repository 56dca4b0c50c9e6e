//! The subscriber of a client: the thread that connects, the topics, and the role of the reader
//! (see [`reading`](crate::wait::reading)).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;
use crate::base::random::Backoff;
use crate::os::{self, Condvar, HashMap, Mutex, MutexGuard};
use crate::signal::event::{Event, Interrupt};
use crate::signal::worker::Phase;
use crate::store::{LockStore, Received, Subscriber, SubscriptionSender, Topic};
use crate::wait::reading::{Patience, Reading};
use crate::wait::topic_watch::TopicWatch;

/// A topic is kept this long after its last waiter, so that under contention not every hand-over
/// costs a subscribe and an unsubscribe.
const LINGER: Duration = Duration::from_secs(1);

/// A thread that does not wait for messages reads at most this many: others may publish faster than
/// it reads.
const MOST_AT_ONCE: u32 = 4096;

pub(super) struct SubscriberThread {
    pub(super) client_name: String,
    pub(super) store: Arc<dyn LockStore>,
    pub(super) patience: Patience,
    pub(super) state: Mutex<SubscriberState>,
    pub(super) changed: Condvar,
}

/// Every request for a topic is written under this mutex, so that the store gets them in the order
/// in which the map changed. They are a few bytes into a socket buffer, and a write has a timeout.
pub(super) struct SubscriberState {
    pub(super) topics: HashMap<Topic, TopicWatch>,
    /// The sending half of the present connection.
    pub(super) sender: Option<Box<dyn SubscriptionSender>>,
    /// When the present connection was pinged, if there has been no reply since.
    pub(super) pinged: Option<Instant>,
    /// When anything was last received on the present connection.
    last_received: Instant,
    pub(super) reading: Reading,
    /// Whether the present connection has confirmed a subscription.
    is_proven: bool,
    pub(super) phase: Phase,
}

/// However the thread ends, no waiter may rely on a subscription that is no longer read.
struct SubscriberExit<'a>(&'a SubscriberThread);

impl Drop for SubscriberExit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.phase = Phase::Ended;
        for watch in state.topics.values_mut() {
            watch.lose();
        }
        // Both halves: the sending half reports which topics the connection covers.
        let connection = (state.reading.end(), state.sender.take());
        self.0.changed.notify_all();
        drop(state);
        drop(connection);
    }
}

/// The role of the reader. Dropping this value gives it back.
pub(super) struct Role<'n> {
    pub(super) inner: &'n SubscriberThread,
    /// `None` after an error.
    subscriber: Option<Box<dyn Subscriber>>,
    pub(super) interrupt: Arc<dyn Interrupt>,
    /// A read has begun and has not ended.
    reads: bool,
}

impl Role<'_> {
    /// Reads once, for at most `timeout`, and delivers the messages. False: nothing came.
    ///
    /// # Errors
    /// The connection has ended: call [`fail`](Self::fail).
    pub(super) fn read(&mut self, timeout: Duration) -> Result<bool> {
        let Some(subscriber) = &mut self.subscriber else { return Ok(false) };
        self.reads = true;
        let received = subscriber.receive_within(timeout)?;
        let has_come = self.inner.take_in(received);
        self.reads = false;
        Ok(has_come)
    }

    /// Delivers the messages that have already arrived.
    ///
    /// # Errors
    /// The same as [`read`](Self::read).
    pub(super) fn catch_up(&mut self) -> Result<()> {
        for _ in 0..MOST_AT_ONCE {
            if !self.read(Duration::ZERO)? {
                break;
            }
        }
        Ok(())
    }

    /// Maintains the connection.
    ///
    /// # Errors
    /// The same as [`read`](Self::read).
    pub(super) fn maintain(&self) -> Result<()> {
        self.inner.maintain()
    }

    /// The connection has ended, and the thread makes a new one.
    pub(super) fn fail(mut self, error: Error) {
        self.end(error);
    }

    fn end(&mut self, error: Error) {
        // Dropped before the thread connects again.
        self.subscriber = None;
        let mut state = self.inner.state.lock();
        if state.reading.is_present(&self.interrupt) {
            state.reading.fail(error);
            self.inner.changed.notify_all();
        }
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        if self.reads && self.subscriber.is_some() {
            // A panic, perhaps in the middle of a message.
            return self.end(Error::new(
                ErrorKind::Protocol,
                "a thread panicked while it read release messages",
            ));
        }
        let Some(subscriber) = self.subscriber.take() else { return };
        let mut state = self.inner.state.lock();
        let goes_on = state.phase == Phase::Running && state.reading.is_present(&self.interrupt);
        if goes_on && state.reading.give_back(subscriber) {
            self.inner.changed.notify_all();
        }
    }
}

impl Default for SubscriberState {
    fn default() -> Self {
        Self {
            topics: HashMap::default(),
            sender: None,
            pinged: None,
            last_received: os::now(),
            reading: Reading::default(),
            is_proven: false,
            phase: Phase::NotStarted,
        }
    }
}

impl SubscriberState {
    pub(super) fn ping(&mut self) -> Result<()> {
        let Some(sender) = &mut self.sender else { return Ok(()) };
        self.pinged = Some(os::now());
        sender.ping()
    }

    /// Ends the present connection; the thread makes a new one.
    pub(super) fn give_up(&mut self) {
        if let Some(sender) = self.sender.take() {
            sender.close();
        }
    }
}

impl SubscriberThread {
    pub(super) fn events_of(&self, topic: &Topic) -> Vec<Arc<Event>> {
        self.state.lock().topics.get(topic).map(|watch| watch.events.clone()).unwrap_or_default()
    }

    pub(super) fn run(&self) {
        let _exit_guard = SubscriberExit(self);
        let mut pause = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));
        let mut logged = false;
        while self.state.lock().phase == Phase::Running {
            // A panic ends this connection, and not the thread: nobody would ever start it again,
            // and every hand-over between clients would be a poll.
            let ended =
                catch_unwind(AssertUnwindSafe(|| self.listen_once())).unwrap_or_else(|_| {
                    Err(Error::new(
                        ErrorKind::Protocol,
                        "the thread that receives release messages panicked",
                    ))
                });
            match ended {
                Ok(()) => return,
                Err(e)
                    if e.kind() == ErrorKind::Denied && !std::mem::replace(&mut logged, true) =>
                {
                    log::warn!(
                        "release messages cannot be received, waiting by timer: {}",
                        e.chain()
                    );
                }
                Err(e) => {
                    log::debug!("the subscriber connection ended, connecting again: {}", e.chain());
                }
            }
            let mut state = self.state.lock();
            state.sender = None;
            state.pinged = None;
            drop(state.reading.end());
            state.topics.retain(|_, watch| watch.waiters > 0);
            for watch in state.topics.values_mut() {
                watch.lose();
            }
            if std::mem::take(&mut state.is_proven) {
                pause.reset();
            }
            if state.phase == Phase::Running {
                self.changed.wait_for(&mut state, pause.next());
            }
        }
    }

    /// Runs one connection. Returns when the thread has to stop.
    fn listen_once(&self) -> Result<()> {
        let (mut subscriber, mut sender) = self.store.subscribe(self.patience.tick)?;
        let mut state = self.state.lock();
        if state.phase != Phase::Running {
            return Ok(());
        }
        let topics: Vec<&Topic> = state.topics.keys().collect();
        if !topics.is_empty() && sender.watch(&topics)? {
            // Their messages are received already: there is no confirmation to wait for.
            for watch in state.topics.values_mut() {
                watch.notify();
                watch.confirmed = true;
            }
        }
        state.sender = Some(sender);
        state.last_received = os::now();
        if let Some(interrupt) = subscriber.interrupt() {
            state.reading.begin(subscriber, interrupt);
            return self.read_in_turns(state);
        }
        drop(state);
        loop {
            let state = self.state.lock();
            if state.phase != Phase::Running {
                break;
            }
            // Nobody could be subscribed for. Of several servers some may still send.
            if state.sender.is_none() {
                return Err(Error::new(ErrorKind::Unreachable, "the subscription was given up"));
            }
            drop(state);
            let received = subscriber.receive()?;
            // Stopping the thread ends this read, too.
            self.take_in(received);
            self.maintain()?;
        }
        Ok(())
    }

    /// Reads while there are sleepers who need it, and maintains the connection now and then while
    /// nobody reads.
    fn read_in_turns<'i>(&'i self, mut state: MutexGuard<'i, SubscriberState>) -> Result<()> {
        while state.phase == Phase::Running {
            if let Some(trouble) = state.reading.take_trouble() {
                return Err(trouble);
            }
            let has_to_read = state.reading.is_free() && state.reading.is_needed();
            if !has_to_read && !self.changed.wait_for(&mut state, self.patience.tick).timed_out() {
                continue;
            }
            drop(state);
            if let Some(mut role) = self.take_role() {
                let read = if has_to_read {
                    role.read(self.patience.tick).map(drop)
                } else {
                    role.catch_up()
                };
                if let Err(e) = read.and_then(|()| role.maintain()) {
                    role.fail(e);
                }
            }
            state = self.state.lock();
        }
        Ok(())
    }

    /// `None`: another thread has the role, or nobody can have it.
    pub(super) fn take_role(&self) -> Option<Role<'_>> {
        let mut state = self.state.lock();
        let interrupt = state.reading.interrupt().filter(|_| state.phase == Phase::Running)?;
        let subscriber = Some(state.reading.take_role()?);
        Some(Role { inner: self, subscriber, interrupt, reads: false })
    }

    /// Delivers what was received to the waiters. False: nothing was received.
    fn take_in(&self, received: Received) -> bool {
        if received == Received::Timeout {
            return false;
        }
        let mut state = self.state.lock();
        state.pinged = None;
        state.last_received = os::now();
        drop(state);
        match received {
            Received::Notified(topics) => {
                for event in topics.iter().flat_map(|topic| self.events_of(topic)) {
                    event.notify_by_message();
                }
            }
            Received::Granted(topic, token) => {
                let holder = topic.turn_of.clone().unwrap_or_default();
                for event in self.events_of(&topic) {
                    event.grant_by_message(holder.clone(), token);
                }
            }
            Received::Watching(topics) => self.confirm(&topics),
            Received::Unwatched(topics) => self.lose(&topics),
            Received::Refused(topics) => self.note_refusal(&topics),
            Received::Alive | Received::Timeout => {}
        }
        true
    }

    /// Messages before this were not received, so the waiters must try again. They are notified
    /// before the topic is marked as confirmed: otherwise a waiter could see the confirmation, send
    /// a request, and then be woken in vain by the notification for that confirmation.
    fn confirm(&self, topics: &[Topic]) {
        let mut state = self.state.lock();
        state.is_proven |= !topics.is_empty();
        for topic in topics {
            if let Some(watch) = state.topics.get_mut(topic) {
                watch.notify();
                watch.confirmed = true;
            }
        }
    }

    fn lose(&self, topics: &[Topic]) {
        let mut state = self.state.lock();
        for topic in topics {
            if let Some(watch) = state.topics.get_mut(topic) {
                watch.lose();
            }
        }
    }

    /// Nobody relies on them: they were not confirmed.
    fn note_refusal(&self, topics: &[Topic]) {
        let mut state = self.state.lock();
        for topic in topics {
            if let Some(watch) = state.topics.get_mut(topic) {
                watch.refused = true;
            }
        }
    }

    /// Ends the subscriptions that have had no waiter for a while, and pings a silent connection.
    fn maintain(&self) -> Result<()> {
        let mut state = self.state.lock();
        let is_silent = os::since(state.last_received) > self.patience.silence;
        if state.pinged.is_some_and(|pinged| os::since(pinged) > self.patience.answer) {
            return Err(Error::new(
                ErrorKind::Unreachable,
                "the subscriber connection does not reply to a ping",
            ));
        }
        if is_silent && state.pinged.is_none() {
            state.ping()?;
        }
        let SubscriberState { topics, sender: Some(sender), .. } = &mut *state else {
            return Ok(());
        };
        // A subscription that has no answer yet stays: its confirmation could be taken for that
        // of a later subscription to the same topic.
        let is_over = |watch: &TopicWatch| {
            (watch.confirmed || watch.refused)
                && watch.idle_since.is_some_and(|since| os::since(since) > LINGER)
        };
        let idle: Vec<Topic> = topics
            .iter()
            .filter(|(_, watch)| is_over(watch))
            .map(|(topic, _)| topic.clone())
            .collect();
        for topic in idle {
            topics.remove(&topic);
            sender.unwatch(&topic)?;
        }
        sender.maintain()
    }
}

#[cfg(test)]
#[path = "subscriber_tests.rs"]
mod tests;
