//! The one wait loop: try, sleep until woken or until the lease of the present holder may end, try
//! again.

use std::time::{Duration, Instant};

use crate::background::leader::Leader;
use crate::background::local_queue::EnqueueOutcome;
use crate::background::piggyback::{Piggyback, PiggybackOutcome};
use crate::background::run::{GAP, LONGEST_UNBROKEN};
use crate::base::backoff::Backoff;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::base::event::{Awaited, Event};
use crate::base::lock_name::Kind;
use crate::lease::store_hold::Admission;
use crate::os;
use crate::session::Shared;
use crate::session::attempt::{AcquireAttempt, Tried, begin_wait};
use crate::store::{Acquired, Topic, UnknownOutcomes};

/// What waits, and what it wins.
pub(crate) trait Contender<'a> {
    type Won;

    fn attempt(&mut self) -> &mut AcquireAttempt<'a>;

    /// One round trip. `waits`: another will follow if this fails.
    fn try_once(&mut self, waits: bool) -> Result<Tried<Self::Won>>;

    /// Whether it queues behind the other threads of this client even if the lock can be shared:
    /// what one of them is granted may be for all.
    fn queues_with_others(&self) -> bool {
        false
    }

    /// The acquire that a thread of this client may send behind its release of the lock.
    fn piggyback(&mut self) -> Option<Piggyback>;

    /// How many fencing tokens its requests draw from now on, if it can share some with the threads
    /// behind it.
    fn draw_tokens(&mut self, _tokens: u32) {}

    /// Uses a hold that was passed to this contender, or that it joins.
    /// `None`: it has ended.
    /// Only a contender whose [piggyback](Self::piggyback) takes turns is asked.
    fn take_turn(&mut self, _admission: Admission) -> Result<Option<Self::Won>> {
        unreachable!("no hold passes to a contender that takes no turns")
    }

    /// Takes in the outcome of the piggybacked acquire.
    fn on_piggyback_reply(&mut self, acquired: Result<Acquired>, unknowns: UnknownOutcomes)
    -> Result<Tried<Self::Won>>;
}

/// Blocks until the contender has won, or until the deadline (`None`).
///
/// # Errors
/// `Closed` and `Cancelled` when its wait was ended, among others. A grant that arrives at that
/// very moment wins.
pub(crate) fn contend<'a, C: Contender<'a>>(contender: &mut C, deadline: Deadline) -> Result<Option<C::Won>> {
    let outcome = try_or_wait(contender, deadline);
    contender.attempt().end(outcome)
}

fn try_or_wait<'a, C: Contender<'a>>(contender: &mut C, deadline: Deadline) -> Result<Option<C::Won>> {
    let AcquireAttempt { shared, name, .. } = *contender.attempt();
    if deadline == Deadline::Now {
        return match contender.try_once(false)? {
            Tried::Won(won) => Ok(Some(won)),
            Tried::Busy(_) => Ok(None),
        };
    }
    let mut first = None;
    // Shared locks can have several holders: without waiters of this client there is no reason to
    // queue. A latch is read in any case: only what the caller sees when it comes can show it later
    // that the latch was opened in between.
    let at_once = name.kind == Kind::Latch
        || is_shared(name.kind) && !contender.queues_with_others() && !shared.local_queues.is_occupied(&name.key);
    if at_once && shared.holds.blocks(name).is_none() {
        match contender.try_once(true)? {
            Tried::Won(won) => return Ok(Some(won)),
            busy @ Tried::Busy(_) => first = Some(busy),
        }
    }
    queue_up(contender, deadline, first)
}

/// Blocks in the local queue of the name that the attempt waits for. `first`: the reply to a
/// request that was sent just now.
pub(crate) fn queue_up<'a, C: Contender<'a>>(
    contender: &mut C,
    deadline: Deadline,
    mut first: Option<Tried<C::Won>>,
) -> Result<Option<C::Won>> {
    let AcquireAttempt { shared, name, cancel, .. } = *contender.attempt();
    loop {
        let (primitive, is_waiting) = (contender.attempt().primitive(), contender.attempt().is_waiting());
        let mut wait = None;
        let begins = || wait = (!is_waiting).then(|| begin_wait(shared, name, primitive, deadline));
        let queued = match contender.attempt().has_place() {
            true => EnqueueOutcome::Leader(shared.local_queues.at_server(&contender.attempt().holder)),
            false => shared.local_queues.queue(name, deadline, cancel, || contender.piggyback(), begins),
        };
        contender.attempt().note_wait(wait);
        match queued {
            EnqueueOutcome::Leader(mut leader) => {
                // A reply from before it waited in the queue is too old.
                let first = first.filter(|_| !leader.has_waited);
                let outcome = lead(contender, &mut leader, deadline, first);
                // A call that was ended waits for no server: what it leaves there is removed in
                // the background, at once.
                if !matches!(outcome, Ok(Some(_))) && !contender.attempt().is_ended() {
                    contender.attempt().leave();
                }
                return outcome;
            }
            EnqueueOutcome::Joined(admission) => match contender.take_turn(admission)? {
                Some(won) => return Ok(Some(won)),
                None => {
                    first = None;
                    continue;
                }
            },
            EnqueueOutcome::TimedOut(event) => return timed_out(contender, &event),
            EnqueueOutcome::Ended => contender.attempt().ensure_waits()?,
            EnqueueOutcome::Unknown(error) => return Err(error),
            EnqueueOutcome::Outage => {}
        }
        // A call that has had a reply already knows that the server can be asked.
        if first.is_none() {
            match contender.try_once(true)? {
                Tried::Won(won) => return Ok(Some(won)),
                busy @ Tried::Busy(_) => first = Some(busy),
            }
        }
        shared.local_queues.outage_is_over(&name.key);
    }
}

/// The deadline passed while the call waited in the local queue.
fn timed_out<'a, C: Contender<'a>>(contender: &mut C, event: &Event) -> Result<Option<C::Won>> {
    let AcquireAttempt { shared, name, .. } = *contender.attempt();
    if is_known(shared, event) || shared.holds.blocks(name).is_some() {
        return Ok(None);
    }
    // The leader may sleep on an old reply, or wait in vain for its first one.
    match contender.try_once(false)? {
        Tried::Won(won) => Ok(Some(won)),
        Tried::Busy(_) => {
            event.answered();
            Ok(None)
        }
    }
}

/// Whether the last reply in a queue is recent enough to return `None` for it. If the server has
/// hung since an older one, `None` would report another holder when that is not known.
fn is_known(shared: &Shared, event: &Event) -> bool {
    event.is_answered_within(shared.config.io_timeout)
}

fn is_shared(kind: Kind) -> bool {
    matches!(kind, Kind::Read | Kind::Semaphore | Kind::CountingSemaphore | Kind::Latch)
}

fn topic_of(attempt: &AcquireAttempt<'_>, leader: &Leader<'_>) -> Topic {
    match leader.is_at_server() {
        true => Topic::turn(attempt.name, attempt.holder.as_str()),
        false => Topic::freed(attempt.name),
    }
}

fn lead<'a, C: Contender<'a>>(
    contender: &mut C,
    leader: &mut Leader<'_>,
    deadline: Deadline,
    mut first: Option<Tried<C::Won>>,
) -> Result<Option<C::Won>> {
    let AcquireAttempt { shared, name, cancel, .. } = *contender.attempt();
    // Until the role passes on: the next leader waits by the same event.
    let _woken = cancel.map(|token| token.wakes(leader.event().clone()));
    let mut topic = topic_of(contender.attempt(), leader);
    // If other waiters with places of this client are subscribed, their subscription covers this
    // waiter's messages as well: with it from before the first attempt, no second attempt is needed
    // to close the gap between attempt and subscription.
    let queues = name.kind == Kind::Fair || shared.store.queues_all() && name.kind != Kind::Latch;
    // Not with a reply from before, nor with that to a request which another thread has sent or may
    // still send for this call: its event was not notified of what has happened since then.
    let is_covered = queues && first.is_none() && !leader.has_piggyback() && shared.notifications.is_subscribed(&topic);
    // Who has a place in the store is told by the store alone when its turn comes.
    let at_server = leader.is_at_server();
    let blocks = || if at_server { None } else { shared.holds.blocks(name) };
    let mut listening = is_covered.then(|| shared.notifications.listen(topic.clone(), leader.event()));
    let mut poll = Backoff::new(Duration::from_millis(2), Duration::from_millis(200));
    let mut blind = BlindPoll::new(name.kind.is_exclusive() && !at_server);
    // A call that was answered "busy" is already waiting.
    let mut outage = Outage::new(leader.has_waited || first.is_some(), shared.config.outage_timeout);
    let mut sent = None;
    let mut ask_anyway = false;
    // The last wait ended by its timer, and the lock may have been released in the meantime.
    let mut woken_by_timer = false;
    let patience = |pause: Duration| deadline.remaining(os::now()).map_or(pause, |left| left.min(pause));
    loop {
        // Left in the queue, perhaps before this thread was the leader.
        sent = sent.or_else(|| leader.collect());
        if sent.is_none() && leader.comes_last() && blocks().is_none() && !contender.attempt().is_ended() {
            sent = leader.withdraw();
            if sent.is_none() {
                // Otherwise those that nobody has read yet would count as new ones.
                shared.notifications.catch_up();
                leader.let_others_first(patience, |awaited, pause| {
                    let listen = || shared.notifications.listen(topic.clone(), leader.event());
                    listening.get_or_insert_with(listen).wait_for(awaited, pause)
                });
                shared.notifications.catch_up();
                // This reply predates the yield, and the notification that is cleared below.
                first = None;
            }
        }
        // Before the request is sent: a message that arrives while it is under way may be of a
        // release after it. So not when another thread has sent it already.
        if !matches!(sent, Some(PiggybackOutcome::Sent { .. })) {
            leader.event().clear();
        }
        // After that: an end of the wait before it is seen here, one after it wakes the call.
        if let Err(ended) = contender.attempt().ensure_waits() {
            sent = sent.or_else(|| leader.withdraw());
            if sent.is_none() {
                return Err(ended);
            }
        }
        // One more attempt at the deadline, because the lock may have been released, but no second
        // one.
        let last = deadline.has_passed(os::now());
        let local = if std::mem::take(&mut ask_anyway) { None } else { blocks() };
        if local.is_none() {
            sent = sent.or_else(|| leader.withdraw());
        }
        let tried = match (sent.take(), first.take(), local) {
            (Some(PiggybackOutcome::Parked(admission)), ..) => match contender.take_turn(admission)? {
                Some(won) => {
                    leader.forget_outage();
                    return Ok(Some(won));
                }
                None => continue,
            },
            (Some(PiggybackOutcome::Sent { acquired, unknowns, tokens }), ..) => {
                contender.draw_tokens(tokens);
                contender.on_piggyback_reply(acquired, unknowns)
            }
            (_, Some(busy), None) => Ok(busy),
            (.., None) => {
                contender.draw_tokens(leader.tokens());
                contender.try_once(true)
            }
            (.., Some(remaining)) => {
                // At most a lease: a longer hold may have ended in another way, and a release that
                // takes so long may never be over, so the server is asked then.
                contender.attempt().begins_to_wait(deadline);
                let (start, most) = (os::now(), until_after(remaining).min(shared.config.lease));
                sent = wait_for_local(contender, leader, patience(most));
                if sent.is_none() && deadline.has_passed(os::now()) {
                    sent = leader.withdraw();
                    if sent.is_none() {
                        return Ok(None);
                    }
                }
                // It has waited for a thread of this client, which had the lock from a server. An
                // outage that follows is another one.
                outage.waited = true;
                leader.forget_outage();
                if sent.is_none() {
                    ask_anyway = os::since(start) >= most;
                }
                continue;
            }
        };
        // Its earlier holder is spent. Messages for that one are of another turn, and the release
        // of a thread of this client looks for the fresh one.
        if leader.asks_as(&contender.attempt().holder) {
            (topic, listening) = (topic_of(contender.attempt(), leader), None);
        }
        let hint = match tried {
            Ok(Tried::Won(won)) => {
                leader.outage_is_over();
                return Ok(Some(won));
            }
            Ok(Tried::Busy(ttl)) => {
                outage.end(leader);
                if last {
                    return Ok(None);
                }
                contender.attempt().begins_to_wait(deadline);
                // The timer of a fair waiter is that of its place in the queue, not of the holder's
                // lease.
                if std::mem::take(&mut woken_by_timer) && ttl.is_some() && name.kind != Kind::Fair {
                    shared.notifications.mistrust();
                }
                // From here on the call waits: a server that goes away before the second attempt is
                // tolerated for the `outage_timeout`.
                outage.waited = true;
                if listening.is_none() && !deadline.has_passed(os::now()) {
                    listening = Some(shared.notifications.listen(topic.clone(), leader.event()));
                    if shared.notifications.is_subscribed(&topic) {
                        // No message was received for a release between the attempt and the
                        // subscription. If the store has yet to confirm the subscription, the event
                        // is notified when it does.
                        continue;
                    }
                }
                ttl.inspect(|_| poll.reset())
            }
            Err(e) => match outage.pause(leader, e)? {
                (pause, _) if !deadline.has_passed(os::now()) => Some(pause),
                (_, e) => return Err(e),
            },
        };
        // At most a lease, in case a message is lost; much less while none can be received.
        let lease = shared.config.lease;
        let most = if shared.notifications.is_subscribed(&topic) { lease } else { blind.pause().min(lease / 2) };
        let pause = patience(hint.map_or_else(|| poll.next(), until_after).min(most));
        // The store names the next waiter to the releasing holder: if that is of this client, it
        // sends this acquire with its release. A reader of this client sends that of a writer.
        if matches!(name.kind, Kind::Fair | Kind::Write) && contender.attempt().is_resolved() {
            contender.piggyback().into_iter().for_each(|piggyback| leader.leave_piggyback(piggyback));
        }
        match &listening {
            Some(listening) => listening.wait_for(Awaited::Notification, pause),
            None => leader.event().wait(pause),
        };
        sent = leader.withdraw();
        let notified = sent.is_some() || leader.event().is_notified();
        woken_by_timer = !notified;
        // Without a notification another attempt would find nothing new, if the last reply is
        // recent.
        let known = !outage.goes_on && is_known(shared, leader.event());
        if !notified && known && deadline.has_passed(os::now()) {
            return Ok(None);
        }
    }
}

/// A thread of this client has the lock: it passes it on to this call, or its release takes the
/// acquire of this call along. `None`: neither; the acquire stays in the queue, so that a release
/// between two waits finds it.
fn wait_for_local<'a, C: Contender<'a>>(
    contender: &mut C,
    leader: &mut Leader<'_>,
    patience: Duration,
) -> Option<PiggybackOutcome> {
    if !leader.has_piggyback() && contender.attempt().is_resolved() && !leader.must_yield() {
        contender.piggyback().into_iter().for_each(|piggyback| leader.leave_piggyback(piggyback));
    }
    // Left first, waited second: a release before this has notified the event already, one after it
    // takes the acquire along. One that took it before the latch was cleared is found here.
    leader.collect().or_else(|| {
        leader.event().wait(patience);
        leader.collect()
    })
}

/// How often a waiter that receives no messages tries again.
const POLL_UNSUBSCRIBED: Duration = Duration::from_millis(500);
/// How often in a burst: twice within a [`GAP`].
const POLL_IN_BURST: Duration = Duration::from_millis(3);

/// When a waiter that receives no messages tries again. Between two pauses comes a burst of tries
/// that is longer than a client of this library keeps the lock without a [`GAP`]: so one of them
/// finds the lock free, however busy it is.
struct BlindPoll {
    has_bursts: bool,
    burst_until: Option<Instant>,
}

impl BlindPoll {
    /// `has_bursts`: the lock can be kept by threads of one client that hand it to each other.
    fn new(has_bursts: bool) -> Self {
        // It begins with a pause: mostly the subscription is confirmed within that.
        Self { has_bursts, burst_until: Some(os::now()) }
    }

    fn pause(&mut self) -> Duration {
        let now = os::now();
        match self.burst_until {
            Some(until) if now < until => POLL_IN_BURST,
            None if self.has_bursts => {
                self.burst_until = Some(now + LONGEST_UNBROKEN + 2 * GAP);
                POLL_IN_BURST
            }
            _ => {
                self.burst_until = None;
                POLL_UNSUBSCRIBED
            }
        }
    }
}

/// A millisecond more than the TTL, which stores may round down.
fn until_after(ttl: Duration) -> Duration {
    ttl + Duration::from_millis(1)
}

/// How long a call tolerates a server that cannot be asked: a call that has not waited yet, not at
/// all. The local queue counts the time, so that the next leaders do not each start anew.
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

    fn end(&mut self, leader: &Leader<'_>) {
        if std::mem::take(&mut self.goes_on) {
            self.pause.reset();
        }
        leader.outage_is_over();
    }

    /// How long to wait before the next attempt, and the error back, in case there is no time for
    /// one.
    ///
    /// # Errors
    /// The given error, when it is no outage, or the outage has lasted too long.
    fn pause(&mut self, leader: &Leader<'_>, error: Error) -> Result<(Duration, Error)> {
        if !self.waited || !error.kind().is_outage() {
            return Err(error);
        }
        self.goes_on = true;
        let lasted = os::since(leader.outage_goes_on(&error));
        if lasted < self.outage_timeout {
            return Ok((self.pause.next(), error));
        }
        Err(error
            .and_also(format!("given up after {lasted:.1?} of waiting for the server, see Builder::outage_timeout")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::background::observer::Observer;
    use crate::base::clock::{Clock, SystemClock};
    use crate::base::holder::ClientId;
    use crate::base::lock_name::LockName;
    use crate::base::primitive::Primitive;
    use crate::lease::store_hold::Asked;
    use crate::session::Config;
    use crate::session::acquire::{Terms, acquire_owned};
    use crate::store::Granted;
    use crate::store::memory::{Memory, MemoryStore};

    const LEASE: Duration = Duration::from_secs(600);

    fn shared() -> Arc<Shared> {
        let (lease, io_timeout, outage_timeout) = (LEASE, Duration::from_secs(5), LEASE);
        let (key_prefix, max_hold, owner) = (String::new(), None, None);
        let config =
            Config { lease, io_timeout, key_prefix, max_hold, fencing: true, outage_timeout, owner, has_label: false };
        let mut store = MemoryStore::new(&Arc::new(Memory::new()), io_timeout);
        store.queues_all = true;
        let (id, observer) = (ClientId::random(io_timeout), Arc::new(Observer::new(None)));
        Arc::new(Shared::new(config, "c".to_owned(), id, Arc::new(store), Arc::new(SystemClock), observer, None))
    }

    /// A thread that releases has sent the acquire of the waiter, and was answered "busy"; then the
    /// lock was freed, and the message for that was read, while the waiter woke up as the leader.
    #[test]
    fn a_message_that_came_before_the_leader_listened_is_not_missed() {
        assert!((0..100).any(|_| is_staged()), "the waiter was always quicker");
    }

    /// False if the waiter woke up sooner than its acquire was taken: then it asks for itself.
    fn is_staged() -> bool {
        let shared = shared();
        let name = Arc::new(LockName::new("", "job", Kind::Mutex).unwrap());
        let topic = Topic::freed(&name);
        // So that the topic is subscribed before the waiter listens.
        let other = Arc::default();
        let listening = shared.notifications.listen(topic.clone(), &other);
        while !shared.notifications.is_subscribed(&topic) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let first = shared.local_queues.queue(&name, Deadline::Never, None, || None, || ());
        let EnqueueOutcome::Leader(first) = first else { panic!("nobody else is there") };
        let (got_it, outcome) = channel();
        let (client, of_waiter) = (shared.clone(), name.clone());
        std::thread::Builder::new()
            .spawn(move || {
                let terms = Terms::of(&client.config);
                let hold = acquire_owned(&client, &of_waiter, 1, &terms, Deadline::Never);
                got_it.send(hold.is_ok_and(|hold| hold.is_some())).unwrap();
            })
            .unwrap();
        let (primitive, holder, at) = (Primitive::Mutex, shared.id.fresh_holder(), SystemClock.now());
        let asked = Asked { name, primitive, holder, permits: 1, lease: LEASE, is_renewed: false, at, generation: 0 };
        let granted = Granted { token: 0, sent_at: at, session: None, next: None };
        let hold = shared.watchdog.granted(asked, granted);
        while shared.waits.len() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // It leaves its acquire in the queue after it has said that it waits.
        std::thread::sleep(Duration::from_millis(50));
        drop(first);
        let taken = shared.local_queues.take_piggyback(&hold);
        shared.notifications.notify(&topic);
        let is_staged = taken.is_some();
        if let Some(taken) = taken {
            let busy = Acquired::Busy { ttl: Some(LEASE) };
            taken.deliver(Ok(busy), UnknownOutcomes::default());
        }
        assert!(outcome.recv_timeout(Duration::from_secs(10)).expect("it sleeps although the lock is free"));
        drop(listening);
        is_staged
    }
}
