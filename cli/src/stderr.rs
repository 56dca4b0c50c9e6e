//! How lines get to stderr: at once, or, in a run, by a thread of its own. A write to stderr blocks
//! while nobody reads it (a full pipe, a terminal after Ctrl-S), and a run must not wait for that
//! while it has a command to end.

use std::io::Write;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};

/// How long the end of a program waits for a reader of stderr.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// More lines than that are dropped, if nobody reads them.
const MOST_UNWRITTEN: usize = 1000;

enum Job {
    Write(String),
    /// The sender is dropped when everything before it is written.
    Tell(#[expect(dead_code, reason = "only its drop counts")] Sender<()>),
}

static THREAD: OnceLock<Sender<Job>> = OnceLock::new();

/// From now on no message blocks the thread that has it written.
pub(crate) fn write_on_a_thread() -> std::io::Result<()> {
    let (sender, jobs) = bounded(MOST_UNWRITTEN);
    let write_all = move || {
        for job in jobs {
            if let Job::Write(line) = job {
                write_now(&line);
            }
        }
    };
    std::thread::Builder::new().name("lh-stderr".into()).spawn(write_all)?;
    // A second thread, if there ever was one, would end at once: its sender is dropped here.
    let _ = THREAD.set(sender);
    Ok(())
}

pub(crate) fn write(line: String) {
    match THREAD.get() {
        Some(thread) => drop(thread.try_send(Job::Write(line))),
        None => write_now(&line),
    }
}

/// Unlike `eprintln`, this does not panic if stderr is closed.
fn write_now(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Waits until all lines so far are written, but not for longer than this.
pub(crate) fn wait_until_written(longest: Duration) {
    let Some(thread) = THREAD.get() else { return };
    let deadline = Instant::now() + longest;
    let (sender, written) = bounded(0);
    if thread.send_deadline(Job::Tell(sender), deadline).is_ok() {
        let _ = written.recv_deadline(deadline);
    }
}
