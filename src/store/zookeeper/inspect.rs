//! Looking at locks: who has one, and who waits.

use super::queue::{Recency, ZooKeeperResult, data_in};
use super::wire::{Code, Request};
use super::{ZooKeeperStore, data, names};
use crate::base::data::HoldData;
use crate::base::error::Result;
use crate::base::lock_name::{Kind, LockName};
use crate::report::owner::HolderOwner;
use crate::store::{LockStatus, QueueStore};

/// Maximum number of holders whose ids are read.
const MOST_HOLDERS: usize = 1000;

/// What to do about nodes of holders and waiters that the user may not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// For a list of all names, which one such node must not end. The name of the node has an id.
    HasAnId,
    Fails,
}

/// A node of a holder or a waiter, in order.
pub(super) struct ListedPlace {
    pub(super) id: String,
    owner: Option<HolderOwner>,
    pub(super) data: Option<HoldData>,
    /// The number of the change that made the node; 0 if the node may not be read.
    pub(super) czxid: i64,
}

impl QueueStore for ZooKeeperStore {
    /// In a queue of ZooKeeper the holder is the first entry.
    fn queue_of(&self, name: &LockName, _client: &str) -> Result<(usize, Option<usize>)> {
        let list = self.looked(|| self.list(&self.paths(name).base, Recency::Any))?;
        let list = names::sorted(name.kind, list);
        let own = self.nodes.waiting(name);
        let is_own = |node: &String| own.iter().any(|path| names::last_of(path) == node);
        let place = list.iter().position(is_own).map(|at| at.saturating_sub(1));
        Ok((list.len().saturating_sub(1), place))
    }
}

impl ZooKeeperStore {
    pub(super) fn holders_of(&self, name: &LockName) -> ZooKeeperResult<Option<LockStatus>> {
        let paths = self.paths(name);
        let directory = if name.kind == Kind::Semaphore { &paths.leases } else { &paths.base };
        let list = names::sorted(name.kind, self.list(directory, Recency::Any)?);
        let nodes = if name.kind == Kind::Semaphore {
            &list[..]
        } else {
            Self::holders_in(name.kind, &list)
        };
        let nodes = &nodes[..nodes.len().min(MOST_HOLDERS)];
        let places = self.places(directory, nodes, Unreadable::Fails)?;
        if places.is_empty() {
            return Ok(None);
        }
        let owners = owners_of(&places);
        let data = match &places[..] {
            [only] => only.data.clone(),
            _ => None,
        };
        let holders = places.into_iter().map(|place| (place.id, 1)).collect();
        // Only the server knows when a session that nobody renews ends.
        Ok(Some(LockStatus { ttl: None, holders, owners, data }))
    }

    /// Whose these nodes are, without nodes that are gone by now.
    pub(super) fn places(
        &self,
        directory: &str,
        nodes: &[String],
        unreadable: Unreadable,
    ) -> ZooKeeperResult<Vec<ListedPlace>> {
        if nodes.is_empty() {
            return Ok(Vec::new());
        }
        let looks: Vec<Request> = nodes
            .iter()
            .map(|node| Request::get_data(&format!("{directory}/{node}"), false))
            .collect();
        let exchange = self.ask(&looks)?;
        let mut places = Vec::with_capacity(nodes.len());
        for (reply, node) in exchange.replies.iter().zip(nodes) {
            let mut czxid = 0;
            let data = match reply.code {
                Code::NO_AUTH if unreadable == Unreadable::HasAnId => Vec::new(),
                _ => match data_in(reply, directory)? {
                    Some((data, stat)) => {
                        czxid = stat.czxid;
                        data
                    }
                    None => continue,
                },
            };
            let (text, data) = data::split(&data);
            let id = holder_in(text, node);
            let owner = owner_in(text, &id);
            // Only a client of this crate writes data.
            let is_own = text.starts_with(id.as_bytes());
            let data = data.filter(|_| is_own).map(|written| HoldData::new(written.data));
            let id = if names::is_write(node) { format!("{id}:write") } else { id };
            places.push(ListedPlace { id, owner, data, czxid });
        }
        Ok(places)
    }
}

pub(super) fn owners_of<'p>(
    places: impl IntoIterator<Item = &'p ListedPlace>,
) -> Vec<(String, HolderOwner)> {
    places.into_iter().filter_map(|place| Some((place.id.clone(), place.owner.clone()?))).collect()
}

/// The id of a holder: what a client of this crate wrote into its node, otherwise the id in the
/// node's name, or else the whole name.
pub(super) fn holder_in(data: &[u8], node: &str) -> String {
    let text = std::str::from_utf8(data).ok().and_then(|text| text.split(' ').next());
    let is_own = |text: &&str| {
        let is_holder = text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
            || text.split_once(':').is_some_and(|(client, number)| {
                client.len() == 36
                    && client.is_ascii()
                    && number.bytes().all(|byte| byte.is_ascii_digit())
            });
        // The id of a permit contains its number.
        let number =
            names::id_of(node).and_then(|id| u32::from_str_radix(id.get(19..23)?, 16).ok());
        is_holder && names::is_of(node, &names::id_from(text, number.unwrap_or(0) & 0x3fff))
    };
    let id = text.filter(is_own).or_else(|| names::id_of(node)).unwrap_or(node);
    id.to_owned()
}

/// The owner of the holder, if a client of this crate wrote it into its node.
pub(super) fn owner_in(data: &[u8], holder: &str) -> Option<HolderOwner> {
    let (line, _thread) = std::str::from_utf8(data).ok()?.split_once('\n')?;
    // Parsed from the end, because a label may contain any words.
    let (front, host) = line.strip_prefix(holder)?.strip_prefix(' ')?.rsplit_once(" on ")?;
    let (label, pid) = front.rsplit_once(" pid ")?;
    HolderOwner::read(label, pid, host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::holder::ClientId;
    use std::time::Duration;

    #[test]
    fn a_holder_is_known_by_its_data_if_that_fits_its_node() {
        let holder = ClientId::random(Duration::from_secs(5)).fresh_holder();
        let node = format!(
            "{}0000000001",
            names::node_prefix(Kind::Mutex, &names::protection_id(&holder, 0))
        );
        let data = format!("{} name pid 1", holder.as_str());
        assert_eq!(holder_in(data.as_bytes(), &node), holder.as_str());
        let java = "_c_6c1d4dfc-7a43-4e2c-9a9a-0d3e1e1d2c3b-lock-0000000002";
        assert_eq!(holder_in(b"192.168.0.1", java), &java[3..39]);
        assert_eq!(holder_in(data.as_bytes(), java), &java[3..39], "copied data");
        assert_eq!(holder_in(b"\xff", "mine-lock-1"), "mine-lock-1");
        assert_eq!(owner_in(data.as_bytes(), holder.as_str()), None, "no host");
    }

    #[test]
    fn an_owner_is_read_from_the_data_of_a_node() {
        let read = |data: &str| owner_in(data.as_bytes(), "h:1").map(|owner| owner.to_string());
        assert_eq!(
            read("h:1 billing pid 7 on host-a\nthread main").unwrap(),
            "billing (pid 7 on host-a)"
        );
        let odd = "h:1 a pid 1 on b pid 7 on host-a\nthread works on it pid 3 on x";
        assert_eq!(read(odd).unwrap(), "a pid 1 on b (pid 7 on host-a)");
        for other in [
            "",
            "h:1",
            "h:1 x",
            "h:2 a pid 7 on h\nthread t",
            "h:1 a pid x on h\nthread t",
            "192.168.0.1",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
