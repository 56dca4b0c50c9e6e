//! The one wait loop: try, sleep until woken or until the lease of whoever has it may end, try again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::background::local_queue::{EnqueueOutcome, Leader};
use crate::background::piggyback::{Piggyback, PiggybackOutcome};
use crate::base::backoff::Backoff;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::base::event::Event;
use crate::base::lock_name::Kind;
use crate::session::attempt::{AcquireAttempt, Tried};
use crate::session::{Shared, closed};
use crate::store::{Acquired, Topic, UnknownOutcomes};

/// What waits, and what it wins.
pub(crate) trait Contender<'a> {
    type Won;

    fn attempt(&mut self) -> &mut AcquireAttempt<'a>;

    /// One round trip. `waits`: another will follow if this fails.
    fn try_once(&mut self, waits: bool) -> Result<Tried<Self::Won>>;

    /// A try that a thread of this client may send behind the release of what keeps us out.
    fn piggyback(&mut self) -> Option<Piggyback>;

    /// What came of that.
    fn on_piggyback_reply(&mut self, acquired: Result<Acquired>, unknowns: UnknownOutcomes)
    -> Result<Tried<Self::Won>>;
}

/// Blocks until it is won, or until the deadline (`None`).
pub(crate) fn contend<'a, C: Contender<'a>>(contender: &mut C, deadline: Deadline) -> Result<Option<C::Won>> {
    let AcquireAttempt { shared, name, .. } = *contender.attempt();
    if deadline == Deadline::Now {
        return match contender.try_once(false)? {
            Tried::Won(won) => Ok(Some(won)),
            Tried::Busy(_) => Ok(None),
        };
    }
    let mut first = None;
    // Several can have it at once: no need to go in one by one, if nobody of this client waits. Whoever waits for a latch
    // looks in any case: only what it saw when it came tells it later whether the latch was opened in between.
    let at_once = name.kind == Kind::Latch || is_shared(name.kind) && !shared.local_queues.is_occupied(&name.key);
    if at_once && shared.holds.blocks(name).is_none() {
        match contender.try_once(true)? {
            Tried::Won(won) => return Ok(Some(won)),
            busy @ Tried::Busy(_) => first = Some(busy),
        }
    }
    queue_up(contender, deadline, first)
}

/// Blocks in the line of the name that the claim waits for. `first`: the answer of a try that was sent just now.
pub(crate) fn queue_up<'a, C: Contender<'a>>(
    contender: &mut C,
    deadline: Deadline,
    mut first: Option<Tried<C::Won>>,
) -> Result<Option<C::Won>> {
    let AcquireAttempt { shared, name, .. } = *contender.attempt();
    loop {
        let queued = match name.kind {
            Kind::Fair => EnqueueOutcome::Leader(shared.local_queues.at_server(&contender.attempt().holder)),
            _ => shared.local_queues.queue(name, deadline, || contender.piggyback()),
        };
        match queued {
            EnqueueOutcome::Leader(mut leader) => {
                // What was heard before it stood in line is too old.
                let first = first.filter(|_| !leader.has_waited);
                let outcome = lead(contender, &mut leader, deadline, first);
                if !matches!(outcome, Ok(Some(_))) {
                    contender.attempt().leave();
                }
                return outcome;
            }
            EnqueueOutcome::TimedOut(event) => return timed_out(contender, &event),
            EnqueueOutcome::Closed => return Err(closed().for_name(&name.name)),
            EnqueueOutcome::Unknown(error) => return Err(error),
            EnqueueOutcome::Outage => {}
        }
        // Whoever has an answer already brings the news that the server can be asked.
        if first.is_none() {
            match contender.try_once(true)? {
                Tried::Won(won) => return Ok(Some(won)),
                busy @ Tried::Busy(_) => first = Some(busy),
            }
        }
        shared.local_queues.outage_is_over(&name.key);
    }
}

/// Its time is up while it stands in line.
fn timed_out<'a, C: Contender<'a>>(contender: &mut C, event: &Event) -> Result<Option<C::Won>> {
    let AcquireAttempt { shared, name, .. } = *contender.attempt();
    if is_known(shared, event) || shared.holds.blocks(name).is_some() {
        return Ok(None);
    }
    // Whoever is the first of the line may sleep on an old answer, or wait in vain for its first one.
    match contender.try_once(false)? {
        Tried::Won(won) => Ok(Some(won)),
        Tried::Busy(_) => {
            event.answered();
            Ok(None)
        }
    }
}

/// Whether the last answer in a line is young enough to be given still. An older one says nothing of a server that has hung
/// since, and `None` would say that somebody else has the lock when nobody knows.
fn is_known(shared: &Shared, event: &Event) -> bool {
    event.is_answered_within(shared.config.io_timeout)
}

fn is_shared(kind: Kind) -> bool {
    matches!(kind, Kind::Read | Kind::Semaphore | Kind::CountingSemaphore | Kind::Latch)
}

fn topic_of(attempt: &AcquireAttempt<'_>) -> Topic {
    match attempt.name.kind {
        Kind::Fair => Topic::turn(attempt.name, attempt.holder.as_str()),
        _ => Topic::freed(attempt.name),
    }
}

fn lead<'a, C: Contender<'a>>(
    contender: &mut C,
    leader: &mut Leader<'_>,
    deadline: Deadline,
    mut first: Option<Tried<C::Won>>,
) -> Result<Option<C::Won>> {
    let AcquireAttempt { shared, name, .. } = *contender.attempt();
    let topic = topic_of(contender.attempt());
    // A fair waiter's messages come by a subscription that stands already while others wait: heard from before its first
    // try, it needs no second one.
    let stands = name.kind == Kind::Fair && shared.notifications.is_subscribed(&topic);
    let mut listening = stands.then(|| shared.notifications.listen(topic.clone(), leader.event()));
    let mut poll = Backoff::new(Duration::from_millis(2), Duration::from_millis(200));
    // Whoever was told "busy" is waiting already.
    let mut outage = Outage::new(leader.has_waited || first.is_some(), shared.config.outage_timeout);
    // Left in the line before this thread was the head: it may have been sent already.
    let mut sent = leader.collect_piggyback();
    let mut ask_anyway = false;
    // The last wait ended by its timer, and whoever had the lock may have released it meanwhile.
    let mut woken_by_timer = false;
    let patience = |pause: Duration| deadline.remaining(Instant::now()).map_or(pause, |left| left.min(pause));
    loop {
        if sent.is_none() && leader.must_yield() && shared.holds.blocks(name).is_none() {
            listening.get_or_insert_with(|| shared.notifications.listen(topic.clone(), leader.event()));
            leader.yield_to_others(patience(Duration::MAX));
            // Older than the turn that was let pass, and than the ring that is cleared below.
            first = None;
        }
        // Before the try is sent: a message that comes while it is under way may tell of a later release.
        leader.event().clear();
        if sent.is_none() && shared.is_closed() {
            return Err(closed().for_name(&name.name));
        }
        // One more try at the deadline, because something may have happened, but no second one.
        let last = deadline.has_passed(Instant::now());
        let local = if std::mem::take(&mut ask_anyway) { None } else { shared.holds.blocks(name) };
        let tried = match (sent.take(), first.take(), local) {
            (Some(PiggybackOutcome::Sent { acquired, unknowns }), ..) => {
                contender.on_piggyback_reply(acquired, unknowns)
            }
            (_, Some(busy), None) => Ok(busy),
            (.., None) => contender.try_once(true),
            (.., Some(remaining)) => {
                // At most a lease: a hold for longer may have ended otherwise, and then the server is asked.
                let start = Instant::now();
                let pause = patience(until_after(remaining).min(shared.config.lease));
                match wait_for_local(contender, leader, pause) {
                    Some(tried) => tried,
                    None if deadline.has_passed(Instant::now()) => return Ok(None),
                    None => {
                        outage.waited = true;
                        ask_anyway = start.elapsed() >= shared.config.lease;
                        continue;
                    }
                }
            }
        };
        let hint = match tried {
            Ok(Tried::Won(won)) => {
                leader.outage_is_over();
                return Ok(Some(won));
            }
            Ok(Tried::Busy(ttl)) => {
                outage.is_over(leader);
                if last {
                    return Ok(None);
                }
                // A fair waiter's timer is that of its place, not of the holder's lease.
                if std::mem::take(&mut woken_by_timer) && ttl.is_some() && name.kind != Kind::Fair {
                    shared.notifications.mistrust();
                }
                // From here on it waits: a server that goes away before the second try is an outage to ride out.
                outage.waited = true;
                if listening.is_none() && !deadline.has_passed(Instant::now()) {
                    listening = Some(shared.notifications.listen(topic.clone(), leader.event()));
                    if shared.notifications.is_subscribed(&topic) {
                        // A release between the try and the subscription was heard by nobody. If the server has
                        // yet to confirm it, the event rings when it does.
                        continue;
                    }
                }
                ttl.inspect(|_| poll.reset())
            }
            Err(e) => match outage.pause(leader, e)? {
                (pause, _) if !deadline.has_passed(Instant::now()) => Some(pause),
                (_, e) => return Err(e),
            },
        };
        // At most a lease, in case a message is lost; much less while none can be heard.
        let lease = shared.config.lease;
        let most = if shared.notifications.is_subscribed(&topic) { lease } else { POLL_UNSUBSCRIBED.min(lease / 2) };
        let pause = patience(hint.map_or_else(|| poll.next(), until_after).min(most));
        // The place in the queue is known: whoever of this client releases in front of it takes our try along.
        let piggyback =
            if name.kind == Kind::Fair && contender.attempt().is_resolved() { contender.piggyback() } else { None };
        let notified = match piggyback.map(Arc::new) {
            Some(piggyback) => {
                sent = leader.wait_with_piggyback(&piggyback, pause);
                sent.is_some() || leader.event().is_notified()
            }
            None => leader.event().wait(pause),
        };
        woken_by_timer = !notified;
        // Nothing has happened since the last answer that another try could find; if that answer is not too old.
        let known = !outage.goes_on && is_known(shared, leader.event());
        if !notified && known && deadline.has_passed(Instant::now()) {
            return Ok(None);
        }
    }
}

/// A thread of this client has the lock: its release takes our try along. `None`: look again.
fn wait_for_local<'a, C: Contender<'a>>(
    contender: &mut C,
    leader: &Leader<'_>,
    patience: Duration,
) -> Option<Result<Tried<C::Won>>> {
    let may_piggyback = contender.attempt().is_resolved() && !leader.must_yield();
    let piggyback = if may_piggyback { contender.piggyback() } else { None };
    let Some(piggyback) = piggyback.map(Arc::new) else {
        leader.event().wait(patience);
        return None;
    };
    match leader.wait_with_piggyback(&piggyback, patience)? {
        PiggybackOutcome::NotSent => None,
        PiggybackOutcome::Sent { acquired, unknowns } => Some(contender.on_piggyback_reply(acquired, unknowns)),
    }
}

/// How often a waiter that hears no messages looks by itself.
const POLL_UNSUBSCRIBED: Duration = Duration::from_millis(500);

/// A millisecond more than a TTL, which Redis rounds down.
fn until_after(ttl: Duration) -> Duration {
    ttl + Duration::from_millis(1)
}

/// How long a call puts up with a server that cannot be asked: a call that has not waited yet, not at all. Counted by the
/// line, so that those behind do not each begin anew.
struct Outage {
    waited: bool,
    outage_timeout: Duration,
    goes_on: bool,
    pause: Backoff,
}

impl Outage {
    fn new(waited: bool, outage_timeout: Duration) -> Self {
        let pause = Backoff::new(Duration::from_millis(20), Duration::from_millis(250));
        Self { waited, outage_timeout, goes_on: false, pause }
    }

    fn is_over(&mut self, leader: &Leader<'_>) {
        if std::mem::take(&mut self.goes_on) {
            self.pause.reset();
        }
        leader.outage_is_over();
    }

    /// How long to wait before the next try; the error, when it is not to be ridden out, or has been for long enough.
    fn pause(&mut self, leader: &Leader<'_>, error: Error) -> Result<(Duration, Error)> {
        if !self.waited || !error.kind().is_outage() {
            return Err(error);
        }
        self.goes_on = true;
        let lasted = leader.outage_goes_on(&error).elapsed();
        if lasted < self.outage_timeout {
            return Ok((self.pause.next(), error));
        }
        Err(error
            .and_also(format!("given up after {lasted:.1?} of waiting for the server, see Builder::outage_timeout")))
    }
}
