//! The nodes of this client, by holder and name: where its holds and waiters stand.

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
    /// Its session: with another one it is gone.
    pub(super) session: Session,
    pub(super) path: String,
    /// While the outcome of a downgrade is not known: the reader's node that may stand in place of
    /// `path`.
    pub(super) downgraded: Option<String>,
    pub(super) czxid: i64,
    /// Its turn has come.
    pub(super) granted: bool,
    /// The server has said that it is gone, although nobody here deleted it.
    pub(super) is_lost: Arc<AtomicBool>,
    /// The connection on which it is watched, for a hold that lasts.
    pub(super) guarded: Option<u64>,
    /// The node that it waits for, and the connection on which that is watched.
    pub(super) waits_for: Option<(String, u64)>,
    /// Of a semaphore: the permits.
    pub(super) permits: Vec<String>,
}

impl Node {
    pub(super) fn new(session: &Session, created: Created) -> Self {
        let permits = Vec::new();
        Self { path: created.path, czxid: created.stat.czxid, granted: false, ..Self::with_permits(session, permits) }
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
            guarded: None,
            waits_for: None,
            permits,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// All of its paths.
    pub(super) fn into_paths(self) -> Vec<String> {
        let mut paths = self.permits;
        paths.extend(self.downgraded);
        if !self.path.is_empty() {
            paths.push(self.path);
        }
        paths
    }
}

type Key = (Holder, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct Nodes {
    map: Mutex<HashMap<Key, Node>>,
}

fn key(name: &LockName, holder: &Holder) -> Key {
    (holder.clone(), name.key.clone())
}

impl Nodes {
    pub(super) fn get(&self, name: &LockName, holder: &Holder) -> Option<Node> {
        self.map.lock().get(&key(name, holder)).cloned()
    }

    /// Puts it there, in place of what was known of it.
    pub(super) fn put(&self, client: &Client, name: &LockName, holder: &Holder, node: Node) {
        let mut map = self.map.lock();
        map.insert(key(name, holder), node);
        // Under the mutex, so that the last change is the one that counts.
        client.set_users(map.len());
    }

    /// Changes what is known of it, if it is there still.
    pub(super) fn update(&self, name: &LockName, holder: &Holder, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.map.lock().get_mut(&key(name, holder)) {
            change(node);
        }
    }

    pub(super) fn remove(&self, client: &Client, name: &LockName, holder: &Holder) -> Option<Node> {
        let mut map = self.map.lock();
        let removed = map.remove(&key(name, holder));
        client.set_users(map.len());
        removed
    }

    /// The paths of this client's nodes under a name that wait for their turn.
    pub(super) fn waiting(&self, name: &LockName) -> Vec<String> {
        let map = self.map.lock();
        let waiting = map.iter().filter(|((_, key), node)| *key == name.key && !node.granted);
        waiting.map(|(_, node)| node.path.clone()).collect()
    }
}
