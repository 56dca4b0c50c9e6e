//! The token that ends waits from another thread.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::base::error::{Error, ErrorKind};
use crate::os::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};
use crate::signal::event::{Awaited, Event, Interrupt};

/// A hundred years, which every clock can count to.
const LONGEST_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Ends waits from another thread: those of the handles that were made
/// [`with_cancel`](crate::ReentrantMutex::with_cancel), and
/// [`wait_lost_or_cancelled`](crate::ReentrantMutexGuard::wait_lost_or_cancelled).
///
/// A clone is the same token. One token can end any number of waits, of any number of clients.
/// Cancelling is final: every later call through such a handle is refused. It releases nothing:
/// held locks stay held.
///
/// # Parents
/// Cancelling a token cancels its [children](Self::child) and their children, but never its parent.
/// Use one token for the program and a child for each job.
///
/// # Signals
/// No method is safe inside a signal handler. Cancel from the thread that takes the signals in, as
/// with the iterator of the crate `signal-hook`; see [`guide::shutdown`](crate::guide::shutdown).
///
/// # Examples
/// ```no_run
/// use leasehold::{CancelToken, ErrorKind};
/// # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
/// let program = CancelToken::new();
/// let job = program.child();
/// // On any other thread: job.cancel(), or program.cancel() for all jobs.
/// match client.mutex("report").with_cancel(&job).lock() {
///     Ok(guard) => guard.ensure_held()?, // ... do the work ...
///     Err(e) if e.kind() == ErrorKind::Cancelled => println!("cancelled"),
///     Err(e) => return Err(e),
/// }
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct CancelToken(Arc<Node>);

#[derive(Default)]
struct Node {
    cancelled: AtomicBool,
    /// The parent, and this token's key among its children. A child keeps its parent alive, and not
    /// the other way round: dropping the last clone of a child removes it from the parent.
    parent: Option<(CancelToken, u64)>,
    below: Mutex<Below>,
}

// A cancel that panicked has set the flag first: who looks at it sees it.
impl UnwindSafe for Node {}
impl RefUnwindSafe for Node {}

/// What a cancel reaches.
#[derive(Default)]
struct Below {
    /// The last key that was given out.
    last: u64,
    waits: BTreeMap<u64, Arc<dyn Interrupt>>,
    children: BTreeMap<u64, Weak<Node>>,
}

impl Below {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl CancelToken {
    /// A token that nobody has cancelled. No I/O.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a token that is cancelled together with this one, and that can also be cancelled
    /// alone. A child of a cancelled token is already cancelled. A dropped child is forgotten. No
    /// I/O.
    #[must_use]
    pub fn child(&self) -> Self {
        let mut below = self.0.below.lock();
        let key = below.next();
        // Read under the mutex: a cancel that has not yet set the flag will find the child in
        // `below`.
        let cancelled = AtomicBool::new(self.is_cancelled());
        let child = Arc::new(Node {
            cancelled,
            parent: Some((self.clone(), key)),
            below: Mutex::default(),
        });
        below.children.insert(key, Arc::downgrade(&child));
        Self(child)
    }

    /// Ends the waits of this token and of its children, and refuses later ones, with
    /// [`Cancelled`](ErrorKind::Cancelled). Final; a second call does nothing. Wakes the waiting
    /// threads, does not wait for them, and does no I/O.
    pub fn cancel(&self) {
        let mut left = vec![self.0.clone()];
        while let Some(node) = left.pop() {
            // The flag is set before the list is read, so a wait that begins in between sees the
            // flag.
            node.cancelled.store(true, Ordering::Release);
            let below = node.below.lock();
            let waits: Vec<_> = below.waits.values().cloned().collect();
            left.extend(below.children.values().filter_map(Weak::upgrade));
            drop(below);
            for wait in &waits {
                wait.interrupt();
            }
        }
    }

    /// Whether this token or one of its ancestors was cancelled. No I/O and no mutex.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Blocks until the token is cancelled (true; at once if it already is), or for `timeout`
    /// (false). Use it as the pause of a loop that does something now and then and must end
    /// promptly when the program does. No I/O.
    ///
    /// # Examples
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
    /// # let program = leasehold::CancelToken::new();
    /// while !program.wait_timeout(Duration::from_secs(60)) {
    ///     if let Some(guard) = client.try_lock("cleanup")? {
    ///         // ... once a minute, on one of many machines ...
    ///         guard.unlock()?;
    ///     }
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let event = Arc::new(Event::default());
        let _waking = self.wakes(event.clone());
        // Only a cancel ends this wait early. A timeout that the clock cannot represent is capped.
        event.wait_for(Awaited::Nothing, timeout.min(LONGEST_WAIT));
        self.is_cancelled()
    }

    /// Interrupts a wait when the token is cancelled, at once if it already is, until the returned
    /// value is dropped. The interrupted wait then checks [`is_cancelled`](Self::is_cancelled).
    pub(crate) fn wakes(&self, wait: Arc<dyn Interrupt>) -> Waking<'_> {
        Waking { token: self, key: self.enter(wait) }
    }

    /// The same, for as long as the token lives.
    pub(crate) fn tells(&self, wait: Arc<dyn Interrupt>) {
        let _key = self.enter(wait);
    }

    fn enter(&self, wait: Arc<dyn Interrupt>) -> u64 {
        let key = {
            let mut below = self.0.below.lock();
            let key = below.next();
            below.waits.insert(key, wait.clone());
            key
        };
        // The wait is entered before the flag is read, so at least one of this call and a
        // concurrent cancel sees the other.
        if self.is_cancelled() {
            wait.interrupt();
        }
        key
    }
}

/// A token that is cancelled together with another one, although it is no child of it.
impl Interrupt for CancelToken {
    fn interrupt(&self) {
        self.cancel();
    }
}

/// Cancels its token when it is dropped.
pub(crate) struct CancelledByDrop(pub(crate) CancelToken);

impl Drop for CancelledByDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cold]
pub(crate) fn cancelled() -> Error {
    Error::new(
        ErrorKind::Cancelled,
        "its token was cancelled, so the call stopped waiting and took nothing",
    )
}

/// See [`CancelToken::wakes`].
pub(crate) struct Waking<'t> {
    token: &'t CancelToken,
    key: u64,
}

impl Drop for Waking<'_> {
    fn drop(&mut self) {
        // Dropped only after the mutex is unlocked.
        let _wait = self.token.0.below.lock().waits.remove(&self.key);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A loop and not recursion: in a long chain of tokens, each may be kept alive only by its
        // child.
        let mut parent = self.parent.take();
        while let Some((CancelToken(node), key)) = parent {
            node.below.lock().children.remove(&key);
            parent = Arc::into_inner(node).and_then(|mut node| node.parent.take());
        }
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken")
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "cancel_tests.rs"]
mod tests;
