//! Making connections: addresses, log-in, and what the `redis` crate's errors mean.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{ConnectionInfo, IntoConnectionInfo};

use super::link::Link;
use super::reader::ReplyReader;
use super::stream::Stream;
use super::{Reply, Request, Wire};
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
    reader: ReplyReader,
    endpoint: Endpoint,
    io_timeout: Duration,
}

impl RedisWire {
    fn connect(endpoint: &Endpoint, io_timeout: Duration) -> Result<Self> {
        let stream = Stream::connect(endpoint, io_timeout).map_err(|e| to_error(e, endpoint))?;
        let mut wire = Self { stream, reader: ReplyReader::default(), endpoint: endpoint.clone(), io_timeout };
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
        self.stream.write_all(bytes).map_err(|e| to_error(e, &self.endpoint))
    }

    fn recv(&mut self) -> Result<Reply> {
        let mut source = self.stream.until(Instant::now() + self.io_timeout);
        loop {
            if let Some(reply) = next_reply(&mut self.reader, &self.endpoint)? {
                return Ok(reply);
            }
            self.reader.fill(&mut source).map_err(|e| to_error(e, &self.endpoint))?;
        }
    }

    fn recv_now(&mut self, fresh: bool) -> Result<Option<Reply>> {
        match next_reply(&mut self.reader, &self.endpoint)? {
            // A second read could block: what has come in part is read to its end later.
            None if fresh => {
                self.reader.fill(&mut self.stream).map_err(|e| to_error(e, &self.endpoint))?;
                next_reply(&mut self.reader, &self.endpoint)
            }
            reply => Ok(reply),
        }
    }

    fn has_input(&self) -> bool {
        !self.reader.is_empty() || self.stream.has_input()
    }

    fn stream(&self) -> &Stream {
        &self.stream
    }
}

pub(super) fn next_reply(reader: &mut ReplyReader, endpoint: &Endpoint) -> Result<Option<Reply>> {
    reader
        .next()
        .map_err(|_| Error::new(ErrorKind::Protocol, format!("{endpoint:?} does not speak the Redis protocol")))
}

#[cold]
pub(super) fn to_error(e: io::Error, endpoint: &Endpoint) -> Error {
    use io::ErrorKind as Io;
    let message = match e.kind() {
        Io::WouldBlock | Io::TimedOut => format!("{endpoint:?} did not answer within the I/O timeout (io_timeout)"),
        Io::ConnectionRefused | Io::NotFound => format!("no server listens at {endpoint:?}"),
        Io::UnexpectedEof | Io::ConnectionReset | Io::ConnectionAborted | Io::BrokenPipe => ENDED.to_owned(),
        _ => format!("{endpoint:?} cannot be reached"),
    };
    Error::new(ErrorKind::Unreachable, message).caused_by(e)
}
