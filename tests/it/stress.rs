//! Many threads of several clients on one lock, while connections keep breaking.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient};

use crate::rig::{CAP, Fault, Proxy, Server, ms, wait_until};
use crate::support::Clients;

/// Far longer than the test, so that a thread in its section certainly holds the lock, whatever
/// happened to its connection.
const LEASE: Duration = Duration::from_secs(60);

struct Resource {
    inside: AtomicU32,
    last_token: AtomicU64,
    turns: AtomicU32,
}

impl Resource {
    fn turns(&self) -> u32 {
        self.turns.load(Ordering::SeqCst)
    }

    fn use_with(&self, token: u64) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
        let before = self.last_token.swap(token, Ordering::SeqCst);
        assert!(token > before, "token {token} after {before}");
        self.turns.fetch_add(1, Ordering::SeqCst);
        std::thread::yield_now();
        assert_eq!(self.inside.fetch_sub(1, Ordering::SeqCst), 1, "two holders");
    }
}

/// Runs 12 threads of 3 clients until `trouble` returns. Every error fails the test, except those
/// that report an unreachable server.
fn run(clients: &[LockClient], trouble: impl FnOnce(&Resource)) -> Resource {
    let resource = Resource {
        inside: AtomicU32::new(0),
        last_token: AtomicU64::new(0),
        turns: AtomicU32::new(0),
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for n in 0..12 {
            let (client, resource, stop) = (&clients[n % clients.len()], &resource, &stop);
            s.spawn(move || {
                let mutex = client.mutex("job");
                while !stop.load(Ordering::SeqCst) {
                    let outcome = match n % 3 {
                        0 => mutex.try_lock_owned_for(ms(300)).map(|guard| {
                            if let Some(guard) = guard {
                                resource.use_with(guard.fencing_token().unwrap().get());
                            }
                        }),
                        1 => mutex.lock().map(|outer| {
                            let inner = mutex.lock();
                            resource.use_with(outer.fencing_token().unwrap().get());
                            drop(outer);
                            drop(inner);
                        }),
                        _ => mutex.lock().and_then(|guard| {
                            resource.use_with(guard.fencing_token().unwrap().get());
                            guard.unlock()
                        }),
                    };
                    if let Err(e) = outcome {
                        assert!(
                            matches!(e.kind(), ErrorKind::Unreachable | ErrorKind::Protocol),
                            "{e:?}"
                        );
                        std::thread::sleep(ms(1));
                    }
                }
            });
        }
        trouble(&resource);
        stop.store(true, Ordering::SeqCst);
    });
    resource
}

#[test]
fn connections_that_break_all_the_time_let_nobody_else_in() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let builder = || LockClient::builder().url(proxy.url()).lease(LEASE).io_timeout(ms(300));
    let build = || builder().connect_lazily().build().unwrap();
    let clients = [build(), build(), build()];
    let seed: u64 = std::env::var("LEASEHOLD_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(rand::random);
    println!("LEASEHOLD_SEED={seed}");
    let mut dice = seed;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % sides
    };
    let resource = run(&clients, |resource| {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(3)
            || resource.turns() <= 20 && start.elapsed() < CAP
        {
            match roll(8) {
                0 => proxy.cut_all(),
                1 => proxy.inject("job", Fault::CutBeforeSend),
                2 => proxy.inject("job", Fault::CutReplyAt(roll(12) as usize)),
                3 => proxy.inject("job", Fault::CutRequestAt(roll(200) as usize)),
                4 => proxy.inject("job", Fault::BlackHoleReply),
                5 => server.cmd::<()>(&["SCRIPT", "FLUSH"]),
                _ => proxy.inject("job", Fault::CutAfterApplied),
            }
            std::thread::sleep(ms(5 + roll(40)));
        }
    });
    assert!(resource.turns() > 20, "{} turns", resource.turns());
    wait_until("no lock is left behind", || server.lock_keys().is_empty());
    drop(clients);
    drop(proxy);
    server.assert_clean();
}

#[test]
fn a_server_that_stalls_now_and_then_lets_nobody_else_in() {
    let server = Server::start();
    let builder = || server.builder().lease(LEASE).io_timeout(ms(100));
    let build = || builder().connect_lazily().build().unwrap();
    let clients = [build(), build(), build()];
    let resource = run(&clients, |resource| {
        let start = Instant::now();
        let mut rounds = 0;
        while rounds < 6 || resource.turns() <= 20 && start.elapsed() < CAP {
            server.suspend();
            std::thread::sleep(ms(180));
            server.resume();
            std::thread::sleep(ms(250));
            rounds += 1;
        }
    });
    assert!(resource.turns() > 20, "{} turns", resource.turns());
    wait_until("no lock is left behind", || server.lock_keys().is_empty());
    drop(clients);
    server.assert_clean();
}
