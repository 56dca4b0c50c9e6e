//! Which primary has which slot.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::topology::{NodeAddress, SlotRange};
use crate::base::node_status::NodeStatus;
use crate::store::redis::keys::Slot;
use crate::store::redis::server::Server;

const SLOTS: u16 = 16384;

#[derive(Debug)]
pub(super) struct Primary {
    pub(super) address: NodeAddress,
    pub(super) server: Server,
}

/// The destination of a request.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(super) primary: Arc<Primary>,
    /// The primary is importing the slot, and serves it only to a request with `ASKING`.
    pub(super) asking: bool,
    /// The version of the map that it comes from.
    pub(super) version: u64,
}

impl Route {
    pub(crate) fn server(&self) -> &Server {
        &self.primary.server
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.asking
    }

    /// Whether the same request would go to the same server.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.primary, &other.primary) && self.asking == other.asking
    }
}

/// A primary that is no longer in the map closes its connections when the last request that uses it
/// ends.
#[derive(Default)]
pub(super) struct SlotMap {
    owners: HashMap<Slot, Arc<Primary>>,
    primaries: BTreeMap<NodeAddress, Arc<Primary>>,
    replicas: Vec<NodeAddress>,
    /// How often the map was read from the nodes.
    pub(super) version: u64,
}

/// Without the individual slots.
impl std::fmt::Debug for SlotMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotMap")
            .field("primaries", &self.primaries.values())
            .field("replicas", &self.replicas)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl SlotMap {
    pub(super) fn route(&self, slot: Slot) -> Option<Route> {
        let primary = self.owners.get(&slot)?.clone();
        Some(Route { primary, asking: false, version: self.version })
    }

    pub(super) fn has(&self, slot: Slot, address: &NodeAddress) -> bool {
        self.owners.get(&slot).is_some_and(|primary| primary.address == *address)
    }

    pub(super) fn primary(&self, address: &NodeAddress) -> Option<Arc<Primary>> {
        self.primaries.get(address).cloned()
    }

    pub(super) fn primaries(&self) -> Vec<Arc<Primary>> {
        self.primaries.values().cloned().collect()
    }

    pub(super) fn add(&mut self, primary: Arc<Primary>) {
        self.primaries.insert(primary.address.clone(), primary);
    }

    pub(super) fn put(&mut self, slot: Slot, primary: Arc<Primary>) {
        self.owners.insert(slot, primary.clone());
        self.add(primary);
    }

    /// The addresses of all known nodes, primaries first.
    pub(super) fn addresses(&self) -> Vec<NodeAddress> {
        self.primaries.keys().chain(&self.replicas).cloned().collect()
    }

    /// Keeps the primaries that still exist, with their connections.
    pub(super) fn replace(
        &mut self,
        ranges: &[SlotRange],
        connect_to: impl Fn(&NodeAddress) -> Arc<Primary>,
    ) {
        let known = std::mem::take(&mut self.primaries);
        self.owners.clear();
        self.replicas.clear();
        for range in ranges {
            let primary = self.primaries.entry(range.primary.clone()).or_insert_with(|| {
                known.get(&range.primary).cloned().unwrap_or_else(|| connect_to(&range.primary))
            });
            let slots = (range.first..=range.last).filter_map(Slot::new);
            self.owners.extend(slots.map(|slot| (slot, primary.clone())));
            self.replicas.extend(range.replicas.iter().cloned());
        }
        self.version += 1;
    }

    pub(super) fn nodes(&self) -> Vec<NodeStatus> {
        let with_slots = |primary: &Arc<Primary>| NodeStatus {
            slots: self.slots_of(primary),
            ..primary.server.status()
        };
        self.primaries.values().map(with_slots).filter(|node| !node.slots.is_empty()).collect()
    }

    fn slots_of(&self, primary: &Arc<Primary>) -> Vec<RangeInclusive<u16>> {
        ranges(|slot| self.owners.get(&slot).is_some_and(|owner| Arc::ptr_eq(owner, primary)))
    }

    /// The slots without a primary.
    pub(super) fn without_primary(&self) -> Vec<RangeInclusive<u16>> {
        ranges(|slot| !self.owners.contains_key(&slot))
    }

    /// The primaries that have slots.
    pub(super) fn in_use(&self) -> Vec<NodeAddress> {
        self.primaries
            .values()
            .filter(|primary| !self.slots_of(primary).is_empty())
            .map(|p| p.address.clone())
            .collect()
    }
}

/// The slots that are meant, in as few ranges as possible.
fn ranges(is_meant: impl Fn(Slot) -> bool) -> Vec<RangeInclusive<u16>> {
    let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
    for number in (0..SLOTS).filter(|number| Slot::new(*number).is_some_and(&is_meant)) {
        match ranges.last_mut() {
            Some(range) if range.end() + 1 == number => *range = *range.start()..=number,
            _ => ranges.push(number..=number),
        }
    }
    ranges
}
