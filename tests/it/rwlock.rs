//! The read-write lock: who excludes whom, who goes first, and how long a reader's lease lasts next
//! to others.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient};

use crate::rig::{Child, Fault, PROMPT, Proxy, Server, ms, wait_until};
use crate::support::{Clients, ShortLease};

const MARKER: &str = "leasehold_writer:{w}";
const CHANNEL: &str = "redisson_rwlock:{w}";

/// The readers' fields of the hash, without the mode.
fn fields(server: &Server) -> Vec<(String, String)> {
    server.hash("w").into_iter().filter(|(field, _)| field != "mode").collect()
}

fn mode(server: &Server) -> Option<String> {
    server.hash("w").remove("mode")
}

fn levels(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = server.cmd(&["KEYS", "{w}:*:rwlock_timeout:*"]);
    keys.sort();
    keys
}

fn wait_for_marker(server: &Server) {
    wait_until("a writer's marker", || server.cmd::<u32>(&["EXISTS", MARKER]) == 1);
}

#[test]
fn both_sides_are_reentrant_and_guards_drop_in_any_order() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client());
    let rw = client.rw_lock("w");
    let (one, two, three) =
        (rw.read().unwrap(), rw.try_read().unwrap().unwrap(), rw.read().unwrap());
    assert_eq!(
        (three.hold_count(), fields(&server)[0].1.as_str(), levels(&server).len()),
        (3, "3", 3)
    );
    drop(one);
    drop(three);
    assert_eq!((fields(&server)[0].1.as_str(), levels(&server).len()), ("1", 1));
    assert!(other.rw_lock("w").try_write().unwrap().is_none());
    drop(two);
    let (one, two) = (rw.write().unwrap(), rw.write().unwrap());
    assert_eq!(fields(&server)[0].1, "2");
    assert!(fields(&server)[0].0.ends_with(":write"));
    assert!((20_000..=30_000).contains(&server.pttl("w")), "not the sum, unlike with Redisson");
    drop(one);
    assert!(other.rw_lock("w").try_read().unwrap().is_none());
    drop(two);
    drop((client, other, rw));
    server.assert_clean();
}

/// In Redis these reads would share one holder, and the late undo of one would remove the next.
#[test]
fn reading_inside_a_write_hold_costs_nothing() {
    let server = Server::start();
    let client = server.client();
    let rw = client.rw_lock("w");
    // A script that the server does not know yet is sent twice.
    rw.write().unwrap().unlock().unwrap();
    let write = rw.write().unwrap();
    let before = server.call_count("evalsha");
    let (one, two) = (rw.read().unwrap(), rw.read().unwrap());
    drop(two);
    assert_eq!(server.call_count("evalsha"), before);
    assert_eq!((one.hold_count(), fields(&server).len()), (2, 1));
    drop(one);
    write.unlock().unwrap();
    assert_eq!(server.call_count("evalsha"), before + 1);
    server.cmd::<()>(&["FLUSHALL"]);
}

#[test]
fn a_reader_that_wants_to_write_is_refused_with_the_reason() {
    let server = Server::start();
    let client = server.client();
    let rw = client.rw_lock("w");
    let read = rw.read().unwrap();
    for refused in [
        rw.write().map(drop),
        rw.try_write().map(drop),
        rw.try_write_for(ms(10)).map(drop),
        rw.write_owned().map(drop),
        rw.try_write_owned().map(drop),
    ] {
        let e = refused.unwrap_err();
        assert_eq!((e.kind(), e.name()), (ErrorKind::Conflict, Some("w")));
        assert!(e.to_string().contains("downgrade"), "{e}");
    }
    assert!(read.is_held());
    read.unlock().unwrap();
    assert!(rw.try_write().unwrap().is_some());
}

/// The guards of a writer are bound to its thread, so an owned reader would wait for ever.
#[test]
fn an_owned_reader_may_share_with_its_thread_and_not_wait_for_it() {
    let server = Server::start();
    let client = server.client();
    let rw = client.rw_lock("w");
    let read = rw.read().unwrap();
    drop(rw.read_owned().unwrap());
    drop(read);
    let write = rw.write().unwrap();
    for refused in [rw.read_owned().map(drop), rw.write_owned().map(drop)] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    }
    assert!(rw.try_read_owned().unwrap().is_none());
    write.unlock().unwrap();
    drop((rw, client));
    server.assert_clean();
}

#[test]
fn a_downgrade_leaves_no_gap_and_wakes_the_readers() {
    let server = Server::start();
    let (a, b, c) = (server.client(), server.client(), server.client());
    let write = a.rw_lock("w").write().unwrap();
    std::thread::scope(|s| {
        let reader = s.spawn(|| b.rw_lock("w").read_owned().unwrap());
        wait_until("it is subscribed", || server.channels() == [CHANNEL]);
        let start = Instant::now();
        let read = write.downgrade().unwrap();
        let reader = reader.join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(10), "woken by the end of the lease");
        assert_eq!((mode(&server).as_deref(), fields(&server).len()), (Some("read"), 2));
        assert_eq!(levels(&server).len(), 2);
        assert!(read.is_held() && reader.is_held());
        assert!(c.rw_lock("w").try_write().unwrap().is_none());
    });
    // A write guard that is dropped before its thread's read guards has the same effect.
    let rw = a.rw_lock("w");
    let (write, read, inner) = (rw.write().unwrap(), rw.read().unwrap(), rw.read().unwrap());
    assert!(c.rw_lock("w").try_read().unwrap().is_none());
    write.unlock().unwrap();
    assert_eq!((fields(&server)[0].1.as_str(), levels(&server).len()), ("2", 2));
    assert!(c.rw_lock("w").try_read().unwrap().is_some());
    drop(read);
    let again = rw.read().unwrap();
    assert_eq!((again.hold_count(), levels(&server).len()), (2, 2));
    drop(inner);
    assert_eq!(rw.write().unwrap_err().kind(), ErrorKind::Conflict);
    again.unlock().unwrap();
    let owned = rw.write_owned().unwrap().downgrade().unwrap();
    assert!(c.rw_lock("w").try_read().unwrap().is_some());
    drop((owned, a, b, c, rw));
    server.assert_clean();
}

/// Whichever of the two fields the server has, the hold is kept, and other readers get in.
#[test]
fn a_downgrade_of_unknown_outcome_keeps_the_hold_and_is_resolved() {
    std::thread::scope(|s| {
        for fault in [
            Fault::CutBeforeSend,
            Fault::CutAfterApplied,
            Fault::CutReplyAt(3),
            Fault::BlackHoleReply,
        ] {
            s.spawn(move || downgrade_that_meets(fault));
        }
    });
}

fn downgrade_that_meets(fault: Fault) {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let builder = LockClient::builder().url(proxy.url()).lease(ms(4500)).io_timeout(ms(2500));
    let (a, b) = (builder.build().unwrap(), server.client());
    let rw = a.rw_lock("w");
    let (write, read) = (rw.write().unwrap(), rw.read().unwrap());
    proxy.inject("redisson_rwlock", fault);
    let outcome = write.unlock();
    let again = rw.read().unwrap();
    assert!(b.rw_lock("w").read_owned().unwrap().is_held(), "{fault:?}: {outcome:?}");
    let start = Instant::now();
    while start.elapsed() < ms(5000) {
        assert!(read.is_held(), "{fault:?} after {:?}", start.elapsed());
        assert!(b.rw_lock("w").try_write().unwrap().is_none(), "{fault:?}");
        std::thread::sleep(ms(100));
    }
    drop(read);
    again.unlock().unwrap();
    assert!(b.rw_lock("w").try_write_for(ms(3000)).unwrap().is_some(), "{fault:?}");
    drop((a, b, rw));
    wait_until("nothing is left", || server.lock_keys().is_empty());
    proxy.wait_hits(1);
}

#[test]
fn each_reader_has_a_lease_of_its_own() {
    let server = Server::start();
    let (short, long) = (server.client(), server.client());
    let kept = long.rw_lock("w").with_lease(Duration::from_secs(300)).read().unwrap();
    let ends = short.rw_lock("w").with_lease(ms(300)).read().unwrap();
    assert!(server.pttl("w") > 290_000);
    assert!(ends.wait_lost(Duration::from_secs(5)).is_lost());
    wait_until("its level has ended", || levels(&server).len() == 1);
    assert_eq!(ends.unlock().unwrap_err().kind(), ErrorKind::Lost);
    assert!(kept.is_held() && server.pttl("w") > 290_000);
    kept.unlock().unwrap();
    // Its field may remain until the lock is released or the undo has run.
    assert!(short.rw_lock("w").try_write_for(ms(2000)).unwrap().is_some());
}

/// The renewals of other readers do not keep a dead reader's hold alive.
#[test]
fn a_dead_reader_is_gone_when_the_last_live_one_leaves() {
    let server = Server::start();
    let client = server.builder().short_lease(ms(3000)).build().unwrap();
    let live = client.rw_lock("w").read().unwrap();
    let dead = "11111111-2222-4333-8444-555555555555:1";
    server.cmd::<()>(&["HSET", "w", dead, "1"]);
    server.cmd::<()>(&["SET", &format!("{{w}}:{dead}:rwlock_timeout:1"), "1", "PX", "1500"]);
    wait_until("its level has ended", || levels(&server).len() == 1);
    assert!(live.is_held());
    live.unlock().unwrap();
    assert!(client.rw_lock("w").try_write().unwrap().is_some());
    drop(client);
    server.assert_clean();
}

/// Redisson's renewal of a reader sets the TTL of the whole lock, below the lease of the leasehold
/// reader.
#[test]
fn a_reader_with_a_fixed_lease_survives_redissons_renewal() {
    let server = Server::start();
    let client = server.client();
    let read = client.rw_lock("w").with_lease(ms(12_000)).read().unwrap();
    server.cmd::<()>(&["PEXPIRE", "w", "6000"]);
    wait_until("it is raised again", || server.pttl("w") > 6000);
    assert!(server.pttl("w") <= 12_000);
    assert!(read.is_held());
    drop((read, client));
    server.assert_clean();
}

#[test]
fn an_inner_hold_passes_its_longer_lease_to_the_outer_one() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let outer = a.rw_lock("w").with_lease(Duration::from_secs(30)).read().unwrap();
    let inner = a.rw_lock("w").with_lease(Duration::from_secs(300)).read().unwrap();
    inner.unlock().unwrap();
    assert!(outer.remaining() > Duration::from_secs(290));
    let other = b.rw_lock("w").read().unwrap();
    other.unlock().unwrap();
    assert!(server.pttl("w") > 290_000, "cut to {}", server.pttl("w"));
    outer.unlock().unwrap();
    drop((a, b));
    server.assert_clean();
}

/// Readers that always overlap, in this process and in another client: without the marker no writer
/// would ever get in.
#[test]
fn readers_in_a_tight_loop_do_not_starve_a_writer() {
    let server = Server::start();
    let clients = [server.client(), server.client()];
    let (done, inside, writes) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|s| {
        for n in 0..8 {
            let (rw, done, inside) = (clients[n % 2].rw_lock("w"), &done, &inside);
            s.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let read = rw.read().unwrap();
                    inside.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(ms(3));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    read.unlock().unwrap();
                }
            });
        }
        for n in 0..10 {
            wait_until("several read", || inside.load(Ordering::SeqCst) > 3);
            let write = clients[n % 2].rw_lock("w").try_write_for(Duration::from_secs(10)).unwrap();
            let write = write.expect("a writer must get in");
            assert_eq!(
                server.cmd::<u32>(&["EXISTS", MARKER]),
                0,
                "or it would keep readers out afterwards"
            );
            assert_eq!(inside.load(Ordering::SeqCst), 0);
            writes.fetch_add(1, Ordering::SeqCst);
            write.unlock().unwrap();
        }
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(writes.load(Ordering::SeqCst), 10);
    drop(clients);
    server.assert_clean();
}

#[test]
fn a_writer_that_gives_up_lets_the_readers_in_at_once() {
    let server = Server::start();
    let (a, b, c) = (server.client(), server.client(), server.client());
    let read = a.rw_lock("w").read().unwrap();
    std::thread::scope(|s| {
        let writer = s.spawn(|| b.rw_lock("w").try_write_for(ms(4000)).unwrap().is_some());
        wait_for_marker(&server);
        assert!(c.rw_lock("w").try_read().unwrap().is_none());
        let inner = a.rw_lock("w").read().unwrap();
        let waiting =
            s.spawn(|| c.rw_lock("w").try_read_for(Duration::from_secs(10)).unwrap().is_some());
        assert!(!writer.join().unwrap());
        // Well before the marker would have expired.
        assert!(waiting.join().unwrap());
        drop(inner);
    });
    assert_eq!(server.cmd::<u32>(&["EXISTS", MARKER]), 0);
    drop((read, a, b, c));
    server.assert_clean();
}

#[test]
#[ignore = "a program for other tests"]
fn writing_process() {
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let client = LockClient::builder().url(url).waiter_timeout(ms(800)).build().unwrap();
    println!("@@ready");
    let _write = client.rw_lock("w").write().unwrap();
}

#[test]
fn a_writer_that_dies_waiting_keeps_readers_out_for_its_timeout() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let read = a.rw_lock("w").read().unwrap();
    let mut writer =
        Child::spawn("rwlock::writing_process", &[("LEASEHOLD_TEST_URL", &server.url())]);
    writer.expect("ready");
    wait_for_marker(&server);
    writer.kill();
    let before = server.call_count("evalsha");
    let reader = b
        .rw_lock("w")
        .try_read_for(Duration::from_secs(5))
        .unwrap()
        .expect("the marker has an end");
    assert!(server.call_count("evalsha") - before < 20);
    drop((read, reader, a, b));
    server.assert_clean();
}

/// Two writers, and readers that arrive all the time: everybody gets turns.
#[test]
fn writers_do_not_starve_readers_either() {
    let server = Server::start();
    let clients = [server.client(), server.client()];
    let (done, reads) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|s| {
        for client in &clients {
            let done = &done;
            s.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    client.rw_lock("w").write_owned().unwrap().unlock().unwrap();
                }
            });
        }
        let reader = server.client();
        while reads.load(Ordering::SeqCst) < 10 {
            let read = reader.rw_lock("w").try_read_for(Duration::from_secs(10)).unwrap();
            read.expect("a reader must get in").unlock().unwrap();
            reads.fetch_add(1, Ordering::SeqCst);
        }
        done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn force_unlock_ends_every_hold() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let rw = a.rw_lock("w");
    let (one, two) = (rw.read().unwrap(), rw.read().unwrap());
    assert!(b.rw_lock("w").is_locked().unwrap());
    assert!(b.rw_lock("w").force_unlock().unwrap());
    assert!(!b.rw_lock("w").force_unlock().unwrap());
    assert!(server.lock_keys().is_empty(), "{:?}", server.lock_keys());
    assert_eq!(two.unlock().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(one.unlock().unwrap_err().kind(), ErrorKind::Lost);
    let write = rw.write().unwrap();
    assert!(rw.force_unlock().unwrap());
    assert!(!write.is_held(), "reported at once in the same client");
    assert_eq!(rw.read().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(write.downgrade().unwrap_err().kind(), ErrorKind::Lost);
    drop(rw.read().unwrap());
}

#[test]
fn another_kind_of_lock_under_its_name_is_reported() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let plain = a.lock("w").unwrap();
    assert_eq!(b.rw_lock("w").read().unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(b.rw_lock("w").try_write_for(ms(50)).unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(b.rw_lock("w").force_unlock().unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(a.rw_lock("w").write().unwrap_err().kind(), ErrorKind::Conflict);
    plain.unlock().unwrap();
    let read = a.rw_lock("w").read().unwrap();
    assert_eq!(b.lock("w").unwrap_err().kind(), ErrorKind::WrongType);
    read.unlock().unwrap();
    drop((a, b));
    server.assert_clean();
}

/// The read hold is kept, and the downgrade completes when the server permits it.
#[test]
fn a_downgrade_that_the_server_refuses_is_made_up_for() {
    let server = Server::start();
    let may_write =
        |may: &str| server.cmd::<()>(&["ACL", "SETUSER", "default", &format!("{may}set")]);
    let (a, b) = (server.client(), server.client());
    let (lock, other) = (a.rw_lock("w"), b.rw_lock("w"));
    let (write, read) = (lock.write().unwrap(), lock.read().unwrap());
    may_write("-");
    assert_eq!(write.unlock().unwrap_err().kind(), ErrorKind::Denied);
    assert!(read.is_held());
    assert!(other.try_read().unwrap().is_none(), "as if it still wrote");
    may_write("+");
    wait_until("others read", || other.try_read().unwrap().is_some());
    assert!(other.try_write().unwrap().is_none());
    read.unlock().unwrap();
    let write = lock.write().unwrap();
    may_write("-");
    assert_eq!(write.downgrade().unwrap_err().kind(), ErrorKind::Denied);
    assert!(server.lock_keys().is_empty(), "released");
    may_write("+");
    drop((a, b, lock, other));
    server.assert_clean();
}

/// An inner release that never ran leaves a level with a longer lease than the next read asks for.
#[test]
fn a_reader_that_reenters_after_a_lost_release_keeps_its_lease() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let (a, b) = (
        LockClient::builder().url(proxy.url()).io_timeout(ms(500)).build().unwrap(),
        server.client(),
    );
    let with = |lease: u64| a.rw_lock("w").with_lease(ms(lease));
    let outer = with(2000).read().unwrap();
    let inner = with(60_000).read().unwrap();
    proxy.inject("redisson_rwlock:{w}", Fault::CutBeforeSend);
    proxy.refuse(true);
    assert!(inner.unlock().is_err());
    proxy.refuse(false);
    let again = with(1000).read().unwrap();
    b.rw_lock("w").read().unwrap().unlock().unwrap();
    assert!(outer.remaining() > Duration::from_secs(50));
    assert!(
        server.pttl("w") > 50_000,
        "the lock ends before its reader's lease: {}",
        server.pttl("w")
    );
    drop((again, outer));
}

#[test]
fn a_reader_behind_a_downgraded_hold_that_leaves_does_not_wait_for_a_timer() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let a =
        LockClient::builder().url(proxy.url()).io_timeout(Duration::from_secs(7)).build().unwrap();
    let b = server.client();
    let read = a.rw_lock("w").write_owned().unwrap().downgrade().unwrap();
    let other = b.rw_lock("w").read().unwrap();
    proxy.inject("redisson_rwlock:{w}", Fault::StallReply(ms(200)));
    std::thread::scope(|s| {
        let release = s.spawn(|| read.unlock());
        proxy.wait_hits(1);
        let start = Instant::now();
        a.rw_lock("w").read_owned().unwrap().unlock().unwrap();
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        release.join().unwrap().unwrap();
    });
    drop(other);
}

#[test]
fn a_reader_whose_lease_has_ended_is_refused_as_lost_when_it_wants_to_write() {
    let server = Server::start();
    let client = server.client();
    let read = client.rw_lock("w").with_lease(ms(500)).read().unwrap();
    assert!(read.wait_lost(PROMPT).is_lost());
    assert_eq!(client.rw_lock("w").try_write().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(client.rw_lock("w").try_write_owned().unwrap_err().kind(), ErrorKind::Lost);
    drop(read);
    assert!(client.rw_lock("w").try_write_for(PROMPT).unwrap().is_some());
}
