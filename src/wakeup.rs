//! Release messages for waiters: one subscriber connection and thread per client.
//!
//! A message is a hint to try again, never a grant, and never the only hope: every wait has a timer of its own. The
//! thread reads; whoever wants a channel asks for it directly, on the same connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::backoff::Backoff;
use crate::bell::Bell;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Heard, LeaseStore, Mouth};

/// How long a read waits. Between reads the thread looks whether it should stop or let a channel go.
const TICK: Duration = Duration::from_millis(500);
/// A silent connection is asked for a sign of life this often: a half-open one would be deaf for ever.
const PING_AFTER: Duration = Duration::from_secs(10);
/// How long the sign may take.
const GRACE: Duration = Duration::from_secs(3);
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
    state: Mutex<State>,
    changed: Condvar,
}

/// Every request for a channel is written under this mutex, so that the server gets them in the order in which the map
/// changed. They are few bytes into a socket buffer, and a write has a timeout.
struct State {
    channels: HashMap<Arc<str>, Channel>,
    /// The asking half of the present connection.
    mouth: Option<Mouth>,
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
    pub(crate) fn new(client_name: String, store: Arc<dyn LeaseStore>) -> Self {
        let inner = Inner {
            client_name,
            store,
            state: Mutex::new(State { channels: HashMap::new(), mouth: None, phase: Phase::NotStarted }),
            changed: Condvar::new(),
        };
        Self { inner: Arc::new(inner), thread: Mutex::new(None) }
    }

    /// Rings `bell` at every message on `channel`, and once when the server has confirmed the subscription, until the
    /// answer is dropped. Does not wait for the server.
    pub(crate) fn listen(&self, channel: &Arc<str>, bell: &Arc<Bell>) -> Listening<'_> {
        let mut state = self.inner.state.lock();
        let known = state.channels.contains_key(channel);
        let entry = state.channels.entry(channel.clone()).or_insert_with(|| Channel {
            bell: bell.clone(),
            waiters: 0,
            idle_since: None,
            confirmed: false,
        });
        entry.waiters += 1;
        entry.idle_since = None;
        entry.bell = bell.clone();
        self.start(&mut state);
        // Without a connection there is nobody to ask: a new one subscribes to everything in the map.
        if !known
            && let Some(mouth) = &mut state.mouth
            && let Err(e) = mouth.subscribe(&[channel])
        {
            log::debug!("the subscriber connection ended: {e}");
            mouth.close();
            state.mouth = None;
        }
        drop(state);
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
        // Ends the thread's read, whatever the server does.
        if let Some(mouth) = state.mouth.take() {
            mouth.close();
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

    fn start(&self, state: &mut State) {
        if state.phase != Phase::NotStarted {
            return;
        }
        let inner = self.inner.clone();
        let name = format!("leasehold-ear-{}", inner.client_name);
        match std::thread::Builder::new().name(name).spawn(move || inner.run()) {
            Ok(handle) => {
                *self.thread.lock() = Some(handle);
                state.phase = Phase::Running;
            }
            Err(e) => log::warn!("no thread for release messages, waiting by timer: {e}"),
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
        for channel in state.channels.values_mut() {
            channel.confirmed = false;
            channel.bell.ring();
        }
        self.0.changed.notify_all();
    }
}

impl Inner {
    fn run(&self) {
        let _last_will = LastWill(self);
        let mut pause = Backoff::new(Duration::from_millis(10), TICK);
        let mut told = false;
        while self.state.lock().phase == Phase::Running {
            match self.listen_once(&mut pause) {
                Ok(()) => return,
                Err(e) if e.kind() == ErrorKind::Denied && !std::mem::replace(&mut told, true) => {
                    log::warn!("release messages cannot be heard, waiting by timer: {e}");
                }
                Err(e) => log::debug!("the subscriber connection ended, connecting again: {e}"),
            }
            let mut state = self.state.lock();
            state.mouth = None;
            state.channels.retain(|_, c| c.waiters > 0);
            for channel in state.channels.values_mut() {
                channel.confirmed = false;
                // Those who sleep for a whole lease must know that nobody hears for them now.
                channel.bell.ring();
            }
            if state.phase == Phase::Running {
                self.changed.wait_for(&mut state, pause.next());
            }
        }
    }

    /// The life of one connection. Returns when it is time to stop.
    fn listen_once(&self, pause: &mut Backoff) -> Result<()> {
        let (mut ear, mut mouth) = self.store.listen(TICK)?;
        {
            let mut state = self.state.lock();
            if state.phase != Phase::Running {
                return Ok(());
            }
            let channels: Vec<&str> = state.channels.keys().map(|name| &**name).collect();
            if !channels.is_empty() {
                mouth.subscribe(&channels)?;
            }
            state.mouth = Some(mouth);
        }
        let mut last_sign = Instant::now();
        loop {
            let heard = ear.hear();
            if self.state.lock().phase != Phase::Running {
                return Ok(());
            }
            match heard? {
                Heard::Message { channel } => self.ring(&channel),
                Heard::Subscribed { channel } => {
                    pause.reset();
                    self.confirm(&channel);
                }
                Heard::Sign => {}
                Heard::Silence => {
                    if last_sign.elapsed() > PING_AFTER + GRACE {
                        return Err(Error::new(ErrorKind::Unreachable, "the subscriber connection is silent"));
                    }
                    self.tend(last_sign.elapsed() > PING_AFTER)?;
                    continue;
                }
            }
            last_sign = Instant::now();
            self.tend(false)?;
        }
    }

    fn ring(&self, channel: &[u8]) {
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        let bell = self.state.lock().channels.get(channel).map(|c| c.bell.clone());
        if let Some(bell) = bell {
            bell.ring_by_message();
        }
    }

    /// Messages before this were heard by nobody, so the waiter must look again: rung first and confirmed second, or a
    /// waiter that has just been told would find the ring of its own subscription.
    fn confirm(&self, channel: &[u8]) {
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        if let Some(entry) = self.state.lock().channels.get_mut(channel) {
            entry.bell.ring();
            entry.confirmed = true;
        }
    }

    /// Lets go of channels that nobody has waited on for a while, and asks a silent server for a sign of life.
    fn tend(&self, ping: bool) -> Result<()> {
        let mut state = self.state.lock();
        let State { channels, mouth: Some(mouth), .. } = &mut *state else { return Ok(()) };
        let idle: Vec<Arc<str>> = channels
            .iter()
            // One that is not confirmed yet stays: its confirmation must not be taken for that of a successor.
            .filter(|(_, c)| c.confirmed && c.idle_since.is_some_and(|since| since.elapsed() > LINGER))
            .map(|(name, _)| name.clone())
            .collect();
        for name in idle {
            channels.remove(&name);
            mouth.unsubscribe(&name)?;
        }
        if ping { mouth.ping() } else { Ok(()) }
    }
}
