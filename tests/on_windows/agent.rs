//! The program in `tests/windows` as an agent: a client whose threads do what they are told.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::program::{Program, program};

pub(crate) struct Agent {
    process: Program,
    /// Answers of other threads than the one that was asked for.
    early: HashMap<String, Vec<String>>,
    pub(crate) pid: String,
    pub(crate) host: String,
}

impl Agent {
    #[track_caller]
    pub(crate) fn start(url: &str, lease: Duration) -> Self {
        Self::start_with(url, lease, None)
    }

    /// `authority`: the file with the certificate of the server's authority.
    #[track_caller]
    pub(crate) fn start_with(url: &str, lease: Duration, authority: Option<&Path>) -> Self {
        let mut command = program();
        command.args(["agent", url, &lease.as_millis().to_string()]).args(authority);
        let process = Program::start(command);
        let ready = process.line();
        let words: Vec<&str> = ready.split(' ').collect();
        let ["main", "ready", pid, host] = words[..] else { panic!("{ready:?}") };
        let (pid, host) = (pid.to_owned(), host.to_owned());
        Self { process, early: HashMap::new(), pid, host }
    }

    /// Gives one of its threads an instruction.
    pub(crate) fn tell(&mut self, thread: &str, instruction: &str) {
        writeln!(self.process.input(), "{thread} {instruction}").unwrap();
    }

    /// Waits for the next answer of one of its threads.
    #[track_caller]
    pub(crate) fn answer(&mut self, thread: &str) -> String {
        if let Some(answers) = self.early.get_mut(thread).filter(|answers| !answers.is_empty()) {
            return answers.remove(0);
        }
        loop {
            let line = self.process.line();
            let (from, answer) = line.split_once(' ').unwrap_or_else(|| panic!("{line:?}"));
            if from == thread {
                return answer.to_owned();
            }
            self.early.entry(from.to_owned()).or_default().push(answer.to_owned());
        }
    }

    /// Tells one of its threads to do something, and waits until that is done.
    #[track_caller]
    pub(crate) fn ask(&mut self, thread: &str, instruction: &str) -> String {
        self.tell(thread, instruction);
        self.answer(thread)
    }

    /// How often its threads have gone to sleep so far.
    pub(crate) fn sleeps(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.pid())).unwrap();
        let sleeps_of = |task: std::io::Result<std::fs::DirEntry>| {
            let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
            let count =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            count.trim().parse::<u64>().ok()
        };
        tasks.filter_map(sleeps_of).sum()
    }

    /// Closes its client, and waits until the process has ended.
    #[track_caller]
    pub(crate) fn close(mut self) {
        self.process.close_input();
        assert_eq!(self.answer("main"), "closed");
        let end = self.process.end();
        assert_eq!((end.status, &*end.err), (0, ""), "{}", end.out);
    }
}
