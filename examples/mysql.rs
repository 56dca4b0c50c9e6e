//! The data and the lock in one MySQL or MariaDB database, and in one transaction: a holder that is
//! suspended before it pays resumes, and the database refuses its transaction.
//!
//! The suspension is real: the program runs itself as a second process, sends it SIGSTOP while it
//! has the lock, takes the lock when the lease has ended, pays, and sends SIGCONT. The late process
//! does not ask whether it still has the lock. The database does.
//!
//! Then many threads make payments, with a lease that is too short on purpose. Only the lock and the
//! fence keep them apart, and no money is lost.
//!
//! The statements are run by the program `mysql`, so that no library is needed; any other client
//! runs them as well. What follows the URL is its command line:
//!
//! `cargo run --features mysql --example mysql -- mysql://app@host/shop mysql -h host -u app shop`

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::fencing::TransactionFence;
use leasehold::{ErrorKind, LockClient};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const NAME: &str = "accounts";
const SECOND_PROCESS: &str = "LEASEHOLD_EXAMPLE_LATE";

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let url = args.next().ok_or("a URL is needed: mysql://user@host/database")?;
    let program: Vec<String> = args.collect();
    if program.is_empty() {
        return Err("the command line of the program mysql must follow the URL".into());
    }
    let client = LockClient::builder().url(url).lease(Duration::from_secs(3)).build()?;
    if std::env::var_os(SECOND_PROCESS).is_some() {
        late_holder(&client, &program)
    } else {
        play(&client, &program)
    }
}

/// Runs statements, which stop at the first error. Returns the output, or what the server said.
fn run(program: &[String], sql: &str) -> Outcome<Result<String, String>> {
    let mut child = Command::new(&program[0])
        .args(["--batch", "--skip-column-names"])
        .args(&program[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // It may have ended at an error before it has read everything.
    let _ = child.stdin.take().ok_or("no input")?.write_all(sql.as_bytes());
    let output = child.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
}

/// Pays in a transaction that begins with the fence. False: the fence has refused it.
fn pay(program: &[String], fence: &TransactionFence, from: u32, to: u32) -> Outcome<bool> {
    // A client library binds the name and the token to the places of the statement.
    let name = format!("'{}'", fence.name().replace('\'', "''"));
    let call = fence.sql().replacen('?', &name, 1).replacen('?', &fence.token().to_string(), 1);
    let paid = run(
        program,
        &format!(
            "START TRANSACTION; {call}; \
             SELECT balance INTO @from FROM leasehold_example WHERE id={from}; \
             SELECT balance INTO @to FROM leasehold_example WHERE id={to}; \
             UPDATE leasehold_example SET balance=@from-10 WHERE id={from}; \
             UPDATE leasehold_example SET balance=@to+10 WHERE id={to}; \
             COMMIT;"
        ),
    )?;
    match paid {
        Ok(_) => Ok(true),
        Err(said) if said.contains(TransactionFence::STALE) => Ok(false),
        Err(said) => Err(said.into()),
    }
}

/// The second process.
fn late_holder(client: &LockClient, program: &[String]) -> Outcome<()> {
    let guard = client.lock(NAME)?;
    let fence = guard.fence_sql()?;
    println!("about to pay");
    // The process is suspended here: the next line is read only after SIGCONT.
    std::io::stdin().lock().read_line(&mut String::new())?;
    println!("{}", if pay(program, &fence, 1, 2)? { "paid" } else { "refused" });
    Ok(())
}

fn signal(child: &Child, name: &str) -> Outcome<()> {
    let done =
        Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status()?;
    if done.success() { Ok(()) } else { Err(format!("kill -{name} failed").into()) }
}

fn play(client: &LockClient, program: &[String]) -> Outcome<()> {
    run(
        program,
        "DROP TABLE IF EXISTS leasehold_example; \
         CREATE TABLE leasehold_example (id INT PRIMARY KEY, balance BIGINT NOT NULL) ENGINE=InnoDB; \
         INSERT INTO leasehold_example VALUES (1,1000),(2,1000),(3,1000),(4,1000);",
    )??;
    let mut late = Command::new(std::env::current_exe()?)
        .args(std::env::args().skip(1))
        .env(SECOND_PROCESS, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(late.stdout.take().ok_or("no output")?).lines();
    println!("A has the lock and is {}", lines.next().ok_or("it ended")??);
    signal(&late, "STOP")?;
    let guard = client.lock(NAME)?;
    println!("A is suspended, and B has the lock now: token {}", guard.fencing_token()?);
    if !pay(program, &guard.fence_sql()?, 1, 3)? {
        return Err("the holder was refused".into());
    }
    println!("B has paid");
    signal(&late, "CONT")?;
    // Its standard input is closed, so it goes on.
    drop(late.stdin.take());
    let outcome = lines.next().ok_or("it ended")??;
    println!("A wakes up and pays: {outcome}");
    late.wait()?;
    if outcome != "refused" {
        return Err("a late holder has paid".into());
    }
    match guard.unlock() {
        Err(error) if error.kind() != ErrorKind::Lost => return Err(error.into()),
        _ => {}
    }

    let (paid, refused) = web_of_payments(client, program)?;
    println!("{paid} payments, {refused} refused because their locks were lost");
    let sum = run(program, "SELECT SUM(balance) FROM leasehold_example;")??;
    run(program, "DROP TABLE leasehold_example;")??;
    if sum != "4000" {
        return Err(format!("{sum} instead of 4000 are left").into());
    }
    println!("no late commit, and no money lost");
    Ok(())
}

fn web_of_payments(client: &LockClient, program: &[String]) -> Outcome<(u32, u32)> {
    let (paid, refused) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..4)
            .map(|n| {
                let (paid, refused) = (&paid, &refused);
                s.spawn(move || -> Outcome<()> {
                    for turn in 0..6 {
                        // Too short on purpose: the lock may be lost before it is used.
                        let mutex = client.mutex(NAME).with_lease(Duration::from_millis(100));
                        let Ok(guard) = mutex.lock() else { continue };
                        let fence = guard.fence_sql()?;
                        std::thread::sleep(Duration::from_millis(30 * turn));
                        let done = pay(program, &fence, 1 + n, 1 + (n + 1) % 4)?;
                        (if done { paid } else { refused }).fetch_add(1, Ordering::SeqCst);
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
