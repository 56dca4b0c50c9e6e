//! What a multi-lock over several nodes knows about those that cannot be asked.
//!
//! A multi-lock takes its names one node after the other, so a node that hangs would keep the names
//! at the others taken for an I/O timeout, again and again, and nobody else could have them. So the
//! first call that finds a node away records it for all. From then on that node is asked *first*,
//! before anything is taken elsewhere; and a call that leads the local queue of a name does not ask
//! at all, because others wait behind it for that name alone. The record is removed by the answer
//! to such a request, so a node that is back costs one of them.

use super::nodes::Cluster;
use super::records::Place;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::redis::keys::Slot;

impl Cluster {
    /// Why the slot could not be asked, if nothing has changed since.
    pub(crate) fn away(&self, slot: Slot) -> Option<Error> {
        let away = self.away.0.lock();
        if away.is_empty() {
            return None;
        }
        let at_node =
            self.address_of_slot(slot).and_then(|address| away.get(&Place::Node(address)));
        at_node.or_else(|| away.get(&Place::Slot(slot))).cloned()
    }

    /// Sends a request of a multi-lock for this slot, and records whether it could be asked.
    pub(crate) fn ask_part<T>(&self, slot: Slot, ask: impl FnOnce() -> Result<T>) -> Result<T> {
        // Before the request, during which another node may get the slot.
        let address = self.address_of_slot(slot);
        let outcome = ask();
        let mut away = self.away.0.lock();
        match &outcome {
            Err(e) if e.kind().is_outage() => {
                let is_silent = matches!(e.kind(), ErrorKind::Unreachable | ErrorKind::Protocol);
                let place = address.filter(|_| is_silent).map_or(Place::Slot(slot), Place::Node);
                away.insert(place, e.clone());
            }
            _ if !away.is_empty() => {
                away.remove(&Place::Slot(slot));
                address.map(|address| away.remove(&Place::Node(address)));
            }
            _ => {}
        }
        outcome
    }
}
