//! What a diagnosis finds out about a cluster as a whole.

use super::nodes::Cluster;
use crate::report::diagnosis::{Check, Finding};
use crate::store::redis::wire::Connector;

/// Maximum number of slot ranges that are listed.
const SHOWN: usize = 5;

impl Cluster {
    /// Reads the map again, and reports whether each slot has a primary. Also returns how to
    /// connect to each of the primaries; if no node reports them, to the known nodes.
    pub(crate) fn examine(&self) -> (Vec<Finding>, Vec<Connector>) {
        if let Err(e) = self.refresh(self.version(), None) {
            let found = format!("no node reports which primary has which slot: {}", e.message());
            let finding = Finding::problem(Check::Slots, found)
                .advise("name a node that can be reached, of a cluster that was created (redis-cli --cluster create)");
            let connectors =
                self.candidates(None).iter().map(|address| self.connector_at(address)).collect();
            return (vec![finding], connectors);
        }
        let (primaries, missing) = {
            let map = self.map.read();
            (map.in_use(), map.without_primary())
        };
        let finding = if missing.is_empty() {
            Finding::ok(Check::Slots, format!("{} primaries have all slots", primaries.len()))
        } else {
            let mut shown: Vec<String> = missing
                .iter()
                .take(SHOWN)
                .map(|range| format!("{}-{}", range.start(), range.end()))
                .collect();
            if missing.len() > SHOWN {
                shown.push(format!("{} more ranges", missing.len() - SHOWN));
            }
            let found = format!(
                "no primary has the slots {}: names there cannot be locked",
                shown.join(", ")
            );
            Finding::problem(Check::Slots, found).advise(
                "bring their primary back, or give them to another (redis-cli --cluster fix)",
            )
        };
        (vec![finding], primaries.iter().map(|address| self.connector_at(address)).collect())
    }
}
