//! Requests of an attempt whose outcome may stay unknown: how they are sent, and how whatever they
//! left is removed.

use std::time::Duration;

use crate::base::holder::Holder;
use crate::base::limits::TAKEN_TTL;
use crate::base::lock_name::Kind;
use crate::base::log;
use crate::store::{Release, Spent, Undo, UnknownOutcomes};
use crate::wait::attempt::fresh_holder;
use crate::wait::attempt::{AcquireAttempt, Wanted};
use crate::wait::leftovers::PlaceOfWaiter;

/// How long a waiter's place in a fair queue lasts at most, including the waiting times that other
/// libraries allow those in front of it.
const LONGEST_MARKER: Duration = Duration::from_secs(600);

impl AcquireAttempt<'_> {
    /// Sends one request, which resolves the unknown outcomes of earlier ones and may leave its
    /// own. The acquire that was left for another thread must have been withdrawn: if this request
    /// spends the holder, nobody may ask for it any more.
    pub(crate) fn ask_with<T>(
        &mut self,
        ask: impl FnOnce(&mut Self, &mut UnknownOutcomes) -> T,
    ) -> T {
        let has_lease = self.name.kind.has_lease();
        let now = if has_lease { None } else { Some(self.client.clock.now()) };
        if let (Some(now), Some(since)) = (now, self.traces.unknown_since)
            && now.since(since) > TAKEN_TTL / 2
        {
            // The server will soon forget what an earlier request took, and a repeat would then
            // take it again.
            self.give_up();
        }
        self.begin_request();
        self.traces.under_way = true;
        let mut request =
            UnderWay { unknowns: std::mem::take(&mut self.traces.unknowns), attempt: self };
        let answer = ask(request.attempt, &mut request.unknowns);
        drop(request);
        self.traces.unknown_since =
            if self.traces.unknowns.is_empty() { None } else { self.traces.unknown_since.or(now) };
        if let Some(spent) = self.traces.unknowns.take_spent() {
            self.replace_spent(spent);
        }
        self.traces.under_way = false;
        answer
    }

    /// A request has spent its holder: the next one has a fresh holder, and the spent one is
    /// released.
    pub(super) fn replace_spent(&mut self, spent: Spent) {
        let is_released = match spent {
            Spent::Released => self.traces.unknowns.is_empty(),
            // In the background only if that fails, or if the call must not wait for a server: the
            // next request could find the lock taken by what this one left.
            Spent::Unreleased => !self.is_ended() && self.release_all(),
        };
        if is_released {
            self.take_fresh_holder();
        } else {
            self.give_up();
        }
    }

    /// Replaces the holder by a fresh one, which has left nothing at the server, and returns the
    /// old one.
    fn take_fresh_holder(&mut self) -> Holder {
        (self.traces.has_marker, self.traces.queued) = (false, false);
        (self.traces.unknown_since, self.traces.place) = (None, PlaceOfWaiter::default());
        let fresh = fresh_holder(self.client, self.name.kind);
        let fresh = fresh.with_data(self.holder.data().cloned());
        std::mem::replace(&mut self.holder, fresh)
    }

    /// Undoes in the background whatever was sent. Later requests have a new holder: a request of
    /// the old holder would be undone with the rest.
    pub(crate) fn give_up(&mut self) {
        // A queue entry may outlive the lease of its waiter.
        let marker = match self.name.kind {
            _ if !self.traces.has_marker => Duration::ZERO,
            Kind::Write => self.client.who.id.waiter_timeout(),
            _ => LONGEST_MARKER,
        };
        let stands = marker.max(self.wanted.lease);
        let holder = self.take_fresh_holder();
        let unknowns = std::mem::take(&mut self.traces.unknowns);
        let expires = self.client.clock.now().plus(stands + self.client.config.io_timeout);
        for name in self.wanted.all {
            let name = name.clone();
            let holder = holder.clone();
            let unknowns = unknowns.clone();
            self.client.watchdog.undo(Undo::of_attempt(
                name,
                holder,
                self.wanted.permits,
                unknowns,
                expires,
            ));
        }
    }

    /// Removes the queue entry or the wait marker at once, so that the waiters behind it move up
    /// now. Otherwise they would wait until this waiter counts as dead.
    pub(crate) fn leave(&mut self) {
        if self.traces.has_marker && self.traces.unknowns.is_empty() && self.release_all() {
            (self.traces.has_marker, self.traces.queued) = (false, false);
        }
    }

    /// Releases all names with no counts left: the holder must not be asked for again. False if
    /// that failed.
    fn release_all(&mut self) -> bool {
        let mut unknowns = std::mem::take(&mut self.traces.unknowns);
        let Self { client, holder, wanted: Wanted { all, permits, .. }, .. } = &*self;
        let release = |name| Release::of_attempt(name, holder, *permits);
        let released = match all {
            [] => Ok(()),
            [name] => client.store.release(&release(name), &mut unknowns).map(drop),
            all => {
                let releases: Vec<_> = all.iter().map(|name| release(name)).collect();
                let multi = client.store.multi();
                let released = multi.and_then(|multi| multi.release_all(&releases, &mut unknowns));
                released.and_then(|released| released.into_iter().try_for_each(|one| one.map(drop)))
            }
        };
        self.traces.unknowns = unknowns;
        released
            .inspect_err(|e| {
                log::debug!("releasing {:?} in the background: {}", self.name.name, e.chain());
            })
            .is_ok()
    }
}

impl Drop for AcquireAttempt<'_> {
    fn drop(&mut self) {
        if self.traces.under_way || self.traces.has_marker || !self.traces.unknowns.is_empty() {
            self.give_up();
        }
    }
}

/// Gives the attempt its unknown outcomes back, even after a panic during the request: without them
/// nobody would know what may still run.
struct UnderWay<'r, 'a> {
    attempt: &'r mut AcquireAttempt<'a>,
    unknowns: UnknownOutcomes,
}

impl Drop for UnderWay<'_, '_> {
    fn drop(&mut self) {
        self.attempt.traces.unknowns = std::mem::take(&mut self.unknowns);
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::lock_name::LockName;
    use crate::testing::Faults;

    /// A request that is under way for an I/O timeout may take it for a whole lease after that, and
    /// a place may last longer.
    #[test]
    fn what_is_undone_stands_at_most_until_the_last_request_has_run_and_its_lease_has_ended() {
        let lease = Duration::from_secs(60);
        for (kind, has_marker, stands) in [
            (Kind::Mutex, false, lease),
            (Kind::Fair, false, lease),
            (Kind::Fair, true, LONGEST_MARKER),
        ] {
            let in_memory = crate::LockClient::in_memory();
            let client = in_memory.state();
            let faults = Faults::of(&in_memory).unwrap();
            faults.cut(LONGEST_MARKER);
            let name = Arc::new(LockName::new("", "x", kind).unwrap());
            let wanted = Wanted::permits(&name, 1, lease);
            let mut attempt = AcquireAttempt::new(client, &name, wanted, None).unwrap();
            attempt.traces.has_marker = has_marker;
            let now = client.clock.now();
            attempt.give_up();
            let left = client.watchdog.unresolved().pop().expect("it stays in the list");
            let least = now.plus(stands + client.config.io_timeout);
            assert!(left.expires >= least, "{kind:?}");
            assert!(left.expires < least.plus(Duration::from_secs(60)), "{kind:?}");
            faults.cut(Duration::ZERO);
        }
    }
}
