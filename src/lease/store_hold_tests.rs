use super::*;
use crate::base::holder::ClientId;
use crate::base::lock_name::{Kind, LockName};
use crate::lease::records::{Owner, User};
use crate::lease::watchdog::Watchdog;
use crate::lease::watchdog::tests::watchdog;
use crate::signal::clock::{Clock, FakeClock};

pub(crate) const SPAN: Duration = Duration::from_secs(10);
const USER: User = User { owner: Owner::Guard, reentrant: true, max_hold: None };

/// A hold that the store has just granted, with the token 1.
pub(crate) fn granted(
    name: &str,
    kind: Kind,
    clock: &Arc<FakeClock>,
    lease: Duration,
) -> StoreHold {
    granted_by(&watchdog(clock), name, kind, lease)
}

pub(crate) fn granted_by(
    watchdog: &Arc<Watchdog>,
    name: &str,
    kind: Kind,
    lease: Duration,
) -> StoreHold {
    let name = Arc::new(LockName::new("", name, kind).unwrap());
    let holder = ClientId::random(Duration::from_secs(5)).fresh_holder();
    let primitive = kind.into();
    let at = watchdog.now();
    let generation = watchdog.generation();
    let asked = HoldRequest {
        name,
        primitive,
        holder,
        permits: 1,
        lease,
        is_renewed: true,
        at,
        generation,
    };
    watchdog.granted(asked, Granted { token: 1, sent_at: at, session: None, next: None })
}

/// A plain lock with its one user.
pub(crate) fn hold_of(watchdog: &Arc<Watchdog>, name: &str, lease: Duration) -> Arc<StoreHold> {
    let admission = granted_by(watchdog, name, Kind::Mutex, lease).admit_first();
    Tenure::begin(admission, USER).store_hold.clone()
}

/// A plain lock with its one user.
pub(crate) fn tenure(name: &str, clock: &Arc<FakeClock>, lease: Duration) -> Arc<Tenure> {
    Tenure::begin(granted(name, Kind::Mutex, clock, lease).admit_first(), USER)
}

/// The first user of a lock that passes on.
fn first(clock: &Arc<FakeClock>, tokens: u32) -> Arc<Tenure> {
    Tenure::begin(granted("a", Kind::Mutex, clock, SPAN).passing_on(tokens).admit_first(), USER)
}

/// The first of several readers.
fn reader(clock: &Arc<FakeClock>) -> Arc<Tenure> {
    Tenure::begin(granted("a", Kind::Read, clock, SPAN).open_to_readers().admit_first(), USER)
}

fn passes(tenure: &Arc<Tenure>) -> Option<Admission> {
    assert_ne!(tenure.release(tenure.now()), LeaseState::Released);
    tenure.store_hold.admit_next(tenure, (SPAN, TokenRule::On), |_| true)
}

fn next(tenure: &Arc<Tenure>) -> Arc<Tenure> {
    Tenure::begin(passes(tenure).expect("it passes on"), USER)
}

#[test]
fn the_next_user_has_what_is_left_of_the_confirmed_lease_and_a_larger_token() {
    let clock = Arc::new(FakeClock::default());
    let first = first(&clock, 9);
    clock.advance(Duration::from_secs(3));
    let second = next(&first);
    assert_eq!((second.token, second.since), (2, clock.now()));
    assert_eq!(second.remaining(), first.store_hold.remaining());
    second.store_hold.confirmed(clock.now(), SPAN);
    let confirmed = valid_until(clock.now(), SPAN);
    assert_eq!(second.store_hold.lease.until(), Lease::new(confirmed).until());
    clock.advance(SPAN);
    assert_eq!((second.state(), first.state()), (LeaseState::Lost, LeaseState::Released));
}

#[test]
fn a_hold_passes_on_only_with_a_fresh_lease_that_was_never_lengthened() {
    let clock = Arc::new(FakeClock::default());
    let refuses = |spoil: &dyn Fn(&Arc<Tenure>)| {
        let tenure = first(&clock, 9);
        spoil(&tenure);
        passes(&tenure).is_none()
    };
    assert!(!refuses(&|_| ()));
    assert!(
        refuses(&|tenure| tenure.store_hold.note_request(SPAN * 2)),
        "the server may have a longer lease"
    );
    assert!(refuses(&|tenure| tenure.store_hold.stop_passing_on()));
    assert!(refuses(&|tenure| assert_eq!(
        tenure.store_hold.lease.suspect(clock.now()),
        LeaseState::Suspect
    )));
    assert!(refuses(&|tenure| assert_eq!(tenure.store_hold.lose(), LeaseState::Lost)));
    assert!(refuses(&|_| clock.advance(SPAN / 3)), "its renewal is due");
    let other_terms = first(&clock, 9);
    assert!(
        other_terms
            .store_hold
            .admit_next(&other_terms, (SPAN * 2, TokenRule::On), |_| true)
            .is_none()
    );
    assert!(
        other_terms
            .store_hold
            .admit_next(&other_terms, (SPAN, TokenRule::Kept), |_| true)
            .is_none()
    );
    let mut turn = first(&clock, 9);
    for _ in 0..8 {
        turn = next(&turn);
    }
    assert_eq!(turn.token, 9);
    assert!(passes(&turn).is_none(), "its tokens are used up");
}

#[test]
fn readers_join_a_hold_only_while_it_is_young_and_certain() {
    let clock = Arc::new(FakeClock::default());
    let refuses = |spoil: &dyn Fn(&Arc<Tenure>)| {
        let tenure = reader(&clock);
        spoil(&tenure);
        tenure.store_hold.admit_reader(SPAN).is_none()
    };
    assert!(!refuses(&|_| ()));
    assert!(reader(&clock).store_hold.admit_reader(SPAN * 2).is_none(), "another lease");
    assert!(refuses(&|tenure| assert_eq!(
        tenure.store_hold.lease.suspect(clock.now()),
        LeaseState::Suspect
    )));
    assert!(refuses(&|tenure| assert_eq!(tenure.store_hold.lose(), LeaseState::Lost)));
    assert!(refuses(&|tenure| tenure.store_hold.note_request(SPAN * 2)), "it was lengthened");
    assert!(refuses(&|tenure| assert!(tenure.store_hold.leave(tenure))), "the last has left");
    assert!(refuses(&|_| clock.advance(OPEN_TO_READERS)), "a writer of another client may wait");
}

#[test]
fn the_last_to_leave_is_told_once() {
    let clock = Arc::new(FakeClock::default());
    let one = reader(&clock);
    let hold = one.store_hold.clone();
    let other = Tenure::begin(hold.admit_reader(SPAN).unwrap(), USER);
    let unused = hold.admit_reader(SPAN).unwrap();
    assert!(!hold.leave(&one) && !hold.leave(&one));
    drop(unused);
    assert_eq!(hold.state(), LeaseState::Held);
    assert!(hold.leave(&other) && !hold.leave(&other));
    assert!(!hold.forget(&one) && hold.forget(&other) && hold.tenures().is_empty());
    // It was passed on, so the one before is not the one to give it up.
    let first = first(&clock, 9);
    let second = next(&first);
    assert!(!first.store_hold.leave(&first) && first.store_hold.leave(&second));
}

#[test]
fn what_is_learnt_of_a_hold_all_its_users_know() {
    let clock = Arc::new(FakeClock::default());
    let one = reader(&clock);
    let other = Tenure::begin(one.store_hold.admit_reader(SPAN).unwrap(), USER);
    let on_its_way = one.store_hold.admit_reader(SPAN).unwrap();
    one.store_hold.lose();
    assert_eq!((one.state(), other.state()), (LeaseState::Lost, LeaseState::Lost));
    assert_eq!(Tenure::begin(on_its_way, USER).state(), LeaseState::Lost);
    let first = first(&clock, 9);
    let passed = passes(&first).unwrap();
    passed.hold.lose();
    assert_eq!(
        (first.state(), Tenure::begin(passed, USER).state()),
        (LeaseState::Released, LeaseState::Lost)
    );
}

#[test]
fn a_hold_whose_next_user_never_begins_is_given_up() {
    let clock = Arc::new(FakeClock::default());
    let watchdog = watchdog(&clock);
    let hold = granted_by(&watchdog, "a", Kind::Mutex, SPAN).passing_on(9);
    let first = Tenure::begin(hold.admit_first(), USER);
    drop(passes(&first).expect("it passes on"));
    assert_eq!(
        (first.store_hold.state(), first.store_hold.is_unused()),
        (LeaseState::Released, true)
    );
    assert_eq!(watchdog.open_undos(), 1);
}

/// The watchdog finds the loss while the guard is given up: only one of the two runs the
/// callbacks.
#[test]
fn a_tenure_that_is_given_up_beside_a_loss_is_lost_for_one_of_the_two() {
    let clock = Arc::new(FakeClock::default());
    let tenure = tenure("a", &clock, SPAN);
    tenure.store_hold.lose();
    assert_eq!(tenure.release(clock.now()), LeaseState::Lost);
    assert_eq!(tenure.state(), LeaseState::Lost);
    let released = super::tests::tenure("b", &clock, SPAN);
    assert_eq!(released.release(clock.now()), LeaseState::Held);
    released.store_hold.lose();
    assert_eq!(released.state(), LeaseState::Released, "it has ended before the hold");
}

#[test]
fn a_suspended_process_detects_the_loss_at_its_first_check() {
    let clock = Arc::new(FakeClock::default());
    let tenure = tenure("a", &clock, SPAN);
    assert!(tenure.is_held(clock.now()));
    clock.advance(SPAN);
    assert!(!tenure.is_held(clock.now()));
    tenure.store_hold.confirmed(Moment::from_nanos(0), Duration::from_secs(60));
    assert_eq!((tenure.state(), tenure.remaining()), (LeaseState::Lost, Duration::ZERO));
}

/// Others are still renewed.
#[test]
fn a_max_hold_ends_with_the_lease_that_was_confirmed_before() {
    let clock = Arc::new(FakeClock::default());
    let one = reader(&clock);
    let most = User { max_hold: Some(Duration::from_secs(4)), ..USER };
    let limited = Tenure::begin(one.store_hold.admit_reader(SPAN).unwrap(), most);
    clock.advance(Duration::from_secs(3));
    one.store_hold.confirmed(clock.now(), SPAN);
    let end = valid_until(clock.now(), SPAN);
    clock.advance(Duration::from_secs(3));
    one.store_hold.confirmed(clock.now(), SPAN);
    assert_eq!(
        (limited.own_end(), one.own_end()),
        (Lease::new(end).until(), Lease::new(Moment::NEVER).until())
    );
    clock.advance(Duration::from_secs(7));
    assert_eq!((limited.state(), one.state()), (LeaseState::Lost, LeaseState::Held));
    assert_eq!(limited.loss().unwrap().reason(), crate::LossReason::MaxHold);
}

#[test]
fn a_hold_put_back_beside_its_release_is_undone_once_and_behind_it() {
    let clock = Arc::new(FakeClock::default());
    let before = granted("a", Kind::Mutex, &clock, SPAN);
    assert!(!before.was_put_back() && before.end_release());
    let after = granted("b", Kind::Mutex, &clock, SPAN);
    assert!(!after.end_release() && after.was_put_back());
}

#[test]
fn a_renewal_without_an_answer_is_why_it_was_not_renewed() {
    let clock = Arc::new(FakeClock::default());
    let hold = tenure("a", &clock, SPAN).store_hold.clone();
    clock.advance(Duration::from_secs(3));
    assert!(hold.why_not_renewed(clock.now()).is_none(), "none was sent");
    hold.note_renewal(clock.now());
    clock.advance(Duration::from_secs(2));
    let why = hold.why_not_renewed(clock.now()).unwrap();
    assert!(why.message().contains("sent 2.0s before"), "{why}");
    hold.note_answer();
    assert!(hold.why_not_renewed(clock.now()).is_none(), "it was answered");
}

/// A server that took over may have forgotten an extension, and would confirm it unseen.
#[test]
fn a_visit_asks_for_what_was_granted_at_least() {
    let clock = Arc::new(FakeClock::default());
    let hold = tenure("a", &clock, SPAN).store_hold.clone();
    let second = Duration::from_secs(1);
    clock.advance(second);
    assert_eq!(hold.renewal(clock.now()).lease, SPAN);
    hold.confirmed(clock.now(), SPAN * 9);
    clock.advance(second);
    let asked = hold.renewal(clock.now()).lease;
    assert!(asked > SPAN * 8 && asked < SPAN * 9, "{asked:?}");
    clock.advance(SPAN * 8);
    assert_eq!(hold.renewal(clock.now()).lease, SPAN, "the extension is nearly over");
    // Nobody uses it: it keeps what it has.
    let unused = granted("b", Kind::Mutex, &clock, SPAN);
    clock.advance(second);
    assert!(unused.renewal(clock.now()).lease <= SPAN - second);
}

/// The watchdog has found that its `max_hold` is over, and not said yet when the tenure ends.
#[test]
fn a_grant_beside_the_end_of_a_max_hold_has_its_own_end() {
    let clock = Arc::new(FakeClock::default());
    let tenure = tenure("a", &clock, SPAN);
    assert!(tenure.marks.end_max_hold());
    let until = |span| valid_until(clock.now(), span);
    tenure.was_granted(until(SPAN * 2));
    assert_eq!(tenure.own_end(), Lease::new(until(SPAN * 2)).until());
    tenure.was_granted(until(SPAN));
    assert_eq!(tenure.own_end(), Lease::new(until(SPAN * 2)).until());
}
