//! Sends a request to the primary that has its slot, and after a redirect to the next.
//!
//! Redirects and refused connections guarantee that nothing ran, so the request is sent again
//! within the I/O timeout. One error is different: a script whose own command met a key that had
//! just moved has run in part ([`Redirect::Partly`]). Every script may run twice, so it is sent
//! again as well; the caller records that it may have run.

use std::time::{Duration, Instant};

use super::map::Route;
use super::nodes::Cluster;
use super::topology::NodeAddress;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;
use crate::base::random::Backoff;
use crate::store::redis::keys::Slot;
use crate::store::redis::server::Unanswered;
use crate::store::redis::wire::{Answer, Redirect, Reply};

impl Cluster {
    /// The route of requests for the slot, if it is known.
    pub(crate) fn known_route(&self, slot: Slot) -> Option<Route> {
        self.map.read().route(slot)
    }

    /// `ask` sends the request over a route. The reply is still a redirect if the I/O timeout has
    /// passed, and it is not the first one.
    pub(crate) fn follow(
        &self,
        slot: Slot,
        mut ask: impl FnMut(&Route) -> std::result::Result<Answer, Unanswered>,
    ) -> Result<Answer> {
        let deadline = Instant::now() + self.io_timeout();
        let mut pause = Backoff::new(Duration::from_millis(1), Duration::from_millis(50));
        let mut route = self.route(slot)?;
        let mut was_redirected = false;
        loop {
            let outcome = ask(&route);
            let next = match &outcome {
                Ok(answered) => self.after_reply(slot, &route, &answered.reply),
                // A node that was demoted a moment ago, of which the others have not heard yet.
                Err(Unanswered::NotSent(e)) if e.kind() == ErrorKind::ReadOnly => {
                    self.after_failure(slot, &route).or_else(|| self.route(slot).ok())
                }
                Err(Unanswered::NotSent(e)) if e.kind().is_outage() => {
                    self.after_failure(slot, &route)
                }
                Err(_) => None,
            };
            // One redirect is followed in any case: the time may have gone into a slow node, or
            // into reading the map, and says nothing about the slot.
            let Some(next) = next.filter(|_| !was_redirected || Instant::now() < deadline) else {
                return outcome.map_err(Unanswered::into_error);
            };
            // Two nodes may each report that the other has the slot, until both know of a move.
            if was_redirected || next.is_same(&route) {
                std::thread::sleep(pause.next());
            }
            was_redirected = true;
            route = next;
        }
    }

    /// The next route after this reply; `None` if the reply is the answer.
    pub(super) fn after_reply(&self, slot: Slot, route: &Route, reply: &Reply) -> Option<Route> {
        if reply.is_demotion() {
            return self.after_failure(slot, route);
        }
        self.after_redirect(slot, route, &reply.redirect()?)
    }

    /// The route of a request that was redirected.
    fn after_redirect(&self, slot: Slot, route: &Route, redirect: &Redirect) -> Option<Route> {
        let parse = |address: &str| NodeAddress::parse(address, &route.primary.address.host);
        match redirect {
            Redirect::Moved(address) => {
                self.note_moved(slot, &parse(address)?);
                self.refresh_some_time(route.version);
                self.route(slot).ok()
            }
            Redirect::Ask(address) => Some(self.route_to_importing(&parse(address)?)),
            Redirect::Later | Redirect::Partly => {
                self.refresh_some_time(route.version);
                self.route(slot).ok()
            }
        }
    }

    /// The next route when the primary cannot be reached, or has become a replica; `None` if no
    /// other node has the slot yet.
    pub(super) fn after_failure(&self, slot: Slot, route: &Route) -> Option<Route> {
        if let Err(e) = self.refresh(route.version, Some(&route.primary.address)) {
            log::debug!("the map of the cluster cannot be read now: {}", e.chain());
        }
        self.route(slot).ok().filter(|next| !next.is_same(route))
    }
}

/// The error for a request that is still redirected when the I/O timeout has passed.
#[cold]
pub(crate) fn still_redirected(reply: Reply) -> Error {
    let text = if let Reply::Error(e) = reply { e.text } else { String::new() };
    let why = "no node of the cluster serves the slot of this name now, which is being moved or has lost its primary; \
               try again later";
    Error::new(ErrorKind::NotReady, format!("{why} ({text})"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::lease::Moment;
    use crate::signal::clock::SystemClock;
    use crate::store::redis::script;
    use crate::store::redis::wire::{Connector, Endpoint};

    const IO_TIMEOUT: Duration = Duration::from_millis(5);

    fn cluster() -> Cluster {
        let connector = Connector {
            endpoint: Endpoint::parse("redis://127.0.0.1:1").unwrap().into(),
            client_name: "t".to_owned(),
            handshake: script::handshake(""),
            io_timeout: IO_TIMEOUT,
            clock: Arc::new(SystemClock),
            busy_poll: true,
            memory_seen: Arc::default(),
            introduced: Arc::default(),
            cluster: None,
        };
        Cluster::new(connector.clone(), connector.clone(), &[connector], 1)
    }

    fn answered(reply: Reply) -> Answer {
        Answer { reply, sent_at: Moment::from_nanos(0), repeated: false, is_first: false }
    }

    /// The other nodes have not heard yet of the failover, so the map still names this one.
    #[test]
    fn a_node_that_has_just_become_a_replica_is_asked_again_until_the_time_is_over() {
        let cluster = cluster();
        let slot = Slot::for_key("a");
        cluster.note_moved(slot, &NodeAddress::parse("127.0.0.1:1", "").unwrap());
        let follow = |refusals| {
            let mut asked = 0;
            let followed = cluster.follow(slot, |_| {
                asked += 1;
                if asked <= refusals {
                    let demoted = Error::new(ErrorKind::ReadOnly, "the server is a replica");
                    return Err(Unanswered::NotSent(demoted));
                }
                Ok(answered(Reply::Int(7)))
            });
            followed.map(|answered| answered.reply).map_err(|e| e.kind())
        };
        assert_eq!(follow(1), Ok(Reply::Int(7)));
        assert_eq!(follow(usize::MAX), Err(ErrorKind::ReadOnly));
    }

    /// On a busy machine the first node, or the read of the map after it, takes all the time.
    #[test]
    fn a_redirect_is_followed_once_however_late_it_is() {
        let cluster = cluster();
        let slot = Slot::for_key("a");
        cluster.note_moved(slot, &NodeAddress::parse("127.0.0.1:1", "").unwrap());
        let moved = || Reply::Error("MOVED 1 127.0.0.1:2".into());
        let mut asked = Vec::new();
        let mut ask = |replies: &dyn Fn(usize) -> Reply| {
            asked.clear();
            let followed = cluster.follow(slot, |route| {
                std::thread::sleep(2 * IO_TIMEOUT);
                asked.push(route.primary.address.port);
                Ok(answered(replies(asked.len())))
            });
            (followed.unwrap().reply, asked.len())
        };
        let first_only = |n| if n == 1 { moved() } else { Reply::Int(7) };
        assert_eq!(ask(&first_only), (Reply::Int(7), 2));
        assert_eq!(ask(&|_| moved()), (moved(), 2), "and not for ever");
    }
}
