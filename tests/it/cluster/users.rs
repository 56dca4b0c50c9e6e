//! Access to a cluster and its nodes: passwords, ACL users, TLS, URLs.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Builder, Credentials, ErrorKind, LockClient};
use parking_lot::Mutex;

use super::{builder_with, channels, names_on_each_node};
use crate::rig::{
    CAP, Cluster, ClusterOptions, PROMPT, Server, acl_rule, logged, ms, record_logs, wait_until,
};
use crate::support::Load;

fn works(client: &LockClient, name: &str) {
    client.lock(name).unwrap().unlock().unwrap();
}

/// The addresses without the scheme.
fn hosts(cluster: &Cluster) -> String {
    let host = |url: &String| url.split_once("//").unwrap().1.trim_end_matches('/').to_owned();
    cluster.urls().iter().map(host).collect::<Vec<_>>().join(",")
}

fn set_user(cluster: &Cluster, rules: &[&str]) {
    let words = [&["ACL", "SETUSER", "app", "on"], rules].concat();
    for node in 0..3 {
        cluster.node(node).cmd::<()>(&words);
    }
}

#[test]
fn all_nodes_want_the_same_password() {
    let args = ["--requirepass", "s3cr3t", "--masterauth", "s3cr3t"];
    let cluster = Cluster::start_with(ClusterOptions {
        replicas: false,
        args: &args,
        ..ClusterOptions::default()
    });
    let url = |user: &str| format!("redis+cluster://{user}{}", hosts(&cluster));
    let by_url = |user: &str| LockClient::builder().url(url(user));
    let with_password =
        |nodes: leasehold::Cluster| nodes.credentials(|| Ok(Credentials::password("s3cr3t")));
    let names = names_on_each_node(&cluster, 1);
    for builder in [
        by_url(":s3cr3t@"),
        by_url("default:s3cr3t@"),
        LockClient::builder().cluster(with_password(url("").into())),
        builder_with(&cluster, with_password),
    ] {
        let client = builder.clone().build().unwrap();
        for name in &names {
            works(&client, name);
        }
        let shown = format!("{client:?} {builder:?}");
        assert!(!shown.contains("s3cr3t"), "{shown}");
        assert!(!shown.contains("Slot("), "not every slot: {} bytes", shown.len());
    }
    for (builder, kind) in [
        (by_url(""), ErrorKind::Denied),
        (by_url(":wr0ng@"), ErrorKind::Denied),
        (
            LockClient::builder().cluster(with_password(url(":s3cr3t@").into())),
            ErrorKind::InvalidInput,
        ),
    ] {
        let e = builder.build().unwrap_err();
        assert_eq!(e.kind(), kind, "{e:?}");
        assert!(
            !format!("{e} {e:?}").contains("s3cr3t") && !format!("{e:?}").contains("wr0ng"),
            "{e:?}"
        );
    }
    cluster.assert_clean();
}

#[test]
fn a_password_is_rotated_while_holds_live_on_all_nodes() {
    let cluster = Cluster::start_primaries();
    set_user(&cluster, &["~*", "&*", "+@all", ">p0"]);
    let sum = Server::start();
    let vault = Arc::new(Mutex::new("p0".to_owned()));
    let provider = vault.clone();
    let credentials = move || Ok(Credentials::new("app", provider.lock().clone()));
    let client = builder_with(&cluster, |nodes| nodes.credentials(credentials))
        .lease(ms(6000))
        .build()
        .unwrap();
    let held: Vec<_> =
        names_on_each_node(&cluster, 1).iter().map(|name| client.lock(name).unwrap()).collect();
    let late = Load::run(&[&client], &sum, |load| {
        for round in 0..3 {
            load.wait_for_more(20);
            let (old, new) = (format!("p{round}"), format!("p{}", round + 1));
            set_user(&cluster, &[&format!(">{new}")]);
            vault.lock().clone_from(&new);
            set_user(&cluster, &[&format!("<{old}")]);
            (0..3)
                .for_each(|node| cluster.node(node).cmd::<()>(&["CLIENT", "KILL", "USER", "app"]));
        }
        load.wait_for_more(20);
    });
    assert_eq!(late, 0);
    std::thread::sleep(ms(3000));
    for guard in held {
        assert!(guard.is_held());
        guard.unlock().unwrap();
    }
    drop(client);
    cluster.assert_clean();
}

/// What a cluster needs in addition to the rule for one server.
const IN_A_CLUSTER: [&str; 1] = ["+cluster|slots"];
const FOR_SHARDED_CHANNELS: [&str; 4] =
    ["+spublish", "+ssubscribe", "+sunsubscribe", "+pubsub|shardnumsub"];

#[test]
fn a_user_needs_what_the_rule_says() {
    let cluster = Cluster::start_primaries();
    let seven = cluster.node(0).major() >= 7;
    let names = names_on_each_node(&cluster, 1);
    let rule = acl_rule(&["job-*"]);
    let build = |changes: &[&str], without: &[&str]| {
        let rule = rule.iter().map(String::as_str).chain(IN_A_CLUSTER);
        let words = rule.filter(|word| !without.contains(word)).chain(changes.iter().copied());
        let words: Vec<&str> =
            ["reset", "on", ">pw", "resetchannels"].into_iter().chain(words).collect();
        set_user(&cluster, &words);
        builder_with(&cluster, |nodes| nodes.credentials(|| Ok(Credentials::new("app", "pw"))))
            .key_prefix("job-")
            .lease(Duration::from_secs(60))
            .io_timeout(ms(2000))
    };
    let live = |builder: &Builder, sharded: bool| {
        let (one, two) = (builder.clone().build().unwrap(), builder.clone().build().unwrap());
        for name in names.iter().map(|name| &name["job-".len()..]) {
            let guard = one.lock(name).unwrap();
            let key = format!("job-{name}");
            let owner = cluster.node(cluster.owner(cluster.slot(&key)));
            std::thread::scope(|s| {
                let waiter = s.spawn(|| two.try_lock_for(name, CAP).unwrap().is_some());
                wait_until("it is subscribed", || channels(owner).len() == 1);
                assert_eq!(owner.channels().is_empty(), sharded);
                let start = std::time::Instant::now();
                guard.unlock().unwrap();
                assert!(waiter.join().unwrap());
                assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
            });
        }
    };
    // Without the right to query sharded channels it uses classic ones, by Redisson's rule.
    live(&build(&[], &[]), false);
    if seven {
        live(&build(&FOR_SHARDED_CHANNELS, &[]), true);
        live(&build(&FOR_SHARDED_CHANNELS, &["+publish", "+subscribe", "+unsubscribe"]), true);
    }
    let denied = |builder: Builder, says: &str| {
        // Whichever node is connected first.
        for _ in 0..4 {
            let e = builder.clone().build().expect_err(says);
            assert_eq!(e.kind(), ErrorKind::Denied, "{e:?}");
            assert!(e.to_string().contains(says), "{e} does not say {says:?}");
        }
    };
    denied(build(&[], &["+cluster|slots"]), "cluster");
    denied(build(&[], &["+publish"]), "publish");
    denied(build(&[], &["+evalsha"]), "evalsha");
    denied(build(&[], &["+zadd"]), "zadd");
    if seven {
        let asks = &FOR_SHARDED_CHANNELS[1..];
        denied(build(asks, &[]), "spublish");
        // This user lacks the rule's channels.
        let without: Vec<&str> =
            rule.iter().map(String::as_str).filter(|word| word.starts_with('&')).collect();
        denied(build(&FOR_SHARDED_CHANNELS, &without), "channel");
        // It may not subscribe, so its waiters poll.
        record_logs();
        let deaf = [FOR_SHARDED_CHANNELS[0], FOR_SHARDED_CHANNELS[3]];
        let builder = build(&deaf, &[]);
        let (one, two) = (builder.clone().build().unwrap(), builder.build().unwrap());
        let name = &names[0]["job-".len()..];
        let guard = one.lock(name).unwrap();
        let owner = cluster.node(cluster.owner(cluster.slot(&names[0])));
        let address = owner.url()["redis://".len()..].trim_end_matches('/').to_owned();
        let warned =
            || logged(log::Level::Warn, &["release messages cannot be received", &address]);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| two.try_lock_for(name, CAP).unwrap().is_some());
            wait_until("it is warned that it polls", || !warned().is_empty());
            guard.unlock().unwrap();
            assert!(waiter.join().unwrap());
        });
        assert_eq!(warned().len(), 1);
    }
    cluster.assert_clean();
}

#[cfg(feature = "tls")]
#[test]
fn all_nodes_have_tls() {
    use crate::rig::Certificates;
    use leasehold::Tls;
    let certificates = Certificates::new();
    let tls = || Tls::new().ca_file(certificates.ca_file());
    let mut cluster = Cluster::start_with(ClusterOptions {
        tls: Some(&certificates),
        ..ClusterOptions::default()
    });
    let names = names_on_each_node(&cluster, 1);
    let by_url =
        LockClient::builder().url(format!("rediss+cluster://{}", hosts(&cluster))).tls(tls());
    let one = super::builder(&cluster).tls(tls()).lease(Duration::from_secs(60)).build().unwrap();
    let two = by_url.lease(Duration::from_secs(60)).build().unwrap();
    for name in &names {
        let guard = one.lock(name).unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| two.try_lock_for(name, CAP).unwrap().is_some());
            let owner = cluster.node(cluster.owner(cluster.slot(name)));
            wait_until("it is subscribed", || !channels(owner).is_empty());
            let start = std::time::Instant::now();
            guard.unlock().unwrap();
            assert!(waiter.join().unwrap());
            assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
        });
    }
    let guard = one.lock(&names[0]).unwrap();
    assert_eq!(cluster.cmd_at_owner::<u32>(&names[0], &["WAIT", "1", "5000"]), 1);
    let slot = cluster.slot(&names[0]);
    cluster.fail_over_primary_of(slot);
    wait_until("others see it at the new primary", || matches!(two.try_lock(&names[0]), Ok(None)));
    wait_until("its own client as well", || one.mutex(&names[0]).is_locked().is_ok());
    guard.unlock().unwrap();
    works(&two, &names[0]);

    let plain: Vec<String> =
        cluster.urls().iter().map(|url| url.replace("rediss:", "redis:")).collect();
    let plain = LockClient::builder()
        .cluster(leasehold::Cluster::new(plain))
        .io_timeout(ms(2000))
        .build()
        .unwrap_err();
    assert!(
        [ErrorKind::Unreachable, ErrorKind::Protocol, ErrorKind::Tls].contains(&plain.kind()),
        "{plain:?}"
    );
    let untrusted = super::builder(&cluster).build().unwrap_err();
    assert_eq!(untrusted.kind(), ErrorKind::Tls, "{untrusted:?}");
    let mixed = [cluster.urls()[1].clone(), "redis://127.0.0.1:1/".to_owned()];
    let mixed = LockClient::builder()
        .cluster(leasehold::Cluster::new(mixed))
        .tls(tls())
        .build()
        .unwrap_err();
    assert_eq!(mixed.kind(), ErrorKind::InvalidInput, "{mixed:?}");
    drop((one, two));
    cluster.assert_clean();
}
