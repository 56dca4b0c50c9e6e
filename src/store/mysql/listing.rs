//! What others can see: the locks in the table, page by page, and the owners of clients, one row
//! for each, which ends by the server's clock.

use std::time::Duration;

use super::MysqlStore;
use super::requests::{NOW, hex, micros, number, span, text, unexpected};
use super::wire::{Answer, Request, Row};
use crate::base::error::Result;
use crate::base::lock_name::{Kind, LockName};
use crate::store::{Announced, Found, FoundHolder, ListingStore, MOST_CLIENTS, OwnerStore, Wanted};

/// Maximum number of names in one page.
const PAGE: usize = 1000;

fn found(row: &Row) -> Result<Found> {
    let bad = || unexpected("a list");
    let holder = FoundHolder {
        id: text(row, 1).ok_or_else(bad)?.to_owned(),
        count: number(row, 2).ok_or_else(bad)?.unsigned_abs(),
        left: Some(span(number(row, 3).ok_or_else(bad)?)),
        data: None,
    };
    let key = text(row, 0).ok_or_else(bad)?;
    let token = number(row, 4).map(i64::unsigned_abs).filter(|token| *token > 0);
    Ok(Found { holders: vec![holder], token, ..Found::new(key, Kind::Mutex) })
}

impl MysqlStore {
    /// The locks that are taken now and match.
    fn page(&self, matches: &str) -> Result<Vec<Found>> {
        let request = Request::new(format!(
            "SELECT name,holder,level,ends-{NOW},token FROM leasehold_lock \
             WHERE {matches} AND holder IS NOT NULL AND ends>{NOW} ORDER BY name LIMIT {PAGE}"
        ));
        self.server.ask_freely(&request)?.last()?.rows.iter().map(found).collect()
    }

    fn in_background(&self, sql: String) -> Result<()> {
        self.background.exchange(&Request::new(sql), &self.server.pool).and_then(Answer::all)?;
        Ok(())
    }
}

impl ListingStore for MysqlStore {
    fn list(&self, wanted: &Wanted) -> Result<Vec<Found>> {
        let mut all = Vec::new();
        let mut from = format!("name>={}", hex(&wanted.prefix));
        loop {
            let page = self.page(&from)?;
            let is_last = page.len() < PAGE;
            let Some(last) = page.last().map(|found| found.key.clone()) else { return Ok(all) };
            all.extend(page.into_iter().filter(|found| wanted.name_of(&found.key).is_some()));
            // They are in byte order: after those with the prefix no other has it.
            if is_last || !last.starts_with(&wanted.prefix) {
                return Ok(all);
            }
            from = format!("name>{}", hex(&last));
        }
    }

    fn look_at(&self, name: &LockName) -> Result<Vec<Found>> {
        self.page(&format!("name={}", hex(&name.key)))
    }
}

impl OwnerStore for MysqlStore {
    /// Also removes a few rows that have ended. Repeat-safe: the last one counts.
    fn announce(&self, key: &str, text: &str, ttl: Duration) -> Result<()> {
        self.in_background(format!(
            "DELETE FROM leasehold_client WHERE ends<={NOW} LIMIT 10;\
             REPLACE INTO leasehold_client VALUES ({},{},{NOW}+{})",
            hex(key),
            hex(text),
            micros(ttl)
        ))
    }

    fn withdraw(&self, key: &str) -> Result<()> {
        self.in_background(format!("DELETE FROM leasehold_client WHERE id={}", hex(key)))
    }

    fn announced(&self, key: &str) -> Result<Option<Announced>> {
        let all = self.clients(&format!("id={}", hex(key)))?;
        Ok(all.into_iter().next().map(|(_, announced)| announced))
    }

    fn announced_by_all(&self) -> Result<Vec<(String, Announced)>> {
        self.clients("1")
    }
}

impl MysqlStore {
    fn clients(&self, matches: &str) -> Result<Vec<(String, Announced)>> {
        let request = Request::new(format!(
            "SELECT id,owner,ends-{NOW} FROM leasehold_client WHERE {matches} AND ends>{NOW} LIMIT {MOST_CLIENTS}"
        ));
        let client = |row: &Row| {
            let (id, owner) = (text(row, 0)?.to_owned(), text(row, 1)?.to_owned());
            Some((id, Announced { text: owner, left: span(number(row, 2)?) }))
        };
        Ok(self.server.ask_freely(&request)?.last()?.rows.iter().filter_map(client).collect())
    }
}
