//! How async code calls a library that blocks: the one shape that works, and two that hang.
//!
//! Every call that sends something blocks its thread, and a lock call does so for as long as it
//! waits. The threads that run async code, the *workers* of a runtime, must never be blocked. This
//! chapter is about tokio; with another runtime, only the names differ. A program that is async
//! throughout and shares no locks with others may be better served by an async crate. The example
//! `axum_handlers` is a web service with everything that follows.
//!
//! # The one right shape
//!
//! Lock, work and unlock belong into **one** `spawn_blocking`, with a limit for the wait:
//!
//! ```no_run
//! # async fn example() -> leasehold::Result<()> {
//! # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
//! # fn make_report() -> leasehold::Result<u32> { Ok(1) }
//! use std::time::Duration;
//! use tokio::task::spawn_blocking;
//!
//! let client = client.clone(); // a handle to the same client
//! let call = spawn_blocking(move || {
//!     let Some(guard) = client.try_lock_for("report", Duration::from_secs(5))? else {
//!         return Ok::<_, leasehold::Error>(None); // busy: answer 503, or try later
//!     };
//!     let report = make_report()?;
//!     guard.unlock()?;
//!     Ok(Some(report))
//! });
//! let report: Option<u32> = call.await.expect("the job does not panic")?;
//! # Ok(()) }
//! ```
//!
//! The thread that has the lock never needs another thread to go on. So it always finishes, however
//! few threads there are: with 8 blocking threads, 64 tasks that want one lock are all served. A
//! thread of the pool works like any other: the lock is re-entrant there, and the guard cannot
//! leave it.
//!
//! [`LockClient::open`](crate::LockClient::open) and [`close`](crate::LockClient::close) block as
//! well, and so does the drop of a client's last handle. Open the client before the runtime starts,
//! or in a `spawn_blocking`. A handle ([`mutex`](crate::LockClient::mutex)), `is_held`,
//! `ensure_held`, `on_lost`, `stop_waiting`, `stats` and `snapshot` send nothing and may be called
//! anywhere.
//!
//! `block_in_place` around all three is as good, on a runtime with several workers (on the other
//! one it panics). It takes a thread of the same pool, to replace the worker.
//!
//! # How it hangs
//!
//! Each of these compiles, and works until several tasks want one lock. Then it stands still for
//! ever, because the lease is renewed by a thread of the client, which is not part of the runtime.
//!
//! | shape | what happens | measured for 10 s |
//! |---|---|---|
//! | [`lock_owned`](crate::ReentrantMutex::lock_owned) on a worker, then an `await`, then the drop | one task has the lock and is at its `await`. The others call `lock_owned`, which blocks all workers, and none is left to go on with the first | 2 workers, 4 tasks: none was done |
//! | `lock_owned` in one `spawn_blocking`, `unlock` in another | waiting calls fill the pool; the `unlock` of the holder queues behind them | 8 blocking threads, 64 tasks: none was done |
//! | `block_in_place` for each of the two | each waiting call takes a thread of the pool for a new worker, until there is none | 8 blocking threads, 64 tasks: none was done |
//!
//! [`lock`](crate::LockClient::lock) itself does not compile in an async task if its guard lives
//! across an `await`: the guard is bound to its thread, because a call on that thread would
//! re-enter the hold. tokio's error is "future cannot be sent between threads safely"; axum's is
//! "the trait `Handler<_, _>` is not implemented", and only `#[axum::debug_handler]` (axum's
//! feature `macros`) makes it name the guard. The compiler's text has the name
//! `UseLockOwnedOrInAsyncCodeReadGuideAsyncCode`. For a thread of your own `lock_owned` is the
//! answer; in a task it is the first row of this table.
//!
//! On one thread (`LocalSet`, `current_thread`) it compiles, and **does not exclude**: all tasks
//! are the same thread, so the second one re-enters the lock of the first.
//!
//! # Errors of a handler
//!
//! A web framework wants its own error type. [`is_transient`](crate::Error::is_transient) tells
//! what a later request may find mended:
//!
//! ```
//! use axum::http::StatusCode;
//! use axum::response::{IntoResponse, Response};
//!
//! struct Failed(leasehold::Error);
//!
//! impl IntoResponse for Failed {
//!     fn into_response(self) -> Response {
//!         eprintln!("{:#}", self.0);
//!         let status = if self.0.is_transient() {
//!             StatusCode::SERVICE_UNAVAILABLE
//!         } else {
//!             StatusCode::INTERNAL_SERVER_ERROR
//!         };
//!         status.into_response()
//!     }
//! }
//! ```
//!
//! # How many may wait
//!
//! A call that waits occupies a blocking thread (tokio has 512), and while all of them wait, files
//! and host names wait too: tokio reads them on the same threads. Let fewer calls wait than there
//! are threads, with a `tokio::sync::Semaphore` in front. Its permit goes into the closure, because
//! the thread may outlive the future:
//!
//! ```no_run
//! # use std::{sync::Arc, time::Duration};
//! # use leasehold::{LockClient, Result};
//! # use tokio::{sync::Semaphore, task::spawn_blocking};
//! # async fn example(client: LockClient, waiters: Arc<Semaphore>) -> Result<()> {
//! // Once: let waiters = Arc::new(Semaphore::new(64));
//! let turn = waiters.clone().acquire_owned().await.expect("it is never closed");
//! let call = spawn_blocking(move || {
//!     let _turn = turn;
//!     let guard = client.try_lock_for("report", Duration::from_secs(5))?;
//!     // ... work, unlock ...
//! #   drop(guard);
//! #   Ok(())
//! });
//! # call.await.unwrap() }
//! ```
//!
//! # Cancelling
//!
//! **A dropped future stops no thread.** When a client hangs up, a `timeout` is over or a task is
//! aborted, the blocking call goes on, gets the lock, and does the work. Only a
//! [`CancelToken`](crate::CancelToken) ends the wait, within about a millisecond. Cancel it when
//! the future is dropped:
//!
//! ```no_run
//! # use std::time::Duration;
//! # use tokio::task::spawn_blocking;
//! use leasehold::CancelToken;
//!
//! struct CancelOnDrop(CancelToken);
//!
//! impl Drop for CancelOnDrop {
//!     fn drop(&mut self) {
//!         self.0.cancel();
//!     }
//! }
//!
//! # async fn example(client: leasehold::LockClient) -> leasehold::Result<()> {
//! let cancel = CancelOnDrop(CancelToken::new()); // lives as long as this future
//! let lock = client.mutex("report").with_cancel(&cancel.0);
//! let call = spawn_blocking(move || {
//!     let guard = lock.try_lock_for(Duration::from_secs(5))?; // `Cancelled`, if it still waits
//!     // ... work: between two steps it may ask a clone of the token ...
//! #   drop(guard);
//! #   Ok(())
//! });
//! # call.await.unwrap() }
//! ```
//!
//! # A guard across an `await`
//!
//! If the work itself is async, the guard has to be an [owned](crate::ReentrantMutex::lock_owned)
//! one. Four things are then needed, which `guarded` of the example has:
//!
//! 1. Acquire in a `spawn_blocking`, with `try_lock_owned_for`.
//! 2. [Limit those that wait](#how-many-may-wait) to fewer than the pool has threads, in all of the
//!    program, or the second deadlock above is back.
//! 3. Give the guard up in a `spawn_blocking`: `unlock` is a round trip, and a few [I/O
//!    timeouts](crate::Builder::io_timeout) if the server hangs.
//! 4. The future may be dropped at each `await`, and the guard with it, on a worker. Keep it in a
//!    type whose `drop` moves it into a `spawn_blocking`.
//!
//! A guard needs no runtime: it can be used and dropped on any thread, also when the runtime has
//! ended. Until then its lease is renewed. Owned guards never re-enter, so a task that takes the
//! same lock twice waits for itself.
//!
//! # Hearing of a loss
//!
//! Give [`on_lost`](crate::ReentrantMutexGuard::on_lost) a sender of the runtime. Callbacks run on
//! a thread of the client, outside of the runtime, and must not block it: `send` of a `watch` or a
//! `oneshot` channel does not, nor does `try_send` of an `mpsc` channel.
//!
//! ```no_run
//! # async fn example(guard: leasehold::OwnedMutexGuard) {
//! # async fn work() {}
//! let (lost, mut ended) = tokio::sync::watch::channel(false);
//! guard.on_lost(move |_| _ = lost.send(true));
//! tokio::select! {
//!     () = work() => {}
//!     _ = ended.wait_for(|lost| *lost) => {} // the work is dropped at its `await`
//! }
//! # }
//! ```
//!
//! A callback can be late. What must not be done twice needs [`ensure_held`] between its steps, or
//! a [fencing token](crate::guide::fencing) at the resource.
//!
//! # A clean stop
//!
//! A runtime that is dropped, at the end of `#[tokio::main]` too, waits for its blocking threads,
//! so for every lock call that waits. End these first, then let the handlers finish, then close the
//! client:
//!
//! ```ignore
//! let waiting = client.clone();
//! axum::serve(listener, routes)
//!     .with_graceful_shutdown(async move {
//!         _ = tokio::signal::ctrl_c().await;
//!         waiting.stop_waiting(); // calls that wait return `Closed`; what is held stays held
//!     })
//!     .await?; // until the handlers have ended
//! spawn_blocking(move || client.close(Duration::from_secs(5))).await??;
//! ```
//!
//! See [`shutdown`](crate::guide::shutdown) for time limits.
//!
//! [`ensure_held`]: crate::ReentrantMutexGuard::ensure_held
