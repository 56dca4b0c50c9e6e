//! Renewals: in the background, and at the caller's request.

use super::RedisStore;
use super::keys::RedisKeys;
use super::script::{self, Family};
use super::server::Server;
use super::wire::{Replicas, Request};
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::{Renewal, Renewed, each_until_failure};

/// Holds renewed by one run of the script: the server serves nobody else while a script runs.
const CHUNK: usize = 200;

impl RedisStore {
    /// For holds of one family, or of some that have data and some that have none.
    fn renewal_request<'a>(&self, chunk: impl Iterator<Item = &'a Renewal> + Clone) -> Request {
        let family = chunk.clone().map(Family::of).max().unwrap_or(Family::Hash);
        let replicas = self.replicas.map(|replicas| Replicas { grant: false, ..replicas });
        script::renew(family, chunk).acknowledged_by(replicas)
    }

    pub(super) fn renew_in_background(&self, batch: &[Renewal]) -> Vec<Renewed> {
        match self.servers.as_one() {
            Some(server) => self.renew_at_one(server, batch),
            None => self.renew_in_cluster(batch),
        }
    }

    fn renew_at_one(&self, server: &Server, batch: &[Renewal]) -> Vec<Renewed> {
        // One script serves one family. The outcomes are put in the order of the batch.
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_by_key(|&at| Family::of(&batch[at]));
        let families = order.chunk_by(|&a, &b| Family::of(&batch[a]) == Family::of(&batch[b]));
        let chunks: Vec<&[usize]> = families.flat_map(|family| family.chunks(CHUNK)).collect();
        let mut outcomes: Vec<Option<Renewed>> = batch.iter().map(|_| None).collect();
        let refused = self.renew_chunks(server, batch, &chunks, &mut outcomes);
        // A key that the user may not use, or not any more, must not cost the others their leases.
        let singles: Vec<&[usize]> = refused.iter().flat_map(|chunk| chunk.chunks(1)).collect();
        if !singles.is_empty() {
            self.renew_chunks(server, batch, &singles, &mut outcomes);
        }
        outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or_else(|| Renewed::Failed(missing())))
            .collect()
    }

    /// Returns the chunks of several holds that the user's rights did not permit as a whole.
    fn renew_chunks<'c>(
        &self,
        server: &Server,
        batch: &[Renewal],
        chunks: &[&'c [usize]],
        outcomes: &mut [Option<Renewed>],
    ) -> Vec<&'c [usize]> {
        let request = |chunk: &&[usize]| self.renewal_request(chunk.iter().map(|&at| &batch[at]));
        let requests: Vec<Request> = chunks.iter().map(request).collect();
        let mut refused = Vec::new();
        match server.background.exchange(&requests, &server.pool) {
            Ok((replies, sent_at)) => {
                for (&chunk, reply) in chunks.iter().zip(replies) {
                    let answers = script::renew_answers(reply, sent_at);
                    let is_denied = |e: &Error| e.kind() == ErrorKind::Denied;
                    if chunk.len() > 1 && answers.as_ref().is_err_and(is_denied) {
                        refused.push(chunk);
                    }
                    put_outcomes(outcomes, chunk, answers);
                }
            }
            Err(error) => {
                for &at in chunks.iter().copied().flatten() {
                    outcomes[at] = Some(Renewed::Failed(error.clone()));
                }
            }
        }
        refused
    }

    /// One request for each hold: a script cannot have keys of several slots, and two keys of a
    /// slot that is moving may be at two nodes.
    fn renew_in_cluster(&self, batch: &[Renewal]) -> Vec<Renewed> {
        let Some(cluster) = self.servers.as_cluster() else { return Vec::new() };
        let request = |hold: &Renewal| {
            (RedisKeys::of(&hold.name).slot, self.renewal_request(std::iter::once(hold)))
        };
        let exchanged = cluster.exchange_all(&batch.iter().map(request).collect::<Vec<_>>());
        let outcome = |exchanged: Result<(_, _)>| {
            let (reply, sent_at) = exchanged?;
            script::renew_answers(reply, sent_at)?.pop().ok_or_else(missing)
        };
        exchanged
            .into_iter()
            .map(|exchanged| outcome(exchanged).unwrap_or_else(Renewed::Failed))
            .collect()
    }

    pub(super) fn extend_now(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        let extend = |chunk: &[Renewal]| {
            let slot = RedisKeys::of(&chunk[0].name).slot;
            let answered =
                self.servers.ask_repeatable(slot, || self.renewal_request(chunk.iter()))?;
            let outcomes = script::renew_answers(answered.reply, answered.sent_at)?;
            if outcomes.len() == chunk.len() { Ok(outcomes) } else { Err(missing()) }
        };
        if self.servers.as_one().is_some() {
            return extend(renewals);
        }
        let one = |one: &Renewal| extend(std::slice::from_ref(one))?.pop().ok_or_else(missing);
        Ok(each_until_failure(renewals, one))
    }
}

#[cold]
fn missing() -> Error {
    Error::new(ErrorKind::Protocol, "an answer to a renewal is missing")
}

fn put_outcomes(outcomes: &mut [Option<Renewed>], places: &[usize], answers: Result<Vec<Renewed>>) {
    match answers {
        Ok(answers) => {
            for (&at, answer) in places.iter().zip(answers) {
                outcomes[at] = Some(answer);
            }
        }
        Err(error) => {
            for &at in places {
                outcomes[at] = Some(Renewed::Failed(error.clone()));
            }
        }
    }
}
