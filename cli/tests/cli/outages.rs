//! A server that is down, goes down, and comes back.

use crate::program::{Gate, Program, leasehold, leasehold_at, lives};
use crate::rig::{Fault, PROMPT, Proxy, Server, ms, wait_until};
use crate::support::Clients;

#[test]
fn a_server_that_hangs_is_69_and_the_command_is_not_started() {
    let server = Server::start();
    server.suspend();
    let before = std::time::Instant::now();
    let program = Program::start(leasehold(&server, &["run", "job", "--", "echo", "never"]));
    let end = program.end();
    assert_eq!((end.status, &end.out[..]), (Some(69), &[][..]), "{:?}", end.err);
    assert!(before.elapsed() < PROMPT);
    server.resume();
    server.assert_clean();
}

#[test]
fn a_server_that_comes_back_within_the_lease_costs_nothing() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let script = "trap 'exit 5' USR1; echo ready; while :; do sleep 0.02; done";
    let words = ["run", "job", "--lease", "6s", "--", "sh", "-c", script];
    let program = Program::start(leasehold_at(&proxy.url(), &words));
    program.expect("ready");
    proxy.refuse(true);
    proxy.cut_all();
    program.expect_said("job: the lease cannot be renewed, and ends in ");
    proxy.refuse(false);
    wait_until("it is renewed", || server.pttl("job") > 5_000);
    program.signal("USR1");
    assert_eq!(program.ends_with(5), "", "it was reported once");
    drop(proxy);
    server.assert_clean();
}

#[test]
fn a_server_that_stays_away_costs_the_lock() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let script = "trap 'echo told' TERM; echo $$; while :; do sleep 0.02; done";
    let words = ["run", "job", "--lease", "3s", "--kill-after", "200ms", "--", "sh", "-c", script];
    let program = Program::start(leasehold_at(&proxy.url(), &words));
    let pid = program.expect("").parse().unwrap();
    proxy.refuse(true);
    proxy.cut_all();
    program.expect_said("job: the lease cannot be renewed, and ends in ");
    program
        .expect_said("the lock is lost, so the command is ended: its lease could not be renewed: ");
    program.expect("told");
    let end = program.end();
    assert_eq!(end.status, Some(70), "{:?}", end.err);
    assert!(!lives(pid));
}

/// Nothing is left to release, so it does not wait for the store once the command has ended.
#[test]
fn a_lost_lock_does_not_wait_for_a_store_that_is_away() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let script = "trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let words = ["run", "job", "--lease", "3s", "--kill-after", "1m", "--", "sh", "-c", script];
    let program = Program::start(leasehold_at(&proxy.url(), &words));
    program.expect("ready");
    proxy.refuse(true);
    proxy.cut_all();
    program.expect("told");
    let before = std::time::Instant::now();
    assert_eq!(program.end().status, Some(70));
    assert!(before.elapsed() < ms(10_000), "{:?}", before.elapsed());
}

/// The command has done its work, so its status counts; what is left is reported, and ends by
/// itself.
#[test]
fn a_command_that_ends_while_the_server_is_away_keeps_its_status() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let script = "trap 'exit 5' USR1; echo ready; while :; do sleep 0.02; done";
    let words = ["run", "job", "--lease", "20s", "--", "sh", "-c", script];
    let program = Program::start(leasehold_at(&proxy.url(), &words));
    program.expect("ready");
    proxy.refuse(true);
    proxy.cut_all();
    program.signal("USR1");
    let said = program.ends_with(5);
    assert!(
        said.starts_with("leasehold: job: ") && said.contains("until its lease ends"),
        "{said}"
    );
    assert_eq!(server.lock_keys(), ["job"]);
}

#[test]
fn a_wait_outlives_a_restart_of_the_server() {
    let mut server = Server::start();
    let holder = server.client();
    let guard = holder.mutex("job").lock_owned().unwrap();
    let program = Program::start(leasehold(&server, &["run", "job", "--", "echo", "mine"]));
    wait_until("it waits", || !server.channels().is_empty());
    server.restart();
    program.expect("mine");
    assert_eq!(program.ends_with(0), "");
    drop((guard, holder));
}

/// Longer than the lease, which is how long a call of the library waits for a server.
#[test]
fn a_wait_outlives_an_outage_that_is_longer_than_its_lease() {
    let server = Server::start();
    let guard = server.client().mutex("job").lock_owned().unwrap();
    let proxy = Proxy::start(&server);
    let words = ["run", "job", "--lease", "3s", "--wait", "5m", "--", "echo", "mine"];
    let program = Program::start(leasehold_at(&proxy.url(), &words));
    wait_until("it waits", || !server.channels().is_empty());
    proxy.refuse(true);
    proxy.cut_all();
    program.expect_said("retrying for up to ");
    guard.unlock().unwrap();
    proxy.refuse(false);
    program.expect("mine");
    assert_eq!(program.ends_with(0), "");
    drop(proxy);
    server.assert_clean();
}

/// It asks again and again, and begins to wait anew after each answer.
#[test]
fn a_wait_for_a_job_outlives_an_outage() {
    let server = Server::start();
    let gate = Gate::in_dir(server.dir());
    let words = ["run", "--once", "report=1", "--", "sh", "-c", &gate.script()];
    let first = Program::start(leasehold(&server, &words));
    first.expect("ready");
    let proxy = Proxy::start(&server);
    let start = |wait: &[&str]| {
        let words = [&["run", "--once", "report=1", "-v"], wait, &["--", "echo", "never"]].concat();
        let program = Program::start(leasehold_at(&proxy.url(), &words));
        program.expect_said("report: waiting: ");
        program
    };
    let (second, impatient) = (start(&["--lease", "3s"]), start(&["--wait", "6s"]));
    proxy.refuse(true);
    proxy.cut_all();
    second.expect_said("retrying: ");
    // Its time is over before the server is back.
    let said = impatient.ends_with(69);
    assert!(said.contains("retrying for up to "), "{said}");
    gate.open();
    first.ends_with(0);
    proxy.refuse(false);
    let said = second.ends_with(0);
    assert!(said.contains("report: done by sh "), "{said}");
    drop(proxy);
    server.assert_clean();
}

#[test]
fn a_signal_ends_retries_with_its_own_status_also_while_permits_are_set() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    proxy.inject("1000001", Fault::Hold);
    let words =
        ["run", "api", "--permits", "1000001", "--retry-store", "1m", "--", "echo", "never"];
    let program = Program::start(leasehold_at(&proxy.url(), &words));
    proxy.wait_hits(1);
    proxy.refuse(true);
    proxy.cut_all();
    program.expect_said("retrying for up to ");
    program.signal("TERM");
    let said = program.ends_with(143);
    assert!(said.contains("api: ended by signal 15 before the command was started"), "{said}");
}
