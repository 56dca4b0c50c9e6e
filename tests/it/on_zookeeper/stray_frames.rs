//! A frame that nobody asked for, on the connection of the session: an answer that comes twice,
//! half a frame, a frame of another type. It costs the connection at most; none is taken for the
//! answer to a request.

use leasehold::{ErrorKind, LockClient};

use super::{LONG, client, client_of, server};
use crate::rig::{Fault, Proxy, ms, wait_until};

/// Answers to requests that were never sent, in the middle of an answer, and words of other
/// protocols.
const FRAMES: [&[u8]; 8] = [
    // A reply with the number 99, one with the number 0, and a ping's.
    &[0, 0, 0, 16, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
    &[0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
    &[0, 0, 0, 16, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
    // That of a log-in.
    &[0, 0, 0, 16, 0xff, 0xff, 0xff, 0xfc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    // Too short for a reply, and empty.
    &[0, 0, 0, 3, 1, 2, 3],
    &[0, 0, 0, 0],
    // Half a frame, whose rest is the beginning of the next one.
    &[0, 0, 0, 16, 0, 0, 0, 99, 0],
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
];

/// A message about a node that nobody watches.
const EVENT: &[u8] = &[
    0, 0, 0, 30, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0,
    0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 2, b'/', b'q',
];

/// Checks that every answer is right, in more calls than a shifted connection would take to show.
fn answers_are_right(client: &LockClient, what: &str) {
    let mut has_failed = false;
    for _ in 0..10 {
        let is_outage =
            |e: &leasehold::Error| matches!(e.kind(), ErrorKind::Unreachable | ErrorKind::Protocol);
        let held = client.try_lock("held");
        assert!(
            held.as_ref().map_or_else(is_outage, Option::is_none),
            "{what}: another client has it: {held:?}"
        );
        match client.try_lock("free") {
            // The place of a call that failed, also of an unlock, is removed in the background.
            Ok(won) => {
                assert!(won.is_some() || has_failed, "{what}: it is free");
                has_failed |= won.is_some_and(|guard| guard.unlock().is_err());
            }
            Err(e) => {
                assert!(is_outage(&e), "{what}: {e}");
                has_failed = true;
            }
        }
        match client.semaphore("unset").available_permits() {
            Ok(permits) => assert_eq!(permits, 0, "{what}"),
            Err(e) => assert!(is_outage(&e), "{what}: {e}"),
        }
    }
    assert!(client.try_lock("held").unwrap().is_none(), "{what}: the connection is in order again");
    wait_until(&format!("{what}: nothing is left"), || client.try_lock("free").unwrap().is_some());
}

#[test]
fn a_stray_frame_is_never_taken_for_an_answer() {
    let server = server!();
    let other = client(&server);
    let held = other.lock("held").unwrap();
    let proxy = Proxy::before_zookeeper(&server);
    let client = client_of(&proxy.zookeeper_url(), |builder| builder);
    for word in ["create2 /held", "getChildren /free", "getData /unset"] {
        for frame in FRAMES.into_iter().chain([EVENT]) {
            for fault in [Fault::Stray(frame), Fault::StrayAfter(frame, ms(1))] {
                let hits = proxy.hits();
                proxy.inject(word, fault);
                answers_are_right(&client, &format!("{word}, {fault:?}"));
                if proxy.hits() == hits {
                    // A lock that was busy a moment ago is looked at first.
                    assert!(proxy.disarm() && word.contains("held"), "{word} is sent");
                }
            }
        }
        // The answer comes again, whole or in part.
        for again in [usize::MAX, 1, 4, 19, 20, 30] {
            proxy.inject(word, Fault::ReplyAgain(again));
            answers_are_right(&client, &format!("{word}, {again} bytes again"));
            proxy.disarm();
        }
    }
    assert!(held.is_held());
    drop((held, client, other, proxy));
    server.assert_clean();
}

/// The call whose answer is displaced does not wait for the I/O timeout.
#[test]
fn a_call_whose_answer_is_displaced_learns_of_it_at_once() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let client =
        client_of(&proxy.zookeeper_url(), |builder| builder.lease(LONG * 2).io_timeout(LONG));
    proxy.inject("getChildren /job", Fault::Stray(FRAMES[0]));
    // One request, which is the one whose place the stray frame takes.
    let error = client.mutex("job").holder().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    drop((client, proxy));
    server.assert_clean();
}

/// The session's own requests: a stray frame in place of a heartbeat's answer extends nothing, and
/// ends no hold.
#[test]
fn a_stray_frame_among_heartbeats_costs_no_hold() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let client = client_of(&proxy.zookeeper_url(), |builder| builder.lease(ms(9000)));
    let guard = client.lock("job").unwrap();
    let faults = FRAMES
        .into_iter()
        .map(Fault::Stray)
        .chain([Fault::ReplyAgain(usize::MAX), Fault::ReplyAgain(7)]);
    for fault in faults {
        let hits = proxy.hits();
        proxy.inject("check /", fault);
        wait_until("a heartbeat", || proxy.hits() > hits);
        // Another fault before a majority has agreed to a write would be one of many that last.
        wait_until("the session goes on", || guard.extend(ms(9000)).is_ok());
        assert!(guard.is_held(), "{fault:?}");
    }
    guard.unlock().unwrap();
    drop((client, proxy));
    server.assert_clean();
}

/// While a connection resumes the session, another frame than the server's answer is no news of the
/// session: above all it does not say that it has expired.
#[test]
fn a_stray_frame_in_a_handshake_ends_no_session() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let url = proxy.zookeeper_url().replace("//", "//app:s3cret@");
    let client = client_of(&url, |builder| builder);
    let guard = client.lock("job").unwrap();
    let sessions = server.sessions();
    for word in ["connect", "auth"] {
        for frame in FRAMES.into_iter().chain([EVENT]) {
            for fault in [Fault::Stray(frame), Fault::StrayAfter(frame, ms(1))] {
                let hits = proxy.hits();
                proxy.inject(word, fault);
                proxy.cut_all();
                wait_until("the fault happens", || proxy.hits() > hits);
                wait_until("it is back", || client.mutex("job").holder().is_ok());
                assert!(guard.is_held(), "{word}, {fault:?}");
                assert_eq!(server.sessions(), sessions, "{word}, {fault:?}");
            }
        }
        let hits = proxy.hits();
        proxy.inject(word, Fault::ReplyAgain(usize::MAX));
        proxy.cut_all();
        wait_until("the fault happens", || proxy.hits() > hits);
        wait_until("it is back", || client.mutex("job").holder().is_ok());
        assert!(guard.is_held(), "{word} is answered twice");
    }
    guard.unlock().unwrap();
    drop((client, proxy));
    server.assert_clean();
}
