//! Runs the test binary again as another process, with one ignored test as its program.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};

use super::{CAP, signal};

/// A process that says nothing for so long hangs. Eight of them share a busy machine with the other
/// tests.
const HANGS: Duration = CAP.saturating_mul(3);

pub struct Child {
    process: std::process::Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Child {
    /// Runs the ignored test `name` (with its module path) in a process of its own.
    pub fn spawn(name: &str, env: &[(&str, &str)]) -> Self {
        Self::run(Command::new(std::env::current_exe().unwrap()), name, env)
    }

    /// The same through another command, which gets the program and its arguments.
    pub fn spawn_by(command: &[&str], name: &str, env: &[(&str, &str)]) -> Self {
        let mut command_line = Command::new(command[0]);
        command_line.args(&command[1..]).arg(std::env::current_exe().unwrap());
        Self::run(command_line, name, env)
    }

    fn run(mut command: Command, name: &str, env: &[(&str, &str)]) -> Self {
        let mut process = command
            .args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = unbounded();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let stdin = process.stdin.take().unwrap();
        Self { process, stdin, lines, seen: Vec::new() }
    }

    /// Waits for a line that contains `@@text`; returns what follows it.
    #[track_caller]
    pub fn expect(&mut self, text: &str) -> String {
        let wanted = format!("@@{text}");
        loop {
            match self.lines.recv_timeout(HANGS) {
                Ok(line) => {
                    // libtest's output may come before the child's on the same line.
                    if let Some((_, rest)) = line.split_once(&wanted) {
                        return rest.trim().to_owned();
                    }
                    self.seen.push(line);
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("no {wanted:?} from the child; its output: {:?}", self.seen)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("the child ended; its output: {:?}", self.seen)
                }
            }
        }
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
        self.stdin.flush().unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn signal(&self, name: &str) {
        signal(self.process.id(), name);
    }

    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    #[track_caller]
    pub fn wait(mut self) {
        let status = self.process.wait().unwrap();
        assert!(
            status.success(),
            "the child failed; its output: {:?}",
            self.lines.try_iter().collect::<Vec<_>>()
        );
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs threads that repeat `once` forever, as the program of another test. After the first 2 000
/// successes the program prints `word`, which [`Child::expect`] awaits.
pub fn run_for_ever(threads: usize, word: &str, once: impl Fn() -> bool + Sync) {
    let successes = AtomicU32::new(0);
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                loop {
                    if once() && successes.fetch_add(1, Ordering::SeqCst) == 2_000 {
                        println!("@@{word}");
                    }
                }
            });
        }
    });
}
