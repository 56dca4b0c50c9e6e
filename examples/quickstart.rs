//! A lock in a few lines: one holder at a time, across threads, processes and machines.
//!
//! `cargo run --example quickstart -- redis://127.0.0.1/`

use leasehold::LockClient;

fn main() -> leasehold::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let client = LockClient::open(&url)?;

    let guard = client.lock("job")?;
    println!("have the lock for {:?}, renewed while the guard lives", guard.remaining());

    // A second client acts like another process: it gets `None`, because somebody else has the
    // lock.
    let other = LockClient::open(&url)?;
    assert!(other.try_lock("job")?.is_none());
    println!("another client does not get it");

    guard.ensure_held()?; // before each step that must not overlap
    guard.unlock()?; // like dropping it, but reports the outcome

    assert!(other.try_lock("job")?.is_some());
    println!("released: now it does");
    Ok(())
}
