//! The command as a process, and its output.

use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};

use crossbeam_channel::{Receiver, bounded, unbounded};
use rustix::io::ioctl_fionbio;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT};

use crate::rig::{CAP, Server, signal, wait_until};

/// The command, with the server in its environment.
pub(crate) fn leasehold(server: &Server, arguments: &[&str]) -> Command {
    leasehold_at(&server.url(), arguments)
}

pub(crate) fn leasehold_at(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(path());
    command
        .args(arguments)
        .env("LEASEHOLD_URL", url)
        .env_remove("LEASEHOLD_TOKEN")
        .stdin(Stdio::null());
    command
}

/// The path of the command. It would rightly ignore signals that are ignored here, like those of a
/// shell's background job: a handler here restores the default there.
pub(crate) fn path() -> &'static str {
    static HANDLED: Once = Once::new();
    HANDLED.call_once(|| {
        for signal in [SIGINT, SIGQUIT, SIGHUP] {
            // Here it ends the tests, as the default would.
            let always = Arc::new(AtomicBool::new(true));
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, always).unwrap();
        }
    });
    env!("CARGO_BIN_EXE_leasehold")
}

pub(crate) struct Program {
    process: Child,
    out: Receiver<String>,
    err: Receiver<String>,
}

pub(crate) struct End {
    /// `None` if a signal ended the process itself.
    pub(crate) status: Option<i32>,
    pub(crate) by_signal: Option<i32>,
    /// The lines that no test has expected.
    pub(crate) out: Vec<String>,
    pub(crate) err: Vec<String>,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) =
            (lines(process.stdout.take().unwrap()), lines(process.stderr.take().unwrap()));
        Self { process, out, err }
    }

    /// Its stderr is a pipe that is full, and that nobody reads for as long as the reader lives.
    pub(crate) fn start_unread(mut command: Command) -> (Self, PipeReader) {
        let (reader, mut writer) = std::io::pipe().unwrap();
        ioctl_fionbio(&writer, true).unwrap();
        while writer.write(&[b'x'; 4096]).is_ok() {}
        ioctl_fionbio(&writer, false).unwrap();
        let mut process = command.stdout(Stdio::piped()).stderr(writer).spawn().unwrap();
        let out = lines(process.stdout.take().unwrap());
        (Self { process, out, err: bounded(0).1 }, reader)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits for the next line on stdout, which must begin like this; returns the rest of it.
    #[track_caller]
    pub(crate) fn expect(&self, begin: &str) -> String {
        match self.out.recv_timeout(CAP) {
            Ok(line) => line
                .strip_prefix(begin)
                .unwrap_or_else(|| panic!("{line:?}, not {begin:?}"))
                .trim()
                .to_owned(),
            Err(e) => panic!(
                "no {begin:?} ({e}); on stderr {:?}",
                self.err.try_iter().collect::<Vec<_>>()
            ),
        }
    }

    /// The same for a part of leasehold's next line on stderr, where shells also report killed
    /// commands.
    #[track_caller]
    pub(crate) fn expect_said(&self, part: &str) {
        let own = std::iter::from_fn(|| self.err.recv_timeout(CAP).ok()).find(|line| is_own(line));
        assert!(own.as_ref().is_some_and(|line| line.contains(part)), "{own:?}, not {part:?}");
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    #[track_caller]
    pub(crate) fn end(mut self) -> End {
        wait_until("the program has ended", || self.has_ended());
        let status = self.process.wait().unwrap();
        // Each ends with the last process that has it open.
        let rest = |lines: &Receiver<String>| {
            std::iter::from_fn(|| lines.recv_timeout(CAP).ok()).collect()
        };
        End {
            status: status.code(),
            by_signal: status.signal(),
            out: rest(&self.out),
            err: rest(&self.err),
        }
    }

    /// Asserts the status, and returns leasehold's messages.
    #[track_caller]
    pub(crate) fn ends_with(self, status: i32) -> String {
        let end = self.end();
        assert_eq!(end.status, Some(status), "{:?} {:?}", end.out, end.err);
        end.err.into_iter().filter(|line| is_own(line)).collect::<Vec<_>>().join("\n")
    }
}

fn is_own(line: &str) -> bool {
    line.starts_with("leasehold: ")
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = unbounded();
    let mut from = BufReader::new(from).lines().map_while(Result::ok);
    std::thread::spawn(move || from.try_for_each(|line| sender.send(line)));
    lines
}

/// Runs it to its end; returns its status and its output.
#[track_caller]
pub(crate) fn run(command: Command) -> (Option<i32>, String, String) {
    let end = Program::start(command).end();
    (end.status, end.out.join("\n"), end.err.join("\n"))
}

/// Whether the process is alive; one that has ended and was not waited for is not.
pub(crate) fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// The processes that this one has started or inherited (Linux).
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let parent = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    processes.filter(|one| parent(one) == Some(pid)).collect()
}

/// The name and the arguments of a process (Linux).
pub(crate) fn words_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
}

/// Whether the process is stopped (Linux). A shell whose child was stopped between `vfork` and
/// `exec` waits for that in the state D without being stopped itself.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let is = |stat: String| stat.contains(") T ") || stat.contains(") D ");
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(is)
}

/// A command that runs until the test lets it end, by removing a file.
pub(crate) struct Gate(PathBuf);

impl Gate {
    pub(crate) fn in_dir(dir: &Path) -> Self {
        let path = dir.join("gate");
        std::fs::write(&path, "").unwrap();
        Self(path)
    }

    pub(crate) fn script(&self) -> String {
        format!("echo ready; while [ -e {} ]; do sleep 0.02; done", self.0.display())
    }

    pub(crate) fn open(&self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}
