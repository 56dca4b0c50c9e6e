//! More threads want something than may be under way on a connection: their changes queue, and go
//! as one transaction. The server is stopped until they have queued, so that they surely do.

use std::collections::HashSet;
use std::sync::Mutex;
use std::thread::{ScopedJoinHandle, sleep};
use std::time::Duration;

use leasehold::{ErrorKind, LockClient, Result};

use super::{client_of, server};
use crate::rig::zookeeper::{Lent, PERSISTENT, ZooKeeper};
use crate::rig::{CAP, Proxy, ms, wait_until};

/// Many more than may be under way.
const CALLS: usize = 40;

/// Callers that queue send by themselves after a tenth of a second.
const QUEUED: Duration = ms(300);

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
            sleep(QUEUED);
            meanwhile();
            self.server.resume();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        })
    }

    fn end(self) {
        let Self { server, proxy, client } = self;
        wait_until("no node is left", || server.ephemerals().is_empty());
        drop((client, proxy));
        server.look(|session| {
            for n in 0..CALLS {
                session.delete(&format!("/n{n}")).unwrap();
            }
        });
        server.assert_clean();
    }
}

#[test]
fn they_share_transactions() {
    let rig = server!(Rig::start());
    let guards =
        rig.at_once(|client, n| client.mutex(&format!("n{n}")).lock_owned().unwrap(), || {});
    let tokens: Vec<_> = guards.iter().map(|guard| guard.fencing_token().unwrap()).collect();
    let transactions = tokens.iter().collect::<HashSet<_>>().len();
    assert!(transactions < CALLS / 2, "{transactions}");
    assert!(guards.iter().all(|guard| guard.is_held()));
    drop(guards);
    wait_until("no node is left", || rig.server.ephemerals().is_empty());
    let again = rig.client.lock("n7").unwrap();
    assert!(again.fencing_token().unwrap() > tokens[7]);
    drop(again);
    rig.end();
}

/// Half of them have no directory yet, so the server refuses what they share with others.
#[test]
fn one_that_is_refused_is_asked_again_and_so_are_the_others() {
    let rig = server!(Rig::start());
    let name = |n: usize| if n % 2 == 0 { format!("n{n}") } else { format!("new/n{n}") };
    let guards = rig.at_once(|client, n| client.mutex(&name(n)).lock_owned().unwrap(), || {});
    for (n, guard) in guards.iter().enumerate() {
        assert!(guard.is_held());
        assert_eq!(rig.server.children(&format!("/{}", name(n))).len(), 1, "{n}");
    }
    // Some are gone when they are released.
    rig.server.look(|session| {
        for n in (0..CALLS).step_by(5) {
            for child in session.children(&format!("/{}", name(n))).unwrap() {
                session.delete(&format!("/{}/{child}", name(n))).unwrap();
            }
        }
    });
    let guards = Mutex::new(guards.into_iter().map(Some).collect::<Vec<_>>());
    let released: Vec<Result<()>> = rig.at_once(
        |_, n| {
            let guard = guards.lock().unwrap()[n].take().unwrap();
            guard.unlock()
        },
        || {},
    );
    for (n, outcome) in released.into_iter().enumerate() {
        match n % 5 {
            0 => assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Lost, "{n}"),
            _ => outcome.unwrap(),
        }
    }
    rig.end();
}

/// A lock and a fair lock of one name are one queue in ZooKeeper, for which two threads of a client
/// ask: in one transaction both would have the same token.
#[test]
fn two_of_one_name_have_different_tokens() {
    let rig = server!(Rig::start());
    let tokens = rig.at_once(
        |client, n| {
            let name = format!("n{}", n / 2);
            if n % 2 == 0 {
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
    rig.end();
}

/// What was sent has an unknown outcome, and so has what queued.
#[test]
fn they_survive_the_end_of_the_connection() {
    let rig = server!(Rig::start());
    let guards = rig.at_once(
        |client, n| client.mutex(&format!("n{n}")).lock_owned().unwrap(),
        || rig.proxy.cut_all(),
    );
    for (n, guard) in guards.iter().enumerate() {
        assert!(guard.is_held());
        assert_eq!(rig.server.children(&format!("/n{n}")).len(), 1, "{n}");
    }
    drop(guards);
    rig.end();
}

/// A close waits for none of them, and none is granted.
#[test]
fn a_close_ends_them() {
    let rig = server!(Rig::start());
    let outcomes = rig.at_once(
        |client, n| client.lock(&format!("n{n}")).map(drop),
        || {
            std::thread::scope(|s| {
                let close = s.spawn(|| rig.client.close(CAP));
                sleep(ms(50));
                rig.server.resume();
                let _ = close.join().unwrap();
            })
        },
    );
    for outcome in outcomes {
        if let Err(e) = outcome {
            assert!(matches!(e.kind(), ErrorKind::Closed | ErrorKind::Lost), "{e}");
        }
    }
    rig.end();
}
