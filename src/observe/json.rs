//! The types of this module as JSON: every key of every type, in one place.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::{
    AnnouncedLocks, Blocker, Check, Deadlock, Diagnosis, ElectionStats, Figures, Finding,
    Histogram, HoldInfo, HolderOwner, JobStats, LockHolder, LockInfo, LockReport, LockSummary,
    LockWaiter, NameStats, NodeState, NodeStatus, Severity, Snapshot, Stats, ThreadInfo, WaitInfo,
};
use crate::base::primitive::Primitive;

/// Serializes a type as an object with these keys. Written by hand and not derived, because the
/// keys are those of the command's schema and not the fields, and so that no macros have to be
/// compiled.
macro_rules! object {
    ($name:ident as $it:ident { $($key:ident: $value:expr),+ $(,)? }) => {
        object!($name, $name as $it { $($key: $value),+ });
    };
    ($name:ident, $type:ty as $it:ident { $($key:ident: $value:expr),+ $(,)? }) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let $it = self;
                let keys = [$(stringify!($key)),+];
                let mut object = serializer.serialize_struct(stringify!($name), keys.len())?;
                $(object.serialize_field(stringify!($key), &$value)?;)+
                object.end()
            }
        }
    };
}

/// Serializes a type as the string that this method returns.
macro_rules! text {
    ($type:ty, $label:ident) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.$label())
            }
        }
    };
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

text!(Primitive, as_str);
text!(Check, label);
text!(Severity, label);

// The locks of all clients.

object!(HolderOwner as owner { label: owner.label(), pid: owner.pid(), host: owner.host() });

object!(LockHolder as holder {
    id: holder.id(),
    hold_count: holder.hold_count(),
    remaining_ms: holder.remaining().map(millis),
    held_for_ms: holder.held_for().map(millis),
    lease_ms: holder.lease().map(millis),
    announced_ago_ms: holder.announced_ago().map(millis),
    owner: holder.owner(),
    foreign: holder.is_foreign(),
    kept: holder.is_kept(),
    this_client: holder.is_this_client(),
    data: holder.data().map(String::from_utf8_lossy),
});

object!(LockSummary as lock {
    name: lock.name(),
    kind: lock.primitive(),
    holders: lock.holders(),
    unlisted: lock.unlisted,
    remaining_ms: lock.remaining().map(millis),
    waiting: lock.waiting(),
    permits: Permits::of(lock),
    left_to_count: lock.number().filter(|_| lock.primitive() == Primitive::Latch),
    masters: lock.masters().map(|(on, of)| Masters { on, of }),
    last_token: lock.last_token(),
});

struct Permits {
    free: Option<i64>,
    /// `None`: nobody counts those of a counting semaphore.
    taken: Option<u64>,
}

impl Permits {
    fn of(lock: &LockSummary) -> Option<Self> {
        let counts = matches!(
            lock.primitive(),
            Primitive::Semaphore | Primitive::CountingSemaphore | Primitive::RateLimiter
        );
        let taken = (lock.primitive() != Primitive::CountingSemaphore).then(|| lock.taken());
        counts.then(|| Self { free: lock.number(), taken })
    }
}

object!(Permits as permits { free: permits.free, taken: permits.taken });

struct Masters {
    on: u32,
    of: u32,
}

object!(Masters as masters { on: masters.on, of: masters.of });

object!(LockWaiter as waiter {
    id: waiter.id(),
    place_ends_in_ms: waiter.remaining().map(millis),
    owner: waiter.owner(),
    this_client: waiter.is_this_client(),
});

object!(LockReport as report {
    name: report.name(),
    locks: report.locks(),
    queue: report.queue(),
    number: report.number(),
    last_token: report.last_token(),
});

object!(AnnouncedLocks as announced { locks: announced.locks(), unlisted: announced.unlisted() });

// The servers.

object!(Finding as finding {
    check: finding.check(),
    severity: finding.severity(),
    node: finding.node(),
    found: finding.found(),
    advice: finding.advice().map(ToString::to_string),
});

object!(Diagnosis as diagnosis {
    severity: diagnosis.severity(),
    problems: diagnosis.count(Severity::Problem),
    warnings: diagnosis.count(Severity::Warning),
    notes: diagnosis.count(Severity::Note),
    findings: diagnosis.findings(),
});

fn state_and_quarantine(state: NodeState) -> (&'static str, Option<u64>) {
    match state {
        NodeState::Voting => ("voting", None),
        NodeState::Quarantined { remaining } => ("quarantined", remaining.map(millis)),
        NodeState::Down => ("down", None),
    }
}

object!(NodeState as state {
    state: state_and_quarantine(*state).0,
    quarantine_ms: state_and_quarantine(*state).1,
});

object!(NodeStatus as node {
    address: node.address(),
    state: state_and_quarantine(node.state()).0,
    quarantine_ms: state_and_quarantine(node.state()).1,
    latency_us: node.latency().map(micros),
    last_error: node.last_error().map(|error| error.chain().to_string()),
    slots: node.slots().iter().map(|slots| [*slots.start(), *slots.end()]).collect::<Vec<_>>(),
});

// This client.

object!(ThreadInfo as thread { id: format!("{:?}", thread.id()), name: thread.name() });

object!(HoldInfo as hold {
    name: hold.name(),
    kind: hold.primitive(),
    hold_count: hold.hold_count(),
    thread: hold.thread(),
    owned: hold.is_owned(),
    held: hold.is_held(),
    held_for_ms: millis(hold.held_for()),
    remaining_ms: hold.remaining().map(millis),
    fencing_token: hold.fencing_token(),
});

fn thread_and_owned(blocker: &Blocker) -> (&ThreadInfo, bool) {
    match blocker {
        Blocker::Thread(thread) => (thread, false),
        Blocker::OwnedGuard(thread) => (thread, true),
    }
}

object!(Blocker as blocker { thread: thread_and_owned(blocker).0, owned: thread_and_owned(blocker).1 });

object!(WaitInfo as wait {
    name: wait.name(),
    kind: wait.primitive(),
    thread: wait.thread(),
    waited_ms: millis(wait.waited()),
    time_left_ms: wait.time_left().map(millis),
    blockers: wait.blockers(),
});

object!(Deadlock as deadlock { waits: deadlock.waits() });

object!(Snapshot as snapshot {
    client_name: snapshot.client_name(),
    holds: snapshot.holds(),
    waits: snapshot.waits(),
    deadlocks: snapshot.deadlocks(),
});

object!(LockInfo, LockInfo<'_> as lock { name: lock.name(), kind: lock.primitive() });

object!(Histogram as histogram {
    count: histogram.count(),
    sum_us: micros(histogram.sum()),
    mean_us: micros(histogram.mean()),
    p50_us: micros(histogram.p50()),
    p99_us: micros(histogram.p99()),
    max_us: micros(histogram.max()),
});

object!(Figures as figures {
    calls: figures.calls(),
    granted_at_once: figures.granted_at_once(),
    granted_after_wait: figures.granted_after_wait(),
    reentered: figures.reentered(),
    busy: figures.busy(),
    timed_out: figures.timed_out(),
    stopped: figures.stopped(),
    failed: figures.failed(),
    errors: figures.errors().map(|(kind, count)| (kind.label(), count)).collect::<BTreeMap<_, _>>(),
    contended: figures.contended(),
    passed_on: figures.passed_on(),
    acquired_with_release: figures.acquired_with_release(),
    joined: figures.joined(),
    renewals: figures.renewals(),
    renewal_failures: figures.renewal_failures(),
    lost: figures.lost(),
    losses: figures.losses().map(|(reason, count)| (reason.label(), count)).collect::<BTreeMap<_, _>>(),
    waits: figures.waits(),
    holds: figures.holds(),
});

object!(NameStats as named { name: named.name(), kind: named.primitive(), figures: named.figures() });

object!(JobStats as job {
    name: job.name(),
    done: job.done(),
    failed: job.failed(),
    unrecorded: job.unrecorded(),
    already_done: job.already_done(),
    gave_up: job.gave_up(),
    not_run: job.not_run(),
    last_done_unix_ms: job.last_done_since_1970().map(millis),
});

object!(ElectionStats as election {
    name: election.name(),
    terms: election.terms(),
    leads: election.leads(),
});

object!(Stats as stats {
    client_name: stats.client_name(),
    uptime_ms: millis(stats.uptime()),
    holds: stats.holds(),
    waiting: stats.waiting(),
    unknown_outcomes: stats.unknown_outcomes(),
    requests: stats.requests(),
    bytes_sent: stats.bytes_sent(),
    bytes_received: stats.bytes_received(),
    connections_opened: stats.connections_opened(),
    connections_broken: stats.connections_broken(),
    reconnects: stats.reconnects(),
    total: stats.total(),
    primitives: stats.primitives().map(|(primitive, figures)| (primitive.as_str(), figures)).collect::<BTreeMap<_, _>>(),
    names: stats.names(),
    jobs: stats.jobs(),
    elections: stats.elections(),
});

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
