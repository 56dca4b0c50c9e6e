//! The one wait loop: try, sleep until woken or until the lease of whoever has it may end, try again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::grant::{Grant, Upkeep};
use crate::hold::{Hold, Reentered};
use crate::holder::Holder;
use crate::key::LockKeys;
use crate::lease::State;
use crate::shared::{Call, Owner, Shared, closed};
use crate::station::{Head, Queued, Relay, Relayed};
use crate::store::{Acquire, Acquired, Doubts, TokenRule, Undo};

/// What an outermost acquire asks for.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// Renewed by the watchdog, for at most this long if there is a limit; or fixed.
    pub(crate) renewed: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) token: TokenRule,
}

/// Re-enters the hold of the calling thread, or takes the lock for it. `None`: not before the deadline.
pub(crate) fn acquire_for_thread(
    shared: &Arc<Shared>,
    keys: &Arc<LockKeys>,
    terms: &Terms,
    deadline: Deadline,
) -> Result<Option<Arc<Hold>>> {
    shared.check_usable().map_err(|e| e.for_name(&keys.name))?;
    let thread = std::thread::current().id();
    if let Some(hold) = shared.holds.of_thread(&keys.lock, thread) {
        hold.reenter(terms.lease, |held| one_level_more(shared, &hold, terms, held))?;
        return Ok(Some(hold));
    }
    acquire(shared, keys, terms, deadline, Owner::Thread(thread))
}

/// Takes the lock for a guard that is bound to no thread. `None`: not before the deadline.
pub(crate) fn acquire_owned(
    shared: &Arc<Shared>,
    keys: &Arc<LockKeys>,
    terms: &Terms,
    deadline: Deadline,
) -> Result<Option<Arc<Hold>>> {
    shared.check_usable().map_err(|e| e.for_name(&keys.name))?;
    acquire(shared, keys, terms, deadline, Owner::Guard)
}

fn one_level_more(shared: &Shared, hold: &Hold, terms: &Terms, held: u32) -> Result<Reentered> {
    let Grant { keys, holder, .. } = &*hold.grant;
    let request = Acquire { keys, holder, lease: terms.lease, held, token: TokenRule::Off };
    match shared.store.acquire(&request, &mut Doubts::default()).map_err(|e| e.for_name(&keys.name))? {
        Acquired::Granted { sent_at, .. } => Ok(Reentered::Yes { sent_at }),
        Acquired::Gone | Acquired::Busy { .. } => Ok(Reentered::Gone),
    }
}

fn acquire(
    shared: &Arc<Shared>,
    keys: &Arc<LockKeys>,
    terms: &Terms,
    deadline: Deadline,
    owner: Owner,
) -> Result<Option<Arc<Hold>>> {
    let mut attempt = Attempt::new(shared, keys, terms, owner)?;
    if deadline == Deadline::Now {
        return match attempt.try_once()? {
            Tried::Held(hold) => Ok(Some(hold)),
            Tried::Busy(_) => Ok(None),
        };
    }
    match shared.stations.queue(keys, deadline, || attempt.as_relay()) {
        Queued::Head(mut head) => attempt.contend(&mut head, deadline),
        Queued::TimedOut => Ok(None),
        Queued::Closed => Err(closed().for_name(&keys.name)),
        Queued::Outage(error) => Err(error),
    }
}

enum Tried {
    Held(Arc<Hold>),
    /// Somebody else has it, for this long if anybody knows.
    Busy(Option<Duration>),
}

/// One outermost call: its holder, and what of it is in doubt.
struct Attempt<'a> {
    shared: &'a Arc<Shared>,
    keys: &'a Arc<LockKeys>,
    terms: &'a Terms,
    owner: Owner,
    holder: Holder,
    doubts: Doubts,
    /// Last: what is in doubt is handed over before the call counts as over.
    _call: Call,
}

impl<'a> Attempt<'a> {
    fn new(shared: &'a Arc<Shared>, keys: &'a Arc<LockKeys>, terms: &'a Terms, owner: Owner) -> Result<Self> {
        let call = shared.begin_call().map_err(|e| e.for_name(&keys.name))?;
        let holder = shared.id.fresh_holder();
        Ok(Self { shared, keys, terms, owner, holder, doubts: Doubts::default(), _call: call })
    }

    fn try_once(&mut self) -> Result<Tried> {
        let Self { shared, keys, terms, .. } = *self;
        let request = Acquire { keys, holder: &self.holder, lease: terms.lease, held: 0, token: terms.token };
        let acquired = shared.store.acquire(&request, &mut self.doubts);
        self.judge(acquired)
    }

    /// Makes a hold of a grant, unless its lease has ended while we waited for the answer.
    fn judge(&mut self, acquired: Result<Acquired>) -> Result<Tried> {
        let Self { shared, keys, terms, .. } = *self;
        match acquired.map_err(|e| e.for_name(&keys.name))? {
            Acquired::Granted { token, sent_at } => {
                let upkeep = match (terms.renewed, terms.max_hold) {
                    (true, max_hold) => Upkeep::Renewed { until: max_hold.map(|most| sent_at.plus(most)) },
                    (false, _) => Upkeep::Fixed,
                };
                let (holder, clock) = (self.holder.clone(), shared.clock.clone());
                let grant = Grant::new(keys.clone(), holder, token, sent_at, terms.lease, upkeep, clock);
                if grant.state() == State::Lost {
                    self.give_up();
                    return Err(Error::named(
                        ErrorKind::Unreachable,
                        &keys.name,
                        "the lock was granted, but the answer came after its lease had ended",
                    ));
                }
                Hold::begin(shared, grant, self.owner).map(Tried::Held)
            }
            Acquired::Busy { ttl } => Ok(Tried::Busy(ttl)),
            // The holder is fresh: only a server that mixes up its answers says so.
            Acquired::Gone => {
                Err(Error::named(ErrorKind::Protocol, &keys.name, "the server speaks of a hold that never was"))
            }
        }
    }

    fn as_relay(&self) -> Relay {
        Relay::new(self.holder.clone(), self.terms.lease, self.terms.token)
    }

    /// What has been sent must not stand: undone in the background, and never under this holder again.
    fn give_up(&mut self) {
        let holder = std::mem::replace(&mut self.holder, self.shared.id.fresh_holder());
        self.shared.watchdog.undo(Undo {
            keys: self.keys.clone(),
            holder,
            doubts: std::mem::take(&mut self.doubts),
            expires: self.shared.clock.now().plus(self.terms.lease + self.shared.config.io_timeout),
        });
    }

    /// As the head of the line.
    fn contend(&mut self, head: &mut Head<'_>, deadline: Deadline) -> Result<Option<Arc<Hold>>> {
        let Self { shared, keys, .. } = *self;
        let mut listening = None;
        let mut poll = Backoff::new(Duration::from_millis(2), Duration::from_millis(200));
        let mut outage = Outage::new(head.relay.is_some(), shared.config.ride_out);
        // Left in the line before this thread was the head: it may have been sent already.
        let mut sent = head.collect();
        let mut ask_anyway = false;
        let patience = |pause: Duration| deadline.remaining(Instant::now()).map_or(pause, |left| left.min(pause));
        loop {
            if sent.is_none() && head.owes_a_turn() && shared.holds.local(&keys.lock).is_none() {
                listening.get_or_insert_with(|| shared.wakeups.listen(&keys.channel, head.bell()));
                head.offer_a_turn(patience(Duration::MAX));
            }
            // Before the try is sent: a message that comes while it is under way may tell of a later release.
            head.bell().clear();
            if sent.is_none() && shared.is_closed() {
                return Err(closed().for_name(&keys.name));
            }
            // One more try at the deadline, because something may have happened, but no second one.
            let last = deadline.has_passed(Instant::now());
            let local = if std::mem::take(&mut ask_anyway) { None } else { shared.holds.local(&keys.lock) };
            let tried = match (sent.take(), local) {
                (Some(Relayed::Sent { acquired, doubts }), _) => {
                    self.doubts = doubts;
                    self.judge(acquired)
                }
                (_, None) => self.try_once(),
                (_, Some(remaining)) => {
                    // At most a lease: a hold for longer may have ended otherwise, and then the server is asked.
                    let start = Instant::now();
                    match self.wait_for_local(head, patience(until_after(remaining).min(shared.config.lease))) {
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
                Ok(Tried::Held(hold)) => {
                    head.outage_is_over();
                    return Ok(Some(hold));
                }
                Ok(Tried::Busy(ttl)) => {
                    outage.is_over(head);
                    if last {
                        return Ok(None);
                    }
                    if listening.is_none() && !deadline.has_passed(Instant::now()) {
                        listening = Some(shared.wakeups.listen(&keys.channel, head.bell()));
                        if shared.wakeups.hears(&keys.channel) {
                            // A release between the try and the subscription was heard by nobody. If the server has
                            // yet to confirm it, the bell rings when it does.
                            continue;
                        }
                    }
                    ttl.inspect(|_| poll.reset())
                }
                Err(e) => match outage.pause(head, &e) {
                    Some(pause) if !deadline.has_passed(Instant::now()) => Some(pause),
                    _ => return Err(e),
                },
            };
            outage.waited = true;
            // At most a lease, in case a message is lost; much less while none can be heard.
            let most = if shared.wakeups.hears(&keys.channel) { shared.config.lease } else { DEAF };
            let pause = hint.map_or_else(|| poll.next(), until_after).min(most);
            let rung = head.bell().wait(patience(pause));
            // Nothing has happened since the last answer that another try could find.
            if !rung && !outage.goes_on && deadline.has_passed(Instant::now()) {
                return Ok(None);
            }
        }
    }

    /// A thread of this client has the lock: its release takes our try along. `None`: look again.
    fn wait_for_local(&mut self, head: &Head<'_>, patience: Duration) -> Option<Result<Tried>> {
        let may_relay = self.doubts.is_empty() && !head.owes_a_turn();
        if !may_relay {
            head.bell().wait(patience);
            return None;
        }
        let relay = Arc::new(self.as_relay());
        match head.wait_with(&relay, patience)? {
            Relayed::NotSent => None,
            Relayed::Sent { acquired, doubts } => {
                self.doubts = doubts;
                Some(self.judge(acquired))
            }
        }
    }
}

/// How often a waiter that hears no messages looks by itself.
const DEAF: Duration = Duration::from_millis(500);

/// A millisecond more than a TTL, which Redis rounds down.
fn until_after(ttl: Duration) -> Duration {
    ttl + Duration::from_millis(1)
}

impl Drop for Attempt<'_> {
    /// However the call ends: nothing of it that is in doubt may stand.
    fn drop(&mut self) {
        if !self.doubts.is_empty() {
            self.give_up();
        }
    }
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

    fn pause(&mut self, head: &Head<'_>, error: &Error) -> Option<Duration> {
        if !self.waited || !error.kind().is_outage() {
            return None;
        }
        self.goes_on = true;
        let since = head.outage_goes_on(error);
        (since.elapsed() < self.ride_out).then(|| self.pause.next())
    }
}
