//! Whether threads were left behind. Linux only: elsewhere no thread is ever found.

use std::collections::BTreeMap;

use super::{CAP, became_true};

/// The kernel keeps this much of a thread's name.
const COMM_LEN: usize = 15;

/// This process' threads whose names begin so: id and name. A longer prefix is cut as the names are.
fn threads(prefix: &str) -> BTreeMap<u32, String> {
    let prefix = &prefix.as_bytes()[..prefix.len().min(COMM_LEN)];
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return BTreeMap::new() };
    tasks
        .filter_map(|task| {
            let task = task.ok()?;
            // The thread may end while it is looked at.
            let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
            let id = task.file_name().to_str()?.parse().ok()?;
            name.as_bytes().starts_with(prefix).then(|| (id, name.trim_end().to_owned()))
        })
        .collect()
}

/// How many threads of this process have such a name now.
pub(crate) fn threads_named(prefix: &str) -> usize {
    threads(prefix).len()
}

/// The threads that were there before.
///
/// Other tests of the same binary run at the same time: give the prefix something of this test's own within the first
/// 15 bytes, or run the test in a [`Child`](super::Child).
#[derive(Debug)]
#[must_use = "call `check` at the end"]
pub(crate) struct Leak {
    prefix: String,
    before: BTreeMap<u32, String>,
}

impl Leak {
    /// Remembers the threads whose names begin so.
    pub(crate) fn start(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), before: threads(prefix) }
    }

    /// The threads that have come since.
    pub(crate) fn left(&self) -> Vec<String> {
        let now = threads(&self.prefix);
        now.into_iter()
            .filter(|(id, _)| !self.before.contains_key(id))
            .map(|(id, name)| format!("{id} {name}"))
            .collect()
    }

    /// Waits until those are gone.
    #[track_caller]
    pub(crate) fn check(&self) {
        let gone = became_true(CAP / 2, || self.left().is_empty());
        assert!(gone, "threads were left behind: {:?}", self.left());
    }
}
