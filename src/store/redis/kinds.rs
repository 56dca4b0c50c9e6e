//! The kind of number that a client keeps under a name. A latch, a semaphore and a counting
//! semaphore are each stored as a number under their name, and Redis cannot distinguish them.

use std::sync::Arc;

use crate::base::error::{Error, ErrorKind};
use crate::base::lock_name::{Kind, LockName};
use crate::os::{HashMap, Mutex};

/// Maximum number of names remembered. Beyond it all are forgotten, which costs only the error
/// message.
const MOST_KINDS: usize = 4096;

/// The names that this client has used for some kind of number, and has not seen deleted since.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    seen: Mutex<HashMap<Arc<str>, Kind>>,
}

impl Kinds {
    /// The other kind that the name was used for, if any.
    pub(super) fn other_use(&self, name: &LockName) -> Option<Kind> {
        let seen = self.seen.lock().get(&name.key).copied()?;
        (!seen.is_same_primitive_as(name.kind)).then_some(seen)
    }

    pub(super) fn note(&self, name: &LockName) {
        let mut seen = self.seen.lock();
        if seen.len() >= MOST_KINDS && !seen.contains_key(&name.key) {
            seen.clear();
        }
        seen.insert(name.key.clone(), name.kind);
    }

    /// The number was deleted: the name can be used for any kind.
    pub(super) fn forget(&self, name: &LockName) {
        self.seen.lock().remove(&name.key);
    }
}

#[cold]
pub(super) fn used_otherwise(name: &LockName, other: Kind) -> Error {
    let word = |kind| match kind {
        Kind::Latch => "a latch",
        Kind::CountingSemaphore => "a counting semaphore",
        _ => "a semaphore",
    };
    let this = word(name.kind);
    let other = word(other);
    let why = format!(
        "this client uses the name for {other}, whose number {this} would change; use another name"
    );
    Error::named(ErrorKind::WrongType, &name.name, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_bounded() {
        let kinds = Kinds::default();
        for n in 0..2 * MOST_KINDS + 1 {
            kinds.note(&LockName::new("", &format!("n{n}"), Kind::Latch).unwrap());
        }
        assert_eq!(kinds.seen.lock().len(), 1);
        let last = LockName::new("", &format!("n{}", 2 * MOST_KINDS), Kind::Semaphore).unwrap();
        assert_eq!(kinds.other_use(&last), Some(Kind::Latch));
        kinds.forget(&last);
        assert_eq!(kinds.other_use(&last), None);
    }
}
