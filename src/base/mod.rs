//! Types that all other modules use. No I/O and no threads; the time is an argument.

pub(crate) mod backoff;
pub(crate) mod cancel;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod credentials;
pub(crate) mod deadline;
pub(crate) mod diagnosis;
pub(crate) mod error;
pub(crate) mod escape;
pub(crate) mod event;
pub(crate) mod glob;
pub(crate) mod histogram;
pub(crate) mod holder;
pub(crate) mod lease;
pub(crate) mod limits;
pub(crate) mod listener;
pub(crate) mod lock_name;
pub(crate) mod loss;
pub(crate) mod node_status;
pub(crate) mod owner;
pub(crate) mod primitive;
pub(crate) mod process;
pub(crate) mod random;
#[cfg(feature = "tls")]
pub(crate) mod tls;
pub(crate) mod traffic;
