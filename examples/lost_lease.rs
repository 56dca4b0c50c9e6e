//! Losing a lock: four ways to notice it (polling, blocking, a callback, a channel), and the
//! reason.
//!
//! Here an operator frees the lock by force. A pause longer than the lease, a failover or a restart
//! of the server would look the same to the holder. It notices the loss at the next renewal, a
//! third of the lease later, or as soon as the lease has ended by time.
//!
//! `cargo run --example lost_lease -- redis://127.0.0.1/`

use std::sync::mpsc;
use std::time::Duration;

use leasehold::{ErrorKind, LockClient, LossReason, LossWait, Result};

fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let lease = Duration::from_secs(1);
    let builder = LockClient::builder().url(&url).lease(lease);
    // A busy machine may need longer than a quarter of the lease.
    let client = builder.io_timeout(lease / 5 * 4).build()?;
    let operator = LockClient::open(&url)?;

    let guard = client.lock("job")?;
    let (called, callback) = mpsc::channel();
    guard.on_lost(move |loss| {
        let _ = called.send(format!("on_lost: {loss}"));
    });
    // Called before the lease is lost, when the first renewal fails. Here none does.
    guard.on_renewal_failed(|trouble| println!("on_renewal_failed: {trouble}"));
    // This channel is disconnected at the loss, for `select!`: see the example `select_jobs`.
    let lost = guard.lost();

    std::thread::scope(|scope| {
        // A guard is bound to its thread, but another thread may check it.
        let blocked = scope.spawn(|| guard.wait_lost(Duration::from_secs(10)));
        println!("the operator frees the lock: {}", operator.mutex("job").force_unlock()?);
        assert_eq!(blocked.join().expect("the watching thread does not panic"), LossWait::Lost);
        println!("wait_lost: returned");
        Ok(())
    })?;

    assert!(!guard.is_held());
    println!("is_held: false");
    println!("{}", callback.recv_timeout(Duration::from_secs(10)).expect("the callback runs"));
    assert!(lost.recv().is_err());
    println!("lost: ready, and it stays so");

    // Depending on the reason: alert an operator, set a longer lease, or do nothing because it was
    // intended.
    let loss = guard.loss().expect("it is lost");
    assert_eq!(loss.reason(), LossReason::TakenAway);
    println!("loss: {:?} after {:.1?}", loss.reason(), loss.held_for());

    // Checked before each step that must not overlap with somebody else's.
    assert_eq!(guard.ensure_held().unwrap_err().kind(), ErrorKind::Lost);
    // A thread whose hold was lost cannot silently get a new one while it still has the old guard.
    assert_eq!(client.lock("job").unwrap_err().kind(), ErrorKind::Lost);
    println!("unlock: {}", guard.unlock().unwrap_err());

    client.lock("job")?.unlock()?;
    println!("the lost guard is gone: the lock can be taken again");
    Ok(())
}
