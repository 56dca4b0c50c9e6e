//! The nodes of this client, by holder and name: the places of its holds and waiters.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::client::{Client, Session};
use super::wire::Created;
use crate::base::holder::Holder;
use crate::base::lock_name::LockName;

/// A holder's place under one name.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Its session: if another one has begun, the node is gone.
    pub(super) session: Session,
    pub(super) path: String,
    /// While the outcome of a downgrade is unknown: the reader's node that may exist in place of
    /// `path`.
    pub(super) downgraded: Option<String>,
    pub(super) czxid: i64,
    /// Its turn has come.
    pub(super) granted: bool,
    /// The server has reported that the node is gone, although nobody here deleted it.
    pub(super) is_lost: Arc<AtomicBool>,
    /// It has watched another node, and may still do so.
    pub(super) has_waited: bool,
    /// The permits of a semaphore.
    pub(super) permits: Vec<String>,
}

impl Node {
    pub(super) fn new(session: &Session, created: Created) -> Self {
        let permits = Vec::new();
        Self {
            path: created.path,
            czxid: created.stat.czxid,
            granted: false,
            ..Self::with_permits(session, permits)
        }
    }

    /// Permits that were granted.
    pub(super) fn with_permits(session: &Session, permits: Vec<String>) -> Self {
        Self {
            session: session.clone(),
            path: String::new(),
            downgraded: None,
            czxid: 0,
            granted: true,
            is_lost: Arc::default(),
            has_waited: false,
            permits,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// All of its paths.
    pub(super) fn paths(&self) -> Vec<String> {
        let own = Some(&self.path).filter(|path| !path.is_empty());
        self.permits.iter().chain(&self.downgraded).chain(own).cloned().collect()
    }
}

type Key = (Holder, Arc<str>);

#[derive(Debug)]
pub(super) struct Nodes {
    /// The client needs to know how many of them are held.
    client: Arc<Client>,
    table: Mutex<NodeTable>,
}

#[derive(Debug, Default)]
struct NodeTable {
    nodes: HashMap<Key, Node>,
    /// How many are granted.
    held: usize,
}

fn key(name: &LockName, holder: &Holder) -> Key {
    (holder.clone(), name.key.clone())
}

impl Nodes {
    pub(super) fn new(client: Arc<Client>) -> Self {
        Self { client, table: Mutex::default() }
    }

    pub(super) fn get(&self, name: &LockName, holder: &Holder) -> Option<Node> {
        self.table.lock().nodes.get(&key(name, holder)).cloned()
    }

    /// Records a node, in place of what was known of it.
    pub(super) fn put(&self, name: &LockName, holder: &Holder, node: Node) {
        let mut table = self.table.lock();
        let is_held = node.granted;
        let was_held =
            table.nodes.insert(key(name, holder), node).is_some_and(|known| known.granted);
        self.count(&mut table, was_held, is_held);
    }

    /// Changes what is known of it, if it is still recorded.
    pub(super) fn update(&self, name: &LockName, holder: &Holder, change: impl FnOnce(&mut Node)) {
        let mut table = self.table.lock();
        let Some(node) = table.nodes.get_mut(&key(name, holder)) else { return };
        let was_held = node.granted;
        change(node);
        let is_held = node.granted;
        self.count(&mut table, was_held, is_held);
    }

    pub(super) fn remove(&self, name: &LockName, holder: &Holder) -> Option<Node> {
        let mut table = self.table.lock();
        let removed = table.nodes.remove(&key(name, holder))?;
        self.count(&mut table, removed.granted, false);
        Some(removed)
    }

    /// Under the mutex, so that the last change wins.
    fn count(&self, table: &mut NodeTable, was_held: bool, is_held: bool) {
        table.held = table.held + usize::from(is_held) - usize::from(was_held);
        self.client.set_held(table.held);
    }

    /// The paths of this client's nodes under a name that wait for their turn.
    pub(super) fn waiting(&self, name: &LockName) -> Vec<String> {
        let table = self.table.lock();
        let waiting =
            table.nodes.iter().filter(|((_, key), node)| *key == name.key && !node.granted);
        waiting.map(|(_, node)| node.path.clone()).collect()
    }
}
