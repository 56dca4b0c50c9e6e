//! An acquire that travels with the release of another thread of this client, in one round trip. If
//! the hold itself is passed on, nothing is sent at all.

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lock_name::{Kind, LockName};
use crate::lease::records::{StoreHold, Tenure};
use crate::lease::store_hold::{Admission, RunLength};
use crate::os::{
    Condvar, Mutex,
    atomic::{AtomicBool, Ordering},
};
use crate::signal::event::Event;
use crate::store::{Acquire, Acquired, TokenRule, UnknownOutcomes, Waiting};

/// The acquire that a waiting thread leaves for the releasing thread.
#[derive(Debug)]
pub(crate) struct Piggyback {
    name: Arc<LockName>,
    holder: Holder,
    permits: u32,
    lease: Duration,
    token: TokenRule,
    waiting: Waiting,
    /// Its owner can also take the next turn of a [run](crate::wait::fairness), or
    /// [join](crate::lease::store_hold) a read hold.
    takes_turns: bool,
    delivery: Mutex<Option<PiggybackOutcome>>,
    delivered: Condvar,
    taken: AtomicBool,
}

/// What became of a piggybacked acquire.
#[derive(Debug)]
pub(crate) enum PiggybackOutcome {
    NotSent,
    /// `tokens`: how many fencing tokens it drew; `round`: the round of its owner's event in which
    /// it was taken, before it was sent.
    Sent {
        acquired: Result<Acquired>,
        unknowns: UnknownOutcomes,
        tokens: u32,
        round: u64,
    },
    /// Not sent: a thread of this client has [parked](crate::wait::parking) its hold.
    Parked(Admission),
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
        let permits = *permits;
        let lease = *lease;
        let token = *token;
        let waiting = *waiting;
        let draws_some = self.takes_turns && name.kind == Kind::Mutex && token == TokenRule::On;
        let tokens = if draws_some { tokens } else { 1 };
        Acquire { name, holder, permits, lease, held: 0, token, tokens, waiting, goes_on: true }
    }

    /// Admits the owner as the next user of a hold that this tenure, its only one, has given up, if
    /// the run `goes_on`.
    pub(super) fn succeeds(
        &self,
        tenure: &Arc<Tenure>,
        goes_on: impl FnOnce(RunLength) -> bool,
    ) -> Option<Admission> {
        if !self.is_for(&tenure.store_hold) {
            return None;
        }
        tenure.store_hold.admit_next(tenure, (self.lease, self.token), goes_on)
    }

    /// Admits the owner as one more reader of a hold.
    pub(super) fn joins(&self, hold: &Arc<StoreHold>) -> Option<Admission> {
        if self.is_for(hold) { hold.admit_reader(self.lease) } else { None }
    }

    /// Locks of several kinds may have the same key.
    fn is_for(&self, hold: &StoreHold) -> bool {
        self.takes_turns && self.name.kind == hold.asked.name.kind
    }

    /// Called under the mutex of the local queue, when a releasing thread takes it out.
    pub(crate) fn take(&self) {
        self.taken.store(true, Ordering::Release);
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    pub(super) fn deliver(&self, outcome: PiggybackOutcome) {
        self.delivery.lock().get_or_insert(outcome);
        self.delivered.notify_one();
    }

    /// Blocks until the thread that took it delivers the outcome.
    pub(crate) fn wait(&self) -> PiggybackOutcome {
        let mut delivery = self.delivery.lock();
        loop {
            match delivery.take() {
                Some(outcome) => return outcome,
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
    /// The round of its owner's event.
    round: u64,
    /// Set if the release itself does not notify the owner.
    event: Option<Arc<Event>>,
    /// It is being sent, so it may have run if nothing is delivered.
    may_run: bool,
}

impl TakenPiggyback {
    pub(crate) fn new(
        piggyback: Arc<Piggyback>,
        tokens: u32,
        round: u64,
        event: Option<Arc<Event>>,
    ) -> Self {
        Self { piggyback, tokens, round, event, may_run: false }
    }

    /// What to send now. Afterwards either [`deliver`](Self::deliver) the outcome, or
    /// [return](Self::was_not_sent) it.
    pub(crate) fn request(&mut self) -> Acquire<'_> {
        self.may_run = true;
        self.piggyback.request(self.tokens)
    }

    pub(crate) fn was_not_sent(mut self) {
        self.may_run = false;
    }

    pub(crate) fn deliver(mut self, acquired: Result<Acquired>, unknowns: UnknownOutcomes) {
        self.may_run = false;
        let tokens = self.tokens;
        let round = self.round;
        self.piggyback.deliver(PiggybackOutcome::Sent { acquired, unknowns, tokens, round });
    }
}

impl Drop for TakenPiggyback {
    fn drop(&mut self) {
        // Has no effect after a delivery.
        if self.may_run {
            // A panic while it was sent: the owner has to undo it.
            let why = "a thread panicked while it sent the acquire of this call with its release";
            let (acquired, tokens, round) =
                (Err(Error::new(ErrorKind::Protocol, why)), self.tokens, self.round);
            let unknowns = UnknownOutcomes::of_a_panic();
            self.piggyback.deliver(PiggybackOutcome::Sent { acquired, unknowns, tokens, round });
        } else {
            self.piggyback.deliver(PiggybackOutcome::NotSent);
        }
        if let Some(event) = &self.event {
            event.notify();
        }
    }
}
