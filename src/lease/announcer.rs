//! Announces who this client is in the store while it holds a lock, and with a label also while it
//! waits in the queue of a fair lock, for people who ask who holds a lock.
//!
//! The watchdog's thread does it when nothing else is due, so no call waits for it. Renewals come
//! first, and nothing is announced while they fail: a server that begins to hang just then delays
//! the next renewal by one I/O timeout of the background, at most a quarter of a lease, and not
//! again within a lease.
//!
//! The announcement lists what the client holds, so that a list of locks does not need a scan over
//! all keys of the store.
//!
//! Without a label, a hold that is shorter than a tick is not announced: nobody could query it in
//! time, and a program that takes a lock briefly would pay for one more connection.

use std::time::Duration;

use crate::base::error::{ErrorKind, Result};
use crate::base::holder::{Holder, client_and_number};
use crate::base::lease::Moment;
use crate::base::log;
use crate::os::Mutex;
use crate::report::owner::{Announcement, HolderOwner, MOST_AGES, NamedHold};
use crate::store::{LockStore, OwnerStore};

pub(crate) struct Announcer {
    key_prefix: String,
    client: String,
    owner: HolderOwner,
    lease: Duration,
    at_once: bool,
    /// Whether the client has a place in a queue.
    has_place: Box<dyn Fn() -> bool + Send + Sync>,
    state: Mutex<AnnouncementState>,
}

#[derive(Default)]
struct AnnouncementState {
    /// It is not written again before this moment.
    next: Option<Moment>,
    /// When it was written last, if nothing has failed since.
    written: Option<Moment>,
    /// When it expires at the latest, and whether the last attempt failed.
    stands: Option<Moment>,
    failed: bool,
    /// The store denies writing it: it is not tried again.
    is_denied: bool,
    /// The store denies reading what others wrote: that is not tried again either.
    is_blind: bool,
}

/// A hold of the client, as it is announced.
pub(crate) struct HeldNow<'h> {
    pub(crate) taken: Moment,
    pub(crate) holder: &'h Holder,
    pub(crate) key: &'h str,
}

/// When something is to be announced.
pub(crate) struct AnnouncementDue {
    /// From this moment on, whatever is held.
    next: Moment,
    /// Before `next`, only what was taken since this moment, so that a query finds it.
    written: Option<Moment>,
}

impl AnnouncementDue {
    /// Not before this moment.
    pub(crate) fn earliest(&self, tick: Duration) -> Moment {
        self.written.map_or(self.next, |written| written.plus(tick).min(self.next))
    }

    /// Whether a place in a queue is to be announced now.
    pub(crate) fn is_for_place(&self, now: Moment) -> bool {
        now >= self.next
    }

    /// Whether a hold that was taken at this moment is to be announced now. `least`: how long it
    /// must have lasted. If others are announced already, it must have lasted for a tick: a client
    /// that takes and releases locks all the time does not write each time.
    pub(crate) fn is_for(
        &self,
        taken: Moment,
        now: Moment,
        least: Duration,
        tick: Duration,
    ) -> bool {
        let lasted = now.since(taken);
        if now >= self.next {
            lasted >= least
        } else {
            lasted >= tick && self.written.is_some_and(|written| taken > written)
        }
    }
}

impl Announcer {
    /// `at_once`: also announces a hold that has not lasted.
    pub(crate) fn new(
        key_prefix: &str,
        client: &str,
        owner: HolderOwner,
        lease: Duration,
        at_once: bool,
    ) -> Self {
        let key_prefix = key_prefix.to_owned();
        let client = client.to_owned();
        Self {
            key_prefix,
            client,
            owner,
            lease,
            at_once,
            has_place: Box::new(|| false),
            state: Mutex::default(),
        }
    }

    /// `has_place`: whether a call of the client waits in a queue, where others see it.
    pub(crate) fn with_places(self, has_place: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { has_place: Box::new(has_place), ..self }
    }

    /// Whether the client is to be announced at once, and its last announcement is over or missing.
    pub(crate) fn is_unknown(&self, now: Moment) -> bool {
        self.at_once && self.due().is_some_and(|due| due.is_for_place(now))
    }

    /// Whether it has a place that is announced without a hold.
    pub(crate) fn has_place(&self) -> bool {
        self.at_once && (self.has_place)()
    }

    /// The key of a client's announcement. Clients that share a lock usually have the same prefix,
    /// because it is a part of the lock's key.
    fn key_of(&self, client: &str) -> String {
        format!("{}{client}", self.key_prefix)
    }

    /// How long a hold must have lasted.
    pub(crate) fn least_age(&self, tick: Duration) -> Duration {
        if self.at_once { Duration::ZERO } else { tick }
    }

    /// When it is to be written again; `None`: not at all.
    pub(crate) fn due(&self) -> Option<AnnouncementDue> {
        let state = self.state.lock();
        let next = state.next.unwrap_or(Moment::from_nanos(0));
        if state.is_denied { None } else { Some(AnnouncementDue { next, written: state.written }) }
    }

    /// Whether it is to be written now. `taken`: when each hold was taken; `tick`: how often the
    /// watchdog checks. `announce_at`: when to check again, because something was found that is to
    /// be announced.
    pub(crate) fn is_due(
        &self,
        taken: impl Iterator<Item = Moment>,
        tick: Duration,
        announce_at: &mut Option<Moment>,
        now: Moment,
    ) -> bool {
        let mut taken = taken.peekable();
        let least = self.least_age(tick);
        let has_place = self.has_place();
        let due = self.due().filter(|_| has_place || taken.peek().is_some());
        let begin = announce_at.unwrap_or(now.plus(least));
        *announce_at = due.as_ref().map(|due| begin.max(due.earliest(tick)));
        let Some(due) = due.filter(|_| announce_at.is_some_and(|at| at <= now)) else {
            return false;
        };
        // Perhaps none of them has lasted: a client may take and release locks all the time.
        let lasts = has_place && due.is_for_place(now)
            || taken.any(|taken| due.is_for(taken, now, least, tick));
        *announce_at = if lasts { None } else { Some(now.plus(tick)) };
        lasts
    }

    /// The server is unavailable: renewals come first.
    pub(crate) fn postpone(&self, now: Moment) {
        let next = now.plus(self.lease / 3);
        let mut state = self.state.lock();
        state.written = None;
        state.next = Some(state.next.map_or(next, |earlier| earlier.max(next)));
    }

    /// Writes it. `held`: all holds.
    pub(crate) fn announce(&self, store: &dyn LockStore, mut held: Vec<HeldNow<'_>>, now: Moment) {
        held.sort_unstable_by(|a, b| {
            (a.taken, a.holder.as_str(), a.key).cmp(&(b.taken, b.holder.as_str(), b.key))
        });
        let number = |hold: &HeldNow| {
            let (client, number) = client_and_number(hold.holder.as_str())?;
            (client == self.client).then_some(number)
        };
        let age = |holds: &[HeldNow]| Some((number(&holds[0])?, now.since(holds[0].taken)));
        // Locks that were taken together have one holder.
        let ages =
            held.chunk_by(|a, b| a.holder == b.holder).filter_map(age).take(MOST_AGES).collect();
        let hold = |hold: &HeldNow| NamedHold {
            id: number(hold)
                .map_or_else(|| hold.holder.as_str().to_owned(), |number| number.to_string()),
            age: now.since(hold.taken),
            key: hold.key.to_owned(),
        };
        let announcement =
            Announcement::new(self.owner.clone(), self.lease, ages, held.iter().map(hold));
        self.write(store, &announcement.to_text(), now);
    }

    fn write(&self, store: &dyn LockStore, text: &str, now: Moment) {
        let Some(owners) = store.owners() else { return };
        let written = owners.announce(&self.key_of(&self.client), text, self.lease);
        let mut state = self.state.lock();
        let was_failing = std::mem::replace(&mut state.failed, written.is_err());
        // A failure may have taken a whole I/O timeout, so the next attempt comes later.
        state.next = Some(now.plus(if written.is_ok() { self.lease / 3 } else { self.lease }));
        state.written = written.is_ok().then_some(now);
        state.stands = Some(now.plus(self.lease));
        let Err(error) = written else { return };
        state.is_denied = error.kind() == ErrorKind::Denied;
        let is_denied = state.is_denied;
        drop(state);
        if is_denied {
            log::info!(
                "others cannot see who holds the locks of client {}: give its user ~leasehold_client:*, or \
                 turn announce_owner off ({})",
                self.client,
                error.chain()
            );
        } else if !was_failing {
            log::debug!("others may not see who holds the locks of this client: {}", error.chain());
        }
    }

    /// Deletes it, if it may still exist. After a failure, which may have had its effect at the
    /// server, only if that `answers` again: otherwise it is left to expire, because a server that
    /// hangs would delay whoever closes the client.
    pub(crate) fn withdraw(&self, store: &dyn LockStore, now: Moment, answers: bool) {
        let state = self.state.lock();
        let stands = state.stands.is_some_and(|until| now < until) && (answers || !state.failed);
        drop(state);
        if let Some(owners) = store.owners().filter(|_| stands)
            && let Err(error) = owners.withdraw(&self.key_of(&self.client))
        {
            log::debug!(
                "could not delete the record of this client, which expires within a lease: {}",
                error.chain()
            );
        }
    }

    /// Whether the announcements of other clients may be read.
    pub(crate) fn may_ask(&self) -> bool {
        !self.state.lock().is_blind
    }

    /// What another client announced, and when that expires. `client`: its id. Once reading is
    /// denied, it is not tried again.
    pub(crate) fn look_up(
        &self,
        owners: &dyn OwnerStore,
        client: &str,
    ) -> Result<Option<(Announcement, Duration)>> {
        if self.state.lock().is_blind {
            return Ok(None);
        }
        let announced = owners.announced(&self.key_of(client)).inspect_err(|error| {
            self.state.lock().is_blind = error.kind() == ErrorKind::Denied;
        })?;
        Ok(announced.and_then(|one| Some((Announcement::parse(&one.text)?, one.left))))
    }
}
