//! A call that waits for a name: how it asks for the name, and what it gets.

use crate::base::error::Result;
use crate::lease::store_hold::Admission;
use crate::store::{Acquired, UnknownOutcomes};
use crate::wait::attempt::{AcquireAttempt, Tried};
use crate::wait::piggyback::Piggyback;

pub(crate) trait Contender<'a> {
    type Won;

    fn attempt(&mut self) -> &mut AcquireAttempt<'a>;

    /// One round trip. `waits`: another will follow if this fails.
    fn try_once(&mut self, waits: bool) -> Result<Tried<Self::Won>>;

    /// Itself, if threads of its client can help it.
    fn helped(&mut self) -> Option<&mut dyn Helped<Won = Self::Won>> {
        None
    }
}

/// A contender that threads of its client can help: the one that releases the lock sends this
/// contender's acquire with it, or passes its hold on.
pub(crate) trait Helped {
    type Won;

    /// Whether it queues behind the other threads of this client even if the lock can be shared,
    /// because a hold that one of them is granted may serve all.
    fn queues_with_others(&self) -> bool;

    /// Takes a hold that is parked for the leader of its queue, which is waking up: the calling
    /// thread runs.
    fn barge(&mut self) -> Result<Option<Self::Won>>;

    /// The acquire that a thread of this client may send right after its release of the lock.
    fn piggyback(&mut self) -> Piggyback;

    /// How many fencing tokens its requests draw from now on, if it can pass some on to the threads
    /// behind it.
    fn draw_tokens(&mut self, tokens: u32);

    /// Uses a hold that was passed to it, or that it joins. `None`: that hold has ended.
    fn take_over(&mut self, admission: Admission) -> Result<Option<Self::Won>>;

    /// Uses the lock that a release has given to it, with this fencing token, 0 for none. `None`:
    /// it has to ask for it.
    fn take_grant(&mut self, token: u64) -> Result<Option<Self::Won>>;

    /// Processes the outcome of the acquire that another thread has sent.
    fn on_piggyback_reply(
        &mut self,
        acquired: Result<Acquired>,
        unknowns: UnknownOutcomes,
    ) -> Result<Tried<Self::Won>>;
}
