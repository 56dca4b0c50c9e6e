//! Keys that hold data of another kind, or a token counter that is not a number.

use leasehold::ErrorKind;

use super::{LEASE, all_methods_fail, client, fails, works};
use crate::rig::Server;

#[test]
fn a_key_of_another_type_is_reported_and_left_alone() {
    let server = Server::start();
    let client = client(&server);
    for make in [
        &["SET", "job", "v"][..],
        &["RPUSH", "job", "v"],
        &["SADD", "job", "v"],
        &["ZADD", "job", "1", "v"],
    ] {
        server.cmd::<()>(make);
        all_methods_fail(&client, "job", ErrorKind::WrongType, "another name or a key_prefix");
        let mutex = client.mutex("job");
        fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || mutex.is_locked());
        fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || mutex.holder());
        fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || mutex.force_unlock());
        assert_eq!(
            server.cmd::<u32>(&["EXISTS", "job"]),
            1,
            "another application's data must not be deleted"
        );
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

/// Hashes look like locks. Nothing is added to one of an application, and nothing deletes it.
#[test]
fn a_hash_of_an_application_is_reported_and_left_alone() {
    let server = Server::start();
    let client = client(&server);
    let java = "a8a5ef81-b5b7-4d39-a987-611a1db5d2fe:30";
    let many: Vec<String> =
        (0..40).flat_map(|n| [format!("{}{n:02}:1", &java[..34]), "1".to_owned()]).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let rows = [
        &["alice", "1"][..],
        &["name", "Bob", "mail", "bob@example"],
        &[java, "1", "alice", "1"],
        &[java, "300000"],
        &[java, "0"],
        &[java, "many"],
        &["mode", "read", "retries", "300000"],
        &["mode", "write", "retries", "300000"],
        &["mode", "dark", java, "1"],
        &["mode", "read", java, "300000"],
        &[&["mode", "read", "alice", "1"], &many[..]].concat(),
    ];
    for fields in rows {
        for ttl in [-1, 3_600_000] {
            server.cmd::<()>(&[&["HSET", "job"], fields].concat());
            if ttl > 0 {
                server.cmd::<()>(&["PEXPIRE", "job", &ttl.to_string()]);
            }
            let before = server.hash("job");
            let (mutex, fair, rw) =
                (client.mutex("job"), client.fair("job"), client.rw_lock("job"));
            fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || mutex.force_unlock());
            fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || fair.force_unlock());
            fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || rw.force_unlock());
            fails(ErrorKind::WrongType, Some("job"), "", || {
                if fields[0] == "mode" {
                    rw.holders()
                } else {
                    fair.holder().map(|h| h.into_iter().collect())
                }
            });
            // One that will expire is taken for a lock of somebody else, which changes nothing.
            let answers = [
                mutex.try_lock().map(|guard| guard.is_some()),
                fair.try_lock().map(|guard| guard.is_some()),
                client.multi(["job", "other"]).try_lock().map(|guard| guard.is_some()),
                rw.try_write().map(|guard| guard.is_some()),
            ];
            for answer in answers {
                match answer {
                    Ok(taken) => assert!(!taken && ttl > 0, "{fields:?} with the TTL {ttl}"),
                    Err(e) => assert_eq!(
                        (e.kind(), e.name()),
                        (ErrorKind::WrongType, Some("job")),
                        "{fields:?}"
                    ),
                }
            }
            // Joining would add a field, and raise the TTL.
            if ttl < 0 || fields[1] != "write" && fields.len() < 34 {
                fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || rw.try_read());
            }
            assert_eq!(server.hash("job"), before, "{fields:?}");
            let left = server.pttl("job");
            assert!(
                if ttl < 0 { left == -1 } else { (1..=ttl).contains(&left) },
                "{fields:?}: {left}"
            );
            server.cmd::<()>(&["DEL", "job"]);
            works(&client, "job");
        }
    }
    // An application writes to the hash of a lock while that is held: what is not ours stays.
    let guard = client.rw_lock("job").read().unwrap();
    server.cmd::<()>(&["HSET", "job", "retries", "300000", java, "300000"]);
    guard.extend(LEASE * 2).unwrap();
    guard.unlock().unwrap();
    assert_eq!(server.hash("job").into_keys().collect::<Vec<_>>(), [java, "mode", "retries"]);
    server.cmd::<()>(&["DEL", "job"]);
    drop(client);
    server.assert_clean();
}

#[test]
fn a_token_counter_that_is_no_number_is_reported_before_anything_is_acquired() {
    let server = Server::start();
    let client = client(&server);
    let token = "redisson_lock_token:{job}";
    for make in [
        &["SET", token, "abc"][..],
        &["SET", token, "1.5"],
        &["HSET", token, "f", "v"],
        &["RPUSH", token, "v"],
    ] {
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
        let next =
            || client.try_lock("job").map(|guard| guard.unwrap().fencing_token().unwrap().get());
        let tokens: Vec<u64> = (0..4).map_while(|_| next().ok()).collect();
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "from {far}: {tokens:?}");
        assert!(server.lock_keys().is_empty(), "from {far}");
    }
    drop(client);
    server.assert_clean();
}
