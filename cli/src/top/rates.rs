//! How often a lock is granted, as far as the polls show it: by its fencing tokens, and by its
//! holders.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use leasehold::observe::LockSummary;

use super::row::Key;

const WINDOW: Duration = Duration::from_secs(60);
/// More grants than any lock has in a second. A counter that had expired continues at the server's
/// clock, which counts microseconds: that jump is not a number of grants.
const MOST_PER_SECOND: f64 = 500_000.0;

/// All times are since the start.
#[derive(Default)]
pub(super) struct Rates {
    first: Option<Duration>,
    last: Duration,
    locks: HashMap<Key, History>,
}

#[derive(Default)]
struct History {
    /// The holders at the last poll.
    holders: HashSet<String>,
    /// The last token that was seen, and when.
    token: Option<(u64, Duration)>,
    /// For each poll, how many grants were new.
    grants: VecDeque<(Duration, u64)>,
    seen: Duration,
}

/// A lock at one poll.
pub(super) struct Seen {
    pub(super) key: Key,
    pub(super) token: Option<u64>,
    /// The id of each holder, and how long it has held the lock.
    pub(super) holders: Vec<(String, Option<Duration>)>,
}

impl From<&LockSummary> for Seen {
    fn from(lock: &LockSummary) -> Self {
        Self {
            key: Key::of(lock),
            token: lock.last_token().map(leasehold::fencing::FencingToken::get),
            holders: lock
                .holders()
                .iter()
                .map(|one| (one.id().to_owned(), one.held_for()))
                .collect(),
        }
    }
}

impl History {
    /// How many grants there were since the poll before, by the token.
    fn granted_by(&mut self, token: Option<u64>, at: Duration) -> u64 {
        let before = self.token;
        self.token = token.map(|token| (token, at)).or(before);
        let (Some(now), Some((before, then))) = (token, before) else { return 0 };
        let grants = now.saturating_sub(before);
        let most = at.saturating_sub(then).as_secs_f64() * MOST_PER_SECOND;
        if (grants as f64) <= most { grants } else { 0 }
    }

    /// How many of these holders are new since the poll before.
    fn came(&self, holders: &[(String, Option<Duration>)], since_last: Duration) -> u64 {
        let is_new = |(id, held_for): &&(String, Option<Duration>)| {
            // The same client may have taken it again under the same id.
            !self.holders.contains(id) || held_for.is_some_and(|held_for| held_for < since_last / 2)
        };
        holders.iter().filter(is_new).count() as u64
    }
}

impl Rates {
    pub(super) fn see(&mut self, at: Duration, locks: impl Iterator<Item = Seen>) {
        let since_last = at.saturating_sub(self.last);
        let is_first = self.first.is_none();
        let mut there = HashSet::new();
        for Seen { key, token, holders } in locks {
            let history = self.locks.entry(key.clone()).or_default();
            let granted = history.granted_by(token, at).max(history.came(&holders, since_last));
            if granted > 0 && !is_first {
                history.grants.push_back((at, granted));
            }
            history.holders = holders.into_iter().map(|(id, _)| id).collect();
            history.seen = at;
            there.insert(key);
        }
        let is_old = |then: Duration| at.saturating_sub(then) > WINDOW;
        self.locks.retain(|key, history| {
            if !there.contains(key) {
                history.holders.clear();
            }
            while history.grants.front().is_some_and(|(then, _)| is_old(*then)) {
                history.grants.pop_front();
            }
            // A lock that was free at each poll is kept too: its token shows the grants in between.
            !is_old(history.seen)
        });
        self.first.get_or_insert(at);
        self.last = at;
    }

    /// Grants per second. `None` before the second poll.
    pub(super) fn of(&self, key: &Key) -> Option<f64> {
        let watched = self.last.saturating_sub(self.first?).min(WINDOW);
        if watched.is_zero() {
            return None;
        }
        let grants: u64 = self
            .locks
            .get(key)
            .map_or(0, |history| history.grants.iter().map(|(_, grants)| *grants).sum());
        Some(grants as f64 / watched.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new("job")
    }

    fn look(rates: &mut Rates, at: u64, holders: &[(&str, Option<u64>)]) -> Option<f64> {
        let holders: Vec<_> = holders
            .iter()
            .map(|(id, held)| ((*id).to_owned(), held.map(Duration::from_secs)))
            .collect();
        let locks = (!holders.is_empty()).then(|| Seen { key: key(), token: None, holders });
        rates.see(Duration::from_secs(at), locks.into_iter());
        rates.of(&key())
    }

    #[test]
    fn tokens_count_what_no_look_has_seen() {
        let mut rates = Rates::default();
        let mut look = |at, token| {
            let holders = vec![("a".to_owned(), None)];
            rates.see(
                Duration::from_secs(at),
                std::iter::once(Seen { key: key(), token: Some(token), holders }),
            );
            rates.of(&key())
        };
        assert_eq!(look(0, 1_000), None);
        assert_eq!(look(1, 2_500), Some(1_500.0));
        assert_eq!(look(2, 2_500), Some(750.0));
        // A counter that had expired continues at the clock.
        assert_eq!(look(3, 1_790_000_000_000_000), Some(500.0));
        assert_eq!(look(4, 1_790_000_000_000_500), Some(500.0));
    }

    #[test]
    fn holders_that_come_are_counted_over_the_time_watched() {
        let mut rates = Rates::default();
        assert_eq!(look(&mut rates, 0, &[("a", None)]), None);
        assert_eq!(look(&mut rates, 1, &[("a", None)]), Some(0.0), "it was there");
        assert_eq!(look(&mut rates, 2, &[("b", None)]), Some(0.5), "another");
        assert_eq!(look(&mut rates, 3, &[]), Some(1.0 / 3.0), "free");
        assert_eq!(look(&mut rates, 4, &[("b", None), ("c", None)]), Some(3.0 / 4.0), "two came");
        assert_eq!(
            look(&mut rates, 8, &[("b", Some(1)), ("c", Some(9))]),
            Some(0.5),
            "one has come again"
        );
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
