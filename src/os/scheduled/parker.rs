//! Where one thread sleeps until it is woken.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// It can be woken once, and never sleeps after that.
#[derive(Debug, Default)]
pub(super) struct Parker(Mutex<ParkerState>);

#[derive(Debug, Default)]
struct ParkerState {
    is_woken: bool,
    waker: Option<Waker>,
}

impl Parker {
    /// Never held over a step of the scheduler.
    fn state(&self) -> MutexGuard<'_, ParkerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        let waker = {
            let mut state = self.state();
            state.is_woken = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn park(&self) {
        shuttle::future::block_on(poll_fn(|context| {
            let mut state = self.state();
            if state.is_woken {
                return Poll::Ready(());
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        }));
    }
}
