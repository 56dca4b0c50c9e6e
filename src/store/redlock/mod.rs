//! Leases on a majority of several independent masters.
//!
//! The algorithm of the Redis documentation ("Distributed Locks with Redis"), with what it leaves to the reader: a
//! master that may have forgotten something has no vote ([`admission`](super::quarantine)), and every grant has a fencing
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
use self::quorum::{is_final, majority};
use self::scatter::{NodeOutcome, Round, ask_all};
use self::supported::{check_kind, unsupported};
use crate::base::clock::Clock;
use crate::base::deadline::ceil_millis;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::{Holder, hold_on_many};
use crate::base::lease::Moment;
use crate::base::lock_name::LockName;
use crate::base::node_status::{NodeState, NodeStatus};
use crate::base::random;
use crate::store::redis::keys::check_name;
use crate::store::redis::wire::{Connection, Connector, Reply, Request, Shape};
use crate::store::redis::{script, subscribe_to};
use crate::store::{
    Acquire, Acquired, CountStore, FenceStore, Granted, HandedOver, HoldCounts, LockStatus, LockStore, MultiStore,
    QueueStore, Release, Released, Renewal, Renewed, Subscriber, SubscriptionSender, Undo, UnknownOutcomes,
};

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
    pub(crate) fn connect_now(&self) -> Result<()> {
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
        let mut on = OnNodes::of(&undo.unknowns);
        let pending = on.pending;
        for (at, node) in self.nodes.iter().enumerate().filter(|(at, _)| pending & (1 << at) != 0) {
            if node.owes(&undo.holder) {
                continue;
            }
            on.pending &= !(1 << at);
            if !node.may_still_run(&undo.holder) {
                on.nodes &= !(1 << at);
            }
        }
        on.store(&mut undo.unknowns);
    }

    fn place(&self) -> Place<'_> {
        let mut free = self.round_places.lock();
        while *free == 0 {
            self.place_free.wait(&mut free);
        }
        *free -= 1;
        Place(self)
    }

    fn release_on(&self, nodes: u64, release: &Release<'_>, decided: impl Fn(&[NodeOutcome]) -> bool) -> Round {
        let ask = |_: usize, _: &Connection, _: &str| vec![script::release(release)];
        ask_all(&self.nodes, Some(release.holder), ask, |at| nodes & (1 << at) != 0, decided)
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

/// The masters on which something of a call may stand, by place. What keeps the order there is theirs.
#[derive(Debug, Clone, Copy, Default)]
struct OnNodes {
    nodes: u64,
    /// Those of them that were sent the release right behind it, on the same connection: only its reply is pending.
    pending: u64,
}

impl OnNodes {
    fn of(unknowns: &UnknownOutcomes) -> Self {
        unknowns.get().copied().unwrap_or_default()
    }

    fn store(self, unknowns: &mut UnknownOutcomes) {
        if self.nodes == 0 { unknowns.clear() } else { unknowns.set(self) }
    }
}

impl LockStore for RedlockStore {
    fn check(&self, name: &LockName) -> Result<()> {
        check_kind(name)?;
        check_name(name)
    }

    fn acquire(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired> {
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
                    return Ok(Acquired::Granted(Granted { token, sent_at, next: None }));
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

    fn release(&self, release: &Release<'_>, unknowns: &mut UnknownOutcomes) -> Result<Released> {
        let Release { holder, left, .. } = *release;
        let (all, quorum) = (self.nodes.len(), majority(self.nodes.len()));
        let _place = self.place();
        let enough = |outcomes: &[NodeOutcome]| {
            outcomes.iter().filter(|outcomes| matches!(outcomes, NodeOutcome::Replies(_))).count() >= quorum
        };
        let stands = self.stands(holder);
        let Round { outcomes, repeated, .. } = self.release_on(stands, release, enough);
        if left == HoldCounts::NONE {
            OnNodes { nodes: stands & !done(&outcomes), pending: late(&outcomes) }.store(unknowns);
            self.forget(holder);
        }
        // It never stood on the others.
        let mut missing = all - stands.count_ones() as usize;
        let (mut there, mut level, mut listeners) = (0, 0, None);
        let mut wrong = None;
        for (at, outcome) in outcomes.iter().enumerate() {
            let NodeOutcome::Replies(replies) = outcome else { continue };
            match script::release_answer(replies[0].clone()) {
                Ok(Released::Freed { listeners: heard, .. }) => {
                    there += 1;
                    listeners = listeners.max(heard);
                }
                Ok(Released::StillHeld) => level += 1,
                // The attempt whose reply was lost did it.
                Ok(Released::NotHeld) if repeated & (1 << at) != 0 && left == HoldCounts::NONE => there += 1,
                Ok(Released::NotHeld) => missing += 1,
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

    /// Not in one write: the release must be through on a majority first.
    fn hand_over(&self, _: &Release<'_>, _: &Acquire<'_>, _: &mut UnknownOutcomes) -> Option<HandedOver> {
        None
    }

    fn renew(&self, batch: &[Renewal]) -> Vec<Renewed> {
        self.renew_on_all(batch)
    }

    fn resolve(&self, undos: &mut Vec<Undo>) {
        let mut chunk: Vec<Undo> = undos.drain(..undos.len().min(CHUNK)).collect();
        for undo in chunk.iter_mut().filter(|undo| undo.unknowns.is_empty()) {
            OnNodes { nodes: self.stands(&undo.holder), pending: 0 }.store(&mut undo.unknowns);
        }
        // By holder where a connection still owes it an answer, so one round each. A slow master could take minutes for all
        // of them: renewals go first.
        let until = self.clock.now().plus(self.nodes[0].connector.io_timeout);
        for undo in &mut chunk {
            if self.clock.now() >= until {
                break;
            }
            self.hear_the_late(undo);
            let mut on = OnNodes::of(&undo.unknowns);
            let asked = on.nodes & !on.pending;
            if asked != 0 {
                on.nodes &= !done(&self.release_on(asked, &undo.release(), |_| false).outcomes);
                on.store(&mut undo.unknowns);
            }
        }
        let now = self.clock.now();
        // What a master was never sent is not there; what it was sent stands no longer than its lease, unless it has stood
        // still: then it runs when it goes on, before anybody can kill the connection, and stands for a lease from there.
        for undo in &mut chunk {
            let stands_still = |node: &Node| node.may_still_run(&undo.holder);
            let left = OnNodes::of(&undo.unknowns).nodes;
            if self.nodes.iter().enumerate().any(|(at, node)| left & (1 << at) != 0 && stands_still(node)) {
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
        for renewal in renewals {
            self.quarantine.check_lease(renewal.lease)?;
        }
        let _place = self.place();
        Ok(self.renew(renewals))
    }

    fn inspect(&self, name: &LockName) -> Result<Option<LockStatus>> {
        check_kind(name)?;
        let standings = self.poll(|| script::inspect(name), script::inspect_answer)?;
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

    fn force_unlock(&self, name: &LockName) -> Result<bool> {
        let freed = self.poll(|| script::force_unlock(name), script::force_unlock_answer)?;
        Ok(freed.contains(&true))
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

    fn messages_per_release(&self) -> u64 {
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

    fn subscribe(&self, read_timeout: Duration) -> Result<(Box<dyn Subscriber>, Box<dyn SubscriptionSender>)> {
        let up: Vec<&Node> = self.nodes.iter().filter(|node| node.health().1.is_none()).collect();
        let connectors: Vec<&Connector> = up.iter().map(|node| &node.connector).collect();
        // One that cannot be listened to counts as down, so that it is listened to when it is back.
        let cannot = |at: usize, error: &Error| up[at].mark_down(error);
        let connections = Connector::subscribe_to_all(&connectors, read_timeout, self.returns.clone(), cannot)?;
        // No lock here has a queue in Redis, so nothing goes by the pattern of a client's waiters.
        Ok(subscribe_to(connections, "", Arc::default()))
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

    fn fence(&self) -> Result<&dyn FenceStore> {
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
