//! Requests of the watchdog to several primaries, side by side: one that is dead or slow must not
//! delay the renewals at the others.
//!
//! With more than one primary, each is asked on a thread that ends with the exchange. Connecting
//! blocks (host names, handshakes), so one thread could not do it for several at once.

use std::sync::Arc;

use super::follow::still_redirected;
use super::map::{Primary, Route};
use super::nodes::Cluster;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::base::log;
use crate::store::Undo;
use crate::store::redis::background::Resolution;
use crate::store::redis::keys::Slot;
use crate::store::redis::wire::{Reply, Request, ask_all};

/// How often a request is sent at most: a redirect is followed, and one more that results from it.
const PASSES: usize = 3;

/// The reply to one request, and when it was sent.
pub(crate) type Exchanged = Result<(Reply, Moment)>;

/// The replies of one group, or why there are none.
type GroupExchanged = Result<(Vec<Reply>, Moment)>;

/// The requests for one primary, each with its index.
struct Group {
    primary: Arc<Primary>,
    places: Vec<(usize, Route)>,
    requests: Vec<Request>,
}

impl Cluster {
    /// Sends each request to the primary that has its slot, over the background's connection. One
    /// outcome for each, in order. Every request may be repeated at any time.
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
            let places: Vec<Vec<(usize, Route)>> =
                groups.iter().map(|group| group.places.clone()).collect();
            for (group, exchanged) in self.exchange_groups(groups) {
                for (at, (place, route)) in places[group].iter().enumerate() {
                    let outcome = match &exchanged {
                        Ok((replies, sent_at)) => Ok((replies[at].clone(), *sent_at)),
                        Err(e) => Err(e.clone()),
                    };
                    todo.extend(
                        self.next_route(requests[*place].0, route, &outcome)
                            .map(|route| (*place, route)),
                    );
                    outcomes[*place] = outcome;
                }
            }
        }
        let answer = |outcome: Exchanged| match outcome {
            Ok((reply, _)) if reply.redirect().is_some() => Err(still_redirected(reply)),
            outcome => outcome,
        };
        outcomes.into_iter().map(answer).collect()
    }

    fn exchange_groups(&self, groups: Vec<Group>) -> Vec<(usize, GroupExchanged)> {
        self.side_by_side(groups, |group| {
            let server = &group.primary.server;
            server.background.exchange(&group.requests, &server.pool)
        })
    }

    /// One outcome for each group that has answered in time, with its index.
    fn side_by_side<G: Send + 'static, T: Send + 'static>(
        &self,
        groups: Vec<G>,
        ask: impl Fn(G) -> Result<T> + Clone + Send + 'static,
    ) -> Vec<(usize, Result<T>)> {
        if groups.len() == 1 {
            return groups.into_iter().map(ask).enumerate().collect();
        }
        // A connect and a reply, each with a limit of its own.
        ask_all("lh-renew-node", groups, ask, 2 * self.background.io_timeout, |_| false)
    }

    /// Resolves each undo at the primary that has its slot, over the background's connection. One
    /// resolution for each, in order. A redirected undo is left for the next round; while its slot
    /// is half moved it may have to wait for the end of the move.
    pub(crate) fn resolve_all(&self, undos: &[(Slot, Undo)]) -> Vec<Resolution> {
        let mut resolved: Vec<Resolution> = undos.iter().map(|_| Resolution::NotYet).collect();
        let mut groups: Vec<(Route, Vec<usize>)> = Vec::new();
        for (place, (slot, _)) in undos.iter().enumerate() {
            let Ok(route) = self.route(*slot) else { continue };
            // A thread that has not answered in time may still send it.
            resolved[place] = Resolution::MayHaveRun;
            match groups.iter_mut().find(|(known, _)| known.is_same(&route)) {
                Some((_, places)) => places.push(place),
                None => groups.push((route, vec![place])),
            }
        }
        let of_group = |(route, places): &(Route, Vec<usize>)| {
            let undos: Vec<Undo> = places.iter().map(|&place| undos[place].1.clone()).collect();
            (route.primary.clone(), undos)
        };
        let asked = groups.iter().map(of_group).collect();
        let ask =
            |(primary, undos): (Arc<Primary>, Vec<Undo>)| primary.server.background.resolve(&undos);
        for (group, outcome) in self.side_by_side(asked, ask) {
            let (route, places) = &groups[group];
            match outcome {
                Ok(resolutions) => {
                    for (&place, resolution) in places.iter().zip(resolutions) {
                        resolved[place] = self.after_resolution(undos[place].0, route, resolution);
                    }
                }
                Err(e) => {
                    log::debug!(
                        "{} unknown outcomes cannot be resolved yet: {}",
                        places.len(),
                        e.chain()
                    );
                    for &place in places {
                        resolved[place] = Resolution::NotYet;
                    }
                    self.after_failure(undos[places[0]].0, route);
                }
            }
        }
        resolved
    }

    fn after_resolution(&self, slot: Slot, route: &Route, resolution: Resolution) -> Resolution {
        let Resolution::Redirected(reply) = resolution else { return resolution };
        self.after_reply(slot, route, &reply);
        Resolution::NotYet
    }

    fn next_route(&self, slot: Slot, route: &Route, outcome: &Exchanged) -> Option<Route> {
        match outcome {
            Ok((reply, _)) => self.after_reply(slot, route, reply),
            Err(e) if e.kind().is_outage() => self.after_failure(slot, route),
            Err(_) => None,
        }
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
    Error::new(
        ErrorKind::Unreachable,
        "the node did not answer within the I/O timeout (io_timeout)",
    )
}
