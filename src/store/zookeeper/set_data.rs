//! The data of a hold, in its own node. The node is made with it and ends with the session, so
//! nothing is known of a holder that is gone.

use super::ZooKeeperStore;
use super::data::{split, with_data};
use super::queue::{TRIES, ZooKeeperResult, busy_directory, certain, data_in};
use super::wire::{Code, Request};
use crate::base::data::HoldData;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lock_name::LockName;
use crate::store::{DataStore, LastHold};

impl ZooKeeperStore {
    /// Reads the node, and writes it if nobody has done so since: a change that runs late finds
    /// another version, and one whose holder is gone finds no node.
    fn change_data(
        &self,
        name: &LockName,
        holder: &Holder,
        number: u64,
        data: &HoldData,
    ) -> ZooKeeperResult<bool> {
        for _ in 0..TRIES {
            let Some(node) = self.node_of(name, holder).filter(|node| node.granted) else {
                return Ok(false);
            };
            let exchange = self.ask(&[Request::get_data(&node.path, false)])?;
            let Some((bytes, stat)) = data_in(&exchange.replies[0], &node.path)? else {
                return Ok(false);
            };
            let (text, written) = split(&bytes);
            if written.is_some_and(|(last, _)| last >= number) {
                return Ok(true);
            }
            let bytes = with_data(text.to_vec(), number, data);
            let set = self.ask(&[Request::set_data(&node.path, &bytes, stat.version)])?;
            match set.replies[0].code {
                Code::OK => return Ok(true),
                Code::NO_NODE => return Ok(false),
                // Another thread of this client has changed it.
                Code::BAD_VERSION => {}
                code => return Err(certain(code.to_error(&node.path))),
            }
        }
        Err(certain(busy_directory(&self.paths(name).base)))
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
        self.looked(|| self.change_data(name, holder, number, data))
    }

    fn last_hold(&self, _name: &LockName) -> Result<Option<LastHold>> {
        let why = "in ZooKeeper nothing is left of a session that has ended, so nobody can say who had a lock last";
        Err(Error::new(ErrorKind::Unsupported, why))
    }
}
