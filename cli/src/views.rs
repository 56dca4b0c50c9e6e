//! Locks and who has them, as JSON. Times are in milliseconds; what is not known is `null`.

use std::time::Duration;

use leasehold::{HolderOwner, LockHolder, LockReport, LockSummary, LockWaiter, Primitive};
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct LockView {
    name: String,
    kind: String,
    holders: Vec<HolderView>,
    /// Until the last of the holders loses it unless it is renewed.
    remaining_ms: Option<u64>,
    waiting: Option<u64>,
    /// The permits of a semaphore.
    permits: Option<PermitsView>,
    /// The remaining count of a latch.
    left_to_count: Option<i64>,
    masters: Option<MastersView>,
}

#[derive(Serialize)]
struct PermitsView {
    free: Option<i64>,
    taken: u64,
}

/// With several masters: on how many of how many it stands.
#[derive(Serialize)]
struct MastersView {
    on: u32,
    of: u32,
}

#[derive(Serialize)]
pub(crate) struct HolderView {
    id: String,
    hold_count: u32,
    remaining_ms: Option<u64>,
    held_for_ms: Option<u64>,
    /// The one that its client is set to.
    lease_ms: Option<u64>,
    owner: Option<OwnerView>,
    /// Whether another library holds it.
    foreign: bool,
    /// Given up, and taken until its shortest hold is over.
    kept: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct OwnerView {
    pub(crate) label: String,
    pub(crate) pid: u32,
    pub(crate) host: String,
}

#[derive(Serialize)]
struct WaiterView {
    id: String,
    place_ends_in_ms: Option<u64>,
    owner: Option<OwnerView>,
}

#[derive(Serialize)]
pub(crate) struct ReportView {
    name: String,
    locks: Vec<LockView>,
    queue: Vec<WaiterView>,
    /// A plain number under the name, of which nothing shows what it counts.
    number: Option<i64>,
    last_token: Option<u64>,
}

impl From<&LockSummary> for LockView {
    fn from(lock: &LockSummary) -> Self {
        let (kind, number) = (lock.primitive(), lock.number());
        let permits = PermitsView { free: number, taken: lock.taken() };
        let counts = matches!(kind, Primitive::Semaphore | Primitive::CountingSemaphore);
        Self {
            name: lock.name().to_owned(),
            kind: kind.to_string(),
            holders: lock.holders().iter().map(HolderView::from).collect(),
            remaining_ms: lock.remaining().map(millis),
            waiting: lock.waiting(),
            permits: counts.then_some(permits),
            left_to_count: number.filter(|_| kind == Primitive::Latch),
            masters: lock.masters().map(|(on, of)| MastersView { on, of }),
        }
    }
}

impl From<&LockHolder> for HolderView {
    fn from(holder: &LockHolder) -> Self {
        Self {
            id: holder.id().to_owned(),
            hold_count: holder.hold_count(),
            remaining_ms: holder.remaining().map(millis),
            held_for_ms: holder.held_for().map(millis),
            lease_ms: holder.lease().map(millis),
            owner: holder.owner().map(OwnerView::from),
            foreign: holder.is_foreign(),
            kept: holder.is_kept(),
        }
    }
}

impl From<&HolderOwner> for OwnerView {
    fn from(owner: &HolderOwner) -> Self {
        Self { label: owner.label().to_owned(), pid: owner.pid(), host: owner.host().to_owned() }
    }
}

impl From<&LockWaiter> for WaiterView {
    fn from(waiter: &LockWaiter) -> Self {
        Self {
            id: waiter.id().to_owned(),
            place_ends_in_ms: waiter.remaining().map(millis),
            owner: waiter.owner().map(OwnerView::from),
        }
    }
}

impl ReportView {
    /// The view of a name that is free.
    pub(crate) fn free(name: &str) -> Self {
        Self { name: name.to_owned(), locks: Vec::new(), queue: Vec::new(), number: None, last_token: None }
    }
}

impl From<&LockReport> for ReportView {
    fn from(report: &LockReport) -> Self {
        Self {
            name: report.name().to_owned(),
            locks: report.locks().iter().map(LockView::from).collect(),
            queue: report.queue().iter().map(WaiterView::from).collect(),
            number: report.number(),
            last_token: report.last_token().map(leasehold::fencing::FencingToken::get),
        }
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
