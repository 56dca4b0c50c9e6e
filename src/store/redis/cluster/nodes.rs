//! The known nodes of a cluster, and how they are found out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;

use super::map::{Primary, Route, SlotMap};
use super::records::{AwayPlaces, LastRead};
use super::topology::{NodeAddress, SlotRange};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::node_status::NodeStatus;
use crate::os::Mutex;
use crate::store::redis::keys::Slot;
use crate::store::redis::server::Server;
use crate::store::redis::wire::{Connector, Publishing, ask_all};

/// The primaries of one cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// For calls and for the background; their address is replaced by that of each node.
    pub(super) foreground: Connector,
    pub(super) background: Connector,
    connections: usize,
    pub(super) seeds: Vec<NodeAddress>,
    pub(super) map: RwLock<SlotMap>,
    /// Locked while the map is read from the nodes, so that one thread does it for all.
    pub(super) last_read: Mutex<LastRead>,
    pub(super) publishing: Arc<OnceLock<Publishing>>,
    pub(super) away: AwayPlaces,
    pub(super) closed: AtomicBool,
}

impl Cluster {
    /// `foreground` and `background` connect to the first of the seeds.
    pub(crate) fn new(
        foreground: Connector,
        background: Connector,
        seeds: &[Connector],
        connections: usize,
    ) -> Self {
        let publishing = foreground.cluster.clone().unwrap_or_default();
        let seeds = seeds.iter().filter_map(address_of).collect();
        let map = RwLock::default();
        let last_read = Mutex::new(LastRead::none());
        let away = AwayPlaces::default();
        let closed = AtomicBool::new(false);
        Self {
            foreground,
            background,
            connections,
            seeds,
            map,
            last_read,
            publishing,
            away,
            closed,
        }
    }

    /// Reads the map and connects to the primaries until one is reached, which checks the server
    /// and the user's rights. Side by side: one that hangs costs nothing.
    pub(crate) fn connect_now(&self) -> Result<()> {
        self.refresh(0, None)?;
        let primaries = self.map.read().primaries();
        let tells = |outcome: &Result<()>| !matches!(outcome, Err(e) if e.kind().is_outage());
        let connect = |primary: Arc<Primary>| primary.server.connect_now();
        let outcomes =
            ask_all("lh-cluster", primaries, connect, 2 * self.io_timeout(), |outcomes| {
                outcomes.iter().any(|(_, outcome)| tells(outcome))
            });
        let mut last = None;
        for (_, outcome) in outcomes {
            if tells(&outcome) {
                return outcome;
            }
            last = outcome.err();
        }
        Err(last.unwrap_or_else(|| {
            Error::new(ErrorKind::NotReady, "no node of the cluster has slots yet")
        }))
    }

    /// The command with which the nodes publish releases, once one of them has been reached.
    pub(crate) fn publishing(&self) -> Publishing {
        self.publishing.get().copied().unwrap_or(Publishing::Classic)
    }

    /// All primaries, as the nodes report them now.
    pub(crate) fn primaries_now(&self) -> Result<Vec<Route>> {
        self.refresh(self.version(), None)?;
        let map = self.map.read();
        let route = |primary| Route { primary, asking: false, version: map.version };
        Ok(map.primaries().into_iter().map(route).collect())
    }

    pub(super) fn io_timeout(&self) -> Duration {
        self.foreground.io_timeout
    }

    pub(super) fn connector_at(&self, address: &NodeAddress) -> Connector {
        self.at(&self.foreground, address)
    }

    pub(super) fn background_at(&self, address: &NodeAddress) -> Connector {
        self.at(&self.background, address)
    }

    fn at(&self, connector: &Connector, address: &NodeAddress) -> Connector {
        let connector = connector.at(&address.host, address.port);
        if self.seeds.contains(address) { connector } else { connector.named_by("the cluster") }
    }

    /// Called with the map locked.
    fn connect_to(&self, address: &NodeAddress) -> Arc<Primary> {
        let at = |connector: &Connector| self.at(connector, address);
        let server = Server::new(at(&self.foreground), at(&self.background), self.connections);
        // `close` may have processed the map already.
        if self.closed.load(Ordering::Acquire) {
            server.close();
        }
        Arc::new(Primary { address: address.clone(), server })
    }

    /// The primary that has the slot, as far as is known.
    pub(super) fn route(&self, slot: Slot) -> Result<Route> {
        let (route, version) = {
            let map = self.map.read();
            (map.route(slot), map.version)
        };
        if let Some(route) = route {
            return Ok(route);
        }
        self.refresh(version, None)?;
        let why =
            "no node of the cluster serves the slot of this name; try again when its state is ok";
        self.map.read().route(slot).ok_or_else(|| Error::new(ErrorKind::NotReady, why))
    }

    /// Records that the slot was found at `address`.
    pub(super) fn note_moved(&self, slot: Slot, address: &NodeAddress) {
        let mut map = self.map.write();
        if !map.has(slot, address) {
            let primary = map.primary(address).unwrap_or_else(|| self.connect_to(address));
            map.put(slot, primary);
        }
    }

    /// The route of one request while its slot is moving to `address`.
    pub(super) fn route_to_importing(&self, address: &NodeAddress) -> Route {
        let mut map = self.map.write();
        let primary = map.primary(address).unwrap_or_else(|| {
            let primary = self.connect_to(address);
            map.add(primary.clone());
            primary
        });
        Route { primary, asking: true, version: map.version }
    }

    pub(super) fn learn(&self, ranges: &[SlotRange]) {
        let mut map = self.map.write();
        map.replace(ranges, |address| self.connect_to(address));
    }

    pub(super) fn address_of_slot(&self, slot: Slot) -> Option<NodeAddress> {
        self.map.read().route(slot).map(|route| route.primary.address.clone())
    }

    pub(super) fn version(&self) -> u64 {
        self.map.read().version
    }

    pub(crate) fn nodes(&self) -> Vec<NodeStatus> {
        self.map.read().nodes()
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for primary in &self.map.read().primaries() {
            primary.server.close();
        }
    }
}

fn address_of(seed: &Connector) -> Option<NodeAddress> {
    let (host, port) = seed.host_and_port()?;
    Some(NodeAddress { host: host.to_owned(), port })
}
