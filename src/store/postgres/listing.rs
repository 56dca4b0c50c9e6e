//! What others can see: the locks in the tables, page by page, and the owners of clients, one row
//! for each, which expires by the server's clock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::requests::{ANNOUNCE, ANNOUNCED, ANNOUNCED_BY_ALL, LIST, WITHDRAW};
use super::requests::{data_in, integer, text, unexpected};
use super::wire::{Request, Row};
use super::{PostgresStore, requests};
use crate::base::deadline::ceil_millis;
use crate::base::error::{ErrorKind, Result};
use crate::base::lock_name::{Kind, LockName};
use crate::base::log;
use crate::store::{
    Announced, Found, FoundHolder, FoundWaiter, ListingStore, MOST_CLIENTS, MOST_LISTED,
    NameFilter, OwnerStore,
};

/// Maximum number of names in one page.
const PAGE: u32 = 1000;

/// A row of a name, and the shares and places that belong to it.
#[derive(Default)]
struct Name {
    key: String,
    kind: String,
    /// The holder of the exclusive hold.
    holder: Option<FoundHolder>,
    number: Option<i64>,
    token: Option<u64>,
    writer_waits: bool,
    shares: Vec<FoundHolder>,
    queue: Vec<FoundWaiter>,
}

impl Name {
    /// `None`: the row is unused.
    fn found(self) -> Option<Found> {
        let Self { key, kind, holder, number, token, writer_waits, mut shares, mut queue } = self;
        let length = queue.len() as u64;
        queue.truncate(MOST_LISTED);
        let found =
            |kind| Found { token: token.filter(|token| *token > 0), ..Found::new(&key, kind) };
        let waiting = writer_waits.then_some(1);
        Some(match &*kind {
            "x" if length > 0 => Found {
                holders: holder.into_iter().collect(),
                waiting: Some(length),
                queue,
                ..found(Kind::Fair)
            },
            "x" => Found { holders: vec![holder?], ..found(Kind::Mutex) },
            "r" => {
                let is_written = holder.is_some();
                let writer = holder.map(|one| FoundHolder { id: one.id + ":write", ..one });
                let mut holders: Vec<FoundHolder> = writer.into_iter().chain(shares).collect();
                let unlisted = holders.len().saturating_sub(MOST_LISTED) as u64;
                holders.truncate(MOST_LISTED);
                if holders.is_empty() {
                    return None;
                }
                Found {
                    holders,
                    unlisted,
                    waiting,
                    ..found(if is_written { Kind::Write } else { Kind::Read })
                }
            }
            "s" => {
                let taken: u64 = shares.iter().map(|share| share.count).sum();
                let free = number?.saturating_sub(i64::try_from(taken).unwrap_or(i64::MAX));
                let unlisted = shares.iter().skip(MOST_LISTED).map(|share| share.count).sum();
                shares.truncate(MOST_LISTED);
                Found {
                    holders: shares,
                    unlisted,
                    number: Some(free),
                    token: None,
                    ..found(Kind::Semaphore)
                }
            }
            "c" => Found { number: Some(number?), token: None, ..found(Kind::CountingSemaphore) },
            // Its token is the time at which it was last opened.
            "l" => Found { number: Some(number?), token: None, ..found(Kind::Latch) },
            _ => return None,
        })
    }
}

fn names(rows: &[Row]) -> Result<Vec<Name>> {
    let mut names: Vec<Name> = Vec::new();
    for row in rows {
        let bad = || unexpected("a list", None);
        let key = text(row, 0).ok_or_else(bad)?;
        let left = integer(row, 5).map(|millis| Duration::from_millis(millis.unsigned_abs()));
        let holder = || FoundHolder {
            id: text(row, 3).unwrap_or_default().to_owned(),
            count: integer(row, 4).unwrap_or(0).unsigned_abs(),
            left,
            data: data_in(row, 10),
        };
        match integer(row, 1) {
            Some(0) => names.push(Name {
                key: key.to_owned(),
                kind: text(row, 2).ok_or_else(bad)?.to_owned(),
                holder: (text(row, 3).is_some() && left.is_some()).then(holder),
                number: integer(row, 6),
                token: integer(row, 7).map(i64::unsigned_abs),
                writer_waits: integer(row, 8) == Some(1),
                ..Name::default()
            }),
            Some(part @ (1 | 2)) => {
                // The row of the name comes first.
                let name = names.last_mut().filter(|name| name.key == key).ok_or_else(bad)?;
                if part == 1 {
                    name.shares.push(holder());
                } else {
                    name.queue.push(FoundWaiter { id: holder().id, left });
                }
            }
            _ => return Err(bad()),
        }
    }
    Ok(names)
}

impl PostgresStore {
    /// The names from `from` on that come after `after`.
    fn page(&self, from: &str, after: &str, most: u32) -> Result<Vec<Name>> {
        let request = Request::new(&LIST).arg(from).arg(after).number(most);
        names(&self.server.ask_freely(&request)?.rows.map_err(|e| e.to_error())?)
    }
}

impl ListingStore for PostgresStore {
    fn list(&self, wanted: &NameFilter) -> Result<Vec<Found>> {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.page(&wanted.prefix, &after, PAGE)?;
            let is_last = page.len() < PAGE as usize;
            let Some(last) = page.last().map(|name| name.key.clone()) else { return Ok(all) };
            all.extend(
                page.into_iter()
                    .filter(|name| wanted.name_of(&name.key).is_some())
                    .filter_map(Name::found),
            );
            // They are in byte order: after those with the prefix no other has it.
            if is_last || !last.starts_with(&wanted.prefix) {
                return Ok(all);
            }
            after = last;
        }
    }

    fn look_at(&self, name: &LockName) -> Result<Vec<Found>> {
        let row = self.page(&name.key, "", 1)?.into_iter().find(|row| *row.key == *name.key);
        Ok(row.and_then(Name::found).into_iter().collect())
    }
}

impl PostgresStore {
    /// Without the right to use the table, owners are unknown, and are not asked for again.
    fn or_without_owners<T: Default>(&self, answered: Result<T>) -> Result<T> {
        match answered {
            Err(error) if error.kind() == ErrorKind::Denied => {
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
        let answered = self.background.exchange(&request, &self.server.pool);
        let answered = answered.and_then(|answer| answer.rows.map_err(|e| e.to_error()));
        self.or_without_owners(answered.map(drop))
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
        let asked =
            self.server.ask_freely(&Request::new(&ANNOUNCED_BY_ALL).number(MOST_CLIENTS as u32));
        let rows = asked.and_then(|answer| answer.rows.map_err(|e| e.to_error()));
        let of_row = |row: &Row| Some((requests::text(row, 0)?.to_owned(), announced(row, 1)?));
        Ok(self.or_without_owners(rows)?.iter().filter_map(of_row).collect())
    }
}

/// Reads the columns from this one on.
fn announced(row: &Row, column: usize) -> Option<Announced> {
    let left = requests::integer(row, column + 1).and_then(|millis| u64::try_from(millis).ok())?;
    Some(Announced {
        text: requests::text(row, column)?.to_owned(),
        left: Duration::from_millis(left),
    })
}
