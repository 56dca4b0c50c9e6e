//! Making connections: addresses, log-in, and what the `redis` crate's errors mean.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use redis::{ConnectionInfo, Value};

use super::link::Link;
use super::stream::{Stream, Within};
use super::url;
use super::{Reply, Request, ServerError, Wire};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

/// The message of an [`ErrorKind::Unreachable`] that means: the other end closed the connection.
pub(super) const ENDED: &str = "the connection to the server ended";

/// A server's address, taken apart and checked; nothing is connected.
#[derive(Clone)]
pub(crate) struct Endpoint {
    info: ConnectionInfo,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The address only: the rest has the password.
        write!(f, "{}", self.info.addr())
    }
}

impl Endpoint {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        url::parse(url).map(|info| Self { info })
    }

    pub(super) fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    fn is_tcp(&self) -> bool {
        matches!(self.info.addr(), redis::ConnectionAddr::Tcp(..))
    }

    /// What logs in, if the URL has a password.
    pub(super) fn log_in(&self) -> Option<Request> {
        let redis = self.info.redis_settings();
        redis.password().map(|password| Request::plain(&["AUTH", redis.username().unwrap_or("default"), password]))
    }
}

/// Makes connections to one endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    pub(crate) endpoint: Endpoint,
    pub(crate) client_name: String,
    pub(crate) key_prefix: String,
    /// For the connect with its handshake, and for each write and each reply.
    pub(crate) io_timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether this client has looked how the server's memory is set: the first connection does, for all.
    pub(crate) memory_seen: Arc<AtomicBool>,
}

impl Dialer {
    pub(crate) fn dial(&self) -> Result<Link> {
        let wire = RedisWire::connect(self)?;
        log::debug!("connected to {:?}", self.endpoint);
        Link::greet(Box::new(wire), self).map_err(|e| self.not_greeted(e))
    }

    #[cold]
    fn not_greeted(&self, e: Error) -> Error {
        let endpoint = &self.endpoint;
        let message = match e.kind() {
            // A TLS port often says nothing at all.
            ErrorKind::Unreachable if e.message() == ENDED && endpoint.is_tcp() => format!(
                "{endpoint:?} ended the connection during the handshake, as a TLS port does (this version does not support \
                 TLS)"
            ),
            ErrorKind::Unreachable | ErrorKind::Protocol => {
                format!("{endpoint:?} did not complete the handshake: {}", e.message())
            }
            _ => return e,
        };
        Error::new(e.kind(), message).caused_by(e)
    }
}

struct RedisWire {
    stream: Stream,
    parser: redis::Parser,
    endpoint: Endpoint,
    io_timeout: Duration,
    /// While hands are shaken: when that must be over.
    handshake: Option<Instant>,
}

impl RedisWire {
    fn connect(dialer: &Dialer) -> Result<Self> {
        let (endpoint, io_timeout) = (&dialer.endpoint, dialer.io_timeout);
        let (stream, deadline) = Stream::connect(endpoint, io_timeout).map_err(|e| to_error(e.into(), endpoint))?;
        let parser = redis::Parser::new();
        let mut wire = Self { stream, parser, endpoint: endpoint.clone(), io_timeout, handshake: Some(deadline) };
        if let Some(request) = endpoint.log_in()
            && let Reply::Error(e) = wire.ask(&request).map_err(|e| dialer.not_greeted(e))?
        {
            return Err(e.into_error());
        }
        let db = endpoint.info().redis_settings().db();
        if db != 0
            && let Reply::Error(e) =
                wire.ask(&Request::plain(&["SELECT", &db.to_string()])).map_err(|e| dialer.not_greeted(e))?
        {
            return Err(match e.text.contains("DB index") {
                true => Error::new(ErrorKind::InvalidInput, format!("{endpoint:?} has no database {db} ({})", e.text)),
                false => e.into_error(),
            });
        }
        Ok(wire)
    }

    fn ask(&mut self, request: &Request) -> Result<Reply> {
        let mut bytes = Vec::new();
        request.write_unstamped(&mut bytes);
        // A server that refuses the connection says why and ends it, maybe before it was asked anything.
        match (self.send(&bytes), self.recv()) {
            (Ok(()), reply) => reply,
            (Err(_), Ok(Reply::Error(e))) => Err(e.into_error()),
            (Err(error), _) => Err(error),
        }
    }
}

impl Wire for RedisWire {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let written = match self.handshake {
            Some(deadline) => self.stream.within(deadline).write_all(bytes),
            None => self.stream.write_all(bytes),
        };
        written.map_err(|e| to_error(e.into(), &self.endpoint))
    }

    fn recv(&mut self) -> Result<Reply> {
        if let Some(deadline) = self.handshake {
            return shake(&mut self.parser, &mut self.stream, deadline, &self.endpoint);
        }
        let mut reader = self.stream.until(Instant::now() + self.io_timeout);
        self.parser.parse_value(&mut reader).map(to_reply).map_err(|e| to_error(e, &self.endpoint))
    }

    fn recv_now(&mut self, fresh: bool) -> Result<Option<Reply>> {
        match self.parser.parse_value(&mut AtMostOnce { stream: &mut self.stream, may_read: fresh }) {
            Ok(value) => Ok(Some(to_reply(value))),
            // The parser keeps the part that has come.
            Err(e) if e.is_timeout() => Ok(None),
            Err(e) => Err(to_error(e, &self.endpoint)),
        }
    }

    fn greeted(&mut self) -> Result<()> {
        self.handshake = None;
        let timeout = self.io_timeout;
        self.stream.set_timeouts(timeout, timeout).map_err(|e| to_error(e.into(), &self.endpoint))
    }

    fn stream(&self) -> &Stream {
        &self.stream
    }
}

/// One reply of a handshake.
pub(super) fn shake(
    parser: &mut redis::Parser,
    stream: &mut Stream,
    deadline: Instant,
    endpoint: &Endpoint,
) -> Result<Reply> {
    let mut reader = TlsAlert { reader: stream.within(deadline), seen: None };
    let outcome = parser.parse_value(&mut reader);
    match (outcome, reader.seen) {
        (Ok(value), _) => Ok(to_reply(value)),
        (Err(e), Some(true)) => Err(Error::new(
            ErrorKind::Protocol,
            format!(
                "{endpoint:?} does not speak the Redis protocol but TLS, which this version does not support; name a port \
                 without TLS"
            ),
        )
        .caused_by(e)),
        (Err(e), _) => Err(to_error(e, endpoint)),
    }
}

/// Watches for what a TLS port says to somebody who speaks Redis.
struct TlsAlert<'s> {
    reader: Within<'s>,
    /// Whether the first bytes were an alert.
    seen: Option<bool>,
}

impl Read for TlsAlert<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.seen.get_or_insert(buffer[..count].starts_with(&[0x15, 0x03]));
        Ok(count)
    }
}

/// What has come to a socket that is known to have something: a second read could block.
struct AtMostOnce<'s> {
    stream: &'s mut Stream,
    may_read: bool,
}

impl Read for AtMostOnce<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match std::mem::take(&mut self.may_read) {
            true => self.stream.read(buffer),
            false => Err(std::io::ErrorKind::WouldBlock.into()),
        }
    }
}

pub(super) fn to_reply(value: Value) -> Reply {
    match value {
        Value::Int(n) => Reply::Int(n),
        Value::BulkString(bytes) => Reply::Bytes(bytes),
        Value::SimpleString(text) => Reply::Bytes(text.into_bytes()),
        Value::Okay => Reply::Bytes(b"OK".to_vec()),
        Value::Array(values) => Reply::Array(values.into_iter().map(to_reply).collect()),
        Value::ServerError(e) => Reply::Error(ServerError {
            code: e.code().to_owned(),
            text: format!("{} {}", e.code(), e.details().unwrap_or_default()),
        }),
        _ => Reply::Nil,
    }
}

#[cold]
pub(super) fn to_error(e: redis::RedisError, endpoint: &Endpoint) -> Error {
    if e.is_timeout() {
        return Error::new(
            ErrorKind::Unreachable,
            format!("{endpoint:?} did not answer within the I/O timeout (io_timeout)"),
        )
        .caused_by(e);
    }
    let (kind, message) = match e.kind() {
        redis::ErrorKind::Io if e.is_connection_refusal() => {
            (ErrorKind::Unreachable, format!("no server listens at {endpoint:?}"))
        }
        redis::ErrorKind::Io if e.is_connection_dropped() => (ErrorKind::Unreachable, ENDED.to_owned()),
        redis::ErrorKind::Io => (ErrorKind::Unreachable, format!("{endpoint:?} cannot be reached")),
        redis::ErrorKind::Parse | redis::ErrorKind::UnexpectedReturnType => {
            (ErrorKind::Protocol, format!("{endpoint:?} does not speak the Redis protocol"))
        }
        _ => (ErrorKind::Unreachable, format!("{endpoint:?} cannot be used")),
    };
    Error::new(kind, message).caused_by(e)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::clock::SystemClock;

    /// Both kinds of connection have one limit for everything up to the first use, however each answer trickles.
    #[test]
    fn a_server_that_trickles_is_given_up_by_the_subscriber_as_well() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://u:p@{}/", listener.local_addr().unwrap());
        let timeout = Duration::from_millis(300);
        let server = std::thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                // The first reply never ends, and every byte comes soon after the one before.
                let mut stream = stream.unwrap();
                let mut byte = b"+".to_vec();
                while stream.write_all(&byte).is_ok() {
                    std::thread::sleep(timeout / 10);
                    byte = b"x".to_vec();
                }
            }
        });
        let dialer = Dialer {
            endpoint: Endpoint::parse(&url).unwrap(),
            client_name: "test".into(),
            key_prefix: String::new(),
            io_timeout: timeout,
            clock: Arc::new(SystemClock),
            memory_seen: Arc::default(),
        };
        let start = Instant::now();
        for error in [dialer.dial().err().unwrap(), dialer.listen(timeout).err().unwrap()] {
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
            assert!(error.message().contains("io_timeout"), "{error}");
        }
        assert!(start.elapsed() < timeout * 10, "{:?}", start.elapsed());
        server.join().unwrap();
    }
}
