//! What every guard owns: one hold of one lock. How it is given up is in `release`.

use std::sync::Arc;
use std::time::Duration;

use crate::base::data::HoldData;
use crate::base::error::{Error, ErrorKind, Result, invalid};
use crate::base::holder::Holder;
use crate::base::lease::{LeaseState, Moment, valid_until};
use crate::base::loss::{Loss, LossWait};
use crate::hold::thread_exit::notify_at_thread_exit;
use crate::lease::callbacks::{Callback, OnLost, OnTrouble};
pub(crate) use crate::lease::records::Side;
use crate::lease::records::{Owner, StoreHold, Tenure, User};
use crate::lease::store_hold::Admission;
use crate::os::thread::ThreadId;
use crate::report::record::Taken;
use crate::report::spans::HoldEnd;
use crate::signal::cancel::CancelToken;
use crate::store::{FenceStatements, HoldCounts, Renewal, Renewed, UnknownOutcomes};
use crate::wait::client_state::ClientState;
use crate::wait::life::closed;

/// How many levels one holder may have: other clients may take a larger count for the data of
/// another program.
pub(super) const MOST_LEVELS: u32 = 9_999;

/// A tenure, with the client that acts on it. Shared by the guards of all its levels: a clone is
/// another reference to the same.
#[derive(Clone)]
pub(crate) struct Hold {
    pub(super) client: Arc<ClientState>,
    pub(super) tenure: Arc<Tenure>,
}

impl Hold {
    /// Begins the first tenure of a hold that was granted: from here on it is found, renewed and
    /// released.
    pub(crate) fn begin(client: &Arc<ClientState>, granted: StoreHold, user: User) -> Result<Self> {
        let admission = granted.admit_first();
        let store_hold = admission.hold.clone();
        let hold = Self::of(client, Tenure::begin(admission, user));
        client.holds.insert(&store_hold);
        let watched = client.watchdog.watch(&store_hold);
        hold.enter(watched)
    }

    /// Begins the next tenure of a hold that was passed on, or one more of a read hold. `None`: the
    /// hold has ended since it was admitted.
    pub(crate) fn succeed(
        client: &Arc<ClientState>,
        admission: Admission,
        user: User,
    ) -> Result<Option<Self>> {
        // Until here the hold is in the tables without it, so that neither a close nor a forced
        // release nor a jump of the clock can miss it.
        let hold = Self::of(client, Tenure::begin(admission, user)).enter(Ok(()))?;
        // Checked after it has entered: whoever detects a loss later finds it there.
        if hold.is_held() {
            return Ok(Some(hold));
        }
        // The lease ended while this thread was waking up, or the hold was forced out. No user had
        // this tenure, so its end is no loss that somebody should hear of.
        hold.tenure.hush_end();
        let _ = hold.release_all();
        Ok(None)
    }

    fn enter(self, watched: Result<()>) -> Result<Self> {
        if matches!(self.tenure.user.owner, Owner::Thread(_)) {
            notify_at_thread_exit(&self.client);
        }
        // A close that took all holds just before this one entered has not seen it.
        let e = match watched {
            Ok(()) if self.client.life.is_closed() => closed(),
            Ok(()) => return Ok(self),
            Err(e) => e,
        };
        // No user had it.
        self.tenure.hush_end();
        let _ = self.release_all();
        Err(e.for_name(self.name()))
    }

    pub(super) fn of(client: &Arc<ClientState>, tenure: Arc<Tenure>) -> Self {
        Self { client: client.clone(), tenure }
    }

    /// What this process knows of it. Nothing here checks whether the process is a fork of the one
    /// that took it: what a user is told goes through the methods of `Hold`.
    pub(crate) fn tenure(&self) -> &Arc<Tenure> {
        &self.tenure
    }

    pub(crate) fn fence_statements(&self) -> Result<FenceStatements> {
        self.client.check_usable()?;
        self.client.store.fence_statements(self.tenure.lock_name())
    }

    /// The hold that a call on this thread re-enters.
    pub(crate) fn of_thread(
        client: &Arc<ClientState>,
        key: &str,
        thread: ThreadId,
    ) -> Option<Self> {
        let tenure = client.holds.of_thread(key, thread)?;
        Some(Self::of(client, tenure))
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.client.is_forked()
    }

    pub(crate) fn name(&self) -> &str {
        &self.tenure.lock_name().name
    }

    pub(crate) fn holder(&self) -> &Holder {
        &self.tenure.store_hold.asked.holder
    }

    pub(crate) fn is_held(&self) -> bool {
        let now = self.tenure.now();
        !self.client.is_forked_at(now) && self.tenure.is_held(now)
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.client.is_forked() { Duration::ZERO } else { self.tenure.remaining() }
    }

    pub(crate) fn ensure_held(&self) -> Result<()> {
        if self.client.is_forked() {
            return self.client.check_usable().map_err(|e| e.for_name(self.name()));
        }
        match self.tenure.state() {
            LeaseState::Held | LeaseState::Suspect => Ok(()),
            LeaseState::Lost => Err(self.lost()),
            LeaseState::Released | LeaseState::Closed => Err(self.closed()),
        }
    }

    pub(crate) fn wait_lost(&self, timeout: Duration, cancel: Option<&CancelToken>) -> LossWait {
        if self.client.is_forked() {
            LossWait::Released
        } else {
            self.tenure.wait_lost(timeout, cancel)
        }
    }

    pub(crate) fn on_lost(&self, callback: &OnLost) {
        if !self.client.is_forked() {
            self.client.loss_callbacks.watch(&self.client.who.client_name, &self.tenure, callback);
        }
    }

    pub(crate) fn on_renewal_failed(&self, callback: &Arc<OnTrouble>) {
        if let Some(trouble) = self.tenure.add_on_trouble(callback) {
            self.client.loss_callbacks.tell_of_trouble(vec![callback.clone()], &trouble);
        }
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        if self.client.is_forked() { None } else { self.tenure.loss() }
    }

    /// The first loss among several holds.
    pub(crate) fn first_loss_of(holds: &[Self]) -> Option<Loss> {
        let lost = holds.iter().filter_map(|hold| Some((hold.loss()?, hold.tenure.lost_at()?.1)));
        lost.min_by_key(|(_, at)| *at).map(|(loss, _)| loss)
    }

    /// Runs or drops the callbacks that a guard took back before it gave up its level with this
    /// outcome.
    pub(crate) fn finish_callbacks(
        &self,
        callbacks: Vec<Callback>,
        given_up: &Result<()>,
        loss: impl FnOnce() -> Loss,
    ) {
        self.client.loss_callbacks.finish(callbacks, given_up, loss);
    }

    pub(crate) fn count(&self) -> u32 {
        let HoldCounts { main, reads } =
            if self.client.is_forked() { HoldCounts::NONE } else { self.tenure.counts() };
        main.saturating_add(reads)
    }

    /// Adds one level, for the thread that has the hold.
    ///
    /// # Errors
    /// `Lost` when the hold is gone: it is never silently taken again. A failure changes nothing
    /// here, and no undo is sent: it would release the outer levels, which are live.
    pub(crate) fn reenter(
        &self,
        side: Side,
        lease: Duration,
        acquire: impl FnOnce() -> Result<Option<Moment>>,
    ) -> Result<()> {
        self.may_reenter(side, lease)?;
        match acquire()? {
            Some(sent_at) => {
                self.reentered(sent_at, lease)?;
                self.tenure.add_count(side);
                Ok(())
            }
            None => Err(self.gone()),
        }
    }

    /// Call it before one more level is requested.
    pub(crate) fn may_reenter(&self, side: Side, lease: Duration) -> Result<()> {
        self.ensure_held()?;
        self.check_room(side)?;
        self.note_request(lease)
    }

    /// What the store refuses is not noted: it never lasts.
    fn note_request(&self, lease: Duration) -> Result<()> {
        self.client.store.check_lease(lease).map_err(|e| e.for_name(self.name()))?;
        self.tenure.store_hold.note_request(lease);
        Ok(())
    }

    /// The server confirmed the hold for `lease`. Returns an error if it has ended here all the
    /// same.
    fn confirmed(&self, sent_at: Moment, lease: Duration) -> Result<()> {
        self.tenure.store_hold.confirmed(sent_at, lease);
        self.granted(sent_at, lease)
    }

    /// The same for one more level.
    pub(crate) fn reentered(&self, sent_at: Moment, lease: Duration) -> Result<()> {
        self.tenure.store_hold.reentered(sent_at, lease);
        self.granted(sent_at, lease)
    }

    fn granted(&self, sent_at: Moment, lease: Duration) -> Result<()> {
        self.tenure.was_granted(valid_until(sent_at, lease));
        match self.tenure.state() {
            LeaseState::Held | LeaseState::Suspect => Ok(()),
            LeaseState::Lost => Err(self.lost()),
            LeaseState::Released | LeaseState::Closed => Err(self.closed()),
        }
    }

    /// The server no longer knows the hold. Reports the loss to everybody, and returns it as the
    /// error for the caller; `Closed` if a close has given up the hold meanwhile.
    pub(crate) fn gone(&self) -> Error {
        self.report_loss();
        self.ensure_held().err().unwrap_or_else(|| self.lost())
    }

    /// Adds a read level inside a write hold. The server does not know of it.
    pub(crate) fn nest_read(&self) -> Result<()> {
        self.ensure_held()?;
        self.check_room(Side::Read)?;
        self.tenure.add_count(Side::Read);
        Ok(())
    }

    fn check_room(&self, side: Side) -> Result<()> {
        let HoldCounts { main, reads } = self.tenure.counts();
        let held = if side == Side::Main { main } else { reads };
        if held < MOST_LEVELS {
            return Ok(());
        }
        let why = format!("the lock was entered {MOST_LEVELS} times, which is the maximum");
        Err(Error::named(ErrorKind::InvalidInput, self.name(), why))
    }

    /// Lengthens the lease to at least `lease` from now.
    pub(crate) fn extend(&self, lease: Duration) -> Result<()> {
        let renewal = self.extension(lease)?;
        let answers = self.client.store.extend(&[renewal]).map_err(|e| e.for_name(self.name()))?;
        answers.into_iter().try_for_each(|renewed| self.extended(lease, renewed))
    }

    /// Replaces its data in the store.
    pub(crate) fn set_data(&self, data: &[u8]) -> Result<()> {
        self.ensure_held()?;
        let asked = &self.tenure.store_hold.asked;
        let named = |e: Error| e.for_name(self.name());
        if asked.holder.data().is_none() {
            let why = "this hold was taken without data, so there is none to replace: take the lock \
                       with data first";
            return Err(named(invalid(why)));
        }
        let data = HoldData::new(data);
        data.check().map_err(named)?;
        let number = self.client.who.id.fresh_number();
        let store = self.client.store.data().map_err(named)?;
        if store.set_data(&asked.name, &asked.holder, number, &data).map_err(named)? {
            self.ensure_held()
        } else {
            Err(self.gone())
        }
    }

    /// The request that lengthens the lease.
    pub(crate) fn extension(&self, lease: Duration) -> Result<Renewal> {
        self.ensure_held()?;
        self.note_request(lease)?;
        Ok(self.tenure.store_hold.renewal_for(lease))
    }

    /// Applies the reply to an [`extension`](Self::extension).
    pub(crate) fn extended(&self, lease: Duration, renewed: Renewed) -> Result<()> {
        match renewed {
            Renewed::Held { sent_at, again, beside, asked } => {
                self.tenure.store_hold.note_asked(asked);
                self.tenure.store_hold.inspected(sent_at, beside);
                let confirmed = self.confirmed(sent_at, lease);
                // The same as for a renewal. If the lease has ended, no release is under way.
                let is_lost = |e: &Error| e.kind() == ErrorKind::Lost;
                if again
                    && confirmed
                        .as_ref()
                        .is_err_and(|e| is_lost(e) || self.tenure.store_hold.was_put_back())
                {
                    self.undo(UnknownOutcomes::default(), HoldCounts::NONE);
                }
                confirmed
            }
            Renewed::Gone => Err(self.gone()),
            Renewed::Failed(e) => Err(e.for_name(self.name())),
        }
    }

    /// The server no longer knows this hold.
    pub(crate) fn report_loss(&self) {
        self.client.report_loss(&self.tenure.store_hold);
    }

    /// Ends what this process does for the hold, and leaves it at the server until its lease ends
    /// there.
    ///
    /// # Errors
    /// The same as when a hold is given up, such as `Lost`.
    pub(crate) fn forget(&self) -> Result<()> {
        if self.client.is_forked() {
            return self.client.check_usable().map_err(|e| e.for_name(self.name()));
        }
        let held = self.ensure_held();
        let now = self.tenure.now();
        let before = self.tenure.release(now);
        self.observe_end(before, now);
        if self.leave_if_last(before, now) {
            self.client.store.forget(self.tenure.lock_name(), self.holder());
        }
        self.tenure.wake();
        self.leave_table();
        // Nobody else reports it.
        if before == LeaseState::Lost {
            self.client.loss_callbacks.report_of_owner(&self.tenure);
        }
        self.tell_end(HoldEnd::Forgotten);
        held
    }

    #[cold]
    pub(super) fn lost(&self) -> Error {
        let loss = self.tenure.loss_now();
        let why = format!("this hold is lost, {}; somebody else may have the lock", loss.message());
        let error = Error::named(ErrorKind::Lost, self.name(), why);
        match loss.cause() {
            Some(cause) => error.caused_by(cause.clone()),
            None => error,
        }
    }

    #[cold]
    pub(super) fn closed(&self) -> Error {
        let why = "the client was closed, which gave up this hold: somebody else may have the lock";
        Error::named(ErrorKind::Closed, self.name(), why)
    }
}

impl Taken for Hold {
    fn begin_span(&self) {
        // It was re-entered.
        if self.tenure.has_span() {
            return;
        }
        let asked = &self.tenure.store_hold.asked;
        if let Some(span) =
            self.client.seen.observer.hold_span(&asked.name, asked.primitive, self.tenure.token)
        {
            self.tenure.keep_span(span);
            // A close in between has not seen the span.
            self.tell_end(HoldEnd::Released);
        }
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").field("tenure", &self.tenure).finish_non_exhaustive()
    }
}
