//! One round over several masters: all are asked at once by the calling thread, and whoever answers first is read first.

use std::time::Duration;

use super::node::{Call, Node};
use crate::base::error::{Error, ErrorKind};
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::store::redis::wire::{Connection, Failure, Reply, Request};
use crate::store::redlock::quorum::{grace, majority};

/// What came of asking one master.
#[derive(Debug)]
pub(super) enum NodeOutcome {
    Replies(Vec<Reply>),
    /// Nothing was sent, or nobody knows what became of it.
    Failed(Failure),
    /// It was asked, and was not waited for: the others had decided.
    Late,
    /// It was not to be asked.
    Skipped,
}

pub(super) struct Round {
    /// Before the first byte went out to the first of them.
    pub(super) sent_at: Moment,
    pub(super) outcomes: Vec<NodeOutcome>,
    /// Those, by place, whose connection had ended in its sleep, and that were asked twice: the first may have run as well.
    pub(super) repeated: u64,
}

/// Asks every master that is to be `asked` what `ask` makes for it (given its place, the connection, and the run_id at its
/// other end), and reads until all have answered, or `decided` says that the rest cannot change anything, or the time of the
/// slowest is up. Without a holder all are waited for: there is nobody whose next request would follow on the same connection.
pub(super) fn ask_all(
    nodes: &[Node],
    holder: Option<&Holder>,
    ask: impl Fn(usize, &Connection, &str) -> Vec<Request>,
    asked: impl Fn(usize) -> bool,
    decided: impl Fn(&[NodeOutcome]) -> bool,
) -> Round {
    let clock = &nodes[0].connector.clock;
    let started = clock.now();
    let mut sent_at = None;
    let mut outcomes: Vec<NodeOutcome> = nodes.iter().map(|_| NodeOutcome::Skipped).collect();
    let mut calls: Vec<Option<Call<'_>>> = nodes.iter().map(|_| None).collect();
    // Those that must be connected to come last: the others work meanwhile.
    let mut order: Vec<usize> = (0..nodes.len()).filter(|&at| asked(at)).collect();
    order.sort_by_key(|&at| !nodes[at].has_connection());
    let quorum = majority(nodes.len());
    for anyway in [false, true] {
        for &at in &order {
            let make = |connection: &Connection, run_id: &str| ask(at, connection, run_id);
            let call = match (&outcomes[at], anyway) {
                (NodeOutcome::Skipped, false) => nodes[at].send(holder, make),
                (NodeOutcome::Failed(Failure::NotSent(_)), true) => nodes[at].send_anyway(holder, make),
                _ => continue,
            };
            match call {
                Ok(call) => {
                    sent_at.get_or_insert(call.sent_at());
                    calls[at] = Some(call);
                    outcomes[at] = NodeOutcome::Skipped;
                }
                Err(failure) => outcomes[at] = NodeOutcome::Failed(failure),
            }
        }
        // Several that are a little late to answer others are no reason to go without a majority.
        if order.len() < quorum || calls.iter().flatten().count() >= quorum {
            break;
        }
    }
    let mut round = Round { sent_at: sent_at.unwrap_or(started), outcomes, repeated: 0 };
    gather(nodes, &mut calls, &mut round, ask, holder.is_some(), decided);
    round
}

fn gather(
    nodes: &[Node],
    calls: &mut [Option<Call<'_>>],
    round: &mut Round,
    ask: impl Fn(usize, &Connection, &str) -> Vec<Request>,
    may_leave: bool,
    decided: impl Fn(&[NodeOutcome]) -> bool,
) {
    let clock = &nodes[0].connector.clock;
    let started = clock.now();
    let patience = nodes.iter().map(|node| node.connector.io_timeout).max().unwrap_or_default();
    let mut until = started.plus(patience);
    let mut is_decided = false;
    loop {
        let waiting: Vec<usize> = (0..calls.len()).filter(|&at| calls[at].is_some()).collect();
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
            waiting.iter().map(|&at| calls[at].as_ref().expect("it waits").connection()).collect();
        let answered = Connection::answered(&connections, left);
        let mut is_news = false;
        for (&at, _) in waiting.iter().zip(&answered).filter(|(_, ready)| **ready) {
            if !calls[at].as_mut().expect("it waits").is_over() {
                continue;
            }
            is_news = true;
            let call = calls[at].take().expect("it waits");
            round.outcomes[at] = match call.finish(|connection, run_id| ask(at, connection, run_id)) {
                Ok((replies, repeated)) => {
                    round.repeated |= u64::from(repeated) << at;
                    NodeOutcome::Replies(replies)
                }
                Err(failure) => NodeOutcome::Failed(failure),
            };
        }
        if left == Duration::ZERO && !is_news {
            break;
        }
    }
    for (call, outcomes) in calls.iter_mut().zip(&mut round.outcomes).filter(|(call, _)| call.is_some()) {
        let call = call.take().expect("it waits");
        *outcomes = if is_decided {
            call.leave();
            NodeOutcome::Late
        } else {
            let why = "it did not answer within its timeout (io_timeout)";
            NodeOutcome::Failed(call.give_up(Error::new(ErrorKind::Unreachable, why)))
        };
    }
}
