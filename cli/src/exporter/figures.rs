//! What the polls have shown so far.

use std::time::{Duration, SystemTime};

use leasehold::observe::{LockHolder, LockSummary, NodeStatus};

/// What one poll has shown.
pub(super) struct Seen {
    pub(super) locks: Vec<LockSummary>,
    pub(super) unlisted: u64,
    pub(super) nodes: Vec<NodeStatus>,
}

pub(super) struct Figures {
    pub(super) store: String,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    /// Of the last poll.
    pub(super) took: Duration,
    pub(super) last_success: Option<SystemTime>,
    /// The last poll, if it succeeded.
    pub(super) seen: Option<Seen>,
    /// Warnings and problems of the last examination of the servers.
    pub(super) findings: Option<(usize, usize)>,
    limit: usize,
}

impl Figures {
    pub(super) fn new(store: String, limit: usize) -> Self {
        Self {
            store,
            succeeded: 0,
            failed: 0,
            took: Duration::ZERO,
            last_success: None,
            seen: None,
            findings: None,
            limit,
        }
    }

    /// `None` before the first poll.
    pub(super) fn is_up(&self) -> Option<bool> {
        (self.succeeded + self.failed > 0).then_some(self.seen.is_some())
    }

    /// The locks are sorted by how much they matter.
    pub(super) fn succeeded(&mut self, mut seen: Seen, took: Duration, now: SystemTime) {
        let rank = |lock: &LockSummary| (lock.waiting(), held_for(lock));
        seen.locks.sort_by(|a, b| rank(b).cmp(&rank(a)).then_with(|| a.name().cmp(b.name())));
        self.succeeded += 1;
        self.took = took;
        self.last_success = Some(now);
        self.seen = Some(seen);
    }

    pub(super) fn failed(&mut self, took: Duration) {
        self.failed += 1;
        self.took = took;
        self.seen = None;
    }

    /// The locks that have samples of their own.
    pub(super) fn named(&self) -> &[LockSummary] {
        let locks = self.seen.as_ref().map_or(&[][..], |seen| &seen.locks);
        &locks[..locks.len().min(self.limit)]
    }
}

/// For how long the holder that has had it the longest has had it, where that is announced.
pub(super) fn held_for(lock: &LockSummary) -> Option<Duration> {
    lock.holders().iter().filter_map(LockHolder::held_for).max()
}
