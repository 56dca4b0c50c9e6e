//! How a program tests what its job does when the lock is lost: no server, no sleeping.
//!
//! `cargo run --example test_your_job --features testing`

use std::time::Duration;

use leasehold::testing::{Failure, Faults, Operation};
use leasehold::{Error, ErrorKind, Held, LockClient, LossReason};

/// Why the job under test ended early.
#[derive(Debug)]
enum Stopped {
    /// The lock was lost. The next holder may book the same amounts again.
    Lost(LossReason),
    Failed(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Continues, or returns how the lock was lost.
fn check(guard: &impl Held) -> Result<(), Stopped> {
    guard.loss().map_or(Ok(()), |loss| Err(Stopped::Lost(loss.reason())))
}

/// The job under test: books each amount while it holds the lock, and stops when it has lost it.
fn book(client: &LockClient, amounts: &[u64], mut write: impl FnMut(u64)) -> Result<u64, Stopped> {
    let guard = client.lock("ledger")?;
    let mut booked = 0;
    for amount in amounts {
        check(&guard)?;
        write(*amount);
        booked += amount;
    }
    check(&guard)?;
    guard.unlock()?;
    Ok(booked)
}

fn main() -> Result<(), Stopped> {
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
    assert!(matches!(outcome, Err(Stopped::Lost(LossReason::NotRenewed))));
    assert_eq!(written, [1, 2]);
    println!("stops when the lease has ended");

    // The server forgets the hold, as after a failover, or somebody frees it by force.
    let outcome = book(&client, &[1, 2, 3], |amount| {
        if amount == 1 {
            let guard = client.lock("ledger").expect("re-entered");
            assert!(faults.lose("ledger"));
            assert!(guard.wait_lost(Duration::from_secs(10)).is_lost());
        }
    });
    assert!(matches!(outcome, Err(Stopped::Lost(LossReason::TakenAway))));
    println!("knows that it was taken away");

    faults.fail_next(Operation::Acquire, Failure::BeforeItRan);
    let Err(Stopped::Failed(error)) = book(&client, &[1], |_| {}) else {
        panic!("nobody can be asked")
    };
    assert!(error.is_transient() && error.kind() == ErrorKind::Unreachable);
    println!("reports a server that cannot be reached");

    // Another client on the same locks acts like another process.
    let other = LockClient::in_memory_shared(&client)?;
    assert!(other.try_lock("ledger")?.is_some());
    println!("and leaves nothing behind");
    Ok(())
}
