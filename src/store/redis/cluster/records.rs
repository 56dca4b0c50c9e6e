//! What a client remembers of a cluster besides the map of its slots.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::topology::{NodeAddress, SlotRange};
use crate::base::error::{Error, Result};
use crate::base::random::Backoff;
use crate::store::redis::keys::Slot;

/// The map is not read more often than this, no matter how many requests find it wrong.
pub(super) const REFRESH_PAUSE: Duration = Duration::from_millis(50);
/// The pause grows to this while reads because of a node that fails find the map as it was.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// When the map was read, and what was found.
#[derive(Debug)]
pub(super) struct LastRead {
    pub(super) at: Option<Instant>,
    /// Which primary had which slots; none after a failure.
    owners: Vec<(u16, u16, NodeAddress)>,
    /// The pause before another read because of a node that fails.
    pub(super) pause: Duration,
    /// Why the map could not be read.
    pub(super) trouble: Option<Error>,
    pauses: Backoff,
}

impl LastRead {
    pub(super) fn none() -> Self {
        let pauses = Backoff::new(2 * REFRESH_PAUSE, LONGEST_PAUSE);
        Self { at: None, owners: Vec::new(), pause: REFRESH_PAUSE, trouble: None, pauses }
    }

    pub(super) fn note(&mut self, read: &Result<Vec<SlotRange>>) {
        self.at = Some(Instant::now());
        self.trouble = read.as_ref().err().cloned();
        // Without the replicas, which each node lists in an order of its own.
        let owners = |ranges: &[SlotRange]| {
            ranges.iter().map(|r| (r.first, r.last, r.primary.clone())).collect::<Vec<_>>()
        };
        let owners = read.as_deref().ok().map(owners);
        let is_new = owners.as_ref().is_some_and(|owners| *owners != self.owners);
        if is_new {
            self.pauses.reset();
        }
        self.pause = if is_new { REFRESH_PAUSE } else { self.pauses.next() };
        self.owners = owners.unwrap_or_default();
    }
}

/// For each place that could not be asked, the last error. At most one entry for each node and
/// slot.
#[derive(Debug, Default)]
pub(super) struct AwayPlaces(pub(super) Mutex<HashMap<Place, Error>>);

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Node(NodeAddress),
    /// Its node answers, and cannot serve this slot: it is half moved, or has no primary.
    Slot(Slot),
}
