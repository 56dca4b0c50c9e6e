//! A level of a hold that was given up in this process, and has yet to be given up in the store.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::lock_name::Kind;
use crate::hold::guarded::Hold;
use crate::store::{HandedOver, HoldCounts, NextUp, Release, Released, Topic, UnknownOutcomes};
use crate::wait::local_queue::LocalQueue;
use crate::wait::piggyback::TakenPiggyback;

/// The duty to give up the level in the store, and what is needed for that.
///
/// Whoever has this must [send](Self::send) the release, or [finish](Self::finish) one that was
/// sent with others. If it is dropped before that, the hold leaves the tables of the client and is
/// undone in the background: this is how a close gives up holds when its time is up, and what
/// happens after a panic in the middle of a release. Otherwise the entry in the hold table would
/// keep the other threads of the client from the lock for ever.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) hold: Hold,
    /// What the holder has left after the release.
    pub(crate) counts: HoldCounts,
    /// The threads of this client that wait for the lock, if it is given up.
    queue: Option<Arc<LocalQueue>>,
    /// How many messages they had received before.
    received_before: u64,
    is_over: bool,
}

impl Drop for Leaving {
    /// Does no I/O, logs nothing and runs no user code: it may be a logger that has panicked.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if self.counts == HoldCounts::NONE {
            // From now on a renewal that puts the hold back undoes that by itself.
            let _ = self.hold.tenure.store_hold.end_release();
        }
        if self.counts == HoldCounts::NONE || self.is_downgrade() {
            let undo = self.hold.tenure.store_hold.undo(self.counts, UnknownOutcomes::default());
            let _ = self.hold.client.watchdog.remember(undo);
        }
        self.leave_tables();
    }
}

impl Leaving {
    pub(super) fn new(hold: &Hold, counts: HoldCounts) -> Self {
        // Made before anything that may panic.
        let mut leaving =
            Self { hold: hold.clone(), counts, queue: None, received_before: 0, is_over: false };
        if counts == HoldCounts::NONE {
            leaving.queue = hold.client.local_queues.find(&hold.tenure.lock_name().key);
        }
        if let Some(queue) = &leaving.queue {
            if queue.counts_messages(&hold.tenure.store_hold) {
                // The client is about to yield, and counts messages from this release on: those
                // that nobody has read yet must not count as later ones. Or it has yielded, and
                // messages since then show that others have held the lock.
                hold.client.notifications.catch_up();
            }
            leaving.received_before = queue.messages();
        }
        leaving
    }

    /// Whether nothing changes the data of the hold any more.
    pub(crate) fn ends_data(&self) -> bool {
        self.counts == HoldCounts::NONE && self.hold.tenure.store_hold.asked.holder.data().is_some()
    }

    pub(crate) fn send(self) -> Result<()> {
        let store_hold = self.hold.tenure.store_hold.clone();
        let release = store_hold.release(self.counts);
        let mut unknowns = UnknownOutcomes::default();
        let outcome = match self.next_acquire() {
            Some(piggyback) => self.hand_over(&release, piggyback, &mut unknowns),
            None => self.hold.client.store.release(&release, &mut unknowns),
        };
        self.finish(outcome, unknowns)
    }

    /// Sends a request of the caller that releases the hold and does more.
    pub(super) fn send_by(
        self,
        send: impl FnOnce(&mut UnknownOutcomes) -> Result<Released>,
    ) -> Result<()> {
        let mut unknowns = UnknownOutcomes::default();
        let outcome = send(&mut unknowns);
        self.finish(outcome, unknowns)
    }

    /// The acquire of this client's next thread, if it can be sent with the release.
    fn next_acquire(&self) -> Option<TakenPiggyback> {
        let client = &self.hold.client;
        let store_hold = &self.hold.tenure.store_hold;
        if self.queue.is_none() && store_hold.next.is_none() {
            return None;
        }
        // A client that has stopped waiting acquires nothing for any of its threads.
        if self.counts != HoldCounts::NONE || client.life.has_stopped() || store_hold.is_kept() {
            return None;
        }
        match (store_hold.asked.name.kind, &self.queue, &store_hold.next) {
            (Kind::Mutex | Kind::Write | Kind::Read, Some(queue), _) => {
                queue.take_piggyback(store_hold)
            }
            (Kind::Fair, _, Some(next)) => client.local_queues.take_piggyback_of(next),
            _ => None,
        }
    }

    /// Sends the acquire of this client's next thread directly after the release.
    fn hand_over(
        &self,
        release: &Release<'_>,
        mut piggyback: TakenPiggyback,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Released> {
        let store = &self.hold.client.store;
        match store.hand_over(release, &piggyback.request(), unknowns) {
            Some(HandedOver { released, acquired, unknowns }) => {
                piggyback.deliver(acquired, unknowns);
                released
            }
            None => {
                piggyback.was_not_sent();
                store.release(release, unknowns)
            }
        }
    }

    /// Processes the outcome of the release.
    pub(crate) fn finish(
        mut self,
        outcome: Result<Released>,
        unknowns: UnknownOutcomes,
    ) -> Result<()> {
        let finished = match self.counts {
            HoldCounts::NONE => self.finish_all(outcome, unknowns),
            _ => self.finish_one(outcome, unknowns),
        };
        self.is_over = true;
        finished
    }

    /// For an inner level, or the last write level above read levels. Sent once: the server stores
    /// the count that the client sends, so the next acquire or release corrects it. Only a failed
    /// downgrade is repeated in the background, because readers of other clients wait for it.
    fn finish_one(&self, outcome: Result<Released>, unknowns: UnknownOutcomes) -> Result<()> {
        if self.is_downgrade() {
            if outcome.is_err() {
                self.hold.undo(unknowns, self.counts);
            }
            self.leave_tables();
        }
        match outcome {
            Ok(Released::StillHeld | Released::Freed { .. }) => Ok(()),
            Ok(Released::NotHeld) => Err(self.hold.gone()),
            Err(e) => Err(e.for_name(self.hold.name())),
        }
    }

    fn finish_all(&self, outcome: Result<Released>, unknowns: UnknownOutcomes) -> Result<()> {
        let hold = &self.hold;
        if hold.tenure.store_hold.end_release() {
            hold.undo(UnknownOutcomes::default(), HoldCounts::NONE);
        }
        let released = match outcome {
            Ok(released) => released,
            Err(e) => {
                hold.undo(unknowns, HoldCounts::NONE);
                self.leave_tables();
                return Err(e.for_name(hold.name()));
            }
        };
        // The hold may still be at a node that has not answered.
        if !unknowns.is_empty() {
            hold.undo(unknowns, HoldCounts::NONE);
        }
        match released {
            Released::Freed { listeners, next } => self.freed(listeners, next),
            // Other readers stay, or the lock is kept taken: no other client can get in that could
            // not before. The local queue is notified anyway: if this hold was downgraded, readers
            // of this client have waited for the release, and a waiter for a lock that is kept
            // taken must ask the store from now on when that ends.
            Released::StillHeld => self.leave_tables(),
            Released::NotHeld => {
                self.leave_tables();
                hold.client.loss_callbacks.observe_loss(&hold.tenure);
                return Err(hold.lost());
            }
        }
        Ok(())
    }

    fn freed(&self, listeners: Option<u64>, next: Option<NextUp>) {
        let Hold { client, .. } = &self.hold;
        let name = self.hold.tenure.lock_name();
        client.holds.remove(&self.hold.tenure);
        match name.kind {
            Kind::Fair => {
                // A waiter of this client is woken sooner than the message reaches it.
                if let Some(NextUp { holder, grant }) = next
                    && client.who.id.owns(&holder)
                {
                    let topic = Topic::turn(name, &holder);
                    match grant {
                        Some(token) => client.notifications.grant(&topic, token),
                        None => client.notifications.notify(&topic),
                    }
                }
                // A plain lock of this client under the same name: the message is not for it.
                client.local_queues.notify(&name.key);
            }
            // The fairness counter does not count reads: readers keep no reader out, and a waiting
            // writer leaves a wait marker that keeps new readers out.
            Kind::Read => client.local_queues.notify(&name.key),
            _ => client.notify_freed(
                name,
                self.hold.tenure.store_hold.run(),
                listeners,
                self.received_before,
            ),
        }
    }

    /// Whether it is the last write level above read levels.
    fn is_downgrade(&self) -> bool {
        self.counts != HoldCounts::NONE
            && self.counts.main == 0
            && self.hold.tenure.lock_name().kind == Kind::Write
    }

    /// Call it once the release is over, and not before: the entry keeps the other threads of the
    /// client from asking the server in vain. A hold that only reads from now on stays in the
    /// table, and keeps no readers of this client out.
    fn leave_tables(&self) {
        match self.counts {
            HoldCounts::NONE => self.hold.leave_table(),
            _ if self.is_downgrade() => {
                self.hold.client.watchdog.only_reads(&self.hold.tenure.store_hold);
                self.hold.client.local_queues.notify(&self.hold.tenure.lock_name().key);
            }
            _ => {}
        }
    }
}
