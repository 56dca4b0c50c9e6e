//! One connection: a request, its answer, and what is known when there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::packet::{AnswerReader, Set, Sets, Transport, ended, malformed};
use super::server_error::ServerError;
use crate::base::error::{Error, Result};
use crate::base::lease::Moment;
use crate::base::log;
use crate::signal::clock::Clock;
use crate::store::net::{ENDED, KEEPALIVE_PAUSE, Stream};

const QUERY: u8 = 3;
/// The packet with which a client ends a connection.
const QUIT: [u8; 5] = [1, 0, 0, 0, 1];

/// Statements that are sent in one query. Each is a transaction of its own, unless it begins one.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(super) sql: String,
    /// It begins a transaction: after an error that is still open.
    pub(super) in_transaction: bool,
}

impl Request {
    pub(crate) fn new(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), in_transaction: false }
    }

    /// All of them or none.
    pub(crate) fn transaction(statements: impl Iterator<Item = String>) -> Self {
        let mut sql = String::from("START TRANSACTION");
        for statement in statements {
            sql.push(';');
            sql.push_str(&statement);
        }
        sql.push_str(";COMMIT");
        Self { sql, in_transaction: true }
    }
}

/// An answer, and the instant before the first byte of its request was sent.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) sets: Sets,
    pub(crate) sent_at: Moment,
    is_last: bool,
}

impl Answer {
    /// Whether its connection must not be used again.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last
    }

    pub(crate) fn all(self) -> Result<Vec<Set>> {
        self.sets.map_err(|e| e.to_error())
    }

    /// What the last statement has answered.
    pub(crate) fn last(self) -> Result<Set> {
        Ok(self.all()?.pop().unwrap_or_default())
    }
}

pub(crate) type Outcome = std::result::Result<Answer, MysqlFailure>;

/// The session at the other end of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    /// The name of the lock (`GET_LOCK`) that this session has from its start to its end. Whoever
    /// finds it free knows that nothing that was sent over the connection can run any more.
    pub(crate) mark: String,
    pub(super) ended: AtomicBool,
}

/// A request was sent on a connection that then failed. It can still run until its session has
/// ended.
#[derive(Debug, Clone)]
pub(crate) struct UnknownOutcome(pub(super) Arc<Session>);

impl UnknownOutcome {
    pub(crate) fn mark(&self) -> &str {
        &self.0.mark
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    pub(crate) fn note_end(&self) {
        self.0.ended.store(true, Ordering::Release);
    }
}

#[derive(Debug, Clone)]
pub(crate) enum MysqlFailure {
    /// No byte of it has reached the server.
    NotSent(Error),
    /// It may have run, or may still run. `ended`: the other end has closed the connection, or was
    /// silent after so long a pause that it may have been cut before. That says nothing about the
    /// server now, which can probably be asked again at once.
    Unknown { error: Error, unknown: UnknownOutcome, ended: bool },
}

impl MysqlFailure {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::NotSent(error) | Self::Unknown { error, .. } => error,
        }
    }
}

/// A live connection. Any error is final: after a timeout the next answer could belong to an
/// earlier request.
pub(crate) struct Connection {
    transport: Transport,
    session: Arc<Session>,
    clock: Arc<dyn Clock>,
    /// When its last request was sent.
    last_sent: Moment,
}

/// Sent and not yet answered.
pub(crate) struct InFlight {
    sent_at: Moment,
    packet: Vec<u8>,
    after_pause: bool,
    in_transaction: bool,
    session: Arc<Session>,
}

impl InFlight {
    pub(super) fn unknown(&self, error: Error) -> MysqlFailure {
        MysqlFailure::Unknown { error, unknown: UnknownOutcome(self.session.clone()), ended: false }
    }
}

impl Connection {
    pub(super) fn new(transport: Transport, mark: String, clock: Arc<dyn Clock>) -> Self {
        let session = Arc::new(Session { mark, ended: AtomicBool::new(false) });
        let last_sent = clock.now();
        Self { transport, session, clock, last_sent }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.transport.stream
    }

    /// Whether an idle connection can still be used.
    pub(super) fn is_alive(&mut self) -> bool {
        self.ensure_quiet().is_ok()
    }

    fn ensure_quiet(&mut self) -> Result<()> {
        self.transport.ensure_quiet().inspect_err(|error| {
            self.transport.stream.meter().broke();
            log::debug!("an idle connection has ended, or was sent something: {}", error.chain());
        })
    }

    pub(crate) fn if_alive(mut self) -> Option<Self> {
        self.is_alive().then_some(self)
    }

    /// Without it the server counts an aborted client. For an idle connection.
    pub(crate) fn say_goodbye(&mut self) {
        self.transport.stream.say_last(&QUIT);
    }

    pub(super) fn prepare(
        &mut self,
        request: &Request,
    ) -> std::result::Result<InFlight, MysqlFailure> {
        self.ensure_quiet().map_err(MysqlFailure::NotSent)?;
        let packet = self.transport.reader.pack(true, &[&[QUERY], request.sql.as_bytes()]);
        let packet = packet.map_err(MysqlFailure::NotSent)?;
        let sent_at = self.clock.now();
        let after_pause = sent_at.since(self.last_sent) > KEEPALIVE_PAUSE;
        self.last_sent = sent_at;
        self.transport.stream.meter().requests(1);
        let session = self.session.clone();
        let in_transaction = request.in_transaction;
        Ok(InFlight { sent_at, packet, after_pause, in_transaction, session })
    }

    pub(super) fn transmit(&mut self, flight: &InFlight) -> std::result::Result<(), MysqlFailure> {
        let sent = self.transport.send(&flight.packet);
        sent.map_err(|error| self.as_unknown(error, flight))
    }

    pub(super) fn recv(&mut self, flight: &InFlight) -> Outcome {
        match read_answer(&mut self.transport) {
            Ok(sets) => {
                let refused = sets.as_ref().err();
                let is_last = refused
                    .is_some_and(|error| flight.in_transaction || error.wants_new_connection());
                Ok(Answer { sets, sent_at: flight.sent_at, is_last })
            }
            Err(error) => Err(self.as_unknown(error, flight)),
        }
    }

    #[cold]
    pub(super) fn as_unknown(&self, error: Error, flight: &InFlight) -> MysqlFailure {
        // Counted after a timeout as well, because the connection is closed then.
        self.transport.stream.meter().broke();
        let is_silent = || {
            flight.after_pause
                && self.clock.now().since(flight.sent_at) >= self.transport.io_timeout
        };
        let ended = error.message() == ENDED || is_silent();
        MysqlFailure::Unknown { error, unknown: UnknownOutcome(self.session.clone()), ended }
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Outcome {
        let flight = self.prepare(request)?;
        self.transmit(&flight)?;
        self.recv(&flight)
    }
}

/// The outcome of a request of the handshake.
pub(super) fn simple(
    transport: &mut Transport,
    sql: &str,
) -> Result<std::result::Result<Vec<Set>, ServerError>> {
    let packet = transport.reader.pack(true, &[&[QUERY], sql.as_bytes()])?;
    transport.ensure_quiet()?;
    transport.stream.meter().requests(1);
    transport.send(&packet)?;
    read_answer(transport)
}

/// It counts only as a whole: later statements may have been refused.
fn read_answer(transport: &mut Transport) -> Result<Sets> {
    let deadline = transport.deadline();
    let mut answer = AnswerReader::default();
    loop {
        let packet = transport.recv(deadline)?;
        match answer.take(&packet).map_err(|_| malformed(&transport.address))? {
            None => {}
            Some(Err(error)) if error.ends_the_session() => return Err(ended(&error)),
            Some(sets) => return Ok(sets),
        }
    }
}
