//! Release messages for waiters: one subscriber connection and thread per client.
//!
//! A message is a hint to try again, never a grant, and never the only hope: every wait has a timer of its own. The
//! thread reads; whoever wants a channel puts it on the list and wakes the thread by a message on a private channel,
//! because nobody else can write to a connection while it is being read.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::backoff::Backoff;
use crate::bell::Bell;
use crate::error::Result;
use crate::store::{Ear, Heard, LeaseStore};

/// How long a read waits. Between reads the thread looks whether it should stop or let a channel go.
const TICK: Duration = Duration::from_millis(500);
/// A silent connection is asked for a sign of life this often: a half-open one would be deaf for ever.
const PING_AFTER: Duration = Duration::from_secs(10);
/// A channel is kept this long after its last waiter, so that contention does not cost a SUBSCRIBE and an UNSUBSCRIBE
/// for every hand-over.
const LINGER: Duration = Duration::from_secs(1);

pub(crate) struct Wakeups {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    client_name: String,
    store: Arc<dyn LeaseStore>,
    /// Our private channel. Named like a lock's, so that one ACL rule covers both.
    control: String,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    channels: HashMap<Arc<str>, Channel>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    NotStarted,
    Running,
    Stopping,
    Ended,
}

struct Channel {
    bell: Arc<Bell>,
    waiters: usize,
    /// When the last waiter left.
    idle_since: Option<Instant>,
    /// The server has confirmed the subscription on the present connection.
    confirmed: bool,
}

/// A waiter's interest in a channel.
pub(crate) struct Listening<'w> {
    wakeups: &'w Wakeups,
    channel: Arc<str>,
}

impl Wakeups {
    pub(crate) fn new(client_name: String, client_id: &str, store: Arc<dyn LeaseStore>) -> Self {
        let inner = Inner {
            client_name,
            store,
            control: format!("redisson_lock__channel:{{leasehold:{client_id}}}"),
            state: Mutex::new(State { channels: HashMap::new(), phase: Phase::NotStarted }),
            changed: Condvar::new(),
        };
        Self { inner: Arc::new(inner), thread: Mutex::new(None) }
    }

    /// Rings `bell` at every message on `channel`, until the answer is dropped. Does not wait for the server.
    pub(crate) fn listen(&self, channel: &Arc<str>, bell: &Arc<Bell>) -> Listening<'_> {
        let mut state = self.inner.state.lock();
        let entry = state.channels.entry(channel.clone()).or_insert_with(|| Channel {
            bell: bell.clone(),
            waiters: 0,
            idle_since: None,
            confirmed: false,
        });
        entry.waiters += 1;
        entry.idle_since = None;
        if !Arc::ptr_eq(&entry.bell, bell) {
            entry.bell = bell.clone();
        }
        let must_ask = !entry.confirmed;
        let started = self.start(&mut state);
        drop(state);
        // A thread that has just been started, or that connects anew, subscribes to everything by itself.
        if must_ask
            && !started
            && let Err(e) = self.inner.store.publish(&self.inner.control)
        {
            log::debug!("the subscriber could not be woken, it looks again by itself: {e}");
        }
        Listening { wakeups: self, channel: channel.clone() }
    }

    /// Whether messages on the channel reach us now.
    pub(crate) fn hears(&self, channel: &str) -> bool {
        self.inner.state.lock().channels.get(channel).is_some_and(|c| c.confirmed)
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

    /// Makes the thread look at its list now rather than at its next tick.
    pub(crate) fn nudge(&self) {
        if self.inner.state.lock().phase == Phase::Running {
            let _ = self.inner.store.publish(&self.inner.control);
        }
    }

    fn start(&self, state: &mut State) -> bool {
        if state.phase != Phase::NotStarted {
            return false;
        }
        let inner = self.inner.clone();
        let name = format!("leasehold-ear-{}", inner.client_name);
        match std::thread::Builder::new().name(name).spawn(move || inner.run()) {
            Ok(handle) => {
                *self.thread.lock() = Some(handle);
                state.phase = Phase::Running;
                true
            }
            Err(e) => {
                log::warn!("no thread for release messages, waiting by timer: {e}");
                false
            }
        }
    }
}

impl Listening<'_> {
    /// Waits until messages on the channel are heard, at most for `patience`. False: wait by timer only.
    pub(crate) fn is_heard(&self, patience: Duration) -> bool {
        let give_up = Instant::now() + patience;
        let mut state = self.wakeups.inner.state.lock();
        loop {
            if state.phase != Phase::Running {
                return false;
            }
            if state.channels.get(&self.channel).is_some_and(|c| c.confirmed) {
                return true;
            }
            if self.wakeups.inner.changed.wait_until(&mut state, give_up).timed_out() {
                return state.channels.get(&self.channel).is_some_and(|c| c.confirmed);
            }
        }
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        let mut state = self.wakeups.inner.state.lock();
        if let Some(entry) = state.channels.get_mut(&self.channel) {
            entry.waiters -= 1;
            if entry.waiters == 0 {
                entry.idle_since = Some(Instant::now());
            }
        }
    }
}

/// Whatever ends the thread, nobody may wait for a confirmation that never comes.
struct LastWill<'a>(&'a Inner);

impl Drop for LastWill<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.phase = Phase::Ended;
        state.channels.values().for_each(|c| c.bell.ring());
        self.0.changed.notify_all();
    }
}

impl Inner {
    fn run(&self) {
        let _last_will = LastWill(self);
        let mut pause = Backoff::new(Duration::from_millis(10), TICK);
        while self.state.lock().phase == Phase::Running {
            match self.listen_once(&mut pause) {
                Ok(()) => return,
                Err(e) => log::debug!("the subscriber connection ended, connecting again: {e}"),
            }
            let mut state = self.state.lock();
            state.channels.values_mut().for_each(|c| c.confirmed = false);
            if state.phase == Phase::Running {
                self.changed.wait_for(&mut state, pause.next());
            }
        }
    }

    /// The life of one connection. Returns when it is time to stop.
    fn listen_once(&self, pause: &mut Backoff) -> Result<()> {
        let mut subscriber = self.store.subscriber(TICK)?;
        let mut ear = subscriber.ear();
        ear.subscribe(&self.control)?;
        let mut last_sign = Instant::now();
        let mut first = true;
        loop {
            if !self.follow_the_list(&mut ear)? {
                return Ok(());
            }
            if std::mem::take(&mut first) {
                pause.reset();
                // Messages were lost while nobody listened.
                self.state.lock().channels.values().for_each(|c| c.bell.ring());
            }
            match ear.hear()? {
                Heard::Message { channel } => {
                    last_sign = Instant::now();
                    if channel != self.control.as_bytes() {
                        self.ring(&channel);
                    }
                }
                Heard::Silence if last_sign.elapsed() > PING_AFTER => {
                    ear.ping()?;
                    last_sign = Instant::now();
                }
                Heard::Silence => {}
            }
        }
    }

    fn ring(&self, channel: &[u8]) {
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        let bell = self.state.lock().channels.get(channel).map(|c| c.bell.clone());
        if let Some(bell) = bell {
            bell.ring_by_message();
        }
    }

    /// Subscribes to what is wanted and lets go of what is not. False when it is time to stop.
    fn follow_the_list(&self, ear: &mut Ear<'_>) -> Result<bool> {
        loop {
            let mut state = self.state.lock();
            if state.phase != Phase::Running {
                return Ok(false);
            }
            if let Some(channel) = state.channels.iter().find(|(_, c)| !c.confirmed).map(|(name, _)| name.clone()) {
                drop(state);
                ear.subscribe(&channel)?;
                if let Some(entry) = self.state.lock().channels.get_mut(&channel) {
                    entry.confirmed = true;
                }
                self.changed.notify_all();
                continue;
            }
            let idle = |c: &Channel| c.idle_since.is_some_and(|since| since.elapsed() > LINGER);
            let Some(channel) = state.channels.iter().find(|(_, c)| idle(c)).map(|(name, _)| name.clone()) else {
                return Ok(true);
            };
            // Forgotten first: a waiter that comes now finds no entry and asks for a new subscription, which this
            // thread makes after the unsubscribe below.
            state.channels.remove(&channel);
            drop(state);
            ear.unsubscribe(&channel)?;
        }
    }
}
