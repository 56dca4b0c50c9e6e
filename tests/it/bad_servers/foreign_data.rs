//! Keys that hold data of another kind, or a token counter that is not a number.

use leasehold::ErrorKind;

use super::{LEASE, all_methods_fail, client, fails, works};
use crate::rig::Server;

#[test]
fn a_key_of_another_type_is_reported_and_left_alone() {
    let server = Server::start();
    let client = client(&server);
    for make in [&["SET", "job", "v"][..], &["RPUSH", "job", "v"], &["SADD", "job", "v"], &["ZADD", "job", "1", "v"]] {
        server.cmd::<()>(make);
        all_methods_fail(&client, "job", ErrorKind::WrongType, "another name or a key_prefix");
        let mutex = client.mutex("job");
        fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || mutex.is_locked());
        fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || mutex.holder());
        fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || mutex.force_unlock());
        assert_eq!(server.cmd::<u32>(&["EXISTS", "job"]), 1, "another application's data must not be deleted");
        server.cmd::<()>(&["DEL", "job"]);
        works(&client, "job");
    }
    // The key is replaced while the lock is held.
    let guard = client.lock("job").unwrap();
    server.cmd::<()>(&["SET", "job", "v"]);
    fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || guard.extend(LEASE * 2));
    fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || client.lock("job"));
    fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || guard.unlock());
    server.cmd::<()>(&["DEL", "job"]);
    works(&client, "job");
    drop(client);
    server.assert_clean();
}

#[test]
fn a_token_counter_that_is_no_number_is_reported_before_anything_is_acquired() {
    let server = Server::start();
    let client = client(&server);
    let token = "redisson_lock_token:{job}";
    for make in [&["SET", token, "abc"][..], &["SET", token, "1.5"], &["HSET", token, "f", "v"], &["RPUSH", token, "v"]]
    {
        server.cmd::<()>(&["DEL", token]);
        server.cmd::<()>(make);
        all_methods_fail(&client, "job", ErrorKind::WrongType, "another name or a key_prefix");
        assert!(server.lock_keys().is_empty());
        server.cmd::<()>(&["DEL", token]);
        works(&client, "job");
    }
    // Numbers that no counter of leasehold reaches: an error or a larger token is fine, but the
    // same token must never be issued twice.
    for far in ["9223372036854775807", "9007199254740992", "100000000000000000", "-5"] {
        server.cmd::<()>(&["SET", token, far]);
        let next = || client.try_lock("job").map(|guard| guard.unwrap().fencing_token().unwrap().get());
        let tokens: Vec<u64> = (0..4).map_while(|_| next().ok()).collect();
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "from {far}: {tokens:?}");
        assert!(server.lock_keys().is_empty(), "from {far}");
    }
    drop(client);
    server.assert_clean();
}
