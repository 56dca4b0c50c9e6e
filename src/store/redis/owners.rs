//! The owners of clients: one key for each, beside those of the locks, and an index of these keys.
//!
//! The index makes it cheap to ask for all of them: without it, all keys of the server would have
//! to be searched. It expires with the last text in it. A client of an earlier release writes its
//! text and is not in the index.

use std::time::Duration;

use super::RedisStore;
use super::keys::Slot;
use super::keys::{CLIENT_INDEX, client_key};
use super::script;
use super::wire::{Reply, Request, Shape, fail_on_error};
use crate::base::deadline::ceil_millis;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;
use crate::os::atomic::Ordering;
use crate::store::{Announced, MOST_CLIENTS, OwnerStore};

/// The text, and the entry in the index. Also used for the masters of Redlock. Each may run without
/// the other: an entry without a text is harmless.
pub(crate) fn announce(key: &str, text: &str, ttl: Duration) -> [Request; 2] {
    let millis = ceil_millis(ttl).to_string();
    let text =
        Request::plain(&["SET", &client_key(key), text, "PX", &millis]).answered_by(Shape::Text);
    [text, script::enter_client(key, ttl)]
}

pub(crate) fn withdraw(key: &str) -> [Request; 2] {
    let delete = |words: &[&str]| Request::plain(words).answered_by(Shape::Number);
    [delete(&["DEL", &client_key(key)]), delete(&["ZREM", CLIENT_INDEX, key])]
}

/// The clients that have announced themselves last, if there are too many.
pub(crate) fn clients() -> Request {
    let first = format!("-{MOST_CLIENTS}");
    Request::plain(&["ZRANGE", CLIENT_INDEX, &first, "-1"]).answered_by(Shape::Any)
}

pub(crate) fn clients_answer(reply: Reply) -> Result<Vec<String>> {
    let answered = fail_on_error(reply).map_err(|e| match e.kind() {
        ErrorKind::Denied => denied(&e),
        _ => e,
    })?;
    let text = |reply: Reply| {
        if let Reply::Bytes(bytes) = reply { String::from_utf8(bytes).ok() } else { None }
    };
    Ok(answered.into_list().unwrap_or_default().into_iter().filter_map(text).collect())
}

#[cold]
fn denied(error: &Error) -> Error {
    Error::new(
        ErrorKind::Denied,
        format!("the user may not read the records of clients ({})", error.message()),
    )
    .advise("give it ~leasehold_client:*")
}

/// What each of these clients wrote. One that the user may not read is left out.
pub(crate) fn texts(clients: Vec<String>, replies: Vec<Reply>) -> Result<Vec<(String, Announced)>> {
    let mut all = Vec::with_capacity(clients.len());
    for (client, reply) in clients.into_iter().zip(replies) {
        match script::announced_answer(reply) {
            Ok(announced) => all.extend(announced.map(|announced| (client, announced))),
            Err(e) if e.kind() == ErrorKind::Denied => {}
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

impl RedisStore {
    /// The text, and the entry in the index unless the user may not write that: a server logs each
    /// refusal. `in_turn`: the entry only if the text was written. In a cluster the two are at
    /// different nodes, and an entry whose text is missing would stay until it expires.
    fn exchange_in_background(
        &self,
        key: &str,
        requests: [Request; 2],
        in_turn: bool,
    ) -> Result<()> {
        let slots = [slot_of_client(key), slot_of_index()];
        let with_index = !self.without_index.load(Ordering::Relaxed);
        let requests = slots.into_iter().zip(requests).take(if with_index { 2 } else { 1 });
        let replies: Vec<Result<Reply>> = match self.servers.as_one() {
            Some(server) => {
                let requests: Vec<Request> = requests.map(|(_, request)| request).collect();
                server.background.exchange(&requests, &server.pool)?.0.into_iter().map(Ok).collect()
            }
            None => {
                let cluster = self.servers.as_cluster().expect("there is no third kind");
                let requests: Vec<(Slot, Request)> = requests.collect();
                let mut replies = Vec::new();
                for requests in requests.chunks(if in_turn { 1 } else { 2 }) {
                    let is_over = replies.iter().any(|reply: &Result<Reply>| reply.is_err());
                    if !is_over {
                        replies.extend(
                            cluster.exchange_all(requests).into_iter().map(|one| Ok(one?.0)),
                        );
                    }
                }
                replies
            }
        };
        if is_written(replies)? == Index::Denied {
            self.without_index.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// What became of the entry in the index.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Index {
    /// It is written or, after another failure, will be written the next time.
    Permitted,
    /// The ACL names the keys of clients one by one: whoever asks for this client by its id finds
    /// it, but the index does not show it.
    Denied,
}

/// The replies to [`announce`] or [`withdraw`]. Only the text is essential.
pub(crate) fn is_written(replies: Vec<Result<Reply>>) -> Result<Index> {
    let mut replies = replies.into_iter().map(|reply| reply.and_then(fail_on_error));
    let missing = || Err(Error::new(ErrorKind::Protocol, "a reply is missing"));
    replies.next().unwrap_or_else(missing)?;
    match replies.next() {
        Some(Err(e)) if e.kind() == ErrorKind::Denied => Ok(Index::Denied),
        Some(Err(e)) => {
            log::debug!("others may not find this client in the index: {}", e.chain());
            Ok(Index::Permitted)
        }
        None | Some(Ok(_)) => Ok(Index::Permitted),
    }
}

impl OwnerStore for RedisStore {
    fn announce(&self, key: &str, text: &str, ttl: Duration) -> Result<()> {
        self.exchange_in_background(key, announce(key, text, ttl), true)
    }

    fn withdraw(&self, key: &str) -> Result<()> {
        self.exchange_in_background(key, withdraw(key), false)
    }

    fn announced(&self, key: &str) -> Result<Option<Announced>> {
        script::announced_answer(
            self.servers.ask_repeatable(slot_of_client(key), || script::announced(key))?.reply,
        )
    }

    fn announced_by_all(&self) -> Result<Vec<(String, Announced)>> {
        let clients = clients_answer(self.servers.ask_repeatable(slot_of_index(), clients)?.reply)?;
        let looks =
            clients.iter().map(|key| (slot_of_client(key), script::announced(key))).collect();
        let replies = self.ask_many(looks)?;
        texts(clients, replies)
    }
}

fn slot_of_client(key: &str) -> Slot {
    Slot::for_key(client_key(key).as_str())
}

fn slot_of_index() -> Slot {
    Slot::for_key(CLIENT_INDEX)
}
