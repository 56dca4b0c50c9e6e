//! Curator's layout: the path of a name, the names of the nodes in it, and their order.
//!
//! | what | node |
//! |---|---|
//! | mutex, fair lock | `<path>/_c_<uuid>-lock-<sequence>` |
//! | writer, reader | `<path>/_c_<uuid>-__WRIT__<sequence>`, `<path>/_c_<uuid>-__READ__<sequence>` |
//! | semaphore: turn, permit | `<path>/locks/_c_<uuid>-lock-<sequence>`, `<path>/leases/_c_<uuid>-lease-<sequence>` |
//! | number of permits | `<path>/permits` |
//! | latch | `<path>` itself |
//! | lease of a job (a lock), what was last, its occurrences | `leasehold_job:{name}`, `leasehold_last:{name}`, `leasehold_done:{name}/<occurrence>` |
//! | gate of a session | `<chroot>/leasehold-sessions/session-<sequence>` |
//! | change of a count, until its answer is read | `<chroot>/leasehold-sessions/once-<uuid>` |
//!
//! The sequence is the number of children ever made in the directory, with ten digits.

use crate::base::error::{Result, invalid};
use crate::base::holder::Holder;
use crate::base::lock_name::Kind;

const LOCK: &str = "lock-";
const READ: &str = "__READ__";
const WRITE: &str = "__WRIT__";
const LEASE: &str = "lease-";

/// The directories of a semaphore, and the node with its number of permits.
const LOCKS: &str = "locks";
const LEASES: &str = "leases";
const PERMITS: &str = "permits";

/// The directory of the [gates](super::gate), and the prefix of a gate.
pub(super) const GATES: &str = "leasehold-sessions";
pub(super) const GATE: &str = "session-";

/// The prefix of the node that shows that a change of a count has run.
const MARK: &str = "once-";

/// The prefix of a node that its maker can find again.
const PROTECTED: &str = "_c_";

/// From this sequence number on a warning is logged.
pub(super) const MOST_SEQUENCE: i64 = 2_000_000_000;

/// From this sequence number on the order is wrong for everybody: the server keeps the number in 32
/// bits, assigns this one several times, and then negative ones.
pub(super) const LAST_SEQUENCE: i64 = i32::MAX as i64;

/// The paths of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Paths {
    /// The directory of a lock; the node of a latch.
    pub(super) base: String,
    pub(super) locks: String,
    pub(super) leases: String,
    pub(super) permits: String,
}

impl Paths {
    /// `chroot`: without a slash at its end; empty for none.
    pub(super) fn new(chroot: &str, key: &str) -> Self {
        let base = format!("{chroot}/{}", key.strip_prefix('/').unwrap_or(key));
        let below = |name| format!("{base}/{name}");
        Self { locks: below(LOCKS), leases: below(LEASES), permits: below(PERMITS), base }
    }

    /// The directory with the nodes of a lock that decide whose turn it is.
    pub(super) fn queue(&self, kind: Kind) -> &str {
        if kind == Kind::Semaphore { &self.locks } else { &self.base }
    }
}

/// Whether the store can hold the name, and which element is wrong if not.
pub(super) fn check(key: &str) -> Result<()> {
    if matches!(last_of(key), LOCKS | LEASES) {
        return refuse("must not end with the element 'locks' or 'leases', which a semaphore has");
    }
    check_path(key)
}

#[cold]
fn refuse(why: &str) -> Result<()> {
    Err(invalid(format!("a lock name over ZooKeeper {why}")))
}

/// The rules that a path and a name have in common.
pub(super) fn check_path(key: &str) -> Result<()> {
    let path = key.strip_prefix('/').unwrap_or(key);
    for (place, element) in path.split('/').enumerate() {
        match element {
            "" => {
                return refuse("is a path: it must not have an empty element or a '/' at its end");
            }
            "." | ".." => return refuse("must not have the element '.' or '..'"),
            "zookeeper" if place == 0 => {
                return refuse("must not begin with 'zookeeper', which is the server's own");
            }
            GATES if place == 0 => {
                return refuse("must not begin with 'leasehold-sessions', which is this library's");
            }
            _ if element.starts_with(PROTECTED) => {
                return refuse(
                    "must not have an element that begins with '_c_', which marks the nodes of holders",
                );
            }
            _ => {}
        }
    }
    // What lies above U+FFFF is two characters in Java, of which the server accepts neither.
    let is_bad =
        |c: char| c.is_control() || c >= '\u{fff0}' || ('\u{e000}'..='\u{f8ff}').contains(&c);
    match path.chars().find(|&c| is_bad(c)) {
        None => Ok(()),
        Some(bad) => refuse(&format!(
            "must not have {bad:?}: ZooKeeper takes no control characters, no emoji or others above U+FFEF, and none \
             for private use"
        )),
    }
}

/// The id by which a holder's nodes are found again: a UUID of version 8, derived from the holder
/// so that a repeated request has the same one. `number`: that of the permit, otherwise 0.
pub(super) fn protection_id(holder: &Holder, number: u32) -> String {
    id_from(holder.as_str(), number)
}

/// The id for a node with this text of a holder.
pub(super) fn id_from(text: &str, number: u32) -> String {
    match text.split_once(':') {
        // The first half identifies the client, the second the acquisition.
        Some((client, count)) => {
            let count =
                count.parse::<u64>().unwrap_or(0) & 0x3fff_ffff_ffff_ffff | 0x8000_0000_0000_0000;
            let second = format!("{count:016x}");
            format!("{}-{}-{}", &client[..18], &second[..4], &second[4..])
        }
        // 96 random bits, and the number of the permit.
        None => {
            debug_assert_eq!(text.len(), 24, "{text}");
            let variant = 0x8000 | (number & 0x3fff);
            format!(
                "{}-{}-8{}-{variant:04x}-{}{}",
                &text[..8],
                &text[8..12],
                &text[12..15],
                &text[15..24],
                "000"
            )
        }
    }
}

/// The name of a holder's node, without the sequence that the server appends.
pub(super) fn node_prefix(kind: Kind, id: &str) -> String {
    let mark = match kind {
        Kind::Read => READ,
        Kind::Write => WRITE,
        _ => LOCK,
    };
    format!("{PROTECTED}{id}-{mark}")
}

pub(super) fn lease_prefix(id: &str) -> String {
    format!("{PROTECTED}{id}-{LEASE}")
}

/// The node of a reader that was the writer of this node.
pub(super) fn downgraded(id: &str, write_node: &str) -> String {
    format!("{PROTECTED}{id}-{READ}{}", sort_key(Kind::Write, write_node))
}

/// The mark of a change of a count, in the directory of the gates.
pub(super) fn mark(gates: &str, id: &str) -> String {
    format!("{gates}/{MARK}{}", id_from(id, 0))
}

/// Whether the node is that of the holder with this id.
pub(super) fn is_of(node: &str, id: &str) -> bool {
    node.strip_prefix(PROTECTED)
        .and_then(|rest| rest.strip_prefix(id))
        .is_some_and(|rest| rest.starts_with('-'))
}

/// The id in a node's name, if it has one.
pub(super) fn id_of(node: &str) -> Option<&str> {
    node.strip_prefix(PROTECTED)?.get(..36)
}

/// Whether this library made the node: no other program has ids of version 8.
pub(super) fn is_ours(node: &str) -> bool {
    id_of(node).is_some_and(|id| id.as_bytes()[14] == b'8')
}

pub(super) fn is_write(node: &str) -> bool {
    node.contains(WRITE)
}

pub(super) fn is_read(node: &str) -> bool {
    !is_write(node) && node.contains(READ)
}

/// The last part of a path.
pub(super) fn last_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The part of a node's name by which it is sorted: what follows the last mark, as in Curator; for
/// a name without a mark, all of it.
fn sort_key(kind: Kind, node: &str) -> &str {
    let after = |text: &'_ str, mark: &str| text.rfind(mark).map(|at| at + mark.len());
    match kind {
        Kind::Read | Kind::Write => {
            let node = after(node, READ).map_or(node, |at| &node[at..]);
            after(node, WRITE).map_or(node, |at| &node[at..])
        }
        _ => after(node, LOCK).map_or(node, |at| &node[at..]),
    }
}

/// The sequence number of a node, if it has one.
pub(super) fn sequence(kind: Kind, node: &str) -> Option<i64> {
    sort_key(kind, node).parse().ok()
}

/// In the order of their turns.
pub(super) fn sorted(kind: Kind, mut nodes: Vec<String>) -> Vec<String> {
    nodes.sort_by(|a, b| sort_key(kind, a).cmp(sort_key(kind, b)));
    nodes
}

/// Whose turn it is, for the node at `own` in a sorted list: its own (`None`), or which node it has
/// to wait for.
pub(super) fn predecessor(kind: Kind, nodes: &[String], own: usize) -> Option<&str> {
    let before = &nodes[..own];
    let blocker = match kind {
        Kind::Read => before.iter().rfind(|node| is_write(node)),
        _ => before.last(),
    };
    blocker.map(String::as_str)
}

/// Whether a node that is made now would have to wait.
pub(super) fn keeps_out(kind: Kind, mut nodes: Vec<String>) -> bool {
    // Behind all numbers, and before the nodes of others that are sorted after numbers.
    let newcomer = format!("{}{}", node_prefix(kind, ""), "9".repeat(10));
    nodes.push(newcomer.clone());
    let nodes = sorted(kind, nodes);
    let own = nodes.iter().rposition(|node| *node == newcomer).expect("it was put there");
    predecessor(kind, &nodes, own).is_some()
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
