//! The data and the lock in one database, and in one transaction: a holder that is suspended in the
//! middle of a transfer resumes, and its COMMIT fails.
//!
//! Accounts owe each other, and each payment is a read, a computation and two writes. The
//! suspension is real: the program runs itself as a second process, sends it SIGSTOP inside its
//! transaction, takes the lock when the lease has ended, pays, and sends SIGCONT. The late process
//! does not ask whether it still has the lock. The database does.
//!
//! Then many threads make payments between the accounts, with leases that are too short on purpose.
//! Only the locks and the fence keep them apart, and no money is lost.
//!
//! `cargo run --features postgres --example postgres -- postgres://user@host/database`

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::fencing::TransactionFence;
use leasehold::{ErrorKind, LockClient};
use postgres::{Client, NoTls};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ACCOUNTS: i32 = 4;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let url = args.next().ok_or("a URL is needed: postgres://user@host/database")?;
    match args.next() {
        Some(_) => late_holder(&url),
        None => play(&url),
    }
}

fn connect(url: &str) -> leasehold::Result<LockClient> {
    LockClient::builder().url(url).lease(Duration::from_secs(5)).build()
}

fn name(account: i32) -> String {
    format!("account {account}")
}

/// Reads, computes and writes: if payments overlapped, some would be lost.
fn pay(
    transaction: &mut postgres::Transaction<'_>,
    from: i32,
    to: i32,
    amount: i64,
) -> Result<(), postgres::Error> {
    for (account, change) in [(from, -amount), (to, amount)] {
        let sql = "SELECT balance FROM leasehold_example WHERE id = $1";
        let balance: i64 = transaction.query_one(sql, &[&account])?.get(0);
        let sql = "UPDATE leasehold_example SET balance = $1 WHERE id = $2";
        transaction.execute(sql, &[&(balance + change), &account])?;
    }
    Ok(())
}

fn fenced(
    transaction: &mut postgres::Transaction<'_>,
    fence: &TransactionFence,
) -> Result<(), postgres::Error> {
    transaction.execute(fence.sql_at_commit(), &[&fence.name(), &fence.token().as_i64()]).map(drop)
}

/// Its lock was lost; or it was in a deadlock with a transaction whose lock was lost, which
/// PostgreSQL has ended (40P01).
fn is_refused(error: &postgres::Error) -> bool {
    error.code().is_some_and(|code| [TransactionFence::STALE, "40P01"].contains(&code.code()))
}

/// The second process.
fn late_holder(url: &str) -> Outcome<()> {
    let (client, mut db) = (connect(url)?, Client::connect(url, NoTls)?);
    let guard = client.lock(name(1))?;
    let mut transaction = db.transaction()?;
    fenced(&mut transaction, &guard.fence_sql()?)?;
    println!("in the middle");
    // The process is suspended here: the next line is read only after SIGCONT.
    std::io::stdin().lock().read_line(&mut String::new())?;
    pay(&mut transaction, 1, 2, 100)?;
    match transaction.commit() {
        Err(error) if is_refused(&error) => println!("refused"),
        Err(error) => return Err(error.into()),
        Ok(()) => println!("committed"),
    }
    Ok(())
}

fn signal(child: &Child, name: &str) -> Outcome<()> {
    let done =
        Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status()?;
    if done.success() { Ok(()) } else { Err(format!("kill -{name} failed").into()) }
}

fn play(url: &str) -> Outcome<()> {
    let (client, mut db) = (connect(url)?, Client::connect(url, NoTls)?);
    db.batch_execute(
        "DROP TABLE IF EXISTS leasehold_example; \
         CREATE TABLE leasehold_example (id int PRIMARY KEY, balance bigint NOT NULL)",
    )?;
    for account in 1..=ACCOUNTS {
        db.execute("INSERT INTO leasehold_example VALUES ($1, 1000)", &[&account])?;
    }

    let mut late = Command::new(std::env::current_exe()?)
        .args([url, "late"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(late.stdout.take().ok_or("no output")?).lines();
    println!("A holds account 1 and is {}", lines.next().ok_or("it ended")??);
    signal(&late, "STOP")?;
    let guard = client.lock(name(1))?;
    println!("A is suspended, and B has the lock now: token {}", guard.fence_sql()?.token());
    let mut transaction = db.transaction()?;
    fenced(&mut transaction, &guard.fence_sql()?)?;
    pay(&mut transaction, 1, 3, 10)?;
    transaction.commit()?;
    println!("B has paid");
    signal(&late, "CONT")?;
    // Its standard input is closed, so it goes on.
    drop(late.stdin.take());
    let outcome = lines.next().ok_or("it ended")??;
    println!("A wakes up and commits: {outcome}");
    late.wait()?;
    if outcome != "refused" {
        return Err("a late holder has committed".into());
    }
    match guard.unlock() {
        Err(error) if error.kind() != ErrorKind::Lost => return Err(error.into()),
        _ => {}
    }

    let (paid, refused) = web_of_payments(url)?;
    let sum: i64 = db.query_one("SELECT sum(balance)::bigint FROM leasehold_example", &[])?.get(0);
    println!("{paid} payments across the web, {refused} refused because their locks were lost");
    db.batch_execute("DROP TABLE leasehold_example")?;
    if sum != i64::from(ACCOUNTS) * 1000 {
        return Err(format!("{sum} instead of {} are left", i64::from(ACCOUNTS) * 1000).into());
    }
    println!("no late commit, and no money lost");
    Ok(())
}

/// Each thread pays from account to account, under both locks as one.
fn web_of_payments(url: &str) -> Outcome<(u32, u32)> {
    let (paid, refused) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..4)
            .map(|n| {
                let (paid, refused) = (&paid, &refused);
                s.spawn(move || -> Result<(), String> {
                    let client = connect(url).map_err(|e| e.to_string())?;
                    let mut db = Client::connect(url, NoTls).map_err(|e| e.to_string())?;
                    for turn in 0..10 {
                        let (from, to) =
                            (1 + (n + turn) % ACCOUNTS, 1 + (n + turn * 3 + 1) % ACCOUNTS);
                        if from == to {
                            continue;
                        }
                        let both = client
                            .multi([name(from), name(to)])
                            .with_lease(Duration::from_millis(60));
                        // This is too short on purpose: the lock may be lost before it is used.
                        let Ok(guard) = both.lock() else { continue };
                        std::thread::sleep(Duration::from_millis(
                            u64::from(turn.unsigned_abs()) * 9,
                        ));
                        let mut run = || -> Result<(), postgres::Error> {
                            let mut transaction = db.transaction()?;
                            for account in [from, to] {
                                let fence = guard.fence_sql(&name(account)).expect("fencing is on");
                                fenced(&mut transaction, &fence)?;
                            }
                            pay(&mut transaction, from, to, 1)?;
                            transaction.commit()
                        };
                        match run() {
                            Ok(()) => paid.fetch_add(1, Ordering::SeqCst),
                            Err(error) if is_refused(&error) => {
                                refused.fetch_add(1, Ordering::SeqCst)
                            }
                            Err(error) => return Err(error.to_string()),
                        };
                        // This may return `Lost`; the fence has decided already.
                        let _ = guard.unlock();
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok((paid.into_inner(), refused.into_inner()))
}
