//! The statements that make rows of an SQL table check fencing tokens.

use super::FencingToken;
use crate::base::error::{Error, ErrorKind, Result};

/// How a statement marks the places of its bound values.
///
/// The order and the number of the values are the same in every style: from left to right as the
/// places appear in the statement, each place bound once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Placeholders {
    /// `?`: MySQL, MariaDB, SQLite, ODBC.
    Question,
    /// `?1`, `?2`: SQLite.
    Numbered,
    /// `$1`, `$2`: PostgreSQL and databases with its protocol. The default, because PostgreSQL
    /// accepts no other style, and SQLite accepts it too.
    #[default]
    Dollar,
}

/// Writes the SQL statements that guard the rows of one table with fencing tokens.
///
/// Each row keeps, in its own column, the highest token that has claimed it. This type has no
/// connection and does no I/O: it makes statements for your database library. So nothing here
/// blocks, and one value can be shared.
///
/// A read-modify-write is three steps; the [module docs](super) show what goes wrong without the
/// first:
///
/// 1. run [`claim`](Self::claim), and let [`expect_one`](Self::expect_one) check the number of
///    affected rows;
/// 2. read and compute;
/// 3. run [`write`](Self::write), and let [`expect_one`](Self::expect_one) check again.
///
/// For an overwrite that depends on nothing read, [`write_unclaimed`](Self::write_unclaimed) is
/// enough.
///
/// # Binding values
///
/// Bind values from left to right as their places appear in the statement, in every style of
/// [`Placeholders`], the token as [`FencingToken::as_i64`]. A token that is both stored and
/// compared is bound twice, because `?` cannot refer to a value again.
///
/// # Transactions and isolation
///
/// - **Each statement is correct by itself** at READ COMMITTED, the default of PostgreSQL, at any
///   level in MySQL, and in SQLite: an `UPDATE` locks the row (SQLite: the file) and compares with
///   its latest committed version. From REPEATABLE READ up, PostgreSQL (error 40001) and MariaDB
///   (1020, since 11.6) may refuse instead: start the transaction again.
/// - **Commit the claim before the read** (autocommit does). Then a holder that is delayed while it
///   computes keeps no lock in the database, and the next holder passes it at once.
/// - Claim, read and write in *one* transaction are correct as well, but then the open transaction
///   protects them: the next holder's claim blocks until it ends. Claim first in it: in MySQL an
///   earlier `SELECT` fixes the snapshot that later ones read.
/// - Read where the claim was written, not from a replica that may lag behind it.
///
/// # Affected rows in MySQL
///
/// MySQL and MariaDB count the rows that *changed*, unless the connection asks for those *found*
/// (the capability `CLIENT_FOUND_ROWS`; client libraries have an option for it, or always set it).
/// Make sure it is set. Otherwise a second claim with the same token, or a write of the same
/// values, affects 0 rows and seems to be refused.
///
/// # Rows that come and go
///
/// A row must exist to be claimed: insert it with the token column's default, and ignore an error
/// that it exists (`ON CONFLICT DO NOTHING`, `INSERT IGNORE`). A deleted row has forgotten its
/// tokens, and once it is inserted again, a late holder can write it. Mark rows as deleted instead.
///
/// # Examples
///
/// ```
/// use leasehold::ErrorKind;
/// use leasehold::fencing::{FencingToken, Placeholders, SqlFence};
/// use rusqlite::{Connection, params};
///
/// let db = Connection::open_in_memory()?;
/// db.execute_batch("CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER)")?;
/// db.execute_batch("INSERT INTO account VALUES ('ann', 10)")?;
///
/// let fence = SqlFence::new("account", "name", "fence")?.placeholders(Placeholders::Numbered);
/// db.execute_batch(&fence.add_token_column())?; // once, with the other migrations
///
/// let claim = |token: FencingToken| -> Result<(), Box<dyn std::error::Error>> {
///     let rows = db.execute(&fence.claim(), params![token.as_i64(), "ann", token.as_i64()])?;
///     Ok(fence.expect_one(rows, token)?)
/// };
/// let select = "SELECT balance FROM account WHERE name = 'ann'";
/// let read = || db.query_row(select, [], |row| row.get::<_, i64>(0));
/// let write = |token: FencingToken, balance: i64| -> Result<usize, Box<dyn std::error::Error>> {
///     Ok(db.execute(&fence.write(&["balance"])?, params![balance, "ann", token.as_i64()])?)
/// };
///
/// let first = FencingToken::new(1); // guard.fencing_token()
/// claim(first)?;
/// let seen = read()?;
/// // The first holder is suspended here, its lease ends, and the second one gets the lock.
/// let second = FencingToken::new(2);
/// claim(second)?;
/// let also_seen = read()?;
/// // The first one wakes up.
/// let refused = fence.expect_one(write(first, seen + 1)?, first).unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::Stale);
/// // The second one does not notice any of that.
/// fence.expect_one(write(second, also_seen + 5)?, second)?;
/// assert_eq!(read()?, 15);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlFence {
    table: String,
    id_column: String,
    token_column: String,
    placeholders: Placeholders,
}

impl SqlFence {
    /// Statements for `table`. Its rows are found by `id_column` (a primary or unique key) and keep
    /// their highest token in `token_column` (a `BIGINT NOT NULL`, see
    /// [`add_token_column`](Self::add_token_column)).
    ///
    /// All names go into the statements as they are, without quotes. So a name consists of ASCII
    /// letters, digits and underscores and does not begin with a digit. The table may have schemas
    /// in front (`shop.account`). A reserved word of your database cannot be used.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for any other name, and for an `id_column` that is the
    /// `token_column`.
    pub fn new(
        table: impl Into<String>,
        id_column: impl Into<String>,
        token_column: impl Into<String>,
    ) -> Result<Self> {
        let table = table.into();
        let id_column = id_column.into();
        let token_column = token_column.into();
        for part in table.split('.') {
            require_identifier(part, &table)?;
        }
        require_identifier(&id_column, &id_column)?;
        require_identifier(&token_column, &token_column)?;
        if same_column(&id_column, &token_column) {
            let why = format!(
                "the token needs a column of its own, and {token_column:?} is the id column"
            );
            return Err(Error::named(ErrorKind::InvalidInput, &table, why));
        }
        Ok(Self { table, id_column, token_column, placeholders: Placeholders::default() })
    }

    /// How the statements mark the places of bound values. Defaults to [`Placeholders::Dollar`].
    #[must_use]
    pub fn placeholders(mut self, placeholders: Placeholders) -> Self {
        self.placeholders = placeholders;
        self
    }

    /// Raises the token of a row to the holder's own, unless a newer one is stored: run it before
    /// reading.
    ///
    /// Bind: **token, id, token**. One row affected: the row is claimed, and all older claims have
    /// ended. No row affected: a newer holder has claimed the row, or the row does not exist. The
    /// same token may claim again.
    ///
    /// The statement ends with its condition, so you can append `RETURNING` where the database
    /// supports it, to claim and read in one round trip.
    ///
    /// The database makes it wait for open transactions that have changed the row.
    ///
    /// # Examples
    ///
    /// ```
    /// use leasehold::fencing::SqlFence;
    ///
    /// let fence = SqlFence::new("account", "id", "fence")?;
    /// assert_eq!(fence.claim(), "UPDATE account SET fence = $1 WHERE id = $2 AND fence <= $3");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn claim(&self) -> String {
        self.update(&[&self.token_column], "<=")
    }

    /// Writes `columns` of a row that this holder has [claimed](Self::claim), but only while its
    /// claim is the newest.
    ///
    /// Bind: **the values in the order of `columns`, id, token**. One row affected: written. No row
    /// affected: nothing was written, because a newer holder has claimed the row, this holder never
    /// did, or the row does not exist. It may be run any number of times under one claim.
    ///
    /// The database makes it wait for open transactions that have changed the row.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for no columns, for a name that [`new`](Self::new) would refuse,
    /// for a repeated column, and for the id column and the token column.
    ///
    /// # Examples
    ///
    /// ```
    /// use leasehold::fencing::SqlFence;
    ///
    /// let fence = SqlFence::new("account", "id", "fence")?;
    /// assert_eq!(
    ///     fence.write(&["balance", "note"])?,
    ///     "UPDATE account SET balance = $1, note = $2 WHERE id = $3 AND fence = $4",
    /// );
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn write(&self, columns: &[&str]) -> Result<String> {
        self.check(columns)?;
        Ok(self.update(columns, "="))
    }

    /// Overwrites `columns` of a row without a claim: compares and raises the token in the same
    /// statement.
    ///
    /// Only for values that do not depend on anything read from the resource. Otherwise an update
    /// can be lost: the [module docs](super) show how.
    ///
    /// Bind: **the values in the order of `columns`, token, id, token**. One row affected: written,
    /// and all older claims have ended. No row affected: nothing was written, because a newer
    /// holder has claimed or written the row, or the row does not exist.
    ///
    /// The database makes it wait for open transactions that have changed the row.
    ///
    /// # Errors
    ///
    /// The same as for [`write`](Self::write).
    ///
    /// # Examples
    ///
    /// ```
    /// use leasehold::fencing::SqlFence;
    ///
    /// let fence = SqlFence::new("leader", "role", "fence")?;
    /// assert_eq!(
    ///     fence.write_unclaimed(&["host"])?,
    ///     "UPDATE leader SET host = $1, fence = $2 WHERE role = $3 AND fence <= $4",
    /// );
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn write_unclaimed(&self, columns: &[&str]) -> Result<String> {
        self.check(columns)?;
        Ok(self.update(&[columns, &[&*self.token_column]].concat(), "<="))
    }

    /// Adds the token column to the table. Run it once, as a migration.
    ///
    /// Existing rows, and rows inserted without a token, get 0, which is older than every token.
    /// The column must not be `NULL`: no comparison with `NULL` is true, so such a row could never
    /// be claimed.
    ///
    /// # Examples
    ///
    /// ```
    /// use leasehold::fencing::SqlFence;
    ///
    /// let fence = SqlFence::new("account", "id", "fence")?;
    /// assert_eq!(
    ///     fence.add_token_column(),
    ///     "ALTER TABLE account ADD COLUMN fence BIGINT NOT NULL DEFAULT 0",
    /// );
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn add_token_column(&self) -> String {
        let Self { table, token_column, .. } = self;
        format!("ALTER TABLE {table} ADD COLUMN {token_column} BIGINT NOT NULL DEFAULT 0")
    }

    /// Checks the number of rows that a statement of this fence affected. It accepts the integer
    /// type of any database library. For MySQL see [above](Self#affected-rows-in-mysql).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Stale`] for 0: a newer holder has claimed the row and nothing was changed, or
    ///   the row does not exist. The number does not show which.
    /// - [`ErrorKind::InvalidInput`] for more than 1: the id column is not unique, and all these
    ///   rows *were* changed, so roll back. The same for a number that cannot be a row count.
    pub fn expect_one(&self, rows: impl TryInto<u64>, token: FencingToken) -> Result<()> {
        let (kind, why) = match rows.try_into() {
            Ok(1) => return Ok(()),
            Ok(0) => {
                let why = "a newer holder has claimed the row, or there is no such row";
                (ErrorKind::Stale, format!("fencing token {token} was refused: {why}"))
            }
            Ok(more) => {
                let why = format!("the column {:?} is not unique", self.id_column);
                let why = format!("fencing token {token} changed {more} rows: {why}");
                (ErrorKind::InvalidInput, why)
            }
            Err(_) => (ErrorKind::InvalidInput, "a negative number of affected rows".into()),
        };
        Err(Error::named(kind, &self.table, why))
    }

    /// Whether a write may set these columns.
    fn check(&self, columns: &[&str]) -> Result<()> {
        let refuse = |why: String| Err(Error::named(ErrorKind::InvalidInput, &self.table, why));
        if columns.is_empty() {
            return refuse("a write needs at least one column".into());
        }
        for (i, column) in columns.iter().enumerate() {
            require_identifier(column, column)?;
            // A write that sets the token could lower it, and one that sets the id would move the
            // row and its token to another id.
            if same_column(column, &self.id_column) || same_column(column, &self.token_column) {
                return refuse(format!(
                    "the column {column:?} is the fence's own and cannot be written"
                ));
            }
            // SQLite accepts it and uses the last one.
            if columns[..i].iter().any(|earlier| same_column(earlier, column)) {
                return refuse(format!("the column {column:?} is written twice"));
            }
        }
        Ok(())
    }

    /// Sets the columns of the row whose token `compares` with the holder's.
    fn update(&self, columns: &[&str], compares: &str) -> String {
        let Self { table, id_column, token_column, .. } = self;
        let assigned = columns.iter().enumerate();
        let assigned = assigned.map(|(i, column)| format!("{column} = {}", self.mark(i + 1)));
        let assigned = assigned.collect::<Vec<_>>().join(", ");
        let id = self.mark(columns.len() + 1);
        let token = self.mark(columns.len() + 2);
        format!(
            "UPDATE {table} SET {assigned} \
             WHERE {id_column} = {id} AND {token_column} {compares} {token}"
        )
    }

    /// Place number `n`, counted from 1.
    fn mark(&self, n: usize) -> String {
        match self.placeholders {
            Placeholders::Question => "?".into(),
            Placeholders::Numbered => format!("?{n}"),
            Placeholders::Dollar => format!("${n}"),
        }
    }
}

/// Databases ignore case when they compare unquoted names.
fn same_column(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
}

/// Checks `part`, a part of the name `whole` that the user gave.
fn require_identifier(part: &str, whole: &str) -> Result<()> {
    let begins_well = part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins_well && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(());
    }
    Err(Error::named(
        ErrorKind::InvalidInput,
        whole,
        "not a plain SQL name: ASCII letters, digits and underscores, not beginning with a digit",
    ))
}

#[cfg(test)]
#[path = "sql_tests.rs"]
mod tests;
