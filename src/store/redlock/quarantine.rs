//! When a master may vote again that may have forgotten something.
//!
//! One that restarted empty, failed over, was flushed or is new would vote for a second holder while the first still
//! counts on its old vote, and would give tokens anew. So it votes only while it remembers that it was admitted by its own
//! `run_id`, and any client admits it, in this order: it is marked; the longest lease of all clients passes, counted by the
//! admitting client from when it *read* that mark; only then the highest token is read from a majority of the others; and one
//! script compares the mark, raises the floor and gives the vote. A quarantine that is kept in a client's head would admit
//! a master that was emptied twice; a floor read before the wait is over misses a grant that still counts an old vote.
//! The Redis documentation calls the wait "delayed restarts".

use std::time::Duration;

use parking_lot::Mutex;

use super::node::{Node, one};
use super::scatter::{NodeOutcome, ask_all};
use super::too_long;
use crate::base::error::Result;
use crate::base::lease::{Moment, margin};
use crate::base::random;
use crate::store::redis::script::{self, Memory};
use crate::store::redis::wire::{Connection, Request, Shape, server_time};
use crate::store::redlock::quorum::majority;

/// The terms on which masters get their vote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuarantineSettings {
    /// No client of the fleet has a longer lease.
    pub(crate) longest_lease: Duration,
    /// A master that remembers nothing votes at once.
    pub(crate) fresh: bool,
    /// A master that remembers something has forgotten nothing: it syncs every write.
    pub(crate) durable: bool,
}

/// Asked again this often when something but time is missing.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Quarantine {
    terms: QuarantineSettings,
    waits: Mutex<Vec<Option<Wait>>>,
}

#[derive(Debug, Clone)]
struct Wait {
    /// The mark as it was read first, and when; `None`: not yet.
    mark: Option<(String, Moment)>,
    again: Moment,
    logged: bool,
}

/// What a master said of itself.
struct Seen {
    run_id: String,
    memory: Memory,
    /// Its clock, in microseconds since 1970.
    clock: u64,
}

impl Quarantine {
    pub(super) fn new(terms: QuarantineSettings, nodes: usize) -> Self {
        let unknown = Wait { mark: None, again: Moment::from_nanos(0), logged: false };
        Self { terms, waits: Mutex::new(vec![Some(unknown); nodes]) }
    }

    pub(super) fn longest_lease(&self) -> Duration {
        self.terms.longest_lease
    }

    pub(super) fn check_lease(&self, lease: Duration) -> Result<()> {
        if lease > self.terms.longest_lease { Err(too_long(lease, self.terms.longest_lease)) } else { Ok(()) }
    }

    /// It said so itself, or may have to: it is looked at in the background.
    pub(super) fn has_no_vote(&self, node: &Node, at: usize) {
        let mut waits = self.waits.lock();
        if waits[at].is_none() {
            waits[at] = Some(Wait { mark: None, again: Moment::from_nanos(0), logged: false });
            node.quarantine(Some(None));
        }
    }

    /// Looks at those that have no vote, as far as is known, and admits whose time has come. When to look again; `None`:
    /// all vote.
    pub(super) fn maintain(&self, nodes: &[Node]) -> Option<Moment> {
        let clock = nodes[0].connector.clock.clone();
        for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.take_suspicion()) {
            self.has_no_vote(node, at);
        }
        let waits = self.waits.lock().clone();
        let due = |at: usize| waits[at].as_ref().is_some_and(|wait| wait.again <= clock.now());
        if (0..nodes.len()).any(due) {
            // Those that vote are left in peace.
            let seen = inspect_node(nodes, due);
            let mut ready = Vec::new();
            for at in (0..nodes.len()).filter(|&at| due(at)) {
                let mut wait = waits[at].clone().expect("it is due");
                match self.judge(&nodes[at], seen[at].as_ref(), &mut wait, clock.now()) {
                    Judged::Votes => self.waits.lock()[at] = None,
                    judged => {
                        self.waits.lock()[at] = Some(wait);
                        if judged == Judged::Ready {
                            ready.push(at);
                        }
                    }
                }
            }
            if !ready.is_empty() {
                self.admit(nodes, &ready);
            }
        }
        self.waits.lock().iter().flatten().map(|wait| wait.again).min()
    }

    fn judge(&self, node: &Node, seen: Option<&Seen>, wait: &mut Wait, now: Moment) -> Judged {
        wait.again = now.plus(LOOK_AGAIN);
        let Some(Seen { memory, .. }) = seen else { return Judged::Waits };
        let Some(pending) = &memory.pending else {
            node.quarantine(None);
            return Judged::Votes;
        };
        let since = match &wait.mark {
            Some((mark, since)) if mark == pending => *since,
            _ => {
                wait.mark = Some((pending.clone(), now));
                now
            }
        };
        let trusted = if memory.max.is_none() { self.terms.fresh } else { self.terms.durable };
        let longest = self.terms.longest_lease;
        let until = if trusted { since } else { since.plus(longest + margin(longest)) };
        node.quarantine(Some(Some(until)));
        if now >= until {
            return Judged::Ready;
        }
        if !std::mem::replace(&mut wait.logged, true) {
            log::warn!(
                "{:?} gets its vote in {:?}: until then a lease may stand that it has forgotten (Builder::admit_fresh_nodes skips this for a first installation)",
                node.connector.endpoint,
                until.since(now)
            );
        }
        wait.again = until.min(now.plus(Duration::from_secs(1)));
        Judged::Waits
    }

    /// Those that have waited long enough.
    fn admit(&self, nodes: &[Node], ready: &[usize]) {
        // Read only now: before, a grant could still be under way that counts an old vote of theirs.
        let seen = inspect_node(nodes, |_| true);
        for &at in ready {
            let Some(Seen { run_id, memory: Memory { pending: Some(pending), .. }, .. }) = &seen[at] else { continue };
            let waited_for =
                self.waits.lock()[at].as_ref().and_then(|wait| wait.mark.as_ref().map(|mark| mark.0.clone()));
            if waited_for.as_ref() != Some(pending) {
                continue;
            }
            match floor(&seen, &self.terms) {
                Some(floor) if admit(&nodes[at], run_id, pending, floor) => {
                    log::debug!("{:?} has its vote", nodes[at].connector.endpoint);
                    nodes[at].quarantine(None);
                    self.waits.lock()[at] = None;
                }
                Some(_) => {}
                None => nodes[at].quarantine(Some(None)),
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Judged {
    Votes,
    Waits,
    /// Its time is over.
    Ready,
}

fn inspect_node(nodes: &[Node], asked: impl Fn(usize) -> bool) -> Vec<Option<Seen>> {
    let nonce = random::number();
    let run_ids = Mutex::new(vec![String::new(); nodes.len()]);
    let ask = |at: usize, _: &Connection, run_id: &str| {
        run_ids.lock()[at] = run_id.to_owned();
        vec![
            script::inspect_node(run_id, &format!("{run_id}:{nonce:016x}")),
            Request::plain(&["TIME"]).answered_by(Shape::List),
        ]
    };
    let round = ask_all(nodes, None, ask, asked, |_| false);
    let run_ids = run_ids.into_inner();
    let seen = |(logged, run_id): (&NodeOutcome, String)| {
        let NodeOutcome::Replies(replies) = logged else { return None };
        let memory = one(replies.clone())
            .and_then(script::inspect_node_answer)
            .inspect_err(|e| log::warn!("{}", e.chain()))
            .ok()?;
        let clock = server_time(replies.get(1)?.clone()).ok()?;
        Some(Seen { run_id, memory, clock })
    };
    round.outcomes.iter().zip(run_ids).map(seen).collect()
}

/// Above every token that a grant may have: the highest that a majority of masters knows which have forgotten nothing. If
/// so many are not left, the memory of the others and their clocks are all there is, as it is for a first installation.
/// `None`: those that cannot be asked now may know of a higher one (`fresh`: they do not, it is a first installation).
fn floor(seen: &[Option<Seen>], terms: &QuarantineSettings) -> Option<u64> {
    let all = seen.len();
    let there: Vec<&Seen> = seen.iter().flatten().collect();
    if there.len() < majority(all) {
        return None;
    }
    let known = there.iter().filter_map(|seen| seen.memory.max).max().unwrap_or(0);
    // One that syncs every write and came back with its data knows all that it knew.
    let forgets = |seen: &Seen| seen.memory.pending.is_some() && !(terms.durable && seen.memory.max.is_some());
    let forgetful = there.iter().filter(|seen| forgets(seen)).count();
    if there.len() - forgetful >= majority(all) {
        return Some(known);
    }
    if forgetful < majority(all) && there.len() < all && !terms.fresh {
        return None;
    }
    let clocks = there.iter().map(|seen| seen.clock).max().unwrap_or(0);
    Some(known.max(clocks))
}

fn admit(node: &Node, run_id: &str, pending: &str, floor: u64) -> bool {
    // With the run_id that was looked at, whoever answers now: another process is not given a vote by this.
    let ask = |_: &Connection, _: &str| vec![script::admit(run_id, pending, floor)];
    let Ok((replies, _)) = node.send(None, ask).and_then(|call| call.finish(ask)) else { return false };
    one(replies).and_then(script::admit_answer).inspect_err(|e| log::warn!("{}", e.chain())).unwrap_or(false)
}
