//! The threads of one client, and the queues in which its callers wait.

pub(crate) mod announcer;
pub(crate) mod callbacks;
mod ending;
mod give_up;
pub(crate) mod grant;
mod hold_loss;
pub(crate) mod leader;
mod listeners;
pub(crate) mod local_queue;
pub(crate) mod loss_callbacks;
pub(crate) mod notifications;
pub(crate) mod observer;
mod phase;
pub(crate) mod piggyback;
mod queue_map;
mod reading;
mod renewal_thread;
pub(crate) mod renewal_trouble;
pub(crate) mod run;
pub(crate) mod schedule;
mod share;
mod subscriber;
mod waiter;
pub(crate) mod watchdog;
