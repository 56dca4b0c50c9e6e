//! Holds as guards use them: how they are taken, re-entered and given up, by a guard, by the end of
//! a thread, or by closing the client.
//!
//! Lock order in `lease`, `wait` and `hold`, where two mutexes are held together:
//! - `LocalQueues::map` or `LocalQueues::at_server`, then the state of a local queue, then the
//!   signal of a waiter, the delivery of a piggybacked acquire, or the event of that queue; one of
//!   the first two, then the event of a local queue;
//! - the state of a local queue, then the users of a hold;
//! - the watchdog's table, then the watchdog's thread handle, or the hold table;
//! - the watchdog's table or the hold table, then the users of a hold;
//! - the topics and sleepers of the subscriber, then an event, the subscriber's thread handle, or
//!   the store's list of channels;
//! - a tenure's listeners, then an event;
//! - the leases that have loss callbacks, then the queue of callbacks that are to run.
//!
//! No other mutex is held together with a second one: the tables of waits and names, the place of a
//! callback, the state of a close, what a cancel token reaches, the connections.

pub(crate) mod acquire;
mod closing;
pub(crate) mod guarded;
pub(crate) mod leaving;
pub(crate) mod permits;
mod release;
pub(crate) mod terms;
mod thread_exit;
