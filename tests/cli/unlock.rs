//! `leasehold unlock`.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::json::json_of;
use crate::program::{Program, leasehold, path, run};
use crate::rig::{CAP, Server, wait_until};

const JAVA: &str = "0f0ba0e5-46ae-4ab8-a4ba-9b8b5f6c1d2e:34";

/// A hold that looks as Redisson's, and that nobody renews.
fn hold_as_java(server: &Server, name: &str, left_ms: u32) {
    server.cmd::<()>(&["HSET", name, JAVA, "1"]);
    server.cmd::<()>(&["PEXPIRE", name, &left_ms.to_string()]);
}

#[test]
fn a_holder_that_lives_is_thrown_out_by_force_only() {
    let server = Server::start();
    let client = server.builder().owner("billing-7").build().unwrap();
    let guard = client.lock("job").unwrap();
    // A label is announced just after the grant.
    wait_until("it is announced", || run(leasehold(&server, &["show", "job"])).1.contains("billing-7"));
    let (status, out, err) = run(leasehold(&server, &["unlock", "job"]));
    assert_eq!(status, Some(75), "{err}");
    assert!(out.contains("billing-7") && out.contains("is told at its next renewal"), "{out}");
    assert!(err.contains("was renewed") && err.contains("--force"), "{err}");
    assert!(guard.is_held());
    let (status, refused) = json_of("unlock", leasehold(&server, &["unlock", "job"]));
    assert_eq!((status, &refused["freed"]), (75, &json!(false)));
    assert!(refused["refused"].as_str().unwrap().contains("billing-7"));

    let (status, freed) = json_of("unlock", leasehold(&server, &["unlock", "job", "--force"]));
    assert_eq!((status, &freed["freed"], &freed["refused"]), (0, &json!(true), &Value::Null));
    assert_eq!(freed["holders"][0]["owner"]["label"], "billing-7");
    assert!(guard.wait_lost(CAP), "it is told");
    let (status, again) = json_of("unlock", leasehold(&server, &["unlock", "job"]));
    assert_eq!((status, &again["freed"], &again["refused"]), (0, &json!(false), &Value::Null));
    assert_eq!(run(leasehold(&server, &["unlock", "job"])).2, "leasehold: job: it was free");
}

/// It has less than two thirds of the usual lease left and is not renewed; one with a short lease
/// may be, which shows.
#[test]
fn who_is_not_renewed_is_gone() {
    let server = Server::start();
    hold_as_java(&server, "dead", 4000);
    let (status, out, err) = run(leasehold(&server, &["unlock", "dead"]));
    assert_eq!(status, Some(0), "{err}");
    assert!(out.contains(JAVA) && out.contains("Redisson"), "{out}");
    assert!(err.ends_with("dead: freed"), "{err}");
    assert_eq!(server.cmd::<u32>(&["EXISTS", "dead"]), 0);

    hold_as_java(&server, "fresh", 29_000);
    let (status, _, err) = run(leasehold(&server, &["unlock", "fresh"]));
    assert!(status == Some(75) && err.contains("may have been renewed"), "{err}");

    hold_as_java(&server, "short", 4000);
    let looks = Program::start(leasehold(&server, &["unlock", "short"]));
    looks.expect_said("whether it is renewed");
    server.cmd::<()>(&["PEXPIRE", "short", "6000"]);
    assert!(looks.ends_with(75).contains("has just renewed it"));

    server.cmd::<()>(&["HSET", "endless", JAVA, "1"]);
    let (status, _, err) = run(leasehold(&server, &["unlock", "endless"]));
    assert!(status == Some(75) && err.contains("without a lease"), "{err}");
    assert_eq!(run(leasehold(&server, &["unlock", "endless", "--force"])).0, Some(0));
}

#[test]
fn who_waits_gets_it_and_readers_go_together() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client());
    let held = client.fair("line").lock_owned().unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| other.fair("line").lock_owned().map(|guard| guard.unlock()));
        wait_until("it waits", || client.fair("line").queue_len().is_ok_and(|waiting| waiting == 1));
        assert_eq!(run(leasehold(&server, &["unlock", "line", "--force"])).0, Some(0));
        waits.join().unwrap().unwrap().unwrap();
    });
    let readers = [client.rw_lock("rw").read_owned().unwrap(), other.rw_lock("rw").read_owned().unwrap()];
    let (_, freed) = json_of("unlock", leasehold(&server, &["unlock", "rw", "--force"]));
    assert_eq!(freed["holders"].as_array().unwrap().len(), 2);
    assert!(client.rw_lock("rw").holders().unwrap().is_empty());
    drop((held, readers));
}

#[test]
fn what_is_no_lock_is_refused() {
    let server = Server::start();
    let client = server.client();
    client.semaphore("pool").try_set_permits(2).unwrap();
    let permit = client.semaphore("pool").acquire().unwrap();
    client.latch("start").try_set_count(2).unwrap();
    for name in ["pool", "start"] {
        let (status, _, err) = run(leasehold(&server, &["unlock", name, "--force"]));
        assert!(status == Some(76) && err.contains("no lock"), "{err}");
    }
    assert!(permit.is_held());
}

#[test]
fn it_asks_at_a_terminal_only() {
    let server = Server::start();
    hold_as_java(&server, "job", 500_000);
    let (status, _, err) = run(leasehold(&server, &["unlock", "job", "--ask", "--force"]));
    assert!(status == Some(64) && err.contains("terminal"), "{err}");
    for (answer, status, left) in [("n\n", 75, 1), ("\n", 75, 1), ("yes\n", 0, 0)] {
        let mut script = Command::new("script");
        script.args(["-qefc", "exec \"$LEASEHOLD\" unlock job --ask --force", "/dev/null"]).env("SHELL", "/bin/sh");
        script.env("LEASEHOLD", path()).env("LEASEHOLD_URL", server.url());
        let mut terminal = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut keys = terminal.stdin.take().unwrap();
        keys.write_all(answer.as_bytes()).unwrap();
        let output = terminal.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!((output.status.code(), server.cmd::<u32>(&["EXISTS", "job"])), (Some(status), left), "{text}");
        assert!(text.contains("[y/N]") && text.contains(JAVA), "{text}");
    }
}

/// Whoever gets it while the question stands is not thrown out for the one who was shown.
#[test]
fn a_lock_that_has_changed_hands_stays() {
    let server = Server::start();
    hold_as_java(&server, "job", 3000);
    let looks = Program::start(leasehold(&server, &["unlock", "job"]));
    looks.expect_said("whether it is renewed");
    server.cmd::<()>(&["DEL", "job"]);
    let client = server.client();
    let guard = client.lock("job").unwrap();
    let said = looks.ends_with(75);
    assert!(said.contains("not freed"), "{said}");
    assert!(guard.is_held());
}

#[cfg(feature = "postgres")]
#[test]
fn a_database_is_unlocked() {
    let Some(server) = crate::rig::Postgres::start() else { return };
    let client = server.client();
    let guard = client.lock("job").unwrap();
    assert_eq!(run(crate::program::leasehold_at(&server.url(), &["unlock", "job"])).0, Some(75));
    assert_eq!(run(crate::program::leasehold_at(&server.url(), &["unlock", "job", "--force"])).0, Some(0));
    assert!(guard.wait_lost(CAP), "it is told");
}
