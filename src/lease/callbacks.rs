//! What a user registers for when a lease is lost or cannot be renewed, and the list of those that
//! are notified of a tenure.

use std::convert::Infallible;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Weak};

use crossbeam_channel::Receiver;

use crate::base::loss::{Loss, RenewalFailure};
use crate::os::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};
use crate::report::spans::Span;
use crate::signal::event::Event;

pub(crate) enum Callback {
    Run(Box<dyn FnOnce(&Loss) + Send>),
    /// Only dropped: that disconnects receivers, cancels a token, or frees what never runs again.
    Drop(Box<dyn Send>),
}

pub(crate) type TroubleCallback = Arc<dyn Fn(&RenewalFailure) + Send + Sync>;

/// Runs when a lease is lost. It runs once, even if it was registered with several leases.
pub(crate) struct OnLost(pub(super) Arc<CallbackPlace>);

/// Empty once a thread has taken the callback to run it, or its guard has taken it back.
pub(super) type CallbackPlace = Mutex<Option<Callback>>;

impl OnLost {
    pub(crate) fn new(callback: impl FnOnce(&Loss) + Send + 'static) -> Self {
        Self::of(Callback::Run(Box::new(callback)))
    }

    /// Drops this when a lease is lost, or its guard is given up, at once: no callback can delay
    /// it.
    pub(crate) fn by_drop(what: impl Send + 'static) -> Self {
        Self::of(Callback::Drop(Box::new(what)))
    }

    fn of(callback: Callback) -> Self {
        Self(Arc::new(Mutex::new(Some(callback))))
    }
}

/// Runs when renewal begins to fail, and again after it had succeeded.
pub(crate) struct OnTrouble {
    /// Empty once its guard has taken it back, so the thread that renews never drops user code.
    callback: Mutex<Option<TroubleCallback>>,
    /// It was called, and no renewal has succeeded since: if several leases fail together, one of
    /// them calls it.
    called: AtomicBool,
}

impl OnTrouble {
    /// A renewal has failed. Whether it is the first in a row, so that this has to be called.
    pub(super) fn begin(&self) -> bool {
        !self.called.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end(&self) {
        self.called.store(false, Ordering::Release);
    }

    pub(super) fn call(&self, trouble: &RenewalFailure) {
        let callback = self.callback.lock().clone();
        if let Some(callback) = callback {
            callback(trouble);
        }
    }
}

/// What was registered through one guard. Made when it is first needed, because few guards have
/// any.
#[derive(Default)]
pub(crate) struct Callbacks(Mutex<Option<Box<Registered>>>);

// Callbacks are only taken out, whole.
impl UnwindSafe for Callbacks {}
impl RefUnwindSafe for Callbacks {}

#[derive(Default)]
struct Registered {
    on_lost: Vec<OnLost>,
    on_trouble: Vec<Arc<OnTrouble>>,
    /// Shared by all callers of `lost`: a loop that calls it in each iteration must not register a
    /// new one each time.
    lost: Option<Receiver<Infallible>>,
}

impl Callbacks {
    pub(crate) fn add(&self, callback: OnLost) {
        self.0.lock().get_or_insert_default().on_lost.push(callback);
    }

    pub(crate) fn add_on_trouble(&self, callback: TroubleCallback) -> Arc<OnTrouble> {
        let callback = Arc::new(OnTrouble {
            callback: Mutex::new(Some(callback)),
            called: AtomicBool::new(false),
        });
        self.0.lock().get_or_insert_default().on_trouble.push(callback.clone());
        callback
    }

    /// A channel that is disconnected when the lease is lost; the first call gives `register` what
    /// disconnects it.
    pub(crate) fn lost(&self, register: impl FnOnce(&OnLost)) -> Receiver<Infallible> {
        let mut own = self.0.lock();
        let registered = own.get_or_insert_default();
        if let Some(lost) = &registered.lost {
            return lost.clone();
        }
        let (sender, receiver) = crossbeam_channel::bounded(0);
        let on_lost = OnLost::by_drop(sender);
        registered.lost = Some(receiver.clone());
        drop(own);
        // Without the mutex: this may start a thread and log.
        register(&on_lost);
        self.add(on_lost);
        receiver
    }

    /// Takes the callbacks that have not run. From now on no other thread runs them: taken before a
    /// guard is given up, they run if and only if that finds a loss; otherwise they are dropped
    /// here, not by the thread that keeps deadlines.
    pub(crate) fn take(&mut self, is_forked: impl FnOnce() -> bool) -> Vec<Callback> {
        let Some(all) = self.0.get_mut().take() else { return Vec::new() };
        if is_forked() {
            // They belong to the parent: they are neither run nor dropped here, where a place may
            // be locked for ever.
            std::mem::forget(all);
            return Vec::new();
        }
        let on_trouble = all
            .on_trouble
            .into_iter()
            .filter_map(|one| one.callback.lock().take())
            .map(|callback| Callback::Drop(Box::new(callback)));
        all.on_lost
            .into_iter()
            .filter_map(|OnLost(place)| place.lock().take())
            .chain(on_trouble)
            .collect()
    }
}

/// Who is notified of the end of a tenure, and how it was lost.
#[derive(Default)]
pub(super) struct Listeners {
    /// The callbacks of all guards; those of dropped guards can no longer be upgraded.
    pub(super) callbacks: Vec<Weak<CallbackPlace>>,
    /// The thread that keeps deadlines watches the tenure.
    pub(super) is_watched: bool,
    /// Those to call when renewal begins to fail; those of dropped guards can no longer be
    /// upgraded.
    pub(super) on_trouble: Vec<Weak<OnTrouble>>,
    /// Events of threads that wait until any of several holds has ended.
    pub(super) events: Vec<Arc<Event>>,
    /// How it was lost, kept from the first time that it is read.
    pub(super) loss: Option<Loss>,
    /// What a tracer knows of it, until it has ended.
    pub(super) span: Option<Span>,
}
