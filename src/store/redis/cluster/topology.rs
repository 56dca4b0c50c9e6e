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
mod tests {
    use super::*;
    use crate::base::fuzz_tests::fuzz;
    use crate::store::redis::wire::fuzz_tests::{any, read, sent};

    fn text(text: &str) -> Reply {
        Reply::Bytes(text.as_bytes().to_vec())
    }

    fn at(host: Reply, port: i64) -> Reply {
        Reply::Array(vec![
            host,
            Reply::Int(port),
            text("id"),
            Reply::Array(vec![text("hostname"), text("h")]),
        ])
    }

    #[test]
    fn a_range_has_a_primary_and_replicas() {
        let range = |primary, replicas: Vec<Reply>| {
            Reply::Array([vec![Reply::Int(0), Reply::Int(5460), primary], replicas].concat())
        };
        let address = |host: &str, port| NodeAddress { host: host.to_owned(), port };
        let reply = Reply::Array(vec![
            range(at(text("10.0.0.1"), 7000), vec![at(text("::1"), 7003)]),
            range(at(Reply::Nil, 7001), vec![at(text("?"), 7004), Reply::Nil]),
        ]);
        let ranges = slot_ranges(&reply, "asked").unwrap();
        assert_eq!((ranges[0].first, ranges[0].last), (0, 5460));
        assert_eq!(
            (&ranges[0].primary, &ranges[0].replicas[..]),
            (&address("10.0.0.1", 7000), &[address("::1", 7003)][..])
        );
        assert_eq!(
            (&ranges[1].primary, &ranges[1].replicas[..]),
            (&address("asked", 7001), &[address("asked", 7004)][..])
        );
        for bad in [
            Reply::Nil,
            Reply::Array(vec![Reply::Int(1)]),
            Reply::Array(vec![range(Reply::Nil, Vec::new())]),
        ] {
            assert_eq!(slot_ranges(&bad, "asked").unwrap_err().kind(), ErrorKind::Protocol);
        }
    }

    #[test]
    fn a_redirect_may_lack_the_host() {
        let parse =
            |text| NodeAddress::parse(text, "asked").map(|address| (address.host, address.port));
        assert_eq!(parse("10.0.0.1:7000"), Some(("10.0.0.1".to_owned(), 7000)));
        assert_eq!(parse("::1:7000"), Some(("::1".to_owned(), 7000)));
        assert_eq!(parse(":7000"), Some(("asked".to_owned(), 7000)));
        assert_eq!(parse("nowhere"), None);
        assert_eq!(parse("host:99999"), None);
    }

    #[test]
    fn fuzzed_answers_are_maps_or_errors() {
        fuzz(
            |dice| {
                let host = Reply::Bytes(dice.text().into_bytes());
                let nodes = [at(host, dice.number()), at(text("h"), 7000)];
                let range =
                    [vec![Reply::Int(dice.number()), Reply::Int(dice.number())], nodes.to_vec()]
                        .concat();
                sent(&Reply::Array(vec![Reply::Array(range), any(dice, 2)]))
            },
            |bytes, _| {
                for reply in read(bytes) {
                    if let Err(error) = slot_ranges(&reply, "asked") {
                        assert_eq!(error.kind(), ErrorKind::Protocol);
                    }
                }
                let _ = NodeAddress::parse(&String::from_utf8_lossy(bytes), "asked");
            },
        );
    }
}
