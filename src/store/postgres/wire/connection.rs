//! One connection, and its requests in transactions.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{DataRowBody, Message};
use postgres_protocol::message::frontend;

use super::messages::{MessageReader, Transport, ended, malformed};
use super::outcome::{Answer, Backend, Boot, PostgresFailure, UnknownOutcome};
use super::request::{Request, Row, Statement};
use super::server_error::{ServerError, is_unreplicated};
use crate::base::error::{Error, ErrorKind, Result};
use crate::signal::clock::Clock;
use crate::store::database::{Link, Sent};
use crate::store::net::{Address, Stream};

/// A live connection. Any error is final: after a timeout the next answer could belong to an
/// earlier request.
pub(crate) struct Connection {
    link: Link<MessageReader, Backend>,
    out: BytesMut,
    /// The statements that the server has prepared, by their ids.
    prepared: u64,
    /// The server has said that it closes the connection.
    has_last_words: bool,
}

/// Sent and not yet answered.
pub(super) struct InFlight {
    pub(super) sent: Sent<Backend>,
    /// The statements that are being prepared, by section: after an error the server skips the rest
    /// of a section, and goes on with the next one.
    parses: VecDeque<VecDeque<u8>>,
}

/// Requests of one transaction, each with the statement that it is sent as.
pub(super) type Section<'r> = Vec<(&'r Request, &'static Statement)>;

/// The answers of one transaction that was committed, or why it was rolled back.
type Answers = std::result::Result<Vec<Vec<Row>>, ServerError>;

impl Connection {
    /// A connection after the handshake, in which `backend` was learned.
    pub(super) fn new(transport: Transport, backend: Backend, clock: Arc<dyn Clock>) -> Self {
        let link = Link::new(transport, backend, clock);
        Self { link, out: BytesMut::new(), prepared: 0, has_last_words: false }
    }

    pub(super) fn boot(&self) -> Boot {
        self.link.session().boot
    }

    /// Whether a request of unknown outcome was sent to the server process that answers here. What
    /// another process does never reaches this one: it has ended, or is a primary that was
    /// replaced.
    pub(crate) fn may_have_run(&self, unknown: &UnknownOutcome) -> bool {
        unknown.session().boot == self.boot()
    }

    pub(super) fn link(&mut self) -> &mut Link<MessageReader, Backend> {
        &mut self.link
    }

    /// Sends all sections in one write.
    fn send(&mut self, sections: &[Section<'_>]) -> std::result::Result<InFlight, PostgresFailure> {
        let flight = self.pack(sections)?;
        self.send_out(&flight)?;
        Ok(flight)
    }

    /// Packs all sections, which [`send_out`](Self::send_out) sends in one write.
    pub(super) fn pack(
        &mut self,
        sections: &[Section<'_>],
    ) -> std::result::Result<InFlight, PostgresFailure> {
        let mut flight = InFlight { sent: self.link.begin()?, parses: VecDeque::new() };
        self.out.clear();
        for section in sections {
            let mut parses = VecDeque::new();
            for (request, statement) in section {
                let mut under_way = flight.parses.iter().flatten().chain(&parses);
                let is_new = self.prepared & (1 << statement.id) == 0
                    && !under_way.any(|id| *id == statement.id);
                request
                    .write(statement, is_new, &mut self.out)
                    .map_err(PostgresFailure::NotSent)?;
                if is_new {
                    parses.push_back(statement.id);
                }
            }
            flight.parses.push_back(parses);
            frontend::sync(&mut self.out);
            self.link.transport.stream.meter.requests(section.len() as u64);
        }
        Ok(flight)
    }

    pub(super) fn send_out(
        &mut self,
        flight: &InFlight,
    ) -> std::result::Result<(), PostgresFailure> {
        self.link.transport.send(&self.out).map_err(|error| {
            let error = self.last_words().unwrap_or(error);
            self.as_unknown(error, flight)
        })
    }

    /// Called after a failed write: usually the server has sent the reason before it closed the
    /// connection.
    #[cold]
    fn last_words(&mut self) -> Option<Error> {
        while let Ok(Some(message)) = self.link.transport.recv_now() {
            if let Message::ErrorResponse(body) = message {
                self.has_last_words = true;
                return ServerError::read(&body).ok().map(|e| e.to_error());
            }
        }
        None
    }

    /// The answers of the next section. They count only after the server has reported that it is
    /// ready again: rows come before the commit.
    pub(super) fn recv(
        &mut self,
        flight: &mut InFlight,
        requests: usize,
    ) -> std::result::Result<Answers, PostgresFailure> {
        let read = self.read_section(flight, requests);
        read.map_err(|error| self.as_unknown(error, flight))
    }

    fn read_section(&mut self, flight: &mut InFlight, requests: usize) -> Result<Answers> {
        let deadline = self.link.transport.deadline();
        let mut parses = flight.parses.pop_front().unwrap_or_default();
        let mut answers = Vec::with_capacity(requests);
        let mut rows = Vec::new();
        let mut refused = None;
        let mut unreplicated = false;
        // Everything in the order in which it was asked for: a message too many is an error, and
        // not a part of the answer.
        let mut bound = 0;
        loop {
            match self.link.transport.recv(deadline)? {
                Message::ParseComplete => {
                    let id = parses
                        .pop_front()
                        .ok_or_else(|| malformed(&self.link.transport.address))?;
                    self.prepared |= 1 << id;
                }
                Message::BindComplete if bound == answers.len() => bound += 1,
                Message::DataRow(row) if bound > answers.len() => {
                    rows.push(
                        read_row(&row).ok_or_else(|| malformed(&self.link.transport.address))?,
                    );
                }
                Message::CommandComplete(_) if bound > answers.len() => {
                    answers.push(std::mem::take(&mut rows));
                }
                Message::ErrorResponse(body) => {
                    let error = ServerError::read(&body)
                        .map_err(|_| malformed(&self.link.transport.address))?;
                    if error.fatal {
                        self.has_last_words = true;
                        return Err(ended(&error));
                    }
                    refused = Some(error);
                }
                Message::ReadyForQuery(state) if state.status() == b'I' => break,
                Message::NoticeResponse(body) => unreplicated |= is_unreplicated(&body),
                Message::ParameterStatus(_) => {}
                _ => return Err(malformed(&self.link.transport.address)),
            }
        }
        if unreplicated {
            let why = "somebody cancelled the commit's wait for the synchronous standby, \
                       which may not have it";
            return Err(Error::new(ErrorKind::NotReplicated, why));
        }
        match refused {
            Some(error) => Ok(Err(error)),
            None if answers.len() == requests && parses.is_empty() => Ok(Ok(answers)),
            None => Err(malformed(&self.link.transport.address)),
        }
    }

    fn as_unknown(&self, error: Error, flight: &InFlight) -> PostgresFailure {
        self.link.as_unknown(error, &flight.sent, self.has_last_words)
    }

    /// All requests in one write, each in a transaction of its own.
    pub(crate) fn ask_all(
        &mut self,
        requests: &[Request],
    ) -> std::result::Result<Vec<Answer>, PostgresFailure> {
        let sections: Vec<Section<'_>> =
            requests.iter().map(|request| vec![(request, request.statement)]).collect();
        let mut flight = self.send(&sections)?;
        let mut answers = Vec::with_capacity(requests.len());
        for _ in requests {
            let rows = only(self.recv(&mut flight, 1)?);
            answers.push(Answer::new(rows, flight.sent.at));
        }
        // Only now: until then answers are due.
        for error in answers.iter_mut().filter_map(|answer| answer.rows.as_mut().err()) {
            self.find_blocker(error);
        }
        Ok(answers)
    }

    /// The socket, and the bytes that were read ahead.
    pub(super) fn into_parts(self) -> (Stream, Address, MessageReader) {
        let Transport { stream, address, reader, .. } = self.link.transport;
        (stream, address, reader)
    }

    /// Runs several statements without parameters. Returns the rows of the last one.
    pub(super) fn simple(
        transport: &mut Transport,
        sql: &str,
    ) -> Result<std::result::Result<Vec<Row>, ServerError>> {
        let mut out = BytesMut::new();
        frontend::query(sql, &mut out).map_err(|_| malformed(&transport.address))?;
        transport.ensure_quiet()?;
        transport.stream.meter.requests(1);
        transport.send(&out)?;
        let deadline = transport.deadline();
        let mut rows = Vec::new();
        let mut refused = None;
        loop {
            match transport.recv(deadline)? {
                Message::RowDescription(_) => rows.clear(),
                Message::DataRow(row) => {
                    rows.push(read_row(&row).ok_or_else(|| malformed(&transport.address))?);
                }
                Message::ErrorResponse(body) => {
                    let error =
                        ServerError::read(&body).map_err(|_| malformed(&transport.address))?;
                    if error.fatal {
                        return Err(ended(&error));
                    }
                    refused = Some(error);
                }
                Message::ReadyForQuery(_) => break,
                Message::CommandComplete(_)
                | Message::EmptyQueryResponse
                | Message::NoticeResponse(_)
                | Message::ParameterStatus(_) => {}
                _ => return Err(malformed(&transport.address)),
            }
        }
        Ok(refused.map_or(Ok(rows), Err))
    }
}

fn only(answers: Answers) -> std::result::Result<Vec<Row>, ServerError> {
    answers.map(|mut answers| answers.pop().unwrap_or_default())
}

pub(super) fn read_row(row: &DataRowBody) -> Option<Row> {
    let bytes = row.buffer();
    let mut columns = Vec::new();
    let mut ranges = row.ranges();
    while let Some(range) = ranges.next().ok()? {
        columns.push(match range {
            Some(range) => Some(std::str::from_utf8(bytes.get(range)?).ok()?.to_owned()),
            None => None,
        });
    }
    Some(columns)
}
