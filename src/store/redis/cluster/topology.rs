//! Reads the reply to `CLUSTER SLOTS`.

use crate::base::error::{Error, ErrorKind, Result};
use crate::store::redis::wire::Reply;

/// Host and port of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NodeAddress {
    pub(super) host: String,
    pub(super) port: u16,
}

/// A range of slots with the nodes that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) primary: NodeAddress,
    pub(super) replicas: Vec<NodeAddress>,
}

impl NodeAddress {
    /// Reads `host:port` from a redirect. A missing host means that of the node that sent it.
    pub(super) fn parse(text: &str, sender: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok()?;
        Some(Self { host: known_host(host, sender), port })
    }
}

/// A node that does not know its own host name sends an empty one, or `?`.
fn known_host(host: &str, sender: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || host == "?" { sender.to_owned() } else { host.to_owned() }
}

/// `sender`: the host of the node that replied.
pub(super) fn slot_ranges(reply: &Reply, sender: &str) -> Result<Vec<SlotRange>> {
    let Reply::Array(ranges) = reply else { return Err(unexpected(reply)) };
    ranges.iter().map(|range| slot_range(range, sender).ok_or_else(|| unexpected(range))).collect()
}

fn slot_range(range: &Reply, sender: &str) -> Option<SlotRange> {
    let Reply::Array(parts) = range else { return None };
    let [Reply::Int(first), Reply::Int(last), primary, replicas @ ..] = &parts[..] else {
        return None;
    };
    let slot = |number: i64| u16::try_from(number).ok();
    Some(SlotRange {
        first: slot(*first)?,
        last: slot(*last)?,
        primary: node(primary, sender)?,
        // A replica with an unknown address is only one node fewer to ask.
        replicas: replicas.iter().filter_map(|replica| node(replica, sender)).collect(),
    })
}

fn node(node: &Reply, sender: &str) -> Option<NodeAddress> {
    let Reply::Array(parts) = node else { return None };
    let host = match parts.first()? {
        Reply::Bytes(host) => std::str::from_utf8(host).ok()?,
        Reply::Nil => "",
        _ => return None,
    };
    let Reply::Int(port) = parts.get(1)? else { return None };
    Some(NodeAddress { host: known_host(host, sender), port: u16::try_from(*port).ok()? })
}

#[cold]
fn unexpected(reply: &Reply) -> Error {
    Error::new(ErrorKind::Protocol, format!("CLUSTER SLOTS answered {reply:?}"))
}

#[cfg(test)]
#[path = "topology_tests.rs"]
mod tests;
