//! Requests of the watchdog to several primaries, side by side: one that is dead or slow must not
//! keep the others from being renewed.
//!
//! Each primary but a single one is asked on a thread that ends with the exchange. Connecting
//! blocks (host names, handshakes), so one thread could not do it for several at once.

use std::sync::Arc;

use super::map::{Primary, Route};
use super::nodes::Cluster;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::store::redis::slot::Slot;
use crate::store::redis::wire::{Reply, Request, ask_all};

/// How often a request is sent at most: a redirect is followed, and one more that comes of it.
const PASSES: usize = 3;

/// The reply to one request, and when it was sent.
pub(crate) type Exchanged = Result<(Reply, Moment)>;

/// The requests for one primary, each with its place.
struct Group {
    primary: Arc<Primary>,
    places: Vec<(usize, Route)>,
    requests: Vec<Request>,
}

impl Cluster {
    /// Sends each request to the primary that has its slot, over the connection of the background.
    /// One outcome for each, in order. Every request may be repeated at any time.
    pub(crate) fn exchange_all(&self, requests: &[(Slot, Request)]) -> Vec<Exchanged> {
        let mut outcomes: Vec<Exchanged> = requests.iter().map(|_| Err(unanswered())).collect();
        let mut todo = Vec::with_capacity(requests.len());
        for (place, (slot, _)) in requests.iter().enumerate() {
            match self.route(*slot) {
                Ok(route) => todo.push((place, route)),
                Err(e) => outcomes[place] = Err(e),
            }
        }
        for _ in 0..PASSES {
            if todo.is_empty() {
                break;
            }
            let groups = grouped(std::mem::take(&mut todo), requests);
            let places: Vec<Vec<(usize, Route)>> = groups.iter().map(|group| group.places.clone()).collect();
            for (group, exchanged) in self.exchange_groups(groups) {
                for (at, (place, route)) in places[group].iter().enumerate() {
                    let outcome = match &exchanged {
                        Ok((replies, sent_at)) => Ok((replies[at].clone(), *sent_at)),
                        Err(e) => Err(e.clone()),
                    };
                    todo.extend(self.next_route(requests[*place].0, route, &outcome).map(|route| (*place, route)));
                    outcomes[*place] = outcome;
                }
            }
        }
        outcomes
    }

    fn exchange_groups(&self, groups: Vec<Group>) -> Vec<(usize, Result<(Vec<Reply>, Moment)>)> {
        let ask = |group: Group| {
            let server = &group.primary.server;
            server.background.exchange(&group.requests, &server.pool)
        };
        if groups.len() == 1 {
            return groups.into_iter().map(ask).enumerate().collect();
        }
        // A connect and a reply, each with its own bound.
        ask_all("lh-renew-node", groups, ask, 2 * self.background.io_timeout, |_| false)
    }

    fn next_route(&self, slot: Slot, route: &Route, outcome: &Exchanged) -> Option<Route> {
        let next = match outcome {
            Ok((reply, _)) => self.after_reply(slot, route, reply),
            Err(e) if e.kind().is_outage() => self.after_failure(slot, route),
            Err(_) => None,
        };
        next.map(|next| next.route)
    }
}

fn grouped(todo: Vec<(usize, Route)>, requests: &[(Slot, Request)]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (place, route) in todo {
        let request = requests[place].1.clone().asking(route.asking);
        let known = groups.iter_mut().find(|group| Arc::ptr_eq(&group.primary, &route.primary));
        let group = match known {
            Some(group) => group,
            None => {
                let primary = route.primary.clone();
                groups.push(Group { primary, places: Vec::new(), requests: Vec::new() });
                groups.last_mut().expect("it was just added")
            }
        };
        group.places.push((place, route));
        group.requests.push(request);
    }
    groups
}

#[cold]
fn unanswered() -> Error {
    Error::new(ErrorKind::Unreachable, "the node did not answer within the I/O timeout")
}
