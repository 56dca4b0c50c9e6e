//! The threads of one client, and where its callers queue up.

pub(crate) mod grant;
pub(crate) mod local_queue;
pub(crate) mod loss_callbacks;
pub(crate) mod notifications;
pub(crate) mod piggyback;
pub(crate) mod renewal_trouble;
pub(crate) mod schedule;
pub(crate) mod watchdog;
