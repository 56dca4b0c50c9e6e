//! Who holds a lock: clients publish their identity, and others can show it.

use std::time::{Duration, Instant};

use leasehold::observe::LockHolder;
use leasehold::{Builder, ErrorKind, LockClient, Redlock, ReentrantMutex, Sentinel};

use crate::rig::{
    CAP, Child, Cluster, Fault, MASTER_NAME, PROMPT, Proxy, Sentinels, Server, acl_rule, logged,
    ms, record_logs, wait_until,
};
use crate::support::{Clients, Masters, ShortLease};

/// Short enough to wait for, long enough to be renewed on a busy machine.
const LEASE: Duration = ms(900);

fn holder_of(mutex: &ReentrantMutex) -> LockHolder {
    mutex.holder().unwrap().expect("it is held")
}

/// Waits until the client that holds it has published its identity.
#[track_caller]
fn known_holder(mutex: &ReentrantMutex) -> LockHolder {
    wait_until("its owner is known", || holder_of(mutex).owner().is_some());
    holder_of(mutex)
}

/// The name appears in `CLIENT LIST`, in the figures and in the names of threads.
#[test]
fn a_client_has_the_name_of_its_program_unless_it_has_another() {
    let server = Server::start();
    let (client, named) =
        (server.client(), server.builder().client_name("billing-7").build().unwrap());
    let program =
        std::env::current_exe().unwrap().file_stem().unwrap().to_str().unwrap().to_owned();
    assert_eq!(
        (client.stats().client_name(), named.stats().client_name()),
        (&*program, "billing-7")
    );
    let is_listed = |name: &str| {
        server.client_lines().iter().any(|line| line.contains(&format!(" name={name} ")))
    };
    assert!(is_listed(&program) && is_listed("billing-7"), "{:?}", server.client_lines());
}

/// `says_since_when`: whether the store knows how long another client has held a lock.
#[track_caller]
fn others_see_who_holds_it(build: impl Fn(Builder) -> LockClient, says_since_when: bool) {
    // The first connection to a server that has just started may be slow.
    let builder = || LockClient::builder().lease(LEASE).io_timeout(ms(800));
    let (a, b) = (build(builder().owner("billing-7")), build(builder()));
    let (own, seen) = (a.mutex("held"), b.mutex("held"));
    assert_eq!(seen.holder().unwrap(), None);
    let guard = own.lock_owned().unwrap();
    let taken = Instant::now();

    let holder = known_holder(&seen);
    let owner = holder.owner().unwrap();
    assert_eq!((owner.label(), owner.pid()), ("billing-7", std::process::id()));
    assert!(
        !holder.is_this_client() && holder.to_string().starts_with(&format!("held by {owner}")),
        "{holder}"
    );
    assert_eq!(
        owner.to_string(),
        format!("billing-7 (pid {} on {})", std::process::id(), owner.host())
    );
    let mine = holder_of(&own);
    assert!(
        mine.is_this_client() && mine.held_for().unwrap() <= taken.elapsed() + PROMPT,
        "{mine}"
    );
    assert_eq!(mine.owner(), Some(owner), "at once, and without a request");

    // This takes longer than a lease, so the hold is renewed.
    while taken.elapsed() < 2 * LEASE {
        assert_eq!(holder_of(&seen).owner().map(|owner| owner.label()), Some("billing-7"));
        std::thread::sleep(ms(20));
    }
    if says_since_when {
        let (asked, holder) = (taken.elapsed(), holder_of(&seen));
        let held_for = holder.held_for().expect("it was written");
        // Both limits are loose: a request and a reply may each take long.
        assert!(
            held_for + LEASE > asked && held_for < taken.elapsed() + LEASE,
            "{held_for:?} after {asked:?}"
        );
        assert!(
            holder.to_string().contains(" for ")
                && holder.to_string().contains(", its lease ends in "),
            "{holder}"
        );
    } else {
        assert_eq!(holder_of(&seen).held_for(), None);
    }
    drop(guard);
    assert_eq!(seen.holder().unwrap(), None);
    drop(own);
    a.close(CAP).unwrap();
    b.close(CAP).unwrap();
}

fn on_server(server: &Server) -> impl Fn(Builder) -> LockClient {
    let url = server.url();
    move |builder| builder.url(&*url).build().unwrap()
}

#[test]
fn others_see_it_on_one_server() {
    let server = Server::start();
    others_see_who_holds_it(on_server(&server), true);
    server.assert_clean();
}

#[test]
fn others_see_it_with_a_prefix() {
    let server = Server::start();
    let build = on_server(&server);
    others_see_who_holds_it(|builder| build(builder.key_prefix("app{1}:")), true);
    server.assert_clean();
}

#[test]
fn others_see_it_behind_sentinels() {
    let rig = Sentinels::start();
    others_see_who_holds_it(
        |builder| builder.sentinel(Sentinel::new(rig.urls(), MASTER_NAME)).build().unwrap(),
        true,
    );
    rig.assert_clean();
}

#[test]
fn others_see_it_in_a_cluster() {
    let cluster = Cluster::start_primaries();
    others_see_who_holds_it(
        |builder| builder.cluster(leasehold::Cluster::new(cluster.urls())).build().unwrap(),
        true,
    );
    cluster.assert_clean();
}

#[test]
fn others_see_it_on_several_masters() {
    let mut masters = Masters::fresh(3);
    let urls = masters.urls();
    let build = |builder: Builder| builder.redlock(Redlock::new(urls.clone())).build().unwrap();
    others_see_who_holds_it(build, true);
    masters.assert_clean();
    masters.0[0].kill();
    others_see_who_holds_it(build, true);
    for server in &masters.0[1..] {
        server.assert_clean();
    }
}

#[cfg(feature = "postgres")]
#[test]
fn others_see_it_in_postgres() {
    let server = crate::rig::Postgres::shared();
    others_see_who_holds_it(|builder| builder.url(server.url()).build().unwrap(), true);
    server.assert_clean();
}

/// An administrator has not granted rights on the table.
#[cfg(feature = "postgres")]
#[test]
fn a_postgres_role_without_the_rights_is_no_trouble() {
    let server = crate::rig::Postgres::start();
    let a = server.builder().lease(LEASE).io_timeout(ms(800)).build().unwrap();
    let b = server.client();
    let _ = a.lock("first").unwrap();
    server.run_sql(
        "CREATE ROLE plain LOGIN; GRANT USAGE ON SCHEMA leasehold, leasehold_v1 TO plain; \
         GRANT ALL ON ALL TABLES IN SCHEMA leasehold TO plain; \
         GRANT ALL ON ALL SEQUENCES IN SCHEMA leasehold TO plain; \
         REVOKE ALL ON leasehold.client FROM plain",
    );
    let url = server.url().replace("leasehold@", "plain@");
    let plain = LockClient::builder().url(url).lease(LEASE).io_timeout(ms(800)).build().unwrap();
    let guard = plain.mutex("held").lock_owned().unwrap();
    let start = Instant::now();
    while start.elapsed() < 2 * LEASE {
        assert!(guard.is_held());
        assert_eq!(holder_of(&b.mutex("held")).owner(), None);
        assert_eq!(
            holder_of(&plain.mutex("held")).owner().map(|owner| owner.pid()),
            Some(std::process::id())
        );
        std::thread::sleep(ms(50));
    }
    guard.unlock().unwrap();
    drop((a, b, plain));
}

#[cfg(feature = "zookeeper")]
#[test]
fn others_see_it_over_zookeeper() {
    use crate::rig::zookeeper::ZooKeeper;
    let server = ZooKeeper::lend(crate::on_zookeeper::SETTINGS);
    others_see_who_holds_it(|builder| builder.url(server.url()).build().unwrap(), false);
    let silent = LockClient::builder().url(server.url()).announce_owner(false).build().unwrap();
    let client = LockClient::open(&server.url()).unwrap();
    let guard = silent.lock("held").unwrap();
    assert_eq!(holder_of(&client.mutex("held")).owner(), None);
    let node = server.children("/held").remove(0);
    let data = server.node(&format!("/held/{node}")).unwrap();
    assert!(!format!("{data:?}").contains("pid"), "{data:?}");
    drop((guard, silent, client));
    server.assert_clean();
}

#[test]
fn others_see_it_in_memory() {
    let first = LockClient::in_memory();
    others_see_who_holds_it(|builder| builder.build_in_memory_shared(&first).unwrap(), true);
}

#[test]
fn it_is_gone_with_the_client() {
    let server = Server::start();
    let seen = server.client();
    for closes in [true, false] {
        let client = server.builder().build().unwrap();
        let guard = client.mutex("job").lock_owned().unwrap();
        let mutex = seen.mutex("job");
        assert_eq!(known_holder(&mutex).owner().map(|owner| owner.pid()), Some(std::process::id()));
        let keys = server.client_keys();
        assert_eq!(keys, [format!("leasehold_client:{{{}}}", client.id())]);
        assert!((1..=30_000).contains(&server.pttl(&keys[0])));
        if closes {
            client.close(CAP).unwrap();
            drop(guard);
        } else {
            drop((guard, client));
        }
        assert!(server.client_keys().is_empty(), "closed: {closes}");
    }
    drop(seen);
    server.assert_clean();
}

/// The reply to its announcement is lost, so it may be there.
#[test]
fn it_is_gone_with_a_client_whose_announcement_had_no_answer() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = LockClient::builder().url(proxy.url()).build().unwrap();
    let key = format!("leasehold_client:{{{}}}", client.id());
    proxy.inject(&key, Fault::CutAfterApplied);
    let guard = client.mutex("job").lock_owned().unwrap();
    let seen = server.client();
    // Somebody asks who holds it, or waits: it is announced after a tick in any case.
    proxy.wait_hits(1);
    assert!(seen.mutex("job").is_locked().unwrap());
    wait_until("it is there", || !server.client_keys().is_empty());
    client.close(CAP).unwrap();
    drop(guard);
    assert!(server.client_keys().is_empty());
}

#[test]
fn without_holds_it_expires() {
    let server = Server::start();
    let client = server.builder().short_lease(LEASE).build().unwrap();
    let guard = client.mutex("job").lock_owned().unwrap();
    wait_until("it is written", || !server.client_keys().is_empty());
    drop(guard);
    wait_until("it expires", || server.client_keys().is_empty());
    std::thread::sleep(LEASE);
    assert!(server.client_keys().is_empty());
    let guard = client.lock("job").unwrap();
    wait_until("it is written again", || !server.client_keys().is_empty());
    drop((guard, client));
    server.assert_clean();
}

#[test]
fn a_killed_process_is_known_for_a_lease() {
    let server = Server::start();
    let mut child =
        Child::spawn("owner::holding_process", &[("LEASEHOLD_TEST_URL", &server.url())]);
    let pid = child.expect("holds it, pid ");
    let client = server.client();
    let holder = known_holder(&client.mutex("job"));
    assert_eq!(
        holder.owner().unwrap().to_string().split(" on ").next(),
        Some(&*format!("worker (pid {pid}"))
    );
    child.kill();
    wait_until("it is gone", || server.client_keys().is_empty());
    drop(client);
    server.assert_clean();
}

#[test]
#[ignore = "a program for other tests"]
fn holding_process() {
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let client =
        LockClient::builder().url(url).owner("worker").short_lease(ms(1500)).build().unwrap();
    let _guard = client.lock("job").unwrap();
    println!("@@holds it, pid {}", std::process::id());
    std::thread::sleep(10 * CAP);
}

/// Holds that end soon are enough; it is like a label that a person has just set.
#[test]
fn a_label_is_said_at_once() {
    let server = Server::start();
    let client = server.builder().owner("billing-7").build().unwrap();
    wait_until("it is published", || {
        drop(client.lock("job").unwrap());
        server.client_keys().len() == 1
    });
    drop(client);
    server.assert_clean();
}

#[test]
fn a_short_hold_costs_nothing() {
    let server = Server::start();
    let client = server.client();
    let connections =
        || server.client_lines().iter().filter(|line| line.contains("name=it-")).count();
    let start = Instant::now();
    // This takes longer than a tick: there is nearly always a hold, but none lasts.
    while start.elapsed() < ms(2500) {
        drop(client.lock("job").unwrap());
    }
    assert_eq!((server.client_keys().len(), connections()), (0, 1));
    drop(client);
    server.assert_clean();
}

#[test]
fn all_holds_cost_one_command_for_each_third_of_a_lease() {
    let server = Server::start();
    let client = server.builder().short_lease(LEASE).build().unwrap();
    let guards: Vec<_> =
        (0..100).map(|n| client.mutex(format!("job-{n}")).lock_owned().unwrap()).collect();
    wait_until("it is written", || server.call_count("set") > 0);
    let (start, first) = (Instant::now(), server.call_count("set"));
    std::thread::sleep(2 * LEASE);
    let (written, most) =
        (server.call_count("set") - first, 3 * start.elapsed().as_millis() / LEASE.as_millis() + 1);
    assert!((1..=u64::try_from(most).unwrap()).contains(&written), "{written} of {most}");
    let text: String = server.cmd(&["GET", &server.client_keys()[0]]);
    let ages =
        text.lines().find_map(|line| line.strip_prefix("held_ms=")).unwrap().split(' ').count();
    assert_eq!(ages, 32, "{text}");
    drop((guards, client));
    server.assert_clean();
}

#[test]
fn who_does_not_say_it_is_not_known() {
    let server = Server::start();
    let silent =
        server.builder().announce_owner(false).owner("x").short_lease(LEASE).build().unwrap();
    let seen = server.client();
    let guard = silent.mutex("job").lock_owned().unwrap();
    let start = Instant::now();
    while start.elapsed() < LEASE {
        let holder = holder_of(&seen.mutex("job"));
        assert_eq!((holder.owner(), holder.held_for()), (None, None));
        assert!(server.client_keys().is_empty());
        std::thread::sleep(ms(10));
    }
    let holder = holder_of(&seen.mutex("job"));
    assert!(
        holder.to_string().starts_with(&format!("held by {}, its lease ends in ", holder.id())),
        "{holder}"
    );
    drop(guard);

    // It does not ask either.
    let guard = seen.mutex("job").lock_owned().unwrap();
    wait_until("it is written", || server.call_count("set") > 0);
    let read = server.call_count("get");
    let holder = holder_of(&silent.mutex("job"));
    assert_eq!((holder.owner(), server.call_count("get")), (None, read));
    drop(guard);

    // Java publishes nothing, and no request is sent.
    let java = "a8a5ef81-b5b7-4d39-a987-611a1db5d2fe:30";
    server.cmd::<()>(&["HSET", "java", java, "1"]);
    let holder = holder_of(&seen.mutex("java"));
    assert_eq!((holder.to_string(), server.call_count("get")), (format!("held by {java}"), read));
    server.cmd::<u32>(&["DEL", "java"]);
    drop((silent, seen));
    server.assert_clean();
}

#[test]
fn readers_are_each_asked_for_once_and_not_more_than_sixteen() {
    let server = Server::start();
    let readers: Vec<LockClient> = (0..18).map(|_| server.client()).collect();
    let guards: Vec<_> =
        readers.iter().map(|client| client.rw_lock("rw").read().unwrap()).collect();
    wait_until("all have published theirs", || server.client_keys().len() == readers.len());
    let seen = server.client();
    let read = server.call_count("get");
    let holders = seen.rw_lock("rw").holders().unwrap();
    assert_eq!(
        (holders.len(), holders.iter().filter(|holder| holder.owner().is_some()).count()),
        (18, 16)
    );
    assert_eq!(server.call_count("get") - read, 16);
    drop((guards, readers, seen));
    server.assert_clean();
}

#[test]
fn what_others_wrote_there_is_not_believed() {
    let server = Server::start();
    let client = server.client();
    let id = "a8a5ef81-b5b7-8d39-a987-611a1db5d2fe";
    server.cmd::<()>(&["HSET", "job", &format!("{id}:1"), "1"]);
    let key = format!("leasehold_client:{{{id}}}");
    let good = "label=a\npid=1\nhost=h\nttl_ms=30000\nheld_ms=1:5000";
    server.cmd::<()>(&["SET", &key, good, "PX", "10000"]);
    assert!(
        holder_of(&client.mutex("job")).to_string().starts_with("held by a (pid 1 on h) for 2")
    );
    for bad in ["", "x", "label=\u{1b}[2J\npid=1\nhost=h\nttl_ms=1\nheld_ms="] {
        server.cmd::<()>(&["SET", &key, bad, "PX", "10000"]);
        assert_eq!(holder_of(&client.mutex("job")).owner(), None, "{bad:?}");
    }
    // Without an expiry its age is unknown.
    server.cmd::<()>(&["SET", &key, good]);
    assert_eq!(holder_of(&client.mutex("job")).owner(), None);
    server.cmd::<u32>(&["DEL", &key]);
    server.cmd::<u32>(&["LPUSH", &key, "x"]);
    assert_eq!(holder_of(&client.mutex("job")).owner(), None, "another type");
    server.cmd::<u32>(&["DEL", &key, "job"]);
    drop(client);
    server.assert_clean();
}

#[test]
fn a_user_who_may_not_write_it_loses_nothing_else() {
    record_logs();
    let server = Server::start();
    let rule: Vec<String> =
        acl_rule(&["app:*"]).into_iter().filter(|word| !word.contains("client:*")).collect();
    assert_eq!(rule.len() + 1, acl_rule(&["app:*"]).len());
    let words: Vec<&str> = ["ACL", "SETUSER", "u", "on", ">secret", "resetchannels"]
        .into_iter()
        .chain(rule.iter().map(|word| &**word))
        .collect();
    server.cmd::<()>(&words);
    let url = format!("{}?user=u&pass=secret", server.url());
    let build =
        || LockClient::builder().url(&*url).key_prefix("app:").short_lease(LEASE).build().unwrap();
    let (a, b) = (build(), build());
    let told = || logged(log::Level::Info, &["~leasehold_client:*", a.id()]).len();
    let guard = a.mutex("job").lock_owned().unwrap();
    wait_until("it is logged", || told() > 0);
    let start = Instant::now();
    while start.elapsed() < 3 * LEASE {
        assert!(guard.is_held());
        assert_eq!(holder_of(&b.mutex("job")).owner(), None);
        std::thread::sleep(ms(20));
    }
    assert_eq!(told(), 1);
    let refused = |name: &str| {
        server
            .cmd::<Vec<redis::Value>>(&["ACL", "LOG"])
            .iter()
            .filter(|one| format!("{one:?}").contains(name))
            .count()
    };
    assert!(refused("leasehold_client") > 0 && refused("redisson") == 0);
    guard.unlock().unwrap();
    drop((a, b));
    server.assert_clean();
}

#[test]
fn an_outage_costs_no_hold() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let lease = ms(10_000);
    let client =
        LockClient::builder().url(proxy.url()).lease(lease).io_timeout(ms(1000)).build().unwrap();
    let guard = client.mutex("job").lock_owned().unwrap();
    let written = || server.call_count("set");
    wait_until("it is written", || !server.client_keys().is_empty());
    proxy.silence(true);
    // Long enough for a renewal during the outage.
    std::thread::sleep(ms(4000));
    proxy.silence(false);
    let before = written();
    wait_until("it is written again", || written() > before);
    assert!(guard.is_held());
    guard.unlock().unwrap();
    client.close(CAP).unwrap();
    drop(proxy);
    server.assert_clean();
}

#[test]
fn closing_does_not_wait_for_a_server_that_hangs() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = LockClient::builder().url(proxy.url()).io_timeout(ms(500)).build().unwrap();
    let guard = client.mutex("job").lock_owned().unwrap();
    wait_until("it is written", || !server.client_keys().is_empty());
    guard.unlock().unwrap();
    proxy.silence(true);
    let start = Instant::now();
    // The background thread may be writing at that moment, which the close then says.
    if let Err(e) = client.close(ms(100)) {
        assert_eq!(e.kind(), ErrorKind::Unreachable);
    }
    assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    proxy.silence(false);
}

#[test]
fn a_bad_label_is_refused() {
    for bad in ["", "a\nb", &"x".repeat(101)] {
        for announces in [true, false] {
            let built =
                LockClient::builder().owner(bad).announce_owner(announces).build_in_memory();
            assert_eq!(built.unwrap_err().kind(), ErrorKind::InvalidInput, "{bad:?}");
        }
    }
}
