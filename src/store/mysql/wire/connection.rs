//! One connection: a request, its answer, and what is known when there is none.

use super::packet::{AnswerReader, PacketReader, Set, Sets, Transport, ended, malformed};
use super::server_error::ServerError;
use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::store::database::{self, Link, Sent};

const QUERY: u8 = 3;

/// Sent before a request, in the same query: fails if the server is no primary any more. What it
/// says of locks is out of date then, and writes it refuses only from users without the right to
/// write in spite of `read_only`. After an error the rest of a query does not run. Not `DO`, which
/// ignores errors. MariaDB 12 has words for numbers.
const STILL_WRITES: &[u8] =
    b"SET @leasehold_writes=IF(@@global.read_only IN ('0','OFF'),1,(SELECT 1 UNION SELECT 2));";
/// How it fails: the subquery has more than one row.
const IS_NO_PRIMARY: u16 = 1242;

/// Statements that are sent in one query. Each is a transaction of its own, unless it begins one.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(super) sql: String,
    /// It begins a transaction: after an error that is still open.
    pub(super) in_transaction: bool,
    to_any: bool,
}

impl Request {
    pub(crate) fn new(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), in_transaction: false, to_any: false }
    }

    /// One that a server also answers which is no primary: about itself, or its sessions.
    pub(crate) fn to_any(sql: impl Into<String>) -> Self {
        Self { to_any: true, ..Self::new(sql) }
    }

    /// All of them or none.
    pub(crate) fn transaction(statements: impl Iterator<Item = String>) -> Self {
        let mut sql = String::from("START TRANSACTION");
        for statement in statements {
            sql.push(';');
            sql.push_str(&statement);
        }
        sql.push_str(";COMMIT");
        Self { in_transaction: true, ..Self::new(sql) }
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

pub(crate) type MysqlFailure = database::Failure<String>;
pub(crate) type UnknownOutcome = database::UnknownOutcome<String>;

/// Its session has the name of the lock (`GET_LOCK`) that it has from its start to its end. Whoever
/// finds it free knows that nothing that was sent over the connection can run any more.
pub(crate) type Connection = Link<PacketReader, String>;

/// Sent and not yet answered.
pub(crate) struct InFlight {
    pub(super) sent: Sent<String>,
    packet: Vec<u8>,
    in_transaction: bool,
    to_any: bool,
}

impl Connection {
    pub(super) fn pack(
        &mut self,
        request: &Request,
    ) -> std::result::Result<InFlight, MysqlFailure> {
        let sent = self.begin()?;
        let Request { ref sql, in_transaction, to_any } = *request;
        let first = if to_any { b"" } else { STILL_WRITES };
        let packet = self.transport.reader.pack(true, &[&[QUERY], first, sql.as_bytes()]);
        let packet = packet.map_err(MysqlFailure::NotSent)?;
        self.transport.stream.meter.requests(1);
        Ok(InFlight { sent, packet, in_transaction, to_any })
    }

    pub(super) fn send(&mut self, flight: &InFlight) -> std::result::Result<(), MysqlFailure> {
        let sent = self.transport.send(&flight.packet);
        sent.map_err(|error| self.as_unknown(error, &flight.sent, false))
    }

    pub(super) fn recv(&mut self, flight: &InFlight) -> Outcome {
        match read_answer(&mut self.transport) {
            Ok(mut sets) => {
                match &mut sets {
                    Ok(sets) if !flight.to_any => drop(sets.remove(0)),
                    Err(error) if !flight.to_any && error.code == IS_NO_PRIMARY => {
                        *error = ServerError::no_primary();
                    }
                    _ => {}
                }
                let is_last = sets.as_ref().is_err_and(|error| {
                    error.wants_new_connection() || flight.in_transaction && !self.rolls_back()
                });
                Ok(Answer { sets, sent_at: flight.sent.at, is_last })
            }
            Err(error) => Err(self.as_unknown(error, &flight.sent, false)),
        }
    }

    /// Ends the transaction in which a statement was refused.
    fn rolls_back(&mut self) -> bool {
        matches!(simple(&mut self.transport, "ROLLBACK"), Ok(Ok(_)))
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Outcome {
        let flight = self.pack(request)?;
        self.send(&flight)?;
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
    transport.stream.meter.requests(1);
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
