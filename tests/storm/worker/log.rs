//! The log of a worker, in a file next to its journal, with the journal's clock.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::event::now;

struct ToFile(File);

impl log::Log for ToFile {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("-");
        let line = format!("{} {} {name}: {}\n", now(), record.level(), record.args());
        let _ = (&self.0).write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

/// At the level in `STORM_LOG`, otherwise only what may need attention.
pub(super) fn to_file(path: &Path) {
    let level = std::env::var("STORM_LOG")
        .ok()
        .and_then(|level| level.parse().ok())
        .unwrap_or(log::LevelFilter::Info);
    let logger = Box::leak(Box::new(ToFile(File::create(path).unwrap())));
    if log::set_logger(logger).is_ok() {
        log::set_max_level(level);
    }
}
