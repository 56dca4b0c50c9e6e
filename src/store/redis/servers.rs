//! The servers of a client: one, or the primaries of a cluster.

use std::sync::Arc;

use super::cluster::{Cluster, Route, still_redirected};
use super::keys::Slot;
use super::server::{Server, Unanswered};
use super::wire::{
    Answer, Connector, Outcome, Redirect, RedisFailure, Reply, Request, UnknownOutcome,
};
use crate::base::error::Result;
use crate::base::node_status::NodeStatus;
use crate::signal::clock::Clock;
use crate::store::UnknownOutcomes;

#[derive(Debug)]
pub(super) struct Servers {
    kind: Kind,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
enum Kind {
    One(Box<Server>),
    Cluster(Arc<Cluster>),
}

impl Servers {
    /// `background` may have a shorter I/O timeout than `foreground`.
    pub(super) fn one(foreground: Connector, background: Connector, connections: usize) -> Self {
        let clock = foreground.clock.clone();
        Self { kind: Kind::One(Box::new(Server::new(foreground, background, connections))), clock }
    }

    pub(super) fn cluster(
        foreground: Connector,
        background: Connector,
        seeds: &[Connector],
        connections: usize,
    ) -> Self {
        let clock = foreground.clock.clone();
        let cluster = Cluster::new(foreground, background, seeds, connections);
        Self { kind: Kind::Cluster(Arc::new(cluster)), clock }
    }

    pub(super) fn as_one(&self) -> Option<&Server> {
        if let Kind::One(server) = &self.kind { Some(server) } else { None }
    }

    pub(super) fn as_cluster(&self) -> Option<&Arc<Cluster>> {
        if let Kind::Cluster(cluster) = &self.kind { Some(cluster) } else { None }
    }

    /// Sends a request about keys of `slot`, which may be repeated. Requests that may have run are
    /// added to `unknowns`.
    pub(super) fn ask(
        &self,
        slot: Slot,
        request: impl Fn() -> Request,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Answer> {
        let cluster = match &self.kind {
            Kind::One(server) => {
                return server.ask(&request, unknowns).map_err(Unanswered::into_error);
            }
            Kind::Cluster(cluster) => cluster,
        };
        let answered = cluster.follow(slot, |route| {
            let outcome =
                route.server().ask(&|| request().asking(route.is_asking()), &mut *unknowns);
            if let Ok(answered) = &outcome {
                self.is_redirected(&answered.reply, unknowns);
            }
            outcome
        })?;
        if answered.reply.redirect().is_some() {
            Err(still_redirected(answered.reply))
        } else {
            Ok(answered)
        }
    }

    /// Whether the request has to be sent again. If part of it has run, that is recorded in
    /// `unknowns`: whatever later attempts answer, the effects of this one may remain.
    pub(super) fn is_redirected(&self, reply: &Reply, unknowns: &mut UnknownOutcomes) -> bool {
        let redirect = reply.redirect();
        if redirect == Some(Redirect::Partly)
            && !unknowns.list::<UnknownOutcome>().iter().any(UnknownOutcome::is_partly)
        {
            unknowns.push(UnknownOutcome::partly(self.clock.now()));
        }
        redirect.is_some()
    }

    /// For a request that is harmless if it runs late: its unknown outcome is not recorded.
    pub(super) fn ask_repeatable(
        &self,
        slot: Slot,
        request: impl Fn() -> Request,
    ) -> Result<Answer> {
        self.ask(slot, request, &mut UnknownOutcomes::default())
    }

    /// A request that must not run twice.
    pub(super) fn ask_once(&self, slot: Slot, request: impl Fn() -> Request) -> Result<Reply> {
        let call = |server: &Server, request: Request| match server
            .pool
            .ask(request.alone(), server.pool.most)
        {
            Ok(answer) => Ok(answer),
            Err(RedisFailure::NotSent(error)) => Err(Unanswered::NotSent(error)),
            Err(RedisFailure::Unknown { error, .. }) => Err(Unanswered::Unknown(error)),
        };
        let cluster = match &self.kind {
            Kind::One(server) => {
                return call(server, request())
                    .map(|answered| answered.reply)
                    .map_err(Unanswered::into_error);
            }
            Kind::Cluster(cluster) => cluster,
        };
        // A script that frees a lock by force removes it last: if it ran only in part, it has not
        // done so.
        let answered = cluster
            .follow(slot, |route| call(route.server(), request().asking(route.is_asking())))?;
        if answered.reply.redirect().is_some() {
            Err(still_redirected(answered.reply))
        } else {
            Ok(answered.reply)
        }
    }

    /// Two requests in one write, if a connection is free now. A reply may be a redirect.
    pub(super) fn call_two(
        &self,
        slot: Slot,
        first: Request,
        second: Request,
    ) -> Option<[Outcome; 2]> {
        match &self.kind {
            Kind::One(server) => server.pool.ask_two(&first, &second),
            Kind::Cluster(cluster) => {
                let route: Route = cluster.known_route(slot)?;
                route.server().pool.ask_two(&first, &second)
            }
        }
    }

    pub(super) fn connect_now(&self) -> Result<()> {
        match &self.kind {
            Kind::One(server) => server.connect_now(),
            Kind::Cluster(cluster) => cluster.connect_now(),
        }
    }

    pub(super) fn nodes(&self) -> Vec<NodeStatus> {
        match &self.kind {
            Kind::One(server) => vec![server.status()],
            Kind::Cluster(cluster) => cluster.nodes(),
        }
    }

    pub(super) fn close(&self) {
        match &self.kind {
            Kind::One(server) => server.close(),
            Kind::Cluster(cluster) => cluster.close(),
        }
    }
}
