//! Renewal needs the same majority as the grant, and puts a hold again where a master has lost it.

use super::RedlockStore;
use super::scatter::{NodeOutcome, ask_all};
use crate::base::lease::Moment;
use crate::store::redis::script;
use crate::store::redis::wire::Connection;
use crate::store::redlock::quorum::{is_final, majority};
use crate::store::{Acquire, Renewal, Renewed, TokenRule, Waiting};

/// Holds renewed by one run of the script.
const CHUNK: usize = 200;

impl RedlockStore {
    /// A failed round shortens nothing: only time ends a lease, or a majority that says that the holder is gone.
    pub(super) fn renew_on_all(&self, batch: &[Renewal]) -> Vec<Renewed> {
        let chunks: Vec<&[Renewal]> = batch.chunks(CHUNK).collect();
        let ask = |_: usize, _: &Connection, run_id: &str| {
            chunks.iter().map(|chunk| script::renew_on_node(chunk.iter(), run_id)).collect()
        };
        let round = ask_all(&self.nodes, None, ask, |_| true, |_| false);
        let answers: Vec<Option<Vec<Renewed>>> = round
            .outcomes
            .iter()
            .enumerate()
            .map(|(at, outcome)| self.renewals_of(at, outcome, round.sent_at))
            .collect();
        let (all, quorum) = (self.nodes.len(), majority(self.nodes.len()));
        let mut missing = vec![Vec::new(); all];
        let mut outcomes: Vec<Renewed> = (0..batch.len())
            .map(|n| {
                let (mut held, mut gone) = (0, 0);
                let mut lost_at = Vec::new();
                let mut wrong = None;
                for (at, answer) in answers.iter().enumerate() {
                    match answer.as_ref().and_then(|answers| answers.get(n)) {
                        Some(Renewed::Held { .. }) => held += 1,
                        Some(Renewed::Gone) => {
                            gone += 1;
                            lost_at.push(at);
                        }
                        Some(Renewed::Failed(error)) => wrong = Some(error.clone()),
                        None => {}
                    }
                }
                if held >= quorum {
                    lost_at.into_iter().for_each(|at| missing[at].push(n));
                    Renewed::Held { sent_at: round.sent_at, again: false, beside: None }
                } else if is_final(gone, all) {
                    Renewed::Gone
                } else {
                    let none = || self.no_quorum(&round.outcomes, |_| "answered".to_owned());
                    Renewed::Failed(wrong.unwrap_or_else(none))
                }
            })
            .collect();
        self.put_again(batch, &missing, &mut outcomes);
        outcomes
    }

    /// The answers of one master for the whole batch; `None`: it failed, or has no vote.
    fn renewals_of(&self, at: usize, outcome: &NodeOutcome, sent_at: Moment) -> Option<Vec<Renewed>> {
        let NodeOutcome::Replies(replies) = outcome else { return None };
        let mut all = Vec::new();
        for reply in replies {
            match script::renew_on_node_answer(reply.clone(), sent_at) {
                Ok(Some(answers)) => all.extend(answers),
                Ok(None) => {
                    self.quarantine.has_no_vote(&self.nodes[at], at);
                    return None;
                }
                Err(error) => {
                    log::debug!("{:?} cannot renew: {}", self.nodes[at].connector.endpoint, error.chain());
                    return None;
                }
            }
        }
        Some(all)
    }

    /// A hold that a majority has just confirmed is put again where it was missing: the next master that fails must not
    /// cost it its majority.
    fn put_again(&self, batch: &[Renewal], missing: &[Vec<usize>], outcomes: &mut [Renewed]) {
        let still = |n: &usize| !batch[*n].lease.is_zero();
        let places: Vec<Vec<usize>> =
            missing.iter().map(|holds| holds.iter().copied().filter(still).collect()).collect();
        if places.iter().all(Vec::is_empty) {
            return;
        }
        let ask = |at: usize, _: &Connection, run_id: &str| {
            let again = |&n: &usize| {
                let Renewal { name, holder, permits, lease, token } = &batch[n];
                let rule = if *token == 0 { TokenRule::Off } else { TokenRule::On };
                let (permits, lease, waiting) = (*permits, *lease, Waiting::No);
                let acquire = Acquire { name, holder, permits, lease, held: 0, token: rule, waiting };
                script::acquire_on_node(&acquire, *token, run_id)
            };
            places[at].iter().map(again).collect()
        };
        let asked = |at: usize| !places[at].is_empty();
        for (at, holds) in places.iter().enumerate() {
            holds.iter().for_each(|&n| self.stands_on(&batch[n].holder, 1 << at));
        }
        let _ = ask_all(&self.nodes, None, ask, asked, |_| false);
        for &n in places.iter().flatten() {
            if let Renewed::Held { again, .. } = &mut outcomes[n] {
                *again = true;
            }
        }
    }
}
