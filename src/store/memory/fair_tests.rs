use super::*;
use crate::store::memory::tests::{Bench, LEASE, PLACE};

fn told(waiter: &Holder) -> Released {
    let next = NextUp { holder: waiter.as_str().to_owned(), grant: None };
    Released::Freed { listeners: Some(0), next: Some(next) }
}

#[test]
fn it_goes_to_whoever_came_first() {
    let mut bench = Bench::new();
    let name = bench.name("n", Kind::Fair);
    let holder = bench.granted(&name);
    let first = bench.holder();
    let second = bench.holder();
    let mut news = [true, true, false].into_iter();
    for waiter in [&first, &second, &first] {
        let busy = bench.wait(&name, waiter, Waiting::Yes).unwrap();
        let ttl = Some(PLACE / 3);
        assert_eq!(busy, Acquired::Queued { ttl, is_new: news.next().unwrap() });
    }
    assert_eq!(bench.state.queue_of(&name.key, bench.client.as_str()), (2, Some(0)));
    assert_eq!(bench.state.queue_of(&name.key, "x"), (2, None));
    assert_eq!(bench.release(&name, &holder), told(&first));
    assert!(matches!(bench.wait(&name, &second, Waiting::Yes), Ok(Acquired::Queued { .. })));
    assert!(
        matches!(bench.acquire(&name, &bench.holder()), Ok(Acquired::Busy { .. })),
        "nor one who does not wait"
    );
    let Ok(Acquired::Granted(granted)) = bench.wait(&name, &first, Waiting::Yes) else { panic!() };
    assert_eq!(granted.next.as_deref(), Some(second.as_str()));
    assert_eq!(bench.release(&name, &second), Released::NotHeld, "one who only waited leaves");
    assert!(bench.state.queues.is_empty());
}

#[test]
fn a_waiter_that_does_not_try_again_loses_its_place() {
    let mut bench = Bench::new();
    let name = bench.name("n", Kind::Fair);
    let holder = bench.granted(&name);
    let dead = bench.holder();
    let alive = bench.holder();
    bench.wait(&name, &dead, Waiting::Yes).unwrap();
    bench.clock.advance(PLACE / 2);
    bench.wait(&name, &alive, Waiting::Yes).unwrap();
    bench.clock.advance(PLACE / 2);
    assert_eq!(bench.release(&name, &holder), told(&alive));
    // It is alive after all: nobody of another client came before it, and the waiters behind it
    // are younger.
    assert!(matches!(bench.wait(&name, &dead, Waiting::Again), Ok(Acquired::Granted(_))));
}

#[test]
fn time_that_passed_for_everybody_costs_nobody_a_place() {
    let mut bench = Bench::new();
    let name = bench.name("n", Kind::Fair);
    bench.granted(&name);
    let first = bench.holder();
    let second = bench.holder();
    for waiter in [&first, &second] {
        bench.wait(&name, waiter, Waiting::Yes).unwrap();
    }
    bench.clock.advance(LEASE + PLACE);
    assert!(matches!(bench.wait(&name, &second, Waiting::Again), Ok(Acquired::Queued { .. })));
    assert!(matches!(bench.wait(&name, &first, Waiting::Again), Ok(Acquired::Granted(_))));
}
#[test]
fn a_release_gives_it_to_the_first_waiter_for_the_time_of_its_place() {
    let mut bench = Bench::new();
    let name = bench.name("n", Kind::Fair);
    let holder = bench.granted(&name);
    let (first, second) = (bench.holder(), bench.holder());
    for waiter in [&first, &second] {
        bench.wait_with(&name, waiter, Waiting::Yes, SHORTEST_GRANT).unwrap();
    }
    bench.clock.advance(LEASE / 2);
    let next = NextUp { holder: first.as_str().to_owned(), grant: Some(0) };
    let given = Released::Freed { listeners: Some(0), next: Some(next) };
    assert_eq!(bench.release(&name, &holder), given);
    let status = bench.state.inspect(&name.key, bench.now()).unwrap().unwrap();
    assert_eq!(
        (status.holders, status.ttl),
        (vec![(first.as_str().to_owned(), 1)], Some(SHORTEST_GRANT)),
        "from the release, and not from the last request"
    );
    let busy = bench.wait_with(&name, &second, Waiting::Again, SHORTEST_GRANT).unwrap();
    assert!(matches!(busy, Acquired::Queued { is_new: false, .. }));
    // It asks all the same, and then it has its own lease.
    assert!(matches!(bench.acquire(&name, &first), Ok(Acquired::Granted(_))));
    let status = bench.state.inspect(&name.key, bench.now()).unwrap().unwrap();
    assert_eq!(status.ttl, Some(LEASE));
}
