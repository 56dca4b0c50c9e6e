//! The listener that a user gives a client, to be called when something happens.

use std::time::Duration;

use crate::base::error::Error;
use crate::base::loss::Loss;
use crate::base::primitive::Primitive;

/// Called when something happens to the locks of a client: for your own log lines or metrics. Set
/// with [`Builder::listener`](crate::Builder::listener). (For the crate `tracing`, a cargo feature
/// [makes spans](crate::guide::operations#spans).)
///
/// Every method does nothing unless you implement it. None is called while a mutex of this crate is
/// held, so a method may use other locks, even those of the same client (the listener is then
/// called for them, too). A panic in a method is caught, and logged once for each client.
///
/// `waiting`, `acquired`, `gave_up` and `released` run on the thread of the call, and delay that
/// call alone: a call that is inside `waiting` has no place in any queue, and other threads and
/// clients go on without it. `lost` and `renewal_failed` run on the threads of the
/// [`on_lost`](crate::ReentrantMutexGuard::on_lost) callbacks, in no guaranteed order, and so does
/// `released` for the holds that [`close`](crate::LockClient::close) gives up. `close` waits for
/// these, but not beyond its timeout.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use leasehold::LockClient;
/// use leasehold::observe::{Listener, LockInfo};
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
    /// A call found it taken and begins to wait.
    fn waiting(&self, lock: &LockInfo<'_>) {
        let _ = lock;
    }

    /// A call has taken it. `waited`: the time since [`waiting`](Self::waiting), if the call had to
    /// wait. Not called for a further level of a hold.
    fn acquired(&self, lock: &LockInfo<'_>, waited: Option<Duration>) {
        let _ = (lock, waited);
    }

    /// A call has ended without taking it: with an error, or because its time was up (`None`).
    fn gave_up(&self, lock: &LockInfo<'_>, waited: Option<Duration>, error: Option<&Error>) {
        let _ = (lock, waited, error);
    }

    /// A hold was given up, with its last level. If the request for that failed, it is repeated in
    /// the background.
    fn released(&self, lock: &LockInfo<'_>, held: Duration) {
        let _ = (lock, held);
    }

    /// A hold was lost.
    fn lost(&self, lock: &LockInfo<'_>, loss: &Loss) {
        let _ = (lock, loss);
    }

    /// A lease could not be renewed; this is tried again. `left`: the time until the lease ends.
    fn renewal_failed(&self, lock: &LockInfo<'_>, error: &Error, left: Duration) {
        let _ = (lock, error, left);
    }
}

/// The lock that a [`Listener`] is called for.
///
/// [As JSON](crate::observe#as-json) it is an object with `name` and `kind`.
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
