//! The thread that notices failovers.
//!
//! A thread of its own, because the watchdog must not wait for sentinels while renewals are due,
//! and a subscriber runs only while somebody waits. Without it, a client whose connections to the
//! old master still work would go on renewing there, for as long as they do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::inquiry::Inquiry;
use super::known::Listening;
use crate::base::error::{ErrorKind, Result};
use crate::store::redis::wire::{Frame, PubSubReader, PubSubWriter, ask_all, subscribe_at};

/// How often all sentinels are asked without a sign of a failover, and how soon one that ended its
/// subscription is tried again.
const PERIOD: Duration = Duration::from_secs(1);
/// What the thread waits for new subscriptions. Those that take longer are found at the next
/// period.
const SUBSCRIBING: Duration = Duration::from_millis(50);
/// How long a read waits. Where the system can wait for several sockets, they are read when they
/// have input.
const READING: Duration = Duration::from_millis(if cfg!(unix) { 1 } else { 100 });

pub(super) struct Watch {
    inquiry: Arc<Inquiry>,
    client_name: String,
    io_timeout: Duration,
    begun: AtomicBool,
    stopped: AtomicBool,
    /// Subscriptions that the thread has not taken yet.
    arrived: Mutex<Vec<Listener>>,
    /// The other halves of all subscriptions: closing them ends the thread's wait.
    writers: Mutex<Vec<(u64, PubSubWriter)>>,
    changed: Condvar,
}

/// A subscription to the failovers that one sentinel sees.
struct Listener {
    number: u64,
    reader: PubSubReader,
    _listening: Listening,
}

impl Listener {
    /// Reads all that has come. Whether it tells of a failover.
    fn receive(&mut self) -> Result<bool> {
        let mut news = false;
        loop {
            match self.reader.receive()? {
                Frame::Message { .. } => news = true,
                Frame::Subscribed { .. } | Frame::Alive | Frame::Unsubscribed { .. } | Frame::Moved { .. } => {}
                Frame::Timeout => return Ok(news),
            }
        }
    }
}

impl Watch {
    pub(super) fn new(inquiry: Arc<Inquiry>, client_name: &str, io_timeout: Duration) -> Self {
        Self {
            inquiry,
            client_name: client_name.to_owned(),
            io_timeout,
            begun: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            arrived: Mutex::default(),
            writers: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Starts the thread, once. If the system grants none, the next call tries again.
    pub(super) fn begin(self: &Arc<Self>) {
        if self.begun.swap(true, Ordering::AcqRel) {
            return;
        }
        let watch = self.clone();
        let name = format!("lh-sentinel-{}", self.client_name);
        if let Err(e) = std::thread::Builder::new().name(name).spawn(move || watch.run()) {
            self.begun.store(false, Ordering::Release);
            log::warn!("no thread to watch the sentinels, a failover is noticed at the next connect: {e}");
        }
    }

    /// The thread ends by itself, within the I/O timeout if it is asking the sentinels.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let writers = self.writers.lock();
        writers.iter().for_each(|(_, writer)| writer.close());
        self.changed.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn run(self: Arc<Self>) {
        let mut listeners = Vec::new();
        let (mut next_period, mut in_trouble) = (Instant::now(), false);
        while !self.is_stopped() {
            let pass = catch_unwind(AssertUnwindSafe(|| {
                if Instant::now() >= next_period {
                    next_period = Instant::now() + PERIOD;
                    self.subscribe();
                }
                listeners.append(&mut self.arrived.lock());
                self.wait_for_news(&mut listeners, next_period);
                if !self.is_stopped() {
                    let found = self.inquiry.find().map(drop);
                    self.log_trouble(found, &mut in_trouble);
                }
            }));
            if pass.is_err() {
                log::warn!("the thread that watches the sentinels panicked and goes on");
                self.pause_until(Instant::now() + PERIOD);
            }
        }
        self.arrived.lock().clear();
        self.writers.lock().clear();
    }

    /// Subscribes where it is not subscribed, side by side.
    fn subscribe(self: &Arc<Self>) {
        let missing: Vec<Listening> = self.inquiry.known.all().iter().filter_map(Listening::at).collect();
        if missing.is_empty() {
            return;
        }
        let watch = self.clone();
        let listen = move |listening: Listening| watch.listen(listening);
        let count = missing.len();
        ask_all("lh-sentinel-sub", missing, listen, SUBSCRIBING, |outcomes| outcomes.len() == count);
    }

    fn listen(&self, listening: Listening) -> Result<()> {
        let (reader, mut writer) = subscribe_at(listening.0.endpoint(), &self.client_name, READING, self.io_timeout)?;
        writer.subscribe(&["+switch-master"])?;
        let mut writers = self.writers.lock();
        // Under the mutex: a stop either sees the writer, or is seen here.
        if !self.is_stopped() {
            let number = writers.last().map_or(0, |(number, _)| number + 1);
            writers.push((number, writer));
            self.arrived.lock().push(Listener { number, reader, _listening: listening });
        }
        Ok(())
    }

    /// Returns when a sentinel tells of a failover, when one is lost, and at the deadline.
    fn wait_for_news(&self, listeners: &mut Vec<Listener>, deadline: Instant) {
        if listeners.is_empty() {
            return self.pause_until(deadline);
        }
        let mut news = false;
        while !news && !self.is_stopped() && Instant::now() < deadline {
            let readers: Vec<&PubSubReader> = listeners.iter().map(|listener| &listener.reader).collect();
            let ready = PubSubReader::ready(&readers, deadline.saturating_duration_since(Instant::now()));
            let mut ready = ready.into_iter();
            listeners.retain_mut(|listener| {
                let received = if ready.next() == Some(true) { listener.receive() } else { Ok(false) };
                news |= !matches!(received, Ok(false));
                if let Err(e) = &received {
                    log::debug!("the subscription to a sentinel ended: {}", e.chain());
                    self.writers.lock().retain(|(number, _)| *number != listener.number);
                }
                received.is_ok()
            });
        }
    }

    fn pause_until(&self, deadline: Instant) {
        let mut writers = self.writers.lock();
        while !self.is_stopped() && !self.changed.wait_until(&mut writers, deadline).timed_out() {}
    }

    /// Once when it begins, once when it is over.
    fn log_trouble(&self, found: Result<()>, in_trouble: &mut bool) {
        let name = self.inquiry.name();
        match found {
            Ok(()) if std::mem::take(in_trouble) => log::info!("the sentinels name the master {name:?} again"),
            Err(e) if e.kind() != ErrorKind::Closed && !std::mem::replace(in_trouble, true) => {
                log::warn!("a failover of {name:?} would not be noticed: {}", e.chain());
            }
            _ => {}
        }
    }
}
