//! Keeps the log records of this process, for tests of what is logged and what must never be.

use std::thread;

use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;

/// A record that was logged.
#[derive(Debug, Clone)]
pub(crate) struct Logged {
    pub(crate) level: Level,
    pub(crate) target: String,
    pub(crate) message: String,
    /// The name of the thread; a test's own thread is named like the test.
    pub(crate) thread: String,
}

static RECORDS: Mutex<Vec<Logged>> = Mutex::new(Vec::new());

struct Collector;

impl Log for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        // Formatted before the lock is taken: a value's own code may log too.
        let logged = Logged {
            level: record.level(),
            target: record.target().to_owned(),
            message: record.args().to_string(),
            thread: thread::current().name().unwrap_or_default().to_owned(),
        };
        RECORDS.lock().push(logged);
    }

    fn flush(&self) {}
}

/// A place in the log of this process; the first call starts to collect. All tests of the process share the log.
pub(crate) fn mark() -> usize {
    let _ = log::set_logger(&Collector);
    // Also when another thread was first: it may not have come to its own call yet.
    log::set_max_level(LevelFilter::Trace);
    RECORDS.lock().len()
}

/// What has been logged since.
pub(crate) fn logged_since(mark: usize) -> Vec<Logged> {
    RECORDS.lock()[mark..].to_vec()
}
