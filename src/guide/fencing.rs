//! How a resource stops a late holder.
//!
//! A lease can end while its holder is suspended, or while its write is in flight. The lock cannot
//! stop that write. The resource can: each hold has a *fencing token*, a number that is larger than
//! that of every earlier hold of the same name, and the resource refuses a number that is smaller
//! than the highest it has seen.
//!
//! ```no_run
//! # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
//! let guard = client.lock("balance")?;
//! let token = guard.fencing_token()?;
//!
//! let balance = client.fenced_value("balance of account 17");
//! let claim = balance.claim(token)?; // older holders are refused from here on
//! let old = String::from_utf8_lossy(claim.value().unwrap_or(b"0")).parse::<i64>().unwrap_or(0);
//! claim.write((old + 1).to_string())?; // `Stale` if a newer holder has claimed it
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Claim before you read
//!
//! It is not enough to compare tokens when a write arrives. If the old holder's write arrives
//! between the new holder's read and write, the resource has seen no newer token yet and accepts
//! it, and the new holder then overwrites it. So a job that reads, computes and writes back first
//! *claims* the resource: it raises the stored token to its own, then reads, and its write succeeds
//! only under exactly that claim. The module [`fencing`](crate::fencing) shows both interleavings,
//! step by step.
//!
//! # Which helper
//!
//! | the resource | helper |
//! |---|---|
//! | is in the PostgreSQL or MySQL database that keeps the locks | [`fence_sql`](crate::ReentrantMutexGuard::fence_sql), one statement of your own transaction. The strongest: the database itself checks the hold, and keeps the next holder out until the transaction has ended. No table needs a column for it. See [`postgres`](crate::guide::postgres) and [`mysql`](crate::guide::mysql) |
//! | is a value in Redis | [`FencedValue`](crate::fencing::FencedValue), made by [`fenced_value`](crate::LockClient::fenced_value) |
//! | is a row of an SQL table | [`SqlFence`](crate::fencing::SqlFence), which generates the statements |
//! | lives in this process (a value, a file that no other process writes) | [`FenceGate`](crate::fencing::FenceGate) |
//! | is a file that several processes write | the rule by hand, under an exclusive `File::lock` of that file: read the token in its first line, refuse if it is higher than yours, write yours and the content |
//! | is something else that can compare and set in one step | the same rule: store the token beside the value, let a claim raise it, let a write require the claim |
//! | cannot remember a number (an e-mail, a call to somebody else's service) | none: such a resource cannot refuse |
//!
//! The key of a [`FencedValue`](crate::fencing::FencedValue) must differ from the name of the lock
//! that guards it: the second of the two under one name is refused with
//! [`WrongType`](crate::ErrorKind::WrongType).
//!
//! # What you can rely on
//!
//! - A token costs no round trip: the script that grants the lock returns it.
//!   [`Builder::fencing(false)`](crate::Builder::fencing) turns tokens off.
//! - Tokens keep growing after the server was flushed, restarted from old data, or failed over:
//!   they then continue from the server's clock. They can repeat only if the counter is lost *and*
//!   the server's clock is stepped back by more than the time since the last grant.
//! - The counter of a name is forgotten a day after the last grant, which loses nothing. Keep it
//!   for ever with [`keep_token`](crate::ReentrantMutex::keep_token) where Java's `RFencedLock`
//!   uses the name too.
//! - Re-entering a lock gives the same token. Threads that share one hold share its token, so the
//!   token cannot tell them apart.
//! - One resource is guarded by *one* lock. Tokens of two names cannot be compared.
//! - Read holds, permits and latches have no token: they do not exclude everybody else.
//!
//! # When you need it
//!
//! Where a job that runs twice costs time or money (a cron job, a cache fill, a rate limit), one
//! Redis and a lock are enough. Where it would corrupt data, use the token. The example
//! `fencing_sqlite` shows a suspended holder that wakes up, and SQLite and Redis refusing its late
//! write.
