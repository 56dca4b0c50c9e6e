//! A call finds another kind of primitive under its name: the result is the same in every store, as
//! far as the store can distinguish the kinds.

use std::fmt::Debug;

use leasehold::{LockClient, Result};

use crate::rig::Server;
use crate::support::Clients;

const KINDS: [&str; 8] =
    ["mutex", "fair", "read", "write", "multi", "semaphore", "counting", "latch"];

#[cfg(feature = "mysql")]
const MYSQL: [&str; 5] = ["mutex", "read", "write", "multi", "semaphore"];

fn said<T: Debug>(answer: Result<Option<T>>) -> String {
    match answer {
        Ok(Some(_)) => "won".to_owned(),
        Ok(None) => "busy".to_owned(),
        Err(e) => format!("{:?}", e.kind()),
    }
}

/// Tries to acquire it without waiting, and returns the outcome. `then` runs while it is held;
/// afterwards it is released.
fn try_as(kind: &str, client: &LockClient, name: &str, then: impl FnOnce()) -> String {
    macro_rules! tried {
        ($tried:expr) => {{
            let tried = $tried;
            then();
            said(tried)
        }};
    }
    match kind {
        "mutex" => tried!(client.try_lock(name)),
        "fair" => tried!(client.fair(name).try_lock()),
        "read" => tried!(client.rw_lock(name).try_read()),
        "write" => tried!(client.rw_lock(name).try_write()),
        "multi" => tried!(client.multi([name, &format!("{name}-too")]).try_lock()),
        "semaphore" => tried!(client.semaphore(name).try_acquire()),
        "counting" => tried!(client.counting_semaphore(name).try_acquire()),
        _ => tried!(client.latch(name).count_down().map(Some)),
    }
}

fn hold_as(kind: &str, client: &LockClient, name: &str, then: impl FnOnce()) {
    match kind {
        "semaphore" => drop(client.semaphore(name).try_set_permits(1).unwrap()),
        "counting" => drop(client.counting_semaphore(name).try_set_permits(1).unwrap()),
        "latch" => drop(client.latch(name).try_set_count(2).unwrap()),
        _ => {}
    }
    assert_eq!(try_as(kind, client, name, then), "won", "{kind}");
}

/// A row for each kind that is held: the outcomes for another client that tries each kind.
fn table(one: &LockClient, other: &LockClient) -> Vec<String> {
    table_of(&KINDS, one, other)
}

fn table_of(kinds: &[&str], one: &LockClient, other: &LockClient) -> Vec<String> {
    let row = |held: &&str| {
        let found: Vec<String> = kinds
            .iter()
            .map(|tried| {
                let mut found = String::new();
                let name = format!("{held}-{tried}");
                hold_as(held, one, &name, || found = try_as(tried, other, &name, || ()));
                found
            })
            .collect();
        format!("{held}: {}", found.join(" "))
    };
    kinds.iter().map(row).collect()
}

/// The columns are in the order of [`KINDS`]. A multi-lock here consists of mutexes, and a fair
/// lock is a mutex with a queue.
const LOCKS: [&str; 5] = [
    "mutex: busy busy WrongType WrongType busy WrongType WrongType WrongType",
    "fair: busy busy WrongType WrongType busy WrongType WrongType WrongType",
    "read: WrongType WrongType won busy WrongType WrongType WrongType WrongType",
    "write: WrongType WrongType busy busy WrongType WrongType WrongType WrongType",
    "multi: busy busy WrongType WrongType busy WrongType WrongType WrongType",
];
#[cfg(any(feature = "testing", feature = "postgres"))]
const NUMBERS: [&str; 3] = [
    "semaphore: WrongType WrongType WrongType WrongType WrongType busy WrongType WrongType",
    "counting: WrongType WrongType WrongType WrongType WrongType WrongType busy WrongType",
    "latch: WrongType WrongType WrongType WrongType WrongType WrongType WrongType won",
];
/// Redis stores a plain number for each of them, like Redisson, and cannot distinguish them.
const NUMBERS_ON_REDIS: [&str; 3] = [
    "semaphore: WrongType WrongType WrongType WrongType WrongType busy busy won",
    "counting: WrongType WrongType WrongType WrongType WrongType Conflict busy won",
    "latch: WrongType WrongType WrongType WrongType WrongType won won won",
];

#[test]
fn on_redis() {
    let server = Server::start();
    assert_eq!(table(&server.client(), &server.client()), [&LOCKS[..], &NUMBERS_ON_REDIS].concat());
}

#[cfg(feature = "testing")]
#[test]
fn in_memory() {
    let one = LockClient::in_memory();
    let other = LockClient::in_memory_shared(&one).unwrap();
    assert_eq!(table(&one, &other), [&LOCKS[..], &NUMBERS].concat());
}

#[cfg(feature = "postgres")]
#[test]
fn in_postgres() {
    let server = crate::rig::Postgres::start();
    assert_eq!(table(&server.client(), &server.client()), [&LOCKS[..], &NUMBERS].concat());
}

/// Those that it has.
#[cfg(feature = "mysql")]
#[test]
fn in_mysql() {
    let server = crate::rig::Mysql::shared();
    let said = table_of(&MYSQL, &server.client(), &server.client());
    assert_eq!(
        said,
        [
            "mutex: busy WrongType WrongType busy WrongType",
            "read: WrongType won busy WrongType WrongType",
            "write: WrongType busy busy WrongType WrongType",
            "multi: busy WrongType WrongType busy WrongType",
            "semaphore: WrongType WrongType WrongType WrongType busy",
        ]
    );
}
