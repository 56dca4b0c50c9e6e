//! Locks: mutex, fair lock, reader and writer. One node for each holder.

use std::sync::Arc;

use super::client::ZooKeeperFailure;
use super::gate::Making;
use super::nodes::Node;
use super::queue::{
    Recency, Standing, Turns, Unsettled, ZooKeeperResult, busy_directory, certain, created,
    is_kept, is_there, unsettled,
};
use super::wire::{Code, Mode, Request};
use super::{ZooKeeperStore, names};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::lock_name::{Kind, LockName};
use crate::store::{
    Acquire, Acquired, Granted, HandedOver, HoldCounts, Release, Released, TokenRule, Topic,
    UnknownOutcomes, Waiting,
};

impl ZooKeeperStore {
    pub(super) fn acquire_lock(
        &self,
        acquire: &Acquire<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Acquired> {
        let Acquire { name, holder, waiting, .. } = *acquire;
        let waits = waiting != Waiting::No;
        let sent_at = self.client.now();
        let place = [(&**name, holder)];
        let outcome = self.repeated(unknowns, |unknowns| self.take_turns(&place, waits, unknowns));
        if !is_kept(&outcome, waits) {
            // Nobody would come back for this place, which may exist.
            self.leave_all_later(&place);
        }
        Ok(match self.note(outcome, unknowns)? {
            Turns::Come(nodes) => self.grant(acquire, &nodes[0], sent_at),
            Turns::Behind { .. } => self.busy(),
        })
    }

    /// The next look at the queue follows a message, or comes after a session timeout without one.
    pub(super) fn busy(&self) -> Acquired {
        Acquired::Busy { ttl: Some(self.lease()) }
    }

    /// It is the turn of the holder of this node.
    fn grant(&self, acquire: &Acquire<'_>, node: &Node, sent_at: Moment) -> Acquired {
        let Acquire { name, holder, token, .. } = *acquire;
        self.begin_hold(name, holder);
        let has_token = token != TokenRule::Off && name.kind.is_exclusive();
        held(node, if has_token { self.token_of(node.czxid) } else { 0 }, sent_at)
    }

    /// From now on its node is held, and no longer waits.
    pub(super) fn begin_hold(&self, name: &LockName, holder: &Holder) {
        let mut has_waited = false;
        self.nodes.update(name, holder, |node| {
            node.granted = true;
            has_waited = std::mem::take(&mut node.has_waited);
        });
        if has_waited {
            self.client.unwatch(&Topic::turn(name, holder.as_str()));
        }
    }

    /// The number of the change that made the node: it grows from holder to holder.
    pub(super) fn token_of(&self, czxid: i64) -> u64 {
        self.token_base.saturating_add(czxid.unsigned_abs())
    }

    /// One more level of a hold: the server does not know levels, so nothing is sent.
    pub(super) fn reenter(&self, acquire: &Acquire<'_>) -> Acquired {
        let Acquire { name, holder, .. } = *acquire;
        match self.node_of(name, holder).filter(|node| node.granted) {
            Some(node) => held(&node, 0, self.client.now()),
            None => Acquired::Gone,
        }
    }

    pub(super) fn release_lock(
        &self,
        release: &Release<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Released> {
        let outcome = self.repeated(unknowns, |unknowns| self.try_release(release, unknowns));
        self.note(outcome, unknowns)
    }

    fn try_release(
        &self,
        release: &Release<'_>,
        unknowns: &UnknownOutcomes,
    ) -> ZooKeeperResult<Released> {
        let Release { name, holder, left, granted, .. } = *release;
        let before = unsettled(unknowns);
        let mut node = self.node_of(name, holder);
        // A downgrade may have run, and the node may have another name since.
        let may_read =
            |node: &Node| left == HoldCounts::NONE && names::is_write(names::last_of(&node.path));
        if let Some(before) = before
            && node.as_ref().is_none_or(may_read)
        {
            node = self.find(name, holder, before)?;
        }
        let repeated = before.is_some();
        let freed = || Released::Freed { listeners: None, next: None };
        let Some(node) = node else {
            // An earlier attempt has run.
            self.forget_deleted(name, holder);
            let is_done = left == HoldCounts::NONE
                && granted
                && before.is_some_and(|before| before.generation == self.client.generation());
            return Ok(if is_done { freed() } else { Released::NotHeld });
        };
        if left != HoldCounts::NONE {
            let is_downgrade = left.main == 0 && names::is_write(names::last_of(&node.path));
            return if is_downgrade {
                self.downgrade(name, holder, &node)
            } else {
                Ok(Released::StillHeld)
            };
        }
        let path = node.path.clone();
        let paths = node.paths();
        // Before the requests are sent: the message about a node comes before the answer.
        self.client.unguard(&paths);
        let exchange = self.delete(&paths)?;
        // At most one of the two nodes exists.
        let codes = || exchange.replies.iter().map(|reply| reply.code);
        let code = codes().find(|code| *code != Code::NO_NODE).unwrap_or(Code::NO_NODE);
        let gone = (code.is_ok() || code == Code::NO_NODE)
            .then(|| self.forget_deleted(name, holder))
            .flatten();
        let mut is_moved = false;
        if let Some(gone) = gone {
            // The background has repeated a downgrade meanwhile.
            let mut moved = gone.paths();
            moved.retain(|path| !paths.contains(path));
            is_moved = !moved.is_empty();
            self.client.delete_later(gone.session.generation, moved);
        }
        match code {
            Code::OK => Ok(freed()),
            Code::NO_NODE if repeated || is_moved => Ok(freed()),
            Code::NO_NODE => Ok(Released::NotHeld),
            code => Err(certain(code.to_error(&path))),
        }
    }

    /// The writer's node becomes a reader's node with the same place: readers directly behind it
    /// are let in, and no writer is.
    fn downgrade(
        &self,
        name: &LockName,
        holder: &Holder,
        node: &Node,
    ) -> ZooKeeperResult<Released> {
        let id = names::protection_id(holder, 0);
        let directory = &self.paths(name).base;
        let read = format!("{directory}/{}", names::downgraded(&id, names::last_of(&node.path)));
        let both = [
            Request::create(&read, &self.data_of(holder), self.acl, Mode::Ephemeral),
            Request::delete(&node.path),
        ];
        // Before the request is sent: from then on either of the two nodes may exist. Whoever gives
        // the hold up has to delete both, and the deletion of the writer's node is no longer a
        // loss.
        let either = |node: &mut Node| {
            node.downgraded = Some(read.clone());
            node.is_lost = Arc::default();
        };
        self.nodes.update(name, holder, either);
        let clear_if_nothing_ran = |failure: &ZooKeeperFailure| {
            if matches!(failure, ZooKeeperFailure::NotSent(_)) {
                self.nodes.update(name, holder, |node| node.downgraded = None);
            }
        };
        let made = self.make(&both, &[]).and_then(|Making { exchange, outcome }| {
            Ok((exchange.session.generation, created(outcome, &read)?.pop()))
        });
        let (generation, made) = made.inspect_err(clear_if_nothing_ran)?;
        match made {
            // The session is a new one, in which this holder has nothing.
            Some(made) if generation != node.session.generation => {
                self.client.delete_later(generation, [made.path]);
                self.forget_deleted(name, holder);
                Ok(Released::NotHeld)
            }
            Some(made) => {
                self.set_read_node(name, holder, generation, made.path);
                Ok(Released::Freed { listeners: None, next: None })
            }
            // An earlier attempt has run, or the writer's node is gone.
            None => {
                let own = |node: &String| names::is_of(node, &id);
                match self.list(directory, Recency::Majority)?.into_iter().find(own) {
                    Some(node) if names::is_read(&node) => {
                        self.set_read_node(name, holder, generation, read);
                        Ok(Released::Freed { listeners: None, next: None })
                    }
                    Some(_) => Err(certain(busy_directory(directory))),
                    None => {
                        self.forget_deleted(name, holder);
                        Ok(Released::NotHeld)
                    }
                }
            }
        }
    }

    /// From now on the hold has the reader's node, which is deleted if it was given up meanwhile.
    fn set_read_node(&self, name: &LockName, holder: &Holder, generation: u64, path: String) {
        let mut given_up = Some(path.clone());
        self.nodes.update(name, holder, |node| {
            given_up = None;
            node.path = path;
            node.downgraded = None;
        });
        self.client.delete_later(generation, given_up);
    }

    /// One transaction makes the next node and deletes the own one, so that the next holder is
    /// already at the end of the queue when others see that the lock is free.
    pub(super) fn pass_on(
        &self,
        release: &Release<'_>,
        next: &Acquire<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Option<HandedOver> {
        let is_last = release.left == HoldCounts::NONE && release.name.key == next.name.key;
        if !is_last || !release.name.kind.is_lock() || !next.name.kind.is_lock() {
            return None;
        }
        let own = self.node_of(release.name, release.holder)?;
        if self.nodes.get(next.name, next.holder).is_some() {
            return None;
        }
        let directory = &self.paths(next.name).base;
        let both = [self.enter_request(next.name, next.holder), Request::delete(&own.path)];
        // Before the request is sent: the message about a node comes before the answer.
        self.client.unguard(std::slice::from_ref(&own.path));
        let sent_at = self.client.now();
        let mut of_next = UnknownOutcomes::default();
        let Making { exchange, outcome } =
            match self.make(&both, &[Request::children(directory, false)]) {
                Ok(making) => making,
                Err(ZooKeeperFailure::NotSent(_)) => return None,
                Err(ZooKeeperFailure::Unknown { error, generation }) => {
                    unknowns.set(Unsettled::of(generation));
                    of_next.set(Unsettled::of(generation));
                    let released = self.release_lock(release, unknowns);
                    return Some(HandedOver { released, acquired: Err(error), unknowns: of_next });
                }
            };
        // Without a new node nothing has run: the own node is gone, which the separate release will
        // find.
        let made = created(outcome, directory).ok()?.pop()?;
        if exchange.session.generation != own.session.generation {
            // The session is a new one: what was made in it must not be asked for twice.
            self.client.delete_later(exchange.session.generation, [made.path]);
            return None;
        }
        self.forget_deleted(release.name, release.holder);
        let released = Ok(Released::Freed { listeners: None, next: None });
        let listed = self
            .entered(next.name, next.holder, &exchange.session, made)
            .and_then(|node| Ok((node, exchange.replies[1].children()?)));
        let acquired = match listed {
            Ok((node, list)) => match self.standing(next.name, next.holder, list) {
                Standing::First if node.czxid != 0 => Ok(self.grant(next, &node, sent_at)),
                // It looks again and begins to watch.
                _ => self.acquire_lock(next, &mut of_next),
            },
            Err(failure) => Err(failure.into_error()),
        };
        Some(HandedOver { released, acquired, unknowns: of_next })
    }

    /// Who has the lock: in a sorted list, the nodes with no node before them that excludes them.
    pub(super) fn holders_in(kind: Kind, list: &[String]) -> &[String] {
        let count = match kind {
            Kind::Read | Kind::Write => {
                list.iter().take_while(|node| names::is_read(node)).count().max(1)
            }
            _ => 1,
        };
        &list[..count.min(list.len())]
    }

    /// Deletes the nodes of all holders of the lock.
    pub(super) fn force(&self, name: &LockName) -> Result<bool> {
        if name.kind == Kind::Semaphore {
            let why = "permits belong to the sessions of their holders: close those, or delete the semaphore";
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        let directory = &self.paths(name).base;
        let list = self.looked(|| self.list(directory, Recency::Leader))?;
        let list = names::sorted(name.kind, list);
        let holders = Self::holders_in(name.kind, &list);
        if holders.is_empty() {
            return Ok(false);
        }
        let deletes: Vec<Request> = holders
            .iter()
            .map(|holder| Request::delete(&format!("{directory}/{holder}")))
            .collect();
        let exchange = self.ask(&deletes).map_err(|failure| match failure {
            ZooKeeperFailure::Unknown { error, .. } => {
                error.and_also("the lock may have been freed; check it before you repeat this")
            }
            ZooKeeperFailure::NotSent(error) => error,
        })?;
        for reply in &exchange.replies {
            is_there(reply, directory).map_err(ZooKeeperFailure::into_error)?;
        }
        Ok(exchange.replies.iter().any(|reply| reply.code.is_ok()))
    }
}

/// The answer to a holder that has this node.
pub(super) fn held(node: &Node, token: u64, sent_at: Moment) -> Acquired {
    let session = Some(node.session.term.clone());
    Acquired::Granted(Granted { token, sent_at, session, next: None })
}
