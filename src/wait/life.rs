//! Whether a client is open, has stopped waiting, is being closed or is closed; and its calls under
//! way.

use std::sync::Arc;
use std::time::Instant;

use crate::base::error::{Error, ErrorKind, Result};
use crate::os::{
    self, Condvar, Mutex,
    atomic::{AtomicBool, Ordering},
};
use crate::signal::cancel::CancelToken;

#[derive(Default)]
pub(crate) struct Life {
    closed: AtomicBool,
    /// See [`has_stopped`](Self::has_stopped).
    stops: CancelToken,
    closing: Mutex<Closing>,
    closing_changed: Condvar,
    /// Acquires and releases under way: a close waits until they have nothing left to undo.
    calls: Mutex<usize>,
    calls_changed: Condvar,
}

/// How far a close has got.
#[derive(Default)]
enum Closing {
    #[default]
    Open,
    UnderWay,
    /// `None`: by a panic.
    Done(Option<Result<()>>),
}

impl Life {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether its calls have stopped waiting and take nothing new: it was closed, or asked to stop
    /// waiting. In the latter case what it holds stays held.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stops.is_cancelled() || self.is_closed()
    }

    /// # Errors
    /// `Closed`, with a message that says which of the two.
    pub(crate) fn ensure_waits(&self) -> Result<()> {
        self.ensure_open()?;
        if !self.stops.is_cancelled() {
            return Ok(());
        }
        let why = "the client has stopped waiting: it takes no new lock, and keeps what it holds";
        Err(Error::new(ErrorKind::Closed, why))
    }

    pub(crate) fn stop_waiting(&self) {
        self.stops.cancel();
    }

    /// Cancelled when the client stops waiting or is closed.
    pub(crate) fn stops(&self) -> &CancelToken {
        &self.stops
    }

    /// Whether a close has come to its end, whatever its outcome: not if it panicked.
    pub(crate) fn was_closed(&self) -> bool {
        matches!(*self.closing.lock(), Closing::Done(Some(_)))
    }

    /// The last handle of the client is gone.
    pub(crate) fn end(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Closes it by calling `close`, once: later callers wait for the outcome of the first.
    ///
    /// # Errors
    /// Those of `close`; `Unreachable` if it is still running at the deadline.
    pub(crate) fn close(
        &self,
        deadline: Instant,
        close: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut closing = self.closing.lock();
        loop {
            match &*closing {
                Closing::Open => break,
                Closing::Done(Some(outcome)) => return outcome.clone(),
                Closing::Done(None) => {
                    let why = "the thread that closed the client panicked";
                    return Err(Error::new(ErrorKind::Unreachable, why));
                }
                Closing::UnderWay if os::now() >= deadline => {
                    let why = "another thread is still closing the client: wait for it, or close with more time";
                    return Err(Error::new(ErrorKind::Unreachable, why));
                }
                Closing::UnderWay => {
                    self.closing_changed.wait_until(&mut closing, deadline);
                }
            }
        }
        *closing = Closing::UnderWay;
        drop(closing);
        self.end();
        self.stops.cancel();
        let mut done = CloseEnds { life: self, outcome: None };
        let outcome = close();
        done.outcome = Some(outcome.clone());
        outcome
    }

    /// # Errors
    /// `Closed`.
    pub(crate) fn ensure_open(&self) -> Result<()> {
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// Counts a call, until the returned value is dropped: a close waits for it. A call that a
    /// close refuses is counted before it checks for a close, so that one of the two sees the
    /// other.
    pub(crate) fn count_call(self: &Arc<Self>) -> Call {
        *self.calls.lock() += 1;
        Call(self.clone())
    }

    fn end_call(&self) {
        *self.calls.lock() -= 1;
        self.calls_changed.notify_all();
    }

    /// Waits for the acquires and releases under way. False: some were still running at the
    /// deadline.
    pub(crate) fn calls_are_over(&self, deadline: Instant) -> bool {
        let mut calls = self.calls.lock();
        while *calls > 0 {
            if self.calls_changed.wait_until(&mut calls, deadline).timed_out() {
                return *calls == 0;
            }
        }
        true
    }
}

#[cold]
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}

/// Reports the outcome of a close to those that wait for it, even after a panic: they would wait
/// for their whole timeout otherwise, and so would every later close.
struct CloseEnds<'l> {
    life: &'l Life,
    outcome: Option<Result<()>>,
}

impl Drop for CloseEnds<'_> {
    fn drop(&mut self) {
        *self.life.closing.lock() = Closing::Done(self.outcome.take());
        self.life.closing_changed.notify_all();
    }
}

/// A call under way.
pub(crate) struct Call(Arc<Life>);

impl Call {
    /// The call does not count until the returned value is dropped: it has nothing to undo, and
    /// runs code of the user. Before it sends anything, it checks whether it still waits.
    pub(crate) fn pause(&self) -> PausedCall<'_> {
        self.0.end_call();
        PausedCall(&self.0)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.end_call();
    }
}

/// See [`Call::pause`].
pub(crate) struct PausedCall<'l>(&'l Life);

impl Drop for PausedCall<'_> {
    fn drop(&mut self) {
        *self.0.calls.lock() += 1;
    }
}
