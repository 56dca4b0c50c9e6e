//! Fencing tokens are exact and never repeat.

use super::{Bench, CLOCK, FUTURE, NEVER, TOKEN};
use crate::rig::Server;

#[test]
fn tokens_are_exact_and_never_repeat() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    let mut last = 0;
    let day = "86400000";
    // Floors as connections send them (the time of their server), and the floor of a clock that was
    // set back since.
    let floors = [|now| now, |now| now - 1_000_000, |_| FUTURE];
    let losses: [&[&str]; 5] =
        [&["PING"], &["FLUSHALL"], &["DEL", TOKEN], &["SET", TOKEN, "1"], &["SET", TOKEN, "0"]];
    for loss in losses.into_iter().chain([losses[1], losses[0]]) {
        for floor in floors {
            bench.cmd::<()>(loss);
            let before = bench.micros();
            let (token, stored) = bench.token(day, floor(before));
            assert_eq!(token.to_string(), stored, "no digit may be lost");
            assert_eq!(stored.len(), 16);
            assert!(token > last, "{token} after {last}, {loss:?}");
            assert!(token <= bench.micros(), "ahead of the clock: {token}");
            last = token;
        }
    }
    // Above the floor the counter adds one and does not read the clock, which would cost every
    // acquire a TIME.
    let (next, _) = bench.token(day, last - 1);
    assert_eq!(next, last + 1);
    // A counter of Redisson may have any value below 2^53.
    let far = (1_i64 << 53) - 2;
    bench.cmd::<()>(&["SET", TOKEN, &far.to_string()]);
    assert_eq!(bench.token(day, CLOCK), (far + 1, (far + 1).to_string()));
    // The counter is not lowered even when the floor is ahead of it and the clock behind.
    bench.cmd::<()>(&["SET", TOKEN, &(CLOCK * 2).to_string()]);
    assert_eq!(bench.token(day, FUTURE).0, CLOCK * 2 + 1);
}

/// A counter shared with Redisson's fenced lock must never expire: Redisson would start again at 1.
#[test]
fn a_counter_that_is_kept_loses_the_ttl_that_an_earlier_acquire_gave_it() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    let now = bench.micros();
    bench.token("86400000", now);
    assert!(bench.cmd::<i64>(&["PTTL", TOKEN]) > 0);
    // At most a second after the last grant, the floor is above the counter.
    let later = bench.micros() + 1_000_000;
    bench.token("0", later);
    assert_eq!(bench.cmd::<i64>(&["PTTL", TOKEN]), NEVER);
}
