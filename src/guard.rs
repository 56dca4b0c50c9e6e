//! The methods that every guard has, written once.

/// Implements the common methods, `Debug` and `Drop` for a guard with a field `hold: Arc<Hold>` and a field
/// `given_up: bool`, which is a level of one side of its hold. Every noun's guards behave the same because they are the same code.
macro_rules! guard_methods {
    ($guard:ty, $side:expr) => {
        impl $guard {
            /// The name of the lock, as it was asked for.
            #[must_use]
            pub fn name(&self) -> &str {
                self.hold.name()
            }

            /// Whether the lock is still held, for certain: false from the first instruction after the lease may have
            /// ended, also when the process or the machine was suspended meanwhile. Once false, false for ever.
            ///
            /// No I/O, and no mutex: two clock reads. True is not proof for what comes *after* the call; see
            /// [`fencing`](crate::fencing).
            #[must_use]
            pub fn is_held(&self) -> bool {
                self.hold.is_held()
            }

            /// How long the lock is held for certain if nothing renews it any more; zero once it is lost. No I/O.
            #[must_use]
            pub fn remaining(&self) -> std::time::Duration {
                self.hold.remaining()
            }

            /// [`is_held`](Self::is_held) for use with `?`. No I/O.
            ///
            /// # Errors
            /// [`Lost`](crate::ErrorKind::Lost), or [`Closed`](crate::ErrorKind::Closed) when the client was closed.
            pub fn ensure_held(&self) -> crate::Result<()> {
                self.hold.ensure_held()
            }

            /// Blocks until the lease is lost (true), or until `timeout` has passed or the client was closed (false).
            ///
            /// Notices a loss by time within a millisecond or so; that the server has forgotten the hold, at the
            /// next renewal (a third of the lease). For use from a second thread, which a guard can be lent to.
            #[must_use]
            pub fn wait_lost(&self, timeout: std::time::Duration) -> bool {
                self.hold.wait_lost(timeout)
            }

            /// Runs `callback` once if the lease is lost, at once if it is lost already; never after an unlock.
            ///
            /// It runs on a thread of its own, so it may block and may use the client. The first callback of a client
            /// starts one thread that keeps the deadlines of all its leases that have callbacks. A callback is no
            /// substitute for [`ensure_held`](Self::ensure_held) or a fencing token at the resource: it can be late.
            pub fn on_lost(&self, callback: impl FnOnce() + Send + 'static) {
                self.hold.on_lost(crate::grant::OnLost::new(callback));
            }

            /// How many guards share this hold.
            #[must_use]
            pub fn hold_count(&self) -> u32 {
                self.hold.count()
            }

            /// Lengthens the lease to at least `lease` from now, once; never shortens it. One round trip.
            ///
            /// For a fixed lease that turns out too short. A renewed hold does not need it. Repeat-safe.
            ///
            /// # Errors
            /// [`Lost`](crate::ErrorKind::Lost) when the hold is gone; [`InvalidInput`](crate::ErrorKind::InvalidInput)
            /// for a lease out of range; any failure to ask the server, which leaves the lease as it was.
            pub fn extend(&self, lease: std::time::Duration) -> crate::Result<()> {
                crate::limits::check_lease(lease).map_err(|e| e.for_name(self.name()))?;
                self.hold.extend(lease)
            }

            /// Gives up this level of the hold, and with the last level the lock; what dropping the guard does, with
            /// the outcome told. One round trip; when the server hangs, a few I/O timeouts (for a connection, for the
            /// reply).
            ///
            /// # Errors
            /// [`Lost`](crate::ErrorKind::Lost) when the lock had been lost before: what was done under it may have
            /// overlapped with somebody else. When the server could not be asked, the release is repeated in the
            /// background until it answers, or the lease has ended.
            pub fn unlock(mut self) -> crate::Result<()> {
                self.given_up = true;
                self.hold.release_level($side)
            }
        }

        impl Drop for $guard {
            /// Gives up this level, blocking for one round trip, or a few I/O timeouts when the server hangs. Never panics; a failure
            /// is logged at WARN, and what is in doubt is undone in the background. In a forked child it does nothing.
            fn drop(&mut self) {
                if self.given_up {
                    return;
                }
                if self.hold.is_forked() {
                    // The parent's hold: not even its memory is given back, which could end the client here.
                    std::mem::forget(self.hold.clone());
                    return;
                }
                if let Err(e) = self.hold.release_level($side) {
                    log::warn!("releasing a lock failed: {e}");
                }
            }
        }

        impl std::fmt::Debug for $guard {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($guard))
                    .field("name", &self.name())
                    .field("is_held", &self.is_held())
                    .field("remaining", &self.remaining())
                    .finish_non_exhaustive()
            }
        }
    };
}

/// The fencing token of a guard that keeps everybody else out.
macro_rules! token_method {
    ($guard:ty) => {
        impl $guard {
            /// The fencing token of this hold: larger than that of every earlier hold of this name. `None` when the
            /// client was built with `fencing(false)`.
            ///
            /// Hand it to the resource with every write, and let the resource refuse smaller ones:
            /// [`fencing`](crate::fencing) has helpers for that. Re-entering gives the same token. No I/O.
            #[must_use]
            pub fn fencing_token(&self) -> Option<crate::fencing::FencingToken> {
                (self.hold.grant.token > 0).then(|| crate::fencing::FencingToken::new(self.hold.grant.token))
            }
        }
    };
}

pub(crate) use guard_methods;
pub(crate) use token_method;
