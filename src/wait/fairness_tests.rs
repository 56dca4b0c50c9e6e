use super::*;

fn run(turns: u32, lasted: Duration) -> RunLength {
    RunLength { turns, lasted }
}

fn received(received: u64, own: u64) -> Messages {
    Messages { received, own }
}

const SHORT: Duration = Duration::from_micros(100);

#[test]
fn alone_a_run_ends_only_by_its_length() {
    let mut fairness = Fairness::default();
    for _ in 0..3 {
        assert!(
            fairness.goes_on(run(10_000, LONGEST_RUN - SHORT))
                && !fairness.goes_on(run(2, LONGEST_RUN))
        );
        fairness.released(run(10, FIRST_SPAN), 0, received(0, 0), true);
        assert!(!fairness.owes_gap() && !fairness.is_over(run(1, LAST_SPAN)));
    }
}

#[test]
fn beside_others_a_span_of_possession_is_followed_by_a_gap() {
    let mut fairness = Fairness::default();
    fairness.released(run(1, SHORT), 3, received(6, 1), true);
    // It began a moment from now, and later on a span ago.
    fairness.since = Instant::now().checked_add(MEMORY);
    assert!(!fairness.owes_gap() && fairness.goes_on(run(20, SHORT)));
    fairness.since = Instant::now().checked_sub(FIRST_SPAN);
    assert!(fairness.owes_gap() && !fairness.goes_on(run(1, SHORT)));
    fairness.released(run(1, FIRST_SPAN), 3, received(8, 1), true);
    assert!(fairness.owes_gap());
    assert_eq!(fairness.next_message(), 10);
    fairness.left_gap(true, 10);
    assert!(!fairness.owes_gap());
    assert_eq!(fairness.courtesy(|| 10), Some(2 * COURTESY));
    assert_eq!(fairness.courtesy(|| 11), Some(COURTESY));
    assert_eq!(fairness.courtesy(|| 12), None, "as many have had it as there are others");
}

/// The listeners may have left: then no message ever comes.
#[test]
fn courtesy_is_shown_once_for_each_message() {
    let mut fairness = Fairness::default();
    fairness.released(run(1, FIRST_SPAN), 3, received(8, 1), true);
    fairness.left_gap(true, 10);
    assert_eq!(fairness.courtesy(|| 10), Some(2 * COURTESY));
    fairness.showed_courtesy(10);
    assert_eq!(fairness.courtesy(|| 10), None, "nobody came");
    assert_eq!(fairness.courtesy(|| 11), Some(COURTESY), "one did, and another may");
    fairness.left_gap(true, 10);
    assert_eq!(fairness.courtesy(|| 10), Some(2 * COURTESY), "after the next gap");
}

/// Another client takes the lock late in the gap, and keeps it for longer than the rest of the gap.
#[test]
fn the_order_counts_after_a_gap_that_was_taken_late() {
    let mut fairness = Fairness::default();
    fairness.released(run(1, FIRST_SPAN), 3, received(8, 1), true);
    fairness.left_gap(false, 9);
    assert_eq!(fairness.courtesy(|| 9), None, "it asks at once, and the lock is taken");
    assert_eq!(fairness.courtesy(|| 10), Some(2 * COURTESY), "two others have waited for longer");
    fairness.released(run(1, SHORT), 3, received(10, 1), true);
    assert_eq!(fairness.courtesy(|| 11), None, "it has had its turn");
}

/// Two threads of the client release one after the other, and the second comes here first.
#[test]
fn a_release_that_is_told_late_does_not_make_earlier_messages_new() {
    let mut fairness = Fairness::default();
    fairness.released(run(1, SHORT), 3, received(8, 1), true);
    fairness.released(run(1, SHORT), 3, received(7, 1), true);
    assert_eq!(fairness.next_message(), 10);
}

#[test]
fn a_run_after_a_gap_has_its_full_length() {
    let mut fairness = Fairness::default();
    fairness.released(run(9, FIRST_SPAN), 3, received(6, 1), true);
    assert!(fairness.owes_gap());
    fairness.left_gap(true, 8);
    assert!(fairness.goes_on(run(100, FIRST_SPAN - SHORT)), "the run before does not count");
    fairness.released(run(9, SHORT), 3, received(7, 1), true);
    assert!(!fairness.owes_gap());
}

#[test]
fn a_gap_that_nobody_uses_makes_the_next_span_longer() {
    let mut fairness = Fairness::default();
    fairness.released(run(9, SHORT), 3, received(6, 1), true);
    for (count, span) in (7..).zip([8, 16, 32, 32].map(Duration::from_millis)) {
        fairness.since = None;
        assert!(fairness.is_over(run(9, span)) && !fairness.is_over(run(9, span - SHORT)));
        fairness.left_gap(false, count);
        assert_eq!(fairness.courtesy(|| count), None, "nobody wanted it");
        assert!(fairness.counts_messages(run(1, SHORT)));
        fairness.released(run(9, SHORT), 3, received(count, 1), true);
        assert!(!fairness.counts_messages(run(1, SHORT)));
    }
    fairness.left_gap(true, 8);
    assert!(fairness.is_over(run(9, FIRST_SPAN)));
}

/// It has the lock for about as long as the gap lasts, gives it up just after that, and its message
/// comes when this client has the lock again.
#[test]
fn a_gap_whose_message_comes_late_was_used() {
    let mut fairness = Fairness::default();
    fairness.released(run(9, FIRST_SPAN), 3, received(6, 1), true);
    fairness.left_gap(false, 7);
    fairness.released(run(9, SHORT), 3, received(8, 1), true);
    fairness.since = None;
    assert!(fairness.is_over(run(9, FIRST_SPAN)), "one message of its own, and one of another");
}

#[test]
fn a_lock_that_was_left_alone_was_a_gap() {
    let mut fairness = Fairness::default();
    fairness.released(run(1, FIRST_SPAN), 3, received(6, 1), true);
    assert!(fairness.owes_gap());
    fairness.released = Instant::now().checked_sub(2 * BREAK);
    assert!(!fairness.owes_gap(), "a client that comes now and then never waits for others");
    fairness.released(run(1, SHORT), 3, received(7, 1), true);
    assert!(!fairness.owes_gap());
}

#[test]
fn one_who_cannot_listen_is_known_by_its_hold() {
    let mut fairness = Fairness::default();
    fairness.released(run(1, SHORT), 0, received(0, 0), true);
    assert!(!fairness.is_over(run(9, FIRST_SPAN)));
    fairness.note_busy();
    fairness.released(run(9, FIRST_SPAN), 0, received(0, 0), true);
    assert!(fairness.owes_gap(), "a release that finds nobody proves nothing");
}

#[test]
fn a_lock_that_was_never_free_for_long_is_left_free() {
    let mut fairness = Fairness::default();
    let last = Duration::from_millis(50);
    assert!(
        fairness.begin_hand_over(run(2, LONGEST_UNBROKEN - last)) && !fairness.owes_blind_gap()
    );
    std::thread::sleep(last);
    assert!(
        !fairness.begin_hand_over(run(2, SHORT)) && fairness.owes_blind_gap(),
        "the run before counts as well"
    );
    fairness.note_left_free();
    assert!(fairness.owes_blind_gap());
    fairness.left_blind_gap();
    assert!(fairness.begin_hand_over(run(2, SHORT)) && !fairness.owes_blind_gap());
    fairness.note_left_free();
    assert!(fairness.begin_hand_over(run(2, LONGEST_UNBROKEN - SHORT)), "it was free in between");
}

/// The server's clock in microseconds must stay ahead of all tokens.
#[test]
fn tokens_are_drawn_no_faster_than_time_passes() {
    let mut fairness = Fairness::default();
    assert_eq!(fairness.tokens(false), 1);
    let mut drawn = 0_u64;
    let mut micros = 0_u64;
    for micros_of_a_turn in [1, 2, 5, 50, 3, 1, 1, 1, 200, 1] {
        for _ in 0..50 {
            let turns = fairness.tokens(false);
            drawn += u64::from(turns);
            let lasted = 60 + u64::from(turns) * micros_of_a_turn;
            micros += lasted;
            fairness.released(run(turns, Duration::from_micros(lasted)), 0, received(0, 0), true);
        }
    }
    assert!(drawn < micros * 3 / 4, "{drawn} in {micros} µs");
    assert!(fairness.tokens(false) > 50, "and enough for a run: {}", fairness.tokens(false));
    let before = fairness.tokens(false);
    fairness.released(run(1, FIRST_SPAN), 0, received(0, 0), true);
    assert_eq!(fairness.tokens(false), before / 8 * 7, "a run that ended early says little");
    let before = fairness.tokens(false);
    fairness.released(run(1000, FIRST_SPAN), 0, received(0, 0), false);
    assert_eq!(fairness.tokens(false), before / 2, "nobody waits");
    for _ in 0..10 {
        fairness.released(run(1000, FIRST_SPAN), 0, received(0, 0), false);
    }
    assert_eq!(fairness.tokens(false), 1);
}

/// Its critical section is longer than a gap: the gap ends without a message, and then the lock is
/// taken.
#[test]
fn one_who_has_the_lock_for_long_has_taken_the_gap() {
    let mut fairness = Fairness::default();
    fairness.released(run(1, FIRST_SPAN), 1, received(0, 0), true);
    fairness.left_gap(false, 7);
    fairness.note_busy();
    fairness.released(run(1, FIRST_SPAN), 1, received(0, 1), true);
    assert!(fairness.owes_gap(), "the next span is no longer than the first");
}
