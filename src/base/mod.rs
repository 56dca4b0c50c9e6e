//! Types that all other modules use. No I/O and no threads; the time is an argument.

pub(crate) mod advice;
pub(crate) mod counters;
#[cfg(feature = "redis")]
pub(crate) mod credentials;
pub(crate) mod data;
pub(crate) mod deadline;
pub(crate) mod digits;
pub(crate) mod error;
pub(crate) mod escape;
#[cfg(test)]
pub(crate) mod fuzz_tests;
pub(crate) mod glob;
pub(crate) mod histogram;
pub(crate) mod holder;
pub(crate) mod job_keys;
pub(crate) mod job_name;
pub(crate) mod lease;
pub(crate) mod limits;
pub(crate) mod lock_name;
pub(crate) mod log;
pub(crate) mod loss;
pub(crate) mod names;
pub(crate) mod node_status;
pub(crate) mod primitive;
pub(crate) mod random;
#[cfg(feature = "tls-core")]
pub(crate) mod tls;
