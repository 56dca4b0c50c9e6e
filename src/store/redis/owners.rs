//! Who clients are: one key for each, beside those of the locks.

use std::time::Duration;

use super::RedisStore;
use super::keys::client_key;
use super::script;
use super::slot::Slot;
use super::wire::{Reply, Request, Shape, fail_on_error};
use crate::base::deadline::ceil_millis;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::{Announced, OwnerStore};

/// Also for the masters of Redlock.
pub(crate) fn announce(key: &str, text: &str, ttl: Duration) -> Request {
    let ttl = ceil_millis(ttl).to_string();
    Request::plain(&["SET", &client_key(key), text, "PX", &ttl]).answered_by(Shape::Text)
}

pub(crate) fn withdraw(key: &str) -> Request {
    Request::plain(&["DEL", &client_key(key)]).answered_by(Shape::Number)
}

impl RedisStore {
    fn exchange_in_background(&self, key: &str, request: Request) -> Result<()> {
        let reply = match self.servers.as_one() {
            Some(server) => server.background.exchange(&[request], &server.pool)?.0.pop(),
            None => {
                let cluster = self.servers.as_cluster().expect("there is no third kind");
                let exchanged = cluster.exchange_all(&[(slot_of_client(key), request)]);
                exchanged.into_iter().next().transpose()?.map(|(reply, _)| reply)
            }
        };
        let missing = || Error::new(ErrorKind::Protocol, "a reply is missing");
        fail_on_error(reply.ok_or_else(missing)?).map(|_: Reply| ())
    }
}

impl OwnerStore for RedisStore {
    fn announce(&self, key: &str, text: &str, ttl: Duration) -> Result<()> {
        self.exchange_in_background(key, announce(key, text, ttl))
    }

    fn withdraw(&self, key: &str) -> Result<()> {
        self.exchange_in_background(key, withdraw(key))
    }

    fn announced(&self, key: &str) -> Result<Option<Announced>> {
        script::announced_answer(self.servers.ask_repeatable(slot_of_client(key), || script::announced(key))?.reply)
    }
}

fn slot_of_client(key: &str) -> Slot {
    Slot::for_key(client_key(key).as_str())
}
