//! Signals, and killed processes.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::loss::STUBBORN;
use crate::program::{
    Gate, Program, children, is_stopped, leasehold, leasehold_at, lives, path, words_of,
};
use crate::rig::{CAP, PROMPT, Server, cannot_run, ms, signal, wait_until};
use crate::support::Clients;

/// All that end a program which does not handle them, and that it can handle.
const SIGNALS: [(&str, i32); 17] = [
    ("TERM", 15),
    ("INT", 2),
    ("HUP", 1),
    ("QUIT", 3),
    ("USR1", 10),
    ("USR2", 12),
    ("ABRT", 6),
    ("ALRM", 14),
    ("IO", 29),
    ("PROF", 27),
    ("PWR", 30),
    ("STKFLT", 16),
    ("SYS", 31),
    ("TRAP", 5),
    ("VTALRM", 26),
    ("XCPU", 24),
    ("XFSZ", 25),
];

/// The others: it cannot handle them, or only in a way that a fault of its own would make endless.
const ENDING_AT_ONCE: [(&str, i32); 6] =
    [("KILL", 9), ("SEGV", 11), ("BUS", 7), ("ILL", 4), ("FPE", 8), ("RTMIN", 34)];

/// A signal ends these short waits at once, unlike a long `sleep`.
const IDLE: &str = "while :; do sleep 0.02; done";

#[test]
fn signals_are_passed_on() {
    let server = Server::start();
    // These end nobody who does not handle them.
    for (name, number) in SIGNALS.into_iter().chain([("URG", 23), ("WINCH", 28)]) {
        let script = format!("trap 'echo got {name}; exit 3' {number}; echo ready; {IDLE}");
        let program =
            Program::start(leasehold(&server, &["run", "job", "--", "sh", "-c", &script]));
        program.expect("ready");
        program.signal(name);
        program.expect(&format!("got {name}"));
        assert_eq!(program.ends_with(3), "", "{name}");
        server.assert_clean();
    }
}

#[test]
fn a_command_that_a_signal_ends_has_its_status_and_its_group_ends_too() {
    let server = Server::start();
    for (name, number) in SIGNALS {
        // A shell's background jobs ignore SIGINT and SIGQUIT, a moment after they were started.
        let script = "ulimit -c 0; sleep 60 & echo $!; echo ready; while :; do sleep 0.02; done";
        let program = Program::start(leasehold(&server, &["run", "job", "--", "sh", "-c", script]));
        let grandchild: u32 = program.expect("").parse().unwrap();
        program.expect("ready");
        program.signal(name);
        if ["INT", "QUIT"].contains(&name) {
            wait_until("the command has ended", || server.lock_keys().is_empty());
            if lives(grandchild) {
                signal(grandchild, "TERM");
            }
        }
        assert_eq!(program.ends_with(128 + number), "", "{name}");
        wait_until("the grandchild has ended", || !lives(grandchild));
        server.assert_clean();
    }
}

#[test]
fn a_signal_ends_the_wait_and_leaves_nothing() {
    let server = Server::start();
    let client = server.client();
    let guards =
        (client.mutex("job").lock_owned().unwrap(), client.fair("queue").lock_owned().unwrap());
    for (name, number) in SIGNALS {
        let one = Program::start(leasehold(&server, &["run", "job", "--", "echo", "never"]));
        let two = Program::start(leasehold(
            &server,
            &["run", "queue", "--fair", "--wait", "1m", "--", "echo", "never"],
        ));
        let one_waits = || server.channels().iter().any(|channel| channel.contains("{job}"));
        wait_until("both wait", || one_waits() && client.fair("queue").queue_len().unwrap() == 1);
        let before = std::time::Instant::now();
        for program in [one, two] {
            program.signal(name);
            let end = program.end();
            assert_eq!(
                (end.status, &end.out[..]),
                (Some(128 + number), &[][..]),
                "{:?} {:?}",
                end.by_signal,
                end.err
            );
            assert!(
                end.err.len() == 1 && end.err[0].contains(&format!("ended by signal {number} ")),
                "{:?}",
                end.err
            );
        }
        assert!(before.elapsed() < PROMPT);
        assert_eq!(client.fair("queue").queue_len().unwrap(), 0);
        wait_until("no subscription is left", || server.channels().is_empty());
    }
    drop(guards);
    drop(client);
    server.assert_clean();
}

/// The server accepts connections, but never answers.
#[test]
fn a_signal_while_it_connects_is_what_ends_it() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", server.local_addr().unwrap());
    for (name, number) in [("TERM", 15), ("INT", 2)] {
        let program = Program::start(leasehold_at(&url, &["run", "job", "--", "echo", "never"]));
        let connection = server.accept().unwrap();
        program.signal(name);
        let said = program.ends_with(128 + number);
        assert!(
            said.contains(&format!("ended by signal {number} before the command was started")),
            "{said}"
        );
        drop(connection);
    }
}

/// The run does not depend on its parent: the command keeps its lock until it ends.
#[test]
fn a_killed_parent_shell_changes_nothing() {
    let server = Server::start();
    let gate = server.dir().join("gate");
    std::fs::write(&gate, "").unwrap();
    let script =
        format!("echo $PPID; echo ready; while [ -e {} ]; do sleep 0.02; done", gate.display());
    let mut shell = Command::new("sh");
    shell.args(["-c", r#""$0" run job --lease 4s -- sh -c "$1" & wait"#, path(), &script]);
    shell.env("LEASEHOLD_URL", server.url()).stdin(Stdio::null());
    let shell = Program::start(shell);
    let run: u32 = shell.expect("").parse().unwrap();
    shell.expect("ready");
    shell.signal("KILL");
    let client = server.client();
    assert!(client.mutex("job").try_lock_for(ms(5000)).unwrap().is_none(), "it is renewed");
    assert!(lives(run));
    std::fs::remove_file(&gate).unwrap();
    wait_until("the run has ended", || !lives(run));
    drop(client);
    server.assert_clean();
    assert_eq!(shell.end().status, None);
}

#[test]
fn a_killed_script_frees_its_lock_at_once() {
    let server = Server::start();
    let script = format!("echo $$; {IDLE}");
    let program = Program::start(leasehold(
        &server,
        &["run", "job", "--lease", "10m", "--", "sh", "-c", &script],
    ));
    signal(program.expect("").parse().unwrap(), "KILL");
    assert_eq!(program.ends_with(137), "");
    server.assert_clean();
}

/// What ends the run ends its command, and does so before anybody else can have the lock.
#[test]
fn a_command_does_not_outlive_its_run() {
    let server = Server::start();
    // It cleans up after SIGTERM.
    let script = format!("ulimit -c 0; trap 'echo cleaned up; exit 0' TERM; echo $$; {IDLE}");
    let start = |(name, number)| {
        let words = ["run", name, "--lease", "8s", "--", "sh", "-c", &script];
        let mut program = Program::start(leasehold(&server, &words));
        let command: u32 = program.expect("").parse().unwrap();
        // Rust's handler of SIGSEGV and SIGBUS expects that a fault which is none of its own is
        // raised again, and then it has its default effect.
        wait_until("the run is killed", || {
            program.signal(name);
            program.has_ended()
        });
        (name, number, command, program)
    };
    let killed = ENDING_AT_ONCE.map(start);
    let client = server.client();
    for (name, number, command, program) in killed {
        let guard = client.mutex(name).try_lock_for(CAP).unwrap();
        assert!(guard.is_some(), "{name}: its lease has ended");
        assert!(!lives(command), "{name}");
        program.expect("cleaned up");
        program.expect_said(&format!("{name}: this run was killed, so the command is ended"));
        assert_eq!(program.end().by_signal, Some(number), "{name}");
    }
    drop(client);
    server.assert_clean();
}

/// The processes of its group as well, and those that ignore SIGTERM: --kill-after is longer than
/// the lease.
#[test]
fn nobody_of_the_group_outlives_a_killed_run() {
    let server = Server::start();
    let script = format!("sh -c '{STUBBORN}' & {STUBBORN}");
    let words = ["run", "job", "--lease", "8s", "--kill-after", "1m", "--", "sh", "-c", &script];
    let program = Program::start(leasehold(&server, &words));
    let both: [u32; 2] = [program.expect("").parse().unwrap(), program.expect("").parse().unwrap()];
    program.signal("KILL");
    let client = server.client();
    let guard = client.mutex("job").try_lock_for(CAP).unwrap();
    assert!(guard.is_some() && both.iter().all(|pid| !lives(*pid)));
    drop((guard, client));
    server.assert_clean();
}

/// The process that would end the command is not found by the name of the program, and it neither
/// ends by a signal nor outlives a run that was not killed.
#[cfg(target_os = "linux")]
#[test]
fn what_ends_the_command_of_a_killed_run_is_out_of_the_way() {
    let server = Server::start();
    let gate = Gate::in_dir(server.dir());
    let start = || {
        let program =
            Program::start(leasehold(&server, &["run", "job", "--", "sh", "-c", &gate.script()]));
        program.expect("ready");
        let backstop =
            children(program.pid()).into_iter().find(|pid| words_of(*pid).contains("__backstop"));
        (program, backstop.unwrap())
    };
    let (program, backstop) = start();
    let name = std::fs::read_to_string(format!("/proc/{backstop}/comm")).unwrap();
    assert!(!name.contains("leasehold") && !words_of(backstop).contains("leasehold"), "{name}");
    for (name, _) in &SIGNALS {
        signal(backstop, name);
    }
    signal(backstop, "STOP");
    gate.open();
    assert_eq!(program.ends_with(0), "");
    assert!(!lives(backstop));
    // If it is killed, the run says so, and goes on.
    let gate = Gate::in_dir(server.dir());
    let (program, backstop) = start();
    signal(backstop, "KILL");
    program.expect_said("its command goes on without a lock");
    gate.open();
    assert_eq!(program.ends_with(0), "");
    server.assert_clean();
}

/// An orphan is inherited by the process that started it, if that is the first one of a container.
/// Here the run's program was another one before, which had started a process.
#[cfg(target_os = "linux")]
#[test]
fn a_run_waits_for_processes_that_it_has_inherited() {
    let server = Server::start();
    let mut shell = Command::new("sh");
    let script = r#"sleep 0.3 & exec "$0" run job -- sh -c "$1""#;
    let gate = Gate::in_dir(server.dir());
    shell
        .args(["-c", script, path(), &gate.script()])
        .env("LEASEHOLD_URL", server.url())
        .stdin(Stdio::null());
    let program = Program::start(shell);
    program.expect("ready");
    wait_until("the sleep has ended", || {
        !children(program.pid()).iter().any(|pid| words_of(*pid).contains("sleep 0.3"))
    });
    wait_until("nothing is left of it", || children(program.pid()).iter().all(|pid| lives(*pid)));
    gate.open();
    assert_eq!(program.ends_with(0), "");
    server.assert_clean();
}

/// Orphans end while it waits for the lock as well, for as long as that takes.
#[cfg(target_os = "linux")]
#[test]
fn a_run_that_waits_for_its_lock_takes_away_what_it_has_inherited() {
    let server = Server::start();
    let held = server.client().mutex("job").lock_owned().unwrap();
    for kind in ["run", "lead"] {
        let mut shell = Command::new("sh");
        let script = r#"sleep 0.5 & echo $!; exec "$0" "$1" job -- true"#;
        shell.args(["-c", script, path(), kind]).env("LEASEHOLD_URL", server.url());
        let program = Program::start(shell);
        let orphan: u32 = program.expect("").parse().unwrap();
        wait_until("it has ended", || !lives(orphan));
        wait_until("nothing is left of it", || !children(program.pid()).contains(&orphan));
        program.signal("TERM");
        program.ends_with(143);
    }
    held.unlock().unwrap();
    server.assert_clean();
}

/// Of `unshare`. The second one is for users other than root.
#[cfg(target_os = "linux")]
pub(crate) fn flags_of_a_container() -> Option<&'static str> {
    let works = |flags: &&str| {
        Command::new("unshare").args([flags, "true"]).status().is_ok_and(|end| end.success())
    };
    ["-pf", "-Urpf"].into_iter().find(works)
}

/// A lost lock does not wait for zombies of the group, which only this process can take away.
#[cfg(target_os = "linux")]
#[test]
fn as_the_first_process_of_a_container_it_leaves_no_zombies() {
    let server = Server::start();
    let Some(flags) = flags_of_a_container() else {
        return cannot_run("this user may not make a namespace of processes");
    };
    let mut container = Command::new("unshare");
    // Two orphans: one ends at once, and one is of the group when the lock is lost.
    let script = format!("(sh -c 'echo orphan' &); (sh -c '{IDLE}' &); echo ready; {IDLE}");
    container.args([flags, path(), "run", "job", "--lease", "3s", "--kill-after", "1m", "--"]);
    container.args(["sh", "-c", &script]).env("LEASEHOLD_URL", server.url()).stdin(Stdio::null());
    let program = Program::start(container);
    let said = [program.expect(""), program.expect("")];
    assert!(said.contains(&"orphan".to_owned()) && said.contains(&"ready".to_owned()), "{said:?}");
    let run = children(program.pid())[0];
    wait_until("the orphan is taken away", || {
        children(run).len() == 2 && children(run).iter().all(|pid| lives(*pid))
    });
    let before = std::time::Instant::now();
    assert!(server.client().mutex("job").force_unlock().unwrap());
    assert!(program.ends_with(70).contains("taken away"));
    assert!(before.elapsed() < ms(30_000), "it has not waited for --kill-after");
    server.assert_clean();
}

#[cfg(target_os = "linux")]
#[test]
fn what_was_ignored_from_the_start_stays_ignored() {
    let server = Server::start();
    let gate = server.dir().join("gate");
    std::fs::write(&gate, "").unwrap();
    let script = format!("echo ready; while [ -e {} ]; do sleep 0.02; done", gate.display());
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"trap '' HUP; exec "$0" run job -- sh -c "$1""#, path(), &script]);
    shell.env("LEASEHOLD_URL", server.url()).stdin(Stdio::null());
    let mut program = Program::start(shell);
    program.expect("ready");
    program.signal("HUP");
    std::thread::sleep(ms(200));
    assert!(!program.has_ended());
    std::fs::remove_file(&gate).unwrap();
    assert_eq!(program.ends_with(0), "");
}

/// Signals blocked in this process are not inherited.
#[cfg(target_os = "linux")]
#[test]
fn the_command_begins_with_no_signal_blocked() {
    let server = Server::start();
    let program = Program::start(leasehold(
        &server,
        &["run", "job", "--", "grep", "SigBlk:", "/proc/self/status"],
    ));
    assert_eq!(program.expect("SigBlk:"), "0000000000000000");
    assert_eq!(program.ends_with(0), "");
}

/// The command is stopped, but this process is not: renewal continues.
#[test]
fn a_command_that_is_stopped_keeps_its_lock() {
    let server = Server::start();
    let script = "echo $$; while [ ! -e \"$0\" ]; do sleep 0.02; done";
    let end = server.dir().join("end");
    let words = ["run", "job", "--lease", "4s", "--", "sh", "-c", script, end.to_str().unwrap()];
    let program = Program::start(leasehold(&server, &words));
    let command: u32 = program.expect("").parse().unwrap();
    signal(command, "STOP");
    assert!(server.client().mutex("job").try_lock_for(ms(6000)).unwrap().is_none());
    signal(command, "CONT");
    std::fs::write(end, "").unwrap();
    assert_eq!(program.ends_with(0), "");
    server.assert_clean();
}

#[test]
fn a_run_that_is_told_to_stop_stops_its_command_too() {
    let server = Server::start();
    for (lease, status) in [("10m", 0), ("3s", 70)] {
        let script = format!("trap 'exit 0' USR1; echo $$; {IDLE}");
        let program = Program::start(leasehold(
            &server,
            &["run", "job", "--lease", lease, "--", "sh", "-c", &script],
        ));
        let command: u32 = program.expect("").parse().unwrap();
        program.signal("TSTP");
        wait_until("both are stopped", || is_stopped(command) && is_stopped(program.pid()));
        if status == 70 {
            wait_until("the lease has ended", || server.lock_keys().is_empty());
        }
        program.signal("CONT");
        if status == 0 {
            wait_until("both continue", || !is_stopped(command) && !is_stopped(program.pid()));
            program.signal("USR1");
            assert_eq!(program.ends_with(0), "");
        } else {
            program.expect_said("the lock is lost");
            assert_eq!(program.ends_with(70), "");
        }
        assert!(!lives(command));
        server.assert_clean();
    }
}

/// It would go on without renewal. It starts no process, so it is never in the state D of a shell
/// that does.
#[test]
fn a_command_that_ignores_sigtstp_is_stopped_with_its_run() {
    let server = Server::start();
    let script = "trap '' TSTP; echo $$; exec sleep 60";
    let program = Program::start(leasehold(&server, &["run", "job", "--", "sh", "-c", script]));
    let command: u32 = program.expect("").parse().unwrap();
    wait_until("it sleeps", || words_of(command).starts_with("sleep"));
    program.signal("TSTP");
    wait_until("the run is stopped", || is_stopped(program.pid()));
    wait_until("the command is stopped", || is_stopped(command));
    program.signal("CONT");
    program.signal("TERM");
    assert_eq!(program.ends_with(143), "");
    server.assert_clean();
}
