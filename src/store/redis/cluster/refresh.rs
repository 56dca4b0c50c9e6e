//! Reads the map from the nodes: one thread for all of the client, over the connections that it has
//! anyway, and with growing pauses while the nodes report nothing new.
//!
//! While a primary is down, each request to it finds the map wrong, until a replica is promoted. If
//! each of these reads connected to every other node, a client would make a hundred connections a
//! second to nodes that have nothing to do with the outage.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::map::Primary;
use super::nodes::Cluster;
use super::records::REFRESH_PAUSE;
use super::topology::{NodeAddress, SlotRange, slot_ranges};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;
use crate::base::random;
use crate::store::redis::wire::{
    Connector, RedisFailure, Reply, Request, Shape, ask_all, fail_on_error,
};

/// A single slot that has moved is recorded from the redirect; the whole map is read again if it is
/// older than this.
const FRESH: Duration = Duration::from_secs(1);
/// How many primaries are asked over their connections. If none of them answers, all nodes are.
const ASKED_FIRST: usize = 3;

impl Cluster {
    /// Reads the map from the nodes, unless another thread has done so since version `seen`. The
    /// first answer is taken; `without`, which has just proved to be wrong, is not asked. Blocks
    /// for at most the I/O timeout, or twice that if another thread is reading the map. Without any
    /// map (version 0) a failure counts for the pause after it.
    pub(super) fn refresh(&self, seen: u64, without: Option<&NodeAddress>) -> Result<()> {
        let Some(mut last) = self.last_read.try_lock_for(self.io_timeout()) else {
            return Err(Error::new(
                ErrorKind::Unreachable,
                "no node of the cluster has reported its slots in time",
            ));
        };
        if self.map.read().version != seen {
            return Ok(());
        }
        let pause = if without.is_some() || seen == 0 { last.pause } else { REFRESH_PAUSE };
        if last.at.is_some_and(|at| at.elapsed() < pause) {
            return last.trouble.clone().filter(|_| seen == 0).map_or(Ok(()), Err);
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the client was closed"));
        }
        let read = self.read_map(without);
        last.note(&read);
        self.learn(&read?);
        Ok(())
    }

    /// Reads the map again if it is not fresh.
    pub(super) fn refresh_some_time(&self, seen: u64) {
        let is_due = self
            .last_read
            .try_lock()
            .is_some_and(|last| last.at.is_none_or(|at| at.elapsed() > FRESH));
        if is_due && let Err(e) = self.refresh(seen, None) {
            log::debug!("the map of the cluster cannot be read now: {}", e.chain());
        }
    }

    /// Reads the map from one node, which has just said that a slot is not its own any more: others
    /// may learn of that later.
    pub(super) fn refresh_at(&self, address: &NodeAddress) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the client was closed"));
        }
        self.learn(&ask_anew(&self.connector_at(address), address)?);
        Ok(())
    }

    fn read_map(&self, without: Option<&NodeAddress>) -> Result<Vec<SlotRange>> {
        let deadline = Instant::now() + self.io_timeout();
        // Not the whole time: they may hang as well, and then others still know.
        if let Ok(ranges) =
            first_answer(self.connected(without), ask_connected, self.io_timeout() / 4)
        {
            return Ok(ranges);
        }
        let at = |address: NodeAddress| (self.connector_at(&address), address);
        let nodes = self.candidates(without).into_iter().map(at).collect();
        let ask = |(connector, address): (Connector, NodeAddress)| ask_anew(&connector, &address);
        first_answer(nodes, ask, deadline.saturating_duration_since(Instant::now()))
    }

    /// Some primaries with connections.
    fn connected(&self, without: Option<&NodeAddress>) -> Vec<Arc<Primary>> {
        let mut primaries = self.map.read().primaries();
        primaries
            .retain(|primary| Some(&primary.address) != without && primary.server.pool.reached().0);
        // Not always the same ones: they may have missed what happens.
        let first = random::number() % primaries.len().max(1) as u64;
        primaries.rotate_left(first as usize);
        primaries.truncate(ASKED_FIRST);
        primaries
    }

    /// The nodes that can be asked for the map: the known ones and the seeds.
    pub(super) fn candidates(&self, without: Option<&NodeAddress>) -> Vec<NodeAddress> {
        let mut all = self.map.read().addresses();
        all.extend(self.seeds.iter().cloned());
        let mut seen = HashSet::new();
        all.retain(|address| seen.insert(address.clone()));
        if all.len() > 1 {
            all.retain(|address| Some(address) != without);
        }
        all
    }
}

/// Asks all of them side by side.
fn first_answer<N: Send + 'static>(
    nodes: Vec<N>,
    ask: impl Fn(N) -> Result<Vec<SlotRange>> + Clone + Send + 'static,
    timeout: Duration,
) -> Result<Vec<SlotRange>> {
    let outcomes = ask_all("lh-cluster", nodes, ask, timeout, |outcomes| {
        outcomes.iter().any(|(_, outcome)| outcome.is_ok())
    });
    let mut last = Error::new(
        ErrorKind::Unreachable,
        "no node of the cluster answered within the I/O timeout",
    );
    for (_, outcome) in outcomes {
        match outcome {
            Ok(ranges) => return Ok(ranges),
            // A node that does not belong to a cluster is a better explanation than one that cannot
            // be reached.
            Err(e) if last.kind() == ErrorKind::Unreachable => last = e,
            Err(_) => {}
        }
    }
    Err(last)
}

fn ask_connected(primary: Arc<Primary>) -> Result<Vec<SlotRange>> {
    let request = Request::plain(&["CLUSTER", "SLOTS"]).answered_by(Shape::List);
    let answer = primary.server.pool.ask(request, 1).map_err(RedisFailure::into_error)?;
    ranges_of(&fail_on_error(answer.reply)?, &primary.address)
}

fn ask_anew(connector: &Connector, address: &NodeAddress) -> Result<Vec<SlotRange>> {
    let reply = connector.ask_once(&Request::plain(&["CLUSTER", "SLOTS"]))?;
    ranges_of(&reply, address)
}

/// A node that was taken out of the cluster answers that no slot is served. Believed, that would
/// empty the map, and end the connections to all nodes that are well.
fn ranges_of(reply: &Reply, address: &NodeAddress) -> Result<Vec<SlotRange>> {
    let ranges = slot_ranges(reply, &address.host)?;
    if ranges.is_empty() { Err(Error::new(ErrorKind::NotReady, NO_SLOTS)) } else { Ok(ranges) }
}

const NO_SLOTS: &str =
    "no slot of the cluster is served yet; create it (redis-cli --cluster create), and try again";
