//! How to connect: which of the hosts, with TLS or without, and the checks of the server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::connection::Connection;
use super::install::{install, is_installed};
use super::listener::{ListenReader, ListenWriter, listen};
use super::messages::{Transport, malformed, to_error};
use super::outcome::{Backend, Boot};
use super::request::Row;
use super::startup::{Refusal, log_in};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;
use crate::store::database;
#[cfg(feature = "tls-core")]
use crate::store::database::SslMode;
use crate::store::net::{Address, Stream};
use crate::store::postgres::url::More;

/// The oldest supported version, as in `server_version_num`.
pub(crate) const OLDEST: u32 = 140_000;

/// What is known from the last connections.
#[derive(Default)]
pub(crate) struct Known {
    /// The process that took writes last.
    boot: Mutex<Option<Boot>>,
    /// How often that was a different one.
    moves: AtomicU64,
    /// If there are several hosts: the database cluster that all of them belong to.
    pub(super) system: Mutex<Option<u64>>,
    schema: AtomicBool,
    /// Whether nobody has swept this database for long. Cleared by the client that sweeps next.
    sweep_is_due: AtomicBool,
    /// When requests were last found to be held up by a session outside, and which.
    held_up: Mutex<Option<(Instant, String)>>,
}

impl Known {
    pub(crate) fn note_held_up(&self, who: &str) {
        *self.held_up.lock() = Some((Instant::now(), format!("{who}; end that transaction")));
    }

    pub(super) fn held_up_within(&self, last: Duration) -> Option<String> {
        self.held_up
            .lock()
            .as_ref()
            .filter(|(at, _)| at.elapsed() <= last)
            .map(|(_, reason)| reason.clone())
    }
}

pub(crate) type Connector = database::Connector<More, Known>;

impl Connector {
    pub(crate) fn moves(&self) -> u64 {
        self.server.known.moves.load(Ordering::Relaxed)
    }

    /// Whether a sweep of the database was due when the client looked at it; true once.
    pub(crate) fn takes_due_sweep(&self) -> bool {
        self.server.known.sweep_is_due.swap(false, Ordering::AcqRel)
    }

    /// Whether the connection's server is the one that took writes last.
    pub(crate) fn leads_to_the_primary(&self, connection: &Connection) -> bool {
        self.server.known.boot.lock().is_none_or(|boot| boot == connection.boot())
    }

    /// A connection to the host that takes writes.
    pub(crate) fn connect(&self) -> Result<Connection> {
        self.connect_by(|place, address, within| {
            let connection = self.connect_to(address, within)?;
            self.check_system(place, connection.boot())?;
            self.note(address, &connection);
            Ok(connection)
        })
    }

    /// A connection for messages, separate from all others.
    pub(crate) fn listen(&self, read_timeout: Duration) -> Result<(ListenReader, ListenWriter)> {
        listen(self.connect()?, read_timeout, self.io_timeout)
    }

    fn note(&self, address: &Address, connection: &Connection) {
        let known = &self.server.known;
        let before = known.boot.lock().replace(connection.boot());
        if before.is_some_and(|before| before != connection.boot()) {
            known.moves.fetch_add(1, Ordering::Relaxed);
            log::info!("{address:?} is another process of the server than before");
        }
    }

    /// Whether a connection to this host begins with TLS, and whether it may also be made the other
    /// way.
    #[cfg(feature = "tls-core")]
    fn wants_tls(&self, address: &Address) -> (bool, bool) {
        if self.server.tls.is_none() || !matches!(address, Address::Tcp { .. }) {
            return (false, false);
        }
        match self.server.url.ssl.mode {
            SslMode::Allow => (false, true),
            SslMode::Prefer => (true, true),
            _ => (true, false),
        }
    }

    #[cfg(not(feature = "tls-core"))]
    #[expect(clippy::unused_self, reason = "with TLS it is needed")]
    fn wants_tls(&self, _address: &Address) -> (bool, bool) {
        (false, false)
    }

    fn connect_to(&self, address: &Address, timeout: Duration) -> Result<Connection> {
        self.either_way(address, timeout, |left, with_tls| {
            self.connect_once(address, left, with_tls)
        })
    }

    /// A connection that is logged in, and the process id of its backend. The server is not
    /// checked.
    pub(super) fn open(&self, address: &Address) -> Result<(Transport, i32)> {
        self.either_way(address, self.io_timeout, |left, with_tls| {
            self.log_in_once(address, left, with_tls)
        })
    }

    /// If the URL leaves it to the server whether there is TLS, and the server's rules refuse one
    /// way, the other is tried.
    pub(super) fn either_way<T>(
        &self,
        address: &Address,
        timeout: Duration,
        connect: impl Fn(Duration, bool) -> std::result::Result<T, Refusal>,
    ) -> Result<T> {
        let timeout = self.server.url.more.connect_timeout.map_or(timeout, |own| own.min(timeout));
        let deadline = Instant::now() + timeout;
        let (with_tls, or_else) = self.wants_tls(address);
        let refused = match connect(timeout, with_tls) {
            Err(refusal) if refusal.by_rule && or_else => refusal.error,
            other => return other.map_err(|refusal| refusal.error),
        };
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        connect(left, !with_tls).map_err(|again| {
            let (first, second) = if with_tls { ("with", "without") } else { ("without", "with") };
            let [one, other] = [&refused, &again.error].map(|error| error.message());
            Error::new(refused.kind(), format!("{first} TLS {one}; {second} TLS {other}"))
        })
    }

    fn connect_once(
        &self,
        address: &Address,
        timeout: Duration,
        with_tls: bool,
    ) -> std::result::Result<Connection, Refusal> {
        let (mut transport, pid) = self.log_in_once(address, timeout, with_tls)?;
        let backend = self.check(&mut transport, pid).map_err(|e| handshake_failed(address, e))?;
        transport.handshake_done()?;
        Ok(Connection::new(transport, backend, self.server.clock.clone()))
    }

    pub(super) fn log_in_once(
        &self,
        address: &Address,
        timeout: Duration,
        with_tls: bool,
    ) -> std::result::Result<(Transport, i32), Refusal> {
        let deadline = Instant::now() + timeout;
        let stream = Stream::connect(address, timeout, deadline, &self.server.network);
        let stream = stream.map_err(|e| to_error(e, address))?;
        let stream = if with_tls { self.secure(stream, address, deadline)? } else { stream };
        let mut transport = Transport::new(stream, address.clone(), self.io_timeout, deadline);
        let pid = log_in(&mut transport, &self.server.url).map_err(|refusal| Refusal {
            error: handshake_failed(address, refusal.error),
            ..refusal
        })?;
        Ok((transport, pid))
    }

    /// Begins TLS.
    #[cfg(feature = "tls-core")]
    fn secure(&self, mut stream: Stream, address: &Address, deadline: Instant) -> Result<Stream> {
        use std::io::{Read, Write};
        let (Some(tls), Address::Tcp { host, .. }) = (&self.server.tls, address) else {
            return Ok(stream);
        };
        let mut question = bytes::BytesMut::new();
        postgres_protocol::message::frontend::ssl_request(&mut question);
        // One byte and no more: unencrypted bytes that came with it must not be read as the
        // beginning of the encrypted data.
        let mut answer = [0];
        let asked = stream
            .within(deadline)
            .write_all(&question)
            .and_then(|()| stream.within(deadline).read_exact(&mut answer));
        asked.map_err(|e| to_error(e, address))?;
        match answer[0] {
            b'S' => stream.secure(tls, host, deadline).map_err(|e| to_error(e, address)),
            b'N' if self.server.url.ssl.mode == SslMode::Prefer => Ok(stream),
            b'N' => Err(Error::new(
                ErrorKind::Tls,
                format!(
                    "{address:?} has no TLS, but sslmode requires it: turn ssl on in the server's configuration"
                ),
            )),
            _ => Err(malformed(address)),
        }
    }

    #[cfg(not(feature = "tls-core"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "with TLS it is needed")]
    fn secure(&self, stream: Stream, _address: &Address, _deadline: Instant) -> Result<Stream> {
        Ok(stream)
    }

    /// Sets up the session, and asks who answers. `pid`: the one that the start of the connection
    /// reported.
    fn check(&self, transport: &mut Transport, pid: i32) -> Result<Backend> {
        let rows = Connection::simple(transport, &self.session())?;
        let rows = rows.map_err(|e| e.to_error())?;
        let rows = rows.first();
        let Some(asked) = rows.and_then(SessionFacts::read) else {
            let hidden = rows.and_then(hidden_backend);
            return Err(hidden.unwrap_or_else(|| malformed(&transport.address)));
        };
        if asked.pid != pid {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "a pooler is between the client and the server (the log-in named another process than the one that \
                 answers): it gives a backend to one client after the other, also in session mode, so a kill after a \
                 lost answer could hit another client, and messages would be lost; name the server itself",
            ));
        }
        if asked.version < OLDEST {
            let why = format!(
                "the server is PostgreSQL {}; 14 or later is needed",
                asked.version / 10_000
            );
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        if asked.read_only {
            let why = "the server is a standby or read-only; name the primary, or all hosts";
            return Err(Error::new(ErrorKind::ReadOnly, why));
        }
        // Checked once for each process of the server, and again if it is gone.
        let is_known = self.server.known.schema.load(Ordering::Acquire)
            && self.server.known.boot.lock().is_some_and(|boot| boot == asked.boot);
        if !is_known || !asked.has_schema {
            let sweep_is_due = install(transport, asked.has_schema, self.server.create_schema)?;
            self.server.known.sweep_is_due.store(sweep_is_due, Ordering::Release);
            self.server.known.schema.store(true, Ordering::Release);
        }
        Ok(Backend { pid, started: asked.started, boot: asked.boot })
    }

    fn session(&self) -> String {
        let millis = |part: Duration| part.as_millis().max(1);
        let timeout = self.io_timeout;
        let settings = [
            ("default_transaction_isolation", "read committed".to_owned()),
            // Even an answer that nothing was done is better than none.
            ("statement_timeout", millis(timeout * 3 / 4).to_string()),
            ("lock_timeout", millis(timeout / 4).to_string()),
            ("idle_in_transaction_session_timeout", millis(timeout).to_string()),
            ("idle_session_timeout", "0".to_owned()),
            // A transaction that waits for a row must end by the timeouts above, which leave the
            // connection as it is.
            ("transaction_timeout", "0".to_owned()),
            ("jit", "off".to_owned()),
            ("plan_cache_mode", "force_generic_plan".to_owned()),
            ("client_min_messages", "warning".to_owned()),
        ];
        // Not all versions have all of them, and one that is too old shall be told so.
        let set = settings.map(|(name, value)| {
            format!("CASE WHEN current_setting('{name}', true) <> '' THEN set_config('{name}', '{value}', false) END")
        });
        format!("{OWN_PATH}; SELECT {}; {WHO}", set.join(", "))
    }
}

/// Set before anything else is asked: functions and operators that other roles have made in the
/// schemas of the role's search path must not be called here.
pub(super) const OWN_PATH: &str = "SET search_path = pg_catalog, pg_temp";

const WHO: &str = concat!(
    "SELECT pg_backend_pid(), \
    (SELECT (extract(epoch FROM backend_start) * 1000000.0)::bigint FROM pg_stat_activity WHERE pid = pg_backend_pid()), \
    (SELECT system_identifier FROM pg_control_system()), \
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000.0)::bigint, \
    pg_is_in_recovery() OR current_setting('transaction_read_only')::bool, \
    current_setting('server_version_num'), ",
    is_installed!(),
    ", session_user, current_user"
);

/// The answer to [`WHO`].
struct SessionFacts {
    pid: i32,
    started: i64,
    boot: Boot,
    read_only: bool,
    version: u32,
    has_schema: bool,
}

impl SessionFacts {
    fn read(row: &Row) -> Option<Self> {
        let text = |place: usize| row.get(place)?.as_deref();
        Some(Self {
            pid: text(0)?.parse().ok()?,
            started: text(1)?.parse().ok()?,
            boot: Boot { system: text(2)?.parse().ok()?, started: text(3)?.parse().ok()? },
            read_only: text(4)? == "t",
            version: text(5)?.parse().ok()?,
            has_schema: text(6)? == "t",
        })
    }
}

/// PostgreSQL hides when a backend has started from a role without the rights of the one that
/// logged in. Without that time no request of unknown outcome could be ended, and this role could
/// not end it either.
#[cold]
fn hidden_backend(row: &Row) -> Option<Error> {
    let (None, [.., Some(session), Some(current)]) = (row.get(1)?, &row[..]) else { return None };
    let why = format!(
        "the session of the role {session:?} is one of {current:?} (ALTER ROLE .. SET role), which may not see or end \
         the backends of {session:?}: log in as {current:?}, or GRANT {session:?} TO {current:?}"
    );
    Some(Error::new(ErrorKind::Denied, why))
}

#[cold]
fn handshake_failed(address: &Address, e: Error) -> Error {
    match e.kind() {
        ErrorKind::Unreachable | ErrorKind::Protocol => {
            let message = format!("{address:?} did not complete the handshake: {}", e.message());
            Error::new(e.kind(), message).caused_by(e)
        }
        _ => e,
    }
}
