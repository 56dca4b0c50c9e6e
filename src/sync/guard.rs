//! What all guards share: [`Guard`] has the logic, and the public guards are thin wrappers around
//! it.
//!
//! The public guards are separate types, made by a macro, and not aliases of one generic type
//! (`type ReentrantMutexGuard = Guard<Mutex, ThreadBound>`). That was tried with Rust 1.95: the
//! page of an alias has no methods (a script adds them in the browser), links to them lead to one
//! page for all guards, `must_use` is refused on an alias, and the compiler's errors name
//! `Guard<Read, Movable>` instead of the type that the user wrote. It would save few lines, because
//! most lines of the macro are documentation.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::check_lease;
use crate::base::log;
use crate::base::loss::{Loss, LossWait, RenewalFailure};
use crate::fencing::{FencingToken, TransactionFence};
use crate::hold::guarded::{Hold, Side};
use crate::lease::callbacks::{Callbacks, OnLost};
use crate::signal::cancel::{CancelToken, CancelledByDrop, cancelled};

/// What a guard owns: one hold, or the holds of several locks taken as one.
pub(crate) trait HeldLock {
    /// Whether it is several locks taken as one, even if there is only one name.
    const IS_SET: bool = false;

    /// The holds: at least one in every guard.
    fn parts(&self) -> &[Hold];

    fn name(&self) -> &str;

    /// Blocks until a hold is lost, closed or released, `timeout` has passed, or `cancel` is
    /// cancelled; for the last two it returns `StillHeld`.
    fn wait_lost(&self, timeout: Duration, cancel: Option<&CancelToken>) -> LossWait;

    fn extend(&self, lease: Duration) -> Result<()>;

    /// Gives up one level of `side`, in one round trip (parts with data apart).
    fn release_one(&self, side: Side) -> Result<()>;
}

impl HeldLock for Hold {
    fn parts(&self) -> &[Self] {
        std::slice::from_ref(self)
    }

    fn name(&self) -> &str {
        Self::name(self)
    }

    fn wait_lost(&self, timeout: Duration, cancel: Option<&CancelToken>) -> LossWait {
        Self::wait_lost(self, timeout, cancel)
    }

    fn extend(&self, lease: Duration) -> Result<()> {
        Self::extend(self, lease)
    }

    fn release_one(&self, side: Side) -> Result<()> {
        Self::release_one(self, side)
    }
}

/// Marks guards that must stay on their thread: not `Send`, because calls on that thread re-enter
/// the hold, but `Sync`, so that another thread can wait for a loss.
///
/// The compiler names what is in it when a guard is sent.
pub(crate) type ThreadBound =
    std::sync::MutexGuard<'static, UseLockOwnedOrInAsyncCodeReadGuideAsyncCode>;

/// Nobody makes one: it is a hint in an error of the compiler.
pub(crate) enum UseLockOwnedOrInAsyncCodeReadGuideAsyncCode {}

/// Marks guards that can go to another thread.
pub(crate) type Movable = ();

/// One level of a hold, given up on drop. `B` is [`ThreadBound`] or [`Movable`].
pub(crate) struct Guard<H: HeldLock, B> {
    held: H,
    side: Side,
    given_up: bool,
    callbacks: Callbacks,
    bound: PhantomData<B>,
}

impl<H: HeldLock, B> Guard<H, B> {
    /// The guard of a level that was just granted.
    pub(crate) fn new(held: H, side: Side) -> Self {
        Self { held, side, given_up: false, callbacks: Callbacks::default(), bound: PhantomData }
    }

    pub(crate) fn parts(&self) -> &[Hold] {
        self.held.parts()
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.parts()[0].is_forked()
    }

    pub(crate) fn name(&self) -> &str {
        self.held.name()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.parts().iter().all(|hold| hold.is_held())
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.parts().iter().map(|hold| hold.remaining()).min().unwrap_or_default()
    }

    pub(crate) fn ensure_held(&self) -> Result<()> {
        self.parts().iter().try_for_each(|hold| hold.ensure_held())
    }

    pub(crate) fn hold_count(&self) -> u32 {
        self.parts().iter().map(|hold| hold.count()).min().unwrap_or_default()
    }

    pub(crate) fn wait_lost(&self, timeout: Duration) -> LossWait {
        self.held.wait_lost(timeout, None)
    }

    pub(crate) fn wait_lost_or_cancelled(
        &self,
        timeout: Duration,
        token: &CancelToken,
    ) -> Result<LossWait> {
        match self.held.wait_lost(timeout, Some(token)) {
            LossWait::StillHeld if token.is_cancelled() => Err(cancelled().for_name(self.name())),
            ended => Ok(ended),
        }
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        Hold::first_loss_of(self.parts())
    }

    pub(crate) fn lost(&self) -> Receiver<Infallible> {
        if self.is_forked() {
            // A forked child holds nothing, and the parent's channel would never be disconnected
            // here.
            return crossbeam_channel::bounded(0).1;
        }
        self.callbacks.lost(|on_lost| {
            for hold in self.parts() {
                hold.on_lost(on_lost);
            }
        })
    }

    /// Cancels the token when the lease is lost, or the guard is given up.
    pub(crate) fn cancels(&self, token: CancelToken) {
        if self.is_forked() {
            return;
        }
        let on_lost = OnLost::by_drop(CancelledByDrop(token));
        for hold in self.parts() {
            hold.on_lost(&on_lost);
        }
        self.callbacks.add(on_lost);
    }

    pub(crate) fn on_renewal_failed(
        &self,
        callback: impl Fn(&RenewalFailure) + Send + Sync + 'static,
    ) {
        if self.is_forked() {
            return;
        }
        let callback = self.callbacks.add_on_trouble(Arc::new(callback));
        for hold in self.parts() {
            hold.on_renewal_failed(&callback);
        }
    }

    pub(crate) fn on_lost(&self, callback: impl FnOnce(&Loss) + Send + 'static) {
        if self.is_forked() {
            return;
        }
        let callback = OnLost::new(callback);
        for hold in self.parts() {
            hold.on_lost(&callback);
        }
        self.callbacks.add(callback);
    }

    pub(crate) fn extend(&self, lease: Duration) -> Result<()> {
        check_lease(lease).map_err(|e| e.for_name(self.name()))?;
        self.held.extend(lease)
    }

    pub(crate) fn end_min_hold(&self) {
        for hold in self.parts() {
            hold.tenure().store_hold.end_min_hold();
        }
    }

    pub(crate) fn set_data(&self, data: &[u8]) -> Result<()> {
        self.parts().iter().try_for_each(|hold| hold.set_data(data))
    }

    pub(crate) fn unlock(mut self) -> Result<()> {
        self.release()
    }

    fn release(&mut self) -> Result<()> {
        self.end(|held, side| held.release_one(side))
    }

    /// The fencing token of the one hold, if it is exclusive.
    pub(crate) fn fencing_token(&self) -> Result<FencingToken> {
        let why = match self.parts() {
            // Even inside a write hold, or after a downgrade: other readers may share the lock.
            _ if self.side == Side::Read => {
                "a read hold has no fencing token: others may hold the lock too"
            }
            [hold, ..] if !hold.tenure().lock_name().kind.is_lock() => {
                "a permit has no fencing token: others may hold permits too"
            }
            _ if H::IS_SET => {
                "each of several locks has its own fencing token: call MultiLockGuard::fencing_token"
            }
            _ => return self.fencing_token_of(self.name()),
        };
        Err(Error::named(ErrorKind::InvalidInput, self.name(), why))
    }

    /// The fencing token of the hold of `name`.
    pub(crate) fn fencing_token_of(&self, name: &str) -> Result<FencingToken> {
        let hold = self.parts().iter().find(|hold| hold.name() == name);
        let why = match hold.map(|hold| hold.tenure().token) {
            Some(token) if token > 0 => return Ok(FencingToken::new(token)),
            Some(_) => "the hold has no fencing token: build the client with fencing(true)",
            None => "the guard has no lock with this name: pass one of its names()",
        };
        Err(Error::named(ErrorKind::InvalidInput, name, why))
    }

    /// The transaction fence for the hold of `name`.
    pub(crate) fn fence_of(&self, name: &str) -> Result<TransactionFence> {
        // First: MySQL makes a row for what is fenced, and that stays.
        let token = self.fencing_token_of(name)?;
        let hold = self.parts().iter().find(|hold| hold.name() == name).expect("it has a token");
        let statements = hold.fence_statements().map_err(|e| e.for_name(name))?;
        // The fence keeps others out until the transaction ends, which may be after the guard is
        // dropped. A thread that got the hold without a request would not notice the fence.
        hold.tenure().store_hold.stop_passing_on();
        Ok(TransactionFence::new(statements, &hold.tenure().lock_name().key, token))
    }

    /// Whether it was ended.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// Ends the guard by `end`. Takes the callbacks back first: they run if and only if `end`
    /// reports a loss.
    pub(crate) fn end(&mut self, end: impl FnOnce(&H, Side) -> Result<()>) -> Result<()> {
        self.given_up = true;
        let callbacks = self.callbacks.take(|| self.held.parts()[0].is_forked());
        let outcome = end(&self.held, self.side);
        let parts = self.held.parts();
        if !callbacks.is_empty() {
            let loss =
                || Hold::first_loss_of(parts).unwrap_or_else(|| parts[0].tenure().loss_now());
            parts[0].finish_callbacks(callbacks, &outcome, loss);
        }
        if let Err(e) = &outcome
            && e.kind() == ErrorKind::Lost
        {
            // The watchdog may not have noticed the loss, and no longer checks the hold.
            for line in parts.iter().filter_map(|hold| hold.tenure().loss_to_log()) {
                log::warn!("{line}");
            }
        }
        outcome
    }

    /// [`fmt::Debug`] for the public guard of this name.
    pub(crate) fn fmt_as(&self, guard: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(guard)
            .field("name", &self.name())
            .field("is_held", &self.is_held())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl<B> Guard<Hold, B> {
    pub(crate) fn fence_sql(&self) -> Result<TransactionFence> {
        self.fence_of(self.name())
    }

    /// Ends the guard and leaves the lock taken at the store until its lease ends. Returns the
    /// hold.
    pub(crate) fn forget(mut self) -> Hold {
        // A loss is reported to the callbacks, not to the caller.
        let _ = self.end(|hold, _| hold.forget());
        self.held.clone()
    }

    /// Gives up a write level for a read level. The read level begins first, so that no other
    /// writer gets in between.
    pub(crate) fn downgrade(mut self) -> Result<Self> {
        let read = self.held.nest_read().map(|()| Self::new(self.held.clone(), Side::Read));
        let released = self.release();
        // After a failed release the read guard is dropped, which gives up the read level as well.
        read.and_then(|read| released.map(|()| read))
    }
}

impl<H: HeldLock, B> Drop for Guard<H, B> {
    fn drop(&mut self) {
        if self.given_up {
            return;
        }
        if self.is_forked() {
            // The hold belongs to the parent. Its memory is not freed either: that could end the
            // client in this process.
            for hold in self.parts() {
                std::mem::forget(hold.clone());
            }
            let _ = self.callbacks.take(|| true);
            return;
        }
        match self.release() {
            // A loss is already logged.
            Err(e) if !matches!(e.kind(), ErrorKind::Closed | ErrorKind::Lost) => {
                log::warn!("releasing a lock failed: {}", e.chain());
            }
            _ => {}
        }
    }
}

/// Adds groups of documented methods to a public guard, a tuple struct around a [`Guard`]: those of
/// all guards (`held`, with the trait [`Held`](crate::Held)), `unlock` (a permit has `release`
/// instead), `min_hold` and `data` if the handle has that setting, and `fencing_token` for one lock
/// that is held exclusively.
macro_rules! guard_methods {
    ($guard:ty: $($group:ident),+) => {
        $($crate::sync::guard::guard_methods!(@$group $guard);)+
    };
    (@held $guard:ty) => {
        impl $guard {
            /// The name of the lock, as the caller gave it.
            #[must_use]
            pub fn name(&self) -> &str {
                self.0.name()
            }

            /// Whether the lock is certainly still held. Returns false as soon as the lease may
            /// have ended, even if the process or the machine was suspended in the meantime. Once
            /// false, it stays false.
            ///
            /// No I/O and no mutex: it reads the clock, and the process id unless that was read
            /// microseconds before. True proves nothing about the time *after* the call; see
            /// [`fencing`](crate::fencing).
            #[must_use]
            pub fn is_held(&self) -> bool {
                self.0.is_held()
            }

            /// How long the lock is certain to be held without another renewal; zero once it is
            /// lost. No I/O.
            #[doc(alias = "ttl")]
            #[doc(alias = "remainTimeToLive")]
            #[must_use]
            pub fn remaining(&self) -> std::time::Duration {
                self.0.remaining()
            }

            /// Returns an error unless [`is_held`](Self::is_held); for use with `?`. No I/O.
            ///
            /// # Errors
            /// [`Lost`](crate::ErrorKind::Lost) with the [reason](crate::LossReason) in words, and
            /// the error of the last renewal as its source if renewals failed; or
            /// [`Closed`](crate::ErrorKind::Closed) when the client was closed.
            pub fn ensure_held(&self) -> crate::Result<()> {
                self.0.ensure_held()
            }

            /// Blocks until the lease is lost, closing the client gives it up, or `timeout` has
            /// passed; the [result](crate::LossWait) says which. [`loss`](Self::loss) returns the
            /// cause of a loss. No I/O.
            ///
            /// It notices the end of the lease within about a millisecond; if the machine was
            /// asleep then, within a tenth of the lease after it is awake, 1 s at most. If the
            /// server has forgotten the hold, it notices that at the next renewal: up to a third of
            /// the lease later, and at most 10 s later for a fixed lease. Call it from a second
            /// thread that borrows the guard.
            pub fn wait_lost(&self, timeout: std::time::Duration) -> $crate::LossWait {
                self.0.wait_lost(timeout)
            }

            /// Like [`wait_lost`](Self::wait_lost), but a token can end it: for a thread that
            /// watches over a job and must end with it. If the hold has ended too, that is returned
            /// and not the cancel.
            ///
            /// # Errors
            /// [`Cancelled`](crate::ErrorKind::Cancelled) once the token is cancelled, within about
            /// a millisecond. The hold stays as it is.
            pub fn wait_lost_or_cancelled(
                &self,
                timeout: std::time::Duration,
                token: &$crate::CancelToken,
            ) -> $crate::Result<$crate::LossWait> {
                self.0.wait_lost_or_cancelled(timeout, token)
            }

            /// Runs `callback` once, with the reason, if the lease is lost, or closing the client
            /// gives it up, while this guard lives. It runs at once if the lease is already lost,
            /// and also if the guard's own `unlock` or drop finds the loss.
            ///
            /// A callback belongs to the guard that registered it. Once that guard has been given
            /// up with the lease still held, the callback never runs, whatever happens to the
            /// hold's other guards.
            ///
            /// Callbacks run on up to 16 threads of the client, which it starts when needed. They
            /// may use the client, drop guards and drop the last handle; one that blocks can delay
            /// those queued behind it. The first callback of a client also starts one thread that
            /// watches the deadlines of all its leases that have callbacks. A callback does not
            /// replace [`ensure_held`](Self::ensure_held) or a fencing token at the resource: it
            /// can be late.
            pub fn on_lost(&self, callback: impl FnOnce(&$crate::Loss) + Send + 'static) {
                self.0.on_lost(callback);
            }

            /// A channel that becomes ready when the lease is lost or closing the client gives it
            /// up: for a `select!` over jobs and the lock.
            ///
            /// It carries no messages. A loss disconnects it for good, so `recv` is ready from then
            /// on for every clone in every thread, and no receiver can miss the loss or take it
            /// from another. It is ready at once if the lease is already lost. Giving up the guard
            /// also disconnects it, because nothing is held through the guard then.
            /// [`loss`](Self::loss) returns the cause.
            ///
            /// All calls return clones of one channel, so a loop may call it in each iteration. No
            /// I/O. The first call of a client starts the same thread as
            /// [`on_lost`](Self::on_lost), and a loss is noticed just as quickly; no callback can
            /// delay it.
            ///
            /// # Examples
            /// ```no_run
            /// use leasehold::crossbeam_channel::{never, select};
            /// # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
            /// # let jobs = never::<u32>();
            /// let guard = client.lock("queue")?;
            /// loop {
            ///     select! {
            ///         recv(guard.lost()) -> _ => break,
            ///         recv(jobs) -> job => match job {
            ///             Ok(job) => println!("{job}"),
            ///             Err(_) => break,
            ///         }
            ///     }
            /// }
            /// guard.unlock()?; // the error says how it was lost
            /// # Ok::<(), leasehold::Error>(())
            /// ```
            #[must_use]
            pub fn lost(&self) -> crossbeam_channel::Receiver<std::convert::Infallible> {
                self.0.lost()
            }

            /// How the lease was lost, or `None` while it is held. Once lost, it never changes. In
            /// a forked child it is always `None`. No I/O.
            #[must_use]
            pub fn loss(&self) -> Option<$crate::Loss> {
                self.0.loss()
            }

            /// Runs `callback` when a renewal fails, with the error and the remaining time. It does
            /// not run again for the failures that follow until a renewal has succeeded. It runs at
            /// once if renewal is already failing. The lock is still held, and renewal is retried
            /// until the lease ends, so there is time to stop cleanly or to alert somebody.
            ///
            /// It runs on the same threads and by the same rules as [`on_lost`](Self::on_lost):
            /// never once the guard has been given up. A fixed lease, or one whose `max_hold` is
            /// over, is not renewed, so nothing can fail. A guard of several locks runs it once if
            /// their renewals fail together.
            #[doc(alias = "watchdog")]
            pub fn on_renewal_failed(&self, callback: impl Fn(&$crate::RenewalFailure) + Send + Sync + 'static) {
                self.0.on_renewal_failed(callback);
            }

            /// How many guards share this hold.
            #[doc(alias = "getHoldCount")]
            #[must_use]
            pub fn hold_count(&self) -> u32 {
                self.0.hold_count()
            }

            /// Extends the lease once, to at least `lease` from now; never shortens it. One round
            /// trip; for several locks over MySQL or in a cluster one for each name.
            ///
            /// Use it for a fixed lease that turns out to be too short. A renewed hold does not
            /// need it. Safe to repeat.
            ///
            /// # Errors
            /// [`Lost`](crate::ErrorKind::Lost) when the hold is gone;
            /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a lease out of range; any
            /// failure of the request, which leaves the lease as it was: in the store it may be
            /// longer if the reply was lost (of several locks, some may be extended).
            #[doc(alias = "renew")]
            #[doc(alias = "expire")]
            #[doc(alias = "refresh")]
            pub fn extend(&self, lease: std::time::Duration) -> crate::Result<()> {
                self.0.extend(lease)
            }
        }

        $crate::sync::held::impl_held!($guard);

        impl std::fmt::Debug for $guard {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt_as(stringify!($guard), f)
            }
        }
    };
    (@unlock $guard:ty) => {
        impl $guard {
            /// Gives up this level of the hold, and with the last level the lock. Dropping the
            /// guard does the same, but this returns the outcome. One round trip, or a few I/O
            /// timeouts (for a connection, for the reply) if the server hangs.
            ///
            /// There is no round trip when a plain lock passes to a waiting thread of this client
            /// (see [Turns](crate::ReentrantMutex#turns)). Success then means that the lease had
            /// not ended, and that the server granted it less than 16 ms before; if it was forced
            /// out since then, one of the next turns reports that. There is no round trip either
            /// while other threads of the client read with the same hold (see [Readers of one
            /// client](crate::RwLock#readers-of-one-client)): the last of them then reports a loss
            /// that the inspections, one per second, have not found yet.
            ///
            /// Dropping the guard blocks for just as long, and for one round trip more if it was
            /// the last handle of its client. A drop never panics. It logs a failure at WARN and
            /// undoes in the background what may still be locked. It logs nothing when closing the
            /// client gave up the hold, and does nothing in a forked child.
            ///
            /// # Errors
            /// [`Lost`](crate::ErrorKind::Lost) when the lock had been lost before, and
            /// [`Closed`](crate::ErrorKind::Closed) when closing the client gave it up: the work
            /// done under it may have overlapped with another holder's. When the request fails, it
            /// is repeated in the background until the server answers or the lease has ended.
            pub fn unlock(self) -> crate::Result<()> {
                self.0.unlock()
            }
        }
    };
    (@min_hold $guard:ty) => {
        impl $guard {
            /// Cancels the rest of a [`min_hold`](crate::ReentrantMutex::min_hold): once the last
            /// guard of this hold is given up, the lock is free. Use it for a job that did not
            /// begin, so that the next machine can run it at once. It cannot be reverted, and has
            /// no effect on a hold without a `min_hold`. No I/O. Safe to repeat.
            pub fn end_min_hold(&self) {
                self.0.end_min_hold();
            }
        }
    };
    (@data $guard:ty) => {
        impl $guard {
            /// Replaces the [data](crate::ReentrantMutex::with_data) of this hold. One round trip,
            /// or a few I/O timeouts if the server hangs.
            ///
            /// Each call has a number that is higher than those before it, and the store keeps the
            /// data with the highest one. So a request that arrives late, or twice after a lost
            /// reply, changes nothing, and neither does one that arrives after the release: then
            /// another may have the lock. Safe to repeat.
            ///
            /// # Errors
            /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for more than 1024 bytes, and for a
            /// hold that was taken without data; [`Lost`](crate::ErrorKind::Lost) when the hold is
            /// gone; any failure of the request, after which the data may have been replaced or
            /// not.
            pub fn set_data(&self, data: impl AsRef<[u8]>) -> crate::Result<()> {
                self.0.set_data(data.as_ref())
            }
        }
    };
    (@fencing_token $guard:ty) => {
        impl $guard {
            /// The fencing token of this hold: larger than that of every earlier hold of this name.
            ///
            /// Send it to the resource with every write, and let the resource reject smaller ones:
            /// [`fencing`](crate::fencing) has helpers for that. Re-entering gives the same token.
            /// No I/O.
            ///
            /// # Errors
            /// [`InvalidInput`](crate::ErrorKind::InvalidInput) when the client was built with
            /// `fencing(false)`; never otherwise, not even after the lease was lost.
            #[doc(alias = "RFencedLock")]
            pub fn fencing_token(&self) -> crate::Result<crate::fencing::FencingToken> {
                self.0.fencing_token()
            }

            /// A statement that fences a transaction of your own with the token of this hold, if
            /// the locks are in your PostgreSQL or MySQL database: a holder that is too late cannot
            /// commit. No I/O with PostgreSQL; with MySQL it asks whether the name was fenced
            /// before, and makes a row for it if not, within the I/O timeout for each of the two.
            ///
            /// # Errors
            /// [`Unsupported`](crate::ErrorKind::Unsupported) when the locks are not in a database.
            /// [`InvalidInput`](crate::ErrorKind::InvalidInput) when the client was built with
            /// `fencing(false)`, so there is no token. With MySQL also what a call may fail with.
            pub fn fence_sql(&self) -> crate::Result<crate::fencing::TransactionFence> {
                self.0.fence_sql()
            }
        }
    };
}

pub(crate) use guard_methods;
