use super::*;
use crate::base::error::ErrorKind;
use crate::store::TokenRule;
use crate::store::memory::tests::{Bench, LEASE};

#[test]
fn all_or_none() {
    let mut bench = Bench::new();
    let names = ["a", "b"].map(|name| bench.name(name, Kind::Mutex));
    let holder = bench.holder();
    let other = bench.granted(&names[1]);
    let parts: Vec<_> = names.iter().map(|name| Part { name, holder: &holder, held: 0 }).collect();
    let all = AcquireAll {
        parts,
        lease: LEASE,
        token: TokenRule::On,
        waits: true,
        goes_on: true,
        leads: false,
    };
    let now = bench.now();
    assert_eq!(
        bench.state.acquire_all(&all, false, now).unwrap(),
        AcquiredAll::Busy { at: 1, ttl: Some(LEASE) }
    );
    assert!(bench.state.entry("a", now).is_none());
    bench.release(&names[1], &other);
    for _ in 0..2 {
        let Ok(AcquiredAll::Granted { tokens, .. }) = bench.state.acquire_all(&all, true, now)
        else {
            panic!()
        };
        assert!(tokens[0] > 0 && tokens[1] > tokens[0]);
    }
    // One is force-unlocked and then taken by another: a repeat that is refused takes back what
    // the first run took.
    bench.state.lose(&names[1].key, now);
    bench.granted(&names[1]);
    assert_eq!(
        bench.state.acquire_all(&all, true, now).unwrap(),
        AcquiredAll::Busy { at: 1, ttl: Some(LEASE) }
    );
    assert!(bench.state.entry("a", now).is_none());
    let again = AcquireAll {
        parts: all.parts.iter().map(|p| Part { held: 1, ..p.clone() }).collect(),
        ..all
    };
    assert_eq!(bench.state.acquire_all(&again, false, now).unwrap(), AcquiredAll::Gone { at: 0 });
}

#[test]
fn each_is_answered_for_itself() {
    let mut bench = Bench::new();
    let names = ["a", "b"].map(|name| bench.name(name, Kind::Mutex));
    let first = bench.granted(&names[0]);
    let second = bench.holder();
    let releases = [Release::of_all(&names[0], &first, 1), Release::of_all(&names[1], &second, 1)];
    let freed = Released::Freed { listeners: Some(0), next: None };
    assert_eq!(bench.state.release_all(&releases, bench.now()), [freed, Released::NotHeld]);
    let write = bench.name("a", Kind::Write);
    bench.granted(&write);
    let parts = vec![Part { name: &names[0], holder: &first, held: 0 }];
    let all = AcquireAll {
        parts,
        lease: LEASE,
        token: TokenRule::Off,
        waits: true,
        goes_on: true,
        leads: false,
    };
    let refused = bench.state.acquire_all(&all, false, bench.now()).unwrap_err();
    assert_eq!((refused.kind(), refused.name()), (ErrorKind::WrongType, Some("a")));
}
