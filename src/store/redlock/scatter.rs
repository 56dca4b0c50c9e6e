//! One round over several masters: the calling thread sends to all of them, and reads each reply as
//! it arrives.

use std::time::Duration;

use super::node::{Evidence, Node, NodeCall, has_run};
use super::quorum::NodeSet;
use super::quorum::{grace, majority};
use crate::base::error::{Error, ErrorKind};
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::store::redis::wire::{Connection, RedisFailure, Reply, Request};

/// The outcome of a request to one master.
#[derive(Debug)]
pub(super) enum NodeOutcome {
    Replies(Vec<Reply>),
    /// Nothing was sent, or the outcome is unknown.
    Failed(RedisFailure),
    /// It was asked, and the round ended before its reply: the other replies had decided it.
    Unread(Evidence),
    /// It was not asked.
    Skipped,
}

impl NodeOutcome {
    /// Whether the master has run the request, as far as the first reply shows.
    pub(super) fn has_run(&self) -> bool {
        matches!(self, Self::Replies(replies) if has_run(replies))
    }

    /// Whether it will not answer in this round that it has run the request.
    pub(super) fn has_refused(&self) -> bool {
        matches!(self, Self::Replies(_) | Self::Failed(_)) && !self.has_run()
    }
}

pub(super) struct Round {
    /// The instant before the first byte was sent to any master.
    pub(super) sent_at: Moment,
    pub(super) outcomes: Vec<NodeOutcome>,
    /// The masters that were asked twice, because their connection had ended while idle: the first
    /// request may have run as well.
    pub(super) repeated: NodeSet,
}

/// Sends each of the masters in `asked` the requests that `ask` makes from its index, the
/// connection, and the run_id of the process at the other end. Reads until all have answered, until
/// `decided` returns that the rest cannot change the outcome, or until the timeout.
///
/// Without a `holder` it waits for all: an unread reply can only be kept for its holder's next
/// request.
pub(super) fn ask_all(
    nodes: &[Node],
    holder: Option<&Holder>,
    ask: impl Fn(usize, &Connection, &str) -> Vec<Request>,
    asked: NodeSet,
    decided: impl Fn(&[NodeOutcome]) -> bool,
) -> Round {
    let mut sent_at = None;
    let outcomes = nodes.iter().map(|_| NodeOutcome::Skipped).collect();
    let mut round = Round { sent_at: nodes[0].connector.clock.now(), outcomes, repeated: NodeSet::default() };
    let mut calls: Vec<Option<NodeCall<'_>>> = nodes.iter().map(|_| None).collect();
    // Masters that need a connect come last, so that the others already work meanwhile.
    let mut order: Vec<usize> = (0..nodes.len()).filter(|&index| asked.contains(index)).collect();
    order.sort_by_key(|&index| !nodes[index].has_connection());
    let quorum = majority(nodes.len());
    for anyway in [false, true] {
        for &index in &order {
            let make = |connection: &Connection, run_id: &str| ask(index, connection, run_id);
            let call = match (&round.outcomes[index], anyway) {
                (NodeOutcome::Skipped, false) => nodes[index].send(holder, make),
                (NodeOutcome::Failed(RedisFailure::NotSent(_)), true) => nodes[index].send_anyway(holder, make),
                _ => continue,
            };
            match call {
                Ok(call) => {
                    round.sent_at = *sent_at.get_or_insert(call.sent_at());
                    calls[index] = Some(call);
                    round.outcomes[index] = NodeOutcome::Skipped;
                }
                Err(failure) => round.outcomes[index] = NodeOutcome::Failed(failure),
            }
        }
        // Masters that are slow to answer earlier requests are asked only if a majority needs them:
        // at once if too few others can be asked, or when too few of the others have answered.
        let enough = |masters: usize| order.len() < quorum || masters >= quorum;
        if !anyway && !enough(calls.iter().flatten().count()) {
            continue;
        }
        gather(nodes, &mut calls, &mut round, &ask, holder.is_some(), &decided);
        if enough(round.outcomes.iter().filter(|outcome| outcome.has_run()).count()) {
            break;
        }
    }
    round
}

fn gather(
    nodes: &[Node],
    calls: &mut [Option<NodeCall<'_>>],
    round: &mut Round,
    ask: &impl Fn(usize, &Connection, &str) -> Vec<Request>,
    may_leave: bool,
    decided: &impl Fn(&[NodeOutcome]) -> bool,
) {
    let clock = &nodes[0].connector.clock;
    let started = clock.now();
    let timeout = nodes.iter().map(|node| node.connector.io_timeout).max().unwrap_or_default();
    let mut until = started.plus(timeout);
    let mut is_decided = false;
    loop {
        let waiting: Vec<usize> = (0..calls.len()).filter(|&index| calls[index].is_some()).collect();
        if waiting.is_empty() {
            return;
        }
        if !is_decided && may_leave && decided(&round.outcomes) {
            is_decided = true;
            let now = clock.now();
            until = until.min(now.plus(grace(now.since(started))));
        }
        let left = until.since(clock.now());
        let connections: Vec<&Connection> =
            waiting.iter().map(|&index| calls[index].as_ref().expect("it waits").connection()).collect();
        let answered = Connection::answered(&connections, left);
        let mut is_news = false;
        for (&index, _) in waiting.iter().zip(&answered).filter(|(_, ready)| **ready) {
            if !calls[index].as_mut().expect("it waits").read_available() {
                continue;
            }
            is_news = true;
            let call = calls[index].take().expect("it waits");
            round.outcomes[index] = match call.finish(|connection, run_id| ask(index, connection, run_id)) {
                Ok((replies, repeated)) => {
                    if repeated {
                        round.repeated.insert(index);
                    }
                    NodeOutcome::Replies(replies)
                }
                Err(failure) => NodeOutcome::Failed(failure),
            };
        }
        if left == Duration::ZERO && !is_news {
            break;
        }
    }
    for (call, outcome) in calls.iter_mut().zip(&mut round.outcomes).filter(|(call, _)| call.is_some()) {
        let call = call.take().expect("it waits");
        *outcome = if is_decided {
            NodeOutcome::Unread(call.leave_unread())
        } else {
            let why = "it did not answer within its timeout (io_timeout)";
            NodeOutcome::Failed(call.give_up(Error::new(ErrorKind::Unreachable, why)))
        };
    }
}
