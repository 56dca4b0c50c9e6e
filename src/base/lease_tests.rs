use super::*;

fn at(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

#[test]
fn is_held_until_its_end_and_never_again() {
    let lease = Lease::new(at(100));
    assert!(lease.is_held(at(99)));
    assert!(!lease.is_held(at(100)));
    assert_eq!(lease.renewed(at(99), at(200)), LeaseState::Lost, "somebody has seen it end");
    assert!(!lease.is_held(at(1)));
}

#[test]
fn a_failed_renewal_ends_nothing() {
    let lease = Lease::new(at(100));
    assert_eq!(lease.suspect(at(50)), LeaseState::Suspect);
    assert!(lease.is_held(at(99)));
    assert_eq!(lease.renewed(at(99), at(200)), LeaseState::Held);
    assert!(lease.is_held(at(199)));
}

#[test]
fn a_renewal_never_shortens() {
    let mut ends = Ends::new(at(1000));
    ends.granted(at(500));
    assert_eq!(ends.end(), at(1000));
}

#[test]
fn a_look_moves_the_end_in_and_out_again() {
    let mut ends = Ends::new(at(30_000));
    ends.inspected(at(5), Some(at(3_000)));
    assert_eq!((ends.end(), ends.own()), (at(3_000), at(30_000)));
    // A grant made meanwhile counts once nobody can shorten it.
    ends.granted(at(31_000));
    assert_eq!((ends.end(), ends.own()), (at(3_000), at(31_000)));
    ends.inspected(at(1_005), Some(at(4_000)));
    assert_eq!(ends.end(), at(4_000));
    ends.inspected(at(1_990), None);
    assert_eq!(ends.end(), at(31_000));
    // It was sent before the inspection whose reply was read first.
    ends.inspected(at(1_980), Some(at(4_500)));
    assert_eq!(ends.end(), at(31_000));
    // The bound can be later than the grant.
    ends.inspected(at(2_050), Some(at(40_000)));
    assert_eq!(ends.end(), at(31_000));

    let lease = Lease::new(at(30_000));
    assert_eq!(lease.inspected(at(10), at(3_000)), LeaseState::Held);
    assert_eq!(lease.until(), at(3_000));
    lease.suspect(at(1_000));
    assert_eq!(lease.inspected(at(1_010), at(4_000)), LeaseState::Suspect);
    assert!(lease.is_held(at(3_999)));
}

#[test]
fn a_lease_whose_end_was_moved_in_is_lost_for_good() {
    let late = Lease::new(at(30_000));
    assert_eq!(
        late.inspected(at(3_000), at(3_000)),
        LeaseState::Lost,
        "it took too long to learn of it"
    );
    assert!(!late.is_held(at(2_999)));
    let ended = Lease::new(at(30_000));
    ended.inspected(at(10), at(3_000));
    assert!(ended.is_held(at(2_999)) && !ended.is_held(at(3_000)));
    assert_eq!(
        ended.inspected(at(2_999), at(30_000)),
        LeaseState::Lost,
        "somebody has seen it end"
    );
    assert_eq!(ended.renewed(at(2_999), at(60_000)), LeaseState::Lost);
    let released = Lease::new(at(30_000));
    released.release(at(1));
    assert_eq!(released.inspected(at(2), at(2)), LeaseState::Released);
}

#[test]
fn late_answers_change_nothing() {
    let lost = Lease::new(at(100));
    assert_eq!(lost.lose(at(1), LostBy::Store), LeaseState::Lost);
    assert_eq!(lost.renewed(at(2), at(900)), LeaseState::Lost);
    assert_eq!(lost.release(at(2)), LeaseState::Lost);
    let released = Lease::new(at(100));
    assert_eq!(released.release(at(1)), LeaseState::Held);
    assert_eq!(released.release(at(1)), LeaseState::Released);
    assert_eq!(released.lose(at(2), LostBy::Store), LeaseState::Released);
    assert_eq!(
        released.state(at(500)),
        LeaseState::Released,
        "time ends nothing that was released"
    );
    let late = Lease::new(at(100));
    assert_eq!(late.release(at(100)), LeaseState::Lost);
    let closed = Lease::new(at(100));
    assert_eq!(closed.close(at(1)), LeaseState::Held);
    assert_eq!(closed.release(at(1)), LeaseState::Closed, "the guard that comes later reports it");
    assert_eq!(
        (closed.lose(at(2), LostBy::Store), closed.state(at(500))),
        (LeaseState::Closed, LeaseState::Closed)
    );
    assert_eq!(released.close(at(2)), LeaseState::Released, "and one that was faster is not");
}

#[test]
fn a_session_ends_all_of_its_leases() {
    let session = Arc::new(SessionTerm::default());
    session.lengthen(at(100));
    let [a, b, c, short] = [at(900), at(900), Moment::NEVER, at(50)]
        .map(|end| Lease::in_session(end, Some(session.clone())));
    assert!(a.is_held(at(99)) && !a.is_held(at(100)));
    assert_eq!((b.until(), c.until(), short.until()), (at(100), at(100), at(50)));
    assert!(short.is_held(at(49)) && !short.is_held(at(50)), "its own end comes first");
    session.lengthen(at(200));
    session.lengthen(at(150));
    assert!(!a.is_held(at(101)), "somebody has seen it end");
    assert!(
        b.is_held(at(199)) && c.is_held(at(199)),
        "nobody has seen these end, and the session lived"
    );
    assert_eq!(b.renewed(at(150), at(5_000)), LeaseState::Held);
    assert!(!b.is_held(at(200)));
    assert_eq!(c.suspect(at(120)), LeaseState::Suspect);
    session.end(at(121));
    session.lengthen(at(9_000));
    assert_eq!((c.release(at(121)), session.until()), (LeaseState::Lost, Moment(0)));
}

#[test]
fn a_session_that_is_granted_less_ends_sooner() {
    let session = Arc::new(SessionTerm::default());
    session.lengthen(at(300));
    let lease = Lease::in_session(Moment::NEVER, Some(session.clone()));
    session.shorten(at(200));
    session.shorten(at(250));
    assert!(lease.is_held(at(199)) && !lease.is_held(at(200)));
    session.shorten(at(0));
    session.lengthen(at(400));
    assert_eq!(session.until(), at(400), "it was not over");
    session.end(at(1));
    session.shorten(at(100));
    assert_eq!(session.until(), Moment(0));
}

#[test]
fn a_loss_keeps_how_and_when_it_came() {
    let lost = |lease: Lease, now| {
        assert_eq!(lease.state(at(now)), LeaseState::Lost);
        // The three lowest bits are those of the mark.
        lease.lost().map(|(how, at)| (how, Moment(at.0.next_multiple_of(1_000_000)))).unwrap()
    };
    assert_eq!(Lease::new(at(100)).lost(), None);
    assert_eq!(lost(Lease::new(at(100)), 500), (LostBy::Time, at(100)), "not when somebody looked");
    let cut = Lease::new(at(100));
    cut.inspected(at(50), at(40));
    assert_eq!(lost(cut, 50), (LostBy::Time, at(50)), "it was believed until then");
    let gone = Lease::new(at(100));
    gone.lose(at(30), LostBy::Store);
    gone.lose(at(40), LostBy::Neglect);
    assert_eq!(lost(gone, 90), (LostBy::Store, at(30)), "the first");
    let late = Lease::new(at(100));
    late.lose(at(130), LostBy::Store);
    assert_eq!(lost(late, 131), (LostBy::Time, at(100)), "time was faster");
    let closed = Lease::new(at(100));
    closed.close(at(60));
    assert_eq!(closed.lost().unwrap().0, LostBy::Closing);

    let in_session =
        |session: &Arc<SessionTerm>| Lease::in_session(Moment::NEVER, Some(session.clone()));
    let [silent, expired, forgotten] = [0, 1, 2].map(|_| Arc::new(SessionTerm::default()));
    for session in [&silent, &expired, &forgotten] {
        session.lengthen(at(100));
    }
    assert_eq!(lost(in_session(&silent), 500), (LostBy::Session, at(100)));
    expired.end(at(150));
    assert_eq!(lost(in_session(&expired), 160).0, LostBy::Session, "nobody had kept it alive");
    forgotten.end(at(50));
    assert_eq!(lost(in_session(&forgotten), 60), (LostBy::Store, at(60)), "it was known to live");
    for session in [silent, expired, forgotten] {
        let fixed = Lease::in_session(at(70), Some(session));
        assert_eq!(lost(fixed, 500), (LostBy::Time, at(70)));
    }
}

#[test]
fn a_word_keeps_its_mark_and_its_end() {
    use LostBy::{Closing, Neglect, Session, Store, Time};
    let lost = [Time, Session, Store, Neglect, Closing].map(Mark::Lost);
    for mark in [Mark::Held, Mark::Suspect, Mark::Released].into_iter().chain(lost) {
        assert_eq!(unpack(pack(mark, at(1000))), (mark, at(1000)));
    }
}

#[test]
fn the_margin_is_one_percent_and_two_milliseconds() {
    assert_eq!(valid_until(at(0), Duration::from_secs(30)), at(29_698));
    assert_eq!(valid_until(at(5), Duration::ZERO), at(5));
    assert_eq!(
        valid_until(Moment::from_nanos(u64::MAX), Duration::MAX),
        Moment::from_nanos(u64::MAX)
    );
}
