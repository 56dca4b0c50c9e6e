//! The test binary run again as another process, with one ignored test as its program.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{became_true, signal};

/// How long a child may take; it has to start, and all the other tests run at the same time.
const CHILD_CAP: Duration = Duration::from_secs(20);

/// Stands before what the program says, as libtest prints on the same line: `test a ... @@held`.
const MARK: &str = "@@";

/// Says something to the test that started this process.
pub(crate) fn tell(text: &str) {
    println!("{MARK}{text}");
}

/// The next line from the test that started this process; `None` when it is gone.
pub(crate) fn hear() -> Option<String> {
    let mut line = String::new();
    let length = std::io::stdin().lock().read_line(&mut line).ok()?;
    (length > 0).then(|| line.trim_end().to_owned())
}

#[derive(Debug, Default)]
struct Transcript {
    lines: Vec<String>,
    open_pipes: usize,
}

#[derive(Debug, Default)]
struct Shared {
    transcript: Mutex<Transcript>,
    grown: Condvar,
}

/// A child process, killed on drop.
#[derive(Debug)]
pub(crate) struct Child {
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    shared: Arc<Shared>,
    /// The lines up to here have been expected, so that the same text may be expected twice.
    read: usize,
}

impl Child {
    /// Runs the ignored test `test_name` (with its modules: `processes::holder`) in a process of its own.
    #[track_caller]
    pub(crate) fn spawn(test_name: &str, env: &[(&str, &str)]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([test_name, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let shared = Arc::new(Shared::default());
        shared.transcript.lock().open_pipes = 2;
        listen(process.stdout.take().unwrap(), "", &shared);
        listen(process.stderr.take().unwrap(), "stderr: ", &shared);
        let stdin = process.stdin.take();
        Self { process, stdin, shared, read: 0 }
    }

    /// Waits until the program says a line with this text; returns what stands behind the text.
    #[track_caller]
    pub(crate) fn expect_line(&mut self, text: &str) -> String {
        let text = text.trim_start_matches(MARK);
        let deadline = Instant::now() + CHILD_CAP;
        let mut transcript = self.shared.transcript.lock();
        loop {
            while let Some(line) = transcript.lines.get(self.read) {
                self.read += 1;
                let said = line.split_once(MARK).and_then(|(_, said)| said.split_once(text));
                if let Some((_, rest)) = said {
                    return rest.trim().to_owned();
                }
            }
            let ended = transcript.open_pipes == 0;
            if ended || self.shared.grown.wait_until(&mut transcript, deadline).timed_out() {
                let how = if ended { "ended without" } else { "did not come to" };
                panic!("the child {how} {MARK}{text}; it printed:\n{}", transcript.lines.join("\n"));
            }
        }
    }

    /// Everything it has printed so far.
    pub(crate) fn transcript(&self) -> String {
        self.shared.transcript.lock().lines.join("\n")
    }

    /// Sends a line, for [`hear`].
    #[track_caller]
    pub(crate) fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).unwrap();
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Freezes it; returns once it is frozen.
    pub(crate) fn sigstop(&self) {
        signal(self.pid(), "STOP");
    }

    /// Ends [`Self::sigstop`].
    pub(crate) fn sigcont(&self) {
        signal(self.pid(), "CONT");
    }

    /// Kills it without any chance to clean up; returns once it is gone.
    pub(crate) fn sigkill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Waits for its end; its standard input ends first.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.stdin = None;
        let mut status = None;
        became_true(CHILD_CAP, || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap_or_else(|| panic!("the child does not end; it printed:\n{}", self.transcript()))
    }

    /// Waits for its end and that its test passed.
    #[track_caller]
    pub(crate) fn wait_success(&mut self) {
        let status = self.wait();
        let drained = became_true(CHILD_CAP, || self.shared.transcript.lock().open_pipes == 0);
        let transcript = self.transcript();
        assert!(status.success() && drained, "the child ended with {status}; it printed:\n{transcript}");
        // A misspelt name runs no test at all, and succeeds.
        assert!(transcript.contains("1 passed"), "the child ran no test:\n{transcript}");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.sigkill();
    }
}

fn listen(pipe: impl Read + Send + 'static, prefix: &'static str, shared: &Arc<Shared>) {
    let shared = shared.clone();
    let collect = move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let line = format!("{prefix}{}", String::from_utf8_lossy(&line));
            shared.transcript.lock().lines.push(line);
            shared.grown.notify_all();
        }
        shared.transcript.lock().open_pipes -= 1;
        shared.grown.notify_all();
    };
    std::thread::Builder::new().name("test-child".to_owned()).spawn(collect).unwrap();
}
