//! What all handles of one client share.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::ClientId;
use crate::base::lease::{LeaseState, Moment};
use crate::base::lock_name::LockName;
use crate::base::names::Names;
use crate::lease::announcer::Announcer;
use crate::lease::hold_table::HoldTable;
use crate::lease::loss_callbacks::LossCallbacks;
use crate::lease::records::{StoreHold, Tenure};
use crate::lease::store_hold::RunLength;
use crate::lease::watchdog::Watchdog;
use crate::os::{self};
use crate::report::observer::Observer;
use crate::report::outcomes::Outcomes;
use crate::report::owner::HolderOwner;
use crate::report::traffic::Traffic;
use crate::signal::clock::Clock;
use crate::signal::process::OwnProcess;
use crate::store::{LockStore, Topic};
use crate::wait::fairness::Messages;
use crate::wait::life::{Life, closed};
use crate::wait::local_queue::LocalQueues;
use crate::wait::notifications::Notifications;
use crate::wait::waits::Waits;

/// The settings of a client, frozen when it is built.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) lease: Duration,
    pub(crate) io_timeout: Duration,
    pub(crate) key_prefix: String,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) fencing: bool,
    /// How long a call that is already waiting tolerates an outage.
    pub(crate) outage_timeout: Duration,
    /// `None`: the owner is not published, and other clients are not asked for theirs.
    pub(crate) owner: Option<HolderOwner>,
    /// The user has set the owner's label.
    pub(crate) has_label: bool,
}

pub(crate) struct ClientState {
    pub(crate) config: Config,
    pub(crate) who: Who,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: Arc<dyn LockStore>,
    pub(crate) holds: Arc<HoldTable>,
    pub(crate) names: Names,
    pub(crate) local_queues: Arc<LocalQueues>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) notifications: Notifications,
    pub(crate) loss_callbacks: Arc<LossCallbacks>,
    pub(crate) seen: Seen,
    pub(crate) life: Arc<Life>,
}

/// Which client it is.
pub(crate) struct Who {
    pub(crate) id: ClientId,
    pub(crate) client_name: String,
    pub(crate) built_at: Instant,
    process: OwnProcess,
}

/// What is counted and reported.
pub(crate) struct Seen {
    pub(crate) observer: Arc<Observer>,
    pub(crate) announcer: Option<Arc<Announcer>>,
    pub(crate) waits: Arc<Waits>,
    pub(crate) outcomes: Outcomes,
    /// The traffic of all connections; `None` for a store without connections.
    pub(crate) traffic: Option<Arc<Traffic>>,
}

impl ClientState {
    pub(crate) fn new(
        config: Config,
        client_name: String,
        id: ClientId,
        store: Arc<dyn LockStore>,
        clock: Arc<dyn Clock>,
        observer: Arc<Observer>,
        traffic: Option<Arc<Traffic>>,
    ) -> Self {
        let loss_callbacks = Arc::new(LossCallbacks::new(observer.clone()));
        let local_queues = Arc::new(LocalQueues::default());
        let holds = Arc::new(HoldTable::new(config.io_timeout));
        let waiting = local_queues.clone();
        let on_end = Box::new(move |key: &str| waiting.notify(key));
        let waits = Arc::new(Waits::default());
        let queues = waits.clone();
        let has_place = move || queues.has_place();
        let announcer = config
            .owner
            .clone()
            .map(|owner| {
                Announcer::new(
                    &config.key_prefix,
                    id.as_str(),
                    owner,
                    config.lease,
                    config.has_label,
                )
            })
            .map(|announcer| Arc::new(announcer.with_places(has_place)));
        let watchdog = Watchdog::new(
            client_name.clone(),
            announcer.clone().filter(|_| store.owners().is_some()),
            store.clone(),
            clock.clone(),
            loss_callbacks.clone(),
            on_end,
            holds.clone(),
        );
        let notifications = Notifications::new(client_name.clone(), store.clone(), config.lease);
        let who = Who { id, client_name, built_at: os::now(), process: OwnProcess::now() };
        let seen = Seen { observer, announcer, waits, outcomes: Outcomes::default(), traffic };
        let names = Names::default();
        let life = Arc::default();
        Self {
            config,
            who,
            clock,
            store,
            holds,
            names,
            local_queues,
            watchdog,
            notifications,
            loss_callbacks,
            seen,
            life,
        }
    }

    /// In a fork the threads are gone and the mutexes may stay locked for ever: nothing of the
    /// client may be touched there.
    pub(crate) fn is_forked(&self) -> bool {
        self.is_forked_at(self.clock.now())
    }

    /// [`is_forked`](Self::is_forked) for a caller that has just read the lease clock.
    pub(crate) fn is_forked_at(&self, now: Moment) -> bool {
        self.who.process.is_other(now)
    }

    /// Every method begins with this.
    ///
    /// # Errors
    /// `Forked` and `Closed`.
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.is_forked() {
            return Err(Error::new(
                ErrorKind::Forked,
                "this process is a fork of the one that made the client; make a new client in this process",
            ));
        }
        if self.life.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// Wakes this client's own waiters after one of its threads freed `name`: they need not wait
    /// for the message, which reached `listeners` subscribers. `received_before`: how many messages
    /// the waiters had received before the release was sent.
    pub(crate) fn notify_freed(
        &self,
        name: &LockName,
        run: RunLength,
        listeners: Option<u64>,
        received_before: u64,
    ) {
        let mut messages = Messages { received: received_before, own: 0 };
        let mut others = listeners.unwrap_or(0);
        if others > 0 && self.notifications.is_subscribed(&Topic::freed(name)) {
            // Few others publish on this topic in between, so the next message is usually this
            // client's.
            messages.own = self.store.messages_per_release();
            others -= u64::from(self.store.counts_own_listener());
        }
        self.local_queues.released(&name.key, run, others, messages);
    }

    /// The server no longer knows this hold. Notifies all its users.
    pub(crate) fn report_loss(self: &Arc<Self>, hold: &StoreHold) {
        hold.lose();
        let lost = |tenure: &&Arc<Tenure>| tenure.state() == LeaseState::Lost;
        for tenure in hold.tenures().iter().filter(lost) {
            self.loss_callbacks.report(tenure);
        }
        // Threads of this client sleep for as long as they believe that the lock is held here.
        self.local_queues.notify(&hold.asked.name.key);
    }

    /// Wakes every sleeping thread of the client, so that it checks again: a test has moved the
    /// clock, or changed what is in the store.
    #[cfg(feature = "testing")]
    pub(crate) fn recheck(&self) {
        if !self.is_forked() {
            self.watchdog.recheck();
            self.loss_callbacks.recheck();
            self.local_queues.notify_all();
        }
    }

    /// Whether the threads of the library have done what is due for this client: renewals, undos,
    /// callbacks.
    #[cfg(feature = "testing")]
    pub(crate) fn is_settled(&self) -> bool {
        // First the one that finds losses, then the one that reports them.
        self.is_forked() || self.watchdog.is_settled() && self.loss_callbacks.is_settled()
    }
}

/// A panic leaves nothing half done that a later call could meet: each duty is a value whose drop
/// does it, and no mutex is poisoned. So clients, handles and guards can be used in `catch_unwind`
/// and after it.
impl UnwindSafe for ClientState {}
impl RefUnwindSafe for ClientState {}

impl Drop for ClientState {
    /// The last handle is gone, so there are no holds. Unknown outcomes get one I/O timeout to be
    /// resolved. It comes on top of the timeouts of the guard that was the last handle, because the
    /// release by that guard may be the one whose outcome is unknown. After a close that panicked
    /// this ends what that has left.
    fn drop(&mut self) {
        if self.is_forked() || self.life.was_closed() {
            return;
        }
        let deadline = os::now() + self.config.io_timeout;
        self.life.end();
        if self.watchdog.stop(deadline) {
            self.watchdog.withdraw(false);
        }
        self.notifications.stop(deadline);
        self.loss_callbacks.stop(deadline);
        self.store.close();
    }
}

impl std::fmt::Debug for ClientState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut client = f.debug_struct("LockClient");
        client.field("id", &self.who.id.as_str());
        // The store takes mutexes, which a thread that does not exist in a fork may have locked.
        if self.is_forked() {
            return client.field("forked", &true).finish_non_exhaustive();
        }
        client
            .field("store", &self.store)
            .field("closed", &self.life.is_closed())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_handle_ends_what_a_close_that_panicked_has_left() {
        let in_memory = crate::LockClient::in_memory();
        drop(in_memory.lock("job").unwrap());
        let client = in_memory.state();
        let watchdog = client.watchdog.clone();
        let close = || client.life.close(os::now() + Duration::from_secs(10), || panic!("a store"));
        std::panic::catch_unwind(close).unwrap_err();
        assert!(client.life.close(os::now(), || Ok(())).is_err(), "nobody closes it again");
        assert!(watchdog.begin().is_ok(), "its thread runs");
        drop(in_memory);
        assert!(watchdog.begin().is_err(), "its thread has ended");
    }
}
