//! How often the holder of a lock changes, as far as the looks show it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use leasehold::LockSummary;

use super::row::Key;

const WINDOW: Duration = Duration::from_secs(60);

/// Times are those since the start.
#[derive(Default)]
pub(super) struct Rates {
    first: Option<Duration>,
    last: Duration,
    locks: HashMap<Key, History>,
}

#[derive(Default)]
struct History {
    /// Those of the last look.
    holders: HashSet<String>,
    /// At which look how many had come.
    comings: VecDeque<(Duration, u32)>,
}

/// A holder at one look.
struct Seen<'l> {
    id: &'l str,
    held_for: Option<Duration>,
}

impl Rates {
    pub(super) fn see(&mut self, at: Duration, locks: &[LockSummary]) {
        let seen = |lock: &'_ LockSummary| {
            let holders = lock.holders().iter();
            (Key::of(lock), holders.map(|one| (one.id().to_owned(), one.held_for())).collect())
        };
        self.see_holders(at, locks.iter().map(seen));
    }

    fn see_holders(&mut self, at: Duration, locks: impl Iterator<Item = (Key, Vec<(String, Option<Duration>)>)>) {
        let since_last = at.saturating_sub(self.last);
        let is_first = self.first.is_none();
        let mut there = HashSet::new();
        for (key, holders) in locks {
            let history = self.locks.entry(key.clone()).or_default();
            let is_new = |seen: &Seen<'_>| {
                // The same client may have taken it again under the same id.
                let began_since = seen.held_for.is_some_and(|held_for| held_for < since_last / 2);
                !history.holders.contains(seen.id) || began_since
            };
            let seen = holders.iter().map(|(id, held_for)| Seen { id, held_for: *held_for });
            let came = seen.filter(is_new).count();
            if came > 0 && !is_first {
                history.comings.push_back((at, u32::try_from(came).unwrap_or(u32::MAX)));
            }
            history.holders = holders.into_iter().map(|(id, _)| id).collect();
            there.insert(key);
        }
        self.locks.retain(|key, history| {
            if !there.contains(key) {
                history.holders.clear();
            }
            while history.comings.front().is_some_and(|(then, _)| at.saturating_sub(*then) > WINDOW) {
                history.comings.pop_front();
            }
            there.contains(key) || !history.comings.is_empty()
        });
        self.first.get_or_insert(at);
        self.last = at;
    }

    /// Changes per second. `None` before there are two looks.
    pub(super) fn of(&self, key: &Key) -> Option<f64> {
        let watched = self.last.saturating_sub(self.first?).min(WINDOW);
        if watched.is_zero() {
            return None;
        }
        let comings = self.locks.get(key).map_or(0, |history| history.comings.iter().map(|(_, came)| *came).sum());
        Some(f64::from(comings) / watched.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new("job")
    }

    fn look(rates: &mut Rates, at: u64, holders: &[(&str, Option<u64>)]) -> Option<f64> {
        let holders: Vec<_> =
            holders.iter().map(|(id, held)| ((*id).to_owned(), held.map(Duration::from_secs))).collect();
        let locks = if holders.is_empty() { None } else { Some((key(), holders)) };
        rates.see_holders(Duration::from_secs(at), locks.into_iter());
        rates.of(&key())
    }

    #[test]
    fn comings_are_counted_over_the_time_watched() {
        let mut rates = Rates::default();
        assert_eq!(look(&mut rates, 0, &[("a", None)]), None);
        assert_eq!(look(&mut rates, 1, &[("a", None)]), Some(0.0), "it was there");
        assert_eq!(look(&mut rates, 2, &[("b", None)]), Some(0.5), "another");
        assert_eq!(look(&mut rates, 3, &[]), Some(1.0 / 3.0), "free");
        assert_eq!(look(&mut rates, 4, &[("b", None), ("c", None)]), Some(3.0 / 4.0), "two came");
        assert_eq!(look(&mut rates, 8, &[("b", Some(1)), ("c", Some(9))]), Some(0.5), "one has come again");
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut rates = Rates::default();
        look(&mut rates, 0, &[]);
        assert_eq!(look(&mut rates, 10, &[("a", None)]), Some(0.1));
        assert_eq!(look(&mut rates, 20, &[]), Some(0.05));
        assert_eq!(look(&mut rates, 70, &[]), Some(1.0 / 60.0));
        assert_eq!(look(&mut rates, 71, &[]), Some(0.0));
        assert!(rates.locks.is_empty(), "nothing is kept of what is gone");
    }
}
