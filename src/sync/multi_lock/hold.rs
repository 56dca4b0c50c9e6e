//! What a guard of a multi-lock holds: one hold for each name, all given up together.

use std::sync::Arc;
use std::time::Duration;

use crate::base::deadline::Deadline;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::LeaseState;
use crate::base::loss::LossWait;
use crate::base::names::label;
use crate::hold::guarded::{Hold, Side};
use crate::hold::leaving::Leaving;
use crate::os;
use crate::report::record::Taken;
use crate::report::spans::HoldEnd;
use crate::signal::cancel::CancelToken;
use crate::signal::event::Event;
use crate::store::{Release, Renewal, UnknownOutcomes};
use crate::sync::guard::HeldLock;
use crate::wait::client_state::ClientState;

/// One level of each of several holds.
pub(crate) struct MultiHold {
    client: Arc<ClientState>,
    /// Sorted by name. Empty only after an acquire that failed, and never in a guard.
    parts: Vec<Hold>,
    label: String,
}

impl MultiHold {
    pub(super) fn new(client: &Arc<ClientState>, parts: Vec<Hold>) -> Self {
        let label = label(parts.iter().map(|hold| hold.tenure().lock_name()));
        Self { client: client.clone(), parts, label }
    }

    /// One that has data is given up on its own, because the end of its data is written with it.
    fn send(&self, leaving: Vec<Leaving>) -> Result<()> {
        let (alone, together): (Vec<_>, Vec<_>) = leaving.into_iter().partition(Leaving::ends_data);
        let together = if together.is_empty() { Ok(()) } else { self.send_together(together) };
        worst(alone.into_iter().map(Leaving::send).chain([together]))
    }

    fn send_together(&self, leaving: Vec<Leaving>) -> Result<()> {
        let holds: Vec<_> = leaving
            .iter()
            .map(|part| (part.hold.tenure().store_hold.clone(), part.counts))
            .collect();
        let releases: Vec<Release<'_>> =
            holds.iter().map(|(hold, counts)| hold.release(*counts)).collect();
        let mut unknowns = UnknownOutcomes::default();
        let answers =
            self.client.store.multi().and_then(|multi| multi.release_all(&releases, &mut unknowns));
        let outcomes = match answers {
            Ok(outcomes) => outcomes,
            Err(e) => leaving.iter().map(|_| Err(e.clone())).collect(),
        };
        worst(
            leaving
                .into_iter()
                .zip(outcomes)
                .map(|(part, outcome)| part.finish(outcome, unknowns.clone())),
        )
    }
}

impl HeldLock for MultiHold {
    const IS_SET: bool = true;

    fn parts(&self) -> &[Hold] {
        &self.parts
    }

    fn name(&self) -> &str {
        &self.label
    }

    /// Like [`Tenure::wait_lost`](crate::lease::records::Tenure::wait_lost), for the first of
    /// several leases to end. A loss of one takes precedence over the release of another.
    fn wait_lost(&self, timeout: Duration, cancel: Option<&CancelToken>) -> LossWait {
        if self.client.is_forked() {
            return LossWait::Released;
        }
        let deadline = Deadline::after(os::now(), timeout);
        let watch = LossWatch::new(&self.parts);
        let _woken = cancel.map(|token| token.wakes(watch.event.clone()));
        loop {
            // Cleared before the states are read: a loss after that notifies the event again.
            watch.event.clear();
            let mut pause = Duration::MAX;
            let mut released = false;
            for hold in &self.parts {
                match hold.tenure().state() {
                    LeaseState::Lost | LeaseState::Closed => return LossWait::Lost,
                    LeaseState::Released => released = true,
                    LeaseState::Held | LeaseState::Suspect => {
                        pause = pause.min(hold.tenure().pause());
                    }
                }
            }
            let left = deadline.remaining(os::now()).unwrap_or(Duration::MAX);
            if released {
                return LossWait::Released;
            }
            if left.is_zero() || cancel.is_some_and(CancelToken::is_cancelled) {
                return LossWait::StillHeld;
            }
            watch.event.wait(pause.min(left).max(Duration::from_micros(50)));
        }
    }

    fn extend(&self, lease: Duration) -> Result<()> {
        let renewals = self
            .parts
            .iter()
            .map(|hold| hold.extension(lease))
            .collect::<Result<Vec<Renewal>>>()?;
        let answers = self.client.store.extend(&renewals).map_err(|e| e.for_name(self.name()))?;
        let extended =
            self.parts.iter().zip(answers).map(|(hold, renewed)| hold.extended(lease, renewed));
        // Not with `?`: the reply for each hold must be applied, even after one that is gone.
        worst(extended)
    }

    /// Gives up one level of each, even after one of them has failed.
    fn release_one(&self, side: Side) -> Result<()> {
        if self.client.is_forked() {
            return self.client.check_usable().map_err(|e| e.for_name(self.name()));
        }
        // Counted before a lease leaves its live states, as for one lock.
        let call = self.client.life.count_call();
        let mut leaving = Vec::with_capacity(self.parts.len());
        let left_here = worst(self.parts.iter().map(|hold| {
            leaving.extend(hold.leave_one(side)?);
            Ok(())
        }));
        let sent = if leaving.is_empty() { Ok(()) } else { self.send(leaving) };
        // A close need not wait for the listener: nothing is left to release.
        drop(call);
        for part in &self.parts {
            part.tell_end(HoldEnd::Released);
        }
        worst([left_here, sent].into_iter())
    }
}

impl Taken for MultiHold {
    fn begin_span(&self) {
        for part in &self.parts {
            part.begin_span();
        }
    }
}

impl std::fmt::Debug for MultiHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MultiHold").field("parts", &self.parts).finish_non_exhaustive()
    }
}

/// The first error, with a loss before any other. It consumes the whole iterator, whereas
/// `try_for_each` would skip the holds after an error.
fn worst(all: impl Iterator<Item = Result<()>>) -> Result<()> {
    let rank = |error: &Error| match error.kind() {
        ErrorKind::Lost => 0,
        ErrorKind::Closed => 1,
        _ => 2,
    };
    let errors: Vec<Error> = all.filter_map(Result::err).collect();
    errors.into_iter().min_by_key(rank).map_or(Ok(()), Err)
}

/// An event that is notified when any of several leases has ended, while this value lives.
struct LossWatch<'h> {
    event: Arc<Event>,
    parts: &'h [Hold],
}

impl<'h> LossWatch<'h> {
    fn new(parts: &'h [Hold]) -> Self {
        let event = Arc::default();
        for hold in parts {
            hold.tenure().add_event(&event);
        }
        Self { event, parts }
    }
}

impl Drop for LossWatch<'_> {
    fn drop(&mut self) {
        for hold in self.parts {
            hold.tenure().remove_event(&self.event);
        }
    }
}
