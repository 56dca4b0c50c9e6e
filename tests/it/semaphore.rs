//! Both semaphores: how many get in, which permits are returned and when, and that none are lost or
//! created.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{ErrorKind, LockClient, PermitId, SetPermits};

use crate::lua::script;
use crate::rig::{Child, Fault, PROMPT, Proxy, Server, ms, wait_until};
use crate::support::{Clients, ShortLease};

const LEASES: &str = "{s}:timeout";
const FAULTS: [Fault; 5] = [
    Fault::CutBeforeSend,
    Fault::CutAfterApplied,
    Fault::CutReplyAt(3),
    Fault::BlackHoleReply,
    Fault::Garbage,
];

fn proxied(proxy: &Proxy) -> LockClient {
    LockClient::builder().url(proxy.url()).io_timeout(ms(1500)).build().unwrap()
}

fn server_millis(server: &Server) -> i64 {
    let (seconds, micros): (i64, i64) = server.cmd(&["TIME"]);
    seconds * 1000 + micros / 1000
}

/// They are not first notified at their next renewal, ten seconds later.
#[test]
fn holders_of_the_client_that_deletes_a_semaphore_are_told_at_once() {
    let server = Server::start();
    let client = server.client();
    let semaphore = client.semaphore("s");
    assert_eq!(semaphore.try_set_permits(3).unwrap(), SetPermits::New);
    let (one, two) = (semaphore.acquire().unwrap(), semaphore.acquire_many(2).unwrap());
    let (send, lost) = std::sync::mpsc::channel();
    one.on_lost(move |_| send.send(()).unwrap());
    assert!(client.semaphore("s").delete().unwrap());
    assert!(!one.is_held() && two.wait_lost(Duration::ZERO).is_lost());
    lost.recv_timeout(crate::rig::CAP).unwrap();
    assert_eq!(two.release().unwrap_err().kind(), ErrorKind::Lost);
    assert!(!semaphore.delete().unwrap());
    // Later acquisitions belong to another semaphore.
    assert_eq!(semaphore.try_set_permits(1).unwrap(), SetPermits::New);
    assert!(semaphore.acquire().unwrap().is_held());
    assert!(semaphore.delete().unwrap());
    drop((one, semaphore, client));
    server.assert_clean();
}

#[test]
fn bad_numbers_are_refused() {
    let server = Server::start();
    let client = server.client();
    let semaphore = client.semaphore("s");
    let kind = |outcome: leasehold::Result<()>| outcome.unwrap_err().kind();
    // The semaphore has no permits yet, or can never have enough.
    assert_eq!(kind(semaphore.acquire().map(drop)), ErrorKind::Conflict);
    assert_eq!(kind(semaphore.try_acquire().map(drop)), ErrorKind::Conflict);
    for bad in [0, 1 << 31, u32::MAX] {
        assert_eq!(
            kind(semaphore.try_set_permits(bad).map(drop)),
            ErrorKind::InvalidInput,
            "{bad}"
        );
        assert_eq!(kind(semaphore.acquire_many(bad).map(drop)), ErrorKind::InvalidInput, "{bad}");
        let set = client.counting_semaphore("c").try_set_permits(bad.max(1 << 31));
        assert_eq!(kind(set.map(drop)), ErrorKind::InvalidInput);
        assert_eq!(
            kind(client.counting_semaphore("c").acquire_many(bad).map(drop)),
            ErrorKind::InvalidInput
        );
        assert_eq!(
            kind(client.latch("l").try_set_count(bad).map(drop)),
            ErrorKind::InvalidInput,
            "{bad}"
        );
    }
    assert_eq!(semaphore.try_set_permits(2).unwrap(), SetPermits::New);
    let e = semaphore.acquire_many(3).unwrap_err();
    assert_eq!((e.kind(), e.name()), (ErrorKind::Conflict, Some("s")));
    assert!(e.to_string().contains("2 permits"), "{e}");
    assert_eq!(kind(semaphore.acquire_many(10_001).map(drop)), ErrorKind::InvalidInput);
    for bad in [0, i64::MAX, i64::MIN, 1 << 31] {
        assert_eq!(kind(semaphore.add_permits(bad).map(drop)), ErrorKind::InvalidInput, "{bad}");
    }
    assert_eq!(
        kind(semaphore.add_permits(i64::from(i32::MAX)).map(drop)),
        ErrorKind::InvalidInput,
        "2 more than fit"
    );
    assert_eq!(semaphore.available_permits().unwrap(), 2);
    assert_eq!("nonsense".parse::<PermitId>().unwrap_err().kind(), ErrorKind::InvalidInput);
    server.cmd::<()>(&["SET", "text", "x"]);
    assert_eq!(kind(client.semaphore("text").acquire().map(drop)), ErrorKind::WrongType);
    assert_eq!(kind(client.semaphore("text").add_permits(1).map(drop)), ErrorKind::WrongType);
    assert_eq!(kind(client.semaphore("text").available_permits().map(drop)), ErrorKind::WrongType);
    assert_eq!(kind(client.counting_semaphore("text").acquire().map(drop)), ErrorKind::WrongType);
    server.cmd::<()>(&["HSET", "hash", "x", "1"]);
    assert_eq!(kind(client.semaphore("hash").try_set_permits(1).map(drop)), ErrorKind::WrongType);
    assert_eq!(kind(client.counting_semaphore("hash").acquire().map(drop)), ErrorKind::WrongType);
}

/// However many leases have ended.
#[test]
fn all_permits_whose_leases_have_ended_can_be_taken_at_once() {
    let server = Server::start();
    let client = server.client();
    let semaphore = client.semaphore("s");
    assert_eq!(semaphore.try_set_permits(2500).unwrap(), SetPermits::New);
    let take = "for n = 1, 2500 do redis.call('zadd', KEYS[1], 1, string.format('%016d', n)) end \
                redis.call('set', KEYS[2], 0)";
    server.cmd::<redis::Value>(&["EVAL", take, "2", LEASES, "s"]);
    drop(semaphore.try_acquire_many(2500).unwrap().expect("all have ended"));
    assert_eq!(semaphore.available_permits().unwrap(), 2500);
}

/// A sweep may end in the middle of an acquisition, whose request then runs once more.
#[test]
fn an_acquisition_that_is_half_swept_takes_each_permit_once() {
    let server = Server::start();
    assert_eq!(server.client().semaphore("s").try_set_permits(3).unwrap(), SetPermits::New);
    let script = script("permit_acquire");
    let acquire = || {
        let args = ["acquisition.", "2", "60000", "channel", "0"];
        let taken: (i64, i64) =
            server.cmd(&[&["EVAL", script, "2", "s", LEASES], &args[..]].concat());
        assert_eq!(taken, (1, 0));
    };
    acquire();
    assert_eq!(server.cmd::<u32>(&["ZREM", LEASES, "acquisition.\0\0\0\u{1}"]), 1);
    server.cmd::<u32>(&["INCR", "s"]);
    acquire();
    let (free, taken): (u32, u32) = (server.cmd(&["GET", "s"]), server.cmd(&["ZCARD", LEASES]));
    assert_eq!((free, taken), (1, 2));
}

#[test]
fn permits_can_be_added_and_taken_away() {
    let server = Server::start();
    let client = server.client();
    let semaphore = client.semaphore("s");
    semaphore.try_set_permits(2).unwrap();
    let held = semaphore.acquire_many(2).unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| semaphore.acquire().unwrap().release().unwrap());
        wait_until("it is subscribed", || !server.channels().is_empty());
        assert_eq!(semaphore.add_permits(1).unwrap(), 1);
        waiter.join().unwrap();
    });
    assert_eq!(semaphore.add_permits(-3).unwrap(), -2);
    held.release().unwrap();
    assert_eq!(semaphore.available_permits().unwrap(), 0);
    assert_eq!(
        semaphore.acquire().unwrap_err().kind(),
        ErrorKind::Conflict,
        "none exists any more"
    );
}

#[test]
fn permits_are_renewed_and_their_loss_is_reported() {
    let server = Server::start();
    let client = server.builder().short_lease(ms(3000)).build().unwrap();
    let semaphore = client.semaphore("s");
    semaphore.try_set_permits(3).unwrap();
    let permit = semaphore.acquire_many(2).unwrap();
    std::thread::sleep(ms(4000));
    assert!(permit.is_held());
    // One of its two permits is removed: the acquisition as a whole is lost.
    let member: Vec<Vec<u8>> =
        redis::cmd("ZRANGE").arg(LEASES).arg(0).arg(0).query(&mut server.connect()).unwrap();
    redis::cmd("ZREM").arg(LEASES).arg(&member[0]).exec(&mut server.connect()).unwrap();
    assert!(permit.wait_lost(Duration::from_secs(10)).is_lost());
    assert_eq!(permit.release().unwrap_err().kind(), ErrorKind::Lost);
    let fixed = semaphore.with_lease(ms(1500)).acquire().unwrap();
    assert!(fixed.wait_lost(Duration::from_secs(10)).is_lost());
}

#[test]
#[ignore = "a program for other tests"]
fn holding_process() {
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let client = LockClient::builder().url(url).short_lease(ms(500)).build().unwrap();
    let _permit = client.semaphore("s").acquire_many(2).unwrap();
    println!("@@holding");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn the_permits_of_a_dead_process_come_back() {
    let server = Server::start();
    let client = server.client();
    let semaphore = client.semaphore("s");
    semaphore.try_set_permits(3).unwrap();
    let mut child =
        Child::spawn("semaphore::holding_process", &[("LEASEHOLD_TEST_URL", &server.url())]);
    child.expect("holding");
    std::thread::scope(|s| {
        let waiter =
            s.spawn(|| semaphore.try_acquire_many_for(3, Duration::from_secs(10)).unwrap());
        wait_until("it is subscribed", || !server.channels().is_empty());
        let before = server.call_count("evalsha");
        child.kill();
        assert!(waiter.join().unwrap().is_some());
        assert!(server.call_count("evalsha") - before < 20);
    });
    assert_eq!(semaphore.available_permits().unwrap(), 3);
}

#[test]
fn a_forgotten_permit_ends_with_its_lease_or_is_given_back_by_its_id() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let semaphore = a.semaphore("s");
    semaphore.try_set_permits(2).unwrap();
    let id = semaphore.acquire_many(2).unwrap().forget();
    assert_eq!((id.permits(), id.redisson_ids().len(), id.redisson_ids()[0].len()), (2, 2, 32));
    assert_eq!(semaphore.available_permits().unwrap(), 0);
    let elsewhere: PermitId = id.to_string().parse().unwrap();
    b.semaphore("s").release(&elsewhere).unwrap();
    assert_eq!(semaphore.release(&id).unwrap_err().kind(), ErrorKind::Lost, "twice");
    assert_eq!(semaphore.available_permits().unwrap(), 2);
    let id = b.semaphore("s").with_lease(ms(1000)).acquire().unwrap().forget();
    // Two seconds after the end of its lease, because Redisson uses its own clock.
    wait_until("it is back", || semaphore.available_permits().unwrap() == 2);
    assert_eq!(semaphore.release(&id).unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn a_forgotten_permit_is_extended_by_its_id() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    a.semaphore("s").try_set_permits(2).unwrap();
    let ends = || -> Vec<i64> {
        let leases: Vec<(Vec<u8>, String)> =
            server.cmd(&["ZRANGE", LEASES, "0", "-1", "WITHSCORES"]);
        leases.into_iter().map(|(_, ends)| ends.parse().unwrap()).collect()
    };
    let id = a.semaphore("s").acquire_many(2).unwrap().forget();
    let before = ends();
    let an_hour = server_millis(&server) + 3_600_000;
    b.semaphore("s").extend(&id, Duration::from_secs(3_600)).unwrap();
    assert!(ends().into_iter().all(|ends| ends >= an_hour), "{before:?}, {:?}", ends());
    let after = ends();
    b.semaphore("s").extend(&id, Duration::from_secs(60)).unwrap();
    assert_eq!(ends(), after, "never shortened");
    a.semaphore("s").release(&id).unwrap();
    let gone = b.semaphore("s").extend(&id, Duration::from_secs(60)).unwrap_err();
    assert_eq!((gone.kind(), gone.name()), (ErrorKind::Lost, Some("s")));
}

/// In Redisson's format: 16 raw bytes, and 922337203685477 for a permit without a lease.
#[test]
fn redisson_permits_and_leasehold_permits_count_together() {
    let server = Server::start();
    let client = server.client();
    let semaphore = client.semaphore("s");
    semaphore.try_set_permits(3).unwrap();
    let soon = (server_millis(&server) + 400).to_string();
    server.cmd::<()>(&["DECRBY", "s", "2"]);
    server.cmd::<()>(&[
        "ZADD",
        LEASES,
        &soon,
        "0123456789abcdef",
        "922337203685477",
        "fedcba9876543210",
    ]);
    let permit = semaphore.acquire().unwrap();
    assert_eq!(
        (semaphore.available_permits().unwrap(), semaphore.acquired_permits().unwrap()),
        (0, 3)
    );
    // The one with a lease comes back by itself.
    let second = semaphore.try_acquire_for(Duration::from_secs(5)).unwrap().unwrap();
    // Redisson returns a leasehold permit by its hexadecimal id: its holder is notified.
    let id = second.forget();
    assert_eq!(id.redisson_ids()[0].len(), 32);
    let bytes: Vec<u8> = (0..16)
        .map(|n| u8::from_str_radix(&id.redisson_ids()[0][2 * n..2 * n + 2], 16).unwrap())
        .collect();
    let removed: u32 =
        redis::cmd("ZREM").arg(LEASES).arg(bytes).query(&mut server.connect()).unwrap();
    assert_eq!(removed, 1);
    permit.release().unwrap();
    assert_eq!(server.cmd::<u32>(&["ZCARD", LEASES]), 1);
}

#[test]
fn lost_replies_neither_lose_permits_nor_make_any() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let direct = server.client();
    let (permits, counting) = (direct.semaphore("s"), direct.counting_semaphore("c"));
    permits.try_set_permits(5).unwrap();
    counting.try_set_permits(5).unwrap();
    for fault in FAULTS {
        let client = proxied(&proxy);
        // The channel is an argument of the scripts that acquire, return and change permits.
        proxy.inject("redisson_sc:{s}", fault);
        drop(client.semaphore("s").try_acquire_many(2));
        let held = client.semaphore("s").acquire_many(2).unwrap();
        proxy.inject("redisson_sc:{s}", fault);
        drop(held);
        wait_until(&format!("all permits are back after {fault:?}"), || {
            permits.available_permits().unwrap() == 5 && permits.acquired_permits().unwrap() == 0
        });
        proxy.inject("leasehold_once:{c}", fault);
        drop(client.counting_semaphore("c").try_acquire_many(2));
        let held = client.counting_semaphore("c").acquire_many(2).unwrap();
        proxy.inject("leasehold_once:{c}", fault);
        drop(held);
        wait_until(&format!("all counts are back after {fault:?}"), || {
            counting.available_permits().unwrap() == 5
        });
        // Changes of the count are repeated by the client.
        proxy.inject("leasehold_once:{c}", fault);
        let added = client.counting_semaphore("c").add_permits(1);
        assert!(
            added.is_ok() || fault == Fault::Garbage || fault == Fault::CutBeforeSend,
            "{fault:?}: {added:?}"
        );
        if let Ok(added) = added {
            assert_eq!(added, 6, "{fault:?}");
            counting.add_permits(-1).unwrap();
        }
        wait_until("nothing was added twice", || counting.available_permits().unwrap() == 5);
    }
    proxy.wait_hits(25);
}

/// The request reaches the server after the acquisition was undone.
#[test]
fn a_late_acquire_of_a_counting_semaphore_takes_nothing() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let direct = server.client().counting_semaphore("c");
    direct.try_set_permits(2).unwrap();
    let client = proxied(&proxy);
    proxy.inject("leasehold_once:{c}", Fault::Hold);
    assert!(client.counting_semaphore("c").try_acquire().is_err());
    // In addition to the idempotency key of the permits that were set.
    wait_until("its idempotency key exists", || {
        server.cmd::<Vec<String>>(&["KEYS", "leasehold_once:{c}:*"]).len() == 2
    });
    proxy.release_held();
    assert_eq!(direct.available_permits().unwrap(), 2);
}

#[test]
fn deleting_a_semaphore_is_reported_to_its_waiters() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let semaphore = a.semaphore("s");
    semaphore.try_set_permits(1).unwrap();
    let held = semaphore.acquire().unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.semaphore("s").acquire().unwrap_err().kind());
        wait_until("it is subscribed", || !server.channels().is_empty());
        assert!(semaphore.delete().unwrap());
        assert_eq!(waiter.join().unwrap(), ErrorKind::Conflict);
    });
    assert_eq!(held.release().unwrap_err().kind(), ErrorKind::Lost);
    assert!(server.lock_keys().is_empty(), "permits returned late do not create a semaphore");
}

/// A semaphore that was never set up refuses its callers instead of letting them wait forever.
fn an_unset_semaphore_refuses(client: &LockClient) {
    let refused = |outcome: leasehold::Result<()>| {
        let error = outcome.unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::Conflict, Some("unset")), "{error}");
        assert!(error.to_string().contains("try_set_permits"), "{error}");
    };
    let leased = client.semaphore("unset");
    refused(leased.acquire().map(drop));
    refused(leased.try_acquire().map(drop));
    refused(leased.try_acquire_for(ms(20)).map(drop));
    let counting = client.counting_semaphore("unset");
    refused(counting.acquire().map(drop));
    refused(counting.try_acquire().map(drop));
    refused(counting.try_acquire_for(ms(20)).map(drop));
    assert!(client.latch("unset").try_wait().unwrap(), "a latch that is not set is open");

    // If it was set to zero, callers wait for permits that others add.
    assert_eq!(counting.try_set_permits(0).unwrap(), SetPermits::New);
    assert_eq!(counting.try_set_permits(5).unwrap(), SetPermits::SetBefore { free: 0 });
    assert_eq!(counting.add_permits(3).unwrap(), 3);
    assert_eq!(counting.try_set_permits(5).unwrap(), SetPermits::SetBefore { free: 3 });
    assert_eq!(counting.add_permits(-3).unwrap(), 0);
    assert!(counting.try_acquire().unwrap().is_none());
    assert_eq!(counting.add_permits(1).unwrap(), 1);
    counting.acquire().unwrap().forget();
    assert!(
        counting.try_acquire().unwrap().is_none(),
        "all are taken, which is not the same as unset"
    );
    assert!(counting.delete().unwrap());
    refused(counting.try_acquire().map(drop));
}

#[test]
fn an_unset_semaphore_refuses_on_redis() {
    let server = Server::start();
    let client = server.client();
    an_unset_semaphore_refuses(&client);
    drop(client);
    server.assert_clean();
}

#[test]
fn an_unset_semaphore_refuses_in_memory() {
    an_unset_semaphore_refuses(&LockClient::in_memory());
}

#[cfg(feature = "postgres")]
#[test]
fn an_unset_semaphore_refuses_in_postgres() {
    let server = crate::rig::Postgres::shared();
    let client = server.client();
    an_unset_semaphore_refuses(&client);
    drop(client);
    server.assert_clean();
}

#[test]
fn deleting_a_counting_semaphore_is_reported_to_its_waiters() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let semaphore = a.counting_semaphore("c");
    semaphore.try_set_permits(0).unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.counting_semaphore("c").acquire().unwrap_err().kind());
        wait_until("it is subscribed", || !server.channels().is_empty());
        assert!(semaphore.delete().unwrap());
        assert_eq!(waiter.join().unwrap(), ErrorKind::Conflict);
    });
}

fn renewals(client: &leasehold::LockClient) -> u64 {
    client
        .stats()
        .primitive(leasehold::Primitive::Semaphore)
        .map_or(0, |figures| figures.renewals())
}

#[test]
fn ten_thousand_permits_at_once() {
    let server = Server::start();
    // Ten thousand permits keep the server busy for a while.
    let client = server.builder().lease(ms(9000)).build().unwrap();
    let semaphore = client.semaphore("s");
    semaphore.try_set_permits(20_000).unwrap();
    let held = semaphore.acquire_many(10_000).unwrap();
    assert_eq!(
        (semaphore.available_permits().unwrap(), semaphore.acquired_permits().unwrap()),
        (10_000, 10_000)
    );
    wait_until("they are renewed twice", || renewals(&client) >= 2);
    assert!(held.is_held());
    let id = held.forget();
    // Each call removes up to a thousand expired permits.
    wait_until("all are back", || semaphore.available_permits().unwrap() == 20_000);
    assert_eq!(semaphore.release(&id).unwrap_err().kind(), ErrorKind::Lost);
}

/// There are never more holders than permits, and every client gets permits.
#[test]
fn threads_of_several_clients_share_the_permits() {
    let server = Server::start();
    let clients = [server.client(), server.client(), server.client()];
    clients[0].semaphore("s").try_set_permits(3).unwrap();
    clients[0].counting_semaphore("c").try_set_permits(3).unwrap();
    for counting in [false, true] {
        let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|s| {
            for n in 0..12 {
                let (client, inside, most) = (&clients[n % 3], &inside, &most);
                s.spawn(move || {
                    for round in 0..15 {
                        let want = 1 + (n + round) as u32 % 3;
                        let work = || {
                            most.fetch_max(
                                inside.fetch_add(want, Ordering::SeqCst) + want,
                                Ordering::SeqCst,
                            );
                            std::thread::yield_now();
                            inside.fetch_sub(want, Ordering::SeqCst);
                        };
                        if counting {
                            let permit = client.counting_semaphore("c").acquire_many(want).unwrap();
                            work();
                            permit.release().unwrap();
                        } else {
                            let permit = client.semaphore("s").acquire_many(want).unwrap();
                            work();
                            permit.release().unwrap();
                        }
                    }
                });
            }
        });
        let most = most.load(Ordering::SeqCst);
        assert!((2..=3).contains(&most), "{most} inside");
    }
    assert_eq!(clients[0].semaphore("s").available_permits().unwrap(), 3);
    assert_eq!(clients[0].counting_semaphore("c").available_permits().unwrap(), 3);
}

/// A client that returns a permit and acquires it again at once would always be faster than one
/// that a message must reach first.
#[test]
fn no_client_keeps_a_semaphore_for_itself() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    a.semaphore("s").try_set_permits(1).unwrap();
    a.counting_semaphore("c").try_set_permits(1).unwrap();
    for counting in [false, true] {
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    if counting {
                        a.counting_semaphore("c").acquire().unwrap().release().unwrap();
                    } else {
                        a.semaphore("s").acquire().unwrap().release().unwrap();
                    }
                }
            });
            for _ in 0..20 {
                let got = if counting {
                    b.counting_semaphore("c")
                        .try_acquire_for(Duration::from_secs(5))
                        .unwrap()
                        .is_some()
                } else {
                    b.semaphore("s").try_acquire_for(Duration::from_secs(5)).unwrap().is_some()
                };
                if !got {
                    done.store(true, Ordering::SeqCst);
                }
                assert!(got, "the client starves");
            }
            done.store(true, Ordering::SeqCst);
        });
    }
}

/// The call got "busy" just before it yielded to others, and then slept although permits had become
/// free.
#[test]
fn a_call_that_yielded_to_others_asks_again() {
    for _ in 0..3 {
        let server = Server::start();
        let proxy = Proxy::start(&server);
        let (a, b) = (LockClient::builder().url(proxy.url()).build().unwrap(), server.client());
        b.semaphore("s").try_set_permits(2).unwrap();
        let held = b.semaphore("s").acquire().unwrap();
        // Another subscriber makes the client count its turns for fairness.
        let mut connection = server.connect();
        let mut subscriber = connection.as_pubsub();
        subscriber.subscribe("redisson_sc:{s}").unwrap();
        let mine = a.semaphore("s");
        for _ in 0..5 {
            mine.acquire().unwrap().release().unwrap();
        }
        // The client must yield while its first attempt is in transit.
        proxy.inject("{s}:timeout", Fault::StallReply(ms(200)));
        let asked = server.call_count("evalsha");
        std::thread::scope(|s| {
            let waiter = s.spawn(|| mine.try_acquire_many_for(2, PROMPT).unwrap().is_some());
            wait_until("the first attempt has run", || server.call_count("evalsha") > asked);
            held.release().unwrap();
            assert!(waiter.join().unwrap(), "it slept although two permits were free");
        });
    }
}

#[test]
fn deleting_a_counting_semaphore_touches_no_other_key() {
    let server = Server::start();
    let client = server.client();
    server.cmd::<()>(&["SET", "{c}:timeout", "somebody's"]);
    assert!(!client.counting_semaphore("c").delete().unwrap());
    client.counting_semaphore("c").try_set_permits(1).unwrap();
    assert!(client.counting_semaphore("c").delete().unwrap());
    assert_eq!(server.cmd::<String>(&["GET", "{c}:timeout"]), "somebody's");
}
