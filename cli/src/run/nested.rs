//! Whether a lock is held by a `leasehold run` that this process was started under: waiting for it
//! would never end.

use leasehold::Primitive;
use leasehold::observe::{LockHolder, LockReport};

use crate::platform::Ancestors;

/// The holder that cannot end before this process does, if there is one.
pub(super) fn held_above(report: &LockReport) -> Option<&LockHolder> {
    let ancestors = Ancestors::of_this_process();
    let is_above =
        |holder: &&LockHolder| holder.owner().is_some_and(|owner| ancestors.include(owner));
    // A run above this one passes its token on before it announces its owner.
    let token = |name| std::env::var(name).ok();
    let is_its_token = token("LEASEHOLD_NAME").as_deref() == Some(report.name())
        && report
            .last_token()
            .is_some_and(|last| token("LEASEHOLD_TOKEN") == Some(last.to_string()));
    report.locks().iter().find_map(|lock| {
        let holders = || lock.holders().iter().filter(|holder| !holder.is_kept());
        match lock.primitive() {
            // One permit that becomes free is enough.
            Primitive::Semaphore => {
                holders().next().filter(|_| holders().all(|holder| is_above(&holder)))
            }
            _ => holders().find(is_above).or_else(|| holders().next().filter(|_| is_its_token)),
        }
    })
}

/// Whether this process was started under a run, and some holder of this library has not announced
/// its owner yet.
pub(super) fn may_be_nested(report: &LockReport) -> bool {
    let is_unknown =
        |holder: &LockHolder| holder.owner().is_none() && !holder.is_foreign() && !holder.is_kept();
    std::env::var_os("LEASEHOLD_NAME").is_some()
        && report.locks().iter().flat_map(|lock| lock.holders()).any(is_unknown)
}
