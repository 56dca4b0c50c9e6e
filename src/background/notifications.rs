//! Release messages for waiters: one subscriber connection and thread per client.
//!
//! A message is a hint to try again, never a grant, and never the only hope: every wait has a timer of its own. The
//! thread reads; whoever wants a channel asks for it directly, on the same connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::base::backoff::Backoff;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::event::Event;
use crate::store::{LockStore, Received, SubscriptionSender, Topic};

/// A channel is kept this long after its last waiter, so that contention does not cost a SUBSCRIBE and an UNSUBSCRIBE
/// for every hand-over.
const LINGER: Duration = Duration::from_secs(1);

/// How soon a connection that is half open (its packets vanish) is given up: what is lost on it is found by the timers of
/// those who wait, and those run for up to a lease.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// How long a read waits. Between reads the thread looks whether it should stop or let a channel go.
    tick: Duration,
    /// A connection that is silent for this long is asked for a sign of life.
    silence: Duration,
    /// How long the sign may take.
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

/// Every request for a topic is written under this mutex, so that the store gets them in the order in which the map
/// changed. They are few bytes into a socket buffer, and a write has a timeout.
struct State {
    topics: HashMap<Topic, Watch>,
    /// The asking half of the present connection.
    sender: Option<Box<dyn SubscriptionSender>>,
    /// When the present connection was asked for a sign of life that has not come yet.
    asked: Option<Instant>,
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
    /// From the present connection on nothing that happens is missed.
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
        let state = State { topics: HashMap::new(), sender: None, asked: None, phase: Phase::NotStarted };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let inner = Inner { client_name, store, patience: Patience::of(lease), state, changed };
        Self { inner: Arc::new(inner), thread: Mutex::new(None) }
    }

    /// Notifies `event` at every message about the topic, and once when the store has confirmed the subscription, until
    /// the answer is dropped. Does not wait for the store.
    pub(crate) fn listen(&self, topic: Topic, event: &Arc<Event>) -> Listening<'_> {
        let mut state = self.inner.state.lock();
        let is_new = !state.topics.contains_key(&topic);
        let watch = state.topics.entry(topic.clone()).or_default();
        if watch.waiters == 0 {
            // The last waiter's, kept while the subscription lingers.
            watch.events.clear();
        }
        if !watch.events.iter().any(|known| Arc::ptr_eq(known, event)) {
            watch.events.push(event.clone());
        }
        watch.waiters += 1;
        watch.idle_since = None;
        let started = self.start(&mut state);
        // Without a connection there is nobody to ask: a new one asks for everything in the map.
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
        // Not under the mutex: a logger that blocks would keep every waiter from its message.
        if let Err(e) = started {
            log::warn!("no thread for release messages, waiting by timer: {e}");
        }
        if let Err(e) = watched {
            log::debug!("the subscriber connection ended: {}", e.chain());
        }
        Listening { notifications: self, topic, event: event.clone() }
    }

    /// Whether messages about the topic reach us now.
    pub(crate) fn is_subscribed(&self, topic: &Topic) -> bool {
        let state = self.inner.state.lock();
        // One that is late with a sign of life may be half open.
        if state.asked.is_some_and(|asked| asked.elapsed() > self.inner.patience.answer / 2) {
            return false;
        }
        match state.topics.get(topic) {
            Some(watch) => watch.confirmed,
            None => state.sender.as_ref().is_some_and(|sender| sender.covers(topic)),
        }
    }

    /// A waiter's time was up without a message, and somebody has the lock again: the message of a release may have been
    /// lost. Asks the connection for a sign of life, and does not wait for it.
    pub(crate) fn mistrust(&self) {
        let mut state = self.inner.state.lock();
        if state.asked.is_none() && state.ping().is_err() {
            state.give_up();
        }
    }

    /// Wakes the waiter for a topic, if it is one of this client: its message is on the way.
    pub(crate) fn notify(&self, topic: &Topic) {
        self.inner.events_of(topic).iter().for_each(|event| event.notify());
    }

    /// Wakes everybody: the client is closed.
    pub(crate) fn wake_all(&self) {
        self.inner.state.lock().topics.values().for_each(Watch::notify);
    }

    /// Asks the thread to end and waits for it until `deadline`; false: it is still in its read.
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
        let name = format!("lh-hear-{}", inner.client_name);
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
            watch.events.retain(|event| !Arc::ptr_eq(event, &self.event));
            return;
        }
        if self.topic.turn_of.is_none() {
            // The event stays for the next waiter of its queue.
            watch.idle_since = Some(Instant::now());
            return;
        }
        // Nobody else ever waits for this holder's turn.
        topics.remove(&self.topic);
        if sender.as_mut().is_some_and(|sender| sender.unwatch(&self.topic).is_err()) {
            state.give_up();
        }
    }
}

/// Whatever ends the thread, nobody may wait for a confirmation that never comes.
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
        self.asked = Some(Instant::now());
        sender.ping()
    }

    /// Ends the present connection; the thread makes another.
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

    /// The connection ended: those who sleep for a whole lease must know that nobody hears for them now.
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
            (state.sender, state.asked) = (None, None);
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
        let mut last_sign = Instant::now();
        loop {
            let received = subscriber.receive();
            {
                let mut state = self.state.lock();
                if state.phase != Phase::Running {
                    return Ok(());
                }
                if !matches!(received, Ok(Received::Timeout)) {
                    state.asked = None;
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
                Received::Alive => {}
                Received::Timeout => {
                    self.maintain(last_sign.elapsed() > self.patience.silence)?;
                    continue;
                }
            }
            last_sign = Instant::now();
            self.maintain(false)?;
        }
    }

    /// Messages before this were received by nobody, so the waiters must look again: notified first and confirmed second, or
    /// a waiter that has just been told would find the notification of its own subscription.
    fn confirm(&self, topics: &[Topic]) {
        let mut state = self.state.lock();
        for topic in topics {
            if let Some(watch) = state.topics.get_mut(topic) {
                watch.notify();
                watch.confirmed = true;
            }
        }
    }

    /// Lets go of topics that nobody has waited for since a while, and asks a silent store for a sign of life.
    fn maintain(&self, is_silent: bool) -> Result<()> {
        let mut state = self.state.lock();
        if state.asked.is_some_and(|asked| asked.elapsed() > self.patience.answer) {
            return Err(Error::new(ErrorKind::Unreachable, "the subscriber connection gives no sign of life"));
        }
        if is_silent && state.asked.is_none() {
            state.ping()?;
        }
        let State { topics, sender: Some(sender), .. } = &mut *state else { return Ok(()) };
        // One that is not confirmed yet stays: its confirmation must not be taken for that of a successor.
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
