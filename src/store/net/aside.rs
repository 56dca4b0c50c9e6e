//! One connection beside those of a pool, for requests that need one that was just made.

use std::ops::{Deref, DerefMut};

use super::pool::Pool;
use super::pooled::{PooledConnection, PooledConnector};
use crate::base::error::Result;
use crate::os::{self, MutexGuard};

impl<C: PooledConnector> Pool<C> {
    /// Makes a connection beside those of the pool: to install what it needs, or for requests that
    /// need one that was just made. There is one at a time.
    ///
    /// # Errors
    /// The connect failed, also for another thread that this one has waited for; or all others took
    /// the I/O timeout.
    pub(crate) fn connect_aside(&self) -> Result<Aside<'_, C>> {
        let began = os::now();
        let Some(turn) = self.aside.try_lock_for(self.connector.io_timeout()) else {
            let why = format!(
                "other threads used a new connection to {} for the I/O timeout",
                self.connector.address()
            );
            return Err(self.in_vain(why));
        };
        if let Some(error) = self.state.lock().pace.trouble_since(began) {
            return Err(error.clone());
        }
        Ok(Aside { connection: self.connect_after_pause()?, pool: self, _turn: turn })
    }

    /// Puts a connection that was made aside into the pool, if there is a place.
    fn adopt(&self, mut connection: C::Connection) {
        let mut state = self.state.lock();
        if state.closed || state.open() >= self.most {
            drop(state);
            return connection.say_goodbye();
        }
        let line = state.add(&connection);
        drop(state);
        self.give_back(line, connection);
    }
}

/// A connection that was just made, beside those of its pool. The pool has one at a time, so that
/// all threads of a client together make one connection more than it may have.
pub(crate) struct Aside<'p, C: PooledConnector> {
    pool: &'p Pool<C>,
    connection: C::Connection,
    _turn: MutexGuard<'p, ()>,
}

impl<C: PooledConnector> Aside<'_, C> {
    /// It goes into the pool, if there is a place.
    pub(crate) fn keep(self) {
        self.pool.adopt(self.connection);
    }
}

impl<C: PooledConnector> Deref for Aside<'_, C> {
    type Target = C::Connection;

    fn deref(&self) -> &C::Connection {
        &self.connection
    }
}

impl<C: PooledConnector> DerefMut for Aside<'_, C> {
    fn deref_mut(&mut self) -> &mut C::Connection {
        &mut self.connection
    }
}
