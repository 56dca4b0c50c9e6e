//! Giving up a hold: one level of it or all, by its guard, by the end of its thread, or by closing
//! the client.

use std::sync::Arc;
use std::thread::ThreadId;

use crate::background::grant::Grant;
use crate::background::piggyback::TakenPiggyback;
use crate::base::error::Result;
use crate::base::lease::{Moment, State};
use crate::base::lock_name::Kind;
use crate::session::hold::{Hold, Left, Side};
use crate::session::shared::Shared;
use crate::session::thread_exit::OnThreadExit;
use crate::store::{HandedOver, HoldCounts, Release, Released, Topic, UnknownOutcomes};

impl OnThreadExit for Shared {
    /// Releases what the thread still holds.
    fn on_thread_exit(self: Arc<Self>, thread: ThreadId) {
        if self.is_forked() {
            // Not even dropped: that could end the client in a process that owns nothing of it.
            std::mem::forget(self);
            return;
        }
        for entry in self.holds.take_thread(thread) {
            let hold = Hold::of(&self, entry);
            log::warn!("a thread ended with a hold of {:?}: releasing it", hold.name());
            hold.abandon();
        }
    }
}

impl Hold {
    /// Gives up one level. What `unlock` and Drop of every guard do.
    pub(crate) fn release_one(&self, side: Side) -> Result<()> {
        if self.shared.is_forked() {
            return self.shared.check_usable().map_err(|e| e.for_name(self.name()));
        }
        // Counted before the lease leaves its live states: a close that finds it released waits.
        let _call = self.shared.count_call();
        let outcome = self.leave_one(side)?.map_or(Ok(()), |left| self.send(&left));
        self.tell_end();
        outcome
    }

    /// The lease has left this state now, because the hold is given up.
    pub(super) fn observe_end(&self, before: State, now: Moment) {
        if matches!(before, State::Held | State::Suspect) {
            self.shared.observer.hold_ended(&self.grant.name, now.since(self.grant.since));
        }
    }

    /// Tells the listener that the hold was given up, if it was; after the release was sent,
    /// because the next holder waits for that.
    pub(crate) fn tell_end(&self) {
        let Shared { observer, .. } = &*self.shared;
        if observer.has_listener() && self.grant.is_first_to_tell() {
            let (name, held) = (&self.grant.name, self.grant.held());
            observer.tell_of(&name.name, name.kind.into(), |listener, lock| listener.released(lock, held));
        }
    }

    /// The part of giving up one level that is done in this process. Returns what has to be sent to
    /// the server, if anything.
    pub(crate) fn leave_one(&self, side: Side) -> Result<Option<Left>> {
        self.remove_count(side);
        let released = || self.grant.state() == State::Released;
        match (self.counts(), side) {
            (HoldCounts::NONE, _) => self.leave_all(),
            // Released as a whole already, because its thread has ended: as for the outermost
            // level, there is nothing left to do or to report.
            _ if released() => Ok(None),
            // The server does not know of this level.
            (HoldCounts { main: 1.., .. }, Side::Read) => self.ensure_held().map(|()| None),
            (counts, _) => self.ensure_held().map(|()| Some(self.left(counts))),
        }
    }

    /// Gives up the hold whatever its count.
    pub(super) fn release_all(&self) -> Result<()> {
        let _call = self.shared.count_call();
        let outcome = self.leave_all()?.map_or(Ok(()), |left| self.send(&left));
        self.tell_end();
        outcome
    }

    /// The order matters: the lease leaves its live states, the watchdog forgets it, the release is
    /// sent. A renewal that runs after the release then finds no hold to renew, and a reply to a
    /// renewal that arrives late finds a lease that nothing revives.
    fn leave_all(&self) -> Result<Option<Left>> {
        let now = self.grant.now();
        let before = self.grant.lease.release(now);
        self.observe_end(before, now);
        if before == State::Held && self.pass_on() {
            self.grant.wake();
            return Ok(None);
        }
        self.left_all(before)
    }

    /// Passes the hold to a thread of this client that waits for it: nothing is sent, and the turn
    /// of that thread begins. See [`run`](crate::background::run).
    ///
    /// Called after the lease has left its live states: of all that may end this hold now, only one
    /// sees it live. A suspect one is released: the store has not confirmed its last renewal.
    fn pass_on(&self) -> bool {
        self.grant.turn.is_some() && !self.shared.waits_no_more() && self.shared.local_queues.pass_on(&self.grant)
    }

    /// [`leave_all`](Self::leave_all) for a client that is closed: threads that wait for a
    /// loss of this hold are notified.
    ///
    /// # Errors
    /// `Lost` when it had been lost before: what may stand of it is undone in the background.
    pub(super) fn close(&self) -> Result<Option<Left>> {
        let now = self.grant.now();
        let before = self.grant.lease.close(now);
        self.observe_end(before, now);
        let left = self.left_all(before)?;
        if matches!(before, State::Held | State::Suspect) {
            self.shared.loss_callbacks.report(&self.grant);
        }
        Ok(left)
    }

    fn left_all(&self, before: State) -> Result<Option<Left>> {
        self.shared.watchdog.leave(&self.grant);
        self.grant.wake();
        match before {
            State::Released => {
                self.leave_table();
                Ok(None)
            }
            State::Closed => {
                self.leave_table();
                Err(self.closed())
            }
            State::Lost => {
                if self.grant.leaves_last() {
                    self.undo(UnknownOutcomes::default(), HoldCounts::NONE);
                }
                self.leave_table();
                self.shared.loss_callbacks.report(&self.grant);
                Err(self.lost())
            }
            State::Held | State::Suspect if self.grant.leaves_last() => Ok(Some(self.left(HoldCounts::NONE))),
            State::Held | State::Suspect => {
                self.shared.holds.remove(self);
                Ok(None)
            }
        }
    }

    fn left(&self, counts: HoldCounts) -> Left {
        let Shared { local_queues, notifications, .. } = &*self.shared;
        if local_queues.is_run_over(&self.grant) {
            // The client is about to yield, and counts messages from this release on: those that
            // nobody has read yet must not count as later ones.
            notifications.catch_up();
        }
        Left { counts, received_before: local_queues.messages(&self.grant.name.key).unwrap_or(0) }
    }

    /// Called only once the release is over: while it is under way, the entry keeps other threads
    /// of the client from asking the server in vain.
    pub(super) fn leave_table(&self) {
        self.shared.holds.remove(self);
        self.shared.local_queues.notify(&self.grant.name.key);
    }

    pub(super) fn send(&self, left: &Left) -> Result<()> {
        let release = self.grant.release(left.counts);
        let mut unknowns = UnknownOutcomes::default();
        let outcome = match self.next_acquire(left) {
            Some(piggyback) => self.hand_over(&release, piggyback, &mut unknowns),
            None => self.shared.store.release(&release, &mut unknowns),
        };
        self.finish(left, outcome, unknowns)
    }

    /// The acquire of this client's next thread, if it can be sent with the release.
    fn next_acquire(&self, left: &Left) -> Option<TakenPiggyback> {
        // A client that waits no more acquires nothing, for any of its threads.
        if left.counts != HoldCounts::NONE || self.shared.waits_no_more() || self.grant.is_kept() {
            return None;
        }
        let Grant { name, next, .. } = &*self.grant;
        match (name.kind, next) {
            (Kind::Mutex | Kind::Write | Kind::Read, _) => self.shared.local_queues.take_piggyback(&self.grant),
            (Kind::Fair, Some(next)) => self.shared.local_queues.take_piggyback_of(next),
            _ => None,
        }
    }

    /// Takes in the outcome of the release.
    pub(crate) fn finish(&self, left: &Left, outcome: Result<Released>, unknowns: UnknownOutcomes) -> Result<()> {
        match left.counts {
            HoldCounts::NONE => self.finish_all(left.received_before, outcome, unknowns),
            counts => self.finish_one(counts, outcome, unknowns),
        }
    }

    /// For an inner level, or the last write level above read levels. Sent once: the server stores
    /// the count that the client sends, so the next acquire or release corrects it. Only a failed
    /// downgrade is repeated in the background, because readers of other clients wait for it.
    fn finish_one(&self, left: HoldCounts, outcome: Result<Released>, unknowns: UnknownOutcomes) -> Result<()> {
        // A hold that only reads no longer keeps out this client's readers.
        if left.main == 0 && self.grant.name.kind == Kind::Write {
            if outcome.is_err() {
                self.undo(unknowns, left);
            }
            self.shared.watchdog.shared_now(&self.grant);
            self.shared.local_queues.notify(&self.grant.name.key);
        }
        match outcome {
            Ok(Released::StillHeld | Released::Freed { .. }) => Ok(()),
            Ok(Released::NotHeld) => Err(self.gone()),
            Err(e) => Err(e.for_name(self.name())),
        }
    }

    fn finish_all(&self, received_before: u64, outcome: Result<Released>, unknowns: UnknownOutcomes) -> Result<()> {
        if self.grant.release_is_over() {
            self.undo(UnknownOutcomes::default(), HoldCounts::NONE);
        }
        let name = &self.grant.name;
        match outcome {
            Ok(Released::Freed { listeners, next }) => {
                self.resolve(unknowns);
                self.shared.holds.remove(self);
                match (name.kind, next) {
                    (Kind::Fair, next) => {
                        // A waiter of this client is woken sooner than the message reaches it.
                        if let Some(next) = next.filter(|next| self.shared.id.owns(next)) {
                            self.shared.notifications.notify(&Topic::turn(name, &next));
                        }
                        // A plain lock of this client under the same name: the message is not for
                        // it.
                        self.shared.local_queues.notify(&name.key);
                    }
                    // The fairness counter does not count reads: readers keep no reader out, and a
                    // waiting writer leaves a wait marker that keeps new readers out.
                    (Kind::Read, _) => self.shared.local_queues.notify(&name.key),
                    _ => self.shared.notify_freed(name, self.grant.run(), listeners, received_before),
                }
                Ok(())
            }
            // Other readers stay, or the lock is kept: no other client can get in that could not
            // before.
            Ok(Released::StillHeld) => {
                self.resolve(unknowns);
                // Notifies the local queue all the same: if this hold was downgraded, readers of
                // this client have waited for the release. And whoever waits for a lock that is
                // kept has to ask the store from now on when it ends.
                self.leave_table();
                Ok(())
            }
            Ok(Released::NotHeld) => {
                self.resolve(unknowns);
                self.leave_table();
                self.shared.loss_callbacks.observe_loss(&self.grant);
                Err(self.lost())
            }
            Err(e) => {
                self.undo(unknowns, HoldCounts::NONE);
                self.leave_table();
                Err(e.for_name(self.name()))
            }
        }
    }

    /// Sends the acquire of this client's next thread right behind the release.
    fn hand_over(
        &self,
        release: &Release<'_>,
        piggyback: TakenPiggyback,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Released> {
        match self.shared.store.hand_over(release, &piggyback.request(), unknowns) {
            Some(HandedOver { released, acquired, unknowns }) => {
                piggyback.deliver(acquired, unknowns);
                released
            }
            None => {
                drop(piggyback);
                self.shared.store.release(release, unknowns)
            }
        }
    }

    /// Gives up the hold in the background: its thread has ended.
    fn abandon(&self) {
        if let Ok(Some(_)) = self.leave_all() {
            self.send_later();
        }
        self.tell_end();
    }

    /// In place of [`send`](Self::send), when there is no time to wait for the server.
    pub(super) fn send_later(&self) {
        // From now on a renewal that puts the hold back undoes that by itself.
        let _ = self.grant.release_is_over();
        self.undo(UnknownOutcomes::default(), HoldCounts::NONE);
        self.leave_table();
    }

    /// After a release that succeeded: the hold may still stand on a node that has not answered.
    fn resolve(&self, unknowns: UnknownOutcomes) {
        if !unknowns.is_empty() {
            self.undo(unknowns, HoldCounts::NONE);
        }
    }

    pub(super) fn undo(&self, unknowns: UnknownOutcomes, left: HoldCounts) {
        self.shared.watchdog.undo(self.grant.undo(left, unknowns));
    }
}
