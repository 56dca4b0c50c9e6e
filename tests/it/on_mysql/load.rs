//! What many threads, many holds and long waits cost the server.

use std::time::{Duration, Instant};

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
        let mut db = server.connect();
        let count = "SELECT COUNT(*) FROM information_schema.processlist WHERE db=DATABASE() AND id<>CONNECTION_ID()";
        while !threads.iter().all(|thread| thread.is_finished()) {
            let now = db.query(count).unwrap()[0][0].parse().unwrap();
            most.fetch_max(now, std::sync::atomic::Ordering::SeqCst);
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
    proxy.inject_times("SET ends=GREATEST", u32::MAX, Fault::StallReply(ms(0)));
    let before = proxy.hits();
    std::thread::sleep(ms(4500));
    let renewals = proxy.hits() - before;
    assert!((1..=40).contains(&renewals), "{renewals} statements in one and a half leases");
    assert!(guards.iter().all(|guard| guard.is_held()));
}

/// And nothing else: it reads what is committed, which locks no row.
#[test]
fn a_long_wait_costs_a_few_looks_a_second() {
    let server = Mysql::shared();
    let proxy = Proxy::before_mysql(&server);
    let (holder, waiter) = (server.client(), server.builder().url(proxy.url()).build().unwrap());
    let guard = holder.lock("job").unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| waiter.lock("job").unwrap().unlock().unwrap());
        wait_until("it waits", || waiter.stats().waiting() == 1);
        std::thread::sleep(Duration::from_secs(3));
        let asked = |what: &str| {
            proxy.disarm();
            proxy.inject_times(what, u32::MAX, Fault::StallReply(ms(0)));
            let before = proxy.hits();
            let began = Instant::now();
            std::thread::sleep(Duration::from_secs(2));
            (proxy.hits() - before, 7 * began.elapsed().as_secs() as u32 + 2)
        };
        let (looks, most) = asked("SELECT name");
        assert!((1..=most).contains(&looks), "{looks} looks of {most}");
        // Also that of `FOR UPDATE`.
        assert_eq!(asked("UPDATE").0, 0, "it writes, or locks a row");
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
    wait_until("nothing is left", || server.held().is_empty());
}
