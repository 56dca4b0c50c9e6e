//! Whether a lock is held by a `leasehold run` that this process was started under: waiting for it
//! would never end.

use leasehold::Primitive;
use leasehold::observe::{LockHolder, LockReport};

/// No chain of parent processes is longer.
const DEEPEST: usize = 1000;

/// The holder that cannot end before this process does, if there is one.
pub(in crate::run) fn held_above(report: &LockReport) -> Option<&LockHolder> {
    let ancestors = ancestors();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let is_above = |holder: &&LockHolder| {
        holder.owner().is_some_and(|owner| owner.host() == host && ancestors.contains(&owner.pid()))
    };
    // A run above this one passes its token on before it announces its owner.
    let token = |name| std::env::var(name).ok();
    let is_its_token = token("LEASEHOLD_NAME").as_deref() == Some(report.name())
        && report.last_token().is_some_and(|last| token("LEASEHOLD_TOKEN") == Some(last.to_string()));
    report.locks().iter().find_map(|lock| {
        let holders = || lock.holders().iter().filter(|holder| !holder.is_kept());
        match lock.primitive() {
            // One permit that becomes free is enough.
            Primitive::Semaphore => holders().next().filter(|_| holders().all(|holder| is_above(&holder))),
            _ => holders().find(is_above).or_else(|| holders().next().filter(|_| is_its_token)),
        }
    })
}

/// Whether this process was started under a run, and some holder of this library has not announced
/// its owner yet.
pub(in crate::run) fn may_be_nested(report: &LockReport) -> bool {
    let is_unknown = |holder: &LockHolder| holder.owner().is_none() && !holder.is_foreign() && !holder.is_kept();
    std::env::var_os("LEASEHOLD_NAME").is_some()
        && report.locks().iter().flat_map(|lock| lock.holders()).any(is_unknown)
}

/// The `leasehold` processes above this one, where the system shows them (Linux).
fn ancestors() -> Vec<u32> {
    let mut all = Vec::new();
    let mut next = rustix::process::getppid().and_then(|pid| u32::try_from(pid.as_raw_pid()).ok());
    while let Some(pid) = next.filter(|pid| *pid > 1 && all.len() < DEEPEST) {
        all.push(pid);
        next = parent_of(pid);
    }
    // Any other program may release its lock before this process ends.
    let program = |of: &str| Some(std::fs::read_link(format!("/proc/{of}/exe")).ok()?.file_name()?.to_owned());
    let own = program("self");
    all.retain(|pid| own.is_some() && program(&pid.to_string()) == own);
    all
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may contain spaces.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}
