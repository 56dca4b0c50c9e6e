//! Faults in the optimizations of round trips: requests of several threads in one write, and a
//! thread that polls for its reply before it sleeps.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient};

use crate::rig::{Fault, Proxy, Server, ms, wait_until};
use crate::support::Clients;

/// Long enough that no lease ends during a test.
const LEASE: Duration = Duration::from_secs(60);
const NAMES: [&str; 6] = ["job-0", "job-1", "job-2", "job-3", "job-4", "job-5"];

#[derive(Default)]
struct Resource {
    inside: AtomicU32,
    last_token: AtomicU64,
    turns: AtomicU32,
}

/// Twelve threads of each client acquire and release the locks in turn over one connection, so a
/// fault affects a batch in which some replies have arrived and some have not.
#[test]
fn a_batch_that_breaks_lets_nobody_else_in() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let build = || {
        LockClient::builder()
            .url(proxy.url())
            .connections(1)
            .lease(LEASE)
            .io_timeout(ms(1_000))
            .build()
            .unwrap()
    };
    let clients = [build(), build()];
    let resources: [Resource; NAMES.len()] = Default::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for n in 0..24 {
            let (client, resources, stop) = (&clients[n % 2], &resources, &stop);
            s.spawn(move || {
                for turn in n.. {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let (name, resource) =
                        (NAMES[turn % NAMES.len()], &resources[turn % NAMES.len()]);
                    let outcome = client.try_lock_for(name, ms(300)).and_then(|guard| {
                        let Some(guard) = guard else { return Ok(()) };
                        assert_eq!(
                            resource.inside.fetch_add(1, Ordering::SeqCst),
                            0,
                            "two holders"
                        );
                        let token = guard.fencing_token().unwrap().get();
                        assert!(token > resource.last_token.swap(token, Ordering::SeqCst));
                        resource.turns.fetch_add(1, Ordering::SeqCst);
                        resource.inside.fetch_sub(1, Ordering::SeqCst);
                        guard.unlock()
                    });
                    if let Err(e) = outcome {
                        assert!(
                            matches!(e.kind(), ErrorKind::Unreachable | ErrorKind::Protocol),
                            "{e:?}"
                        );
                    }
                }
            });
        }
        let faults = [
            Fault::CutReplyAt(7),
            Fault::CutRequestAt(90),
            Fault::Garbage,
            Fault::CutAfterApplied,
            Fault::StallReply(ms(20)),
            Fault::BlackHoleReply,
            Fault::CutBeforeSend,
            Fault::Stray(b":7\r\n"),
        ];
        for (n, fault) in (1..).zip(faults.iter().cycle().take(2 * faults.len())) {
            proxy.inject_after("job-3", 5, *fault);
            proxy.wait_hits(n);
        }
        stop.store(true, Ordering::SeqCst);
    });
    let turns: Vec<u32> =
        resources.iter().map(|resource| resource.turns.load(Ordering::SeqCst)).collect();
    assert!(turns.iter().all(|turns| *turns > 3), "{turns:?} turns");
    wait_until("no lock is left behind", || server.lock_keys().is_empty());
    drop(clients);
    drop(proxy);
    server.assert_clean();
}

/// One thread makes many calls, so that it has tried both ways of waiting for replies.
#[test]
fn a_fault_that_meets_a_thread_which_looks_for_its_reply_costs_that_call_only() {
    let server = Server::start();
    let other = server.client();
    let held = other.lock("held").unwrap();
    let faults = [
        Fault::CutReplyAt(3),
        Fault::CutReplyAt(9),
        Fault::CutAfterApplied,
        Fault::Garbage,
        Fault::Stray(b"*2\r\n:5\r\n:77\r\n"),
        Fault::BlackHoleReply,
        Fault::StallReply(ms(5)),
    ];
    for busy_poll in [true, false] {
        let proxy = Proxy::start(&server);
        let builder =
            LockClient::builder().url(proxy.url()).io_timeout(ms(4_000)).busy_poll(busy_poll);
        let client = builder.connections(1).build().unwrap();
        let cycles =
            |count: u32| (0..count).for_each(|_| client.lock("free").unwrap().unlock().unwrap());
        for fault in faults {
            cycles(100);
            proxy.inject("held", fault);
            let began = Instant::now();
            let outcome = client.try_lock("held");
            assert!(began.elapsed() < ms(15_000), "{fault:?}: {:?}", began.elapsed());
            assert!(!matches!(outcome, Ok(Some(_))), "{fault:?}: another client holds it");
            // A connection that ends is treated as one that had ended earlier, so the call is
            // repeated.
            let fails = matches!(fault, Fault::Garbage | Fault::Stray(_) | Fault::BlackHoleReply);
            assert_eq!(outcome.is_err(), fails, "{fault:?}");
            assert!(client.try_lock("held").unwrap().is_none(), "{fault:?}");
            cycles(5);
        }
        client.close(ms(2_000)).unwrap();
    }
    held.unlock().unwrap();
    drop(other);
    server.assert_clean();
}
