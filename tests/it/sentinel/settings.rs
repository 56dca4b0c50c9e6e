//! What the sentinels are asked, by whom, and settings that do not fit together.

use std::time::Duration;

use leasehold::observe::NodeState;
use leasehold::{Builder, Credentials, ErrorKind, LockClient, Sentinel};

use super::{address, assert_left, builder, client, works};
use crate::rig::{
    MASTER_NAME, SentinelOptions, Sentinels, logged_anywhere, record_logs, threads_named,
    wait_until,
};

#[track_caller]
fn fails(builder: &Builder, kind: ErrorKind, says: &str) {
    let e = builder.clone().build().unwrap_err();
    assert_eq!(e.kind(), kind, "{e:?}");
    assert!(e.to_string().contains(says), "{e} does not say {says:?}");
}

/// The hosts as in a URL that lists all of them.
fn hosts(rig: &Sentinels) -> String {
    rig.urls()
        .iter()
        .map(|url| url.split_once("//").unwrap().1.trim_end_matches('/'))
        .collect::<Vec<_>>()
        .join(",")
}

#[test]
fn the_master_is_found_by_both_kinds_of_urls() {
    let rig = Sentinels::start();
    let by_url =
        LockClient::open(&format!("redis+sentinel://{}/{MASTER_NAME}/3", hosts(&rig))).unwrap();
    let with_db: Vec<String> = rig.urls().iter().map(|url| format!("{url}3")).collect();
    let by_urls =
        LockClient::builder().sentinel(Sentinel::new(with_db, MASTER_NAME)).build().unwrap();
    let guard = by_url.lock("job").unwrap();
    assert!(by_urls.try_lock("job").unwrap().is_none(), "in the same database");
    assert!(client(&rig).try_lock("job").unwrap().is_some(), "in another database");
    guard.unlock().unwrap();
    for client in [&by_url, &by_urls] {
        let nodes = client.nodes();
        assert_eq!((nodes.len(), nodes[0].address()), (1, &*address(rig.server(0))));
        assert_eq!(nodes[0].state(), NodeState::Voting);
    }
    drop((by_url, by_urls));
    assert_left(&rig);
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let rig = Sentinels::start();
    let master = |name: &str| LockClient::builder().sentinel(Sentinel::new(rig.urls(), name));
    fails(&master("other"), ErrorKind::InvalidInput, "they watch [\"mymaster\"]");
    fails(&master("my master"), ErrorKind::InvalidInput, "name");
    fails(&master(""), ErrorKind::InvalidInput, "name");
    let nothing = LockClient::builder().sentinel(Sentinel::new([""; 0], MASTER_NAME));
    fails(&nothing, ErrorKind::InvalidInput, "at least one sentinel");
    fails(
        &LockClient::builder().sentinel("redis://h/"),
        ErrorKind::InvalidInput,
        "redis+sentinel://",
    );
    fails(&LockClient::builder().url(&rig.urls()[0]), ErrorKind::Unsupported, "Builder::sentinel");
    let mixed = LockClient::builder().sentinel(Sentinel::new(["redis://a/1", "redis://b/2"], "m"));
    fails(&mixed, ErrorKind::InvalidInput, "database");

    let servers = [rig.server(0).url(), rig.server(1).url()];
    fails(
        &LockClient::builder().sentinel(Sentinel::new(&servers, "m")),
        ErrorKind::Unsupported,
        "is not a sentinel",
    );
    let nobody = LockClient::builder()
        .sentinel(Sentinel::new(["redis://127.0.0.1:1/", "redis://127.0.0.1:2/"], "m"));
    fails(&nobody, ErrorKind::Unreachable, "127.0.0.1:2");
    let e = nobody.connect_lazily().build().unwrap().lock("job").unwrap_err();
    assert_eq!((e.kind(), e.name()), (ErrorKind::Unreachable, Some("job")));
    assert_left(&rig);
}

/// Passwords of the servers and of the sentinels, each given in each way.
#[test]
fn the_sentinels_log_in_is_apart_from_the_servers() {
    let rig = Sentinels::start_with(SentinelOptions {
        server_args: &["--requirepass", "of-servers", "--masterauth", "of-servers"],
        sentinel_lines: &["requirepass of-sentinels", "sentinel auth-pass mymaster of-servers"],
        ..SentinelOptions::default()
    });
    record_logs();
    let of_servers = || Ok(Credentials::password("of-servers"));
    let of_sentinels = || Ok(Credentials::password("of-sentinels"));
    let with_password: Vec<String> =
        rig.urls().iter().map(|url| url.replace("redis://", "redis://:of-sentinels@")).collect();
    let by_urls = || Sentinel::new(&with_password, MASTER_NAME);
    let by_url = |user: &str| {
        Sentinel::from(format!("redis+sentinel://{user}{}/{MASTER_NAME}", hosts(&rig)))
    };
    let builder_of = |sentinels| LockClient::builder().sentinel(sentinels);
    for sentinels in [
        by_urls().credentials(of_servers),
        Sentinel::new(rig.urls(), MASTER_NAME)
            .credentials(of_servers)
            .sentinel_credentials(of_sentinels),
        by_url(":of-servers@").sentinel_credentials(of_sentinels),
        by_url("").credentials(of_servers).sentinel_credentials(of_sentinels),
    ] {
        works(&builder_of(sentinels).build().unwrap(), "job");
    }
    fails(&builder(&rig), ErrorKind::Denied, "no sentinel can be asked");
    let wrong_for_sentinels =
        Sentinel::new(rig.urls(), MASTER_NAME).sentinel_credentials(of_servers);
    for (sentinels, kind, says) in [
        (by_urls(), ErrorKind::Denied, "password"),
        (wrong_for_sentinels.credentials(of_servers), ErrorKind::Denied, "no sentinel"),
        (by_urls().credentials(of_sentinels), ErrorKind::Denied, "password"),
        (by_urls().sentinel_credentials(of_sentinels), ErrorKind::InvalidInput, "leave one out"),
        (by_url(":of-servers@").credentials(of_servers), ErrorKind::InvalidInput, "leave one out"),
        (by_url(":of-servers@"), ErrorKind::Denied, "no sentinel"),
    ] {
        fails(&builder_of(sentinels), kind, says);
    }
    assert_eq!(logged_anywhere("of-sentinels"), [""; 0]);
    let shown = format!("{:?} {:?}", builder_of(by_urls()), by_url(":of-servers@"));
    assert!(
        !shown.contains("of-se") && shown.contains(hosts(&rig).split(',').next().unwrap()),
        "{shown}"
    );
}

/// A single sentinel in the settings is enough to learn of the others, and of those that replace
/// it.
#[test]
fn the_other_sentinels_are_learned() {
    let mut rig = Sentinels::start();
    let client = LockClient::builder()
        .sentinel(Sentinel::new([&rig.urls()[0]], MASTER_NAME))
        .lease(super::LEASE)
        .build()
        .unwrap();
    works(&client, "job");
    let asks =
        |n: usize| rig.sentinel(n).client_lines().iter().any(|line| line.contains("name=it-"));
    wait_until("all are watched", || (0..3).all(asks));
    rig.kill_sentinel(0);
    let next = rig.failover();
    wait_until("the client uses it", || client.nodes()[0].address() == address(rig.server(next)));
    works(&client, "job");
    drop(client);
    assert_left(&rig);
}

/// Nothing of a client is left when it is closed or dropped, wherever it is connected by then.
#[test]
fn close_and_drop_leave_nothing() {
    let rig = Sentinels::start();
    // Three letters of the name are visible in the thread's name.
    for (name, close) in [("yes-is-closed", true), ("not-closed", false)] {
        let client = builder(&rig).client_name(name).build().unwrap();
        let guard = client.lock("job").unwrap();
        let at_sentinels = || {
            let of_client = |n: usize| {
                rig.sentinel(n).client_lines().iter().filter(|line| line.contains(name)).count()
            };
            (0..3).map(of_client).collect::<Vec<_>>()
        };
        wait_until("it is subscribed everywhere", || {
            at_sentinels().iter().all(|count| *count == 2)
        });
        assert_eq!(threads_named(&format!("lh-sentinel-{name}")), 1);
        drop(guard);
        if close {
            client.close(Duration::from_secs(5)).unwrap();
            assert_eq!(client.lock("job").unwrap_err().kind(), ErrorKind::Closed);
        }
        drop(client);
        wait_until("it has left", || at_sentinels() == [0, 0, 0]);
        wait_until("its thread has ended", || threads_named(&format!("lh-sentinel-{name}")) == 0);
    }
    rig.assert_clean();
}

/// A fork has no thread that watches the sentinels, and its parent's locks stay locked.
#[test]
fn a_fork_owns_nothing_and_harms_nothing() {
    let rig = Sentinels::start();
    let url = format!("redis+sentinel://{}/{MASTER_NAME}", hosts(&rig));
    crate::processes::assert_forks_own_nothing(&url);
    assert_left(&rig);
    rig.assert_clean();
}

/// Servers and sentinels that use only TLS, and a failover between them.
#[cfg(feature = "tls")]
#[test]
fn servers_and_sentinels_have_tls() {
    use leasehold::Tls;
    let certificates = crate::rig::Certificates::new();
    let rig = Sentinels::start_with(SentinelOptions {
        tls: Some(&certificates),
        ..SentinelOptions::default()
    });
    let tls = || Tls::new().ca_file(certificates.ca_file());
    let by_url = format!("rediss+sentinel://{}/{MASTER_NAME}", hosts(&rig));
    let with_tls = |tls| super::builder_with(&rig, |sentinels| sentinels.sentinel_tls(tls));
    let client = builder(&rig).tls(tls()).lease(Duration::from_secs(60)).build().unwrap();
    for builder in [
        LockClient::builder().url(&by_url).tls(tls()),
        with_tls(tls()).tls(tls()),
        with_tls(Tls::new().danger_accept_any_certificate()).tls(tls()),
    ] {
        works(&builder.build().unwrap(), "job");
    }
    let guard = client.lock("held").unwrap();
    let next = rig.failover();
    wait_until("the client uses it", || client.nodes()[0].address() == address(rig.server(next)));
    works(&client, "job");
    assert!(guard.is_held());
    guard.unlock().unwrap();

    fails(&builder(&rig), ErrorKind::Tls, "no sentinel can be asked");
    fails(&with_tls(Tls::new()).tls(tls()), ErrorKind::Tls, "no sentinel can be asked");
    // A busy machine needs time for the handshakes with all sentinels.
    let patient = with_tls(tls()).lease(Duration::from_secs(60)).io_timeout(Duration::from_secs(9));
    fails(&patient, ErrorKind::Unreachable, &address(rig.server(next)));
    let plain: Vec<String> =
        rig.urls().iter().map(|url| url.replace("rediss:", "redis:")).collect();
    let builder_of = |sentinels| LockClient::builder().sentinel(sentinels);
    let plain = || Sentinel::new(&plain, MASTER_NAME);
    fails(
        &builder_of(plain()).tls(tls()).io_timeout(Duration::from_millis(500)),
        ErrorKind::Unreachable,
        "no sentinel",
    );
    fails(&builder_of(plain().sentinel_tls(tls())), ErrorKind::InvalidInput, "sentinel_tls");
    drop(client);
    assert_left(&rig);
}
