//! Who holds a request up that has waited for a lock of the database in vain: a session that has
//! locked the tables or the row from outside. Asked only after such a wait, which is rare.

use std::time::Duration;

use super::PostgresStore;
use super::requests::{ROW_BLOCKER, TABLE_BLOCKER, text};
use super::wire::{Request, ServerError};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;

const WARN_EVERY: Duration = Duration::from_secs(10);

#[cold]
fn blocked(who: &str) -> Error {
    let why = format!("the server cannot look at the lock: {who}; end that transaction");
    Error::new(ErrorKind::NotReady, why)
}

impl PostgresStore {
    /// A request about the locks with these keys has waited for a table or a row for as long as it
    /// may. `Ok` if that counts as "taken": other clients are the reason, as far as can be seen
    /// (where hundreds ask for one lock, its row is locked nearly all the time); or another session
    /// has locked the row, and the caller waits for the lock until its own deadline anyway.
    ///
    /// # Errors `NotReady` with the session that is the reason. Nobody has looked at the lock then,
    /// so "busy" would be a guess: behind an idle session it would stay busy for ever, with no
    /// holder.
    pub(super) fn ensure_contended(&self, keys: &[&str], waits: bool) -> Result<()> {
        // First: while a table is locked exclusively, looking at a row would wait, too.
        if let Some(who) = self.blocker(&Request::new(&TABLE_BLOCKER))? {
            return Err(blocked(&who));
        }
        match self.blocker(&Request::new(&ROW_BLOCKER).list(keys.iter().copied()))? {
            Some(who) if waits => self.warn_of(&who),
            Some(who) => return Err(blocked(&who)),
            None => log::info!("the rows of {keys:?} were locked for a quarter of the I/O timeout: taken"),
        }
        Ok(())
    }

    fn blocker(&self, request: &Request) -> Result<Option<String>> {
        let rows = self.server.ask_freely(request)?.rows.map_err(|e| e.to_error())?;
        Ok(rows.first().and_then(|row| text(row, 0)).map(str::to_owned))
    }

    /// Each waiter finds it again, twice a second.
    fn warn_of(&self, who: &str) {
        let now = self.clock.now();
        let mut next = self.next_warning.lock();
        let is_due = now >= *next;
        if is_due {
            *next = now.plus(WARN_EVERY);
        }
        drop(next);
        if is_due {
            log::warn!("calls wait for a lock that no client has: {who}; end that transaction");
        }
    }

    /// Why a request about the locks with these keys was refused.
    #[cold]
    pub(super) fn refused(&self, error: &ServerError, keys: &[&str]) -> Error {
        let blocked = if error.is_lock_timeout() { self.ensure_contended(keys, false).err() } else { None };
        blocked.unwrap_or_else(|| error.to_error())
    }
}
