//! Bytes and replies over one socket.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::endpoint::Endpoint;
use super::reply::{Malformed, Reply, ReplyReader};
use super::request::Request;
use crate::base::error::{Error, ErrorKind, Result, invalid};
use crate::os;
use crate::store::net::{self, Callers, ENDED, Stream, is_timeout};

/// A socket with the replies that were read from it. Redlock sends to all nodes before it reads
/// from the first, so sending and receiving are two methods. After any error of either the
/// connection must not be used again.
pub(super) struct Transport {
    pub(super) stream: Stream,
    reader: ReplyReader,
    pub(super) endpoint: Endpoint,
    io_timeout: Duration,
    /// During the handshake: its deadline.
    handshake: Option<Instant>,
}

impl Transport {
    pub(super) fn connect(endpoint: &Endpoint, io_timeout: Duration) -> Result<Self> {
        // One limit for everything that a connection needs, also for the name and the provider: the
        // caller may be a thread that renews.
        let deadline = os::now() + io_timeout;
        let log_in = endpoint.begin_log_in(deadline)?;
        let stream = endpoint
            .dial(io_timeout, deadline)
            .map_err(|e| not_reached(endpoint, to_error(e, endpoint)))?;
        let reader = ReplyReader::default();
        let endpoint_of_wire = endpoint.clone();
        let mut wire = Self {
            stream,
            reader,
            endpoint: endpoint_of_wire,
            io_timeout,
            handshake: Some(deadline),
        };
        if let Some(log_in) = log_in {
            log_in
                .log_in(|request| wire.ask(request).map_err(|e| handshake_failed(endpoint, e)))?;
        }
        let db = endpoint.db;
        if db != 0
            && let Reply::Error(e) = wire
                .ask(&Request::plain(&["SELECT", &db.to_string()]))
                .map_err(|e| handshake_failed(endpoint, e))?
        {
            return Err(if e.text.contains("DB index") {
                invalid(format!("{endpoint:?} has no database {db} ({})", e.text))
            } else {
                e.into_error()
            });
        }
        Ok(wire)
    }

    fn ask(&mut self, request: &Request) -> Result<Reply> {
        let mut bytes = Vec::new();
        request.write_plain(&mut bytes);
        self.stream.meter.requests(1);
        // A server that refuses the connection sends an error and closes it, maybe before our
        // write.
        match (self.send(&bytes), self.recv(None)) {
            (Ok(()), reply) => reply,
            (Err(_), Ok(Reply::Error(e))) => Err(e.into_error()),
            (Err(error), Err(refused)) => Err(the_reason(error, refused)),
            (Err(error), _) => Err(error),
        }
    }
}

impl Transport {
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let written = match self.handshake {
            Some(deadline) => self.stream.within(deadline).write_all(bytes),
            None => self.stream.write_all(bytes),
        };
        match written {
            Ok(()) => Ok(()),
            Err(e) => Err(to_error(e, &self.endpoint)),
        }
    }

    /// One reply. The `callers` may poll for it for a short while before this thread sleeps.
    pub(super) fn recv(&mut self, callers: Option<&Callers>) -> Result<Reply> {
        if let Some(deadline) = self.handshake {
            return shake(&mut self.reader, &mut self.stream, deadline, &self.endpoint);
        }
        let deadline = os::now() + self.io_timeout;
        if let Some(callers) = callers
            && let Some(received) = callers.poll(|| self.recv_now(true).transpose())
        {
            return received;
        }
        loop {
            if let Some(reply) = next_reply(&mut self.reader, &self.endpoint)? {
                return Ok(reply);
            }
            if let Err(e) = self.reader.fill(&mut self.stream.until(deadline)) {
                return Err(to_error(e, &self.endpoint));
            }
        }
    }

    /// A reply that has already arrived, without waiting; the rest of a partial reply is read
    /// later. `fresh`: poll has shown that the socket has input; without it only what was read
    /// ahead is used.
    pub(super) fn recv_now(&mut self, mut fresh: bool) -> Result<Option<Reply>> {
        loop {
            if let Some(reply) = next_reply(&mut self.reader, &self.endpoint)? {
                return Ok(Some(reply));
            }
            if !std::mem::take(&mut fresh) && !self.stream.has_read_ahead() {
                return Ok(None);
            }
            match self.reader.fill(&mut self.stream.now()) {
                Err(e) if is_timeout(&e) => return Ok(None),
                filled => filled.map_err(|e| to_error(e, &self.endpoint))?,
            }
        }
    }

    /// Whether [`recv_now`](Self::recv_now) finds bytes that poll does not report.
    pub(super) fn has_read_ahead(&self) -> bool {
        self.stream.has_read_ahead()
    }

    /// Whether bytes have come that are not yet a reply, or the other end has closed. One system
    /// call.
    pub(super) fn has_input(&self) -> bool {
        !self.reader.is_empty() || self.stream.has_input()
    }

    /// From now on each write and each reply has the I/O timeout; during the handshake all of them
    /// share it.
    pub(super) fn handshake_done(&mut self) -> Result<()> {
        self.handshake = None;
        let timeout = self.io_timeout;
        self.stream.set_timeouts(timeout, timeout).map_err(|e| to_error(e, &self.endpoint))
    }
}

/// Why a connection does not work whose write failed with `error` and whose read failed with
/// `refused`: with TLS 1.3 the server refuses a client certificate after the handshake, and may
/// have closed the connection before our first write.
pub(super) fn the_reason(error: Error, refused: Error) -> Error {
    if refused.kind() == ErrorKind::Tls { refused } else { error }
}

#[cold]
pub(super) fn handshake_failed(endpoint: &Endpoint, e: Error) -> Error {
    let message = match e.kind() {
        // With TLS 1.3 a server refuses a client certificate after the TLS handshake. Its alert is
        // lost if our requests arrive after it has closed the connection.
        ErrorKind::Unreachable if e.message() == ENDED && endpoint.is_secure() => {
            format!(
                "{endpoint:?} ended the connection after the TLS handshake; it may ask for another client certificate"
            )
        }
        // A TLS port often closes the connection without an alert.
        ErrorKind::Unreachable if e.message() == ENDED && endpoint.is_tcp() => {
            format!(
                "{endpoint:?} ended the connection during the handshake, as a TLS port does, and a proxy that does not \
                 know a command (twemproxy); {USE_TLS}; if it is a proxy, connect to the server behind it"
            )
        }
        ErrorKind::Unreachable | ErrorKind::Protocol => {
            format!("{endpoint:?} did not complete the handshake: {}", e.message())
        }
        _ => return e,
    };
    e.clone().reworded(|_| message + &endpoint.whose_address()).caused_by(e)
}

pub(super) fn next_reply(reader: &mut ReplyReader, endpoint: &Endpoint) -> Result<Option<Reply>> {
    match reader.next() {
        Ok(reply) => Ok(reply),
        Err(Malformed) => Err(Error::new(
            ErrorKind::Protocol,
            format!("{endpoint:?} does not speak the Redis protocol"),
        )),
    }
}

/// The answer of a TLS port to a Redis client: an alert.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

const USE_TLS: &str = if cfg!(feature = "tls-core") {
    "if it is one, its URL is rediss://"
} else {
    "if it is one, its URL is rediss://, for which leasehold needs its cargo feature \"tls\""
};

/// Reads one reply of a handshake.
pub(super) fn shake(
    reader: &mut ReplyReader,
    stream: &mut Stream,
    deadline: Instant,
    endpoint: &Endpoint,
) -> Result<Reply> {
    loop {
        match next_reply(reader, endpoint) {
            Ok(Some(reply)) => return Ok(reply),
            Ok(None) => {
                reader.fill(&mut stream.within(deadline)).map_err(|e| to_error(e, endpoint))?;
            }
            Err(_) if reader.unread().starts_with(&TLS_ALERT) => {
                let why = format!(
                    "{endpoint:?} does not speak the Redis protocol but TLS, as a TLS port does; {USE_TLS}"
                );
                return Err(Error::new(ErrorKind::Protocol, why));
            }
            Err(e) => return Err(e),
        }
    }
}

#[cold]
fn not_reached(endpoint: &Endpoint, e: Error) -> Error {
    let whose = endpoint.whose_address();
    if whose.is_empty() || e.kind() != ErrorKind::Unreachable {
        return e;
    }
    e.clone().reworded(|message| message.to_owned() + &whose).caused_by(e)
}

#[cold]
pub(super) fn to_error(e: io::Error, endpoint: &Endpoint) -> Error {
    net::to_error(e, endpoint, "redis://", ENDED)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread::sleep;

    use super::*;

    /// A transport whose thread polls for replies, and the server's end of its socket.
    fn polling() -> (Transport, Callers, UnixStream) {
        let (client, server) = UnixStream::pair().unwrap();
        let stream = Stream::of_unix(client);
        let io_timeout = Duration::from_secs(2);
        let endpoint = Endpoint::parse("redis+unix:///nowhere").unwrap();
        let reader = ReplyReader::default();
        let mut transport = Transport { stream, reader, endpoint, io_timeout, handshake: None };
        transport.handshake_done().unwrap();
        (transport, Callers::polling(), server)
    }

    #[test]
    fn a_reply_that_comes_in_pieces_is_whole_whether_looked_for_or_waited_for() {
        // The first pauses are within the window, the last ones are longer.
        for pause in [0, 5, 20, 200, 2000].map(Duration::from_micros) {
            let (mut transport, callers, mut server) = polling();
            let _call = callers.begin_call();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for byte in b"*2\r\n:1\r\n:17\r\n" {
                        server.write_all(&[*byte]).unwrap();
                        let begin = Instant::now();
                        while begin.elapsed() < pause {
                            std::hint::spin_loop();
                        }
                    }
                    server
                });
                assert_eq!(transport.recv(Some(&callers)).unwrap(), Reply::Pair(1, 17));
            });
            assert!(transport.reader.is_empty());
        }
    }

    #[test]
    fn a_server_that_says_nothing_or_half_a_reply_costs_the_io_timeout() {
        for half in [&b""[..], b"*2\r\n:1\r\n:1"] {
            let (mut transport, callers, mut server) = polling();
            let _call = callers.begin_call();
            server.write_all(half).unwrap();
            let begin = Instant::now();
            let error = transport.recv(Some(&callers)).unwrap_err();
            assert!(
                error.kind() == ErrorKind::Unreachable && error.message().contains("io_timeout"),
                "{error}"
            );
            assert!(begin.elapsed() >= transport.io_timeout - Duration::from_millis(50));
            assert!(begin.elapsed() < transport.io_timeout * 10, "{:?}", begin.elapsed());
        }
    }

    #[test]
    fn an_end_and_garbage_are_seen_while_looking() {
        let (mut transport, callers, mut server) = polling();
        let _call = callers.begin_call();
        server.write_all(b"*2\r\n:1\r\n").unwrap();
        drop(server);
        assert_eq!(transport.recv(Some(&callers)).unwrap_err().message(), ENDED);
        let (mut transport, callers, mut server) = polling();
        let _call = callers.begin_call();
        server.write_all(b"HTTP/1.1 400").unwrap();
        assert_eq!(transport.recv(Some(&callers)).unwrap_err().kind(), ErrorKind::Protocol);
    }

    #[test]
    fn bytes_behind_a_reply_that_was_looked_for_are_noticed_before_the_next_request() {
        for (frames, later) in
            [(&b":1\r\n:2\r\n"[..], false), (b":1\r\n:", false), (b":1\r\n", true)]
        {
            let (mut transport, callers, mut server) = polling();
            let _call = callers.begin_call();
            server.write_all(frames).unwrap();
            assert_eq!(transport.recv(Some(&callers)).unwrap(), Reply::Int(1));
            assert_eq!(transport.has_input(), !later);
            if later {
                server.write_all(b":2\r\n").unwrap();
                sleep(Duration::from_millis(1));
                assert!(transport.has_input());
            }
        }
    }
}
