//! How a program tests what its job does when the lock is lost: no server, no sleeping.
//!
//! `cargo run --example test_your_job --features testing`

use std::time::Duration;

use leasehold::testing::{Failure, Faults, Operation};
use leasehold::{ErrorKind, LockClient, Result};

/// The job under test: books each amount while it holds the lock, and stops when it has lost it.
fn book(client: &LockClient, amounts: &[u64], mut write: impl FnMut(u64)) -> Result<u64> {
    let guard = client.lock("ledger")?;
    let mut booked = 0;
    for amount in amounts {
        guard.ensure_held()?;
        write(*amount);
        booked += amount;
    }
    guard.unlock()?;
    Ok(booked)
}

fn main() -> Result<()> {
    let client = LockClient::in_memory();
    let faults = Faults::of(&client)?;

    assert_eq!(book(&client, &[1, 2, 3], |_| {})?, 6);
    println!("books everything while it holds the lock");

    // The lease ends in the middle, as if the machine had been suspended.
    let mut written = Vec::new();
    let outcome = book(&client, &[1, 2, 3], |amount| {
        written.push(amount);
        if amount == 2 {
            faults.advance(Duration::from_secs(60));
        }
    });
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(written, [1, 2]);
    println!("stops when the lease has ended");

    faults.fail_next(Operation::Acquire, Failure::BeforeItRan);
    assert_eq!(book(&client, &[1], |_| {}).unwrap_err().kind(), ErrorKind::Unreachable);
    println!("reports a server that cannot be reached");

    // Another client on the same locks stands for another process.
    let other = LockClient::in_memory_shared(&client)?;
    assert!(other.try_lock("ledger")?.is_some());
    println!("and leaves nothing behind");
    Ok(())
}
