//! `client.stats()`: each call is counted once, and the figures equal those of the server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::observe::{Figures, Listener, LockInfo};
use leasehold::{Error, ErrorKind, LockClient, Loss, Primitive};

use crate::rig::{CAP, Cluster, PROMPT, Proxy, Server, ms, wait_until};
use crate::support::{Clients, Masters, ShortLease};

fn figures(client: &LockClient, primitive: Primitive) -> Figures {
    client.stats().primitive(primitive).cloned().unwrap_or_default()
}

fn waits(client: &LockClient, calls: usize) {
    wait_until("the calls wait", || client.stats().waiting() == calls);
}

/// Asks the server what it has counted.
struct Meter(redis::Connection);

/// A reply, and how much it and its query add to the next one.
struct Reading {
    received: u64,
    sent: u64,
    scripts: u64,
    question: u64,
    answer: u64,
}

impl Meter {
    fn read(&mut self) -> Reading {
        let info: String = redis::cmd("INFO").arg("all").query(&mut self.0).unwrap();
        let field = |name: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name))?;
            value.split([',', ' ']).next()?.parse::<u64>().ok()
        };
        Reading {
            received: field("total_net_input_bytes:").unwrap(),
            sent: field("total_net_output_bytes:").unwrap(),
            scripts: field("cmdstat_evalsha:calls=").unwrap_or(0),
            question: "*2\r\n$4\r\nINFO\r\n$3\r\nall\r\n".len() as u64,
            answer: (format!("${}\r\n", info.len()).len() + info.len() + 2) as u64,
        }
    }
}

#[test]
fn requests_and_bytes_are_what_the_server_counted() {
    const CYCLES: u64 = 50;
    let server = Server::start();
    let mut meter = Meter(server.connect());
    let before = meter.read();
    let client = server.client();
    for _ in 0..CYCLES {
        client.lock("job").unwrap().unlock().unwrap();
    }
    let (after, stats) = (meter.read(), client.stats());
    // A reply contains what was received including its query, and was sent before it was itself
    // counted.
    assert_eq!(
        stats.bytes_sent(),
        Some(after.received - before.received - after.question),
        "{stats}"
    );
    assert_eq!(stats.bytes_received(), Some(after.sent - before.sent - before.answer), "{stats}");
    assert_eq!((stats.connections_opened(), stats.reconnects()), (Some(1), Some(0)));
    // From here on, each request is one script.
    for _ in 0..CYCLES {
        client.lock("job").unwrap().unlock().unwrap();
    }
    let more = client.stats();
    assert_eq!(more.requests().unwrap() - stats.requests().unwrap(), 2 * CYCLES);
    assert_eq!(meter.read().scripts - after.scripts, 2 * CYCLES);
    let counted = figures(&client, Primitive::Mutex);
    assert_eq!(
        (counted.granted_at_once(), counted.calls(), counted.holds().count()),
        (100, 100, 100)
    );
    assert_eq!(
        (counted.contended(), counted.waits().count(), more.holds(), more.waiting()),
        (0, 0, 0, 0)
    );
    assert_eq!(more.name("job", Primitive::Mutex).unwrap(), &counted);
    drop((client, meter));
    server.assert_clean();
}

/// The main figures of two clients of any store.
fn main_figures(one: &LockClient, other: &LockClient) {
    for _ in 0..3 {
        one.lock("job").unwrap().unlock().unwrap();
    }
    let held = one.lock("job").unwrap();
    drop(one.lock("job").unwrap());
    assert!(other.try_lock("job").unwrap().is_none());
    // It has waited if the first answer leaves it some of its time.
    assert!(other.try_lock_for("job", ms(700)).unwrap().is_none());
    std::thread::scope(|s| {
        let waiter = s.spawn(|| other.lock("job").map(drop));
        waits(other, 1);
        held.unlock().unwrap();
        waiter.join().unwrap().unwrap();
    });
    let counted = figures(one, Primitive::Mutex);
    assert_eq!(
        (counted.granted_at_once(), counted.reentered(), counted.calls()),
        (4, 1, 5),
        "{}",
        one.stats()
    );
    assert_eq!((counted.contended(), counted.holds().count()), (0, 4));
    assert!(counted.holds().max() >= ms(60), "{:?}", counted.holds());
    let counted = figures(other, Primitive::Mutex);
    assert_eq!(
        (counted.busy(), counted.timed_out(), counted.granted_after_wait()),
        (1, 1, 1),
        "{}",
        other.stats()
    );
    assert_eq!((counted.calls(), counted.contended(), counted.holds().count()), (3, 3, 1));
    assert_eq!(
        counted.waits().count(),
        2,
        "a call without time that finds it taken has not waited"
    );
    assert!(counted.waits().max() >= ms(40), "{:?}", counted.waits());
    assert_eq!(other.stats().name("job", Primitive::Mutex), Some(&counted));
    assert_eq!((other.stats().holds(), other.stats().waiting()), (0, 0));
}

fn has_traffic(client: &LockClient) {
    let stats = client.stats();
    for count in
        [stats.requests(), stats.bytes_sent(), stats.bytes_received(), stats.connections_opened()]
    {
        assert!(count.unwrap() > 0, "{stats}");
    }
}

#[test]
fn the_main_figures_on_one_server() {
    let server = Server::start();
    let (one, other) = (server.client(), server.client());
    main_figures(&one, &other);
    has_traffic(&other);
    drop((one, other));
    server.assert_clean();
}

#[test]
fn the_main_figures_in_a_cluster() {
    let cluster = Cluster::start_primaries();
    let client =
        || LockClient::builder().cluster(leasehold::Cluster::new(cluster.urls())).build().unwrap();
    let (one, other) = (client(), client());
    main_figures(&one, &other);
    has_traffic(&other);
    drop((one, other));
    cluster.assert_clean();
}

#[test]
fn the_main_figures_with_redlock() {
    let masters = Masters::fresh(3);
    let [one, other] = [(); 2].map(|()| masters.builder().io_timeout(ms(5000)).build().unwrap());
    crate::support::wait_for_votes(&one, 3);
    crate::support::wait_for_votes(&other, 3);
    main_figures(&one, &other);
    has_traffic(&other);
    drop((one, other));
    masters.assert_clean();
}

#[test]
fn the_main_figures_in_memory_which_has_no_traffic() {
    let one = LockClient::in_memory();
    let other = LockClient::in_memory_shared(&one).unwrap();
    main_figures(&one, &other);
    let stats = one.stats();
    assert_eq!(
        (stats.requests(), stats.bytes_sent(), stats.bytes_received(), stats.reconnects()),
        (None, None, None, None)
    );
    assert!(!stats.to_prometheus().contains("leasehold_requests_total"));
}

#[cfg(feature = "postgres")]
#[test]
fn the_main_figures_in_postgres() {
    let server = crate::rig::Postgres::shared();
    let (one, other) = (server.client(), server.client());
    main_figures(&one, &other);
    has_traffic(&other);
    drop((one, other));
    server.assert_clean();
}

#[cfg(feature = "zookeeper")]
#[test]
fn the_main_figures_over_zookeeper() {
    let server = crate::rig::zookeeper::ZooKeeper::lend(crate::on_zookeeper::SETTINGS);
    let client = || LockClient::builder().url(server.url_in("/figures")).build().unwrap();
    let (one, other) = (client(), client());
    main_figures(&one, &other);
    has_traffic(&other);
    drop((one, other));
    server.assert_clean_but(&["/figures"]);
}

#[test]
fn a_hold_that_passes_on_is_one_grant_for_each_thread() {
    let server = Server::start();
    // A waiter is listed a moment before it leaves its acquire in the queue: a release in between
    // finds nobody to pass the hold on to.
    let passed_on = (0..100).any(|_| {
        let client = server.client();
        let held = client.lock("job").unwrap();
        std::thread::scope(|s| {
            s.spawn(|| client.lock("job").unwrap().unlock().unwrap());
            waits(&client, 1);
            held.unlock().unwrap();
        });
        let counted = figures(&client, Primitive::Mutex);
        assert_eq!(
            (counted.granted_at_once(), counted.granted_after_wait(), counted.calls()),
            (1, 1, 2)
        );
        assert_eq!((counted.joined(), counted.holds().count()), (0, 2));
        counted.passed_on() + counted.acquired_with_release() == 1
    });
    assert!(passed_on);
    server.assert_clean();
}

#[test]
fn a_hold_that_passes_on_is_not_joined() {
    let server = Server::start();
    let client = server.client();
    let together = std::sync::Barrier::new(4);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                together.wait();
                (0..200).for_each(|_| client.lock("job").unwrap().unlock().unwrap());
            });
        }
    });
    let counted = figures(&client, Primitive::Mutex);
    assert!(counted.passed_on() > 0 && counted.joined() == 0, "{counted:?}");
    drop(client);
    server.assert_clean();
}

#[test]
fn readers_that_share_a_hold_are_one_grant_each() {
    let server = Server::start();
    let (writer, readers) = (server.client(), server.client());
    let written = writer.rw_lock("config").write().unwrap();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| readers.rw_lock("config").read().unwrap().unlock().unwrap());
        }
        waits(&readers, 4);
        written.unlock().unwrap();
    });
    let counted = figures(&readers, Primitive::Read);
    assert_eq!(
        (counted.granted_after_wait(), counted.calls(), counted.holds().count()),
        (4, 4, 4),
        "{}",
        readers.stats()
    );
    assert!(
        counted.joined() > 0,
        "those behind the first reader of the client join it: {counted:?}"
    );
    assert_eq!(figures(&writer, Primitive::Write).granted_at_once(), 1);
    drop((writer, readers));
    server.assert_clean();
}

/// Without a writer before them: those that come while the first one asks queue behind it. If they
/// asked as well, and a writer came in between, they would wait for it beside a hold that they may
/// join. (The answer takes too long for the first hold to be joined, so the next one asks anew.)
#[test]
fn readers_that_come_while_one_asks_queue_behind_it() {
    let server = Server::start();
    let builder = server.builder().lease(Duration::from_secs(60)).io_timeout(CAP / 2);
    let readers = builder.build().unwrap();
    // So that its scripts are known.
    drop(readers.rw_lock("other").read().unwrap());
    server.cmd::<()>(&["CLIENT", "PAUSE", "4000", "ALL"]);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| readers.rw_lock("config").read().unwrap().unlock().unwrap());
        }
        waits(&readers, 3);
    });
    let counted = figures(&readers, Primitive::Read);
    assert!(counted.joined() > 0, "{counted:?}");
    drop(readers);
    server.assert_clean();
}

#[test]
fn a_multi_lock_is_one_call_and_several_holds() {
    let server = Server::start();
    let (one, other) = (server.client(), server.client());
    let both = one.multi(["a", "b"]);
    let held = other.lock("b").unwrap();
    assert!(both.try_lock().unwrap().is_none());
    std::thread::scope(|s| {
        s.spawn(|| both.lock().unwrap().unlock().unwrap());
        waits(&one, 1);
        assert_eq!(one.snapshot().waits()[0].name(), "b", "the name that is taken");
        held.unlock().unwrap();
    });
    let held = both.lock().unwrap();
    drop(both.lock().unwrap());
    drop(held);
    let counted = figures(&one, Primitive::Multi);
    assert_eq!(
        (counted.busy(), counted.granted_after_wait(), counted.granted_at_once()),
        (1, 1, 1),
        "{}",
        one.stats()
    );
    assert_eq!((counted.reentered(), counted.calls(), counted.waits().count()), (1, 4, 1));
    assert_eq!(counted.holds().count(), 4, "two names, twice");
    assert!(
        one.stats().primitive(Primitive::Mutex).is_none(),
        "nobody has used that: {}",
        one.stats()
    );
    let name = |name| one.stats().name(name, Primitive::Mutex).unwrap().clone();
    assert_eq!(
        (name("a").waits().count(), name("b").waits().count(), name("b").calls()),
        (0, 1, 4)
    );
    drop((one, other, both));
    server.assert_clean();
}

/// The holds of a multi-lock count for it, and so do their renewals and losses.
#[test]
fn the_losses_of_a_multi_lock_are_its_own() {
    let server = Server::start();
    let client = server.builder().short_lease(ms(3000)).build().unwrap();
    let both = client.multi(["a", "b"]).lock().unwrap();
    wait_until("they are renewed", || figures(&client, Primitive::Multi).renewals() >= 2);
    server.cmd::<u32>(&["DEL", "a"]);
    wait_until("the loss is counted", || figures(&client, Primitive::Multi).lost() == 1);
    assert_eq!(client.stats().total().lost(), 1);
    assert_eq!(client.stats().name("a", Primitive::Mutex).unwrap().lost(), 1);
    assert!(client.stats().primitive(Primitive::Mutex).is_none(), "{}", client.stats());
    drop(both);
}

#[test]
fn a_lost_hold_is_not_held() {
    let server = Server::start();
    let client = server.builder().short_lease(ms(3000)).build().unwrap();
    let (lost, kept) = (client.lock("lost").unwrap(), client.lock("kept").unwrap());
    assert_eq!(client.stats().holds(), 2);
    server.cmd::<u32>(&["DEL", "lost"]);
    assert!(lost.wait_lost(CAP).is_lost());
    assert_eq!(client.stats().holds(), 1, "its guard still exists");
    assert!(
        client.stats().to_prometheus().contains("leasehold_holds{client="),
        "{}",
        client.stats()
    );
    drop((lost, kept));
    assert_eq!(client.stats().holds(), 0);
}

#[test]
fn permits_and_latches_are_counted() {
    let server = Server::start();
    let client = server.client();
    let leased = client.semaphore("permits");
    leased.try_set_permits(1).unwrap();
    let permit = leased.acquire().unwrap();
    assert!(leased.try_acquire().unwrap().is_none());
    assert!(leased.try_acquire_for(ms(30)).unwrap().is_none());
    std::thread::scope(|s| {
        s.spawn(|| leased.acquire().map(drop).unwrap());
        waits(&client, 1);
        drop(permit);
    });
    let counted = figures(&client, Primitive::Semaphore);
    assert_eq!(
        (
            counted.granted_at_once(),
            counted.granted_after_wait(),
            counted.busy(),
            counted.timed_out()
        ),
        (1, 1, 1, 1)
    );
    assert_eq!((counted.calls(), counted.holds().count()), (4, 2));

    let permits = client.counting_semaphore("counting");
    permits.try_set_permits(2).unwrap();
    let permit = permits.acquire_many(2).unwrap();
    assert!(permits.try_acquire().unwrap().is_none());
    assert_eq!((client.stats().holds(), client.snapshot().holds()[0].hold_count()), (1, 2));
    permit.release().unwrap();
    let counted = figures(&client, Primitive::CountingSemaphore);
    assert_eq!(
        (counted.granted_at_once(), counted.busy(), counted.holds().count(), counted.calls()),
        (1, 1, 1, 2)
    );

    let latch = client.latch("begin");
    latch.set_count(1).unwrap();
    assert!(!latch.try_wait().unwrap());
    std::thread::scope(|s| {
        s.spawn(|| latch.wait().unwrap());
        waits(&client, 1);
        latch.count_down().unwrap();
    });
    latch.wait().unwrap();
    let counted = figures(&client, Primitive::Latch);
    assert_eq!(
        (counted.granted_after_wait(), counted.granted_at_once(), counted.busy(), counted.calls()),
        (1, 1, 1, 3)
    );
    assert_eq!(counted.holds().count(), 0);
    leased.delete().unwrap();
    permits.delete().unwrap();
    drop((client, leased, permits, latch));
    server.assert_clean();
}

#[test]
fn errors_are_counted_by_kind_and_a_close_as_a_stop() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client());
    server.cmd::<()>(&["SET", "text", "no lock"]);
    assert_eq!(client.lock("text").unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(
        client.mutex("job").with_lease(ms(1)).lock().unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    let held = client.mutex("job").non_reentrant().lock().unwrap();
    assert_eq!(client.lock("job").unwrap_err().kind(), ErrorKind::Conflict);
    drop(held);
    let held = other.lock("job").unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.lock("job").map(drop));
        waits(&client, 1);
        client.close(CAP).unwrap();
        assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    });
    assert_eq!(client.lock("job").unwrap_err().kind(), ErrorKind::Closed);
    let counted = figures(&client, Primitive::Mutex);
    let kinds =
        [ErrorKind::WrongType, ErrorKind::InvalidInput, ErrorKind::Conflict, ErrorKind::Closed];
    assert_eq!(kinds.map(|kind| counted.failed_with(kind)), [1, 1, 1, 2], "{}", client.stats());
    assert_eq!(
        (counted.failed(), counted.stopped(), counted.calls(), counted.contended()),
        (3, 2, 6, 1)
    );
    drop(held);
    drop((client, other));
    server.cmd::<()>(&["DEL", "text"]);
    server.assert_clean();
}

#[test]
fn a_connection_that_is_cut_is_a_reconnect() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = LockClient::open(&proxy.url()).unwrap();
    for cuts in 1..=3 {
        client.lock("job").unwrap().unlock().unwrap();
        proxy.cut_all();
        wait_until("the server sees no connection", || {
            !server.client_lines().iter().any(|line| line.contains("name=it-"))
        });
        client.lock("job").unwrap().unlock().unwrap();
        let stats = client.stats();
        assert_eq!(
            (stats.connections_broken(), stats.reconnects()),
            (Some(cuts), Some(cuts)),
            "{stats}"
        );
        assert_eq!(stats.connections_opened(), Some(cuts + 1));
    }
    assert_eq!(figures(&client, Primitive::Mutex).granted_at_once(), 6, "no call has failed");
    drop((client, proxy));
    server.assert_clean();
}

#[test]
fn renewals_failures_and_losses_are_counted() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = LockClient::builder()
        .url(proxy.url())
        .lease(ms(4500))
        .io_timeout(ms(3500))
        .build()
        .unwrap();
    let held = client.lock("job").unwrap();
    wait_until("it is renewed", || figures(&client, Primitive::Mutex).renewals() >= 2);
    // On a busy machine one may have failed earlier.
    let before = figures(&client, Primitive::Mutex).renewal_failures();
    proxy.refuse(true);
    proxy.cut_all();
    wait_until("a renewal fails", || {
        figures(&client, Primitive::Mutex).renewal_failures() > before
    });
    wait_until("it is lost", || figures(&client, Primitive::Mutex).lost() == 1);
    proxy.refuse(false);
    assert!(!held.is_held());
    assert_eq!(held.unlock().unwrap_err().kind(), ErrorKind::Lost);
    wait_until("what is stored is undone", || client.stats().unknown_outcomes() == 0);

    let held = client.lock("job").unwrap();
    server.cmd::<()>(&["DEL", "job"]);
    assert!(held.wait_lost(CAP).is_lost());
    assert_eq!(held.unlock().unwrap_err().kind(), ErrorKind::Lost);
    // The watchdog has found the loss and may be counting it still, while this thread is faster.
    wait_until("all is counted", || figures(&client, Primitive::Mutex).holds().count() == 2);
    assert_eq!(figures(&client, Primitive::Mutex).lost(), 2, "each once: {}", client.stats());
    drop((client, proxy));
    server.assert_clean();
}

#[test]
fn an_unknown_outcome_is_open_until_the_server_answers() {
    let server = Server::start();
    let client = server.builder().io_timeout(ms(1500)).build().unwrap();
    client.lock("job").unwrap().unlock().unwrap();
    server.suspend();
    assert_eq!(client.lock("job").unwrap_err().kind(), ErrorKind::Unreachable);
    assert_eq!(client.stats().unknown_outcomes(), 1);
    assert_eq!(figures(&client, Primitive::Mutex).failed_with(ErrorKind::Unreachable), 1);
    assert!(client.stats().connections_broken() >= Some(1), "it did not answer in time");
    server.resume();
    wait_until("it is resolved", || client.stats().unknown_outcomes() == 0);
    drop(client);
    server.assert_clean();
}

/// Samples by metric and labels; panics on anything that is not in the text format.
fn parsed(text: &str) -> BTreeMap<(String, BTreeMap<String, String>), f64> {
    let (mut described, mut samples): (BTreeMap<&str, (&str, bool)>, _) =
        (BTreeMap::new(), BTreeMap::new());
    let is_name = |name: &str| {
        name.chars()
            .enumerate()
            .all(|(at, c)| c == '_' || c.is_ascii_alphabetic() || at > 0 && c.is_ascii_digit())
    };
    let mut current = "";
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(
                !described.contains_key(name) && !help.is_empty() && name.starts_with("leasehold_"),
                "{line}"
            );
            current = name;
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(name == current && ["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            described.insert(name, (kind, false));
            continue;
        }
        let (name, rest) = line.split_once('{').unwrap();
        let kind = described[current].0;
        let suffix = name
            .strip_prefix(current)
            .unwrap_or_else(|| panic!("a sample of another metric: {line}"));
        let suffixes: &[&str] =
            if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(is_name(name) && suffixes.contains(&suffix), "{line}");
        let (mut labels, mut chars) = (BTreeMap::new(), rest.chars());
        loop {
            let label: String = chars.by_ref().take_while(|c| *c != '=').collect();
            assert!(is_name(&label) && chars.next() == Some('"'), "{line}");
            let mut value = String::new();
            loop {
                match chars.next().unwrap() {
                    '"' => break,
                    '\\' => value.push(match chars.next().unwrap() {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        other => panic!("\\{other} is not an escape: {line}"),
                    }),
                    c => value.push(c),
                }
            }
            assert!(labels.insert(label, value).is_none(), "twice: {line}");
            match chars.next() {
                Some(',') => {}
                Some('}') => break,
                other => panic!("{other:?}: {line}"),
            }
        }
        let value: f64 = chars.as_str().strip_prefix(' ').unwrap().parse().unwrap();
        assert!(samples.insert((name.to_owned(), labels), value).is_none(), "twice: {line}");
    }
    assert!(text.ends_with('\n'));
    samples
}

#[test]
fn the_text_for_prometheus_can_be_parsed_and_says_the_same() {
    let client = LockClient::builder().client_name("billing-7").build_in_memory().unwrap();
    let name = "back\\slash, \"quote\", new\nline, {brace}=";
    for _ in 0..3 {
        client.lock(name).unwrap().unlock().unwrap();
    }
    let _held = client.lock("held").unwrap();
    client.mutex("job").with_lease(ms(1)).lock().unwrap_err();
    let stats = client.stats();
    let samples = parsed(&stats.to_prometheus());
    let value = |metric: &str, labels: &[(&str, &str)]| {
        let mut labels: BTreeMap<_, _> =
            labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        labels.insert("client".to_owned(), client.stats().client_name().to_owned());
        *samples
            .get(&(metric.to_owned(), labels.clone()))
            .unwrap_or_else(|| panic!("no {metric} {labels:?}"))
    };
    let mutex = ("primitive", "mutex");
    assert_eq!(value("leasehold_calls_total", &[mutex, ("outcome", "granted_at_once")]), 4.0);
    assert_eq!(value("leasehold_calls_total", &[mutex, ("outcome", "failed")]), 1.0);
    assert_eq!(value("leasehold_errors_total", &[mutex, ("error", "invalid_input")]), 1.0);
    assert_eq!(value("leasehold_name_calls_total", &[mutex, ("name", name)]), 3.0);
    assert_eq!(value("leasehold_holds", &[]), 1.0);
    assert_eq!(value("leasehold_hold_seconds_count", &[mutex]), 3.0);
    assert_eq!(value("leasehold_hold_seconds_bucket", &[mutex, ("le", "+Inf")]), 3.0);
    let sum = stats.total().holds().sum().as_secs_f64();
    assert!((value("leasehold_hold_seconds_sum", &[mutex]) - sum).abs() < 1e-9);
    // Each bucket includes those before it.
    let mut buckets: Vec<(f64, f64)> = samples
        .iter()
        .filter(|((metric, _), _)| metric == "leasehold_hold_seconds_bucket")
        .map(|((_, labels), count)| (labels["le"].replace("+Inf", "inf").parse().unwrap(), *count))
        .collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(
        buckets.len() > 10 && buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1),
        "{buckets:?}"
    );
}

#[test]
fn the_table_fits_a_hundred_columns() {
    let client = LockClient::builder().client_name("n".repeat(64)).build_in_memory().unwrap();
    for name in ["short".to_owned(), "long ".repeat(60), "tab\there".to_owned()] {
        client.lock(&name).unwrap().unlock().unwrap();
        client.mutex(&name).with_lease(ms(1)).lock().unwrap_err();
    }
    client.rw_lock("config").read().unwrap().unlock().unwrap();
    let _held = client.lock("busy").unwrap();
    drop(client.lock("busy").unwrap());
    std::thread::scope(|s| {
        s.spawn(|| assert!(client.try_lock("busy").unwrap().is_none())).join().unwrap();
    });
    let table = client.stats().to_string();
    for line in table.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for part in ["mutex", "read", "short", "1 busy", "3 with the error InvalidInput", "tab\\there"]
    {
        assert!(table.contains(part), "{part}: {table}");
    }
}

#[test]
fn a_clone_of_the_figures_stands_still() {
    let client = LockClient::in_memory();
    let stats = client.stats();
    client.lock("job").unwrap().unlock().unwrap();
    assert_eq!((stats.total().calls(), client.stats().total().calls()), (0, 1));
}

#[derive(Default)]
struct Diary {
    lines: Mutex<Vec<String>>,
    client: Mutex<Option<LockClient>>,
}

impl Diary {
    fn note(&self, line: String) {
        // If the client held a mutex during the call, one of these would never return.
        let client = self.client.lock().unwrap().clone();
        if let Some(client) = client {
            let _ = (client.stats(), client.snapshot(), format!("{client:?}"));
        }
        self.lines.lock().unwrap().push(line);
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

impl Listener for Diary {
    fn waiting(&self, lock: &LockInfo<'_>) {
        self.note(format!("waiting {}", lock.name()));
    }

    fn acquired(&self, lock: &LockInfo<'_>, waited: Option<Duration>) {
        let how = if waited.is_some() { " after a wait" } else { "" };
        self.note(format!("acquired {} {}{how}", lock.primitive(), lock.name()));
    }

    fn gave_up(&self, lock: &LockInfo<'_>, waited: Option<Duration>, error: Option<&Error>) {
        self.note(format!(
            "gave up {} {} {:?}",
            lock.name(),
            waited.is_some(),
            error.map(Error::kind)
        ));
    }

    fn released(&self, lock: &LockInfo<'_>, _: Duration) {
        self.note(format!("released {}", lock.name()));
    }

    fn lost(&self, lock: &LockInfo<'_>, loss: &Loss) {
        self.note(format!("lost {} {:?}", lock.name(), loss.reason()));
    }

    fn renewal_failed(&self, lock: &LockInfo<'_>, error: &Error, left: Duration) {
        assert!(left < CAP);
        self.note(format!("renewal of {} failed: {:?}", lock.name(), error.kind()));
    }
}

#[test]
fn a_listener_is_told_of_everything_once_and_never_under_a_mutex() {
    let server = Server::start();
    let diary = Arc::new(Diary::default());
    let client = server.builder().listener(diary.clone()).build().unwrap();
    *diary.client.lock().unwrap() = Some(client.clone());
    let other = server.client();

    let held = client.lock("a").unwrap();
    drop(client.lock("a").unwrap());
    held.unlock().unwrap();
    let held = client.multi(["a", "b"]).lock().unwrap();
    drop(held);
    let expected =
        ["acquired mutex a", "released a", "acquired multi a, b", "released a", "released b"];
    assert_eq!(std::mem::take(&mut *diary.lines.lock().unwrap()), expected);

    let taken = other.lock("a").unwrap();
    assert!(client.try_lock("a").unwrap().is_none());
    std::thread::scope(|s| {
        s.spawn(|| client.lock("a").unwrap().unlock().unwrap());
        waits(&client, 1);
        taken.unlock().unwrap();
    });
    let expected =
        ["gave up a false None", "waiting a", "acquired mutex a after a wait", "released a"];
    assert_eq!(std::mem::take(&mut *diary.lines.lock().unwrap()), expected);

    // In the local queue, and on to the next thread of the client.
    let held = client.lock("a").unwrap();
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| client.lock("a").unwrap().unlock().unwrap());
        }
        waits(&client, 2);
        held.unlock().unwrap();
    });
    let count = |what: &str| diary.lines().iter().filter(|line| line.starts_with(what)).count();
    assert_eq!(
        (count("waiting"), count("acquired"), count("released")),
        (2, 3, 3),
        "{:?}",
        diary.lines()
    );
    diary.lines.lock().unwrap().clear();

    let lost = client.mutex("a").lock().unwrap();
    assert!(other.mutex("a").force_unlock().unwrap());
    assert_eq!(lost.unlock().unwrap_err().kind(), ErrorKind::Lost);
    wait_until("the loss is reported", || count("lost a TakenAway") == 1);
    let held = client.lock("b").unwrap();
    client.close(CAP).unwrap();
    drop(held);
    assert_eq!(
        (count("released a"), count("released b"), count("lost a TakenAway")),
        (0, 1, 1),
        "{:?}",
        diary.lines()
    );
    *diary.client.lock().unwrap() = None;
    drop((client, other));
    server.assert_clean();
}

#[test]
fn a_listener_is_told_of_renewals_that_fail() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let diary = Arc::new(Diary::default());
    let builder = LockClient::builder().url(proxy.url()).lease(ms(4500)).io_timeout(ms(3500));
    let client = builder.listener(diary.clone()).build().unwrap();
    let held = client.lock("job").unwrap();
    proxy.refuse(true);
    proxy.cut_all();
    let has = |line: &str| diary.lines().iter().any(|one| one == line);
    wait_until("it is reported", || has("renewal of job failed: Unreachable"));
    wait_until("the loss is reported", || has("lost job NotRenewed"));
    proxy.refuse(false);
    held.unlock().unwrap_err();
    drop((client, proxy));
    server.assert_clean();
}

/// It runs on the thread that is about to wait, which is given no hold meanwhile.
#[test]
fn a_listener_that_blocks_keeps_no_lock() {
    struct Blocks(Mutex<std::sync::mpsc::Receiver<()>>);
    impl Listener for Blocks {
        fn waiting(&self, _: &LockInfo<'_>) {
            if std::thread::current().name() == Some("slow") {
                let _ = self.0.lock().unwrap().recv();
            }
        }
    }
    let server = Server::start();
    let (goes_on, blocks) = std::sync::mpsc::channel();
    let client = server.builder().listener(Arc::new(Blocks(Mutex::new(blocks)))).build().unwrap();
    let other = server.client();
    let held = client.lock("job").unwrap();
    std::thread::scope(|s| {
        let quick = s.spawn(|| client.lock("job").unwrap().unlock().unwrap());
        waits(&client, 1);
        let slow = std::thread::Builder::new().name("slow".to_owned());
        let slow = slow.spawn_scoped(s, || client.lock("job").unwrap().unlock().unwrap()).unwrap();
        waits(&client, 2);
        held.unlock().unwrap();
        quick.join().unwrap();
        let is_free = other.try_lock_for("job", PROMPT).unwrap().is_some();
        goes_on.send(()).unwrap();
        slow.join().unwrap();
        assert!(is_free, "it was passed to a thread inside its listener");
    });
    drop((client, other));
    server.assert_clean();
}

/// A call that leads gives up the role while its listener is told that it waits, and then queues
/// behind the next one.
#[test]
fn a_call_that_queues_again_after_its_listener_is_listed_once() {
    let client = LockClient::builder().listener(Arc::new(Diary::default())).build_in_memory();
    let client = client.unwrap();
    // Mostly the next one comes when the first leads again.
    for _ in 0..30 {
        let held = client.lock("job").unwrap();
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| client.lock("job").unwrap().unlock().unwrap());
            }
            waits(&client, 4);
            std::thread::sleep(ms(2));
            let listed = client.stats().waiting();
            held.unlock().unwrap();
            assert_eq!(listed, 4);
        });
    }
    client.close(CAP).unwrap();
}

#[test]
fn a_listener_that_panics_harms_nothing_and_is_logged_once() {
    struct Panics;
    impl Listener for Panics {
        fn waiting(&self, _: &LockInfo<'_>) {
            panic!("on purpose");
        }
        fn acquired(&self, _: &LockInfo<'_>, _: Option<Duration>) {
            panic!("on purpose");
        }
        fn released(&self, _: &LockInfo<'_>, _: Duration) {
            panic!("on purpose");
        }
    }
    let client = LockClient::builder().listener(Arc::new(Panics)).build_in_memory().unwrap();
    let held = client.lock("job").unwrap();
    std::thread::scope(|s| {
        s.spawn(|| client.lock("job").unwrap().unlock().unwrap());
        waits(&client, 1);
        held.unlock().unwrap();
    });
    let counted = figures(&client, Primitive::Mutex);
    assert_eq!((counted.granted(), counted.holds().count()), (2, 2));
    client.close(CAP).unwrap();
}

/// The samples of a text, with the ends of buckets in one form and at one place.
#[cfg(any(feature = "metrics", feature = "prometheus-client"))]
fn series(text: &str) -> BTreeMap<String, f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let in_one_form = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let series = match series.split_once("le=\"") {
            Some((begin, rest)) => {
                let (end, rest) = rest.split_once('"').unwrap();
                let end: f64 = end.replace("+Inf", "inf").parse().unwrap();
                let (begin, rest) = (begin.trim_end_matches(','), rest.trim_start_matches(','));
                format!("{begin}{rest} up to {end:?}")
            }
            None => series.to_owned(),
        };
        (series, value.parse().unwrap())
    };
    samples.map(in_one_form).collect()
}

/// Two clients of one program, with something to count.
#[cfg(any(feature = "metrics", feature = "prometheus-client"))]
fn two_clients() -> [leasehold::observe::Stats; 2] {
    const NAME: &str = "back\\slash \"quote\"";
    ["billing", "invoices"].map(|name| {
        let client = LockClient::builder().client_name(name).build_in_memory().unwrap();
        client.lock(NAME).unwrap().unlock().unwrap();
        let held = client.lock(NAME).unwrap();
        std::thread::scope(|s| {
            s.spawn(|| client.lock(NAME).unwrap().unlock().unwrap());
            waits(&client, 1);
            held.unlock().unwrap();
        });
        client.mutex(NAME).with_lease(ms(1)).lock().unwrap_err();
        client.stats()
    })
}

#[cfg(feature = "prometheus-client")]
#[test]
fn a_registry_collects_the_same_series() {
    use leasehold::observe::{Collector, Stats};
    use prometheus_client::registry::Registry;

    let clients = two_clients();
    let expected = series(&Stats::to_prometheus_of(&clients));
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collector::new(move || clients.to_vec())));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert_eq!(series(&text), expected, "{text}");
    assert!(
        expected
            .keys()
            .any(|series| series.contains("leasehold_wait_seconds_bucket{client=\"billing\"")),
        "{text}"
    );
    let described = |line: &&str| line.starts_with("# TYPE leasehold_wait_seconds ");
    assert_eq!(
        text.lines().filter(described).collect::<Vec<_>>(),
        ["# TYPE leasehold_wait_seconds histogram"]
    );
}

#[test]
fn several_clients_have_one_text() {
    let clients =
        ["a", "b"].map(|name| LockClient::builder().client_name(name).build_in_memory().unwrap());
    drop(clients[1].lock("job").unwrap());
    let both = parsed(&leasehold::observe::Stats::to_prometheus_of(
        &clients.each_ref().map(LockClient::stats),
    ));
    let of = |client: &str| both.keys().filter(|(_, labels)| labels["client"] == client).count();
    assert!(of("a") > 0 && of("b") > of("a"));
    assert_eq!(leasehold::observe::Stats::to_prometheus_of(&[]), "");
}

#[cfg(feature = "metrics")]
mod facade {
    use std::collections::BTreeSet;

    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder,
        SharedString, Unit,
    };

    use super::*;

    /// The samples, and the names that were described.
    type Published = (Mutex<BTreeMap<String, f64>>, Mutex<BTreeSet<String>>);

    #[derive(Clone, Default)]
    struct Recorded(Arc<Published>);

    struct Cell(Recorded, String);

    impl CounterFn for Cell {
        fn increment(&self, _: u64) {
            panic!("the figures are absolute");
        }
        fn absolute(&self, value: u64) {
            self.0.0.0.lock().unwrap().insert(self.1.clone(), value as f64);
        }
    }

    impl GaugeFn for Cell {
        fn increment(&self, _: f64) {
            panic!("the figures are absolute");
        }
        fn decrement(&self, _: f64) {
            panic!("the figures are absolute");
        }
        fn set(&self, value: f64) {
            self.0.0.0.lock().unwrap().insert(self.1.clone(), value);
        }
    }

    impl Recorded {
        fn cell(&self, key: &Key) -> Arc<Cell> {
            let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"");
            let label =
                |label: &metrics::Label| format!("{}=\"{}\"", label.key(), escaped(label.value()));
            let labels: Vec<_> = key.labels().map(label).collect();
            Arc::new(Cell(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
        }
    }

    impl Recorder for Recorded {
        fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
            assert!(unit == Some(Unit::Count) && !help.is_empty());
            self.0.1.lock().unwrap().insert(name.as_str().to_owned());
        }
        fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
            assert!(unit.is_some() && !help.is_empty());
            self.0.1.lock().unwrap().insert(name.as_str().to_owned());
        }
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.cell(key))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.cell(key))
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            panic!("a histogram of the facade cannot be set to a state")
        }
    }

    #[test]
    fn the_facade_gets_the_same_series() {
        let [stats, _] = two_clients();
        let recorded = Recorded::default();
        for _ in 0..2 {
            metrics::with_local_recorder(&recorded, || stats.publish());
        }
        let text = |(series, value): (&String, &f64)| format!("{series} {value}\n");
        let published: String = recorded.0.0.lock().unwrap().iter().map(text).collect();
        assert_eq!(series(&published), series(&stats.to_prometheus()));
        let described = recorded.0.1.lock().unwrap();
        let names = published.lines().map(|line| line.split_once('{').unwrap().0.to_owned());
        assert_eq!(names.collect::<BTreeSet<_>>(), *described);
    }
}

/// What became of jobs, and who leads, in figures of their own.
mod jobs_and_elections {
    use std::time::SystemTime;

    use leasehold::Once;

    use super::*;

    fn two_in_memory() -> [LockClient; 2] {
        let builder = |name: &str| LockClient::builder().client_name(name);
        let one = builder("one").build_in_memory().unwrap();
        let other = builder("other").build_in_memory_shared(&one).unwrap();
        [one, other]
    }

    fn run(client: &LockClient, occurrence: &str, ends: Result<(), ()>) -> Once<(), ()> {
        client.once("report", occurrence).attempts(2).run(|_| ends).unwrap()
    }

    #[test]
    fn calls_for_a_job_are_counted_by_what_became_of_them() {
        let [one, other] = two_in_memory();
        let before = SystemTime::now();
        assert!(matches!(run(&one, "1", Err(())), Once::Failed(())));
        let panics = std::panic::AssertUnwindSafe(|| {
            let _ = one.once("report", "1").attempts(2).run(|_| -> Result<(), ()> { panic!("2") });
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(matches!(run(&one, "1", Ok(())), Once::GaveUp { .. }));
        assert_eq!(one.stats().jobs()[0].last_done(), None);
        assert!(matches!(run(&one, "2", Ok(())), Once::Done(())));
        assert!(matches!(run(&other, "2", Ok(())), Once::AlreadyDone { .. }));
        assert!(matches!(run(&other, "1", Ok(())), Once::Passed { .. }));
        let unrecorded = one.once("report", "3").run(|_| {
            assert!(other.once("report", "any").force_out().unwrap());
            Ok::<_, ()>(())
        });
        assert!(matches!(unrecorded.unwrap(), Once::Unrecorded((), _)));

        let (stats, others) = (one.stats(), other.stats());
        let [job] = stats.jobs() else { panic!("{stats}") };
        assert_eq!(
            (job.name(), job.done(), job.failed(), job.unrecorded(), job.gave_up()),
            ("report", 1, 2, 1, 1)
        );
        assert_eq!((job.already_done(), job.not_run()), (0, 0));
        let [theirs] = others.jobs() else { panic!("{others}") };
        assert_eq!((theirs.already_done(), theirs.not_run(), theirs.done()), (1, 1, 0));
        for job in [job, theirs] {
            let done = job.last_done().expect("both know of it");
            assert!(done >= before - ms(2) && done <= SystemTime::now(), "{done:?}");
        }
        let line = "job \"report\": 1 done, 2 failed, 1 unrecorded, 1 gave up";
        assert!(stats.to_string().lines().any(|told| told == line), "{stats}");
        let text = stats.to_prometheus();
        for sample in ["outcome=\"done\"} 1", "outcome=\"failed\"} 2", "outcome=\"not_run\"} 0"] {
            let name = "leasehold_job_runs_total{client=\"one\",name=\"report\",";
            assert!(text.contains(&format!("{name}{sample}\n")), "{text}");
        }
        assert!(
            text.contains("leasehold_job_last_done_timestamp_seconds{client=\"one\""),
            "{text}"
        );
    }

    #[test]
    fn a_client_that_leads_says_so() {
        let [one, other] = two_in_memory();
        let leads = |client: &LockClient| {
            let stats = client.stats();
            stats.elections().iter().map(|one| (one.terms(), one.leads())).collect::<Vec<_>>()
        };
        let mut terms = 0;
        let led = one.election("boss").run(|_| {
            terms += 1;
            assert_eq!((leads(&one), leads(&other)), (vec![(terms, true)], vec![]));
            let text = one.stats().to_prometheus();
            assert!(text.contains("leasehold_leads{client=\"one\",name=\"boss\"} 1\n"), "{text}");
            if terms == 1 {
                return Err("the first one fails");
            }
            Ok(terms)
        });
        assert_eq!(led.unwrap(), 2);
        assert_eq!(leads(&one), [(2, false)]);
        let told = one.stats().to_string();
        assert!(told.lines().any(|line| line == "election \"boss\": 2 terms led"), "{told}");
        // It is told to end, and stands again.
        let token = leasehold::CancelToken::new();
        let stopped = other.election("boss").with_cancel(&token).run(|_| {
            token.cancel();
            assert_eq!(leads(&other), [(1, false)]);
            Ok::<_, Error>(())
        });
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Cancelled);
    }
}
