//! Takes several locks as one: all of them in one request, or it waits for the name that is taken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::hold::MultiHold;
use crate::base::advice::Advice;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::base::lease::{Moment, SessionTerm, valid_until};
use crate::base::lock_name::LockName;
use crate::base::names::label;
use crate::base::primitive::Primitive;
use crate::base::random::Backoff;
use crate::hold::acquire::{check_kind, granted_too_late, refuse_own, refuse_reentry};
use crate::hold::guarded::{Hold, Side};
use crate::hold::terms::Terms;
use crate::lease::records::{HoldRequest, Owner};
use crate::os;
use crate::report::record::CallRecord;
use crate::store::{AcquireAll, AcquiredAll, Granted, Part};
use crate::sync::guard::HeldLock;
use crate::wait::attempt::{AcquireAttempt, Tried, Wanted, never_held};
use crate::wait::client_state::ClientState;
use crate::wait::contend::{Answer, queue_up};
use crate::wait::contender::Contender;

/// Takes all of the names, which are sorted and unique. `None` if the deadline passed; then none of
/// them is taken.
pub(super) fn take(
    client: &Arc<ClientState>,
    names: &[Arc<LockName>],
    terms: &Terms,
    deadline: Deadline,
    owner: Owner,
) -> Result<Option<MultiHold>> {
    client.seen.observer.record(Primitive::Multi, names, deadline, |record| {
        take_all(client, names, terms, deadline, owner, record)
    })
}

fn take_all(
    client: &Arc<ClientState>,
    names: &[Arc<LockName>],
    terms: &Terms,
    deadline: Deadline,
    owner: Owner,
    record: &mut CallRecord,
) -> Result<Option<MultiHold>> {
    let thread = os::thread::current().id();
    let mut held: Vec<Option<Hold>> =
        names.iter().map(|name| Hold::of_thread(client, &name.key, thread)).collect();
    for (name, hold) in names.iter().zip(&mut held) {
        if let Some(own) = hold {
            if owner == Owner::Guard {
                refuse_reentry(own, name, terms)?;
                if deadline == Deadline::Never {
                    refuse_own(client, name, thread)?;
                }
                *hold = None;
                continue;
            }
            check_kind(own, name)?;
            refuse_reentry(own, name, terms)?;
            own.may_reenter(Side::Main, terms.lease)?;
        }
    }
    let fresh: Vec<_> = names
        .iter()
        .zip(&held)
        .filter(|(_, hold)| hold.is_none())
        .map(|(name, _)| name.clone())
        .collect();
    let wanted = Wanted {
        all: &fresh,
        primitive: Primitive::Multi,
        permits: 1,
        lease: terms.lease,
        token: terms.token,
    };
    let attempt = AcquireAttempt::new(client, &names[0], wanted, terms.cancel.as_ref())?;
    if fresh.is_empty() {
        record.note_reentry();
    }
    let mut call = MultiLockCall { attempt, names, held, terms, owner, leads: false };
    let taken = call.take(deadline);
    call.attempt.end_wait(record);
    call.attempt.end(taken)
}

/// A call that acquires several holds.
struct MultiLockCall<'a> {
    attempt: AcquireAttempt<'a>,
    names: &'a [Arc<LockName>],
    /// For each name, the hold of this thread that is re-entered, if any.
    held: Vec<Option<Hold>>,
    terms: &'a Terms,
    owner: Owner,
    /// It leads the local queue of one of the names.
    leads: bool,
}

/// The result of an attempt, and what ends the wait for one name.
enum MultiLockStep {
    Won(MultiHold),
    /// The name at `at` is held by another.
    BlockedAt {
        at: usize,
        ttl: Option<Duration>,
    },
}

/// The time for which one of the servers could not be asked, while this call waited.
struct PartOutage {
    since: Instant,
    pause: Backoff,
}

impl PartOutage {
    fn begin() -> Self {
        Self {
            since: os::now(),
            pause: Backoff::new(Duration::from_millis(20), Duration::from_secs(1)),
        }
    }
}

/// Other threads of the client cannot help it: an acquire in the queue takes one name, and this
/// call needs all of them.
impl<'a> Contender<'a> for MultiLockCall<'a> {
    type Won = MultiLockStep;

    fn attempt(&mut self) -> &mut AcquireAttempt<'a> {
        &mut self.attempt
    }

    fn try_once(&mut self, waits: bool) -> Result<Tried<MultiLockStep>> {
        Ok(match self.step(waits)? {
            MultiLockStep::BlockedAt { at, ttl }
                if Arc::ptr_eq(&self.names[at], self.attempt.name) =>
            {
                Tried::Busy(ttl)
            }
            // Blocked by another name: this call leaves the queue, because the next waiter in it
            // may be able to take this name.
            step => Tried::Won(step),
        })
    }
}

impl MultiLockCall<'_> {
    fn take(&mut self, deadline: Deadline) -> Result<Option<MultiHold>> {
        let mut has_waited = false;
        let mut outage = None;
        // The first attempt joins no queue: only its reply says which name to wait for.
        self.attempt.may_wait = deadline != Deadline::Now;
        let mut step = self.step(deadline != Deadline::Now && !self.attempt.must_announce());
        loop {
            step = match step {
                Ok(MultiLockStep::Won(hold)) => return Ok(Some(hold)),
                Ok(MultiLockStep::BlockedAt { .. }) if deadline == Deadline::Now => {
                    return Ok(None);
                }
                Ok(MultiLockStep::BlockedAt { at, ttl }) => {
                    // A node that was away is asked first, so it has answered.
                    (has_waited, outage) = (true, None);
                    match self.queue_at(at, deadline, ttl) {
                        Ok(None) => return Ok(None),
                        step => step.map(|step| step.expect("it was just checked")),
                    }
                }
                Err(error) if has_waited && error.is_of_a_part() => {
                    self.stand_back(outage.get_or_insert_with(PartOutage::begin), deadline, error)?;
                    self.step(true)
                }
                Err(error) => return Err(error),
            };
        }
    }

    /// Waits in the queue of the name that is taken.
    fn queue_at(
        &mut self,
        at: usize,
        deadline: Deadline,
        ttl: Option<Duration>,
    ) -> Result<Option<MultiLockStep>> {
        let names = self.names;
        // It is in one queue at a time. With a place in two queues, two calls could each be the
        // leader that the other waits for.
        self.attempt.set_name(&names[at]);
        self.leads = true;
        let step = queue_up(self, deadline, Some(Answer::before_queueing(ttl)));
        self.leads = false;
        step
    }

    /// One of the servers cannot be asked. The call waits for that one outside of all queues, and
    /// holds nothing meanwhile: whoever wants only the other names must not wait with it.
    ///
    /// # Errors
    /// The outage of that server has lasted for the outage timeout, the deadline has passed, or the
    /// wait was ended.
    fn stand_back(
        &mut self,
        outage: &mut PartOutage,
        deadline: Deadline,
        error: Error,
    ) -> Result<()> {
        let AcquireAttempt { client, cancel, .. } = self.attempt;
        let left = client.config.outage_timeout.saturating_sub(os::since(outage.since));
        let pause = outage.pause.next().min(left);
        let pause = deadline.remaining(os::now()).map_or(pause, |left| left.min(pause));
        // A place that is only its own, where a close and a cancel find it.
        let place = client.local_queues.at_server(&self.attempt.holder);
        let _woken = cancel.map(|token| token.wakes(place.event().clone()));
        // Whatever ended the wait before this is seen here; later, it wakes the call.
        place.event().clear();
        self.attempt.ensure_waits()?;
        place.event().wait(pause);
        self.attempt.ensure_waits()?;
        let lasted = os::since(outage.since);
        if lasted >= client.config.outage_timeout {
            let why = format!("given up after {lasted:.1?} of waiting for the server");
            return Err(error.and_also(why).advise(Advice::RaiseOutageTimeout));
        }
        if deadline != Deadline::Never && deadline.has_passed(os::now()) {
            Err(error)
        } else {
            Ok(())
        }
    }

    /// One attempt, in one round trip. `waits`: another follows if a name is taken.
    fn step(&mut self, waits: bool) -> Result<MultiLockStep> {
        let Self { attempt, names, held, terms, leads, .. } = self;
        // A hold of this thread may be lost while it waits for the other names.
        held.iter().flatten().try_for_each(|hold| hold.ensure_held())?;
        let acquired = attempt.ask_with(|attempt, unknowns| {
            attempt.note_marker(waits);
            let part =
                |(name, hold): (&'_ Arc<LockName>, &'_ Option<Hold>)| -> (Arc<LockName>, _, u32) {
                    match hold {
                        Some(hold) => (
                            name.clone(),
                            hold.tenure().store_hold.asked.holder.clone(),
                            hold.tenure().counts().main,
                        ),
                        None => (name.clone(), attempt.holder.clone(), 0),
                    }
                };
            let parts: Vec<_> = names.iter().zip(held.iter()).map(part).collect();
            let parts = parts
                .iter()
                .map(|(name, holder, held)| Part { name, holder, held: *held })
                .collect();
            let lease = terms.lease;
            let token = terms.token;
            let goes_on = attempt.may_wait;
            let request = AcquireAll { parts, lease, token, waits, goes_on, leads: *leads };
            attempt.client.store.multi()?.acquire_all(&request, unknowns)
        });
        attempt.note_all(&acquired);
        match acquired.map_err(|e| self.named(e))? {
            AcquiredAll::Granted { tokens, sent_at, session } => {
                self.begin(&tokens, sent_at, session.as_ref()).map(MultiLockStep::Won)
            }
            AcquiredAll::Busy { at, ttl } => Ok(MultiLockStep::BlockedAt { at, ttl }),
            AcquiredAll::Gone { at } => Err(match &self.held[at] {
                Some(hold) => hold.gone(),
                None => never_held(&self.names[at].name),
            }),
        }
    }

    fn named(&self, error: Error) -> Error {
        if error.name().is_some() { error } else { error.for_name(&label(self.names.iter())) }
    }

    /// Turns a grant into holds, unless a lease ended before the reply arrived.
    fn begin(
        &mut self,
        tokens: &[u64],
        sent_at: Moment,
        session: Option<&Arc<SessionTerm>>,
    ) -> Result<MultiHold> {
        let Self { attempt, names, held, terms, owner, .. } = self;
        let client = attempt.client;
        let in_time =
            held.iter().flatten().try_for_each(|hold| hold.reentered(sent_at, terms.lease));
        let ends = session.map_or(Moment::NEVER, |session| session.until());
        let late = client.clock.now() >= valid_until(sent_at, terms.lease).min(ends);
        if late || in_time.is_err() {
            attempt.give_up();
            return Err(in_time
                .err()
                .unwrap_or_else(|| granted_too_late().for_name(&label(names.iter()))));
        }
        let mut parts = Vec::with_capacity(names.len());
        let mut begun = Ok(());
        for ((name, own), token) in names.iter().zip(held.iter()).zip(tokens) {
            let hold = match own {
                Some(hold) => {
                    hold.tenure().add_count(Side::Main);
                    Ok(hold.clone())
                }
                None => {
                    let asked =
                        HoldRequest { name: name.clone(), ..attempt.asked(sent_at, terms.renewed) };
                    let granted =
                        Granted { token: *token, sent_at, session: session.cloned(), next: None };
                    let hold = client.watchdog.granted(asked, granted);
                    Hold::begin(client, hold, terms.user(*owner))
                }
            };
            match hold {
                Ok(hold) => parts.push(hold),
                Err(e) => begun = Err(e),
            }
            if begun.is_err() {
                break;
            }
        }
        let hold = MultiHold::new(client, parts);
        if let Err(e) = begun {
            // The client was closed in the meantime: gives up the holds that have begun, and undoes
            // the grants that have not.
            let _ = hold.release_one(Side::Main);
            attempt.give_up();
            return Err(e);
        }
        let fresh = hold.parts().iter().zip(held.iter()).filter(|(_, own)| own.is_none());
        for (part, _) in fresh {
            part.tenure().store_hold.begin_min_hold(terms.min_hold);
        }
        Ok(hold)
    }
}
