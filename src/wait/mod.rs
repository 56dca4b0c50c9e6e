//! Waiting for a name: one acquire, the threads of a client that queue for it, when other clients
//! go first, and the messages that wake a waiter.

pub(crate) mod attempt;
mod blind_poll;
pub(crate) mod client_state;
pub(crate) mod contend;
pub(crate) mod contender;
pub(crate) mod fairness;
mod grants;
mod leader;
mod leftovers;
pub(crate) mod life;
pub(crate) mod local_queue;
mod machine;
pub(crate) mod notifications;
mod parking;
pub(crate) mod piggyback;
mod queue_map;
mod reading;
mod subscriber;
mod topic_watch;
mod undoing;
mod wait_loop;
mod waiter;
pub(crate) mod waits;
