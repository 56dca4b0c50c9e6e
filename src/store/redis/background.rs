//! The connection of the watchdog thread, for renewals and undos.

use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::base::log;
use crate::store::Undo;
use crate::store::net::{self, Next};
use crate::store::redis::script;
use crate::store::redis::wire::{
    Connection, Connector, Pool, RedisFailure, Reply, Request, UnknownOutcome,
};

/// The connection for renewals and undos.
pub(super) type Background = net::Background<Connector>;

impl Background {
    /// Over a connection of the locks if it cannot open one.
    pub(super) fn exchange(
        &self,
        requests: &[Request],
        locks: &Pool,
    ) -> Result<(Vec<Reply>, Moment)> {
        let ask = |connection: &mut Connection| connection.exchange(requests);
        let exchange = || {
            let (replies, flight) = self.exchange_by(ask, |(replies, _)| next(replies))?;
            Ok((replies, flight.sent_at))
        };
        self.or_over_locks(exchange, || exchange_over(locks, requests))
    }

    /// Kills the connections of requests with unknown outcome and then releases, in one write.
    pub(super) fn resolve(&self, undos: &[Undo]) -> Result<Vec<Resolution>> {
        // Always a new connection: its handshake shows which server process answers.
        let mut connection = self.connect_anew()?;
        let mut requests = Vec::new();
        // One kill for each connection with an unknown outcome, and its index in `requests`. Where
        // none is possible, each request has a time of its own after which it cannot run.
        let mut kills: Vec<(&UnknownOutcome, usize)> = Vec::new();
        let mut plans = Vec::with_capacity(undos.len());
        for undo in undos {
            let mut plan = Plan { ready: true, kills: Vec::new() };
            for unknown in undo.unknowns.list::<UnknownOutcome>() {
                let known = kills
                    .iter()
                    .find(|(other, _)| other.same_connection(unknown))
                    .map(|(_, at)| *at);
                if known.is_some() {
                    plan.kills.extend(known);
                    continue;
                }
                match connection.kills_for(std::slice::from_ref(unknown)) {
                    Ok(kill) => {
                        for kill in kill {
                            kills.push((unknown, requests.len()));
                            plan.kills.push(requests.len());
                            requests.push(kill);
                        }
                    }
                    Err(_) => plan.ready = false,
                }
            }
            plans.push(plan);
        }
        let first_release = requests.len();
        let releases = undos.iter().zip(&plans).filter(|(_, plan)| plan.ready);
        let now = || self.connector.clock.now();
        requests.extend(releases.map(|(undo, _)| script::release(&undo.release(), now)));
        if requests.is_empty() {
            return Ok(undos.iter().map(|_| Resolution::NotYet).collect());
        }
        let (replies, _) = match connection.exchange(&requests) {
            Ok(done) => done,
            Err(RedisFailure::NotSent(error)) => return Err(error),
            Err(RedisFailure::Unknown { error, .. }) => {
                log::debug!(
                    "{} unknown outcomes cannot be resolved yet: {}",
                    undos.len(),
                    error.chain()
                );
                let sent = |plan: &Plan| plan.ready.then_some(Resolution::MayHaveRun);
                return Ok(plans
                    .iter()
                    .map(|plan| sent(plan).unwrap_or(Resolution::NotYet))
                    .collect());
            }
        };
        self.put_back(connection, next(&replies));
        let mut releases = replies[first_release..].iter();
        Ok(plans
            .into_iter()
            .map(|plan| {
                if !plan.ready {
                    return Resolution::NotYet;
                }
                let reply = releases.next().expect("a reply for every request");
                if reply.redirect().is_some() {
                    return Resolution::Redirected(reply.clone());
                }
                let released = script::release_answer(reply.clone()).is_ok();
                let killed = plan.kills.iter().all(|at| matches!(replies[*at], Reply::Int(_)));
                match (killed, released) {
                    (true, true) => Resolution::Done,
                    (true, false) => Resolution::NothingUnderWay,
                    (false, _) => Resolution::NotYet,
                }
            })
            .collect())
    }
}

/// Sends one request after the other. The moment is when the first one was sent.
fn exchange_over(locks: &Pool, requests: &[Request]) -> Option<(Vec<Reply>, Moment)> {
    let answers: Vec<_> =
        requests.iter().map(|request| locks.ask(request.clone(), 1).ok()).collect::<Option<_>>()?;
    let sent_at = answers.first()?.sent_at;
    Some((answers.into_iter().map(|answer| answer.reply).collect(), sent_at))
}

/// Not a connection to a server that is no longer the master, or that no longer knows the user.
fn next(replies: &[Reply]) -> Next {
    if replies.iter().any(Reply::is_logged_out) {
        Next::Replace
    } else if replies.iter().any(Reply::is_demotion) {
        Next::Close
    } else {
        Next::Keep
    }
}

/// How far an undo has got.
pub(super) enum Resolution {
    Done,
    /// None of its requests can run any more, but the release was refused.
    NothingUnderWay,
    /// The release was sent, and its reply was lost.
    MayHaveRun,
    /// Another node of the cluster has the slot.
    Redirected(Reply),
    NotYet,
}

impl From<Resolution> for crate::store::resolve::Resolution {
    fn from(resolution: Resolution) -> Self {
        match resolution {
            Resolution::Done => Self::Done,
            Resolution::NothingUnderWay => Self::Refused,
            Resolution::MayHaveRun => Self::MayHaveRun,
            // Whether the kills were refused is not known after a redirect.
            Resolution::NotYet | Resolution::Redirected(_) => Self::NotYet,
        }
    }
}

/// What one undo needs before the reply to its release counts.
struct Plan {
    /// Every unknown outcome can be resolved now.
    ready: bool,
    /// The indexes of the kills whose replies must not be errors.
    kills: Vec<usize>,
}
