//! In stores other than Redis.

use std::time::Duration;

use leasehold::fencing::FencingToken;
use leasehold::{ErrorKind, LockClient, Primitive};

use super::{LONG, Says, listed, names, only, others_see_what_stands, report};
#[cfg(feature = "postgres")]
use crate::support::Clients;

#[test]
fn a_memory_lists_what_it_has() {
    let says = Says { kinds: true, counts: true, leases: true, tokens: false };
    let memory = LockClient::in_memory();
    others_see_what_stands(|builder| builder.build_in_memory_shared(&memory).unwrap(), says);
    let other = LockClient::in_memory_shared(&memory).unwrap();
    let guard = memory.mutex("job").lock_owned().unwrap();
    memory.semaphore("pool").try_set_permits(3).unwrap();
    let permit = memory.semaphore("pool").acquire().unwrap();
    memory.counting_semaphore("count").try_set_permits(4).unwrap();
    memory.latch("latch").try_set_count(2).unwrap();
    let reader = memory.rw_lock("rw").read_owned().unwrap();
    assert_eq!(names(&other, "*"), ["count", "job", "latch", "pool", "rw"]);
    let kinds: Vec<_> =
        listed(&other, "*").iter().map(|lock| (lock.primitive(), lock.number())).collect();
    let expected = [
        (Primitive::CountingSemaphore, Some(4)),
        (Primitive::Mutex, None),
        (Primitive::Latch, Some(2)),
        (Primitive::Semaphore, Some(2)),
        (Primitive::Read, None),
    ];
    assert_eq!(kinds, expected);
    assert!(listed(&memory, "job")[0].holders()[0].is_this_client());
    assert!(
        listed(&other, "job")[0]
            .remaining()
            .is_some_and(|left| left > Duration::ZERO && left <= LONG)
    );
    assert_eq!(only(&report(&other, "pool")).taken(), 1);
    other.fenced_value("value").claim(FencingToken::new(7)).unwrap();
    assert_eq!(other.inspect("value").unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(names(&other, "v*"), [""; 0]);
    drop((guard, permit, reader));
    assert_eq!(names(&other, "*"), ["count", "latch", "pool"]);
}

#[cfg(feature = "postgres")]
#[test]
fn others_see_it_in_postgres() {
    let server = crate::rig::Postgres::shared();
    let says = Says { kinds: true, counts: true, leases: true, tokens: true };
    others_see_what_stands(|builder| builder.url(server.url()).build().unwrap(), says);
    others_see_what_stands(
        |builder| builder.url(server.url()).key_prefix("app*:").build().unwrap(),
        says,
    );

    // More than two pages, most of them unused rows.
    server.run_sql("INSERT INTO leasehold.lock (name, kind) SELECT 'rest:' || n, 'x' FROM generate_series(1, 2500) n");
    let client = server.client();
    let _guards: Vec<_> = ["a", "rest:7", "z"].map(|name| client.lock(name).unwrap()).into();
    assert_eq!(names(&client, "*"), ["a", "rest:7", "z"]);
    let apart = server.builder().key_prefix("rest:").build().unwrap();
    assert_eq!(names(&apart, "*"), ["7"]);
    client.counting_semaphore("count").try_set_permits(4).unwrap();
    let seen = report(&client, "count");
    assert_eq!(
        (only(&seen).primitive(), only(&seen).number()),
        (Primitive::CountingSemaphore, Some(4))
    );
    client.counting_semaphore("count").delete().unwrap();
}

#[cfg(feature = "zookeeper")]
#[test]
fn others_see_it_in_zookeeper() {
    let server = crate::rig::zookeeper::ZooKeeper::lend(crate::on_zookeeper::SETTINGS);
    let says = Says { kinds: false, counts: false, leases: false, tokens: false };
    others_see_what_stands(|builder| builder.url(server.url()).build().unwrap(), says);
    others_see_what_stands(
        |builder| {
            builder.url(server.url_in("/app/locks-of")).key_prefix("deep/er/").build().unwrap()
        },
        says,
    );

    let client = LockClient::builder().url(server.url()).lease(LONG).build().unwrap();
    // Some have the names of a semaphore's directories.
    let taken = ["a/b", "a/b/c", "leases/2/x", "locks/1", "permits", "x"];
    let _guards: Vec<_> = taken.map(|name| client.lock(name).unwrap()).into();
    assert_eq!(names(&client, "*"), taken);
    assert_eq!(names(&client, "a/*"), ["a/b", "a/b/c"]);
    // Nobody has ever used it, so it has no directories.
    client.semaphore("a/pool").try_set_permits(5).unwrap();
    let seen = report(&client, "a/pool");
    assert_eq!((only(&seen).primitive(), only(&seen).number()), (Primitive::Semaphore, Some(5)));
    assert_eq!(names(&client, "a/*"), ["a/b", "a/b/c", "a/pool"]);
    assert!(client.semaphore("a/pool").delete().unwrap());
}

/// A node that the user may not read does not abort the list of all others.
#[cfg(feature = "zookeeper")]
#[test]
fn an_unreadable_node_in_zookeeper_does_not_end_a_list() {
    const ALL: i32 = 31;
    const READ: i32 = 1;
    let server = crate::rig::zookeeper::ZooKeeper::lend(crate::on_zookeeper::SETTINGS);
    let client = LockClient::builder().url(server.url()).lease(LONG).build().unwrap();
    let _guards: Vec<_> = ["a", "job", "x"].map(|name| client.lock(name).unwrap()).into();
    client.semaphore("pool").try_set_permits(3).unwrap();
    let _permit = client.semaphore("pool").acquire().unwrap();
    let mut look = server.raw();
    let node = format!("/job/{}", look.children("/job").unwrap()[0]);
    look.allow(&node, ALL - READ).unwrap();
    assert_eq!(names(&client, "*"), ["a", "job", "pool", "x"]);
    assert_eq!(listed(&client, "j*")[0].taken(), 1, "it is held, by an unknown holder");
    let error = client.inspect("job").unwrap_err();
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("ACL"), "{error}");
    // A directory of a semaphore, and a count that is not a number.
    look.allow("/pool/leases", ALL - READ).unwrap();
    assert_eq!(names(&client, "*"), ["a", "job", "x"]);
    look.allow("/pool/leases", ALL).unwrap();
    look.allow(&node, ALL).unwrap();
    assert_eq!(names(&client, "*"), ["a", "job", "pool", "x"]);
    look.close();
}
