//! Leases: what the store has granted and for how long, who renews it, and who is notified when it
//! ends.

pub(crate) mod announcer;
mod asked_for;
pub(crate) mod callbacks;
mod ending;
mod give_up;
pub(crate) mod hold_table;
pub(crate) mod loss_callbacks;
pub(crate) mod records;
mod renewal_batch;
pub(crate) mod renewal_failures;
mod renewal_thread;
pub(crate) mod schedule;
pub(crate) mod store_hold;
mod telling;
pub(crate) mod tenure;
mod undos;
pub(crate) mod watchdog;
