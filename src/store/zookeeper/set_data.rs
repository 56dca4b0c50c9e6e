//! The data of a hold, in its own node. The node is made with it and ends with the session, so
//! nothing is known of a holder that is gone.

use super::data::{Written, split};
use super::inspect::Unreadable;
use super::queue::{Recency, TRIES, ZooKeeperResult, busy_directory, certain, data_in};
use super::wire::{Code, Request};
use super::{ZooKeeperStore, names};
use crate::base::data::HoldData;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lock_name::LockName;
use crate::store::{DataStore, LastHold};

impl ZooKeeperStore {
    /// Reads a node, and writes it if nobody has done so since: a change that runs late finds
    /// another version, and one whose holder is gone finds no node. `change` makes the new content
    /// from the text and what is behind it, or `None` if nothing has to be written. False: there is
    /// no node.
    fn change_node(
        &self,
        path: &str,
        change: impl Fn(&[u8], Option<Written<'_>>) -> Option<Vec<u8>>,
    ) -> ZooKeeperResult<bool> {
        for _ in 0..TRIES {
            let exchange = self.ask(&[Request::get_data(path, false)])?;
            let Some((bytes, stat)) = data_in(&exchange.replies[0], path)? else {
                return Ok(false);
            };
            let (text, written) = split(&bytes);
            let Some(bytes) = change(text, written) else { return Ok(true) };
            let set = Request::set_data(path, &bytes, stat.version);
            match self.ask(&[set])?.replies[0].code {
                Code::OK => return Ok(true),
                Code::NO_NODE => return Ok(false),
                // Somebody else has changed it.
                Code::BAD_VERSION => {}
                code => return Err(certain(code.to_error(path))),
            }
        }
        Err(certain(busy_directory(path)))
    }

    /// The node of the holder that has the lock, if it has data.
    fn node_with_data(&self, name: &LockName) -> ZooKeeperResult<Option<String>> {
        let directory = &self.paths(name).base;
        let list = names::sorted(name.kind, self.list(directory, Recency::Any)?);
        let first = &list[..list.len().min(1)];
        let places = self.places(directory, first, Unreadable::Fails)?;
        let has_data = places.first().is_some_and(|place| place.data.is_some());
        Ok(first.first().filter(|_| has_data).map(|node| format!("{directory}/{node}")))
    }

    /// How often somebody has asked for each of these nodes; 0 if that cannot be read now, because
    /// nothing depends on it.
    pub(super) fn asked_for(&self, paths: &[&str]) -> Vec<u64> {
        if paths.is_empty() {
            return Vec::new();
        }
        let looks: Vec<_> = paths.iter().map(|path| Request::get_data(path, false)).collect();
        let exchange = self.ask(&looks).ok();
        let asked = |(place, path): (usize, &&str)| {
            let (bytes, _) = data_in(exchange.as_ref()?.replies.get(place)?, path).ok()??;
            split(&bytes).1.map(|written| written.asked)
        };
        paths.iter().enumerate().map(|path| asked(path).unwrap_or(0)).collect()
    }
}

impl DataStore for ZooKeeperStore {
    fn set_data(
        &self,
        name: &LockName,
        holder: &Holder,
        number: u64,
        data: &HoldData,
    ) -> Result<bool> {
        self.looked(|| {
            let Some(node) = self.node_of(name, holder).filter(|node| node.granted) else {
                return Ok(false);
            };
            self.change_node(&node.path, |text, written| match written {
                Some(written) if written.number >= number => None,
                written => {
                    let asked = written.map_or(0, |written| written.asked);
                    Some(Written { number, asked, data: data.bytes() }.behind(text))
                }
            })
        })
    }

    fn ask_for(&self, name: &LockName) -> Result<bool> {
        self.looked(|| {
            let Some(node) = self.node_with_data(name)? else { return Ok(false) };
            self.change_node(&node, |text, written| {
                let written = written?;
                Some(Written { asked: written.asked + 1, ..written }.behind(text))
            })
        })
    }

    fn last_hold(&self, _name: &LockName) -> Result<Option<LastHold>> {
        let why = "in ZooKeeper nothing is left of a session that has ended, so nobody can say who had a lock last";
        Err(Error::new(ErrorKind::Unsupported, why))
    }
}
