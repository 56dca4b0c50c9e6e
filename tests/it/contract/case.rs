//! A row of the table, and the servers that it needs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold::{Builder, LockClient, Redlock};

use super::LONG;
use super::in_memory::Memory;
use super::network::{Elsewhere, Network};
use super::primitives::{Exclusive, Primitive};
use crate::rig::{Certificates, Cluster, ClusterOptions, Server, sentinel_of, wait_until};
use crate::support::Masters;

/// One primitive on servers of its own, or in memory.
pub(super) struct Case {
    pub(super) primitive: &'static Primitive,
    pub(super) name: String,
    /// Empty for a primitive in memory. In a cluster the owner of the name comes first.
    pub(super) servers: Masters,
    pub(super) memory: Option<Memory>,
    /// `None` for a primitive on its own servers, or in memory.
    pub(super) elsewhere: Option<Arc<dyn Elsewhere>>,
    /// The certificates of servers with TLS.
    pub(super) certificates: Option<Certificates>,
    /// A sentinel that names the server as the master.
    pub(super) sentinel: Option<(Server, String)>,
}

/// `ca`: the CA of servers with TLS.
pub(super) fn builder(primitive: &Primitive, urls: &[String], ca: Option<&Path>) -> Builder {
    let builder = match primitive.masters {
        1 if primitive.in_cluster => LockClient::builder().cluster(leasehold::Cluster::new(urls)),
        1 => LockClient::builder().url(&urls[0]),
        // Masters that lost their data are covered by other tests.
        _ => LockClient::builder()
            .redlock(Redlock::new(urls).longest_lease(LONG).admit_fresh_nodes(true)),
    };
    match ca {
        None => builder,
        #[cfg(feature = "tls")]
        Some(ca) => builder.tls(leasehold::Tls::new().ca_file(ca)),
        #[cfg(not(feature = "tls"))]
        Some(_) => unreachable!("no row of this kind has TLS"),
    }
}

/// Three primaries behind proxies, the owner of the name first. Their timeout is so long that they
/// do not consider each other dead while a test suspends them.
fn primaries(name: &str) -> Masters {
    let options = ClusterOptions {
        replicas: false,
        proxies: true,
        node_timeout: 60_000,
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start_with(options);
    let owner = cluster.owner(cluster.slot(name));
    let mut nodes = cluster.into_nodes();
    nodes.swap(0, owner);
    Masters(nodes)
}

impl Case {
    fn on(primitive: &'static Primitive, servers: Masters) -> Self {
        Self {
            primitive,
            name: format!("the-{}", primitive.label),
            servers,
            memory: None,
            elsewhere: None,
            certificates: None,
            sentinel: None,
        }
    }

    fn prepared(self) -> Self {
        self.prepare();
        self
    }

    pub(super) fn new(primitive: &'static Primitive) -> Self {
        let certificates = primitive.over_tls.then(Certificates::new);
        let servers = match &certificates {
            Some(certificates) => Masters(
                (0..primitive.masters).map(|_| Server::start_tls(certificates, &[])).collect(),
            ),
            None if primitive.by_sentinel => Masters(vec![Server::start_tcp(&[])]),
            None if primitive.in_cluster => primaries(&format!("the-{}", primitive.label)),
            None => Masters::start(primitive.masters),
        };
        let sentinel = primitive.by_sentinel.then(|| sentinel_of(servers.0[0].port()));
        Self { certificates, sentinel, ..Self::on(primitive, servers) }.prepared()
    }

    pub(super) fn in_memory(primitive: &'static Primitive) -> Self {
        let memory = Some(Memory::new());
        Self { memory, ..Self::on(primitive, Masters(Vec::new())) }.prepared()
    }

    pub(super) fn elsewhere(primitive: &'static Primitive, elsewhere: Arc<dyn Elsewhere>) -> Self {
        let elsewhere = Some(elsewhere);
        Self { elsewhere, ..Self::on(primitive, Masters(Vec::new())) }.prepared()
    }

    pub(super) fn prepare(&self) {
        let client = match &self.memory {
            Some(memory) => memory.client(LockClient::builder()),
            None => self.client(|builder| builder),
        };
        (self.primitive.prepare)(&client, &self.name);
        if self.primitive.masters > 1 {
            self.servers.wait_until_all_vote();
        }
    }

    pub(super) fn is_over_zookeeper(&self) -> bool {
        self.elsewhere.as_ref().is_some_and(|elsewhere| elsewhere.what() == "over ZooKeeper")
    }

    /// The first or only server.
    pub(super) fn server(&self) -> &Server {
        &self.servers.0[0]
    }

    pub(super) fn client(&self, settings: impl FnOnce(Builder) -> Builder) -> LockClient {
        match &self.memory {
            Some(memory) => memory.client(settings(LockClient::builder())),
            None => settings(self.builder(&self.urls())).build().unwrap(),
        }
    }

    pub(super) fn urls(&self) -> Vec<String> {
        if let Some(elsewhere) = &self.elsewhere {
            return vec![elsewhere.url()];
        }
        if self.primitive.in_cluster {
            return self.servers.0.iter().map(Server::announced_url).collect();
        }
        self.sentinel.as_ref().map_or_else(|| self.servers.urls(), |(_, url)| vec![url.clone()])
    }

    pub(super) fn builder(&self, urls: &[String]) -> Builder {
        let builder = builder(self.primitive, urls, self.ca_file().as_deref())
            .client_name(self.primitive.label);
        self.elsewhere.as_ref().map_or(builder.clone(), |elsewhere| elsewhere.builder(builder))
    }

    pub(super) fn ca_file(&self) -> Option<PathBuf> {
        self.certificates.as_ref().map(Certificates::ca_file)
    }

    /// Opens a lock of a new client, with a lease that outlasts the test.
    pub(super) fn open(&self) -> Box<dyn Exclusive> {
        self.open_with(|builder| builder.lease(LONG))
    }

    pub(super) fn open_with(
        &self,
        settings: impl FnOnce(Builder) -> Builder,
    ) -> Box<dyn Exclusive> {
        (self.primitive.open)(self.client(settings), &self.name, None)
    }

    pub(super) fn open_through(
        &self,
        network: &Network,
        settings: impl FnOnce(Builder) -> Builder,
    ) -> Box<dyn Exclusive> {
        (self.primitive.open)(
            settings(self.builder(&network.urls())).build().unwrap(),
            &self.name,
            None,
        )
    }

    /// The keys of holders and waiters that exist on a majority: one of several masters may lag
    /// behind.
    pub(super) fn keys(&self) -> Vec<String> {
        if let Some(memory) = &self.memory {
            return memory.held();
        }
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.held(&self.name);
        }
        let stays: Vec<_> =
            self.primitive.stays.iter().map(|key| key.replace("{}", &self.name)).collect();
        let mut keys: Vec<String> = self.servers.0.iter().flat_map(Server::lock_keys).collect();
        keys.retain(|key| !stays.contains(key));
        keys.sort();
        let of_most =
            keys.chunk_by(|a, b| a == b).filter(|same| same.len() > self.primitive.masters / 2);
        of_most.map(|same| same[0].clone()).collect()
    }

    pub(super) fn delete_keys(&self) {
        if let Some(elsewhere) = &self.elsewhere {
            elsewhere.delete(&self.name);
        }
        for server in &self.servers.0 {
            for key in server.lock_keys() {
                server.cmd::<u32>(&["DEL", &key]);
            }
        }
    }

    /// Simulates a failover to a replica that lagged: the holder's keys are gone, the prepared keys
    /// are restored.
    pub(super) fn forget(&self, all: bool) {
        if let Some(memory) = &self.memory {
            return memory.lose_all();
        }
        if all && self.elsewhere.is_none() {
            for server in &self.servers.0 {
                server.cmd::<()>(&["FLUSHALL"]);
            }
        } else {
            self.delete_keys();
        }
        self.prepare();
    }

    /// Waits until a waiter of another client has subscribed.
    pub(super) fn wait_for_a_waiter(&self) {
        wait_until(&format!("{}: a waiter is subscribed", self.primitive.label), || {
            if let Some(memory) = &self.memory {
                return memory.is_waited_for(&self.name);
            }
            if let Some(elsewhere) = &self.elsewhere {
                return elsewhere.is_waited_for(self.primitive.label, &self.name);
            }
            !crate::cluster::channels(self.server()).is_empty()
        });
    }

    /// Whether nothing is left of holders and waiters, on one of several masters that lags behind
    /// either.
    pub(super) fn is_clean(&self) -> bool {
        let few = |server: &Server| server.lock_keys().len() <= self.primitive.stays.len();
        self.keys().is_empty() && self.servers.0.iter().all(few)
    }

    /// Over ZooKeeper the keys may become these only now: a client does not wait for the node of a
    /// lock that it did not get to be deleted.
    #[track_caller]
    pub(super) fn assert_keys(&self, expected: &[String], why: &str) {
        let why = format!("{}: {why}", self.primitive.label);
        if self.is_over_zookeeper() {
            wait_until(&why, || self.keys() == expected);
        } else {
            assert_eq!(self.keys(), expected, "{why}");
        }
    }

    #[track_caller]
    pub(super) fn assert_free(&self, why: &str) {
        self.assert_keys(&[], why);
        let taken = self.open().try_lock().unwrap().is_some();
        assert!(taken, "{}: {why}, so it can be taken", self.primitive.label);
    }

    pub(super) fn end(self) {
        wait_until(&format!("{} leaves nothing", self.primitive.label), || self.is_clean());
        let left: Vec<String> = self.servers.0.iter().flat_map(Server::lock_keys).collect();
        assert!(
            self.primitive.masters == 1 || left.is_empty(),
            "{} leaves {left:?}",
            self.primitive.label
        );
        self.delete_keys();
        self.servers.assert_clean();
    }
}
