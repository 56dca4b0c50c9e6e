//! Tests of what the other tests start: the proxy, sentinels, clusters, TLS.

use crate::rig::{
    Certificates, Cluster, ClusterOptions, FAIL_OVER_SOON, Fault, Proxy, SentinelOptions,
    Sentinels, Server, ms, wait_until,
};

#[test]
fn faults_hit_where_they_should() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let connect = || {
        let c = redis::Client::open(proxy.url())
            .unwrap()
            .get_connection_with_timeout(ms(2000))
            .unwrap();
        c.set_read_timeout(Some(ms(2000))).unwrap();
        c
    };
    let set = |value: &str| redis::cmd("SET").arg("k").arg(value).query::<String>(&mut connect());
    let value = || server.cmd::<Option<String>>(&["GET", "k"]);

    set("plain").unwrap();
    for (fault, applied) in [
        (Fault::CutBeforeSend, false),
        (Fault::CutRequestAt(9), false),
        (Fault::CutAfterApplied, true),
        (Fault::CutReplyAt(2), true),
        (Fault::BlackHoleReply, true),
        (Fault::StallReply(ms(5000)), true),
        (Fault::Garbage, false),
    ] {
        server.cmd::<()>(&["SET", "k", "before"]);
        proxy.inject("marked", fault);
        assert!(set("marked").is_err(), "{fault:?}");
        assert_eq!(value().as_deref() == Some("marked"), applied, "{fault:?}");
    }
    proxy.inject_after("held", 1, Fault::Hold);
    set("held first").unwrap();
    assert!(set("held").is_err());
    assert_eq!(value().as_deref(), Some("held first"));
    proxy.release_held();
    wait_until("the held request arrives", || value().as_deref() == Some("held"));
    proxy.wait_hits(8);
}

#[test]
fn sentinels_name_another_master_after_a_failover() {
    let sentinels = Sentinels::start();
    assert_eq!((sentinels.master(), sentinels.urls().len()), (0, 3));
    sentinels.server(0).cmd::<()>(&["SET", "k", "v"]);
    let has_it = |index| sentinels.server(index).cmd::<Option<String>>(&["GET", "k"]).is_some();
    wait_until("both replicas have the key", || has_it(1) && has_it(2));
    let next = sentinels.failover();
    assert_ne!(next, 0);
    assert_eq!(sentinels.master(), next);
    assert_eq!(sentinels.master_server().cmd::<u32>(&["DEL", "k"]), 1);
    sentinels.assert_clean();
}

#[test]
fn sentinels_replace_a_master_that_dies() {
    let mut sentinels = Sentinels::start_with(SentinelOptions {
        sentinel_lines: &[FAIL_OVER_SOON],
        ..SentinelOptions::default()
    });
    let port = sentinels.master_server().port();
    sentinels.suspend_sentinel(2);
    sentinels.server_mut(0).kill();
    let next = sentinels.wait_for_other_master(port);
    assert_eq!(sentinels.master(), next);
    sentinels.resume_sentinel(2);
    sentinels.kill_sentinel(1);
    sentinels.server_mut(0).start_again();
    assert_eq!(sentinels.wait_for_other_master(port), next);
    assert!(sentinels.sentinel(0).url().starts_with("redis://127.0.0.1:"));
}

#[test]
fn sentinels_and_servers_with_passwords_and_tls() {
    let certificates = Certificates::new();
    let sentinels = Sentinels::start_with(SentinelOptions {
        server_args: &["--requirepass", "of-servers", "--masterauth", "of-servers"],
        sentinel_lines: &["requirepass of-sentinels", "sentinel auth-pass mymaster of-servers"],
        tls: Some(&certificates),
        proxies: false,
    });
    sentinels.failover();
    sentinels.assert_clean();
}

#[test]
fn a_server_speaks_tls_with_whichever_certificate_it_is_given() {
    let certificates = Certificates::new();
    let server = Server::start_tls(
        &certificates,
        &["--tls-auth-clients", "yes", "--repl-diskless-sync", "no"],
    );
    assert_eq!(server.url(), format!("rediss://127.0.0.1:{}/", server.port()));
    std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let setting = |name: &str| server.cmd::<(String, String)>(&["CONFIG", "GET", name]).1;
    assert_eq!(setting("tls-auth-clients"), "yes");
    // The server's link to a master shows that both accept each other's certificates.
    let port = server.port().to_string();
    let replicates =
        ["--tls-replication", "yes", "--replicaof", "127.0.0.1", &port, "--logfile", "log"];
    let client = Server::start_tls(&certificates, &replicates);
    let linked = || client.info("replication", "master_link_status") == "up";
    let link_again = || {
        client.cmd::<()>(&["REPLICAOF", "NO", "ONE"]);
        client.cmd::<()>(&["REPLICAOF", "127.0.0.1", &port]);
    };
    wait_until("a TLS connection between servers", linked);
    client.present(certificates.client());
    server.present(&certificates.renewed());
    link_again();
    wait_until("a TLS connection with other certificates", linked);
    for bad in [certificates.expired(), certificates.self_signed(), certificates.other_ca()] {
        let refusals = || {
            let log = std::fs::read_to_string(client.dir().join("log")).unwrap_or_default();
            log.matches("certificate verify failed").count()
        };
        let before = refusals();
        server.present(&bad);
        link_again();
        wait_until("the certificate is refused", || refusals() > before);
    }
    // Servers do not check names.
    server.present(&certificates.other_name());
    link_again();
    wait_until("a TLS connection to another name", linked);
}

#[test]
fn a_slot_moves_with_its_keys() {
    let cluster = Cluster::start_primaries();
    let slot = cluster.slot("{job}");
    let from = cluster.owner(slot);
    let to = (from + 1) % 3;
    cluster.cmd_at_owner::<()>("{job}", &["SET", "{job}", "1"]);
    cluster.begin_migration(slot, to);
    assert_eq!(cluster.owner(slot), from);
    cluster.move_keys(slot, to);
    let asked = redis::cmd("GET")
        .arg("{job}")
        .query::<String>(&mut cluster.node(from).connect())
        .unwrap_err();
    assert!(asked.to_string().contains(&cluster.node(to).port().to_string()), "{asked}");
    cluster.finish_migration(slot, to);
    assert_eq!(cluster.owner(slot), to);
    assert_eq!(cluster.cmd_at_owner::<u32>("{job}", &["DEL", "{job}"]), 1);
    cluster.migrate_slot(slot, from);
    assert_eq!(cluster.owner(slot), from);
    cluster.wait_ok();
    cluster.assert_clean();
}

#[test]
fn a_replica_takes_over_the_slots_of_its_primary() {
    let mut cluster = Cluster::start();
    assert_eq!(cluster.urls().len(), 6);
    let slot = cluster.slot("job");
    let old = cluster.owner(slot);
    let new = cluster.fail_over_primary_of(slot);
    assert_eq!(new, old + 3);
    cluster.node_mut(old).start_again();
    cluster.wait_ok();
    assert_eq!(cluster.owner(slot), new);
    cluster.migrate_slot(slot, (old + 1) % 3);
    cluster.assert_clean();
}

#[test]
fn a_cluster_with_passwords_and_tls() {
    let certificates = Certificates::new();
    let args = ["--requirepass", "p", "--masterauth", "p"];
    let options = ClusterOptions {
        args: &args,
        tls: Some(&certificates),
        node_timeout: 2000,
        ..Default::default()
    };
    let cluster = Cluster::start_with(options);
    cluster.cmd_at_owner::<()>("job", &["SET", "job", "1"]);
    let slot = cluster.slot("job");
    cluster.migrate_slot(slot, (cluster.owner(slot) + 1) % 3);
    assert_eq!(cluster.cmd_at_owner::<u32>("job", &["DEL", "job"]), 1);
    cluster.assert_clean();
}

#[test]
fn a_master_that_sentinels_do_not_reach_serves_its_clients() {
    let sentinels = Sentinels::start_with(SentinelOptions {
        proxies: true,
        sentinel_lines: &[FAIL_OVER_SOON],
        ..SentinelOptions::default()
    });
    let old = sentinels.master_server();
    let mut client = redis::Client::open(old.proxy().url()).unwrap().get_connection().unwrap();
    old.proxy().cut_off_servers(true);
    let new = sentinels.wait_for_other_master(old.announced_port());
    redis::cmd("SET").arg("k").arg("v").exec(&mut client).unwrap();
    assert_eq!(sentinels.server(new).cmd::<Option<String>>(&["GET", "k"]), None);
    old.proxy().cut_all();
    assert!(redis::cmd("GET").arg("k").query::<String>(&mut client).is_err());
    old.proxy().cut_off_servers(false);
    sentinels.assert_clean();
}

#[test]
fn a_node_that_clients_do_not_reach_stays_in_the_cluster() {
    let cluster =
        Cluster::start_with(ClusterOptions { proxies: true, ..ClusterOptions::default() });
    let slot = cluster.slot("k");
    let owner = cluster.owner(slot);
    let at_proxy = |index: usize| {
        let url = cluster.node(index).proxy().url();
        let connection = redis::Client::open(url).unwrap().get_connection_with_timeout(ms(2000))?;
        connection.set_read_timeout(Some(ms(2000))).unwrap();
        redis::cmd("SET").arg("k").arg("v").query::<String>(&mut { connection })
    };
    let moved = at_proxy((owner + 1) % 3).unwrap_err().to_string();
    assert!(moved.contains(&cluster.node(owner).announced_port().to_string()), "{moved}");
    let proxy = cluster.node(owner).proxy();
    proxy.silence(true);
    assert!(at_proxy(owner).is_err());
    cluster.wait_ok();
    proxy.silence(false);
    proxy.refuse(true);
    assert!(at_proxy(owner).is_err());
    proxy.refuse(false);
    proxy.inject("k", Fault::CutBeforeSend);
    assert!(at_proxy(owner).is_err());
    at_proxy(owner).unwrap();
    wait_until("the replica has it", || {
        let mut replica = cluster.node(owner + 3).connect();
        redis::cmd("READONLY").exec(&mut replica).unwrap();
        redis::cmd("GET").arg("k").query::<Option<String>>(&mut replica).unwrap().is_some()
    });
    cluster.cmd_at_owner::<()>("k", &["DEL", "k"]);
    assert_eq!(cluster.owner(slot), owner);
    cluster.assert_clean();
}
