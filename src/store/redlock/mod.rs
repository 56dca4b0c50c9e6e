//! Leases on a majority of several independent masters.
//!
//! The algorithm of the Redis documentation ("Distributed Locks with Redis"), with two additions
//! that it leaves to the reader: a master that may have forgotten a hold has no vote
//! ([`quarantine`]), and a majority knows a grant's fencing token before the holder does
//! ([`acquire`]).

mod absent;
mod acquire;
#[cfg(test)]
mod acquire_tests;
mod diagnosis;
mod lacking;
mod listing;
#[cfg(test)]
mod masters_tests;
mod node;
#[cfg(test)]
mod node_tests;
mod quarantine;
#[cfg(test)]
mod quarantine_tests;
#[cfg(test)]
mod queries_tests;
pub(crate) mod quorum;
#[cfg(test)]
mod release_tests;
mod renew;
#[cfg(test)]
mod renew_tests;
mod scatter;
mod store;
mod supported;

use std::time::Duration;

use self::absent::Absent;
use self::node::{Node, Voting};
pub(crate) use self::quarantine::QuarantineSettings;
use self::quorum::{NodeSet, UnknownNodes, is_final, majority};
use self::scatter::{LateMaster, NodeOutcome, Round};
pub(crate) use self::store::RedlockStore;
use self::supported::{check_kind, unsupported};
use crate::base::error::Result;
use crate::base::holder::hold_on_many;
use crate::base::lease::Moment;
use crate::base::lock_name::LockName;
use crate::base::node_status::{NodeState, NodeStatus};
use crate::os::atomic::Ordering;
use crate::report::diagnosis::Finding;
use crate::store::redis::keys::check_name;
use crate::store::redis::{script, subscribe_to_several};
use crate::store::{
    Acquire, Acquired, CountStore, DataStore, Diagnose, FenceStore, HandedOver, HoldCounts,
    JobStore, ListingStore, LockStatus, LockStore, MultiStore, OwnerStore, QueueStore, Release,
    Released, Renewal, Renewed, Subscriber, SubscriptionSender, Undo, UnknownOutcomes,
};

/// Undos resolved in one call.
const RESOLVE_CHUNK: usize = 200;

impl LockStore for RedlockStore {
    fn kind(&self) -> &'static str {
        "redlock"
    }

    fn check(&self, name: &LockName) -> Result<()> {
        check_kind(name)?;
        check_name(name)
    }

    fn check_lease(&self, lease: Duration) -> Result<()> {
        self.quarantine.check_lease(lease)
    }

    /// A master that may have forgotten a lock gets its vote back after the longest lease: by then
    /// a lock that was kept must have ended, too.
    fn check_min_hold(&self, least: Duration) -> Result<()> {
        self.quarantine.check_lease(least)
    }

    fn acquire(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired> {
        self.quarantine.check_lease(acquire.lease)?;
        let _permit = self.begin_round()?;
        self.acquire_once(acquire, unknowns)
    }

    fn release(&self, release: &Release<'_>, unknowns: &mut UnknownOutcomes) -> Result<Released> {
        let Release { holder, left, .. } = *release;
        let all = self.nodes.len();
        let quorum = majority(self.nodes.len());
        let _permit = self.begin_round()?;
        let enough = |outcomes: &[NodeOutcome]| {
            let count = |is_so: fn(&NodeOutcome) -> bool| {
                outcomes.iter().filter(|outcome| is_so(outcome)).count()
            };
            count(NodeOutcome::has_run) >= quorum || is_final(count(NodeOutcome::has_refused), all)
        };
        let nodes = self.nodes_of(holder);
        let Round { outcomes, repeated, .. } = self.release_on(nodes, release, enough);
        // The masters that were not asked never had the hold.
        let mut missing = all - nodes.len();
        let mut freed = 0;
        let mut still_held = 0;
        let mut listeners = None;
        let mut refused = None;
        for (index, outcome) in outcomes.iter().enumerate() {
            let NodeOutcome::Replies(replies) = outcome else { continue };
            match script::release_answer(replies[0].clone()) {
                Ok(Released::Freed { listeners: reached, .. }) => {
                    freed += 1;
                    listeners = listeners.max(reached);
                }
                Ok(Released::StillHeld) => still_held += 1,
                // The attempt whose reply was lost had freed it.
                Ok(Released::NotHeld) if repeated.contains(index) && left == HoldCounts::NONE => {
                    freed += 1;
                }
                Ok(Released::NotHeld) => missing += 1,
                Err(error) => refused = Some(error),
            }
        }
        let outcome = match (freed, still_held) {
            _ if is_final(missing, all) => Ok(Released::NotHeld),
            (0, 0) => Err(refused.unwrap_or_else(|| {
                self.no_quorum(&outcomes, |_| "no answer yet when the round ended")
            })),
            _ if freed + still_held + missing < quorum => {
                Err(refused.unwrap_or_else(|| self.no_quorum(&outcomes, |_| "answered")))
            }
            (0, _) => Ok(Released::StillHeld),
            _ => Ok(Released::Freed { listeners, next: None }),
        };
        if left == HoldCounts::NONE {
            self.unreleased(nodes, holder, outcomes).store(unknowns);
            self.forget(holder);
        }
        outcome
    }

    /// Not possible in one write: the release must have run on a majority before the next
    /// acquisition.
    fn hand_over(
        &self,
        _: &Release<'_>,
        _: &Acquire<'_>,
        _: &mut UnknownOutcomes,
    ) -> Option<HandedOver> {
        None
    }

    /// A renewal takes the hold anew on masters that do not have it, and might do so after its
    /// release.
    fn passes_on(&self) -> bool {
        false
    }

    fn renew(&self, batch: &[Renewal]) -> Vec<Renewed> {
        self.renew_on_all(batch)
    }

    fn resolve(&self, undos: &mut Vec<Undo>) {
        let mut chunk: Vec<Undo> = undos.drain(..undos.len().min(RESOLVE_CHUNK)).collect();
        // One round for each undo, because its release must follow the holder's earlier requests on
        // the same connection. With a slow master all of them could take minutes, and renewals must
        // not wait that long.
        let until = self.clock.now().plus(self.nodes[0].connector.io_timeout);
        for undo in &mut chunk {
            let mut unknown = UnknownNodes::of(&undo.unknowns);
            if undo.unknowns.is_empty() {
                unknown.nodes = self.nodes_of(&undo.holder);
            }
            if self.clock.now() < until {
                self.read_unread_releases(&mut unknown, &undo.holder);
                let asked = unknown.unsent();
                if !asked.is_empty() {
                    let outcomes = self.release_on(asked, &undo.release(), |_| false).outcomes;
                    unknown.nodes = unknown.nodes.without(asked)
                        | self.unreleased(asked, &undo.holder, outcomes).nodes;
                }
            }
            unknown.store(&mut undo.unknowns);
        }
        let now = self.clock.now();
        // A hold normally ends with its lease. But a master that was suspended runs the request
        // when it resumes, before anybody can kill the connection: then a whole new lease begins.
        for undo in &mut chunk {
            let nodes = UnknownNodes::of(&undo.unknowns).nodes;
            let may_run = |(index, node): (usize, &Node)| {
                nodes.contains(index) && node.may_still_run(&undo.holder)
            };
            if self.nodes.iter().enumerate().any(may_run) {
                undo.expires = undo.expires.max(now.plus(self.quarantine.longest_lease()));
            }
        }
        chunk.retain(|undo| {
            let goes_on = !undo.unknowns.is_empty() && now < undo.expires;
            if !goes_on {
                self.forget(&undo.holder);
            }
            goes_on
        });
        undos.append(&mut chunk);
    }

    fn extend(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        let _permit = self.begin_round()?;
        Ok(self.renew(renewals))
    }

    fn inspect(&self, name: &LockName) -> Result<Option<LockStatus>> {
        check_kind(name)?;
        let statuses = self.ask_majority(
            LateMaster::IfNeeded,
            || script::inspect(name),
            script::inspect_answer,
        )?;
        let quorum = majority(self.nodes.len());
        let all: Vec<&(String, u64)> =
            statuses.iter().flatten().flat_map(|status| &status.holders).collect();
        let is_same = |a: &str, b: &str| hold_on_many(a) == hold_on_many(b);
        let held = all
            .iter()
            .find(|(id, _)| all.iter().filter(|(other, _)| is_same(other, id)).count() >= quorum);
        let Some((id, count)) = held else { return Ok(None) };
        let has_it =
            |status: &&LockStatus| status.holders.iter().any(|(other, _)| is_same(other, id));
        let mut ttls: Vec<Duration> =
            statuses.iter().flatten().filter(has_it).filter_map(|s| s.ttl).collect();
        ttls.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Some(LockStatus {
            ttl: ttls.get(quorum - 1).copied(),
            holders: vec![(id.clone(), *count)],
            owners: Vec::new(),
            data: None,
        }))
    }

    fn force_unlock(&self, name: &LockName) -> Result<bool> {
        let freed = self.ask_majority(
            LateMaster::Asked,
            || script::force_unlock(name),
            script::force_unlock_answer,
        )?;
        Ok(freed.contains(&true))
    }

    fn tell_losses(&self, told: Box<dyn Fn() + Send + Sync>) {
        self.lacking.renew_by(told);
    }

    fn maintain(&self) -> Option<Moment> {
        // One connect per call: it can take the whole timeout, and renewals must not wait for more
        // than one.
        let mut nodes: Vec<&Node> = self.nodes.iter().collect();
        nodes.sort_by_key(|node| node.probe_at());
        let _ = nodes.into_iter().any(Node::probe);
        let quarantine = self.quarantine.maintain(&self.nodes);
        let now = self.clock.now();
        for node in self.nodes.iter() {
            node.read_unread();
        }
        self.lacking.note(NodeSet::of(&self.nodes, |node| self.has_one_of(&node.take_refused())));
        let well = NodeSet::of(&self.nodes, Node::is_well);
        self.lacking.renew_what_is_missing(self.all_nodes(), well, now);
        let probes = self.nodes.iter().filter_map(Node::probe_at).min();
        let next = [quarantine, probes]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(now.plus(Duration::from_secs(1)));
        Some(next.clamp(now.plus(Duration::from_millis(5)), now.plus(Duration::from_secs(1))))
    }

    fn messages_per_release(&self) -> u64 {
        self.nodes.len() as u64
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        let now = self.clock.now();
        let status = |node: &Node| {
            let (health, down) = node.health();
            let state = match (&down, health.voting) {
                (Some(_), _) => NodeState::Down,
                (None, Voting::Quarantined { until }) => {
                    NodeState::Quarantined { remaining: until.map(|until| until.since(now)) }
                }
                (None, Voting::Yes) => NodeState::Voting,
            };
            let address = format!("{:?}", node.connector.endpoint);
            NodeStatus {
                address,
                state,
                latency: health.latency,
                last_error: down.or(health.last_error),
                slots: Vec::new(),
            }
        };
        self.nodes.iter().map(status).collect()
    }

    fn diagnose(&self, asked: &Diagnose<'_>) -> Vec<Finding> {
        self.examine_masters(asked)
    }

    fn token_rounds(&self) -> u64 {
        self.token_rounds.load(Ordering::Relaxed)
    }

    fn subscribe(
        &self,
        read_timeout: Duration,
    ) -> Result<(Box<dyn Subscriber>, Box<dyn SubscriptionSender>)> {
        let mut absent = Absent::new(self.nodes.clone());
        let connections = absent.subscribe_to_all()?;
        Ok(subscribe_to_several(connections, Box::new(absent), self.rights.clone(), read_timeout))
    }

    fn multi(&self) -> Result<&dyn MultiStore> {
        Err(unsupported("a multi-lock"))
    }

    fn queue(&self) -> Result<&dyn QueueStore> {
        Err(unsupported("a fair lock"))
    }

    fn counts(&self) -> Result<&dyn CountStore> {
        Err(unsupported("a count"))
    }

    fn data(&self) -> Result<&dyn DataStore> {
        Err(unsupported("the data of a hold"))
    }

    fn jobs(&self) -> Result<&dyn JobStore> {
        Err(unsupported("a scheduled job"))
    }

    fn fence(&self) -> Result<&dyn FenceStore> {
        Err(unsupported("a fenced value"))
    }

    fn listing(&self) -> &dyn ListingStore {
        self
    }

    fn owners(&self) -> Option<&dyn OwnerStore> {
        Some(self)
    }

    fn close(&self) {
        for node in self.nodes.iter() {
            node.close();
        }
    }
}
