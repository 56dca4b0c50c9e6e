//! Permits without leases, as a counting semaphore gives them: what one call has taken, from the
//! grant until they are given back, by their guard or by closing the client.
//!
//! They are no hold: nothing renews them, they cannot be lost, and no thread enters them again. In
//! the store they are taken and given back by the requests that all locks have, and not by the
//! [`CountStore`](crate::store::CountStore): a call that takes them waits, has unknown outcomes and
//! is undone as any other, so the wait loop and the undos would have to ask two traits.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Instant;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::lock_name::LockName;
use crate::lease::hold_table::OutstandingPermits;
use crate::lease::store_hold::RunLength;
use crate::os::{self, Mutex};
use crate::report::record::Taken;
use crate::report::spans::{HoldEnd, Span};
use crate::store::{Release, Released, Undo, UnknownOutcomes};
use crate::wait::client_state::ClientState;
use crate::wait::life::closed;

/// What one call has taken. Whoever has it must [give it back](Self::give_back) or
/// [keep it taken](Self::forget), once.
pub(crate) struct TakenPermits {
    client: Arc<ClientState>,
    name: Arc<LockName>,
    holder: Holder,
    permits: u32,
    since: Moment,
    /// What a tracer knows of them, until they are given back.
    span: Mutex<Option<Span>>,
}

// Like its client.
impl UnwindSafe for TakenPermits {}
impl RefUnwindSafe for TakenPermits {}

impl TakenPermits {
    /// From here on a close gives them back.
    pub(crate) fn begin(
        client: &Arc<ClientState>,
        name: &Arc<LockName>,
        holder: &Holder,
        permits: u32,
        since: Moment,
    ) -> Result<Self> {
        let thread = os::thread::current();
        let outstanding = OutstandingPermits { name: name.clone(), permits, since, thread };
        client.holds.outstanding_permits.lock().insert(holder.clone(), outstanding);
        let client = client.clone();
        let name = name.clone();
        let holder = holder.clone();
        let taken = Self { client, name, holder, permits, since, span: Mutex::default() };
        // A close that returned all outstanding permits just before the insert has not seen these.
        if taken.client.life.is_closed() {
            let _ = taken.give_back();
            return Err(closed().for_name(&taken.name.name));
        }
        Ok(taken)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name.name
    }

    pub(crate) fn permits(&self) -> u32 {
        self.permits
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.client.is_forked()
    }

    /// In a forked child: the permits are the parent's. The memory is kept too, because freeing it
    /// could end the client in this process.
    pub(crate) fn leave_to_parent(&self) {
        std::mem::forget(self.client.clone());
    }

    /// They stay taken at the store, and no close gives them back.
    pub(crate) fn forget(&self) {
        if !self.client.is_forked() {
            self.client.holds.outstanding_permits.lock().remove(&self.holder);
            self.end_span(HoldEnd::Forgotten);
        }
    }

    fn end_span(&self, end: HoldEnd) {
        let span = self.span.lock().take();
        if let Some(span) = span {
            self.client.seen.observer.end_span(span, |span| span.end_hold(end));
        }
    }

    pub(crate) fn give_back(&self) -> Result<()> {
        let Self { client, name, .. } = self;
        if client.is_forked() {
            return client.check_usable().map_err(|e| e.for_name(&name.name));
        }
        // Counted before they leave the table: a close either finds them there, or waits for this
        // call. Otherwise it could end the store and the watchdog before the request is sent, and
        // no lease would ever bring the permits back.
        let call = client.life.count_call();
        let observer = &client.seen.observer;
        let primitive = name.kind.into();
        let held = client.clock.now().since(self.since);
        observer.hold_ended(primitive, name, held);
        // Whoever removes them gives them back: of a guard and a close, only one does.
        if client.holds.outstanding_permits.lock().remove(&self.holder).is_none() {
            drop(call);
            self.end_span(HoldEnd::Closed);
            let why =
                "the client was closed, which gave these permits back: somebody else may have them";
            return Err(Error::named(ErrorKind::Closed, &name.name, why));
        }
        let given_back = self.send_back();
        // A close does not wait for code of the user.
        drop(call);
        self.end_span(HoldEnd::Released);
        observer.tell_of(&name.name, primitive, |listener, lock| listener.released(lock, held));
        given_back
    }

    fn send_back(&self) -> Result<()> {
        let Self { client, name, holder, permits, .. } = self;
        let received_before =
            client.local_queues.find(&name.key).map_or(0, |queue| queue.messages());
        match try_to_give_back(client, name, holder, *permits) {
            Ok(Released::Freed { listeners, .. }) => {
                client.notify_freed(name, RunLength::ONE, listeners, received_before);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(failed) => {
                client.watchdog.undo(failed.undo);
                Err(failed.error.for_name(&name.name))
            }
        }
    }
}

impl Taken for TakenPermits {
    fn begin_span(&self) {
        *self.span.lock() =
            self.client.seen.observer.hold_span(&self.name, self.name.kind.into(), 0);
    }
}

impl Drop for TakenPermits {
    fn drop(&mut self) {
        if let Some(span) = self.span.get_mut().take()
            && self.client.is_forked()
        {
            span.leave_to_parent();
        }
    }
}

/// A request that failed, and what gives the permits back in the background.
struct NotGivenBack {
    error: Error,
    undo: Undo,
}

/// One request.
fn try_to_give_back(
    client: &ClientState,
    name: &Arc<LockName>,
    holder: &Holder,
    permits: u32,
) -> std::result::Result<Released, Box<NotGivenBack>> {
    let mut unknowns = UnknownOutcomes::default();
    let asked_at = client.clock.now();
    let released = client.store.release(&Release::of_all(name, holder, permits), &mut unknowns);
    released.map_err(|error| {
        let undo = Undo::of_permits(name.clone(), holder.clone(), permits, unknowns, asked_at);
        Box::new(NotGivenBack { error, undo })
    })
}

/// Gives back all permits of the client that are out, one with each step. What fails, or comes too
/// late, is left to undo in the background, and why.
pub(super) fn give_back_all(
    client: &ClientState,
    deadline: Instant,
) -> impl Iterator<Item = (Undo, String)> {
    let all = std::mem::take(&mut *client.holds.outstanding_permits.lock());
    let give_back = move |(holder, OutstandingPermits { name, permits, .. })| {
        if os::now() >= deadline {
            let unknowns = UnknownOutcomes::default();
            let now = client.clock.now();
            return Some((
                Undo::of_permits(name, holder, permits, unknowns, now),
                "the timeout has passed".to_owned(),
            ));
        }
        let NotGivenBack { error, undo } =
            *try_to_give_back(client, &name, &holder, permits).err()?;
        Some((undo, error.message().to_owned()))
    };
    all.into_iter().filter_map(give_back)
}
