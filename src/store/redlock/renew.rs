//! Renewal: needs the same majority as a grant, and takes the hold anew on masters that have lost
//! it.

use std::ops::Range;

use super::node::error_of;
use super::quorum::{NodeSet, is_final, majority};
use super::scatter::{LateMaster, NodeOutcome, Round, ask_all};
use super::store::{RedlockStore, text_of};
use crate::base::error::{Error, ErrorKind};
use crate::base::log;
use crate::store::redis::script;
use crate::store::redis::wire::{Connection, RedisFailure};
use crate::store::{Acquire, Renewal, Renewed, TokenRule, Waiting};

/// Holds renewed by one run of the script.
const CHUNK: usize = 200;

/// For each master what it answers for each hold of a batch. `None`: it failed, or has no vote.
type Answers = Vec<Vec<Option<Renewed>>>;

impl RedlockStore {
    /// A failed round ends no lease: only time does, or a majority that reports the hold as gone.
    pub(super) fn renew_on_all(&self, batch: &[Renewal]) -> Vec<Renewed> {
        let all = self.nodes.len();
        let quorum = majority(all);
        let chunks: Vec<Range<usize>> = (0..batch.len())
            .step_by(CHUNK)
            .map(|from| from..batch.len().min(from + CHUNK))
            .collect();
        let mut answers: Answers = vec![vec![None; batch.len()]; all];
        let (round, refused) = self.renew_chunks(batch, &vec![chunks; all], &mut answers);
        // A key that the user may not use, or not any more, must not cost the others their leases.
        self.renew_chunks(batch, &refused, &mut answers);
        let mut missing = vec![Vec::new(); all];
        let mut outcomes: Vec<Renewed> = (0..batch.len())
            .map(|n| {
                let mut held = 0;
                let mut lost_at = Vec::new();
                for (index, answers) in answers.iter().enumerate() {
                    match &answers[n] {
                        Some(Renewed::Held { .. }) => held += 1,
                        Some(Renewed::Gone) => lost_at.push(index),
                        Some(Renewed::Failed(_)) | None => {}
                    }
                }
                if held >= quorum {
                    for index in lost_at {
                        missing[index].push(n);
                    }
                    Renewed::Held { sent_at: round.sent_at, again: false, beside: None, asked: 0 }
                } else if is_final(lost_at.len(), all) {
                    Renewed::Gone
                } else {
                    Renewed::Failed(self.not_renewed(&round, &answers, n))
                }
            })
            .collect();
        self.restore(batch, &missing, &mut outcomes);
        outcomes
    }

    /// Why a hold of the batch has no majority.
    fn not_renewed(&self, round: &Round, answers: &Answers, n: usize) -> Error {
        let error = |answers: &'_ [Option<Renewed>]| match &answers[n] {
            Some(Renewed::Failed(error)) => Some(error.clone()),
            _ => None,
        };
        let errors: Vec<Option<Error>> = answers.iter().map(|answers| error(answers)).collect();
        let text = |(error, outcome): (&Option<Error>, &NodeOutcome)| match error {
            Some(error) => error.message().to_owned(),
            None if outcome.has_voted() => "answered".to_owned(),
            None => text_of(outcome, "has no vote"),
        };
        let none = || {
            let texts: Vec<String> = errors.iter().zip(&round.outcomes).map(text).collect();
            self.no_quorum_with(&texts)
        };
        self.fault(errors.iter().flatten()).unwrap_or_else(none)
    }

    /// Asks each master for its `chunks` of the batch. Returns for each the holds of those that the
    /// user's rights did not permit as a whole, one by one.
    fn renew_chunks(
        &self,
        batch: &[Renewal],
        chunks: &[Vec<Range<usize>>],
        answers: &mut Answers,
    ) -> (Round, Vec<Vec<Range<usize>>>) {
        let ask = |index: usize, _: &Connection, run_id: &str| {
            let holds = |chunk: &Range<usize>| batch[chunk.clone()].iter();
            chunks[index].iter().map(|chunk| script::renew_on_node(holds(chunk), run_id)).collect()
        };
        let asked = NodeSet::of(chunks, |chunks| !chunks.is_empty());
        let round = ask_all(&self.nodes, None, ask, asked, LateMaster::IfNeeded, |_| false);
        let mut refused = vec![Vec::new(); chunks.len()];
        for (index, outcome) in round.outcomes.iter().enumerate() {
            let NodeOutcome::Replies(replies) = outcome else {
                // What it refused before, as a whole, is not its answer for each of them.
                let failed = match outcome {
                    NodeOutcome::Failed(why) => Some(Renewed::Failed(error_of(why).clone())),
                    _ => None,
                };
                for chunk in &chunks[index] {
                    answers[index][chunk.clone()].fill(failed.clone());
                }
                continue;
            };
            let node = &self.nodes[index];
            for (chunk, reply) in chunks[index].iter().zip(replies) {
                match script::renew_on_node_answer(reply.clone(), round.sent_at) {
                    Ok(Some(renewed)) => {
                        for (n, renewed) in chunk.clone().zip(renewed) {
                            answers[index][n] = Some(renewed);
                        }
                    }
                    Ok(None) => {
                        self.quarantine.begin(node, index);
                        answers[index].fill(None);
                        break;
                    }
                    Err(error) => {
                        let master = &node.connector.endpoint;
                        log::debug!("{master:?} cannot renew: {}", error.chain());
                        if error.kind() == ErrorKind::Denied && chunk.len() > 1 {
                            refused[index].extend(chunk.clone().map(|n| n..n + 1));
                        }
                        answers[index][chunk.clone()].fill(Some(Renewed::Failed(error)));
                    }
                }
            }
        }
        (round, refused)
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
