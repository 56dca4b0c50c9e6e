//! An unexpected frame must not shift the replies after it: each would be taken for the reply to
//! another request, for example a "granted" for a lock that another client holds.

use std::time::Duration;

use leasehold::{ErrorKind, LockClient};

use crate::rig::{Fault, Proxy, Server, ms, wait_until};
use crate::support::{Clients, ShortLease};

/// Frames of RESP2 and of RESP3, and errors that servers are and are not known to send.
const FRAMES: [&[u8]; 11] = [
    b":7\r\n",
    b"+OK\r\n",
    b"$-1\r\n",
    b"$3\r\nabc\r\n",
    b"*0\r\n",
    b"*2\r\n+a\r\n:1\r\n",
    b"-ERR x\r\n",
    b"(123\r\n",
    b",1.5\r\n",
    b"#t\r\n",
    b"_\r\n",
];

fn client(proxy: &Proxy) -> LockClient {
    LockClient::builder()
        .url(proxy.url())
        .connections(1)
        .short_lease(Duration::from_secs(5))
        .build()
        .unwrap()
}

/// Checks that every reply of the client is right, in more calls than a shifted connection would
/// take to show.
fn answers_are_right(client: &LockClient, held: &str, free: &str) {
    for round in 0..20 {
        assert!(
            !matches!(client.try_lock(held), Ok(Some(_))),
            "round {round}: a lock that another client holds"
        );
        let guard = client.try_lock(free).unwrap().expect("it is free");
        assert!(client.mutex(free).is_locked().unwrap());
        assert!(
            client.mutex(held).holder().unwrap().is_some_and(|holder| !holder.is_this_client())
        );
        guard.unlock().unwrap();
        assert_eq!(client.semaphore("unset").available_permits().unwrap(), 0);
    }
}

#[test]
fn a_stray_frame_costs_its_call_and_nothing_after_it() {
    let server = Server::start();
    let other = server.client();
    let _held = other.lock("held").unwrap();
    for frame in FRAMES {
        let proxy = Proxy::start(&server);
        let client = client(&proxy);
        for (word, name) in [("free", "free"), ("held", "held")] {
            proxy.inject(word, Fault::Stray(frame));
            let outcome = client.try_lock(name);
            proxy.wait_hits(1);
            let error = outcome.map(|guard| guard.is_some()).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Server),
                "{frame:?}: {error}"
            );
            answers_are_right(&client, "held", "free2");
        }
        wait_until("the request of unknown outcome is undone", || {
            !other.mutex("free").is_locked().unwrap()
        });
        client.close(ms(2000)).unwrap();
    }
}

/// Those who share its write or its connection are not meant.
#[test]
fn an_error_that_no_server_is_known_to_send_is_the_answer_of_one_request() {
    let server = Server::start();
    for frame in [&b"-ERR x\r\n"[..], b"+OK\r\n"] {
        let proxy = Proxy::start(&server);
        let client = client(&proxy);
        client.try_lock("warm").unwrap().unwrap().unlock().unwrap();
        std::thread::scope(|s| {
            // All others queue meanwhile, this one first.
            proxy.inject("slow", Fault::StallReply(ms(1000)));
            let slow = s.spawn(|| client.try_lock("slow").unwrap().unwrap().unlock().unwrap());
            proxy.wait_hits(1);
            proxy.inject("odd", Fault::Stray(frame));
            let odd = s.spawn(|| client.try_lock("odd").map(|guard| guard.is_some()));
            std::thread::sleep(ms(50));
            let others = ["a", "b", "c", "d", "e", "f"].map(|name| {
                let client = &client;
                s.spawn(move || client.try_lock(name).unwrap().unwrap().unlock().unwrap())
            });
            let kind = odd.join().unwrap().unwrap_err().kind();
            assert!(matches!(kind, ErrorKind::Server | ErrorKind::Protocol), "{kind:?}");
            others.into_iter().chain([slow]).for_each(|other| other.join().unwrap());
        });
        client.close(ms(2000)).unwrap();
    }
    wait_until("nothing is left", || server.lock_keys().is_empty());
}

#[test]
fn an_error_that_servers_do_answer_with_is_seen_when_the_connection_is_used_next() {
    let server = Server::start();
    let other = server.client();
    let _held = other.lock("held").unwrap();
    let proxy = Proxy::start(&server);
    let client = client(&proxy);
    for frame in [&b"-BUSY a script\r\n"[..], b"-WRONGTYPE of nothing\r\n", b"-LOADING it\r\n"] {
        proxy.inject("first", Fault::Stray(frame));
        client.try_lock("first").unwrap_err();
        // The real reply arrives behind it: only then can a client notice the extra frame.
        wait_until("both are sent", || proxy.is_at_rest());
        answers_are_right(&client, "held", "free");
    }
    client.close(ms(2000)).unwrap();
}

#[test]
fn a_frame_that_comes_while_the_connection_lies_idle_is_never_taken_for_an_answer() {
    let server = Server::start();
    let other = server.client();
    let _held = other.lock("held").unwrap();
    for frame in
        FRAMES.into_iter().chain([&b"*2\r\n:1\r\n:77\r\n"[..], b"-BUSY a script\r\n", b":"])
    {
        let proxy = Proxy::start(&server);
        let client = client(&proxy);
        // The server knows this script, so the call is one exchange, and the connection is idle
        // after it.
        proxy.inject("held", Fault::StrayAfter(frame, ms(1)));
        assert!(client.try_lock("held").unwrap().is_none());
        proxy.wait_hits(1);
        wait_until("both are sent", || proxy.is_at_rest());
        answers_are_right(&client, "held", "free");
        client.close(ms(2000)).unwrap();
    }
}

#[test]
fn a_stray_frame_on_the_renewal_connection_extends_no_hold() {
    let server = Server::start();
    for frame in [&b":7\r\n"[..], b"*0\r\n", b"-ERR x\r\n"] {
        let proxy = Proxy::start(&server);
        let client = LockClient::builder()
            .url(proxy.url())
            .lease(ms(2700))
            // A busy machine needs longer than a quarter of the lease.
            .io_timeout(ms(2400))
            .build()
            .unwrap();
        let guards: Vec<_> = ["a", "b"].map(|name| client.lock(name).unwrap()).into();
        // A renewal of both locks at once: no other script gets two keys.
        proxy.inject("2700", Fault::Stray(frame));
        proxy.wait_hits(1);
        let until = std::time::Instant::now() + ms(3500);
        while std::time::Instant::now() < until {
            assert!(guards.iter().all(leasehold::ReentrantMutexGuard::is_held), "{frame:?}");
            std::thread::sleep(ms(50));
        }
        server.cmd::<()>(&["DEL", "a"]);
        let (gone, other) = (&guards[0], server.client());
        let _taken = other.lock("a").unwrap();
        wait_until("the holder is notified", || !gone.is_held());
        assert!(guards[1].is_held(), "{frame:?}");
        drop(guards);
        client.close(ms(2000)).unwrap();
    }
}

#[test]
fn a_stray_frame_costs_a_multi_lock_no_panic() {
    let server = Server::start();
    let other = server.client();
    let _held = other.lock("held").unwrap();
    for frame in FRAMES.into_iter().chain([&b"*3\r\n:2\r\n:0\r\n:1\r\n"[..]]) {
        let proxy = Proxy::start(&server);
        let client = client(&proxy);
        proxy.inject("one", Fault::Stray(frame));
        client.multi(["one", "two"]).try_lock().map(|guard| guard.is_some()).unwrap_err();
        answers_are_right(&client, "held", "free");
        wait_until("the request of unknown outcome is undone", || {
            !other.mutex("one").is_locked().unwrap()
        });
        client.close(ms(2000)).unwrap();
    }
}
