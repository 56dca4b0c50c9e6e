//! The connection of the watchdog thread: renewals, and what settles unknown outcomes.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::store::Undo;
use crate::store::redis::script;
use crate::store::redis::wire::{Dialer, Doubt, Ear, Failure, Link, Mouth, Pool, Reply, Request};

/// One connection of its own: renewals must not queue behind the locks' own traffic.
pub(super) struct Background {
    dialer: Dialer,
    idle: Mutex<Idle>,
}

/// The connection while nobody uses it.
#[derive(Default)]
struct Idle {
    link: Option<Link>,
    /// Nothing is put back any more: nobody would end it before the client's last handle goes.
    closed: bool,
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Background").field("endpoint", &self.dialer.endpoint).finish_non_exhaustive()
    }
}

impl Background {
    pub(super) fn new(dialer: Dialer) -> Self {
        Self { dialer, idle: Mutex::default() }
    }

    pub(super) fn listen(&self, read_timeout: Duration) -> Result<(Ear, Mouth)> {
        self.dialer.listen(read_timeout)
    }

    pub(super) fn close(&self) {
        // A renewal under way keeps its connection until it is answered; the thread that waits for it drops it.
        let mut idle = self.idle.lock();
        idle.closed = true;
        idle.link = None;
    }

    /// Over a connection of the locks where the server or the system grants no other (`maxclients`, open files): a hold
    /// must not be lost while its client has a connection that works.
    pub(super) fn exchange(&self, requests: &[Request], locks: &Pool) -> Result<(Vec<Reply>, Moment)> {
        let started = Instant::now();
        match self.exchange_alone(requests) {
            Ok(done) => Ok(done),
            // A connect that used up its time tells that the server hangs: no more time for it.
            Err(Failure::NotSent(error)) if started.elapsed() < self.dialer.io_timeout => {
                log::debug!("renewing over a connection of the locks: {}", error.chain());
                exchange_over(locks, requests).ok_or(error)
            }
            Err(Failure::NotSent(error) | Failure::InDoubt { error, .. }) => Err(error),
        }
    }

    fn exchange_alone(&self, requests: &[Request]) -> std::result::Result<(Vec<Reply>, Moment), Failure> {
        let mut link = self.take_or_dial().map_err(Failure::NotSent)?;
        let (replies, sent_at) = self.send(&mut link, requests)?;
        if !replies.iter().any(Reply::is_demotion) {
            self.put_back(link);
        }
        Ok((replies, sent_at))
    }

    fn take_or_dial(&self) -> Result<Link> {
        let idle = self.idle.lock().link.take();
        idle.map_or_else(|| self.dialer.dial(), Ok)
    }

    fn put_back(&self, link: Link) {
        let mut idle = self.idle.lock();
        if !idle.closed {
            idle.link = Some(link);
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
        // Always a fresh connection: its handshake tells which process of the server answers now.
        drop(self.idle.lock().link.take());
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
        self.put_back(link);
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

/// One after the other; the moment is that of the first.
fn exchange_over(locks: &Pool, requests: &[Request]) -> Option<(Vec<Reply>, Moment)> {
    let answers: Vec<_> =
        requests.iter().map(|request| locks.call_over_open(request.clone()).ok()).collect::<Option<_>>()?;
    let sent_at = answers.first()?.sent_at;
    Some((answers.into_iter().map(|answer| answer.reply).collect(), sent_at))
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
