//! Threads of two processes move money between accounts, and name the accounts in any order.
//!
//! With one lock after the other, a transfer from 1 to 2 and one from 2 to 1 would wait for each
//! other for ever, and one from an account to itself would wait for itself or need code of its own.
//! `client.multi` takes all names at once or none of them, counts a name that comes twice once, and
//! holds nothing while it waits.
//!
//! The program starts itself as the second process. Balances are read and written in separate
//! steps, so only the locks keep the total.
//!
//! `cargo run --example transfer -- redis://127.0.0.1/`

use std::error::Error;
use std::process::Command;

use leasehold::LockClient;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const ACCOUNTS: u64 = 4;
const THREADS: u64 = 3;
const TRANSFERS: u64 = 25;
const BALANCE: i64 = 100;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let url = args.first().map_or("redis://127.0.0.1/", String::as_str);
    if args.get(1).is_some_and(|role| role == "other") {
        return transfers(url, THREADS);
    }
    let mut db = redis::Client::open(url)?.get_connection()?;
    for account in 0..ACCOUNTS {
        redis::cmd("SET").arg(balance_of(account)).arg(BALANCE).arg("EX").arg(600).exec(&mut db)?;
    }
    let mut other = Command::new(std::env::current_exe()?).args([url, "other"]).spawn()?;
    let done = transfers(url, 0);
    let other = other.wait()?;
    let mut total = 0;
    for account in 0..ACCOUNTS {
        let balance: i64 = redis::cmd("GETDEL").arg(balance_of(account)).query(&mut db)?;
        println!("account {account} has {balance}");
        total += balance;
    }
    done?;
    other.success().then_some(()).ok_or("the other process failed")?;
    let wanted = BALANCE * ACCOUNTS as i64;
    (total == wanted).then_some(()).ok_or_else(|| format!("{total} in all, and not {wanted}"))?;
    println!("{} transfers, and still {total} in all", 2 * THREADS * TRANSFERS);
    Ok(())
}

fn balance_of(account: u64) -> String {
    format!("example-transfer:balance:{account}")
}

/// The threads of one process; `first` makes their choices differ from those of the other.
fn transfers(url: &str, first: u64) -> Outcome<()> {
    let client = LockClient::open(url)?;
    std::thread::scope(|scope| {
        let spawn = |seed| {
            let client = &client;
            scope.spawn(move || move_around(client, url, seed))
        };
        let threads: Vec<_> = (first..first + THREADS).map(spawn).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })
}

fn move_around(client: &LockClient, url: &str, seed: u64) -> Outcome<()> {
    let mut db = redis::Client::open(url)?.get_connection()?;
    let mut random = seed;
    let mut draw = |below| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for _ in 0..TRANSFERS {
        // Some transfers are from an account to itself.
        let (from, to, amount) = (draw(ACCOUNTS), draw(ACCOUNTS), draw(20) as i64);
        let both =
            client.multi([from, to].map(|account| format!("example-transfer:{account}"))).lock()?;
        add(&mut db, from, -amount)?;
        // With real money, pass the tokens along: both.fencing_token(name).
        both.ensure_held()?;
        add(&mut db, to, amount)?;
        both.unlock()?;
    }
    Ok(())
}

fn add(db: &mut redis::Connection, account: u64, amount: i64) -> Outcome<()> {
    let key = balance_of(account);
    let balance: i64 = redis::cmd("GET").arg(&key).query(db)?;
    Ok(redis::cmd("SET").arg(&key).arg(balance + amount).arg("KEEPTTL").exec(db)?)
}
