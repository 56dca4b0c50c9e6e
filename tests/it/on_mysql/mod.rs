//! Locks in a MySQL or MariaDB database.

mod faults;
mod fence;
mod load;
mod looking;
mod lost_replies;
mod promotion;
mod schema;
mod sessions;
mod settings;
mod shares;

use leasehold::{ErrorKind, Result};

/// What a call returns that competes for a row. A statement waits a second for it, which a busy
/// machine may take: the call is told that it may try again.
fn at_last<T>(call: impl Fn() -> Result<T>) -> T {
    loop {
        match call() {
            Err(error) if is_late(&error) => {}
            outcome => return outcome.unwrap(),
        }
    }
}

/// The same for a release, which is repeated in the background.
fn released(outcome: Result<()>) {
    if let Err(error) = outcome {
        assert!(is_late(&error), "{error:?}");
    }
}

fn is_late(error: &leasehold::Error) -> bool {
    error.kind() == ErrorKind::NotReady && error.to_string().contains("end the transaction")
}
