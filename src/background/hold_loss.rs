//! Why a hold could not be renewed, and how it was lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::background::callbacks::OnTrouble;
use crate::background::grant::{Grant, RenewalPolicy};
use crate::base::error::{Error, ErrorKind};
use crate::base::lease::{LostBy, Moment, State};
use crate::base::loss::{Loss, LossReason, RenewalTrouble};
use crate::os::atomic::Ordering;

impl Grant {
    /// The server no longer knows the holder.
    pub(crate) fn lose(&self) -> State {
        self.end(LostBy::Store)
    }

    /// Nobody renews it any more.
    pub(crate) fn neglect(&self) -> State {
        self.end(LostBy::Neglect)
    }

    fn end(&self, how: LostBy) -> State {
        // Also after it was given up: the thread that takes the next turn may not have it yet.
        self.note_gone();
        let state = self.lease.lose(self.now(), how);
        self.wake();
        state
    }

    /// A renewal is sent now.
    pub(crate) fn sends_renewal(&self, now: Moment) {
        self.renewal_sent.store(now.as_nanos(), Ordering::Release);
    }

    /// Its outcome has been taken in.
    pub(crate) fn renewal_is_over(&self) {
        self.renewal_sent.store(0, Ordering::Release);
    }

    /// The store has answered for the hold, which is in this state now. A lease that had ended by
    /// then was lost because renewals had failed.
    pub(super) fn answered(&self, state: State) -> State {
        let is_live = matches!(state, State::Held | State::Suspect);
        if is_live
            && self.in_trouble.swap(false, Ordering::AcqRel)
            && let Some(listeners) = &mut *self.listeners.lock()
        {
            listeners.failed = None;
            listeners.on_trouble.iter().filter_map(Weak::upgrade).for_each(|callback| callback.is_over());
        }
        state
    }

    /// A renewal has failed. Returns whom to tell, if it is the first in a row and there is a lease
    /// that can still be renewed.
    pub(crate) fn renewal_failed(&self, error: &Error, now: Moment) -> Option<(Vec<Arc<OnTrouble>>, RenewalTrouble)> {
        let mut listeners = self.listeners.lock();
        let listeners = listeners.get_or_insert_default();
        listeners.failed = Some(error.clone());
        let is_first = !self.in_trouble.swap(true, Ordering::AcqRel);
        let is_live = self.lease.suspect(now) == State::Suspect;
        if !(is_first && is_live && self.is_renewed_at(now)) {
            return None;
        }
        let living = listeners.on_trouble.iter().filter_map(Weak::upgrade);
        let to_tell: Vec<_> = living.filter(|callback| callback.begins()).collect();
        (!to_tell.is_empty()).then(|| (to_tell, RenewalTrouble::new(error.clone(), self.remaining())))
    }

    /// Has the callback told when renewal begins to fail. If it fails already, it is to be told now
    /// what is returned.
    pub(crate) fn add_on_trouble(&self, callback: &Arc<OnTrouble>) -> Option<RenewalTrouble> {
        let mut listeners = self.listeners.lock();
        let listeners = listeners.get_or_insert_default();
        if listeners.on_trouble.len() == listeners.on_trouble.capacity() {
            listeners.on_trouble.retain(|callback| callback.strong_count() > 0);
        }
        listeners.on_trouble.push(Arc::downgrade(callback));
        let error = listeners.failed.clone().filter(|_| self.state() == State::Suspect)?;
        let now_begins = self.is_renewed_at(self.now()) && callback.begins();
        now_begins.then(|| RenewalTrouble::new(error, self.remaining()))
    }

    /// How it was lost or closed; `None` while it is neither.
    pub(crate) fn loss(&self) -> Option<Loss> {
        // Looking makes a loss by time stick.
        self.state();
        let (how, at) = self.lease.lost()?;
        let loss = self.loss.get_or_init(|| {
            let (reason, cause) = self.explain(how, at);
            Box::new(Loss::new(reason, cause, at.since(self.since)))
        });
        Some((**loss).clone())
    }

    /// [`loss`](Self::loss) of a hold that the store does not know, also where its holder was about
    /// to give it up.
    #[cold]
    pub(crate) fn loss_now(&self) -> Loss {
        let taken_away = || Loss::new(LossReason::TakenAway, None, self.now().since(self.since));
        self.loss().unwrap_or_else(taken_away)
    }

    #[cold]
    fn explain(&self, how: LostBy, at: Moment) -> (LossReason, Option<Error>) {
        // The lease keeps its end without the lowest bits.
        let by_own_end = || at.plus(Duration::from_nanos(8)) >= self.ends.lock().own();
        match (how, self.renewal_policy) {
            (LostBy::Closing, _) => (LossReason::Closed, None),
            (LostBy::Store, _) => (LossReason::TakenAway, None),
            (LostBy::Neglect, _) => {
                let why = "the thread that renews leases has ended: close the client and make a new one";
                (LossReason::NotRenewed, Some(Error::new(ErrorKind::Closed, why)))
            }
            (LostBy::Time, RenewalPolicy::Fixed) if by_own_end() => (LossReason::FixedLease, None),
            (LostBy::Time, RenewalPolicy::Renewed { until: Some(until) }) if at >= until => (LossReason::MaxHold, None),
            (LostBy::Time | LostBy::Session, _) => (LossReason::NotRenewed, self.why_not_renewed(at)),
        }
    }

    /// The error of the last renewal; if the first one is still under way, that nobody answers.
    fn why_not_renewed(&self, at: Moment) -> Option<Error> {
        let failed = self.listeners.lock().as_ref().and_then(|listeners| listeners.failed.clone());
        let sent = self.renewal_sent.load(Ordering::Acquire);
        failed.or_else(|| {
            let waited = at.since(Moment::from_nanos(sent));
            let why = || format!("the server has not answered the renewal that was sent {waited:.1?} before");
            (sent > 0).then(|| Error::named(ErrorKind::Unreachable, &self.name.name, why()))
        })
    }
}
