//! Release messages for waiters: one subscriber connection and thread per client.
//!
//! A message is a hint to try again, never a grant, and no wait relies on it: each has a timer of
//! its own. The thread only reads. Waiters subscribe directly, on the same connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::base::backoff::Backoff;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::event::Event;
use crate::store::{LockStore, Received, SubscriptionSender, Topic};

/// A topic is kept this long after its last waiter, so that under contention not every hand-over
/// costs a subscription and its end.
const LINGER: Duration = Duration::from_secs(1);

/// How soon a half-open connection (its packets vanish) is given up. Until then a lost message is
/// noticed only by the timers of the waiters, which run for up to a lease.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// How long a read waits. Between reads the thread checks whether to stop or to end a
    /// subscription.
    tick: Duration,
    /// A connection that is silent for this long is pinged.
    silence: Duration,
    /// How long the reply to a ping may take.
    answer: Duration,
}

impl Patience {
    fn of(lease: Duration) -> Self {
        let ms = Duration::from_millis;
        Self {
            tick: (lease / 20).clamp(ms(25), ms(500)),
            silence: (lease / 3).clamp(ms(100), ms(10_000)),
            answer: (lease / 4).clamp(ms(200), ms(3_000)),
        }
    }
}

pub(crate) struct Notifications {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    client_name: String,
    store: Arc<dyn LockStore>,
    patience: Patience,
    state: Mutex<State>,
    changed: Condvar,
}

/// Every request for a topic is written under this mutex, so that the store gets them in the order
/// in which the map changed. They are a few bytes into a socket buffer, and a write has a timeout.
struct State {
    topics: HashMap<Topic, Watch>,
    /// The sending half of the present connection.
    sender: Option<Box<dyn SubscriptionSender>>,
    /// When the present connection was pinged, if there has been no reply since.
    pinged: Option<Instant>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    NotStarted,
    Running,
    Stopping,
    Ended,
}

#[derive(Default)]
struct Watch {
    events: Vec<Arc<Event>>,
    waiters: usize,
    /// When the last waiter left.
    idle_since: Option<Instant>,
    /// The store has confirmed the subscription on the present connection: from then on no message
    /// is missed.
    confirmed: bool,
}

/// A waiter's interest in a topic.
pub(crate) struct Listening<'w> {
    notifications: &'w Notifications,
    topic: Topic,
    event: Arc<Event>,
}

impl Notifications {
    /// `lease`: how long a waiter sleeps at most.
    pub(crate) fn new(client_name: String, store: Arc<dyn LockStore>, lease: Duration) -> Self {
        let state = State { topics: HashMap::new(), sender: None, pinged: None, phase: Phase::NotStarted };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let inner = Inner { client_name, store, patience: Patience::of(lease), state, changed };
        Self { inner: Arc::new(inner), thread: Mutex::new(None) }
    }

    /// Notifies `event` at every message about the topic, and once when the store has confirmed the
    /// subscription, until the returned value is dropped. Does not wait for the store.
    pub(crate) fn listen(&self, topic: Topic, event: &Arc<Event>) -> Listening<'_> {
        let mut state = self.inner.state.lock();
        let is_new = !state.topics.contains_key(&topic);
        let watch = state.topics.entry(topic.clone()).or_default();
        if watch.waiters == 0 {
            // The event of the last waiter, which was kept while the subscription lingered.
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
        // Not logged under the mutex: a logger that blocks would keep every waiter from its
        // message.
        if let Err(e) = started {
            log::warn!("no thread for release messages, waiting by timer: {e}");
        }
        if let Err(e) = watched {
            log::debug!("the subscriber connection ended: {}", e.chain());
        }
        Listening { notifications: self, topic, event: event.clone() }
    }

    /// Whether messages about the topic reach this client now.
    pub(crate) fn is_subscribed(&self, topic: &Topic) -> bool {
        let state = self.inner.state.lock();
        // A connection that is late with its reply to a ping may be half open.
        if state.pinged.is_some_and(|pinged| pinged.elapsed() > self.inner.patience.answer / 2) {
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

    /// Wakes the waiter for a topic, if this client has one, before its message arrives.
    pub(crate) fn notify(&self, topic: &Topic) {
        self.inner.events_of(topic).iter().for_each(|event| event.notify());
    }

    /// Wakes all waiters: the client is closed.
    pub(crate) fn wake_all(&self) {
        self.inner.state.lock().topics.values().for_each(Watch::notify);
    }

    /// Asks the thread to end and waits for it until `deadline`. False: it is still in its read.
    pub(crate) fn stop(&self, deadline: Instant) -> bool {
        let mut state = self.inner.state.lock();
        match state.phase {
            Phase::NotStarted | Phase::Ended => {
                state.phase = Phase::Ended;
                return true;
            }
            Phase::Running | Phase::Stopping => state.phase = Phase::Stopping,
        }
        // Ends the thread's read, whatever the store does.
        state.give_up();
        self.inner.changed.notify_all();
        while state.phase != Phase::Ended {
            if self.inner.changed.wait_until(&mut state, deadline).timed_out() && state.phase != Phase::Ended {
                return false;
            }
        }
        drop(state);
        if let Some(handle) = self.thread.lock().take() {
            let _ = handle.join();
        }
        true
    }

    fn start(&self, state: &mut State) -> std::io::Result<()> {
        if state.phase != Phase::NotStarted {
            return Ok(());
        }
        let inner = self.inner.clone();
        let name = format!("lh-notify-{}", inner.client_name);
        let handle = std::thread::Builder::new().name(name).spawn(move || inner.run())?;
        *self.thread.lock() = Some(handle);
        state.phase = Phase::Running;
        Ok(())
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        let mut state = self.notifications.inner.state.lock();
        let State { topics, sender, .. } = &mut *state;
        let Some(watch) = topics.get_mut(&self.topic) else { return };
        watch.waiters -= 1;
        if watch.waiters > 0 {
            // The last event stays: another waiter may have been given the same one.
            if watch.events.len() > 1 {
                watch.events.retain(|event| !Arc::ptr_eq(event, &self.event));
            }
            return;
        }
        if self.topic.turn_of.is_none() {
            // The event stays for the next waiter of its local queue.
            watch.idle_since = Some(Instant::now());
            return;
        }
        // No other waiter ever waits for this holder's turn.
        topics.remove(&self.topic);
        if sender.as_mut().is_some_and(|sender| sender.unwatch(&self.topic).is_err()) {
            state.give_up();
        }
    }
}

/// However the thread ends, no waiter may rely on a subscription that nobody reads any more.
struct ExitGuard<'a>(&'a Inner);

impl Drop for ExitGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.phase = Phase::Ended;
        state.topics.values_mut().for_each(Watch::lose);
        self.0.changed.notify_all();
    }
}

impl State {
    fn ping(&mut self) -> Result<()> {
        let Some(sender) = &mut self.sender else { return Ok(()) };
        self.pinged = Some(Instant::now());
        sender.ping()
    }

    /// Ends the present connection; the thread makes a new one.
    fn give_up(&mut self) {
        if let Some(sender) = self.sender.take() {
            sender.close();
        }
    }
}

impl Watch {
    fn notify(&self) {
        self.events.iter().for_each(|event| event.notify());
    }

    /// The connection ended: waiters that sleep for a whole lease must learn that no messages
    /// arrive for now, and poll.
    fn lose(&mut self) {
        self.confirmed = false;
        self.notify();
    }
}

impl Inner {
    fn events_of(&self, topic: &Topic) -> Vec<Arc<Event>> {
        self.state.lock().topics.get(topic).map(|watch| watch.events.clone()).unwrap_or_default()
    }

    fn run(&self) {
        let _exit_guard = ExitGuard(self);
        let mut pause = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));
        let mut logged = false;
        while self.state.lock().phase == Phase::Running {
            match self.listen_once(&mut pause) {
                Ok(()) => return,
                Err(e) if e.kind() == ErrorKind::Denied && !std::mem::replace(&mut logged, true) => {
                    log::warn!("release messages cannot be received, waiting by timer: {}", e.chain());
                }
                Err(e) => log::debug!("the subscriber connection ended, connecting again: {}", e.chain()),
            }
            let mut state = self.state.lock();
            (state.sender, state.pinged) = (None, None);
            state.topics.retain(|_, watch| watch.waiters > 0);
            state.topics.values_mut().for_each(Watch::lose);
            if state.phase == Phase::Running {
                self.changed.wait_for(&mut state, pause.next());
            }
        }
    }

    /// The life of one connection. Returns when it is time to stop.
    fn listen_once(&self, pause: &mut Backoff) -> Result<()> {
        let (mut subscriber, mut sender) = self.store.subscribe(self.patience.tick)?;
        {
            let mut state = self.state.lock();
            if state.phase != Phase::Running {
                return Ok(());
            }
            let topics: Vec<&Topic> = state.topics.keys().collect();
            if !topics.is_empty() {
                sender.watch(&topics)?;
            }
            state.sender = Some(sender);
        }
        let mut last_received = Instant::now();
        loop {
            let received = subscriber.receive();
            {
                let mut state = self.state.lock();
                if state.phase != Phase::Running {
                    return Ok(());
                }
                if !matches!(received, Ok(Received::Timeout)) {
                    state.pinged = None;
                }
            }
            match received? {
                Received::Notified(topics) => {
                    for event in topics.iter().flat_map(|topic| self.events_of(topic)) {
                        event.notify_by_message();
                    }
                }
                Received::Watching(topics) => {
                    pause.reset();
                    self.confirm(&topics);
                }
                Received::Unwatched(topics) => self.lose(&topics),
                Received::Alive => {}
                Received::Timeout => {
                    self.maintain(last_received.elapsed() > self.patience.silence)?;
                    continue;
                }
            }
            last_received = Instant::now();
            self.maintain(false)?;
        }
    }

    /// Messages before this were not received, so the waiters must try again. Notified first and
    /// confirmed second: otherwise a waiter could see the confirmation, send a request, and then be
    /// woken in vain by the notification that belongs to it.
    fn confirm(&self, topics: &[Topic]) {
        let mut state = self.state.lock();
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

    /// Ends the subscriptions that have had no waiter for a while, and pings a silent connection.
    fn maintain(&self, is_silent: bool) -> Result<()> {
        let mut state = self.state.lock();
        if state.pinged.is_some_and(|pinged| pinged.elapsed() > self.patience.answer) {
            return Err(Error::new(ErrorKind::Unreachable, "the subscriber connection does not reply to a ping"));
        }
        if is_silent && state.pinged.is_none() {
            state.ping()?;
        }
        let State { topics, sender: Some(sender), .. } = &mut *state else { return Ok(()) };
        // One that is not confirmed yet stays: its confirmation could be taken for that of a later
        // subscription to the same topic.
        let is_over = |watch: &Watch| watch.confirmed && watch.idle_since.is_some_and(|since| since.elapsed() > LINGER);
        let idle: Vec<Topic> =
            topics.iter().filter(|(_, watch)| is_over(watch)).map(|(topic, _)| topic.clone()).collect();
        for topic in idle {
            topics.remove(&topic);
            sender.unwatch(&topic)?;
        }
        sender.maintain()
    }
}
