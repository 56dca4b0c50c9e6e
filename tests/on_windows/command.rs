//! The command `leasehold.exe`.

use std::process::Command;

use leasehold::LockClient;

use crate::program::{Program, leasehold, marked, path_of_program, processes_with, program, run};
use crate::rig::{Server, signal, wait_until};

fn at(server: &Server, arguments: &[&str]) -> Command {
    let mut command = leasehold();
    command.env("LEASEHOLD_URL", server.url()).args(arguments);
    command
}

fn held(server: &Server, name: &str) -> bool {
    server.cmd::<u32>(&["EXISTS", name]) == 1
}

/// A run of a command that goes on until it is ended, with a process that it has started.
fn run_of_a_family(server: &Server, mark: &str, options: &[&str]) -> Program {
    let mut command = at(server, &["run", "job"]);
    command.args(options).arg("--").arg(path_of_program()).args(["family", mark]);
    let run = Program::start(command);
    assert!(run.line().starts_with("family started"));
    run
}

#[track_caller]
fn all_have_ended(mark: &str) {
    wait_until("all processes have ended", || processes_with(mark).is_empty());
}

#[test]
fn a_command_runs_under_its_lock() {
    let server = Server::start_tcp(&[]);
    let end = run(at(
        &server,
        &["run", "job", "--", "cmd", "/c", "echo %LEASEHOLD_NAME% %LEASEHOLD_TOKEN%& exit 7"],
    ));
    let token: String = server.cmd(&["GET", "redisson_lock_token:{job}"]);
    assert_eq!((end.status, end.out, &*end.err), (7, format!("job {token}"), ""));
    server.assert_clean();
    for (command, status) in [("no-such-program", 127), ("C:\\windows\\system.ini", 126)] {
        let end = run(at(&server, &["run", "job", "--", command]));
        assert_eq!(end.status, status, "{}", end.err);
        assert!(end.err.contains(command), "{}", end.err);
        server.assert_clean();
    }
}

#[test]
fn the_second_run_waits_or_says_who_has_it() {
    let server = Server::start_tcp(&[]);
    let mark = &marked("first-of-two");
    let first = run_of_a_family(&server, mark, &["--owner", "first"]);
    assert!(held(&server, "job"));
    let second = run(at(&server, &["run", "job", "--no-wait", "--", "cmd", "/c", "echo ran"]));
    assert_eq!((second.status, &*second.out), (75, ""), "{}", second.err);
    assert!(second.err.contains("first (pid "), "{}", second.err);

    let third =
        Program::start(at(&server, &["run", "job", "--verbose", "--", "cmd", "/c", "echo ran"]));
    third.expect_said("waiting for");
    processes_with(mark)
        .into_iter()
        .filter(|pid| *pid != first.pid())
        .for_each(|pid| signal(pid, "KILL"));
    first.end();
    let third = third.end();
    assert_eq!((third.status, &*third.out), (0, "ran"), "{}", third.err);
    all_have_ended(mark);
    server.assert_clean();
}

#[test]
fn a_lost_lock_ends_the_command_and_what_it_has_started() {
    let server = Server::start_tcp(&[]);
    let mark = &marked("family-of-the-lost");
    let first = run_of_a_family(&server, mark, &["--lease", "1s"]);
    let unlock = run(at(&server, &["unlock", "--force", "job"]));
    assert_eq!(unlock.status, 0, "{}", unlock.err);
    let end = first.end();
    assert_eq!(end.status, 70, "{}", end.err);
    assert!(end.err.contains("the lock is lost, so the command is ended"), "{}", end.err);
    all_have_ended(mark);
    server.assert_clean();
}

#[test]
fn a_run_that_is_ended_leaves_its_command_running() {
    let server = Server::start_tcp(&[]);
    let mark = &marked("family-that-stays");
    let first = run_of_a_family(&server, mark, &["--lease", "1s"]);
    let leasehold = first.pid();
    signal(leasehold, "KILL");
    wait_until("the lease has ended", || !held(&server, "job"));
    let rest =
        || processes_with(mark).into_iter().filter(|pid| *pid != leasehold).collect::<Vec<_>>();
    assert!(rest().len() >= 2, "{:?}", rest());
    for pid in rest() {
        signal(pid, "KILL");
    }
    drop(first);
    all_have_ended(mark);
}

#[test]
fn ctrl_c_ends_a_wait_and_not_a_command() {
    let server = Server::start_tcp(&[]);
    let mark = &marked("family-at-the-console");
    let first = run_of_a_family(&server, mark, &[]);

    let waiting = Program::start(at(
        &server,
        &["run", "job", "--fair", "--verbose", "--", "cmd", "/c", "echo ran"],
    ));
    let other =
        Program::start(at(&server, &["run", "job", "--verbose", "--", "cmd", "/c", "echo ran"]));
    for wait in [waiting, other] {
        wait.expect_said("waiting for");
        wait.press_ctrl_c();
        let end = wait.end();
        assert_eq!((end.status, &*end.out), (130, ""), "{}", end.err);
    }

    // A command that handles it goes on, and so does leasehold, which has received it as well.
    first.press_ctrl_c();
    let again = run(at(&server, &["run", "job", "--no-wait", "--", "cmd", "/c", "echo ran"]));
    assert_eq!(again.status, 75, "{}", again.err);
    // Wine ends this one, which does not handle it, with status 0: Windows ends it with another, see
    // `statuses_are_passed_on`.
    let of_command = |pid: &u32| *pid != first.pid() && processes_with("family").contains(pid);
    let command = processes_with(mark).into_iter().find(of_command).expect("it runs");
    signal(command, "INT");
    // What it has started has the output of leasehold open, and outlives the command.
    wait_until("the lock is released", || !held(&server, "job"));
    processes_with(mark)
        .into_iter()
        .filter(|pid| *pid != first.pid())
        .for_each(|pid| signal(pid, "KILL"));
    let end = first.end();
    assert_eq!(end.status, 0, "{}", end.err);
    server.assert_clean();
}

#[test]
fn statuses_are_passed_on() {
    let server = Server::start_tcp(&[]);
    // The third is STATUS_CONTROL_C_EXIT, and the last that of an access violation.
    for (exit, status) in
        [("3", 3), ("255", 255), ("3221225786", 130), ("256", 255), ("3221225477", 255)]
    {
        let mut command = at(&server, &["run", "job", "--"]);
        command.arg(path_of_program()).args(["exit", exit]);
        let end = run(command);
        assert_eq!(end.status, status, "{exit}: {}", end.err);
    }
    server.assert_clean();
    let batch = server.dir().join("nightly.cmd");
    std::fs::write(&batch, "@echo %1 under %LEASEHOLD_NAME%\r\n@exit /b 9\r\n").unwrap();
    let mut command = at(&server, &["run", "job", "--"]);
    command.arg(&batch).arg("ran");
    let end = run(command);
    assert_eq!((end.status, &*end.out), (9, "ran under job"), "{}", end.err);
    server.assert_clean();
}

#[test]
fn a_store_is_inspected() {
    let server = Server::start_tcp(&[]);
    let here = LockClient::builder().url(server.url()).owner("linux").build().unwrap();
    let guard = here.lock("job").unwrap();
    let said = |arguments: &[&str], status| {
        let end = run(at(&server, arguments));
        assert_eq!(end.status, status, "{arguments:?}: {} {}", end.out, end.err);
        end.out
    };
    wait_until("the owner is announced", || said(&["show", "job"], 0).contains("linux (pid "));
    assert!(said(&["ls"], 0).contains("job"));
    assert!(said(&["ls", "--json"], 0).contains("\"job\""));
    assert!(said(&["show", "another"], 1).contains("free"));
    assert!(said(&["doctor"], 1).contains("problem"));
    assert!(said(&["completions", "powershell"], 0).contains("leasehold"));
    let help = said(&["run", "--help"], 0);
    assert!(help.contains("job object") && !help.contains("SIGHUP"), "{help}");
    assert!(said(&["man"], 0).contains(".TH"));

    let picture = server.dir().join("job.svg");
    let summary = said(&["watch", "job", "--for", "500ms", "--svg", picture.to_str().unwrap()], 0);
    assert!(summary.contains("linux"), "{summary}");
    assert!(std::fs::read_to_string(picture).unwrap().contains("</svg>"));

    // The next line is that of the next poll.
    let top = Program::start(at(&server, &["top", "--json"]));
    assert!([top.line(), top.line()].iter().all(|line| line.contains("\"job\"")));
    top.press_ctrl_c();
    assert_eq!(top.end().status, 130);

    let exporter = Program::start(at(&server, &["exporter", "--listen", "127.0.0.1:0"]));
    let line = exporter.line();
    let address = line
        .strip_prefix("listening on http://")
        .and_then(|rest| rest.strip_suffix("/metrics"))
        .unwrap();
    wait_until("the lock is exported", || page(address).contains("name=\"job\""));
    exporter.press_ctrl_c();
    assert_eq!(exporter.end().status, 0);
    guard.unlock().unwrap();
    here.close(crate::rig::CAP).unwrap();
    server.assert_clean();
}

fn page(address: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

#[test]
fn what_windows_does_not_have_is_refused() {
    for url in ["redis+unix:///tmp/socket", "postgres://app@/shop?host=/run/postgresql"] {
        let mut command = leasehold();
        let end = run({
            command.args(["--url", url, "ls"]);
            command
        });
        assert_eq!(end.status, 64, "{}", end.err);
        assert!(end.err.contains("cannot connect to unix sockets"), "{}", end.err);
    }
    // The library says the same.
    let mut agent = program();
    agent.args(["agent", "redis+unix:///tmp/socket", "1000"]);
    let end = run(agent);
    assert!(end.status != 0 && end.err.contains("unix sockets"), "{}", end.err);
}
