//! A channel with the interface of `std::sync::mpsc`, as far as it is used.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::{Condvar, now};
use crate::os::mutex::Mutex;

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = ChannelState { queue: VecDeque::new(), senders: 1, has_receiver: true };
    let shared = Arc::new(ChannelShared { state: Mutex::new(state), changed: Condvar::new() });
    (Sender(shared.clone()), Receiver(shared))
}

#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<ChannelShared<T>>);

#[derive(Debug)]
pub(crate) struct Receiver<T>(Arc<ChannelShared<T>>);

#[derive(Debug)]
pub(crate) enum RecvTimeoutError {
    Timeout,
    Disconnected,
}

#[derive(Debug)]
struct ChannelShared<T> {
    state: Mutex<ChannelState<T>>,
    changed: Condvar,
}

struct ChannelState<T> {
    queue: VecDeque<T>,
    senders: usize,
    has_receiver: bool,
}

impl<T> Sender<T> {
    pub(crate) fn send(&self, value: T) -> Result<(), T> {
        let mut state = self.0.state.lock();
        if !state.has_receiver {
            return Err(value);
        }
        state.queue.push_back(value);
        drop(state);
        self.0.changed.notify_one();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().senders += 1;
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.lock().senders -= 1;
        self.0.changed.notify_one();
    }
}

impl<T> Receiver<T> {
    pub(crate) fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        let deadline = now() + timeout;
        let mut state = self.0.state.lock();
        loop {
            if let Some(value) = state.queue.pop_front() {
                return Ok(value);
            }
            if state.senders == 0 {
                return Err(RecvTimeoutError::Disconnected);
            }
            if self.0.changed.wait_until(&mut state, deadline).timed_out() {
                return state.queue.pop_front().ok_or(RecvTimeoutError::Timeout);
            }
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.state.lock().has_receiver = false;
    }
}
