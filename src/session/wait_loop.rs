//! The one wait loop: try, sleep until woken or until the lease of whoever has it may end, try again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::background::local_queue::{Head, Queued};
use crate::background::notifications::Subscription;
use crate::background::piggyback::{Relay, Relayed};
use crate::base::backoff::Backoff;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::base::event::Bell;
use crate::base::key::Kind;
use crate::session::attempt::{Claim, Tried};
use crate::session::{Shared, closed};
use crate::store::{Acquired, Doubts};

/// What waits, and what it wins.
pub(crate) trait Contender<'a> {
    type Won;

    fn claim(&mut self) -> &mut Claim<'a>;

    /// One round trip. `waits`: another will follow if this fails.
    fn try_once(&mut self, waits: bool) -> Result<Tried<Self::Won>>;

    /// A try that a thread of this client may send behind the release of what keeps us out.
    fn relay(&mut self) -> Option<Relay>;

    /// What came of that.
    fn judge_relayed(&mut self, acquired: Result<Acquired>, doubts: Doubts) -> Result<Tried<Self::Won>>;
}

/// Blocks until it is won, or until the deadline (`None`).
pub(crate) fn contend<'a, C: Contender<'a>>(contender: &mut C, deadline: Deadline) -> Result<Option<C::Won>> {
    let Claim { shared, keys, .. } = *contender.claim();
    if deadline == Deadline::Now {
        return match contender.try_once(false)? {
            Tried::Won(won) => Ok(Some(won)),
            Tried::Busy(_) => Ok(None),
        };
    }
    let mut first = None;
    // Several can have it at once: no need to go in one by one, if nobody of this client waits. Whoever waits for a latch
    // looks in any case: only what it saw when it came tells it later whether the latch was opened in between.
    let at_once = keys.kind == Kind::Latch || is_shared(keys.kind) && !shared.stations.has_line(&keys.lock);
    if at_once && shared.holds.blocks(keys).is_none() {
        match contender.try_once(true)? {
            Tried::Won(won) => return Ok(Some(won)),
            busy @ Tried::Busy(_) => first = Some(busy),
        }
    }
    stand_in_line(contender, deadline, first)
}

/// Blocks in the line of the name that the claim waits for. `first`: the answer of a try that was sent just now.
pub(crate) fn stand_in_line<'a, C: Contender<'a>>(
    contender: &mut C,
    deadline: Deadline,
    mut first: Option<Tried<C::Won>>,
) -> Result<Option<C::Won>> {
    let Claim { shared, keys, .. } = *contender.claim();
    loop {
        let queued = match keys.kind {
            Kind::Fair => Queued::Head(shared.stations.alone(&contender.claim().holder)),
            _ => shared.stations.queue(keys, deadline, || contender.relay()),
        };
        match queued {
            Queued::Head(mut head) => {
                // What was heard before it stood in line is too old.
                let first = first.filter(|_| !head.stood);
                let outcome = as_head(contender, &mut head, deadline, first);
                if !matches!(outcome, Ok(Some(_))) {
                    contender.claim().leave();
                }
                return outcome;
            }
            Queued::TimedOut(bell) => return timed_out(contender, &bell),
            Queued::Closed => return Err(closed().for_name(&keys.name)),
            Queued::Unknown(error) => return Err(error),
            Queued::Outage => {}
        }
        // Whoever has an answer already brings the news that the server can be asked.
        if first.is_none() {
            match contender.try_once(true)? {
                Tried::Won(won) => return Ok(Some(won)),
                busy @ Tried::Busy(_) => first = Some(busy),
            }
        }
        shared.stations.outage_is_over(&keys.lock);
    }
}

/// Its time is up while it stands in line.
fn timed_out<'a, C: Contender<'a>>(contender: &mut C, bell: &Bell) -> Result<Option<C::Won>> {
    let Claim { shared, keys, .. } = *contender.claim();
    if is_known(shared, bell) || shared.holds.blocks(keys).is_some() {
        return Ok(None);
    }
    // Whoever is the first of the line may sleep on an old answer, or wait in vain for its first one.
    match contender.try_once(false)? {
        Tried::Won(won) => Ok(Some(won)),
        Tried::Busy(_) => {
            bell.answered();
            Ok(None)
        }
    }
}

/// Whether the last answer in a line is young enough to be given still. An older one says nothing of a server that has hung
/// since, and `None` would say that somebody else has the lock when nobody knows.
fn is_known(shared: &Shared, bell: &Bell) -> bool {
    bell.is_answered_within(shared.config.io_timeout)
}

fn is_shared(kind: Kind) -> bool {
    matches!(kind, Kind::Read | Kind::Permits(_) | Kind::Counting { .. } | Kind::Latch)
}

fn subscription_of(claim: &Claim<'_>) -> Subscription {
    match claim.keys.kind {
        Kind::Fair => {
            Subscription { channel: claim.keys.channel_of_waiter(claim.holder.as_str()).into(), by_pattern: true }
        }
        _ => Subscription { channel: claim.keys.channel.clone(), by_pattern: false },
    }
}

fn as_head<'a, C: Contender<'a>>(
    contender: &mut C,
    head: &mut Head<'_>,
    deadline: Deadline,
    mut first: Option<Tried<C::Won>>,
) -> Result<Option<C::Won>> {
    let Claim { shared, keys, .. } = *contender.claim();
    let subscription = subscription_of(contender.claim());
    // A fair waiter's messages come by a subscription that stands already while others wait: heard from before its first
    // try, it needs no second one.
    let stands = keys.kind == Kind::Fair && shared.wakeups.hears(&subscription);
    let mut listening = stands.then(|| shared.wakeups.listen(subscription.clone(), head.bell()));
    let mut poll = Backoff::new(Duration::from_millis(2), Duration::from_millis(200));
    // Whoever was told "busy" is waiting already.
    let mut outage = Outage::new(head.stood || first.is_some(), shared.config.ride_out);
    // Left in the line before this thread was the head: it may have been sent already.
    let mut sent = head.collect();
    let mut ask_anyway = false;
    // The last wait ended by its timer, and whoever had the lock may have released it meanwhile.
    let mut unnotified = false;
    let patience = |pause: Duration| deadline.remaining(Instant::now()).map_or(pause, |left| left.min(pause));
    loop {
        if sent.is_none() && head.owes_a_turn() && shared.holds.blocks(keys).is_none() {
            listening.get_or_insert_with(|| shared.wakeups.listen(subscription.clone(), head.bell()));
            head.offer_a_turn(patience(Duration::MAX));
            // Older than the turn that was let pass, and than the ring that is cleared below.
            first = None;
        }
        // Before the try is sent: a message that comes while it is under way may tell of a later release.
        head.bell().clear();
        if sent.is_none() && shared.is_closed() {
            return Err(closed().for_name(&keys.name));
        }
        // One more try at the deadline, because something may have happened, but no second one.
        let last = deadline.has_passed(Instant::now());
        let local = if std::mem::take(&mut ask_anyway) { None } else { shared.holds.blocks(keys) };
        let tried = match (sent.take(), first.take(), local) {
            (Some(Relayed::Sent { acquired, doubts }), ..) => contender.judge_relayed(acquired, doubts),
            (_, Some(busy), None) => Ok(busy),
            (.., None) => contender.try_once(true),
            (.., Some(remaining)) => {
                // At most a lease: a hold for longer may have ended otherwise, and then the server is asked.
                let start = Instant::now();
                let pause = patience(until_after(remaining).min(shared.config.lease));
                match wait_for_local(contender, head, pause) {
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
                head.outage_is_over();
                return Ok(Some(won));
            }
            Ok(Tried::Busy(ttl)) => {
                outage.is_over(head);
                if last {
                    return Ok(None);
                }
                // A fair waiter's timer is that of its place, not of the holder's lease.
                if std::mem::take(&mut unnotified) && ttl.is_some() && keys.kind != Kind::Fair {
                    shared.wakeups.mistrust();
                }
                // From here on it waits: a server that goes away before the second try is an outage to ride out.
                outage.waited = true;
                if listening.is_none() && !deadline.has_passed(Instant::now()) {
                    listening = Some(shared.wakeups.listen(subscription.clone(), head.bell()));
                    if shared.wakeups.hears(&subscription) {
                        // A release between the try and the subscription was heard by nobody. If the server has
                        // yet to confirm it, the bell rings when it does.
                        continue;
                    }
                }
                ttl.inspect(|_| poll.reset())
            }
            Err(e) => match outage.pause(head, e)? {
                (pause, _) if !deadline.has_passed(Instant::now()) => Some(pause),
                (_, e) => return Err(e),
            },
        };
        // At most a lease, in case a message is lost; much less while none can be heard.
        let lease = shared.config.lease;
        let most = if shared.wakeups.hears(&subscription) { lease } else { DEAF.min(lease / 2) };
        let pause = patience(hint.map_or_else(|| poll.next(), until_after).min(most));
        // The place in the queue is known: whoever of this client releases in front of it takes our try along.
        let relay = if keys.kind == Kind::Fair && contender.claim().is_settled() { contender.relay() } else { None };
        let rung = match relay.map(Arc::new) {
            Some(relay) => {
                sent = head.wait_with(&relay, pause);
                sent.is_some() || head.bell().is_rung()
            }
            None => head.bell().wait(pause),
        };
        unnotified = !rung;
        // Nothing has happened since the last answer that another try could find; if that answer is not too old.
        let known = !outage.goes_on && is_known(shared, head.bell());
        if !rung && known && deadline.has_passed(Instant::now()) {
            return Ok(None);
        }
    }
}

/// A thread of this client has the lock: its release takes our try along. `None`: look again.
fn wait_for_local<'a, C: Contender<'a>>(
    contender: &mut C,
    head: &Head<'_>,
    patience: Duration,
) -> Option<Result<Tried<C::Won>>> {
    let may_relay = contender.claim().is_settled() && !head.owes_a_turn();
    let relay = if may_relay { contender.relay() } else { None };
    let Some(relay) = relay.map(Arc::new) else {
        head.bell().wait(patience);
        return None;
    };
    match head.wait_with(&relay, patience)? {
        Relayed::NotSent => None,
        Relayed::Sent { acquired, doubts } => Some(contender.judge_relayed(acquired, doubts)),
    }
}

/// How often a waiter that hears no messages looks by itself.
const DEAF: Duration = Duration::from_millis(500);

/// A millisecond more than a TTL, which Redis rounds down.
fn until_after(ttl: Duration) -> Duration {
    ttl + Duration::from_millis(1)
}

/// How long a call puts up with a server that cannot be asked: a call that has not waited yet, not at all. Counted by the
/// line, so that those behind do not each begin anew.
struct Outage {
    waited: bool,
    ride_out: Duration,
    goes_on: bool,
    pause: Backoff,
}

impl Outage {
    fn new(waited: bool, ride_out: Duration) -> Self {
        let pause = Backoff::new(Duration::from_millis(20), Duration::from_millis(250));
        Self { waited, ride_out, goes_on: false, pause }
    }

    fn is_over(&mut self, head: &Head<'_>) {
        if std::mem::take(&mut self.goes_on) {
            self.pause.reset();
        }
        head.outage_is_over();
    }

    /// How long to wait before the next try; the error, when it is not to be ridden out, or has been for long enough.
    fn pause(&mut self, head: &Head<'_>, error: Error) -> Result<(Duration, Error)> {
        if !self.waited || !error.kind().is_outage() {
            return Err(error);
        }
        self.goes_on = true;
        let lasted = head.outage_goes_on(&error).elapsed();
        if lasted < self.ride_out {
            return Ok((self.pause.next(), error));
        }
        Err(error.and_also(format!("given up after {lasted:.1?} of waiting for the server, see Builder::ride_out")))
    }
}
