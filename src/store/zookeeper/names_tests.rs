use super::*;
use crate::base::error::ErrorKind;
use crate::base::holder::ClientId;
use std::time::Duration;

const A: &str = "_c_6c1d4dfc-7a43-4e2c-9a9a-0d3e1e1d2c3b-";

fn strings(nodes: &[&str]) -> Vec<String> {
    nodes.iter().map(|node| (*node).to_owned()).collect()
}

#[test]
fn names_are_paths() {
    assert_eq!(Paths::new("", "a").base, "/a");
    assert_eq!(Paths::new("/app", "/a/b").base, "/app/a/b");
    let paths = Paths::new("/app", "pool");
    assert_eq!(
        (&*paths.locks, &*paths.leases, &*paths.permits),
        ("/app/pool/locks", "/app/pool/leases", "/app/pool/permits")
    );
    assert_eq!(
        (paths.queue(Kind::Semaphore), paths.queue(Kind::Write)),
        ("/app/pool/locks", "/app/pool")
    );
}

#[test]
fn names_that_would_mean_something_else_are_refused() {
    for good in [
        "a",
        "/a",
        "a/b/c",
        "zookeeper-lock",
        "a/zookeeper",
        "locks/x",
        "a.b",
        "ä:1 %",
        "locksmith",
        "a/permits",
    ] {
        assert!(check(good).is_ok(), "{good}");
    }
    for bad in [
        "/",
        "a//b",
        "a/",
        "//a",
        ".",
        "a/..",
        "zookeeper",
        "/zookeeper/x",
        "leasehold-sessions/session-0000000001",
        "_c_x",
        "a/_c_",
        "a/locks",
        "leases",
        "a\0b",
        "a\u{7f}",
        "\u{e001}",
    ] {
        assert_eq!(check(bad).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad:?}");
    }
    let error = check("deploy-\u{1f680}").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("'\u{1f680}'"), "{error} does not name the character");
}

#[test]
fn ids_are_uuids_and_always_the_same_for_a_holder() {
    let client = ClientId::random(Duration::from_secs(5));
    let first = client.fresh_holder();
    let second = client.fresh_holder();
    let is_uuid = |id: &str| {
        let parts: Vec<usize> = id.split('-').map(str::len).collect();
        parts == [8, 4, 4, 4, 12]
            && id.as_bytes()[14] == b'8'
            && matches!(id.as_bytes()[19], b'8'..=b'b')
            && id.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
    };
    let id = protection_id(&first, 0);
    assert!(is_uuid(&id), "{id}");
    assert_eq!((&id, id.len()), (&protection_id(&first, 0), 36));
    assert_ne!(id, protection_id(&second, 0));
    let permits = Holder::random_permits();
    let ids: Vec<String> = [0, 1, 9_999].map(|number| protection_id(&permits, number)).into();
    assert!(ids.iter().all(|id| is_uuid(id)), "{ids:?}");
    assert!(ids[0] != ids[1] && ids[1] != ids[2]);
    assert!(
        is_of(&format!("_c_{id}-lock-0000000001"), &id)
            && id_of(&format!("_c_{id}-lock-1")) == Some(&id)
    );
    assert!(
        !is_of(&format!("_c_{id}"), &id)
            && !is_of("lock-0000000001", &id)
            && id_of("lock-1").is_none()
    );
}

#[test]
fn nodes_have_golden_names() {
    let id = &A[3..39];
    assert_eq!(node_prefix(Kind::Mutex, id), format!("{A}lock-"));
    assert_eq!(node_prefix(Kind::Fair, id), format!("{A}lock-"));
    assert_eq!(node_prefix(Kind::Semaphore, id), format!("{A}lock-"));
    assert_eq!(node_prefix(Kind::Write, id), format!("{A}__WRIT__"));
    assert_eq!(node_prefix(Kind::Read, id), format!("{A}__READ__"));
    assert_eq!(lease_prefix(id), format!("{A}lease-"));
    assert_eq!(downgraded(id, &format!("{A}__WRIT__0000000041")), format!("{A}__READ__0000000041"));
}

/// The order in which Curator sorts them.
#[test]
fn locks_stand_in_the_order_of_their_sequences() {
    let nodes = [
        "zzz",
        "_c_ffffffff-7a43-4e2c-9a9a-0d3e1e1d2c3b-lock-0000000002",
        "_c_00000000-7a43-4e2c-9a9a-0d3e1e1d2c3b-lock-0000000010",
        "mine-lock-0000000003",
        "!x",
    ];
    let order = sorted(Kind::Mutex, strings(&nodes));
    assert_eq!(order, strings(&["!x", nodes[1], nodes[3], nodes[2], "zzz"]));
    assert_eq!(predecessor(Kind::Mutex, &order, 0), None);
    assert_eq!(predecessor(Kind::Mutex, &order, 1), Some("!x"));
    assert_eq!(predecessor(Kind::Fair, &order, 3), Some(nodes[3]));
    assert_eq!((sequence(Kind::Mutex, nodes[1]), sequence(Kind::Mutex, "zzz")), (Some(2), None));
}

#[test]
fn readers_wait_for_writers_only() {
    let node = |name: &str| format!("{A}{name}");
    let unsorted = [
        "__READ__0000000007",
        "__WRIT__0000000005",
        "__READ__0000000003",
        "__WRIT__0000000006",
        "__READ__0000000004",
    ];
    let order = sorted(Kind::Write, unsorted.iter().map(|name| node(name)).collect());
    let expected: Vec<String> = [
        "__READ__0000000003",
        "__READ__0000000004",
        "__WRIT__0000000005",
        "__WRIT__0000000006",
        "__READ__0000000007",
    ]
    .iter()
    .map(|name| node(name))
    .collect();
    assert_eq!(order, expected);
    assert_eq!(
        (predecessor(Kind::Read, &order, 0), predecessor(Kind::Read, &order, 1)),
        (None, None)
    );
    assert_eq!(predecessor(Kind::Write, &order, 2), Some(&*order[1]), "any reader before it");
    assert_eq!(
        predecessor(Kind::Read, &order, 4),
        Some(&*order[3]),
        "the nearest writer before it"
    );
    assert!(is_read(&order[0]) && is_write(&order[2]) && !is_read(&order[2]));
    // A reader inside a write hold has the writer's place.
    let nested = sorted(
        Kind::Read,
        vec![node("__WRIT__0000000009"), node("__READ__0000000008"), node("__READ__0000000009")],
    );
    assert_eq!(last_of(&format!("/a/{}", nested[0])), node("__READ__0000000008"));
    assert_eq!(sequence(Kind::Read, &nested[1]), Some(9));
}

#[test]
fn ids_are_the_same_in_every_release() {
    let holder = "0123cdef-0000-4000-8000-0123456789ab:7";
    assert_eq!(id_from(holder, 0), "0123cdef-0000-4000-8000-000000000007");
    let permit = "0123456789abcdef01234567";
    assert_eq!(id_from(permit, 0), "01234567-89ab-8cde-8000-f01234567000");
    assert_eq!(id_from(permit, 5), "01234567-89ab-8cde-8005-f01234567000");
    assert_eq!(id_from(permit, 0x7fff), "01234567-89ab-8cde-bfff-f01234567000");
    assert_eq!(mark("/gates", permit), "/gates/once-01234567-89ab-8cde-8000-f01234567000");
}
