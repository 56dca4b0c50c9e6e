//! Scheduled jobs in several processes, and what only one store has. What all stores promise is in
//! `contract::jobs`.

#[cfg(feature = "testing")]
mod in_memory;
#[cfg(feature = "postgres")]
mod in_transactions;
mod on_redis;
mod processes;
