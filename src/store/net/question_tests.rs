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
