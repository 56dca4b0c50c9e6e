//! A lost lock ends the command.

use crate::program::{Program, leasehold, lives};
use crate::rig::{Server, wait_until};
use crate::support::Clients;

pub(crate) const STUBBORN: &str = "trap '' TERM; echo $$; while :; do sleep 0.02; done";

/// Starts the script under the lock `job`; returns its first output, a process id.
fn start(server: &Server, options: &[&str], script: &str) -> (Program, u32) {
    let words = [&["run", "job"], options, &["--", "sh", "-c", script]].concat();
    let program = Program::start(leasehold(server, &words));
    let pid = program.expect("").parse().unwrap();
    (program, pid)
}

#[test]
fn a_command_that_ignores_sigterm_is_killed() {
    let server = Server::start();
    let (program, pid) = start(&server, &["--lease", "3s", "--kill-after", "300ms"], STUBBORN);
    assert!(server.client().mutex("job").force_unlock().unwrap());
    let said = program.ends_with(70);
    assert!(
        said.starts_with(
            "leasehold: job: the lock is lost, so the command is ended: it was taken away"
        ),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!lives(pid));
    server.assert_clean();
}

#[test]
fn a_command_that_cleans_up_has_the_time_for_it() {
    let server = Server::start();
    let script =
        "trap 'sleep 0.3; echo cleaned up; exit 0' TERM; echo $$; while :; do sleep 0.02; done";
    let (program, _) = start(&server, &["--lease", "3s", "--kill-after", "1m"], script);
    assert!(server.client().mutex("job").force_unlock().unwrap());
    program.expect("cleaned up");
    assert!(program.ends_with(70).contains("taken away"));
}

/// It could still write what the lock protected.
#[test]
fn nobody_of_the_group_outlives_a_lost_lock() {
    let server = Server::start();
    let script = format!("sh -c \"{STUBBORN}\" & wait");
    let (program, pid) = start(
        &server,
        &["--lease", "3s", "--kill-after", "300ms"],
        &script.replace("$$", "\\$\\$"),
    );
    assert!(server.client().mutex("job").force_unlock().unwrap());
    assert!(program.ends_with(70).contains("taken away"));
    wait_until("it is killed", || !lives(pid));
}

/// Even if the command itself has ended at once: the run does not end earlier.
#[test]
fn the_rest_of_the_group_has_the_time_for_it_too() {
    let server = Server::start();
    let script =
        "trap 'sleep 0.3; echo cleaned up; exit 0' TERM; echo $$; while :; do sleep 0.02; done";
    let (program, pid) = start(
        &server,
        &["--lease", "3s", "--kill-after", "1m"],
        &format!("sh -c \"{script}\" & wait").replace("$$", "\\$\\$"),
    );
    assert!(server.client().mutex("job").force_unlock().unwrap());
    let end = program.end();
    assert!(!lives(pid));
    assert_eq!((end.status, &*end.out.join(" ")), (Some(70), "cleaned up"), "{:?}", end.err);
}

#[test]
fn a_stopped_command_is_ended_as_well() {
    let server = Server::start();
    let script = "trap 'exit 0' TERM; echo $$; while :; do sleep 0.02; done";
    let (program, pid) = start(&server, &["--lease", "3s", "--kill-after", "1m"], script);
    crate::rig::signal(pid, "STOP");
    assert!(server.client().mutex("job").force_unlock().unwrap());
    assert!(program.ends_with(70).contains("taken away"));
    assert!(!lives(pid));
}

#[test]
fn a_command_that_takes_too_long_is_ended() {
    let server = Server::start();
    for kind in [&[][..], &["--fair"], &["--read"], &["--write"]] {
        let options =
            [kind, &["--lease", "3s", "--max-hold", "1s", "--kill-after", "100ms"]].concat();
        let (program, pid) = start(&server, &options, STUBBORN);
        let said = program.ends_with(70);
        assert!(said.contains("maximum hold was over") && said.lines().count() == 1, "{said}");
        assert!(!lives(pid));
        server.assert_clean();
    }
}

#[test]
fn a_lock_that_was_lost_unseen_is_said_at_the_end() {
    let server = Server::start();
    let gate = server.dir().join("gate");
    // 70 is also the status of a run whose lock is lost while it runs.
    for status in ["0", "70"] {
        std::fs::write(&gate, "").unwrap();
        let script =
            format!("echo $$; while [ -e {} ]; do sleep 0.02; done; exit {status}", gate.display());
        // The next renewal comes much later.
        let (program, _) = start(&server, &["--lease", "10m"], &script);
        server.cmd::<()>(&["DEL", "job"]);
        std::fs::remove_file(&gate).unwrap();
        let said = program.ends_with(70);
        let ended = format!("the command has ended, with status {status}");
        assert!(said.contains(&ended) && said.lines().count() == 1, "{said}");
    }
}
