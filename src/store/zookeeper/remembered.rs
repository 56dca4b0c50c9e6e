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

/// How many latches are remembered.
const MOST_LATCHES: usize = 1024;

/// How often each latch was opened, as far as this client has seen: a waiter that comes back to a
/// latch that is counting must know whether it is still the same count.
#[derive(Debug, Default)]
pub(super) struct Latches {
    seen: HashMap<String, Seen>,
    openings: i64,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    czxid: i64,
    mzxid: i64,
    /// The count plus the number of its changes: the sum stays the same as long as the latch only
    /// counts down.
    sum: i64,
    openings: i64,
}

impl Latches {
    /// Records what was read of a latch. Returns a number that grows whenever the latch was open in
    /// between.
    pub(super) fn read(&mut self, path: &str, read: Option<(i64, Stat)>) -> i64 {
        let (czxid, mzxid, sum) = match read {
            Some((count, stat)) => (stat.czxid, stat.mzxid, count + i64::from(stat.version)),
            None => (0, 0, 0),
        };
        if self.seen.len() >= MOST_LATCHES && !self.seen.contains_key(path) {
            self.seen.clear();
        }
        let Some(seen) = self.seen.get_mut(path) else {
            self.openings += 1;
            let openings = self.openings;
            self.seen.insert(path.to_owned(), Seen { czxid, mzxid, sum, openings });
            return openings;
        };
        // An older answer that is processed later shows nothing new.
        let is_older = mzxid < seen.mzxid && read.is_some();
        if !is_older {
            if seen.czxid != czxid || sum > seen.sum {
                self.openings += 1;
                seen.openings = self.openings;
            }
            seen.czxid = czxid;
            seen.mzxid = mzxid.max(seen.mzxid);
            seen.sum = sum;
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

    fn read(count: i64, version: i32, czxid: i64, mzxid: i64) -> Option<(i64, Stat)> {
        Some((count, Stat { czxid, mzxid, version, ..Stat::default() }))
    }

    #[test]
    fn a_latch_that_was_open_in_between_is_told_from_one_that_counts() {
        let mut latches = Latches::default();
        let first = latches.read("/l", read(3, 0, 10, 10));
        assert_eq!(latches.read("/l", read(2, 1, 10, 11)), first, "it counts down");
        assert_eq!(latches.read("/l", read(3, 0, 10, 10)), first, "an old answer that came late");
        assert_eq!(latches.read("/l", read(1, 2, 10, 12)), first);
        let set_anew = latches.read("/l", read(5, 4, 10, 14));
        assert!(set_anew > first, "opened by one more, and set to 5");
        assert_eq!(latches.read("/l", read(4, 5, 10, 15)), set_anew);
        let made_anew = latches.read("/l", read(4, 0, 20, 20));
        assert!(made_anew > set_anew, "deleted and made again");
        let gone = latches.read("/l", None);
        assert!(gone > made_anew);
        assert!(latches.read("/l", read(4, 0, 30, 30)) > gone);
        assert!(latches.read("/other", read(4, 0, 30, 30)) > gone, "numbers are never used twice");
    }
}
