//! Where a calling thread waits for its replies.

use std::time::Instant;

use crate::base::error::{Error, Result};
use crate::os::{Condvar, Mutex};
use crate::store::zookeeper::wire::Reply;

#[derive(Debug)]
pub(super) struct Slot {
    state: Mutex<SlotState>,
    done: Condvar,
}

#[derive(Debug)]
struct SlotState {
    replies: Vec<Option<Reply>>,
    missing: usize,
    failed: Option<Error>,
}

impl Slot {
    pub(super) fn new(count: usize) -> Self {
        let state = SlotState { replies: vec![None; count], missing: count, failed: None };
        Self { state: Mutex::new(state), done: Condvar::new() }
    }

    pub(super) fn answer(&self, place: usize, reply: Reply) {
        let mut state = self.state.lock();
        if state.replies[place].replace(reply).is_none() {
            state.missing -= 1;
        }
        let is_done = state.missing == 0;
        drop(state);
        if is_done {
            self.done.notify_one();
        }
    }

    /// No more replies will come.
    pub(super) fn fail(&self, error: &Error) {
        self.state.lock().failed.get_or_insert_with(|| error.clone());
        self.done.notify_one();
    }

    /// All replies, or why some are missing. `None`: the deadline has passed.
    pub(super) fn wait(&self, deadline: Instant) -> Option<Result<Vec<Reply>>> {
        let mut state = self.state.lock();
        let mut is_over = false;
        loop {
            if state.missing == 0 {
                return Some(Ok(state.replies.iter_mut().filter_map(Option::take).collect()));
            }
            if let Some(error) = &state.failed {
                return Some(Err(error.clone()));
            }
            if is_over {
                return None;
            }
            is_over = self.done.wait_until(&mut state, deadline).timed_out();
        }
    }
}
