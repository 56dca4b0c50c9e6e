//! Holds that clients announce, found without a search among foreign keys.

use std::time::Duration;

use leasehold::{Builder, ErrorKind, LockClient, Primitive, Redlock, Sentinel};

use super::{LONG, names, only, report};
use crate::rig::{
    CAP, CLIENT_INDEX, Child, Cluster, MASTER_NAME, Sentinels, Server, acl_rule, ms, wait_for,
    wait_until,
};
use crate::support::{Clients, Masters, ShortLease, wait_for_votes};

const JAVA: &str = "0f0ba0e5-46ae-4ab8-a4ba-9b8b5f6c1d2e:34";

fn announced(client: &LockClient, pattern: &str) -> Vec<String> {
    client
        .announced_locks(pattern)
        .unwrap()
        .locks()
        .iter()
        .map(|lock| lock.name().to_owned())
        .collect()
}

#[track_caller]
fn others_see_what_is_announced(build: impl Fn(Builder) -> LockClient, has_all_kinds: bool) {
    let builder = || LockClient::builder().lease(LONG);
    let (a, b) = (build(builder().owner("billing-7")), build(builder()));
    assert!(announced(&b, "*").is_empty());
    let mutex = a.mutex("job: 100%\n").lock_owned().unwrap();
    let mut expected = vec!["job: 100%\n"];
    let mut others: Vec<Box<dyn Send>> = Vec::new();
    if has_all_kinds {
        others.push(Box::new(a.fair("line").lock_owned().unwrap()));
        others.push(Box::new(a.multi(["pair:1", "pair:2"]).lock_owned().unwrap()));
        a.semaphore("pool").try_set_permits(5).unwrap();
        others.push(Box::new(a.semaphore("pool").acquire_many(2).unwrap()));
        let write = a.rw_lock("rw").write_owned().unwrap();
        others.push(Box::new(write));
        expected.extend(["line", "pair:1", "pair:2", "pool", "rw"]);
    }
    let has_owner = |lock: &leasehold::observe::LockSummary| {
        lock.holders().iter().all(|holder| holder.owner().is_some())
    };
    // After one that fails, the next announcement comes a lease later.
    wait_for(3 * CAP, "all of it is announced", || {
        announced(&b, "*") == expected
            && b.announced_locks("*").unwrap().locks().iter().all(has_owner)
    });
    let all = b.announced_locks("*").unwrap();
    assert_eq!(all.unlisted(), 0);
    for lock in all.locks() {
        let [holder] = lock.holders() else { panic!("{lock:?}") };
        assert_eq!(holder.owner().map(|owner| owner.label()), Some("billing-7"), "{lock:?}");
        assert!(!holder.id().ends_with(":write"), "{holder:?}");
    }
    if has_all_kinds {
        let pool = report(&b, "pool");
        let permits = &only(&pool).holders()[0];
        assert_eq!(
            (permits.hold_count(), permits.owner().map(|owner| owner.label())),
            (2, Some("billing-7"))
        );
        assert_eq!(announced(&b, "p*:?"), ["pair:1", "pair:2"]);
        assert_eq!(announced(&b, "line"), ["line"]);
    }
    drop((mutex, others));
    assert!(announced(&b, "[jlp]*").iter().all(|name| name == "pool"), "only what is held now");
    if has_all_kinds {
        a.semaphore("pool").delete().unwrap();
    }
    a.close(CAP).unwrap();
    b.close(CAP).unwrap();
}

#[test]
fn on_one_server_without_a_search() {
    let server = Server::start();
    let fill = "for n = 1, 2000 do redis.call('hset', 'user:' .. n, 'name', n) end";
    server.cmd::<redis::Value>(&["EVAL", fill, "0"]);
    let before = ["scan", "keys"].map(|command| server.call_count(command));
    let looks = server.call_count("hlen");
    others_see_what_is_announced(|builder| builder.url(server.url()).build().unwrap(), true);
    assert_eq!(["scan", "keys"].map(|command| server.call_count(command)), before);
    assert!(server.call_count("hlen") - looks < 2000, "no foreign hash is inspected");
    server.cmd::<()>(&["FLUSHALL"]);
    others_see_what_is_announced(
        |builder| builder.url(server.url()).key_prefix("app{1}:").build().unwrap(),
        true,
    );
    server.assert_clean();
}

#[test]
fn behind_sentinels_in_a_cluster_and_on_several_masters() {
    let rig = Sentinels::start();
    others_see_what_is_announced(
        |builder| builder.sentinel(Sentinel::new(rig.urls(), MASTER_NAME)).build().unwrap(),
        true,
    );
    rig.assert_clean();
    let cluster = Cluster::start_primaries();
    others_see_what_is_announced(
        |builder| builder.cluster(leasehold::Cluster::new(cluster.urls())).build().unwrap(),
        true,
    );
    cluster.assert_clean();
    let masters = Masters::fresh(3);
    let build = |builder: Builder| {
        let client =
            builder.redlock(Redlock::new(masters.urls())).io_timeout(ms(5000)).build().unwrap();
        wait_for_votes(&client, 3);
        client
    };
    others_see_what_is_announced(build, false);
    masters.assert_clean();
}

#[test]
fn in_memory() {
    let first = LockClient::in_memory();
    others_see_what_is_announced(|builder| builder.build_in_memory_shared(&first).unwrap(), true);
}

#[cfg(feature = "postgres")]
#[test]
fn in_postgres() {
    let server = crate::rig::Postgres::shared();
    others_see_what_is_announced(|builder| builder.url(server.url()).build().unwrap(), true);
    server.assert_clean();
}

/// The holder announces nothing, but the waiter is subscribed.
#[test]
fn what_is_waited_for_shows_whoever_has_it() {
    let server = Server::start();
    let client = server.client();
    server.cmd::<u32>(&["HSET", "java", JAVA, "1"]);
    server.cmd::<u32>(&["PEXPIRE", "java", "60000"]);
    server.cmd::<u32>(&["HSET", "unwanted", JAVA, "1"]);
    assert!(announced(&client, "*").is_empty());
    std::thread::scope(|scope| {
        let waiter = server.client();
        let waits = scope.spawn(move || drop(waiter.lock("java").unwrap()));
        wait_until("it shows", || announced(&client, "*") == ["java"]);
        let listed = client.announced_locks("java").unwrap();
        let lock = &listed.locks()[0];
        assert_eq!((lock.waiting(), lock.primitive()), (Some(1), Primitive::Mutex));
        assert_eq!(only(&report(&client, "java")).waiting(), Some(1));
        assert!(client.mutex("java").force_unlock().unwrap());
        waits.join().unwrap();
    });
    assert_eq!(names(&client, "*"), ["unwanted"], "a search finds what is not announced");
}

#[test]
fn a_process_that_is_killed_leaves_nothing() {
    let server = Server::start();
    let mut child =
        Child::spawn("owner::holding_process", &[("LEASEHOLD_TEST_URL", &server.url())]);
    child.expect("holds it, pid ");
    let client = server.client();
    wait_until("it is announced", || announced(&client, "*") == ["job"]);
    assert!((1..=1500).contains(&server.pttl(CLIENT_INDEX)), "it expires with the record");
    child.kill();
    wait_until("everything has expired", || server.cmd::<u32>(&["EXISTS", CLIENT_INDEX]) == 0);
    drop(client);
    server.assert_clean();
}

/// Live clients remove the dead ones, however long their own leases are.
#[test]
fn dead_clients_are_removed_from_the_index() {
    let server = Server::start();
    server.cmd::<u32>(&["ZADD", CLIENT_INDEX, "1", "dead-1", "2", "dead-2"]);
    let client = server.builder().owner("x").short_lease(ms(900)).build().unwrap();
    let guard = client.lock("job").unwrap();
    wait_until("it is in the index", || {
        let clients: Vec<String> = server.cmd(&["ZRANGE", CLIENT_INDEX, "0", "-1"]);
        clients == [client.id()]
    });
    drop((guard, client));
    server.assert_clean();
}

#[test]
fn a_client_with_very_many_holds_names_the_oldest() {
    let server = Server::start();
    let client = server.builder().owner("x").lease(LONG).build().unwrap();
    let name = |n: u32| format!("tenant {n:0200}");
    let first = client.mutex(name(0)).lock_owned().unwrap();
    std::thread::sleep(ms(5));
    let rest: Vec<_> = (1..300).map(|n| client.mutex(name(n)).lock_owned().unwrap()).collect();
    let seen = server.client();
    // It is written in the background, perhaps before all locks were acquired.
    let client = LockClient::builder()
        .url(server.url())
        .owner("y")
        .lease(Duration::from_secs(6))
        .io_timeout(Duration::from_secs(5))
        .build()
        .unwrap();
    let more: Vec<_> = (300..600).map(|n| client.mutex(name(n)).lock_owned().unwrap()).collect();
    let of_second = |listed: &leasehold::observe::AnnouncedLocks| listed.unlisted() > 200;
    wait_until("the rest is counted", || of_second(&seen.announced_locks("*").unwrap()));
    let listed = seen.announced_locks("*").unwrap();
    assert!(listed.locks().iter().any(|lock| lock.name() == name(0)), "the oldest is listed");
    assert!((30..300).contains(&listed.locks().len()), "{}", listed.locks().len());
    for key in server.client_keys() {
        assert!(server.cmd::<u32>(&["STRLEN", &key]) < 17_000);
    }
    assert_eq!(names(&seen, "*").len(), 600);
    drop((first, rest, more));
}

#[test]
fn a_record_may_claim_any_number_of_holds() {
    let server = Server::start();
    let [a, b] = [(); 2].map(|()| server.builder().owner("x").lease(LONG).build().unwrap());
    let _held = [a.lock("a").unwrap(), b.lock("b").unwrap()];
    wait_until("both are announced", || announced(&a, "*") == ["a", "b"]);
    for key in server.client_keys() {
        server.cmd::<u32>(&["APPEND", &key, &format!("\nunlisted={}", u64::MAX)]);
    }
    assert_eq!(a.announced_locks("*").unwrap().unlisted(), u64::MAX);
}

#[test]
fn a_user_who_may_not_is_told_what_to_allow() {
    let server = Server::start();
    let rule = acl_rule(&["app:*"]);
    let rule: Vec<&str> = rule.iter().map(String::as_str).collect();
    let user = |name: &str, without: &str, with: &[&str]| {
        let rule = rule.iter().copied().filter(|word| *word != without);
        let begin = ["ACL", "SETUSER", name, "reset", "on", ">secret", "resetchannels"].into_iter();
        server.cmd::<()>(&begin.chain(rule).chain(with.iter().copied()).collect::<Vec<_>>());
        let url = format!("{}?user={name}&pass=secret", server.url());
        LockClient::builder()
            .url(url)
            .key_prefix("app:")
            .owner(name)
            .short_lease(ms(3000))
            .build()
            .unwrap()
    };
    // The documented rule is sufficient, without the names that are waited for.
    let documented = user("documented", "", &[]);
    let _guard = documented.lock("job").unwrap();
    wait_until("it is announced", || announced(&documented, "*") == ["job"]);
    assert_eq!(documented.announced_locks("*").unwrap().locks()[0].waiting(), None);
    // Without the key it reports that.
    let none = user("none", "~leasehold_client:*", &[]);
    let error = none.announced_locks("*").unwrap_err();
    assert!(
        error.kind() == ErrorKind::Denied && error.to_string().contains("leasehold_client"),
        "{error}"
    );
    // With only the keys of its own prefix, it is known by its id as before, again and again.
    let narrow = user("narrow", "~leasehold_client:*", &["~leasehold_client:{app:*"]);
    let _other = narrow.lock("other").unwrap();
    let start = std::time::Instant::now();
    let owner =
        || documented.mutex("other").holder().unwrap().and_then(|holder| holder.owner().cloned());
    wait_until("it is known", || owner().is_some());
    while start.elapsed() < ms(5000) {
        assert_eq!(owner().map(|owner| owner.label().to_owned()).as_deref(), Some("narrow"));
        std::thread::sleep(ms(20));
    }
    assert_eq!(announced(&documented, "*"), ["job"], "it is not in the index");
}
