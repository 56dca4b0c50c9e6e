//! The masters of one Redlock, and the state that the calls of all its locks share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::lacking::Lacking;
use super::node::{Node, error_of, single};
use super::quarantine::{Quarantine, QuarantineSettings};
use super::quorum::{NodeSet, UnknownNodes, is_final, majority};
use super::scatter::{LateMaster, NodeOutcome, Round, ask_all};
use crate::base::error::{Error, ErrorKind, Result, invalid};
use crate::base::holder::Holder;
use crate::os::atomic::{AtomicBool, AtomicU64};
use crate::os::{self, Condvar, HashMap, Mutex};
use crate::signal::clock::Clock;
use crate::store::Release;
use crate::store::redis::wire::{Connection, Connector, Reply, Request, Shape};
use crate::store::redis::{PatternRights, script};

/// After a SIGSTOP and a SIGCONT, calls that wait for a round find that their time is over, while
/// the thread of a round is about to end it. They wait this much longer.
const AFTER_A_STOP: Duration = Duration::from_millis(10);

/// Leases on a majority of several independent masters.
#[derive(Debug)]
pub(crate) struct RedlockStore {
    pub(super) nodes: Arc<[Node]>,
    pub(super) quarantine: Quarantine,
    pub(super) clock: Arc<dyn Clock>,
    /// How many rounds of calls may run at once.
    rounds: usize,
    under_way: Mutex<UnderWay>,
    /// One for calls, one for queries.
    round_ended: [Condvar; 2],
    /// On which masters each hold may be: it must be released there.
    holds: Mutex<HashMap<Holder, NodeSet>>,
    pub(super) lacking: Lacking,
    /// The highest token seen: the next proposal is above it.
    pub(super) highest: AtomicU64,
    pub(super) token_rounds: AtomicU64,
    /// Whether a Redisson client has held a lock on these masters.
    pub(super) seen_redisson: AtomicBool,
    pub(super) rights: Arc<PatternRights>,
}

impl RedlockStore {
    /// At most `rounds` calls run at once.
    pub(crate) fn new(
        connectors: Vec<Connector>,
        rounds: usize,
        quarantine: QuarantineSettings,
    ) -> Self {
        let clock = connectors[0].clock.clone();
        let nodes: Arc<[Node]> = connectors.into_iter().map(Node::new).collect();
        Self {
            quarantine: Quarantine::new(quarantine, nodes.len()),
            nodes,
            clock,
            rounds,
            under_way: Mutex::default(),
            round_ended: [Condvar::new(), Condvar::new()],
            holds: Mutex::default(),
            lacking: Lacking::default(),
            highest: AtomicU64::new(0),
            token_rounds: AtomicU64::new(0),
            seen_redisson: AtomicBool::new(false),
            rights: Arc::default(),
        }
    }

    /// Connects to every master. Fails when no majority can be reached, when a master that answers
    /// cannot be used, or when two URLs lead to the same server.
    pub(crate) fn connect_now(&self) -> Result<()> {
        let run_ids = Mutex::new(BTreeMap::new());
        let ask = |index: usize, _: &Connection, run_id: &str| {
            run_ids.lock().insert(index, run_id.to_owned());
            vec![Request::plain(&["PING"]).answered_by(Shape::Text)]
        };
        let round =
            ask_all(&self.nodes, None, ask, self.all_nodes(), LateMaster::IfNeeded, |_| false);
        let run_ids = run_ids.into_inner();
        if run_ids.values().collect::<BTreeSet<_>>().len() < run_ids.len() {
            let why = "two of the URLs lead to the same server, which would vote twice";
            return Err(invalid(why));
        }
        let mut reached = 0;
        let mut uncertified = None;
        for outcome in &round.outcomes {
            match outcome {
                NodeOutcome::Replies(_) => reached += 1,
                // One expired certificate is no worse than one master that is down.
                NodeOutcome::Failed(failure) if error_of(failure).kind() == ErrorKind::Tls => {
                    uncertified = Some(error_of(failure).clone());
                }
                NodeOutcome::Failed(failure) if !error_of(failure).kind().is_outage() => {
                    return Err(error_of(failure).clone());
                }
                _ => {}
            }
        }
        if reached < majority(self.nodes.len()) {
            return Err(
                uncertified.unwrap_or_else(|| self.no_quorum(&round.outcomes, |_| "reached"))
            );
        }
        self.quarantine.maintain(&self.nodes);
        Ok(())
    }

    pub(super) fn all_nodes(&self) -> NodeSet {
        NodeSet::all(self.nodes.len())
    }

    /// Remembers that the hold may also be on `nodes`.
    pub(super) fn add_nodes_of(&self, holder: &Holder, nodes: NodeSet) {
        let mut holds = self.holds.lock();
        let known = holds.entry(holder.clone()).or_default();
        *known = *known | nodes;
    }

    /// Where the hold must be released: on all masters if nothing is known about it.
    pub(super) fn nodes_of(&self, holder: &Holder) -> NodeSet {
        self.holds.lock().get(holder).copied().unwrap_or_else(|| self.all_nodes())
    }

    /// Whether one of them may hold a lock.
    pub(super) fn has_one_of(&self, holders: &[Holder]) -> bool {
        let holds = self.holds.lock();
        holders.iter().any(|holder| holds.contains_key(holder))
    }

    pub(super) fn forget(&self, holder: &Holder) {
        self.holds.lock().remove(holder);
    }

    /// Waits until one more round of a call may run. The permit ends when it is dropped.
    ///
    /// # Errors
    /// No round has ended for this call within the I/O timeout, as for a call that gets no
    /// connection to a single server. Nothing was sent.
    pub(super) fn begin_round(&self) -> Result<RoundPermit<'_>> {
        self.begin(Asks::Majority, self.nodes[0].connector.io_timeout)
    }

    /// The same for a query. It waits for longer: each query that began before a master was found
    /// to hang waits the I/O timeout for it.
    pub(super) fn begin_query(&self) -> Result<RoundPermit<'_>> {
        self.begin(Asks::All, self.nodes[0].connector.io_timeout * 2)
    }

    fn begin(&self, asks: Asks, patience: Duration) -> Result<RoundPermit<'_>> {
        let mut under_way = self.under_way.lock();
        for patience in [patience, AFTER_A_STOP] {
            let until = os::now() + patience;
            let ended = &self.round_ended[asks as usize];
            while !under_way.permits(asks, self.rounds)
                && !ended.wait_until(&mut under_way, until).timed_out()
            {}
            if under_way.permits(asks, self.rounds) {
                under_way.0[asks as usize] += 1;
                return Ok(RoundPermit { store: self, asks });
            }
        }
        let others = under_way.0.iter().sum::<usize>();
        drop(under_way);
        Err(all_busy(others))
    }

    pub(super) fn release_on(
        &self,
        nodes: NodeSet,
        release: &Release<'_>,
        decided: impl Fn(&[NodeOutcome]) -> bool,
    ) -> Round {
        let ask =
            |_: usize, _: &Connection, _: &str| vec![script::release(release, || self.clock.now())];
        ask_all(&self.nodes, Some(release.holder), ask, nodes, LateMaster::IfNeeded, decided)
    }

    /// Where the release of `holder` is not known to have run, after a round that sent it to
    /// `nodes`.
    pub(super) fn unreleased(
        &self,
        nodes: NodeSet,
        holder: &Holder,
        outcomes: Vec<NodeOutcome>,
    ) -> UnknownNodes {
        let mut unknown = UnknownNodes { nodes, unread: Vec::new() };
        for (index, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                NodeOutcome::Unread(evidence) => unknown.unread.push((index, evidence)),
                outcome if outcome.has_run() && self.is_last(index, holder) => {
                    unknown.nodes.remove(index);
                }
                _ => {}
            }
        }
        unknown
    }

    /// Reads the replies to a release whose caller did not wait for all of them. By the time this
    /// runs, most masters have answered.
    pub(super) fn read_unread_releases(&self, unknown: &mut UnknownNodes, holder: &Holder) {
        for (index, evidence) in std::mem::take(&mut unknown.unread) {
            self.nodes[index].read_unread();
            match evidence.has_run() {
                None => unknown.unread.push((index, evidence)),
                Some(true) if self.is_last(index, holder) => unknown.nodes.remove(index),
                // Refused, or nobody has read the reply: it is sent again.
                Some(_) => {}
            }
        }
    }

    /// Whether no request of the holder can run at this master after one that has been answered:
    /// that one was sent behind all others, or behind the kills of their connections. False if a
    /// kill was refused: a late acquire would take the lock after the release.
    fn is_last(&self, index: usize, holder: &Holder) -> bool {
        !self.nodes[index].may_still_run(holder)
    }

    /// Asks all masters, and waits for all of them: the replies of each, or why there are none.
    pub(super) fn ask_each(
        &self,
        late: LateMaster,
        requests: impl Fn() -> Vec<Request> + Sync,
    ) -> Vec<Result<Vec<Reply>>> {
        let round =
            ask_all(&self.nodes, None, |_, _, _| requests(), self.all_nodes(), late, |_| false);
        let replies = |outcome: NodeOutcome| match outcome {
            NodeOutcome::Replies(replies) => Ok(replies),
            NodeOutcome::Failed(failure) => Err(error_of(&failure).clone()),
            NodeOutcome::Unread(_) | NodeOutcome::Skipped => {
                Err(Error::new(ErrorKind::Unreachable, "it was not asked"))
            }
        };
        round.outcomes.into_iter().map(replies).collect()
    }

    /// The answers of the masters to one request each.
    ///
    /// # Errors
    /// As for [`of_a_majority`](Self::of_a_majority).
    pub(super) fn ask_majority<T>(
        &self,
        late: LateMaster,
        request: impl Fn() -> Request + Sync,
        parse: impl Fn(Reply) -> Result<T>,
    ) -> Result<Vec<T>> {
        let _permit = self.begin_query()?;
        let answers = self.ask_each(late, || vec![request()]).into_iter();
        self.of_a_majority(
            answers.map(|replies| replies.and_then(single).and_then(&parse)).collect(),
        )
    }

    /// The answers of those masters that have answered.
    ///
    /// # Errors
    /// If they are no majority: the [fault](Self::fault) of the request, or `NoQuorum` with the
    /// answer of each master.
    pub(super) fn of_a_majority<T>(&self, answers: Vec<Result<T>>) -> Result<Vec<T>> {
        if answers.iter().flatten().count() >= majority(self.nodes.len()) {
            return Ok(answers.into_iter().flatten().collect());
        }
        let texts: Vec<String> = answers
            .iter()
            .map(|answer| answer.as_ref().err().map_or("answered", Error::message).to_owned())
            .collect();
        let fault = self.fault(answers.iter().filter_map(|answer| answer.as_ref().err()));
        Err(fault.unwrap_or_else(|| self.no_quorum_with(&texts)))
    }

    /// The error about the request itself, if the masters that did not return one are no majority.
    /// Otherwise the end of an outage can bring one, and whoever waits goes on.
    pub(super) fn fault<'e>(&self, errors: impl Iterator<Item = &'e Error>) -> Option<Error> {
        let mut faults = errors.filter(|error| !error.kind().is_outage());
        let first = faults.next()?;
        is_final(1 + faults.count(), self.nodes.len()).then(|| first.clone())
    }

    /// `describe`: the text for a master that has not failed or refused.
    pub(super) fn no_quorum(
        &self,
        outcomes: &[NodeOutcome],
        describe: impl Fn(&NodeOutcome) -> &'static str,
    ) -> Error {
        let text = |outcome: &NodeOutcome| text_of(outcome, describe(outcome));
        let texts: Vec<String> = outcomes.iter().map(text).collect();
        self.no_quorum_with(&texts)
    }

    /// `texts`: the answer of each master.
    pub(super) fn no_quorum_with(&self, texts: &[String]) -> Error {
        let each: Vec<String> = self
            .nodes
            .iter()
            .zip(texts)
            .map(|(node, text)| format!("{:?}: {text}", node.connector.endpoint))
            .collect();
        let all = self.nodes.len();
        let quorum = majority(self.nodes.len());
        Error::new(
            ErrorKind::NoQuorum,
            format!("no majority ({quorum} of {all}): {}", each.join("; ")),
        )
    }
}

/// Why a master has failed or refused, or this.
pub(super) fn text_of(outcome: &NodeOutcome, otherwise: &str) -> String {
    let error = match outcome {
        NodeOutcome::Failed(failure) => Some(error_of(failure).clone()),
        NodeOutcome::Replies(replies) => single(replies.clone()).err(),
        NodeOutcome::Unread(_) | NodeOutcome::Skipped => None,
    };
    error.map_or_else(|| otherwise.to_owned(), |error| error.message().to_owned())
}

/// Whose answers a round waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// A call: a majority decides it.
    Majority,
    /// A query needs the answers of all masters, also of one that hangs.
    All,
}

/// How many rounds of calls, and of queries, are under way. Each uses a connection to every master.
#[derive(Debug, Default)]
struct UnderWay([usize; 2]);

impl UnderWay {
    /// A master that hangs keeps queries for the I/O timeout. They must not keep calls from their
    /// rounds as well: at most half of the rounds are theirs. All together may use one connection
    /// more than the calls alone, as for the lists of a single server.
    fn permits(&self, asks: Asks, rounds: usize) -> bool {
        let most = match asks {
            Asks::Majority => rounds,
            Asks::All => rounds.div_ceil(2),
        };
        self.0[asks as usize] < most && self.0.iter().sum::<usize>() < rounds + 1
    }
}

#[cold]
fn all_busy(others: usize) -> Error {
    let why = format!(
        "{others} other calls of this client were in progress for the I/O timeout, which is the maximum (connections)"
    );
    Error::new(ErrorKind::Unreachable, why)
}

/// Permits one round to run.
pub(super) struct RoundPermit<'s> {
    store: &'s RedlockStore,
    asks: Asks,
}

impl Drop for RoundPermit<'_> {
    fn drop(&mut self) {
        self.store.under_way.lock().0[self.asks as usize] -= 1;
        for ended in &self.store.round_ended {
            ended.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_leave_rounds_to_calls() {
        for rounds in 1..=8 {
            let mut under_way = UnderWay::default();
            while under_way.permits(Asks::All, rounds) {
                under_way.0[Asks::All as usize] += 1;
            }
            assert!(under_way.permits(Asks::Majority, rounds), "{rounds}");
            while under_way.permits(Asks::Majority, rounds) {
                under_way.0[Asks::Majority as usize] += 1;
            }
            assert_eq!(under_way.0.iter().sum::<usize>(), rounds + 1);
        }
    }
}
