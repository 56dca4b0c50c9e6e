//! Lists what is in the ensemble: the directories that have nodes of holders in them.

use std::collections::BTreeMap;

use super::client::ZooKeeperFailure;
use super::inspect::{ListedPlace, Unreadable, owners_of};
use super::names::Paths;
use super::queue::{ZooKeeperResult, children_in, data_in};
use super::semaphore::{count_in, held_of};
use super::wire::{Code, Request};
use super::{ZooKeeperStore, names};
use crate::base::error::{ErrorKind, Result};
use crate::base::job_name::lease_at;
use crate::base::lock_name::{Kind, LockName};
use crate::store::{
    Found, FoundHolder, FoundWaiter, ListingStore, LockStore, MOST_LISTED, NameFilter,
};

/// How many directories are listed in one write.
const PAGE: usize = 100;

impl ZooKeeperStore {
    /// Walks over all directories, those of one depth side by side.
    fn list_below(&self, wanted: &NameFilter) -> ZooKeeperResult<Vec<Found>> {
        let slash = if wanted.prefix.starts_with('/') { "/" } else { "" };
        // Only names below the last complete element of the prefix can be wanted.
        let within =
            wanted.prefix.trim_start_matches('/').rsplit_once('/').map_or("", |(front, _)| front);
        let mut found = BTreeMap::new();
        let mut next = vec![within.to_owned()];
        while !next.is_empty() {
            let directories = std::mem::take(&mut next);
            for page in directories.chunks(PAGE) {
                let path = |of: &String| {
                    if of.is_empty() { self.root() } else { Paths::new(&self.chroot, of).base }
                };
                let paths: Vec<String> = page.iter().map(path).collect();
                let looks: Vec<Request> =
                    paths.iter().map(|path| Request::children(path, false)).collect();
                let exchange = self.ask(&looks)?;
                for ((reply, path), of) in exchange.replies.iter().zip(&paths).zip(page) {
                    // Deleted in the meantime, or not readable for this user: it has no locks to
                    // list.
                    if matches!(reply.code, Code::NO_NODE | Code::NO_AUTH) {
                        continue;
                    }
                    let children = children_in(reply, path)?.unwrap_or_default();
                    let key = format!("{slash}{of}");
                    let is_lock = kind_of(&children).is_some() || has(&children, "permits");
                    if is_lock
                        && wanted.name_of(&key).is_some()
                        && let Some(name) = self.named(&key)
                        && let Some(one) = self.readable(&name)?
                    {
                        found.insert(one.key.clone(), one);
                    }
                    let is_directory = |child: &&String| {
                        let is_own = of.is_empty()
                            && (*child == names::GATES
                                || self.chroot.is_empty() && *child == "zookeeper");
                        !child.starts_with("_c_") && !is_own
                    };
                    let below = |child: &String| {
                        if of.is_empty() { child.clone() } else { format!("{of}/{child}") }
                    };
                    next.extend(children.iter().filter(is_directory).map(below));
                }
            }
        }
        Ok(found.into_values().collect())
    }

    fn named(&self, key: &str) -> Option<LockName> {
        if let Some(lease) = lease_at(key) {
            return Some(lease);
        }
        LockName::new("", key, Kind::Mutex).ok().filter(|name| self.check(name).is_ok())
    }

    /// `None` also if the user may not read it, or if something else has this name.
    fn readable(&self, name: &LockName) -> ZooKeeperResult<Option<Found>> {
        match self.found(name, Unreadable::HasAnId) {
            Err(ZooKeeperFailure::NotSent(e))
                if matches!(e.kind(), ErrorKind::Denied | ErrorKind::WrongType) =>
            {
                Ok(None)
            }
            found => found,
        }
    }

    fn found(&self, name: &LockName, unreadable: Unreadable) -> ZooKeeperResult<Option<Found>> {
        let paths = self.paths(name);
        let looks = [
            Request::children(&paths.base, false),
            Request::get_data(&paths.base, false),
            Request::children(&paths.leases, false),
            Request::children(&paths.locks, false),
            Request::get_data(&paths.permits, false),
        ];
        let exchange = self.ask(&looks)?;
        let replies = &exchange.replies;
        let Some(children) = children_in(&replies[0], &paths.base)? else { return Ok(None) };
        match kind_of(&children) {
            Some(kind @ (Kind::Mutex | Kind::Read)) => {
                self.found_lock(name, kind, children, unreadable)
            }
            Some(_) => {
                let leases = children_in(&replies[2], &paths.leases)?.unwrap_or_default();
                let turns = children_in(&replies[3], &paths.locks)?.unwrap_or_default();
                let count = count_in(&replies[4], &paths.permits)?.map(|(count, _)| count);
                self.found_semaphore(name, [leases, turns], count, unreadable).map(Some)
            }
            None => {
                let number = |reply, path| -> ZooKeeperResult<Option<i64>> {
                    let data = data_in(reply, path)?;
                    let bytes = data.and_then(|(data, _)| <[u8; 4]>::try_from(data).ok());
                    Ok(bytes.map(|bytes| i32::from_be_bytes(bytes).into()))
                };
                // The directories of a semaphore that nobody uses do not exist, or not for long.
                if let count @ Some(_) = number(&replies[4], &paths.permits)? {
                    let nobody = [Vec::new(), Vec::new()];
                    return self.found_semaphore(name, nobody, count, unreadable).map(Some);
                }
                // Any program may keep four bytes in a node.
                Ok(number(&replies[1], &paths.base)?.map(|number| Found {
                    kind: None,
                    number: Some(number),
                    ..Found::new(&name.key, Kind::Latch)
                }))
            }
        }
    }

    fn found_lock(
        &self,
        name: &LockName,
        kind: Kind,
        children: Vec<String>,
        unreadable: Unreadable,
    ) -> ZooKeeperResult<Option<Found>> {
        let nodes = names::sorted(
            kind,
            children.into_iter().filter(|node| names::sequence(kind, node).is_some()).collect(),
        );
        let holding = Self::holders_in(kind, &nodes).len();
        let is_written =
            kind == Kind::Read && nodes.first().is_some_and(|node| names::is_write(node));
        let mut places = self.places(&self.paths(name).base, first(&nodes), unreadable)?;
        if places.is_empty() {
            return Ok(None);
        }
        let owners = owners_of(&places);
        let token = places.first().filter(|first| first.data.is_some()).map(|first| first.czxid);
        let queue = places.split_off(holding.min(places.len()));
        Ok(Some(Found {
            holders: places.into_iter().map(holder).collect(),
            owners,
            unlisted: holding.saturating_sub(MOST_LISTED) as u64,
            waiting: Some(nodes.len().saturating_sub(holding) as u64),
            queue: waiters(queue),
            token: token.filter(|czxid| *czxid > 0).map(|czxid| self.token_of(czxid)),
            ..Found::new(&name.key, if is_written { Kind::Write } else { kind })
        }))
    }

    fn found_semaphore(
        &self,
        name: &LockName,
        [leases, turns]: [Vec<String>; 2],
        count: Option<i64>,
        unreadable: Unreadable,
    ) -> ZooKeeperResult<Found> {
        let paths = self.paths(name);
        let turns = names::sorted(Kind::Semaphore, turns);
        let waiting = turns.len() as u64;
        let permits = self.places(&paths.leases, first(&leases), unreadable)?;
        let turns = self.places(&paths.locks, first(&turns), unreadable)?;
        let owners = owners_of(permits.iter().chain(&turns));
        let mut holders: Vec<FoundHolder> = Vec::new();
        for permit in permits {
            match holders.iter_mut().find(|one| one.id == permit.id) {
                Some(one) => one.count += 1,
                None => holders.push(holder(permit)),
            }
        }
        Ok(Found {
            holders,
            owners,
            unlisted: leases.len().saturating_sub(MOST_LISTED) as u64,
            number: count.map(|count| count - held_of(&leases, count)),
            waiting: Some(waiting),
            queue: waiters(turns),
            ..Found::new(&name.key, Kind::Semaphore)
        })
    }
}

fn holder(ListedPlace { id, data, .. }: ListedPlace) -> FoundHolder {
    FoundHolder { id, count: 1, left: None, data }
}

fn waiters(places: Vec<ListedPlace>) -> Vec<FoundWaiter> {
    places.into_iter().map(|place| FoundWaiter { id: place.id, left: None }).collect()
}

fn first(nodes: &[String]) -> &[String] {
    &nodes[..nodes.len().min(MOST_LISTED)]
}

fn has(children: &[String], name: &str) -> bool {
    children.iter().any(|child| child == name)
}

/// What kind of directory has these children: a lock ([`Kind::Mutex`]), a read-write lock
/// ([`Kind::Read`]) or a semaphore.
fn kind_of(children: &[String]) -> Option<Kind> {
    if has(children, "permits") && (has(children, "leases") || has(children, "locks")) {
        return Some(Kind::Semaphore);
    }
    let mut places = children.iter().filter(|child| names::id_of(child).is_some());
    let first = places.next()?;
    let kind =
        if names::is_write(first) || names::is_read(first) { Kind::Read } else { Kind::Mutex };
    names::sequence(kind, first).map(|_| kind)
}

impl ListingStore for ZooKeeperStore {
    fn list(&self, wanted: &NameFilter) -> Result<Vec<Found>> {
        let found = self.looked(|| match wanted.pattern.only() {
            Some(only) => match self.named(&format!("{}{only}", wanted.prefix)) {
                Some(name) => Ok(self.found(&name, Unreadable::Fails)?.into_iter().collect()),
                None => Ok(Vec::new()),
            },
            None => self.list_below(wanted),
        })?;
        Ok(found.into_iter().filter(|found| found.kind.is_some()).collect())
    }

    fn look_at(&self, name: &LockName) -> Result<Vec<Found>> {
        Ok(self.looked(|| self.found(name, Unreadable::Fails))?.into_iter().collect())
    }
}
