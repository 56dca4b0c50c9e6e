//! Sends a request to the primary that has its slot, and after a redirect to the next.
//!
//! Redirects and refused connections guarantee that nothing ran, so the request is sent anew within
//! the I/O timeout. One error is different: a script whose own command met a key that had just
//! moved has run in part ([`Redirect::Partly`]). Every script may run twice, so it is sent anew as
//! well; if it never comes through, its outcome is unknown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::map::Route;
use super::nodes::Cluster;
use super::topology::NodeAddress;
use crate::base::backoff::Backoff;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::redis::server::{Answered, Unanswered};
use crate::store::redis::slot::Slot;
use crate::store::redis::wire::{Redirect, Reply};

impl Cluster {
    /// Where requests for the slot go, if that is known.
    pub(crate) fn known_route(&self, slot: Slot) -> Option<Route> {
        self.map.read().route(slot)
    }

    /// `ask` sends the request over a route. The reply may be a redirect after all, when the I/O
    /// timeout has passed.
    pub(crate) fn follow(
        &self,
        slot: Slot,
        mut ask: impl FnMut(&Route) -> std::result::Result<Answered, Unanswered>,
    ) -> Result<Answered> {
        let deadline = Instant::now() + self.io_timeout();
        let mut pause = Backoff::new(Duration::from_millis(1), Duration::from_millis(50));
        let mut route = self.route(slot)?;
        loop {
            let outcome = ask(&route);
            let next = match &outcome {
                Ok(answered) => self.after_reply(slot, &route, &answered.reply),
                Err(Unanswered::NotSent(e)) if e.kind().is_outage() => self.after_failure(slot, &route),
                Err(_) => None,
            };
            let Some(next) = next.filter(|_| Instant::now() < deadline) else {
                return outcome.map_err(Unanswered::into_error);
            };
            // Two nodes may each say that the other has the slot, until both have heard of a move.
            if next.is_same(&route) || next.pauses {
                std::thread::sleep(pause.next());
            }
            route = next.route;
        }
    }

    /// Where to go after this reply; `None` if it is the answer.
    pub(super) fn after_reply(&self, slot: Slot, route: &Route, reply: &Reply) -> Option<Next> {
        if reply.is_demotion() {
            return self.after_failure(slot, route);
        }
        self.after_redirect(slot, route, &reply.redirect()?)
    }

    /// Where a request goes that was redirected.
    fn after_redirect(&self, slot: Slot, route: &Route, redirect: &Redirect) -> Option<Next> {
        let parse = |address: &str| NodeAddress::parse(address, &route.primary.address.host);
        match redirect {
            Redirect::Moved(address) => {
                self.note_moved(slot, &parse(address)?);
                self.refresh_some_time(route.version);
                Some(Next { route: self.route(slot).ok()?, pauses: route.asking })
            }
            Redirect::Ask(address) => {
                Some(Next { route: self.route_to_importing(&parse(address)?), pauses: route.asking })
            }
            Redirect::Later | Redirect::Partly => {
                self.refresh_some_time(route.version);
                Some(Next { route: self.route(slot).ok()?, pauses: true })
            }
        }
    }

    /// Where to go when the primary cannot be reached, or has become a replica; `None` if no other
    /// has the slot yet.
    pub(super) fn after_failure(&self, slot: Slot, route: &Route) -> Option<Next> {
        if let Err(e) = self.refresh(route.version, Some(&route.primary.address)) {
            log::debug!("the map of the cluster cannot be read now: {}", e.chain());
        }
        let next = Next { route: self.route(slot).ok()?, pauses: false };
        (!next.is_same(route)).then_some(next)
    }
}

/// Where a request goes next, and whether it waits a moment before.
pub(super) struct Next {
    pub(super) route: Route,
    pauses: bool,
}

impl Next {
    fn is_same(&self, route: &Route) -> bool {
        Arc::ptr_eq(&self.route.primary, &route.primary) && self.route.asking == route.asking
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
