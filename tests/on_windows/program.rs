//! A process that Wine runs, and its output.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use crossbeam_channel::{Receiver, unbounded};

use crate::rig::{CAP, signal, wait_until};

/// A program that `tests/windows/run.sh` has built.
#[track_caller]
fn built(name: &str) -> PathBuf {
    let folder = std::env::var_os("LEASEHOLD_WINDOWS").map(PathBuf::from);
    let path = folder.map(|folder| folder.join(name)).filter(|path| path.exists());
    path.unwrap_or_else(|| {
        panic!("{name} is not built: run `sh tests/windows/run.sh` instead, which does")
    })
}

/// The command; its arguments follow.
pub(crate) fn leasehold() -> Command {
    under_wine(built("leasehold.exe").into())
}

/// The program in `tests/windows`; its arguments follow.
pub(crate) fn program() -> Command {
    under_wine(path_of_program())
}

/// As an argument for the command.
pub(crate) fn path_of_program() -> OsString {
    built("leasehold-windows.exe").into()
}

fn under_wine(path: OsString) -> Command {
    let mut command = Command::new("wine");
    // It would write about windows that it cannot open.
    command
        .arg(path)
        .env("WINEDEBUG", "-all")
        .env_remove("LEASEHOLD_TOKEN")
        .env_remove("LEASEHOLD_URL");
    command
}

pub(crate) struct Program {
    process: Child,
    input: Option<ChildStdin>,
    out: Receiver<String>,
    err: Receiver<String>,
}

pub(crate) struct End {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Program {
    #[track_caller]
    pub(crate) fn start(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("wine starts: apt-get install wine64 wine");
        let (out, err) =
            (lines(process.stdout.take().unwrap()), lines(process.stderr.take().unwrap()));
        Self { input: process.stdin.take(), process, out, err }
    }

    /// The id on Linux, also of the process that Wine makes of this one.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn input(&mut self) -> &mut ChildStdin {
        self.input.as_mut().expect("it is open")
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// The next line of its output.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        let line = self.out.recv_timeout(CAP);
        line.unwrap_or_else(|e| {
            panic!("no line ({e}); on stderr {:?}", self.err.try_iter().collect::<Vec<_>>())
        })
    }

    /// Waits for a line on stderr with this part.
    #[track_caller]
    pub(crate) fn expect_said(&self, part: &str) {
        let said =
            std::iter::from_fn(|| self.err.recv_timeout(CAP).ok()).any(|line| line.contains(part));
        assert!(said, "it did not say {part:?}");
    }

    /// What the console sends to a program, and Wine for this signal.
    pub(crate) fn press_ctrl_c(&self) {
        signal(self.pid(), "INT");
    }

    #[track_caller]
    pub(crate) fn end(mut self) -> End {
        self.close_input();
        wait_until("the program has ended", || self.process.try_wait().unwrap().is_some());
        let status = self.process.wait().unwrap().code().expect("no signal has ended it");
        let rest = |lines: &Receiver<String>| {
            std::iter::from_fn(|| lines.recv_timeout(CAP).ok()).collect::<Vec<_>>().join("\n")
        };
        End { status, out: rest(&self.out), err: rest(&self.err) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = unbounded();
    // A program of Windows ends its lines with a carriage return as well.
    let mut from =
        BufReader::new(from).lines().map_while(Result::ok).map(|line| line.trim_end().to_owned());
    std::thread::spawn(move || from.try_for_each(|line| sender.send(line)));
    lines
}

/// Runs it to its end.
#[track_caller]
pub(crate) fn run(command: Command) -> End {
    Program::start(command).end()
}

/// A word for the arguments of a test's processes, which no other run of the tests has.
pub(crate) fn marked(word: &str) -> String {
    format!("{word}-{}", std::process::id())
}

/// The processes of this machine that have this word among their arguments.
pub(crate) fn processes_with(word: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has = |pid: &u32| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    };
    processes.filter(has).collect()
}
