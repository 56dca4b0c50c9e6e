//! What is special to primitives in PostgreSQL. `contract::each_kind` covers what holds for all
//! stores.

use std::time::Duration;

use leasehold::ErrorKind;

use super::server;
use crate::rig::{PROMPT, wait_until};
use crate::support::Clients;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_latch_that_is_set_anew_hides_no_opening() {
    let server = server!();
    let (a, b) = (server.client(), server.client());
    let latch = a.latch("start");
    latch.set_count(1).unwrap();
    std::thread::scope(|s| {
        let waits =
            [&a, &b].map(|client| s.spawn(|| client.latch("start").wait_for(LONG).unwrap()));
        // A later waiter would wait for the next opening.
        wait_until("both wait", || server.listeners() == 2);
        let start = std::time::Instant::now();
        assert_eq!(b.latch("start").count_down().unwrap(), 0);
        latch.set_count(1).unwrap();
        for waits in waits {
            assert!(waits.join().unwrap());
        }
        assert!(start.elapsed() < PROMPT);
    });
    assert!(latch.delete().unwrap());
    drop((latch, a, b));
    server.assert_clean();
}

#[test]
fn a_semaphore_keeps_its_name_from_other_kinds_until_it_is_deleted() {
    let server = server!();
    let client = server.client();
    let pool = client.semaphore("pool");
    pool.try_set_permits(3).unwrap();
    assert_eq!(client.latch("pool").count().unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(client.try_lock("pool").unwrap_err().kind(), ErrorKind::WrongType);
    assert!(pool.delete().unwrap());
    client.lock("pool").unwrap().unlock().unwrap();
    let refused = client.rate_limiter("rate").try_acquire(1).unwrap_err();
    assert_eq!((refused.kind(), refused.name()), (ErrorKind::Unsupported, Some("rate")));
    drop((pool, client));
    server.assert_clean();
}

/// A change of a latch whose outcome stays unknown is only marked as used: it returns no permits.
#[test]
fn a_change_that_is_given_up_gives_nothing_back() {
    let server = server!();
    let count = |kind: &str, what: &str, id: &str| {
        server.texts(&format!(
            "SELECT leasehold_v1.count('l', '{kind}', '{what}', 1, '{id}', 60000, 0)::text"
        ))[0]
            .clone()
    };
    assert_eq!(count("l", "begin", "a"), "(1,1)");
    assert_eq!(count("l", "down", "b"), "(1,0)");
    assert_eq!(count("c", "back", "b"), "(0,0)", "it has run: nothing to undo");
    assert_eq!(count("c", "back", "late"), "(0,0)");
    assert_eq!(count("l", "begin", "late"), "(2,0)", "it arrives late, and does not run");
    assert_eq!(server.number_of("SELECT count(*) FROM leasehold.lock WHERE number IS NOT NULL"), 0);
}

/// While a downgrade is in doubt the holder is still the writer, and that is what it enters once
/// more.
#[test]
fn a_read_reentry_of_a_writer_lasts_for_its_lease() {
    let server = server!();
    let call = |what: &str| server.texts(&format!("SELECT (leasehold_v1.{what}).status::text"));
    assert_eq!(call("write_acquire('rw', 'me', 20000, 0, 0)"), ["1"]);
    assert_eq!(call("read_acquire('rw', 'me', 600000, 1, 0)"), ["1"]);
    let lasting =
        "SELECT count(*) FROM leasehold.lock WHERE ends > clock_timestamp() + interval '300 s'";
    assert_eq!(server.number_of(lasting), 1);
    assert_eq!(call("read_acquire('rw', 'me', 20000, 1, 0)"), ["1"]);
    assert_eq!(server.number_of(lasting), 1, "an end never moves back");
    assert_eq!(call("read_acquire('rw', 'another', 20000, 1, 0)"), ["2"]);
}
