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
use crate::store::{LeaseStore, Received, SubscriptionSender};

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

/// What a waiter listens to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) channel: Arc<str>,
    /// One of the channels that end in a holder of this client: one pattern subscription serves all of them.
    pub(crate) by_pattern: bool,
}

struct Inner {
    client_name: String,
    /// The channels of this client's own waiters.
    pattern: Arc<str>,
    store: Arc<dyn LeaseStore>,
    patience: Patience,
    state: Mutex<State>,
    changed: Condvar,
}

/// Every request for a channel is written under this mutex, so that the server gets them in the order in which the map
/// changed. They are few bytes into a socket buffer, and a write has a timeout.
struct State {
    /// By channel; the pattern under its own name.
    topics: HashMap<Arc<str>, Topic>,
    /// The user may not subscribe to the pattern (an ACL names channels): each waiter's channel stands for itself.
    no_pattern: bool,
    /// The asking half of the present connection.
    sender: Option<SubscriptionSender>,
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

struct Topic {
    /// By channel: its own name, or under the pattern those of the waiters. Mostly one each; two locks share a channel when
    /// one has the other's name in braces.
    events: HashMap<Arc<str>, Vec<Arc<Event>>>,
    waiters: usize,
    /// When the last waiter left.
    idle_since: Option<Instant>,
    /// The server has confirmed the subscription on the present connection.
    confirmed: bool,
}

/// A waiter's interest in a channel.
pub(crate) struct Listening<'w> {
    notifications: &'w Notifications,
    subscription: Subscription,
    event: Arc<Event>,
}

impl Notifications {
    /// `pattern`: of the channels that end in a holder of this client. `lease`: how long a waiter sleeps at most.
    pub(crate) fn new(client_name: String, store: Arc<dyn LeaseStore>, pattern: String, lease: Duration) -> Self {
        let state =
            State { topics: HashMap::new(), no_pattern: false, sender: None, asked: None, phase: Phase::NotStarted };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let (pattern, patience) = (pattern.into(), Patience::of(lease));
        let inner = Inner { client_name, pattern, store, patience, state, changed };
        Self { inner: Arc::new(inner), thread: Mutex::new(None) }
    }

    /// Rings `event` at every message on the channel, and once when the server has confirmed the subscription, until the
    /// answer is dropped. Does not wait for the server.
    pub(crate) fn listen(&self, subscription: Subscription, event: &Arc<Event>) -> Listening<'_> {
        let mut state = self.inner.state.lock();
        let name = self.inner.topic_of(&state, &subscription).clone();
        let known = state.topics.contains_key(&name);
        let topic = state.topics.entry(name.clone()).or_insert_with(Topic::new);
        let events = topic.events.entry(subscription.channel.clone()).or_default();
        if topic.waiters == 0 {
            // The last waiter's, kept while the subscription lingers.
            events.clear();
        }
        if !events.iter().any(|known| Arc::ptr_eq(known, event)) {
            events.push(event.clone());
        }
        topic.waiters += 1;
        topic.idle_since = None;
        let started = self.start(&mut state);
        // Without a connection there is nobody to ask: a new one subscribes to everything in the map.
        let subscribed = match &mut state.sender {
            Some(sender) if !known => self.inner.subscribe(sender, &name),
            _ => Ok(()),
        };
        if subscribed.is_err() {
            state.give_up();
        }
        drop(state);
        // Not under the mutex: a logger that blocks would keep every waiter from its message.
        if let Err(e) = started {
            log::warn!("no thread for release messages, waiting by timer: {e}");
        }
        if let Err(e) = subscribed {
            log::debug!("the subscriber connection ended: {}", e.chain());
        }
        Listening { notifications: self, subscription, event: event.clone() }
    }

    /// Whether messages on the channel reach us now.
    pub(crate) fn is_subscribed(&self, subscription: &Subscription) -> bool {
        let state = self.inner.state.lock();
        // One that is late with a sign of life may be half open.
        let is_doubtful = state.asked.is_some_and(|asked| asked.elapsed() > self.inner.patience.answer / 2);
        !is_doubtful && state.topics.get(self.inner.topic_of(&state, subscription)).is_some_and(|topic| topic.confirmed)
    }

    /// A waiter's time was up without a message, and somebody has the lock again: the message of a release may have been
    /// lost. Asks the connection for a sign of life, and does not wait for it.
    pub(crate) fn mistrust(&self) {
        let mut state = self.inner.state.lock();
        if state.asked.is_none() && state.ping().is_err() {
            state.give_up();
        }
    }

    /// Wakes the waiter on a channel, if it is one of this client: its message is on the way.
    pub(crate) fn notify(&self, channel: &str) {
        self.inner.events_of(channel).iter().for_each(|event| event.notify());
    }

    /// Wakes everybody: the client is closed.
    pub(crate) fn wake_all(&self) {
        self.inner.state.lock().topics.values().for_each(Topic::notify);
    }

    /// Asks the thread to end and waits for it until `deadline`; false: it is still in its read.
    pub(crate) fn stop(&self, deadline: Instant) -> bool {
        let mut state = self.inner.state.lock();
        let was = state.phase;
        match was {
            Phase::NotStarted | Phase::Ended => {
                state.phase = Phase::Ended;
                return true;
            }
            Phase::Running | Phase::Stopping => state.phase = Phase::Stopping,
        }
        // Ends the thread's read, whatever the server does.
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
        let name = self.notifications.inner.topic_of(&state, &self.subscription).clone();
        if let Some(topic) = state.topics.get_mut(&name) {
            topic.waiters -= 1;
            if topic.waiters == 0 {
                topic.idle_since = Some(Instant::now());
            }
            // The event of a channel stays for the next waiter of its line; that of a pattern's waiter is its own.
            let channel = &self.subscription.channel;
            if name != *channel {
                topic.events.remove(channel);
            } else if let Some(events) = topic.events.get_mut(channel)
                && events.len() > 1
            {
                events.retain(|event| !Arc::ptr_eq(event, &self.event));
            }
        }
    }
}

/// Whatever ends the thread, nobody may wait for a confirmation that never comes.
struct ExitGuard<'a>(&'a Inner);

impl Drop for ExitGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.phase = Phase::Ended;
        for topic in state.topics.values_mut() {
            topic.confirmed = false;
            topic.notify();
        }
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

impl Topic {
    fn new() -> Self {
        Self { events: HashMap::new(), waiters: 0, idle_since: None, confirmed: false }
    }

    fn notify(&self) {
        self.events.values().flatten().for_each(|event| event.notify());
    }
}

impl Inner {
    /// The name under which the map has a subscription.
    fn topic_of<'a>(&'a self, state: &State, subscription: &'a Subscription) -> &'a Arc<str> {
        if subscription.by_pattern && !state.no_pattern { &self.pattern } else { &subscription.channel }
    }

    fn subscribe(&self, sender: &mut SubscriptionSender, name: &Arc<str>) -> Result<()> {
        if *name == self.pattern { sender.subscribe_pattern(name) } else { sender.subscribe(&[name]) }
    }

    fn events_of(&self, channel: &str) -> Vec<Arc<Event>> {
        let state = self.state.lock();
        let of = |name: &str| state.topics.get(name)?.events.get(channel).cloned();
        of(channel).or_else(|| of(&self.pattern)).unwrap_or_default()
    }

    /// The pattern was refused: its waiters get a subscription each.
    fn do_without_pattern(&self) {
        let mut state = self.state.lock();
        state.no_pattern = true;
        let events = state.topics.remove(&self.pattern).map(|topic| topic.events).unwrap_or_default();
        for (channel, events) in events {
            let events = HashMap::from([(channel.clone(), events)]);
            state.topics.insert(channel, Topic { events, waiters: 1, ..Topic::new() });
        }
    }

    fn may_blame_the_pattern(&self) -> bool {
        let state = self.state.lock();
        !state.no_pattern && state.topics.contains_key(&self.pattern)
    }

    fn run(&self) {
        let _exit_guard = ExitGuard(self);
        let mut pause = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));
        let mut logged = false;
        while self.state.lock().phase == Phase::Running {
            match self.listen_once(&mut pause) {
                Ok(()) => return,
                Err(e) if e.kind() == ErrorKind::Denied && self.may_blame_the_pattern() => {
                    log::debug!("fair waiters listen each for itself: {}", e.chain());
                    self.do_without_pattern();
                }
                Err(e) if e.kind() == ErrorKind::Denied && !std::mem::replace(&mut logged, true) => {
                    log::warn!("release messages cannot be heard, waiting by timer: {}", e.chain());
                }
                Err(e) => log::debug!("the subscriber connection ended, connecting again: {}", e.chain()),
            }
            let mut state = self.state.lock();
            (state.sender, state.asked) = (None, None);
            state.topics.retain(|_, topic| topic.waiters > 0);
            for topic in state.topics.values_mut() {
                topic.confirmed = false;
                // Those who sleep for a whole lease must know that nobody hears for them now.
                topic.notify();
            }
            if state.phase == Phase::Running {
                self.changed.wait_for(&mut state, pause.next());
            }
        }
    }

    /// The life of one connection. Returns when it is time to stop.
    fn listen_once(&self, pause: &mut Backoff) -> Result<()> {
        let (mut subscriber, mut sender) = self.store.listen(self.patience.tick)?;
        {
            let mut state = self.state.lock();
            if state.phase != Phase::Running {
                return Ok(());
            }
            let (patterns, channels): (Vec<&str>, Vec<&str>) =
                state.topics.keys().map(|name| &**name).partition(|name| **name == *self.pattern);
            if !channels.is_empty() {
                sender.subscribe(&channels)?;
            }
            for pattern in patterns {
                sender.subscribe_pattern(pattern)?;
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
                Received::Message { channel } => self.notify(&channel),
                Received::Subscribed { topic } => {
                    pause.reset();
                    self.confirm(&topic);
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

    fn notify(&self, channel: &[u8]) {
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        self.events_of(channel).iter().for_each(|event| event.notify_by_message());
    }

    /// Messages before this were heard by nobody, so the waiters must look again: notified first and confirmed second, or a
    /// waiter that has just been told would find the ring of its own subscription.
    fn confirm(&self, topic: &[u8]) {
        let Ok(name) = std::str::from_utf8(topic) else { return };
        if let Some(topic) = self.state.lock().topics.get_mut(name) {
            topic.notify();
            topic.confirmed = true;
        }
    }

    /// Lets go of channels that nobody has waited on for a while, and asks a silent server for a sign of life.
    fn maintain(&self, is_silent: bool) -> Result<()> {
        let mut state = self.state.lock();
        if state.asked.is_some_and(|asked| asked.elapsed() > self.patience.answer) {
            return Err(Error::new(ErrorKind::Unreachable, "the subscriber connection gives no sign of life"));
        }
        if is_silent && state.asked.is_none() {
            state.ping()?;
        }
        let State { topics, sender: Some(sender), .. } = &mut *state else { return Ok(()) };
        let idle: Vec<Arc<str>> = topics
            .iter()
            // One that is not confirmed yet stays: its confirmation must not be taken for that of a successor.
            .filter(|(_, c)| c.confirmed && c.idle_since.is_some_and(|since| since.elapsed() > LINGER))
            .map(|(name, _)| name.clone())
            .collect();
        for name in idle {
            topics.remove(&name);
            if name == self.pattern { sender.unsubscribe_pattern(&name)? } else { sender.unsubscribe(&name)? }
        }
        Ok(())
    }
}
