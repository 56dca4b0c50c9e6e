//! Maintaining holds: the session is kept alive by its own thread, so what remains is to notice
//! when somebody else has deleted a node.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::ZooKeeperStore;
use super::client::{NodeWatch, ZooKeeperFailure};
use super::nodes::Node;
use super::queue::{ZooKeeperResult, is_there, unsettled};
use super::wire::{Code, Request};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;
use crate::store::{LockStore, Renewal, Renewed, Undo};

/// Maximum number of requests whose answers the background waits for at once.
const CHUNK: usize = 100;
/// How long it leaves alone, at first and at most, what it has looked for with an answer that could
/// not be read.
const UNREAD: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long it gives up what nobody uses before it checks whether something else is due.
const SETTLING: Duration = Duration::from_millis(100);

impl ZooKeeperStore {
    /// Whether each hold still exists. A hold that lasts is asked for once on each connection, and
    /// is watched from then on; shorter ones cost nothing.
    pub(super) fn look_after(&self, batch: &[Renewal]) -> Vec<Renewed> {
        batch.chunks(CHUNK).flat_map(|chunk| self.look_after_some(chunk)).collect()
    }

    fn look_after_some(&self, chunk: &[Renewal]) -> Vec<Renewed> {
        let sent_at = self.client.now();
        let nodes: Vec<Option<Node>> = chunk.iter().map(|one| self.held_node(one)).collect();
        // During a downgrade either of two nodes may be the one that exists.
        let settled = || nodes.iter().flatten().filter(|node| node.downgraded.is_none());
        let Some((session, unguarded)) =
            self.client.unguarded(settled().flat_map(Self::guarded_paths))
        else {
            let error = self.client.last_error();
            let outcome = |node: &Option<Node>| match node {
                Some(_) => Renewed::Failed(error.clone()),
                None => Renewed::Gone,
            };
            return nodes.iter().map(outcome).collect();
        };
        let is_new = |node: &&Node| {
            node.session.generation == session.generation
                && node.downgraded.is_none()
                && Self::guarded_paths(node).iter().any(|path| unguarded.contains(&**path))
        };
        let guarded = self.guard(&settled().filter(is_new).collect::<Vec<_>>());
        let guarded = guarded.map_err(ZooKeeperFailure::into_error);
        let trouble = |node: &Node| match &guarded {
            Err(error) => Some(error),
            // Of another hold it says nothing.
            Ok(refused) => {
                let own = |(path, _): &&(String, Error)| Self::guarded_paths(node).contains(path);
                refused.iter().find(own).map(|(_, error)| error)
            }
        };
        let outcome = |(one, node): (&Renewal, &Option<Node>)| {
            let is_gone =
                node.as_ref().is_none_or(|node| node.is_gone() && self.is_still_at(one, node));
            if is_gone {
                // Nobody else deletes what else the holder has, such as other permits.
                self.leave_later(&one.name, &one.holder);
                return Renewed::Gone;
            }
            match node.as_ref().filter(is_new).and_then(trouble) {
                Some(error) => Renewed::Failed(error.clone()),
                None => Renewed::Held { sent_at, again: false, beside: None, asked: 0 },
            }
        };
        let mut outcomes: Vec<Renewed> = chunk.iter().zip(&nodes).map(outcome).collect();
        self.note_questions(chunk, &nodes, &mut outcomes);
        outcomes
    }

    /// Holds with data learn whether somebody asks for them.
    fn note_questions(&self, chunk: &[Renewal], nodes: &[Option<Node>], outcomes: &mut [Renewed]) {
        let mut paths = Vec::new();
        let mut questions = Vec::new();
        for ((one, node), outcome) in chunk.iter().zip(nodes).zip(outcomes) {
            if let (Some(_), Some(node), Renewed::Held { asked, .. }) =
                (one.holder.data(), node, outcome)
            {
                paths.push(&*node.path);
                questions.push(asked);
            }
        }
        for (question, asked) in questions.into_iter().zip(self.asked_for(&paths)) {
            *question = asked;
        }
    }

    /// Whether its node is the same as before the request. A downgrade that was sent in between has
    /// deleted the writer's node itself, which is noted before it is sent.
    fn is_still_at(&self, hold: &Renewal, asked: &Node) -> bool {
        let is_same = |now: Node| now.downgraded.is_none() && now.path == asked.path;
        self.held_node(hold).is_none_or(is_same)
    }

    fn held_node(&self, hold: &Renewal) -> Option<Node> {
        self.node_of(&hold.name, &hold.holder).filter(|node| node.granted)
    }

    /// The nodes of a hold that somebody else may delete: its own, or its permits.
    fn guarded_paths(node: &Node) -> &[String] {
        if node.permits.is_empty() { std::slice::from_ref(&node.path) } else { &node.permits }
    }

    /// Watches these nodes for their holders. Nodes that are already gone are marked. Returns those
    /// that the server refuses to show.
    fn guard(&self, nodes: &[&Node]) -> ZooKeeperResult<Vec<(String, Error)>> {
        let mut paths = Vec::new();
        for &node in nodes {
            paths.extend(Self::guarded_paths(node).iter().map(|path| (path, node)));
        }
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let requests: Vec<Request> =
            paths.iter().map(|(path, _)| Request::get_data(path, true)).collect();
        let watch = |(path, node): &(&String, &Node)| {
            ((*path).clone(), NodeWatch::Own(node.is_lost.clone()))
        };
        let exchange = self.client.ask(&requests, paths.iter().map(watch).collect())?;
        let mut refused = Vec::new();
        for (reply, (path, node)) in exchange.replies.iter().zip(paths) {
            if reply.code.is_ok() {
                continue;
            }
            self.client.unguard(std::slice::from_ref(path));
            match reply.code {
                Code::NO_NODE => node.is_lost.store(true, Ordering::Release),
                code => refused.push((path.clone(), code.to_error(path))),
            }
        }
        Ok(refused)
    }

    /// One request for all: a majority has to agree to it, and every node has to exist.
    pub(super) fn extend_all(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        self.looked(|| self.ask_for_all(renewals))
    }

    fn ask_for_all(&self, renewals: &[Renewal]) -> ZooKeeperResult<Vec<Renewed>> {
        let nodes: Vec<Option<Node>> = renewals.iter().map(|one| self.held_node(one)).collect();
        let mut requests = vec![self.client.quorum_check()];
        for node in nodes.iter().flatten() {
            requests
                .extend(Self::guarded_paths(node).iter().map(|path| Request::exists(path, false)));
        }
        let exchange = self.ask(&requests)?;
        self.agreed_in(&exchange.replies[0])?;
        let mut replies = exchange.replies.iter().skip(1);
        let mut outcomes = Vec::with_capacity(renewals.len());
        for (one, node) in renewals.iter().zip(nodes) {
            let Some(node) = node else {
                outcomes.push(Renewed::Gone);
                continue;
            };
            let mut exists = node.session.generation == exchange.session.generation;
            for path in Self::guarded_paths(&node) {
                let reply = replies.next().expect("a reply for each request");
                exists &= is_there(reply, path)?;
            }
            if !exists {
                self.leave_later(&one.name, &one.holder);
            }
            let held =
                Renewed::Held { sent_at: exchange.sent_at, again: false, beside: None, asked: 0 };
            outcomes.push(if exists { held } else { Renewed::Gone });
        }
        Ok(outcomes)
    }

    /// Gives up what nobody uses, for a short time: each takes a round trip, and work that becomes
    /// due must not wait for thousands of them. What cannot be resolved yet is kept: a node exists
    /// for as long as the session lives, not for a lease.
    pub(super) fn settle(&self, undos: &mut Vec<Undo>) {
        if !self.client.is_connected() {
            return;
        }
        let began = Instant::now();
        let mut rest = std::mem::take(undos).into_iter();
        let mut kept = Vec::new();
        for mut undo in rest.by_ref() {
            let pause = unsettled(&undo.unknowns).and_then(|before| before.pause);
            if pause.is_some_and(|(until, _)| self.client.now() < until) {
                kept.push(undo);
                continue;
            }
            let mut unknowns = undo.unknowns.clone();
            let released = self.release(&undo.release(), &mut unknowns);
            let mut is_over = began.elapsed() >= SETTLING;
            if let Err(error) = released {
                log::debug!(
                    "an unknown outcome of {:?} cannot be resolved yet: {}",
                    undo.name.name,
                    error.chain()
                );
                undo.unknowns = unknowns;
                if let Some(mut again) = unsettled(&undo.unknowns)
                    && error.kind() == ErrorKind::Protocol
                {
                    let long = pause.map_or(UNREAD.0, |(_, pause)| UNREAD.1.min(pause * 2));
                    again.pause = Some((self.client.now().plus(long), long));
                    undo.unknowns.set(again);
                }
                // The others have to wait for the next connection, too.
                is_over |= error.kind().is_outage();
                // A refused one is kept as well: the node exists until it may be deleted. It goes
                // behind the others, which would never have their turn otherwise.
                kept.push(undo);
            }
            if is_over {
                break;
            }
        }
        undos.extend(rest);
        undos.append(&mut kept);
    }
}
