//! Fast ways from one holder to the next: a fair lock that stays within the client, and an acquire
//! that is sent by the thread that received the message of a release.

use std::sync::Arc;

use super::cluster::Route;
use super::unknowns::add_unknown;
use super::wire::{Detached, Failure, Outcome, Pool};
use super::{RedisStore, is_a_number, script, slot_of};
use crate::base::error::Result;
use crate::store::{Acquire, Acquired, BegunAcquire, HandedOver, LockStore, Release, Released, UnknownOutcomes};

/// An acquire with a name that is longer is not begun: it might not fit into the buffer of an idle
/// connection at once, and the thread that begins it must not block.
const LONGEST_NAME: usize = 1024;

impl RedisStore {
    /// Releases a fair lock and grants it to `next`, in one run of one script. `None`: nothing was
    /// changed.
    pub(super) fn pass_on(
        &self,
        release: &Release<'_>,
        next: &Acquire<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Option<HandedOver> {
        let outcome = self.servers.call_one(slot_of(next.name), script::pass_on(release.holder, next))?;
        let mut next_unknowns = UnknownOutcomes::default();
        let (released, acquired) = match outcome {
            Ok(answer) if self.servers.is_redirected(&answer.reply, unknowns) => return None,
            Ok(answer) => {
                // After an error both requests are sent by themselves, and each meets its own.
                let granted = script::passed_on_answer(answer.reply, answer.sent_at).ok()??;
                (Ok(Released::Freed { listeners: None, next: None }), Ok(Acquired::Granted(granted)))
            }
            Err(Failure::NotSent(error)) => (Err(error.clone()), Err(error)),
            Err(Failure::Unknown { error, unknown, stale }) => {
                add_unknown(unknowns, unknown.clone());
                add_unknown(&mut next_unknowns, unknown);
                let released = if stale { self.release(release, unknowns) } else { Err(error.clone()) };
                (released, Err(error))
            }
        };
        Some(HandedOver { released, acquired, unknowns: next_unknowns })
    }

    /// Sends the acquire if that is possible without waiting.
    pub(super) fn begin(self: Arc<Self>, acquire: &Acquire<'_>) -> Option<Box<dyn BegunAcquire>> {
        let name = acquire.name;
        if name.key.len() > LONGEST_NAME || is_a_number(name.kind) && self.kinds.other_use(name).is_some() {
            return None;
        }
        let route = match self.servers.as_cluster() {
            Some(cluster) => Some(cluster.known_route(slot_of(name)).filter(|route| !route.is_asking())?),
            None => None,
        };
        let pool = pool_of(&self, route.as_ref());
        let sent = pool.begin_detached(self.acquire_request(acquire))?;
        Some(Box::new(Begun { store: self, route, sent: Some(sent) }))
    }
}

fn pool_of<'s>(store: &'s RedisStore, route: Option<&'s Route>) -> &'s Pool {
    match route {
        Some(route) => &route.server().pool,
        None => &store.servers.as_one().expect("there is no third kind").pool,
    }
}

struct Begun {
    store: Arc<RedisStore>,
    /// In a cluster.
    route: Option<Route>,
    sent: Option<Detached>,
}

impl Begun {
    fn outcome(&mut self) -> Option<Outcome> {
        let sent = self.sent.take()?;
        Some(pool_of(&self.store, self.route.as_ref()).finish_detached(sent))
    }
}

impl BegunAcquire for Begun {
    fn finish(mut self: Box<Self>, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired> {
        let store = self.store.clone();
        let outcome = self.outcome().expect("it is finished once");
        match outcome {
            Ok(answer) if store.servers.is_redirected(&answer.reply, unknowns) => store.acquire(acquire, unknowns),
            Ok(answer) => store.acquired(acquire, answer.reply, answer.sent_at, unknowns),
            Err(Failure::NotSent(error)) => Err(error),
            Err(Failure::Unknown { error, unknown, stale }) => {
                add_unknown(unknowns, unknown);
                // The server is probably reachable, and only this connection had ended.
                if stale { store.acquire(acquire, unknowns) } else { Err(error) }
            }
        }
    }
}

impl Drop for Begun {
    /// Not finished: its thread panicked. The reply must not be read as that of another request.
    fn drop(&mut self) {
        if let Some(sent) = self.sent.take() {
            pool_of(&self.store, self.route.as_ref()).abandon_detached(sent);
        }
    }
}

impl std::fmt::Debug for Begun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Begun").finish_non_exhaustive()
    }
}
