//! Locks: mutex, fair lock, reader and writer. One node for each holder.

use std::sync::Arc;

use super::client::{Exchange, ZooKeeperFailure};
use super::nodes::Node;
use super::queue::{
    Asked, Recency, Standing, TRIES, Unsettled, busy_directory, certain, created_in, is_refused,
    unsettled,
};
use super::wire::{Code, Mode, Request};
use super::{ZooKeeperStore, names};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
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
        let outcome = self.repeated(unknowns, |unknowns| self.try_lock(acquire, unknowns));
        if is_refused(&outcome) || outcome.is_err() && acquire.waiting == Waiting::No {
            // Nobody would come back for this place, which certainly exists.
            self.leave_later(acquire.name, acquire.holder);
        }
        self.note(outcome, unknowns)
    }

    fn try_lock(&self, acquire: &Acquire<'_>, unknowns: &UnknownOutcomes) -> Asked<Acquired> {
        let Acquire { name, holder, .. } = *acquire;
        let is_try = acquire.waiting == Waiting::No;
        if is_try && unknowns.is_empty() && self.is_still_busy(name)? {
            return Ok(self.busy());
        }
        let sent_at = self.client.now();
        let (mut node, mut list) = self.place(name, holder, unknowns)?;
        for _ in 0..TRIES {
            match self.standing(name.kind, list, &node) {
                Standing::First if node.czxid == 0 => {
                    node = self.learn_czxid(name, holder, node)?;
                    list = self.list_for_turn(self.paths(name).queue(name.kind))?;
                }
                Standing::First => {
                    return Ok(Acquired::Granted(self.granted(acquire, &node, sent_at)));
                }
                Standing::Behind(_) if is_try => {
                    self.busy_names.note(name, sent_at);
                    self.leave_later(name, holder);
                    return Ok(self.busy());
                }
                Standing::Behind(before) => {
                    if self.watch(name, holder, &before)? {
                        return Ok(self.busy());
                    } else {
                        list = self.list_for_turn(self.paths(name).queue(name.kind))?;
                    }
                }
                // Somebody has deleted it by hand or by force: it gets a new place at the end.
                Standing::Gone => {
                    self.leave_later(name, holder);
                    (node, list) = self.enter(name, holder)?;
                }
            }
        }
        Err(certain(busy_directory(self.paths(name).queue(name.kind))))
    }

    /// Learns which change made the node, if the server did not report it. The number in the reply
    /// to that change is not it: the server may have processed later changes by then, and a token
    /// that is too large keeps the next holder out of the resource.
    pub(super) fn learn_czxid(
        &self,
        name: &LockName,
        holder: &Holder,
        mut node: Node,
    ) -> Asked<Node> {
        if node.czxid != 0 {
            return Ok(node);
        }
        let exchange = self.ask(&[Request::get_data(&node.path, false)])?;
        let reply = &exchange.replies[0];
        match reply.code {
            Code::OK => {
                node.czxid = reply.data().map_err(certain)?.1.czxid;
                self.nodes.update(name, holder, |known| known.czxid = node.czxid);
                Ok(node)
            }
            // The next look at the list will show that it is gone.
            Code::NO_NODE => Ok(node),
            code => Err(certain(code.to_error(&node.path))),
        }
    }

    /// The place of a holder (made if it has none) and the list of all places.
    pub(super) fn place(
        &self,
        name: &LockName,
        holder: &Holder,
        unknowns: &UnknownOutcomes,
    ) -> Asked<(Node, Vec<String>)> {
        let directory = self.paths(name).queue(name.kind);
        let node = match (self.node_of(name, holder), unsettled(unknowns)) {
            (None, Some(unsettled)) => self.find(name, holder, unsettled)?,
            (node, _) => node,
        };
        match node {
            Some(node) => Ok((node, self.list_for_turn(directory)?)),
            None => self.enter(name, holder),
        }
    }

    /// The next look at the queue follows a message, or comes after a session timeout without one.
    pub(super) fn busy(&self) -> Acquired {
        Acquired::Busy { ttl: Some(self.lease()) }
    }

    pub(super) fn granted(
        &self,
        acquire: &Acquire<'_>,
        node: &Node,
        sent_at: crate::base::lease::Moment,
    ) -> Granted {
        let Acquire { name, holder, token, .. } = *acquire;
        self.has_its_turn(name, holder);
        let has_token = token != TokenRule::Off && name.kind.is_exclusive();
        let token = if has_token { self.token_of(node.czxid) } else { 0 };
        Granted { token, sent_at, session: Some(node.session.term.clone()), next: None }
    }

    /// From now on its node is held, and no longer waits.
    pub(super) fn has_its_turn(&self, name: &LockName, holder: &Holder) {
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
            Some(node) => {
                let session = Some(node.session.term);
                Acquired::Granted(Granted {
                    token: 0,
                    sent_at: self.client.now(),
                    session,
                    next: None,
                })
            }
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

    fn try_release(&self, release: &Release<'_>, unknowns: &UnknownOutcomes) -> Asked<Released> {
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
            let is_done =
                repeated && granted && left == HoldCounts::NONE && self.is_present(before);
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
        let deletes: Vec<Request> = paths.iter().map(|path| Request::delete(path)).collect();
        let exchange = self.ask(&deletes)?;
        // At most one of the two nodes exists.
        let codes = || exchange.replies.iter().map(|reply| reply.code);
        let code = codes().find(|code| *code != Code::NO_NODE).unwrap_or(Code::NO_NODE);
        if code.is_ok() || code == Code::NO_NODE {
            self.forget_deleted(name, holder);
        }
        match code {
            Code::OK => Ok(freed()),
            Code::NO_NODE if repeated => Ok(freed()),
            Code::NO_NODE => Ok(Released::NotHeld),
            code => Err(certain(code.to_error(&path))),
        }
    }

    fn is_present(&self, unsettled: Option<super::queue::Unsettled>) -> bool {
        unsettled.is_some_and(|unsettled| unsettled.generation == self.client.generation())
    }

    /// The writer's node becomes a reader's node with the same place: readers directly behind it
    /// are let in, and no writer is.
    fn downgrade(&self, name: &LockName, holder: &Holder, node: &Node) -> Asked<Released> {
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
        let exchange = self.ask(&[Request::multi(&both)]).inspect_err(clear_if_nothing_ran)?;
        let created =
            created_in(&exchange.replies[0], &both, &read).inspect_err(clear_if_nothing_ran)?.pop();
        match created {
            Some(created) => {
                self.reads_now(name, holder, created.path);
                Ok(Released::Freed { listeners: None, next: None })
            }
            // An earlier attempt has run, or the writer's node is gone.
            None => {
                let own = |node: &String| names::is_of(node, &id);
                match self.list(directory, Recency::Majority)?.into_iter().find(own) {
                    Some(node) if names::is_read(&node) => {
                        self.reads_now(name, holder, read);
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

    /// From now on the hold has another node.
    fn reads_now(&self, name: &LockName, holder: &Holder, path: String) {
        self.nodes.update(name, holder, |node| (node.path, node.downgraded) = (path, None));
    }

    /// One transaction makes the next node and deletes the own one, so that the next holder is
    /// already at the end of the queue when others see that the lock is free.
    pub(super) fn pass_on(
        &self,
        release: &Release<'_>,
        next: &Acquire<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Option<HandedOver> {
        let is_queued = |kind| matches!(kind, Kind::Mutex | Kind::Fair | Kind::Read | Kind::Write);
        let is_last = release.left == HoldCounts::NONE && release.name.key == next.name.key;
        if !is_last || !is_queued(release.name.kind) || !is_queued(next.name.kind) {
            return None;
        }
        let own = self.node_of(release.name, release.holder)?;
        if self.nodes.get(next.name, next.holder).is_some() {
            return None;
        }
        let directory = self.paths(next.name).base.clone();
        let both = [self.enter_request(next.name, next.holder), Request::delete(&own.path)];
        // Before the request is sent: the message about a node comes before the answer.
        self.client.unguard(std::slice::from_ref(&own.path));
        let sent_at = self.client.now();
        let exchange = match self
            .ask(&[Request::multi(&both), Request::children(&directory, false)])
        {
            Ok(exchange) if exchange.session.generation == own.session.generation => exchange,
            // The session is a new one: what was made in it must not be asked for twice.
            Ok(exchange) => return self.passed_on_in_vain(exchange, &both, next),
            Err(ZooKeeperFailure::NotSent(_)) => return None,
            Err(failure) => {
                let mut of_next = UnknownOutcomes::default();
                let ZooKeeperFailure::Unknown { error, generation } = failure else { return None };
                unknowns.set(Unsettled { generation });
                let released = self.release_lock(release, unknowns);
                let acquired =
                    self.note(Err(ZooKeeperFailure::Unknown { error, generation }), &mut of_next);
                return Some(HandedOver { released, acquired, unknowns: of_next });
            }
        };
        let created = match created_in(&exchange.replies[0], &both, &directory) {
            Ok(mut created) => created.pop(),
            Err(_) => return None,
        };
        // Nothing has run: the own node is gone, which the separate release will find.
        let created = created?;
        self.forget_deleted(release.name, release.holder);
        let released = Ok(Released::Freed { listeners: None, next: None });
        let node = match self.entered(next.name, next.holder, &exchange, created) {
            Ok(node) => node,
            Err(failure) => {
                let acquired = Err(failure.into_error());
                return Some(HandedOver {
                    released,
                    acquired,
                    unknowns: UnknownOutcomes::default(),
                });
            }
        };
        let mut of_next = UnknownOutcomes::default();
        let acquired = match exchange.replies[1].children() {
            Ok(list) => match self.standing(next.name.kind, list, &node) {
                Standing::First if node.czxid != 0 => {
                    Ok(Acquired::Granted(self.granted(next, &node, sent_at)))
                }
                // It looks again and begins to watch.
                _ => self.acquire_lock(next, &mut of_next),
            },
            Err(error) => Err(error),
        };
        Some(HandedOver { released, acquired, unknowns: of_next })
    }

    /// The transaction ran in a new session, in which the own node cannot exist.
    #[cold]
    fn passed_on_in_vain(
        &self,
        exchange: Exchange,
        both: &[Request],
        next: &Acquire<'_>,
    ) -> Option<HandedOver> {
        let created = created_in(&exchange.replies[0], both, &next.name.key).unwrap_or_default();
        let paths = created.into_iter().map(|created| created.path);
        self.client.delete_later(exchange.session.generation, paths);
        None
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
        let list = self
            .looked(|| self.list(directory, Recency::Leader))
            .map_err(ZooKeeperFailure::into_error)?;
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
            failure @ ZooKeeperFailure::NotSent(_) => failure.into_error(),
        })?;
        for reply in &exchange.replies {
            if !reply.code.is_ok() && reply.code != Code::NO_NODE {
                return Err(reply.code.to_error(directory));
            }
        }
        Ok(exchange.replies.iter().any(|reply| reply.code.is_ok()))
    }
}
