//! The primitives, their handles and their guards.

pub(crate) mod counting_semaphore;
pub(crate) mod election;
pub(crate) mod fair_mutex;
pub(crate) mod guard;
pub(crate) mod handle;
pub(crate) mod held;
pub(crate) mod latch;
pub(crate) mod multi_lock;
pub(crate) mod mutex;
pub(crate) mod once;
pub(crate) mod rate_limiter;
pub(crate) mod remote_counter;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
