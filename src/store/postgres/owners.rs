//! The owners of clients: one row for each, which expires by the server's clock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::sql::{ANNOUNCE, ANNOUNCED, ANNOUNCED_BY_ALL, WITHDRAW};
use super::wire::{Request, Row};
use super::{PostgresStore, requests};
use crate::base::deadline::ceil_millis;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::{Announced, MOST_CLIENTS, OwnerStore};

impl PostgresStore {
    /// Without the table (an administrator has run the script of an earlier release), or without
    /// the right to use it, owners are unknown, and are not asked for again: each refusal would
    /// cost the next caller a new connection.
    fn or_without_owners<T: Default>(&self, answered: Result<T>) -> Result<T> {
        match answered {
            Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unsupported) => {
                if !self.without_owners.swap(true, Ordering::Relaxed) {
                    log::debug!("nothing is known of the owners of locks: {}", error.chain());
                }
                Ok(T::default())
            }
            answered => answered,
        }
    }

    fn exchange_in_background(&self, request: Request) -> Result<()> {
        if self.without_owners.load(Ordering::Relaxed) {
            return Ok(());
        }
        let answered = self.background.exchange(&[request], &self.server.pool).and_then(|mut answers| {
            let missing = || Error::new(ErrorKind::Protocol, "an answer is missing");
            answers.pop().ok_or_else(missing)?.rows.map(drop).map_err(|e| e.to_error())
        });
        self.or_without_owners(answered)
    }
}

impl OwnerStore for PostgresStore {
    fn announce(&self, key: &str, text: &str, ttl: Duration) -> Result<()> {
        let ttl = i64::try_from(ceil_millis(ttl)).unwrap_or(i64::MAX);
        self.exchange_in_background(Request::new(&ANNOUNCE).arg(key).arg(text).number(ttl))
    }

    fn withdraw(&self, key: &str) -> Result<()> {
        self.exchange_in_background(Request::new(&WITHDRAW).arg(key))
    }

    fn announced(&self, key: &str) -> Result<Option<Announced>> {
        if self.without_owners.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let asked = self.server.ask_freely(&Request::new(&ANNOUNCED).arg(key));
        let rows = asked.and_then(|answer| answer.rows.map_err(|e| e.to_error()));
        Ok(self.or_without_owners(rows)?.first().and_then(|row| announced(row, 0)))
    }

    fn announced_by_all(&self) -> Result<Vec<(String, Announced)>> {
        if self.without_owners.load(Ordering::Relaxed) {
            return Ok(Vec::new());
        }
        let asked = self.server.ask_freely(&Request::new(&ANNOUNCED_BY_ALL).number(MOST_CLIENTS as u32));
        let rows = asked.and_then(|answer| answer.rows.map_err(|e| e.to_error()));
        let of_row = |row: &Row| Some((requests::text(row, 0)?.to_owned(), announced(row, 1)?));
        Ok(self.or_without_owners(rows)?.iter().filter_map(of_row).collect())
    }
}

/// Reads the columns from this one on.
fn announced(row: &Row, column: usize) -> Option<Announced> {
    let left = requests::integer(row, column + 1).and_then(|millis| u64::try_from(millis).ok())?;
    Some(Announced { text: requests::text(row, column)?.to_owned(), left: Duration::from_millis(left) })
}
