//! A ticket counter: first come, first served, across threads and processes.
//!
//! It takes a fair lock, because here people care about the order. A plain lock is faster, but
//! between processes its order is undefined. The queue is in Redis: a waiting customer can see how
//! long it is, and how many are ahead.
//!
//! `cargo run --example ticket_queue -- redis://127.0.0.1/`

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{LockClient, Result};

const CUSTOMERS: usize = 5;

fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    // Each client acts like a process: three web servers, say, with customers on all of them.
    let servers = [LockClient::open(&url)?, LockClient::open(&url)?, LockClient::open(&url)?];
    let clerk = LockClient::open(&url)?;
    let counter = clerk.fair("ticket-counter");
    let served = Mutex::new(Vec::new());

    thread::scope(|scope| {
        // The counter is not open yet. The guard is moved into this closure: if the closure fails,
        // the counter opens, and nobody waits for ever.
        let closed = counter.lock()?;
        let mut customers = Vec::new();
        for number in 1..=CUSTOMERS {
            let (server, served) = (&servers[number % servers.len()], &served);
            customers.push(scope.spawn(move || buy(number, server, served)));
            // A customer's place is determined when its first request reaches the server. Of
            // customers who come together, any could be first.
            wait_until("the customer stands in the queue", || Ok(counter.queue_len()? == number))?;
            println!("customer {number} comes, {} wait", counter.queue_len()?);
        }
        for (n, server) in servers.iter().enumerate() {
            // The position of the first waiter of this server. Another thread asks for it, because
            // the waiters are blocked.
            if let Some(before) = server.fair("ticket-counter").position()? {
                println!("server {n} shows: {before} before you");
            }
        }

        // A waiter that gives up leaves the queue, and a call that only tries does not enter it.
        assert!(
            servers[0].fair("ticket-counter").try_lock_for(Duration::from_millis(20))?.is_none()
        );
        assert!(servers[1].fair("ticket-counter").try_lock()?.is_none());
        assert_eq!(counter.queue_len()?, CUSTOMERS);

        println!("the counter opens");
        closed.unlock()?;
        customers.into_iter().try_for_each(|customer| customer.join().expect("no customer panics"))
    })?;

    let served = served.into_inner().expect("no customer panics");
    assert!(served.is_sorted());
    println!(
        "served in order: {}",
        served.iter().map(usize::to_string).collect::<Vec<_>>().join(" ")
    );
    Ok(())
}

fn buy(number: usize, server: &LockClient, served: &Mutex<Vec<usize>>) -> Result<()> {
    let guard = server.fair("ticket-counter").lock()?;
    // ... buys a ticket ...
    served.lock().expect("no customer panics").push(number);
    println!("customer {number} is served");
    guard.unlock()
}

fn wait_until(what: &str, condition: impl Fn() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !condition()? {
        assert!(start.elapsed() < Duration::from_secs(10), "not so after 10 s: {what}");
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
