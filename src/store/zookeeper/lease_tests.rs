use super::*;

const T: Duration = Duration::from_secs(12);

fn at(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

/// Without the margin of 1 % and 2 ms.
fn lives_from(ms: u64) -> Moment {
    valid_until(at(ms), T)
}

fn begun() -> SessionLease {
    SessionLease::new(Rhythm::of(T, None), at(0))
}

/// The answer to a write.
fn write(lease: &mut SessionLease, sent: u64, answered: u64) -> Moment {
    let until = lease.agreed(at(sent));
    lease.answered(at(sent), at(answered));
    until
}

#[test]
fn a_new_session_counts_from_its_request() {
    assert_eq!(begun().until(), lives_from(0));
}

#[test]
fn a_resumed_session_counts_once_a_write_was_answered() {
    let mut again = SessionLease::resumed(Rhythm::of(T, None), at(5000), lives_from(1000), false);
    again.answered(at(6000), at(6001));
    assert_eq!(
        again.until(),
        lives_from(1000),
        "a leader that was replaced accepts connections too"
    );
    assert_eq!(again.agreed(at(5010)), lives_from(5000), "without a lag: the leader accepted it");
}

#[test]
fn a_shorter_timeout_counts_from_the_request_that_was_granted_it() {
    let short = Rhythm::of(T / 4, None);
    let mut again = SessionLease::resumed(short, at(5000), lives_from(4000), true);
    assert_eq!(
        again.until(),
        valid_until(at(5000), T / 4),
        "the leader will not wait as long as was known before"
    );
    again.answered(at(6000), at(6001));
    assert_eq!(again.agreed(at(6800)), valid_until(at(6000), T / 4));
    let ended = SessionLease::resumed(short, at(5000), at(5500), true);
    assert_eq!(ended.until(), at(5500), "it never lengthens");
}

#[test]
fn an_answer_alone_proves_nothing() {
    let mut lease = begun();
    for n in 1..100 {
        lease.answered(at(n * 1000), at(n * 1000 + 1));
    }
    assert_eq!(lease.until(), lives_from(0));
}

#[test]
fn an_answer_counts_once_a_later_write_was_agreed_to() {
    let mut lease = begun();
    // A quarter of 12 s.
    assert_eq!(write(&mut lease, 1000, 1010), lives_from(0));
    assert_eq!(write(&mut lease, 4009, 4019), lives_from(0), "one millisecond too soon");
    assert_eq!(write(&mut lease, 4010, 4030), lives_from(1000));
    assert_eq!(write(&mut lease, 7018, 7020), lives_from(1000));
    assert_eq!(write(&mut lease, 7019, 7021), lives_from(4009));
    assert_eq!(write(&mut lease, 7030, 7040), lives_from(4009));
}

/// A slow answer: the server may have heard of the request just before.
#[test]
fn the_lag_counts_from_the_answer_and_the_lease_from_the_request() {
    let mut lease = begun();
    lease.answered(at(1000), at(3500));
    assert_eq!(lease.agreed(at(6499)), lives_from(0));
    assert_eq!(lease.agreed(at(6500)), lives_from(1000));
}

#[test]
fn a_lost_heartbeat_is_made_up_for_by_any_other_write() {
    let mut lease = begun();
    lease.answered(at(2000), at(2001));
    lease.answered(at(3000), at(3001));
    // A long time without a heartbeat; then one.
    assert_eq!(lease.agreed(at(20_000)), lives_from(3000));
    assert_eq!(lease.agreed(at(20_000)), lives_from(3000), "again");
    assert_eq!(
        lease.agreed(at(5_500)),
        lives_from(3000),
        "answers of earlier requests change nothing"
    );
}

/// Every order and gap of four requests, each answered or not, each a write or not, on a
/// connection that began or resumed the session.
#[test]
fn no_sequence_shows_more_than_was_answered_a_lag_before() {
    let gaps = [1, 700, 1500, 3000, 3100];
    for shape in 0..5_u32.pow(4) {
        for mask in 0..512_u32 {
            let resumed = SessionLease::resumed(Rhythm::of(T, None), at(0), at(0), false);
            let mut lease = if mask >> 8 == 0 { begun() } else { resumed };
            assert_eq!(lease.until() > at(0), mask >> 8 == 0);
            let mut now = 0;
            let mut known = vec![(0, 0)];
            let mut shown = 0;
            for n in 0..4 {
                now += gaps[(shape / 5_u32.pow(n) % 5) as usize];
                let answers = mask >> n & 1 == 1;
                let writes = mask >> (n + 4) & 1 == 1;
                if !answers {
                    continue;
                }
                if writes {
                    let reported = known
                        .iter()
                        .filter(|(_, answered)| answered + 3000 <= now || *answered == 0);
                    shown = reported.map(|(sent, _)| *sent).max().unwrap_or(0).max(shown);
                    assert!(lease.agreed(at(now)) <= lives_from(shown), "{shape} {mask}");
                }
                lease.answered(at(now), at(now + 5));
                known.push((now, now + 5));
                now += 5;
            }
        }
    }
}

#[test]
fn five_twelfths_remain_before_each_heartbeat() {
    let rhythm = Rhythm::of(T, None);
    let mut lease = begun();
    let mut now = at(0);
    let took = Duration::from_millis(50);
    let beats = u32::try_from(rhythm.heartbeat.as_millis() / rhythm.ping.as_millis()).unwrap();
    for ping in 1..600 {
        now = now.plus(rhythm.ping);
        if ping % beats == 0 {
            let least = T - rhythm.lag - rhythm.heartbeat - rhythm.ping - took - T / 50;
            assert!(least >= T * 5 / 12 - took - T / 50, "{least:?}");
            assert!(lease.until().since(now) >= least, "{ping}: {:?}", lease.until().since(now));
            lease.agreed(now);
        }
        lease.answered(now, now.plus(took));
        assert!(lease.heard.len() < 100, "{}", lease.heard.len());
    }
}

#[test]
fn with_the_tick_of_the_servers_the_lag_is_shorter() {
    let rhythm = Rhythm::of(T, Some(Duration::from_secs(2)));
    assert_eq!(
        (rhythm.lag, rhythm.heartbeat),
        (Duration::from_millis(1100), Duration::from_secs(3))
    );
    assert_eq!(Rhythm::of(T, None).lag, Duration::from_secs(3));
}

#[test]
fn many_requests_are_few_entries() {
    let mut lease = begun();
    for n in 0..10_000_000 {
        lease.answered(Moment::from_nanos(n * 10_000), Moment::from_nanos(n * 10_000 + 5));
    }
    assert!(lease.heard.len() < 100);
}
