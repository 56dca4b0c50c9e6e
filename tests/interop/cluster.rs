//! Cluster: sharded channels, as both libraries choose them by default, and classic ones.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::{Builder, LockClient};

use crate::faults::in_trouble;
use crate::java::{Jvm, Mode, length};
use crate::jvm::listeners;
use crate::rig::{Cluster, ClusterOptions, Server, ms};
use crate::staying::{Java, are_woken_after};
use crate::stress::{JAVA_WAITER_TIMEOUT, LEASE, WAITER_TIMEOUT};
use crate::wakeups::{Primitive, wake_each_other};
use crate::world::Home;

impl Home for Cluster {
    fn server_of(&self, name: &str) -> &Server {
        self.node(self.owner(self.slot(name)))
    }

    fn listeners(&self, name: &str, channel: &str) -> u32 {
        let server = self.server_of(name);
        listeners(server, channel) + sharded_listeners(server, channel)
    }

    fn hears(&self, name: &str, pattern: &str) -> bool {
        let server = self.server_of(name);
        let heard =
            |command: &str| !server.cmd::<Vec<String>>(&["PUBSUB", command, pattern]).is_empty();
        heard("CHANNELS") || has_sharded(server) && heard("SHARDCHANNELS")
    }
}

fn has_sharded(server: &Server) -> bool {
    server.major() >= 7
}

fn sharded_listeners(server: &Server, channel: &str) -> u32 {
    if !has_sharded(server) {
        return 0;
    }
    let (_, count): (String, u32) = server.cmd(&["PUBSUB", "SHARDNUMSUB", channel]);
    count
}

/// A busy machine must not replace a primary that no test killed: its last grants would be lost.
fn patient_cluster() -> Cluster {
    Cluster::start_with(ClusterOptions { node_timeout: 3000, ..ClusterOptions::default() })
}

fn builder(cluster: &Cluster) -> Builder {
    // Leasehold waiters of a fair lock poll every third of it.
    LockClient::builder()
        .cluster(leasehold::Cluster::new(cluster.urls()))
        .waiter_timeout(Duration::from_secs(60))
}

fn classic(cluster: &Cluster) -> leasehold::Cluster {
    leasehold::Cluster::new(cluster.urls()).sharded_channels(false)
}

/// Names distributed over the cluster.
fn names(test: &str) -> impl Fn(&Primitive, &str) -> String {
    move |primitive, words| format!("{test}-{}-{words}", primitive.java)
}

/// Names in one slot, except those of latches, which Redisson cannot name like that.
fn names_in_one_slot(tag: &str) -> impl Fn(&Primitive, &str) -> String {
    move |primitive, words| match primitive.java {
        "latch" => format!("{tag}-latch-{words}"),
        java => format!("{{{tag}}}-{java}-{words}"),
    }
}

/// Moves each slot to the primary after its own.
fn move_slots(cluster: &Cluster, names: &[String]) {
    let slots: BTreeSet<u16> = names.iter().map(|name| cluster.slot(name)).collect();
    for slot in slots {
        cluster.migrate_slot(slot, (cluster.owner(slot) + 1) % 3);
    }
}

fn assert_kind_of_channels(cluster: &Cluster, name: &str, sharded: bool) {
    let channel = format!("redisson_lock__channel:{name}");
    let server = cluster.server_of(name);
    let found = (listeners(server, &channel), sharded_listeners(server, &channel));
    assert_eq!(
        found,
        if sharded { (0, 1) } else { (1, 0) },
        "classic and sharded subscribers of {channel}"
    );
}

#[test]
fn wake_ups_cross_over_sharded_channels() {
    let mut cluster = patient_cluster();
    let jvm = Jvm::connect(&cluster.urls(), &["cluster=AUTO"]);
    let sharded = has_sharded(cluster.node(0));
    let client = builder(&cluster).build().unwrap();
    wake_each_other(&cluster, &client, &jvm, &names("before"), 2);

    // If Redisson no longer receives messages, it acquires when the lease that it was informed of
    // ends.
    let client = builder(&cluster).lease(ms(9000)).build().unwrap();
    let java = if sharded { Java::IsDeaf } else { Java::SubscribesAgain };
    are_woken_after(
        &mut cluster,
        &client,
        &jvm,
        &names_in_one_slot("auto"),
        java,
        |cluster, names| {
            for lock in ["{auto}-lock-a", "{auto}-lock-b"] {
                assert_kind_of_channels(cluster, lock, sharded);
            }
            move_slots(cluster, names);
        },
    );
    // That process stays unsubscribed, which also keeps it from subscribing to some other names. A
    // new Redisson process receives everything.
    drop(jvm);
    let jvm = Jvm::connect(&cluster.urls(), &["cluster=AUTO"]);
    wake_each_other(&cluster, &client, &jvm, &names_in_one_slot("auto"), 1);
    drop(jvm);
}

#[test]
fn wake_ups_cross_over_classic_channels() {
    let mut cluster = patient_cluster();
    let jvm = Jvm::connect(&cluster.urls(), &["cluster=OFF"]);
    let client = LockClient::builder().cluster(classic(&cluster)).build().unwrap();
    wake_each_other(&cluster, &client, &jvm, &names("before"), 2);
    are_woken_after(
        &mut cluster,
        &client,
        &jvm,
        &names_in_one_slot("off"),
        Java::SubscribesAgain,
        |cluster, names| {
            for lock in ["{off}-lock-a", "{off}-lock-b"] {
                assert_kind_of_channels(cluster, lock, false);
            }
            move_slots(cluster, names);
        },
    );
    wake_each_other(&cluster, &client, &jvm, &names_in_one_slot("off"), 1);
    drop(jvm);
}

#[test]
fn wake_ups_survive_the_failover_of_a_shard() {
    let mut cluster = patient_cluster();
    let jvm = Jvm::connect(&cluster.urls(), &["cluster=AUTO"]);
    let client = builder(&cluster).build().unwrap();
    let names = names_in_one_slot("shard");
    are_woken_after(
        &mut cluster,
        &client,
        &jvm,
        &names,
        Java::SubscribesAgain,
        |cluster, names| {
            let slot = cluster.slot(&names[0]);
            cluster.fail_over_primary_of(slot);
        },
    );
    wake_each_other(&cluster, &client, &jvm, &names, 1);
    drop(jvm);
}

/// Over classic channels: with sharded ones Redisson would miss too much.
#[test]
fn never_two_inside_while_slots_move() {
    let mut cluster = patient_cluster();
    let settings = ["cluster=OFF", &format!("watchdog={LEASE}"), "fairWait=2000"];
    let jvm = Jvm::connect(&cluster.urls(), &settings);
    let patient = classic(&cluster).java_waiter_timeout(JAVA_WAITER_TIMEOUT);
    let builder = LockClient::builder().cluster(patient).waiter_timeout(WAITER_TIMEOUT);
    let client = builder.lease(ms(LEASE)).build().unwrap();
    let dir = cluster.node(0).dir().to_owned();
    in_trouble(&mut cluster, &dir, &client, &jvm, Mode::Count, |cluster, _| {
        let moved = ["lock", "fenced", "fair", "rw", "multi", "multi-2", "permits"];
        let names = moved.map(|name| format!("stress-{name}"));
        for _ in 0..3 {
            std::thread::sleep(length() / 3);
            move_slots(cluster, &names);
        }
        std::thread::sleep(length() / 3);
    });
    drop(jvm);
}
