//! Lists what is in Redis: names are found by SCAN, page by page, or are known already, and one
//! script examines each of them.

mod waited_for;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub(crate) use self::waited_for::{answer as waited_for, channels};
use super::RedisStore;
use super::keys::RedisKeys;
use super::keys::Slot;
use super::keys::{check_name, is_reserved, untagged};
use super::script::{look, look_answer};
use super::server::Server;
use super::wire::{Publishing, RedisFailure, Reply, Request, Shape, fail_on_error};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::job_keys::job_of_lease;
use crate::base::job_name::lease_at;
use crate::base::lock_name::{Kind, LockName};
use crate::store::{Found, ListingStore, LockStore, NameFilter};

/// How many keys one SCAN visits: less than half a millisecond of the server's time.
const PAGE: &str = "500";
/// How many names are examined in one write. The server answers all of them before it serves the
/// next client, and each takes it some 20 microseconds.
pub(crate) const LOOKS: usize = 25;
/// Between two pages the server gets this multiple of the last page's time for other clients.
const REST: u32 = 4;
const SHORTEST_REST: Duration = Duration::from_millis(2);
const LONGEST_REST: Duration = Duration::from_millis(100);

/// One server's answers to several requests.
pub(crate) type Exchange<'a> = dyn FnMut(&[Request]) -> Result<Vec<Reply>> + 'a;

/// What to look for on a server: keys with a pattern, and with a type if the pattern is not
/// specific enough.
struct Family {
    pattern: String,
    value: Option<&'static str>,
    /// The name that the key belongs to.
    name_of: fn(&str) -> Option<&str>,
}

/// A lock is found by its hash; a free fair lock by its queue, and a semaphore by its permits: both
/// of these keys have braces.
fn families(wanted: &NameFilter) -> [Family; 2] {
    let prefix: String = wanted.prefix.chars().map(plain).collect();
    let names = prefix + &wanted.pattern.widened(plain);
    [
        Family { pattern: names, value: Some("hash"), name_of: |key| Some(key) },
        Family { pattern: "*{*}*".to_owned(), value: None, name_of: named_beside },
    ]
}

/// The name to which this key of a queue or of permits belongs.
fn named_beside(key: &str) -> Option<&str> {
    // The lease of a job is a lock whose key has braces.
    if job_of_lease(key).is_some() {
        return Some(key);
    }
    untagged(key.strip_prefix("redisson_lock_queue:").or_else(|| key.strip_suffix(":timeout"))?)
}

/// Escapes a character for a pattern of SCAN.
fn plain(c: char) -> String {
    if "*?[]\\".contains(c) { format!("\\{c}") } else { c.to_string() }
}

/// The name of a key, for any kind; `None` if no lock of this library can have it.
fn named(key: &str, prefix: &str) -> Option<LockName> {
    if let Some(lease) = lease_at(key) {
        return Some(lease);
    }
    let name = LockName::new(prefix, key.strip_prefix(prefix)?, Kind::Mutex).ok()?;
    (check_name(&name).is_ok() && !is_reserved(key)).then_some(name)
}

/// Everything that one server has. `redirected`: called for names whose keys are at another server
/// by now.
pub(crate) fn list_server(
    wanted: &NameFilter,
    exchange: &mut Exchange<'_>,
    redirected: &dyn Fn(&LockName) -> Result<Option<Found>>,
) -> Result<BTreeMap<String, Found>> {
    let mut all = BTreeMap::new();
    if let Some(only) = wanted.pattern.only() {
        // There is nothing to search for.
        let name = named(&format!("{}{only}", wanted.prefix), &wanted.prefix);
        look_at_all(&Vec::from_iter(name), exchange, redirected, &mut all)?;
        return Ok(all);
    }
    // A name may be found in several families, and SCAN may return a key twice.
    let mut seen = BTreeSet::new();
    for family in families(wanted) {
        let mut cursor = "0".to_owned();
        loop {
            let begun = Instant::now();
            let mut words = vec!["SCAN", &cursor, "MATCH", &family.pattern, "COUNT", PAGE];
            words.extend(family.value.iter().flat_map(|value| ["TYPE", value]));
            let page =
                exchange(&[Request::plain(&words).answered_by(Shape::List)])?.into_iter().next();
            let (next, keys) = page_of(page.unwrap_or(Reply::Nil))?;
            let is_new =
                |key: &&str| wanted.name_of(key).is_some() && seen.insert((*key).to_owned());
            let keys = keys.iter().filter_map(|key| (family.name_of)(key)).filter(is_new);
            let mut names: Vec<LockName> =
                keys.filter_map(|key| named(key, &wanted.prefix)).collect();
            if family.value.is_some() {
                names = without_hashes_of_others(names, exchange)?;
            }
            look_at_all(&names, exchange, redirected, &mut all)?;
            if next == "0" {
                break;
            }
            cursor = next;
            std::thread::sleep((begun.elapsed() * REST).clamp(SHORTEST_REST, LONGEST_REST));
        }
    }
    Ok(all)
}

/// A lock's hash has one field, or a mode. Asking for that costs the server a twentieth of a full
/// look, and most hashes belong to other programs.
fn without_hashes_of_others(
    names: Vec<LockName>,
    exchange: &mut Exchange<'_>,
) -> Result<Vec<LockName>> {
    let ask = |name: &LockName| {
        let number = |words: &[&str]| Request::plain(words).answered_by(Shape::Number);
        [number(&["HLEN", &name.key]), number(&["HEXISTS", &name.key, "mode"])]
    };
    let requests: Vec<Request> = names.iter().flat_map(ask).collect();
    if requests.is_empty() {
        return Ok(names);
    }
    let replies = exchange(&requests)?;
    let may_be_lock = |replies: &[Reply]| {
        let is_one = |reply: &Reply| matches!(reply, Reply::Int(1)) || reply.redirect().is_some();
        replies.iter().any(is_one)
    };
    let pairs = names.into_iter().zip(replies.chunks(2));
    Ok(pairs.filter(|(_, replies)| may_be_lock(replies)).map(|(name, _)| name).collect())
}

/// Names that are not text are left out: no client of this library can use them.
pub(super) fn page_of(reply: Reply) -> Result<(String, Vec<String>)> {
    let answered = fail_on_error(reply).map_err(|e| match e.kind() {
        ErrorKind::Denied => denied(&e),
        _ => e,
    })?;
    let text = |reply: Reply| {
        if let Reply::Bytes(bytes) = reply { String::from_utf8(bytes).ok() } else { None }
    };
    let mut parts = answered.into_list().unwrap_or_default().into_iter();
    let cursor = parts.next().and_then(text);
    let keys = parts.next().and_then(Reply::into_list);
    let page = cursor
        .zip(keys)
        .map(|(cursor, keys)| (cursor, keys.into_iter().filter_map(text).collect()));
    page.ok_or_else(|| Error::new(ErrorKind::Protocol, "the reply to SCAN was not a page of keys"))
}

#[cold]
fn denied(error: &Error) -> Error {
    let advice =
        "give it +scan, or ask for one lock by its name, which needs no more than locks do";
    Error::new(ErrorKind::Denied, format!("the user may not list keys ({})", error.message()))
        .advise(advice)
}

/// Returns the wanted names among both sets of keys, in order.
pub(crate) fn wanted_names(
    wanted: &NameFilter,
    keys: &BTreeSet<String>,
    others: BTreeSet<String>,
) -> Vec<LockName> {
    let only = wanted.pattern.only().map(|only| format!("{}{only}", wanted.prefix));
    let all: BTreeSet<String> = keys.iter().cloned().chain(others).chain(only).collect();
    all.iter()
        .filter(|key| wanted.name_of(key).is_some())
        .filter_map(|key| named(key, &wanted.prefix))
        .collect()
}

/// What was found under these names. A name that the user may not read is left out.
pub(crate) fn found_under(names: &[LockName], replies: Vec<Reply>) -> Result<Vec<Found>> {
    let mut all = Vec::new();
    for (name, reply) in names.iter().zip(replies) {
        match look_answer(reply, &name.key, false) {
            Err(e) if matches!(e.kind(), ErrorKind::Denied | ErrorKind::WrongType) => {}
            found => all.extend(found?),
        }
    }
    Ok(all)
}

fn look_at_all(
    names: &[LockName],
    exchange: &mut Exchange<'_>,
    redirected: &dyn Fn(&LockName) -> Result<Option<Found>>,
    all: &mut BTreeMap<String, Found>,
) -> Result<()> {
    for names in names.chunks(LOOKS) {
        let requests: Vec<Request> = names.iter().map(look).collect();
        for (name, reply) in names.iter().zip(exchange(&requests)?) {
            let found = match reply.redirect() {
                Some(_) => redirected(name)?,
                None => match look_answer(reply, &name.key, false) {
                    // A key that the user may not read, whatever it contains.
                    Err(e) if matches!(e.kind(), ErrorKind::Denied | ErrorKind::WrongType) => None,
                    found => found?,
                },
            };
            if let Some(found) = found {
                all.insert(found.key.clone(), found);
            }
        }
    }
    Ok(())
}

impl Server {
    /// Sends all requests of `run` over one connection of its own, so that a long list does not
    /// delay lock calls. Where none can be made (no sentinel answers, or the server allows no
    /// more), it shares those of the lock calls.
    fn over_one_connection<T>(
        &self,
        run: impl FnOnce(&mut Exchange<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut connection = match self.pool.connect_aside() {
            Ok(connection) => connection,
            Err(error) if !matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::NotReady) => {
                return Err(error);
            }
            Err(error) => {
                let ask = |request: &Request| match self.pool.ask(request.clone(), 1) {
                    Ok(answer) => Ok(answer.reply),
                    Err(_) => Err(error.clone()),
                };
                return run(&mut |requests: &[Request]| requests.iter().map(ask).collect());
            }
        };
        let outcome = run(&mut |requests: &[Request]| {
            connection
                .exchange(requests)
                .map(|(replies, _)| replies)
                .map_err(RedisFailure::into_error)
        });
        if outcome.is_ok() {
            connection.keep();
        }
        outcome
    }
}

impl Server {
    /// One reply for each request, over a connection of the lock calls if one is free. Each request
    /// may be repeated.
    fn ask_in_pages(&self, requests: &[Request]) -> Result<Vec<Reply>> {
        let mut all = Vec::with_capacity(requests.len());
        for page in requests.chunks(LOOKS) {
            match self.pool.exchange_if_free(page) {
                Some(Ok(replies)) if !replies.iter().any(Reply::is_demotion) => all.extend(replies),
                _ => all.extend(self.over_one_connection(|ask| ask(page))?),
            }
        }
        Ok(all)
    }
}

impl RedisStore {
    /// One reply for each request, from the server that has its slot. Each may be repeated.
    pub(super) fn ask_many(&self, requests: Vec<(Slot, Request)>) -> Result<Vec<Reply>> {
        let Some(cluster) = self.servers.as_cluster() else {
            let requests: Vec<Request> = requests.into_iter().map(|(_, request)| request).collect();
            return self.servers.as_one().expect("there is no third kind").ask_in_pages(&requests);
        };
        let mut replies: Vec<Option<Reply>> = requests.iter().map(|_| None).collect();
        let mut groups = Vec::new();
        for (place, (slot, _)) in requests.iter().enumerate() {
            let Some(route) = cluster.known_route(*slot) else { continue };
            let is_it = |(known, _): &&mut (super::cluster::Route, Vec<usize>)| {
                std::ptr::eq(known.server(), route.server())
            };
            match groups.iter_mut().find(is_it) {
                Some((_, places)) => places.push(place),
                None => groups.push((route, vec![place])),
            }
        }
        for (route, places) in groups {
            let group: Vec<Request> =
                places.iter().map(|&place| requests[place].1.clone()).collect();
            // After a failure each is asked for separately, which finds the new primary.
            for (place, reply) in
                places.into_iter().zip(route.server().ask_in_pages(&group).unwrap_or_default())
            {
                replies[place] = Some(reply).filter(|reply| reply.redirect().is_none());
            }
        }
        let asked =
            replies.into_iter().zip(&requests).map(|(reply, (slot, request))| match reply {
                Some(reply) => Ok(reply),
                None => Ok(self.servers.ask_repeatable(*slot, || request.clone())?.reply),
            });
        asked.collect()
    }

    /// The keys of the names whose channels have listeners.
    fn waited_for(&self) -> Result<BTreeSet<String>> {
        let one = |server: &Server, publishing| {
            let reply = server.ask_in_pages(&[channels(publishing)])?.into_iter().next();
            waited_for(reply.unwrap_or(Reply::Nil))
        };
        let Some(cluster) = self.servers.as_cluster() else {
            return one(
                self.servers.as_one().expect("there is no third kind"),
                Publishing::Classic,
            );
        };
        let mut all = BTreeSet::new();
        for primary in cluster.primaries_now()? {
            all.extend(one(primary.server(), cluster.publishing())?);
        }
        Ok(all)
    }
}

impl ListingStore for RedisStore {
    fn list(&self, wanted: &NameFilter) -> Result<Vec<Found>> {
        let look_again = |name: &LockName| {
            let reply = self.servers.ask_repeatable(RedisKeys::of(name).slot, || look(name))?.reply;
            look_answer(reply, &name.key, false)
        };
        let list = |server: &Server| {
            server.over_one_connection(|ask| list_server(wanted, ask, &look_again))
        };
        let Some(cluster) = self.servers.as_cluster() else {
            return Ok(list(self.servers.as_one().expect("there is no third kind"))?
                .into_values()
                .collect());
        };
        if let Some(only) = wanted.pattern.only() {
            let name = named(&format!("{}{only}", wanted.prefix), &wanted.prefix);
            return Ok(name
                .map(|name| look_again(&name))
                .transpose()?
                .flatten()
                .into_iter()
                .collect());
        }
        let mut all = BTreeMap::new();
        for primary in cluster.primaries_now()? {
            all.extend(list(primary.server())?);
        }
        Ok(all.into_values().collect())
    }

    fn list_named(&self, wanted: &NameFilter, keys: &BTreeSet<String>) -> Result<Vec<Found>> {
        let names = wanted_names(wanted, keys, self.waited_for()?);
        let replies = self
            .ask_many(names.iter().map(|name| (RedisKeys::of(name).slot, look(name))).collect())?;
        found_under(&names, replies)
    }

    fn look_at(&self, name: &LockName) -> Result<Vec<Found>> {
        self.check(name)?;
        let reply = self.servers.ask_repeatable(RedisKeys::of(name).slot, || look(name))?.reply;
        Ok(look_answer(reply, &name.key, true)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_lock_can_have_are_left_out() {
        assert!(named("app:x", "app:").is_some());
        assert!(named("other", "").is_some() && named("other", "app:").is_none());
        for (key, prefix) in [
            ("app:", "app:"),
            ("app:{", "app:"),
            ("leasehold:node", ""),
            ("redisson_lock_queue:{x}", ""),
        ] {
            assert!(named(key, prefix).is_none(), "{key}");
        }
    }
}
