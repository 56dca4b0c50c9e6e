//! `leasehold run`: statuses, the environment of the command, kinds of locks, waits.

use std::time::Duration;

use leasehold::LockClient;

use crate::program::{Gate, Program, leasehold, leasehold_at, run};
use crate::rig::{Server, ms, wait_until};
use crate::support::Clients;

#[test]
fn the_status_is_that_of_the_command() {
    let server = Server::start();
    for (words, status) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "exit 255"], 255),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["/nowhere/backup.sh"], 127),
        (&["no-such-command"], 127),
        (&["/etc/passwd"], 126),
    ] {
        let (ended, out, said) = run(leasehold(&server, &[&["run", "job", "--"], words].concat()));
        assert_eq!((ended, &*out), (Some(status), ""), "{words:?}: {said}");
        let is_ours = [126, 127].contains(&status);
        assert_eq!(said.starts_with(&format!("leasehold: {}: ", words[0])), is_ours, "{said}");
        server.assert_clean();
    }
}

#[test]
fn a_line_for_a_shell_is_told_to_be_one() {
    let server = Server::start();
    let (status, _, said) = run(leasehold(&server, &["run", "job", "--", "cd / && ls"]));
    assert_eq!(status, Some(127), "{said}");
    assert!(said.ends_with("; for a line of the shell: -- sh -c 'cd / && ls'"), "{said}");
    let mut as_cron = leasehold(&server, &["run", "job", "--", "no-such-command"]);
    let (_, _, said) = run({
        as_cron.env("PATH", "/usr/bin:/bin");
        as_cron
    });
    assert!(said.ends_with("; PATH is /usr/bin:/bin"), "{said}");
    server.assert_clean();
}

#[test]
fn bad_arguments_are_64() {
    let server = Server::start();
    let run_of = |options: &[&'static str]| [&["run"], options, &["--", "true"]].concat();
    for arguments in [
        vec![],
        vec!["run"],
        vec!["run", "job"],
        vec!["run", "job", "true"],
        vec!["walk", "job"],
        run_of(&["job", "--wait", "30"]),
        run_of(&["job", "--wait", "1s", "--no-wait"]),
        run_of(&["job", "--fair", "--read"]),
        run_of(&["job", "--permits", "0"]),
        run_of(&["job", "--read", "--min-hold", "1m"]),
        run_of(&["job", "--permits", "2", "--min-hold", "1m"]),
        // The library refuses these.
        run_of(&[""]),
        run_of(&["job", "--lease", "1ms"]),
        run_of(&["job", "--max-hold", "0s"]),
        run_of(&["job", "--min-hold", "1m", "--max-hold", "1s"]),
        run_of(&["job", "--owner", "two\nlines"]),
        run_of(&["job", "--url", "http://somewhere/"]),
        run_of(&["job", "--redlock"]),
    ] {
        let (status, out, said) = run(leasehold(&server, &arguments));
        assert_eq!((status, &*out), (Some(64), ""), "{arguments:?}: {said}");
        assert!(
            said.starts_with("leasehold: ") && said.lines().count() == 1,
            "{arguments:?}: {said}"
        );
    }
    let mut without_url = leasehold(&server, &["run", "job", "--", "true"]);
    let (status, _, said) = run({
        without_url.env_remove("LEASEHOLD_URL");
        without_url
    });
    assert_eq!(status, Some(64));
    assert!(said.contains("LEASEHOLD_URL") && said.contains("--url"), "{said}");
    server.assert_clean();
}

#[test]
fn a_store_that_is_of_no_use_has_a_status_for_each_reason() {
    let server = Server::start();
    let of = |command| {
        let (status, _, said) = run(command);
        assert!(said.starts_with("leasehold: ") && said.lines().count() == 1, "{said:?}");
        (status.unwrap(), said)
    };
    let nobody = format!("redis+unix://{}/nobody", server.dir().display());
    assert_eq!(of(leasehold_at(&nobody, &["run", "job", "--", "true"])).0, 69);
    // `--url` overrides the environment, on both sides of the subcommand.
    for arguments in [
        ["--url", &nobody, "run", "job", "--", "true"],
        ["run", "--url", &nobody, "job", "--", "true"],
    ] {
        assert_eq!(of(leasehold(&server, &arguments)).0, 69);
    }
    server.cmd::<()>(&["SET", "text", "words"]);
    assert_eq!(of(leasehold(&server, &["run", "text", "--", "true"])).0, 76);
    server.cmd::<()>(&["DEL", "text"]);
    server.cmd::<()>(&[
        "ACL",
        "SETUSER",
        "poor",
        "on",
        ">word",
        "+@all",
        "-@scripting",
        "~*",
        "&*",
    ]);
    let denied = format!("{}?user=poor&pass=word", server.url());
    assert_eq!(of(leasehold_at(&denied, &["run", "job", "--", "true"])).0, 77);
    let wrong = format!("{}?user=poor&pass=wrong", server.url());
    assert_eq!(of(leasehold_at(&wrong, &["run", "job", "--", "true"])).0, 77);
    server.assert_clean();
}

#[test]
fn who_has_the_lock_is_said() {
    let server = Server::start();
    let holder = server.builder().owner("billing-7").build().unwrap();
    let _guards = (
        holder.mutex("job").lock_owned().unwrap(),
        holder.fair("queue").lock_owned().unwrap(),
        holder.rw_lock("table").write_owned().unwrap(),
    );
    let semaphore = holder.semaphore("api");
    semaphore.try_set_permits(2).unwrap();
    let _permits = semaphore.acquire_many(2).unwrap();
    wait_until("the holder's identity is known", || server.client_keys().len() == 1);
    let by = format!("held by billing-7 (pid {} on ", std::process::id());
    for (options, who) in [
        (&["job"][..], &*by),
        (&["queue", "--fair"], &by),
        (&["table", "--read"], &by),
        (&["table", "--write"], &by),
        (&["api", "--permits", "2"], "none of its permits is free, 2 are taken"),
    ] {
        for wait in [&["--no-wait"][..], &["--wait", "100ms"]] {
            let (status, _, said) =
                run(leasehold(&server, &[&["run"], options, wait, &["--", "true"]].concat()));
            assert_eq!(status, Some(75), "{said}");
            assert!(said.starts_with(&format!("leasehold: {}: {who}", options[0])), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
}

#[test]
fn a_run_says_who_it_is() {
    let server = Server::start();
    let client = server.client();
    for (options, label) in [(&[][..], "sleep"), (&["--owner", "nightly"], "nightly")] {
        let words = [&["run", "job"], options, &["--", "sleep", "60"]].concat();
        let program = Program::start(leasehold(&server, &words));
        let owner = || Some(client.mutex("job").holder().unwrap()?.owner()?.clone());
        wait_until("it is published", || owner().is_some());
        let owner = owner().unwrap();
        assert_eq!((owner.label(), owner.pid()), (label, program.pid()));
        program.signal("TERM");
        program.ends_with(143);
    }
}

#[test]
fn the_command_knows_its_lock() {
    let server = Server::start();
    let show = ["--", "sh", "-c", "echo $LEASEHOLD_NAME,$LEASEHOLD_TOKEN"];
    let shown = |options: &[&str]| {
        let mut command = leasehold(&server, &[&["run"], options, &show].concat());
        // The environment of an outer run.
        command.env("LEASEHOLD_TOKEN", "5").env("LEASEHOLD_NAME", "outer");
        let (status, out, said) = run(command);
        assert_eq!((status, &*said), (Some(0), ""), "{options:?}");
        let (name, token) = out.split_once(',').unwrap();
        (name.to_owned(), token.parse::<u64>().ok())
    };
    for options in [&["a job"][..], &["queue", "--fair"], &["table", "--write"]] {
        let (first, second) = (shown(options), shown(options));
        assert_eq!((&*first.0, &*second.0), (options[0], options[0]));
        assert!(first.1.unwrap() < second.1.unwrap(), "{first:?} {second:?}");
    }
    for options in [&["table", "--read"][..], &["api", "--permits", "2"]] {
        assert_eq!(shown(options), (options[0].to_owned(), None));
    }
}

#[test]
fn readers_share_and_permits_are_counted() {
    let server = Server::start();
    let gate = Gate::in_dir(server.dir());
    let start = |options: &[&str]| {
        let program = Program::start(leasehold(
            &server,
            &[&["run"], options, &["--", "sh", "-c", &gate.script()]].concat(),
        ));
        program.expect("ready");
        program
    };
    let status = |options: &[&str]| {
        run(leasehold(&server, &[&["run", "--no-wait"], options, &["--", "true"]].concat())).0
    };
    let readers = [start(&["table", "--read"]), start(&["table", "--read"])];
    assert_eq!(status(&["table", "--write"]), Some(75));
    assert_eq!(status(&["table", "--read"]), Some(0));
    let permits = [start(&["api", "--permits", "2"]), start(&["api", "--permits", "2"])];
    assert_eq!(status(&["api", "--permits", "2"]), Some(75));
    gate.open();
    for program in readers.into_iter().chain(permits) {
        assert_eq!(program.ends_with(0), "");
    }
    assert_eq!(status(&["table", "--write"]), Some(0));
    assert!(server.client().semaphore("api").delete().unwrap());
    server.assert_clean();
}

#[test]
fn the_next_one_waits_for_as_long_as_it_takes() {
    let server = Server::start();
    for kind in [&[][..], &["--fair"], &["--write"]] {
        let gate = Gate::in_dir(server.dir());
        let first = Program::start(leasehold(
            &server,
            &[&["run", "job"], kind, &["--", "sh", "-c", &gate.script()]].concat(),
        ));
        first.expect("ready");
        let mut next = Program::start(leasehold(
            &server,
            &[&["run", "job"], kind, &["--", "echo", "next"]].concat(),
        ));
        let timed = Program::start(leasehold(
            &server,
            &[&["run", "job", "--wait", "1m"], kind, &["--", "echo", "timed"]].concat(),
        ));
        // In a queue only the first waiters need messages.
        let queue = || server.client().fair("job").queue_len().unwrap();
        wait_until("they wait", || {
            if kind == ["--fair"] { queue() == 2 } else { !server.channels().is_empty() }
        });
        std::thread::sleep(ms(100));
        assert!(!next.has_ended());
        gate.open();
        assert_eq!(first.ends_with(0), "");
        next.expect("next");
        timed.expect("timed");
        assert_eq!((next.ends_with(0), timed.ends_with(0)), (String::new(), String::new()));
        server.assert_clean();
    }
}

#[test]
fn a_lock_is_kept_for_its_least_time() {
    let server = Server::start();
    for kind in [&["mutex"][..], &["queue", "--fair"], &["table", "--write"]] {
        let words = [&["run"], kind, &["--no-wait", "--min-hold", "5m", "--", "true"]].concat();
        assert_eq!(run(leasehold(&server, &words)), (Some(0), String::new(), String::new()));
        let (status, _, said) = run(leasehold(&server, &words));
        assert_eq!(status, Some(75), "{said}");
        assert!(said.contains("keeps it taken for ") && said.contains("(--min-hold)"), "{said}");
        let remaining = server.pttl(kind[0]);
        assert!(remaining > 200_000, "{remaining}");
        server.cmd::<()>(&["DEL", kind[0]]);
    }
}

/// Another machine may be able to do what this one cannot.
#[test]
fn a_failed_job_keeps_its_lock_unless_it_is_kept_only_on_success() {
    let server = Server::start();
    for kind in [&["mutex"][..], &["queue", "--fair"], &["table", "--write"]] {
        let end_with = |options: &[&str], script: &str| {
            let words = [
                &["run"],
                kind,
                &["--no-wait", "--min-hold", "5m"],
                options,
                &["--", "sh", "-c", script],
            ];
            run(leasehold(&server, &words.concat())).0
        };
        let on_success = &["--min-hold-on-success"][..];
        assert_eq!(end_with(on_success, "exit 3"), Some(3));
        assert_eq!(end_with(on_success, "kill -TERM $$"), Some(143));
        server.assert_clean();
        assert_eq!(end_with(on_success, "exit 0"), Some(0));
        assert_eq!(end_with(on_success, "exit 0"), Some(75), "{kind:?}");
        server.cmd::<()>(&["DEL", kind[0]]);
        assert_eq!(end_with(&[], "exit 3"), Some(3));
        assert_eq!(end_with(&[], "exit 3"), Some(75), "{kind:?}");
        server.cmd::<()>(&["DEL", kind[0]]);
    }
}

/// For people who know `flock`.
#[test]
fn waits_have_the_short_options_of_flock() {
    let server = Server::start();
    let guard = server.client().mutex("job").lock_owned().unwrap();
    for options in [&["-n"][..], &["-w", "100ms"], &["-w100ms"]] {
        assert_eq!(
            run(leasehold(&server, &[&["run"], options, &["job", "--", "true"]].concat())).0,
            Some(75)
        );
    }
    drop(guard);
}

/// The next machine may have the command.
#[test]
fn a_command_that_cannot_be_started_keeps_nothing() {
    let server = Server::start();
    for kind in [&["mutex"][..], &["queue", "--fair"], &["table", "--write"]] {
        for (command, status) in [("no-such-command", 127), ("/etc/passwd", 126)] {
            let words =
                [&["run"], kind, &["--no-wait", "--min-hold", "5m", "--", command]].concat();
            assert_eq!(run(leasehold(&server, &words)).0, Some(status));
            server.assert_clean();
        }
    }
}

#[test]
fn a_long_command_keeps_its_lock() {
    let server = Server::start();
    let gate = Gate::in_dir(server.dir());
    let words = ["run", "job", "--lease", "4s", "--", "sh", "-c", &gate.script()];
    let program = Program::start(leasehold(&server, &words));
    program.expect("ready");
    let client: LockClient = server.client();
    assert!(
        client.mutex("job").try_lock_for(Duration::from_secs(6)).unwrap().is_none(),
        "it is renewed"
    );
    gate.open();
    assert_eq!(program.ends_with(0), "");
    assert!(client.try_lock("job").unwrap().is_some());
}
