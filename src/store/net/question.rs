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
        let _ = os::thread::Builder::new().name(self.thread.to_owned()).spawn(move || {
            let mut asking = asking;
            asking.answer = Some(question());
        });
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
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(40);

    fn soon() -> Instant {
        Instant::now() + SHORT
    }

    fn later() -> Instant {
        Instant::now() + LONG
    }

    /// A question, and how to answer it. Without an answer the thread panics.
    fn hanging() -> (Sender<u32>, impl FnOnce() -> u32 + Send + 'static) {
        let (answer, answers) = channel();
        (answer, move || answers.recv().unwrap())
    }

    fn unasked() -> u32 {
        panic!("one is under way")
    }

    #[test]
    fn while_a_question_hangs_it_has_one_thread_and_nobody_waits_for_longer_than_it_can() {
        let question = Question::new("lh-test", |_| false);
        let (answer, first) = hanging();
        assert_eq!(question.ask(WhichAnswer::Next, soon(), first).came, None);
        let asked = Arc::new(AtomicU32::new(0));
        let ask = |until| {
            let asked = asked.clone();
            question
                .ask(WhichAnswer::Next, until, move || 8 + asked.fetch_add(1, Ordering::SeqCst))
                .came
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                drop(scope.spawn(|| assert_eq!(ask(soon()), None)));
            }
        });
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ask(later()));
            answer.send(7).unwrap();
            assert!(waits.join().unwrap().is_some());
        });
        assert!(ask(later()).is_some_and(|answer| answer >= 8), "the next question is asked again");
    }

    #[test]
    fn an_answer_that_nobody_waited_for_is_kept() {
        let question = Question::new("lh-test", |&answer| answer != 0);
        let (answer, first) = hanging();
        assert!(question.ask(WhichAnswer::Next, soon(), first).came.is_none());
        answer.send(7).unwrap();
        let second = question.ask(WhichAnswer::Anew, later(), || 0);
        assert_eq!(
            (second.came, second.kept),
            (Some(0), Some(7)),
            "and one that is worth nothing is not"
        );
        question.revise(|kept| *kept = None);
        assert_eq!(question.ask(WhichAnswer::Next, later(), || 0).kept, None);
    }

    /// With a kept answer a hanging question costs a quarter of the time, and only once.
    #[test]
    fn with_a_kept_answer_nobody_waits_for_one_that_hangs() {
        let question = Question::new("lh-test", |_| true);
        assert_eq!(question.ask(WhichAnswer::Next, later(), || 7).came, Some(7));
        let (_hangs, second) = hanging();
        let began = Instant::now();
        let late = question.ask(WhichAnswer::Next, Instant::now() + 8 * SHORT, second);
        assert_eq!((late.came, late.kept), (None, Some(7)));
        assert!(began.elapsed() >= 2 * SHORT);
        while began.elapsed() < 4 * SHORT {
            std::thread::yield_now();
        }
        let began = Instant::now();
        for _ in 0..100 {
            assert_eq!(
                question.ask(WhichAnswer::Next, Instant::now() + 8 * SHORT, unasked).kept,
                Some(7)
            );
        }
        assert!(began.elapsed() < 100 * 2 * SHORT, "{:?}", began.elapsed());
        assert_eq!(
            question.ask(WhichAnswer::Anew, soon(), unasked).came,
            None,
            "that one has not begun yet"
        );
    }

    #[test]
    fn an_answer_that_is_wanted_anew_is_to_a_later_question() {
        let question = Question::new("lh-test", |_| false);
        let (answer, first) = hanging();
        assert!(question.ask(WhichAnswer::Next, soon(), first).came.is_none());
        std::thread::scope(|scope| {
            let anew = scope.spawn(|| question.ask(WhichAnswer::Anew, later(), || 8).came);
            answer.send(7).unwrap();
            assert_eq!(anew.join().unwrap(), Some(8));
        });
    }

    #[test]
    fn a_question_that_panics_ends_for_all() {
        let question = Question::new("lh-test", |_| false);
        let (answer, first) = hanging();
        drop(answer);
        assert_eq!(question.ask(WhichAnswer::Next, later(), first).came, None);
        assert_eq!(question.ask(WhichAnswer::Next, later(), || 8).came, Some(8));
    }
}
