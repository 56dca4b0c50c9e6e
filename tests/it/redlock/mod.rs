//! Locks on a majority of several masters.

mod beside_redisson;
mod late_replies;
mod lost_replies;
mod masters_down;
mod quarantine;
mod renewal;
mod tokens;
mod waiting;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Builder, ErrorKind, LockClient, Redlock};

use crate::rig::{CAP, Child, Fault, Proxy, Server, acl_words, ms, wait_until};
use crate::support::{Masters, ShortLease, count_under_the_lock, wait_for_votes};

#[test]
fn a_lock_is_held_on_all_and_given_back_on_all() {
    let masters = Masters::fresh(3);
    let (a, b) = (masters.client(), masters.client());
    let mut last = 0;
    for _ in 0..3 {
        let guard = a.lock("l").unwrap();
        wait_until("all have it", || masters.holding("l") == 3);
        assert!(guard.is_held() && b.try_lock("l").unwrap().is_none());
        let token = guard.fencing_token().unwrap().get();
        assert!(token > last);
        last = token;
        {
            let again = a.lock("l").unwrap();
            assert_eq!(
                (again.hold_count(), again.fencing_token().unwrap()),
                (2, guard.fencing_token().unwrap())
            );
        }
        assert!(b.mutex("l").is_locked().unwrap());
        assert!(a.mutex("l").holder().unwrap().unwrap().is_this_client());
        guard.unlock().unwrap();
        assert!(!a.mutex("l").is_locked().unwrap());
        assert!(b.try_lock("l").unwrap().unwrap().fencing_token().unwrap().get() > last);
    }
    assert_eq!(a.nodes().len(), 3);
    drop((a, b));
    masters.assert_clean();
}

#[test]
fn contenders_do_not_split_the_vote_for_ever() {
    let masters = Masters::fresh(3);
    let clients: Vec<LockClient> = (0..4).map(|_| masters.client()).collect();
    let (inside, count) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|s| {
        for client in clients.iter().chain(&clients) {
            s.spawn(|| {
                for _ in 0..20 {
                    let guard = client.lock("l").unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    count.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 160);
    drop(clients);
    masters.assert_clean();
}

/// Some client gets a free lock, even if all try at once and none waits.
#[test]
fn somebody_wins_when_all_try_at_once() {
    let masters = Masters::fresh(3);
    let clients: Vec<LockClient> = (0..3).map(|_| masters.client()).collect();
    let start = std::sync::Barrier::new(3);
    for _ in 0..30 {
        let (is_won, cap) = (AtomicBool::new(false), Instant::now() + CAP);
        let try_lock = |client: &LockClient| {
            start.wait();
            loop {
                let guard = client.mutex("l").try_lock_owned_for(ms(100)).unwrap();
                is_won.fetch_or(guard.is_some(), Ordering::AcqRel);
                if is_won.load(Ordering::Acquire) || Instant::now() > cap {
                    break guard;
                }
            }
        };
        let won: Vec<_> = std::thread::scope(|s| {
            let threads: Vec<_> =
                clients.iter().map(|client| s.spawn(|| try_lock(client))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(won.iter().flatten().count(), 1);
    }
}

/// The majorities of the two clients share one master, which keeps the holds apart.
#[test]
fn two_clients_whose_majorities_meet_in_one_master() {
    let masters = Masters::fresh(3);
    let proxies: Vec<Proxy> = masters.0.iter().map(Proxy::start).collect();
    let cut_off_from = |dead: usize| {
        proxies[dead].refuse(true);
        let mut urls = masters.urls();
        urls[dead] = proxies[dead].url();
        let client = LockClient::builder().redlock(Redlock::new(urls)).build().unwrap();
        wait_for_votes(&client, 2);
        client
    };
    let (a, b) = (cut_off_from(2), cut_off_from(0));
    let mut last = 0;
    for _ in 0..10 {
        let guard = a.lock("l").unwrap();
        assert!(guard.fencing_token().unwrap().get() > last);
        last = guard.fencing_token().unwrap().get();
        assert!(b.try_lock("l").unwrap().is_none());
        guard.unlock().unwrap();
        let guard = b.lock("l").unwrap();
        assert!(guard.fencing_token().unwrap().get() > last);
        last = guard.fencing_token().unwrap().get();
        assert!(a.try_lock("l").unwrap().is_none());
        guard.unlock().unwrap();
    }
}

const FAULTS: [Fault; 5] = [
    Fault::CutBeforeSend,
    Fault::CutAfterApplied,
    Fault::CutReplyAt(3),
    Fault::BlackHoleReply,
    Fault::StallReply(ms(400)),
];

#[test]
fn primitives_that_need_a_single_server_are_refused() {
    let masters = Masters::fresh(3);
    let client = masters.client();
    for error in [
        client.fair("l").lock().err(),
        client.fair("l").queue_len().err(),
        client.multi(["l", "m"]).lock().err(),
        client.multi(["l", "m"]).try_lock_owned().err(),
        client.rw_lock("l").read().err(),
        client.rw_lock("l").write().err(),
        client.semaphore("l").acquire().err(),
        client.semaphore("l").try_set_permits(1).err(),
        client.semaphore("l").available_permits().err(),
        client.counting_semaphore("l").acquire().err(),
        client.latch("l").try_set_count(1).err(),
        client.latch("l").wait().err(),
        client.rate_limiter("l").try_set_rate(1, ms(1)).err(),
        client.rate_limiter("l").acquire(1).err(),
        client.fenced_value("v").claim(token(&client)).err(),
        client.election("l").run(|_| Ok::<_, String>(())).err(),
        client.election("l").leader().err(),
        client.election("l").watch().next().unwrap().err(),
        client.election("l").request().err(),
    ] {
        let error = error.expect("it is refused");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(matches!(error.name(), Some("l" | "l, m" | "v")), "{error}");
    }
    drop(client);
    masters.assert_clean();
}

fn token(client: &LockClient) -> leasehold::fencing::FencingToken {
    client.lock("token").unwrap().fencing_token().unwrap()
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let masters = Masters::start(3);
    let urls = masters.urls();
    let redlock = |urls: &[String]| LockClient::builder().redlock(Redlock::new(urls));
    let refused = |builder: leasehold::Builder| {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    };
    refused(redlock(&urls[..2]));
    refused(redlock(&[urls[0].clone(), urls[1].clone(), urls[0].clone()]));
    refused(masters.builder_with(|masters| masters.longest_lease(ms(1000))).lease(ms(2000)));
    // One server with two URLs.
    let tcp = Server::start_tcp(&[]);
    let named = tcp.url().replace("127.0.0.1", "localhost");
    refused(redlock(&[urls[0].clone(), tcp.url(), named]));
    let client = masters.admitted().build().unwrap();
    let error = client.mutex("l").with_lease(ms(60_000)).lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("longest lease"), "{error}");
    assert_eq!(masters.holding("l"), 0);
}

/// Operators can see a hold and release it.
#[test]
fn operators_see_and_free() {
    let masters = Masters::fresh(3);
    let (a, b) = (masters.builder().short_lease(ms(4000)).build().unwrap(), masters.client());
    let guard = a.lock("l").unwrap();
    let holder = b.mutex("l").holder().unwrap().unwrap();
    assert!(!holder.is_this_client() && holder.remaining().is_some_and(|left| left <= ms(4000)));
    assert!(b.mutex("l").force_unlock().unwrap() && !b.mutex("l").force_unlock().unwrap());
    assert!(b.lock("l").unwrap().is_held());
    assert!(guard.wait_lost(CAP).is_lost());
    // A hold on a minority of masters does not count.
    masters.0[0].cmd::<()>(&["HSET", "l", "somebody", "1"]);
    assert!(!b.mutex("l").is_locked().unwrap());
    let _ours = b.lock("l").unwrap();
}

#[test]
fn eight_processes_count_exactly() {
    let masters = Masters::fresh(3);
    let counter = Server::start();
    counter.cmd::<()>(&["SET", "counter", "0"]);
    let (urls, url) = (masters.urls().join(" "), counter.url());
    let env = [("LEASEHOLD_TEST_URLS", &*urls), ("LEASEHOLD_TEST_URL", &*url)];
    let mut children: Vec<_> =
        (0..8).map(|_| Child::spawn("redlock::counting_process", &env)).collect();
    for child in &mut children {
        child.expect("done");
    }
    for child in children {
        child.wait();
    }
    assert_eq!(counter.cmd::<u32>(&["GET", "counter"]), 8 * 2 * 20);
    masters.assert_clean();
}

#[test]
#[ignore = "a program for other tests"]
fn counting_process() {
    let (urls, url) = (
        std::env::var("LEASEHOLD_TEST_URLS").unwrap(),
        std::env::var("LEASEHOLD_TEST_URL").unwrap(),
    );
    let client = LockClient::builder().redlock(Redlock::new(urls.split(' '))).build().unwrap();
    count_under_the_lock(&client, &url, 2);
    drop(client);
    println!("@@done");
}

/// The permissions that the crate docs list for Redlock in addition to those for one server.
#[test]
fn a_user_with_an_acl_can_use_it() {
    let masters = Masters::fresh(3);
    let rule = acl_words();
    let rule: Vec<&str> = rule.iter().map(String::as_str).collect();
    assert!(
        rule.contains(&"+hmget") && rule.contains(&"~leasehold:node") && rule.contains(&"+hset"),
        "{rule:?}"
    );
    let user = |rule: &[&str]| {
        for server in &masters.0 {
            let words =
                [&["ACL", "SETUSER", "u", "reset", "on", ">pw", "resetchannels", "~l"], rule]
                    .concat();
            server.cmd::<()>(&words);
        }
        let urls = masters.urls().into_iter().map(|url| format!("{url}?user=u&pass=pw"));
        LockClient::builder().redlock(Redlock::new(urls))
    };
    let client = user(&rule).build().unwrap();
    let guard = client.lock("l").unwrap();
    guard.extend(ms(30_000)).unwrap();
    guard.unlock().unwrap();
    drop(client);
    let without: Vec<&str> = rule.iter().copied().filter(|word| *word != "+hmget").collect();
    let client = user(&without).connect_lazily().build().unwrap();
    assert_eq!(client.try_lock("l").unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(masters.holding("l"), 0);
}

/// A client that acquires the lock again at once still lets another client in from time to time.
#[test]
fn no_client_keeps_it_for_itself() {
    let masters = Masters::fresh(3);
    let (a, b) = (masters.client(), masters.client());
    let (done, turns) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|s| {
        s.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                a.lock("l").unwrap().unlock().unwrap();
                turns.fetch_add(1, Ordering::SeqCst);
            }
        });
        wait_until("the other one gets it", || turns.load(Ordering::SeqCst) > 0);
        let got = (0..20).all(|_| b.try_lock_for("l", Duration::from_secs(5)).unwrap().is_some());
        done.store(true, Ordering::SeqCst);
        assert!(got, "the client starves");
    });
}

const LONGEST: Duration = ms(5000);

fn builder(urls: &[String]) -> Builder {
    builder_with(urls, |masters| masters)
}

fn builder_with(urls: &[String], settings: impl FnOnce(Redlock) -> Redlock) -> Builder {
    LockClient::builder()
        .redlock(settings(Redlock::new(urls).longest_lease(LONGEST)))
        .lease(LONGEST)
}

/// A client that can reach only the first two of three masters: it has never seen the third.
fn holds_on_two(masters: &Masters) -> (LockClient, Proxy) {
    let proxy = Proxy::start(&masters.0[2]);
    proxy.refuse(true);
    let mut urls = masters.urls();
    urls[2] = proxy.url();
    let client = builder(&urls).build().unwrap();
    wait_for_votes(&client, 2);
    (client, proxy)
}

/// A builder for these masters, with proxies in front of those at the given places.
fn behind(masters: &Masters, proxies: &[(usize, &Proxy)]) -> Builder {
    let mut urls = masters.urls();
    for (at, proxy) in proxies {
        urls[*at] = proxy.url();
    }
    LockClient::builder().redlock(Redlock::new(urls))
}
