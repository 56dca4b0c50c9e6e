//! For each kind of request, the reply is lost at every byte that it has: nothing is left that the
//! caller does not know of, even if the session is still running.

use std::time::Duration;

use leasehold::{ErrorKind, LockClient, Result};

use crate::rig::{Fault, Mysql, Proxy, ms, wait_until};
use crate::support::Clients;

/// Long enough that no test passes because a lease ended.
const LONG: Duration = Duration::from_secs(600);
const NAME: &str = "job";

struct Bench {
    server: Mysql,
    proxy: Proxy,
    direct: LockClient,
    lossy: LockClient,
}

/// Injects the loss of the reply into the next request that contains the name.
type Arm<'a> = &'a dyn Fn();

impl Bench {
    fn new() -> Self {
        let server = Mysql::shared();
        let patient =
            |builder: leasehold::Builder| builder.lease(LONG).io_timeout(ms(4000)).build().unwrap();
        let proxy = Proxy::before_mysql(&server);
        let direct = patient(server.builder());
        let lossy = patient(LockClient::builder().url(proxy.url()));
        // The row of the name is made, so that an acquire is one request.
        direct.lock(NAME).unwrap().unlock().unwrap();
        Self { server, proxy, direct, lossy }
    }

    /// `ask` arms the fault, makes one call and returns its outcome.
    fn at_every_byte(&self, what: &str, ask: impl Fn(&LockClient, Arm<'_>) -> Result<()>) {
        let is_free = |client: &LockClient| {
            client.try_lock(NAME).unwrap().expect("free").unlock().unwrap();
        };
        self.at_every_byte_of(what, is_free, ask);
    }

    /// `is_free`: what another client finds afterwards.
    fn at_every_byte_of(
        &self,
        what: &str,
        is_free: impl Fn(&LockClient),
        ask: impl Fn(&LockClient, Arm<'_>) -> Result<()>,
    ) {
        for n in 0.. {
            // Every second time the session goes on at the server.
            self.proxy.keep_backends(n % 2 == 0);
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
            wait_until(&format!("{story} leaves nothing"), || self.server.held().is_empty());
            is_free(&self.direct);
            if n % 8 == 0 {
                self.proxy.cut_all();
            }
            if n >= self.proxy.reply_length() {
                assert!(outcome.is_ok(), "{story}: all of it has arrived");
                // Not the reply to what undoes the turn before.
                assert!(n > 8, "{story}: a reply is longer");
                break;
            }
        }
        self.proxy.keep_backends(false);
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
fn of_acquires_and_releases() {
    let bench = Bench::new();
    bench.at_every_byte("acquire", |client, arm| {
        arm();
        client.try_lock(NAME).map(|guard| left(guard.expect("no other client has it").unlock()))
    });
    bench.at_every_byte("release", |client, arm| {
        let guard = client.lock(NAME)?;
        arm();
        guard.unlock()
    });
}

#[test]
fn of_reentries_and_extensions() {
    let bench = Bench::new();
    bench.at_every_byte("re-entry", |client, arm| {
        let outer = client.lock(NAME)?;
        arm();
        let outcome = client.lock(NAME).map(drop);
        assert!(outer.is_held());
        left(outer.unlock());
        outcome
    });
    bench.at_every_byte("inner release", |client, arm| {
        let (outer, inner) = (client.lock(NAME)?, client.lock(NAME)?);
        arm();
        let outcome = inner.unlock();
        assert!(outer.is_held() && outer.hold_count() == 1);
        left(outer.unlock());
        outcome
    });
    bench.at_every_byte("extension", |client, arm| {
        let guard = client.lock(NAME)?;
        arm();
        let outcome = guard.extend(LONG * 2);
        assert!(guard.is_held());
        left(guard.unlock());
        outcome
    });
}

#[test]
fn of_readers_and_writers() {
    let bench = Bench::new();
    bench.at_every_byte("read", |client, arm| {
        arm();
        client.rw_lock(NAME).try_read().map(|guard| left(guard.expect("nobody writes").unlock()))
    });
    bench.at_every_byte("write", |client, arm| {
        arm();
        client.rw_lock(NAME).try_write().map(|guard| left(guard.expect("it is free").unlock()))
    });
    bench.at_every_byte("read again", |client, arm| {
        let outer = client.rw_lock(NAME).read()?;
        arm();
        let outcome = client.rw_lock(NAME).read().map(drop);
        assert!(outer.is_held());
        left(outer.unlock());
        outcome
    });
    bench.at_every_byte("extension of a read hold", |client, arm| {
        let guard = client.rw_lock(NAME).read()?;
        arm();
        let outcome = guard.extend(LONG * 2);
        assert!(guard.is_held());
        left(guard.unlock());
        outcome
    });
}

#[test]
fn of_releases_of_readers_and_writers() {
    let bench = Bench::new();
    bench.at_every_byte("read release", |client, arm| {
        let guard = client.rw_lock(NAME).read()?;
        arm();
        guard.unlock()
    });
    bench.at_every_byte("write release", |client, arm| {
        let guard = client.rw_lock(NAME).write()?;
        arm();
        guard.unlock()
    });
    bench.at_every_byte("downgrade", |client, arm| {
        let guard = client.rw_lock(NAME).write()?;
        arm();
        guard.downgrade().map(|guard| left(guard.unlock()))
    });
}

#[test]
fn of_permits() {
    let bench = Bench::new();
    let pool = bench.direct.semaphore(NAME);
    assert_eq!(pool.try_set_permits(2).unwrap(), leasehold::SetPermits::New);
    let is_free = |client: &LockClient| {
        assert_eq!(client.semaphore(NAME).available_permits().unwrap(), 2);
    };
    bench.at_every_byte_of("permits", is_free, |client, arm| {
        arm();
        client.semaphore(NAME).try_acquire_many(2).map(|all| left(all.expect("free").release()))
    });
    bench.at_every_byte_of("permits given back", is_free, |client, arm| {
        let permits = client.semaphore(NAME).acquire_many(2)?;
        arm();
        permits.release()
    });
}

/// A change is repeated by the call itself, and counts once.
#[test]
fn of_the_number_of_permits() {
    let bench = Bench::new();
    let pool = bench.direct.semaphore(NAME);
    assert_eq!(pool.try_set_permits(1).unwrap(), leasehold::SetPermits::New);
    let total = std::cell::Cell::new(1);
    let is_free = |client: &LockClient| {
        assert_eq!(client.semaphore(NAME).available_permits().unwrap(), total.get());
    };
    bench.at_every_byte_of("more permits", is_free, |client, arm| {
        arm();
        total.set(total.get() + 1);
        client.semaphore(NAME).add_permits(1).map(|free| assert_eq!(free, total.get()))
    });
    // The same request, with other statements in it.
    for n in [0, 9, 40, 100, 300] {
        bench.proxy.keep_backends(n != 40);
        let pool = bench.lossy.semaphore(NAME);
        bench.proxy.inject(NAME, Fault::CutReplyAt(n));
        assert!(pool.delete().unwrap(), "{n} bytes");
        bench.proxy.inject(NAME, Fault::CutReplyAt(n));
        assert!(pool.try_set_permits(3).unwrap().is_new(), "{n} bytes");
    }
}

#[test]
fn of_several_locks_as_one() {
    let bench = Bench::new();
    let both = [NAME, "job-too"];
    bench.direct.multi(both).lock().unwrap().unlock().unwrap();
    bench.at_every_byte("several locks", |client, arm| {
        arm();
        client.multi(both).try_lock().map(|guard| left(guard.expect("free").unlock()))
    });
    bench.at_every_byte("several locks again", |client, arm| {
        let outer = client.multi(both).lock()?;
        arm();
        let outcome = client.multi(both).lock().map(drop);
        assert!(outer.is_held());
        left(outer.unlock());
        outcome
    });
    bench.at_every_byte("release of several locks", |client, arm| {
        let guard = client.multi(both).lock()?;
        arm();
        guard.unlock()
    });
}

/// The name is fenced, so an acquire is a look and an UPDATE of two rows; the fault meets either.
#[test]
fn of_acquires_of_a_fenced_name() {
    let bench = Bench::new();
    bench.direct.lock(NAME).unwrap().fence_sql().unwrap();
    for skip in 0..3 {
        for n in [0, 4, 9] {
            bench.proxy.keep_backends(n != 4);
            let hits = bench.proxy.hits();
            bench.proxy.inject_after(NAME, skip, Fault::CutReplyAt(n));
            let outcome = bench.lossy.try_lock(NAME);
            if let Ok(Some(guard)) = outcome {
                left(guard.unlock());
            }
            let story = format!("request {skip}, {n} bytes");
            wait_until(&story, || bench.server.held().is_empty());
            // Those of an acquire. What comes after them may have other words.
            assert!(skip == 2 || bench.proxy.hits() > hits, "{story}: no fault");
        }
    }
}

/// The request itself never reaches the server whole.
#[test]
fn of_requests_that_were_cut() {
    let bench = Bench::new();
    for n in [0, 1, 4, 20, 100] {
        bench.proxy.inject(NAME, Fault::CutRequestAt(n));
        let guard = bench.lossy.try_lock(NAME).unwrap().expect("it is sent again at once");
        guard.unlock().unwrap();
        assert!(bench.server.held().is_empty());
    }
}

/// The answer of a lost acquire is unknown; the call asks again and has the lock.
#[test]
fn a_late_acquire_takes_nothing_any_more() {
    let bench = Bench::new();
    let impatient = LockClient::builder().url(bench.proxy.url()).lease(LONG).io_timeout(ms(1000));
    let impatient = impatient.outage_timeout(ms(1)).build().unwrap();
    bench.proxy.inject(NAME, Fault::Hold);
    let error = impatient.try_lock(NAME).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    // Its session is ended in the background; only then does the request go on.
    wait_until("the session is gone", || {
        bench.proxy.release_held();
        bench.server.held().is_empty()
    });
    for _ in 0..20 {
        assert!(bench.server.held().is_empty());
        std::thread::sleep(ms(5));
    }
}
