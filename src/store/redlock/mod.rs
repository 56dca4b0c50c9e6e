//! Leases on a majority of several independent masters.
//!
//! The algorithm of the Redis documentation ("Distributed Locks with Redis"), with what it leaves to the reader: a
//! master that may have forgotten something has no vote ([`quarantine`]), and every grant has a fencing
//! token that rests on a majority before it is used.

mod acquire;
mod node;
mod quarantine;
pub(crate) mod quorum;
mod renew;
mod scatter;
mod supported;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use self::acquire::Tally;
use self::node::{Node, in_short, one};
use self::quarantine::Quarantine;
pub(crate) use self::quarantine::QuarantineSettings;
use self::scatter::{NodeOutcome, Round, ask_all};
use self::supported::{check_kind, unsupported};
use super::{
    Acquire, AcquireAll, Acquired, AcquiredAll, Count, CountAnswer, HandedOver, HoldCounts, LeaseStore, Leaving,
    NodeState, NodeStatus, Released, Renewal, Renewed, Undo, UnknownOutcomes,
};
use crate::base::clock::Clock;
use crate::base::deadline::ceil_millis;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::{Holder, hold_on_many};
use crate::base::key::LockKeys;
use crate::base::lease::Moment;
use crate::base::random;
use crate::store::redis::script::{self, FenceAnswer, LockStatus, ReleaseAnswer};
use crate::store::redis::wire::{Connection, Connector, Reply, Request, Shape, Subscriber, SubscriptionSender};
use crate::store::redlock::quorum::{is_final, majority};

/// Rounds in which contenders took so many masters each that nobody had a majority, before others' leases are waited for.
const SPLITS: u32 = 4;
const CHUNK: usize = 200;

#[derive(Debug)]
pub(crate) struct RedlockStore {
    nodes: Vec<Node>,
    quarantine: Quarantine,
    /// How often a master came back: those who listen listen to it as well then.
    returns: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
    /// Rounds that may run beside each other: each has a connection to every master.
    round_places: Mutex<usize>,
    place_free: Condvar,
    /// The masters on which each hold may stand, by place: those that it must be released on.
    holds: Mutex<HashMap<Holder, u64>>,
    /// The highest token seen: the next proposal is above it.
    highest: AtomicU64,
    token_rounds: AtomicU64,
    /// Somebody of Java's had a lock here.
    seen_redisson: AtomicBool,
}

impl RedlockStore {
    pub(crate) fn new(connectors: Vec<Connector>, rounds: usize, admission: QuarantineSettings) -> Self {
        let clock = connectors[0].clock.clone();
        let returns = Arc::new(AtomicU64::new(0));
        let nodes: Vec<Node> = connectors.into_iter().map(|connector| Node::new(connector, returns.clone())).collect();
        Self {
            quarantine: Quarantine::new(admission, nodes.len()),
            nodes,
            returns,
            clock,
            round_places: Mutex::new(rounds),
            place_free: Condvar::new(),
            holds: Mutex::default(),
            highest: AtomicU64::new(0),
            token_rounds: AtomicU64::new(0),
            seen_redisson: AtomicBool::new(false),
        }
    }

    /// Connects to every master, and fails when no majority can be reached or one is of the wrong sort.
    pub(crate) fn check(&self) -> Result<()> {
        let run_ids = Mutex::new(BTreeMap::new());
        let ask = |at: usize, _: &Connection, run_id: &str| {
            run_ids.lock().insert(at, run_id.to_owned());
            vec![Request::plain(&["PING"]).answered_by(Shape::Text)]
        };
        let round = ask_all(&self.nodes, None, ask, |_| true, |_| false);
        let run_ids = run_ids.into_inner();
        if run_ids.values().collect::<BTreeSet<_>>().len() < run_ids.len() {
            let why = "two of the URLs lead to the same server, which would vote twice";
            return Err(Error::new(ErrorKind::InvalidInput, why));
        }
        let mut reached = 0;
        for outcomes in &round.outcomes {
            match outcomes {
                NodeOutcome::Replies(_) => reached += 1,
                NodeOutcome::Failed(failure) if !in_short(failure).kind().is_outage() => {
                    return Err(in_short(failure).clone());
                }
                _ => {}
            }
        }
        if reached < majority(self.nodes.len()) {
            return Err(self.no_quorum(&round.outcomes, |_| "reached".to_owned()));
        }
        self.quarantine.maintain(&self.nodes);
        Ok(())
    }

    /// One more round has asked for it on these masters.
    fn stands_on(&self, holder: &Holder, nodes: u64) {
        *self.holds.lock().entry(holder.clone()).or_default() |= nodes;
    }

    /// Where it must be released; everywhere, for one that nothing is known of.
    fn stands(&self, holder: &Holder) -> u64 {
        self.holds.lock().get(holder).copied().unwrap_or_else(|| self.everywhere())
    }

    fn forget(&self, holder: &Holder) {
        self.holds.lock().remove(holder);
    }

    /// Of the masters that were a little late to answer a release most have answered by now.
    fn hear_the_late(&self, undo: &mut Undo) {
        let owed = undo.unknowns.owed;
        for (at, node) in self.nodes.iter().enumerate().filter(|(at, _)| owed & (1 << at) != 0) {
            if node.owes(&undo.holder) {
                continue;
            }
            undo.unknowns.owed &= !(1 << at);
            if !node.may_still_run(&undo.holder) {
                undo.unknowns.nodes &= !(1 << at);
            }
        }
    }

    fn place(&self) -> Place<'_> {
        let mut free = self.round_places.lock();
        while *free == 0 {
            self.place_free.wait(&mut free);
        }
        *free -= 1;
        Place(self)
    }

    fn release_on(
        &self,
        nodes: u64,
        keys: &LockKeys,
        holder: &Holder,
        left: HoldCounts,
        decided: impl Fn(&[NodeOutcome]) -> bool,
    ) -> Round {
        let ask = |_: usize, _: &Connection, _: &str| vec![script::release(keys, holder, left)];
        ask_all(&self.nodes, Some(holder), ask, |at| nodes & (1 << at) != 0, decided)
    }

    fn no_quorum(&self, outcomes: &[NodeOutcome], say: impl Fn(&NodeOutcome) -> String) -> Error {
        let texts: Vec<String> = outcomes
            .iter()
            .map(|outcomes| match outcomes {
                NodeOutcome::Failed(failure) => in_short(failure).message().to_owned(),
                other => say(other),
            })
            .collect();
        self.list(&texts)
    }

    fn list(&self, texts: &[String]) -> Error {
        let each: Vec<String> =
            self.nodes.iter().zip(texts).map(|(node, text)| format!("{:?}: {text}", node.connector.endpoint)).collect();
        let (all, quorum) = (self.nodes.len(), majority(self.nodes.len()));
        Error::new(ErrorKind::NoQuorum, format!("no majority ({quorum} of {all}): {}", each.join("; ")))
    }

    fn everywhere(&self) -> u64 {
        u64::MAX >> (64 - self.nodes.len())
    }

    /// What all must be asked: an answer from a majority, or what stands in the way.
    fn poll<T>(&self, request: impl Fn() -> Request, parse: impl Fn(Reply) -> Result<T>) -> Result<Vec<T>> {
        let round = ask_all(&self.nodes, None, |_, _, _| vec![request()], |_| true, |_| false);
        let (mut answers, mut wrong) = (Vec::new(), None);
        for outcomes in &round.outcomes {
            if let NodeOutcome::Replies(replies) = outcomes {
                match one(replies.clone()).and_then(&parse) {
                    Ok(answer) => answers.push(answer),
                    Err(error) => wrong = Some(error),
                }
            }
        }
        if answers.len() >= majority(self.nodes.len()) {
            return Ok(answers);
        }
        Err(wrong.unwrap_or_else(|| self.no_quorum(&round.outcomes, |_| "answered".to_owned())))
    }
}

/// A round that is allowed to run.
struct Place<'s>(&'s RedlockStore);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.round_places.lock() += 1;
        self.0.place_free.notify_one();
    }
}

/// The places of those that answered a release.
fn done(outcomes: &[NodeOutcome]) -> u64 {
    let ok = |outcomes: &NodeOutcome| matches!(outcomes, NodeOutcome::Replies(replies) if !matches!(replies[..], [Reply::Error(_), ..]));
    outcomes.iter().enumerate().filter(|(_, outcomes)| ok(outcomes)).fold(0, |done, (at, _)| done | 1 << at)
}

/// The places of those that were not waited for.
fn late(outcomes: &[NodeOutcome]) -> u64 {
    outcomes
        .iter()
        .enumerate()
        .filter(|(_, outcomes)| matches!(outcomes, NodeOutcome::Late))
        .fold(0, |late, (at, _)| late | 1 << at)
}

impl LeaseStore for RedlockStore {
    fn acquire(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired> {
        check_kind(acquire.keys)?;
        self.quarantine.check_lease(acquire.lease)?;
        for split in 0..SPLITS {
            let began = self.clock.now();
            // Given back before the pause below: others may have their round meanwhile.
            let place = self.place();
            let tally = self.acquire_once(acquire, unknowns)?;
            drop(place);
            match tally {
                Tally::Granted { token, sent_at } => {
                    // Its release goes to all of them.
                    unknowns.clear();
                    return Ok(Acquired::Granted { token, sent_at, next: None });
                }
                Tally::Busy { ttl } => return Ok(Acquired::Busy { ttl }),
                Tally::Gone => return Ok(Acquired::Gone),
                Tally::Split => {
                    // Each a different time, or they would split the votes again and for ever.
                    let round = self.clock.now().since(began).max(Duration::from_micros(500));
                    std::thread::sleep(round.mul_f64(random::fraction() * f64::from(1 << split)));
                }
            }
        }
        Ok(Acquired::Busy { ttl: Some(Duration::from_millis(5 + random::number() % 20)) })
    }

    fn release(
        &self,
        keys: &LockKeys,
        holder: &Holder,
        left: HoldCounts,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Released> {
        let (all, quorum) = (self.nodes.len(), majority(self.nodes.len()));
        let _place = self.place();
        let enough = |outcomes: &[NodeOutcome]| {
            outcomes.iter().filter(|outcomes| matches!(outcomes, NodeOutcome::Replies(_))).count() >= quorum
        };
        let stands = self.stands(holder);
        let Round { outcomes, repeated, .. } = self.release_on(stands, keys, holder, left, enough);
        if left == HoldCounts::NONE {
            unknowns.nodes = stands & !done(&outcomes);
            unknowns.owed = late(&outcomes);
            self.forget(holder);
        }
        // It never stood on the others.
        let mut missing = all - stands.count_ones() as usize;
        let (mut there, mut level, mut listeners) = (0, 0, 0);
        let mut wrong = None;
        for (at, outcomes) in outcomes.iter().enumerate() {
            let NodeOutcome::Replies(replies) = outcomes else { continue };
            match script::release_answer(replies[0].clone()) {
                Ok(ReleaseAnswer::Freed { receivers, .. }) => {
                    there += 1;
                    listeners = listeners.max(receivers);
                }
                Ok(ReleaseAnswer::StillHeld) => level += 1,
                // The attempt whose reply was lost did it.
                Ok(ReleaseAnswer::NotHeld) if repeated & (1 << at) != 0 && left == HoldCounts::NONE => there += 1,
                Ok(ReleaseAnswer::NotHeld) => missing += 1,
                Err(error) => wrong = Some(error),
            }
        }
        if is_final(missing, all) {
            return Ok(Released::NotHeld);
        }
        match (there, level) {
            (0, 0) => Err(wrong.unwrap_or_else(|| self.no_quorum(&outcomes, |_| "not waited for".to_owned()))),
            _ if there + level + missing < quorum => {
                Err(wrong.unwrap_or_else(|| self.no_quorum(&outcomes, |_| "answered".to_owned())))
            }
            (0, _) => Ok(Released::StillHeld),
            _ => Ok(Released::Freed { listeners, next: None }),
        }
    }

    fn acquire_all(&self, _: &AcquireAll<'_>, _: &mut UnknownOutcomes) -> Result<AcquiredAll> {
        Err(unsupported("a multi-lock"))
    }

    fn release_all(&self, _: &[Leaving<'_>], _: &mut UnknownOutcomes) -> Result<Vec<Result<Released>>> {
        Err(unsupported("a multi-lock"))
    }

    /// Not in one write: the release must be through on a majority first.
    fn hand_over(&self, _: &LockKeys, _: &Holder, _: &mut UnknownOutcomes, _: &Acquire<'_>) -> Option<HandedOver> {
        None
    }

    fn renew(&self, batch: &[Renewal]) -> Vec<Renewed> {
        self.renew_on_all(batch)
    }

    fn resolve(&self, undos: &mut Vec<Undo>) {
        let mut chunk: Vec<Undo> = undos.drain(..undos.len().min(CHUNK)).collect();
        for undo in chunk.iter_mut().filter(|undo| undo.unknowns.nodes == 0) {
            undo.unknowns.nodes = self.stands(&undo.holder);
        }
        // By holder where a connection still owes it an answer, so one round each. A slow master could take minutes for all
        // of them: renewals go first.
        let until = self.clock.now().plus(self.nodes[0].connector.io_timeout);
        for undo in &mut chunk {
            if self.clock.now() >= until {
                break;
            }
            self.hear_the_late(undo);
            let nodes = undo.unknowns.nodes & !undo.unknowns.owed;
            if nodes != 0 {
                let round = self.release_on(nodes, &undo.keys, &undo.holder, undo.left, |_| false);
                undo.unknowns.nodes &= !done(&round.outcomes);
            }
        }
        let now = self.clock.now();
        // What a master was never sent is not there; what it was sent stands no longer than its lease, unless it has stood
        // still: then it runs when it goes on, before anybody can kill the connection, and stands for a lease from there.
        for undo in &mut chunk {
            let stands_still = |node: &Node| node.may_still_run(&undo.holder);
            let left = undo.unknowns.nodes;
            if self.nodes.iter().enumerate().any(|(at, node)| left & (1 << at) != 0 && stands_still(node)) {
                undo.expires = undo.expires.max(now.plus(self.quarantine.longest_lease()));
            }
        }
        chunk.retain(|undo| {
            let goes_on = undo.unknowns.nodes != 0 && now < undo.expires;
            if !goes_on {
                self.forget(&undo.holder);
            }
            goes_on
        });
        undos.append(&mut chunk);
    }

    fn extend(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        for renewal in renewals {
            check_kind(&renewal.keys)?;
            self.quarantine.check_lease(renewal.lease)?;
        }
        let _place = self.place();
        Ok(self.renew(renewals))
    }

    fn inspect(&self, keys: &LockKeys) -> Result<Option<LockStatus>> {
        check_kind(keys)?;
        let standings = self.poll(|| script::inspect(keys), script::inspect_answer)?;
        let quorum = majority(self.nodes.len());
        let all: Vec<&(String, u64)> = standings.iter().flatten().flat_map(|health| &health.holders).collect();
        let is_same = |a: &str, b: &str| hold_on_many(a) == hold_on_many(b);
        let held = all.iter().find(|(id, _)| all.iter().filter(|(other, _)| is_same(other, id)).count() >= quorum);
        let Some((id, count)) = held else { return Ok(None) };
        let mine = |health: &&LockStatus| health.holders.iter().any(|(other, _)| is_same(other, id));
        let mut ttls: Vec<Duration> = standings.iter().flatten().filter(mine).filter_map(|s| s.ttl).collect();
        ttls.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Some(LockStatus { ttl: ttls.get(quorum - 1).copied(), holders: vec![(id.clone(), *count)] }))
    }

    fn force_unlock(&self, keys: &LockKeys) -> Result<bool> {
        check_kind(keys)?;
        let freed = self.poll(|| script::force_unlock(keys), script::force_unlock_answer)?;
        Ok(freed.contains(&true))
    }

    fn queue(&self, keys: &LockKeys, _: &str) -> Result<(usize, Option<usize>)> {
        check_kind(keys).map(|()| (0, None))
    }

    fn count(&self, keys: &LockKeys, _: Count, _: &str, _: &mut UnknownOutcomes) -> Result<CountAnswer> {
        Err(check_kind(keys).err().unwrap_or_else(|| unsupported("a count")))
    }

    fn counted(&self, keys: &LockKeys) -> Result<(i64, i64)> {
        Err(check_kind(keys).err().unwrap_or_else(|| unsupported("a count")))
    }

    fn maintain(&self) -> Option<Moment> {
        // One connect a turn, because each can take its whole timeout, and renewals go first.
        let mut nodes: Vec<&Node> = self.nodes.iter().collect();
        nodes.sort_by_key(|node| node.probe_at());
        let _ = nodes.into_iter().any(Node::probe);
        let quarantine = self.quarantine.maintain(&self.nodes);
        let now = self.clock.now();
        let probes = self.nodes.iter().filter_map(Node::probe_at).min();
        let next = [quarantine, probes].into_iter().flatten().min().unwrap_or(now.plus(Duration::from_secs(1)));
        Some(next.clamp(now.plus(Duration::from_millis(5)), now.plus(Duration::from_secs(1))))
    }

    fn copies(&self) -> u64 {
        self.nodes.len() as u64
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        let now = self.clock.now();
        let status = |node: &Node| {
            let (health, down) = node.health();
            let state = match (&down, health.quarantined) {
                (Some(_), _) => NodeState::Down,
                (None, Some(until)) => NodeState::Quarantined { remaining: until.map(|until| until.since(now)) },
                (None, None) => NodeState::Voting,
            };
            let address = format!("{:?}", node.connector.endpoint);
            NodeStatus { address, state, latency: health.latency, last_error: down.or(health.last_error) }
        };
        self.nodes.iter().map(status).collect()
    }

    fn token_rounds(&self) -> u64 {
        self.token_rounds.load(Ordering::Relaxed)
    }

    fn listen(&self, read_timeout: Duration) -> Result<(Subscriber, SubscriptionSender)> {
        let up: Vec<&Node> = self.nodes.iter().filter(|node| node.health().1.is_none()).collect();
        let connectors: Vec<&Connector> = up.iter().map(|node| &node.connector).collect();
        // One that cannot be listened to counts as down, so that it is listened to when it is back.
        Connector::subscribe_to_all(&connectors, read_timeout, self.returns.clone(), |at, error| {
            up[at].mark_down(error);
        })
    }

    fn fence_claim(&self, _: &str, _: u64) -> Result<FenceAnswer> {
        Err(unsupported("a fenced value"))
    }

    fn fence_write(&self, _: &str, _: u64, _: &[u8], _: &mut UnknownOutcomes) -> Result<FenceAnswer> {
        Err(unsupported("a fenced value"))
    }

    fn close(&self) {
        self.nodes.iter().for_each(Node::close);
    }
}

#[cold]
fn too_long(lease: Duration, longest: Duration) -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        format!(
            "a lease of {} ms is longer than the longest lease of this Redlock, {longest:?} (Builder::longest_lease)",
            ceil_millis(lease)
        ),
    )
}
