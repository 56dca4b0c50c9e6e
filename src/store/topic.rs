//! What a waiter waits for.

use std::sync::Arc;

use crate::base::lock_name::{Kind, LockName};

/// What a waiter waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Topic {
    pub(crate) kind: Kind,
    pub(crate) key: Arc<str>,
    /// `Some`: this holder waits for its turn in a queue in the store. `None`: the topic is any
    /// release under the name.
    pub(crate) turn_of: Option<Arc<str>>,
}

impl Topic {
    pub(crate) fn freed(name: &LockName) -> Self {
        // Readers and writers wait for each other.
        let kind = if name.kind == Kind::Read { Kind::Write } else { name.kind };
        Self { kind, key: name.key.clone(), turn_of: None }
    }

    pub(crate) fn turn(name: &LockName, holder: &str) -> Self {
        Self { kind: name.kind, key: name.key.clone(), turn_of: Some(holder.into()) }
    }
}
