//! What every guard owns: one hold of one lock, and how it is given up.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::grant::{Grant, OnLost};
use crate::lease::{Moment, State};
use crate::shared::{Owner, Shared, closed};
use crate::station::TakenRelay;
use crate::store::{Acquire, Doubts, HandedOver, Released, Renewal, Renewed, Undo};

/// How long past the end of its lease a background release is still tried.
const UNDO_SLACK: Duration = Duration::from_secs(1);

/// One holder's possession of one lock, shared by the guards of all its levels.
pub(crate) struct Hold {
    shared: Arc<Shared>,
    pub(crate) grant: Arc<Grant>,
    pub(crate) owner: Owner,
    /// The hold count: how many guards there are. Told to the server, never asked from it. Changed only by the one
    /// thread that the hold, or its single owned guard, belongs to.
    levels: AtomicU32,
}

impl Hold {
    /// Enters a grant into the hold table and the watchdog: from here on it is found, renewed and released.
    pub(crate) fn begin(shared: &Arc<Shared>, grant: Grant, owner: Owner) -> Result<Arc<Self>> {
        let hold = Arc::new(Self { shared: shared.clone(), grant: Arc::new(grant), owner, levels: AtomicU32::new(1) });
        if matches!(owner, Owner::Thread(_)) {
            remember_thread(shared);
        }
        shared.holds.insert(hold.clone());
        if let Err(e) = shared.watchdog.watch(&hold.grant) {
            let _ = hold.release_all();
            return Err(e.for_name(&hold.grant.keys.name));
        }
        // A close that took all holds just before the insert has not seen this one.
        if shared.is_closed() {
            let _ = hold.release_all();
            return Err(closed());
        }
        Ok(hold)
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.shared.is_forked()
    }

    pub(crate) fn name(&self) -> &str {
        &self.grant.keys.name
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
            State::Released => Err(closed().for_name(self.name())),
        }
    }

    pub(crate) fn wait_lost(&self, timeout: Duration) -> bool {
        !self.shared.is_forked() && self.grant.wait_lost(timeout)
    }

    pub(crate) fn on_lost(&self, callback: OnLost) {
        if !self.shared.is_forked() {
            self.shared.losses.watch(&self.shared.client_name, &self.grant, callback);
        }
    }

    pub(crate) fn count(&self) -> u32 {
        if self.shared.is_forked() { 0 } else { self.levels.load(Ordering::Acquire) }
    }

    /// How long this hold keeps other threads of the client from the lock, for certain. Also while its release is
    /// under way: the one who releases rings when it is over.
    pub(crate) fn blocks_for(&self) -> Option<Duration> {
        match self.grant.state() {
            State::Held | State::Suspect => Some(self.grant.remaining()),
            State::Released => Some(self.shared.config.io_timeout),
            State::Lost => None,
        }
    }

    /// One level more, by the thread that has the hold.
    ///
    /// # Errors
    /// `Lost` when the hold is gone: it is never quietly taken again. A failure changes nothing here, and nothing is
    /// sent after it: an undo through the general path would release the live outer hold.
    pub(crate) fn reenter(&self, lease: Duration, acquire: impl FnOnce(u32) -> Result<Reentered>) -> Result<()> {
        self.ensure_held()?;
        let held = self.levels.load(Ordering::Acquire);
        if held == u32::MAX {
            return Err(Error::named(ErrorKind::InvalidInput, self.name(), "re-entered 2^32 - 1 times"));
        }
        self.grant.asks_for(lease);
        match acquire(held)? {
            Reentered::Yes { sent_at } => match self.grant.confirmed(sent_at, lease) {
                State::Held | State::Suspect => {
                    self.levels.store(held + 1, Ordering::Release);
                    Ok(())
                }
                State::Lost => Err(self.lost()),
                State::Released => Err(closed().for_name(self.name())),
            },
            Reentered::Gone => {
                self.tell_lost();
                Err(self.lost())
            }
        }
    }

    /// Lengthens the lease to at least `lease` from now.
    pub(crate) fn extend(&self, lease: Duration) -> Result<()> {
        self.ensure_held()?;
        let renewal = Renewal { keys: self.grant.keys.clone(), holder: self.grant.holder.clone(), lease };
        self.grant.asks_for(lease);
        match self.shared.store.extend(&renewal).map_err(|e| e.for_name(self.name()))? {
            Renewed::Held { sent_at } => match self.grant.confirmed(sent_at, lease) {
                State::Held | State::Suspect => Ok(()),
                State::Lost => Err(self.lost()),
                State::Released => Err(closed().for_name(self.name())),
            },
            Renewed::Gone => {
                self.tell_lost();
                Err(self.lost())
            }
            Renewed::Failed(e) => Err(e.for_name(self.name())),
        }
    }

    /// The server does not know this hold any more.
    pub(crate) fn tell_lost(&self) {
        self.grant.lose();
        self.shared.losses.look();
        // Threads of this client sleep for as long as they think that it is held here.
        self.shared.stations.ring(&self.grant.keys.lock);
    }

    /// Gives up one level. What `unlock` and Drop of every guard do.
    pub(crate) fn release_level(&self) -> Result<()> {
        if self.shared.is_forked() {
            return self.shared.check_usable().map_err(|e| e.for_name(self.name()));
        }
        let held = self.levels.load(Ordering::Acquire);
        self.levels.store(held.saturating_sub(1), Ordering::Release);
        if held > 1 {
            return self.release_inner(held);
        }
        self.release_all()
    }

    /// An inner level. Sent once: the count in Redis is told, not trusted, and the next verb corrects it.
    fn release_inner(&self, held: u32) -> Result<()> {
        // Given up as a whole already, by a close: as for the outermost level, there is nothing left to do or to report.
        if self.grant.state() == State::Released {
            return Ok(());
        }
        self.ensure_held()?;
        let Grant { keys, holder, .. } = &*self.grant;
        match self.shared.store.release(keys, holder, held, &mut Doubts::default()) {
            Ok(Released::Level | Released::Freed { .. }) => Ok(()),
            Ok(Released::NotHeld) => {
                self.tell_lost();
                Err(self.lost())
            }
            Err(e) => Err(e.for_name(self.name())),
        }
    }

    /// Gives up the hold whatever its count.
    ///
    /// Order: the lease leaves its live states, the watchdog forgets it, the release is sent. A renewal that crosses
    /// the release finds the field gone; one that was answered late finds a lease that nothing revives.
    pub(crate) fn release_all(&self) -> Result<()> {
        let before = self.grant.lease.release(self.grant.now());
        self.shared.watchdog.leave(&self.grant);
        self.grant.wake();
        match before {
            State::Released => {
                self.leave_table();
                Ok(())
            }
            State::Lost => {
                self.undo(Doubts::default());
                self.leave_table();
                self.shared.losses.look();
                Err(self.lost())
            }
            State::Held | State::Suspect => self.send_release(),
        }
    }

    /// Only now: while the release is under way, other threads of the client need not ask the server.
    fn leave_table(&self) {
        self.shared.holds.remove(self);
        self.shared.stations.ring(&self.grant.keys.lock);
    }

    fn send_release(&self) -> Result<()> {
        let Grant { keys, holder, .. } = &*self.grant;
        let heard_before = self.shared.stations.messages(&keys.lock).unwrap_or(0);
        let mut doubts = Doubts::default();
        // A closing client takes nothing any more, for nobody.
        let open = !self.shared.is_closed();
        let outcome = match open.then(|| self.shared.stations.take_relay(&keys.lock)).flatten() {
            Some(relay) => self.hand_over(relay, &mut doubts),
            None => self.shared.store.release(keys, holder, 1, &mut doubts),
        };
        if let Ok(Released::Freed { listeners }) = outcome {
            // Nobody else could publish on this channel while we had the lock, so our own message is the next.
            let own = u64::from(listeners > 0 && self.shared.wakeups.hears(&keys.channel));
            self.shared.holds.remove(self);
            self.shared.stations.released(&keys.lock, listeners - own, heard_before + own);
            return Ok(());
        }
        if outcome.is_err() {
            self.undo(doubts);
        }
        self.leave_table();
        match outcome {
            Ok(Released::NotHeld) => Err(self.lost()),
            Ok(_) => Ok(()),
            Err(e) => Err(e.for_name(self.name())),
        }
    }

    /// Sends the try of this client's next thread right behind our release.
    fn hand_over(&self, relay: TakenRelay, doubts: &mut Doubts) -> Result<Released> {
        let Grant { keys, holder, .. } = &*self.grant;
        let next = Acquire { keys, holder: &relay.holder, lease: relay.lease, held: 0, token: relay.token };
        match self.shared.store.hand_over(holder, doubts, &next) {
            Some(HandedOver { released, acquired, doubts }) => {
                relay.deliver(acquired, doubts);
                released
            }
            None => {
                drop(relay);
                self.shared.store.release(keys, holder, 1, doubts)
            }
        }
    }

    /// Gives up the hold in the background: its thread has ended, or there is no time to wait for the server.
    pub(crate) fn abandon(&self) {
        let before = self.grant.lease.release(self.grant.now());
        self.shared.watchdog.leave(&self.grant);
        self.grant.wake();
        if before != State::Released {
            self.undo(Doubts::default());
        }
        self.leave_table();
    }

    fn undo(&self, doubts: Doubts) {
        self.shared.watchdog.undo(Undo {
            keys: self.grant.keys.clone(),
            holder: self.grant.holder.clone(),
            doubts,
            expires: self.expires(),
        });
    }

    fn expires(&self) -> Moment {
        self.grant.now().plus(self.grant.longest()).plus(UNDO_SLACK)
    }

    #[cold]
    fn lost(&self) -> Error {
        Error::named(ErrorKind::Lost, self.name(), "the lease of this hold has ended: somebody else may have the lock")
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").field("grant", &self.grant).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) enum Reentered {
    Yes { sent_at: Moment },
    Gone,
}

thread_local! {
    /// The clients that have holds of this thread. When the thread ends, what it still holds is released: its guards
    /// were forgotten, or sit in other thread-locals.
    static SENTINEL: RefCell<Sentinel> = RefCell::new(Sentinel { thread: std::thread::current().id(), clients: Vec::new() });
}

struct Sentinel {
    thread: std::thread::ThreadId,
    clients: Vec<Weak<Shared>>,
}

fn remember_thread(shared: &Arc<Shared>) {
    // In the destructor of another thread-local the sentinel may be gone: then that guard's own drop must do.
    let _ = SENTINEL.try_with(|sentinel| {
        let mut sentinel = sentinel.borrow_mut();
        if !sentinel.clients.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(shared))) {
            sentinel.clients.retain(|known| known.strong_count() > 0);
            sentinel.clients.push(Arc::downgrade(shared));
        }
    });
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        for shared in self.clients.drain(..).filter_map(|client| client.upgrade()) {
            if shared.is_forked() {
                // Not even dropped: that could end the client in a process that owns nothing of it.
                std::mem::forget(shared);
                continue;
            }
            for hold in shared.holds.take_thread(self.thread) {
                log::warn!("a thread ended with a hold of {:?}: releasing it", hold.name());
                hold.abandon();
            }
        }
    }
}
