//! The known nodes of a cluster, and how they are found out.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::away::AwayPlaces;
use super::map::{Primary, Route, SlotMap};
use super::topology::{NodeAddress, SlotRange, slot_ranges};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::node_status::NodeStatus;
use crate::store::redis::keys::Slot;
use crate::store::redis::server::Server;
use crate::store::redis::wire::{Connector, Publishing, Request, ask_all};

/// The map is not read more often than this, no matter how many requests find it wrong.
const REFRESH_PAUSE: Duration = Duration::from_millis(50);
/// A single slot that has moved is recorded from the redirect; the whole map is read again if it is
/// older than this.
const FRESH: Duration = Duration::from_secs(1);

/// The primaries of one cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// For calls and for the background; their address is replaced by that of each node.
    foreground: Connector,
    pub(super) background: Connector,
    connections: usize,
    seeds: Vec<NodeAddress>,
    pub(super) map: RwLock<SlotMap>,
    /// Locked while the map is read from the nodes, so that one thread does it for all. The value
    /// is the time of the last read.
    refreshed: Mutex<Option<Instant>>,
    pub(super) publishing: Arc<OnceLock<Publishing>>,
    pub(super) away: AwayPlaces,
    closed: AtomicBool,
}

impl Cluster {
    /// `foreground` and `background` connect to the first of the seeds.
    pub(crate) fn new(foreground: Connector, background: Connector, seeds: &[Connector], connections: usize) -> Self {
        let publishing = foreground.cluster.clone().unwrap_or_default();
        let seeds = seeds.iter().filter_map(address_of).collect();
        let (map, refreshed) = (RwLock::default(), Mutex::new(None));
        let (away, closed) = (AwayPlaces::default(), AtomicBool::new(false));
        Self { foreground, background, connections, seeds, map, refreshed, publishing, away, closed }
    }

    /// Reads the map and connects to the primaries until one is reached, which checks the server
    /// and the user's rights. Side by side: one that hangs costs nothing.
    pub(crate) fn connect_now(&self) -> Result<()> {
        self.refresh(0, None)?;
        let primaries = self.map.read().primaries();
        let tells = |outcome: &Result<()>| !matches!(outcome, Err(e) if e.kind().is_outage());
        let connect = |primary: Arc<Primary>| primary.server.connect_now();
        let outcomes = ask_all("lh-cluster", primaries, connect, 2 * self.io_timeout(), |outcomes| {
            outcomes.iter().any(|(_, outcome)| tells(outcome))
        });
        let mut last = None;
        for (_, outcome) in outcomes {
            if tells(&outcome) {
                return outcome;
            }
            last = outcome.err();
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::NotReady, "no node of the cluster has slots yet")))
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
        self.foreground.at(&address.host, address.port)
    }

    /// Called with the map locked.
    fn connect_to(&self, address: &NodeAddress) -> Arc<Primary> {
        let at = |connector: &Connector| connector.at(&address.host, address.port);
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
        let why = "no node of the cluster serves the slot of this name; try again when its state is ok";
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

    /// Reads the map from the nodes, unless another thread has done so since version `seen`. All
    /// nodes are asked side by side, and the first answer is taken; `without`, which has just
    /// proved to be wrong, is not asked. Blocks for at most the I/O timeout, or twice that if
    /// another thread is reading the map.
    pub(super) fn refresh(&self, seen: u64, without: Option<&NodeAddress>) -> Result<()> {
        let Some(mut refreshed) = self.refreshed.try_lock_for(self.io_timeout()) else {
            return Err(Error::new(ErrorKind::Unreachable, "no node of the cluster has reported its slots in time"));
        };
        let is_recent = refreshed.is_some_and(|at| at.elapsed() < REFRESH_PAUSE);
        if self.map.read().version != seen || is_recent && seen != 0 {
            return Ok(());
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the client was closed"));
        }
        let connector = self.foreground.clone();
        let ask = move |address: NodeAddress| {
            let reply = connector.at(&address.host, address.port).ask_once(&Request::plain(&["CLUSTER", "SLOTS"]))?;
            let ranges = slot_ranges(&reply, &address.host)?;
            if ranges.is_empty() { Err(Error::new(ErrorKind::NotReady, NO_SLOTS)) } else { Ok(ranges) }
        };
        let outcomes = ask_all("lh-cluster", self.candidates(without), ask, self.io_timeout(), |outcomes| {
            outcomes.iter().any(|(_, outcome)| outcome.is_ok())
        });
        *refreshed = Some(Instant::now());
        let mut last = Error::new(ErrorKind::Unreachable, "no node of the cluster answered within the I/O timeout");
        for (_, outcome) in outcomes {
            match outcome {
                Ok(ranges) => {
                    self.learn(&ranges);
                    return Ok(());
                }
                // A node that does not belong to a cluster is a better explanation than one that
                // cannot be reached.
                Err(e) if last.kind() == ErrorKind::Unreachable => last = e,
                Err(_) => {}
            }
        }
        Err(last)
    }

    /// The nodes that are asked for the map: the known ones and the seeds.
    pub(super) fn candidates(&self, without: Option<&NodeAddress>) -> Vec<NodeAddress> {
        let mut all = self.map.read().addresses();
        all.extend(self.seeds.iter().cloned());
        let mut seen = HashSet::new();
        all.retain(|address| seen.insert(address.clone()));
        if all.len() > 1 {
            all.retain(|address| Some(address) != without);
        }
        all
    }

    fn learn(&self, ranges: &[SlotRange]) {
        let mut map = self.map.write();
        map.replace(ranges, |address| self.connect_to(address));
    }

    /// Reads the map again if it is not fresh.
    pub(super) fn refresh_some_time(&self, seen: u64) {
        let is_due = self.refreshed.try_lock().is_some_and(|at| at.is_none_or(|at| at.elapsed() > FRESH));
        if is_due && let Err(e) = self.refresh(seen, None) {
            log::debug!("the map of the cluster cannot be read now: {}", e.chain());
        }
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
        self.map.read().primaries().iter().for_each(|primary| primary.server.close());
    }
}

const NO_SLOTS: &str = "no slot of the cluster is served yet; create it (redis-cli --cluster create), and try again";

fn address_of(seed: &Connector) -> Option<NodeAddress> {
    let (host, port) = seed.host_and_port()?;
    Some(NodeAddress { host: host.to_owned(), port })
}
