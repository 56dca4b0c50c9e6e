//! What a client sends and receives, counted where its connections read and write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The traffic of all connections of one client.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    requests: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    opened: AtomicU64,
    broken: AtomicU64,
    /// Connections that broke and have not been replaced yet.
    to_replace: AtomicU64,
    reopened: AtomicU64,
}

/// The counts at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TrafficCounts {
    pub(crate) requests: u64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) opened: u64,
    pub(crate) broken: u64,
    pub(crate) reopened: u64,
}

impl Traffic {
    pub(crate) fn counts(&self) -> TrafficCounts {
        let Self { requests, sent, received, opened, broken, reopened, .. } = self;
        let [requests, sent, received, opened, broken, reopened] =
            [requests, sent, received, opened, broken, reopened]
                .map(|count| count.load(Ordering::Relaxed));
        TrafficCounts { requests, sent, received, opened, broken, reopened }
    }
}

/// What one connection adds to the traffic of its client; all handles of its socket share it.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    pub(crate) traffic: Arc<Traffic>,
    /// Whether it has ended, by the other end or by this one.
    over: Arc<AtomicBool>,
}

impl Meter {
    /// For a connection that was opened just now.
    pub(crate) fn opened(traffic: &Arc<Traffic>) -> Self {
        traffic.opened.fetch_add(1, Ordering::Relaxed);
        let one_less = |count: u64| count.checked_sub(1);
        if traffic.to_replace.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            traffic.reopened.fetch_add(1, Ordering::Relaxed);
        }
        Self { traffic: traffic.clone(), over: Arc::default() }
    }

    pub(crate) fn requests(&self, count: u64) {
        self.traffic.requests.fetch_add(count, Ordering::Relaxed);
    }

    /// The connection is no longer usable, and this end did not close it. Counted once.
    pub(crate) fn broke(&self) {
        if !self.over.swap(true, Ordering::Relaxed) {
            self.traffic.broken.fetch_add(1, Ordering::Relaxed);
            self.traffic.to_replace.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// This end closes it.
    pub(crate) fn ends(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_breaks_is_replaced_once() {
        let traffic = Arc::new(Traffic::default());
        let first = Meter::opened(&traffic);
        let second = Meter::opened(&traffic);
        let twin = first.clone();
        first.broke();
        twin.broke();
        second.ends();
        second.broke();
        assert_eq!(
            traffic.counts(),
            TrafficCounts { opened: 2, broken: 1, ..TrafficCounts::default() }
        );
        let _others = (Meter::opened(&traffic), Meter::opened(&traffic));
        assert_eq!(
            traffic.counts(),
            TrafficCounts { opened: 4, broken: 1, reopened: 1, ..TrafficCounts::default() }
        );
    }
}
