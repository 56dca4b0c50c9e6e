//! The owners of clients: written to every master that can be reached, read from any.

use std::collections::BTreeMap;
use std::time::Duration;

use super::scatter::{NodeOutcome, ask_all};
use super::store::RedlockStore;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::redis::script;
use crate::store::redis::wire::{Reply, Request};
use crate::store::redis::{announce, clients, clients_answer, is_written, texts, withdraw};
use crate::store::{Announced, OwnerStore};

impl RedlockStore {
    /// Each master's replies, or why there are none.
    fn ask_each(&self, requests: impl Fn() -> Vec<Request>) -> Vec<Result<Vec<Reply>>> {
        let round = ask_all(&self.nodes, None, |_, _, _| requests(), self.all_nodes(), |_| false);
        let replies = |outcome: NodeOutcome| match outcome {
            NodeOutcome::Replies(replies) => Ok(replies),
            NodeOutcome::Failed(failure) => Err(super::node::error_of(&failure).clone()),
            NodeOutcome::Unread | NodeOutcome::Skipped => Err(Error::new(ErrorKind::Unreachable, "it was not asked")),
        };
        round.outcomes.into_iter().map(replies).collect()
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
        any(self.ask_each(|| announce(key, text, ttl).into()))
    }

    fn withdraw(&self, key: &str) -> Result<()> {
        any(self.ask_each(|| withdraw(key).into()))
    }

    fn announced(&self, key: &str) -> Result<Option<Announced>> {
        let mut refused = Ok(None);
        for answer in self.ask_each(|| vec![script::announced(key)]) {
            match answer.and_then(super::node::single).and_then(script::announced_answer) {
                Ok(Some(announced)) => return Ok(Some(announced)),
                Ok(None) => {}
                Err(error) => refused = Err(error),
            }
        }
        refused
    }

    /// Each master has all texts, except those written while it could not be reached.
    fn announced_by_all(&self) -> Result<Vec<(String, Announced)>> {
        let (mut all, mut refused) = (BTreeMap::new(), None);
        for index in 0..self.nodes.len() {
            match self.announced_at(index) {
                Ok(announced) => all.extend(announced),
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if all.is_empty() => Err(error),
            _ => Ok(all.into_iter().collect()),
        }
    }
}
