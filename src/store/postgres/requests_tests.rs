use std::sync::Arc;

use super::*;
use crate::base::holder::ClientId;

const SENT_AT: Moment = Moment::from_nanos(5);

fn row(columns: &str) -> Vec<Row> {
    vec![columns.split(' ').map(|column| (column != "-").then(|| column.to_owned())).collect()]
}

fn named(kind: Kind) -> Arc<LockName> {
    Arc::new(LockName::new("", "job", kind).unwrap())
}

fn kind_of<T: std::fmt::Debug>(outcome: Result<T>) -> ErrorKind {
    outcome.unwrap_err().kind()
}

#[test]
fn each_statement_has_its_number() {
    for (place, statement) in ALL.iter().enumerate() {
        assert_eq!(usize::from(statement.id), place, "{}", statement.sql);
    }
    assert!(ALL.len() <= 64);
}

#[test]
fn an_acquire_is_granted_or_not() {
    let holder = ClientId::random(Duration::from_secs(5)).fresh_holder();
    let answer = |kind, token, columns: &str| {
        let name = &named(kind);
        let lease = Duration::from_secs(1);
        let waiting = Waiting::No;
        let asked = Acquire {
            name,
            holder: &holder,
            permits: 1,
            lease,
            held: 0,
            token,
            tokens: 1,
            waiting,
            goes_on: false,
        };
        acquire_answer(&row(columns), &asked, SENT_AT)
    };
    let granted = |token, next: Option<&str>| {
        Acquired::Granted(Granted {
            token,
            sent_at: SENT_AT,
            session: None,
            next: next.map(str::to_owned),
        })
    };
    let on = TokenRule::On;
    assert_eq!(answer(Kind::Mutex, on, "1 7 0 next").unwrap(), granted(7, None));
    assert_eq!(answer(Kind::Fair, on, "1 7 0 next").unwrap(), granted(7, Some("next")));
    assert_eq!(answer(Kind::Fair, on, "1 7 0 -").unwrap(), granted(7, None));
    assert_eq!(answer(Kind::Mutex, TokenRule::Off, "1 7").unwrap(), granted(0, None));
    assert_eq!(answer(Kind::Read, on, "1 7").unwrap(), granted(0, None), "several may read");
    let busy = |millis| Acquired::Busy { ttl: Some(Duration::from_millis(millis)) };
    assert_eq!(answer(Kind::Mutex, on, "0 1").unwrap(), busy(1));
    for unknown in ["0 0", "0 -1", "0 -"] {
        assert_eq!(
            answer(Kind::Mutex, on, unknown).unwrap(),
            Acquired::Busy { ttl: None },
            "{unknown}"
        );
    }
    assert_eq!(answer(Kind::Mutex, on, "2 0").unwrap(), Acquired::Gone);
    assert_eq!(answer(Kind::Semaphore, on, "4 3").unwrap(), Acquired::TooFew { permits: 3 });
    assert_eq!(kind_of(answer(Kind::Mutex, on, "5 0")), ErrorKind::WrongType);
    for bad in ["3 0", "-", "x 1"] {
        assert_eq!(kind_of(answer(Kind::Mutex, on, bad)), ErrorKind::Protocol, "{bad}");
    }
    assert_eq!((place_of(&row("0 5 9")), place_of(&row("0 5")), place_of(&[])), (9, 0, 0));
}

#[test]
fn a_release_frees_or_says_why_not() {
    let holder = ClientId::random(Duration::from_secs(5)).fresh_holder();
    let kinds = [Kind::Mutex, Kind::Fair, Kind::CountingSemaphore].map(named);
    let [mutex, fair, counting] = &kinds;
    let all = |name| Release::of_all(name, &holder, 1);
    let freed = |listeners, next: Option<&str>| Released::Freed {
        listeners,
        next: next.map(|holder| NextUp { holder: holder.to_owned(), grant: None }),
    };
    assert_eq!(release_answer(&row("2 3 next"), &all(mutex), false).unwrap(), freed(Some(3), None));
    assert_eq!(
        release_answer(&row("2 3 next"), &all(fair), false).unwrap(),
        freed(Some(3), Some("next"))
    );
    assert_eq!(release_answer(&row("2 -1"), &all(mutex), false).unwrap(), freed(None, None));
    assert_eq!(release_answer(&row("1 0"), &all(mutex), true).unwrap(), Released::StillHeld);
    assert_eq!(release_answer(&row("0 0"), &all(mutex), false).unwrap(), Released::NotHeld);
    assert_eq!(
        release_answer(&row("0 0"), &all(mutex), true).unwrap(),
        freed(Some(0), None),
        "an earlier one ran"
    );
    let left = HoldCounts { main: 1, reads: 0 };
    let one_level = Release { left, ..all(mutex) };
    assert_eq!(release_answer(&row("0 0"), &one_level, true).unwrap(), Released::NotHeld);
    assert_eq!(release_answer(&row("0 0"), &all(counting), false).unwrap(), freed(Some(0), None));
    let unsure = Release::of_attempt(counting, &holder, 1);
    assert_eq!(release_answer(&row("0 0"), &unsure, false).unwrap(), Released::NotHeld);
    assert_eq!(kind_of(release_answer(&row("5 0"), &all(mutex), false)), ErrorKind::WrongType);
    for bad in [row("7 0"), row("-"), Vec::new(), [row("2 0"), row("2 0")].concat()] {
        assert_eq!(
            kind_of(release_answer(&bad, &all(mutex), false)),
            ErrorKind::Protocol,
            "{bad:?}"
        );
    }
}

#[test]
fn each_hold_of_a_renewal_has_its_answer() {
    let answers = renew_answers(&row("{1,0,2}"), 3, SENT_AT).unwrap();
    assert!(matches!(
        answers[..],
        [Some(Renewed::Held { again: false, .. }), Some(Renewed::Gone), None]
    ));
    assert!(renew_answers(&row("{}"), 0, SENT_AT).unwrap().is_empty());
    for bad in ["{1,1}", "{1}", "{1,3,1}", "{1,x,1}", "1,1,1", "{1,1,1", "-"] {
        assert_eq!(kind_of(renew_answers(&row(bad), 3, SENT_AT)), ErrorKind::Protocol, "{bad}");
    }
}

#[test]
fn an_inspection_and_a_forced_release_are_read() {
    let rows = [row("x a 1 20"), row("x b 2 30")].concat();
    let status = inspect_answer(&rows).unwrap().unwrap();
    assert_eq!(status.ttl, Some(Duration::from_millis(30)));
    assert_eq!(status.holders, [("a".to_owned(), 1), ("b".to_owned(), 2)]);
    assert!(inspect_answer(&[]).unwrap().is_none());
    assert_eq!(kind_of(inspect_answer(&row("s a 1 20"))), ErrorKind::WrongType);
    assert_eq!(kind_of(inspect_answer(&row("- a 1 20"))), ErrorKind::Protocol);
    assert!(force_answer(&row("1")).unwrap() && !force_answer(&row("0")).unwrap());
    assert_eq!(kind_of(force_answer(&row("5"))), ErrorKind::WrongType);
    assert_eq!(kind_of(force_answer(&row("2"))), ErrorKind::Protocol);
}

#[test]
fn channels_and_times_are_the_same_in_every_release() {
    // The offset basis and "foobar" of the hash's authors.
    assert_eq!(channel_of(""), "leasehold_cbf29ce484222325");
    assert_eq!(channel_of("foobar"), "leasehold_85944171f73967e8");
    assert_eq!(channel_of_client("foobar"), "leasehold_client_85944171f73967e8");
    assert_eq!((millis(Duration::from_micros(1_001)), millis(Duration::MAX)), (2, i64::MAX));
    let letters = [Kind::Mutex, Kind::Write, Kind::Semaphore, Kind::CountingSemaphore, Kind::Latch]
        .map(letter);
    assert_eq!(letters, ["x", "r", "s", "c", "l"]);
}
