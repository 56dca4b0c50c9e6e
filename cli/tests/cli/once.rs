//! `leasehold run --once` and `leasehold once`.

use crate::program::{Gate, Program, leasehold, run};
use crate::rig::{Server, wait_until};
use crate::support::Clients;

/// The status and what it says.
fn say(server: &Server, words: &[&str]) -> (i32, String) {
    let (status, out, said) = run(leasehold(server, words));
    (status.expect("it was not killed"), out + &said)
}

fn echo(server: &Server, once: &str, options: &[&str]) -> (i32, String) {
    let line = "echo $LEASEHOLD_NAME $LEASEHOLD_OCCURRENCE $LEASEHOLD_ATTEMPT";
    let words = [&["run", "--once", once], options, &["--", "sh", "-c", line]].concat();
    say(server, &words)
}

#[test]
fn a_command_runs_once_for_each_occurrence() {
    let server = Server::start();
    let said = |once: &str| echo(&server, once, &[]);
    assert_eq!(said("report=2026-11-23"), (0, "report 2026-11-23 1".to_owned()));
    let (status, again) = said("report=2026-11-23");
    assert_eq!(status, 0);
    assert!(again.starts_with("leasehold: report: done by sh (pid ") && again.ends_with(" ago"));
    assert_eq!(echo(&server, "report=2026-11-23", &["-q"]), (0, String::new()));
    let passed = "leasehold: report: its time has passed: 2026-11-23 was done";
    assert_eq!(said("report=2026-11-22"), (0, passed.to_owned()));

    let free = "report: free\n  done     2026-11-23, the newest occurrence of this job";
    assert_eq!(say(&server, &["show", "report"]), (1, free.to_owned()));
    let forget = |once: &str| say(&server, &["once", "forget", once]);
    let again = "leasehold: report: 2026-11-23 may run again, for 1d00h if a newer one was done";
    assert_eq!(forget("report=2026-11-23"), (0, again.to_owned()));
    assert_eq!(said("report=2026-11-23"), (0, "report 2026-11-23 1".to_owned()));
    assert!(forget("report=2030-01-01").1.ends_with("; nothing was known of it"));
    assert_eq!(say(&server, &["show", "nothing"]), (1, "nothing: free".to_owned()));
    server.assert_clean();
}

/// A newer one was done: the record that lets it run again is the only one of it.
#[test]
fn an_occurrence_may_run_again_for_the_time_that_is_asked_for() {
    let server = Server::start();
    assert_eq!(echo(&server, "report=2", &[]), (0, "report 2 1".to_owned()));
    let (status, said) = say(&server, &["once", "forget", "report=1", "--keep", "3h"]);
    assert!(status == 0 && said.contains("may run again, for 3h00m"), "{said}");
    let record = server.cmd::<Vec<String>>(&["KEYS", "leasehold_done:*/1"]).remove(0);
    let left = server.cmd::<u64>(&["PTTL", &record]);
    assert!((1..=3 * 3_600_000).contains(&left), "{left}");
    assert_eq!(echo(&server, "report=1", &[]), (0, "report 1 1".to_owned()));
    server.assert_clean();
}

#[test]
fn a_command_that_fails_is_tried_again_by_the_next_run() {
    let server = Server::start();
    let try_it = || {
        let line = "exit $((4 + $LEASEHOLD_ATTEMPT))";
        let options =
            ["run", "-n", "--once", "report=1", "--attempts", "2", "--", "sh", "-c", line];
        say(&server, &options)
    };
    assert_eq!(try_it(), (5, String::new()));
    assert_eq!(try_it(), (6, String::new()));
    assert_eq!(try_it(), (75, "leasehold: report: it was tried 2 times".to_owned()));
    // Silence would be taken for a success, and nobody does it any more.
    let in_a_crontab = ["-nq", "--conflict-status", "0", "--attempts", "2"];
    assert_eq!(
        echo(&server, "report=1", &in_a_crontab),
        (75, "leasehold: report: it was tried 2 times".to_owned())
    );
    assert_eq!(echo(&server, "report=1", &[]), (0, "report 1 3".to_owned()));
    server.assert_clean();
}

#[test]
fn a_run_beside_another_one_waits_or_says_who_it_is() {
    let server = Server::start();
    let gate = Gate::in_dir(server.dir());
    let words = ["run", "--once", "report=1", "--owner", "first", "--", "sh", "-c", &gate.script()];
    let first = Program::start(leasehold(&server, &words));
    first.expect("ready");
    let (status, said) = echo(&server, "report=1", &["-n"]);
    assert!(status == 75 && said.starts_with("leasehold: report: first (pid "), "{said}");
    assert!(said.ends_with(" runs 1"), "{said}");
    assert_eq!(echo(&server, "report=2", &["--wait", "200ms", "-q"]), (75, String::new()));
    let (listed, _) = (say(&server, &["ls"]).1, ());
    assert!(listed.contains("report") && listed.contains("once"), "{listed}");
    // Whoever waits ends when it is done.
    let second = Program::start(leasehold(&server, &["run", "--once", "report=1", "--", "false"]));
    wait_until("it waits", || server.channels().iter().any(|channel| channel.contains("_done:")));
    gate.open();
    let said = second.ends_with(0);
    assert!(said.contains("done by first"), "{said}");
    first.ends_with(0);
    assert_eq!(say(&server, &["once", "force-out", "report"]).0, 75);
    server.assert_clean();
}

#[test]
fn a_run_that_was_forced_out_is_ended_and_not_recorded() {
    let server = Server::start();
    let words =
        ["run", "--once", "report=1", "--lease", "3s", "--", "sh", "-c", "echo ready; sleep 600"];
    let run = Program::start(leasehold(&server, &words));
    run.expect("ready");
    assert_eq!(say(&server, &["once", "force-out", "report"]).0, 0);
    let said = run.ends_with(70);
    assert!(said.contains("the lock is lost"), "{said}");
    assert_eq!(echo(&server, "report=1", &[]), (0, "report 1 2".to_owned()));
    server.assert_clean();
}

#[test]
fn a_schedule_names_the_occurrence() {
    let server = Server::start();
    let (status, said) = echo(&server, "report", &["--every", "1d", "--offset", "2h"]);
    assert!(status == 0 && said.ends_with("T02:00:00Z 1"), "{said}");
    let too_late = echo(&server, "other", &["--every", "365d", "--grace", "0s", "--early", "0s"]);
    assert_eq!(
        too_late,
        (0, "leasehold: other: its time has passed: it is later than --grace allows".to_owned())
    );
    for wrong in [
        &["run", "--once", "report", "--", "true"][..],
        &["run", "--once", "report=1", "--every", "1h", "--", "true"],
        &["run", "job", "--once", "report=1", "--", "true"],
        &["run", "--once", "report=1", "--fair", "--", "true"],
        &["run", "job", "--every", "1h", "--", "true"],
        &["run", "--once", "report=a/b", "--", "true"],
        &["once", "forget", "report"],
    ] {
        let (status, said) = say(&server, wrong);
        assert!(status == 64 && said.starts_with("leasehold: "), "{wrong:?}: {status} {said}");
    }
    drop(server.client());
    server.assert_clean();
}
