//! What many threads, many holds and long waits cost the server.

use std::time::Duration;

use crate::rig::{Fault, Mysql, Proxy, ms, wait_until};
use crate::support::{Clients, ShortLease};

#[test]
fn many_threads_share_few_connections() {
    let server = Mysql::shared();
    let client = server.client();
    let most = std::sync::atomic::AtomicI64::new(0);
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..30)
            .map(|n| {
                let client = &client;
                s.spawn(move || {
                    for turn in 0..10 {
                        let name = if turn % 2 == 0 { "job".to_owned() } else { format!("n{n}") };
                        client.lock(&name).unwrap().unlock().unwrap();
                    }
                })
            })
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            most.fetch_max(server.connections(), std::sync::atomic::Ordering::SeqCst);
            std::thread::sleep(ms(2));
        }
    });
    let most = most.into_inner();
    assert!((1..=6).contains(&most), "{most} connections");
}

/// A hundred holds in one transaction.
#[test]
fn the_renewals_of_many_holds_travel_together() {
    let server = Mysql::shared();
    let proxy = Proxy::before_mysql(&server);
    let client = server.builder().url(proxy.url()).short_lease(ms(3000)).build().unwrap();
    let guards: Vec<_> = (0..100).map(|n| client.lock(format!("n{n}").as_str()).unwrap()).collect();
    proxy.inject_times("START TRANSACTION", u32::MAX, Fault::StallReply(ms(0)));
    let before = proxy.hits();
    std::thread::sleep(ms(4500));
    let renewals = proxy.hits() - before;
    assert!((1..=40).contains(&renewals), "{renewals} transactions in one and a half leases");
    assert!(guards.iter().all(|guard| guard.is_held()));
}

/// And writes nothing: it reads what is committed, and no row is locked.
#[test]
fn a_long_wait_costs_a_few_looks_a_second() {
    let server = Mysql::shared();
    let proxy = Proxy::before_mysql(&server);
    let (holder, waiter) = (server.client(), server.builder().url(proxy.url()).build().unwrap());
    let guard = holder.lock("job").unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| waiter.lock("job").unwrap().unlock().unwrap());
        std::thread::sleep(Duration::from_secs(3));
        proxy.inject_times("SELECT name", u32::MAX, Fault::StallReply(ms(0)));
        proxy.inject_times("SELECT name", u32::MAX, Fault::StallReply(ms(0)));
        let before = proxy.hits();
        std::thread::sleep(Duration::from_secs(2));
        let looks = proxy.hits() - before;
        assert!((1..=14).contains(&looks), "{looks} looks in two seconds");
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
    wait_until("nothing is left", || server.held().is_empty());
}
