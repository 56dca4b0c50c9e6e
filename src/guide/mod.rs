//! The chapters of the documentation. These modules contain no code.
//!
//! Start with the [first page](crate). Then read what you need:
//!
//! - Using a lock: [`waiting`], [`losing_a_lock`], [`fencing`], [`scheduled_jobs`],
//!   [`what_happens_when`].
//! - Setting it up: [`choosing_a_store`], [`choosing_a_lease`], [`servers`], [`postgres`],
//!   [`mysql`], [`zookeeper`], [`redlock`], [`redisson`].
//! - Fitting it into a program: [`worker_pools`], [`async_code`], [`shutdown`],
//!   [`testing`].
//! - Running it: [`operations`].

#[doc(alias = "tokio")]
#[doc(alias = "axum")]
pub mod async_code;
pub mod choosing_a_lease;
pub mod choosing_a_store;
pub mod fencing;
pub mod losing_a_lock;
#[doc(alias = "MariaDB")]
pub mod mysql;
pub mod operations;
pub mod postgres;
#[doc(alias = "Java")]
#[doc(alias = "newCondition")]
#[doc(alias = "readLock")]
#[doc(alias = "writeLock")]
#[doc(alias = "updateRate")]
#[doc(alias = "lockAndGetToken")]
#[doc(alias = "lockAsync")]
#[doc(alias = "unlockAsync")]
#[doc(alias = "getLock")]
#[doc(alias = "getFairLock")]
#[doc(alias = "getReadWriteLock")]
#[doc(alias = "getMultiLock")]
#[doc(alias = "RSpinLock")]
#[doc(alias = "releaseIfExists")]
#[doc(alias = "isHeldByThread")]
#[doc(alias = "ReentrantLock")]
#[doc(alias = "RLock")]
#[doc(alias = "SETNX")]
pub mod redisson;
pub mod redlock;
#[doc(alias = "cron")]
#[doc(alias = "ShedLock")]
#[doc(alias = "lockAtMostFor")]
pub mod scheduled_jobs;
pub mod servers;
pub mod shutdown;
pub mod testing;
pub mod waiting;
pub mod what_happens_when;
pub mod worker_pools;
pub mod zookeeper;
