//! The thread that notices failovers.
//!
//! A thread of its own, because the watchdog must not wait for sentinels while renewals are due,
//! and a subscriber runs only while somebody waits. Without it, a client whose connections to the
//! old master still work would go on renewing there, for as long as they do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::inquiry::Inquiry;
use super::known::Listening;
use crate::base::error::{ErrorKind, Result};
use crate::base::log;
use crate::store::net::Waker;
use crate::store::redis::wire::{
    Frame, PubSubReader, PubSubWriter, ask_all, listen_at, wait_for_input,
};

/// How often all sentinels are asked without a sign of a failover, and how soon a sentinel that
/// ended its subscription is tried again.
const PERIOD: Duration = Duration::from_secs(1);
/// How long the thread waits for new subscriptions. Those that take longer are found in the next
/// period.
const SUBSCRIBING: Duration = Duration::from_millis(50);

pub(super) struct MasterWatch {
    inquiry: Arc<Inquiry>,
    client_name: String,
    io_timeout: Duration,
    begun: AtomicBool,
    stopped: AtomicBool,
    /// Wakes the thread, once it has begun.
    waker: Mutex<Option<Arc<Waker>>>,
    /// Subscriptions that the thread has not taken yet.
    arrived: Mutex<Vec<Listener>>,
}

/// A subscription to the failovers that one sentinel sees.
struct Listener {
    reader: PubSubReader,
    _writer: PubSubWriter,
    _listening: Listening,
}

impl Listener {
    /// Reads everything that has arrived. Returns whether it reports a failover.
    fn receive(&mut self) -> Result<bool> {
        let mut news = false;
        loop {
            match self.reader.receive()? {
                Frame::Message { .. } => news = true,
                Frame::Timeout => return Ok(news),
                _ => {}
            }
        }
    }
}

impl MasterWatch {
    pub(super) fn new(inquiry: Arc<Inquiry>, client_name: &str, io_timeout: Duration) -> Self {
        Self {
            inquiry,
            client_name: client_name.to_owned(),
            io_timeout,
            begun: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            waker: Mutex::default(),
            arrived: Mutex::default(),
        }
    }

    /// Starts the thread, once. If the system cannot start one, the next call tries again.
    pub(super) fn begin(self: &Arc<Self>) {
        if self.begun.swap(true, Ordering::AcqRel) {
            return;
        }
        let start = || {
            let waker = Arc::new(Waker::new()?);
            *self.waker.lock() = Some(waker.clone());
            let watch = self.clone();
            let name = format!("lh-sentinel-{}", self.client_name);
            std::thread::Builder::new().name(name).spawn(move || watch.run(&waker))
        };
        if let Err(e) = start() {
            self.begun.store(false, Ordering::Release);
            log::warn!(
                "no thread to watch the sentinels, a failover is noticed at the next connect: {e}"
            );
        }
    }

    /// The thread ends by itself, within the I/O timeout if it is asking the sentinels.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(waker) = &*self.waker.lock() {
            waker.wake();
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn run(self: Arc<Self>, waker: &Waker) {
        let mut listeners = Vec::new();
        let mut next_period = Instant::now();
        let mut in_trouble = false;
        while !self.is_stopped() {
            let pass = catch_unwind(AssertUnwindSafe(|| {
                if Instant::now() >= next_period {
                    next_period = Instant::now() + PERIOD;
                    self.subscribe();
                }
                listeners.append(&mut self.arrived.lock());
                self.wait_for_news(&mut listeners, waker, next_period);
                if !self.is_stopped() {
                    let found = self.inquiry.find().map(drop);
                    self.log_trouble(found, &mut in_trouble);
                }
            }));
            if pass.is_err() {
                log::warn!("the thread that watches the sentinels panicked and goes on");
                wait_for_input(std::iter::empty(), waker, PERIOD);
            }
        }
        self.arrived.lock().clear();
    }

    /// Subscribes where it is not subscribed, side by side.
    fn subscribe(self: &Arc<Self>) {
        let missing: Vec<Listening> =
            self.inquiry.known.all().iter().filter_map(Listening::at).collect();
        if missing.is_empty() {
            return;
        }
        let watch = self.clone();
        let listen = move |listening: Listening| watch.listen(listening);
        let count = missing.len();
        ask_all("lh-sentinel-sub", missing, listen, SUBSCRIBING, |outcomes| {
            outcomes.len() == count
        });
    }

    fn listen(&self, listening: Listening) -> Result<()> {
        let (reader, mut writer) =
            listen_at(listening.0.endpoint(), &self.client_name, self.io_timeout)?;
        writer.subscribe(&["+switch-master"])?;
        let mut arrived = self.arrived.lock();
        // Under the mutex: the thread clears the list when it ends, and nobody does it after that.
        if !self.is_stopped() {
            arrived.push(Listener { reader, _writer: writer, _listening: listening });
        }
        Ok(())
    }

    /// Returns when a sentinel reports a failover, when a sentinel is lost, and at the deadline.
    fn wait_for_news(&self, listeners: &mut Vec<Listener>, waker: &Waker, deadline: Instant) {
        let mut news = false;
        while !news && !self.is_stopped() && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            wait_for_input(listeners.iter().map(|listener| &listener.reader), waker, left);
            listeners.retain_mut(|listener| {
                let received = listener.receive();
                news |= !matches!(received, Ok(false));
                if let Err(e) = &received {
                    log::debug!("the subscription to a sentinel ended: {}", e.chain());
                }
                received.is_ok()
            });
        }
    }

    /// Logs trouble once when it begins and once when it is over.
    fn log_trouble(&self, found: Result<()>, in_trouble: &mut bool) {
        let name = self.inquiry.name();
        match found {
            Ok(()) if std::mem::take(in_trouble) => {
                log::warn!("the sentinels name the master {name:?} again");
            }
            Err(e) if e.kind() != ErrorKind::Closed && !std::mem::replace(in_trouble, true) => {
                log::warn!("a failover of {name:?} would not be noticed: {}", e.chain());
            }
            _ => {}
        }
    }
}
