//! What a client remembers: names that other clients held recently, its latches, and its gate.
//!
//! A try asks whether a name that was held recently is free before it makes a node, because a node
//! that is made and deleted in vain is two changes that every server writes to disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::wire::Stat;
use crate::base::lease::Moment;
use crate::base::lock_name::LockName;

/// Maximum number of names that are remembered. The next try of a forgotten one costs a node.
const MOST: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct BusyNames {
    seen_at: Mutex<HashMap<Arc<str>, Moment>>,
}

impl BusyNames {
    pub(super) fn note(&self, name: &LockName, now: Moment) {
        let mut seen_at = self.seen_at.lock();
        if seen_at.len() >= MOST {
            seen_at.clear();
        }
        seen_at.insert(name.key.clone(), now);
    }

    pub(super) fn forget(&self, name: &LockName) {
        self.seen_at.lock().remove(&name.key);
    }

    pub(super) fn was_busy(&self, name: &LockName, now: Moment, within: Duration) -> bool {
        self.seen_at.lock().get(&name.key).is_some_and(|seen| now.since(*seen) <= within)
    }
}

/// How many latches are remembered, unless somebody waits for more.
const MOST_LATCHES: usize = 1024;

/// How often each latch was opened, as far as this client has seen: a waiter that comes back to a
/// latch that is counting must know whether it is still the same count.
#[derive(Debug, Default)]
pub(super) struct Latches {
    seen: HashMap<String, Seen>,
    openings: i64,
    /// How many were kept when others were last forgotten.
    kept: usize,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    czxid: i64,
    /// The generation of the session in which it was read, and the change that set the count.
    set_at: (u64, i64),
    /// The count plus the number of its changes: the sum stays the same as long as the latch only
    /// counts down.
    sum: i64,
    openings: i64,
}

impl Latches {
    /// Records what was read of a latch. Returns a number that grows whenever the latch was open in
    /// between. For a latch that it does not remember that is 0: a number greater than before would
    /// end waits.
    pub(super) fn read(
        &mut self,
        path: &str,
        read: Option<(i64, Stat)>,
        generation: u64,
        is_waited_for: impl Fn(&str) -> bool,
    ) -> i64 {
        let Some((count, stat)) = read else {
            // It is open, which whoever looked sees. The next one has another `czxid`.
            return self.seen.get(path).map_or(0, |seen| seen.openings);
        };
        let set_at = (generation, stat.mzxid);
        let sum = count + i64::from(stat.version);
        let Some(seen) = self.seen.get_mut(path) else {
            if self.seen.len() >= MOST_LATCHES.max(2 * self.kept) {
                self.seen.retain(|path, _| is_waited_for(path));
                self.kept = self.seen.len();
            }
            let seen = Seen { czxid: stat.czxid, set_at, sum, openings: 0 };
            self.seen.insert(path.to_owned(), seen);
            return 0;
        };
        // An older answer that is processed later shows nothing new.
        if set_at >= seen.set_at {
            if seen.czxid != stat.czxid || sum > seen.sum {
                self.openings += 1;
                seen.openings = self.openings;
            }
            *seen = Seen { czxid: stat.czxid, set_at, sum, ..*seen };
        }
        seen.openings
    }
}

/// The gate of the present session, if it is known.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<Option<GateSeen>>);

/// The gate as a connection has found it.
#[derive(Debug, Clone)]
pub(super) struct GateSeen {
    pub(super) path: String,
    pub(super) version: i32,
    /// The connection on which it was last closed to earlier ones.
    pub(super) connection: u64,
}

impl Gate {
    pub(super) fn seen(&self) -> Option<GateSeen> {
        self.0.lock().clone()
    }

    /// A gate was made. False: there is another one by now.
    pub(super) fn begin(&self, path: &str, connection: u64) -> bool {
        let mut known = self.0.lock();
        let is_first = known.is_none();
        known.get_or_insert_with(|| GateSeen { path: path.to_owned(), version: 0, connection });
        is_first
    }

    /// It has another version since it was closed on this connection. Of two threads that do so at
    /// the same time, the greater version counts.
    pub(super) fn closed(&self, gate: &GateSeen, version: i32, connection: u64) {
        if let Some(known) = &mut *self.0.lock()
            && known.path == gate.path
            && (connection, version) > (known.connection, known.version)
        {
            known.version = version;
            known.connection = connection;
        }
    }

    /// Its version is another one: it is closed once more before it is used again.
    pub(super) fn distrust(&self, gate: &GateSeen) {
        if let Some(known) = &mut *self.0.lock()
            && known.path == gate.path
            && known.version == gate.version
        {
            known.connection = 0;
        }
    }

    /// It no longer exists.
    pub(super) fn forget(&self, gate: &GateSeen) {
        self.0.lock().take_if(|known| known.path == gate.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latch(count: i64, version: i32, czxid: i64, mzxid: i64) -> Option<(i64, Stat)> {
        Some((count, Stat { czxid, mzxid, version, ..Stat::default() }))
    }

    #[test]
    fn a_latch_that_was_open_in_between_is_told_from_one_that_counts() {
        let mut latches = Latches::default();
        let mut read = |read| latches.read("/l", read, 1, |_| true);
        let first = read(latch(3, 0, 10, 10));
        assert_eq!(read(latch(2, 1, 10, 11)), first, "it counts down");
        assert_eq!(read(latch(3, 0, 10, 10)), first, "an old answer that came late");
        assert_eq!(read(latch(1, 2, 10, 12)), first);
        let set_anew = read(latch(5, 4, 10, 14));
        assert!(set_anew > first, "opened by one more, and set to 5");
        assert_eq!(read(latch(4, 5, 10, 15)), set_anew);
        let made_anew = read(latch(4, 0, 20, 20));
        assert!(made_anew > set_anew, "deleted and made again");
        assert_eq!(read(None), made_anew, "from before it was made");
        assert_eq!(read(latch(3, 1, 20, 21)), made_anew, "it still counts");
        let gone = read(None);
        assert!(read(latch(4, 0, 30, 30)) > gone);
        assert_eq!(latches.read("/l", latch(4, 0, 30, 30), 2, |_| true), made_anew + 1);
        assert!(latches.read("/l", latch(4, 0, 5, 5), 2, |_| true) > gone, "data were lost");
    }

    #[test]
    fn latches_of_others_end_no_wait() {
        let mut latches = Latches::default();
        let read = |latches: &mut Latches, czxid| {
            latches.read("/l", latch(3, 0, czxid, czxid), 1, |_| true)
        };
        let others = |latches: &mut Latches, kept: &str| {
            for n in 0..3 * MOST_LATCHES {
                latches.read(&format!("/{n}"), latch(1, 0, 9, 9), 1, |path| path == kept);
            }
            assert!(latches.seen.len() <= MOST_LATCHES);
        };
        read(&mut latches, 10);
        let waits_since = read(&mut latches, 20);
        others(&mut latches, "/l");
        assert_eq!(read(&mut latches, 20), waits_since, "somebody waits for it");
        // A call that has looked once does not wait yet.
        others(&mut latches, "");
        assert!(read(&mut latches, 20) <= waits_since, "forgotten, but it counts");
        assert!(read(&mut latches, 30) > waits_since);
    }
}
