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
use crate::shared::{Owner, Shared, closed};
use crate::station::{Head, Queued};
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
    let mut attempt = Attempt::new(shared, keys, terms, owner);
    // With nobody in line, there is no line to join: the way of every uncontended lock.
    let mut told = None;
    if deadline == Deadline::Now || !shared.stations.is_known(&keys.lock) && shared.holds.local(&keys.lock).is_none() {
        match attempt.try_once()? {
            Tried::Held(hold) => return Ok(Some(hold)),
            Tried::Busy(_) if deadline == Deadline::Now => return Ok(None),
            Tried::Busy(ttl) => told = Some(ttl),
        }
    }
    match shared.stations.queue(keys, deadline) {
        Queued::Head(head) => attempt.contend(&head, deadline, told.filter(|_| !head.waited)),
        Queued::TimedOut => Ok(None),
        Queued::Closed => Err(closed().for_name(&keys.name)),
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
}

impl<'a> Attempt<'a> {
    fn new(shared: &'a Arc<Shared>, keys: &'a Arc<LockKeys>, terms: &'a Terms, owner: Owner) -> Self {
        Self { shared, keys, terms, owner, holder: shared.id.fresh_holder(), doubts: Doubts::default() }
    }

    fn try_once(&mut self) -> Result<Tried> {
        let Self { shared, keys, terms, .. } = *self;
        let request = Acquire { keys, holder: &self.holder, lease: terms.lease, held: 0, token: terms.token };
        let acquired = shared.store.acquire(&request, &mut self.doubts);
        match acquired.map_err(|e| e.for_name(&keys.name))? {
            Acquired::Granted { token, sent_at } => {
                let upkeep = match (terms.renewed, terms.max_hold) {
                    (true, max_hold) => Upkeep::Renewed { until: max_hold.map(|most| sent_at.plus(most)) },
                    (false, _) => Upkeep::Fixed,
                };
                let holder = self.holder.clone();
                let clock = shared.clock.clone();
                let grant = Grant::new(keys.clone(), holder, token, sent_at, terms.lease, upkeep, clock);
                // From here on the hold undoes what is to be undone.
                let doubts = std::mem::take(&mut self.doubts);
                if grant.state() == State::Lost {
                    self.doubts = doubts;
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

    /// As the head of the line. `told`: what a try just now was told.
    fn contend(
        &mut self,
        head: &Head<'_>,
        deadline: Deadline,
        mut told: Option<Option<Duration>>,
    ) -> Result<Option<Arc<Hold>>> {
        let Self { shared, keys, .. } = *self;
        let mut listening = None;
        let mut poll = Backoff::new(Duration::from_millis(2), Duration::from_millis(200));
        let mut outage = Outage::new(head.waited || told.is_some(), shared.config.ride_out);
        let patience = || deadline.remaining(Instant::now());
        loop {
            if shared.is_closed() {
                return Err(closed().for_name(&keys.name));
            }
            if head.owes_a_turn() && shared.holds.local(&keys.lock).is_none() {
                let heard = listening.get_or_insert_with(|| shared.wakeups.listen(&keys.channel, head.bell()));
                heard.is_heard(patience().unwrap_or(shared.config.io_timeout).min(shared.config.io_timeout));
                head.offer_a_turn(patience().unwrap_or(Duration::MAX));
            }
            // Before the try is sent: a message that comes while it is under way may tell of a later release.
            head.bell().clear();
            let hint = match shared.holds.local(&keys.lock) {
                Some(remaining) => Some(remaining),
                None => match told.take().map_or_else(|| self.try_once(), |ttl| Ok(Tried::Busy(ttl))) {
                    Ok(Tried::Held(hold)) => return Ok(Some(hold)),
                    Ok(Tried::Busy(ttl)) => {
                        outage.is_over();
                        outage.waited = true;
                        if listening.is_none() && !deadline.has_passed(Instant::now()) {
                            let heard = listening.insert(shared.wakeups.listen(&keys.channel, head.bell()));
                            let limit = shared.config.io_timeout;
                            if heard.is_heard(patience().map_or(limit, |p| p.min(limit))) {
                                // A release between the try and the subscription was heard by nobody.
                                continue;
                            }
                        }
                        ttl.inspect(|_| poll.reset())
                    }
                    Err(e) => match outage.pause(&e) {
                        Some(pause) if !deadline.has_passed(Instant::now()) => Some(pause),
                        _ => return Err(e),
                    },
                },
            };
            if deadline.has_passed(Instant::now()) {
                return Ok(None);
            }
            outage.waited = true;
            // A millisecond more than the hint, which Redis rounds down; at most a lease, in case a message was lost.
            let pause = hint.map_or_else(|| poll.next(), |h| h + Duration::from_millis(1)).min(shared.config.lease);
            let rung = head.bell().wait(patience().map_or(pause, |p| p.min(pause)));
            // Nothing has happened since the last answer that another try could find.
            if !rung && outage.since.is_none() && deadline.has_passed(Instant::now()) {
                return Ok(None);
            }
        }
    }
}

impl Drop for Attempt<'_> {
    /// However the call ends: nothing of it that is in doubt may stand.
    fn drop(&mut self) {
        if !self.doubts.is_empty() {
            self.give_up();
        }
    }
}

/// How long a call puts up with a server that cannot be asked: a call that has not waited yet, not at all.
struct Outage {
    waited: bool,
    ride_out: Duration,
    since: Option<Instant>,
    pause: Backoff,
}

impl Outage {
    fn new(waited: bool, ride_out: Duration) -> Self {
        let pause = Backoff::new(Duration::from_millis(20), Duration::from_millis(250));
        Self { waited, ride_out, since: None, pause }
    }

    fn is_over(&mut self) {
        self.since = None;
        self.pause.reset();
    }

    fn pause(&mut self, error: &Error) -> Option<Duration> {
        if !self.waited || !error.kind().is_outage() {
            return None;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        (since.elapsed() < self.ride_out).then(|| self.pause.next())
    }
}
