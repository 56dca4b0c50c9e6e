//! The connection of the watchdog thread: renewals, and what settles unknown outcomes.

use std::time::Duration;

use parking_lot::Mutex;

use super::Undo;
use crate::error::Result;
use crate::lease::Moment;
use crate::script;
use crate::wire::{Dialer, Doubt, Ear, Failure, Link, Mouth, Reply, Request};

/// One connection of its own: renewals must not queue behind the locks' own traffic.
pub(super) struct Background {
    dialer: Dialer,
    link: Mutex<Option<Link>>,
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Background").field("endpoint", &self.dialer.endpoint).finish_non_exhaustive()
    }
}

impl Background {
    pub(super) fn new(dialer: Dialer) -> Self {
        Self { dialer, link: Mutex::new(None) }
    }

    pub(super) fn listen(&self, read_timeout: Duration) -> Result<(Ear, Mouth)> {
        self.dialer.listen(read_timeout)
    }

    pub(super) fn close(&self) {
        // A renewal under way keeps its connection until it is answered; the thread that waits for it drops it.
        if let Some(mut link) = self.link.try_lock() {
            *link = None;
        }
    }

    pub(super) fn exchange(&self, requests: &[Request]) -> Result<(Vec<Reply>, Moment)> {
        let mut place = self.link.lock();
        let mut link = self.take_or_dial(&mut place)?;
        match self.send(&mut link, requests) {
            Ok((replies, sent_at)) => {
                if !replies.iter().any(Reply::is_demotion) {
                    *place = Some(link);
                }
                Ok((replies, sent_at))
            }
            Err(Failure::NotSent(error) | Failure::InDoubt { error, .. }) => Err(error),
        }
    }

    fn take_or_dial(&self, place: &mut Option<Link>) -> Result<Link> {
        match place.take() {
            Some(link) => Ok(link),
            None => self.dialer.dial(),
        }
    }

    /// A connection that ended in its sleep gets one successor: everything sent here may be repeated at any time.
    fn send(&self, link: &mut Link, requests: &[Request]) -> std::result::Result<(Vec<Reply>, Moment), Failure> {
        link.mark_idle();
        let outcome = match link.exchange(requests) {
            Err(Failure::InDoubt { stale: true, .. }) => {
                *link = self.dialer.dial().map_err(Failure::NotSent)?;
                link.exchange(requests)
            }
            outcome => outcome,
        };
        outcome.map(|(replies, flight)| (replies, flight.sent_at))
    }

    /// Kills the connections in doubt, then releases, in one write.
    pub(super) fn settle(&self, undos: &[Undo]) -> Result<Vec<Settled>> {
        let mut place = self.link.lock();
        // Always a fresh connection: its handshake tells which process of the server answers now.
        *place = None;
        let mut link = self.dialer.dial()?;
        let mut requests = Vec::new();
        // One kill for each connection in doubt, and where in `requests` it stands; none where none is needed.
        let mut kills: Vec<(&Doubt, Option<usize>)> = Vec::new();
        let mut plans = Vec::with_capacity(undos.len());
        for undo in undos {
            let mut plan = Plan { ready: true, kills: Vec::new() };
            for doubt in undo.doubts.iter() {
                let known = kills.iter().find(|(other, _)| other.same_connection(doubt)).map(|(_, at)| *at);
                let at = match known {
                    Some(at) => at,
                    None => match link.kills_for(std::iter::once(doubt)) {
                        Ok(kill) => {
                            let at = (!kill.is_empty()).then_some(requests.len());
                            requests.extend(kill);
                            kills.push((doubt, at));
                            at
                        }
                        Err(_) => {
                            plan.ready = false;
                            None
                        }
                    },
                };
                plan.kills.extend(at);
            }
            plans.push(plan);
        }
        let first_release = requests.len();
        let releases = undos.iter().zip(&plans).filter(|(_, plan)| plan.ready);
        requests.extend(releases.map(|(undo, _)| script::release(&undo.keys, &undo.holder, undo.left)));
        if requests.is_empty() {
            return Ok(undos.iter().map(|_| Settled::NotYet).collect());
        }
        let (replies, _) = match link.exchange(&requests) {
            Ok(done) => done,
            Err(Failure::NotSent(error)) => return Err(error),
            Err(Failure::InDoubt { error, .. }) => {
                log::debug!("{} unknown outcomes cannot be settled yet: {error}", undos.len());
                return Ok(undos.iter().map(|_| Settled::MayHaveRun).collect());
            }
        };
        *place = Some(link);
        let mut releases = replies[first_release..].iter();
        Ok(plans
            .into_iter()
            .map(|plan| {
                if !plan.ready {
                    return Settled::NotYet;
                }
                let released = releases.next().is_some_and(|reply| script::release_answer(reply.clone()).is_ok());
                let killed = plan.kills.iter().all(|at| matches!(replies[*at], Reply::Int(_)));
                match (killed, released) {
                    (true, true) => Settled::Done,
                    (true, false) => Settled::NothingUnderWay,
                    (false, _) => Settled::NotYet,
                }
            })
            .collect())
    }
}

/// How far an undo has come.
pub(super) enum Settled {
    Done,
    /// Nothing of it can run any more, but the release was refused.
    NothingUnderWay,
    /// It was sent, and the reply was lost.
    MayHaveRun,
    NotYet,
}

/// What one undo needs before its release may be believed.
struct Plan {
    /// Every doubt can be settled now.
    ready: bool,
    /// The kills whose replies must not be errors.
    kills: Vec<usize>,
}
