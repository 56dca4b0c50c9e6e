//! `leasehold run` while somebody else has the lock, and while the store is unreachable.

use crate::program::{Gate, Program, leasehold, leasehold_at, path, run};
use crate::rig::{Proxy, Server, ms, wait_until};
use crate::support::Clients;

/// The wait would never end, and `show` reports the same.
#[test]
fn what_is_no_lock_is_not_waited_for() {
    let server = Server::start();
    server.cmd::<u32>(&["HSET", "user:7", "name", "x", "mail", "y"]);
    server.cmd::<u32>(&["HSET", "counter", "name", "x"]);
    for name in ["user:7", "counter"] {
        for options in [&[][..], &["--wait", "1m"], &["--fair"]] {
            let (status, _, said) =
                run(leasehold(&server, &[&["run", name], options, &["--", "true"]].concat()));
            assert_eq!(status, Some(76), "{name} {options:?}: {said}");
            assert!(
                said.starts_with("leasehold: ") && said.contains("other than a lock"),
                "{said}"
            );
        }
        assert_eq!(run(leasehold(&server, &["show", name])).0, Some(76));
    }
}

/// One line says which option takes it.
#[test]
fn a_lock_of_another_kind_is_taken_by_other_options() {
    let server = Server::start();
    let client = server.client();
    let (read, semaphore) =
        (client.rw_lock("table").read_owned().unwrap(), client.semaphore("api"));
    semaphore.try_set_permits(2).unwrap();
    let (permit, mutex) = (semaphore.acquire().unwrap(), client.mutex("job").lock_owned().unwrap());
    let write = client.rw_lock("page").write_owned().unwrap();
    for (name, options, how) in [
        (
            "table",
            &[][..],
            "table: this lock is taken for reading or writing: give --read or --write",
        ),
        ("table", &["--wait", "1m"], "give --read or --write"),
        (
            "page",
            &["--fair"],
            "page: this lock is taken for reading or writing: give --read or --write",
        ),
        ("table", &["--permits", "2"], "give --read or --write"),
        (
            "job",
            &["--read"],
            "job: this lock is taken without --fair, --read, --write and --permits",
        ),
        ("api", &["--write"], "api: this is a semaphore: give --permits N"),
    ] {
        let (status, _, said) =
            run(leasehold(&server, &[&["run", name], options, &["--", "true"]].concat()));
        assert!(
            status == Some(76) && said.contains(how) && said.lines().count() == 1,
            "{name} {options:?}: {said}"
        );
    }
    drop((read, permit, mutex, write));
    assert!(semaphore.delete().unwrap());
    drop((semaphore, client));
    server.assert_clean();
}

#[test]
fn a_run_does_not_wait_for_one_that_it_was_started_under() {
    let server = Server::start();
    let nested = |names: &[(&str, &[&'static str])]| {
        let mut words: Vec<&str> = Vec::new();
        for (name, options) in names {
            words.extend([if words.is_empty() { "run" } else { path() }].iter());
            words.extend(if words.len() == 1 { &[][..] } else { &["run"] });
            words.push(name);
            words.extend(*options);
            words.push("--");
        }
        words.push("true");
        run(leasehold(&server, &words))
    };
    for names in [
        &[("a", &[][..]), ("a", &[])][..],
        &[("a", &["--fair"]), ("a", &["--fair"])],
        &[("a", &["--write"]), ("a", &["--read"])],
        &[("a", &[]), ("b", &["--permits", "1"]), ("a", &["--wait", "1m"])],
    ] {
        let (status, _, said) = nested(names);
        assert_eq!(status, Some(75), "{names:?}: {said}");
        assert!(said.contains("it would wait for itself"), "{names:?}: {said}");
    }
    // Readers share the lock.
    assert_eq!(nested(&[("a", &["--read"]), ("a", &["--read"])]).0, Some(0));
    server.client().semaphore("b").delete().unwrap();
    server.assert_clean();
}

#[test]
fn a_run_that_waits_says_for_whom_if_it_is_asked_to() {
    let server = Server::start();
    let holder = server.builder().owner("billing-7").build().unwrap();
    let guard = holder.mutex("job").lock_owned().unwrap();
    wait_until("the holder's identity is known", || server.client_keys().len() == 1);
    let verbose =
        Program::start(leasehold(&server, &["run", "job", "--verbose", "--", "echo", "had"]));
    verbose.expect_said("job: waiting for billing-7 (pid ");
    // Without a terminal it waits silently.
    let silent = Program::start(leasehold(&server, &["run", "job", "--", "true"]));
    let quiet = |options: &[&str]| {
        run(leasehold(&server, &[&["run", "job"], options, &["--", "true"]].concat()))
    };
    assert_eq!(quiet(&["--no-wait", "--quiet"]), (Some(75), String::new(), String::new()));
    assert_eq!(
        quiet(&["--wait", "50ms", "-q", "--conflict-status", "0"]),
        (Some(0), String::new(), String::new())
    );
    let (status, _, said) = quiet(&["--no-wait", "--conflict-status", "3"]);
    assert!(status == Some(3) && said.contains("billing-7"), "{said}");
    guard.unlock().unwrap();
    verbose.expect("had");
    assert_eq!((verbose.ends_with(0), silent.ends_with(0)), (String::new(), String::new()));
    drop(holder);
    server.assert_clean();
}

#[test]
fn a_store_that_is_away_at_the_start_is_asked_again() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    proxy.refuse(true);
    let (status, _, said) =
        run(leasehold_at(&proxy.url(), &["run", "job", "--wait", "1m", "--", "true"]));
    assert_eq!(status, Some(69), "a wait is for locks: {said}");
    let words = ["run", "job", "--retry-store", "2s", "--", "true"];
    let (status, _, said) = run(leasehold_at(&proxy.url(), &words));
    assert!(status == Some(69) && said.contains("retrying for up to "), "{said}");
    let quiet = ["run", "job", "--quiet", "--retry-store", "2s", "--", "true"];
    let (status, _, said) = run(leasehold_at(&proxy.url(), &quiet));
    assert!(status == Some(69) && !said.contains("retrying"), "{said}");
    assert!(said.contains("no server listens") || said.contains("ended"), "{said}");
    let words = ["run", "job", "--retry-store", "10m", "--", "echo", "had"];
    let program = Program::start(leasehold_at(&proxy.url(), &words));
    program.expect_said("retrying for up to ");
    std::thread::sleep(ms(200));
    proxy.refuse(false);
    program.expect("had");
    program.ends_with(0);
    // A signal ends the retries.
    proxy.refuse(true);
    let program = Program::start(leasehold_at(&proxy.url(), &words));
    program.expect_said("retrying for up to ");
    program.signal("TERM");
    program.ends_with(143);
    drop(proxy);
    server.assert_clean();
}

#[test]
fn a_wait_that_is_over_has_the_status_that_was_asked_for() {
    let server = Server::start();
    let gate = Gate::in_dir(server.dir());
    let first =
        Program::start(leasehold(&server, &["run", "job", "--", "sh", "-c", &gate.script()]));
    first.expect("ready");
    let words = ["run", "job", "--wait", "100ms", "--conflict-status", "9", "--", "true"];
    assert_eq!(run(leasehold(&server, &words)).0, Some(9));
    gate.open();
    assert_eq!(first.ends_with(0), "");
    server.assert_clean();
}
