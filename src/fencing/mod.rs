//! Helpers that make a resource check fencing tokens.
//!
//! A lease is not proof. A holder that is suspended, or whose packet is delayed, can outlive its
//! lease, and its write arrives when somebody else holds the lock. The lock cannot stop that write.
//! The resource can, if it remembers the highest [`FencingToken`] it has seen and refuses a lower
//! one. `guard.fencing_token()` returns the token; this module provides the check.
//!
//! # Comparing at the write is not enough
//!
//! Two workers each add to a number. `A` got the lock first (token 1), is suspended past its lease,
//! and `B` gets the lock (token 2). The resource compares tokens when a write arrives:
//!
//! ```text
//!   A, token 1                    B, token 2                    resource: value, token
//!   ──────────────────────────    ──────────────────────────    ──────────────────────
//!   read: 10                                                    10, 0
//!   … suspended, lease ends …     got the lock
//!                                 read: 10
//!   write 10 + 1: 1 > 0, taken                                  11, 1
//!                                 write 10 + 5: 2 > 1, taken    15, 2    A's 1 is lost
//! ```
//!
//! The resource had seen no newer token when `A`'s write arrived, so it accepted the write; and `B`
//! had read before. Both writes were reported as successful.
//!
//! So a read-modify-write first *claims* the resource: it raises the stored token to its own,
//! **before** it reads. Its write then requires exactly that claim, and not only "no newer token":
//!
//! ```text
//!   A, token 1                    B, token 2                    resource: value, token
//!   ──────────────────────────    ──────────────────────────    ──────────────────────
//!   claim: 1 ≥ 0, taken                                         10, 1
//!   read: 10
//!   … suspended, lease ends …     got the lock
//!                                 claim: 2 ≥ 1, taken           10, 2
//!                                 read: 10
//!   write 10 + 1: 1 ≠ 2, Stale                                  10, 2    A knows it failed
//!                                 write 10 + 5: 2 = 2, taken    15, 2
//! ```
//!
//! If `A`'s write had come before `B`'s claim, it would have been accepted, and `B` would have read
//! its result, 11. Either way the next holder reads the result of every accepted write. `A` gets
//! [`ErrorKind::Stale`]: nothing was written. If the work still has to be done, `A` takes the lock
//! again and starts over with a new token.
//!
//! # When to claim
//!
//! | The holder | needs | because |
//! |---|---|---|
//! | reads, computes, writes back (a counter, a document) | a claim, and a write under it | see above |
//! | overwrites blindly (a heartbeat, the name of a leader) | a compare at the write | the old value is not worth keeping |
//! | lets the resource compute (`SET n = n + 1`) | a compare at the write | it reads and writes in one step |
//!
//! If you are not sure, claim: it costs one small write.
//!
//! # Which helper for which resource
//!
//! | The resource | Helper | A claim | A compare at the write |
//! |---|---|---|---|
//! | lives in this process (a value, a file that no other process writes) | [`FenceGate`] | [`FenceGate::claim`] | claim and write in one line |
//! | is a row of an SQL table | [`SqlFence`] | [`SqlFence::claim`] | [`SqlFence::write_unclaimed`] |
//! | is in the database that has the locks (`postgres://`, `mysql://`) | [`TransactionFence`] | [`TransactionFence::sql`] | [`TransactionFence::sql_at_commit`] |
//! | is a value on the server that has the locks | [`FencedValue`] | [`FencedValue::claim`] | claim and write, two round trips |
//!
//! For any other resource the rule is the same, if it can compare and set in one step. Store the
//! token beside the value. A claim raises the token unless a higher one is stored. A write requires
//! that the stored token is still exactly the claim.
//!
//! # What it cannot do
//!
//! - A resource that stores no token cannot refuse: an e-mail, a call to a third-party service.
//! - Every writer has to go through the check. The check does not see a writer that bypasses it.
//! - The stored token must live as long as the value. A row that is deleted, or a gate that is
//!   created again, has forgotten the earlier holders.
//! - A resource is guarded by *one* lock. Tokens of two locks cannot be compared.
//! - Threads that share one hold have one token, and the token does not separate them.
//!
//! [`ErrorKind::Stale`]: crate::ErrorKind::Stale

mod gate;
mod sql;
mod token;
mod transaction;
mod value;

pub use gate::{Claim, FenceGate};
pub use sql::{Placeholders, SqlFence};
pub use token::FencingToken;
pub use transaction::{DoneStatement, TransactionFence};
pub use value::{FencedValue, ValueClaim};
