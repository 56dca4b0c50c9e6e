//! For each kind of request, the reply is lost at every byte that a reply of its form has: nothing
//! is left that the caller does not know of, even if the backend is still running.

use std::time::Duration;

use leasehold::{ErrorKind, LockClient, Result};

use super::server;
use crate::rig::Postgres;
use crate::rig::{Fault, Proxy, ms, wait_until};
use crate::support::Clients;

/// Long enough that no test passes because a lease ended.
const LONG: Duration = Duration::from_secs(600);
const NAME: &str = "job";

/// A server, and clients with and without a proxy.
struct Bench<'s> {
    server: &'s Postgres,
    proxy: Proxy,
    direct: LockClient,
    lossy: LockClient,
}

/// Injects the loss of the reply into the next request that contains the name.
type Arm<'a> = &'a dyn Fn();

impl<'s> Bench<'s> {
    fn new(server: &'s Postgres) -> Self {
        let patient =
            |builder: leasehold::Builder| builder.lease(LONG).io_timeout(ms(4000)).build().unwrap();
        let proxy = Proxy::before_postgres(server);
        let lossy = patient(LockClient::builder().url(proxy.url()).client_name("lossy"));
        Self { server, proxy, direct: patient(server.builder()), lossy }
    }

    /// `ask` arms the fault, makes one call and returns its outcome; `check` verifies the result.
    fn at_every_byte(
        &self,
        what: &str,
        ask: impl Fn(&LockClient, Arm<'_>) -> Result<()>,
        check: impl Fn(&Result<()>),
    ) {
        self.at_each(1, what, ask, check);
    }

    /// The same for a reply that resembles another one: at each third byte, and in the next run at
    /// others.
    fn at_some_bytes(
        &self,
        what: &str,
        ask: impl Fn(&LockClient, Arm<'_>) -> Result<()>,
        check: impl Fn(&Result<()>),
    ) {
        self.at_each(3, what, ask, check);
    }

    fn at_each(
        &self,
        step: usize,
        what: &str,
        ask: impl Fn(&LockClient, Arm<'_>) -> Result<()>,
        check: impl Fn(&Result<()>),
    ) {
        let mut db = self.server.connect();
        let mut held = || -> i64 {
            let sql = "SELECT (SELECT count(*) FROM leasehold.lock WHERE holder IS NOT NULL) + \
                       (SELECT count(*) FROM leasehold.share) + (SELECT count(*) FROM leasehold.waiter) + \
                       (SELECT count(*) FROM leasehold.lock WHERE barred > clock_timestamp())";
            db.query_one(sql, &[]).unwrap().get(0)
        };
        for (turn, n) in (rand::random_range(0..step)..).step_by(step).enumerate() {
            self.proxy.keep_backends(turn % 2 == 0);
            let hits = self.proxy.hits();
            let outcome = ask(&self.lossy, &|| self.proxy.inject(NAME, Fault::CutReplyAt(n)));
            let story = format!("{what}, {n} bytes of the reply: {outcome:?}");
            assert_eq!(self.proxy.hits(), hits + 1, "{story}: the fault was elsewhere");
            if let Err(error) = &outcome {
                assert!(
                    matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Protocol),
                    "{story}"
                );
            }
            wait_until(&format!("{story} leaves nothing"), || held() == 0);
            check(&outcome);
            if turn % 16 == 0 {
                // No backend had to be ended: nothing that it may have done had to be undone.
                self.proxy.cut_all();
            }
            if n >= self.proxy.reply_length() {
                assert!(outcome.is_ok(), "{story}: all of it has arrived");
                // Not the reply to what undoes the turn before.
                assert!(n > 20, "{story}: a reply is longer");
                break;
            }
        }
        self.proxy.keep_backends(false);
    }

    /// Checks that another client can acquire the lock of this kind.
    fn is_free(&self) {
        let locks = self.direct.multi([NAME, "too"]);
        locks.try_lock().unwrap().expect("free").unlock().unwrap();
    }

    fn end(self) {
        let Self { server, proxy, direct, lossy } = self;
        drop((direct, lossy));
        // No backend had to be ended: its reply had arrived to its last byte.
        drop(proxy);
        server.assert_clean();
    }
}

/// Releases what was acquired despite the fault. If the whole reply arrived, the connection ends
/// slightly later, and the release may be sent over it.
fn left(outcome: Result<()>) {
    if let Err(error) = outcome {
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Protocol), "{error:?}");
    }
}

#[test]
fn of_plain_locks() {
    let server = server!();
    let bench = Bench::new(&server);
    let check = |_: &Result<()>| bench.is_free();
    bench.at_every_byte(
        "acquire",
        |client, arm| {
            arm();
            client.try_lock(NAME).map(|guard| left(guard.expect("no other client has it").unlock()))
        },
        check,
    );
    bench.at_every_byte(
        "release",
        |client, arm| {
            let guard = client.lock(NAME)?;
            arm();
            guard.unlock()
        },
        check,
    );
    bench.at_some_bytes(
        "re-entry",
        |client, arm| {
            let outer = client.lock(NAME)?;
            arm();
            let outcome = client.lock(NAME).map(drop);
            assert!(outer.is_held());
            left(outer.unlock());
            outcome
        },
        check,
    );
    bench.at_some_bytes(
        "inner release",
        |client, arm| {
            let (outer, inner) = (client.lock(NAME)?, client.lock(NAME)?);
            arm();
            let outcome = inner.unlock();
            assert!(outer.is_held() && outer.hold_count() == 1);
            left(outer.unlock());
            outcome
        },
        check,
    );
    bench.at_some_bytes(
        "extension",
        |client, arm| {
            let guard = client.lock(NAME)?;
            arm();
            let outcome = guard.extend(LONG * 2);
            assert!(guard.is_held());
            left(guard.unlock());
            outcome
        },
        check,
    );
    bench.end();
}

#[test]
fn of_fair_locks() {
    let server = server!();
    let bench = Bench::new(&server);
    let check = |_: &Result<()>| bench.is_free();
    bench.at_every_byte(
        "fair acquire",
        |client, arm| {
            arm();
            client
                .fair(NAME)
                .try_lock()
                .map(|guard| left(guard.expect("no other client has it").unlock()))
        },
        check,
    );
    bench.at_some_bytes(
        "fair release",
        |client, arm| {
            let guard = client.fair(NAME).lock()?;
            arm();
            guard.unlock()
        },
        check,
    );
    // The reply that confirms the queue entry. The call asks again until its timeout.
    bench.at_some_bytes(
        "queue entry",
        |client, arm| {
            let guard = bench.direct.fair(NAME).lock().unwrap();
            arm();
            let outcome = client.fair(NAME).try_lock_for(ms(40)).map(|won| assert!(won.is_none()));
            guard.unlock().unwrap();
            outcome
        },
        check,
    );
    bench.end();
}

#[test]
fn of_read_write_locks() {
    let server = server!();
    let bench = Bench::new(&server);
    let check = |_: &Result<()>| {
        let lock = bench.direct.rw_lock(NAME);
        lock.try_write().unwrap().expect("free").unlock().unwrap();
    };
    bench.at_every_byte(
        "read",
        |client, arm| {
            arm();
            client
                .rw_lock(NAME)
                .try_read()
                .map(|guard| left(guard.expect("no other client has it").unlock()))
        },
        check,
    );
    bench.at_some_bytes(
        "write",
        |client, arm| {
            arm();
            client
                .rw_lock(NAME)
                .try_write()
                .map(|guard| left(guard.expect("no other client has it").unlock()))
        },
        check,
    );
    for writes in [false, true] {
        bench.at_some_bytes(
            "release",
            |client, arm| {
                if writes {
                    let guard = client.rw_lock(NAME).write()?;
                    arm();
                    return guard.unlock();
                }
                let guard = client.rw_lock(NAME).read()?;
                arm();
                guard.unlock()
            },
            check,
        );
    }
    bench.at_some_bytes(
        "downgrade",
        |client, arm| {
            let guard = client.rw_lock(NAME).write()?;
            arm();
            guard.downgrade().map(|guard| {
                assert!(guard.is_held());
                left(guard.unlock());
            })
        },
        check,
    );
    // A waiting writer keeps readers out until it has given up.
    bench.at_some_bytes(
        "marker of a waiting writer",
        |client, arm| {
            let guard = bench.direct.rw_lock(NAME).read().unwrap();
            arm();
            let outcome =
                client.rw_lock(NAME).try_write_for(ms(40)).map(|won| assert!(won.is_none()));
            wait_until("readers get in", || {
                bench.direct.rw_lock(NAME).try_read().unwrap().is_some()
            });
            guard.unlock().unwrap();
            outcome
        },
        check,
    );
    bench.end();
}

#[test]
fn of_several_locks_and_permits() {
    let server = server!();
    let bench = Bench::new(&server);
    let check = |_: &Result<()>| bench.is_free();
    bench.at_every_byte(
        "several locks",
        |client, arm| {
            arm();
            client
                .multi([NAME, "too"])
                .try_lock()
                .map(|guard| left(guard.expect("no other client has them").unlock()))
        },
        check,
    );
    bench.at_some_bytes(
        "release of several",
        |client, arm| {
            let guard = client.multi([NAME, "too"]).lock()?;
            arm();
            guard.unlock()
        },
        check,
    );
    server.run_sql("DELETE FROM leasehold.lock");
    bench.direct.semaphore(NAME).try_set_permits(3).unwrap();
    let check =
        |_: &Result<()>| assert_eq!(bench.direct.semaphore(NAME).available_permits().unwrap(), 3);
    bench.at_every_byte(
        "permits",
        |client, arm| {
            arm();
            client
                .semaphore(NAME)
                .try_acquire_many(2)
                .map(|guard| left(guard.expect("all are free").release()))
        },
        check,
    );
    bench.at_some_bytes(
        "release of permits",
        |client, arm| {
            let guard = client.semaphore(NAME).acquire_many(2)?;
            arm();
            guard.release()
        },
        check,
    );
    bench.end();
}

/// A change of a count happens once or, if its caller received an error, once or not at all.
#[test]
fn of_counts() {
    let server = server!();
    let bench = Bench::new(&server);
    let counting = bench.direct.counting_semaphore(NAME);
    counting.try_set_permits(3).unwrap();
    let check = |_: &Result<()>| {
        wait_until("all permits are back", || counting.available_permits().unwrap() == 3);
    };
    bench.at_some_bytes(
        "permits without leases",
        |client, arm| {
            arm();
            client
                .counting_semaphore(NAME)
                .try_acquire_many(2)
                .map(|guard| drop(guard.expect("all are free")))
        },
        check,
    );
    bench.at_some_bytes(
        "return of permits",
        |client, arm| {
            let guard = client.counting_semaphore(NAME).acquire_many(2)?;
            arm();
            guard.release()
        },
        check,
    );
    let before = std::cell::Cell::new(3);
    bench.at_some_bytes(
        "more permits",
        |client, arm| {
            arm();
            client
                .counting_semaphore(NAME)
                .add_permits(2)
                .map(|free| assert_eq!(free, before.get() + 2))
        },
        |outcome| {
            let (now, was) = (counting.available_permits().unwrap(), before.get());
            assert!(
                now == was + 2 || (outcome.is_err() && now == was),
                "{now} after {was}: {outcome:?}"
            );
            before.set(now);
        },
    );
    assert!(counting.delete().unwrap());
    let latch = bench.direct.latch(NAME);
    latch.set_count(1000).unwrap();
    let before = std::cell::Cell::new(1000);
    bench.at_some_bytes(
        "count down",
        |client, arm| {
            arm();
            client.latch(NAME).count_down().map(|left| assert_eq!(left, before.get() - 1))
        },
        |outcome| {
            let (now, was) = (latch.count().unwrap(), before.get());
            assert!(
                now == was - 1 || (outcome.is_err() && now == was),
                "{now} after {was}: {outcome:?}"
            );
            before.set(now);
        },
    );
    bench.at_some_bytes(
        "a new latch",
        |client, arm| {
            latch.delete().unwrap();
            arm();
            client.latch(NAME).try_set_count(7).map(|set| assert!(set))
        },
        |outcome| assert!(outcome.is_err() || latch.count().unwrap() == 7),
    );
    latch.delete().unwrap();
    drop((latch, counting));
    bench.end();
}

/// Requests of several threads are sent in one write, acquires in one transaction.
#[test]
fn of_batches() {
    let server = server!();
    let proxy = Proxy::before_postgres(&server);
    let url = proxy.url();
    let client = LockClient::builder()
        .url(url)
        .connections(1)
        .lease(LONG)
        .io_timeout(ms(4000))
        .build()
        .unwrap();
    let mut longest = 0;
    for n in (0..420).step_by(4) {
        proxy.keep_backends(n % 8 == 0);
        proxy.inject("own-5", Fault::CutReplyAt(n));
        std::thread::scope(|s| {
            let asks: Vec<_> = (0..10)
                .map(|thread| {
                    let client = &client;
                    s.spawn(move || -> Result<()> {
                        let guard = client
                            .try_lock(format!("own-{thread}"))?
                            .expect("no other client has it");
                        assert!(guard.is_held());
                        guard.unlock()
                    })
                })
                .collect();
            for outcome in asks.into_iter().map(|ask| ask.join().unwrap()) {
                outcome.unwrap_or_else(|error| panic!("{n}: it is repeated: {error:?}"));
            }
        });
        assert!(!proxy.disarm(), "{n}: the fault has happened");
        longest = longest.max(proxy.reply_length());
        wait_until(&format!("{n} leaves nothing"), || server.held().is_empty());
        server
            .texts("SELECT name FROM leasehold.lock")
            .iter()
            .for_each(|name| assert!(name.starts_with("own-")));
    }
    assert!(longest > 150, "several were sent together: {longest} bytes");
    drop((client, proxy));
    server.assert_clean();
}

/// A release and the acquire of the next thread in one write: one of the two replies is lost.
#[test]
fn of_a_hand_over() {
    let server = server!();
    let proxy = Proxy::before_postgres(&server);
    let client =
        LockClient::builder().url(proxy.url()).lease(LONG).io_timeout(ms(4000)).build().unwrap();
    let direct = server.client();
    for fair in [false, true] {
        for lost in [0, 1] {
            // At each third byte, and in the next run at others.
            let mut n = rand::random_range(0..3);
            loop {
                proxy.keep_backends(n % 2 == 0);
                let hits = proxy.hits();
                std::thread::scope(|s| {
                    // A different lease, so that the hold cannot be passed on without a request.
                    let guard: Box<dyn FnOnce() -> Result<()>> = if fair {
                        let guard = client.fair(NAME).lock().unwrap();
                        Box::new(move || guard.unlock())
                    } else {
                        let guard = client.mutex(NAME).with_lease(LONG * 2).lock().unwrap();
                        Box::new(move || guard.unlock())
                    };
                    let waits = s.spawn(|| {
                        if fair {
                            client.fair(NAME).lock().map(|guard| assert!(guard.is_held()))
                        } else {
                            client.lock(NAME).map(|guard| assert!(guard.is_held()))
                        }
                    });
                    if fair {
                        let sql = "SELECT count(*) FROM leasehold.waiter";
                        wait_until("it waits", || server.number_of(sql) > 0);
                    }
                    // It has left its acquire for the thread that releases.
                    std::thread::sleep(ms(10));
                    proxy.inject_after(NAME, lost, Fault::CutReplyAt(n));
                    if let Err(error) = guard() {
                        assert!(
                            matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Protocol),
                            "{n}: {error:?}"
                        );
                    }
                    // It had not received any reply before.
                    if let Err(error) = waits.join().unwrap() {
                        assert!(
                            matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Protocol),
                            "{n}: {error:?}"
                        );
                    }
                });
                proxy.disarm();
                let story = format!("fair: {fair}, reply {lost} lost at {n}");
                wait_until(&format!("{story} leaves nothing"), || server.held().is_empty());
                direct.multi([NAME]).try_lock().unwrap().expect(&story).unlock().unwrap();
                server.run_sql("UPDATE leasehold.lock SET wants = NULL");
                if proxy.hits() > hits && n >= proxy.reply_length() {
                    break;
                }
                n += 3;
            }
            assert!(n > 20, "{n}");
        }
    }
    drop((client, direct, proxy));
    server.assert_clean();
}

/// The lock is free then, and was given back without a message, because the next thread was about
/// to get it: whoever undoes that thread's request tells the waiters of other clients.
#[test]
fn of_a_hand_over_that_only_gave_back_wakes_the_others() {
    let server = server!();
    let proxy = Proxy::before_postgres(&server);
    // One connection, so that the next thread cannot repeat its request over another.
    let client = LockClient::builder().url(proxy.url()).lease(LONG).connections(1);
    let client = client.outage_timeout(ms(300)).build().unwrap();
    let other = server.client();
    std::thread::scope(|s| {
        let guard = client.mutex(NAME).with_lease(LONG * 2).lock().unwrap();
        let waits = s.spawn(|| other.lock(NAME).unwrap().unlock().unwrap());
        wait_until("another client waits", || {
            server.number_of("SELECT count(*) FROM leasehold.lock WHERE wants IS NOT NULL") > 0
        });
        let next = s.spawn(|| client.lock(NAME).map(drop));
        // It has left its acquire for the thread that releases.
        wait_until("the next thread waits", || client.snapshot().waits().len() == 1);
        std::thread::sleep(ms(500));
        let hits = proxy.hits();
        proxy.refuse(true);
        proxy.inject_after(NAME, 1, Fault::CutBeforeSend);
        guard.unlock().unwrap();
        let next = next.join().unwrap();
        assert!(proxy.hits() > hits, "the release alone was handed on: {next:?}");
        assert_eq!(next.unwrap_err().kind(), ErrorKind::Unreachable);
        proxy.refuse(false);
        wait_until("the other client was told", || waits.is_finished());
    });
    drop((client, other, proxy));
    server.assert_clean();
}

/// Sent once: either it has freed the lock, or its caller is told that it may have.
#[test]
fn of_force() {
    let server = server!();
    let bench = Bench::new(&server);
    bench.at_some_bytes(
        "force",
        |client, arm| {
            let guard = bench.direct.lock(NAME).unwrap();
            arm();
            let outcome = client.mutex(NAME).force_unlock().map(|freed| assert!(freed));
            wait_until("it was freed", || server.held().is_empty());
            assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
            outcome
        },
        |_| bench.is_free(),
    );
    bench.end();
}
