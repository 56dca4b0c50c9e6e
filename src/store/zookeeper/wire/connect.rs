//! Connecting: which server, TLS or not, the session, the identity.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::frames::FrameReader;
use super::jute::malformed;
use super::reply::{Connected, Reply};
use super::request::{AUTH_XID, Request, SessionId, connect_frame};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::signal::clock::Clock;
use crate::store::net::{self, Address, Network, Stream, ends, try_each};
#[cfg(feature = "tls-core")]
use crate::store::tls::TlsClient;

/// The servers of one ensemble, and how to connect to them.
pub(crate) struct Servers {
    pub(crate) addresses: Vec<Address>,
    /// `user:password` of a digest identity.
    pub(crate) digest: Option<String>,
    #[cfg(feature = "tls-core")]
    pub(crate) tls: Option<Arc<TlsClient>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) network: Arc<Network>,
    /// The server to begin with: that of the last connection, or the next one after that has
    /// failed.
    pub(crate) next: AtomicUsize,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.addresses).finish()
    }
}

/// A connection whose session is established.
pub(crate) struct Greeting {
    pub(crate) stream: Stream,
    pub(crate) reader: FrameReader,
    pub(crate) address: Address,
    pub(crate) session: SessionId,
    /// The session timeout that the server grants.
    pub(crate) timeout: Duration,
    /// The instant before the request for the session was sent.
    pub(crate) sent_at: Moment,
}

/// The session to ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionRequest {
    pub(crate) session: Option<SessionId>,
    /// The last change that this client has seen: a server that lags behind it refuses the client.
    pub(crate) last_zxid: i64,
    pub(crate) timeout: Duration,
}

impl Servers {
    /// Tries each server once; they share `within`. `Ok(None)`: the session has expired.
    pub(crate) fn connect(
        &self,
        asked: SessionRequest,
        within: Duration,
    ) -> Result<Option<Greeting>> {
        let first = self.next.load(Ordering::Relaxed);
        let attempt = |place: usize, within| self.connect_to(&self.addresses[place], asked, within);
        let (place, greeting) = try_each(self.addresses.len(), first, within, attempt)
            .map_err(|failed| self.summary(failed))?;
        self.next.store(place, Ordering::Relaxed);
        Ok(greeting)
    }

    /// The server of the last connection comes last next time.
    pub(crate) fn avoid(&self, address: &Address) {
        if let Some(place) = self.addresses.iter().position(|known| known == address) {
            self.next.store((place + 1) % self.addresses.len(), Ordering::Relaxed);
        }
    }

    /// A connection without a session, with TLS if the URL asks for it, and the deadline of its
    /// handshake.
    pub(super) fn dial(&self, address: &Address, within: Duration) -> Result<(Stream, Instant)> {
        let deadline = Instant::now() + within;
        let stream = Stream::connect(address, within, deadline, &self.network)
            .map_err(|e| to_error(e, address))?;
        Ok((self.secure(stream, address, deadline)?, deadline))
    }

    fn connect_to(
        &self,
        address: &Address,
        asked: SessionRequest,
        within: Duration,
    ) -> Result<Option<Greeting>> {
        // The server may end the connection before we have looked at it.
        let dialed = self.dial(address, within);
        let (mut stream, deadline) =
            dialed.map_err(
                |error| if is_an_end(&error) { self.refused_silently(error) } else { error },
            )?;
        let mut reader = FrameReader::default();
        let timeout_ms = i32::try_from(asked.timeout.as_millis()).unwrap_or(i32::MAX);
        let sent_at = self.clock.now();
        let hello = connect_frame(asked.session, asked.last_zxid, timeout_ms);
        stream.meter.requests(1);
        let written = stream.within(deadline).write_all(&hello).map_err(|e| to_error(e, address));
        // With TLS 1.3 a server checks the client's certificate after the handshake, and may have
        // ended the connection before the write: then the reason was received before the end.
        let answer = match (receive(&mut stream, &mut reader, address, deadline), written) {
            (Err(error), Err(unwritten)) if error.kind() == ErrorKind::Unreachable => {
                Err(unwritten)
            }
            (answer, _) => answer,
        };
        let answer = answer.map_err(|error| self.refused_silently(error))?;
        let Connected::Session { session, timeout_ms } = Connected::decode(&answer)? else {
            return Ok(None);
        };
        // The holds of the session that was asked for would be believed in for as long as this one.
        if asked.session.is_some_and(|asked| asked.id != session.id) {
            return Err(malformed("it resumes another session than the one that was asked for"));
        }
        if let Some(digest) = &self.digest {
            log_in(&mut stream, &mut reader, address, deadline, digest)?;
        }
        let timeout = Duration::from_millis(timeout_ms.into());
        Ok(Some(Greeting { stream, reader, address: address.clone(), session, timeout, sent_at }))
    }

    /// A server without a majority closes the connection without a reason. So does a server that
    /// lags behind what this client has seen, one that has too many connections of this host, and a
    /// TLS port that is addressed without TLS.
    #[cold]
    fn refused_silently(&self, error: Error) -> Error {
        #[cfg(feature = "tls-core")]
        let is_secure = self.tls.is_some();
        #[cfg(not(feature = "tls-core"))]
        let is_secure = false;
        let why = if is_secure {
            "before it gave the client a session: it may be without a majority, or behind another server, or this \
             host may have too many connections there (maxClientCnxns, 60 by default)"
        } else {
            "before it gave the client a session: it may be without a majority, or behind another server, or this \
             host may have too many connections there (maxClientCnxns, 60 by default); or its port is one with \
             TLS, then the URL is zookeeper+tls://"
        };
        if error.kind() == ErrorKind::Unreachable { error.and_also(why) } else { error }
    }

    #[cfg(feature = "tls-core")]
    fn secure(&self, stream: Stream, address: &Address, deadline: Instant) -> Result<Stream> {
        match (&self.tls, address) {
            (Some(tls), Address::Tcp { host, .. }) => {
                stream.secure(tls, host, deadline).map_err(|e| to_error(e, address))
            }
            _ => Ok(stream),
        }
    }

    #[cfg(not(feature = "tls-core"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "with TLS it is needed")]
    fn secure(&self, stream: Stream, _address: &Address, _deadline: Instant) -> Result<Stream> {
        Ok(stream)
    }

    /// One error for all servers: its kind is that of the most informative one.
    #[cold]
    fn summary(&self, mut failed: Vec<Error>) -> Error {
        if failed.len() == 1 {
            return failed.swap_remove(0);
        }
        let says_more = |error: &&Error| error.kind() != ErrorKind::Unreachable;
        let kind = failed.iter().find(says_more).map_or(ErrorKind::Unreachable, Error::kind);
        let texts: Vec<&str> = failed.iter().map(Error::message).collect();
        Error::new(kind, format!("none of the servers {self:?} can be used: {}", texts.join("; ")))
    }
}

fn log_in(
    stream: &mut Stream,
    reader: &mut FrameReader,
    address: &Address,
    deadline: Instant,
    digest: &str,
) -> Result<()> {
    let mut frame = Vec::new();
    Request::auth("digest", digest.as_bytes()).write_to(AUTH_XID, &mut frame);
    stream.meter.requests(1);
    stream.within(deadline).write_all(&frame).map_err(|e| to_error(e, address))?;
    // Nothing else was asked for on this connection, and nothing is watched on it.
    let reply = Reply::decode(&receive(stream, reader, address, deadline)?)?;
    match reply.xid {
        AUTH_XID if reply.code.is_ok() => Ok(()),
        AUTH_XID => Err(reply.code.to_error(&format!("{address:?}"))),
        _ => Err(malformed("it answers something else than was asked")),
    }
}

fn receive(
    stream: &mut Stream,
    reader: &mut FrameReader,
    address: &Address,
    deadline: Instant,
) -> Result<Vec<u8>> {
    loop {
        if let Some(frame) = reader.next()? {
            return Ok(frame);
        }
        reader.fill(&mut stream.within(deadline)).map_err(|e| to_error(e, address))?;
    }
}

/// Whether the server has ended the connection.
pub(crate) fn is_an_end(error: &Error) -> bool {
    let cause =
        std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    error.kind() == ErrorKind::Unreachable && cause.is_some_and(|cause| ends(cause.kind()))
}

#[cold]
pub(crate) fn to_error(e: io::Error, address: &Address) -> Error {
    net::to_error(e, address, "zookeeper://", &format!("{address:?} ended the connection"))
}
