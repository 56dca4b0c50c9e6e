//! One connection beside a pool, for what must not queue behind its callers: renewals and undos.

use super::failure::Failure;
use super::pooled::{FailureOf, PooledConnection, PooledConnector};
use crate::base::error::Result;
use crate::base::log;
use crate::os::{self, Mutex};

pub(crate) struct Background<C: PooledConnector> {
    pub(crate) connector: C,
    idle: Mutex<Idle<C::Connection>>,
}

/// The connection while nobody uses it.
struct Idle<T> {
    connection: Option<T>,
    /// No more connections are put back: a kept one would stay open until the client's last handle
    /// is dropped.
    closed: bool,
}

/// What follows an exchange for its connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Keep,
    Close,
    /// It was of no use.
    Replace,
}

impl<C: PooledConnector> std::fmt::Debug for Background<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Background")
            .field("server", &self.connector.address())
            .finish_non_exhaustive()
    }
}

impl<C: PooledConnector> Background<C> {
    pub(crate) fn new(connector: C) -> Self {
        Self { connector, idle: Mutex::new(Idle { connection: None, closed: false }) }
    }

    /// Whether its last exchange succeeded and its connection is kept.
    pub(crate) fn is_connected(&self) -> bool {
        self.idle.lock().connection.is_some()
    }

    pub(crate) fn close(&self) {
        // A connection on which a renewal is under way is not here: the watchdog thread drops it
        // after the answer.
        let mut idle = self.idle.lock();
        idle.closed = true;
        if let Some(mut connection) = idle.connection.take() {
            connection.say_goodbye();
        }
    }

    /// Uses a connection of the pool (`over_locks`) if it cannot open one (open files, the limit of
    /// the server): a hold must not be lost while its client has a working connection.
    pub(crate) fn or_over_locks<T>(
        &self,
        exchange: impl FnOnce() -> std::result::Result<T, FailureOf<C>>,
        over_locks: impl FnOnce() -> Option<T>,
    ) -> Result<T> {
        let started = os::now();
        match exchange() {
            // Not after a connect that timed out: the server hangs, and this request would hang,
            // too.
            Err(Failure::NotSent(error)) if os::since(started) < self.connector.io_timeout() => {
                log::debug!("renewing over a connection of the locks: {}", error.chain());
                over_locks().ok_or(error)
            }
            outcome => outcome.map_err(Failure::into_error),
        }
    }

    /// A connection that has ended says nothing about the server now: it is replaced once. Every
    /// request sent here may run at any time.
    pub(crate) fn exchange_by<T>(
        &self,
        ask: impl Fn(&mut C::Connection) -> std::result::Result<T, FailureOf<C>>,
        next: impl Fn(&T) -> Next,
    ) -> std::result::Result<T, FailureOf<C>> {
        let connect = || self.connector.connect().map_err(Failure::NotSent);
        let idle = self.idle.lock().connection.take();
        let usable = idle.and_then(|mut idle| idle.is_usable(&self.connector).then_some(idle));
        let mut connection = usable.map_or_else(connect, Ok)?;
        // If it ends now, that may have been while it was idle, or was made.
        connection.mark_idle();
        let mut outcome = ask(&mut connection);
        let is_of_no_use = match &outcome {
            Ok(done) => next(done) == Next::Replace,
            Err(failure) => matches!(failure, Failure::Unknown { ended: true, .. }),
        };
        if is_of_no_use {
            connection = connect()?;
            outcome = ask(&mut connection);
        }
        outcome.inspect(|done| self.put_back(connection, next(done)))
    }

    /// A new connection, in place of the one that is kept.
    pub(crate) fn connect_anew(&self) -> Result<C::Connection> {
        drop(self.idle.lock().connection.take());
        self.connector.connect()
    }

    pub(crate) fn put_back(&self, mut connection: C::Connection, next: Next) {
        let mut idle = self.idle.lock();
        if idle.closed {
            connection.say_goodbye();
        } else if next == Next::Keep {
            idle.connection = Some(connection);
        }
    }
}

#[cfg(test)]
#[path = "background_tests.rs"]
mod tests;
