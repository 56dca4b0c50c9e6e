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

use std::time::Instant;

use super::client::{Exchange, NodeWatch, Waiter, ZooKeeperFailure};
use super::nodes::Node;
use super::wire::{Code, Created, Mode, Reply, Request};
use super::{ZooKeeperStore, names};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lock_name::{Kind, LockName};
use crate::base::log;
use crate::store::{Topic, UnknownOutcomes};

/// How often a request is repeated because the directory, or the node that was waited for, was made
/// or removed in the meantime.
pub(super) const TRIES: u32 = 20;

/// A request sent in the session of this generation may have run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unsettled {
    pub(super) generation: u64,
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

pub(super) type Asked<T> = std::result::Result<T, ZooKeeperFailure>;

/// Whether the server has refused it, so that a repeat would fail in the same way.
pub(super) fn is_refused<T>(outcome: &Asked<T>) -> bool {
    matches!(outcome, Err(ZooKeeperFailure::NotSent(error)) if !error.kind().is_outage())
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
    pub(super) fn note<T>(&self, outcome: Asked<T>, unknowns: &mut UnknownOutcomes) -> Result<T> {
        match outcome {
            Ok(value) => {
                unknowns.clear();
                Ok(value)
            }
            Err(failure) => {
                if let ZooKeeperFailure::Unknown { generation, .. } = &failure {
                    unknowns.set(Unsettled { generation: *generation });
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
        mut ask: impl FnMut(&UnknownOutcomes) -> Asked<T>,
    ) -> Asked<T> {
        let give_up = Instant::now() + self.client.io_timeout();
        match ask(unknowns) {
            // An answer that did not come in time has used up all the time, and the caller has to
            // learn of an answer that makes no sense.
            Err(ZooKeeperFailure::Unknown { error, generation })
                if error.kind() == ErrorKind::Unreachable && Instant::now() < give_up =>
            {
                unknowns.set(Unsettled { generation });
                ask(unknowns)
            }
            outcome => outcome,
        }
    }

    /// The same for what changes nothing: the connection may have ended before the request, and the
    /// session goes on over the next one.
    pub(super) fn looked<T>(&self, look: impl Fn() -> Asked<T>) -> Asked<T> {
        self.repeated(&mut UnknownOutcomes::default(), |_| look())
    }

    /// What is read from now on shows at least what the leader had when this was called.
    pub(super) fn catch_up(&self) -> Asked<()> {
        self.agreed_in(&self.ask(&[Request::sync(&self.root())])?.replies[0])
    }

    pub(super) fn ask(&self, requests: &[Request]) -> Asked<Exchange> {
        self.client.ask(requests, None)
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
    /// both for [`inspect`](super::inspect); the thread is for people.
    pub(super) fn data_of(&self, holder: &Holder) -> Vec<u8> {
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
        let path = format!("{}/{prefix}", self.paths(name).queue(name.kind));
        Request::create(&path, &self.data_of(holder), self.acl, Mode::EphemeralSequential)
    }

    /// Enters the queue of a name, and returns the new node with the list of all.
    pub(super) fn enter(&self, name: &LockName, holder: &Holder) -> Asked<(Node, Vec<String>)> {
        let directory = self.paths(name).queue(name.kind).to_owned();
        let (enter, list) =
            (self.enter_request(name, holder), Request::children(&directory, false));
        for _ in 0..TRIES {
            let exchange = self.ask(&[enter.clone(), list.clone()])?;
            let [entered, listed] = &exchange.replies[..] else {
                unreachable!("a reply for each request")
            };
            match entered.code {
                Code::OK => {
                    let node =
                        self.entered(name, holder, &exchange, entered.created().map_err(certain)?)?;
                    return Ok((node, list_in(listed, &directory)?));
                }
                Code::NO_NODE => {
                    let mut changes = self.missing([&*directory])?;
                    changes.push(enter.clone());
                    let exchange = self.ask(&[Request::multi(&changes), list.clone()])?;
                    let [entered, listed] = &exchange.replies[..] else {
                        unreachable!("a reply for each request")
                    };
                    if let Some(created) = created_in(entered, &changes, &directory)?.pop() {
                        let node = self.entered(name, holder, &exchange, created)?;
                        return Ok((node, list_in(listed, &directory)?));
                    }
                }
                code => return Err(certain(code.to_error(&directory))),
            }
        }
        Err(certain(busy_directory(&directory)))
    }

    /// Notes a place that was made.
    ///
    /// # Errors
    /// `Full` for a place whose number is out of order: it would allow two calls to have their turn
    /// at once, because after 2^31 - 1 servers assign the same number again, and then negative
    /// ones, which come before all others. The place is given up.
    pub(super) fn entered(
        &self,
        name: &LockName,
        holder: &Holder,
        exchange: &Exchange,
        created: Created,
    ) -> Asked<Node> {
        let number = names::sequence(name.kind, names::last_of(&created.path));
        if number.is_some_and(|number| !(0..names::LAST_SEQUENCE).contains(&number)) {
            self.client.delete_later(exchange.session.generation, [created.path]);
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
        let node = Node::new(&exchange.session, created);
        self.nodes.put(name, holder, node.clone());
        Ok(node)
    }

    /// The list of a directory; empty if there is none.
    pub(super) fn list(&self, directory: &str, recency: Recency) -> Asked<Vec<String>> {
        let list = Request::children(directory, false);
        let requests = match recency {
            Recency::Any => vec![list],
            Recency::Leader => vec![Request::sync(&self.root()), list],
            Recency::Majority => vec![self.client.quorum_check(), list],
        };
        let exchange = self.ask(&requests)?;
        let [before @ .., listed] = &exchange.replies[..] else {
            unreachable!("a reply for each request")
        };
        before.iter().try_for_each(|reply| self.agreed_in(reply))?;
        list_in(listed, directory)
    }

    /// Whether the session may end before the next heartbeat is answered, as far as is known. While
    /// nothing is held there are no heartbeats, so a call that sees its turn asks a majority.
    pub(super) fn grants_need_a_majority(&self) -> bool {
        self.client.lives_until() <= self.client.now().plus(self.lease() / 3)
    }

    /// The list for checking whether it is a place's turn: afterwards the session is known to be
    /// alive.
    pub(super) fn list_for_turn(&self, directory: &str) -> Asked<Vec<String>> {
        self.list(
            directory,
            if self.grants_need_a_majority() { Recency::Majority } else { Recency::Any },
        )
    }

    /// # Errors
    /// The request was not agreed to.
    pub(super) fn agreed_in(&self, reply: &Reply) -> Asked<()> {
        done(reply, &self.root())
    }

    /// Whether other clients had the name within the last session timeout.
    pub(super) fn was_busy(&self, name: &LockName) -> bool {
        self.busy_names.was_busy(name, self.client.now(), self.lease())
    }

    /// Whether a lock that other clients held recently is still not free, as the leader knows it.
    pub(super) fn is_still_busy(&self, name: &LockName) -> Asked<bool> {
        if !self.was_busy(name) {
            return Ok(false);
        }
        let is_busy = names::keeps_out(
            name.kind,
            self.list(self.paths(name).queue(name.kind), Recency::Leader)?,
        );
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
    ) -> Asked<Option<Node>> {
        if unsettled.generation < self.client.generation() {
            return Ok(None);
        }
        let directory = self.paths(name).queue(name.kind).to_owned();
        let id = names::protection_id(holder, 0);
        let found = self
            .list(&directory, Recency::Majority)?
            .into_iter()
            .find(|node| names::is_of(node, &id));
        let Some(found) = found else { return Ok(None) };
        let path = format!("{directory}/{found}");
        let exchange = self.ask(&[Request::get_data(&path, false)])?;
        let reply = &exchange.replies[0];
        if reply.code == Code::NO_NODE {
            return Ok(None);
        }
        if !reply.code.is_ok() {
            return Err(certain(reply.code.to_error(&path)));
        }
        let (_, stat) = reply.data().map_err(certain)?;
        self.entered(name, holder, &exchange, Created { path, stat }).map(Some)
    }

    /// The position of a place in a list.
    pub(super) fn standing(&self, kind: Kind, list: Vec<String>, node: &Node) -> Standing {
        let list = names::sorted(kind, list);
        let own = names::last_of(&node.path);
        match list.iter().position(|other| other == own) {
            None => Standing::Gone,
            Some(own) => match names::predecessor(kind, &list, own) {
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
    pub(super) fn watch(&self, name: &LockName, holder: &Holder, before: &str) -> Asked<bool> {
        let path = format!("{}/{before}", self.paths(name).queue(name.kind));
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
            Some((&path, NodeWatch::Predecessor(waiter))),
        )?;
        let is_watched = self.is_of_a_session(&exchange.replies[0], &path);
        if !matches!(is_watched, Ok(true)) {
            self.client.unwatch(&turn);
        }
        is_watched
    }

    /// Whether the node that is waited for exists.
    fn is_of_a_session(&self, reply: &Reply, path: &str) -> Asked<bool> {
        match reply.code {
            Code::OK => {}
            Code::NO_NODE => return Ok(false),
            code => return Err(certain(code.to_error(path))),
        }
        let (_, stat) = reply.data().map_err(certain)?;
        if stat.ephemeral_owner == 0 {
            let why = format!(
                "the node {path} comes before all others and belongs to no session, so no lock below it is ever free: \
                 remove it if no program needs it, or use another name"
            );
            return Err(certain(Error::new(ErrorKind::WrongType, why)));
        }
        Ok(true)
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
pub(super) fn waiter(name: &LockName, holder: &Holder) -> Waiter {
    Waiter { turn: Topic::turn(name, holder.as_str()), freed: Topic::freed(name) }
}

/// # Errors
/// The request was refused. `about`: its path.
pub(super) fn done(reply: &Reply, about: &str) -> Asked<()> {
    if reply.code.is_ok() { Ok(()) } else { Err(certain(reply.code.to_error(about))) }
}

/// The list of a directory. `None`: there is none.
pub(super) fn children_in(listed: &Reply, directory: &str) -> Asked<Option<Vec<String>>> {
    match listed.code {
        Code::OK => listed.children().map(Some).map_err(certain),
        Code::NO_NODE => Ok(None),
        code => Err(certain(code.to_error(directory))),
    }
}

/// The list of a directory; empty if there is none.
fn list_in(listed: &Reply, directory: &str) -> Asked<Vec<String>> {
    children_in(listed, directory).map(Option::unwrap_or_default)
}

/// The nodes that a transaction has made; none if one of its changes was refused, because a node
/// existed or was missing.
pub(super) fn created_in(reply: &Reply, requested: &[Request], about: &str) -> Asked<Vec<Created>> {
    use super::wire::Change;
    if !reply.code.is_ok() {
        return Err(certain(reply.code.to_error(about)));
    }
    let mut created = Vec::new();
    for change in reply.changes(requested).map_err(certain)? {
        match change {
            Change::Created(node) => created.push(node),
            Change::Done | Change::Failed(Code::OK) => {}
            Change::Failed(Code::NODE_EXISTS | Code::NO_NODE) => return Ok(Vec::new()),
            Change::Failed(code) => return Err(certain(code.to_error(about))),
        }
    }
    Ok(created)
}

#[cold]
pub(super) fn busy_directory(directory: &str) -> Error {
    let why = format!("{directory} was made and removed repeatedly in the meantime: try again");
    Error::new(ErrorKind::NotReady, why)
}
