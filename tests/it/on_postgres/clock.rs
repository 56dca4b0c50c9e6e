//! The server's clock is set back by an hour: every time that is stored lies an hour ahead of it.

use std::time::{Duration, Instant};

use leasehold::LockClient;

use super::server;
use crate::rig::{CAP, Postgres, ms};
use crate::support::{Clients, ShortLease};

const LEASE: Duration = ms(1500);

/// To the functions, times that are an hour later and a clock that is an hour behind are the same.
fn set_the_clock_back(server: &Postgres) {
    server.run_sql(
        "UPDATE leasehold.lock SET ends = ends + interval '1 h', wanted = wanted + interval '1 h', \
             barred = barred + interval '1 h', since = since + interval '1 h', token = token + 3600000000; \
         UPDATE leasehold.share SET ends = ends + interval '1 h', since = since + interval '1 h'; \
         UPDATE leasehold.waiter SET deadline = deadline + interval '1 h', since = since + interval '1 h'; \
         UPDATE leasehold.once SET ends = ends + interval '1 h'; \
         UPDATE leasehold.client SET ends = ends + interval '1 h'",
    );
}

/// What a client that died leaves behind: nothing but rows.
fn left_by_the_dead(server: &Postgres) {
    for call in [
        "acquire('plain', 'dead:1', 1500, 0, 0)",
        "acquire('one of several', 'dead:1', 1500, 0, 0)",
        "fair_acquire('fair', 'dead:1', 1500, 0, 1500, 0, 'c')",
        "write_acquire('written', 'dead:1', 1500, 0, 0)",
        "read_acquire('read', 'dead:1', 1500, 0, 0)",
        "permit_acquire('permits', 'dead:1', 1, 1500, 0)",
        "read_acquire('was read', 'dead:1', 1500, 0, 0)",
        "write_acquire('was written', 'dead:1', 1500, 0, 0)",
    ] {
        assert!(is_granted(server, call), "{call}");
    }
}

fn is_granted(server: &Postgres, call: &str) -> bool {
    server.texts(&format!("SELECT leasehold_v1.{call}::text"))[0].starts_with("(1,")
}

type Take = fn(&LockClient, Duration) -> bool;

const TAKES: [(&str, Take); 8] = [
    ("a mutex", |client, wait| client.try_lock_for("plain", wait).unwrap().is_some()),
    ("several locks", |client, wait| {
        client.multi(["also", "one of several", "too"]).try_lock_for(wait).unwrap().is_some()
    }),
    ("a fair lock", |client, wait| client.fair("fair").try_lock_for(wait).unwrap().is_some()),
    ("a reader", |client, wait| client.rw_lock("written").try_read_for(wait).unwrap().is_some()),
    ("a writer", |client, wait| client.rw_lock("read").try_write_for(wait).unwrap().is_some()),
    ("a permit", |client, wait| {
        client.semaphore("permits").try_acquire_for(wait).unwrap().is_some()
    }),
    ("another kind than readers", |client, wait| takes_another_kind(client, "was read", wait)),
    ("another kind than a writer", |client, wait| takes_another_kind(client, "was written", wait)),
];

/// While the name has the other kind, that is an error at once.
fn takes_another_kind(client: &LockClient, name: &str, wait: Duration) -> bool {
    let began = Instant::now();
    loop {
        match client.try_lock(name) {
            Ok(guard) => return guard.is_some(),
            Err(_) if began.elapsed() < wait => std::thread::sleep(ms(20)),
            Err(_) => return false,
        }
    }
}

#[test]
fn a_dead_holder_keeps_its_lock_for_a_lease_after_the_clock_was_set_back() {
    let server = server!();
    let builder = server.builder().lease(Duration::from_secs(30));
    let client = builder.io_timeout(ms(9000)).build().unwrap();
    client.semaphore("permits").try_set_permits(1).unwrap();
    left_by_the_dead(&server);
    set_the_clock_back(&server);
    // A look without a change shows the bound, too.
    for name in ["plain", "written", "read"] {
        let ttl =
            client.inspect(name).unwrap().unwrap().locks()[0].holders()[0].remaining().unwrap();
        assert!(ttl <= LEASE, "{name}: {ttl:?}");
    }
    std::thread::scope(|s| {
        for (what, take) in TAKES {
            let client = &client;
            s.spawn(move || {
                let began = Instant::now();
                assert!(!take(client, ms(0)), "{what}: its holder may live, and has its lease");
                assert!(take(client, ms(30_000)), "{what}: the dead holder keeps it");
                assert!(began.elapsed() >= LEASE, "{what}: {:?}", began.elapsed());
            });
        }
    });
    drop(client);
    // The marks of counts stay for the hour longer, and do no harm.
    server
        .run_sql("DELETE FROM leasehold.lock WHERE number IS NOT NULL; DELETE FROM leasehold.once");
    server.assert_clean();
}

#[test]
fn a_dead_waiter_keeps_its_place_for_its_timeout_after_the_clock_was_set_back() {
    let server = server!();
    let builder = server.builder().lease(Duration::from_secs(30));
    let client = builder.io_timeout(ms(9000)).build().unwrap();
    assert!(is_granted(&server, "acquire('fair', 'dead:1', 60000, 0, 0)"));
    assert!(!is_granted(&server, "fair_acquire('fair', 'dead:2', 1500, 0, 1500, 0, 'c')"));
    assert!(is_granted(&server, "read_acquire('rw', 'dead:1', 1500, 0, 0)"));
    assert!(!is_granted(&server, "write_acquire('rw', 'dead:2', 1500, 0, 1500)"));
    let began = Instant::now();
    set_the_clock_back(&server);
    server.run_sql("SELECT leasehold_v1.release('fair', 'dead:1', 0, '')");
    std::thread::scope(|s| {
        s.spawn(|| {
            assert!(
                client.fair("fair").try_lock_for(ms(30_000)).unwrap().is_some(),
                "the waiter ahead is dead"
            );
            assert!(began.elapsed() >= LEASE, "a waiter: {:?}", began.elapsed());
        });
        s.spawn(|| {
            assert!(
                client.rw_lock("rw").try_read_for(ms(30_000)).unwrap().is_some(),
                "the writer that waits is dead"
            );
            assert!(began.elapsed() >= LEASE, "a writer: {:?}", began.elapsed());
        });
    });
    drop(client);
    server.run_sql("DELETE FROM leasehold.share");
    server.assert_clean();
}

/// Its renewals go on, whoever looks meanwhile. All kinds, and one level more of each.
#[test]
fn a_live_holder_keeps_its_lock_when_the_clock_is_set_back() {
    let server = server!();
    let lease = ms(5000);
    let [client, other] = [(); 2].map(|()| server.builder().short_lease(lease).build().unwrap());
    client.semaphore("permits").try_set_permits(1).unwrap();
    let guards = (client.lock("plain").unwrap(), client.fair("fair").lock().unwrap());
    let several = client.multi(["one of several", "another"]).lock().unwrap();
    let (written, read) =
        (client.rw_lock("written").write().unwrap(), client.rw_lock("read").read().unwrap());
    let permit = client.semaphore("permits").acquire().unwrap();
    set_the_clock_back(&server);
    let inner = (client.lock("plain").unwrap(), client.rw_lock("read").read().unwrap());
    let inner_several = client.multi(["one of several", "another"]).lock().unwrap();
    let began = Instant::now();
    while began.elapsed() < lease * 3 / 2 {
        for (what, take) in &TAKES[..6] {
            assert!(!take(&other, ms(0)), "{what}: two hold it");
        }
        std::thread::sleep(ms(20));
    }
    drop((inner, inner_several));
    guards.0.unlock().unwrap();
    guards.1.unlock().unwrap();
    several.unlock().unwrap();
    written.downgrade().unwrap().unlock().unwrap();
    read.unlock().unwrap();
    permit.release().unwrap();
    for (what, take) in &TAKES[..6] {
        assert!(take(&other, CAP), "{what}");
    }
    drop((client, other));
    // The marks of counts stay for the hour longer, and do no harm.
    server
        .run_sql("DELETE FROM leasehold.lock WHERE number IS NOT NULL; DELETE FROM leasehold.once");
    server.assert_clean();
}
