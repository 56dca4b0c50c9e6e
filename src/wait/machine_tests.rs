//! Every transition of the [machine](super).

use super::*;
use crate::base::error::ErrorKind;

const LEASE: Duration = Duration::from_secs(30);
const OUTAGE: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_millis(700);

/// A machine, and the time that it is given.
struct Staged {
    wait: Wait,
    now: Instant,
}

fn staged(timeout: Option<Duration>) -> Staged {
    let now = Instant::now();
    let deadline = timeout.map_or(Deadline::Never, |timeout| Deadline::At(now + timeout));
    let terms = WaitTerms {
        deadline,
        lease: LEASE,
        outage_timeout: OUTAGE,
        has_turn: false,
        is_exclusive: true,
        has_messages: true,
    };
    Staged { wait: Wait::new(terms), now }
}

const NEW: Happened = Happened::Begun { first: None, has_waited: false, is_covered: false };
const FREE: Situation = Situation { ended: None, held_here: None, comes_last: false, outage: None };

fn busy(round: u64) -> Happened {
    Happened::Answered(Answer { round: Some(round), ttl: Some(TTL) })
}

fn listens(since: u64, round: u64, is_confirmed: bool) -> Happened {
    Happened::Listens { since, round, is_confirmed }
}

fn outage(lasted: Option<Duration>) -> Happened {
    Happened::Failed { error: Error::new(ErrorKind::Unreachable, "it is away"), outage: lasted }
}

impl Staged {
    fn next(&mut self, happened: Happened) -> Step {
        let now = self.now;
        self.wait.next(happened, &|| now)
    }

    /// Asks in this round, gets the answer that the lock is taken, and has listened since before
    /// it.
    fn sleeps(&mut self, round: u64) -> Duration {
        assert!(matches!(self.next(Happened::Looked(FREE)), Step::Ask));
        assert!(matches!(self.next(busy(round)), Step::Listen { mistrusts: false }));
        match self.next(listens(round - 1, round, true)) {
            Step::Sleep(pause) => pause,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_call_looks_first_or_listens_if_that_costs_nothing() {
    assert!(matches!(staged(None).next(NEW), Step::Look));
    let mut covered = staged(None);
    let begun = Happened::Begun { first: None, has_waited: false, is_covered: true };
    assert!(matches!(covered.next(begun), Step::Listen { mistrusts: false }));
    assert!(matches!(covered.next(listens(0, 0, true)), Step::Look));
    assert_eq!(covered.sleeps(1), TTL + Duration::from_millis(1), "no second request");
}

#[test]
fn an_answer_from_before_it_listened_is_asked_for_again() {
    let mut call = staged(None);
    call.next(NEW);
    assert!(matches!(call.next(Happened::Looked(FREE)), Step::Ask));
    assert!(matches!(call.next(busy(1)), Step::Listen { .. }));
    assert!(matches!(call.next(listens(1, 1, true)), Step::Look));
    call.sleeps(2);
}

#[test]
fn an_answer_from_an_earlier_round_is_asked_for_again() {
    for is_confirmed in [true, false] {
        let mut call = staged(None);
        call.next(NEW);
        call.sleeps(2);
        assert!(matches!(
            call.next(Happened::Woke { is_notified: true, has_answer: true }),
            Step::Look
        ));
        // Another thread had sent the acquire before the latch was cleared.
        let beside = Happened::AnsweredBeside(Answer { round: Some(2), ttl: Some(TTL) });
        assert!(matches!(call.next(beside), Step::Listen { .. }));
        assert!(matches!(call.next(listens(1, 3, is_confirmed)), Step::Look));
        let beside = Happened::AnsweredBeside(Answer { round: Some(4), ttl: Some(TTL) });
        assert!(matches!(call.next(beside), Step::Listen { .. }));
        assert!(
            matches!(call.next(listens(1, 4, is_confirmed)), Step::Sleep(_)),
            "this one is recent"
        );
    }
}

#[test]
fn until_it_is_confirmed_that_it_listens_it_sleeps_for_a_pause() {
    let mut call = staged(None);
    call.next(NEW);
    call.next(Happened::Looked(FREE));
    call.next(Happened::Answered(Answer { round: Some(1), ttl: Some(LEASE) }));
    let Step::Sleep(pause) = call.next(listens(1, 1, false)) else { panic!() };
    assert!(pause <= Duration::from_millis(500), "{pause:?}");
}

#[test]
fn an_answer_from_before_the_queue_saves_a_request_until_it_listens() {
    let first = Some(Answer { round: None, ttl: Some(TTL) });
    let begun = || Happened::Begun { first, has_waited: false, is_covered: false };
    for is_confirmed in [true, false] {
        let mut call = staged(None);
        assert!(matches!(call.next(begun()), Step::Look));
        assert!(matches!(call.next(Happened::Looked(FREE)), Step::Listen { .. }));
        let step = call.next(listens(1, 1, is_confirmed));
        assert_eq!(matches!(step, Step::Look), is_confirmed, "{step:?}");
        assert_eq!(matches!(step, Step::Sleep(_)), !is_confirmed, "{step:?}");
        call.next(Happened::Woke { is_notified: true, has_answer: true });
        assert!(matches!(call.next(Happened::Looked(FREE)), Step::Ask), "it is used once");
    }
}

#[test]
fn a_wait_that_is_ended_returns_why() {
    let mut call = staged(None);
    call.next(NEW);
    let ended = Some(Error::new(ErrorKind::Cancelled, "the call was cancelled"));
    let situation = Situation { ended, held_here: Some(LEASE), comes_last: true, outage: None };
    let Step::Return(Err(why)) = call.next(Happened::Looked(situation)) else { panic!() };
    assert_eq!(why.kind(), ErrorKind::Cancelled);
}

#[test]
fn others_come_first_and_what_was_known_before_is_too_old() {
    let mut call = staged(None);
    let first = Some(Answer { round: None, ttl: None });
    call.next(Happened::Begun { first, has_waited: false, is_covered: false });
    assert!(matches!(
        call.next(Happened::Looked(Situation { comes_last: true, ..FREE })),
        Step::LetOthersFirst
    ));
    assert!(matches!(call.next(Happened::OthersCameFirst), Step::Look));
    assert!(matches!(call.next(Happened::Looked(FREE)), Step::Ask));
}

#[test]
fn it_sleeps_for_a_thread_of_the_client_and_then_looks_again() {
    let mut call = staged(None);
    call.next(NEW);
    // Other clients need not come first while nobody can take the lock.
    let held = |held_here| Happened::Looked(Situation { held_here, comes_last: true, ..FREE });
    let Step::SleepForLocal(most) = call.next(held(Some(TTL))) else { panic!() };
    assert_eq!(most, TTL + Duration::from_millis(1));
    assert!(matches!(call.next(Happened::WokeForLocal), Step::Look));
    let Step::SleepForLocal(most) = call.next(held(Some(LEASE * 9))) else { panic!() };
    assert_eq!(most, LEASE, "at most a lease");
    // Nothing came for a whole lease: the store is asked once.
    call.now += LEASE;
    assert!(matches!(call.next(Happened::WokeForLocal), Step::Look));
    let held = |held_here| Happened::Looked(Situation { held_here, ..FREE });
    assert!(matches!(call.next(held(Some(TTL))), Step::Ask));
    call.next(busy(3));
    call.next(listens(1, 3, true));
    call.next(Happened::Woke { is_notified: true, has_answer: true });
    assert!(matches!(call.next(held(Some(TTL))), Step::SleepForLocal(_)));
}

#[test]
fn at_the_deadline_it_asks_once_more_if_it_was_notified_or_knows_nothing() {
    let woke = |is_notified, has_answer| Happened::Woke { is_notified, has_answer };
    for (event, asks) in
        [(woke(false, true), false), (woke(true, true), true), (woke(false, false), true)]
    {
        let mut call = staged(Some(TTL / 2));
        call.next(NEW);
        assert_eq!(call.sleeps(2), TTL / 2, "no longer than there is time");
        call.now += TTL / 2;
        let step = call.next(event);
        if !asks {
            assert!(matches!(step, Step::Return(Ok(()))), "{step:?}");
            continue;
        }
        assert!(matches!(step, Step::Look), "{step:?}");
        assert!(matches!(call.next(Happened::Looked(FREE)), Step::Ask));
        assert!(matches!(call.next(busy(3)), Step::Return(Ok(()))), "there is no other");
    }
}

#[test]
fn a_deadline_that_passes_beside_a_request_or_a_local_sleep() {
    let mut call = staged(Some(TTL));
    call.next(NEW);
    call.next(Happened::Looked(FREE));
    call.now += TTL;
    assert!(
        matches!(call.next(busy(1)), Step::Sleep(Duration::ZERO)),
        "it looks whether it was notified"
    );
    let mut call = staged(Some(TTL));
    call.next(NEW);
    call.next(Happened::Looked(Situation { held_here: Some(LEASE), ..FREE }));
    call.now += TTL;
    assert!(matches!(call.next(Happened::WokeForLocal), Step::Return(Ok(()))));
    let beside = Happened::AnsweredBeside(Answer { round: Some(1), ttl: None });
    assert!(matches!(call.next(beside), Step::Return(Ok(()))), "it came too late");
}

/// The threads of a queue become its leader one after the other.
#[test]
fn an_outage_that_has_lasted_too_long_is_known_to_the_next_leader() {
    let away = |lasted| Some((lasted, Error::new(ErrorKind::Unreachable, "it is away")));
    let mut call = staged(None);
    call.next(Happened::Begun { first: None, has_waited: true, is_covered: false });
    let almost = OUTAGE - Duration::from_millis(1);
    assert!(matches!(
        call.next(Happened::Looked(Situation { outage: away(almost), ..FREE })),
        Step::Ask
    ));
    let known = Happened::Looked(Situation { outage: away(OUTAGE), ..FREE });
    let Step::Return(Err(why)) = call.next(known) else { panic!("it asks once more") };
    assert!(
        why.kind() == ErrorKind::Unreachable && why.to_string().contains("outage_timeout"),
        "{why}"
    );
    let held = Situation { outage: away(OUTAGE), held_here: Some(LEASE), ..FREE };
    assert!(
        matches!(call.next(Happened::Looked(held)), Step::SleepForLocal(_)),
        "no store is needed"
    );
}

#[test]
fn an_outage_is_waited_out_only_by_a_call_that_waits() {
    let error = Error::new(ErrorKind::Unreachable, "it is away");
    let mut call = staged(None);
    call.next(NEW);
    assert!(!call.wait.tolerates(&error));
    assert!(matches!(call.next(outage(None)), Step::Return(Err(_))));
    let mut call = staged(None);
    call.next(NEW);
    call.sleeps(2);
    assert!(call.wait.tolerates(&error));
    assert!(!call.wait.tolerates(&Error::new(ErrorKind::WrongType, "it is a list")));
    let Step::Sleep(pause) = call.next(outage(Some(Duration::ZERO))) else { panic!() };
    assert!(pause <= Duration::from_millis(250));
    assert!(matches!(
        call.next(Happened::Woke { is_notified: false, has_answer: true }),
        Step::Look
    ));
    let Step::Return(Err(why)) = call.next(outage(Some(OUTAGE))) else { panic!() };
    assert!(why.to_string().contains("outage_timeout"), "{why}");
}

#[test]
fn an_outage_at_the_deadline_is_an_error_and_not_a_lock_that_is_taken() {
    let mut call = staged(Some(TTL));
    call.next(NEW);
    call.sleeps(2);
    call.next(outage(Some(Duration::ZERO)));
    call.now += TTL;
    // The last answer is recent, but a server that has failed since may have freed the lock.
    assert!(matches!(
        call.next(Happened::Woke { is_notified: false, has_answer: true }),
        Step::Look
    ));
    assert!(matches!(call.next(Happened::Looked(FREE)), Step::Ask));
    assert!(matches!(call.next(outage(Some(TTL))), Step::Return(Err(_))));
}

#[test]
fn a_timer_that_finds_the_lock_taken_mistrusts_the_messages() {
    let mut call = staged(None);
    call.next(NEW);
    call.sleeps(2);
    call.next(Happened::Woke { is_notified: false, has_answer: true });
    call.next(Happened::Looked(FREE));
    assert!(matches!(call.next(busy(3)), Step::Listen { mistrusts: true }));
    call.next(listens(1, 3, true));
    call.next(Happened::Woke { is_notified: true, has_answer: true });
    call.next(Happened::Looked(FREE));
    assert!(matches!(call.next(busy(4)), Step::Listen { mistrusts: false }), "it was notified");
}

#[test]
fn what_was_left_and_is_of_no_use_is_looked_past() {
    let mut call = staged(None);
    call.next(NEW);
    assert!(matches!(call.next(Happened::NothingCame), Step::Look));
}

#[test]
fn without_messages_a_call_sleeps_until_something_comes_free() {
    let mut call = staged(None);
    call.wait.terms.has_messages = false;
    // An answer from before the queue may be outdated, and no message would say so.
    let first = Some(Answer { round: None, ttl: Some(TTL) });
    let begun = Happened::Begun { first, has_waited: false, is_covered: false };
    assert!(matches!(call.next(begun), Step::Look));
    assert!(matches!(call.next(Happened::Looked(FREE)), Step::Ask));
    let sleeps = |step| if let Step::SleepUntilFree(pause) = step { pause } else { Duration::ZERO };
    assert_eq!(sleeps(call.next(busy(1))), TTL + Duration::from_millis(1));
    assert!(matches!(
        call.next(Happened::Woke { is_notified: false, has_answer: true }),
        Step::Look
    ));
    assert!(matches!(call.next(Happened::Looked(FREE)), Step::Ask));
    let long = Happened::Answered(Answer { round: Some(2), ttl: Some(LEASE * 9) });
    assert_eq!(sleeps(call.next(long)), LEASE, "another client may have changed it");
    let mut short = staged(Some(TTL / 2));
    short.wait.terms.has_messages = false;
    short.next(NEW);
    short.next(Happened::Looked(FREE));
    assert_eq!(sleeps(short.next(busy(1))), TTL / 2);
    short.now += TTL / 2;
    assert!(matches!(
        short.next(Happened::Woke { is_notified: false, has_answer: true }),
        Step::Return(Ok(()))
    ));
}
