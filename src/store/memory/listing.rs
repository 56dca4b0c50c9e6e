//! What others can see: the locks in this memory, and the owners of its clients.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::MemoryStore;
use super::entry::{Entry, HolderEntry, another_kind};
use super::state::MemoryState;
use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::base::lock_name::{Kind, LockName};
use crate::signal::clock::Clock;
use crate::store::{
    Announced, Found, FoundHolder, FoundWaiter, MOST_CLIENTS, MOST_LISTED, NameFilter, OwnerStore,
};

fn holder(entry: &HolderEntry, now: Moment) -> FoundHolder {
    FoundHolder {
        id: entry.holder.as_str().to_owned(),
        count: entry.count.into(),
        left: Some(entry.until.since(now)),
        data: None,
    }
}

impl MemoryState {
    pub(super) fn list(&mut self, wanted: &NameFilter, now: Moment) -> Vec<Found> {
        let keys: BTreeSet<Arc<str>> =
            self.keys().filter(|key| wanted.name_of(key).is_some()).cloned().collect();
        keys.iter().filter_map(|key| self.found(key, now)).collect()
    }

    pub(super) fn look_at(&mut self, name: &LockName, now: Moment) -> Result<Vec<Found>> {
        if matches!(self.entry(&name.key, now), Some(Entry::Value(_) | Entry::RateLimiter(_))) {
            return Err(another_kind());
        }
        Ok(self.found(&name.key, now).into_iter().collect())
    }

    fn found(&mut self, key: &Arc<str>, now: Moment) -> Option<Found> {
        let queue = self.queue_at(key, now);
        let writer_waits = self.markers.get(key).is_some_and(|marker| marker.until > now);
        let found = |kind| Found::new(key, kind);
        let number = |kind, number: i64| Found { number: Some(number), ..found(kind) };
        let holders = |entries: &[HolderEntry]| -> Vec<FoundHolder> {
            entries.iter().take(MOST_LISTED).map(|entry| holder(entry, now)).collect()
        };
        let unlisted = |all: usize| all.saturating_sub(MOST_LISTED) as u64;
        let mut found = match self.entry(key, now) {
            Some(Entry::Lock(current)) => {
                let kind = if queue.is_empty() { Kind::Mutex } else { Kind::Fair };
                Found { holders: vec![holder(current, now)], ..found(kind) }
            }
            Some(Entry::ReadWrite(lock)) => {
                let kind = if lock.writer.is_some() { Kind::Write } else { Kind::Read };
                let writer = lock.writer.iter().map(|writer| holder(writer, now));
                let writer = writer.map(|one| FoundHolder { id: one.id + ":write", ..one });
                let readers = holders(&lock.readers);
                Found {
                    holders: writer.chain(readers).collect(),
                    unlisted: unlisted(lock.readers.len()),
                    waiting: writer_waits.then_some(1),
                    ..found(kind)
                }
            }
            Some(Entry::Semaphore(permits)) => {
                // Permits whose lease has ended are free: the next acquire returns them.
                let live: Vec<HolderEntry> =
                    permits.taken.iter().filter(|one| one.until > now).cloned().collect();
                let taken: i64 = live.iter().map(|one| i64::from(one.count)).sum();
                let free = permits.free + permits.held() - taken;
                let unlisted = live.iter().skip(MOST_LISTED).map(|one| u64::from(one.count)).sum();
                Found { holders: holders(&live), unlisted, ..number(Kind::Semaphore, free) }
            }
            Some(Entry::CountingSemaphore(free)) => number(Kind::CountingSemaphore, *free),
            Some(Entry::Latch(left)) => number(Kind::Latch, *left),
            None if !queue.is_empty() => found(Kind::Fair),
            Some(Entry::RateLimiter(_) | Entry::Value(_)) | None => return None,
        };
        if matches!(found.kind, Some(Kind::Mutex | Kind::Fair)) {
            for holder in &mut found.holders {
                let Some(written) = self.written_by(key, &holder.id) else { continue };
                holder.data = Some(written.data.clone());
                found.token = Some(written.token).filter(|token| *token > 0);
            }
        }
        if found.kind == Some(Kind::Fair) {
            found.waiting = Some(queue.len() as u64);
            found.queue = queue;
            found.queue.truncate(MOST_LISTED);
        }
        Some(found)
    }

    /// All waiters whose place has not expired.
    fn queue_at(&self, key: &str, now: Moment) -> Vec<FoundWaiter> {
        let places = self
            .queues
            .get(key)
            .into_iter()
            .flat_map(|queue| &queue.0)
            .filter(|place| place.deadline > now);
        let waiter = |id: &str, left| FoundWaiter { id: id.to_owned(), left: Some(left) };
        places.map(|place| waiter(place.holder.as_str(), place.deadline.since(now))).collect()
    }
}

impl OwnerStore for MemoryStore {
    fn announce(&self, key: &str, text: &str, ttl: Duration) -> Result<()> {
        let now = self.memory.clock.now();
        let mut state = self.lock_state()?;
        // Removes the records of clients that could not withdraw them.
        state.owners.retain(|_, (_, until)| *until > now);
        state.owners.insert(key.to_owned(), (text.to_owned(), now.plus(ttl)));
        Ok(())
    }

    fn withdraw(&self, key: &str) -> Result<()> {
        self.lock_state()?.owners.remove(key);
        Ok(())
    }

    fn announced(&self, key: &str) -> Result<Option<Announced>> {
        let now = self.memory.clock.now();
        let state = self.lock_state()?;
        let announced = state.owners.get(key).filter(|(_, until)| *until > now);
        Ok(announced.map(|(text, until)| Announced { text: text.clone(), left: until.since(now) }))
    }

    fn announced_by_all(&self) -> Result<Vec<(String, Announced)>> {
        let now = self.memory.clock.now();
        let state = self.lock_state()?;
        let live = state.owners.iter().filter(|(_, (_, until))| *until > now).take(MOST_CLIENTS);
        let announced =
            |text: &String, until: Moment| Announced { text: text.clone(), left: until.since(now) };
        Ok(live.map(|(key, (text, until))| (key.clone(), announced(text, *until))).collect())
    }
}
