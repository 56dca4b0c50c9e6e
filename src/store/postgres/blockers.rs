//! Who holds a request up that has waited for a lock of the database in vain: a session that has
//! locked the tables or the row from outside. Asked only after such a wait, which is rare.

use super::PostgresStore;
use super::requests::{ROW_BLOCKER, TABLE_BLOCKER, text};
use super::wire::{Request, ServerError};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;

impl PostgresStore {
    /// A request about the locks with these keys has waited for a table or a row for as long as it
    /// may. `Ok` if other clients are the reason, as far as can be seen: where hundreds ask for one
    /// lock, its row is locked nearly all the time, and the lock is as good as taken.
    ///
    /// # Errors
    /// `NotReady` with the session that is the reason. Nobody has looked at the lock then, so "busy"
    /// would be a guess: behind an idle session it would stay busy for ever, with no holder.
    pub(super) fn ensure_contended(&self, keys: &[&str]) -> Result<()> {
        // The tables first: while one is locked exclusively, looking at a row would wait, too.
        for request in [Request::new(&TABLE_BLOCKER), Request::new(&ROW_BLOCKER).list(keys.iter().copied())] {
            let rows = self.server.ask_freely(&request)?.rows.map_err(|e| e.to_error())?;
            if let Some(who) = rows.first().and_then(|row| text(row, 0)) {
                let why = format!("the server cannot look at the lock: {who}; end that transaction");
                return Err(Error::new(ErrorKind::NotReady, why));
            }
        }
        log::info!("the rows of {keys:?} were locked for a quarter of the I/O timeout; they count as taken");
        Ok(())
    }

    /// Why a request about the locks with these keys was refused.
    #[cold]
    pub(super) fn refused(&self, error: &ServerError, keys: &[&str]) -> Error {
        let blocked = if error.is_lock_timeout() { self.ensure_contended(keys).err() } else { None };
        blocked.unwrap_or_else(|| error.to_error())
    }
}
