//! The faults of a deployment and its clients, and the promise that each of them breaks.

use crate::event::{Nanos, millis};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fault {
    // To the processes of clients.
    /// SIGKILL; another process takes its place.
    Kill,
    /// SIGSTOP for longer than a lease, then SIGCONT.
    Stop,
    /// A thread that holds a lock forks.
    Fork,
    // To the connections of one process.
    /// All of them end.
    Cut,
    /// Nothing arrives any more, in either direction.
    HalfOpen,
    /// The same for those that receive messages.
    HalfOpenSubscribers,
    /// New connections are refused.
    Refuse,
    /// Replies are late.
    Delay,
    /// The request runs and its reply is lost.
    LoseReply,
    /// A part of a request arrives.
    TruncateRequest,
    /// A part of a reply arrives.
    TruncateReply,
    /// A reply arrives twice: the second is a frame that nobody asked for.
    DuplicateFrame,
    /// Bytes of another protocol arrive.
    ForeignFrame,
    // To servers.
    /// SIGKILL; it starts again with its data.
    KillServer,
    /// SIGSTOP, then SIGCONT.
    StopServer,
    /// SIGKILL; it starts again without its data.
    EmptyServer,
    /// It refuses writes because its memory is full.
    FillServer,
    /// It refuses writes.
    MakeReadOnly,
    /// Another server takes over.
    Failover,
    /// Slots move to another primary.
    MoveSlots,
    /// The leader of an ensemble is cut off together with one client; the others elect another.
    Depose,
    /// A follower receives what was committed with a delay.
    Lag,
    /// A replica that a failover would promote is suspended.
    StopReplica,
    // By operators.
    /// `force_unlock` of a name.
    Force,
    /// `FLUSHALL`.
    Flush,
    /// All connections are ended by the server.
    EndBackends,
    // Only in memory.
    /// The clock of leases jumps ahead.
    StepClock,
    /// The store forgets who holds a name.
    Lose,
}

/// A promise of a deployment that a fault breaks: the documented limits in `README.md` and in the
/// chapters `losing_a_lock`, `choosing_a_store` and `servers` of the guide. Every other check holds
/// under every fault.
struct Limit {
    fault: Fault,
    /// The deployments to which it applies; empty for all.
    on: &'static [&'static str],
    /// How long after the end of the fault an earlier holder may still believe while the next one
    /// does.
    overlap: Overlap,
}

#[derive(Clone, Copy)]
enum Overlap {
    /// Until its next renewal.
    NextRenewal,
}

const LIMITS: &[Limit] = &[
    // "Holders of this client learn of the loss at once, others at their next renewal".
    Limit { fault: Fault::Force, on: &[], overlap: Overlap::NextRenewal },
    // The same for a store that is made to forget.
    Limit { fault: Fault::Lose, on: &[], overlap: Overlap::NextRenewal },
    // "A server comes back empty: its locks are forgotten, and a holder hears of it at its next
    // renewal". Not Redlock: such a master does not vote.
    Limit {
        fault: Fault::EmptyServer,
        on: &["redis", "sentinel", "cluster"],
        overlap: Overlap::NextRenewal,
    },
    Limit {
        fault: Fault::Flush,
        on: &["redis", "sentinel", "cluster"],
        overlap: Overlap::NextRenewal,
    },
    // "Another takes over: the newest grants may be forgotten", if grants do not wait for replicas.
    Limit { fault: Fault::Failover, on: &["sentinel", "cluster"], overlap: Overlap::NextRenewal },
    // A master that is stopped or killed is replaced.
    Limit { fault: Fault::StopServer, on: &["sentinel", "cluster"], overlap: Overlap::NextRenewal },
    Limit { fault: Fault::KillServer, on: &["sentinel", "cluster"], overlap: Overlap::NextRenewal },
];

impl Fault {
    /// How long after its end two guards may believe, one of which had the lock before; `None` if
    /// the fault breaks nothing.
    pub(crate) fn overlap_on(self, deployment: &str, lease: Nanos) -> Option<Nanos> {
        let fits = |limit: &&Limit| {
            limit.fault == self && (limit.on.is_empty() || limit.on.contains(&deployment))
        };
        LIMITS.iter().find(fits).map(|limit| match limit.overlap {
            // A third of the lease, an I/O timeout, and a margin for a busy machine.
            Overlap::NextRenewal => lease / 3 + lease / 4 + millis(500),
        })
    }
}

impl Fault {
    /// Whether it may forget what a latch has counted. Only grants wait for replicas.
    pub(crate) fn forgets_counts_on(self, deployment: &str) -> bool {
        let of_a_name = [Self::Force, Self::Lose].contains(&self);
        let replaces = [Self::Failover, Self::KillServer, Self::StopServer].contains(&self);
        let forgets = self.overlap_on(deployment, 0).is_some();
        forgets && !of_a_name || replaces && deployment == "replicas"
    }
}

/// A fault that was injected.
#[derive(Debug, Clone)]
pub(crate) struct Disturbance {
    pub(crate) fault: Fault,
    pub(crate) from: Nanos,
    /// When it was undone and everything worked again.
    pub(crate) to: Nanos,
    /// The names that it affects; empty for all.
    pub(crate) names: Vec<String>,
    /// How long after `to` two guards may believe; `None` if they may not.
    pub(crate) overlap: Option<Nanos>,
    pub(crate) forgets_counts: bool,
    /// Whom it affected, for readers of the report.
    pub(crate) target: String,
}

#[test]
fn a_limit_is_only_for_where_it_is_documented() {
    let lease = millis(3000);
    assert!(Fault::Flush.overlap_on("redis", lease).is_some_and(|overlap| overlap < lease));
    assert_eq!(Fault::Flush.overlap_on("redlock", lease), None);
    assert_eq!(Fault::Failover.overlap_on("replicas", lease), None);
    assert_eq!(Fault::Kill.overlap_on("redis", lease), None);
    assert!(Fault::Force.overlap_on("zookeeper", lease).is_some());
    assert!(
        Fault::Flush.forgets_counts_on("redis") && Fault::Failover.forgets_counts_on("replicas")
    );
    assert!(
        !Fault::Force.forgets_counts_on("redis")
            && !Fault::KillServer.forgets_counts_on("postgres")
    );
}
