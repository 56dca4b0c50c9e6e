use std::sync::atomic::AtomicU32;

use super::*;

#[derive(Default)]
struct Counted(AtomicU32);

impl Interrupt for Counted {
    fn interrupt(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counted {
    fn times(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_parent_cancels_its_children_and_not_the_other_way() {
    let root = CancelToken::new();
    let one = root.child();
    let other = root.child();
    let grandchild = one.child();
    let waits = Arc::new(Counted::default());
    let wait = Arc::new(Counted::default());
    let _entered = (grandchild.wakes(waits.clone()), root.wakes(wait.clone()));
    let clone = one.clone();
    clone.cancel();
    assert!(one.is_cancelled() && clone.is_cancelled() && grandchild.is_cancelled());
    assert!(!root.is_cancelled() && !other.is_cancelled());
    assert_eq!((waits.times(), wait.times()), (1, 0));
    root.cancel();
    assert!(root.is_cancelled() && other.is_cancelled() && root.child().is_cancelled());
    assert_eq!(wait.times(), 1);
    assert!(one.child().is_cancelled(), "of a cancelled token");
}

#[test]
fn a_wait_that_begins_after_the_cancel_is_interrupted() {
    let token = CancelToken::new();
    token.cancel();
    let wait = Arc::new(Counted::default());
    drop(token.wakes(wait.clone()));
    assert_eq!(wait.times(), 1);
    token.cancel();
    assert_eq!(wait.times(), 1, "it has ended");
}

#[test]
fn a_pause_ends_with_its_time_or_with_the_cancel() {
    let program = CancelToken::new();
    assert!(
        !program.wait_timeout(Duration::ZERO) && !program.wait_timeout(Duration::from_millis(2))
    );
    assert!(program.0.below.lock().waits.is_empty(), "it leaves nothing");
    let job = program.child();
    std::thread::scope(|s| {
        let pause = s.spawn(|| job.wait_timeout(Duration::MAX));
        while job.0.below.lock().waits.is_empty() {
            std::thread::yield_now();
        }
        program.cancel();
        assert!(pause.join().unwrap());
    });
    assert!(job.wait_timeout(Duration::MAX), "at once");
}

#[test]
fn a_million_waits_and_children_leave_nothing() {
    let token = CancelToken::new();
    let wait: Arc<dyn Interrupt> = Arc::new(Counted::default());
    for _ in 0..1_000_000 {
        drop(token.wakes(wait.clone()));
    }
    for _ in 0..1_000 {
        drop(token.child());
    }
    let below = token.0.below.lock();
    assert!(below.waits.is_empty() && below.children.is_empty());
    assert_eq!(Arc::strong_count(&wait), 1);
}

/// A loop that replaces its token by a child makes a chain too long for recursive drops.
#[test]
fn a_long_line_of_tokens_is_cancelled_and_dropped() {
    let root = CancelToken::new();
    let last = (0..200_000).fold(root.clone(), |token, _| token.child());
    root.cancel();
    assert!(last.is_cancelled());
    drop(last);
    assert!(root.0.below.lock().children.is_empty());
}
