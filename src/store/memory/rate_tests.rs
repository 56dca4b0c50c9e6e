use std::sync::Arc;

use super::*;
use crate::base::error::ErrorKind;
use crate::base::holder::Holder;
use crate::base::lock_name::Kind;
use crate::store::memory::tests::{Bench, SECOND};

struct Table {
    bench: Bench,
    name: Arc<LockName>,
}

impl Table {
    fn new() -> Self {
        let bench = Bench::new();
        let name = bench.name("n", Kind::RateLimiter);
        Self { bench, name }
    }

    fn change(&mut self, change: RateChange, id: &str) -> Result<bool> {
        let now = self.bench.now();
        self.bench.state.change_rate(&self.name, change, id, now)
    }

    fn take(&mut self, permits: u32) -> (Acquired, Holder) {
        let holder = Holder::random_permits();
        (self.bench.acquire_permits(&self.name, &holder, permits).unwrap(), holder)
    }

    fn free(&mut self) -> i64 {
        let now = self.bench.now();
        self.bench.state.rate_of(&self.name, now).unwrap().expect("a limiter").1
    }
}

fn three() -> Rate {
    Rate { permits: 3, per: SECOND }
}

#[test]
fn permits_come_back_when_their_interval_is_over() {
    let mut table = Table::new();
    assert_eq!(table.take(1).0, Acquired::TooFew { permits: 0 });
    assert!(table.change(RateChange::Set(three()), "set").unwrap());
    assert_eq!(table.take(4).0, Acquired::TooFew { permits: 3 });
    assert!(matches!(table.take(2).0, Acquired::Granted(_)));
    table.bench.clock.advance(SECOND / 4);
    assert!(matches!(table.take(1).0, Acquired::Granted(_)));
    let busy = |ttl| Acquired::Busy { ttl: Some(ttl) };
    assert_eq!((table.take(1).0, table.take(3).0), (busy(SECOND * 3 / 4), busy(SECOND)));
    table.bench.clock.advance(SECOND * 3 / 4);
    assert_eq!(table.free(), 2);
    assert_eq!(table.take(3).0, busy(SECOND / 4));
}

#[test]
fn a_repeat_takes_nothing_and_an_undo_frees_its_own_permits() {
    let mut table = Table::new();
    table.change(RateChange::Set(three()), "set").unwrap();
    let (_, holder) = table.take(2);
    table.bench.clock.advance(SECOND / 2);
    table.bench.acquire_permits(&table.name, &holder, 2).unwrap();
    table.bench.clock.advance(SECOND / 2);
    assert_eq!(table.free(), 1, "its interval began anew");
    assert!(matches!(table.bench.release(&table.name, &holder), Released::Freed { .. }));
    assert_eq!(table.bench.release(&table.name, &holder), Released::NotHeld);
    assert_eq!(table.free(), 3);
    assert!(matches!(table.take(3).0, Acquired::Granted(_)));
    table.bench.clock.advance(SECOND);
    assert_eq!(table.free(), 3);
}

#[test]
fn a_change_counts_once() {
    let mut table = Table::new();
    assert!(!table.change(RateChange::Delete, "none").unwrap());
    assert!(table.change(RateChange::Set(three()), "set").unwrap());
    table.take(1);
    assert!(table.change(RateChange::Set(three()), "set").unwrap(), "a repeat");
    assert!(!table.change(RateChange::Set(three()), "other").unwrap());
    assert_eq!(table.free(), 2);
    for _ in 0..2 {
        assert!(table.change(RateChange::Replace(three()), "anew").unwrap());
        assert_eq!(table.free(), 3);
    }
    table.take(1);
    assert!(table.change(RateChange::Replace(three()), "anew").unwrap(), "a repeat");
    assert_eq!(table.free(), 2);
    assert!(table.change(RateChange::Delete, "gone").unwrap());
    let lock = table.bench.name("n", Kind::Mutex);
    table.bench.granted(&lock);
    let refused = table.change(RateChange::Replace(three()), "lock").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongType);
}
