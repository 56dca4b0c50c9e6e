//! The metrics of a service's locks for Prometheus, without a web framework.
//!
//! Workers share a lock; a thread answers `GET /metrics` with the client's figures. A service that
//! has a web server already answers with the same text from a route of its own:
//! `client.stats().to_prometheus()`.
//!
//! `cargo run --example metrics -- redis://127.0.0.1/ 127.0.0.1:9184`, then
//! `curl http://127.0.0.1:9184/metrics`. With a number after the address it ends after that many
//! scrapes.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::LockClient;

/// A client that connects and sends nothing must not keep others from scraping.
const PATIENCE: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let address = args.next().unwrap_or_else(|| "127.0.0.1:9184".to_owned());
    let scrapes = args.next().map_or(Ok(usize::MAX), |count| count.parse())?;

    // The name is the label `client` of every metric.
    let client = LockClient::builder().url(url).client_name("billing").build()?;
    let listener = TcpListener::bind(address)?;
    println!("serving http://{}/metrics", listener.local_addr()?);

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| work(&client, &stop));
        }
        let mut served = 0;
        while served < scrapes {
            match listener.accept().and_then(|(stream, _)| answer(&stream, &client)) {
                Ok(is_scrape) => served += usize::from(is_scrape),
                // For example, the scraper has disconnected. The next one is served as usual.
                Err(e) => eprintln!("a scrape failed: {e}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    client.close(Duration::from_secs(5))?;
    println!("served {scrapes} scrapes");
    Ok(())
}

fn work(client: &LockClient, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match client.lock("invoices") {
            Ok(_guard) => std::thread::sleep(Duration::from_millis(2)),
            // The error is also counted, by its kind.
            Err(e) => eprintln!("no lock: {e}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Answers one request. Returns whether it was a scrape.
fn answer(stream: &TcpStream, client: &LockClient) -> std::io::Result<bool> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    // Reads the headers up to the empty line: closing a socket with unread input would reset it.
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    let is_scrape = request.starts_with("GET /metrics ");
    let (status, kind, body) = if is_scrape {
        ("200 OK", "text/plain; version=0.0.4; charset=utf-8", client.stats().to_prometheus())
    } else {
        ("404 Not Found", "text/plain", "the figures are at /metrics\n".to_owned())
    };
    let length = body.len();
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    stream.flush()?;
    Ok(is_scrape)
}
