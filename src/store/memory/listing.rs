//! Lists what is in this memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::entry::{Entry, HolderEntry, another_kind};
use super::state::MemoryState;
use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::base::lock_name::{Kind, LockName};
use crate::store::{Found, FoundHolder, FoundWaiter, MOST_LISTED, Wanted};

fn holder(entry: &HolderEntry, now: Moment) -> FoundHolder {
    FoundHolder { id: entry.holder.as_str().to_owned(), count: entry.count.into(), left: Some(entry.until.since(now)) }
}

impl MemoryState {
    pub(super) fn list(&mut self, wanted: &Wanted, now: Moment) -> Vec<Found> {
        let keys: BTreeSet<Arc<str>> = self.keys().filter(|key| wanted.name_of(key).is_some()).cloned().collect();
        keys.iter().filter_map(|key| self.found(key, now)).collect()
    }

    pub(super) fn look_at(&mut self, name: &LockName, now: Moment) -> Result<Vec<Found>> {
        if matches!(self.entry(&name.key, now), Some(Entry::Value(_))) {
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
                let live: Vec<HolderEntry> = permits.taken.iter().filter(|one| one.until > now).cloned().collect();
                let taken: i64 = live.iter().map(|one| i64::from(one.count)).sum();
                let free = permits.free + permits.held() - taken;
                let unlisted = live.iter().skip(MOST_LISTED).map(|one| u64::from(one.count)).sum();
                Found { holders: holders(&live), unlisted, ..number(Kind::Semaphore, free) }
            }
            Some(Entry::CountingSemaphore(free)) => number(Kind::CountingSemaphore, *free),
            Some(Entry::Latch(left)) => number(Kind::Latch, *left),
            None if !queue.is_empty() => found(Kind::Fair),
            Some(Entry::Value(_)) | None => return None,
        };
        if found.kind == Some(Kind::Fair) {
            found.waiting = Some(queue.len() as u64);
            found.queue = queue;
            found.queue.truncate(MOST_LISTED);
        }
        Some(found)
    }

    /// All waiters whose place has not expired.
    fn queue_at(&self, key: &str, now: Moment) -> Vec<FoundWaiter> {
        let places = self.queues.get(key).into_iter().flat_map(|queue| &queue.0).filter(|place| place.deadline > now);
        let waiter = |id: &str, left| FoundWaiter { id: id.to_owned(), left: Some(left) };
        places.map(|place| waiter(place.holder.as_str(), place.deadline.since(now))).collect()
    }
}
