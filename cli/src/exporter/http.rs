//! Serves one page over HTTP. Written by hand: the small servers of the registry have no time limit
//! for a request that never ends, and Prometheus needs no more than this.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::failure::{Failure, status};

/// For a request and its answer together, however slowly the bytes come.
const TIME_LIMIT: Duration = Duration::from_secs(5);
const LONGEST_REQUEST: usize = 8 << 10;
/// A connection above that is closed at once.
const MOST_CONNECTIONS: usize = 64;
/// After a failed accept: it may fail for as long as the process has no free file descriptor.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Server {
    address: SocketAddr,
    page: Arc<Mutex<Arc<str>>>,
}

impl Server {
    /// Listens on a thread, which ends with the process.
    pub(super) fn start(address: &str, page: String) -> Result<Self, Failure> {
        let cannot = |e: io::Error| {
            Failure::new(status::USAGE, format!("--listen {address}: cannot listen there: {e}"))
        };
        let listener = bind(address).map_err(cannot)?;
        let server = Self {
            address: listener.local_addr().map_err(cannot)?,
            page: Arc::new(Mutex::new(page.into())),
        };
        let page = Arc::clone(&server.page);
        std::thread::Builder::new()
            .name("lh-http".into())
            .spawn(move || listen(&listener, &page))
            .map_err(cannot)?;
        Ok(server)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on this is the page. An answer that is on its way has the page before, whole.
    pub(super) fn serve(&self, page: String) {
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = page.into();
    }
}

/// Without a host, as in `:9843`: all addresses of this machine.
fn bind(address: &str) -> io::Result<TcpListener> {
    let of_shape = || {
        io::Error::new(
            ErrorKind::InvalidInput,
            "an address is HOST:PORT, or :PORT for all of this machine",
        )
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(of_shape)?;
    let port: u16 = port.parse().map_err(|_| of_shape())?;
    if !host.is_empty() {
        return TcpListener::bind(address);
    }
    // Where the system has IPv6, this one is for both, unless the system keeps them apart.
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

fn listen(listener: &TcpListener, page: &Arc<Mutex<Arc<str>>>) {
    // Each connection has a clone; the count of clones is that of the connections.
    let connections = Arc::new(());
    for accepted in listener.incoming() {
        let Ok(stream) = accepted else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let connection = Arc::clone(&connections);
        if Arc::strong_count(&connections) > MOST_CONNECTIONS + 1 {
            continue;
        }
        let page = Arc::clone(&page.lock().unwrap_or_else(PoisonError::into_inner));
        let answer = move || {
            let _ = converse(&stream, &page);
            drop(connection);
        };
        // Without a thread the connection is closed, as it would be without a file descriptor.
        let _ = std::thread::Builder::new().name("lh-http".into()).spawn(answer);
    }
}

fn converse(mut stream: &TcpStream, page: &str) -> io::Result<()> {
    let deadline = Instant::now() + TIME_LIMIT;
    let answer = match read_request(stream, deadline)? {
        Some(request) => answer(&request, page),
        None => Answer::of("400 Bad Request", "not a request\n"),
    };
    // Not `write_all`, which gives each part the whole time again: a reader that takes a little now
    // and then would keep its connection for as long as it likes.
    let mut rest = answer.0.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => rest = &rest[length..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The first line of the request, once its head has been read. `None` if it has none.
fn read_request(mut stream: &TcpStream, deadline: Instant) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(None),
            Ok(length) => head.extend_from_slice(&chunk[..length]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if head.len() > LONGEST_REQUEST {
            return Ok(None);
        }
    }
    Ok(String::from_utf8_lossy(&head).lines().next().map(str::to_owned))
}

struct Answer(String);

impl Answer {
    fn of(status: &str, text: &str) -> Self {
        Self::with(status, "text/plain; charset=utf-8", text, true)
    }

    fn with(status: &str, media: &str, text: &str, has_body: bool) -> Self {
        let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        let body = if has_body { text } else { "" };
        Self(format!(
            "HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n{body}",
            text.len()
        ))
    }
}

fn answer(request: &str, page: &str) -> Answer {
    let mut words = request.split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Answer::of("400 Bad Request", "not a request\n");
    };
    if !matches!(method, "GET" | "HEAD") {
        return Answer::of("405 Method Not Allowed", "only GET and HEAD\n");
    }
    let has_body = method == "GET";
    match target.split('?').next() {
        Some("/metrics") => {
            Answer::with("200 OK", "text/plain; version=0.0.4; charset=utf-8", page, has_body)
        }
        Some("/") => {
            let index = "<!doctype html><title>leasehold exporter</title><a href=\"/metrics\">metrics</a>\n";
            Answer::with("200 OK", "text/html; charset=utf-8", index, has_body)
        }
        _ => Answer::with(
            "404 Not Found",
            "text/plain; charset=utf-8",
            "it is at /metrics\n",
            has_body,
        ),
    }
}
