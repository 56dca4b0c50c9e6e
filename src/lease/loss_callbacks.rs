//! Notifies the users of guards that a lease is lost, or that it cannot be renewed.
//!
//! Every thread that detects a loss reports it here. A loss by time may be detected by no other
//! thread (the watchdog can be blocked in a connect when a lease ends), so one thread keeps the
//! deadline of every lease that has a callback. It starts with the first callback of a client and
//! runs no user code, neither callbacks nor the logger: those run on threads of their own, a
//! bounded number at once, which end when nothing is left to run. A channel is disconnected by
//! whoever finds the loss.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::LeaseState;
use crate::base::lock_name::LockName;
use crate::base::log;
use crate::base::loss::{Loss, RenewalFailure};
use crate::lease::callbacks::{Callback, OnLost, OnTrouble};
use crate::lease::records::{StoreHold, Tenure};
use crate::os::{
    self, Condvar, Mutex,
    mpsc::channel,
    thread::{Builder, JoinHandle},
};
use crate::report::listener::{Listener, LockInfo};
use crate::report::observer::Observer;
use crate::report::spans::HoldEnd;

/// How many callbacks run at once; the others queue behind them. Many leases are lost together when
/// a server stays unreachable.
const MOST_CALLERS: usize = 16;

/// With this many callbacks in the queue the listener and the tracer are no longer notified: one of
/// them has blocked for a long time.
const MOST_UNTOLD: usize = 10_000;

pub(crate) struct LossCallbacks {
    pub(super) observer: Arc<Observer>,
    list: Mutex<List>,
    changed: Condvar,
    due: Mutex<DueCalls>,
}

#[derive(Default)]
struct List {
    watched: Vec<Arc<Tenure>>,
    thread: Option<JoinHandle<()>>,
    /// When the thread wakes up without being notified.
    planned: Option<Instant>,
    stop: bool,
}

/// Callbacks that wait to run.
#[derive(Default)]
struct DueCalls {
    queue: VecDeque<DueCall>,
    callers: usize,
    /// Why no thread could be started for them; logged by the next one that can.
    trouble: Option<std::io::Error>,
}

enum DueCall {
    OnLost(Box<dyn FnOnce(&Loss) + Send>, Loss),
    OnTrouble(Arc<OnTrouble>, RenewalFailure),
    /// A listener or a tracer.
    Observer(Box<dyn FnOnce() + Send>),
}

impl DueCall {
    fn run(self) {
        match self {
            Self::OnLost(callback, loss) => callback(&loss),
            Self::OnTrouble(callback, trouble) => callback.call(&trouble),
            Self::Observer(call) => call(),
        }
    }
}

impl LossCallbacks {
    pub(crate) fn new(observer: Arc<Observer>) -> Self {
        Self { observer, list: Mutex::default(), changed: Condvar::new(), due: Mutex::default() }
    }

    /// Runs `callback` when `tenure` is lost, or at once if it is lost already; unless its guard
    /// has taken it back.
    pub(crate) fn watch(
        self: &Arc<Self>,
        client_name: &str,
        tenure: &Arc<Tenure>,
        callback: &OnLost,
    ) {
        let is_new = tenure.add_callback(callback);
        let mut no_thread = None;
        let mut list = self.list.lock();
        // After the stop every lease has ended, and the callback runs below.
        if !list.stop {
            if is_new {
                list.watched.push(tenure.clone());
            }
            if list.thread.is_none() {
                let me = self.clone();
                match Builder::new().name(format!("lh-loss-{client_name}")).spawn(move || me.run())
                {
                    Ok(thread) => list.thread = Some(thread),
                    Err(e) => no_thread = Some(e),
                }
            }
            // Notified only if this lease is due before the thread wakes up anyway: one pass over
            // the list for every new callback would take quadratic time.
            let due = os::now() + tenure.pause();
            if list.planned.is_some_and(|planned| due < planned) {
                self.changed.notify_one();
            }
        }
        drop(list);
        if let Some(e) = no_thread {
            log::warn!("no thread for on_lost callbacks, a loss by time may be reported late: {e}");
        }
        // Checked last: a loss before the callback was added was reported without it.
        if matches!(tenure.state(), LeaseState::Lost | LeaseState::Closed) {
            self.report(tenure);
        }
    }

    /// [`report_of_owner`](Self::report_of_owner) by a thread that found the loss and does not give
    /// the tenure up: its span ends on a thread for callbacks.
    pub(crate) fn report(self: &Arc<Self>, tenure: &Tenure) {
        if tenure.state() == LeaseState::Lost {
            self.end_span_of_lost(tenure);
        }
        self.report_of_owner(tenure);
    }

    /// If no more calls may be queued, the span is left to whoever gives the tenure up.
    fn end_span_of_lost(self: &Arc<Self>, tenure: &Tenure) {
        if self.has_room()
            && let Some(span) = tenure.take_span()
        {
            let observer = self.observer.clone();
            let loss = tenure.loss_now();
            self.call_user(move || {
                observer.end_span(span, |span| span.end_hold(HoldEnd::Lost(loss)));
            });
        }
    }

    /// The lease was lost, or given up by closing the client: runs those of its callbacks that have
    /// not run yet.
    pub(crate) fn report_of_owner(self: &Arc<Self>, tenure: &Tenure) {
        if tenure.state() == LeaseState::Lost {
            self.observe_loss(tenure);
        }
        self.run_all(tenure.take_callbacks(), || tenure.loss_now());
    }

    /// Called by every thread that detects a loss, and by the one whose release found no hold: the
    /// loss is counted once for each hold.
    pub(crate) fn observe_loss(self: &Arc<Self>, tenure: &Tenure) {
        if !tenure.begin_report() {
            return;
        }
        let loss = tenure.loss_now();
        self.observer.hold_lost(
            tenure.store_hold.asked.primitive,
            tenure.lock_name(),
            loss.reason(),
        );
        if tenure.state() == LeaseState::Lost {
            self.observer.hold_ended(
                tenure.store_hold.asked.primitive,
                tenure.lock_name(),
                loss.held_for(),
            );
        }
        self.tell(tenure.lock_name(), move |listener, lock| listener.lost(lock, &loss));
    }

    pub(super) fn observe_renewal_failure(self: &Arc<Self>, hold: &StoreHold, error: &Error) {
        self.observer.renewed(hold.asked.primitive, &hold.asked.name, false);
        if self.observer.has_listener() {
            let error = error.clone();
            let left = hold.remaining();
            self.tell(&hold.asked.name, move |listener, lock| {
                listener.renewal_failed(lock, &error, left);
            });
        }
    }

    fn tell(
        self: &Arc<Self>,
        name: &Arc<LockName>,
        tell: impl FnOnce(&dyn Listener, &LockInfo<'_>) + Send + 'static,
    ) {
        if self.observer.has_listener() && self.has_room() {
            let observer = self.observer.clone();
            let name = name.clone();
            self.call_user(move || observer.tell_of(&name.name, name.kind.into(), tell));
        }
    }

    fn has_room(&self) -> bool {
        self.due.lock().queue.len() < MOST_UNTOLD
    }

    /// Calls a listener or a tracer on a thread for callbacks: one that blocks must not keep the
    /// watchdog from renewing.
    pub(crate) fn call_user(self: &Arc<Self>, call: impl FnOnce() + Send + 'static) {
        self.enqueue(std::iter::once(DueCall::Observer(Box::new(call))));
    }

    /// [`call_user`](Self::call_user) for each of these, on threads of their own: all others may be
    /// in callbacks that wait for the caller. Waits until all of them have returned, or until the
    /// deadline. Without any thread it calls them itself, as long as there is time.
    pub(crate) fn call_user_until<C: FnOnce() + Send + 'static>(
        &self,
        calls: impl Iterator<Item = C>,
        deadline: Instant,
    ) {
        let own = Arc::new(Self::new(self.observer.clone()));
        let (returns, all_returned) = channel::<Infallible>();
        let has_threads = own.enqueue(calls.map(|call| {
            // Dropped when the call has returned, by a panic too.
            let returns = returns.clone();
            DueCall::Observer(Box::new(move || {
                let _returns = returns;
                call();
            }))
        }));
        drop(returns);
        while !has_threads && os::now() < deadline {
            let Some(call) = own.due.lock().queue.pop_front() else { break };
            let _ = catch_unwind(AssertUnwindSafe(|| call.run()));
        }
        drop(own);
        let _ = all_returned.recv_timeout(deadline.saturating_duration_since(os::now()));
    }

    /// Runs or drops the callbacks that a guard took back, after it was given up with this outcome.
    /// If the value of a user panics when it is dropped, that ends here: the guard may be dropped
    /// by a panic, and a second one would end the process.
    pub(crate) fn finish(
        self: &Arc<Self>,
        callbacks: Vec<Callback>,
        given_up: &Result<()>,
        loss: impl FnOnce() -> Loss,
    ) {
        if let Err(ErrorKind::Lost | ErrorKind::Closed) = given_up.as_ref().map_err(Error::kind) {
            return self.run_all(callbacks, loss);
        }
        for callback in callbacks {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(callback)));
        }
    }

    fn run_all(self: &Arc<Self>, callbacks: Vec<Callback>, loss: impl FnOnce() -> Loss) {
        if callbacks.is_empty() {
            return;
        }
        let loss = loss();
        self.enqueue(callbacks.into_iter().filter_map(|callback| match callback {
            Callback::Run(callback) => Some(DueCall::OnLost(callback, loss.clone())),
            Callback::Drop(value) => {
                let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
                None
            }
        }));
    }

    /// Runs the callbacks for a renewal that has failed.
    pub(crate) fn tell_of_trouble(
        self: &Arc<Self>,
        callbacks: Vec<Arc<OnTrouble>>,
        trouble: &RenewalFailure,
    ) {
        self.enqueue(
            callbacks.into_iter().map(|callback| DueCall::OnTrouble(callback, trouble.clone())),
        );
    }

    /// Returns false if there is no thread for them: they run with those that come later.
    fn enqueue(self: &Arc<Self>, calls: impl Iterator<Item = DueCall>) -> bool {
        // Collected before the mutex is taken: disconnecting a channel takes other mutexes.
        let calls: Vec<DueCall> = calls.collect();
        if calls.is_empty() {
            return true;
        }
        self.due.lock().queue.extend(calls);
        self.call()
    }

    /// Starts threads for the queued callbacks. Returns false if there are callbacks and no thread
    /// for them.
    fn call(self: &Arc<Self>) -> bool {
        let mut due = self.due.lock();
        let wanted = due.queue.len().min(MOST_CALLERS - due.callers);
        for _ in 0..wanted {
            let me = self.clone();
            match Builder::new().name("lh-on-lost".into()).spawn(move || me.run_due()) {
                Ok(_) => due.callers += 1,
                Err(e) => {
                    due.trouble = Some(e);
                    break;
                }
            }
        }
        due.callers > 0 || due.queue.is_empty()
    }

    fn run_due(&self) {
        loop {
            let mut due = self.due.lock();
            let Some(call) = due.queue.pop_front() else {
                due.callers -= 1;
                return;
            };
            let trouble = due.trouble.take();
            drop(due);
            // The threads are few: after a panic this one continues with the next callback.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                if let Some(e) = trouble {
                    log::warn!(
                        "on_lost callbacks run late, because a thread could not be started: {e}"
                    );
                }
                call.run();
            }));
        }
    }

    /// Makes the thread that keeps deadlines look at the clock now.
    #[cfg(feature = "testing")]
    pub(crate) fn recheck(&self) {
        // Under the mutex: the thread has looked at the clock before, or waits.
        let _list = self.list.lock();
        self.changed.notify_one();
    }

    /// Whether every loss is reported, and every callback has returned.
    #[cfg(feature = "testing")]
    pub(crate) fn is_settled(&self) -> bool {
        let is_live =
            |tenure: &Arc<Tenure>| !matches!(tenure.state(), LeaseState::Lost | LeaseState::Closed);
        let is_reported = self.list.lock().watched.iter().all(is_live);
        let due = self.due.lock();
        is_reported && due.callers == 0 && due.queue.is_empty()
    }

    /// Ends the thread that keeps deadlines. Called when every lease has ended; callbacks continue
    /// to run.
    pub(crate) fn stop(&self, deadline: Instant) {
        let mut list = self.list.lock();
        list.stop = true;
        let thread = list.thread.take();
        drop(list);
        self.changed.notify_one();
        if let Some(thread) = thread {
            // It runs and drops no user code, so it ends, and this call is not on that thread.
            os::join(thread, deadline);
        }
    }

    fn run(self: &Arc<Self>) {
        let mut list = self.list.lock();
        loop {
            let mut wait = Duration::from_secs(3600);
            let mut lost = Vec::new();
            list.watched.retain(|tenure| match tenure.state() {
                LeaseState::Held | LeaseState::Suspect => {
                    wait = wait.min(tenure.pause());
                    true
                }
                LeaseState::Lost | LeaseState::Closed => {
                    lost.push(tenure.clone());
                    false
                }
                LeaseState::Released => false,
            });
            if !lost.is_empty() {
                os::MutexGuard::unlocked(&mut list, || {
                    for tenure in lost.drain(..) {
                        self.report(&tenure);
                    }
                });
                continue;
            }
            if list.stop {
                return;
            }
            if !self.call() {
                wait = wait.min(Duration::from_secs(1));
            }
            list.planned = Some(os::now() + wait);
            self.changed.wait_for(&mut list, wait);
        }
    }
}
