//! Waits and holds as spans of a request's trace: which request waited for which lock, for how
//! long, and how that ended.
//!
//! The spans go to the subscriber of the crate `tracing` that the program has installed: here one
//! that prints them when they end. The layer of the crate `tracing-opentelemetry` sends them to a
//! collector.
//!
//! `cargo run --features tracing --example spans -- redis://127.0.0.1/`

use std::sync::Mutex;
use std::time::Duration;

use leasehold::LockClient;
use tracing_subscriber::fmt::format::FmtSpan;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    tracing_subscriber::fmt()
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(Mutex::new(std::io::stderr()))
        .init();
    let client = LockClient::builder().url(&url).owner("billing-7").build()?;
    // Another process, which has the lock first.
    let other = LockClient::builder().url(&url).owner("import-2").build()?;

    let held = other.lock("invoices")?;
    std::thread::scope(|scope| {
        let request = scope.spawn(|| {
            // Spans of the library belong to the span that the calling thread is in.
            let _request = tracing::info_span!("request", id = 4711).entered();
            // `leasehold.wait` ends, and `leasehold.hold` begins.
            let guard = client.lock("invoices")?;
            std::thread::sleep(Duration::from_millis(20));
            guard.unlock() // `leasehold.hold` ends, with lock.outcome="released"
        });
        std::thread::sleep(Duration::from_millis(50));
        held.unlock()?;
        request.join().expect("the request does not panic")
    })?;

    // A hold that is lost ends when that is found, by a renewal or by its guard: with
    // lock.outcome="lost", the reason, and otel.status_code="ERROR".
    let guard = client.lock("invoices")?;
    other.mutex("invoices").force_unlock()?;
    guard.unlock().expect_err("it was taken away");

    println!("the request waited for one lock, and one hold was lost");
    Ok(())
}
