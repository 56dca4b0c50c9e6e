//! At a terminal, created by `script` of util-linux.

#![cfg(target_os = "linux")]

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};

use crossbeam_channel::Receiver;

use crate::program::{Gate, is_stopped, path};
use crate::rig::{CAP, PROMPT, Server, cannot_run, ms, signal, wait_until};
use crate::signals::flags_of_a_container;
use crate::support::Clients;

/// A session at a terminal of its own.
pub(crate) struct Session {
    process: Child,
    keys: ChildStdin,
    shown: Receiver<String>,
    seen: String,
}

impl Session {
    /// Runs a line in a shell; `$LEASEHOLD` is the command.
    fn start(server: &Server, shell: &str, line: &str) -> Self {
        Self::start_at(&server.url(), shell, line)
    }

    pub(crate) fn start_at(url: &str, shell: &str, line: &str) -> Self {
        let mut command = Command::new("script");
        command
            .args(["-qefc", &format!("exec {shell} \"$LINE\""), "/dev/null"])
            .env("LINE", line)
            .env("SHELL", "/bin/sh");
        command.env("LEASEHOLD", path()).env("LEASEHOLD_URL", url);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("util-linux is installed");
        let (keys, mut out) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (sender, shown) = crossbeam_channel::unbounded();
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = std::io::Read::read(&mut out, &mut some) {
                let _ = sender.send(String::from_utf8_lossy(&some[..count]).into_owned());
            }
        });
        Self { process, keys, shown, seen: String::new() }
    }

    /// Returns what was shown before this text.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) -> String {
        while !self.seen.contains(text) {
            match self.shown.recv_timeout(CAP) {
                Ok(more) => self.seen += &more,
                Err(e) => panic!("no {text:?} ({e}): {:?}", self.seen),
            }
        }
        let (before, after) = self.seen.split_once(text).unwrap();
        let (before, after) = (before.to_owned(), after.to_owned());
        self.seen = after;
        before
    }

    /// Everything that was shown since the last call of `expect`; it is not consumed.
    pub(crate) fn so_far(&mut self) -> &str {
        self.seen.extend(self.shown.try_iter());
        &self.seen
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// The status, and what was shown since the last call of `expect`.
    #[track_caller]
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        wait_until("the session has ended", || self.process.try_wait().unwrap().is_some());
        while let Ok(more) = self.shown.recv_timeout(PROMPT) {
            self.seen += &more;
        }
        (self.process.wait().unwrap().code(), std::mem::take(&mut self.seen))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const IDLE: &str = "while :; do sleep 0.02; done";

const READ: &str = r#"$LEASEHOLD run job -- sh -c 'echo ready; read line; echo "it read $line"'"#;

/// The same, for Ctrl-Z once it has read a line: earlier it may be stopped because it reads a
/// terminal that it has not been lent yet, and a Ctrl-Z at that moment is undone when it is
/// continued.
const READ_TWICE: &str =
    r#"$LEASEHOLD run job -- sh -c 'read line; echo ready; read line; echo "it read $line"'"#;

#[test]
fn the_command_can_read_the_terminal() {
    let server = Server::start();
    for line in [READ.to_owned(), format!("{READ}; echo status $?"), format!("exec {READ}")] {
        let mut session = Session::start(&server, "sh -c", &line);
        session.expect("ready");
        session.press("a word\n");
        session.expect("it read a word");
        assert_eq!(session.end().0, Some(0));
        server.assert_clean();
    }
}

/// The script around it gets the signal too, as it does without a run.
///
/// The command waits in short sleeps: a `dash` that gets SIGINT after its `echo` and before the
/// fork of a long `sleep`, which does not get it then, dies only when that has ended, also at a
/// terminal without a run.
#[test]
fn an_interrupt_at_the_terminal_ends_the_command_and_its_script() {
    let server = Server::start();
    for shell in ["sh -c", "bash -c"] {
        let line = format!("$LEASEHOLD run job -- sh -c 'echo ready; {IDLE}'; echo the next line");
        let mut session = Session::start(&server, shell, &line);
        session.expect("ready");
        session.press("\u{3}");
        let (status, shown) = session.end();
        assert!(!shown.contains("the next line"), "{shell}: {shown:?}");
        assert_eq!(status, Some(130), "{shell}: {shown:?}");
        server.assert_clean();
    }
}

/// As `flock` does, which handles no signal.
#[test]
fn an_interrupt_at_the_terminal_ends_the_wait_and_its_script() {
    let server = Server::start();
    let held = server.client().mutex("job").lock_owned().unwrap();
    for shell in ["sh -c", "bash -c"] {
        for (kind, waits) in [("run", "waiting for "), ("lead", "")] {
            let line = format!("$LEASEHOLD {kind} job -- true; echo the next line");
            let mut session = Session::start(&server, shell, &line);
            session.expect(waits);
            wait_until("it waits", || !server.channels().is_empty());
            session.press("\u{3}");
            let (status, shown) = session.end();
            assert!(shown.contains("ended by signal 2"), "{shell} {kind}: {shown:?}");
            assert!(!shown.contains("the next line"), "{shell} {kind}: {shown:?}");
            assert_eq!(status, Some(130), "{shell} {kind}: {shown:?}");
            wait_until("no subscription is left", || server.channels().is_empty());
        }
    }
    held.unlock().unwrap();
    server.assert_clean();
}

/// No signal ends the first process of a container by its default effect.
#[test]
fn an_interrupt_at_the_terminal_of_a_container_has_its_status() {
    let server = Server::start();
    let Some(flags) = flags_of_a_container() else {
        return cannot_run("this user may not make a namespace of processes");
    };
    // A session of its own, as Docker makes it.
    let line =
        format!("exec unshare {flags} setsid -c $LEASEHOLD run job -- sh -c 'echo ready; {IDLE}'");
    let mut session = Session::start(&server, "sh -c", &line);
    session.expect("ready");
    session.press("\u{3}");
    let (status, shown) = session.end();
    assert_eq!(status, Some(130), "{shown:?}");
    server.assert_clean();
}

#[test]
fn a_command_is_stopped_at_the_terminal_and_continued() {
    let server = Server::start();
    let line = format!("{READ_TWICE}; echo the shell has it; sleep 0.3; fg; echo status $?");
    let mut session = Session::start(&server, "bash -mc", &line);
    session.press("\n");
    session.expect("ready");
    session.press("\u{1a}");
    let mut shown = session.expect("the shell has it");
    std::thread::sleep(ms(500));
    session.press("a word\n");
    shown += &session.expect("it read a word");
    session.expect("status 0");
    session.end();
    assert_eq!(
        shown.matches("stopped, and not renewed meanwhile: its lease ends in ").count(),
        1,
        "{shown:?}"
    );
    server.assert_clean();
}

#[test]
fn a_lease_that_ends_while_it_is_stopped_ends_the_command() {
    let server = Server::start();
    let line =
        READ_TWICE.replace("run job", "run job --lease 2s") + "; sleep 4; fg; echo status $?";
    let mut session = Session::start(&server, "bash -mc", &line);
    session.press("\n");
    session.expect("ready");
    session.press("\u{1a}");
    session.expect("not renewed meanwhile");
    session.expect("the lock is lost, so the command is ended");
    session.expect("status 70");
    session.end();
    server.assert_clean();
}

/// Nobody could continue it: it is the first process of its session.
#[test]
fn without_a_shell_above_a_stop_does_nothing() {
    let server = Server::start();
    let mut session = Session::start(&server, "sh -c", &format!("exec {READ_TWICE}"));
    session.press("\n");
    session.expect("ready");
    session.press("\u{1a}");
    std::thread::sleep(ms(300));
    session.press("a word\n");
    session.expect("it read a word");
    assert_eq!(session.end().0, Some(0));
}

/// The signal is sent to the run alone, while the terminal is lent.
#[test]
fn an_interrupt_from_elsewhere_ends_the_command_and_not_its_script() {
    let server = Server::start();
    for shell in ["sh -c", "bash -c"] {
        let script = format!("read line; echo run $PPID ready; {IDLE}");
        let line = format!("$LEASEHOLD run job -- sh -c '{script}'; echo next line after $?");
        let mut session = Session::start(&server, shell, &line);
        session.press("\n");
        session.expect("run ");
        let run = session.expect(" ready").parse().unwrap();
        signal(run, "INT");
        session.expect("next line after 130");
        session.end();
        server.assert_clean();
    }
}

/// Reads the terminal, whatever its stdin is, like a pager.
const PAGER: &str = r#"sh -c 'read line </dev/tty; echo "the pager read $line"; cat'"#;

/// The same after the command has written a line.
const LATER_PAGER: &str =
    r#"sh -c 'read first; read line </dev/tty; echo "the pager read $line"; cat'"#;

/// A pager in the group of the run would be stopped, and the run with it, if the terminal were lent
/// to the command.
#[test]
fn a_pager_beside_it_can_read_the_terminal_and_the_lock_is_renewed() {
    let server = Server::start();
    let gate = Gate::in_dir(server.dir());
    let script = gate.script() + "; echo the last line";
    let line = format!(
        "$LEASEHOLD run job --lease 5s -- sh -c '{script}' | {PAGER}; echo status $PIPESTATUS"
    );
    let mut session = Session::start(&server, "bash -mc", &line);
    let client = server.client();
    wait_until("it is running", || client.mutex("job").is_locked().unwrap());
    assert!(client.mutex("job").try_lock_for(ms(8000)).unwrap().is_none(), "it is renewed");
    session.press("a word\n");
    session.expect("the pager read a word");
    gate.open();
    let shown = session.expect("status 0");
    assert!(shown.contains("the last line"), "{shown:?}");
    session.end();
    drop(client);
    server.assert_clean();
}

/// It may ask for a password. Ctrl-C then ends the script, whoever has the terminal at that time.
#[test]
fn a_command_whose_output_goes_elsewhere_can_read_the_terminal() {
    let server = Server::start();
    let read = r#"$LEASEHOLD run job -- sh -c 'echo ready >&2; read line; echo "it read $line" >&2; NEXT'"#;
    for shell in ["sh -c", "bash -c", "bash -mc"] {
        for to in ["| cat", "> /dev/null"] {
            let line = format!("{} {to}; echo status $?", read.replace("NEXT", ":"));
            let mut session = Session::start(&server, shell, &line);
            session.expect("ready");
            session.press("a word\n");
            session.expect("it read a word");
            session.expect("status 0");
            session.end();
            server.assert_clean();
        }
    }
    for line in [read.to_owned(), read.replace("read line;", "")] {
        for to in ["| cat", "> /dev/null"] {
            let mut session = Session::start(
                &server,
                "bash -c",
                &format!("{} {to}; echo the next line", line.replace("NEXT", IDLE)),
            );
            session.press("a word\n");
            session.expect("it read ");
            session.press("\u{3}");
            let (status, shown) = session.end();
            assert!(!shown.contains("the next line"), "{line} {to}: {shown:?}");
            assert_eq!(status, Some(130), "{line} {to}: {shown:?}");
            server.assert_clean();
        }
    }
}

/// The command has it first; then the kernel stops the pager, and signals the run.
#[test]
fn a_pager_gets_the_terminal_back_that_the_command_asked_for() {
    let server = Server::start();
    let gate = Gate::in_dir(server.dir());
    let script = format!(
        "read line; echo \"it read $line\" >&2; echo; {}; echo the last line",
        gate.script()
    );
    let line = format!(
        "$LEASEHOLD run job --lease 5s -- sh -c '{script}' | {LATER_PAGER}; echo status $PIPESTATUS"
    );
    let mut session = Session::start(&server, "bash -mc", &line);
    session.press("one\n");
    session.expect("it read one");
    let client = server.client();
    assert!(client.mutex("job").try_lock_for(ms(8000)).unwrap().is_none(), "it is renewed");
    session.press("two\n");
    session.expect("the pager read two");
    gate.open();
    let shown = session.expect("status 0");
    assert!(shown.contains("the last line"), "{shown:?}");
    session.end();
    drop(client);
    server.assert_clean();
}

/// In the background the pager is stopped, and the command and its run with it.
#[test]
fn a_pipeline_is_stopped_as_a_whole_and_continued() {
    let server = Server::start();
    let gate = Gate::in_dir(server.dir());
    let script =
        format!("echo command $$ of $PPID. >&2; echo; {}; echo the last line", gate.script());
    let run = format!("$LEASEHOLD run job -- sh -c '{script}'");
    let wait = "while [ $(jobs -s | wc -l) = 0 ]; do sleep 0.02; done";
    for (line, keys) in [
        (
            format!(
                "{run} | {LATER_PAGER} & {wait}; echo the shell has it; fg; echo status $PIPESTATUS"
            ),
            "",
        ),
        (
            format!(
                "{run} | {LATER_PAGER}; echo the shell has it; sleep 0.3; fg; echo status $PIPESTATUS"
            ),
            "\u{1a}",
        ),
    ] {
        let mut session = Session::start(&server, "bash -mc", &line);
        session.expect("command ");
        let command: u32 = session.expect(" of ").parse().unwrap();
        let run: u32 = session.expect(".").parse().unwrap();
        session.press(keys);
        let shown = session.expect("the shell has it");
        assert_eq!(shown.matches("not renewed meanwhile").count(), 1, "{line}: {shown:?}");
        wait_until("both continue", || !is_stopped(command) && !is_stopped(run));
        session.press("a word\n");
        session.expect("the pager read a word");
        gate.open();
        let shown = session.expect("status 0");
        assert!(shown.contains("the last line"), "{shown:?}");
        session.end();
        server.assert_clean();
        Gate::in_dir(server.dir());
    }
}
