//! What the crate logs, from the first call of [`record`] on.

use std::sync::Once;

use parking_lot::Mutex;

static LINES: Mutex<Vec<(log::Level, String)>> = Mutex::new(Vec::new());

struct Recorder;

impl log::Log for Recorder {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LINES.lock().push((record.level(), record.args().to_string()));
    }

    fn flush(&self) {}
}

/// Starts recording, for all tests of this process.
pub fn record_logs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Recorder).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
    });
}

/// All lines that contain this word.
pub fn logged_anywhere(word: &str) -> Vec<String> {
    LINES.lock().iter().filter(|line| line.1.contains(word)).map(|(_, line)| line.clone()).collect()
}

/// The lines of this level that contain all of these words. One of them should be the address of
/// the test's own server, because all tests share the recording.
pub fn logged(level: log::Level, words: &[&str]) -> Vec<String> {
    let lines = LINES.lock();
    let fits = |line: &&(log::Level, String)| {
        line.0 == level && words.iter().all(|word| line.1.contains(word))
    };
    lines.iter().filter(fits).map(|(_, line)| line.clone()).collect()
}
