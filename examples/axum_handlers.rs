//! Locks in an async web service, with axum on tokio: a handler that takes a lock, one whose own
//! work is async, a client that hangs up while its request waits, and a clean stop.
//!
//! Every call of leasehold blocks its thread, and the threads that run async code must not be
//! blocked. So `locked` runs lock, work and unlock in *one* `spawn_blocking`. The chapter
//! `guide::async_code` says what happens otherwise. The runtime here is small, to show that two
//! workers and eight blocking threads are enough for 64 requests at a time.
//!
//! `cargo run --example axum_handlers -- redis://127.0.0.1/`

use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use leasehold::{CancelToken, Held, LockClient, OwnedMutexGuard, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::{JoinSet, spawn_blocking};

/// How long a request waits for a lock before it answers 503.
const PATIENCE: Duration = Duration::from_secs(20);
const BLOCKING_THREADS: usize = 8;
/// How many of them may wait for locks: the rest is left to `unlock`, and to files and names of
/// hosts, for which tokio uses the same threads.
const WAITERS: usize = 4;

struct App {
    client: LockClient,
    waiters: Arc<Semaphore>,
    /// The resource: a number that is read and written in two steps.
    stock: Mutex<u32>,
}

/// Cancels a wait when the future that asked for it is dropped: nothing else does. `spawn_blocking`
/// has a thread that goes on without the future.
struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Runs `work` under the lock `name`; `None` if it was not free in time.
async fn locked<T: Send + 'static>(
    app: &App,
    name: &str,
    work: impl FnOnce(&dyn Held) -> Result<T> + Send + 'static,
) -> Result<Option<T>> {
    let cancel = CancelOnDrop(CancelToken::new());
    let lock = app.client.mutex(name).with_cancel(&cancel.0);
    let turn = app.waiters.clone().acquire_owned().await.expect("it is never closed");
    let call = spawn_blocking(move || {
        // It belongs to the thread: this future may be gone when the thread ends.
        let _turn = turn;
        let Some(guard) = lock.try_lock_for(PATIENCE)? else { return Ok(None) };
        let done = work(&guard)?;
        guard.unlock()?;
        Ok(Some(done))
    });
    call.await.expect("the work does not panic")
}

/// Takes one piece out of the stock. Without the lock, requests would overwrite each other's work.
async fn take_one(State(app): State<Arc<App>>) -> (StatusCode, String) {
    let stock = app.clone();
    let taken = locked(&app, "example-axum:stock", move |guard| {
        let left = *stock.stock.lock().expect("nobody panics");
        std::thread::sleep(Duration::from_millis(2));
        guard.ensure_held()?;
        *stock.stock.lock().expect("nobody panics") = left - 1;
        Ok(left - 1)
    });
    match taken.await {
        Ok(Some(left)) => (StatusCode::OK, left.to_string()),
        Ok(None) => (StatusCode::SERVICE_UNAVAILABLE, "busy".to_owned()),
        Err(e) => (StatusCode::SERVICE_UNAVAILABLE, e.to_string()),
    }
}

/// A guard that lives across an `await`. A future can be dropped at any `await`, on a thread that
/// must not block, so the release goes to a thread that may.
struct AcrossAwaits(Option<OwnedMutexGuard>);

impl Drop for AcrossAwaits {
    fn drop(&mut self) {
        let guard = self.0.take();
        // Outside a runtime it is given up here and now.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn_blocking(move || drop(guard));
        }
    }
}

/// Work that is async itself, and ends when the lock is lost.
async fn report(State(app): State<Arc<App>>) -> (StatusCode, String) {
    match guarded(&app, "example-axum:report", write_report()).await {
        Ok(Some(report)) => (StatusCode::OK, report.to_owned()),
        Ok(None) => (StatusCode::SERVICE_UNAVAILABLE, "busy".to_owned()),
        Err(e) => (StatusCode::CONFLICT, e.to_string()),
    }
}

async fn guarded<T>(app: &App, name: &str, work: impl Future<Output = T>) -> Result<Option<T>> {
    let cancel = CancelOnDrop(CancelToken::new());
    let lock = app.client.mutex(name).with_cancel(&cancel.0);
    let turn = app.waiters.clone().acquire_owned().await.expect("it is never closed");
    let call = spawn_blocking(move || {
        let _turn = turn;
        lock.try_lock_owned_for(PATIENCE)
    });
    let Some(guard) = call.await.expect("it does not panic")? else { return Ok(None) };

    let (lost, mut ended) = watch::channel(false);
    guard.on_lost(move |_| _ = lost.send(true));
    let mut guard = AcrossAwaits(Some(guard));
    let done = tokio::select! {
        done = work => Some(done),
        _ = ended.wait_for(|lost| *lost) => None,
    };
    let guard = guard.0.take().expect("it is taken only here");
    // Its error says how the lock was lost.
    spawn_blocking(move || guard.unlock()).await.expect("it does not panic")?;
    Ok(done)
}

async fn write_report() -> &'static str {
    tokio::time::sleep(Duration::from_secs(60)).await;
    "written"
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let lease = Duration::from_secs(1);
    let builder = LockClient::builder().url(&url).lease(lease);
    // A busy machine may need longer than a quarter of the lease.
    let client = builder.io_timeout(lease / 5 * 4).build()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()?;
    runtime.block_on(serve(client))
}

async fn serve(client: LockClient) -> std::result::Result<(), Box<dyn Error>> {
    let (waiters, stock) = (Arc::new(Semaphore::new(WAITERS)), Mutex::new(64));
    let app = Arc::new(App { client: client.clone(), waiters, stock });
    let routes = Router::new().route("/take", post(take_one)).route("/report", post(report));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let waiting = client.clone();
    let server = axum::serve(listener, routes.with_state(app.clone()));
    // In a service: `tokio::signal::ctrl_c().await`, or SIGTERM.
    let server = tokio::spawn(
        server
            .with_graceful_shutdown(async move {
                _ = stopped.await;
                // Requests that wait for a lock end at once, with an error; those that have it finish.
                waiting.stop_waiting();
            })
            .into_future(),
    );

    visit(address, &app).await?;

    _ = stop.send(());
    server.await??;
    // It blocks, so it does not run on a worker either.
    spawn_blocking(move || client.close(Duration::from_secs(5))).await??;
    println!("stopped: nothing is locked");
    Ok(())
}

/// What the clients of the service do.
async fn visit(address: SocketAddr, app: &App) -> std::result::Result<(), Box<dyn Error>> {
    let mut requests = JoinSet::new();
    for _ in 0..64 {
        requests.spawn(post_to(address, "/take"));
    }
    while let Some(answer) = requests.join_next().await {
        assert!(answer??.starts_with("HTTP/1.1 200"), "every request is served");
    }
    let left = *app.stock.lock().expect("nobody panics");
    assert_eq!(left, 0, "each request has taken one piece");
    println!("64 requests, and {left} left");

    // The lock is forced out of the report's hands. Its own client is told at once; if another one
    // does it, the loss is noticed at the next renewal.
    let report = tokio::spawn(post_to(address, "/report"));
    let name = "example-axum:report";
    until(app, "the report has its lock", |holds, _| holds == 1).await;
    let operator = app.client.mutex(name);
    spawn_blocking(move || operator.force_unlock()).await??;
    let answer = report.await??;
    assert!(answer.starts_with("HTTP/1.1 409"), "{answer}");
    println!("the report ends: {}", answer.lines().last().unwrap_or_default());

    // A client that hangs up takes its request out of the queue of the lock.
    let busy = app.client.mutex("example-axum:stock");
    let guard = spawn_blocking(move || busy.lock_owned()).await??;
    let mut impatient = TcpStream::connect(address).await?;
    impatient.write_all(b"POST /take HTTP/1.1\r\nHost: here\r\n\r\n").await?;
    until(app, "the request waits", |_, waits| waits == 1).await;
    drop(impatient);
    until(app, "nobody waits any more", |_, waits| waits == 0).await;
    println!("the impatient client has left nobody in the queue");
    spawn_blocking(move || guard.unlock()).await??;
    Ok(())
}

async fn post_to(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!("POST {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Waits until the client has this many holds and waits.
async fn until(app: &App, what: &str, reached: impl Fn(usize, usize) -> bool) {
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        let now = app.client.snapshot();
        if reached(now.holds().len(), now.waits().len()) {
            return;
        }
        assert!(Instant::now() < limit, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
