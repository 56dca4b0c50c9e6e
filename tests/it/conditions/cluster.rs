//! Conditions of a cluster: of one of its shards, or of one slot. Names of other shards are spared.

use std::time::Duration;

use leasehold::ErrorKind::NotReady;
use leasehold::{Builder, LockClient};

use super::calls::{second, value_of};
use super::redis::{CONNECTIONS, HANGS, MOST, NAME, count_named, delete_kept};
use super::row::{Answers, Class, Stage, if_it_asks, row, unreachable};
use super::rows;
use super::runner::IO;
use super::sentinel::DIES;
use crate::rig::{Cluster, ClusterOptions, ms, wait_until};

/// The primary of the names of the cells, its replica, and another primary.
const AFFECTED: usize = 0;
const REPLICA: usize = 3;
const ANOTHER: usize = 1;

/// All are in one slot of the affected shard, with the names that are made from them. A latch can
/// have no such name.
const TAG: &str = "{slot-1}";

type Change = fn(&mut Sharded);

struct Sharded {
    cluster: Cluster,
    /// All names are in one slot.
    one_slot: bool,
    /// Long where no call has to wait for it: a busy machine serves all calls at once slowly.
    io: Duration,
    happens: [Change; 2],
}

impl Sharded {
    fn start(replicas: bool, happens: [Change; 2]) -> Self {
        // The nodes act only when they are told to: a failover that begins by itself would come
        // before some of the calls, and after the others.
        let options =
            ClusterOptions { replicas, node_timeout: 60_000, ..ClusterOptions::default() };
        Self { cluster: Cluster::start_with(options), one_slot: false, io: ms(4000), happens }
    }

    fn of_one_slot(happens: [Change; 2]) -> Self {
        Self { one_slot: true, ..Self::start(false, happens) }
    }

    /// Where calls wait for the I/O timeout.
    fn impatient(self) -> Self {
        Self { io: IO, ..self }
    }

    fn slot(&self) -> u16 {
        slot_of(TAG)
    }

    /// Waits until the replica has everything that the primary has.
    fn wait_for_replica(&self) {
        let mut admin = self.cluster.node(AFFECTED).connect();
        let key = format!("{{{}}}-marker", self.name(0));
        redis::cmd("SET").arg(&[&key, "1", "PX", "1"]).exec(&mut admin).expect("it answers");
        let have: u32 =
            redis::cmd("WAIT").arg(&["1", "9000"]).query(&mut admin).expect("it answers");
        assert_eq!(have, 1, "the replica has it");
    }

    /// The replica becomes the primary, if `how` is `TAKEOVER` without asking anybody.
    fn fail_over(&self, how: &[&str]) {
        self.cluster.node(REPLICA).cmd::<()>(&[&["CLUSTER", "FAILOVER"], how].concat());
        wait_until("the replica is the primary", || {
            self.cluster.node(REPLICA).info("replication", "role") == "master"
        });
        self.cluster.wait_ok();
    }
}

/// A third of the slots is on each of the primaries.
fn shard_of(key: &str) -> usize {
    (0..3)
        .rposition(|shard| usize::from(slot_of(key)) >= shard * 16384 / 3)
        .expect("the first begins at 0")
}

/// CRC16 (XMODEM) of what is in the first braces.
fn slot_of(key: &str) -> u16 {
    let in_braces =
        key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let bit = |crc: u16, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
    let byte = |crc: u16, byte: &u8| (0..8).fold(crc ^ u16::from(*byte) << 8, bit);
    in_braces.unwrap_or(key).as_bytes().iter().fold(0, byte) % 16384
}

/// The first of the names that begin with this that is, with what is made from it, on this shard.
fn name_on(shard: usize, prefix: &str) -> String {
    let is_there = |name: &String| {
        [name.clone(), second(name), value_of(name)].iter().all(|key| shard_of(key) == shard)
    };
    (0..).map(|n| format!("{prefix}-{n}")).find(is_there).expect("there are many")
}

impl Stage for Sharded {
    fn builder(&self) -> Builder {
        let builder = LockClient::builder().cluster(leasehold::Cluster::new(self.cluster.urls()));
        builder.connections(CONNECTIONS).client_name(NAME)
    }

    fn io_timeout(&self) -> Duration {
        self.io
    }

    fn other(&self) -> LockClient {
        LockClient::builder()
            .cluster(leasehold::Cluster::new(self.cluster.urls()))
            .build()
            .expect("it is reachable")
    }

    fn name(&self, cell: usize) -> String {
        if self.one_slot {
            format!("{TAG}job-{cell}")
        } else {
            name_on(AFFECTED, &format!("job-{cell}"))
        }
    }

    fn beside(&self) -> String {
        name_on(ANOTHER, "beside")
    }

    fn begin(&mut self, _: &[String]) {
        self.happens[0](self);
    }

    fn end(&mut self) {
        self.happens[1](self);
    }

    fn spares_others(&self) -> bool {
        true
    }

    fn offers(&self, call: &str) -> bool {
        !self.one_slot || !call.starts_with("CountDownLatch::")
    }

    /// Those of the node that has the most.
    fn connections(&mut self) -> Option<(usize, usize)> {
        let nodes = (0..self.cluster.count())
            .map(|index| self.cluster.node(index))
            .filter(|node| node.runs());
        Some((nodes.filter_map(|node| Some(count_named(&node.try_list()?))).max()?, MOST))
    }

    fn assert_clean(&mut self) {
        let nodes = (0..self.cluster.count()).map(|index| self.cluster.node(index));
        let is_primary = |node: &&crate::rig::Server| {
            node.runs() && node.info("replication", "role") == "master"
        };
        for node in nodes.filter(is_primary) {
            delete_kept(node, None);
        }
        self.cluster.assert_clean();
    }
}

/// Redis refuses whatever names keys on both sides, also keys that do not exist: what takes
/// something, and of the rest what needs more keys than the hold has.
fn half_moved(class: Class) -> Answers {
    match class {
        Class::Take | Class::TakePermit => &[Some(NotReady)],
        // A hold is extended; a downgrade names other keys.
        _ => if_it_asks(class, &[None, Some(NotReady)]),
    }
}

rows! {
    shard_suspended: row("The primary of a shard hangs", || {
        Sharded::start(false, [
            |stage| stage.cluster.node(AFFECTED).suspend(),
            |stage| stage.cluster.node(AFFECTED).resume(),
        ]).impatient()
    }).failing(unreachable, HANGS);

    shard_killed: row("The primary of a shard is killed, and then its replica takes over", || {
        Sharded::start(true, [|stage| {
            stage.wait_for_replica();
            stage.cluster.node_mut(AFFECTED).kill();
        }, |stage| stage.fail_over(&["TAKEOVER"])])
    }).failing(unreachable, DIES);

    shard_replaced: row("The replica of a shard has become its primary (`CLUSTER FAILOVER`)", || {
        Sharded::start(true, [|stage| stage.fail_over(&[]), |_| ()])
    });

    slot_moved: row("A slot has moved to another shard", || {
        Sharded::of_one_slot([|stage| stage.cluster.migrate_slot(stage.slot(), ANOTHER), |_| ()])
    });

    slot_half_moved: row("A slot stays half moved to another shard", || {
        Sharded::of_one_slot([|stage| {
            stage.cluster.begin_migration(stage.slot(), ANOTHER);
            stage.cluster.move_keys(stage.slot(), ANOTHER);
        }, |stage| {
            stage.cluster.move_keys(stage.slot(), ANOTHER);
            stage.cluster.finish_migration(stage.slot(), ANOTHER);
        }])
    }).failing(half_moved, &["is being moved"]);
}

#[test]
fn slots_are_those_of_the_servers() {
    for (key, slot) in [("123456789", 12739), ("{123456789}x", 12739), (TAG, slot_of("slot-1"))] {
        assert_eq!(slot_of(key), slot, "{key}");
    }
    assert_eq!((shard_of(TAG), shard_of("123456789")), (AFFECTED, 2));
}
