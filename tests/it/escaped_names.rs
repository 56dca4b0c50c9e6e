//! `escape_name` returns a valid name for every store, whatever the input.

use leasehold::{LockClient, escape_name, unescape_name};

use crate::rig::{Cluster, Server};
use crate::support::Clients;

/// Names that some store refuses, reserves, or gives a special meaning.
const INPUTS: [&str; 27] = [
    "",
    ".",
    "..",
    "/",
    "//",
    "a/",
    "/a",
    "_c_x",
    "locks",
    "leases",
    "permits",
    "zookeeper",
    "{",
    "}",
    "{}",
    "}{",
    "a{b}c",
    "{x}:timeout",
    "redisson_lock_token:{x}",
    "redisson_lock_queue:{x}",
    "leasehold:node",
    "leasehold_once:{x}:opened",
    "leasehold_data:{x}",
    "\0\u{1}\u{7f}\u{85}",
    "\u{fff0}\u{e000}\u{feff}",
    "*?[a]%_'\";--",
    "é€𝄞 \n\r\t\\",
];

/// Every single byte, and the inputs above, each alone and after a prefix of the program.
fn names() -> Vec<String> {
    let bytes = (0..=255_u8).map(|byte| vec![byte]);
    let inputs = bytes.chain(INPUTS.iter().map(|input| input.as_bytes().to_vec()));
    inputs
        .flat_map(|input| {
            let name = escape_name(&input);
            assert_eq!(unescape_name(&name), Some(input));
            [format!("of:{name}"), format!("a/{name}"), name]
        })
        .collect()
}

/// All of them are held at the same time, so no two are the same lock.
fn all_are_locks_of_their_own(client: &LockClient) {
    let mut names = names();
    names.sort();
    names.dedup();
    // A third of the longest name, in the bytes that escape worst: a prefix still fits.
    names.push(escape_name([0xff; 335]));
    let held = |name: &String| {
        let guard = client.mutex(name).try_lock_owned().unwrap_or_else(|e| panic!("{name:?}: {e}"));
        guard.unwrap_or_else(|| panic!("{name:?} is a lock of its own"))
    };
    let guards: Vec<_> = names.iter().map(held).collect();
    assert_eq!(guards.len(), names.len());
}

/// The names with a special meaning, for each kind that stores names besides its own.
fn other_kinds(client: &LockClient, has_latches: bool) {
    for input in INPUTS {
        let name = escape_name(input);
        client.fair(&name).lock().unwrap().unlock().unwrap();
        client.rw_lock(&name).write().unwrap().unlock().unwrap();
        client.multi([&*name, "other"]).lock().unwrap().unlock().unwrap();
        let permits = format!("permits of {name}");
        let semaphore = client.semaphore(if has_latches { &permits } else { &name });
        semaphore.try_set_permits(1).unwrap();
        semaphore.acquire().unwrap().release().unwrap();
        semaphore.delete().unwrap();
        if has_latches {
            client.latch(&name).try_set_count(1).unwrap();
            client.latch(&name).count_down().unwrap();
        }
    }
}

#[test]
fn over_one_redis_and_a_cluster() {
    let server = Server::start();
    let client = server.client();
    all_are_locks_of_their_own(&client);
    other_kinds(&client, true);
    let prefixed = server.builder().key_prefix("{tenant}:").build().unwrap();
    all_are_locks_of_their_own(&prefixed);
    drop((client, prefixed));

    let cluster = Cluster::start_primaries();
    let client =
        LockClient::builder().cluster(leasehold::Cluster::new(cluster.urls())).build().unwrap();
    all_are_locks_of_their_own(&client);
}

#[test]
fn in_memory() {
    let client = LockClient::in_memory();
    all_are_locks_of_their_own(&client);
    other_kinds(&client, true);
}

#[cfg(feature = "postgres")]
#[test]
fn over_postgres() {
    let server = crate::rig::Postgres::shared();
    let client = server.client();
    all_are_locks_of_their_own(&client);
    other_kinds(&client, true);
}

#[cfg(feature = "zookeeper")]
#[test]
fn over_zookeeper() {
    use crate::on_zookeeper::server;

    let server = server!();
    let client = LockClient::builder().url(server.url()).build().unwrap();
    all_are_locks_of_their_own(&client);
    other_kinds(&client, false);
}
