//! Code of the user panics: in the middle of a release, or on a thread of the library. Nobody else
//! notices.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold::LockClient;
use leasehold::observe::{Listener, LockInfo};

use crate::rig::{Child, PROMPT, Server, wait_until};

/// A logger belongs to the whole process, so each of these tests has its own process.
fn run_with_a_panicking_logger(program: &str) {
    let server = Server::start();
    let mut child = Child::spawn(program, &[("LEASEHOLD_TEST_URL", &server.url())]);
    child.expect("all locks are free");
    child.wait();
    server.assert_clean();
}

#[test]
fn a_logger_that_panics_in_a_release_keeps_no_lock() {
    run_with_a_panicking_logger("panics::panicking_logger_process");
}

#[test]
fn a_logger_that_panics_on_a_thread_of_the_library_ends_no_thread() {
    run_with_a_panicking_logger("panics::logger_panics_in_the_background_process");
}

thread_local! {
    /// Whether the logger panics on this thread.
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

/// Whether it panics on the threads of the library.
static PANICS_IN_THE_BACKGROUND: AtomicBool = AtomicBool::new(false);
/// How often it has panicked.
static PANICKED: AtomicU32 = AtomicU32::new(0);

fn is_to_panic() -> bool {
    let is_of_the_library =
        || std::thread::current().name().is_some_and(|name| name.starts_with("lh-"));
    // In the destructor of a thread-local this one may be gone.
    PANICS.try_with(Cell::get) != Ok(false)
        || PANICS_IN_THE_BACKGROUND.load(Ordering::SeqCst) && is_of_the_library()
}

fn install_logger() {
    struct Panics;
    impl log::Log for Panics {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }
        fn log(&self, record: &log::Record<'_>) {
            if is_to_panic() {
                PANICKED.fetch_add(1, Ordering::SeqCst);
                panic!("on purpose: {}", record.args());
            }
        }
        fn flush(&self) {}
    }
    log::set_logger(&Panics).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !is_to_panic() {
            usual(panic);
        }
    }));
}

#[test]
#[ignore = "a program for other tests"]
fn panicking_logger_process() {
    install_logger();
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let client = LockClient::open(&url).unwrap();
    // The client's connections are ended, so the release reconnects, and logs that.
    let mut admin = redis::Client::open(url).unwrap().get_connection().unwrap();
    let kill = || redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").clone();
    let mut panics = |release: &dyn Fn()| {
        kill().query::<u32>(&mut admin).unwrap();
        PANICS.set(true);
        let before = PANICKED.load(Ordering::SeqCst);
        release();
        PANICS.set(false);
        assert!(PANICKED.load(Ordering::SeqCst) > before, "nothing was logged");
    };
    let (lock, fair, rw) = (client.mutex("lock"), client.fair("fair"), client.rw_lock("rw"));
    let names = ["a", "b"];
    for _ in 0..3 {
        let guard = Cell::new(Some(lock.lock_owned().unwrap()));
        panics(&|| drop(guard.take().unwrap().unlock()));
        drop(lock.try_lock_for(PROMPT).unwrap().expect("a plain lock"));
        let guard = Cell::new(Some(fair.lock_owned().unwrap()));
        panics(&|| drop(guard.take().unwrap().unlock()));
        drop(fair.try_lock_for(PROMPT).unwrap().expect("a fair lock"));
        let guard = Cell::new(Some(rw.write_owned().unwrap()));
        panics(&|| drop(guard.take().unwrap().unlock()));
        drop(rw.try_read_for(PROMPT).unwrap().expect("a write lock"));
        let guard = Cell::new(Some(rw.read_owned().unwrap()));
        panics(&|| drop(guard.take().unwrap().unlock()));
        drop(rw.try_write_for(PROMPT).unwrap().expect("a read lock"));
        let guard = Cell::new(Some(client.multi(names).lock_owned().unwrap()));
        panics(&|| drop(guard.take().unwrap().unlock()));
        drop(client.multi(names).try_lock_for(PROMPT).unwrap().expect("a multi-lock"));
    }
    // A waiting thread gets it as well.
    let guard = Cell::new(Some(lock.lock_owned().unwrap()));
    std::thread::scope(|s| {
        let waits =
            s.spawn(|| lock.try_lock_for(PROMPT).unwrap().expect("it waits").unlock().unwrap());
        wait_until("it waits", || client.snapshot().waits().len() == 1);
        panics(&|| drop(guard.take().unwrap().unlock()));
        waits.join().unwrap();
    });
    // A thread ends with a hold, and the line about that is logged in the destructor of a
    // thread-local, where a panic ends the process.
    let before = PANICKED.load(Ordering::SeqCst);
    let holder = client.clone();
    // Joined without a scope, which does not wait for the destructors.
    let ends = std::thread::spawn(move || {
        std::mem::forget(holder.lock("lock").unwrap());
        PANICS.set(true);
    });
    ends.join().unwrap();
    assert!(PANICKED.load(Ordering::SeqCst) > before, "nothing was logged");
    drop(lock.try_lock_for(PROMPT).unwrap().expect("its thread has ended"));
    client.close(PROMPT).unwrap();
    // A listener panics, and the logger about that, when a call has a hold and no guard yet.
    let listened = LockClient::builder().url(std::env::var("LEASEHOLD_TEST_URL").unwrap());
    let listened = listened.listener(Arc::new(PanickingListener)).build().unwrap();
    PANICS.set(true);
    listened.lock("listened").unwrap().unlock().unwrap();
    PANICS.set(false);
    listened.close(PROMPT).unwrap();
    println!("@@all locks are free");
}

#[test]
fn a_value_that_panics_when_its_callback_is_dropped_ends_no_process() {
    let server = Server::start();
    let url = server.url();
    let mut child =
        Child::spawn("panics::panicking_values_process", &[("LEASEHOLD_TEST_URL", &url)]);
    child.expect("all locks are free");
    child.wait();
    server.assert_clean();
}

#[test]
#[ignore = "a program for other tests"]
fn panicking_values_process() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    std::panic::set_hook(Box::new(|_| ()));
    let client = LockClient::open(&std::env::var("LEASEHOLD_TEST_URL").unwrap()).unwrap();
    let work = std::panic::catch_unwind(|| {
        let guard = client.lock("job").unwrap();
        for value in [Panics, Panics] {
            guard.on_lost(move |_| drop(value));
        }
        let value = Panics;
        guard.on_renewal_failed(move |_| {
            let _ = &value;
        });
        panic!("on purpose");
    });
    work.unwrap_err();
    assert!(client.try_lock("job").unwrap().is_some(), "it was released");
    println!("@@all locks are free");
}

struct PanickingListener;

impl Listener for PanickingListener {
    fn acquired(&self, _: &LockInfo<'_>, _: Option<Duration>) {
        panic!("on purpose");
    }
}

/// So long that no lock becomes free because its lease ends.
const LEASE: Duration = Duration::from_secs(120);

#[test]
#[ignore = "a program for other tests"]
fn logger_panics_in_the_background_process() {
    install_logger();
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let open = || {
        LockClient::builder()
            .url(&url)
            .lease(LEASE)
            .io_timeout(Duration::from_millis(1000))
            .build()
            .unwrap()
    };
    let (client, other) = (open(), open());
    let mut admin = redis::Client::open(&*url).unwrap().get_connection().unwrap();
    PANICS_IN_THE_BACKGROUND.store(true, Ordering::SeqCst);

    // The watchdog cannot resolve a release at first, and logs that.
    let guards = ["a", "b"].map(|name| client.mutex(name).lock_owned().unwrap());
    let before = PANICKED.load(Ordering::SeqCst);
    redis::cmd("CLIENT").arg(&["PAUSE", "5000", "ALL"]).exec(&mut admin).unwrap();
    for guard in guards {
        guard.unlock().unwrap_err();
    }
    wait_until("the watchdog logs", || PANICKED.load(Ordering::SeqCst) > before);
    // Answered when the pause is over.
    redis::cmd("PING").exec(&mut admin).unwrap();
    for name in ["a", "b"] {
        drop(other.try_lock_for(name, PROMPT).unwrap().expect("its release was repeated"));
    }
    wait_until("nothing is left to undo", || client.stats().unknown_outcomes() == 0);

    // The thread that receives messages loses its connection, and logs that. It does so while
    // somebody waits: a second after the last waiter the subscription ends.
    let guard = other.lock("job").unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| {
            client.try_lock_for("job", LEASE / 2).unwrap().expect("it is freed").unlock()
        });
        let mut subscribed = || {
            wait_until("it is subscribed", || {
                let clients = ["LIST", "TYPE", "pubsub"];
                let clients: String = redis::cmd("CLIENT").arg(&clients).query(&mut admin).unwrap();
                clients.lines().count() == 1
            });
        };
        subscribed();
        for _ in 0..3 {
            let before = PANICKED.load(Ordering::SeqCst);
            let mut ends = redis::Client::open(&*url).unwrap().get_connection().unwrap();
            redis::cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).exec(&mut ends).unwrap();
            wait_until("the subscriber logs", || PANICKED.load(Ordering::SeqCst) > before);
            subscribed();
        }
        guard.unlock().unwrap();
        waits.join().unwrap().unwrap();
    });
    for client in [client, other] {
        client.close(PROMPT).unwrap();
    }
    println!("@@all locks are free");
}
