//! Taking a lock: one more level of the calling thread's hold, or a new hold.

use std::sync::Arc;

use crate::base::counters::HandOver;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::{LeaseState, Moment};
use crate::base::lock_name::{Kind, LockName};
use crate::hold::guarded::{Hold, Side};
use crate::hold::terms::Terms;
use crate::lease::records::Owner;
use crate::lease::store_hold::Admission;
use crate::os::{self, thread::ThreadId};
use crate::report::record::CallRecord;
use crate::store::{Acquire, Acquired, Granted, TokenRule, UnknownOutcomes, Waiting};
use crate::wait::attempt::{AcquireAttempt, Tried, Wanted};
use crate::wait::client_state::ClientState;
use crate::wait::contend::contend;
use crate::wait::contender::Contender;
use crate::wait::piggyback::Piggyback;

/// Re-enters the hold of the calling thread, or takes the lock for it. `None` if it could not be
/// taken by the deadline. The caller has checked that the client is usable.
pub(crate) fn acquire_for_thread(
    client: &Arc<ClientState>,
    name: &Arc<LockName>,
    terms: &Terms,
    deadline: Deadline,
) -> Result<Option<Hold>> {
    client.seen.observer.record(name.kind.into(), std::slice::from_ref(name), deadline, |record| {
        let thread = os::thread::current().id();
        match Hold::of_thread(client, &name.key, thread) {
            Some(hold) => {
                record.note_reentry();
                reenter(client, &hold, name, terms).map(|()| Some(hold))
            }
            None => acquire(client, name, 1, terms, deadline, Owner::Thread(thread), record),
        }
    })
}

/// Takes the lock for a guard that is bound to no thread. `None` if it could not be taken by the
/// deadline. The caller has checked that the client is usable.
pub(crate) fn acquire_owned(
    client: &Arc<ClientState>,
    name: &Arc<LockName>,
    permits: u32,
    terms: &Terms,
    deadline: Deadline,
) -> Result<Option<Hold>> {
    client.seen.observer.record(name.kind.into(), std::slice::from_ref(name), deadline, |record| {
        let thread = os::thread::current().id();
        if name.kind == Kind::Write {
            refuse_upgrade(client, name, thread)?;
        }
        // The guards of a hold of this thread cannot leave it: the thread would wait for itself.
        if let Some(hold) = Hold::of_thread(client, &name.key, thread) {
            refuse_reentry(&hold, name, terms)?;
        }
        if deadline == Deadline::Never {
            refuse_own(client, name, thread)?;
        }
        acquire(client, name, permits, terms, deadline, Owner::Guard, record)
    })
}

/// Refuses a writer that would wait for ever for a reader of its own thread.
fn refuse_upgrade(client: &Arc<ClientState>, name: &LockName, thread: ThreadId) -> Result<()> {
    match Hold::of_thread(client, &name.key, thread) {
        Some(hold) if hold.tenure.counts().main == 0 => hold.ensure_held().and(Err(Error::named(
            ErrorKind::Conflict,
            &name.name,
            "this thread holds the lock for reading, and a writer would wait for that for ever: drop the read guard \
             first, or take the write lock from the start and downgrade it",
        ))),
        _ => Ok(()),
    }
}

/// Refuses re-entry if either handle is non-reentrant, the one that asks or the one that took the
/// hold: under work stealing the job that asks may not be the job that holds the lock. Waiting is
/// no alternative, because the thread would wait for itself.
pub(crate) fn refuse_reentry(hold: &Hold, name: &LockName, terms: &Terms) -> Result<()> {
    if terms.reentrant && hold.tenure.user.reentrant {
        return Ok(());
    }
    let why = if name.kind == Kind::Job {
        "this thread runs an occurrence of this job: return from that first, or call on another thread"
    } else {
        "this thread holds the lock, and one of the two handles is non_reentrant: release it first, or call on another \
         thread"
    };
    hold.ensure_held().and(Err(Error::named(ErrorKind::Conflict, &name.name, why)))
}

/// Refuses an owned acquire that would wait for ever for a hold of its own thread: the guards of
/// that hold cannot leave the thread, and its lease does not end by itself. The hold of an owned
/// guard is different: another thread may drop it.
pub(crate) fn refuse_own(
    client: &Arc<ClientState>,
    name: &LockName,
    thread: ThreadId,
) -> Result<()> {
    match Hold::of_thread(client, &name.key, thread) {
        Some(hold)
            if hold.tenure.lock_name().kind.is_same_lock_as(name.kind)
                && (!name.kind.is_read() || hold.tenure.counts().main > 0)
                && hold.tenure.is_renewed_for_ever()
                && hold.is_held() =>
        {
            Err(Error::named(
                ErrorKind::Conflict,
                &name.name,
                "this thread holds the lock with a guard that is bound to the thread, and an owned call would wait for \
                 that for ever: drop the first guard, or take an owned one first",
            ))
        }
        _ => Ok(()),
    }
}

fn reenter(
    client: &Arc<ClientState>,
    hold: &Hold,
    name: &Arc<LockName>,
    terms: &Terms,
) -> Result<()> {
    check_kind(hold, name)?;
    refuse_reentry(hold, name, terms)?;
    let counts = hold.tenure.counts();
    let (side, held) = match name.kind {
        // Nothing is sent: at the server the read levels would share the holder, and the late undo
        // of one would remove the next, which would let a writer in beside a reader.
        Kind::Read if counts.main > 0 => return hold.nest_read(),
        Kind::Read => (Side::Read, counts.reads),
        Kind::Write => {
            refuse_upgrade(client, name, os::thread::current().id())?;
            (Side::Main, counts.main)
        }
        _ => (Side::Main, counts.main),
    };
    let entered = hold.reenter(side, terms.lease, || reenter_once(client, hold, name, terms, held));
    entered.map_err(|e| match e.kind() {
        ErrorKind::Lost => {
            e.advise("this thread gets the lock again once it has dropped the guard")
        }
        _ => e,
    })
}

/// Refuses a thread that holds a lock of another kind under the name: it would wait for itself.
pub(crate) fn check_kind(hold: &Hold, name: &LockName) -> Result<()> {
    if hold.tenure.lock_name().kind.is_same_primitive_as(name.kind) {
        return Ok(());
    }
    let why = "this thread holds a lock of another kind under this name";
    Err(Error::named(ErrorKind::Conflict, &name.name, why))
}

#[cold]
pub(crate) fn granted_too_late() -> Error {
    Error::new(
        ErrorKind::Unreachable,
        "the lock was granted, but the answer came after its lease had ended",
    )
}

/// Returns when the granted request was sent; `None` if the hold is gone. That it is busy says
/// nothing of the hold: no other can have the lock while this one has it.
fn reenter_once(
    client: &ClientState,
    hold: &Hold,
    name: &Arc<LockName>,
    terms: &Terms,
    held: u32,
) -> Result<Option<Moment>> {
    let holder = &hold.tenure.store_hold.asked.holder;
    let lease = terms.lease;
    let token = TokenRule::Off;
    let waiting = Waiting::No;
    let goes_on = false;
    let request =
        Acquire { name, holder, permits: 1, lease, held, token, tokens: 1, waiting, goes_on };
    match client
        .store
        .acquire(&request, &mut UnknownOutcomes::default())
        .map_err(|e| e.for_name(&name.name))?
    {
        Acquired::Granted(Granted { sent_at, .. }) => Ok(Some(sent_at)),
        Acquired::Gone => Ok(None),
        Acquired::Busy { .. }
        | Acquired::Queued { .. }
        | Acquired::Split { .. }
        | Acquired::TooFew { .. } => {
            let why = "the store did not look at this hold, so the lock was not re-entered";
            Err(Error::named(ErrorKind::NotReady, &name.name, why))
        }
    }
}

fn acquire(
    client: &Arc<ClientState>,
    name: &Arc<LockName>,
    permits: u32,
    terms: &Terms,
    deadline: Deadline,
    owner: Owner,
    record: &mut CallRecord,
) -> Result<Option<Hold>> {
    let wanted = Wanted {
        all: std::slice::from_ref(name),
        primitive: name.kind.into(),
        permits,
        lease: terms.lease,
        token: terms.token,
    };
    let mut attempt = AcquireAttempt::new(client, name, wanted, terms.cancel.as_ref())?;
    if let Some(data) = &terms.data {
        attempt.writes(data);
    }
    let passes_on = client.store.passes_on();
    let mut call = LockCall {
        attempt,
        terms,
        owner,
        takes_turns: passes_on && name.kind == Kind::Mutex && terms.may_pass_on(),
        joins: passes_on && name.kind.is_read() && terms.renewed,
    };
    if let Some(hold) = call.join_at_once()? {
        return Ok(Some(hold));
    }
    contend(&mut call, deadline, record)
}

/// A call that acquires a hold.
struct LockCall<'a> {
    attempt: AcquireAttempt<'a>,
    terms: &'a Terms,
    owner: Owner,
    /// Its hold may pass on to other threads of the client, and theirs to it.
    takes_turns: bool,
    /// It may share a hold with other threads of the client.
    joins: bool,
}

impl<'a> Contender<'a> for LockCall<'a> {
    type Won = Hold;

    fn attempt(&mut self) -> &mut AcquireAttempt<'a> {
        &mut self.attempt
    }

    fn try_once(&mut self, waits: bool) -> Result<Tried<Hold>> {
        match self.attempt.ask(waits)? {
            Tried::Won(granted) => self.begin(granted).map(Tried::Won),
            Tried::Busy(ttl) => Ok(Tried::Busy(ttl)),
        }
    }

    fn queues_with_others(&self) -> bool {
        self.joins
    }

    /// A call that does not wait never gets a parked hold: while threads wait, the lock is not free
    /// for it.
    fn barge(&mut self) -> Result<Option<Hold>> {
        let AcquireAttempt { client, name, .. } = self.attempt;
        if !self.takes_turns {
            return Ok(None);
        }
        match client.local_queues.barge(&name.key, self.terms.lease, self.terms.token) {
            Some(parked) => self.take_over(parked),
            None => Ok(None),
        }
    }

    fn draw_tokens(&mut self, tokens: u32) {
        self.attempt.tokens =
            if self.takes_turns && self.terms.token == TokenRule::On { tokens } else { 1 };
    }

    fn piggyback(&mut self) -> Option<Piggyback> {
        self.attempt.begin_request();
        Some(Piggyback::new(&self.attempt.request(true), self.takes_turns || self.joins))
    }

    fn take_over(&mut self, admission: Admission) -> Result<Option<Hold>> {
        let Self { attempt, terms, owner, .. } = self;
        let how =
            if admission.hold.is_shared_within() { HandOver::Joined } else { HandOver::PassedOn };
        let hold = Hold::succeed(attempt.client, admission, terms.user(*owner))?;
        if hold.is_some() {
            attempt.client.seen.observer.handed_over(attempt.name, how);
        }
        Ok(hold)
    }

    fn take_grant(&mut self, token: u64) -> Result<Option<Hold>> {
        let Self { attempt, terms, owner, .. } = self;
        let granted = attempt.granted_by_release(token).filter(|_| terms.renewed);
        let Some((granted, until)) = granted else {
            return Ok(None);
        };
        let client = attempt.client;
        let asked = attempt.asked(granted.sent_at, true);
        let hold = client.watchdog.granted(asked, granted).ending_at(until);
        if hold.state() == LeaseState::Lost {
            // The message comes after the end of the place: the lock may be another's by now.
            return Ok(None);
        }
        attempt.note_granted();
        let hold = Hold::begin(client, hold, terms.user(*owner))?;
        hold.tenure.store_hold.begin_min_hold(terms.min_hold);
        client.seen.observer.handed_over(attempt.name, HandOver::WithRelease);
        Ok(Some(hold))
    }

    fn on_piggyback_reply(
        &mut self,
        acquired: Result<Acquired>,
        unknowns: UnknownOutcomes,
    ) -> Result<Tried<Hold>> {
        match self.attempt.on_piggyback_reply(acquired, unknowns)? {
            Tried::Won(granted) => {
                let hold = self.begin(granted)?;
                self.attempt
                    .client
                    .seen
                    .observer
                    .handed_over(self.attempt.name, HandOver::WithRelease);
                Ok(Tried::Won(hold))
            }
            Tried::Busy(ttl) => Ok(Tried::Busy(ttl)),
        }
    }
}

impl LockCall<'_> {
    /// Joins the read hold of another thread of the client, if there is one. Threads that wait for
    /// the lock come first.
    fn join_at_once(&mut self) -> Result<Option<Hold>> {
        let AcquireAttempt { client, name, .. } = self.attempt;
        if !self.joins || client.local_queues.is_occupied(&name.key) {
            return Ok(None);
        }
        match client.holds.admit_reader(&name.key, self.terms.lease) {
            Some(admission) => self.take_over(admission),
            None => Ok(None),
        }
    }

    /// Turns a grant into a hold, unless its lease ended before the reply arrived.
    fn begin(&mut self, granted: Granted) -> Result<Hold> {
        let Self { attempt, terms, owner, takes_turns, joins } = self;
        let client = attempt.client;
        let mut hold =
            client.watchdog.granted(attempt.asked(granted.sent_at, terms.renewed), granted);
        if hold.state() == LeaseState::Lost {
            attempt.give_up();
            return Err(granted_too_late().for_name(&attempt.name.name));
        }
        if *takes_turns {
            hold = hold.passing_on(attempt.tokens);
        }
        if *joins {
            hold = hold.open_to_readers();
        }
        let hold = Hold::begin(client, hold, terms.user(*owner))?;
        hold.tenure.store_hold.begin_min_hold(terms.min_hold);
        if *joins {
            client.local_queues.let_readers_join(&hold.tenure.store_hold);
        }
        Ok(hold)
    }
}

#[cfg(test)]
#[path = "acquire_tests.rs"]
mod tests;
