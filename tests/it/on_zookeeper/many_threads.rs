//! More threads want something than may be under way on a connection: their changes queue, and go
//! as one transaction. The server is stopped until they have queued; they do so for a tenth of a
//! second at most, so on a busy machine a test may need several attempts.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient, OwnedMutexGuard, Result};

use super::{client_of, server};
use crate::rig::zookeeper::{Lent, PERSISTENT, ZooKeeper};
use crate::rig::{CAP, Fault, Proxy, ms, wait_until};

/// Many more than may be under way.
const CALLS: usize = 40;

const ATTEMPTS: usize = 100;

struct Rig {
    server: Lent,
    proxy: Proxy,
    client: LockClient,
}

impl Rig {
    fn start() -> Self {
        let server = ZooKeeper::lend(super::SETTINGS);
        server.look(|session| {
            for n in 0..CALLS {
                session.create(&format!("/n{n}"), b"", PERSISTENT).unwrap();
            }
        });
        let proxy = Proxy::before_zookeeper(&server);
        let client = client_of(&proxy.zookeeper_url(), |builder| builder.io_timeout(CAP));
        // From here on a call sends nothing but its own requests.
        drop(client.lock("n0").unwrap());
        wait_until("it is released", || server.children("/n0").is_empty());
        Self { server, proxy, client }
    }

    /// Runs `act` once for each number below [`CALLS`], each on a thread of its own, while the
    /// server is stopped, and then `meanwhile`. Returns what each returned.
    fn at_once<T: Send>(
        &self,
        act: impl Fn(&LockClient, usize) -> T + Sync,
        meanwhile: impl FnOnce(),
    ) -> Vec<T> {
        self.server.suspend();
        std::thread::scope(|s| {
            let act = &act;
            let begin = |n| s.spawn(move || act(&self.client, n));
            let all: Vec<ScopedJoinHandle<'_, T>> = (0..CALLS).map(begin).collect();
            // A busy machine needs long to start them all.
            sleep(ms(rand::random_range(30..90)));
            meanwhile();
            self.server.resume();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        })
    }

    fn lock(&self) -> Vec<OwnedMutexGuard> {
        self.at_once(|client, n| client.mutex(format!("n{n}")).lock_owned().unwrap(), || {})
    }

    /// All are held, and nothing of them is left when they are given up.
    fn release(&self, guards: Vec<OwnedMutexGuard>) {
        self.all_are_held(&guards);
        drop(guards);
        self.until_nothing_is_left();
    }

    /// Each call has its own node, and nobody else has one.
    fn all_are_held(&self, guards: &[OwnedMutexGuard]) {
        for (n, guard) in guards.iter().enumerate() {
            assert!(guard.is_held());
            assert_eq!(self.server.children(&format!("/{}", guard.name())).len(), 1, "{n}");
        }
    }

    fn until_nothing_is_left(&self) {
        wait_until("no node is left", || self.server.ephemerals().is_empty());
    }

    /// All locks are taken at once, again and again until the fault was met.
    fn locked_until_hit(&self, word: &str, fault: Fault) {
        let hits = self.proxy.hits();
        self.proxy.inject(word, fault);
        for _ in 0..ATTEMPTS {
            self.release(self.lock());
            if self.proxy.hits() > hits {
                return;
            }
        }
        panic!("{word} was never sent");
    }

    fn is_never_sent_again(&self, word: &str) {
        let hits = self.proxy.hits();
        self.proxy.inject(word, Fault::CutBeforeSend);
        for attempt in 0.. {
            let guards = self.lock();
            let is_joint = transactions(&guards) < CALLS / 2;
            self.release(guards);
            if is_joint && attempt >= 4 {
                break;
            }
            assert!(attempt < ATTEMPTS, "nothing was sent together");
        }
        assert_eq!(self.proxy.hits(), hits);
        self.proxy.disarm();
    }

    fn end(self) {
        self.until_nothing_is_left();
        let Self { server, proxy, client } = self;
        drop((client, proxy));
        server.look(|session| {
            for n in 0..CALLS {
                session.delete(&format!("/n{n}")).unwrap();
            }
        });
        server.assert_clean();
    }
}

/// How many transactions have granted these holds.
fn transactions(guards: &[OwnedMutexGuard]) -> usize {
    let tokens = guards.iter().map(|guard| guard.fencing_token().unwrap());
    tokens.collect::<HashSet<_>>().len()
}

#[test]
fn they_share_transactions() {
    let rig = server!(Rig::start());
    for attempt in 0.. {
        let guards = rig.lock();
        let token = guards[7].fencing_token().unwrap();
        let transactions = transactions(&guards);
        rig.release(guards);
        let again = rig.client.lock("n7").unwrap();
        assert!(again.fencing_token().unwrap() > token);
        drop(again);
        if transactions < CALLS / 2 {
            break;
        }
        assert!(attempt < ATTEMPTS, "{transactions} for {CALLS}");
    }
    rig.end();
}

/// Half of them have no directory yet, so the server refuses what they share with others.
#[test]
fn one_that_is_refused_is_asked_again_and_so_are_the_others() {
    let rig = server!(Rig::start());
    for attempt in 0..3 {
        let name = |n: usize| {
            if n.is_multiple_of(2) { format!("n{n}") } else { format!("new{attempt}/n{n}") }
        };
        let guards = rig.at_once(|client, n| client.mutex(name(n)).lock_owned().unwrap(), || {});
        rig.all_are_held(&guards);
        // Some are gone when they are released.
        rig.server.look(|session| {
            for n in (0..CALLS).step_by(5) {
                for child in session.children(&format!("/{}", name(n))).unwrap() {
                    session.delete(&format!("/{}/{child}", name(n))).unwrap();
                }
            }
        });
        let guards = Mutex::new(guards.into_iter().map(Some).collect::<Vec<_>>());
        let unlock = |_: &LockClient, n: usize| -> Result<()> {
            let guard = guards.lock().unwrap()[n].take().unwrap();
            guard.unlock()
        };
        for (n, outcome) in rig.at_once(unlock, || {}).into_iter().enumerate() {
            match n % 5 {
                0 => assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Lost, "{n}"),
                _ => outcome.unwrap(),
            }
        }
    }
    rig.end();
}

/// A code for the whole transaction that says nothing about its parts.
#[test]
fn a_refusal_without_a_reason_is_asked_again() {
    let rig = server!(Rig::start());
    rig.locked_until_hit("multi", Fault::Refuse(-5));
    rig.end();
}

#[test]
fn an_overloaded_server_refuses_them_all() {
    let rig = server!(Rig::start());
    rig.proxy.inject("multi", Fault::Refuse(-127));
    for attempt in 0.. {
        let outcomes = rig.at_once(|client, n| client.lock(format!("n{n}")).map(drop), || {});
        let errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        assert!(errors.iter().all(|e| e.kind() == ErrorKind::NotReady), "{errors:?}");
        rig.until_nothing_is_left();
        if rig.proxy.hits() > 0 {
            assert!(errors.len() > 1, "{errors:?}");
            break;
        }
        assert!(attempt < ATTEMPTS, "nothing was sent together");
    }
    rig.end();
}

/// A server that does not know how to read for several calls.
#[test]
fn a_joint_look_that_is_refused_is_never_tried_again() {
    let rig = server!(Rig::start());
    rig.locked_until_hit("multiRead", Fault::Refuse(-6));
    rig.is_never_sent_again("multiRead");
    rig.end();
}

/// The first one ends the connection.
#[test]
fn a_joint_look_that_ends_the_connection_is_never_tried_again() {
    let rig = server!(Rig::start());
    rig.locked_until_hit("multiRead", Fault::CutBeforeSend);
    rig.is_never_sent_again("multiRead");
    rig.end();
}

/// The connection ends for another reason: the server is known to know it.
#[test]
fn a_joint_look_is_tried_again_after_an_end_that_it_has_not_caused() {
    let rig = server!(Rig::start());
    rig.locked_until_hit("multiRead", Fault::StallReply(ms(1)));
    rig.locked_until_hit("multiRead", Fault::CutBeforeSend);
    rig.locked_until_hit("multiRead", Fault::StallReply(ms(1)));
    rig.end();
}

/// A lock and a fair lock of one name are one queue in ZooKeeper, for which two threads of a client
/// ask: in one transaction both would have the same token.
#[test]
fn two_of_one_name_have_different_tokens() {
    let rig = server!(Rig::start());
    for _ in 0..5 {
        let tokens = rig.at_once(
            |client, n| {
                let name = format!("n{}", n / 2);
                if n.is_multiple_of(2) {
                    client.lock(&name).unwrap().fencing_token().unwrap()
                } else {
                    client.fair(&name).lock().unwrap().fencing_token().unwrap()
                }
            },
            || {},
        );
        for (n, pair) in tokens.chunks(2).enumerate() {
            assert_ne!(pair[0], pair[1], "n{n}");
        }
    }
    rig.end();
}

/// What was sent has an unknown outcome, and so has what queued.
#[test]
fn they_survive_the_end_of_the_connection() {
    let rig = server!(Rig::start());
    for _ in 0..3 {
        let guards = rig.at_once(
            |client, n| client.mutex(format!("n{n}")).lock_owned().unwrap(),
            || rig.proxy.cut_all(),
        );
        rig.release(guards);
    }
    rig.end();
}

#[test]
fn a_close_ends_them() {
    let rig = server!(Rig::start());
    let outcomes = rig.at_once(
        |client, n| client.lock(format!("n{n}")).map(drop),
        || {
            std::thread::scope(|s| {
                let close = s.spawn(|| rig.client.close(CAP));
                // Nothing shows that it has begun.
                sleep(ms(90));
                rig.server.resume();
                close.join().unwrap().unwrap();
            });
        },
    );
    let errors = || outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    assert!(
        errors().all(|e| matches!(e.kind(), ErrorKind::Closed | ErrorKind::Lost)),
        "{outcomes:?}"
    );
    assert!(errors().any(|e| e.kind() == ErrorKind::Closed), "{outcomes:?}");
    rig.end();
}

/// Two clients with many threads on a few names, over connections that end all the time, with half a
/// request sent or an answer swallowed. Some names have no directory for most of the time.
#[test]
fn a_network_that_breaks_all_the_time_gives_each_name_to_one_at_a_time() {
    const NAMES: usize = 25;
    let server = server!(ZooKeeper::lend(super::SETTINGS));
    let proxies = [(); 2].map(|()| Proxy::before_zookeeper(&server));
    let clients =
        proxies.each_ref().map(|proxy| client_of(&proxy.zookeeper_url(), |builder| builder));
    for proxy in &proxies {
        proxy.cut_one_in(200);
    }
    let last = [(); NAMES].map(|()| Mutex::new(0));
    let turns = AtomicU32::new(0);
    let begin = Instant::now();
    let is_over = |turns: &AtomicU32| {
        let longest = if turns.load(Ordering::SeqCst) > 100 { Duration::from_secs(4) } else { CAP };
        begin.elapsed() > longest
    };
    std::thread::scope(|s| {
        for thread in 0..CALLS {
            let (client, last, turns) = (&clients[thread % 2], &last, &turns);
            s.spawn(move || {
                while !is_over(turns) {
                    let n = rand::random_range(0..NAMES);
                    let name =
                        if n.is_multiple_of(5) { format!("far/n{n}") } else { format!("n{n}") };
                    let Ok(Some(guard)) = client.try_lock_for(&name, ms(500)) else { continue };
                    let mut last = last[n].try_lock().expect("two holders");
                    let token = guard.fencing_token().unwrap().get();
                    assert!(token > *last, "{name}: {token} after {last}");
                    *last = token;
                    drop(last);
                    turns.fetch_add(1, Ordering::SeqCst);
                    let _ = guard.unlock();
                }
            });
        }
    });
    for proxy in &proxies {
        proxy.cut_one_in(0);
    }
    let turns = turns.into_inner();
    println!("{turns} turns, {} cuts", proxies.iter().map(Proxy::hits).sum::<u32>());
    assert!(turns > 100, "{turns}");
    wait_until("nothing is left", || server.ephemerals().is_empty());
    drop((clients, proxies));
    server.assert_clean();
}
