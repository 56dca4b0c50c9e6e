use super::*;

const fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// How many of `runs` runs poll, if a call takes this long asleep and polling.
fn polling_runs(trials: &mut Trials, runs: u32, asleep: Duration, looking: Duration) -> u32 {
    let mut looked = 0;
    for _ in 0..runs {
        looked += u32::from(trials.polls);
        let took = if trials.polls { looking } else { asleep };
        while trials.add(took).is_none() {}
    }
    looked
}

#[test]
fn the_quicker_way_is_found_and_the_other_tried_ever_more_rarely() {
    let trials = &mut Trials::default();
    assert_eq!(polling_runs(trials, 2, micros(50), micros(20)), 1);
    assert!(polling_runs(trials, 2000, micros(50), micros(20)) > 1980);
    // Now client and server share a core.
    let looked = polling_runs(trials, 2000, micros(16), micros(24));
    assert!((3..600).contains(&looked), "{looked}");
    assert!((2..20).contains(&polling_runs(trials, 3000, micros(16), micros(24))));
    // And now they do not.
    assert!(polling_runs(trials, 2000, micros(50), micros(20)) > 1000);
}

#[test]
fn no_difference_is_no_reason_to_look() {
    assert!(polling_runs(&mut Trials::default(), 2000, micros(250), micros(250)) < 12);
}

#[test]
fn one_run_that_was_disturbed_changes_nothing() {
    let trials = &mut Trials::default();
    polling_runs(trials, 20, micros(50), micros(20));
    for _ in 0..5 {
        polling_runs(trials, 1, micros(50), micros(500));
        assert!(polling_runs(trials, 10, micros(50), micros(20)) >= 9);
    }
}

/// How often a call that never gets its reply polls for it.
fn looks(callers: &Callers) -> u32 {
    let mut looks = 0;
    let found: Option<()> = callers.poll(|| {
        looks += 1;
        None
    });
    assert_eq!(found, None);
    looks
}

#[test]
fn only_a_call_that_is_alone_looks_and_only_where_it_is_allowed() {
    let forbidden = Callers { may_poll: false, ..Callers::polling() };
    let _call = forbidden.begin_call();
    assert_eq!(looks(&forbidden), 0);
    let callers = Callers::polling();
    let _own = callers.begin_call();
    let other = callers.begin_call();
    assert_eq!(looks(&callers), 0);
    drop(other);
    assert!(looks(&callers) > 0);
}

#[test]
fn a_call_that_begins_meanwhile_ends_the_polling_runs() {
    let callers = Callers::polling();
    let _own = callers.begin_call();
    let mut other = None;
    let mut looks = 0;
    let found: Option<()> = callers.poll(|| {
        other.get_or_insert_with(|| callers.begin_call());
        looks += 1;
        None
    });
    assert_eq!((found, looks), (None, 1));
}

#[test]
fn misses_in_a_row_end_the_polling_runs() {
    let callers = Callers::polling();
    let _call = callers.begin_call();
    // One miss among many hits changes nothing.
    for _ in 0..20 {
        assert!(looks(&callers) > 0);
        for _ in 0..4 {
            assert_eq!(callers.poll(|| Some(1)), Some(1));
        }
    }
    for _ in 0..MOST_MISSES {
        assert!(looks(&callers) > 0);
    }
    assert_eq!(looks(&callers), 0);
    let mut tried = 0;
    for _ in 0..100 * RUN {
        callers.measured(micros(200));
        tried += u32::from(looks(&callers) > 0);
    }
    assert!((1..5 * MOST_MISSES).contains(&tried), "{tried}");
}

fn measure(callers: &Callers, micros: u64, times: u32) {
    for _ in 0..times {
        callers.measured(Duration::from_micros(micros));
    }
}

fn is_near(callers: &Callers) -> bool {
    callers.share() != ALL
}

#[test]
fn a_server_is_near_when_an_answer_has_come_soon_and_until_many_come_late() {
    let callers = Callers::new(false);
    assert!(!is_near(&callers));
    measure(&callers, 900, 10);
    assert!(!is_near(&callers));
    measure(&callers, 30, 1);
    measure(&callers, 900, 5);
    assert!(is_near(&callers), "one late answer among others says nothing");
    measure(&callers, 900, 10);
    assert!(!is_near(&callers));
    measure(&callers, 30, 1);
    callers.forget_distance();
    assert!(!is_near(&callers));
}

#[test]
fn callers_share_one_connection_to_a_near_server_if_they_are_some() {
    let share = |count: usize, micros: u32| {
        let callers = Callers::new(false);
        callers.count.store(count, Ordering::Relaxed);
        callers.micros.store(micros, Ordering::Relaxed);
        callers.share()
    };
    let near = [0, 1, 4, 5, 31, 32, 200].map(|count| share(count, NEAR));
    assert_eq!(near, [FEW, FEW, FEW, 1, 1, ALL, ALL]);
    assert_eq!([1, 10, 100].map(|count| share(count, NEAR + 1)), [ALL; 3]);
}
