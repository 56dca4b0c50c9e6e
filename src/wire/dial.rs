//! Making connections: addresses, log-in, and what the `redis` crate's errors mean.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{ConnectionInfo, IntoConnectionInfo, Value};

use super::link::Link;
use super::stream::Stream;
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
        // Before the crate sees it, which cannot even parse it without its TLS features.
        if ["rediss:", "valkeys:"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(Error::new(ErrorKind::InvalidInput, "rediss:// (TLS) is not supported by this version"));
        }
        // The crate's message is not repeated: it may quote the URL, and the URL may hold a password.
        let info = url.into_connection_info().map_err(|_| {
            Error::new(
                ErrorKind::InvalidInput,
                "the URL is not one of redis://[user:password@]host[:port][/db] and \
                 redis+unix:///path[?db=..&user=..&pass=..]",
            )
        })?;
        Ok(Self { info })
    }

    pub(super) fn info(&self) -> &ConnectionInfo {
        &self.info
    }
}

/// Makes connections to one endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    pub(crate) endpoint: Endpoint,
    pub(crate) client_name: String,
    pub(crate) key_prefix: String,
    /// For the connect, and for each write and each reply.
    pub(crate) io_timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Dialer {
    pub(crate) fn dial(&self) -> Result<Link> {
        let wire = RedisWire::connect(&self.endpoint, self.io_timeout)?;
        log::debug!("connected to {:?}", self.endpoint);
        Link::greet(Box::new(wire), self.clock.clone(), &self.client_name, &self.key_prefix, self.io_timeout).map_err(
            |e| match e.kind() {
                ErrorKind::Unreachable | ErrorKind::Protocol => {
                    Error::new(e.kind(), format!("{:?} did not complete the handshake: {}", self.endpoint, e.message()))
                        .caused_by(e)
                }
                _ => e,
            },
        )
    }
}

struct RedisWire {
    stream: Stream,
    parser: redis::Parser,
    endpoint: Endpoint,
    io_timeout: Duration,
}

impl RedisWire {
    fn connect(endpoint: &Endpoint, io_timeout: Duration) -> Result<Self> {
        let stream = Stream::connect(endpoint, io_timeout).map_err(|e| to_error(e.into(), endpoint))?;
        let mut wire = Self { stream, parser: redis::Parser::new(), endpoint: endpoint.clone(), io_timeout };
        let redis = endpoint.info().redis_settings();
        if let Some(password) = redis.password() {
            wire.log_in(&Request::plain(&["AUTH", redis.username().unwrap_or("default"), password]))?;
        }
        if redis.db() != 0 {
            wire.log_in(&Request::plain(&["SELECT", &redis.db().to_string()]))?;
        }
        Ok(wire)
    }

    fn log_in(&mut self, request: &Request) -> Result<()> {
        let mut bytes = Vec::new();
        request.write_unstamped(&mut bytes);
        self.send(&bytes)?;
        match self.recv()? {
            Reply::Error(e) => Err(e.into_error()),
            _ => Ok(()),
        }
    }
}

impl Wire for RedisWire {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).map_err(|e| to_error(e.into(), &self.endpoint))
    }

    fn recv(&mut self) -> Result<Reply> {
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

    fn stream(&self) -> &Stream {
        &self.stream
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
