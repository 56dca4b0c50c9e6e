//! What every guard owns: one hold of one lock, and how it is given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::background::grant::{Callback, Grant, OnLost};
use crate::background::piggyback::TakenPiggyback;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::{Moment, State};
use crate::base::lock_name::Kind;
use crate::session::thread_exit::release_at_thread_exit;
use crate::session::{Owner, Shared, closed};
use crate::store::{HandedOver, HoldCounts, Release, Released, Renewal, Renewed, Topic, UnknownOutcomes};

/// One holder's possession of one lock, shared by the guards of all its levels.
pub(crate) struct Hold {
    shared: Arc<Shared>,
    pub(crate) grant: Arc<Grant>,
    pub(crate) owner: Owner,
    /// Whether a method of its thread enters it once more.
    pub(crate) reentrant: bool,
    /// How many guards of each side there are, reads in the upper half. Told to the server, never asked from it. Changed
    /// only by the one thread that the hold, or its single owned guard, belongs to.
    counts: AtomicU64,
}

/// What a hold is given up to: what the server is told, and what is needed once it has answered.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) counts: HoldCounts,
    /// The messages that this client's waiters had heard before.
    received_before: u64,
}

/// Which side of a hold a guard is a level of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The lock; of a read-write lock, its write side.
    Main,
    /// The read side of a read-write lock.
    Read,
}

impl Side {
    const fn one(self) -> u64 {
        match self {
            Self::Main => 1,
            Self::Read => 1 << 32,
        }
    }
}

impl Hold {
    /// Enters a grant into the hold table and the watchdog: from here on it is found, renewed and released.
    pub(crate) fn begin(shared: &Arc<Shared>, grant: Grant, owner: Owner, reentrant: bool) -> Result<Arc<Self>> {
        let side = if grant.name.kind == Kind::Read { Side::Read } else { Side::Main };
        let counts = AtomicU64::new(side.one());
        let hold = Arc::new(Self { shared: shared.clone(), grant: Arc::new(grant), owner, reentrant, counts });
        if matches!(owner, Owner::Thread(_)) {
            release_at_thread_exit(shared);
        }
        shared.holds.insert(hold.clone());
        if let Err(e) = shared.watchdog.watch(&hold.grant) {
            let _ = hold.release_all();
            return Err(e.for_name(&hold.grant.name.name));
        }
        // A close that took all holds just before the insert has not seen this one.
        if shared.is_closed() {
            let _ = hold.release_all();
            return Err(closed().for_name(hold.name()));
        }
        Ok(hold)
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.shared.is_forked()
    }

    pub(crate) fn name(&self) -> &str {
        &self.grant.name.name
    }

    pub(crate) fn is_held(&self) -> bool {
        let now = self.grant.now();
        !self.shared.is_forked_at(now) && self.grant.lease.is_held(now)
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.shared.is_forked() { Duration::ZERO } else { self.grant.remaining() }
    }

    pub(crate) fn ensure_held(&self) -> Result<()> {
        if self.shared.is_forked() {
            return self.shared.check_usable().map_err(|e| e.for_name(self.name()));
        }
        match self.grant.state() {
            State::Held | State::Suspect => Ok(()),
            State::Lost => Err(self.lost()),
            State::Released | State::Closed => Err(self.closed()),
        }
    }

    pub(crate) fn wait_lost(&self, timeout: Duration) -> bool {
        !self.shared.is_forked() && self.grant.wait_lost(timeout)
    }

    pub(crate) fn on_lost(&self, callback: &OnLost) {
        if !self.shared.is_forked() {
            self.shared.loss_callbacks.watch(&self.shared.client_name, &self.grant, callback);
        }
    }

    /// What becomes of the callbacks that a guard took back before it gave up its level with this outcome.
    pub(crate) fn finish_callbacks(&self, callbacks: Vec<Callback>, given_up: &Result<()>) {
        self.shared.loss_callbacks.finish(callbacks, given_up);
    }

    pub(crate) fn count(&self) -> u32 {
        let HoldCounts { main, reads } = if self.shared.is_forked() { HoldCounts::NONE } else { self.counts() };
        main.saturating_add(reads)
    }

    pub(crate) fn counts(&self) -> HoldCounts {
        let word = self.counts.load(Ordering::Acquire);
        HoldCounts { main: word as u32, reads: (word >> 32) as u32 }
    }

    /// How long this hold keeps other threads of the client from the lock, for certain. Also while its release is
    /// under way: the one who releases rings when it is over.
    pub(crate) fn blocks_for(&self) -> Option<Duration> {
        let released = matches!(self.grant.state(), State::Released | State::Closed);
        if !self.grant.name.kind.is_exclusive() || (self.counts().main == 0 && !released) {
            return None;
        }
        match self.grant.state() {
            State::Held | State::Suspect => Some(self.grant.remaining()),
            State::Released | State::Closed => Some(self.shared.config.io_timeout),
            State::Lost => None,
        }
    }

    /// One level more, by the thread that has the hold.
    ///
    /// # Errors
    /// `Lost` when the hold is gone: it is never quietly taken again. A failure changes nothing here, and nothing is
    /// sent after it: an undo through the general path would release the live outer hold.
    pub(crate) fn reenter(
        &self,
        side: Side,
        lease: Duration,
        acquire: impl FnOnce() -> Result<Option<Moment>>,
    ) -> Result<()> {
        self.may_reenter(side, lease)?;
        match acquire()? {
            Some(sent_at) => {
                self.confirmed(sent_at, lease)?;
                self.add_count(side);
                Ok(())
            }
            None => Err(self.gone()),
        }
    }

    /// Before one level more is asked for.
    pub(crate) fn may_reenter(&self, side: Side, lease: Duration) -> Result<()> {
        self.ensure_held()?;
        self.check_room(side)?;
        self.grant.asks_for(lease);
        Ok(())
    }

    /// One level more was granted.
    pub(crate) fn add_count(&self, side: Side) {
        self.counts.fetch_add(side.one(), Ordering::AcqRel);
    }

    /// The server confirmed the hold for `lease`; an error when it is over here all the same.
    pub(crate) fn confirmed(&self, sent_at: Moment, lease: Duration) -> Result<()> {
        match self.grant.confirmed(sent_at, lease) {
            State::Held | State::Suspect => Ok(()),
            State::Lost => Err(self.lost()),
            State::Released | State::Closed => Err(self.closed()),
        }
    }

    /// The server does not know the hold: told to everybody, as the error for whoever asked.
    pub(crate) fn gone(&self) -> Error {
        self.tell_lost();
        self.lost()
    }

    /// A read level inside a write hold: known here only.
    pub(crate) fn nest_read(&self) -> Result<()> {
        self.ensure_held()?;
        self.check_room(Side::Read)?;
        self.add_count(Side::Read);
        Ok(())
    }

    fn check_room(&self, side: Side) -> Result<()> {
        let HoldCounts { main, reads } = self.counts();
        let held = if side == Side::Main { main } else { reads };
        if held < u32::MAX {
            return Ok(());
        }
        Err(Error::named(ErrorKind::InvalidInput, self.name(), "re-entered 2^32 - 1 times"))
    }

    /// Lengthens the lease to at least `lease` from now.
    pub(crate) fn extend(&self, lease: Duration) -> Result<()> {
        let renewal = self.extension(lease)?;
        let answers = self.shared.store.extend(&[renewal]).map_err(|e| e.for_name(self.name()))?;
        answers.into_iter().try_for_each(|renewed| self.extended(lease, renewed))
    }

    /// What is asked of the server to lengthen the lease.
    pub(crate) fn extension(&self, lease: Duration) -> Result<Renewal> {
        self.ensure_held()?;
        self.grant.asks_for(lease);
        Ok(self.grant.renewal_for(lease))
    }

    /// What came of that.
    pub(crate) fn extended(&self, lease: Duration, renewed: Renewed) -> Result<()> {
        match renewed {
            Renewed::Held { sent_at, again, beside } => {
                self.grant.looked(sent_at, beside);
                let confirmed = self.confirmed(sent_at, lease);
                if again && confirmed.is_err() {
                    self.undo(UnknownOutcomes::default(), HoldCounts::NONE);
                }
                confirmed
            }
            Renewed::Gone => Err(self.gone()),
            Renewed::Failed(e) => Err(e.for_name(self.name())),
        }
    }

    /// The server does not know this hold any more.
    pub(crate) fn tell_lost(&self) {
        if self.grant.lose() == State::Lost {
            self.shared.loss_callbacks.tell(&self.grant);
        }
        // Threads of this client sleep for as long as they think that it is held here.
        self.shared.local_queues.notify(&self.grant.name.key);
    }

    /// Gives up one level. What `unlock` and Drop of every guard do.
    pub(crate) fn release_one(&self, side: Side) -> Result<()> {
        if self.shared.is_forked() {
            return self.shared.check_usable().map_err(|e| e.for_name(self.name()));
        }
        self.leave_one(side)?.map_or(Ok(()), |leaving| self.send(&leaving))
    }

    /// Gives up one level as far as that is done here. What has to be told to the server, if anything has.
    pub(crate) fn leave_one(&self, side: Side) -> Result<Option<Left>> {
        self.counts.fetch_sub(side.one(), Ordering::AcqRel);
        let released = self.grant.state() == State::Released;
        match (self.counts(), side) {
            (HoldCounts::NONE, _) => self.leave_all(),
            // Given up as a whole already, because its thread has ended: as for the outermost level, there is nothing left
            // to do or to report.
            _ if released => Ok(None),
            // Known here only.
            (HoldCounts { main: 1.., .. }, Side::Read) => self.ensure_held().map(|()| None),
            (counts, _) => self.ensure_held().map(|()| Some(self.left(counts))),
        }
    }

    /// Gives up the hold whatever its count.
    pub(crate) fn release_all(&self) -> Result<()> {
        self.leave_all()?.map_or(Ok(()), |leaving| self.send(&leaving))
    }

    /// Order: the lease leaves its live states, the watchdog forgets it, the release is sent. A renewal that crosses
    /// the release finds the field gone; one that was answered late finds a lease that nothing revives.
    fn leave_all(&self) -> Result<Option<Left>> {
        self.left_all(self.grant.lease.release(self.grant.now()))
    }

    /// [`leave_all`](Self::leave_all) for a client that is closed: whoever waits for a loss of it is told.
    ///
    /// # Errors
    /// `Lost` when it had been lost before: what may stand of it is undone in the background.
    pub(crate) fn close(&self) -> Result<Option<Left>> {
        let left = self.left_all(self.grant.lease.close(self.grant.now()))?;
        if left.is_some() {
            self.shared.loss_callbacks.tell(&self.grant);
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
                self.undo(UnknownOutcomes::default(), HoldCounts::NONE);
                self.leave_table();
                self.shared.loss_callbacks.tell(&self.grant);
                Err(self.lost())
            }
            State::Held | State::Suspect => Ok(Some(self.left(HoldCounts::NONE))),
        }
    }

    fn left(&self, counts: HoldCounts) -> Left {
        Left { counts, received_before: self.shared.local_queues.messages(&self.grant.name.key).unwrap_or(0) }
    }

    /// Only now: while the release is under way, other threads of the client need not ask the server.
    fn leave_table(&self) {
        self.shared.holds.remove(self);
        self.shared.local_queues.notify(&self.grant.name.key);
    }

    pub(crate) fn send(&self, left: &Left) -> Result<()> {
        let release = self.grant.release(left.counts);
        let mut unknowns = UnknownOutcomes::default();
        let outcome = match self.next_try(left) {
            Some(piggyback) => self.hand_over(&release, piggyback, &mut unknowns),
            None => self.shared.store.release(&release, &mut unknowns),
        };
        self.finish(left, outcome, unknowns)
    }

    /// The try of this client's next thread, if it can go out with the release.
    fn next_try(&self, left: &Left) -> Option<TakenPiggyback> {
        // A closing client takes nothing any more, for nobody.
        if left.counts != HoldCounts::NONE || self.shared.is_closed() {
            return None;
        }
        let Grant { name, next, .. } = &*self.grant;
        match (name.kind, next) {
            (Kind::Mutex | Kind::Write, _) => self.shared.local_queues.take_piggyback(&name.key),
            (Kind::Fair, Some(next)) => self.shared.local_queues.take_piggyback_of(next),
            _ => None,
        }
    }

    /// What becomes of the hold once the server has been told, or could not be.
    pub(crate) fn finish(&self, left: &Left, outcome: Result<Released>, unknowns: UnknownOutcomes) -> Result<()> {
        match left.counts {
            HoldCounts::NONE => self.finish_all(left.received_before, outcome, unknowns),
            counts => self.finish_one(counts, outcome, unknowns),
        }
    }

    /// An inner level, or the last write level above read levels. Sent once: the count in Redis is told, not trusted, and
    /// the next method corrects it. Only a downgrade is seen to in the background, because readers wait for it.
    fn finish_one(&self, left: HoldCounts, outcome: Result<Released>, unknowns: UnknownOutcomes) -> Result<()> {
        // A hold that reads only keeps this client's readers out no more.
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
        let name = &self.grant.name;
        match outcome {
            Ok(Released::Freed { listeners, next }) => {
                self.resolve(unknowns);
                self.shared.holds.remove(self);
                match (name.kind, next) {
                    // Sooner than the message reaches it.
                    (Kind::Fair, next) => {
                        if let Some(next) = next.filter(|next| self.shared.id.owns(next)) {
                            self.shared.notifications.notify(&Topic::turn(name, &next));
                        }
                        // A plain lock of this client under the same name: the message is not for it.
                        self.shared.local_queues.notify(&name.key);
                    }
                    // Readers keep no reader out, and a waiting writer sees to itself: no turns are counted.
                    (Kind::Read, _) => self.shared.local_queues.notify(&name.key),
                    _ => self.shared.tell_freed(name, listeners, received_before),
                }
                Ok(())
            }
            // Other readers stay, so nobody can get in who could not before.
            Ok(Released::StillHeld) => {
                // Rung all the same: a hold that was downgraded has kept this client's readers waiting meanwhile.
                self.leave_table();
                Ok(())
            }
            Ok(Released::NotHeld) => {
                self.resolve(unknowns);
                self.leave_table();
                Err(self.lost())
            }
            Err(e) => {
                self.undo(unknowns, HoldCounts::NONE);
                self.leave_table();
                Err(e.for_name(self.name()))
            }
        }
    }

    /// Sends the try of this client's next thread right behind our release.
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
    pub(crate) fn abandon(&self) {
        if let Ok(Some(_)) = self.leave_all() {
            self.send_later();
        }
    }

    /// In place of [`send`](Self::send), when there is no time to wait for the server.
    pub(crate) fn send_later(&self) {
        self.undo(UnknownOutcomes::default(), HoldCounts::NONE);
        self.leave_table();
    }

    /// Ends what this process does for the hold, and leaves it in Redis until its lease ends there.
    ///
    /// # Errors
    /// As for a hold that is given up: that it is lost, say.
    pub(crate) fn forget(&self) -> Result<()> {
        if self.shared.is_forked() {
            return self.shared.check_usable().map_err(|e| e.for_name(self.name()));
        }
        let held = self.ensure_held();
        self.grant.lease.release(self.grant.now());
        self.shared.watchdog.leave(&self.grant);
        self.grant.wake();
        self.leave_table();
        held
    }

    /// It is given up, and may still stand on a master that has not answered.
    fn resolve(&self, unknowns: UnknownOutcomes) {
        if !unknowns.is_empty() {
            self.undo(unknowns, HoldCounts::NONE);
        }
    }

    fn undo(&self, unknowns: UnknownOutcomes, left: HoldCounts) {
        self.shared.watchdog.undo(self.grant.undo(left, unknowns));
    }

    #[cold]
    fn lost(&self) -> Error {
        Error::named(ErrorKind::Lost, self.name(), "the lease of this hold has ended: somebody else may have the lock")
    }

    #[cold]
    fn closed(&self) -> Error {
        let why = "the client was closed, which gave up this hold: somebody else may have the lock";
        Error::named(ErrorKind::Closed, self.name(), why)
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").field("grant", &self.grant).finish_non_exhaustive()
    }
}
