//! The known nodes of a cluster, and how they are found out.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::map::{Primary, Route, SlotMap};
use super::topology::{NodeAddress, SlotRange, slot_ranges};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::node_status::NodeStatus;
use crate::base::random::Backoff;
use crate::store::redis::keys::Slot;
use crate::store::redis::server::Server;
use crate::store::redis::wire::{Connector, Publishing, RedisFailure, Request, ask_all, fail_on_error};

/// The map is not read more often than this, no matter how many requests find it wrong. The pause
/// grows while reading changes nothing: a slot without a primary stays so for seconds.
const REFRESH_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_REFRESH_PAUSE: Duration = Duration::from_millis(250);
/// So many nodes are asked for the map side by side: one that hangs costs nothing, and a client
/// does not connect to all nodes of a large cluster.
const ASKED_AT_ONCE: usize = 3;
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
    /// Locked while the map is read from the nodes, so that one thread does it for all.
    refreshed: Mutex<Refreshed>,
    pub(super) publishing: Arc<OnceLock<Publishing>>,
    closed: AtomicBool,
}

/// How the map was read last.
#[derive(Debug)]
struct Refreshed {
    at: Option<Instant>,
    ranges: Vec<SlotRange>,
    /// Before the next read.
    pause: Duration,
    pauses: Backoff,
}

impl Default for Refreshed {
    fn default() -> Self {
        let pauses = Backoff::new(REFRESH_PAUSE, LONGEST_REFRESH_PAUSE);
        Self { at: None, ranges: Vec::new(), pause: REFRESH_PAUSE, pauses }
    }
}

impl Refreshed {
    fn is_older_than(&self, age: Duration) -> bool {
        self.at.is_none_or(|at| at.elapsed() > age)
    }

    /// `ranges`: `None` if no node has answered.
    fn note(&mut self, ranges: Option<&[SlotRange]>) {
        self.at = Some(Instant::now());
        if let Some(ranges) = ranges.filter(|ranges| *ranges != self.ranges) {
            self.ranges = ranges.to_vec();
            self.pauses.reset();
        }
        self.pause = self.pauses.next();
    }
}

/// A node that is asked for the map.
#[derive(Debug, Clone)]
enum Candidate {
    /// Over a connection of its lock calls, which is kept.
    Primary(Arc<Primary>),
    /// Over a connection that ends with the answer.
    Other(NodeAddress),
}

impl Cluster {
    /// `foreground` and `background` connect to the first of the seeds.
    pub(crate) fn new(foreground: Connector, background: Connector, seeds: &[Connector], connections: usize) -> Self {
        let publishing = foreground.cluster.clone().unwrap_or_default();
        let seeds = seeds.iter().filter_map(address_of).collect();
        let (map, refreshed) = (RwLock::default(), Mutex::default());
        let closed = AtomicBool::new(false);
        Self { foreground, background, connections, seeds, map, refreshed, publishing, closed }
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

    /// Reads the map from the nodes, unless another thread has done so since version `seen`, or a
    /// moment ago. `without`, which has just proved to be wrong, is not asked. Blocks for at most
    /// the I/O timeout, or twice that if another thread is reading the map.
    pub(super) fn refresh(&self, seen: u64, without: Option<&NodeAddress>) -> Result<()> {
        let Some(mut refreshed) = self.refreshed.try_lock_for(self.io_timeout()) else {
            return Err(Error::new(ErrorKind::Unreachable, "no node of the cluster has reported its slots in time"));
        };
        if self.map.read().version != seen || seen != 0 && !refreshed.is_older_than(refreshed.pause) {
            return Ok(());
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the client was closed"));
        }
        let read = self.read_ranges(without);
        refreshed.note(read.as_deref().ok());
        self.map.write().replace(&read?, |address| self.connect_to(address));
        Ok(())
    }

    /// The first answer of any node. Primaries are asked before others, because there are
    /// connections to them.
    fn read_ranges(&self, without: Option<&NodeAddress>) -> Result<Vec<SlotRange>> {
        let deadline = Instant::now() + self.io_timeout();
        let connector = self.foreground.clone();
        let ask = move |node| slots_at(node, &connector);
        let mut last = Error::new(ErrorKind::Unreachable, "no node of the cluster answered within the I/O timeout");
        let mut candidates = &self.ordered_candidates(without)[..];
        while !candidates.is_empty() {
            let (now, later) = candidates.split_at(candidates.len().min(ASKED_AT_ONCE));
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = if later.is_empty() { left } else { left / 2 };
            let outcomes = ask_all("lh-cluster", now.to_vec(), ask.clone(), patience, |outcomes| {
                outcomes.iter().any(|(_, outcome)| outcome.is_ok())
            });
            for (_, outcome) in outcomes {
                match outcome {
                    Ok(ranges) => return Ok(ranges),
                    // A node that does not belong to a cluster is a better explanation than one
                    // that cannot be reached.
                    Err(e) if last.kind() == ErrorKind::Unreachable => last = e,
                    Err(_) => {}
                }
            }
            candidates = later;
        }
        Err(last)
    }

    fn ordered_candidates(&self, without: Option<&NodeAddress>) -> Vec<Candidate> {
        let known: HashMap<NodeAddress, Arc<Primary>> =
            self.map.read().primaries().into_iter().map(|primary| (primary.address.clone(), primary)).collect();
        let candidate = |address: NodeAddress| match known.get(&address) {
            Some(primary) => Candidate::Primary(primary.clone()),
            None => Candidate::Other(address),
        };
        let mut all: Vec<Candidate> = self.candidates(without).into_iter().map(candidate).collect();
        all.sort_by_key(|candidate| match candidate {
            Candidate::Primary(primary) => u8::from(!primary.server.pool.reached().0),
            Candidate::Other(_) => 2,
        });
        all
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

    /// Reads the map again if it is not fresh.
    pub(super) fn refresh_some_time(&self, seen: u64) {
        let is_due = self.refreshed.try_lock().is_some_and(|refreshed| refreshed.is_older_than(FRESH));
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

fn slots_at(node: Candidate, connector: &Connector) -> Result<Vec<SlotRange>> {
    let request = Request::plain(&["CLUSTER", "SLOTS"]);
    let (reply, address) = match node {
        Candidate::Primary(primary) => match primary.server.pool.call_over_open(request) {
            Ok(answer) => (fail_on_error(answer.reply)?, primary.address.clone()),
            Err(RedisFailure::NotSent(error) | RedisFailure::Unknown { error, .. }) => return Err(error),
        },
        Candidate::Other(address) => (connector.at(&address.host, address.port).ask_once(&request)?, address),
    };
    let ranges = slot_ranges(&reply, &address.host)?;
    if ranges.is_empty() { Err(Error::new(ErrorKind::NotReady, NO_SLOTS)) } else { Ok(ranges) }
}

fn address_of(seed: &Connector) -> Option<NodeAddress> {
    let (host, port) = seed.host_and_port()?;
    Some(NodeAddress { host: host.to_owned(), port })
}
