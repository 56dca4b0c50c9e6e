//! Shows locks: what this client holds, counts and waits for, the state of its servers, and who
//! holds the locks in the store.
//!
//! # Which method shows what?
//!
//! | I want to see | I call | I get | I/O |
//! |---|---|---|---|
//! | who holds one lock | [`ReentrantMutex::holder`], [`FairMutex::holder`], [`RwLock::holders`] | [`LockHolder`] | two round trips |
//! | everything under one name: holders, queue, permits, last token | [`LockClient::inspect`] | [`LockReport`] | a few round trips |
//! | what is locked now, by any client that announces it | [`LockClient::announced_locks`] | [`AnnouncedLocks`] of [`LockSummary`] | a few round trips |
//! | the same with the locks of other libraries | [`LockClient::locks`] | a list of [`LockSummary`] | searches the whole store |
//! | what this client holds and waits for now, and threads that wait for each other | [`LockClient::snapshot`] | [`Snapshot`] | none |
//! | how often and how long this client waited, held, failed and lost locks | [`LockClient::stats`] | [`Stats`] | none |
//! | the state of its servers when it last queried them | [`LockClient::nodes`] | [`NodeStatus`] | none |
//! | what is wrong at its servers, and what to do about it | [`LockClient::diagnose`] | [`Diagnosis`] | queries every server |
//! | waits and holds as spans of a trace | nothing: the cargo feature `tracing` [makes them](crate::guide::operations#spans) | spans for your subscriber | none |
//! | each wait, grant, loss and failed renewal as it happens | [`Builder::listener`] | calls of your [`Listener`] | none |
//!
//! The types are copies, which do not change afterwards, and most have a `Display` for people. The
//! chapter [operations](crate::guide::operations) says which figures to alarm on, and what to check
//! when a job hangs. The command `leasehold` shows the same in a terminal.
//!
//! # As JSON
//!
//! With the cargo feature `serde` the types implement `serde::Serialize`; each says in its
//! description what it becomes. All of them have these rules:
//!
//! - Every key is always present. What is not known, or does not apply, is `null`.
//! - Durations are whole numbers, rounded down, with their unit in the key: `_ms` or, where
//!   milliseconds are too coarse, `_us`.
//! - A [`Primitive`](crate::Primitive) is its name in lower case, under the key `kind`.
//! - Later releases may add keys, and new kinds, checks and errors.
//!
//! The command prints these objects with `--json`.
//!
//! ```
//! let client = leasehold::LockClient::builder().owner("billing-7").build_in_memory()?;
//! let _guard = client.lock("report")?;
//! # #[cfg(feature = "serde")] {
//! let report = client.inspect("report")?.expect("it is held");
//! let json = serde_json::to_value(&report).expect("it can be written as JSON");
//! assert_eq!(json["locks"][0]["kind"], "mutex");
//! assert_eq!(json["locks"][0]["holders"][0]["owner"]["label"], "billing-7");
//! # }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! [`Builder::listener`]: crate::Builder::listener
//! [`FairMutex::holder`]: crate::FairMutex::holder
//! [`LockClient::announced_locks`]: crate::LockClient::announced_locks
//! [`LockClient::diagnose`]: crate::LockClient::diagnose
//! [`LockClient::inspect`]: crate::LockClient::inspect
//! [`LockClient::locks`]: crate::LockClient::locks
//! [`LockClient::nodes`]: crate::LockClient::nodes
//! [`LockClient::snapshot`]: crate::LockClient::snapshot
//! [`LockClient::stats`]: crate::LockClient::stats
//! [`ReentrantMutex::holder`]: crate::ReentrantMutex::holder
//! [`RwLock::holders`]: crate::RwLock::holders

mod holder;
#[cfg(feature = "serde")]
mod json;
mod last_holder;
mod listing;
mod metrics;
mod snapshot;
mod stats;

pub(crate) use listing::{announced_locks, inspect, locks};

pub use crate::base::counters::Figures;
pub use crate::base::histogram::Histogram;
pub use crate::base::node_status::{NodeState, NodeStatus};
pub use crate::report::diagnosis::{Check, Diagnosis, Finding, Severity};
pub use crate::report::listener::{Listener, LockInfo};
pub use crate::report::outcomes::{ElectionStats, JobStats};
pub use crate::report::owner::HolderOwner;
pub use holder::LockHolder;
pub use last_holder::LastHolder;
pub use listing::{AnnouncedLocks, LockReport, LockSummary, LockWaiter};
#[cfg(feature = "prometheus-client")]
pub use metrics::Collector;
pub use snapshot::{Blocker, Deadlock, HoldInfo, Snapshot, ThreadInfo, WaitInfo};
pub use stats::{NameStats, Stats};
