//! Making connections with the `redis` crate: the only file that knows its connection types.

use std::sync::Arc;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2};
use redis::{ConnectionInfo, IntoConnectionInfo, ProtocolVersion, Value};

use super::link::Link;
use super::{Reply, ServerError, Wire};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

/// The message of an [`ErrorKind::Unreachable`] that means: the other end closed the connection.
pub(super) const ENDED: &str = "the connection to the server ended";

/// Probes that find a peer that is gone without a word.
pub(super) fn keepalive() -> socket2::TcpKeepalive {
    socket2::TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(2))
}

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
    pub(crate) fn parse(url: &str, io_timeout: Duration) -> Result<Self> {
        // The crate's message is not repeated: it may quote the URL, and the URL may hold a password.
        let info = url.into_connection_info().map_err(|_| {
            Error::new(
                ErrorKind::InvalidInput,
                "the URL is not one of redis://[user:password@]host[:port][/db] and \
                 redis+unix:///path[?db=..&user=..&pass=..]",
            )
        })?;
        if matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
            return Err(Error::new(ErrorKind::InvalidInput, "rediss:// (TLS) is not supported by this version"));
        }
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive());
        // Closing drops what our kernel has not sent yet: one request less that could still run.
        let tcp = tcp.set_linger_time(Duration::ZERO);
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        let tcp = tcp.set_user_timeout(io_timeout);
        #[cfg(not(any(target_os = "android", target_os = "fuchsia", target_os = "linux")))]
        let _ = io_timeout;
        // RESP2 whatever the URL says: every server has it, and no push can come between two replies.
        let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
        Ok(Self { info: info.set_tcp_settings(tcp).set_redis_settings(redis) })
    }

    pub(super) fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    fn client(&self) -> Result<redis::Client> {
        redis::Client::open(self.info.clone()).map_err(|e| to_error(e, self))
    }
}

/// Makes connections to one endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    pub(crate) endpoint: Endpoint,
    pub(crate) client_name: String,
    /// For the connect, and for each write and each reply.
    pub(crate) io_timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Dialer {
    pub(crate) fn dial(&self) -> Result<Link> {
        let wire = self.connect()?;
        log::debug!("connected to {:?}", self.endpoint);
        Link::greet(Box::new(wire), self.clock.clone(), &self.client_name, self.io_timeout).map_err(|e| {
            match e.kind() {
                ErrorKind::Unreachable | ErrorKind::Protocol => {
                    Error::new(e.kind(), format!("{:?} did not complete the handshake: {}", self.endpoint, e.message()))
                        .caused_by(e)
                }
                _ => e,
            }
        })
    }

    fn connect(&self) -> Result<RedisWire> {
        let fail = |e| to_error(e, &self.endpoint);
        let connection = self.endpoint.client()?.get_connection_with_timeout(self.io_timeout).map_err(fail)?;
        // The crate resets both to none after the connect.
        connection.set_read_timeout(Some(self.io_timeout)).map_err(fail)?;
        connection.set_write_timeout(Some(self.io_timeout)).map_err(fail)?;
        Ok(RedisWire { connection, endpoint: self.endpoint.clone() })
    }
}

struct RedisWire {
    connection: redis::Connection,
    endpoint: Endpoint,
}

impl Wire for RedisWire {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.connection.send_packed_command(bytes).map_err(|e| to_error(e, &self.endpoint))
    }

    fn recv(&mut self) -> Result<Reply> {
        self.connection.recv_response().map(to_reply).map_err(|e| to_error(e, &self.endpoint))
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
        redis::ErrorKind::AuthenticationFailed => {
            (ErrorKind::Denied, format!("{endpoint:?} refused the user name or password"))
        }
        // The handshake of the crate itself (AUTH, SELECT): an answer, not a fault of the connection.
        redis::ErrorKind::Server(_) | redis::ErrorKind::Extension => {
            let text = format!("{} {}", e.code().unwrap_or_default(), e.detail().unwrap_or_default());
            return ServerError::from(text.as_str()).into_error().caused_by(e);
        }
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
