//! One client: its state, its holds, and the calls that take and give up locks.
//!
//! Lock order in `session` and `background`, where two mutexes are held together:
//! - `LocalQueues::map` or `LocalQueues::at_server`, then the state of a local queue, then the
//!   signal of a waiter, the delivery of a piggybacked acquire, or the event of that queue; one of
//!   the first two, then the event of a local queue;
//! - the watchdog's table, then the watchdog's thread handle;
//! - the topics and sleepers of the subscriber, then an event, the subscriber's thread handle, or
//!   the store's list of channels;
//! - a grant's listeners, then an event;
//! - the leases that have loss callbacks, then the queue of callbacks that are to run.
//!
//! No other mutex is held together with a second one: the hold table, the tables of waits and
//! names, the place of a callback, the state of a close, what a cancel token reaches, the
//! connections.

pub(crate) mod acquire;
pub(crate) mod attempt;
mod closing;
pub(crate) mod hold;
pub(crate) mod leaving;
mod names;
pub(crate) mod record;
mod release;
mod shared;
mod thread_exit;
pub(crate) mod wait_loop;
mod waits;

pub(crate) use self::names::label;
pub(crate) use self::shared::{Config, OutstandingPermits, Shared, closed};
pub(crate) use self::waits::Wait;
