//! The record of a call that takes something. Each call is counted once, whatever its outcome is,
//! and the listener and the tracer are told how it ended.

use std::sync::Arc;
use std::time::Duration;

use crate::base::counters::Outcome;
use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::base::lock_name::LockName;
use crate::base::primitive::Primitive;
use crate::report::observer::Observer;
use crate::report::spans::Span;

/// What is known of a call besides its result.
#[derive(Debug, Default)]
pub(crate) struct CallRecord {
    /// How long it has waited, and for which name last.
    waited: Option<(Arc<LockName>, Duration)>,
    reentered: bool,
    span: Option<Span>,
}

impl CallRecord {
    /// The call had to wait.
    pub(crate) fn note_wait(&mut self, name: &Arc<LockName>, time: Duration, span: Option<Span>) {
        self.waited = Some((name.clone(), time));
        self.span = span;
    }

    /// The call adds a level to a hold that its thread has.
    pub(crate) fn note_reentry(&mut self) {
        self.reentered = true;
    }
}

/// What a call takes.
pub(crate) trait Taken {
    /// Begins the spans of what is newly held. Called when nobody waits for this call any more: it
    /// renews what it has taken, and leads no queue. A tracer that blocks delays only its caller.
    fn begin_span(&self);
}

/// A latch was waited for, or permits of a rate limiter were taken: nothing is held.
impl Taken for () {
    fn begin_span(&self) {}
}

impl Observer {
    /// Runs a call that takes all of these names, and records how it ends.
    pub(crate) fn record<T: Taken>(
        &self,
        primitive: Primitive,
        names: &[Arc<LockName>],
        deadline: Deadline,
        call: impl FnOnce(&mut CallRecord) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut record = CallRecord::default();
        let result = call(&mut record);
        let CallRecord { waited, reentered, span } = record;
        let outcome = match &result {
            Ok(Some(_)) if reentered => Outcome::Reentered,
            Ok(Some(_)) => Outcome::Granted,
            Ok(None) if deadline == Deadline::Now => Outcome::Busy,
            Ok(None) => Outcome::TimedOut,
            Err(error) => Outcome::Failed(error),
        };
        self.call_ended(primitive, names, outcome, waited.as_ref());
        if let Some(span) = span {
            self.end_span(span, |span| span.end_wait(outcome));
        }
        if Span::may_be_wanted()
            && let Ok(Some(taken)) = &result
        {
            taken.begin_span();
        }
        if self.has_listener() {
            let time = waited.map(|(_, time)| time);
            let label = crate::base::names::label(names.iter());
            self.tell_of(&label, primitive, |listener, lock| match outcome {
                Outcome::Reentered => {}
                Outcome::Granted => listener.acquired(lock, time),
                Outcome::Busy | Outcome::TimedOut => listener.gave_up(lock, time, None),
                Outcome::Failed(error) => listener.gave_up(lock, time, Some(error)),
            });
        }
        result
    }
}
