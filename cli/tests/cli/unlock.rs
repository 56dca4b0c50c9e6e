//! `leasehold unlock`.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::json::json_of;
use crate::program::{Program, leasehold, path, run};
use crate::rig::{CAP, Server, wait_until};
use crate::support::Clients;

const JAVA: &str = "0f0ba0e5-46ae-4ab8-a4ba-9b8b5f6c1d2e:34";

/// A hold like Redisson's, which nobody renews.
fn hold_as_java(server: &Server, name: &str, left_ms: u32) {
    server.cmd::<()>(&["HSET", name, JAVA, "1"]);
    server.cmd::<()>(&["PEXPIRE", name, &left_ms.to_string()]);
}

#[test]
fn a_holder_that_lives_is_thrown_out_by_force_only() {
    let server = Server::start();
    let client = server.builder().owner("billing-7").build().unwrap();
    let guard = client.lock("job").unwrap();
    // A label is announced shortly after the grant.
    wait_until("it is announced", || {
        run(leasehold(&server, &["show", "job"])).1.contains("billing-7")
    });
    let (status, out, err) = run(leasehold(&server, &["unlock", "job"]));
    assert_eq!(status, Some(75), "{err}");
    assert!(out.contains("billing-7") && out.contains("learns at its next renewal"), "{out}");
    assert!(err.contains("renewed it") && err.contains("--force"), "{err}");
    assert!(guard.is_held());
    let (status, refused) = json_of("unlock", leasehold(&server, &["unlock", "job"]));
    assert_eq!((status, &refused["freed"]), (75, &json!(false)));
    assert!(refused["refused"].as_str().unwrap().contains("billing-7"));

    let (status, freed) = json_of("unlock", leasehold(&server, &["unlock", "job", "--force"]));
    assert_eq!((status, &freed["freed"], &freed["refused"]), (0, &json!(true), &Value::Null));
    assert_eq!(freed["holders"][0]["owner"]["label"], "billing-7");
    assert!(guard.wait_lost(CAP).is_lost(), "it is notified");
    let (status, again) = json_of("unlock", leasehold(&server, &["unlock", "job"]));
    assert_eq!((status, &again["freed"], &again["refused"]), (0, &json!(false), &Value::Null));
    assert_eq!(run(leasehold(&server, &["unlock", "job"])).2, "leasehold: job: it was free");
}

/// What a client with a lease of 30 s leaves behind that was killed: its hold and its announcement.
fn hold_of_a_dead_client(server: &Server, name: &str, left_ms: u32, announced_for_ms: u32) {
    let client = server.builder().owner("billing-7").build().unwrap();
    let guard = client.lock(name).unwrap();
    let id = server.cmd::<Vec<String>>(&["HKEYS", name]).remove(0);
    let of_client = format!("leasehold_client:*{}*", id.rsplit_once(':').unwrap().0);
    let records = || server.cmd::<Vec<String>>(&["KEYS", &of_client]);
    wait_until("it is announced", || !records().is_empty());
    let record = records().remove(0);
    let text = server.cmd::<String>(&["GET", &record]);
    drop(guard);
    client.close(CAP).unwrap();
    server.cmd::<()>(&["SET", &record, &text, "PX", &announced_for_ms.to_string()]);
    server.cmd::<()>(&["HSET", name, &id, "1"]);
    server.cmd::<()>(&["PEXPIRE", name, &left_ms.to_string()]);
}

#[test]
fn who_neither_renews_nor_announces_is_gone() {
    let server = Server::start();
    hold_of_a_dead_client(&server, "dead", 8000, 15_000);
    let (status, out, err) = run(leasehold(&server, &["unlock", "dead"]));
    assert_eq!(status, Some(0), "{err}");
    assert!(out.contains("billing-7") && err.contains("whether it is renewed"), "{out} {err}");
    assert!(err.ends_with("dead: freed"), "{err}");
    assert_eq!(server.cmd::<u32>(&["EXISTS", "dead"]), 0);
}

/// Nobody renews it: only its client is seen to be alive.
#[test]
fn a_fixed_lease_of_a_client_that_lives_stays() {
    let server = Server::start();
    let client =
        server.builder().owner("billing-7").lease(Duration::from_secs(30)).build().unwrap();
    let guard = client.mutex("job").with_lease(Duration::from_secs(15)).lock_owned().unwrap();
    wait_until("it is announced", || {
        run(leasehold(&server, &["show", "job"])).1.contains("billing-7")
    });
    let (status, _, err) = run(leasehold(&server, &["unlock", "job"]));
    assert!(status == Some(75) && err.contains("announced itself"), "{err}");
    assert!(guard.is_held());
}

/// It may have been taken with a fixed lease. A hold with a short lease may be renewed, which can
/// be observed.
#[test]
fn a_holder_of_another_library_may_live() {
    let server = Server::start();
    hold_as_java(&server, "long", 300_000);
    let long = Program::start(leasehold(&server, &["unlock", "long"]));
    hold_as_java(&server, "short", 8000);
    let looks = Program::start(leasehold(&server, &["unlock", "short"]));
    looks.expect_said("whether it is renewed");
    server.cmd::<()>(&["PEXPIRE", "short", "12000"]);
    assert!(looks.ends_with(75).contains("has just renewed it"));
    server.cmd::<()>(&["PEXPIRE", "short", "6000"]);
    let (status, out, err) = run(leasehold(&server, &["unlock", "short"]));
    assert!(out.contains(JAVA) && out.contains("another library"), "{out}");
    assert!(status == Some(75) && err.contains("may be a fixed one"), "{err}");

    server.cmd::<()>(&["HSET", "endless", JAVA, "1"]);
    let said = long.ends_with(75);
    assert!(said.contains("may be a fixed one"), "{said}");
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
        wait_until("it waits", || {
            client.fair("line").queue_len().is_ok_and(|waiting| waiting == 1)
        });
        assert_eq!(run(leasehold(&server, &["unlock", "line", "--force"])).0, Some(0));
        waits.join().unwrap().unwrap().unwrap();
    });
    let readers =
        [client.rw_lock("rw").read_owned().unwrap(), other.rw_lock("rw").read_owned().unwrap()];
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
        assert!(status == Some(76) && err.contains("not a lock"), "{err}");
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
        let mut terminal = Asked::start(&server, "unlock job --ask --force");
        terminal.expect("[y/N]");
        let text = terminal.answer(answer, status);
        assert_eq!(server.cmd::<u32>(&["EXISTS", "job"]), left, "{text}");
        assert!(text.contains(JAVA), "{text}");
    }
}

/// The command at a terminal, where it asks.
struct Asked {
    process: Child,
    keys: ChildStdin,
    shown: ChildStdout,
    seen: String,
}

impl Asked {
    fn start(server: &Server, arguments: &str) -> Self {
        let mut script = Command::new("script");
        script
            .args(["-qefc", &format!("exec \"$LEASEHOLD\" {arguments}"), "/dev/null"])
            .env("SHELL", "/bin/sh");
        script.env("LEASEHOLD", path()).env("LEASEHOLD_URL", server.url());
        let mut process = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keys, shown) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, keys, shown, seen: String::new() }
    }

    fn expect(&mut self, text: &str) {
        let mut some = [0; 1024];
        while !self.seen.contains(text) {
            let count = self.shown.read(&mut some).unwrap();
            assert!(count > 0, "it has ended: {}", self.seen);
            self.seen += &String::from_utf8_lossy(&some[..count]);
        }
    }

    /// Returns everything that was shown.
    fn answer(mut self, answer: &str, status: i32) -> String {
        self.keys.write_all(answer.as_bytes()).unwrap();
        self.shown.read_to_string(&mut self.seen).unwrap();
        assert_eq!(self.process.wait().unwrap().code(), Some(status), "{}", self.seen);
        self.seen
    }
}

/// A client that gets the lock during the question is not thrown out instead of the one that was
/// shown.
#[test]
fn a_lock_that_has_changed_hands_stays() {
    let server = Server::start();
    hold_of_a_dead_client(&server, "job", 8000, 15_000);
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
fn a_postgres_is_unlocked() {
    let server = crate::rig::Postgres::start();
    let client = server.client();
    let guard = client.lock("job").unwrap();
    assert_eq!(run(crate::program::leasehold_at(&server.url(), &["unlock", "job"])).0, Some(75));
    assert_eq!(
        run(crate::program::leasehold_at(&server.url(), &["unlock", "job", "--force"])).0,
        Some(0)
    );
    assert!(guard.wait_lost(CAP).is_lost(), "it is notified");
}

/// A lock that `min_hold` keeps has no holder, however it was held.
#[test]
fn a_kept_lock_is_nobodys() {
    let server = Server::start();
    for (name, kind) in [("plain", "--fair"), ("written", "--write")] {
        let job = ["run", name, kind, "--min-hold", "10m", "--", "true"];
        assert_eq!(run(leasehold(&server, &job)).0, Some(0));
        for look in [&["ls", "--all"][..], &["show", name]] {
            let (_, out, _) = run(leasehold(&server, look));
            assert!(out.contains("nobody (--min-hold)"), "{out}");
        }
        let (_, shown) = json_of("show", leasehold(&server, &["show", name]));
        assert_eq!(shown["locks"][0]["holders"][0]["kept"], true);
        let (status, out, err) = run(leasehold(&server, &["unlock", name]));
        assert!(status == Some(0) && out.contains("nobody loses it"), "{out} {err}");
    }
}

/// During the question its holder may renew it, or release it and take it again.
#[test]
fn the_answer_is_for_what_was_shown() {
    let server = Server::start();
    let renew: &dyn Fn() = &|| server.cmd(&["PEXPIRE", "renewed", "20000"]);
    let take_again: &dyn Fn() = &|| server.cmd(&["INCR", "redisson_lock_token:{taken}"]);
    for (name, change, says) in
        [("renewed", renew, "has just renewed it"), ("taken", take_again, "its holder has changed")]
    {
        hold_of_a_dead_client(&server, name, 6000, 15_000);
        let mut terminal = Asked::start(&server, &format!("unlock {name} --ask"));
        terminal.expect("[y/N]");
        change();
        assert!(terminal.answer("y\n", 75).contains(says));
    }
}
