//! Waits that a token or `stop_waiting` ends, while the server or the network is in trouble.

use std::error::Error as _;
use std::time::{Duration, Instant};

use leasehold::{CancelToken, ErrorKind, LockClient, Result};

use crate::rig::{CAP, Fault, PROMPT, Proxy, Server, ms, wait_until};

/// So long that no test can pass because a lease ended.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn client(url: String) -> LockClient {
    LockClient::builder().url(url).lease(LONG).io_timeout(Duration::from_secs(5)).build().unwrap()
}

/// Why the call failed. A guard is dropped on the thread that acquired it.
pub(crate) fn ended<G>(outcome: Result<G>) -> Option<ErrorKind> {
    outcome.err().map(|e| e.kind())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Cancel,
    StopWaiting,
}

impl End {
    const BOTH: [Self; 2] = [Self::Cancel, Self::StopWaiting];

    fn the_waits_of(self, client: &LockClient, token: &CancelToken) {
        match self {
            Self::Cancel => token.cancel(),
            Self::StopWaiting => client.stop_waiting(),
        }
    }

    fn kind(self) -> ErrorKind {
        match self {
            Self::Cancel => ErrorKind::Cancelled,
            Self::StopWaiting => ErrorKind::Closed,
        }
    }
}

/// It has a queue entry at the server, which hangs: the call does not wait for its removal.
#[test]
fn they_do_not_wait_for_a_server_that_hangs() {
    for end in End::BOTH {
        let server = Server::start();
        let holder = client(server.url());
        let builder = LockClient::builder().url(server.url()).lease(LONG).waiter_timeout(LONG);
        let waiting = builder.io_timeout(Duration::from_secs(14)).build().unwrap();
        let guard = holder.fair("t").lock().unwrap();
        let token = CancelToken::new();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| ended(waiting.fair("t").with_cancel(&token).lock()));
            wait_until("it queues", || holder.fair("t").queue_len().unwrap() == 1);
            wait_until("it is subscribed", || !server.channels().is_empty());
            // A thread that is not asleep yet would ask the server that hangs.
            wait_until("it sleeps", || {
                let asked = waiting.stats().requests();
                std::thread::sleep(ms(1000));
                waiting.stats().requests() == asked
            });
            server.suspend();
            let start = Instant::now();
            end.the_waits_of(&waiting, &token);
            let returned = start.elapsed();
            let outcome = waiter.join().unwrap();
            let took = start.elapsed();
            server.resume();
            assert_eq!(outcome, Some(end.kind()));
            assert!(returned < PROMPT && took < PROMPT, "{end:?}: {returned:?}, {took:?}");
            wait_until("its queue entry is removed", || holder.fair("t").queue_len().unwrap() == 0);
        });
        drop((guard, holder, waiting));
        server.assert_clean();
    }
}

#[test]
fn a_grant_that_is_on_its_way_wins() {
    for end in End::BOTH {
        let server = Server::start();
        let proxy = Proxy::start(&server);
        let client = client(proxy.url());
        let token = CancelToken::new();
        proxy.inject("job", Fault::StallReply(ms(500)));
        std::thread::scope(|s| {
            let call = s.spawn(|| client.mutex("job").with_cancel(&token).lock_owned());
            proxy.wait_hits(1);
            end.the_waits_of(&client, &token);
            let guard = call.join().unwrap().unwrap();
            assert!(guard.is_held(), "{end:?}");
            guard.unlock().unwrap();
        });
        drop(client);
        server.assert_clean();
    }
}

/// No reply arrives: the call ends after the I/O timeout, and the request is undone in the
/// background.
#[test]
fn a_request_without_a_reply_is_undone() {
    std::thread::scope(|s| {
        for primitive in ["mutex", "fair", "multi", "semaphore"] {
            s.spawn(move || End::BOTH.into_iter().for_each(|end| is_undone(primitive, end)));
        }
    });
}

fn is_undone(primitive: &str, end: End) {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let builder = LockClient::builder().url(proxy.url()).lease(LONG);
    let client = builder.io_timeout(ms(2000)).build().unwrap();
    client.semaphore("s-job").try_set_permits(1).unwrap();
    let token = CancelToken::new();
    proxy.inject("job", Fault::BlackHoleReply);
    std::thread::scope(|s| {
        let call = s.spawn(|| match primitive {
            "mutex" => client.mutex("job").with_cancel(&token).lock_owned().map(drop),
            "fair" => client.fair("job").with_cancel(&token).lock_owned().map(drop),
            "multi" => client.multi(["job", "too"]).with_cancel(&token).lock_owned().map(drop),
            _ => client.semaphore("s-job").with_cancel(&token).acquire().map(drop),
        });
        proxy.wait_hits(1);
        end.the_waits_of(&client, &token);
        let error = call.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), end.kind(), "{primitive}: {error:?}");
        assert!(error.source().is_some(), "{primitive}: the cause of its long wait");
    });
    wait_until(&format!("{primitive}: it is undone"), || server.lock_keys() == ["s-job"]);
    wait_until(&format!("{primitive}: all permits are back"), || {
        client.semaphore("s-job").available_permits().is_ok_and(|free| free == 1)
    });
    client.semaphore("s-job").delete().unwrap();
    drop(client);
    server.assert_clean();
}

/// The leader pauses between two attempts, and another thread waits behind it.
#[test]
fn they_end_during_an_outage() {
    for end in End::BOTH {
        let server = Server::start();
        let proxy = Proxy::start(&server);
        let holder = client(server.url());
        let builder = LockClient::builder().url(proxy.url()).lease(LONG).io_timeout(ms(3000));
        let waiting = builder.outage_timeout(LONG).build().unwrap();
        let guard = holder.lock("job").unwrap();
        let fair_guard = holder.fair("fair").lock().unwrap();
        let token = CancelToken::new();
        std::thread::scope(|s| {
            let leader = s.spawn(|| ended(waiting.mutex("job").with_cancel(&token).lock()));
            wait_until("it waits", || !server.channels().is_empty());
            let behind = s.spawn(|| ended(waiting.mutex("job").with_cancel(&token).lock_owned()));
            let queued = s.spawn(|| ended(waiting.fair("fair").with_cancel(&token).lock()));
            wait_until("it queues", || holder.fair("fair").queue_len().unwrap() == 1);
            wait_until("all wait", || waiting.snapshot().waits().len() == 3);
            proxy.refuse(true);
            proxy.cut_all();
            // A thread that queues up behind a leader which has not noticed it gets nothing.
            wait_until("the leader has noticed", || waiting.try_lock_for("job", ms(1)).is_err());
            end.the_waits_of(&waiting, &token);
            let calls = [leader, behind, queued];
            wait_until("all have ended", || calls.iter().all(|call| call.is_finished()));
            for call in calls {
                assert_eq!(call.join().unwrap(), Some(end.kind()));
            }
            proxy.refuse(false);
            let queue_len = || holder.fair("fair").queue_len().unwrap();
            wait_until("its queue entry is removed", || queue_len() == 0);
        });
        guard.unlock().unwrap();
        if end == End::Cancel {
            assert!(waiting.try_lock_for("job", CAP).unwrap().is_some(), "the client still works");
        }
        waiting.close(CAP).unwrap();
        drop((fair_guard, holder, waiting));
        server.assert_clean();
    }
}
