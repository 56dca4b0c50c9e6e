//! How to connect: which of the hosts, with TLS or without, and the checks of the server.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::connection::{
    Answer, Connection, InFlight, MysqlFailure, Outcome, Request, UnknownOutcome, simple,
};
use super::log_in::{Greeting, log_in};
use super::packet::{PacketReader, Set, Transport, malformed};
use super::schema::{self, Schema};
use crate::base::error::{Error, ErrorKind, Result, invalid};
use crate::base::log;
use crate::base::random;
#[cfg(feature = "tls-core")]
use crate::store::database::SslMode;
use crate::store::database::{self, Protocol};
use crate::store::net::{self, Address, Callers, PooledConnection, PooledConnector, Stream};

/// What is known from the last connections. `schema`: the tables were found, and are those of this
/// release.
#[derive(Default)]
pub(crate) struct Known {
    schema: AtomicBool,
    /// The other hosts were asked whether they take writes, too.
    others: AtomicBool,
}

pub(crate) type Connector = database::Connector<(), Known>;
pub(crate) type Pool = net::Pool<Connector>;

/// For the very first connection: another client may be creating the tables at the same time.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest time that the first connection of a client takes to ask the other hosts: one of them
/// may be down.
const OTHERS: Duration = Duration::from_secs(1);

/// A grant is a transaction of its own, and nothing waits for rows for longer than a second, the
/// least that MySQL knows. READ COMMITTED locks no gaps.
///
/// The others are for what an administrator may have set for all sessions. With another
/// `completion_type` a COMMIT begins a transaction, and what is granted in that is never committed;
/// a limit for rows, for tables that are joined or for the time of a statement refuses some
/// requests, or leaves out a part of an answer. `/*M!` is for MariaDB alone, `/*!8` for MySQL.
const SESSION: &str = "SET SESSION autocommit=1,completion_type=0,sql_mode='',time_zone='+00:00',\
                       innodb_lock_wait_timeout=1,lock_wait_timeout=1,sql_select_limit=18446744073709551615,\
                       sql_big_selects=1,sql_safe_updates=0\
                       /*M!100600 ,max_statement_time=0*//*!80000 ,max_execution_time=0*/;\
                       SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// Whether new transactions only read: a server can be made read-only in this way, too.
pub(crate) const READS_ONLY: &str =
    "0/*M!100600 |@@tx_read_only*//*!80000 |@@transaction_read_only*/";

impl Connector {
    /// A connection to the host that takes writes.
    pub(crate) fn connect(&self) -> Result<Connection> {
        self.connect_by(|place, address, within| {
            let connection = self.connect_to(address, within)?;
            self.check_others(place, connection.session())?;
            Ok(connection)
        })
    }

    /// Checks that no other host takes writes as well, such as a replica that nobody has made
    /// read-only: the locks of some clients would be there. The first connection of a client asks
    /// them. One that does not answer now is not asked again. `mark`: that of the connection.
    fn check_others(&self, place: usize, mark: &str) -> Result<()> {
        let hosts = &self.server.url.hosts;
        if hosts.len() == 1 || self.server.known.others.load(Ordering::Acquire) {
            return Ok(());
        }
        let deadline = Instant::now() + self.io_timeout.min(OTHERS);
        // It may be the same server under another name.
        let question = format!("SELECT IS_USED_LOCK('{mark}') IS NULL");
        for (_, other) in hosts.iter().enumerate().filter(|(other, _)| *other != place) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let asked = self.begin(other, left).and_then(|(mut transport, own, set)| {
                let answer = simple(&mut transport, &question)?.map_err(|e| e.to_error());
                Connection::new(transport, own, self.server.clock.clone()).goodbye();
                Ok(takes_writes(&set) && answer?.last().and_then(|set| text(set, 0)) == Some("1"))
            });
            let asked = asked.inspect_err(|e| log::debug!("{other:?} is not asked: {}", e.chain()));
            if asked.is_ok_and(|takes_writes| takes_writes) {
                let one = &hosts[place];
                return Err(invalid(format!(
                    "{one:?} and {other:?} both take writes, so a lock could be held in both: set read_only on the replicas"
                )));
            }
        }
        self.server.known.others.store(true, Ordering::Release);
        Ok(())
    }

    /// The tables may be gone: the next connection looks.
    pub(crate) fn note(&self, answer: &Answer) {
        if answer.is_last() {
            self.server.known.schema.store(false, Ordering::Release);
        }
    }

    /// A connection to this host, which has logged in and has its mark. Nothing else was checked.
    pub(crate) fn connect_bare(&self, address: &Address, within: Duration) -> Result<Connection> {
        let (mut transport, mark, _) = self.begin(address, within)?;
        transport.handshake_done()?;
        Ok(Connection::new(transport, mark, self.server.clock.clone()))
    }

    fn connect_to(&self, address: &Address, within: Duration) -> Result<Connection> {
        let (mut transport, mark, set) = self.begin(address, within)?;
        self.check(&mut transport, &set).map_err(|e| handshake_failed(address, e))?;
        transport.handshake_done()?;
        Ok(Connection::new(transport, mark, self.server.clock.clone()))
    }

    /// Logs in, sets the session up and takes its mark. Returns what the server says of itself.
    fn begin(&self, address: &Address, within: Duration) -> Result<(Transport, String, Set)> {
        let deadline = Instant::now() + within;
        let stream = Stream::connect(address, within, deadline, &self.server.network)
            .map_err(|e| PacketReader::to_error(e, address))?;
        let transport = Transport::new(stream, address.clone(), self.io_timeout, deadline);
        self.begin_session(transport).map_err(|e| handshake_failed(address, e))
    }

    fn begin_session(&self, mut transport: Transport) -> Result<(Transport, String, Set)> {
        let greeting = Greeting::receive(&mut transport)?;
        let (mut transport, has_tls) = self.secure(transport, &greeting)?;
        #[cfg(unix)]
        let is_secret = has_tls || matches!(transport.address, Address::Unix(_));
        #[cfg(not(unix))]
        let is_secret = has_tls;
        log_in(&mut transport, &greeting, &self.server.url, has_tls, is_secret)?;
        let mark = format!("lh:{:024x}", random::id() >> 32);
        let who = format!(
            "{SESSION};SELECT GET_LOCK('{mark}',0),CONNECTION_ID(),@@global.read_only,VERSION(),{READS_ONLY}"
        );
        let sets = simple(&mut transport, &who)?.map_err(|e| e.to_error())?;
        let set = sets.into_iter().next_back().unwrap_or_default();
        if text(&set, 0) != Some("1") {
            return Err(malformed(&transport.address));
        }
        if text(&set, 1).and_then(|id| id.parse().ok()) != Some(greeting.id) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "a proxy is between the client and the server (the greeting named another connection than the one that \
                 answers): it may give the session to others, and a lost answer could not be resolved; name the server \
                 itself",
            ));
        }
        Ok((transport, mark, set))
    }

    /// Begins TLS, if it is wanted. Returns whether there is.
    #[cfg(feature = "tls-core")]
    fn secure(&self, mut transport: Transport, greeting: &Greeting) -> Result<(Transport, bool)> {
        let (Some(tls), Address::Tcp { host, .. }) = (&self.server.tls, transport.address.clone())
        else {
            return Ok((transport, false));
        };
        if !greeting.has_tls {
            if self.server.url.ssl.mode == SslMode::Prefer {
                return Ok((transport, false));
            }
            let why = format!("{:?} has no TLS, but ssl-mode requires it", transport.address);
            return Err(Error::new(ErrorKind::Tls, why));
        }
        super::log_in::ask_for_tls(&mut transport)?;
        // Bytes that came unencrypted must not be read as a part of what is.
        if !transport.reader.is_empty() {
            return Err(malformed(&transport.address));
        }
        let deadline = transport.deadline();
        let stream = transport.stream.secure(tls, &host, deadline);
        let stream = stream.map_err(|e| PacketReader::to_error(e, &transport.address))?;
        Ok((Transport { stream, ..transport }, true))
    }

    #[cfg(not(feature = "tls-core"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "with TLS it is needed")]
    fn secure(&self, transport: Transport, _greeting: &Greeting) -> Result<(Transport, bool)> {
        Ok((transport, false))
    }

    fn check(&self, transport: &mut Transport, set: &Set) -> Result<()> {
        let version = text(set, 3).unwrap_or_default();
        if !is_supported(version) {
            let why = format!("the server is {version}; MySQL 8.0 or MariaDB 10.6 is needed");
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        if !takes_writes(set) {
            let why = "the server is a replica or read-only; name the primary, or all hosts";
            return Err(Error::new(ErrorKind::ReadOnly, why));
        }
        if !self.server.known.schema.load(Ordering::Acquire) {
            let mut schema = schema::look(&mut |sql| simple(transport, sql))?;
            if schema == Schema::Missing && self.server.create_schema {
                transport.handshake = Some(Instant::now() + PATIENCE);
                schema::create(&mut |sql| simple(transport, sql))?;
                // The handshake may have used up its time.
                transport.handshake = Some(Instant::now() + self.io_timeout);
                schema = schema::look(&mut |sql| simple(transport, sql))?;
            }
            schema::require(&schema)?;
            self.server.known.schema.store(true, Ordering::Release);
        }
        Ok(())
    }
}

fn text(set: &Set, column: usize) -> Option<&str> {
    set.rows.first()?.get(column)?.as_deref()
}

/// What a server has said of itself. MariaDB 12 has four values.
fn takes_writes(set: &Set) -> bool {
    [2, 4].iter().all(|&column| matches!(text(set, column), Some("0" | "OFF")))
}

/// `8.4.10`, `10.11.19-MariaDB-0+deb12u1`, also with `5.5.5-` in front.
pub(crate) fn is_supported(version: &str) -> bool {
    let version = version.strip_prefix("5.5.5-").unwrap_or(version);
    let mut numbers = version.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    let version_number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version.contains("MariaDB") { version_number >= (10, 6) } else { version_number >= (8, 0) }
}

#[cold]
fn handshake_failed(address: &Address, e: Error) -> Error {
    match e.kind() {
        ErrorKind::Unreachable if e.message().starts_with(&format!("{address:?}")) => e,
        ErrorKind::Unreachable => {
            let message = format!("{address:?} did not complete the handshake: {}", e.message());
            Error::new(e.kind(), message).caused_by(e)
        }
        _ => e,
    }
}

impl PooledConnector for Connector {
    type Connection = Connection;
    /// The server takes one query after the other.
    type Sender = Infallible;
    type Request = Request;
    type Flight = InFlight;
    type Answer = Answer;
    type Unknown = UnknownOutcome;

    fn connect(&self) -> Result<Connection> {
        self.connect()
    }

    fn io_timeout(&self) -> Duration {
        self.io_timeout
    }

    fn address(&self) -> String {
        format!("{:?}", self.server.url)
    }

    /// Each request is a query, and the server takes one after the other.
    fn share_a_write(_one: &Request, _other: &Request) -> bool {
        false
    }

    fn again(&self, _request: &Request, answer: &Answer) -> Option<Request> {
        self.note(answer);
        None
    }

    fn is_last(answer: &Answer) -> bool {
        answer.is_last()
    }

    fn unknown(flight: &InFlight) -> UnknownOutcome {
        flight.sent.unknown.clone()
    }
}

impl PooledConnection<Connector> for Connection {
    fn is_usable(&mut self, _connector: &Connector) -> bool {
        self.is_alive()
    }

    fn say_goodbye(&mut self) {
        self.goodbye();
    }

    fn prepare<'r>(
        &mut self,
        mut requests: impl Iterator<Item = &'r Request>,
    ) -> std::result::Result<InFlight, MysqlFailure> {
        self.pack(requests.next().expect("one request"))
    }

    fn transmit(&mut self, flight: &InFlight) -> std::result::Result<(), MysqlFailure> {
        self.send(flight)
    }

    fn receive(
        &mut self,
        flight: &mut InFlight,
        outcomes: &mut [Option<Outcome>],
        _callers: Option<&Callers>,
    ) -> std::result::Result<(), MysqlFailure> {
        outcomes[0] = Some(Ok(self.recv(flight)?));
        Ok(())
    }
}
