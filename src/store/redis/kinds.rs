//! What a client uses a number for: a latch, a semaphore and a counting semaphore are each no more than a number under their
//! name, and Redis does not tell them apart.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::error::{Error, ErrorKind};
use crate::base::key::{Kind, LockKeys};

/// Names remembered; then all are forgotten, which costs nobody more than the warning.
const MOST_NAMES: usize = 4096;

/// The names that were seen to be a number of a kind by this client, and not to be over since.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    seen: Mutex<HashMap<Arc<str>, Kind>>,
}

impl Kinds {
    /// What else the name was used for, if it was.
    pub(super) fn other_use(&self, keys: &LockKeys) -> Option<Kind> {
        let seen = self.seen.lock().get(&keys.lock).copied()?;
        (!seen.is_same_primitive_as(keys.kind)).then_some(seen)
    }

    pub(super) fn note(&self, keys: &LockKeys) {
        let mut seen = self.seen.lock();
        if seen.len() >= MOST_NAMES && !seen.contains_key(&keys.lock) {
            seen.clear();
        }
        seen.insert(keys.lock.clone(), keys.kind);
    }

    /// The number is gone: the name may stand for anything next.
    pub(super) fn forget(&self, keys: &LockKeys) {
        self.seen.lock().remove(&keys.lock);
    }
}

pub(super) fn is_a_number(kind: Kind) -> bool {
    matches!(kind, Kind::Permits(_) | Kind::Counting { .. } | Kind::Latch)
}

#[cold]
pub(super) fn used_otherwise(keys: &LockKeys, other: Kind) -> Error {
    let word = |kind| match kind {
        Kind::Latch => "a latch",
        Kind::Counting { .. } => "a counting semaphore",
        _ => "a semaphore",
    };
    let (this, other) = (word(keys.kind), word(other));
    let why =
        format!("this client uses the name for {other}, and {this} would change that one's number; take another name");
    Error::named(ErrorKind::WrongType, &keys.name, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_bounded() {
        let kinds = Kinds::default();
        for n in 0..2 * MOST_NAMES + 1 {
            kinds.note(&LockKeys::new("", &format!("n{n}"), Kind::Latch).unwrap());
        }
        assert_eq!(kinds.seen.lock().len(), 1);
        let last = LockKeys::new("", &format!("n{}", 2 * MOST_NAMES), Kind::Permits(3)).unwrap();
        assert_eq!(kinds.other_use(&last), Some(Kind::Latch));
        kinds.forget(&last);
        assert_eq!(kinds.other_use(&last), None);
    }
}
