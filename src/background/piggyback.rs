//! An acquire that travels with the release of another thread of this client: one round trip for
//! both. Or none: the hold passes to its owner.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::background::grant::Grant;
use crate::base::error::Result;
use crate::base::event::Event;
use crate::base::holder::Holder;
use crate::base::lock_name::{Kind, LockName};
use crate::os::{
    self, Condvar, Mutex,
    atomic::{AtomicBool, Ordering},
};
use crate::store::{Acquire, Acquired, TokenRule, UnknownOutcomes, Waiting};

/// The acquire, left by the thread that waits, for the thread that releases.
#[derive(Debug)]
pub(crate) struct Piggyback {
    name: Arc<LockName>,
    holder: Holder,
    permits: u32,
    lease: Duration,
    token: TokenRule,
    waiting: Waiting,
    /// Its owner can also take the next turn of a [run](crate::background::run), or
    /// [join](crate::background::share) a read hold.
    takes_turns: bool,
    delivery: Mutex<Delivery>,
    delivered: Condvar,
    taken: AtomicBool,
}

#[derive(Debug, Default)]
struct Delivery {
    outcome: Option<PiggybackOutcome>,
    /// When a hold was passed to it for the first time.
    passed_at: Option<Instant>,
    /// A running thread may take that hold before the owner.
    may_be_overtaken: bool,
}

/// While the owner of a hold that was passed on wakes up, for this long at most, other threads may
/// have short turns before it.
const WAKE_UP: Duration = Duration::from_micros(40);

/// What became of a piggybacked acquire.
#[derive(Debug)]
pub(crate) enum PiggybackOutcome {
    NotSent,
    /// `tokens`: how many fencing tokens it drew.
    Sent {
        acquired: Result<Acquired>,
        unknowns: UnknownOutcomes,
        tokens: u32,
    },
    /// Not sent: the owner has the next turn at the hold of this grant. Whoever takes this out must
    /// begin that turn, because nobody else gives up the hold.
    Passed(Arc<Grant>),
}

impl Piggyback {
    pub(crate) fn new(request: &Acquire<'_>, takes_turns: bool) -> Self {
        Self {
            name: request.name.clone(),
            holder: request.holder.clone(),
            permits: request.permits,
            lease: request.lease,
            token: request.token,
            waiting: request.waiting,
            takes_turns,
            delivery: Mutex::default(),
            delivered: Condvar::new(),
            taken: AtomicBool::new(false),
        }
    }

    /// `tokens`: how many fencing tokens it draws, if it takes turns.
    pub(crate) fn request(&self, tokens: u32) -> Acquire<'_> {
        let Self { name, holder, permits, lease, token, waiting, .. } = self;
        let (permits, lease, token, waiting) = (*permits, *lease, *token, *waiting);
        let draws_some = self.takes_turns && name.kind == Kind::Mutex && token == TokenRule::On;
        let tokens = if draws_some { tokens } else { 1 };
        Acquire { name, holder, permits, lease, held: 0, token, tokens, waiting }
    }

    /// Whether the hold of this grant can pass to the owner without a request.
    pub(crate) fn takes_turn_after(&self, grant: &Grant) -> bool {
        self.is_for(grant) && grant.passes_to(self.lease, self.token)
    }

    /// Whether the owner was counted as one more reader at the hold of this grant.
    pub(super) fn joins(&self, grant: &Grant) -> bool {
        self.is_for(grant) && grant.admits_one(self.lease)
    }

    /// Locks of several kinds may have the same key.
    fn is_for(&self, grant: &Grant) -> bool {
        self.takes_turns && self.name.kind == grant.name.kind
    }

    /// Called under the mutex of the local queue, when a releasing thread takes it out of there.
    pub(crate) fn take(&self) {
        self.taken.store(true, Ordering::Release);
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    pub(super) fn deliver(&self, outcome: PiggybackOutcome) {
        self.delivery.lock().outcome.get_or_insert(outcome);
        self.delivered.notify_one();
    }

    /// Passes it the hold of this grant, which its user has given up. `short`: that turn was short.
    pub(super) fn pass(&self, grant: &Arc<Grant>, short: bool) {
        let mut delivery = self.delivery.lock();
        let passed_at = *delivery.passed_at.get_or_insert_with(os::now);
        delivery.may_be_overtaken = short && os::since(passed_at) < WAKE_UP;
        delivery.outcome = Some(PiggybackOutcome::Passed(grant.clone()));
        drop(delivery);
        self.delivered.notify_one();
    }

    /// Takes the hold back that was passed to it, for a thread that runs already, if the owner is
    /// still waking up and the hold `fits`. Called under the mutex of the local queue, which then
    /// has to put it back there.
    pub(super) fn overtake(&self, fits: impl FnOnce(&Grant) -> bool) -> Option<Arc<Grant>> {
        let mut delivery = self.delivery.lock();
        let grant = match &delivery.outcome {
            Some(PiggybackOutcome::Passed(grant)) if delivery.may_be_overtaken && fits(grant) => grant.clone(),
            _ => return None,
        };
        delivery.outcome = None;
        self.taken.store(false, Ordering::Release);
        drop(delivery);
        // The owner may wait for the outcome already.
        self.delivered.notify_one();
        Some(grant)
    }

    /// Blocks until the thread that took it delivers the outcome. `None`: it was put back.
    pub(crate) fn wait(&self) -> Option<PiggybackOutcome> {
        let mut delivery = self.delivery.lock();
        loop {
            match delivery.outcome.take() {
                Some(outcome) => return Some(outcome),
                None if !self.is_taken() => return None,
                None => self.delivered.wait(&mut delivery),
            }
        }
    }
}

/// A piggybacked acquire that a releasing thread took. Its owner waits for an outcome, and gets one
/// even if that thread panics.
#[derive(Debug)]
pub(crate) struct TakenPiggyback {
    piggyback: Arc<Piggyback>,
    /// How many fencing tokens it draws.
    tokens: u32,
    /// Set if the release itself does not notify the owner.
    event: Option<Arc<Event>>,
}

impl TakenPiggyback {
    pub(crate) fn new(piggyback: Arc<Piggyback>, tokens: u32, event: Option<Arc<Event>>) -> Self {
        Self { piggyback, tokens, event }
    }

    pub(crate) fn request(&self) -> Acquire<'_> {
        self.piggyback.request(self.tokens)
    }

    pub(crate) fn deliver(self, acquired: Result<Acquired>, unknowns: UnknownOutcomes) {
        let tokens = self.tokens;
        self.piggyback.deliver(PiggybackOutcome::Sent { acquired, unknowns, tokens });
    }
}

impl Drop for TakenPiggyback {
    fn drop(&mut self) {
        // Without effect after a delivery.
        self.piggyback.deliver(PiggybackOutcome::NotSent);
        if let Some(event) = &self.event {
            event.notify();
        }
    }
}
