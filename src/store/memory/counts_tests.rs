use super::*;
use crate::base::error::ErrorKind;
use crate::store::memory::tests::Bench;

#[test]
fn permits_do_not_come_back_to_something_else() {
    let mut bench = Bench::new();
    let (name, latch) = (bench.name("n", Kind::CountingSemaphore), bench.name("n", Kind::Latch));
    bench.count(&name, Count::Set(2), "1");
    let holder = bench.holder();
    assert!(matches!(bench.acquire(&name, &holder), Ok(Acquired::Granted(_))));
    bench.count(&name, Count::Delete, "2");
    bench.count(&latch, Count::Set(1), "3");
    let now = bench.now();
    let release = |granted| Release { granted, ..Release::of_all(&name, &holder, 1) };
    for _ in 0..2 {
        let error = bench.state.release(&release(true), now).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType);
    }
    // Only marks the id of a count as used, whatever kind of count it is.
    let other = bench.holder();
    let mark = Release { holder: &other, ..release(false) };
    assert_eq!(bench.state.release(&mark, now).unwrap(), Released::NotHeld);
}

#[test]
fn a_latch_opens_at_zero_and_a_repeat_counts_once() {
    let mut bench = Bench::new();
    let name = bench.name("n", Kind::Latch);
    assert_eq!(bench.count(&name, Count::Down, "early"), CountAnswer { done: false, value: 0 });
    assert_eq!(bench.count(&name, Count::Set(2), "set"), CountAnswer { done: true, value: 2 });
    assert_eq!(bench.count(&name, Count::Set(5), "again"), CountAnswer { done: false, value: 2 });
    for _ in 0..2 {
        assert_eq!(bench.count(&name, Count::Down, "one"), CountAnswer { done: true, value: 1 });
    }
    assert_eq!(bench.counted(&name), (1, 0));
    assert_eq!(bench.count(&name, Count::Down, "two"), CountAnswer { done: true, value: 0 });
    let (left, first) = bench.counted(&name);
    assert!(left == 0 && first > 0);
    bench.count(&name, Count::Set(1), "anew");
    assert_eq!(bench.count(&name, Count::Delete, "delete"), CountAnswer { done: true, value: 0 });
    assert!(bench.counted(&name).1 > first, "whoever waits sees that it was opened in between");
}

#[test]
fn permits_are_taken_and_given_back_once() {
    let mut bench = Bench::new();
    let name = bench.name("n", Kind::CountingSemaphore);
    let holder = bench.holder();
    assert_eq!(bench.acquire(&name, &holder).unwrap(), Acquired::TooFew { permits: 0 });
    assert_eq!(bench.count(&name, Count::Set(0), "set"), CountAnswer { done: true, value: 0 });
    assert_eq!(bench.acquire(&name, &holder).unwrap(), Acquired::Busy { ttl: None });
    assert_eq!(bench.count(&name, Count::Add(1), "add").value, 1);
    for _ in 0..2 {
        assert!(matches!(bench.acquire(&name, &holder), Ok(Acquired::Granted(_))));
    }
    assert_eq!(bench.counted(&name), (0, 0));
    for _ in 0..2 {
        assert!(matches!(bench.release(&name, &holder), Released::Freed { .. }));
    }
    assert_eq!(bench.counted(&name), (1, 0));
    assert_eq!(bench.acquire(&name, &holder).unwrap(), Acquired::Gone);
    let too_many =
        bench.state.count(&name, Count::Add(i64::from(MOST_PERMITS)), "more", bench.now());
    assert_eq!(too_many.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn the_newest_claim_writes() {
    let mut bench = Bench::new();
    let key = Arc::from("v");
    let now = bench.now();
    let state = &mut bench.state;
    assert_eq!(state.write("v", 5, b"x", now).unwrap(), FenceAnswer::Refused { standing: None });
    assert_eq!(state.claim(&key, 5, now).unwrap(), FenceAnswer::Accepted(None));
    assert_eq!(state.write("v", 5, b"x", now).unwrap(), FenceAnswer::Accepted(None));
    assert_eq!(state.claim(&key, 6, now).unwrap(), FenceAnswer::Accepted(Some(b"x".to_vec())));
    for stale in [state.claim(&key, 5, now), state.write("v", 5, b"y", now)] {
        assert_eq!(stale.unwrap(), FenceAnswer::Refused { standing: Some(6) });
    }
}
