//! Redlock, clusters and sentinels: the state of the servers as a group.

use leasehold::observe::{Check, Severity};
use leasehold::{LockClient, Sentinel};

use super::{IO_TIMEOUT, diagnosed, found, is_healthy, only, says};
use crate::rig::{Cluster, ClusterOptions, SentinelOptions, Sentinels};
use crate::support::Masters;

#[test]
fn masters_that_all_vote_are_as_they_should_be() {
    let masters = Masters::fresh(3);
    let diagnosis = diagnosed(masters.builder());
    is_healthy(&diagnosis);
    says(&diagnosis, Check::Quorum, Severity::Ok, "3 of 3");
    says(&diagnosis, Check::Clock, Severity::Ok, "differ");
    // A restart costs the vote for a while, but no lock.
    says(&diagnosis, Check::Persistence, Severity::Note, "no vote until");
    let addresses: std::collections::BTreeSet<_> =
        diagnosis.findings().iter().filter_map(|f| f.node()).collect();
    assert_eq!(addresses.len(), 3, "{diagnosis}");
    masters.assert_clean();
}

#[test]
fn a_master_that_is_down_is_a_warning_and_two_are_a_problem() {
    let mut masters = Masters::fresh(3);
    masters.0[0].kill();
    masters.0[1].suspend();
    let two = diagnosed(masters.builder().io_timeout(IO_TIMEOUT));
    masters.0[1].resume();
    says(&two, Check::Quorum, Severity::Problem, "nothing can be locked");
    says(&two, Check::Reachable, Severity::Problem, "");
    let one = diagnosed(masters.builder());
    says(
        &one,
        Check::Quorum,
        Severity::Warning,
        "2 of 3 masters can be used, and a lock needs 2: no other may fail",
    );
    // Locks work without it.
    says(&one, Check::Reachable, Severity::Warning, "no server listens");
    only(&one, &[Check::Quorum, Check::Reachable]);
}

#[test]
fn one_server_under_two_addresses_is_a_problem() {
    let masters = Masters::fresh(3);
    let [one, other] = [0, 1].map(|n| masters.0[n].url());
    let link = masters.0[0].dir().join("link");
    let socket = one.strip_prefix("redis+unix://").expect("a socket");
    std::os::unix::fs::symlink(socket, &link).unwrap();
    let linked = format!("redis+unix://{}", link.display());
    let redlock = leasehold::Redlock::new([one, linked, other]).admit_fresh_nodes(true);
    let diagnosis = diagnosed(LockClient::builder().redlock(redlock));
    says(&diagnosis, Check::Quorum, Severity::Problem, "are one server");
}

#[test]
fn masters_in_quarantine_have_no_vote() {
    let masters = Masters::start(3);
    let diagnosis = diagnosed(masters.builder());
    says(&diagnosis, Check::Quorum, Severity::Problem, "0 of 3 masters vote");
    assert!(
        found(&diagnosis, Check::Quorum).advice().unwrap().to_string().contains("longest lease"),
        "{diagnosis}"
    );
}

#[test]
fn masters_that_are_said_to_be_durable_have_to_be() {
    let masters = Masters::fresh(3);
    let diagnosis = diagnosed(masters.builder_with(|masters| masters.durable_nodes(true)));
    says(&diagnosis, Check::Persistence, Severity::Problem, "appendfsync always");
    for server in &masters.0 {
        server.cmd::<()>(&["CONFIG", "SET", "appendonly", "yes"]);
        server.cmd::<()>(&["CONFIG", "SET", "appendfsync", "always"]);
    }
    is_healthy(&diagnosed(masters.builder_with(|masters| masters.durable_nodes(true))));
}

#[test]
fn a_cluster_has_all_slots_or_says_which_are_missing() {
    let args = ["--appendonly", "yes", "--cluster-require-full-coverage", "no"];
    let options = ClusterOptions { args: &args, ..ClusterOptions::default() };
    let cluster = Cluster::start_with(ClusterOptions { node_timeout: 15_000, ..options });
    let builder = || LockClient::builder().cluster(leasehold::Cluster::new(cluster.urls()));
    let diagnosis = diagnosed(builder());
    is_healthy(&diagnosis);
    says(&diagnosis, Check::Slots, Severity::Ok, "3 primaries");
    let addresses: std::collections::BTreeSet<_> =
        diagnosis.findings().iter().filter_map(|f| f.node()).collect();
    assert_eq!(addresses.len(), 3, "each primary: {diagnosis}");

    for index in 0..6 {
        // A node that has already learned of it refuses.
        let _ =
            redis::cmd("CLUSTER").arg("DELSLOTS").arg(100).exec(&mut cluster.node(index).connect());
    }
    let uncovered = diagnosed(builder());
    says(&uncovered, Check::Slots, Severity::Problem, "100-100");
    only(&uncovered, &[Check::Slots]);
}

#[test]
fn a_cluster_without_replicas_is_a_warning_and_none_at_all_a_problem() {
    let mut cluster = Cluster::start_primaries();
    let builder = LockClient::builder()
        .cluster(leasehold::Cluster::new(cluster.urls()))
        .io_timeout(IO_TIMEOUT);
    says(
        &diagnosed(builder.clone()),
        Check::Replication,
        Severity::Warning,
        "no replica can take over",
    );
    for index in 0..3 {
        cluster.node_mut(index).kill();
    }
    let diagnosis = diagnosed(builder);
    says(&diagnosis, Check::Slots, Severity::Problem, "no node reports");
    says(&diagnosis, Check::Reachable, Severity::Problem, "no server listens");
}

#[test]
fn sentinels_that_agree_are_as_they_should_be() {
    let options =
        SentinelOptions { server_args: &["--appendonly", "yes"], ..SentinelOptions::default() };
    let mut sentinels = Sentinels::start_with(options);
    let urls = sentinels.urls();
    let builder = move || LockClient::builder().sentinel(Sentinel::new(urls.clone(), "mymaster"));
    let diagnosis = diagnosed(builder());
    is_healthy(&diagnosis);
    says(&diagnosis, Check::Sentinels, Severity::Ok, "3 of 3");
    says(&diagnosis, Check::Replication, Severity::Note, "2 replicas");
    says(&diagnosis, Check::Role, Severity::Ok, "primary");

    sentinels.kill_sentinel(0);
    let diagnosis = diagnosed(builder());
    says(&diagnosis, Check::Sentinels, Severity::Warning, "bring this sentinel back");
    only(&diagnosis, &[Check::Sentinels]);
    sentinels.kill_sentinel(1);
    sentinels.kill_sentinel(2);
    says(&diagnosed(builder()), Check::Sentinels, Severity::Problem, "no sentinel can be asked");
    let other = LockClient::builder()
        .sentinel(Sentinel::new(sentinels.urls(), "other"))
        .io_timeout(IO_TIMEOUT);
    says(&diagnosed(other), Check::Sentinels, Severity::Problem, "");
}
