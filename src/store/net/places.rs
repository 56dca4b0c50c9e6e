//! The places of a pool's connections, and who waits for one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::batch::{QueuedRequest, RequestState};
use super::pace::Pace;
use super::pooled::PooledConnector;
use crate::base::error::Error;
use crate::os::MutexGuard;

/// Invariants: while the queue is not empty, no connection is free, and some thread has one or is
/// making one, and will return it.
pub(super) struct PoolState<C: PooledConnector> {
    pub(super) free: Vec<C::Connection>,
    /// The number of connections that exist or are being made, free ones included; at most `most`.
    pub(super) open: usize,
    /// One of them is being made.
    pub(super) connecting: bool,
    pub(super) queue: VecDeque<Arc<QueuedRequest<C>>>,
    pub(super) pace: Pace,
    pub(super) closed: bool,
}

/// Who makes a connection for which a place in `open` is reserved.
pub(super) enum Maker {
    /// A caller that has none to wait for.
    Caller,
    /// A thread of its own: the queue can be sent over another connection meanwhile.
    Aside,
}

impl<C: PooledConnector> PoolState<C> {
    pub(super) fn new(io_timeout: Duration) -> Self {
        let free = Vec::new();
        let queue = VecDeque::new();
        let pace = Pace::new(io_timeout);
        Self { free, open: 0, connecting: false, queue, pace, closed: false }
    }

    /// Reserves a place in `open` if a connection may be made now.
    pub(super) fn reserve(&mut self, most: usize) -> Option<Maker> {
        let first = self.open == 0;
        if self.closed
            || self.connecting
            || self.open >= most
            || !first && !self.pace.pause().is_zero()
        {
            return None;
        }
        self.open += 1;
        self.connecting = true;
        Some(if first { Maker::Caller } else { Maker::Aside })
    }

    pub(super) fn return_place(&mut self) {
        self.open -= 1;
        self.connecting = false;
    }
}

/// All queued callers fail at once with the same error.
pub(super) fn fail_queue<C: PooledConnector>(
    mut state: MutexGuard<'_, PoolState<C>>,
    error: &Error,
) {
    let stranded = std::mem::take(&mut state.queue);
    drop(state);
    for queued in stranded {
        queued.set(RequestState::Done(Err(C::not_sent(error.clone()))));
    }
}
