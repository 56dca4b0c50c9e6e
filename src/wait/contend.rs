//! A call that may wait: it asks at once if no thread of its client comes before it. Otherwise, and
//! if the lock is taken, it queues behind the threads of its client, and then leads their queue in
//! the [wait loop](crate::wait::wait_loop).

use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::report::record::CallRecord;
use crate::signal::event::Event;
use crate::wait::attempt::{AcquireAttempt, Tried, begin_wait};
use crate::wait::contender::Contender;
use crate::wait::local_queue::{EnqueueOutcome, Entry};
pub(crate) use crate::wait::machine::Answer;
use crate::wait::wait_loop::{LeadEnd, has_answer, lead, try_first};

/// Blocks until the contender has won, or until the deadline (`None`).
///
/// # Errors
/// `Closed` and `Cancelled` when its wait was ended, among others. A grant that arrives at the same
/// moment wins.
pub(crate) fn contend<'a, C: Contender<'a>>(
    contender: &mut C,
    deadline: Deadline,
    record: &mut CallRecord,
) -> Result<Option<C::Won>> {
    let outcome = try_or_wait(contender, deadline);
    let attempt = contender.attempt();
    attempt.end_wait(record);
    attempt.end(outcome)
}

fn try_or_wait<'a, C: Contender<'a>>(
    contender: &mut C,
    deadline: Deadline,
) -> Result<Option<C::Won>> {
    if deadline == Deadline::Now {
        return match contender.try_once(false)? {
            Tried::Won(won) => Ok(Some(won)),
            Tried::Busy(_) => Ok(None),
        };
    }
    contender.attempt().may_wait = true;
    let first = match try_at_once(contender)? {
        Some(Tried::Won(won)) => return Ok(Some(won)),
        Some(Tried::Busy(ttl)) => Some(Answer::before_queueing(ttl)),
        None => None,
    };
    // Before it queues: the leader may be waking up for a hold that is parked for it.
    if first.is_none()
        && let Some(won) = contender.barge()?
    {
        return Ok(Some(won));
    }
    queue_up(contender, deadline, first)
}

/// Asks for the name, if no thread of this client comes before the call.
///
/// It leaves nothing in the store that others would wait for: that is for the leader of a queue. A
/// writer that had left its marker, and then queued behind a reader of its client that leads, would
/// keep that reader out, and wait for it.
fn try_at_once<'a, C: Contender<'a>>(contender: &mut C) -> Result<Option<Tried<C::Won>>> {
    let AcquireAttempt { client, name, .. } = *contender.attempt();
    let _asking = if !name.kind.can_be_held() {
        // A latch is read in any case: the caller can later notice that it was opened in between
        // only by comparing with what it saw at first.
        None
    } else if contender.attempt().takes_place() {
        // A request that waits is made for the place that it gets.
        return Ok(None);
    } else if name.kind.is_exclusive() {
        match client.local_queues.ask_at_once(&name.key) {
            None => return Ok(None),
            asking => asking,
        }
    } else {
        // Several can hold it, so only a thread that waits is a reason to queue. One that can share
        // the hold of another thread queues behind a thread that asks: if it asked as well, and a
        // writer came in between, it would wait for that writer beside a hold that it may join.
        if contender.queues_with_others() || client.local_queues.is_occupied(&name.key) {
            return Ok(None);
        }
        None
    };
    if client.holds.blocks(name).is_some() {
        return Ok(None);
    }
    contender.try_once(false).map(Some)
}

/// Blocks in the local queue of the name that the attempt waits for. `first`: the answer to a
/// request that was just sent.
pub(crate) fn queue_up<'a, C: Contender<'a>>(
    contender: &mut C,
    deadline: Deadline,
    mut first: Option<Answer>,
) -> Result<Option<C::Won>> {
    let AcquireAttempt { client, .. } = *contender.attempt();
    let mut entry = Entry::AtTheEnd;
    loop {
        match enqueue(contender, entry, deadline) {
            EnqueueOutcome::Leader(mut leader) => {
                // A reply from before the caller waited in the queue is too old.
                let first = first.take().filter(|_| !leader.has_waited);
                let outcome = lead(contender, &mut leader, deadline, first);
                let outcome = match outcome {
                    Ok(LeadEnd::Announces) => {
                        // The role passes on first: code of the user may block, and would hold up
                        // every thread behind this one.
                        drop(leader);
                        contender.attempt().announce(deadline);
                        entry = Entry::AtTheFront;
                        continue;
                    }
                    Ok(LeadEnd::Over(won)) => Ok(won),
                    Err(error) => Err(error),
                };
                // A call that was ended does not wait for a server: what it left there is removed
                // in the background at once.
                if !matches!(outcome, Ok(Some(_))) && !contender.attempt().is_ended() {
                    contender.attempt().leave();
                }
                return outcome;
            }
            EnqueueOutcome::Joined(admission) => {
                if let Some(won) = contender.take_over(admission)? {
                    return Ok(Some(won));
                }
                first = None;
                continue;
            }
            EnqueueOutcome::TimedOut(event) => return timed_out(contender, &event),
            EnqueueOutcome::Ended => contender.attempt().ensure_waits()?,
            EnqueueOutcome::Unknown(error) => return Err(error),
            EnqueueOutcome::Outage => {}
        }
        // A call that has had a reply knows already that the server can be asked.
        if first.is_none() {
            match try_first(contender)? {
                Tried::Won(won) => return Ok(Some(won)),
                Tried::Busy(ttl) => first = Some(Answer::before_queueing(ttl)),
            }
        }
        client.local_queues.end_outage(&contender.queue_key());
        entry = Entry::WithAReply;
    }
}

/// Until the call leads the local queue of its name, or its wait there is over. A waiter with a
/// place in a queue at the server leads a queue of its own at once.
fn enqueue<'a, C: Contender<'a>>(
    contender: &mut C,
    entry: Entry,
    deadline: Deadline,
) -> EnqueueOutcome<'a> {
    let AcquireAttempt { client, name, cancel, .. } = *contender.attempt();
    if contender.attempt().has_place() {
        return EnqueueOutcome::Leader(client.local_queues.at_server(&contender.attempt().holder));
    }
    let key = contender.queue_key();
    let primitive = contender.attempt().primitive();
    let is_listed = contender.attempt().is_waiting() || contender.attempt().must_announce();
    let mut wait = None;
    let prepare = || {
        contender.attempt().announce(deadline);
        contender.piggyback()
    };
    let enters = || wait = (!is_listed).then(|| begin_wait(client, name, primitive, deadline));
    let queued = client.local_queues.queue(&key, entry, (deadline, cancel), prepare, enters);
    contender.attempt().note_wait(wait);
    queued
}

/// The deadline passed while the call waited in the local queue.
fn timed_out<'a, C: Contender<'a>>(contender: &mut C, event: &Event) -> Result<Option<C::Won>> {
    let AcquireAttempt { client, name, .. } = *contender.attempt();
    if has_answer(client, event) || client.holds.blocks(name).is_some() {
        return Ok(None);
    }
    // The leader may be sleeping on an old reply, or waiting in vain for its first one.
    match contender.try_once(false)? {
        Tried::Won(won) => Ok(Some(won)),
        Tried::Busy(_) => {
            event.answered();
            Ok(None)
        }
    }
}
