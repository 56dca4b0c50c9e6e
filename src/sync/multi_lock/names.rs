//! The names of a multi-lock: checked, and in one order.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::error::{Result, invalid};
use crate::base::limits::MOST_NAMES;
use crate::base::lock_name::{Kind, LockName};
use crate::base::names::label;
use crate::wait::client_state::ClientState;

/// The names of a multi-lock: valid, sorted and unique.
pub(super) fn names_of<N: AsRef<str>>(
    client: &ClientState,
    names: impl IntoIterator<Item = N>,
) -> Result<Arc<[Arc<LockName>]>> {
    let of = |name: N| {
        let name = LockName::new(&client.config.key_prefix, name.as_ref(), Kind::Mutex)?;
        client.store.check(&name).map_err(|e| e.for_name(&name.name))?;
        client.seen.observer.meet(&name);
        Ok((name.key.clone(), Arc::new(name)))
    };
    let names: BTreeMap<_, _> = names.into_iter().map(of).collect::<Result<_>>()?;
    if (1..=MOST_NAMES).contains(&names.len()) {
        client.store.multi().map_err(|e| e.for_name(&label(names.values())))?;
        return Ok(names.into_values().collect());
    }
    let why = format!("a multi-lock takes between 1 and {MOST_NAMES} names, not {}", names.len());
    Err(invalid(why))
}
