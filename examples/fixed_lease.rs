//! A fixed lease: the lock ends after a time that is known beforehand, whether or not its holder
//! hangs.
//!
//! A fixed lease fits work with a known maximum duration. A holder that needs longer extends the
//! lease *before* it ends; nothing brings back a lease that has ended. It does not fit work of
//! unknown duration: let the watchdog renew that, with `max_hold` against holders that hang.
//!
//! `cargo run --example fixed_lease -- redis://127.0.0.1/`

use std::time::Duration;

use leasehold::{ErrorKind, LockClient, Result};

fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let client = LockClient::open(&url)?;
    let import = client.mutex("import").with_lease(Duration::from_millis(1500));

    let guard = import.lock()?;
    println!("held for {:?}", guard.remaining());
    guard.extend(Duration::from_secs(3))?;
    println!("extended to {:?}", guard.remaining());

    // The work takes too long.
    assert!(guard.wait_lost(Duration::from_secs(10)).is_lost());
    println!("the lease has ended");
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    println!("unlock says so: the work may have overlapped with somebody else's");

    import.lock()?.unlock()?;
    println!("and the lock is free for the next");
    Ok(())
}
