//! What others can see: the locks on the masters, and on how many of them each is; and the owners
//! of clients, written to every master that can be reached and read from any.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::node::{error_of, single};
use super::scatter::LateMaster;
use super::store::RedlockStore;
use super::supported::check_kind;
use crate::base::error::Result;
use crate::base::holder::hold_on_many;
use crate::base::lock_name::{Kind, LockName};
use crate::store::redis::listing::{
    LOOKS, channels, found_under, list_server, waited_for, wanted_names,
};
use crate::store::redis::script::{look, look_answer};
use crate::store::redis::wire::{Publishing, Reply, Request};
use crate::store::redis::{announce, clients, clients_answer, is_written, script, texts, withdraw};
use crate::store::{Announced, Found, FoundHolder, ListingStore, NameFilter, OwnerStore};

impl RedlockStore {
    /// One master's answers to several requests.
    pub(super) fn ask_one(&self, index: usize, requests: &[Request]) -> Result<Vec<Reply>> {
        // For each exchange: a long list must not keep the other queries from theirs.
        let _permit = self.begin_query()?;
        let answer = self.nodes[index].ask_alone(|_, _| requests.to_vec());
        answer.map_err(|failure| error_of(&failure).clone())
    }

    /// # Errors
    /// `NoQuorum` if too few masters have answered to know what a majority has.
    fn merge_all(&self, answers: Vec<Result<Vec<Found>>>) -> Result<Vec<Found>> {
        let answers = self.of_a_majority(answers)?;
        let mut merged: BTreeMap<String, Found> = BTreeMap::new();
        let all = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        // Only plain locks are stored on several masters.
        let is_lock = |found: &Found| matches!(found.kind, Some(Kind::Mutex));
        for found in answers.into_iter().flatten().filter(is_lock) {
            let start = || Found {
                masters: Some((0, all)),
                token: None,
                holders: Vec::new(),
                ..found.clone()
            };
            let one = merged.entry(found.key.clone()).or_insert_with(start);
            one.masters = one.masters.map(|(masters, all)| (masters + 1, all));
            // A waiter subscribes at each master that it can reach.
            one.waiting = one.waiting.max(found.waiting);
            for holder in found.holders {
                add(&mut one.holders, holder);
            }
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
    fn list(&self, wanted: &NameFilter) -> Result<Vec<Found>> {
        let list = |index: usize| {
            let nowhere = |_: &LockName| Ok(None);
            let found = list_server(
                wanted,
                &mut |requests: &[Request]| self.ask_one(index, requests),
                &nowhere,
            )?;
            Ok(found.into_values().collect())
        };
        self.merge_all((0..self.nodes.len()).map(list).collect())
    }

    fn list_named(&self, wanted: &NameFilter, keys: &BTreeSet<String>) -> Result<Vec<Found>> {
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
        let _permit = self.begin_query()?;
        let found = |reply| Ok(look_answer(reply, &name.key, true)?.into_iter().collect());
        let answers = self.ask_each(LateMaster::IfNeeded, || vec![look(name)]).into_iter();
        self.merge_all(answers.map(|replies| replies.and_then(single).and_then(found)).collect())
    }
}

impl RedlockStore {
    fn announced_at(&self, index: usize) -> Result<Vec<(String, Announced)>> {
        let reply = self.ask_one(index, &[clients()])?.into_iter().next();
        let clients = clients_answer(reply.unwrap_or(Reply::Nil))?;
        let looks: Vec<Request> = clients.iter().map(|key| script::announced(key)).collect();
        let replies = if looks.is_empty() { Vec::new() } else { self.ask_one(index, &looks)? };
        texts(clients, replies)
    }
}

/// One master is enough: each of them has the whole text.
fn any(answers: Vec<Result<Vec<Reply>>>) -> Result<()> {
    let mut refused = Ok(());
    for answer in answers {
        match answer.and_then(|replies| is_written(replies.into_iter().map(Ok).collect())) {
            Ok(_) => return Ok(()),
            Err(error) => refused = Err(error),
        }
    }
    refused
}

impl OwnerStore for RedlockStore {
    fn announce(&self, key: &str, text: &str, ttl: Duration) -> Result<()> {
        any(self.ask_each(LateMaster::IfNeeded, || announce(key, text, ttl).into()))
    }

    fn withdraw(&self, key: &str) -> Result<()> {
        any(self.ask_each(LateMaster::IfNeeded, || withdraw(key).into()))
    }

    fn announced(&self, key: &str) -> Result<Option<Announced>> {
        let _permit = self.begin_query()?;
        let mut refused = Ok(None);
        for answer in self.ask_each(LateMaster::IfNeeded, || vec![script::announced(key)]) {
            match answer.and_then(single).and_then(script::announced_answer) {
                Ok(Some(announced)) => return Ok(Some(announced)),
                Ok(None) => {}
                Err(error) => refused = Err(error),
            }
        }
        refused
    }

    /// Each master has all texts, except those written while it could not be reached: none may be
    /// announced while one of them does not answer.
    fn announced_by_all(&self) -> Result<Vec<(String, Announced)>> {
        let answers = (0..self.nodes.len()).map(|index| self.announced_at(index)).collect();
        let all: BTreeMap<String, Announced> =
            self.of_a_majority(answers)?.into_iter().flatten().collect();
        Ok(all.into_iter().collect())
    }
}
