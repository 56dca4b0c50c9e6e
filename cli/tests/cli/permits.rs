//! `leasehold permits`, and runs whose `--permits` is another number.

use crate::program::{Gate, Program, leasehold, leasehold_at, run};
use crate::rig::{Fault, Proxy, Server, wait_until};
use crate::support::Clients;

/// More permits than it has asked for would let more commands run at a time.
#[test]
fn a_run_that_gives_another_number_of_permits_is_refused() {
    let server = Server::start();
    let status = |options: &[&str]| {
        let (status, _, said) =
            run(leasehold(&server, &[&["run", "api"], options, &["--", "echo", "ran"]].concat()));
        (status.unwrap(), said)
    };
    assert_eq!(status(&["--permits", "2"]), (0, String::new()));
    for other in ["1", "3"] {
        let (ended, said) = status(&["--permits", other]);
        assert_eq!(ended, 76, "{said}");
        let remedy = format!(
            "api: the semaphore has 2 permits, not {other}: `leasehold permits` sets their number"
        );
        assert!(said.contains(&remedy), "{said}");
        assert_eq!(status(&["--permits", other, "--permits-as-set"]), (0, String::new()));
    }
    assert_eq!(status(&["--permits-as-set"]).0, 64, "--permits is missing");
    assert!(server.client().semaphore("api").delete().unwrap());
    server.assert_clean();
}

#[test]
fn the_number_of_permits_can_be_set() {
    let server = Server::start();
    let set = |number: &str| run(leasehold(&server, &["permits", "api", number]));
    assert_eq!(
        set("1"),
        (Some(0), String::new(), "leasehold: api: it has 1 permits now".to_owned())
    );
    assert_eq!(set("1"), (Some(0), String::new(), "leasehold: api: it has 1 permits".to_owned()));
    let gate = Gate::in_dir(server.dir());
    let start = |permits: &str| {
        Program::start(leasehold(
            &server,
            &["run", "api", "--permits", permits, "--", "sh", "-c", &gate.script()],
        ))
    };
    let first = start("1");
    first.expect("ready");
    let waiting = start("1");
    wait_until("it waits", || server.channels().iter().any(|channel| channel.contains("{api}")));
    // The waiter gets the new permit.
    assert_eq!(set("2").2, "leasehold: api: it has 2 permits now, and had 1 before");
    waiting.expect("ready");
    // Nobody loses one.
    assert_eq!(set("1").0, Some(0));
    let try_one =
        || run(leasehold(&server, &["run", "api", "--permits", "1", "--no-wait", "--", "true"]));
    let busy = "leasehold: api: none of its permits is free, 2 are taken";
    assert_eq!(try_one(), (Some(75), String::new(), busy.to_owned()));
    let (freed, _, said) = run(leasehold(&server, &["unlock", "api", "--force"]));
    assert!(freed == Some(76) && said.contains("`leasehold permits` sets the number"), "{said}");
    gate.open();
    assert_eq!((first.ends_with(0), waiting.ends_with(0)), (String::new(), String::new()));
    assert_eq!(try_one().0, Some(0));
    for (arguments, status) in [(&["api", "0"][..], 64), (&["api", "-1"], 64), (&["api"], 64)] {
        assert_eq!(
            run(leasehold(&server, &[&["permits"], arguments].concat())).0,
            Some(status),
            "{arguments:?}"
        );
    }
    let client = server.client();
    let held = client.lock("job").unwrap();
    assert_eq!(run(leasehold(&server, &["permits", "job", "2"])).0, Some(76));
    drop(held);
    assert!(client.semaphore("api").delete().unwrap());
    drop(client);
    server.assert_clean();
}

/// Keys of other names also have braces.
#[test]
fn the_number_of_permits_can_be_set_under_a_name_with_braces() {
    let server = Server::start();
    for words in [&["permits", "a{b}c", "2"][..], &["permits", "api", "2", "--key-prefix", "{b}:"]]
    {
        let (status, _, said) = run(leasehold(&server, words));
        assert!(status == Some(0) && said.ends_with("it has 2 permits now"), "{said}");
    }
    let client = server.client();
    for name in ["a{b}c", "{b}:api"] {
        assert!(client.semaphore(name).delete().unwrap(), "{name}");
    }
    drop(client);
    server.assert_clean();
}

/// Each reads the number, and adds the difference: the second one must not read it before the first
/// one has added.
#[test]
fn several_that_set_the_same_number_at_once_set_it() {
    let server = Server::start();
    let client = server.client();
    client.semaphore("api").try_set_permits(2).unwrap();
    let proxy = Proxy::start(&server);
    proxy.inject("1000001", Fault::Hold);
    let first = Program::start(leasehold_at(&proxy.url(), &["permits", "api", "1000003"]));
    proxy.wait_hits(1);
    let second = Program::start(leasehold(&server, &["permits", "api", "1000003"]));
    wait_until("it waits", || {
        server.channels().iter().any(|channel| channel.contains("{permits:api}"))
    });
    proxy.release_held();
    assert!(first.ends_with(0).contains("and had 2 before"));
    assert!(second.ends_with(0).ends_with("it has 1000003 permits"));
    assert_eq!(client.semaphore("api").available_permits().unwrap(), 1_000_003);
    assert!(client.semaphore("api").delete().unwrap());
    drop((proxy, client));
    server.assert_clean();
}

/// Another one may have added the same permits, while the first one was stopped.
#[test]
fn a_number_that_may_be_wrong_is_said_to_be() {
    let server = Server::start();
    let client = server.client();
    client.semaphore("api").try_set_permits(2).unwrap();
    let proxy = Proxy::start(&server);
    proxy.inject("1000001", Fault::Hold);
    let late = Program::start(leasehold_at(&proxy.url(), &["permits", "api", "1000003"]));
    proxy.wait_hits(1);
    assert!(client.mutex("permits:api").force_unlock().unwrap(), "its lease is over");
    proxy.release_held();
    let said = late.ends_with(70);
    assert!(
        said.contains("api: the number of permits may be wrong now, so run this again: "),
        "{said}"
    );
    assert!(client.semaphore("api").delete().unwrap());
    drop((proxy, client));
    server.assert_clean();
}
