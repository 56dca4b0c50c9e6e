//! Requests that may be repeated: an earlier attempt must not run after a later one.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::session::{Failure, UnknownOutcome};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::random::Backoff;
use crate::os::Mutex;
use crate::signal::clock::Clock;
use crate::store::UnknownOutcomes;
use crate::store::net::{Outcome, Pool, PooledConnector, Repeats};

/// What to say after a forced unlock without an answer.
pub(crate) const MAY_BE_FREE: &str =
    "the lock may have been freed; check it before you repeat this";

/// How a database is asked, and how a session is ended.
pub(crate) trait Database:
    PooledConnector<Unknown = UnknownOutcome<Self::SessionId>, Request: Clone>
{
    type SessionId: Debug + Clone + Send + Sync + 'static;

    fn clock(&self) -> &dyn Clock;

    /// Sends all requests over one connection, each as a transaction of its own.
    fn ask_all(
        &self,
        connection: &mut Self::Connection,
        requests: &[Self::Request],
    ) -> std::result::Result<Vec<Self::Answer>, Failure<Self::SessionId>>;

    /// One request, one answer. Makes a connection only if there is none.
    fn ask_over_open(pool: &Pool<Self>, request: Self::Request) -> Outcome<Self> {
        pool.ask(request, 1)
    }

    /// Ends a session. Fails if that is refused, and not if it is gone.
    fn kill(session: &Self::SessionId) -> Self::Request;

    fn check_kill(answer: Self::Answer) -> Result<()>;

    /// Asks whether a session has ended.
    fn look_for(session: &Self::SessionId) -> Self::Request;

    fn has_ended(answer: Self::Answer) -> Result<bool>;
}

/// The connections for lock calls.
pub(crate) struct Server<C: Database> {
    pub(crate) pool: Arc<Pool<C>>,
    io_timeout: Duration,
    /// Held by the thread that ends sessions for all.
    settling: Mutex<Option<Trouble<C::SessionId>>>,
}

/// Sessions that could not be ended.
struct Trouble<I> {
    sessions: Vec<UnknownOutcome<I>>,
    at: Instant,
    why: Error,
}

impl<C: Database> Debug for Server<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

impl<C: Database> Server<C> {
    pub(crate) fn new(connector: C, connections: usize) -> Self {
        let io_timeout = connector.io_timeout();
        Self { pool: Pool::new(connector, connections), io_timeout, settling: Mutex::new(None) }
    }

    /// Connects once, which also checks the server and makes what is missing.
    pub(crate) fn connect_now(&self) -> Result<()> {
        self.pool.connect_aside()?.keep();
        Ok(())
    }

    /// Sends a request that may be repeated once no earlier attempt can run any more. With unknown
    /// outcomes it is sent after their sessions have ended. If its connection ends, that says
    /// nothing about the server now (it was restarted, a router has forgotten the connection), so
    /// it is repeated at once.
    ///
    /// Whoever reads the answer has to look at `unknowns` *afterwards* to know whether an earlier
    /// attempt may have run: otherwise a release that ran, and was repeated here, would be reported
    /// as a lost lock.
    pub(crate) fn ask(
        &self,
        request: &C::Request,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<C::Answer> {
        self.ask_with(|_| request.clone(), unknowns)
    }

    /// [`ask`](Self::ask) for a request that says whether it is a repeat.
    pub(crate) fn ask_with(
        &self,
        request: impl Fn(bool) -> C::Request,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<C::Answer> {
        let mut repeats = self.repeats();
        loop {
            self.settle(unknowns.list())?;
            match self.call(request(!unknowns.is_empty())) {
                Err(Failure::Unknown { error, unknown, ended }) => {
                    unknowns.push(unknown);
                    if !ended || !repeats.one_more() {
                        return Err(error);
                    }
                }
                outcome => return outcome.map_err(Failure::into_error),
            }
        }
    }

    /// Sends a request that may run at any time and any number of times: earlier attempts are left
    /// alone.
    pub(crate) fn ask_freely(&self, request: &C::Request) -> Result<C::Answer> {
        let mut repeats = self.repeats();
        loop {
            match self.call(request.clone()) {
                Err(Failure::Unknown { ended: true, .. }) if repeats.one_more() => {}
                outcome => return outcome.map_err(Failure::into_error),
            }
        }
    }

    /// Sends a request that must not run twice: on a connection that was just made, because one
    /// that has lain idle may have ended unseen, and nobody would know whether it ran.
    /// `may_have_run`: what to say if nobody knows.
    pub(crate) fn ask_once(&self, request: &C::Request, may_have_run: &str) -> Result<C::Answer> {
        let began = Instant::now();
        let outcome = match self.pool.connect_aside() {
            Ok(mut connection) => {
                let request = std::slice::from_ref(request);
                let outcome = self.pool.connector.ask_all(&mut connection, request).map(only);
                if outcome.as_ref().is_ok_and(|answer| !C::is_last(answer)) {
                    connection.keep();
                }
                outcome
            }
            // The server is full, or this process has too many open files, and the client has
            // connections. Not after a connect that timed out: they would hang, too.
            Err(_) if began.elapsed() < self.io_timeout && self.pool.reached().0 => {
                self.call(request.clone())
            }
            Err(error) => Err(Failure::NotSent(error)),
        };
        outcome.map_err(|failure| match failure {
            Failure::Unknown { error, .. } => error.and_also(may_have_run),
            Failure::NotSent(error) => error,
        })
    }

    /// What a server has refused because it takes no writes any more, or lacks what the client
    /// makes, did not run. That connection was closed with all idle ones, and a new one finds the
    /// server that does, and makes it.
    fn call(&self, request: C::Request) -> Outcome<C> {
        match self.pool.ask(request.clone(), self.pool.most) {
            Ok(answer) if C::is_last(&answer) => self.pool.ask(request, self.pool.most),
            outcome => outcome,
        }
    }

    fn repeats(&self) -> Repeats<'_> {
        Repeats::over(&self.pool, self.pool.connector.clock())
    }

    /// Returns when no earlier attempt can run any more. When a write with the requests of many
    /// threads is lost, one of them ends its session, and the others wait for that. Everything goes
    /// through the pool, so that all of them together make no connection beside it.
    fn settle(&self, earlier: &[UnknownOutcome<C::SessionId>]) -> Result<()> {
        if earlier.iter().all(UnknownOutcome::has_ended) {
            return Ok(());
        }
        let began = Instant::now();
        let Some(mut trouble) = self.settling.try_lock_for(self.io_timeout) else {
            let why = "other threads still wait for earlier attempts to end";
            return Err(Error::new(ErrorKind::Unreachable, why));
        };
        // What has failed for another thread meanwhile is not tried again by each: together they
        // would take an I/O timeout each, one after the other. Other sessions may end at once.
        let living = || earlier.iter().filter(|unknown| !unknown.has_ended());
        let is_known = |Trouble { sessions, at, .. }: &&Trouble<_>| {
            let has = |one: &_| sessions.iter().any(|other| other.same_session(one));
            *at > began && living().any(has)
        };
        if let Some(Trouble { why, .. }) = trouble.as_ref().filter(is_known) {
            return Err(why.clone());
        }
        let ask = |requests: &[C::Request]| {
            requests.iter().map(|request| self.ask_freely(request)).collect()
        };
        // Half of it: the others wait for this thread no longer than one.
        let patience = self.io_timeout / 2;
        let settled = end_sessions::<C>(earlier, patience, ask).and_then(|()| {
            if living().next().is_none() {
                return Ok(());
            }
            let why = "an earlier attempt may still run: its session was asked to end and has not ended yet";
            Err(Error::new(ErrorKind::Unreachable, why))
        });
        *trouble = settled.as_ref().err().map(|error| Trouble {
            sessions: living().cloned().collect(),
            at: Instant::now(),
            why: error.clone(),
        });
        settled
    }
}

pub(super) fn only<A>(mut answers: Vec<A>) -> A {
    answers.pop().expect("an answer for every request")
}

/// Ends the sessions of requests with unknown outcome, and waits until they have ended, but no
/// longer than `patience`: a session that is committing still commits. Each notes its end.
pub(crate) fn end_sessions<'u, C: Database>(
    unknowns: impl IntoIterator<Item = &'u UnknownOutcome<C::SessionId>>,
    patience: Duration,
    mut ask: impl FnMut(&[C::Request]) -> Result<Vec<C::Answer>>,
) -> Result<()> {
    let mut living: Vec<&UnknownOutcome<C::SessionId>> = Vec::new();
    // Another thread may have ended some of them meanwhile.
    for unknown in unknowns.into_iter().filter(|unknown| !unknown.has_ended()) {
        if !living.iter().any(|other| other.same_session(unknown)) {
            living.push(unknown);
        }
    }
    let about = |living: &[&UnknownOutcome<C::SessionId>], request: fn(&C::SessionId) -> _| {
        living.iter().map(|unknown| request(unknown.session())).collect::<Vec<C::Request>>()
    };
    for answer in ask(&about(&living, C::kill))? {
        C::check_kill(answer)?;
    }
    let mut pause = Backoff::new(Duration::from_millis(1), Duration::from_millis(20));
    let deadline = Instant::now() + patience;
    loop {
        let answers = ask(&about(&living, C::look_for))?;
        let mut left = Vec::new();
        for (answer, unknown) in answers.into_iter().zip(living) {
            if C::has_ended(answer)? {
                unknown.note_end();
            } else {
                left.push(unknown);
            }
        }
        living = left;
        if living.is_empty() || Instant::now() >= deadline {
            return Ok(());
        }
        std::thread::sleep(pause.next());
    }
}
