//! The semaphore, as Curator's `InterProcessSemaphoreV2`: who wants permits takes its turn in
//! `locks`, makes a node for each permit in `leases`, and has them once there are no more nodes in
//! there than permits. Then the next one takes its turn.

use super::client::Watch;
use super::nodes::Node;
use super::queue::{Asked, Standing, TRIES, busy_directory, certain, created_in, unsettled};
use super::wire::{Code, Mode, Reply, Request};
use super::{ZooKeeperStore, names};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lock_name::LockName;
use crate::store::{Acquire, Acquired, Granted, Release, Released, Topic, UnknownOutcomes, Waiting};

/// A count: four bytes, as Curator's `SharedCount`. `None`: there is no such node.
pub(super) fn count_in(reply: &Reply, path: &str) -> Asked<Option<(i64, super::wire::Stat)>> {
    match reply.code {
        Code::OK => {}
        Code::NO_NODE => return Ok(None),
        code => return Err(certain(code.to_error(path))),
    }
    let (data, stat) = reply.data().map_err(certain)?;
    let bytes: [u8; 4] = data.try_into().map_err(|_| {
        let why = format!("the node {path} has no count of four bytes: something else uses the name");
        certain(Error::new(ErrorKind::WrongType, why))
    })?;
    Ok(Some((i32::from_be_bytes(bytes).into(), stat)))
}

impl ZooKeeperStore {
    pub(super) fn acquire_permits(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired> {
        let Acquire { name, holder, waiting, .. } = *acquire;
        let outcome = self.try_permits(acquire, unknowns);
        let stays = match &outcome {
            Ok(Acquired::Granted(_)) => true,
            Ok(Acquired::Busy { .. }) => waiting != Waiting::No,
            Ok(_) => false,
            Err(failure) => {
                waiting != Waiting::No
                    && !matches!(failure, super::client::Failure::NotSent(e) if !e.kind().is_outage())
            }
        };
        if !stays {
            self.leave_later(name, holder);
        }
        self.note(outcome, unknowns)
    }

    fn try_permits(&self, acquire: &Acquire<'_>, unknowns: &UnknownOutcomes) -> Asked<Acquired> {
        let Acquire { name, holder, .. } = *acquire;
        let sent_at = self.client.now();
        if let Some(node) = self.node_of(name, holder).filter(|node| node.granted) {
            return Ok(Acquired::Granted(permits_granted(&node, sent_at)));
        }
        let (mut node, mut list) = self.place(name, holder, unknowns)?;
        for _ in 0..TRIES {
            match self.standing(name.kind, list, &node) {
                Standing::First => {
                    self.find_permits(acquire, &node, unknowns)?;
                    return self.take_permits(acquire, sent_at);
                }
                Standing::Behind(_) if acquire.waiting == Waiting::No => return Ok(self.busy()),
                Standing::Behind(before) => match self.watch(name, holder, &before)? {
                    true => return Ok(self.busy()),
                    false => list = self.list(&self.paths(name).locks, false)?,
                },
                Standing::Gone => {
                    self.leave_later(name, holder);
                    (node, list) = self.enter(name, holder)?;
                }
            }
        }
        Err(certain(busy_directory(&self.paths(name).locks)))
    }

    /// After a request of unknown outcome: the nodes that it has made.
    fn find_permits(&self, acquire: &Acquire<'_>, node: &Node, unknowns: &UnknownOutcomes) -> Asked<()> {
        if unsettled(unknowns).is_none() || !node.permits.is_empty() {
            return Ok(());
        }
        let Acquire { name, holder, permits, .. } = *acquire;
        let found = self.permits_of(name, holder, permits)?;
        self.nodes.update(name, holder, |node| node.permits = found);
        Ok(())
    }

    /// The paths of a holder's permits, as the leader knows them.
    fn permits_of(&self, name: &LockName, holder: &Holder, permits: u32) -> Asked<Vec<String>> {
        let leases = &self.paths(name).leases;
        let ids: std::collections::HashSet<String> =
            (0..permits).map(|number| names::protection_id(holder, number)).collect();
        let list = self.list(leases, true)?;
        let is_own = |node: &String| names::id_of(node).is_some_and(|id| ids.contains(id));
        Ok(list.into_iter().filter(is_own).map(|node| format!("{leases}/{node}")).collect())
    }

    /// The turn of this holder has come.
    fn take_permits(&self, acquire: &Acquire<'_>, sent_at: crate::base::lease::Moment) -> Asked<Acquired> {
        let Acquire { name, holder, permits, .. } = *acquire;
        let paths = self.paths(name);
        let exchange = self.ask(&[Request::get_data(&paths.permits, false)])?;
        let all = count_in(&exchange.replies[0], &paths.permits)?.map_or(0, |(count, _)| count);
        if all < i64::from(permits) {
            return Ok(Acquired::TooFew { permits: u64::try_from(all).unwrap_or(0) });
        }
        if self.nodes.get(name, holder).is_some_and(|node| node.permits.is_empty()) {
            self.make_permits(name, holder, permits)?;
        }
        // Curator counts in the same way: with the own ones.
        let fits = |list: &[String]| i64::try_from(list.len()).unwrap_or(i64::MAX) <= all;
        if !fits(&self.list(&paths.leases, false)?) {
            if acquire.waiting == Waiting::No {
                return Ok(self.busy());
            }
            // Watched first and counted second, so that no release is missed.
            let (turn, list) = (Topic::turn(name, holder.as_str()), Request::children(&paths.leases, true));
            self.client.unwatch(&paths.leases, &turn);
            let watch = Watch::Turn(vec![turn, Topic::freed(name)]);
            let exchange = self.client.ask(&[list], Some((&paths.leases, watch)))?;
            let reply = &exchange.replies[0];
            if !reply.code.is_ok() {
                return Err(certain(reply.code.to_error(&paths.leases)));
            }
            if !fits(&reply.children().map_err(certain)?) {
                return Ok(self.busy());
            }
        }
        self.client.unwatch(&paths.leases, &Topic::turn(name, holder.as_str()));
        let Some(node) = self.nodes.get(name, holder) else { return Ok(Acquired::Gone) };
        let granted = permits_granted(&node, sent_at);
        // The turn is given back, and nobody waits for that.
        self.nodes.update(name, holder, |node| (node.granted, node.path) = (true, String::new()));
        self.client.delete_later(node.session.generation, [node.path]);
        Ok(Acquired::Granted(granted))
    }

    fn make_permits(&self, name: &LockName, holder: &Holder, permits: u32) -> Asked<()> {
        let leases = &self.paths(name).leases;
        let data = self.data_of(holder);
        let permit = |number| {
            let prefix = names::lease_prefix(&names::protection_id(holder, number));
            Request::create(&format!("{leases}/{prefix}"), &data, self.acl, Mode::EphemeralSequential)
        };
        let mut requests: Vec<Request> = (0..permits).map(permit).collect();
        for _ in 0..TRIES {
            let exchange = self.ask(&[Request::multi(&requests)])?;
            let mut created = created_in(&exchange.replies[0], &requests, leases)?;
            if !created.is_empty() {
                let made = created.split_off(created.len() - permits as usize);
                let made = made.into_iter().map(|created| created.path).collect();
                self.nodes.update(name, holder, |node| node.permits = made);
                return Ok(());
            }
            // The directory is missing, or another client has made it meanwhile.
            match requests.len() > permits as usize {
                true => drop(requests.remove(0)),
                false => requests.insert(0, Request::create(leases, &[], self.acl, Mode::Container)),
            }
        }
        Err(certain(busy_directory(leases)))
    }

    pub(super) fn release_permits(&self, release: &Release<'_>, unknowns: &mut UnknownOutcomes) -> Result<Released> {
        let outcome = self.try_release_permits(release, unknowns);
        self.note(outcome, unknowns)
    }

    fn try_release_permits(&self, release: &Release<'_>, unknowns: &UnknownOutcomes) -> Asked<Released> {
        let Release { name, holder, permits, granted, .. } = *release;
        let repeated = unsettled(unknowns).is_some();
        let mut paths = match self.node_of(name, holder) {
            Some(node) => node.into_paths(),
            // Their id may come from elsewhere.
            None if granted && !repeated => self.permits_of(name, holder, permits)?,
            None => Vec::new(),
        };
        if repeated {
            paths.extend(self.permits_of(name, holder, permits)?);
            let id = names::protection_id(holder, 0);
            let locks = &self.paths(name).locks;
            let turns = self.list(locks, true)?.into_iter().filter(|node| names::is_of(node, &id));
            paths.extend(turns.map(|node| format!("{locks}/{node}")));
            paths.sort();
            paths.dedup();
        }
        let mut given_back = 0;
        if !paths.is_empty() {
            let deletes: Vec<Request> = paths.iter().map(|path| Request::delete(path)).collect();
            let exchange = self.ask(&deletes)?;
            for (reply, path) in exchange.replies.iter().zip(&paths) {
                match reply.code {
                    Code::OK => given_back += 1,
                    Code::NO_NODE => {}
                    code => return Err(certain(code.to_error(path))),
                }
            }
        }
        self.forget(name, holder);
        if given_back > 0 || repeated {
            return Ok(Released::Freed { listeners: None, next: None });
        }
        Ok(Released::NotHeld)
    }
}

fn permits_granted(node: &Node, sent_at: crate::base::lease::Moment) -> Granted {
    Granted { token: 0, sent_at, session: Some(node.session.term.clone()), next: None }
}
