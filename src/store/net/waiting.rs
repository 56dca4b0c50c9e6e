//! How a caller waits for the outcome of a request that it has queued.

use std::sync::Arc;
use std::time::Duration;

use super::batch::{Batch, QueuedRequest, RequestState, take_batch};
use super::failure::Failure;
use super::places::LATE;
use super::pool::Pool;
use super::pooled::{Outcome, PooledConnector};
use crate::base::error::{Error, ErrorKind};
use crate::os;

/// After a SIGSTOP and a SIGCONT, callers that wait for a connection find that their deadline has
/// passed, while the thread with the connection is about to read its answer and return it. They
/// wait this much longer.
const AFTER_A_STOP: Duration = Duration::from_millis(10);

impl<C: PooledConnector> Pool<C> {
    /// Blocks until a queued request has an outcome, and reads the answers of others if it comes to
    /// that.
    pub(super) fn await_outcome(&self, queued: &Arc<QueuedRequest<C>>) -> Outcome<C> {
        let began = os::now();
        let give_up = began + self.connector.io_timeout();
        let mut until = give_up.min(began + LATE);
        let mut last_chance = Some(AFTER_A_STOP);
        let mut state = queued.state.lock();
        loop {
            match std::mem::replace(&mut *state, RequestState::Taken) {
                RequestState::Done(outcome) => return outcome,
                RequestState::Lead => {
                    drop(state);
                    self.lead(queued);
                    state = queued.state.lock();
                    continue;
                }
                RequestState::Read(reading) => {
                    drop(state);
                    self.read(queued, reading);
                    state = queued.state.lock();
                    continue;
                }
                waiting => *state = waiting,
            }
            if !matches!(*state, RequestState::Queued) {
                // The threads that send and read are bounded by their own I/O timeouts.
                queued.changed.wait(&mut state);
                continue;
            }
            if !queued.changed.wait_until(&mut state, until).timed_out()
                || !matches!(*state, RequestState::Queued)
            {
                continue;
            }
            if os::now() < give_up {
                // The connection that it waits for may have fallen silent: another one is found.
                drop(state);
                self.serve_queue(self.state.lock());
                until = give_up;
                state = queued.state.lock();
                continue;
            }
            if let Some(more) = last_chance.take() {
                until = os::now() + more;
                continue;
            }
            drop(state);
            if self.leave_queue(queued) {
                return Err(Failure::NotSent(self.none_came()));
            }
            // Another thread has just taken the request from the queue and will set its state in a
            // moment.
            state = queued.state.lock();
            if matches!(*state, RequestState::Queued) {
                queued.changed.wait_for(&mut state, Duration::from_millis(1));
            }
        }
    }

    pub(super) fn leave_queue(&self, queued: &Arc<QueuedRequest<C>>) -> bool {
        let mut state = self.state.lock();
        let place = state.queue.iter().position(|other| Arc::ptr_eq(other, queued));
        place.map(|at| state.queue.remove(at)).is_some()
    }

    /// Makes a connection where there is none, and sends its own request and the queue behind it.
    fn lead(&self, own: &Arc<QueuedRequest<C>>) {
        let Some(connection) = self.make(Some(own)) else { return };
        let requests = take_batch(own.clone(), &mut self.state.lock().queue);
        if let Some(reading) = self.send(connection, Batch::new(requests)) {
            self.read(own, reading);
        }
    }

    /// Why a caller has waited for a connection in vain.
    #[cold]
    fn none_came(&self) -> Error {
        let address = self.connector.address();
        match self.reached() {
            (false, trouble) => {
                let error =
                    format!("no connection to {address} could be made within the I/O timeout");
                let error = Error::new(ErrorKind::Unreachable, error);
                trouble.into_iter().fold(error, Error::caused_by)
            }
            (true, _) => self.in_vain(format!(
                "all {} connections to {address} were busy for the I/O timeout",
                self.most
            )),
        }
    }

    #[cold]
    pub(super) fn in_vain(&self, why: String) -> Error {
        match self.connector.held_up_by() {
            // The server answers, and says what must end.
            Some(reason) => Error::new(ErrorKind::NotReady, format!("{why}: {reason}")),
            None => Error::new(ErrorKind::Unreachable, why),
        }
    }
}
