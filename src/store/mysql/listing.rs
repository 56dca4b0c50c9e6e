//! What others can see: the locks in the table, page by page, and the owners of clients, one row
//! for each, which ends by the server's clock.

use std::time::Duration;

use super::MysqlStore;
use super::requests::{NOW, hex, kind_of, micros, number, span, text, unexpected};
use super::wire::{Answer, Request, Row};
use crate::base::error::Result;
use crate::base::lock_name::{Kind, LockName};
use crate::store::{
    Announced, Found, FoundHolder, ListingStore, MOST_CLIENTS, MOST_LISTED, NameFilter, OwnerStore,
};

/// Maximum number of names in one page.
const PAGE: usize = 1000;

/// Takes a row in: that of a name with one of its shares, if it has some.
pub(super) fn add(all: &mut Vec<Found>, row: &Row) -> Result<()> {
    let bad = || unexpected("a list");
    let holder = |first: usize| -> Result<FoundHolder> {
        Ok(FoundHolder {
            id: text(row, first).ok_or_else(bad)?.to_owned(),
            count: number(row, first + 1).ok_or_else(bad)?.unsigned_abs(),
            left: Some(span(number(row, first + 2).ok_or_else(bad)?)),
            data: None,
        })
    };
    let key = text(row, 0).ok_or_else(bad)?;
    let first = holder(1)?;
    let kind = kind_of(&first.id);
    if all.last().is_none_or(|found| found.key != key) {
        let token = number(row, 4).map(i64::unsigned_abs).filter(|token| *token > 0);
        let new = Found { token, ..Found::new(key, kind) };
        all.push(match kind {
            Kind::Read => new,
            Kind::Semaphore => Found { token: None, number: number(row, 2), ..new },
            _ => Found { holders: vec![first], ..new },
        });
    }
    let found = all.last_mut().ok_or_else(bad)?;
    if text(row, 5).is_none() {
        return Ok(());
    }
    let share = holder(5)?;
    match (share.count, kind) {
        // A writer waits.
        (0, _) => found.waiting = Some(found.waiting.unwrap_or(0) + 1),
        (count, Kind::Semaphore) => {
            found.number = found.number.map(|free| free - i64::try_from(count).unwrap_or(i64::MAX));
        }
        _ => {}
    }
    match share.count {
        0 => {}
        count if found.holders.len() == MOST_LISTED => {
            found.unlisted += if kind == Kind::Semaphore { count } else { 1 };
        }
        _ => found.holders.push(share),
    }
    Ok(())
}

impl MysqlStore {
    /// What is taken now and matches.
    fn page(&self, matches: &str) -> Result<Vec<Found>> {
        let request = Request::new(format!(
            "SELECT l.name,l.holder,l.level,l.ends-{NOW},l.token,s.holder,s.level,s.ends-{NOW} \
             FROM (SELECT * FROM leasehold_lock WHERE {matches} AND holder IS NOT NULL AND ends>{NOW} \
             ORDER BY name LIMIT {PAGE}) l LEFT JOIN leasehold_share s ON s.name=l.name AND s.ends>{NOW} \
             AND s.level>=0 AND LEFT(l.holder,1)='~' ORDER BY l.name,s.holder"
        ));
        let mut all = Vec::new();
        for row in &self.server.ask_freely(&request)?.last()?.rows {
            add(&mut all, row)?;
        }
        Ok(all)
    }

    fn in_background(&self, sql: String) -> Result<()> {
        self.background.exchange(&Request::new(sql), &self.server.pool).and_then(Answer::all)?;
        Ok(())
    }
}

impl ListingStore for MysqlStore {
    fn list(&self, wanted: &NameFilter) -> Result<Vec<Found>> {
        let mut all = Vec::new();
        // No name has the byte after the prefix.
        let prefix = hex(&wanted.prefix);
        let below = format!("name<CONCAT({prefix},x'ff')");
        let mut from = format!("name>={prefix}");
        loop {
            let page = self.page(&format!("{from} AND {below}"))?;
            let is_last = page.len() < PAGE;
            let next = page.last().map(|last| format!("name>{}", hex(&last.key)));
            all.extend(page.into_iter().filter(|found| wanted.name_of(&found.key).is_some()));
            match next {
                Some(next) if !is_last => from = next,
                _ => return Ok(all),
            }
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
