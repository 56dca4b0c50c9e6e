//! The statement that fences a transaction in the database that has the locks.

use std::sync::Arc;

use super::FencingToken;
use crate::base::job_name::JobName;
use crate::store::FenceStatements;

/// Fences a transaction of your own, where the locks are in the same database (`postgres://`,
/// `mysql://`): a late holder cannot commit. Made by `guard.fence_sql()`.
///
/// This type has no connection and does no I/O: it provides a statement and its two parameters for
/// your database library. Run **one** of the two statements inside your transaction, on your own
/// connection:
///
/// | statement | promises | cost |
/// |---|---|---|
/// | [`sql`](Self::sql), first in the transaction | from here to its end nobody else gets the lock, whatever happens to the lease | waiters for the lock wait for the transaction |
/// | [`sql_at_commit`](Self::sql_at_commit), anywhere in it | if somebody else got the lock, nothing of the transaction is committed | one more row |
///
/// Both fail with the SQLSTATE [`STALE`](Self::STALE) if another holder has taken the lock since,
/// or it was given up: `sql` at once, `sql_at_commit` at `COMMIT`. The transaction is then rolled
/// back, as after every error. They do not compare the lease: a hold that has expired and that
/// nobody has taken over may still commit, which harms nobody.
///
/// That is so in `READ COMMITTED`, PostgreSQL's default. A transaction in `REPEATABLE READ` or
/// `SERIALIZABLE` sees the lock as it was when its snapshot was made, by its first statement. If
/// another holder has taken the lock since then, it fails with SQLSTATE 40001 (serialization
/// failure) and not with `STALE`, and the fence of a repetition then fails with `STALE`; if the
/// lock was only given up since then, and nobody has taken it, the transaction commits, which harms
/// nobody either.
///
/// If a transaction that was fenced by `sql` idles for 10 s, the server ends it (SQLSTATE 25P03),
/// so that a holder that is suspended inside it keeps nobody waiting for ever. A shorter
/// `idle_in_transaction_session_timeout` of your own takes precedence. A prepared transaction
/// (`PREPARE TRANSACTION`) has no such limit: it keeps the lock from everybody else until it is
/// committed or rolled back, also across a restart of the server.
///
/// **In MySQL and MariaDB** both are one statement, with `?` for the values, and the error 1644
/// beside the SQLSTATE; they pass for a lock that was given up and that nobody has taken since.
/// [The chapter](crate::guide::mysql#fencing-your-transaction) has the differences.
///
/// # Examples
///
/// ```no_run
/// # use std::error::Error;
/// # use leasehold::LockClient;
/// # fn example(client: &LockClient, db: &mut postgres::Client) -> Result<(), Box<dyn Error>> {
/// let guard = client.lock("account 17")?;
/// let fence = guard.fence_sql()?;
///
/// let mut transaction = db.transaction()?;
/// transaction.execute(fence.sql(), &[&fence.name(), &fence.token().as_i64()])?;
/// transaction.execute("UPDATE account SET balance = balance - 5 WHERE id = 17", &[])?;
/// transaction.commit()?; // fails if the lock was lost and taken before the fence
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionFence {
    statements: FenceStatements,
    key: Arc<str>,
    token: FencingToken,
}

impl TransactionFence {
    /// The SQLSTATE of the error when the token is stale.
    pub const STALE: &'static str = "LH001";

    pub(crate) fn new(statements: FenceStatements, key: &Arc<str>, token: FencingToken) -> Self {
        Self { statements, key: key.clone(), token }
    }

    /// The statement that keeps everybody else from the lock until the transaction ends, with `$1`
    /// for the [name](Self::name) and `$2` for the [token](Self::token), or `?` in this order. Run
    /// it before you read what it protects.
    ///
    /// Renewing, re-entering and giving up the lock are not affected; the next holder waits.
    #[must_use]
    pub fn sql(&self) -> &'static str {
        self.statements.at_once
    }

    /// The statement that checks the token when the transaction commits, with `$1` for the
    /// [name](Self::name) and `$2` for the [token](Self::token). Until then nobody has to wait. (In
    /// MySQL it is the same as [`sql`](Self::sql): make it the last statement.)
    #[must_use]
    pub fn sql_at_commit(&self) -> &'static str {
        self.statements.at_commit
    }

    /// The name of the lock in the database (the client's prefix included): a `TEXT`, or in
    /// MySQL a `VARBINARY`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.key
    }

    /// The fencing token of the hold; [as an `i64`](FencingToken::as_i64) it is the `BIGINT` of the
    /// statements.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }
}

/// Records the success of a [scheduled job](crate::ScheduledJob) in a transaction of your own,
/// where the jobs are in the same database (`postgres://`): the work and its record are committed
/// together, or neither. So the work is done once, whatever happens to the process, and to its
/// lease. Made by [`JobRun::done_sql`](crate::JobRun::done_sql).
///
/// This type has no connection and does no I/O. Run its [statement](Self::sql) with its three
/// parameters inside your transaction, on your own connection, and commit before the closure
/// returns `Ok`. It fails with the SQLSTATE [`LH001`](TransactionFence::STALE) if somebody else has
/// begun a run of the job since, and otherwise keeps everybody from that until the transaction
/// ends; [`TransactionFence`] says what that costs, and what is different in `REPEATABLE READ`.
///
/// # Examples
/// ```no_run
/// # use std::error::Error;
/// # use leasehold::LockClient;
/// # fn example(client: &LockClient, db: &mut postgres::Client) -> Result<(), Box<dyn Error>> {
/// let once = client.once("interest", "2026-11").run(|job| -> Result<(), Box<dyn Error>> {
///     let done = job.done_sql()?;
///     let mut transaction = db.transaction()?;
///     transaction.execute("UPDATE account SET balance = balance * 1.01", &[])?;
///     let token = done.token().as_i64();
///     transaction.execute(done.sql(), &[&done.name(), &done.occurrence(), &token])?;
///     transaction.commit()?;
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoneStatement {
    sql: &'static str,
    name: Arc<str>,
    occurrence: Arc<str>,
    token: FencingToken,
}

impl DoneStatement {
    pub(crate) fn new(sql: &'static str, job: &JobName, token: FencingToken) -> Self {
        let name = job.lease.key.clone();
        let occurrence = job.occurrence.clone();
        Self { sql, name, occurrence, token }
    }

    /// The statement, with `$1` for the [name](Self::name), `$2` for the
    /// [occurrence](Self::occurrence) and `$3` for the [token](Self::token).
    #[must_use]
    pub fn sql(&self) -> &'static str {
        self.sql
    }

    /// The name of the job's lease in the database: a `TEXT`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The label of the occurrence: a `TEXT`.
    #[must_use]
    pub fn occurrence(&self) -> &str {
        &self.occurrence
    }

    /// The fencing token of the run; [as an `i64`](FencingToken::as_i64) it is a `BIGINT`.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }
}
