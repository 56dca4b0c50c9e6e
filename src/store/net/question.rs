//! Questions to what may never answer: a name server, the user's provider of credentials. Each is
//! asked on a thread of its own, so that whoever needs the answer waits only as long as it can.
//!
//! A question has one thread at most, however many wait for it and however often they come back:
//! its next thread starts when the answer has come, so threads do not pile up behind one that
//! hangs. A late answer is not lost, because the next one who asks may still use it.
//!
//! The state belongs to a client, and never to the process: a forked child would wait for a thread
//! that only its parent has, or for a mutex that such a thread had locked. A client of the parent
//! asks nothing in the child, and a client that is built there has a state of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::log;
use crate::os::{self, Condvar, Mutex, MutexGuard};

/// One question, which several threads may ask.
pub(crate) struct Question<T> {
    /// The name of its threads.
    thread: &'static str,
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    /// Which answers are kept at once, whoever still waits for them.
    keeps: fn(&T) -> bool,
    state: Mutex<State<T>>,
    answered: Condvar,
}

struct State<T> {
    /// How often it was asked.
    asked: u64,
    /// Since when it is being asked for the last of these times.
    under_way: Option<Instant>,
    /// The answer to the last time that has ended; `None` after a panic, or without a thread.
    last: Option<T>,
    /// For those who cannot wait for the next answer, or cannot use it.
    kept: Option<T>,
}

impl<T> State<T> {
    fn answered(&self) -> u64 {
        self.asked - u64::from(self.under_way.is_some())
    }
}

/// Which answer is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhichAnswer {
    /// The next one, also to a question that is under way. With a kept answer it is waited for only
    /// until a quarter of the time has passed since that question began.
    Next,
    /// One to a question that begins from now on.
    Anew,
}

/// What is known when the wait has ended.
pub(crate) struct Answer<T> {
    /// `None` if it is late, or if asking has panicked or found no thread.
    pub(crate) came: Option<T>,
    pub(crate) kept: Option<T>,
}

impl<T: Clone + Send + 'static> Question<T> {
    pub(crate) fn new(thread: &'static str, keeps: fn(&T) -> bool) -> Self {
        let state = State { asked: 0, under_way: None, last: None, kept: None };
        Self {
            thread,
            shared: Arc::new(Shared { keeps, state: Mutex::new(state), answered: Condvar::new() }),
        }
    }

    /// Asks, unless the wanted answer is under way, and waits for it until `until` at most.
    pub(crate) fn ask(
        &self,
        wanted: WhichAnswer,
        until: Instant,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Answer<T> {
        let patience = until.saturating_duration_since(os::now()) / 4;
        let mut question = Some(question);
        let mut state = self.shared.state.lock();
        let joins = wanted == WhichAnswer::Next && state.under_way.is_some();
        let number = state.asked + u64::from(!joins);
        while state.answered() < number {
            if state.under_way.is_none()
                && let Some(question) = question.take()
            {
                state.asked += 1;
                state.under_way = Some(os::now());
                MutexGuard::unlocked(&mut state, || self.start(question));
                continue;
            }
            let until = self.wait_until(&state, wanted, patience, until);
            let is_late = self.shared.answered.wait_until(&mut state, until).timed_out();
            if is_late && state.answered() < number {
                return Answer { came: None, kept: state.kept.clone() };
            }
        }
        Answer { came: state.last.clone(), kept: state.kept.clone() }
    }

    fn wait_until(
        &self,
        state: &State<T>,
        wanted: WhichAnswer,
        patience: Duration,
        until: Instant,
    ) -> Instant {
        match (wanted, &state.kept, state.under_way) {
            // Counted from the question and not from the caller: while it hangs, only the first of
            // many connects waits at all.
            (WhichAnswer::Next, Some(_), Some(since)) => until.min(since + patience),
            _ => until,
        }
    }

    fn start(&self, question: impl FnOnce() -> T + Send + 'static) {
        // Dropped with the closure if there is no thread.
        let asking = Asking { shared: self.shared.clone(), answer: None };
        let started = os::thread::Builder::new().name(self.thread.to_owned()).spawn(move || {
            let mut asking = asking;
            asking.answer = Some(question());
        });
        if let Err(e) = started {
            log::warn!("no thread for {}: {e}", self.thread);
        }
    }

    /// Changes which answer is kept.
    pub(crate) fn revise(&self, change: impl FnOnce(&mut Option<T>)) {
        change(&mut self.shared.state.lock().kept);
    }
}

/// Its drop ends the question, also after a panic: nobody waits for it for ever.
struct Asking<T: Clone> {
    shared: Arc<Shared<T>>,
    answer: Option<T>,
}

impl<T: Clone> Drop for Asking<T> {
    fn drop(&mut self) {
        let answer = self.answer.take();
        let mut state = self.shared.state.lock();
        state.under_way = None;
        if answer.as_ref().is_some_and(self.shared.keeps) {
            state.kept = answer;
            state.last = state.kept.clone();
        } else {
            state.last = answer;
        }
        drop(state);
        self.shared.answered.notify_all();
    }
}

#[cfg(test)]
#[path = "question_tests.rs"]
mod tests;
