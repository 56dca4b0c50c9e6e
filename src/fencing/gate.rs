//! A gate in front of a resource that lives in this process.

use std::fmt;

use super::FencingToken;
use crate::base::error::{Error, ErrorKind, Result};
use crate::os::Mutex;

/// A resource inside one process that only its newest holder can use.
///
/// Several threads of a process can each believe that they hold the lock: one was delayed, its
/// lease ended, and another one got the lock. Put what the lock protects (a value, a file handle, a
/// connection) into a gate, and the late thread is refused. The only way to the resource is a
/// [`Claim`], so a read-modify-write is always correct; the [module docs](super) show why the claim
/// has to come first.
///
/// A gate is shared by reference or in an [`Arc`](std::sync::Arc), and keeps out threads of *this*
/// process only. A resource that other processes can reach as well (a file on disk, a row) needs a
/// token stored with it: see [`SqlFence`](super::SqlFence).
///
/// # What blocks
///
/// All methods lock one mutex, and wait for nothing else: no I/O, no server. The mutex is held for
/// a comparison, and for as long as a closure given to [`Claim::read`] or [`Claim::write`] runs. So
/// every method can block for the closures of other holders, even of one whose lease has ended.
/// That is why no older closure is still running once [`claim`](Self::claim) has returned. Keep
/// closures short and compute between them. A call to the same gate inside a closure deadlocks.
///
/// # Panics in closures
///
/// A closure that panics releases the gate: no thread is stranded, nothing is poisoned, and the
/// claim stays valid. The resource is left as the closure left it. If half a change is worse than
/// none, prepare the new value outside and only store it in the closure.
///
/// # Examples
///
/// ```
/// use leasehold::ErrorKind;
/// use leasehold::fencing::{FenceGate, FencingToken};
///
/// let balance = FenceGate::new(10);
///
/// // The first holder claims, reads, and is delayed while it computes.
/// let first = balance.claim(FencingToken::new(1))?; // guard.fencing_token()
/// let seen = first.read(|b| *b)?;
///
/// // Its lease ended; the second holder does the same and is quicker.
/// let second = balance.claim(FencingToken::new(2))?;
/// let also_seen = second.read(|b| *b)?;
///
/// let refused = first.write(|b| *b = seen + 1).unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::Stale);
/// second.write(|b| *b = also_seen + 5)?;
///
/// assert_eq!(balance.into_inner(), 15);
/// # Ok::<(), leasehold::Error>(())
/// ```
pub struct FenceGate<T> {
    state: Mutex<GateState<T>>,
}

struct GateState<T> {
    /// Never decreases. `None` until the first claim.
    highest: Option<FencingToken>,
    resource: T,
}

impl<T> GateState<T> {
    fn refuse_stale(&self, token: FencingToken) -> Result<()> {
        match self.highest {
            Some(newer) if newer > token => Err(Error::new(
                ErrorKind::Stale,
                format!(
                    "fencing token {token} is stale: a newer holder with token {newer} has claimed the resource"
                ),
            )),
            _ => Ok(()),
        }
    }
}

impl<T> FenceGate<T> {
    /// A gate in front of `resource` without a claim. Never blocks.
    ///
    /// It knows no earlier tokens. If a resource outlives the process, store the highest token
    /// beside it, and [`claim`](Self::claim) once with that token before the gate is used.
    ///
    /// # Examples
    ///
    /// ```
    /// use leasehold::fencing::FenceGate;
    ///
    /// static JOURNAL: FenceGate<Vec<String>> = FenceGate::new(Vec::new());
    /// assert_eq!(JOURNAL.highest(), None);
    /// ```
    #[must_use]
    pub const fn new(resource: T) -> Self {
        Self { state: Mutex::new(GateState { highest: None, resource }) }
    }

    /// Claims the resource for the holder with this token: all older claims end.
    ///
    /// Once it has returned, no closure of an older claim is running and none will start. What is
    /// read after it stays true until this holder changes it, or a newer one claims. The same token
    /// may claim again; all claims of one token are equally valid, because they belong to one
    /// holder.
    ///
    /// Blocks while a closure of any claim runs, see [What blocks](Self#what-blocks).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Stale`] if a newer token has claimed before.
    ///
    /// # Examples
    ///
    /// ```
    /// use leasehold::ErrorKind;
    /// use leasehold::fencing::{FenceGate, FencingToken};
    ///
    /// let gate = FenceGate::new("config");
    /// gate.claim(FencingToken::new(2))?;
    /// gate.claim(FencingToken::new(2))?; // the same holder
    /// assert_eq!(gate.claim(FencingToken::new(1)).unwrap_err().kind(), ErrorKind::Stale);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn claim(&self, token: FencingToken) -> Result<Claim<'_, T>> {
        let mut state = self.state.lock();
        state.refuse_stale(token)?;
        state.highest = Some(token);
        Ok(Claim { gate: self, token })
    }

    /// The highest token that has claimed, `None` before the first claim.
    ///
    /// Log it, or store it beside the resource. Blocks while a closure of any claim runs.
    ///
    /// # Examples
    ///
    /// ```
    /// use leasehold::fencing::{FenceGate, FencingToken};
    ///
    /// let gate = FenceGate::new(());
    /// gate.claim(FencingToken::new(7))?;
    /// assert_eq!(gate.highest(), Some(FencingToken::new(7)));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn highest(&self) -> Option<FencingToken> {
        self.state.lock().highest
    }

    /// Removes the gate and returns the resource. Never blocks: no claim can still exist.
    ///
    /// # Examples
    ///
    /// ```
    /// use leasehold::fencing::FenceGate;
    ///
    /// assert_eq!(FenceGate::new(42).into_inner(), 42);
    /// ```
    #[must_use]
    pub fn into_inner(self) -> T {
        self.state.into_inner().resource
    }
}

impl<T: Default> Default for FenceGate<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

// Omits the resource, which need not be `Debug`, and does not wait: a log line must not block on
// another thread's closure.
impl<T> fmt::Debug for FenceGate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("FenceGate");
        match self.state.try_lock() {
            Some(state) => out.field("highest", &state.highest),
            None => out.field("highest", &format_args!("<in use>")),
        };
        out.finish_non_exhaustive()
    }
}

/// One holder's claim to the resource of a [`FenceGate`], which reads and writes it.
///
/// Valid until a newer token claims. Nothing happens on drop: a claim is not a lock and needs no
/// release.
///
/// It can go to another thread (`Send` and `Sync` if `T` is `Send`), and several threads of one
/// holder can use it. The mutex of the gate separates them within a closure, but not between two
/// closures.
pub struct Claim<'a, T> {
    gate: &'a FenceGate<T>,
    token: FencingToken,
}

impl<T> Claim<'_, T> {
    /// Reads the resource, if this claim is still the newest.
    ///
    /// Blocks while another closure runs on this gate. `f` runs under the mutex of the gate: it
    /// must not call the gate, and other threads wait until it returns.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Stale`] if a newer token has claimed; `f` was not called.
    ///
    /// # Panics
    ///
    /// Only if `f` does; the gate stays usable.
    ///
    /// # Examples
    ///
    /// ```
    /// use leasehold::fencing::{FenceGate, FencingToken};
    ///
    /// let names = FenceGate::new(vec!["ann", "bob"]);
    /// let claim = names.claim(FencingToken::new(1))?;
    /// assert_eq!(claim.read(|n| n.len())?, 2);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn read<R>(&self, f: impl FnOnce(&T) -> R) -> Result<R> {
        self.write(|resource| f(resource))
    }

    /// Changes the resource, if this claim is still the newest. It may be called any number of
    /// times.
    ///
    /// Blocks while another closure runs on this gate. `f` runs under the mutex of the gate: it
    /// must not call the gate, and other threads wait until it returns.
    ///
    /// Returns what `f` returns, so a closure that can fail gives a result in a result.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Stale`] if a newer token has claimed; `f` was not called, and the resource is
    /// unchanged.
    ///
    /// # Panics
    ///
    /// Only if `f` does; the gate stays usable, and the resource is as `f` left it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::Write as _;
    ///
    /// use leasehold::fencing::{FenceGate, FencingToken};
    ///
    /// let journal = FenceGate::new(Vec::new()); // or a File
    /// // Without a read before it, claim and write may be chained.
    /// journal.claim(FencingToken::new(1))?.write(|j| j.write_all(b"begin\n"))??;
    /// assert_eq!(journal.into_inner(), b"begin\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write<R>(&self, f: impl FnOnce(&mut T) -> R) -> Result<R> {
        let mut state = self.gate.state.lock();
        // The claim raised the stored token to its own, and that never decreases. So "not stale"
        // means exactly equal.
        state.refuse_stale(self.token)?;
        Ok(f(&mut state.resource))
    }

    /// The token of this claim. Never blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use leasehold::fencing::{FenceGate, FencingToken};
    ///
    /// let gate = FenceGate::new(());
    /// assert_eq!(gate.claim(FencingToken::new(3))?.token().get(), 3);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }
}

impl<T> fmt::Debug for Claim<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("token", &self.token).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
