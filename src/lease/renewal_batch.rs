//! A batch of holds that the watchdog visits: what it asks the store for, one request for all, and
//! what each answer means.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::error::{Error, ErrorKind};
use crate::base::lease::{LeaseState, LostBy, Moment, valid_until};
use crate::base::loss::RenewalFailure;
use crate::lease::callbacks::OnTrouble;
use crate::lease::records::{StoreHold, Tenure};
use crate::lease::renewal_failures::News;
use crate::lease::renewal_thread::RenewalRound;
use crate::lease::schedule::tick;
use crate::lease::watchdog::{RenewalTable, Watchdog};
use crate::os::atomic::Ordering;
use crate::store::{Renewal, Renewed};

/// A batch that is out for renewal. Its holds are put back when it is dropped, even by a panic:
/// otherwise they would never be renewed again.
pub(super) struct Batch<'a> {
    watchdog: &'a Watchdog,
    /// When it was taken: see [`Watchdog::generation`].
    generation: u64,
    holds: Vec<(Arc<StoreHold>, Moment)>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut table = self.watchdog.table.lock();
        // The store may have confirmed them just before a lock was forced open.
        let is_old = self.generation < self.watchdog.generation();
        for (hold, due) in self.holds.drain(..) {
            // Checked under the table's mutex. A release changes the state first and then takes the
            // mutex to leave the table: either its new state is seen here, or it finds the hold in
            // the table and removes it.
            match hold.state() {
                LeaseState::Held | LeaseState::Suspect => {
                    // It may have become shared since `due` was computed, and shared holds are due
                    // sooner.
                    let due = due.min(hold.now().plus(if is_old {
                        Duration::ZERO
                    } else {
                        hold.period()
                    }));
                    self.watchdog.enter(&mut table, &hold, due);
                }
                // The hold ended while its renewal was under way, and the renewal failed. The next
                // visit reports that, and undoes what may remain in the store.
                LeaseState::Lost if due < Moment::NEVER => {
                    self.watchdog.enter(&mut table, &hold, hold.now());
                }
                LeaseState::Lost | LeaseState::Released | LeaseState::Closed => {}
            }
        }
    }
}

impl Watchdog {
    /// Takes what is due out of the table. `None` if nothing is.
    pub(super) fn take_due(&self, table: &mut RenewalTable, now: Moment) -> Option<Batch<'_>> {
        let due = table.due.take_due(now).into_iter();
        let holds: Vec<_> =
            due.map(|hold| (hold.clone(), now.plus(tick(hold.asked.lease)))).collect();
        // Dropping a batch takes the table's mutex, which the caller holds: an empty batch must not
        // be made here, or the thread would deadlock.
        if holds.is_empty() {
            None
        } else {
            Some(Batch { watchdog: self, generation: self.generation(), holds })
        }
    }

    /// Renews a batch, and applies the answers of the store.
    pub(super) fn renew(&self, mut batch: Batch<'_>, round: &mut RenewalRound) {
        let mut ended = News::default();
        batch.holds.retain(|(hold, _)| {
            // Checked first: a hold that ends between the two stays in the batch, and its tenures
            // are notified after that.
            let is_live = matches!(hold.state(), LeaseState::Held | LeaseState::Suspect);
            self.end_tenures(hold, &mut ended);
            is_live
        });
        if batch.holds.is_empty() {
            return ended.log();
        }
        let now = self.clock.now();
        Self::end_max_holds(&batch, now, &mut ended);
        let renewals: Vec<Renewal> =
            batch.holds.iter().map(|(hold, _)| hold.renewal(now)).collect();
        for (hold, _) in &batch.holds {
            hold.note_renewal(now);
        }
        let outcomes = self.store.renew(&renewals);
        self.postpone_announcing(&outcomes, now);
        // Logged only when the batch is back in the table: a logger that blocks must not keep a
        // lease from its next renewal.
        let mut news = round.trouble.record(&batch.holds, &outcomes, now);
        let fails = |outcome: &Renewed| matches!(outcome, Renewed::Failed(_));
        let all_fail = outcomes.iter().all(fails);
        let none_fails = !outcomes.iter().any(fails);
        let pause = if none_fails { Duration::ZERO } else { round.renew_pause.next() };
        for (((hold, due), renewal), outcome) in batch.holds.iter_mut().zip(&renewals).zip(outcomes)
        {
            *due = self.apply(hold, renewal, outcome, pause, &mut news);
            hold.note_answer();
        }
        drop(batch);
        let is_in_an_outage = self.is_in_an_outage(round);
        if none_fails && !is_in_an_outage {
            round.renew_pause.reset();
        }
        if !all_fail
            && !is_in_an_outage
            && let Some(line) = round.trouble.end(now)
        {
            news.warn(line);
        }
        ended.log();
        news.log();
    }

    /// Whether a renewal of any hold fails: those that fail are due at other times than the rest.
    pub(super) fn is_in_an_outage(&self, round: &RenewalRound) -> bool {
        round.trouble.has_begun()
            && self.table.lock().due.holds().any(|hold| hold.is_in_an_outage())
    }

    /// Those whose `max_hold` is over are no longer renewed.
    fn end_max_holds(batch: &Batch<'_>, now: Moment, news: &mut News) {
        for tenure in batch.holds.iter().flat_map(|(hold, _)| hold.end_max_holds(now)) {
            let name = &tenure.lock_name().name;
            let left = tenure.remaining();
            news.warn(format!(
                "{name:?} was held for its maximum: it is no longer renewed, and ends in {left:.1?}"
            ));
        }
    }

    /// While the store cannot be reached, an announcement would take the time of renewals.
    fn postpone_announcing(&self, outcomes: &[Renewed], now: Moment) {
        let is_outage =
            |one: &Renewed| matches!(one, Renewed::Failed(error) if error.kind().is_outage());
        if let Some(announcer) = &self.announcer
            && outcomes.iter().any(is_outage)
        {
            announcer.postpone(now);
        }
    }

    /// Applies the outcome of a renewal to its hold. Returns when the next one is due: never,
    /// after a loss that it has reported.
    fn apply(
        &self,
        hold: &Arc<StoreHold>,
        renewal: &Renewal,
        outcome: Renewed,
        pause: Duration,
        news: &mut News,
    ) -> Moment {
        let now = self.clock.now();
        match outcome {
            Renewed::Held { sent_at, again, beside, asked } => {
                hold.note_asked(asked);
                self.apply_confirmation(hold, renewal.lease, (sent_at, again, beside), news)
            }
            Renewed::Gone => {
                hold.lose();
                for tenure in
                    hold.tenures().iter().filter(|tenure| tenure.state() == LeaseState::Lost)
                {
                    self.report(tenure, news);
                }
                (self.on_end)(&hold.asked.name.key);
                Moment::NEVER
            }
            Renewed::Failed(error) => {
                self.loss_callbacks.observe_renewal_failure(hold, &error);
                news.debug(|| {
                    format!(
                        "renewing {:?} failed, trying again: {}",
                        hold.asked.name.name,
                        error.chain()
                    )
                });
                if let Some((callbacks, trouble)) = hold.renewal_failed(&error, now) {
                    self.loss_callbacks.tell_of_trouble(callbacks, &trouble);
                }
                now.plus(pause.min(hold.asked.lease / 10))
            }
        }
    }

    /// The store has the hold. `again`: it was put back where it was missing. `beside`: how long
    /// others leave it at least.
    fn apply_confirmation(
        &self,
        hold: &Arc<StoreHold>,
        lease: Duration,
        (sent_at, again, beside): (Moment, bool, Option<Duration>),
        news: &mut News,
    ) -> Moment {
        // Before the renewal is confirmed; otherwise the lease would briefly have too late an end.
        hold.inspected(sent_at, beside);
        let state = if lease.is_zero() {
            hold.state()
        } else {
            // A fixed lease was only confirmed. Counted from a request that was sent late, what was
            // left of it would end later, with each visit.
            let mut granted = Duration::ZERO;
            if hold.asked.is_renewed {
                let observer = &self.loss_callbacks.observer;
                observer.renewed(hold.asked.primitive, &hold.asked.name, true);
                granted = lease;
            }
            hold.confirmed(sent_at, granted)
        };
        match state {
            LeaseState::Lost => {
                self.end_tenures(hold, news);
                return Moment::NEVER;
            }
            // Its release was sent in the meantime, and may have run before the renewal put the
            // hold back.
            LeaseState::Released | LeaseState::Closed if again && hold.was_put_back() => {
                self.take_back(hold);
            }
            _ => {}
        }
        sent_at.plus(hold.period())
    }

    /// Ends the tenures of a hold that have expired, with its lease or by their own end. When the
    /// last one leaves, the hold is undone: a renewal that reached the server late may have
    /// lengthened its lease there.
    fn end_tenures(&self, hold: &Arc<StoreHold>, news: &mut News) {
        for tenure in hold.tenures().iter().filter(|tenure| tenure.state() == LeaseState::Lost) {
            tenure.wake();
            self.report(tenure, news);
            if hold.leave(tenure) {
                // A loss by time, as if its own lease had ended. Marked as released, it would count
                // as one whose release is under way, which the other threads of the client wait
                // for, as long as its guard lives.
                hold.lease.lose(self.clock.now(), LostBy::Time);
                self.take_back(hold);
            }
            (self.on_end)(&hold.asked.name.key);
        }
    }

    fn report(&self, tenure: &Arc<Tenure>, news: &mut News) {
        self.loss_callbacks.report(tenure);
        if let Some(line) = tenure.loss_to_log() {
            news.warn(line);
        }
    }
}

/// The shortest watchdog time (`lockWatchdogTimeout`) that another library is assumed to have. Less
/// remaining time belongs to a fixed lease that ends or to a reader that died, and neither cuts a
/// lock. It is twice the time between two inspections of a shared lock, so that a cut is undone
/// before it ends one.
const LEAST_WATCHDOG: Duration = Duration::from_secs(2);

impl StoreHold {
    /// Ends the renewal of those tenures whose `max_hold` is over: they keep what the store has
    /// confirmed so far, even if others are still renewed. Returns those that end now.
    pub(super) fn end_max_holds(&self, now: Moment) -> SmallVec<[Arc<Tenure>; 1]> {
        let mut tenures = self.tenures();
        let until = self.lease.until();
        tenures.retain(|tenure| tenure.ends_max_hold(now, until));
        tenures
    }

    /// The request for a visit. It asks for what was granted at least: a server that has taken over
    /// may not know of an extension, and its answer would confirm an end that it has not promised;
    /// another library may have cut the lease. A hold that nobody uses, because it is being handed
    /// over, is not renewed: it would stay for ever if its next user never came.
    pub(crate) fn renewal(&self, now: Moment) -> Renewal {
        // A hold that ends with its session has no end of its own.
        let granted = Some(self.ends.lock().own()).filter(|own| *own != Moment::NEVER);
        let left = granted.map_or(Duration::ZERO, |own| own.since(now));
        let is_renewed = self.tenures().iter().any(|tenure| tenure.is_renewed_at(now));
        // Visits of a shared lock are frequent: most of them find the same lease at the server as
        // here, and write nothing.
        let at_next_visit = left.saturating_sub(self.period());
        let lasts = self.has_others() && at_next_visit >= self.asked.lease * 2 / 3;
        let lease = if is_renewed && !lasts { left.max(self.asked.lease) } else { left };
        self.renewal_for(lease)
    }

    /// The request for this lease; zero only asks whether the hold still exists.
    pub(crate) fn renewal_for(&self, lease: Duration) -> Renewal {
        let name = self.asked.name.clone();
        let holder = self.asked.holder.clone();
        Renewal { name, holder, permits: self.asked.permits, lease, token: self.token() }
    }

    /// The store confirmed the hold for `lease` from `sent_at`. Returns the state afterwards: a
    /// confirmation that is read after the lease has ended revives nothing.
    pub(crate) fn confirmed(&self, sent_at: Moment, lease: Duration) -> LeaseState {
        let now = self.now();
        self.end_max_holds(now);
        let mut ends = self.ends.lock();
        ends.granted(valid_until(sent_at, lease));
        let state = self.lease.renewed(now, ends.end());
        drop(ends);
        self.answered(state)
    }

    /// An inspection found that others may cut the TTL of the lock to `beside` at any time from
    /// then on. A later cut leaves at least that long from the cut on, and the inspection has
    /// undone an earlier one: so the hold is certain for that long, even if no later inspection
    /// reaches the server.
    pub(crate) fn inspected(&self, sent_at: Moment, beside: Option<Duration>) -> LeaseState {
        let mut ends = self.ends.lock();
        ends.inspected(sent_at, beside.map(|left| valid_until(sent_at, left.max(LEAST_WATCHDOG))));
        let state = self.lease.inspected(self.now(), ends.end());
        drop(ends);
        self.answered(state)
    }

    /// A renewal is sent now.
    pub(super) fn note_renewal(&self, now: Moment) {
        self.visits.sent.store(now.as_nanos(), Ordering::Release);
    }

    /// Its outcome has been applied.
    pub(super) fn note_answer(&self) {
        self.visits.sent.store(0, Ordering::Release);
    }

    /// The store has answered for the hold, which is in this state now. A lease that had ended by
    /// then was lost because renewals had failed.
    fn answered(&self, state: LeaseState) -> LeaseState {
        let is_live = matches!(state, LeaseState::Held | LeaseState::Suspect);
        let failed = if is_live { self.users.lock().failed.take() } else { None };
        if failed.is_some() {
            for tenure in &self.tenures() {
                tenure.end_trouble();
            }
        }
        state
    }

    /// A renewal has failed. Returns whom to notify, if it is the first in a row and there is a
    /// lease that can still be renewed.
    pub(super) fn renewal_failed(
        &self,
        error: &Error,
        now: Moment,
    ) -> Option<(Vec<Arc<OnTrouble>>, RenewalFailure)> {
        // Set before the tenures are listed: a callback that is added from now on checks it.
        let before = self.users.lock().failed.replace(error.clone());
        let is_live = self.lease.suspect(now) == LeaseState::Suspect;
        if before.is_some() || !is_live {
            return None;
        }
        let tenures = self.tenures();
        let renewed = tenures.iter().filter(|tenure| tenure.is_renewed_at(now));
        let to_tell: Vec<_> = renewed.flat_map(|tenure| tenure.told_of_trouble()).collect();
        (!to_tell.is_empty())
            .then(|| (to_tell, RenewalFailure::new(error.clone(), self.remaining())))
    }

    /// Why the last renewal failed, if it did.
    pub(super) fn why_it_failed(&self) -> Option<Error> {
        self.users.lock().failed.clone()
    }

    /// Why renewals fail now.
    pub(super) fn trouble(&self) -> Option<Error> {
        self.why_it_failed().filter(|_| self.state() == LeaseState::Suspect)
    }

    /// Why it was not renewed up to this moment: the error of the last renewal, or that the server
    /// does not answer, if the first one is still under way.
    pub(super) fn why_not_renewed(&self, at: Moment) -> Option<Error> {
        let sent = self.visits.sent.load(Ordering::Acquire);
        self.why_it_failed().or_else(|| {
            let waited = at.since(Moment::from_nanos(sent));
            let why = || {
                format!("the server has not answered the renewal that was sent {waited:.1?} before")
            };
            (sent > 0).then(|| Error::named(ErrorKind::Unreachable, &self.asked.name.name, why()))
        })
    }
}

#[cfg(test)]
#[path = "renewal_batch_tests.rs"]
mod tests;
