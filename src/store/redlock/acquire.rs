//! One round of an acquisition: ask all masters, count the grants, and take back those that do not
//! make a majority.

use std::time::Duration;

use super::node::{error_of, single};
use super::quorum::{NodeSet, is_final, majority, until_free};
use super::scatter::{LateMaster, NodeOutcome, Round, ask_all};
use super::store::RedlockStore;
use crate::base::advice::Advice;
use crate::base::error::{Error, Result};
use crate::base::holder::is_foreign;
use crate::os::atomic::Ordering;
use crate::store::redis::script::{self, NodeReply};
use crate::store::redis::wire::{Connection, RedisFailure, Reply};
use crate::store::{Acquire, Acquired, Granted, Release, Spent, TokenRule, UnknownOutcomes};

/// How far ahead of a master's clock a client may propose a token, in microseconds.
const DAY: u64 = 24 * 60 * 60 * 1_000_000;

/// A master's reply, or `None` if the round ended before it came.
type Vote = Result<Option<NodeReply>>;

#[derive(Default)]
struct Count {
    granted: NodeSet,
    busy: NodeSet,
    gone: usize,
    /// The tokens of the masters in `granted`.
    tokens: Vec<u64>,
    /// The times to live in the replies of the masters in `busy`.
    ttls: Vec<Option<Duration>>,
    holders: Vec<String>,
}

impl RedlockStore {
    /// One round, and a second one if the token needs it.
    pub(super) fn acquire_once(
        &self,
        acquire: &Acquire<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Acquired> {
        let all = self.nodes.len();
        let quorum = majority(self.nodes.len());
        let wall = u64::try_from(self.clock.wall().as_micros()).unwrap_or(u64::MAX);
        let proposal = wall.max(self.highest.load(Ordering::Relaxed) + 1);
        let ask = |_: usize, connection: &Connection, run_id: &str| {
            // A client whose clock is far ahead must not use up the range of tokens for all
            // clients.
            let proposal = proposal.min(connection.server_micros().saturating_add(DAY));
            vec![script::acquire_on_node(acquire, proposal, run_id)]
        };
        let round = ask_all(
            &self.nodes,
            Some(acquire.holder),
            ask,
            self.all_nodes(),
            LateMaster::IfNeeded,
            is_decided,
        );
        let votes: Vec<Vote> = round.outcomes.iter().map(vote_of).collect();
        let count = self.count(&votes);
        if count.granted.len() >= quorum {
            let holding = may_hold(&round, &count);
            self.add_nodes_of(acquire.holder, holding);
            self.lacking.note(self.all_nodes().without(holding));
            let has_token = acquire.held == 0 && acquire.token != TokenRule::Off;
            let token = if has_token {
                self.agree_on_token(acquire, proposal, &count)
                    .inspect_err(|_| self.take_back(acquire, &round, &count, unknowns))?
            } else {
                0
            };
            let sent_at = round.sent_at;
            return Ok(Acquired::Granted(Granted { token, sent_at, session: None, next: None }));
        }
        if acquire.held > 0 {
            // Nothing is taken back: that would release the outer hold.
            return if is_final(count.gone, all) {
                Ok(Acquired::Gone)
            } else {
                Err(self.refused(&votes))
            };
        }
        self.take_back(acquire, &round, &count, unknowns);
        if count.answered() < quorum || count.busy.is_empty() {
            return Err(self.refused(&votes));
        }
        Ok(count.contended(all, self.clock.now().since(round.sent_at)))
    }

    fn count(&self, votes: &[Vote]) -> Count {
        let mut count = Count::default();
        for (index, vote) in votes.iter().enumerate() {
            match vote {
                Ok(Some(NodeReply::Granted { token })) => {
                    count.granted.insert(index);
                    count.tokens.push(*token);
                }
                Ok(Some(NodeReply::Busy { ttl, holder })) => {
                    count.busy.insert(index);
                    count.ttls.push(*ttl);
                    if is_foreign(holder) {
                        self.seen_redisson.store(true, Ordering::Relaxed);
                    }
                    count.holders.push(holder.clone());
                }
                Ok(Some(NodeReply::Gone)) => count.gone += 1,
                Ok(Some(NodeReply::Quarantined)) => {
                    self.quarantine.begin(&self.nodes[index], index);
                }
                Ok(None) | Err(_) => {}
            }
        }
        count
    }

    /// A majority knows the token of a grant before its holder does: then the next holder's
    /// majority includes a master that knows it, and the next token is higher.
    fn agree_on_token(&self, acquire: &Acquire<'_>, proposal: u64, count: &Count) -> Result<u64> {
        let quorum = majority(self.nodes.len());
        let highest = count.tokens.iter().copied().max().unwrap_or(proposal);
        self.highest.fetch_max(highest, Ordering::Relaxed);
        if count.tokens.iter().filter(|token| **token == proposal).count() >= quorum {
            return Ok(proposal);
        }
        self.token_rounds.fetch_add(1, Ordering::Relaxed);
        let Acquire { name, holder, token, .. } = *acquire;
        let ask = |_: usize, _: &Connection, run_id: &str| {
            vec![script::write_back(name, holder, highest, token, run_id)]
        };
        let knows = |outcome: &NodeOutcome| match outcome {
            NodeOutcome::Replies(replies) => {
                single(replies.clone()).and_then(script::write_back_answer).unwrap_or(false)
            }
            _ => false,
        };
        let enough = |outcomes: &[NodeOutcome]| {
            outcomes.iter().filter(|outcome| knows(outcome)).count() >= quorum
        };
        let round =
            ask_all(&self.nodes, Some(holder), ask, count.granted, LateMaster::IfNeeded, enough);
        if enough(&round.outcomes) {
            return Ok(highest);
        }
        let describe = |outcome: &NodeOutcome| {
            if knows(outcome) { "knows the token" } else { "does not know the token" }
        };
        Err(self.no_quorum(&round.outcomes, describe))
    }

    /// After a round without a majority: releases the grants at once where the master answers. On
    /// the other masters the outcome stays unknown. If anything is released, the holder is spent:
    /// its release may reach a master later than an acquire that is sent after it.
    fn take_back(
        &self,
        acquire: &Acquire<'_>,
        round: &Round,
        count: &Count,
        unknowns: &mut UnknownOutcomes,
    ) {
        let nodes = may_hold(round, count);
        self.forget(acquire.holder);
        if nodes.is_empty() {
            return;
        }
        unknowns.spend(Spent::Released);
        // A minority blocked nobody; a message would only cause spurious wake-ups, also of this
        // client's own waiters.
        let is_quiet = nodes.len() < majority(self.nodes.len());
        // Redisson clients are an exception: they wait for one master after the other, even for a
        // third when they have two, and nothing but this message would wake them.
        let seen_redisson = self.seen_redisson.load(Ordering::Relaxed);
        let Acquire { name, holder, permits, .. } = *acquire;
        let release = Release::of_attempt(name, holder, permits);
        let ask = |_: usize, _: &Connection, _: &str| {
            if !is_quiet {
                vec![script::release(&release, || self.clock.now())]
            } else if seen_redisson {
                vec![script::take_back(name, holder), script::wake_redisson(name)]
            } else {
                vec![script::take_back(name, holder)]
            }
        };
        let all_released = |outcomes: &[NodeOutcome]| {
            count.granted.without(NodeSet::of(outcomes, NodeOutcome::has_run)).is_empty()
        };
        let outcomes = ask_all(
            &self.nodes,
            Some(acquire.holder),
            ask,
            nodes,
            LateMaster::IfNeeded,
            all_released,
        )
        .outcomes;
        self.unreleased(nodes, holder, outcomes).store(unknowns);
    }

    /// Why there was no majority: the fault of the request, or the answer of each master.
    fn refused(&self, votes: &[Vote]) -> Error {
        if let Some(fault) = self.fault(votes.iter().filter_map(|vote| vote.as_ref().err())) {
            return fault;
        }
        let texts: Vec<String> = votes.iter().map(|vote| in_words(vote).to_owned()).collect();
        let error = self.no_quorum_with(&texts);
        let has_no_vote = |vote: &Vote| matches!(vote, Ok(Some(NodeReply::Quarantined)));
        if votes.iter().any(has_no_vote) { error.advise(Advice::AdmitFreshNodes) } else { error }
    }
}

impl Count {
    fn answered(&self) -> usize {
        self.granted.len() + self.busy.len()
    }

    /// A majority of `all` masters answered, and some are held by others.
    fn contended(self, all: usize, round: Duration) -> Acquired {
        let quorum = majority(all);
        // All Redisson holders count as one: each has another id on every master, and publishes a
        // message when it gives a master's lock back.
        let is_same = |a: &str, b: &str| a == b || is_foreign(a) && is_foreign(b);
        let held_by =
            |holder: &String| self.holders.iter().filter(|other| is_same(other, holder)).count();
        let most = self.holders.iter().map(held_by).max().unwrap_or(0);
        if most >= quorum {
            let missing = quorum - self.granted.len();
            return Acquired::Busy { ttl: until_free(self.ttls, missing) };
        }
        // One holder may have a majority if the masters that did not answer are counted. If it has
        // none, it takes its grants back, perhaps without a message.
        if most + all - self.answered() >= quorum {
            return Acquired::Busy { ttl: None };
        }
        Acquired::Split { round }
    }
}

/// True when replies that are still missing cannot change the outcome of the round.
fn is_decided(outcomes: &[NodeOutcome]) -> bool {
    let all = outcomes.len();
    let quorum = majority(all);
    let mut granted = 0;
    let mut busy = 0;
    // The master has failed, or has no vote.
    let mut void = 0;
    for vote in outcomes.iter().map(vote_of) {
        match vote {
            Ok(Some(NodeReply::Granted { .. })) => granted += 1,
            Ok(Some(NodeReply::Busy { .. })) => busy += 1,
            Ok(Some(NodeReply::Gone | NodeReply::Quarantined)) | Err(_) => void += 1,
            Ok(None) => {}
        }
    }
    // If no majority of grants is possible, a majority of grants and refusals is still needed to
    // distinguish "busy" from "no quorum".
    granted >= quorum
        || is_final(busy + void, all) && granted + busy >= quorum
        || is_final(void, all)
}

fn in_words(vote: &Vote) -> &str {
    match vote {
        Ok(Some(NodeReply::Granted { .. })) => "granted",
        Ok(Some(NodeReply::Busy { .. })) => "held by another",
        Ok(Some(NodeReply::Gone)) => "does not know this hold",
        Ok(Some(NodeReply::Quarantined)) => {
            "has no vote yet, because it is new or may have forgotten holds"
        }
        Ok(None) => "no answer yet when the round ended",
        Err(error) => error.message(),
    }
}

/// The masters on which the holder may hold the lock after a round. Masters that were sent nothing
/// are not among them: otherwise every call of an outage would have to be undone there afterwards.
fn may_hold(round: &Round, count: &Count) -> NodeSet {
    let is_unknown = |outcome: &NodeOutcome| match outcome {
        NodeOutcome::Unread(_) | NodeOutcome::Failed(RedisFailure::Unknown { .. }) => true,
        NodeOutcome::Replies(replies) => matches!(replies[..], [Reply::Error(_)]),
        NodeOutcome::Failed(RedisFailure::NotSent(_)) | NodeOutcome::Skipped => false,
    };
    count.granted | NodeSet::of(&round.outcomes, is_unknown)
}

fn vote_of(outcome: &NodeOutcome) -> Vote {
    match outcome {
        NodeOutcome::Replies(replies) => {
            single(replies.clone()).and_then(script::acquire_on_node_answer).map(Some)
        }
        NodeOutcome::Failed(failure) => Err(error_of(failure).clone()),
        NodeOutcome::Unread(_) | NodeOutcome::Skipped => Ok(None),
    }
}
