//! The owners of the clients of a memory.

use std::time::Duration;

use super::MemoryStore;
use crate::base::clock::Clock;
use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::store::{Announced, MOST_CLIENTS, OwnerStore};

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
        let announced = |text: &String, until: Moment| Announced { text: text.clone(), left: until.since(now) };
        Ok(live.map(|(key, (text, until))| (key.clone(), announced(text, *until))).collect())
    }
}
