//! The names that a client has used lately, so that a call by name, such as `client.lock("job")`,
//! neither makes nor spells its name anew, which would take a dozen allocations.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::error::Result;
use crate::base::lock_name::{Kind, LockName};
use crate::os::{HashMap, RwLock};

/// Maximum number of names kept. Beyond it all are forgotten, which costs no more than making them
/// again.
const MOST_KEPT: usize = 1024;

/// The same name in each kind that it is used for: nearly always one.
type Kinds = SmallVec<[Arc<LockName>; 1]>;

#[derive(Debug, Default)]
pub(crate) struct Names {
    /// By the name that the user gave.
    recent: RwLock<HashMap<Arc<str>, Kinds>>,
}

impl Names {
    /// Returns the name with its kind: one that was used lately, or the one that `make` returns. It
    /// never blocks: handles are also made in a forked child, where the lock may be held for ever.
    pub(crate) fn get(
        &self,
        name: &str,
        kind: Kind,
        make: impl FnOnce() -> Result<Arc<LockName>>,
    ) -> Result<Arc<LockName>> {
        if let Some(recent) = self.recent.try_read()
            && let Some(kinds) = recent.get(name)
            && let Some(known) = of_kind(kinds, kind)
        {
            return Ok(known.clone());
        }
        let made = make()?;
        if let Some(mut recent) = self.recent.try_write() {
            if recent.len() >= MOST_KEPT && !recent.contains_key(name) {
                recent.clear();
            }
            let names = recent.entry(made.name.clone()).or_default();
            // Another thread may have made it as well.
            match of_kind(names, kind) {
                Some(known) => return Ok(known.clone()),
                None => names.push(made.clone()),
            }
        }
        Ok(made)
    }
}

fn of_kind(names: &Kinds, kind: Kind) -> Option<&Arc<LockName>> {
    names.iter().find(|known| known.kind == kind)
}

/// Several names written as one, for errors and logs.
pub(crate) fn label<'n>(names: impl Iterator<Item = &'n Arc<LockName>> + Clone) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<_> = names.clone().take(SHOWN).map(|name| &*name.name).collect();
    match names.count().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(names: &Names, name: &str, kind: Kind) -> Arc<LockName> {
        names.get(name, kind, || LockName::new("p:", name, kind).map(Arc::new)).unwrap()
    }

    #[test]
    fn a_name_is_made_once_for_each_kind() {
        let names = Names::default();
        let first = get(&names, "a", Kind::Mutex);
        assert!(Arc::ptr_eq(&first, &get(&names, "a", Kind::Mutex)));
        let fair = get(&names, "a", Kind::Fair);
        assert_eq!((first.kind, fair.kind, &*fair.key), (Kind::Mutex, Kind::Fair, "p:a"));
        assert!(Arc::ptr_eq(&fair, &get(&names, "a", Kind::Fair)));
        names
            .get("", Kind::Mutex, || LockName::new("", "", Kind::Mutex).map(Arc::new))
            .unwrap_err();
    }

    #[test]
    fn the_table_is_bounded() {
        let names = Names::default();
        for n in 0..2 * MOST_KEPT + 1 {
            get(&names, &format!("n{n}"), Kind::Mutex);
        }
        assert_eq!(names.recent.read().len(), 1);
    }

    /// Like a child that was forked while another thread of its parent was writing.
    #[test]
    fn a_table_that_is_locked_for_ever_is_left_alone() {
        let names = Names::default();
        let known = get(&names, "a", Kind::Mutex);
        let _locked = names.recent.write();
        let made = get(&names, "a", Kind::Mutex);
        assert!(!Arc::ptr_eq(&known, &made) && made.key == known.key);
    }
}
