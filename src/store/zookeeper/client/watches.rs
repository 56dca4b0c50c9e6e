//! What is watched on the present connection, and for whom. This is recorded only here: a watch
//! that has fired, or whose connection has ended, is no longer in this table.
//!
//! The server sends one message for each watch and then forgets it, whatever has happened. Anybody
//! may write into a node; to those who wait for its deletion that means nothing, so the watch is
//! renewed for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::store::Topic;
use crate::store::zookeeper::wire::EventKind;

/// Who is notified of which events of a node.
#[derive(Debug, Clone)]
pub(crate) enum NodeWatch {
    /// A waiter is woken when the node that it waits for is deleted.
    Predecessor(WatchingWaiter),
    /// A waiter is woken by every change of the number of permits, or of the permits taken.
    Permits(WatchingWaiter),
    /// A hold is lost when its node is deleted.
    Own(Arc<AtomicBool>),
    /// All who wait for a latch are woken by every change, also over each new connection.
    Latch(Topic),
}

#[derive(Debug, Clone)]
pub(crate) struct WatchingWaiter {
    /// The waiter's own topic, which identifies it here.
    pub(crate) turn: Topic,
    /// The topic of all who wait for the name.
    pub(crate) freed: Topic,
}

/// How to set a watch again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renew {
    No,
    /// The node exists: watch for changes and for its deletion.
    Data,
    /// The node of a latch: watch for its creation, too.
    Latch,
}

/// What a message about a node means.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fired {
    pub(super) woken: Vec<Topic>,
    /// Whether a hold of this client is lost.
    pub(super) is_loss: bool,
    pub(super) renew: Renew,
}

#[derive(Debug, Default)]
pub(super) struct Watches {
    by_path: HashMap<String, Vec<NodeWatch>>,
    /// The paths that each waiter watches.
    by_waiter: HashMap<Topic, Vec<String>>,
    /// How many requests to remove the watches of a path have not been answered. A message that
    /// comes before the answer belongs to a watch that was removed, and not to one that was set
    /// since: if it were taken for the new one, that watch would stay at the server, and nobody
    /// would know of it.
    removals: HashMap<String, usize>,
}

impl NodeWatch {
    fn waiter(&self) -> Option<&WatchingWaiter> {
        match self {
            Self::Predecessor(waiter) | Self::Permits(waiter) => Some(waiter),
            Self::Own(_) | Self::Latch(_) => None,
        }
    }

    fn is_of(&self, waiter: &Topic) -> bool {
        self.waiter().is_some_and(|own| own.turn == *waiter)
    }

    fn topics(&self) -> Vec<Topic> {
        match self {
            Self::Predecessor(waiter) | Self::Permits(waiter) => {
                vec![waiter.turn.clone(), waiter.freed.clone()]
            }
            Self::Own(_) => Vec::new(),
            Self::Latch(topic) => vec![topic.clone()],
        }
    }

    /// Whether the message is one that it watches for, and whether the watch goes on.
    fn is_meant_by(&self, event: EventKind) -> (bool, bool) {
        match (self, event) {
            (_, EventKind::Other) => (false, true),
            (Self::Latch(_), _) => (true, true),
            (_, EventKind::Deleted) | (Self::Permits(_), _) => (true, false),
            (Self::Predecessor(_) | Self::Own(_), _) => (false, true),
        }
    }
}

impl Watches {
    /// Call it before the request that sets the watch is sent, so that its message cannot be
    /// missed.
    pub(super) fn add(&mut self, path: String, watch: NodeWatch) {
        if let Some(waiter) = watch.waiter() {
            self.by_waiter.entry(waiter.turn.clone()).or_default().push(path.clone());
        }
        let watches = self.by_path.entry(path).or_default();
        // Of two spellings of a latch's name (`a` and `/a`) each has its topic.
        if let NodeWatch::Latch(topic) = &watch {
            watches.retain(|known| !matches!(known, NodeWatch::Latch(known) if known == topic));
        }
        watches.push(watch);
    }

    fn watches_of(&self, path: &str) -> impl Iterator<Item = &NodeWatch> {
        self.by_path.get(path).into_iter().flatten()
    }

    pub(super) fn is_watched_by(&self, path: &str, waiter: &Topic) -> bool {
        self.watches_of(path).any(|watch| watch.is_of(waiter))
    }

    /// Whether the holder of this node is notified when it is deleted.
    pub(super) fn is_guarded(&self, path: &str) -> bool {
        self.watches_of(path).any(|watch| matches!(watch, NodeWatch::Own(_)))
    }

    /// The waiter has stopped waiting. Returns the paths whose watches have to be removed at the
    /// server.
    pub(super) fn remove_waiter(&mut self, waiter: &Topic) -> Vec<String> {
        let mut paths = self.by_waiter.remove(waiter).unwrap_or_default();
        paths.retain(|path| self.unwatch(path, |watch| watch.is_of(waiter)));
        paths
    }

    /// Nobody waits for the latch any more. The same for its path.
    pub(super) fn remove_latch(&mut self, path: &str, topic: &Topic) -> bool {
        self.unwatch(path, |watch| matches!(watch, NodeWatch::Latch(known) if known == topic))
    }

    /// Whether nobody watches this path now, and the server has to be told: a deleted node takes
    /// its watches along, but a latch and the number of permits stay.
    fn unwatch(&mut self, path: &str, is_removed: impl Fn(&NodeWatch) -> bool) -> bool {
        let stays = |watch| matches!(watch, &NodeWatch::Permits(_) | &NodeWatch::Latch(_));
        let stays = self.watches_of(path).any(stays);
        self.keep(path, |watch| !is_removed(watch));
        let is_over = stays && !self.by_path.contains_key(path);
        if is_over {
            *self.removals.entry(path.to_owned()).or_default() += 1;
        }
        is_over
    }

    /// The server has answered a request to remove the watches of this path.
    pub(super) fn removed(&mut self, path: &str) {
        if let Some(open) = self.removals.get_mut(path) {
            *open -= 1;
            if *open == 0 {
                self.removals.remove(path);
            }
        }
    }

    /// The node is given up: its deletion is no loss.
    pub(super) fn remove_guard(&mut self, path: &str) {
        self.keep(path, |watch| !matches!(watch, NodeWatch::Own(_)));
    }

    fn keep(&mut self, path: &str, is_kept: impl Fn(&NodeWatch) -> bool) {
        let Some(watches) = self.by_path.get_mut(path) else { return };
        watches.retain(|watch| is_kept(watch));
        if watches.is_empty() {
            self.by_path.remove(path);
        }
    }

    /// Processes a message about a node.
    pub(super) fn fired(&mut self, path: &str, event: EventKind) -> Fired {
        let mut fired = Fired { woken: Vec::new(), is_loss: false, renew: Renew::No };
        if self.removals.contains_key(path) {
            // What is watched now was added after this watch was set: it is woken in vain, and
            // keeps its watch.
            fired.woken = self.watches_of(path).flat_map(NodeWatch::topics).collect();
            return fired;
        }
        for watch in self.by_path.remove(path).unwrap_or_default() {
            let (is_meant, goes_on) = watch.is_meant_by(event);
            if is_meant {
                fired.woken.extend(watch.topics());
                if let NodeWatch::Own(is_lost) = &watch {
                    is_lost.store(true, Ordering::Release);
                    fired.is_loss = true;
                }
            }
            if goes_on {
                let is_latch = matches!(watch, NodeWatch::Latch(_)) || fired.renew == Renew::Latch;
                fired.renew = if is_latch { Renew::Latch } else { Renew::Data };
                self.by_path.entry(path.to_owned()).or_default().push(watch);
            } else if let Some(waiter) = watch.waiter() {
                self.forget_path(&waiter.turn.clone(), path);
            }
        }
        fired
    }

    fn forget_path(&mut self, waiter: &Topic, path: &str) {
        if let Some(paths) = self.by_waiter.get_mut(waiter) {
            paths.retain(|known| known != path);
            if paths.is_empty() {
                self.by_waiter.remove(waiter);
            }
        }
    }

    /// A watch could not be set again, although the node exists. Waiters look again by themselves,
    /// and the hold is checked at the next visit.
    pub(super) fn failed(&mut self, path: &str) -> Fired {
        let (latches, others): (Vec<_>, Vec<_>) = self
            .by_path
            .remove(path)
            .into_iter()
            .flatten()
            .partition(|watch| matches!(watch, NodeWatch::Latch(_)));
        if !latches.is_empty() {
            self.by_path.insert(path.to_owned(), latches);
        }
        for waiter in others.iter().filter_map(NodeWatch::waiter) {
            self.forget_path(&waiter.turn, path);
        }
        let woken = others.iter().flat_map(NodeWatch::topics).collect();
        Fired { woken, is_loss: false, renew: Renew::No }
    }

    /// The connection has ended, and with it all of its watches. Returns who waits.
    pub(super) fn ended(&mut self) -> Vec<Topic> {
        self.by_waiter.clear();
        self.removals.clear();
        let waiting = self.by_path.values().flatten().flat_map(NodeWatch::topics).collect();
        self.by_path.retain(|_, watches| {
            watches.retain(|watch| matches!(watch, NodeWatch::Latch(_)));
            !watches.is_empty()
        });
        waiting
    }

    /// The topics of the latch at this path, if somebody waits for it.
    pub(super) fn latch(&self, path: &str) -> Vec<Topic> {
        let topic = |watch: &NodeWatch| match watch {
            NodeWatch::Latch(topic) => Some(topic.clone()),
            _ => None,
        };
        self.watches_of(path).filter_map(topic).collect()
    }

    /// The paths of all latches that somebody waits for.
    pub(super) fn latches(&self) -> Vec<String> {
        self.by_path.keys().filter(|path| !self.latch(path).is_empty()).cloned().collect()
    }
}

#[cfg(test)]
#[path = "watches_tests.rs"]
mod tests;
