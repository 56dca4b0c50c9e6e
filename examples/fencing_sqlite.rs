//! A holder that was suspended past its lease resumes, and an SQLite table and a Redis key refuse
//! its late write.
//!
//! The suspension is real: the program runs itself as a second process, sends it SIGSTOP between
//! its read and its write, takes the lock when the lease has ended, does its own work, and sends
//! SIGCONT. The late process does not ask whether it still has the lock, as if it had been
//! suspended between the check and the write: no library can close that gap. The resource can,
//! because it remembers the highest fencing token that has claimed it.
//!
//! `cargo run --example fencing_sqlite -- redis://127.0.0.1/`

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::fencing::{FencedValue, FencingToken, Placeholders, SqlFence};
use leasehold::{ErrorKind, LockClient};
use rusqlite::{Connection, params};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    match args.next() {
        Some(file) => late_holder(&url, &file),
        None => play(&url),
    }
}

fn connect(url: &str) -> leasehold::Result<LockClient> {
    let lease = Duration::from_millis(700);
    // A busy machine may need longer than a quarter of the lease.
    LockClient::builder().url(url).lease(lease).io_timeout(lease / 5 * 4).build()
}

fn fence() -> leasehold::Result<SqlFence> {
    Ok(SqlFence::new("account", "id", "fence")?.placeholders(Placeholders::Numbered))
}

/// Claims the row *before* it reads: from here on an older holder can no longer write.
fn claim_and_read(db: &Connection, token: FencingToken) -> Outcome<i64> {
    let fence = fence()?;
    fence.expect_one(
        db.execute(&fence.claim(), params![token.as_i64(), 1, token.as_i64()])?,
        token,
    )?;
    Ok(db.query_row("SELECT balance FROM account WHERE id = 1", [], |row| row.get(0))?)
}

/// Writes only under exactly that claim.
fn write(db: &Connection, token: FencingToken, balance: i64) -> Outcome<()> {
    let fence = fence()?;
    fence.expect_one(
        db.execute(&fence.write(&["balance"])?, params![balance, 1, token.as_i64()])?,
        token,
    )?;
    Ok(())
}

fn number(bytes: Option<&[u8]>) -> i64 {
    bytes.and_then(|b| std::str::from_utf8(b).ok()?.parse().ok()).unwrap_or(0)
}

fn deposit(db: &Connection, value: &FencedValue, token: FencingToken, amount: i64) -> Outcome<()> {
    let balance = claim_and_read(db, token)?;
    let claim = value.claim(token)?;
    claim.write((number(claim.value()) + amount).to_string())?;
    write(db, token, balance + amount)
}

fn late_holder(url: &str, file: &str) -> Outcome<()> {
    let client = connect(url)?;
    let db = Connection::open(file)?;
    let guard = client.lock("account:1")?;
    let token = guard.fencing_token()?;
    let balance = claim_and_read(&db, token)?;
    let claim = client.fenced_value("fencing-example").claim(token)?;
    println!("read, about to write");
    // It is suspended here for longer than its lease; then it resumes and writes without another
    // check.
    std::io::stdin().read_line(&mut String::new())?;
    let sqlite = write(&db, token, balance + 1000).unwrap_err();
    let redis = claim.write("1000").unwrap_err();
    assert_eq!(redis.kind(), ErrorKind::Stale);
    println!("SQLite refused the late write: {sqlite}");
    println!("Redis refused the late write: {redis}");
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    Ok(())
}

/// The second process. It is killed when this program fails: a suspended process would stay for
/// ever.
struct Late(Child);

impl Drop for Late {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn play(url: &str) -> Outcome<()> {
    let dir = std::env::temp_dir().join(format!("leasehold-fencing-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let outcome = play_in(url, &dir.join("account.db").display().to_string());
    std::fs::remove_dir_all(&dir)?;
    outcome
}

fn play_in(url: &str, file: &str) -> Outcome<()> {
    let db = Connection::open(file)?;
    db.execute_batch("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)")?;
    db.execute_batch(&fence()?.add_token_column())?;
    db.execute("INSERT INTO account (id, balance) VALUES (1, 0)", [])?;

    let late = Command::new(std::env::current_exe()?)
        .args([url, file])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut late = Late(late);
    let id = late.0.id();
    let mut lines = BufReader::new(late.0.stdout.take().expect("it is piped")).lines();
    println!("process {}: {}", id, lines.next().ok_or("the other process ended")??);
    signal(id, "STOP")?;
    println!("process {} is suspended", id);

    let client = connect(url)?;
    let guard = client.lock("account:1")?;
    let token = guard.fencing_token()?;
    println!("its lease has ended: this process has the lock, with a larger token");
    let value = client.fenced_value("fencing-example");
    deposit(&db, &value, token, 10)?;
    guard.unlock()?;

    signal(id, "CONT")?;
    drop(late.0.stdin.take());
    for line in lines {
        println!("process {}: {}", id, line?);
    }
    if !late.0.wait()?.success() {
        return Err("the late process was not refused as it should be".into());
    }
    let balance: i64 =
        db.query_row("SELECT balance FROM account WHERE id = 1", [], |row| row.get(0))?;
    println!("the balance is {balance}, as the holder of the lock left it");
    assert_eq!(balance, 10);
    Ok(())
}

fn signal(pid: u32, name: &str) -> Outcome<()> {
    let sent =
        Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status()?.success();
    if sent { Ok(()) } else { Err(format!("kill -{name} {pid} failed").into()) }
}
