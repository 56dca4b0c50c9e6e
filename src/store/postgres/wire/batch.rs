//! Requests that another thread sends: where their callers wait, and how they get an outcome.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::connection::{Connection, InFlight, Section};
use super::outcome::{Answer, Outcome, PostgresFailure, UnknownOutcome};
use super::request::{Batching, Request, Row};
use crate::base::error::{Error, ErrorKind};

/// A queued request and the place where its caller waits.
pub(super) struct QueuedRequest {
    pub(super) request: Request,
    pub(super) state: Mutex<RequestState>,
    pub(super) changed: Condvar,
}

pub(super) enum RequestState {
    Queued,
    /// A leader has sent it and sets the outcome, even if it panics.
    Sent,
    /// The caller is the leader now: with this connection, or with one that it makes (a place in
    /// `open` is reserved).
    Lead(Option<Connection>),
    Done(Outcome),
    Taken,
}

impl QueuedRequest {
    pub(super) fn new(request: Request) -> Self {
        Self { request, state: Mutex::new(RequestState::Queued), changed: Condvar::new() }
    }

    pub(super) fn set(&self, state: RequestState) {
        *self.state.lock() = state;
        self.changed.notify_one();
    }
}

/// The followers of a leader. On drop each gets an outcome, also when the leader panics.
pub(super) struct Batch {
    followers: Vec<Arc<QueuedRequest>>,
    outcomes: Vec<Option<Outcome>>,
    own: Option<Outcome>,
    /// The unknown outcome that all of them have if their answers do not come; set once the batch
    /// is sent.
    unknown: Option<UnknownOutcome>,
}

/// A member of a batch: `None` is the leader itself.
type Member = Option<usize>;

impl Batch {
    pub(super) fn new(followers: Vec<Arc<QueuedRequest>>) -> Self {
        let outcomes = followers.iter().map(|_| None).collect();
        Self { followers, outcomes, own: None, unknown: None }
    }

    /// Sends all requests in one write and reads the answers: first the releases in one
    /// transaction, which waiters wait for, then the acquires in another one. False if the
    /// connection is broken.
    pub(super) fn run(&mut self, connection: &mut Connection, own: &Request) -> bool {
        let mut members: Vec<(Member, &Request)> = vec![(None, own)];
        let followers = self.followers.clone();
        members.extend(followers.iter().enumerate().map(|(place, queued)| (Some(place), &queued.request)));
        let (mut releases, mut others): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|(_, request)| matches!(request.batching, Batching::Release));
        releases.sort_by(|(_, a), (_, b)| a.key().cmp(b.key()));
        others.sort_by(|(_, a), (_, b)| a.key().cmp(b.key()));
        let groups: Vec<Vec<(Member, &Request)>> =
            [releases, others].into_iter().filter(|group| !group.is_empty()).collect();
        let sections: Vec<Section<'_>> = groups.iter().map(|group| section(group)).collect();
        let mut flight = match connection.send(&sections) {
            Ok(flight) => flight,
            Err(failure) => {
                groups.iter().flatten().for_each(|(member, _)| self.set(*member, Err(failure.clone())));
                return false;
            }
        };
        self.unknown = Some(flight.unknown.clone());
        for (done, group) in groups.iter().enumerate() {
            if let Err(failure) = self.read(connection, &mut flight, group) {
                let rest = groups[done..].iter().flatten();
                rest.for_each(|(member, _)| self.set(*member, Err(failure.clone())));
                return false;
            }
        }
        true
    }

    fn read(
        &mut self,
        connection: &mut Connection,
        flight: &mut InFlight,
        group: &[(Member, &Request)],
    ) -> std::result::Result<(), PostgresFailure> {
        let sent_at = flight.sent_at;
        match connection.recv(flight, group.len())? {
            Ok(answers) => {
                for ((member, _), rows) in group.iter().zip(answers) {
                    let together = group.len() > 1 && is_locked_now(&rows);
                    let outcome = if together {
                        Err(PostgresFailure::NotTogether)
                    } else {
                        Ok(Answer { rows: Ok(rows), sent_at })
                    };
                    self.set(*member, outcome);
                }
            }
            // One of several may have failed all of them.
            Err(_) if group.len() > 1 => {
                group.iter().for_each(|(member, _)| self.set(*member, Err(PostgresFailure::NotTogether)));
            }
            Err(error) => self.set(group[0].0, Ok(Answer { rows: Err(error), sent_at })),
        }
        Ok(())
    }

    fn set(&mut self, member: Member, outcome: Outcome) {
        match member {
            None => self.own = Some(outcome),
            Some(place) => self.outcomes[place] = Some(outcome),
        }
    }

    /// The outcome of the leader.
    pub(super) fn take_own(&mut self) -> Outcome {
        self.own.take().expect("every member of a batch that was run has an outcome")
    }
}

/// As one transaction. By itself a request waits for its row.
fn section<'r>(group: &[(Member, &'r Request)]) -> Section<'r> {
    let alone = group.len() == 1;
    let statement = |request: &Request| match request.batching {
        Batching::Acquire(statement) if !alone => statement,
        _ => request.statement,
    };
    group.iter().map(|(_, request)| (*request, statement(request))).collect()
}

/// The answer of a batched acquire whose row another transaction has locked just now.
fn is_locked_now(rows: &[Row]) -> bool {
    rows.first().and_then(|row| row.first()).is_some_and(|status| status.as_deref() == Some("6"))
}

impl Drop for Batch {
    fn drop(&mut self) {
        for (queued, outcome) in self.followers.drain(..).zip(self.outcomes.drain(..)) {
            let outcome = outcome.unwrap_or_else(|| {
                let error = Error::new(ErrorKind::Unreachable, "the thread that carried this request panicked");
                Err(match &self.unknown {
                    Some(unknown) => PostgresFailure::Unknown { error, unknown: unknown.clone() },
                    None => PostgresFailure::NotSent(error),
                })
            });
            queued.set(RequestState::Done(outcome));
        }
    }
}
