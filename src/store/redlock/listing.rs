//! Lists what is on the masters, and on how many of them.

use std::collections::{BTreeMap, BTreeSet};

use super::node::{error_of, single};
use super::node_set::NodeSet;
use super::quorum::majority;
use super::scatter::{NodeOutcome, ask_all};
use super::store::RedlockStore;
use super::supported::check_kind;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::hold_on_many;
use crate::base::lock_name::{Kind, LockName};
use crate::store::redis::listing::{LOOKS, channels, found_under, list_server, waited_for, wanted_names};
use crate::store::redis::script::{look, look_answer};
use crate::store::redis::wire::{Publishing, Reply, Request};
use crate::store::{Found, FoundHolder, ListingStore, Wanted};

impl RedlockStore {
    /// One master's answers to several requests.
    pub(super) fn ask_one(&self, index: usize, requests: &[Request]) -> Result<Vec<Reply>> {
        let round = ask_all(&self.nodes, None, |_, _, _| requests.to_vec(), NodeSet::one(index), |_| false);
        match round.outcomes.into_iter().nth(index) {
            Some(NodeOutcome::Replies(replies)) => Ok(replies),
            Some(NodeOutcome::Failed(failure)) => Err(error_of(&failure).clone()),
            _ => Err(Error::new(ErrorKind::Unreachable, "it was not asked")),
        }
    }

    /// # Errors
    /// `NoQuorum` if too few masters have answered to know what a majority has.
    fn merge_all(&self, answers: Vec<Result<Vec<Found>>>) -> Result<Vec<Found>> {
        let answered = answers.iter().flatten().count();
        if answered < majority(self.nodes.len()) {
            let say =
                |answer: &Result<_>| answer.as_ref().map_or_else(|e| e.message().to_owned(), |_| "answered".into());
            let texts: Vec<String> = answers.iter().map(say).collect();
            // Usually all masters have the same users.
            let denied = answers.into_iter().find_map(|answer| answer.err().filter(|e| e.kind() == ErrorKind::Denied));
            return Err(denied.unwrap_or_else(|| self.no_quorum_with(&texts)));
        }
        let mut merged: BTreeMap<String, Found> = BTreeMap::new();
        let all = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        // Only plain locks are stored on several masters.
        let is_lock = |found: &Found| matches!(found.kind, Some(Kind::Mutex));
        for found in answers.into_iter().flatten().flatten().filter(is_lock) {
            let start = || Found { masters: Some((0, all)), token: None, holders: Vec::new(), ..found.clone() };
            let one = merged.entry(found.key.clone()).or_insert_with(start);
            one.masters = one.masters.map(|(masters, all)| (masters + 1, all));
            // A waiter subscribes at each master that it can reach.
            one.waiting = one.waiting.max(found.waiting);
            found.holders.into_iter().for_each(|holder| add(&mut one.holders, holder));
        }
        Ok(merged.into_values().collect())
    }
}

/// The lease of a holder ends when it has ended everywhere.
fn add(holders: &mut Vec<FoundHolder>, holder: FoundHolder) {
    match holders.iter_mut().find(|one| hold_on_many(&one.id) == hold_on_many(&holder.id)) {
        Some(one) => {
            one.count = one.count.max(holder.count);
            one.left = one.left.zip(holder.left).map(|(a, b)| a.max(b));
        }
        None => holders.push(holder),
    }
}

impl ListingStore for RedlockStore {
    /// One master after the other.
    fn list(&self, wanted: &Wanted) -> Result<Vec<Found>> {
        let list = |index: usize| {
            let nowhere = |_: &LockName| Ok(None);
            let found = list_server(wanted, &mut |requests: &[Request]| self.ask_one(index, requests), &nowhere)?;
            Ok(found.into_values().collect())
        };
        self.merge_all((0..self.nodes.len()).map(list).collect())
    }

    fn list_named(&self, wanted: &Wanted, keys: &BTreeSet<String>) -> Result<Vec<Found>> {
        let list = |index: usize| {
            let reply = self.ask_one(index, &[channels(Publishing::Classic)])?.into_iter().next();
            let names = wanted_names(wanted, keys, waited_for(reply.unwrap_or(Reply::Nil))?);
            let mut all = Vec::new();
            for names in names.chunks(LOOKS) {
                let looks: Vec<Request> = names.iter().map(look).collect();
                all.extend(found_under(names, self.ask_one(index, &looks)?)?);
            }
            Ok(all)
        };
        self.merge_all((0..self.nodes.len()).map(list).collect())
    }

    fn look_at(&self, name: &LockName) -> Result<Vec<Found>> {
        check_kind(name)?;
        let round = ask_all(&self.nodes, None, |_, _, _| vec![look(name)], self.all_nodes(), |_| false);
        let answer = |outcome: NodeOutcome| match outcome {
            NodeOutcome::Replies(replies) => {
                let found = single(replies).and_then(|reply| look_answer(reply, &name.key, true));
                found.map(|found| found.into_iter().collect())
            }
            NodeOutcome::Failed(failure) => Err(error_of(&failure).clone()),
            NodeOutcome::Unread | NodeOutcome::Skipped => Err(Error::new(ErrorKind::Unreachable, "it was not asked")),
        };
        self.merge_all(round.outcomes.into_iter().map(answer).collect())
    }
}
