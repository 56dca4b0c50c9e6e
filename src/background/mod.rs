//! The threads of one client, and the queues in which its callers wait.

pub(crate) mod announcer;
pub(crate) mod leader;
pub(crate) mod local_queue;
pub(crate) mod notifications;
pub(crate) mod observer;
pub(crate) mod piggyback;
mod parking;
mod queue_map;
mod reading;
pub(crate) mod run;
mod subscriber;
mod waiter;
