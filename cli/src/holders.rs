//! How holders are shown to people.

use leasehold::observe::{HolderOwner, LockHolder};

use crate::text::{fit, visible};

/// Who holds the lock: the owner or, if it is not known, the id.
pub(crate) fn who(holder: &LockHolder) -> String {
    if holder.is_kept() {
        return "nobody (--min-hold)".to_owned();
    }
    who_or_id(holder.owner(), holder.id())
}

pub(crate) fn who_or_id(owner: Option<&HolderOwner>, id: &str) -> String {
    visible(&owner.map_or_else(|| id.to_owned(), ToString::to_string))
}

/// What the holder has written beside its hold, in at most this many columns.
pub(crate) fn data_of(holder: &LockHolder, columns: usize) -> Option<String> {
    holder.data().map(|data| fit(&visible(&String::from_utf8_lossy(data)), columns))
}
