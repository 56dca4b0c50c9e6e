//! The listener that a user gives a client, to be called when something happens.

use std::time::Duration;

use crate::base::error::Error;
use crate::base::loss::Loss;
use crate::base::primitive::Primitive;

/// Told of what happens to the locks of a client, as it happens: for the spans of a tracer, or for
/// figures of your own. Set with [`Builder::listener`](crate::Builder::listener).
///
/// Every method does nothing unless you write it. None is called while a mutex of this crate is
/// held, so it may use other locks, also those of the same client (for which it is then called,
/// too). It must not wait for the lock that it is called for: `waiting` is called by a thread that
/// has its place in the queue for that lock already, and would wait behind itself. A panic in a
/// method is caught, and logged once for each client.
///
/// `waiting`, `acquired`, `gave_up` and `released` run on the thread of the call, which is as slow
/// as they are. `lost` and `renewal_failed` run on the threads of the
/// [`on_lost`](crate::ReentrantMutexGuard::on_lost) callbacks, in no order that is promised.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use leasehold::{Listener, LockClient, LockInfo};
///
/// struct Slow;
///
/// impl Listener for Slow {
///     fn acquired(&self, lock: &LockInfo<'_>, waited: Option<Duration>) {
///         if let Some(waited) = waited.filter(|waited| *waited > Duration::from_secs(1)) {
///             println!("waited {waited:?} for {}", lock.name());
///         }
///     }
/// }
///
/// let client = LockClient::builder().listener(Arc::new(Slow)).build_in_memory()?;
/// let _guard = client.lock("job")?;
/// # Ok::<(), leasehold::Error>(())
/// ```
pub trait Listener: Send + Sync {
    /// A call begins to wait, because it was found taken.
    fn waiting(&self, lock: &LockInfo<'_>) {
        let _ = lock;
    }

    /// A call has taken it. `waited`: since [`waiting`](Self::waiting), if it had to. Not called
    /// for a further level of a hold.
    fn acquired(&self, lock: &LockInfo<'_>, waited: Option<Duration>) {
        let _ = (lock, waited);
    }

    /// A call has ended without it: with an error, or because its time was up (`None`).
    fn gave_up(&self, lock: &LockInfo<'_>, waited: Option<Duration>, error: Option<&Error>) {
        let _ = (lock, waited, error);
    }

    /// A hold was given up, with its last level. The request for that may have failed, and is then
    /// repeated in the background.
    fn released(&self, lock: &LockInfo<'_>, held: Duration) {
        let _ = (lock, held);
    }

    /// A hold was lost.
    fn lost(&self, lock: &LockInfo<'_>, loss: &Loss) {
        let _ = (lock, loss);
    }

    /// A lease could not be renewed, which is tried again. `left`: until the lease ends.
    fn renewal_failed(&self, lock: &LockInfo<'_>, error: &Error, left: Duration) {
        let _ = (lock, error, left);
    }
}

/// The lock that a [`Listener`] is called for.
#[derive(Debug, Clone, Copy)]
pub struct LockInfo<'n> {
    name: &'n str,
    primitive: Primitive,
}

impl<'n> LockInfo<'n> {
    pub(crate) fn new(name: &'n str, primitive: Primitive) -> Self {
        Self { name, primitive }
    }

    /// The name, as the caller gave it; of a multi-lock the first three names and how many more.
    #[must_use]
    pub fn name(&self) -> &'n str {
        self.name
    }

    /// The kind of lock.
    #[must_use]
    pub fn primitive(&self) -> Primitive {
        self.primitive
    }
}
