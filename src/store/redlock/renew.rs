//! Renewal: needs the same majority as a grant, and takes the hold anew on masters that have lost
//! it.

use super::quorum::{NodeSet, is_final, majority};
use super::scatter::{LateMaster, NodeOutcome, ask_all};
use super::store::RedlockStore;
use crate::base::lease::Moment;
use crate::base::log;
use crate::store::redis::script;
use crate::store::redis::wire::{Connection, RedisFailure};
use crate::store::{Acquire, Renewal, Renewed, TokenRule, Waiting};

/// Holds renewed by one run of the script.
const CHUNK: usize = 200;

impl RedlockStore {
    /// A failed round ends no lease: only time does, or a majority that reports the hold as gone.
    pub(super) fn renew_on_all(&self, batch: &[Renewal]) -> Vec<Renewed> {
        let chunks: Vec<&[Renewal]> = batch.chunks(CHUNK).collect();
        let ask = |_: usize, _: &Connection, run_id: &str| {
            chunks.iter().map(|chunk| script::renew_on_node(chunk.iter(), run_id)).collect()
        };
        let round =
            ask_all(&self.nodes, None, ask, self.all_nodes(), LateMaster::IfNeeded, |_| false);
        let answers: Vec<Option<Vec<Renewed>>> = round
            .outcomes
            .iter()
            .enumerate()
            .map(|(index, outcome)| self.renewals_of(index, outcome, round.sent_at))
            .collect();
        let all = self.nodes.len();
        let quorum = majority(self.nodes.len());
        let mut missing = vec![Vec::new(); all];
        let mut outcomes: Vec<Renewed> = (0..batch.len())
            .map(|n| {
                let mut held = 0;
                let mut gone = 0;
                let mut lost_at = Vec::new();
                let mut refused = None;
                for (index, answer) in answers.iter().enumerate() {
                    match answer.as_ref().and_then(|answers| answers.get(n)) {
                        Some(Renewed::Held { .. }) => held += 1,
                        Some(Renewed::Gone) => {
                            gone += 1;
                            lost_at.push(index);
                        }
                        Some(Renewed::Failed(error)) => refused = Some(error.clone()),
                        None => {}
                    }
                }
                if held >= quorum {
                    for index in lost_at {
                        missing[index].push(n);
                    }
                    Renewed::Held { sent_at: round.sent_at, again: false, beside: None, asked: 0 }
                } else if is_final(gone, all) {
                    Renewed::Gone
                } else {
                    let answer = |outcome: &NodeOutcome| {
                        if outcome.has_voted() { "answered" } else { "has no vote" }
                    };
                    let none = || self.no_quorum(&round.outcomes, answer);
                    Renewed::Failed(refused.unwrap_or_else(none))
                }
            })
            .collect();
        self.restore(batch, &missing, &mut outcomes);
        outcomes
    }

    /// The answers of one master for the whole batch. `None` if it failed or has no vote.
    fn renewals_of(
        &self,
        index: usize,
        outcome: &NodeOutcome,
        sent_at: Moment,
    ) -> Option<Vec<Renewed>> {
        let NodeOutcome::Replies(replies) = outcome else { return None };
        let mut all = Vec::new();
        for reply in replies {
            match script::renew_on_node_answer(reply.clone(), sent_at) {
                Ok(Some(answers)) => all.extend(answers),
                Ok(None) => {
                    self.quarantine.begin(&self.nodes[index], index);
                    return None;
                }
                Err(error) => {
                    log::debug!(
                        "{:?} cannot renew: {}",
                        self.nodes[index].connector.endpoint,
                        error.chain()
                    );
                    return None;
                }
            }
        }
        Some(all)
    }

    /// Takes the holds that a majority has just confirmed anew on the masters that have lost them:
    /// otherwise the next failing master could cost a hold its majority. `missing`: for each master
    /// the positions in the batch.
    fn restore(&self, batch: &[Renewal], missing: &[Vec<usize>], outcomes: &mut [Renewed]) {
        // A lease of zero only asks whether the hold still exists.
        let is_renewed = |n: &usize| !batch[*n].lease.is_zero();
        let missing: Vec<Vec<usize>> = missing
            .iter()
            .map(|holds| holds.iter().copied().filter(is_renewed).collect())
            .collect();
        let asked = NodeSet::of(&missing, |holds| !holds.is_empty());
        if asked.is_empty() {
            return;
        }
        let ask = |index: usize, _: &Connection, run_id: &str| {
            let acquire_again = |&n: &usize| {
                let Renewal { name, holder, permits, lease, token } = &batch[n];
                let acquire = Acquire {
                    name,
                    holder,
                    permits: *permits,
                    lease: *lease,
                    held: 0,
                    token: if *token == 0 { TokenRule::Off } else { TokenRule::On },
                    tokens: 1,
                    waiting: Waiting::No,
                    goes_on: false,
                };
                script::acquire_on_node(&acquire, *token, run_id)
            };
            missing[index].iter().map(acquire_again).collect()
        };
        for (index, holds) in missing.iter().enumerate() {
            for &n in holds {
                self.add_nodes_of(&batch[n].holder, NodeSet::one(index));
            }
        }
        let round = ask_all(&self.nodes, None, ask, asked, LateMaster::IfNeeded, |_| false);
        for (index, outcome) in round.outcomes.iter().enumerate() {
            if let NodeOutcome::Failed(RedisFailure::Unknown { unknown, .. }) = outcome {
                let holders = missing[index].iter().map(|&n| &batch[n].holder);
                self.nodes[index].note_unknown(unknown, holders);
            }
        }
        for &n in missing.iter().flatten() {
            if let Renewed::Held { again, .. } = &mut outcomes[n] {
                *again = true;
            }
        }
    }
}
