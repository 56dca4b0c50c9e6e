//! Lists of a store's contents, and the inspection of one name.

mod announced;
mod elsewhere;
mod on_redis;

use std::thread;
use std::time::Duration;

use leasehold::observe::{LockReport, LockSummary};
use leasehold::{Builder, LockClient, Primitive};

use crate::rig::{CAP, wait_until};

/// Long enough that no test can pass because a lease ended.
const LONG: Duration = Duration::from_secs(120);

/// The information that a store can provide.
#[derive(Clone, Copy)]
struct Says {
    /// A fair lock is shown as one, and a plain number is shown with its kind.
    kinds: bool,
    /// Counts without holders are listed.
    counts: bool,
    /// The end of each lease.
    leases: bool,
    /// The last fencing token that was issued.
    tokens: bool,
}

const REDIS: Says = Says { kinds: true, counts: false, leases: true, tokens: true };

fn listed(client: &LockClient, pattern: &str) -> Vec<LockSummary> {
    client.locks(pattern).unwrap()
}

fn names(client: &LockClient, pattern: &str) -> Vec<String> {
    listed(client, pattern).iter().map(|lock| lock.name().to_owned()).collect()
}

#[track_caller]
fn report(client: &LockClient, name: &str) -> LockReport {
    client.inspect(name).unwrap().unwrap_or_else(|| panic!("nothing is stored under {name}"))
}

#[track_caller]
fn only(report: &LockReport) -> &LockSummary {
    assert_eq!(report.locks().len(), 1, "{report:#?}");
    &report.locks()[0]
}

/// One client holds something of each kind, and another client inspects it.
#[track_caller]
fn others_see_what_stands(build: impl Fn(Builder) -> LockClient, says: Says) {
    let builder = || LockClient::builder().lease(LONG);
    let (a, b, c) =
        (build(builder().owner("billing-7")), build(builder().owner("cron")), build(builder()));
    assert_eq!(listed(&b, "*"), []);
    assert_eq!(b.inspect("mutex").unwrap(), None);

    let mutex = a.mutex("mutex").lock_owned().unwrap();
    let fair = a.fair("fair").lock_owned().unwrap();
    let write = a.rw_lock("write").write_owned().unwrap();
    let reads = [a.rw_lock("read").read_owned().unwrap(), c.rw_lock("read").read_owned().unwrap()];
    let pair = a.multi(["pair:1", "pair:2"]).lock_owned().unwrap();
    a.semaphore("pool").try_set_permits(5).unwrap();
    let permits = a.semaphore("pool").acquire_many(2).unwrap();
    a.latch("latch").try_set_count(3).unwrap();

    thread::scope(|scope| {
        let waiter = scope.spawn(|| b.fair("fair").lock().unwrap().unlock().unwrap());
        wait_until("it waits", || b.fair("fair").queue_len().unwrap() == 1);
        wait_until("the identity of a is known", || {
            b.mutex("mutex").holder().unwrap().is_some_and(|holder| holder.owner().is_some())
        });

        let expected = [
            ("fair", if says.kinds { Primitive::Fair } else { Primitive::Mutex }, 1),
            ("latch", Primitive::Latch, 0),
            ("mutex", Primitive::Mutex, 1),
            ("pair:1", Primitive::Mutex, 1),
            ("pair:2", Primitive::Mutex, 1),
            ("pool", Primitive::Semaphore, 2),
            ("read", Primitive::Read, 2),
            ("write", Primitive::Write, 1),
        ];
        let found: Vec<_> = listed(&c, "*")
            .iter()
            .map(|lock| (lock.name().to_owned(), lock.primitive(), lock.taken()))
            .collect();
        let expected = expected
            .iter()
            .filter(|(_, primitive, _)| says.counts || *primitive != Primitive::Latch);
        let expected: Vec<_> = expected
            .map(|(name, primitive, taken)| ((*name).to_owned(), *primitive, *taken))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(names(&c, "pair:?"), ["pair:1", "pair:2"]);
        assert_eq!(names(&c, "mutex"), ["mutex"], "a pattern without special characters");
        assert_eq!(names(&c, "[^p]*e"), ["write"]);

        let list = listed(&b, "mutex");
        let holder = &list[0].holders()[0];
        assert_eq!(holder.owner().map(|owner| owner.label()), Some("billing-7"));
        assert!(
            !holder.is_this_client()
                && list[0].to_string().starts_with("\"mutex\" mutex held by billing-7 (pid ")
        );
        assert_eq!(list[0].remaining().is_some_and(|left| left <= LONG), says.leases, "{list:?}");
        assert!(listed(&a, "mutex")[0].holders()[0].is_this_client());

        let seen = report(&c, "fair");
        assert_eq!((only(&seen).waiting(), seen.queue().len()), (Some(1), 1));
        let place = &seen.queue()[0];
        assert!(place.id().starts_with(b.id()) && !place.is_this_client(), "{place:?}");
        assert_eq!(place.remaining().is_some(), says.leases);
        assert!(seen.to_string().contains("1 wait\n    1. "), "{seen}");
        assert!(report(&b, "fair").queue()[0].is_this_client());

        let seen = report(&b, "mutex");
        assert_eq!(seen.last_token().is_some(), says.tokens, "{seen:?}");
        if says.tokens {
            assert_eq!(seen.last_token(), Some(mutex.fencing_token().unwrap()));
        }
        let seen = report(&c, "read");
        assert_eq!(
            only(&seen).holders().iter().filter(|reader| reader.is_this_client()).count(),
            1
        );
        assert!(seen.to_string().contains("billing-7 (pid "), "{seen}");

        let seen = report(&b, "pool");
        assert_eq!(
            (only(&seen).number(), only(&seen).taken(), only(&seen).holders().len()),
            (Some(3), 2, 1)
        );
        assert!(only(&report(&a, "pool")).holders()[0].is_this_client(), "its own permits");
        assert!(seen.to_string().contains("3 free, 2 taken"), "{seen}");
        let seen = report(&b, "latch");
        let count = if says.counts { only(&seen).number() } else { seen.number() };
        assert_eq!(count, Some(3), "{seen:?}");

        fair.unlock().unwrap();
        waiter.join().unwrap();
    });
    let id = only(&report(&b, "pool")).holders()[0].id().to_owned();
    let forgotten = permits.forget();
    assert_eq!(forgotten.to_string(), format!("{id}:2"));
    a.semaphore("pool").release(&forgotten).unwrap();
    a.semaphore("pool").delete().unwrap();
    a.latch("latch").delete().unwrap();
    mutex.unlock().unwrap();
    write.unlock().unwrap();
    for read in reads {
        read.unlock().unwrap();
    }
    pair.unlock().unwrap();
    assert_eq!(listed(&b, "*"), []);
    for client in [a, b, c] {
        client.close(CAP).unwrap();
    }
}
