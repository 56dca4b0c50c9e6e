//! Who clients are: written on every master that can be reached, read from any.

use std::time::Duration;

use super::scatter::{NodeOutcome, ask_all};
use super::store::RedlockStore;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::redis::script;
use crate::store::redis::wire::{Reply, Request, fail_on_error};
use crate::store::redis::{announce, withdraw};
use crate::store::{Announced, OwnerStore};

impl RedlockStore {
    /// Each master's reply, or why it has none.
    fn ask_each(&self, request: impl Fn() -> Request) -> Vec<Result<Reply>> {
        let round = ask_all(&self.nodes, None, |_, _, _| vec![request()], self.all_nodes(), |_| false);
        let reply = |outcome: NodeOutcome| match outcome {
            NodeOutcome::Replies(replies) => super::node::single(replies).and_then(fail_on_error),
            NodeOutcome::Failed(failure) => Err(super::node::error_of(&failure).clone()),
            NodeOutcome::Unread | NodeOutcome::Skipped => Err(Error::new(ErrorKind::Unreachable, "it was not asked")),
        };
        round.outcomes.into_iter().map(reply).collect()
    }
}

/// One master is enough: each has all of it.
fn any(replies: Vec<Result<Reply>>) -> Result<()> {
    let mut refused = Ok(());
    for reply in replies {
        match reply {
            Ok(_) => return Ok(()),
            Err(error) => refused = Err(error),
        }
    }
    refused
}

impl OwnerStore for RedlockStore {
    fn announce(&self, key: &str, text: &str, ttl: Duration) -> Result<()> {
        any(self.ask_each(|| announce(key, text, ttl)))
    }

    fn withdraw(&self, key: &str) -> Result<()> {
        any(self.ask_each(|| withdraw(key)))
    }

    fn announced(&self, key: &str) -> Result<Option<Announced>> {
        let mut refused = Ok(None);
        for reply in self.ask_each(|| script::announced(key)) {
            match reply.and_then(script::announced_answer) {
                Ok(Some(announced)) => return Ok(Some(announced)),
                Ok(None) => {}
                Err(error) => refused = Err(error),
            }
        }
        refused
    }
}
