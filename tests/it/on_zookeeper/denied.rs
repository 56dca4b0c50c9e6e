//! Operations that the server denies: the ACL of a node is changed behind the client's back.

use leasehold::{Error, ErrorKind};

use super::{children, client, client_of, server};
use crate::rig::zookeeper::PERSISTENT;
use crate::rig::{CAP, ms, wait_until};

const ALL: i32 = 31;
const READ: i32 = 1;
const CREATE: i32 = 4;
const DELETE: i32 = 8;

#[track_caller]
fn is_denied(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("job"), "{error} does not name the node");
    assert!(error.to_string().contains("ACL"), "{error} does not say what to do");
    assert!(error.name().is_none_or(|name| name.contains("job")), "{error:?}");
}

/// Nothing is left of a denied call of any kind, and it works once the right is restored.
#[test]
fn a_call_that_is_denied_leaves_nothing_behind() {
    let server = server!();
    let (ours, other) = (client(&server), client(&server));
    let mut look = server.raw();
    for path in ["/job", "/job-b", "/job/locks", "/job/leases"] {
        look.create(path, b"", PERSISTENT).unwrap();
    }
    ours.semaphore("job").try_set_permits(2).unwrap();
    let tries: [(&str, &dyn Fn() -> leasehold::Result<bool>); 6] = [
        ("mutex", &|| ours.try_lock("job").map(|won| won.is_some())),
        ("waiting", &|| ours.try_lock_for("job", ms(50)).map(|won| won.is_some())),
        ("fair", &|| ours.fair("job").try_lock().map(|won| won.is_some())),
        ("reader", &|| ours.rw_lock("job").try_read().map(|won| won.is_some())),
        ("multi", &|| ours.multi(["job", "job-b"]).try_lock().map(|won| won.is_some())),
        ("permits", &|| ours.semaphore("job").try_acquire().map(|won| won.is_some())),
    ];
    for (what, attempt) in tries {
        let queue = if what == "permits" { "/job/locks" } else { "/job" };
        for missing in [CREATE, READ] {
            look.allow(queue, ALL - missing).unwrap();
            is_denied(&attempt().expect_err(what));
            wait_until(&format!("{what} without {missing} leaves nothing"), || {
                server.ephemerals().is_empty()
            });
            look.allow(queue, ALL).unwrap();
            assert!(attempt().unwrap(), "{what}: it is free, and allowed");
            wait_until("it is released", || server.ephemerals().is_empty());
        }
    }
    look.allow("/job/leases", ALL - CREATE).unwrap();
    is_denied(&ours.semaphore("job").try_acquire().unwrap_err());
    wait_until("nothing is left", || server.ephemerals().is_empty());
    look.allow("/job/leases", ALL).unwrap();
    look.allow("/job/permits", ALL - READ).unwrap();
    is_denied(&ours.semaphore("job").try_acquire().unwrap_err());
    wait_until("nothing is left", || server.ephemerals().is_empty());
    look.allow("/job/permits", ALL).unwrap();
    // The node that a waiter wants to watch.
    let guard = other.lock("job").unwrap();
    let held = children(&mut look, "/job");
    let first = held.iter().find(|node| node.contains("-lock-")).unwrap();
    look.allow(&format!("/job/{first}"), ALL - READ).unwrap();
    is_denied(&ours.try_lock_for("job", ms(50)).unwrap_err());
    is_denied(&ours.fair("job").lock().unwrap_err());
    is_denied(&ours.mutex("job").holder().unwrap_err());
    wait_until("nothing is left", || children(&mut look, "/job") == held);
    assert!(guard.is_held());
    guard.unlock().unwrap();
    ours.semaphore("job").delete().unwrap();
    for path in ["/job/locks", "/job/leases", "/job-b", "/job"] {
        look.delete(path).unwrap();
    }
    look.close();
    drop((ours, other));
    server.assert_clean();
}

/// The node of a hold that may not be deleted remains until it may, or until the session ends; the
/// client considers the hold ended at once.
#[test]
fn a_release_that_is_denied_is_named_and_made_good() {
    let server = server!();
    let ours = client_of(&server.url(), |builder| builder.lease(ms(6000)).io_timeout(ms(4000)));
    let other = client(&server);
    let mut look = server.raw();
    look.create("/job", b"", PERSISTENT).unwrap();
    let guard = ours.lock("job").unwrap();
    look.allow("/job", ALL - DELETE).unwrap();
    is_denied(&guard.unlock().unwrap_err());
    assert!(other.mutex("job").is_locked().unwrap(), "its node still exists");
    look.allow("/job", ALL).unwrap();
    wait_until("it is deleted later", || children(&mut look, "/job").is_empty());
    // By the end of the session.
    let guard = ours.lock("job").unwrap();
    look.allow("/job", ALL - DELETE).unwrap();
    is_denied(&guard.unlock().unwrap_err());
    drop(ours);
    wait_until("it is deleted with the session", || children(&mut look, "/job").is_empty());
    look.delete("/job").unwrap();
    look.close();
    drop(other);
    server.assert_clean();
}

/// A node that may not be read any more troubles its holder, and no other hold of the client.
#[test]
fn a_node_that_is_denied_troubles_only_its_holder() {
    let server = server!();
    let client = client_of(&server.url(), |builder| builder.lease(ms(6000)).io_timeout(ms(5000)));
    let mut look = server.raw();
    let (job, well) = (client.lock("job").unwrap(), client.lock("well").unwrap());
    let (troubles, troubled) = leasehold::crossbeam_channel::unbounded();
    for (name, guard) in [("job", &job), ("well", &well)] {
        let troubles = troubles.clone();
        guard.on_renewal_failed(move |_| {
            let _ = troubles.send(name);
        });
    }
    let [node] = &children(&mut look, "/job")[..] else { panic!("one holder") };
    let node = format!("/job/{node}");
    look.allow(&node, ALL - READ).unwrap();
    assert_eq!(troubled.recv_timeout(CAP), Ok("job"));
    look.allow(&node, ALL).unwrap();
    job.unlock().unwrap();
    well.unlock().unwrap();
    look.close();
    drop((client, troubles));
    assert!(troubled.iter().all(|name| name == "job"));
    server.assert_clean();
}
