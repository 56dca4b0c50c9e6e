//! How a pool gets its connections, and gives up those that have ended.

use std::sync::Arc;

use super::batch::{QueuedRequest, RequestState};
use super::failure::Failure;
use super::places::{Maker, PoolState, fail_queue};
use super::pool::{Borrowed, Pool, closed, in_drop};
use super::pooled::{FailureOf, PooledConnector};
use crate::base::error::{Error, ErrorKind, Result};
use crate::os::{self, MutexGuard};

impl<C: PooledConnector> Pool<C> {
    pub(super) fn connect_after_pause(&self) -> Result<C::Connection> {
        let pause = self.state.lock().pace.pause();
        if !pause.is_zero() {
            os::thread::sleep(pause);
        }
        if self.state.lock().closed {
            return Err(closed());
        }
        let connected = self.connector.connect();
        let pace = &mut self.state.lock().pace;
        match &connected {
            Ok(_) => pace.succeeded(),
            Err(error) => pace.failed(error.clone()),
        }
        connected
    }

    /// Makes the connection for a reserved place, for the caller of `own` if there is one. After a
    /// failure the place is returned, and `own` has an outcome or is in the queue again.
    pub(super) fn make(&self, own: Option<&Arc<QueuedRequest<C>>>) -> Option<Borrowed<'_, C>> {
        let mut place = Place { pool: Some(self), own };
        let connected = self.connect_after_pause();
        place.pool = None;
        match connected {
            Ok(connection) => {
                let mut state = self.state.lock();
                state.connecting = false;
                let line = state.add(&connection);
                drop(state);
                Some(Borrowed::new(self, line, connection))
            }
            Err(error) => {
                self.without_place(error, own.cloned());
                None
            }
        }
    }

    /// Makes the connection for a reserved place on a thread of its own, which sends the queue.
    pub(super) fn grow(&self) {
        let own = self.own.clone();
        let grown = os::thread::Builder::new().name("lh-connect".into()).spawn(move || {
            let Some(pool) = own.upgrade() else { return };
            // Many may have begun to queue at once, and one connection does not serve all of them.
            while let Some(made) = pool.make(None) {
                drop(made);
                let mut state = pool.state.lock();
                if state.queue.is_empty()
                    || state.reserve(pool.most, pool.callers.share()).is_none()
                {
                    break;
                }
            }
        });
        if let Err(e) = grown {
            self.pass_place_on(
                Error::new(ErrorKind::Unreachable, "no thread can be started to connect")
                    .caused_by(e),
            );
        }
    }

    /// The connection of a reserved place cannot be made. The queue waits for the others; if there
    /// are none, all queued callers fail at once with the same error.
    fn without_place(&self, error: Error, own: Option<Arc<QueuedRequest<C>>>) {
        if let Some(own) = &own {
            own.set(RequestState::Queued);
        }
        let mut state = self.state.lock();
        state.connecting = false;
        if let Some(own) = own {
            state.queue.push_front(own);
        }
        if state.open() == 0 {
            let error = if state.closed { closed() } else { error };
            return fail_queue(state, &error);
        }
        // Another thread has put one into the pool during the connect, when `own` was not in the
        // queue, and nobody else would send it.
        self.serve_by_idle(state);
    }

    /// The connect of a reserved place did not take place, or panicked: somebody else makes it.
    fn pass_place_on(&self, error: Error) {
        let mut state = self.state.lock();
        state.pace.failed(error);
        state.connecting = false;
        self.serve_queue(state);
    }

    /// Gives up the place of a connection that has ended. What was sent over it and has no outcome
    /// gets the failure; without one, a thread has panicked.
    pub(super) fn lose_line(&self, line: u64, failure: Option<&FailureOf<C>>) {
        let mut state = self.state.lock();
        let lost = state.remove(line);
        self.serve_queue(state);
        for mut batch in lost.into_iter().flat_map(|line| line.flights) {
            if let Some(failure) = failure {
                batch.fail_behind(failure);
            }
        }
    }

    /// Sends the queue over an idle connection, if there is one.
    pub(super) fn serve_by_idle(&self, mut state: MutexGuard<'_, PoolState<C>>) {
        if !state.queue.is_empty()
            && let Some((line, connection)) = state.take_idle(self.callers.share())
        {
            drop(state);
            self.give_back(line, connection);
        }
    }

    /// A place was returned, so the queue may need a connection. In a closed pool none is
    /// made, and without one all queued callers fail.
    pub(super) fn serve_queue(&self, mut state: MutexGuard<'_, PoolState<C>>) {
        if state.closed && state.open() == 0 {
            return fail_queue(state, &closed());
        }
        if state.queue.is_empty() {
            return;
        }
        match state.reserve(self.most, self.callers.share()) {
            Some(Maker::Caller) => {
                let next = state.queue.pop_front().expect("the queue is not empty");
                drop(state);
                next.set(RequestState::Lead);
            }
            Some(Maker::Aside) => {
                drop(state);
                self.grow();
            }
            // The other connections serve it, or the one that is being made.
            None => self.serve_by_idle(state),
        }
    }

    /// Closes all idle connections. After one has ended the others have probably ended too (a
    /// restart of the server ends all), and each would fail one more caller.
    pub(super) fn drop_idle(&self) {
        self.callers.forget_distance();
        let idle = self.state.lock().remove_idle();
        drop(idle);
    }
}

/// A reserved place, until it is known whether it has a connection. Dropped before that
/// if the connect panics.
struct Place<'p, C: PooledConnector> {
    pool: Option<&'p Pool<C>>,
    own: Option<&'p Arc<QueuedRequest<C>>>,
}

impl<C: PooledConnector> Drop for Place<'_, C> {
    fn drop(&mut self) {
        let Some(pool) = self.pool else { return };
        let error = Error::new(ErrorKind::Unreachable, "the thread that connected panicked");
        if let Some(own) = self.own {
            own.set(RequestState::Done(Err(Failure::NotSent(error.clone()))));
        }
        in_drop(|| pool.pass_place_on(error));
    }
}
