//! Making connections: addresses, log-in, and what the `redis` crate's errors mean.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use redis::ConnectionInfo;

use super::connection::Connection;
use super::reader::ReplyReader;
use super::stream::Stream;
use super::url;
use super::{Reply, Request, Wire};
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};

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
pub(crate) struct Connector {
    pub(crate) endpoint: Endpoint,
    pub(crate) client_name: String,
    pub(crate) key_prefix: String,
    /// For the connect with its handshake, and for each write and each reply.
    pub(crate) io_timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether this client has looked how the server's memory is set: the first connection does, for all.
    pub(crate) memory_seen: Arc<AtomicBool>,
}

impl Connector {
    pub(crate) fn connect(&self) -> Result<Connection> {
        let wire = RedisWire::connect(self)?;
        log::debug!("connected to {:?}", self.endpoint);
        Connection::handshake(Box::new(wire), self).map_err(|e| self.handshake_failed(e))
    }

    #[cold]
    fn handshake_failed(&self, e: Error) -> Error {
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
    reader: ReplyReader,
    endpoint: Endpoint,
    io_timeout: Duration,
    /// While hands are shaken: when that must be over.
    handshake: Option<Instant>,
}

impl RedisWire {
    fn connect(connector: &Connector) -> Result<Self> {
        let (endpoint, io_timeout) = (&connector.endpoint, connector.io_timeout);
        let (stream, deadline) = Stream::connect(endpoint, io_timeout).map_err(|e| to_error(e, endpoint))?;
        let (reader, endpoint_of_wire) = (ReplyReader::default(), endpoint.clone());
        let mut wire = Self { stream, reader, endpoint: endpoint_of_wire, io_timeout, handshake: Some(deadline) };
        if let Some(request) = endpoint.log_in()
            && let Reply::Error(e) = wire.ask(&request).map_err(|e| connector.handshake_failed(e))?
        {
            return Err(e.into_error());
        }
        let db = endpoint.info().redis_settings().db();
        if db != 0
            && let Reply::Error(e) =
                wire.ask(&Request::plain(&["SELECT", &db.to_string()])).map_err(|e| connector.handshake_failed(e))?
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
        request.write_plain(&mut bytes);
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
        written.map_err(|e| to_error(e, &self.endpoint))
    }

    fn recv(&mut self) -> Result<Reply> {
        if let Some(deadline) = self.handshake {
            return shake(&mut self.reader, &mut self.stream, deadline, &self.endpoint);
        }
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

    fn handshake_done(&mut self) -> Result<()> {
        self.handshake = None;
        let timeout = self.io_timeout;
        self.stream.set_timeouts(timeout, timeout).map_err(|e| to_error(e, &self.endpoint))
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

/// What a TLS port says to somebody who speaks Redis: an alert.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

/// One reply of a handshake.
pub(super) fn shake(
    reader: &mut ReplyReader,
    stream: &mut Stream,
    deadline: Instant,
    endpoint: &Endpoint,
) -> Result<Reply> {
    loop {
        match next_reply(reader, endpoint) {
            Ok(Some(reply)) => return Ok(reply),
            Ok(None) => reader.fill(&mut stream.within(deadline)).map_err(|e| to_error(e, endpoint))?,
            Err(_) if reader.unread().starts_with(&TLS_ALERT) => {
                let why = "does not speak the Redis protocol but TLS, which this version does not support; name a port \
                           without TLS";
                return Err(Error::new(ErrorKind::Protocol, format!("{endpoint:?} {why}")));
            }
            Err(e) => return Err(e),
        }
    }
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::base::clock::SystemClock;

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
        let connector = Connector {
            endpoint: Endpoint::parse(&url).unwrap(),
            client_name: "test".into(),
            key_prefix: String::new(),
            io_timeout: timeout,
            clock: Arc::new(SystemClock),
            memory_seen: Arc::default(),
        };
        let start = Instant::now();
        for error in [connector.connect().err().unwrap(), connector.subscribe(timeout).err().unwrap()] {
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
            assert!(error.message().contains("io_timeout"), "{error}");
        }
        assert!(start.elapsed() < timeout * 10, "{:?}", start.elapsed());
        server.join().unwrap();
    }
}
