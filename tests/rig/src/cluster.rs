//! A cluster of three primaries that own a third of the slots each, and a replica for each of them.

use std::collections::BTreeMap;

use super::{Certificates, Listen, PROMPT_SYNC, Server, TO_BUS, start_together, wait_until};

const SLOTS: usize = 16384;
const PRIMARIES: usize = 3;

#[derive(Clone, Copy)]
pub struct ClusterOptions<'a> {
    /// Nodes 3 to 5 are the replicas of the nodes 0 to 2.
    pub replicas: bool,
    /// In milliseconds. A primary that does not answer for this long is replaced.
    pub node_timeout: u32,
    pub args: &'a [&'a str],
    /// The nodes use only TLS, also among themselves.
    pub tls: Option<&'a Certificates>,
    /// Puts a proxy before each node, at the address that the cluster announces to clients. The
    /// nodes' bus bypasses it. Not with TLS.
    pub proxies: bool,
}

impl Default for ClusterOptions<'_> {
    fn default() -> Self {
        Self { replicas: true, node_timeout: 1000, args: &[], tls: None, proxies: false }
    }
}

pub struct Cluster {
    nodes: Vec<Server>,
    ids: Vec<String>,
}

impl Cluster {
    pub fn start() -> Self {
        Self::start_with(ClusterOptions::default())
    }

    /// Nobody replaces a primary, so they are patient with one that gets no processor.
    pub fn start_primaries() -> Self {
        let options = ClusterOptions { replicas: false, ..ClusterOptions::default() };
        Self::start_with(ClusterOptions { node_timeout: 15_000, ..options })
    }

    /// Takes two seconds, because a starting primary refuses writes for that long.
    pub fn start_with(options: ClusterOptions<'_>) -> Self {
        let nodes = start_together(|| nodes_of(&options));
        let ids = nodes.iter().map(id).collect();
        let cluster = Self { nodes, ids };
        cluster.wait_ok();
        let feeds = |primary: &Server| primary.feeds(usize::from(options.replicas));
        wait_until("the primaries feed their replicas", || {
            cluster.nodes[..PRIMARIES].iter().all(feeds)
        });
        cluster
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::announced_url).collect()
    }

    pub fn into_nodes(self) -> Vec<Server> {
        self.nodes
    }

    /// The number of nodes, also of those that do not run.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    pub fn node(&self, index: usize) -> &Server {
        &self.nodes[index]
    }

    pub fn node_mut(&mut self, index: usize) -> &mut Server {
        &mut self.nodes[index]
    }

    /// The nodes that are neither suspended nor killed.
    fn running(&self) -> impl Iterator<Item = (usize, &Server)> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.runs())
    }

    pub fn slot(&self, key: &str) -> u16 {
        let (_, node) = self.running().next().expect("a node is running");
        node.cmd(&["CLUSTER", "KEYSLOT", key])
    }

    /// The running node that reports itself as the owner of the slot. If several do, the one that
    /// became its owner last.
    #[track_caller]
    pub fn owner(&self, slot: u16) -> usize {
        let mut owner = None;
        wait_until("a node owns the slot", || {
            let owners = self.running().filter_map(|(index, node)| {
                let own = view(node).into_iter().find(|line| line.myself)?;
                own.owns(slot).then_some((own.epoch, index))
            });
            owner = owners.max();
            owner.is_some()
        });
        owner.unwrap().1
    }

    pub fn cmd_at_owner<T: redis::FromRedisValue>(&self, key: &str, words: &[&str]) -> T {
        self.node(self.owner(self.slot(key))).cmd(words)
    }

    /// Moves a slot and its keys to another primary.
    pub fn migrate_slot(&self, slot: u16, to: usize) {
        self.begin_migration(slot, to);
        self.move_keys(slot, to);
        self.finish_migration(slot, to);
    }

    /// From now on the owner answers `ASK` for keys of the slot that it does not have.
    pub fn begin_migration(&self, slot: u16, to: usize) {
        let from = self.owner(slot);
        assert_ne!(from, to, "node {to} already owns slot {slot}");
        self.set_slot(to, slot, &["IMPORTING", &self.ids[from]]);
        self.set_slot(from, slot, &["MIGRATING", &self.ids[to]]);
    }

    /// The keys of a slot that are still on its owner.
    pub fn keys(&self, slot: u16) -> Vec<String> {
        self.node(self.owner(slot)).cmd(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"])
    }

    /// Moves the keys that the owner has now.
    pub fn move_keys(&self, slot: u16, to: usize) {
        self.move_keys_but(slot, to, &[]);
    }

    /// The same, without the keys in `stay`.
    pub fn move_keys_but(&self, slot: u16, to: usize, stay: &[String]) {
        let from = self.node(self.owner(slot));
        let port = self.node(to).port().to_string();
        loop {
            let mut keys = self.keys(slot);
            keys.retain(|key| !stay.contains(key));
            if keys.is_empty() {
                return;
            }
            let mut migrate = redis::cmd("MIGRATE");
            migrate.arg(&["127.0.0.1", &port, "", "0", "5000"]);
            if let Some(password) = self.node(to).password() {
                migrate.arg("AUTH").arg(password);
            }
            migrate.arg("KEYS").arg(keys).exec(&mut from.connect()).unwrap();
        }
    }

    /// Returns once all running nodes know the new owner.
    #[track_caller]
    pub fn finish_migration(&self, slot: u16, to: usize) {
        let from = self.owner(slot);
        // The new owner comes first: if the old one learned of the move before it, each would
        // redirect clients to the other.
        let others = (0..self.nodes.len()).filter(|index| ![from, to].contains(index));
        for index in [to, from].into_iter().chain(others) {
            let node = self.node(index);
            if node.runs() && node.info("replication", "role") == "master" {
                self.set_slot(index, slot, &["NODE", &self.ids[to]]);
            }
        }
        // Also compares the epoch in which it became the owner: a node that begins another move
        // without knowing it may choose an older epoch. A message still in transit then returns the
        // slot to a node that has dropped its keys, and each redirects clients to the other
        // forever.
        let seen_by = |node: &Server| {
            let lines = view(node).into_iter();
            lines
                .filter(|line| line.id == self.ids[to] && line.owns(slot))
                .map(|line| line.epoch)
                .next()
        };
        wait_until("all nodes know the new owner", || {
            let own = seen_by(self.node(to));
            own.is_some() && self.running().all(|(_, node)| seen_by(node) == own)
        });
    }

    fn set_slot(&self, index: usize, slot: u16, words: &[&str]) {
        let number = slot.to_string();
        self.node(index).cmd::<()>(&[&["CLUSTER", "SETSLOT", &number], words].concat());
    }

    /// Kills the owner and waits until all nodes know that its replica has taken over. Returns the
    /// index of that.
    #[track_caller]
    pub fn fail_over_primary_of(&mut self, slot: u16) -> usize {
        let old = self.owner(slot);
        self.node_mut(old).kill();
        let new = self.owner(slot);
        self.wait_ok();
        new
    }

    /// Waits until all running nodes report that the cluster is ok, agree on the owners of the
    /// slots and reach each other, and the replicas follow their primaries.
    #[track_caller]
    pub fn wait_ok(&self) {
        wait_until("the cluster is ok", || {
            let running: Vec<&str> =
                self.running().map(|(index, _)| self.ids[index].as_str()).collect();
            let mut agreed = None;
            self.running().all(|(_, node)| {
                let lines = view(node);
                let known = running
                    .iter()
                    .all(|id| lines.iter().any(|line| line.id == *id && line.reached));
                let owners: BTreeMap<_, _> = lines
                    .into_iter()
                    .filter(|line| !line.slots.is_empty())
                    .map(|line| (line.id, line.slots))
                    .collect();
                let covered: usize = owners
                    .values()
                    .flatten()
                    .map(|(first, last)| usize::from(last - first) + 1)
                    .sum();
                known
                    && covered == SLOTS
                    && *agreed.get_or_insert_with(|| owners.clone()) == owners
                    && node.cmd::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
                    && (node.info("replication", "role") == "master" || node.follows_a_master())
            })
        });
    }

    /// [`Server::assert_clean`] for all running nodes.
    #[track_caller]
    pub fn assert_clean(&self) {
        for (_, node) in self.running() {
            node.assert_clean();
        }
    }
}

/// What a node knows about another one, or about itself: a line of `CLUSTER NODES`.
struct Line {
    id: String,
    myself: bool,
    reached: bool,
    epoch: u64,
    slots: Vec<(u16, u16)>,
}

impl Line {
    fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (first..=last).contains(&&slot))
    }
}

fn view(node: &Server) -> Vec<Line> {
    let lines: String = node.cmd(&["CLUSTER", "NODES"]);
    lines.lines().map(parse).collect()
}

/// `id address flags primary ping pong epoch link slots...`
fn parse(line: &str) -> Line {
    let words: Vec<&str> = line.split(' ').collect();
    let flags = words[2];
    // A slot that is being moved is in brackets, after the ranges of its owner.
    let slots = words[8..].iter().filter(|range| !range.starts_with('[')).map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        (first.parse().unwrap(), last.parse().unwrap())
    });
    Line {
        id: words[0].to_owned(),
        myself: flags.contains("myself"),
        reached: words[7] == "connected"
            && !["fail", "handshake", "noaddr"].iter().any(|flag| flags.contains(flag)),
        epoch: words[6].parse().unwrap(),
        slots: slots.collect(),
    }
}

/// Unique on this machine, so that a node of another cluster is never mistaken for one of this.
fn id(node: &Server) -> String {
    format!("{:032x}{:08x}", std::process::id(), node.port())
}

/// Nodes that do not run yet. Each finds the file that it would have written after the commands
/// that form a cluster, so that no test waits for gossip to spread.
fn nodes_of(options: &ClusterOptions<'_>) -> Vec<Server> {
    let timeout = options.node_timeout.to_string();
    let cluster = [
        "--cluster-enabled",
        "yes",
        "--cluster-config-file",
        "nodes.conf",
        "--cluster-node-timeout",
        &timeout,
    ];
    let tls =
        options.tls.map_or(&[][..], |_| &["--tls-cluster", "yes", "--tls-replication", "yes"]);
    let args = [&cluster, &PROMPT_SYNC[..], tls, options.args].concat();
    let count = if options.replicas { 2 * PRIMARIES } else { PRIMARIES };
    let prepare = || {
        let mut node = Server::prepare(Listen::with(options.tls), &args).configured_by_file(&[]);
        if options.proxies {
            let bus = format!("cluster-announce-bus-port {}", node.port() + TO_BUS);
            node.hide_behind_a_proxy(|port| vec![format!("cluster-announce-port {port}"), bus]);
        }
        node
    };
    let nodes: Vec<Server> = std::iter::repeat_with(prepare).take(count).collect();
    for (own, node) in nodes.iter().enumerate() {
        let line = |index: usize| {
            let (id, port, primary) =
                (id(&nodes[index]), nodes[index].announced_port(), index % PRIMARIES);
            let bus = nodes[index].port() + TO_BUS;
            let myself = if index == own { "myself," } else { "" };
            let (role, of, slots) = if index < PRIMARIES {
                ("master", "-".to_owned(), share(primary))
            } else {
                ("slave", self::id(&nodes[primary]), String::new())
            };
            let epoch = primary + 1;
            // Without it Valkey does not find its own shard, and crashes at the first SPUBLISH.
            let shard = if Server::is_valkey() {
                format!(",,shard-id={epoch:040x}")
            } else {
                String::new()
            };
            format!(
                "{id} 127.0.0.1:{port}@{bus}{shard} {myself}{role} {of} 0 0 {epoch} connected{slots}\n"
            )
        };
        let lines: String = (0..count).map(line).collect();
        let text = format!("{lines}vars currentEpoch {PRIMARIES} lastVoteEpoch 0\n");
        std::fs::write(node.dir().join("nodes.conf"), text).unwrap();
    }
    nodes
}

fn share(primary: usize) -> String {
    let bound = |n: usize| n * SLOTS / PRIMARIES;
    format!(" {}-{}", bound(primary), bound(primary + 1) - 1)
}
