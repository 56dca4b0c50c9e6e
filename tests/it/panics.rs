//! Foreign code panics in the middle of a release: the name stays usable.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use leasehold::LockClient;

use crate::rig::{Child, PROMPT, Server, wait_until};

/// A logger is the only foreign code that runs there. It belongs to the whole process, so this test
/// has its own process.
#[test]
fn a_logger_that_panics_in_a_release_keeps_no_lock() {
    let server = Server::start();
    let mut child = Child::spawn("panics::panicking_logger_process", &[("LEASEHOLD_TEST_URL", &server.url())]);
    child.expect("all locks are free");
    child.wait();
    server.assert_clean();
}

thread_local! {
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

#[test]
#[ignore = "a program for other tests"]
fn panicking_logger_process() {
    struct Panics;
    impl log::Log for Panics {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }
        fn log(&self, record: &log::Record<'_>) {
            assert!(!PANICS.get(), "on purpose: {}", record.args());
        }
        fn flush(&self) {}
    }
    log::set_logger(&Panics).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !PANICS.get() {
            usual(panic);
        }
    }));
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let client = LockClient::open(&url).unwrap();
    // The client's connections are ended, so the release reconnects, and logs that.
    let mut admin = redis::Client::open(url).unwrap().get_connection().unwrap();
    let kill = || redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").clone();
    let mut panics = |release: &dyn Fn()| {
        kill().query::<u32>(&mut admin).unwrap();
        PANICS.set(true);
        let panicked = catch_unwind(AssertUnwindSafe(release)).is_err();
        PANICS.set(false);
        assert!(panicked, "nothing was logged");
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
        let waits = s.spawn(|| lock.try_lock_for(PROMPT).unwrap().expect("it waits").unlock().unwrap());
        wait_until("it waits", || client.snapshot().waits().len() == 1);
        panics(&|| drop(guard.take().unwrap().unlock()));
        waits.join().unwrap();
    });
    client.close(PROMPT).unwrap();
    println!("@@all locks are free");
}
