//! A round of votes: who grants, what that amounts to, and what is taken back when it is not enough.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::node::{in_short, one};
use super::scatter::{NodeOutcome, Round, ask_all};
use super::{OnNodes, RedlockStore, done, late};
use crate::base::error::{Error, Result};
use crate::base::holder::is_foreign;
use crate::base::lease::Moment;
use crate::store::redis::script::{self, NodeReply};
use crate::store::redis::wire::{Connection, Failure, Reply};
use crate::store::redlock::quorum::{is_final, majority, until_free};
use crate::store::{Acquire, HoldCounts, Release, TokenRule, UnknownOutcomes};

/// How far ahead of a master's clock a client may propose a token, in microseconds.
const DAY: u64 = 24 * 60 * 60 * 1_000_000;

/// What one round of votes came to.
pub(super) enum Tally {
    Granted {
        token: u64,
        sent_at: Moment,
    },
    Busy {
        ttl: Option<Duration>,
    },
    /// Several contenders have some masters each, and none has a majority.
    Split,
    Gone,
}

/// The votes of one round, by place where it matters.
#[derive(Default)]
struct Counted {
    yes: u64,
    no: u64,
    gone: usize,
    tokens: Vec<u64>,
    ttls: Vec<Option<Duration>>,
    holders: Vec<String>,
}

impl RedlockStore {
    /// One round of votes, and what it takes to make its token safe.
    pub(super) fn acquire_once(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Tally> {
        let (all, quorum) = (self.nodes.len(), majority(self.nodes.len()));
        let wall = u64::try_from(self.clock.wall().as_micros()).unwrap_or(u64::MAX);
        let proposal = wall.max(self.highest.load(Ordering::Relaxed) + 1);
        let decided = |outcomes: &[NodeOutcome]| {
            let count = |peeked| outcomes.iter().filter(|outcome| peek(outcome) == Some(peeked)).count();
            let (yes, no, void) = (count(Peeked::Yes), count(Peeked::No), count(Peeked::Void));
            // It cannot be won: but whether it is busy or cannot be had at all, only so many that voted can tell.
            yes >= quorum || is_final(no + void, all) && yes + no >= quorum || is_final(void, all)
        };
        let ask = |_: usize, connection: &Connection, run_id: &str| {
            // One wrong clock must not burn the range of the tokens for everybody.
            let proposal = proposal.min(connection.server_micros().saturating_add(DAY));
            vec![script::acquire_on_node(acquire, proposal, run_id)]
        };
        let round = ask_all(&self.nodes, Some(acquire.holder), ask, |_| true, decided);
        let votes: Vec<Result<Option<NodeReply>>> = round.outcomes.iter().map(vote_of).collect();
        let mut count = Counted::default();
        for (at, vote) in votes.iter().enumerate() {
            match vote {
                Ok(Some(NodeReply::Granted { token })) => {
                    count.yes |= 1 << at;
                    count.tokens.push(*token);
                }
                Ok(Some(NodeReply::Busy { ttl, holder })) => {
                    count.no |= 1 << at;
                    count.ttls.push(*ttl);
                    if is_foreign(holder) {
                        self.seen_redisson.store(true, Ordering::Relaxed);
                    }
                    count.holders.push(holder.clone());
                }
                Ok(Some(NodeReply::Gone)) => count.gone += 1,
                Ok(Some(NodeReply::Quarantined)) => self.quarantine.has_no_vote(&self.nodes[at], at),
                Ok(Some(NodeReply::TooLate) | None) | Err(_) => {}
            }
        }
        if count.yes.count_ones() as usize >= quorum {
            self.stands_on(acquire.holder, may_stand(&round, &count) | OnNodes::of(unknowns).nodes);
            if acquire.held > 0 || acquire.token == TokenRule::Off {
                return Ok(Tally::Granted { token: 0, sent_at: round.sent_at });
            }
            match self.agree_on_token(acquire, proposal, &count, quorum) {
                Ok(token) => return Ok(Tally::Granted { token, sent_at: round.sent_at }),
                Err(error) => {
                    self.take_back(acquire, &round, &count, unknowns);
                    return Err(error);
                }
            }
        }
        if acquire.held > 0 {
            // Nothing is taken back: that would release the outer hold.
            return match is_final(count.gone, all) {
                true => Ok(Tally::Gone),
                false => Err(self.refused(&votes)),
            };
        }
        self.take_back(acquire, &round, &count, unknowns);
        let answered = (count.yes | count.no).count_ones() as usize;
        if answered < quorum || count.no == 0 {
            return Err(self.refused(&votes));
        }
        // All of Java's count as one: they have another id on each master, and say so when they give one back.
        let is_same = |a: &str, b: &str| a == b || is_foreign(a) && is_foreign(b);
        let same = |holder: &String| count.holders.iter().filter(|other| is_same(other, holder)).count();
        let most = count.holders.iter().map(same).max().unwrap_or(0);
        // Whoever has a majority is waited for.
        if most >= quorum {
            let missing = quorum - count.yes.count_ones() as usize;
            return Ok(Tally::Busy { ttl: until_free(count.ttls, missing) });
        }
        // Whoever may have one, with those that did not answer: or else it takes its votes back, and need not tell.
        if most + all - answered >= quorum {
            return Ok(Tally::Busy { ttl: None });
        }
        Ok(Tally::Split)
    }

    /// The token of a grant rests on a majority before anybody sees it: the next holder's majority meets it there.
    fn agree_on_token(&self, acquire: &Acquire<'_>, proposal: u64, count: &Counted, quorum: usize) -> Result<u64> {
        let highest = count.tokens.iter().copied().max().unwrap_or(proposal);
        self.highest.fetch_max(highest, Ordering::Relaxed);
        if count.tokens.iter().filter(|token| **token == proposal).count() >= quorum {
            return Ok(proposal);
        }
        self.token_rounds.fetch_add(1, Ordering::Relaxed);
        let Acquire { name, holder, token, .. } = *acquire;
        let ask =
            |_: usize, _: &Connection, run_id: &str| vec![script::write_back(name, holder, highest, token, run_id)];
        let known = |outcome: &NodeOutcome| match outcome {
            NodeOutcome::Replies(replies) => one(replies.clone()).and_then(script::write_back_answer).unwrap_or(false),
            _ => false,
        };
        let enough = |outcomes: &[NodeOutcome]| outcomes.iter().filter(|outcome| known(outcome)).count() >= quorum;
        let voted = |at: usize| count.yes & (1 << at) != 0;
        let round = ask_all(&self.nodes, Some(holder), ask, voted, enough);
        if enough(&round.outcomes) {
            return Ok(highest);
        }
        let say = |outcome: &NodeOutcome| {
            if known(outcome) { "knows the token" } else { "does not know the token" }.to_owned()
        };
        Err(self.no_quorum(&round.outcomes, say))
    }

    /// No majority: what stands somewhere is removed at once where the master answers, and stays unknown elsewhere.
    fn take_back(&self, acquire: &Acquire<'_>, round: &Round, count: &Counted, unknowns: &mut UnknownOutcomes) {
        let nodes = OnNodes::of(unknowns).nodes | may_stand(round, count);
        self.forget(acquire.holder);
        if nodes == 0 {
            return;
        }
        // So few did not look like a holder to anybody: those who were refused elsewhere as well wait for whoever has the
        // lock, or look by themselves. A message would wake them for nothing, and us too, again and again.
        let is_quiet = (nodes.count_ones() as usize) < majority(self.nodes.len());
        // Only Java waits for one master after the other, also for a third when it has two: nothing else would tell it.
        let seen_redisson = self.seen_redisson.load(Ordering::Relaxed);
        let Acquire { name, holder, permits, .. } = *acquire;
        let release = Release { name, holder, permits, left: HoldCounts::NONE, granted: false };
        let ask = |_: usize, _: &Connection, _: &str| match is_quiet {
            true if seen_redisson => {
                vec![script::take_back(name, holder), script::wake_redisson(name)]
            }
            true => vec![script::take_back(name, holder)],
            false => vec![script::release(&release)],
        };
        let answered = |outcomes: &[NodeOutcome]| count.yes & !done(outcomes) == 0;
        let asked = |at: usize| nodes & (1 << at) != 0;
        let removed = ask_all(&self.nodes, Some(acquire.holder), ask, asked, answered).outcomes;
        let nodes = nodes & !done(&removed);
        OnNodes { nodes, pending: late(&removed) & nodes }.store(unknowns);
    }

    /// Why there was no majority: what most of them said, if they say the same of the request, or what each said.
    fn refused(&self, votes: &[Result<Option<NodeReply>>]) -> Error {
        let about_it = votes.iter().filter_map(|vote| vote.as_ref().err()).find(|e| !e.kind().is_outage());
        if let Some(error) = about_it {
            return error.clone();
        }
        let texts: Vec<String> = votes.iter().map(|vote| in_words(vote).to_owned()).collect();
        self.list(&texts)
    }
}

fn in_words(vote: &Result<Option<NodeReply>>) -> &str {
    match vote {
        Ok(Some(NodeReply::Granted { .. })) => "granted",
        Ok(Some(NodeReply::Busy { .. })) => "held by another",
        Ok(Some(NodeReply::Gone)) => "does not know this hold",
        Ok(Some(NodeReply::Quarantined)) => {
            "has no vote yet, because it is new or may have forgotten holds (Builder::admit_fresh_nodes)"
        }
        Ok(Some(NodeReply::TooLate)) => "was reached too late",
        Ok(None) => "not waited for",
        Err(error) => error.message(),
    }
}

/// The masters where the holder may stand after a round. One that said that another has the lock has nothing of ours, and
/// one that was sent nothing neither: it would have to be asked when it comes back, for every call made meanwhile.
fn may_stand(round: &Round, count: &Counted) -> u64 {
    let unknown = |outcome: &NodeOutcome| match outcome {
        NodeOutcome::Late | NodeOutcome::Failed(Failure::Unknown { .. }) => true,
        NodeOutcome::Replies(replies) => matches!(replies[..], [Reply::Error(_)]),
        NodeOutcome::Failed(Failure::NotSent(_)) | NodeOutcome::Skipped => false,
    };
    let places = round.outcomes.iter().enumerate().filter(|(_, outcome)| unknown(outcome));
    places.fold(count.yes, |stands, (at, _)| stands | 1 << at)
}

/// A vote, without taking it apart twice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peeked {
    Yes,
    /// Held by another.
    No,
    /// Neither: it failed, or has no vote.
    Void,
}

fn peek(outcome: &NodeOutcome) -> Option<Peeked> {
    match outcome {
        NodeOutcome::Replies(replies) => Some(match &replies[..] {
            [Reply::Array(parts)] if parts.first() == Some(&Reply::Int(1)) => Peeked::Yes,
            [Reply::Array(parts)] if parts.first() == Some(&Reply::Int(0)) => Peeked::No,
            _ => Peeked::Void,
        }),
        NodeOutcome::Failed(_) => Some(Peeked::Void),
        NodeOutcome::Late | NodeOutcome::Skipped => None,
    }
}

fn vote_of(outcome: &NodeOutcome) -> Result<Option<NodeReply>> {
    match outcome {
        NodeOutcome::Replies(replies) => one(replies.clone()).and_then(script::acquire_on_node_answer).map(Some),
        NodeOutcome::Failed(failure) => Err(in_short(failure).clone()),
        NodeOutcome::Late | NodeOutcome::Skipped => Ok(None),
    }
}
