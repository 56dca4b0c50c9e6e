//! The trait that all guards have.

use std::convert::Infallible;
use std::fmt::Debug;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::base::error::Result;
use crate::base::loss::{Loss, LossWait, RenewalFailure};
use crate::fencing::FencingToken;
use crate::signal::cancel::CancelToken;

pub(crate) mod sealed {
    /// Only the guards of this crate implement [`Held`](super::Held).
    pub trait Sealed {}
}

/// What all guards have in common, so that a function can take any of them: of a mutex, a permit, a
/// read or write hold, or several locks at once.
///
/// The guards have these methods themselves, with more documentation (`fencing_token` only if they
/// have one); this trait is needed only in functions like the one below. It can be used as `&dyn
/// Held` and `Box<dyn Held>`, with all methods except [`unlock`](Self::unlock); dropping the box
/// gives up the hold. It is `Sync`, so a `&dyn Held` can move to another thread. Only the guards of
/// this crate implement it.
///
/// # Examples
/// ```
/// use leasehold::{Held, LockClient, Result};
///
/// fn copy(rows: u32, guard: &impl Held) -> Result<u32> {
///     let mut copied = 0;
///     for _ in 0..rows {
///         guard.ensure_held()?;
///         copied += 1;
///     }
///     Ok(copied)
/// }
///
/// let client = LockClient::in_memory();
/// assert_eq!(copy(2, &client.lock("table")?)?, 2);
/// assert_eq!(copy(3, &client.rw_lock("table of many").write()?)?, 3);
/// assert_eq!(copy(4, &client.multi(["a", "b"]).lock()?)?, 4);
/// # Ok::<(), leasehold::Error>(())
/// ```
pub trait Held: Debug + Sync + sealed::Sealed {
    /// The name of the lock, as the caller gave it; for several locks, the first few names.
    fn name(&self) -> &str;

    /// Whether the lock is certainly still held. See
    /// [`is_held`](crate::ReentrantMutexGuard::is_held).
    #[must_use]
    fn is_held(&self) -> bool;

    /// How long the lock is certain to be held without another renewal. See
    /// [`remaining`](crate::ReentrantMutexGuard::remaining).
    #[must_use]
    fn remaining(&self) -> Duration;

    /// Returns an error unless [`is_held`](Self::is_held); for use with `?`.
    ///
    /// # Errors
    /// The same as [`ensure_held`](crate::ReentrantMutexGuard::ensure_held).
    fn ensure_held(&self) -> Result<()>;

    /// Blocks until the lease is lost, for `timeout` at most. See
    /// [`wait_lost`](crate::ReentrantMutexGuard::wait_lost).
    fn wait_lost(&self, timeout: Duration) -> LossWait;

    /// Like [`wait_lost`](Self::wait_lost), but a token can end it. See
    /// [`wait_lost_or_cancelled`](crate::ReentrantMutexGuard::wait_lost_or_cancelled).
    ///
    /// # Errors
    /// The same as there.
    fn wait_lost_or_cancelled(&self, timeout: Duration, token: &CancelToken) -> Result<LossWait>;

    /// A channel that is disconnected when the lease is lost. See
    /// [`lost`](crate::ReentrantMutexGuard::lost).
    #[must_use]
    fn lost(&self) -> Receiver<Infallible>;

    /// How the lease was lost. See [`loss`](crate::ReentrantMutexGuard::loss).
    #[must_use]
    fn loss(&self) -> Option<Loss>;

    /// Runs `callback` once if the lease is lost. See
    /// [`on_lost`](crate::ReentrantMutexGuard::on_lost).
    fn on_lost(&self, callback: Box<dyn FnOnce(&Loss) + Send>);

    /// Runs `callback` when renewal begins to fail. See
    /// [`on_renewal_failed`](crate::ReentrantMutexGuard::on_renewal_failed).
    fn on_renewal_failed(&self, callback: Box<dyn Fn(&RenewalFailure) + Send + Sync>);

    /// The fencing token of this hold. See
    /// [`fencing_token`](crate::ReentrantMutexGuard::fencing_token).
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for holds that have none: shared ones (read
    /// holds, permits), those of several locks, which have a token for each name
    /// ([`MultiLockGuard::fencing_token`](crate::MultiLockGuard::fencing_token)), and those of a
    /// client that was built with `fencing(false)`.
    fn fencing_token(&self) -> Result<FencingToken>;

    /// How many guards share this hold. See
    /// [`hold_count`](crate::ReentrantMutexGuard::hold_count).
    #[must_use]
    fn hold_count(&self) -> u32;

    /// Extends the lease once, to at least `lease` from now. One round trip. See
    /// [`extend`](crate::ReentrantMutexGuard::extend).
    ///
    /// # Errors
    /// The same as there.
    fn extend(&self, lease: Duration) -> Result<()>;

    /// Gives up this level of the hold. One round trip. See
    /// [`unlock`](crate::ReentrantMutexGuard::unlock), which is
    /// [`release`](crate::SemaphorePermit::release) on a permit.
    ///
    /// # Errors
    /// The same as there.
    fn unlock(self) -> Result<()>
    where
        Self: Sized;
}

/// Implements the trait for a public guard, a tuple struct around a `Guard`.
macro_rules! impl_held {
    ($guard:ty) => {
        impl $crate::sync::held::sealed::Sealed for $guard {}

        impl $crate::sync::held::Held for $guard {
            fn name(&self) -> &str {
                self.0.name()
            }

            fn is_held(&self) -> bool {
                self.0.is_held()
            }

            fn remaining(&self) -> std::time::Duration {
                self.0.remaining()
            }

            fn ensure_held(&self) -> $crate::Result<()> {
                self.0.ensure_held()
            }

            fn wait_lost(&self, timeout: std::time::Duration) -> $crate::LossWait {
                self.0.wait_lost(timeout)
            }

            fn wait_lost_or_cancelled(
                &self,
                timeout: std::time::Duration,
                token: &$crate::CancelToken,
            ) -> $crate::Result<$crate::LossWait> {
                self.0.wait_lost_or_cancelled(timeout, token)
            }

            fn lost(&self) -> crossbeam_channel::Receiver<std::convert::Infallible> {
                self.0.lost()
            }

            fn loss(&self) -> Option<$crate::Loss> {
                self.0.loss()
            }

            fn on_lost(&self, callback: Box<dyn FnOnce(&$crate::Loss) + Send>) {
                self.0.on_lost(callback);
            }

            fn on_renewal_failed(
                &self,
                callback: Box<dyn Fn(&$crate::RenewalFailure) + Send + Sync>,
            ) {
                self.0.on_renewal_failed(callback);
            }

            fn fencing_token(&self) -> $crate::Result<$crate::fencing::FencingToken> {
                self.0.fencing_token()
            }

            fn hold_count(&self) -> u32 {
                self.0.hold_count()
            }

            fn extend(&self, lease: std::time::Duration) -> $crate::Result<()> {
                self.0.extend(lease)
            }

            fn unlock(self) -> $crate::Result<()> {
                self.0.unlock()
            }
        }
    };
}

pub(crate) use impl_held;
