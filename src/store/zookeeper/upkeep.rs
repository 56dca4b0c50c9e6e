//! Looking after holds: the session is kept alive by its own thread, so all that is left is to
//! notice a node that somebody else has deleted.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::ZooKeeperStore;
use super::client::{Failure, Watch};
use super::nodes::Node;
use super::wire::{Code, Request};
use crate::base::error::{Error, Result};
use crate::base::lock_name::Kind;
use crate::store::{Renewal, Renewed, Undo};

/// The background waits for the answers to so many requests at once.
const CHUNK: usize = 100;
/// For how long it gives up what nobody uses, before it looks whether something else is due.
const SETTLING: Duration = Duration::from_millis(100);

impl ZooKeeperStore {
    /// Whether each hold is there. A hold that lasts is asked for once on each connection, and is
    /// watched from then on; shorter ones cost nothing.
    pub(super) fn look_after(&self, batch: &[Renewal]) -> Vec<Renewed> {
        let Some((session, link)) = self.client.present() else {
            let error = self.client.last_error();
            return batch.iter().map(|one| self.without_connection(one, &error)).collect();
        };
        let mut outcomes = Vec::with_capacity(batch.len());
        for chunk in batch.chunks(CHUNK) {
            let sent_at = self.client.now();
            let held = || Renewed::Held { sent_at, again: false, beside: None };
            let nodes: Vec<Option<Node>> = chunk.iter().map(|one| self.held_node(one)).collect();
            let is_new = |node: &&Node| {
                // In the middle of a downgrade either of two nodes may be the one that stands.
                node.guarded != Some(link) && node.session.generation == session.generation && node.downgraded.is_none()
            };
            let unguarded: Vec<&Node> = nodes.iter().flatten().filter(is_new).collect();
            let trouble = self.guard(&unguarded).err();
            for (one, node) in chunk.iter().zip(&nodes) {
                outcomes.push(match (node, &trouble) {
                    (None, _) => Renewed::Gone,
                    (Some(node), _) if node.is_gone() => Renewed::Gone,
                    (Some(node), Some(error)) if is_new(&node) => Renewed::Failed(error.clone()),
                    (Some(node), _) => {
                        let is_asked = is_new(&node);
                        self.nodes.update(&one.name, &one.holder, |now| {
                            // Not if a downgrade has given it another node meanwhile.
                            if is_asked && now.path == node.path && now.downgraded.is_none() {
                                now.guarded = Some(link);
                            }
                        });
                        held()
                    }
                });
            }
        }
        outcomes
    }

    fn held_node(&self, hold: &Renewal) -> Option<Node> {
        self.node_of(&hold.name, &hold.holder).filter(|node| node.granted)
    }

    fn without_connection(&self, hold: &Renewal, error: &Error) -> Renewed {
        if self.held_node(hold).is_some() { Renewed::Failed(error.clone()) } else { Renewed::Gone }
    }

    /// The nodes of a hold that somebody may delete: its own, or its permits.
    fn guarded_paths(node: &Node) -> &[String] {
        if node.permits.is_empty() { std::slice::from_ref(&node.path) } else { &node.permits }
    }

    /// Has the holders told when their nodes go. Those that are gone already are marked.
    fn guard(&self, nodes: &[&Node]) -> Result<()> {
        let paths = || nodes.iter().flat_map(|node| Self::guarded_paths(node).iter().map(move |path| (path, *node)));
        let watches = paths().map(|(path, node)| (path.clone(), Watch::Own(node.is_lost.clone()))).collect();
        let requests: Vec<Request> = paths().map(|(path, _)| Request::get_data(path, true)).collect();
        if requests.is_empty() {
            return Ok(());
        }
        let exchange = self.client.ask_watching(&requests, watches).map_err(Failure::into_error)?;
        for (reply, (path, node)) in exchange.replies.iter().zip(paths()) {
            match reply.code {
                Code::OK => {}
                Code::NO_NODE => {
                    self.client.unwatch_all(path);
                    node.is_lost.store(true, Ordering::Release);
                }
                code => return Err(code.to_error(path)),
            }
        }
        Ok(())
    }

    /// One question for all: the leader has to answer, and every node has to be there.
    pub(super) fn extend_all(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        renewals.iter().try_for_each(|one| self.check_lease(one.lease))?;
        let nodes: Vec<Option<Node>> = renewals.iter().map(|one| self.held_node(one)).collect();
        let mut requests = vec![Request::sync(&self.root())];
        for node in nodes.iter().flatten() {
            requests.extend(Self::guarded_paths(node).iter().map(|path| Request::exists(path, false)));
        }
        let exchange = self.ask(&requests).map_err(Failure::into_error)?;
        let mut replies = exchange.replies.iter().skip(1);
        let mut outcomes = Vec::with_capacity(renewals.len());
        for (one, node) in renewals.iter().zip(nodes) {
            let Some(node) = node else {
                outcomes.push(Renewed::Gone);
                continue;
            };
            let mut is_there = node.session.generation == exchange.session.generation;
            for path in Self::guarded_paths(&node) {
                let reply = replies.next().expect("a reply for each request");
                match reply.code {
                    Code::OK => {}
                    Code::NO_NODE => is_there = false,
                    code => return Err(code.to_error(path)),
                }
            }
            if !is_there {
                self.leave_later(&one.name, &one.holder);
            }
            let held = Renewed::Held { sent_at: exchange.sent_at, again: false, beside: None };
            outcomes.push(if is_there { held } else { Renewed::Gone });
        }
        Ok(outcomes)
    }

    /// Gives up what nobody uses, for a short time: each takes a round trip, and what is due
    /// meanwhile must not wait for thousands of them. What cannot be settled yet stays: a node
    /// stands for as long as the session lives, not for a lease.
    pub(super) fn settle(&self, undos: &mut Vec<Undo>) {
        if self.client.present().is_none() {
            return;
        }
        let began = Instant::now();
        let (mut rest, mut kept) = (std::mem::take(undos).into_iter(), Vec::new());
        for mut undo in rest.by_ref() {
            let mut unknowns = undo.unknowns.clone();
            let released = match undo.name.kind {
                Kind::Semaphore => self.release_permits(&undo.release(), &mut unknowns),
                Kind::CountingSemaphore | Kind::Latch => continue,
                _ => self.release_lock(&undo.release(), &mut unknowns),
            };
            let mut is_over = began.elapsed() >= SETTLING;
            if let Err(error) = released {
                log::debug!("an unknown outcome of {:?} cannot be resolved yet: {}", undo.name.name, error.chain());
                undo.unknowns = unknowns;
                // The others wait for the next connection too.
                is_over |= error.kind().is_outage();
                // Also one that is refused: it stands until it may be deleted. Behind the others,
                // which would not have their turn otherwise.
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
