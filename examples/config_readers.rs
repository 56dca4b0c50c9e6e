//! Many read a config of two values, one changes both, and nobody sees it half changed.
//!
//! A read-write lock: readers do not wait for each other, and a writer excludes everybody. After
//! its write, the writer goes on as a reader (`downgrade`): the others may read again while it
//! checks what it wrote, and no other writer comes in between.
//!
//! `cargo run --example config_readers -- redis://127.0.0.1/`

use std::error::Error;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use leasehold::{LockClient, RwLock};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
type Config = (String, String);

const READERS: usize = 4;
const HOST: &str = "example-config:host";
const PORT: &str = "example-config:port";

fn main() -> Outcome<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let client = LockClient::open(&url)?;
    let mut db = redis::Client::open(&*url)?.get_connection()?;
    let outcome = run(&url, &client.rw_lock("config"), &mut db);
    redis::cmd("DEL").arg(HOST).arg(PORT).exec(&mut db)?;
    let whole = outcome?;
    println!("{whole} reads saw a whole config");
    Ok(())
}

fn run(url: &str, lock: &RwLock, db: &mut redis::Connection) -> Outcome<usize> {
    let guard = lock.write()?;
    set(db, HOST, "db-1")?;
    set(db, PORT, "5001")?;
    guard.unlock()?;

    thread::scope(|scope| {
        let before = all(start(scope, url, 1))?;
        assert!(before.iter().all(|config| is(config, "db-1", "5001")));

        // The guard is moved into this closure: if the closure fails, the lock is released, and the
        // readers do not wait for ever.
        let guard = lock.write()?;
        set(db, HOST, "db-2")?;
        let readers = start(scope, url, 2);
        // The config is half changed now. Without the lock, a reader would have enough time to see
        // that.
        thread::sleep(Duration::from_millis(30));
        // A writer that has lost the lock must not write any more.
        guard.ensure_held()?;
        set(db, PORT, "5002")?;
        let guard = guard.downgrade()?;
        println!("changed; the others read again");

        // The writer still reads, and so do all the others.
        let after = all(readers)?;
        assert!(after.iter().all(|config| is(config, "db-2", "5002")), "{after:?}");
        assert!(is(&get(db)?, "db-2", "5002"), "no other writer was in between");
        guard.unlock()?;
        Ok(before.len() + after.len())
    })
}

type Reader<'a> = ScopedJoinHandle<'a, Outcome<Vec<Config>>>;

fn start<'a>(scope: &'a Scope<'a, '_>, url: &'a str, reads: usize) -> Vec<Reader<'a>> {
    (0..READERS).map(|_| scope.spawn(move || reader(url, reads))).collect()
}

fn reader(url: &str, reads: usize) -> Outcome<Vec<Config>> {
    // A client and a connection of its own, as another process would have.
    let client = LockClient::open(url)?;
    let mut db = redis::Client::open(url)?.get_connection()?;
    let mut seen = Vec::new();
    for _ in 0..reads {
        let guard = client.rw_lock("config").read()?;
        let (host, port) = get(&mut db)?;
        println!("read {host}:{port}");
        guard.unlock()?;
        seen.push((host, port));
    }
    Ok(seen)
}

fn all(readers: Vec<Reader<'_>>) -> Outcome<Vec<Config>> {
    let mut seen = Vec::new();
    for reader in readers {
        seen.extend(reader.join().expect("no reader panics")?);
    }
    Ok(seen)
}

fn is(config: &Config, host: &str, port: &str) -> bool {
    (&*config.0, &*config.1) == (host, port)
}

/// Uses two commands on purpose: only the lock makes both values change as one.
fn get(db: &mut redis::Connection) -> redis::RedisResult<Config> {
    Ok((redis::cmd("GET").arg(HOST).query(db)?, redis::cmd("GET").arg(PORT).query(db)?))
}

fn set(db: &mut redis::Connection, key: &str, value: &str) -> redis::RedisResult<()> {
    // The values expire, so that an interrupted example leaves nothing behind.
    redis::cmd("SET").arg(key).arg(value).arg("EX").arg(60).exec(db)
}
