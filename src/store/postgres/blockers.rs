//! Who holds a request up that has waited for a lock of the database in vain: a session that has
//! locked the row from outside, or a table, which the error of such a wait says already. Asked only
//! after such a wait, which is rare.

use std::time::Duration;

use super::PostgresStore;
use super::requests::{ROW_BLOCKER, text};
use super::wire::{Request, ServerError};
use crate::base::error::{Error, Result};
use crate::base::log;

const WARN_EVERY: Duration = Duration::from_secs(10);

impl PostgresStore {
    /// A request that takes the locks with these keys has waited for a table or a row for as long
    /// as it may. `Ok` if that counts as "taken": other clients are the reason, as far as can be
    /// seen (where hundreds ask for one lock, its row is locked nearly all the time); or another
    /// session has locked the row, and the call `goes_on` until its own deadline anyway.
    ///
    /// # Errors `NotReady` with the session that is the reason. Nobody has looked at the lock then,
    /// so "busy" would be a guess: behind an idle session it would stay busy for ever, with no
    /// holder.
    pub(super) fn ensure_contended(
        &self,
        error: &ServerError,
        keys: &[&str],
        goes_on: bool,
    ) -> Result<()> {
        // First: while a table is locked exclusively, looking at a row would wait, too.
        if error.blocker.is_some() {
            return Err(error.to_error());
        }
        match self.row_blocker(keys, false)? {
            Some(who) if goes_on => self.warn_of(&who),
            Some(who) => return Err(error.blocked_by(who).to_error()),
            None => log::info!(
                "the rows of {keys:?} were locked for a quarter of the I/O timeout: taken"
            ),
        }
        Ok(())
    }

    /// `held`: also of a lock that a client holds. Before all other requests: as many of them as
    /// there are connections may wait for rows, and many for those.
    fn row_blocker(&self, keys: &[&str], held: bool) -> Result<Option<String>> {
        let held = if held { "true" } else { "false" };
        let question = Request::new(&ROW_BLOCKER).list(keys.iter().copied()).arg(held).urgent();
        let rows = self.server.ask_freely(&question)?.rows.map_err(|e| e.to_error())?;
        let who = rows.first().and_then(|row| text(row, 0)).map(str::to_owned);
        // Callers that wait for a connection in vain can say the reason, too.
        if let Some(who) = &who {
            self.server.pool.connector.server.known.note_held_up(who);
        }
        Ok(who)
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

    /// Why a request that changes the locks with these keys was refused. It does not take them, so
    /// it does not matter whether they are free.
    #[cold]
    pub(super) fn refused(&self, error: &ServerError, keys: &[&str]) -> Error {
        let asks = error.is_lock_timeout() && error.blocker.is_none();
        let who = if asks { self.row_blocker(keys, true).ok().flatten() } else { None };
        who.map_or_else(|| error.to_error(), |who| error.blocked_by(who).to_error())
    }
}
