//! The SQL statements of `leasehold::fencing` against real SQLite tables.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::fencing::*;
use leasehold::{ErrorKind, Result};
use rusqlite::{Connection, params};

const STYLES: [Placeholders; 3] =
    [Placeholders::Question, Placeholders::Numbered, Placeholders::Dollar];
const A: FencingToken = FencingToken::new(1);
const B: FencingToken = FencingToken::new(2);

/// A table with one row, `'ann'`, and the statements of a holder.
struct Account {
    db: Connection,
    fence: SqlFence,
}

impl Account {
    fn in_memory(style: Placeholders) -> Self {
        Self::create(Connection::open_in_memory().unwrap(), style)
    }

    fn create(db: Connection, style: Placeholders) -> Self {
        db.execute_batch(
            "CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL, note TEXT);
             INSERT INTO account VALUES ('ann', 10, ''), ('bob', 70, '');",
        )
        .unwrap();
        let account = Self::attach(db, style);
        account.db.execute_batch(&account.fence.add_token_column()).unwrap();
        account
    }

    fn attach(db: Connection, style: Placeholders) -> Self {
        let fence = SqlFence::new("main.account", "name", "fence").unwrap().placeholders(style);
        Self { db, fence }
    }

    fn claim(&self, token: FencingToken) -> Result<()> {
        let rows = self
            .db
            .execute(&self.fence.claim(), params![token.as_i64(), "ann", token.as_i64()])
            .unwrap();
        self.fence.expect_one(rows, token)
    }

    fn read(&self) -> i64 {
        self.db
            .query_row("SELECT balance FROM account WHERE name = 'ann'", [], |row| row.get(0))
            .unwrap()
    }

    fn write(&self, token: FencingToken, balance: i64) -> Result<()> {
        let sql = self.fence.write(&["balance", "note"])?;
        let rows = self
            .db
            .execute(&sql, params![balance, format!("by {token}"), "ann", token.as_i64()])
            .unwrap();
        self.fence.expect_one(rows, token)
    }

    fn write_unclaimed(&self, token: FencingToken, balance: i64) -> Result<()> {
        let sql = self.fence.write_unclaimed(&["balance"])?;
        let rows =
            self.db.execute(&sql, params![balance, token.as_i64(), "ann", token.as_i64()]).unwrap();
        self.fence.expect_one(rows, token)
    }

    /// The name, balance and token of all rows.
    fn rows(&self) -> Vec<(String, i64, i64)> {
        let mut select =
            self.db.prepare("SELECT name, balance, fence FROM account ORDER BY name").unwrap();
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        rows.map(std::result::Result::unwrap).collect()
    }
}

fn is_stale(result: &Result<()>) -> bool {
    result.as_ref().is_err_and(|e| e.kind() == ErrorKind::Stale)
}

#[test]
fn without_a_claim_an_update_is_lost() {
    for style in STYLES {
        let account = Account::in_memory(style);
        let seen_by_a = account.read();
        let seen_by_b = account.read();
        account.write_unclaimed(A, seen_by_a + 1).expect("nothing newer was seen yet");
        account.write_unclaimed(B, seen_by_b + 5).unwrap();
        assert_eq!(account.read(), 15, "both writes were taken, and the sum should be 16");
    }
}

#[test]
fn with_a_claim_the_late_write_is_refused() {
    for style in STYLES {
        let account = Account::in_memory(style);
        account.claim(A).unwrap();
        let seen_by_a = account.read();
        account.claim(B).unwrap();
        let seen_by_b = account.read();
        assert!(is_stale(&account.write(A, seen_by_a + 1)));
        account.write(B, seen_by_b + 5).unwrap();
        assert_eq!(account.rows(), [("ann".into(), 15, 2), ("bob".into(), 70, 0)]);
    }
}

#[test]
fn a_write_before_the_next_claim_is_in_what_the_next_holder_reads() {
    for style in STYLES {
        let account = Account::in_memory(style);
        account.claim(A).unwrap();
        let seen_by_a = account.read();
        account.write(A, seen_by_a + 1).unwrap();
        account.claim(B).unwrap();
        account.write(B, account.read() + 5).unwrap();
        assert_eq!(account.read(), 16);
    }
}

#[test]
fn claims_only_rise_and_may_be_repeated() {
    for style in STYLES {
        let account = Account::in_memory(style);
        account.claim(B).unwrap();
        account.claim(B).unwrap();
        assert!(is_stale(&account.claim(A)));
        account.write(B, 11).unwrap();
        account.write(B, 12).unwrap();
        assert_eq!(account.rows()[0], ("ann".into(), 12, 2));
    }
}

#[test]
fn a_write_asks_for_exactly_its_claim() {
    let account = Account::in_memory(Placeholders::Numbered);
    account.claim(A).unwrap();
    assert!(is_stale(&account.write(B, 0)), "newer, but it has not claimed what it read");
    assert_eq!(account.rows()[0], ("ann".into(), 10, 1));
}

#[test]
fn a_blind_overwrite_ends_older_claims() {
    for style in STYLES {
        let account = Account::in_memory(style);
        account.claim(A).unwrap();
        account.write_unclaimed(B, 99).unwrap();
        assert!(is_stale(&account.write(A, 11)));
        assert!(is_stale(&account.write_unclaimed(A, 11)));
        account.write_unclaimed(B, 98).expect("the same holder again");
        assert_eq!(account.rows(), [("ann".into(), 98, 2), ("bob".into(), 70, 0)]);
    }
}

#[test]
fn largest_token_fits_the_column() {
    let account = Account::in_memory(Placeholders::Numbered);
    let largest = FencingToken::new((1 << 53) - 1);
    account.claim(largest).unwrap();
    assert!(is_stale(&account.claim(FencingToken::new((1 << 53) - 2))));
    assert_eq!(account.rows()[0].2, largest.as_i64());
}

#[test]
fn a_missing_row_is_refused_and_a_double_one_is_noticed() {
    let account = Account::in_memory(Placeholders::Numbered);
    account.db.execute_batch("DELETE FROM account WHERE name = 'ann'").unwrap();
    assert!(is_stale(&account.claim(A)));

    let by_note = SqlFence::new("account", "note", "fence").unwrap();
    account.db.execute_batch("INSERT INTO account VALUES ('cid', 0, '', 0)").unwrap();
    let rows = account.db.execute(&by_note.claim(), params![1, "", 1]).unwrap();
    assert_eq!(by_note.expect_one(rows, A).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_claim_that_was_rolled_back_never_was() {
    let account = Account::in_memory(Placeholders::Numbered);
    account.db.execute_batch("BEGIN").unwrap();
    account.claim(B).unwrap();
    account.write(B, 99).unwrap();
    account.db.execute_batch("ROLLBACK").unwrap();
    assert!(is_stale(&account.write(B, 99)));
    account.claim(A).unwrap();
    assert_eq!(account.rows()[0], ("ann".into(), 10, 1));
}

/// A database file that several connections share, removed with its directory at the end.
struct TempDb(PathBuf);

impl TempDb {
    fn new(tag: &str) -> Self {
        let dir = env::temp_dir().join(format!("leasehold-fencing-{tag}-{}", process::id()));
        // Process ids are reused: a killed run may have left its directory.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn connect(&self) -> Connection {
        let db = Connection::open(self.0.join("account.db")).unwrap();
        db.busy_timeout(Duration::from_secs(30)).unwrap();
        // No fsync: the test is about threads, not about power failures.
        db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;").unwrap();
        db
    }
}

impl Drop for TempDb {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A minimal lock with leases: tokens are issued under exclusion, and some holders outlive their
/// leases.
#[test]
fn threads_whose_leases_end_early_lose_no_update() {
    const THREADS: i64 = 8;
    const INCREMENTS: i64 = 50;

    for (tag, style) in [("question", Placeholders::Question), ("numbered", Placeholders::Numbered)]
    {
        let file = TempDb::new(tag);
        let account = Account::create(file.connect(), style);
        let last_token = Mutex::new(0);
        let refused = AtomicU64::new(0);

        let add_one = |account: &Account, lease_ends: bool| -> Result<()> {
            let mut lock = last_token.lock().unwrap();
            *lock += 1;
            let token = FencingToken::new(*lock);
            account.claim(token)?;
            let seen = account.read();
            let lock = (!lease_ends).then_some(lock);
            if lease_ends {
                thread::sleep(Duration::from_millis(2));
            }
            let written = account.write(token, seen + 1);
            drop(lock);
            written
        };
        thread::scope(|s| {
            for _ in 0..THREADS {
                s.spawn(|| {
                    let account = Account::attach(file.connect(), style);
                    for i in 0..INCREMENTS {
                        let mut lease_ends = i % 4 == 0;
                        while let Err(e) = add_one(&account, lease_ends) {
                            assert_eq!(e.kind(), ErrorKind::Stale);
                            refused.fetch_add(1, Ordering::Relaxed);
                            lease_ends = false;
                        }
                    }
                });
            }
        });

        let refused = refused.into_inner();
        assert!(refused > 0, "no holder was late, so nothing was tested");
        assert_eq!(account.read(), 10 + THREADS * INCREMENTS);
        let taken = (THREADS * INCREMENTS) as u64;
        assert_eq!(*last_token.lock().unwrap(), taken + refused, "each attempt had its own token");
    }
}
