//! Queueing: entering a queue, finding out whose turn it is, leaving, and resolving a request
//! without a reply.
//!
//! A place is an ephemeral sequential node. Its turn has come when no node before it excludes it.
//! Each waiter watches only the node that it waits for, and *looks again* at the whole list when
//! that node changes: a Java reader that was the writer can appear before this waiter later than
//! the waiter came.
//!
//! An unknown outcome is resolved by a write that a majority agrees to, and then a look for the
//! holder's id. Without the write a server that lags behind, or a leader that was replaced, may not
//! show an existing node, and that node would keep out everybody for as long as the session lives.

use std::time::{Duration, Instant};

use super::client::{Exchange, NodeWatch, Session, WatchingWaiter, ZooKeeperFailure};
use super::data::Written;
use super::nodes::Node;
use super::wire::{Code, Created, Mode, Reply, Request, Stat, Transacted};
use super::{ZooKeeperStore, names};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::lock_name::LockName;
use crate::base::log;
use crate::store::{Topic, UnknownOutcomes};

/// How often a request is repeated because the directory, or the node that was waited for, was made
/// or removed in the meantime.
pub(super) const TRIES: u32 = 20;

/// A request sent in the session of this generation may have run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unsettled {
    pub(super) generation: u64,
    /// The last look for what it has made could not be read, and ended the connection, as the next
    /// one may: when the background looks again, and how long that pause is.
    pub(super) pause: Option<(Moment, Duration)>,
}

impl Unsettled {
    pub(super) fn of(generation: u64) -> Self {
        Self { generation, pause: None }
    }
}

/// The position of a place in a queue.
#[derive(Debug)]
pub(super) enum Standing {
    /// No node before it excludes it.
    First,
    /// It has to wait for this node.
    Behind(String),
    /// It no longer exists.
    Gone,
}

/// How recent an answer has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recency {
    /// Whatever the server has.
    Any,
    /// What its leader had when it was asked. A leader that a majority has replaced and that has
    /// not noticed it may answer, too: enough for a mere hint.
    Leader,
    /// All that a majority had agreed to when it was asked; and the session was alive then.
    Majority,
}

pub(super) type ZooKeeperResult<T> = std::result::Result<T, ZooKeeperFailure>;

/// A holder and the name for which it queues.
pub(super) type Place<'a> = (&'a LockName, &'a Holder);

/// Whose turn it is, of a holder that takes its turn in several queues at once.
pub(super) enum Turns {
    /// Its own in all of them. Its nodes, in order.
    Come(Vec<Node>),
    /// It has to wait in the queue at this index.
    Behind { at: usize },
}

/// Whether the places of a call that has failed are kept, because it comes back for them. A call
/// that the server has refused would fail in the same way again.
pub(super) fn is_kept<T>(outcome: &ZooKeeperResult<T>, waits: bool) -> bool {
    match outcome {
        Ok(_) => true,
        Err(ZooKeeperFailure::NotSent(error)) => waits && error.kind().is_outage(),
        Err(ZooKeeperFailure::Unknown { .. }) => waits,
    }
}

/// Turns an error of the caller's own into one that leaves nothing unknown.
pub(super) fn certain(error: Error) -> ZooKeeperFailure {
    ZooKeeperFailure::NotSent(error)
}

pub(super) fn unsettled(unknowns: &UnknownOutcomes) -> Option<Unsettled> {
    unknowns.get::<Unsettled>().copied()
}

impl ZooKeeperStore {
    /// Records the outcome if it is unknown; otherwise clears what was unknown.
    pub(super) fn note<T>(
        &self,
        outcome: ZooKeeperResult<T>,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<T> {
        match outcome {
            Ok(value) => {
                unknowns.clear();
                Ok(value)
            }
            Err(failure) => {
                if let ZooKeeperFailure::Unknown { generation, .. } = &failure {
                    unknowns.set(Unsettled::of(*generation));
                }
                Err(failure.into_error())
            }
        }
    }

    /// Asks, and once more if the connection ended during the request: the next connection shows
    /// what became of the first one.
    pub(super) fn repeated<T>(
        &self,
        unknowns: &mut UnknownOutcomes,
        mut ask: impl FnMut(&UnknownOutcomes) -> ZooKeeperResult<T>,
    ) -> ZooKeeperResult<T> {
        let give_up = Instant::now() + self.client.io_timeout();
        match ask(unknowns) {
            // An answer that did not come in time has used up all the time, and the caller has to
            // learn of an answer that makes no sense.
            Err(ZooKeeperFailure::Unknown { error, generation })
                if error.kind() == ErrorKind::Unreachable && Instant::now() < give_up =>
            {
                unknowns.set(Unsettled::of(generation));
                ask(unknowns)
            }
            outcome => outcome,
        }
    }

    /// The same for what changes nothing: the connection may have ended before the request, and the
    /// session goes on over the next one.
    pub(super) fn looked<T>(&self, look: impl Fn() -> ZooKeeperResult<T>) -> Result<T> {
        let outcome = self.repeated(&mut UnknownOutcomes::default(), |_| look());
        outcome.map_err(ZooKeeperFailure::into_error)
    }

    /// What is read from now on shows at least what the leader had when this was called.
    pub(super) fn catch_up(&self) -> ZooKeeperResult<()> {
        self.agreed_in(&self.ask(&[Request::sync(&self.root())])?.replies[0])
    }

    pub(super) fn ask(&self, requests: &[Request]) -> ZooKeeperResult<Exchange> {
        self.client.ask(requests, Vec::new())
    }

    /// [`ask`](Self::ask) for a transaction or a deletion, and for what is read behind it.
    pub(super) fn change(&self, requests: &[Request]) -> ZooKeeperResult<Exchange> {
        self.client.change(requests)
    }

    /// Deletes each of these nodes that exists.
    pub(super) fn delete(&self, paths: &[String]) -> ZooKeeperResult<Exchange> {
        let deletes: Vec<Request> = paths.iter().map(|path| Request::delete(path)).collect();
        if deletes.len() == 1 { self.change(&deletes) } else { self.ask(&deletes) }
    }

    /// The node of a holder, if its session is still the present one.
    pub(super) fn node_of(&self, name: &LockName, holder: &Holder) -> Option<Node> {
        let node = self.nodes.get(name, holder)?;
        if node.session.generation == self.client.generation() && !node.is_gone() {
            return Some(node);
        }
        // Somebody has deleted it, or the session is over. Whatever else the holder had, such as
        // other permits, is removed.
        self.leave_later(name, holder);
        None
    }

    /// The text that is written into a node: whose it is. The holder comes first, then the owner,
    /// both for [`inspect`](super::inspect); the thread is for people. Behind it is the data of the
    /// hold.
    pub(super) fn data_of(&self, holder: &Holder) -> Vec<u8> {
        let text = self.text_of(holder);
        match holder.data() {
            Some(data) => Written { number: 0, asked: 0, data: data.bytes() }.behind(&text),
            None => text,
        }
    }

    fn text_of(&self, holder: &Holder) -> Vec<u8> {
        let Some(owner) = &self.owner else { return holder.as_str().into() };
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("without a name");
        let (holder, label, pid, host) =
            (holder.as_str(), owner.label(), owner.pid(), owner.host());
        format!("{holder} {label} pid {pid} on {host}\nthread {thread}").into_bytes()
    }

    /// The request for a place in the queue of a name.
    pub(super) fn enter_request(&self, name: &LockName, holder: &Holder) -> Request {
        let prefix = names::node_prefix(name.kind, &names::protection_id(holder, 0));
        let queue = self.queue_of_name(name);
        let path = format!("{queue}/{prefix}");
        let enter =
            Request::create(&path, &self.data_of(holder), self.acl, Mode::EphemeralSequential);
        if name.kind.is_exclusive() { enter.drawing_in(queue) } else { enter }
    }

    /// Waits for the turn of a holder in several queues, as far as that needs no message: it has
    /// its place in all of them afterwards, unless it does not wait and one is not free.
    pub(super) fn take_turns(
        &self,
        places: &[Place<'_>],
        waits: bool,
        unknowns: &UnknownOutcomes,
    ) -> ZooKeeperResult<Turns> {
        if places.is_empty() {
            return Ok(Turns::Come(Vec::new()));
        }
        if !waits && unknowns.is_empty() {
            for (at, (name, _)) in places.iter().enumerate() {
                if self.ask_whether_busy(name)? {
                    return Ok(Turns::Behind { at });
                }
            }
        }
        let began = self.client.now();
        let mut lists = self.queues_with(places, unknowns)?;
        for _ in 0..TRIES {
            let (at, standing) = self.first_blocked(places, lists);
            let (name, holder) = places[at];
            lists = match standing {
                Standing::First => match self.with_czxids(places)? {
                    Some(nodes) => return Ok(Turns::Come(nodes)),
                    None => self.enter_anew(places)?,
                },
                // Somebody has deleted it by hand or by force.
                Standing::Gone => self.enter_anew(places)?,
                Standing::Behind(_) if !waits => {
                    self.busy_names.note(name, began);
                    self.leave_all_later(places);
                    return Ok(Turns::Behind { at });
                }
                Standing::Behind(before) => {
                    if self.watch(name, holder, &before)? {
                        return Ok(Turns::Behind { at });
                    }
                    self.lists_for_turn(places)?
                }
            };
        }
        Err(certain(busy_directory(self.queue_of_name(places[0].0))))
    }

    /// The first place, in order, whose turn has not come yet, or one that is gone. `First` if the
    /// turn of all has come.
    fn first_blocked(&self, places: &[Place<'_>], lists: Vec<Vec<String>>) -> (usize, Standing) {
        let mut first = (0, Standing::First);
        for (at, (&(name, holder), list)) in places.iter().zip(lists).enumerate() {
            match self.standing(name, holder, list) {
                Standing::First => {}
                Standing::Gone => return (at, Standing::Gone),
                behind @ Standing::Behind(_) => {
                    if matches!(first.1, Standing::First) {
                        first = (at, behind);
                    }
                }
            }
        }
        first
    }

    /// The nodes of these places, with the changes that made them: a server that did not report
    /// one is asked. The number in its reply to the change would not do: it may have processed
    /// later changes by then, and a token that is too large keeps the next holder out of the
    /// resource. `None`: one of the nodes is gone.
    fn with_czxids(&self, places: &[Place<'_>]) -> ZooKeeperResult<Option<Vec<Node>>> {
        let mut nodes = Vec::with_capacity(places.len());
        for &(name, holder) in places {
            let Some(mut node) = self.node_of(name, holder) else { return Ok(None) };
            if node.czxid == 0 {
                let exchange = self.ask(&[Request::get_data(&node.path, false)])?;
                let read = data_in(&exchange.replies[0], &node.path)?;
                let Some((_, stat)) = read else { return Ok(None) };
                node.czxid = stat.czxid;
                self.nodes.update(name, holder, |known| known.czxid = stat.czxid);
            }
            nodes.push(node);
        }
        Ok(Some(nodes))
    }

    /// What is in the queues of these places. The holder enters them unless it has a place in each.
    pub(super) fn queues_with(
        &self,
        places: &[Place<'_>],
        unknowns: &UnknownOutcomes,
    ) -> ZooKeeperResult<Vec<Vec<String>>> {
        let mut has_all = true;
        for &(name, holder) in places {
            let node = match (self.node_of(name, holder), unsettled(unknowns)) {
                (None, Some(unsettled)) => self.find(name, holder, unsettled)?,
                (node, _) => node,
            };
            has_all &= node.is_some();
        }
        if has_all {
            return self.lists_for_turn(places);
        }
        self.enter_anew(places)
    }

    /// Enters these queues at their ends, also those in which the holder has a place: otherwise the
    /// order of the queues would not be the same everywhere, and the holder could be behind another
    /// call in one of them that is behind it in another.
    pub(super) fn enter_anew(&self, places: &[Place<'_>]) -> ZooKeeperResult<Vec<Vec<String>>> {
        self.leave_all_later(places);
        self.enter(places)
    }

    /// Enters these queues in one transaction, and returns what is in each of them.
    fn enter(&self, places: &[Place<'_>]) -> ZooKeeperResult<Vec<Vec<String>>> {
        let queues: Vec<&str> = places.iter().map(|(name, _)| self.queue_of_name(name)).collect();
        // The directories that are missing come first, in the same transaction.
        let mut missing = Vec::new();
        for _ in 0..TRIES {
            let directories = missing.len();
            let mut changes = std::mem::take(&mut missing);
            changes.extend(places.iter().map(|(name, holder)| self.enter_request(name, holder)));
            let looks: Vec<Request> =
                queues.iter().map(|queue| Request::children(queue, false)).collect();
            let making = self.make(&changes, &looks)?;
            let exchange = making.exchange;
            match making.outcome {
                Transacted::Made(created) => {
                    let mut all = Ok(());
                    for (&(name, holder), created) in
                        places.iter().zip(created.into_iter().skip(directories))
                    {
                        // Those after a refused one are noted, too, because they have to be left.
                        all = all
                            .and(self.entered(name, holder, &exchange.session, created).map(drop));
                    }
                    all?;
                    return lists_in(&exchange.replies[1..], &queues);
                }
                // Another client has made it in the meantime.
                Transacted::Refused { place, code: Code::NODE_EXISTS } if place < directories => {}
                Transacted::Refused { code: Code::NO_NODE, .. } => {
                    missing = self.missing(queues.iter().copied())?;
                }
                Transacted::Refused { place, code } => {
                    let queue = queues[place.saturating_sub(directories)];
                    return Err(certain(code.to_error(queue)));
                }
            }
        }
        Err(certain(busy_directory(queues[0])))
    }

    /// The directory in which the places of a name are.
    pub(super) fn queue_of_name<'n>(&self, name: &'n LockName) -> &'n str {
        self.paths(name).queue(name.kind)
    }

    /// Notes a place that was made in this session.
    ///
    /// # Errors
    /// `Full` for a place whose number is out of order: it would allow two calls to have their turn
    /// at once, because after 2^31 - 1 servers assign the same number again, and then negative
    /// ones, which come before all others. The place is given up.
    pub(super) fn entered(
        &self,
        name: &LockName,
        holder: &Holder,
        session: &Session,
        created: Created,
    ) -> ZooKeeperResult<Node> {
        let number = names::sequence(name.kind, names::last_of(&created.path));
        if number.is_some_and(|number| !(0..names::LAST_SEQUENCE).contains(&number)) {
            self.client.delete_later(session.generation, [created.path]);
            let why = "the numbers of the nodes have reached 2^31, after which their order is lost: leave the lock \
                       unused for a minute, so that ZooKeeper removes its directory and restarts its numbering";
            return Err(certain(Error::named(ErrorKind::Full, &name.name, why)));
        }
        if number.is_some_and(|number| number > names::MOST_SEQUENCE) {
            log::warn!(
                "the nodes of {:?} will soon reach the number 2^31, and the lock is refused then: leave it unused for a \
                 minute, so that ZooKeeper removes its directory and restarts its numbering",
                name.name
            );
        }
        let node = Node::new(session, created);
        self.nodes.put(name, holder, node.clone());
        Ok(node)
    }

    /// The list of a directory; empty if there is none.
    pub(super) fn list(&self, directory: &str, recency: Recency) -> ZooKeeperResult<Vec<String>> {
        Ok(self.lists(&[directory], recency)?.remove(0))
    }

    fn lists(&self, directories: &[&str], recency: Recency) -> ZooKeeperResult<Vec<Vec<String>>> {
        let mut requests = match recency {
            Recency::Any => Vec::new(),
            Recency::Leader => vec![Request::sync(&self.root())],
            Recency::Majority => vec![self.client.quorum_check()],
        };
        let checks = requests.len();
        requests.extend(directories.iter().map(|directory| Request::children(directory, false)));
        let exchange = self.ask(&requests)?;
        let (checks, listed) = exchange.replies.split_at(checks);
        for reply in checks {
            self.agreed_in(reply)?;
        }
        lists_in(listed, directories)
    }

    /// The lists for checking whether it is the turn of these places: afterwards the session is
    /// known to be alive. While nothing is held there are no heartbeats, so a majority is asked
    /// unless the session is known to live until the next one is answered.
    fn lists_for_turn(&self, places: &[Place<'_>]) -> ZooKeeperResult<Vec<Vec<String>>> {
        let may_end = self.client.lives_until() <= self.client.now().plus(self.lease() / 3);
        let queues: Vec<&str> = places.iter().map(|(name, _)| self.queue_of_name(name)).collect();
        self.lists(&queues, if may_end { Recency::Majority } else { Recency::Any })
    }

    /// # Errors
    /// The request was not agreed to.
    pub(super) fn agreed_in(&self, reply: &Reply) -> ZooKeeperResult<()> {
        done(reply, &self.root())
    }

    /// Whether other clients had the name within the last session timeout.
    pub(super) fn was_busy(&self, name: &LockName) -> bool {
        self.busy_names.was_busy(name, self.client.now(), self.lease())
    }

    /// Whether a lock that other clients held recently is still not free, as the leader knows it.
    pub(super) fn ask_whether_busy(&self, name: &LockName) -> ZooKeeperResult<bool> {
        if !self.was_busy(name) {
            return Ok(false);
        }
        let queue = self.list(self.queue_of_name(name), Recency::Leader)?;
        let is_busy = names::keeps_out(name.kind, queue);
        if !is_busy {
            self.busy_names.forget(name);
        }
        Ok(is_busy)
    }

    pub(super) fn root(&self) -> String {
        if self.chroot.is_empty() { "/".to_owned() } else { self.chroot.clone() }
    }

    /// Finds what a request of unknown outcome has made: the holder's place, if it exists.
    pub(super) fn find(
        &self,
        name: &LockName,
        holder: &Holder,
        unsettled: Unsettled,
    ) -> ZooKeeperResult<Option<Node>> {
        if unsettled.generation < self.client.generation() {
            return Ok(None);
        }
        let directory = self.queue_of_name(name);
        let id = names::protection_id(holder, 0);
        let Some((session, list)) = self.list_in(unsettled, directory)? else { return Ok(None) };
        let Some(found) = list.into_iter().find(|node| names::is_of(node, &id)) else {
            return Ok(None);
        };
        let path = format!("{directory}/{found}");
        let exchange = self.ask(&[Request::get_data(&path, false)])?;
        let Some((_, stat)) = data_in(&exchange.replies[0], &path)? else { return Ok(None) };
        self.entered(name, holder, &session, Created { path, stat }).map(Some)
    }

    /// What is in a directory once nothing that was sent before makes a node there, in everything
    /// that a majority has agreed to; and the session, to which the nodes found there belong.
    /// `None`: another session has begun. Nodes of the last one may be left for one more timeout,
    /// if the servers were away, and then go: they are nobody's.
    pub(super) fn list_in(
        &self,
        unsettled: Unsettled,
        directory: &str,
    ) -> ZooKeeperResult<Option<(Session, Vec<String>)>> {
        self.close_the_gate()?;
        let look = [self.client.quorum_check(), Request::children(directory, false)];
        let exchange = self.ask(&look)?;
        self.agreed_in(&exchange.replies[0])?;
        let list = children_in(&exchange.replies[1], directory)?.unwrap_or_default();
        let is_its_own = exchange.session.generation == unsettled.generation;
        Ok(is_its_own.then_some((exchange.session, list)))
    }

    /// The position of a holder's place in the list of its queue.
    pub(super) fn standing(&self, name: &LockName, holder: &Holder, list: Vec<String>) -> Standing {
        let Some(node) = self.node_of(name, holder) else { return Standing::Gone };
        let list = names::sorted(name.kind, list);
        let own = names::last_of(&node.path);
        match list.iter().position(|other| other == own) {
            None => Standing::Gone,
            Some(own) => match names::predecessor(name.kind, &list, own) {
                None => Standing::First,
                Some(before) => Standing::Behind(before.to_owned()),
            },
        }
    }

    /// Watches the node that the waiter waits for. False: it is already gone.
    ///
    /// # Errors
    /// `WrongType` for a node that belongs to no session: it was left by hand, or by another
    /// program, and the wait for it would never end.
    pub(super) fn watch(
        &self,
        name: &LockName,
        holder: &Holder,
        before: &str,
    ) -> ZooKeeperResult<bool> {
        let path = format!("{}/{before}", self.queue_of_name(name));
        let waiter = waiter(name, holder);
        let turn = waiter.turn.clone();
        if self.client.is_watched_by(&path, &turn) {
            return Ok(true);
        }
        // The node that it waited for before.
        self.client.unwatch(&turn);
        self.nodes.update(name, holder, |node| node.has_waited = true);
        let exchange = self.client.ask(
            &[Request::get_data(&path, true)],
            vec![(path.clone(), NodeWatch::Predecessor(waiter))],
        )?;
        let is_watched = self.is_of_a_session(&exchange.replies[0], &path);
        if !matches!(is_watched, Ok(true)) {
            self.client.unwatch(&turn);
        }
        is_watched
    }

    /// Whether the node that is waited for exists.
    fn is_of_a_session(&self, reply: &Reply, path: &str) -> ZooKeeperResult<bool> {
        let Some((_, stat)) = data_in(reply, path)? else { return Ok(false) };
        if stat.ephemeral_owner == 0 {
            let why = format!(
                "the node {path} comes before all others and belongs to no session, so no lock below it is ever free: \
                 remove it if no program needs it, or use another name"
            );
            return Err(certain(Error::new(ErrorKind::WrongType, why)));
        }
        Ok(true)
    }

    pub(super) fn leave_all_later(&self, places: &[Place<'_>]) {
        for (name, holder) in places {
            self.leave_later(name, holder);
        }
    }

    /// Forgets a holder's nodes, and deletes them without waiting for that.
    pub(super) fn leave_later(&self, name: &LockName, holder: &Holder) {
        if let Some(node) = self.forget_deleted(name, holder) {
            let paths = node.paths();
            self.client.unguard(&paths);
            self.client.delete_later(node.session.generation, paths);
        }
    }

    /// Forgets a holder's nodes after the server has reported that they are gone. Whatever else is
    /// forgotten has to be [deleted](Self::leave_later), because otherwise it would stay until the
    /// session ends.
    pub(super) fn forget_deleted(&self, name: &LockName, holder: &Holder) -> Option<Node> {
        let node = self.nodes.remove(name, holder)?;
        if node.has_waited {
            self.client.unwatch(&Topic::turn(name, holder.as_str()));
        }
        Some(node)
    }
}

/// Who is woken for a place in the queue of a name.
pub(super) fn waiter(name: &LockName, holder: &Holder) -> WatchingWaiter {
    WatchingWaiter { turn: Topic::turn(name, holder.as_str()), freed: Topic::freed(name) }
}

/// # Errors
/// The request was refused. `about`: its path.
pub(super) fn done(reply: &Reply, about: &str) -> ZooKeeperResult<()> {
    if reply.code.is_ok() { Ok(()) } else { Err(certain(reply.code.to_error(about))) }
}

/// Whether the node exists.
///
/// # Errors
/// The request was refused for another reason. `about`: its path.
pub(super) fn is_there(reply: &Reply, about: &str) -> ZooKeeperResult<bool> {
    if reply.code == Code::NO_NODE { Ok(false) } else { done(reply, about).map(|()| true) }
}

/// The data of a node. `None`: there is none.
pub(super) fn data_in(reply: &Reply, path: &str) -> ZooKeeperResult<Option<(Vec<u8>, Stat)>> {
    if is_there(reply, path)? { Ok(Some(reply.data()?)) } else { Ok(None) }
}

/// The list of a directory. `None`: there is none.
pub(super) fn children_in(listed: &Reply, directory: &str) -> ZooKeeperResult<Option<Vec<String>>> {
    if is_there(listed, directory)? { Ok(Some(listed.children()?)) } else { Ok(None) }
}

/// The lists of these directories; empty for those that do not exist.
fn lists_in(listed: &[Reply], directories: &[&str]) -> ZooKeeperResult<Vec<Vec<String>>> {
    let list = |(reply, directory): (&Reply, &&str)| {
        children_in(reply, directory).map(Option::unwrap_or_default)
    };
    listed.iter().zip(directories).map(list).collect()
}

/// What became of the changes of a transaction.
pub(super) fn transacted(
    reply: &Reply,
    requested: &[Request],
    about: &str,
) -> ZooKeeperResult<Transacted> {
    done(reply, about)?;
    Ok(reply.transacted(requested)?)
}

/// The nodes that a transaction has made; none if one of its changes was refused, because a node
/// existed, was missing or had changed.
pub(super) fn created(outcome: Transacted, about: &str) -> ZooKeeperResult<Vec<Created>> {
    match outcome {
        Transacted::Made(created) => Ok(created),
        Transacted::Refused {
            code: Code::NODE_EXISTS | Code::NO_NODE | Code::BAD_VERSION, ..
        } => Ok(Vec::new()),
        Transacted::Refused { code, .. } => Err(certain(code.to_error(about))),
    }
}

#[cold]
pub(super) fn busy_directory(directory: &str) -> Error {
    let why = format!("{directory} was made and removed repeatedly in the meantime: try again");
    Error::new(ErrorKind::NotReady, why)
}
