//! Counts what happens to the locks of a client, by primitive and by name, and notifies the user's
//! listener of it.
//!
//! Counting is on the path of every call, so it takes no mutex there: a name keeps its counters
//! itself. The table of names has a mutex, which is taken when a name is made and when a call has
//! waited.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::base::counters::{Counters, Figures, HandOver, Outcome};
use crate::base::error::{Error, ErrorKind};
use crate::base::lock_name::LockName;
use crate::base::log;
use crate::base::loss::LossReason;
use crate::base::primitive::Primitive;
use crate::os::{
    Mutex, OnceLock,
    atomic::{AtomicBool, Ordering},
};
use crate::report::listener::{Listener, LockInfo};
use crate::report::spans::{Span, SpanClient};

/// Names that are reported one by one.
const MOST_REPORTED: usize = 64;

#[derive(Default)]
pub(crate) struct Observer {
    /// Made when a primitive is first used: a client uses one or two.
    primitives: [OnceLock<Box<Counters>>; Primitive::ALL.len()],
    names: Mutex<Vec<Named>>,
    listener: Option<Arc<dyn Listener>>,
    span_client: SpanClient,
    /// The listener or the tracer has panicked, and that was logged.
    panicked: AtomicBool,
}

/// A name of the table. The counters are those of every [`LockName`] of this name and primitive: a
/// job has several, each with a key of its own.
struct Named {
    name: Arc<str>,
    primitive: Primitive,
    counters: Arc<Counters>,
}

impl Named {
    fn new(name: &LockName, counters: Arc<Counters>) -> Self {
        Self { name: name.name.clone(), primitive: name.kind.into(), counters }
    }

    fn is_of(&self, name: &LockName) -> bool {
        self.name == name.name && self.primitive == name.kind.into()
    }
}

impl Observer {
    pub(crate) fn new(listener: Option<Arc<dyn Listener>>, span_client: SpanClient) -> Self {
        Self { listener, span_client, ..Self::default() }
    }

    /// Called for a new name: it is reported as long as there is room. Never waits, because names
    /// are made in a forked child as well.
    pub(crate) fn meet(&self, name: &LockName) {
        let Some(mut names) = self.names.try_lock() else { return };
        match names.iter().find(|named| named.is_of(name)) {
            Some(named) => drop(name.counters.set(named.counters.clone())),
            None if names.len() < MOST_REPORTED => {
                let counters = Arc::new(Counters::default());
                if name.counters.set(counters.clone()).is_ok() {
                    names.push(Named::new(name, counters));
                }
            }
            None => {}
        }
    }

    /// The counters of a name that a call waits for, whether it is reported or not.
    fn contended(&self, name: &LockName) -> Arc<Counters> {
        let known = || {
            self.names
                .lock()
                .iter()
                .find(|named| named.is_of(name))
                .map(|named| named.counters.clone())
        };
        name.counters.get_or_init(|| known().unwrap_or_default()).clone()
    }

    /// Reports the name from now on if it was waited for longer than some other name in the table.
    fn promote(&self, name: &LockName, counters: &Arc<Counters>) {
        let mut names = self.names.lock();
        if names.iter().any(|named| named.is_of(name)) {
            return;
        }
        if names.len() < MOST_REPORTED {
            names.push(Named::new(name, counters.clone()));
            return;
        }
        let least = names.iter_mut().min_by_key(|named| named.counters.waited());
        if let Some(least) = least.filter(|least| least.counters.waited() < counters.waited()) {
            *least = Named::new(name, counters.clone());
        }
    }

    fn of(&self, primitive: Primitive) -> &Counters {
        self.primitives[primitive as usize].get_or_init(Box::default)
    }

    /// Counts it for the primitive, and for the name.
    fn count(&self, primitive: Primitive, name: &LockName, count: impl Fn(&Counters)) {
        count(self.of(primitive));
        if let Some(counters) = name.counters.get() {
            count(counters);
        }
    }

    /// A call has ended. `waited`: for how long, and for which of the names.
    pub(crate) fn call_ended(
        &self,
        primitive: Primitive,
        names: &[Arc<LockName>],
        outcome: Outcome<'_>,
        waited: Option<&(Arc<LockName>, Duration)>,
    ) {
        let mut time = None;
        if let Some((name, waited)) = waited {
            time = Some(*waited);
            let counters = self.contended(name);
            counters.ended(outcome, time);
            self.promote(name, &counters);
        }
        self.of(primitive).ended(outcome, time);
        for name in names {
            let is_counted = matches!(waited, Some((awaited, _)) if Arc::ptr_eq(awaited, name));
            if !is_counted && let Some(counters) = name.counters.get() {
                counters.ended(outcome, None);
            }
        }
    }

    /// A call was refused before it began. In a forked child nothing is counted: what another
    /// thread was about to make there is never made.
    #[cold]
    pub(crate) fn refused(&self, primitive: Primitive, error: &Error) {
        if error.kind() != ErrorKind::Forked {
            self.of(primitive).ended(Outcome::Failed(error), None);
        }
    }

    pub(crate) fn handed_over(&self, name: &LockName, how: HandOver) {
        self.count(name.kind.into(), name, |counters| counters.handed_over(how));
    }

    /// A hold that lasted this long is over.
    pub(crate) fn hold_ended(&self, primitive: Primitive, name: &LockName, held: Duration) {
        self.count(primitive, name, |counters| counters.held(held));
    }

    pub(crate) fn renewed(&self, primitive: Primitive, name: &LockName, done: bool) {
        self.count(primitive, name, |counters| counters.renewed(done));
    }

    /// The one place where a loss is counted, once for each hold.
    pub(crate) fn hold_lost(&self, primitive: Primitive, name: &LockName, reason: LossReason) {
        self.count(primitive, name, |counters| counters.lost(reason));
    }

    pub(crate) fn has_listener(&self) -> bool {
        self.listener.is_some()
    }

    /// Whether a listener or a tracer may want to know of the end of a hold.
    pub(crate) fn is_watched(&self) -> bool {
        cfg!(feature = "tracing") || self.has_listener()
    }

    /// Whether a wait that begins is reported to a listener or a tracer.
    pub(crate) fn calls_user(&self) -> bool {
        self.has_listener() || Span::may_be_wanted()
    }

    /// Notifies the listener, if there is one. Not to be called with a mutex held.
    pub(crate) fn tell(&self, tell: impl FnOnce(&dyn Listener)) {
        if let Some(listener) = &self.listener {
            let _ = self.without_panics("listener", || tell(&**listener));
        }
    }

    /// Calls code of the user. `None` if it panics: a call of this crate must go on.
    fn without_panics<T>(&self, whose: &str, call: impl FnOnce() -> T) -> Option<T> {
        let called = catch_unwind(AssertUnwindSafe(call));
        if called.is_err() && !self.panicked.swap(true, Ordering::Relaxed) {
            log::warn!("the {whose} of this client panicked; later panics of it are not logged");
        }
        called.ok()
    }

    /// The span of a wait that begins. As for [`tell`](Self::tell), no mutex may be held where a
    /// span begins or ends.
    pub(crate) fn wait_span(&self, name: &LockName, primitive: Primitive) -> Option<Span> {
        self.without_panics("tracer", || Span::of_wait(&self.span_client, &name.name, primitive))?
    }

    /// The span of a hold that begins. `token`: its fencing token; 0 for none.
    pub(crate) fn hold_span(
        &self,
        name: &LockName,
        primitive: Primitive,
        token: u64,
    ) -> Option<Span> {
        self.without_panics("tracer", || {
            Span::of_hold(&self.span_client, &name.name, primitive, token)
        })?
    }

    pub(crate) fn end_span(&self, span: Span, end: impl FnOnce(&Span)) {
        // Two calls: a tracer that panics while it is unwound by a panic ends the process.
        let _ = self.without_panics("tracer", || end(&span));
        let _ = self.without_panics("tracer", || span.close());
    }

    /// Notifies the listener of something that happened to one lock.
    pub(crate) fn tell_of(
        &self,
        name: &str,
        primitive: Primitive,
        tell: impl FnOnce(&dyn Listener, &LockInfo<'_>),
    ) {
        self.tell(|listener| tell(listener, &LockInfo::new(name, primitive)));
    }

    /// The figures of each primitive that was used.
    pub(crate) fn primitives(&self) -> Vec<(Primitive, Figures)> {
        let used = |primitive: &Primitive| {
            Some((*primitive, self.primitives[*primitive as usize].get()?.read()))
        };
        Primitive::ALL.iter().filter_map(used).collect()
    }

    /// The names of the table with their figures, those with the most waiting time first.
    pub(crate) fn names(&self) -> Vec<(Arc<str>, Primitive, Figures)> {
        let listed: Vec<_> = {
            let names = self.names.lock();
            names
                .iter()
                .map(|named| (named.name.clone(), named.primitive, named.counters.clone()))
                .collect()
        };
        let mut read: Vec<_> = listed
            .into_iter()
            .map(|(name, primitive, counters)| (name, primitive, counters.read()))
            .collect();
        read.sort_by(|(one, .., a), (other, .., b)| {
            b.waits()
                .sum()
                .cmp(&a.waits().sum())
                .then(b.calls().cmp(&a.calls()))
                .then(one.cmp(other))
        });
        read
    }
}

#[cfg(test)]
#[path = "observer_tests.rs"]
mod tests;
