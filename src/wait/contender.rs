//! A call that waits for a name: how it asks for the name, and what it gets.

use std::sync::Arc;

use crate::base::error::Result;
use crate::lease::store_hold::Admission;
use crate::store::{Acquired, UnknownOutcomes};
use crate::wait::attempt::{AcquireAttempt, Tried};
use crate::wait::piggyback::Piggyback;

/// What follows [`try_once`](Self::try_once) is for a call that threads of its client can help: the
/// one that releases the lock sends this call's acquire with it, or passes its hold on. By default
/// nobody can.
pub(crate) trait Contender<'a> {
    type Won;

    fn attempt(&mut self) -> &mut AcquireAttempt<'a>;

    /// One round trip. `waits`: another will follow if this fails.
    fn try_once(&mut self, waits: bool) -> Result<Tried<Self::Won>>;

    /// Names the local queue in which it waits. The leader's answer must be one for all in it.
    fn queue_key(&mut self) -> Arc<str> {
        self.attempt().name.key.clone()
    }

    /// Whether it queues behind the other threads of this client even if the lock can be shared,
    /// because a hold that one of them is granted may serve all.
    fn queues_with_others(&self) -> bool {
        false
    }

    /// Takes a hold that is parked for the leader of its queue, which is waking up: the calling
    /// thread runs.
    fn barge(&mut self) -> Result<Option<Self::Won>> {
        Ok(None)
    }

    /// The acquire that a thread of this client may send right after its release of the lock.
    fn piggyback(&mut self) -> Option<Piggyback> {
        None
    }

    /// How many fencing tokens its requests draw from now on, if it can pass some on to the threads
    /// behind it.
    fn draw_tokens(&mut self, _tokens: u32) {}

    /// Uses a hold that was passed to it, or that it joins. `None`: that hold has ended.
    fn take_over(&mut self, _admission: Admission) -> Result<Option<Self::Won>> {
        Ok(None)
    }

    /// Uses the lock that a release has given to it, with this fencing token, 0 for none. `None`:
    /// it has to ask for it.
    fn take_grant(&mut self, _token: u64) -> Result<Option<Self::Won>> {
        Ok(None)
    }

    /// Processes the outcome of the [acquire](Self::piggyback) that another thread has sent.
    fn on_piggyback_reply(
        &mut self,
        _acquired: Result<Acquired>,
        _unknowns: UnknownOutcomes,
    ) -> Result<Tried<Self::Won>> {
        unreachable!("it leaves no acquire")
    }
}
