//! The semaphore, as in Curator's `InterProcessSemaphoreV2`: a caller takes its turn in `locks`,
//! and makes a node for each permit in `leases` once there is room for them. Then the next caller
//! takes its turn.

use std::collections::HashSet;
use std::time::Duration;

use super::client::{NodeWatch, check_length};
use super::gate::Making;
use super::locks::held;
use super::nodes::Node;
use super::queue::{
    Recency, Standing, TRIES, ZooKeeperResult, busy_directory, certain, children_in, created,
    data_in, is_kept, is_there, unsettled, waiter,
};
use super::wire::{Mode, Reply, Request};
use super::{ZooKeeperStore, names};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::lock_name::LockName;
use crate::store::{Acquire, Acquired, Release, Released, Topic, UnknownOutcomes, Waiting};

/// A count: four bytes, as Curator's `SharedCount`. `None`: there is no such node.
pub(super) fn count_in(
    reply: &Reply,
    path: &str,
) -> ZooKeeperResult<Option<(i64, super::wire::Stat)>> {
    let Some((data, stat)) = data_in(reply, path)? else { return Ok(None) };
    let bytes: [u8; 4] = data.try_into().map_err(|_| {
        let why =
            format!("the node {path} has no count of four bytes: something else uses the name");
        certain(Error::new(ErrorKind::WrongType, why))
    })?;
    Ok(Some((i32::from_be_bytes(bytes).into(), stat)))
}

/// How many of these permits are held, of `count` in all: those of this library, of which there may
/// be more after their number was lowered, and as many others as fit. In Java, a caller that waits
/// for permits has already made them.
pub(super) fn held_of(permits: &[String], count: i64) -> i64 {
    let (own, others): (Vec<_>, Vec<_>) = permits.iter().partition(|node| names::is_ours(node));
    let of = |nodes: Vec<_>| i64::try_from(nodes.len()).unwrap_or(i64::MAX);
    let own = of(own);
    own + of(others).min((count - own).max(0))
}

/// The paths of those nodes that are permits of this holder.
fn own_permits(leases: &str, list: Vec<String>, holder: &Holder, permits: u32) -> Vec<String> {
    let ids: HashSet<String> =
        (0..permits).map(|number| names::protection_id(holder, number)).collect();
    let is_own = |node: &String| names::id_of(node).is_some_and(|id| ids.contains(id));
    list.into_iter().filter(is_own).map(|node| format!("{leases}/{node}")).collect()
}

/// The shortest time that a turn takes if permits are free: two round trips, one of which is
/// written to disk.
const TURN: Duration = Duration::from_millis(2);

/// There are as many free permits as were asked for.
struct Room {
    has_directory: bool,
    /// Of the node with the number of permits.
    version: i32,
}

impl ZooKeeperStore {
    pub(super) fn acquire_permits(
        &self,
        acquire: &Acquire<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Acquired> {
        let Acquire { name, holder, permits, waiting, .. } = *acquire;
        // Checked now, and not only when its turn has come.
        check_length(self.permit_request(acquire, 0).length().saturating_mul(permits as usize))?;
        let outcome = self.repeated(unknowns, |unknowns| self.try_permits(acquire, unknowns));
        let stays = match &outcome {
            Ok(Acquired::Granted(_)) => true,
            Ok(Acquired::Busy { .. }) => waiting != Waiting::No,
            Ok(_) => false,
            Err(_) => is_kept(&outcome, waiting != Waiting::No),
        };
        if !stays {
            self.leave_later(name, holder);
        }
        self.note(outcome, unknowns)
    }

    fn try_permits(
        &self,
        acquire: &Acquire<'_>,
        unknowns: &UnknownOutcomes,
    ) -> ZooKeeperResult<Acquired> {
        let Acquire { name, holder, .. } = *acquire;
        let sent_at = self.client.now();
        let granted = match self.node_of(name, holder).filter(|node| node.granted) {
            Some(node) => Some(node),
            None => self.find_permits(acquire, unknowns)?,
        };
        if let Some(node) = granted {
            return Ok(held(&node, 0, sent_at));
        }
        let is_try = acquire.waiting == Waiting::No;
        if is_try && unknowns.is_empty() && self.was_busy(name) {
            self.catch_up()?;
            if let Err(refused) = self.look_for_room(acquire, false)? {
                return Ok(refused);
            }
        }
        let place = [(&**name, holder)];
        let mut list = self.queues_with(&place, unknowns)?.remove(0);
        let locks = &self.paths(name).locks;
        let mut tries = 0;
        let mut first = None;
        while tries < TRIES {
            tries += 1;
            // On a busy machine a turn takes longer than expected, but those before it are few.
            let now_first = names::sorted(name.kind, list.clone()).into_iter().next();
            if is_try && now_first != first {
                tries = 1;
                first = now_first;
            }
            match self.standing(name, holder, list) {
                Standing::First => match self.take_permits(acquire, sent_at)? {
                    Some(acquired) => return Ok(acquired),
                    None => list = self.list(locks, Recency::Any)?,
                },
                Standing::Behind(_) if is_try => {
                    if let Err(refused) = self.look_for_room(acquire, false)? {
                        return Ok(refused);
                    }
                    // There are permits: whoever is before it has its turn only briefly, or waits
                    // for more permits than there are.
                    std::thread::sleep(TURN);
                    list = self.list(locks, Recency::Any)?;
                }
                Standing::Behind(before) => {
                    if self.watch(name, holder, &before)? {
                        return Ok(self.busy());
                    }
                    list = self.list(locks, Recency::Any)?;
                }
                Standing::Gone => list = self.enter_anew(&place)?.remove(0),
            }
        }
        if is_try {
            return Ok(self.busy());
        }
        Err(certain(busy_directory(locks)))
    }

    /// After a request of unknown outcome: permits that exist were granted, because the transaction
    /// that made them also gave the turn back.
    fn find_permits(
        &self,
        acquire: &Acquire<'_>,
        unknowns: &UnknownOutcomes,
    ) -> ZooKeeperResult<Option<Node>> {
        let Some(before) =
            unsettled(unknowns).filter(|before| before.generation == self.client.generation())
        else {
            return Ok(None);
        };
        let Acquire { name, holder, permits, .. } = *acquire;
        let leases = &self.paths(name).leases;
        let Some((session, list)) = self.list_in(before, leases)? else { return Ok(None) };
        let found = own_permits(leases, list, holder, permits);
        if found.is_empty() {
            return Ok(None);
        }
        let node = Node::with_permits(&session, found);
        self.nodes.put(name, holder, node.clone());
        Ok(Some(node))
    }

    /// The paths of a holder's permits, in everything that a majority has agreed to.
    fn permits_of(
        &self,
        name: &LockName,
        holder: &Holder,
        permits: u32,
    ) -> ZooKeeperResult<Vec<String>> {
        let leases = &self.paths(name).leases;
        let list = self.list(leases, Recency::Majority)?;
        Ok(own_permits(leases, list, holder, permits))
    }

    /// Whether this many permits are free, and the answer if they are not. `watch`: the holder is
    /// woken when permits are given back, and when their number changes.
    fn look_for_room(
        &self,
        acquire: &Acquire<'_>,
        watch: bool,
    ) -> ZooKeeperResult<std::result::Result<Room, Acquired>> {
        let Acquire { name, holder, permits, .. } = *acquire;
        let paths = self.paths(name);
        let watched = [&paths.leases, &paths.permits].into_iter().filter(|_| watch);
        let watches =
            watched.map(|path| (path.clone(), NodeWatch::Permits(waiter(name, holder)))).collect();
        let requests =
            [Request::children(&paths.leases, watch), Request::get_data(&paths.permits, watch)];
        let exchange = self.client.ask(&requests, watches)?;
        let [leases, size] = &exchange.replies[..] else {
            unreachable!("a reply for each request")
        };
        let size = count_in(size, &paths.permits)?;
        let all = size.map_or(0, |(count, _)| count);
        let taken = children_in(leases, &paths.leases)?;
        let has_directory = taken.is_some();
        // Curator counts in the same way.
        let taken = i64::try_from(taken.unwrap_or_default().len()).unwrap_or(i64::MAX);
        Ok(if all < i64::from(permits) {
            Err(Acquired::TooFew { permits: u64::try_from(all).unwrap_or(0) })
        } else if taken.saturating_add(permits.into()) > all {
            Err(self.busy())
        } else {
            Ok(Room { has_directory, version: size.map_or(0, |(_, stat)| stat.version) })
        })
    }

    /// It is this holder's turn: nobody else adds permits until it gives the turn back. `None`: it
    /// was no longer its turn.
    fn take_permits(
        &self,
        acquire: &Acquire<'_>,
        sent_at: Moment,
    ) -> ZooKeeperResult<Option<Acquired>> {
        let Acquire { name, holder, .. } = *acquire;
        let Some(turn) = self.node_of(name, holder) else { return Ok(None) };
        let turn_topic = Topic::turn(name, holder.as_str());
        let mut room = self.look_for_room(acquire, false)?;
        if matches!(room, Err(Acquired::Busy { .. })) && acquire.waiting != Waiting::No {
            self.client.unwatch(&turn_topic);
            self.nodes.update(name, holder, |node| node.has_waited = true);
            room = self.look_for_room(acquire, true)?;
        }
        let room = match room {
            Ok(room) => room,
            Err(refused) => {
                self.busy_names.note(name, sent_at);
                return Ok(Some(refused));
            }
        };
        let Some(node) = self.make_permits(acquire, &turn, room)? else { return Ok(None) };
        self.client.unwatch(&turn_topic);
        self.nodes.put(name, holder, node.clone());
        Ok(Some(held(&node, 0, sent_at)))
    }

    /// One transaction makes the permits and gives the turn back, so that a permit that exists is
    /// one that was granted, and of this semaphore. `None`: the turn was over, the directory was
    /// made or removed, or the semaphore was deleted or changed.
    fn make_permits(
        &self,
        acquire: &Acquire<'_>,
        turn: &Node,
        room: Room,
    ) -> ZooKeeperResult<Option<Node>> {
        let Acquire { name, permits, .. } = *acquire;
        let leases = &self.paths(name).leases;
        let mut requests = Vec::with_capacity(permits as usize + 3);
        if !room.has_directory {
            requests.push(Request::create(leases, &[], self.acl, Mode::Container));
        }
        requests.extend((0..permits).map(|number| self.permit_request(acquire, number)));
        requests.push(Request::check(&self.paths(name).permits, room.version));
        requests.push(Request::delete(&turn.path));
        let Making { exchange, outcome } = self.make(&requests, &[])?;
        let mut made = created(outcome, leases)?;
        if made.is_empty() {
            return Ok(None);
        }
        let made = made.split_off(made.len() - permits as usize);
        let paths = made.into_iter().map(|permit| permit.path).collect();
        // Perhaps another session than that of the turn, which is over but had its node until now.
        Ok(Some(Node::with_permits(&exchange.session, paths)))
    }

    fn permit_request(&self, acquire: &Acquire<'_>, number: u32) -> Request {
        let Acquire { name, holder, .. } = *acquire;
        let prefix = names::lease_prefix(&names::protection_id(holder, number));
        let path = format!("{}/{prefix}", self.paths(name).leases);
        Request::create(&path, &self.data_of(holder), self.acl, Mode::EphemeralSequential)
    }

    pub(super) fn release_permits(
        &self,
        release: &Release<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Released> {
        let outcome =
            self.repeated(unknowns, |unknowns| self.try_release_permits(release, unknowns));
        self.note(outcome, unknowns)
    }

    fn try_release_permits(
        &self,
        release: &Release<'_>,
        unknowns: &UnknownOutcomes,
    ) -> ZooKeeperResult<Released> {
        let Release { name, holder, permits, granted, .. } = *release;
        let repeated = unsettled(unknowns).is_some();
        if repeated {
            // Otherwise its turn and its permits could be made when this has looked for them.
            self.close_the_gate()?;
        }
        let mut paths = match self.node_of(name, holder) {
            Some(node) => node.paths(),
            // Their id may come from elsewhere.
            None if granted && !repeated => self.permits_of(name, holder, permits)?,
            None => Vec::new(),
        };
        if repeated {
            paths.extend(self.permits_of(name, holder, permits)?);
            let id = names::protection_id(holder, 0);
            let locks = &self.paths(name).locks;
            let turns = self
                .list(locks, Recency::Majority)?
                .into_iter()
                .filter(|node| names::is_of(node, &id));
            paths.extend(turns.map(|node| format!("{locks}/{node}")));
            paths.sort();
            paths.dedup();
        }
        let mut given_back = 0;
        if !paths.is_empty() {
            // Before the requests are sent: the message about a node comes before the answer.
            self.client.unguard(&paths);
            let exchange = self.delete(&paths)?;
            for (reply, path) in exchange.replies.iter().zip(&paths) {
                given_back += u32::from(is_there(reply, path)?);
            }
        }
        self.forget_deleted(name, holder);
        if given_back > 0 || repeated {
            return Ok(Released::Freed { listeners: None, next: None });
        }
        Ok(Released::NotHeld)
    }
}
