//! The loss as a channel: `select!` over jobs and locks.

use crossbeam_channel::{select, unbounded};
use leasehold::Held;

use super::{LONG, SHORT};
use crate::rig::{CAP, Server, ms, wait_until};
use crate::support::{Clients, ShortLease};

#[test]
fn a_loss_ends_a_select_over_several_guards() {
    let server = Server::start();
    let client = server.builder().short_lease(SHORT).build().unwrap();
    let (a, b) = (client.lock("a").unwrap(), client.rw_lock("b").read().unwrap());
    let (job, jobs) = unbounded();
    job.send(7).unwrap();
    let mut done = Vec::new();
    let lost = loop {
        select! {
            recv(a.lost()) -> _ => break "a",
            recv(b.lost()) -> _ => break "b",
            recv(jobs) -> job => {
                done.push(job.unwrap());
                server.cmd::<u32>(&["DEL", "b"]);
            }
            default(CAP) => break "none",
        }
    };
    assert_eq!((lost, &done[..]), ("b", &[7][..]));
    assert!(a.is_held() && !b.is_held());
    // It stays ready, even for a late receiver and in another thread.
    let receiver = b.lost();
    std::thread::spawn(move || assert!(receiver.recv_timeout(CAP).unwrap_err().is_disconnected()))
        .join()
        .unwrap();
    assert!(a.lost().try_recv().unwrap_err().is_empty());
}

#[test]
fn every_receiver_is_ready_and_a_loop_costs_nothing() {
    let server = Server::start();
    let client = server.builder().short_lease(SHORT).build().unwrap();
    let guard = client.lock("job").unwrap();
    let inner = client.lock("job").unwrap();
    // All of many receivers are the same channel.
    let first = guard.lost();
    assert!((0..10_000).all(|_| guard.lost().same_channel(&first)));
    assert!(!inner.lost().same_channel(&first), "each guard has its own");
    let many: Vec<_> = (0..3).flat_map(|_| [guard.lost(), inner.lost()]).collect();
    server.cmd::<u32>(&["DEL", "job"]);
    for receiver in &many {
        assert!(receiver.recv_timeout(CAP).unwrap_err().is_disconnected());
    }
    drop((inner, guard));
    drop(client);
    server.assert_clean();
}

/// A receiver may outlive its guard. It then reports that this guard holds nothing.
#[test]
fn a_guard_that_is_given_up_leaves_nothing() {
    let server = Server::start();
    let client = server.builder().lease(LONG).build().unwrap();
    let guard = client.lock("job").unwrap();
    let (receiver, inner) = (guard.lost(), client.lock("job").unwrap());
    let inner_lost = inner.lost();
    assert!(receiver.recv_timeout(ms(20)).unwrap_err().is_timeout());
    inner.unlock().unwrap();
    assert!(inner_lost.try_recv().unwrap_err().is_disconnected());
    assert!(receiver.try_recv().unwrap_err().is_empty(), "the outer guard holds it");
    guard.unlock().unwrap();
    assert!(receiver.try_recv().unwrap_err().is_disconnected());
    drop(client);
    server.assert_clean();
}

/// All locks of a set, and each way in which it ends: loss, close, a fixed lease.
#[test]
fn a_set_of_locks_is_ready_when_one_is_lost() {
    let server = Server::start();
    let client = server.builder().short_lease(SHORT).build().unwrap();
    let set = client.multi(["a", "b", "c"]).lock_owned().unwrap();
    assert!(set.lost().try_recv().unwrap_err().is_empty());
    server.cmd::<u32>(&["DEL", "c"]);
    assert!(set.lost().recv_timeout(CAP).unwrap_err().is_disconnected());
    assert!(set.unlock().is_err());
    let fixed = client.mutex("fixed").with_lease(ms(1000)).lock().unwrap();
    assert!(fixed.lost().recv_timeout(CAP).unwrap_err().is_disconnected());
    assert!(!fixed.is_held());
    drop(fixed);
    let guards: Vec<Box<dyn Held>> = vec![
        Box::new(client.lock("m").unwrap()),
        Box::new(client.fair("f").lock_owned().unwrap()),
        Box::new(client.rw_lock("rw").write().unwrap()),
    ];
    let receivers: Vec<_> = guards.iter().map(|guard| guard.lost()).collect();
    client.close(CAP).unwrap();
    assert!(
        receivers.iter().all(|receiver| receiver.recv_timeout(CAP).unwrap_err().is_disconnected())
    );
}

/// Callbacks that block occupy all of their threads, and delay no channel.
#[test]
fn callbacks_that_block_delay_no_channel() {
    let server = Server::start();
    let client = server.builder().short_lease(SHORT).build().unwrap();
    let (open, door) = crossbeam_channel::bounded::<()>(0);
    let guards: Vec<_> =
        (0..20).map(|n| client.mutex(format!("n{n}")).lock_owned().unwrap()).collect();
    for guard in &guards {
        let door = door.clone();
        guard.on_lost(move |_| {
            let _ = door.recv();
        });
    }
    let waiting: Vec<_> = guards.iter().map(|guard| guard.lost()).collect();
    server.cmd::<()>(&["FLUSHALL"]);
    wait_until("all are ready", || {
        waiting.iter().all(|lost| lost.try_recv().unwrap_err().is_disconnected())
    });
    drop(open);
}

/// Any guard, in one function, by reference, boxed, and from another thread.
#[test]
fn one_function_takes_any_guard() {
    fn work(guard: &impl Held) -> leasehold::Result<u32> {
        guard.ensure_held()?;
        guard.extend(LONG)?;
        assert!(guard.is_held() && !guard.remaining().is_zero() && guard.loss().is_none());
        assert!(guard.wait_lost(ms(1)).is_still_held());
        Ok(guard.hold_count())
    }
    fn end(guard: impl Held) {
        guard.unlock().unwrap();
    }
    fn from_elsewhere(guard: &dyn Held) -> bool {
        std::thread::scope(|s| s.spawn(|| guard.is_held()).join().unwrap())
    }
    let server = Server::start();
    let client = server.builder().lease(LONG).build().unwrap();
    client.semaphore("s").try_set_permits(2).unwrap();
    macro_rules! any {
        ($($guard:expr, $name:literal, $has_token:literal);+ $(;)?) => {$(
            let guard = $guard;
            assert_eq!(work(&guard).unwrap(), 1, $name);
            assert_eq!((Held::name(&guard), Held::fencing_token(&guard).is_ok()), ($name, $has_token));
            assert!(from_elsewhere(&guard));
            end(guard);
        )+};
    }
    any!(
        client.lock("m").unwrap(), "m", true;
        client.mutex("m").lock_owned().unwrap(), "m", true;
        client.fair("f").lock().unwrap(), "f", true;
        client.fair("f").lock_owned().unwrap(), "f", true;
        client.rw_lock("rw").read().unwrap(), "rw", false;
        client.rw_lock("rw").read_owned().unwrap(), "rw", false;
        client.rw_lock("rw").write().unwrap(), "rw", true;
        client.rw_lock("rw").write_owned().unwrap(), "rw", true;
        client.semaphore("s").acquire().unwrap(), "s", false;
        client.multi(["x"]).lock_owned().unwrap(), "x", false;
    );
    let boxed: Box<dyn Held> = Box::new(client.multi(["x", "y"]).lock().unwrap());
    assert!(boxed.is_held());
    let why = boxed.fencing_token().unwrap_err();
    assert!(why.to_string().contains("MultiLockGuard::fencing_token"), "{why}");
    let downgraded = client.rw_lock("rw").write().unwrap().downgrade().unwrap();
    let why = Held::fencing_token(&downgraded).unwrap_err();
    assert!(why.to_string().contains("a read hold has no fencing token"), "{why}");
    downgraded.unlock().unwrap();
    drop(boxed);
    client.semaphore("s").delete().unwrap();
    drop(client);
    server.assert_clean();
}
