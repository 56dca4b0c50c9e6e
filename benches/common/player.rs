//! Other processes: this program, started again with a role.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) fn wall_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_nanos() as u64
}

/// A process with a role. It is killed on drop, and also ends when its input does.
pub(crate) struct Player {
    pub(crate) child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Player {
    pub(crate) fn start(role: &[&str]) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("our own path"))
            .arg("--role")
            .args(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let (input, output) =
            (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, input, output: BufReader::new(output) }
    }

    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("a process that listens");
    }

    pub(crate) fn receive(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        assert!(line.ends_with('\n'), "a process of the benchmark ended early");
        line.trim_end().to_owned()
    }

    /// The time from `sent` until the moment that the process reports next.
    pub(crate) fn since(&mut self, sent: u64) -> Duration {
        Duration::from_nanos(self.receive().parse::<u64>().expect("a moment").saturating_sub(sent))
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn report(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("a parent that listens");
}

pub(crate) fn lines() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map_while(Result::ok)
}
