use super::*;
use crate::store::memory::tests::{Bench, LEASE, PLACE};
use std::sync::Arc;

const READ: HoldCounts = HoldCounts { main: 0, reads: 1 };

#[test]
fn readers_share_and_writers_do_not() {
    let mut bench = Bench::new();
    let read = bench.name("n", Kind::Read);
    let write = bench.name("n", Kind::Write);
    let one = bench.granted(&read);
    let other = bench.granted(&read);
    let writer = bench.holder();
    assert_eq!(bench.acquire(&write, &writer).unwrap(), Acquired::Busy { ttl: Some(LEASE) });
    assert!(matches!(bench.reenter(&read, &one, 1), Ok(Acquired::Granted(_))));
    assert_eq!(bench.release_to(&read, &one, READ), Released::StillHeld);
    assert_eq!(bench.release(&read, &one), Released::StillHeld, "the other reads");
    assert!(matches!(bench.release(&read, &other), Released::Freed { .. }));
    assert!(
        matches!(bench.acquire(&write, &writer), Ok(Acquired::Granted(granted)) if granted.token > 0)
    );
    assert_eq!(bench.acquire(&read, &one).unwrap(), Acquired::Busy { ttl: Some(LEASE) });
    let (_, holders) =
        bench.state.typed(&read.key, bench.now(), Entry::read_write).unwrap().unwrap().holders();
    assert_eq!(holders, [(format!("{}:write", writer.as_str()), 1)]);
}

#[test]
fn each_reader_has_its_own_lease() {
    let mut bench = Bench::new();
    let read = bench.name("n", Kind::Read);
    let one = bench.granted(&read);
    bench.clock.advance(LEASE / 2);
    let other = bench.granted(&read);
    bench.clock.advance(LEASE / 2);
    assert_eq!(bench.release(&read, &one), Released::NotHeld);
    assert!(matches!(bench.release(&read, &other), Released::Freed { .. }));
}

#[test]
fn a_writer_downgrades() {
    let mut bench = Bench::new();
    let read = bench.name("n", Kind::Read);
    let write = bench.name("n", Kind::Write);
    let writer = bench.granted(&write);
    assert!(matches!(bench.release_to(&write, &writer, READ), Released::Freed { .. }));
    assert_eq!(bench.release_to(&write, &writer, READ), Released::StillHeld, "a repeat");
    let reader = bench.granted(&read);
    assert_eq!(bench.release(&write, &writer), Released::StillHeld);
    assert!(matches!(bench.release(&read, &reader), Released::Freed { .. }));
}

#[test]
fn a_waiting_writer_keeps_new_readers_out_until_it_leaves() {
    let mut bench = Bench::new();
    let read = bench.name("n", Kind::Read);
    let write = bench.name("n", Kind::Write);
    let reader = bench.granted(&read);
    let writer = bench.holder();
    let hint = Acquired::Busy { ttl: Some(PLACE / 3) };
    assert_eq!(bench.wait(&write, &writer, Waiting::Yes).unwrap(), hint);
    let other = bench.holder();
    assert_eq!(bench.acquire(&read, &other).unwrap(), Acquired::Busy { ttl: Some(PLACE) });
    assert!(
        matches!(bench.reenter(&read, &reader, 1), Ok(Acquired::Granted(_))),
        "those who read go on"
    );
    assert_eq!(bench.release(&write, &writer), Released::NotHeld);
    assert!(matches!(bench.acquire(&read, &other), Ok(Acquired::Granted(_))));
    bench.wait(&write, &writer, Waiting::Yes).unwrap();
    bench.clock.advance(PLACE);
    assert!(
        matches!(bench.acquire(&read, &bench.holder()), Ok(Acquired::Granted(_))),
        "or until it is dead"
    );
    assert_eq!(
        bench.reenter(&Arc::new(read.of_kind(Kind::Write)), &reader, 1).unwrap(),
        Acquired::Gone
    );
}
