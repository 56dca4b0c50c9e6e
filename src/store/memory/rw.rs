//! The read-write lock.

use std::time::Duration;

use super::entry::{Entry, HolderEntry, Marker, ReadWrite};
use super::state::MemoryState;
use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::base::lock_name::Kind;
use crate::store::{Acquire, Acquired, Granted, HoldCounts, Release, Released, Waiting};

impl MemoryState {
    pub(super) fn acquire_read(&mut self, acquire: &Acquire<'_>, now: Moment) -> Result<Acquired> {
        let Acquire { name, holder, lease, held, .. } = *acquire;
        let until = now.plus(lease);
        let granted =
            Acquired::Granted(Granted { token: 0, sent_at: now, session: None, next: None });
        match self.typed(&name.key, now, Entry::read_write) {
            Ok(Some(lock)) if lock.is_reader(holder) => {
                lock.read(holder, held + 1, until);
                return Ok(granted);
            }
            // A downgrade whose outcome is unknown may not have run: the holder is still the
            // writer, which excludes more than a reader needs to.
            Ok(Some(lock)) if held > 0 && lock.is_writer(holder) => {
                lock.lengthen(holder, until);
                return Ok(granted);
            }
            _ if held > 0 => return Ok(Acquired::Gone),
            Ok(Some(lock)) if lock.writer.is_some() => {
                return Ok(Acquired::Busy { ttl: Some(lock.until().since(now)) });
            }
            Ok(_) => {}
            Err(e) => return Err(e),
        }
        // Applies even while the lock is free: the waiting writer has not tried again yet, and
        // readers must not always be faster.
        if let Some(marker) = self.markers.get(&name.key).filter(|marker| marker.until > now) {
            return Ok(Acquired::Busy { ttl: Some(marker.until.since(now)) });
        }
        self.read_write(acquire, now).read(holder, held + 1, until);
        Ok(granted)
    }

    pub(super) fn acquire_write(
        &mut self,
        acquire: &Acquire<'_>,
        marker: Duration,
        now: Moment,
    ) -> Result<Acquired> {
        let Acquire { name, holder, lease, held, token, waiting, .. } = *acquire;
        match self.typed(&name.key, now, Entry::read_write) {
            Ok(Some(lock)) if lock.is_writer(holder) => {}
            _ if held > 0 => return Ok(Acquired::Gone),
            Ok(Some(lock)) => {
                let ttl = lock.until().since(now);
                let is_read = lock.writer.is_none();
                // Not while a writer holds the lock: if a marker were set then, writers would
                // always go before readers, and readers could starve.
                if waiting == Waiting::No || !is_read {
                    return Ok(Acquired::Busy { ttl: Some(ttl) });
                }
                self.markers.insert(
                    name.key.clone(),
                    Marker { holder: holder.clone(), until: now.plus(marker) },
                );
                return Ok(Acquired::Busy { ttl: Some(ttl.min(marker / 3)) });
            }
            Ok(None) => {}
            Err(e) => return Err(e),
        }
        if held == 0 {
            self.markers.remove(&name.key);
        }
        let token = self.token(token, held);
        let lock = self.read_write(acquire, now);
        let writer = lock.writer.get_or_insert_with(|| HolderEntry {
            holder: holder.clone(),
            count: 0,
            until: now,
        });
        writer.count = held + 1;
        writer.lengthen(now.plus(lease));
        Ok(Acquired::Granted(Granted { token, sent_at: now, session: None, next: None }))
    }

    /// The lock under this name; the caller has checked that nothing else exists there.
    fn read_write(&mut self, acquire: &Acquire<'_>, now: Moment) -> &mut ReadWrite {
        let key = &acquire.name.key;
        if self.entry(key, now).is_none() {
            self.insert(key, Entry::ReadWrite(ReadWrite::default()), now);
        }
        let lock = self.unchecked_entry(key).and_then(Entry::read_write);
        lock.expect("a read-write lock exists there, or was just inserted")
    }

    pub(super) fn release_rw(&mut self, release: &Release<'_>, now: Moment) -> Released {
        let Release { name, holder, left, .. } = *release;
        let Ok(Some(lock)) = self.typed(&name.key, now, Entry::read_write) else {
            return self.leave_marker(release);
        };
        let writing = lock.is_writer(holder);
        if !writing && (!lock.is_reader(holder) || left.main > 0) {
            return self.leave_marker(release);
        }
        if left.main > 0 {
            if let Some(writer) = &mut lock.writer {
                writer.count = left.main;
            }
            return Released::StillHeld;
        }
        if left.reads > 0 {
            // A downgrade: the reader keeps the writer's lease.
            let until =
                lock.writer.take_if(|writer| writer.holder == *holder).map(|writer| writer.until);
            lock.read(holder, left.reads, until.unwrap_or(now));
            if !writing {
                return Released::StillHeld;
            }
        } else {
            lock.writer.take_if(|writer| writer.holder == *holder);
            lock.readers.retain(|reader| reader.holder != *holder);
            if !lock.drop_ended(now) {
                return Released::StillHeld;
            }
            self.remove(&name.key);
        }
        Released::Freed { listeners: Some(self.publish(Kind::Write, &name.key)), next: None }
    }

    /// A waiting writer leaves, so readers may enter again. If another writer waits, it sets the
    /// marker again.
    fn leave_marker(&mut self, release: &Release<'_>) -> Released {
        let Release { name, holder, left, .. } = *release;
        let is_own = |marker: &Marker| marker.holder == *holder;
        if left == HoldCounts::NONE && self.markers.get(&name.key).is_some_and(is_own) {
            self.markers.remove(&name.key);
            self.publish(Kind::Write, &name.key);
        }
        Released::NotHeld
    }
}

#[cfg(test)]
#[path = "rw_tests.rs"]
mod tests;
