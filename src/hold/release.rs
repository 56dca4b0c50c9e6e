//! Giving up a hold: one level of it or all, by its guard, by the end of its thread, or by closing
//! the client.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::lease::{LeaseState, Moment};
use crate::base::log;
use crate::hold::guarded::{Hold, Side};
use crate::hold::leaving::Leaving;
use crate::hold::thread_exit::OnThreadExit;
use crate::os::thread::ThreadId;
use crate::report::spans::HoldEnd;
use crate::store::{HoldCounts, Released, UnknownOutcomes};
use crate::wait::client_state::ClientState;
use crate::wait::life::Call;

impl OnThreadExit for ClientState {
    /// Releases what the thread still holds.
    fn on_thread_exit(self: Arc<Self>, thread: ThreadId) {
        if self.is_forked() {
            // Not dropped either: that could end the client in a process that owns nothing of it.
            std::mem::forget(self);
            return;
        }
        let holds: Vec<Hold> =
            self.holds.all_of(thread).into_iter().map(|tenure| Hold::of(&self, tenure)).collect();
        // Counted like any release: a close that ended in between would leave a hold to a watchdog
        // that has stopped.
        let call = self.life.count_call();
        for hold in &holds {
            hold.abandon();
        }
        drop(call);
        // Last: a logger, a listener or a tracer that blocks must not keep a lock from others.
        for hold in holds {
            log::warn!("a thread ended with a hold of {:?}: releasing it", hold.name());
            hold.tell_end(HoldEnd::Released);
        }
    }
}

impl Hold {
    /// Gives up one level, for `unlock` and Drop of every guard.
    pub(crate) fn release_one(&self, side: Side) -> Result<()> {
        if self.client.is_forked() {
            return self.client.check_usable().map_err(|e| e.for_name(self.name()));
        }
        let call = self.client.life.count_call();
        self.send_and_tell(call, self.leave_one(side), Leaving::send)
    }

    /// Gives up the hold, which has one level, by a request of the caller that releases it and does
    /// more. The hold stays with no other thread of the client.
    ///
    /// # Errors
    /// `Lost` without a request when it was lost before; otherwise why the request failed, and then
    /// the hold is released in the background.
    pub(crate) fn release_by(
        &self,
        send: impl FnOnce(&mut UnknownOutcomes) -> Result<Released>,
    ) -> Result<()> {
        if self.client.is_forked() {
            return self.client.check_usable().map_err(|e| e.for_name(self.name()));
        }
        let call = self.client.life.count_call();
        self.tenure.remove_count(Side::Main);
        let now = self.tenure.now();
        let before = self.tenure.release(now);
        self.observe_end(before, now);
        self.send_and_tell(call, self.left_all(before, now), |leaving| leaving.send_by(send))
    }

    /// The lease has left this state now, because the hold is given up.
    pub(super) fn observe_end(&self, before: LeaseState, now: Moment) {
        if matches!(before, LeaseState::Held | LeaseState::Suspect) {
            self.client.seen.observer.hold_ended(
                self.tenure.store_hold.asked.primitive,
                self.tenure.lock_name(),
                now.since(self.tenure.since),
            );
        }
    }

    /// Notifies the listener and the tracer that the hold was given up, if it was. Called after the
    /// release was sent, because the next holder waits for that. `released`: the end of a hold that
    /// was neither lost nor closed.
    pub(crate) fn tell_end(&self, released: HoldEnd) {
        let observer = &self.client.seen.observer;
        if !observer.is_watched() {
            return;
        }
        let state = self.tenure.state();
        let end = match state {
            LeaseState::Held | LeaseState::Suspect => return,
            // The release itself may have found the loss.
            LeaseState::Lost => HoldEnd::Lost(self.tenure.loss_now()),
            LeaseState::Released if self.tenure.was_reported() => {
                HoldEnd::Lost(self.tenure.loss_now())
            }
            LeaseState::Released => released,
            LeaseState::Closed => HoldEnd::Closed,
        };
        if let Some(span) = self.tenure.take_span() {
            observer.end_span(span, |span| span.end_hold(end));
        }
        if state != LeaseState::Lost && self.tenure.begin_telling() {
            let name = self.tenure.lock_name();
            let held = self.tenure.held();
            observer.tell_of(&name.name, name.kind.into(), |listener, lock| {
                listener.released(lock, held);
            });
        }
    }

    /// The part of giving up one level that is done in this process. Returns what has to be sent to
    /// the server, if anything.
    pub(crate) fn leave_one(&self, side: Side) -> Result<Option<Leaving>> {
        self.tenure.remove_count(side);
        match (self.tenure.counts(), side) {
            (HoldCounts::NONE, _) => self.leave_all(),
            // Released as a whole already, because its thread has ended: as for the outermost
            // level, there is nothing left to do or to report.
            _ if self.tenure.state() == LeaseState::Released => Ok(None),
            // The server does not know of this level.
            (HoldCounts { main: 1.., .. }, Side::Read) => self.ensure_held().map(|()| None),
            (counts, _) => self.ensure_held().map(|()| Some(Leaving::new(self, counts))),
        }
    }

    /// Gives up the hold whatever its count.
    pub(super) fn release_all(&self) -> Result<()> {
        let call = self.client.life.count_call();
        self.send_and_tell(call, self.leave_all(), Leaving::send)
    }

    /// `call`: counted before the lease left its live states, so that a close that finds it
    /// released waits for this call.
    fn send_and_tell(
        &self,
        call: Call,
        leaving: Result<Option<Leaving>>,
        send: impl FnOnce(Leaving) -> Result<()>,
    ) -> Result<()> {
        let outcome = match leaving {
            Ok(Some(leaving)) => send(leaving),
            Ok(None) => Ok(()),
            Err(e) => Err(e),
        };
        // A close need not wait for the listener: nothing is left to release.
        drop(call);
        self.tell_end(HoldEnd::Released);
        outcome
    }

    /// Ends the tenure, then checks the hold: it passes on, stays for its other users, or must be
    /// released.
    fn leave_all(&self) -> Result<Option<Leaving>> {
        let now = self.tenure.now();
        let before = self.tenure.release(now);
        self.observe_end(before, now);
        if before == LeaseState::Held && self.park() {
            self.tenure.wake();
            return Ok(None);
        }
        self.left_all(before, now)
    }

    /// Leaves the hold to a thread of this client that waits for it: nothing is sent.
    ///
    /// Called after the tenure has ended: of all the threads that may end it now, only one sees it
    /// live. A suspect hold is released: the store has not confirmed its last renewal.
    fn park(&self) -> bool {
        match self.client.local_queues.find(&self.tenure.lock_name().key) {
            Some(queue) => !self.client.life.has_stopped() && queue.park(&self.tenure),
            None => false,
        }
    }

    /// [`leave_all`](Self::leave_all) for a client that is closed: threads that wait for a
    /// loss of this hold are notified.
    ///
    /// # Errors
    /// `Lost` when it had been lost before: what may remain of it in the store is undone in the
    /// background.
    pub(super) fn close(&self) -> Result<Option<Leaving>> {
        let now = self.tenure.now();
        let before = self.tenure.close(now);
        self.observe_end(before, now);
        let leaving = self.left_all(before, now)?;
        if matches!(before, LeaseState::Held | LeaseState::Suspect) {
            self.client.loss_callbacks.report_of_owner(&self.tenure);
        }
        Ok(leaving)
    }

    fn left_all(&self, before: LeaseState, now: Moment) -> Result<Option<Leaving>> {
        self.tenure.wake();
        let is_last = self.leave_if_last(before, now);
        match before {
            LeaseState::Held | LeaseState::Suspect if is_last => {
                return Ok(Some(Leaving::new(self, HoldCounts::NONE)));
            }
            // Other threads still use it.
            LeaseState::Held | LeaseState::Suspect => self.client.holds.remove(&self.tenure),
            LeaseState::Released | LeaseState::Closed | LeaseState::Lost => self.leave_table(),
        }
        match before {
            LeaseState::Closed => Err(self.closed()),
            LeaseState::Lost => {
                if is_last {
                    self.undo(UnknownOutcomes::default(), HoldCounts::NONE);
                }
                // The loss came during the release, and nobody else reports it.
                if self.tenure.state() == LeaseState::Released {
                    self.observe_end(LeaseState::Held, now);
                    self.client.loss_callbacks.observe_loss(&self.tenure);
                }
                self.client.loss_callbacks.report_of_owner(&self.tenure);
                Err(self.lost())
            }
            LeaseState::Held | LeaseState::Suspect | LeaseState::Released => Ok(None),
        }
    }

    /// The tenure, which was in this state, leaves its hold. With the last one the lease leaves its
    /// live states, and the watchdog forgets it.
    ///
    /// Only the caller that ended the tenure or finds it lost leaves the hold: a close during an
    /// unlock does neither.
    pub(super) fn leave_if_last(&self, before: LeaseState, now: Moment) -> bool {
        let has_left = matches!(before, LeaseState::Released | LeaseState::Closed);
        let is_last = !has_left && self.tenure.store_hold.leave(&self.tenure);
        if is_last {
            // The order matters: the lease leaves its live states, the watchdog forgets it, the
            // release is sent. A renewal that runs after the release then finds no hold to renew,
            // and a reply to a renewal that arrives late finds a lease that nothing revives.
            self.tenure.store_hold.lease.release(now);
            self.client.watchdog.leave(&self.tenure.store_hold);
        }
        is_last
    }

    pub(super) fn leave_table(&self) {
        self.client.holds.remove(&self.tenure);
        self.client.local_queues.notify(&self.tenure.lock_name().key);
    }

    /// Gives up the hold in the background: its thread has ended.
    fn abandon(&self) {
        // Dropping the result sends in the background what is left to send.
        drop(self.leave_all());
    }

    pub(super) fn undo(&self, unknowns: UnknownOutcomes, left: HoldCounts) {
        self.client.watchdog.undo(self.tenure.store_hold.undo(left, unknowns));
    }
}
