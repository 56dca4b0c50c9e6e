//! The methods that every guard has, written once.

/// Implements the common methods, `Debug` and `Drop` for a guard with the fields `hold: Arc<Hold>`, `given_up: bool` and
/// `callbacks: Callbacks`, which is a level of one side of its hold. Every primitive's guards behave the same because they are the same code.
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
            /// No I/O, and no mutex: a clock read, and a look at the process id unless the last one was microseconds ago.
            /// True is not proof for what comes *after* the call; see
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

            /// Blocks until the lease is lost or closing the client gives it up (true), or until `timeout` has passed
            /// (false). [`ensure_held`](Self::ensure_held) tells the two apart.
            ///
            /// Notices a loss by time within a millisecond or so; that the server has forgotten the hold, at the
            /// next renewal: a third of the lease, and of a fixed lease at most 10 s. For use from a second thread, which
            /// a guard can be lent to.
            #[must_use]
            pub fn wait_lost(&self, timeout: std::time::Duration) -> bool {
                self.hold.wait_lost(timeout)
            }

            /// Runs `callback` once if the lease is lost, or closing the client gives it up, while this guard lives: at
            /// once if it is lost already, and also when it is the guard's own unlock or drop that finds the loss.
            ///
            /// A callback belongs to the guard through which it was set. Once that guard was given up with the lease
            /// held, the callback never runs, whatever becomes of the hold's other guards.
            ///
            /// Callbacks run on up to 16 threads of the client's, started when needed. They may use the client, drop
            /// guards and drop the last handle; one that blocks can delay those that queue behind it. The first callback
            /// of a client also starts one thread that keeps the deadlines of all its leases that have callbacks. A
            /// callback is no substitute for [`ensure_held`](Self::ensure_held) or a fencing token at the resource: it
            /// can be late.
            pub fn on_lost(&self, callback: impl FnOnce() + Send + 'static) {
                if self.hold.is_forked() {
                    return;
                }
                let callback = crate::background::grant::OnLost::new(callback);
                self.hold.on_lost(&callback);
                self.callbacks.add(callback);
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
                crate::base::limits::check_lease(lease).map_err(|e| e.for_name(self.name()))?;
                self.hold.extend(lease)
            }

            /// Gives up this level of the hold, and with the last level the lock; what dropping the guard does, with
            /// the outcome told. One round trip; when the server hangs, a few I/O timeouts (for a connection, for the
            /// reply).
            ///
            /// # Errors
            /// [`Lost`](crate::ErrorKind::Lost) when the lock had been lost before, and
            /// [`Closed`](crate::ErrorKind::Closed) when closing the client gave it up: what was done under it may have
            /// overlapped with somebody else. When the server could not be asked, the release is repeated in the
            /// background until it answers, or the lease has ended.
            pub fn unlock(mut self) -> crate::Result<()> {
                self.give_up()
            }

            fn give_up(&mut self) -> crate::Result<()> {
                self.given_up = true;
                let callbacks = self.callbacks.take(|| self.hold.is_forked());
                let given_up = self.hold.release_one($side);
                self.hold.finish_callbacks(callbacks, &given_up);
                given_up
            }
        }

        impl Drop for $guard {
            /// Gives up this level, blocking for one round trip, or a few I/O timeouts when the server hangs; one more when
            /// this was the last handle of its client. Never panics; a failure is logged at WARN, and what may still be locked is
            /// undone in the background. Nothing is logged when closing the client gave it up. In a forked child it does
            /// nothing.
            fn drop(&mut self) {
                if self.given_up {
                    return;
                }
                if self.hold.is_forked() {
                    // The parent's hold: not even its memory is given back, which could end the client here.
                    std::mem::forget(self.hold.clone());
                    let _ = self.callbacks.take(|| true);
                    return;
                }
                match self.give_up() {
                    Err(e) if e.kind() != crate::ErrorKind::Closed => log::warn!("releasing a lock failed: {e}"),
                    _ => {}
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
