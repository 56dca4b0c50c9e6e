//! `leasehold lead`: one of several runs the command, and another one when that ends.

use crate::program::{Gate, Program, is_stopped, leasehold, lives};
use crate::rig::{Server, ms, wait_until};
use crate::support::Clients;

/// Says that it leads, and goes on until it is ended.
const LEADS: &str = "echo $$; while :; do sleep 0.02; done";

fn lead(server: &Server, options: &[&str], script: &str) -> Program {
    let words = [&["lead", "job"], options, &["--", "sh", "-c", script]].concat();
    Program::start(leasehold(server, &words))
}

#[test]
fn the_next_one_follows_a_leader_that_ends() {
    let server = Server::start();
    let first = lead(&server, &["--data", "host-a"], LEADS);
    first.expect("");
    let leader = || server.client().election("job").leader().unwrap();
    let term = |leader: Option<leasehold::Leader>| leader.and_then(|leader| leader.term());
    let before = leader();
    assert_eq!(before.as_ref().map(leasehold::Leader::data), Some(&b"host-a"[..]));
    let second = lead(&server, &["--data", "host-b"], "echo $LEASEHOLD_TOKEN; exit 0");
    first.signal("TERM");
    let number: u64 = second.expect("").parse().unwrap();
    assert!(term(before).is_some_and(|before| before.get() < number), "terms grow");
    first.ends_with(128 + 15);
    // A command that succeeds ends it.
    second.ends_with(0);
    assert!(leader().is_none());
    server.assert_clean();
}

#[test]
fn a_command_that_fails_is_started_again() {
    let server = Server::start();
    let failed = tempfile(&server);
    let script = format!("if rm {failed} 2>/dev/null; then exit 3; else echo second; fi");
    let program = lead(&server, &[], &script);
    program.expect_said("job: the command ended with status 3; stands for election again in 100");
    program.expect("second");
    program.ends_with(0);
    // With --again a command that succeeds is, too.
    let program = lead(&server, &["--again"], "echo again; sleep 0.05");
    for _ in 0..3 {
        program.expect("again");
    }
    program.signal("TERM");
    program.end();
    server.assert_clean();
}

/// A file that the first run of a command removes.
fn tempfile(server: &Server) -> String {
    let path = std::env::temp_dir().join(format!("leasehold-lead-{}", server.pid()));
    std::fs::write(&path, "").unwrap();
    path.display().to_string()
}

/// The command ends while its lease lasts: nobody else has led by then. It leads again afterwards.
#[test]
fn a_command_whose_lease_is_not_renewed_ends_before_it() {
    let server = Server::start();
    let program = lead(&server, &["--lease", "3s", "--kill-after", "500ms"], LEADS);
    let pid: u32 = program.expect("").parse().unwrap();
    server.suspend();
    program.expect_said("job: the lease cannot be renewed, and ends in ");
    program.expect_said("job: the lease was not renewed and ends in ");
    wait_until("it is ended", || !lives(pid));
    server.resume();
    assert_ne!(program.expect("").parse(), Ok(pid));
    program.signal("TERM");
    program.end();
    server.assert_clean();
}

/// While it waits for its next term it is stopped like any other program, and not later, when it
/// leads: the lease would end.
#[test]
fn a_signal_to_stop_between_two_terms_is_not_kept_for_the_next() {
    let server = Server::start();
    let (failed, gate) = (tempfile(&server), Gate::in_dir(server.dir()));
    let script = format!("if rm {failed} 2>/dev/null; then {}; exit 3; fi; {LEADS}", gate.script());
    let program = lead(&server, &[], &script);
    program.expect("ready");
    let other = server.client();
    std::thread::scope(|s| {
        let waits = s.spawn(|| other.mutex("job").lock_owned().unwrap());
        wait_until("another one waits", || !other.snapshot().waits().is_empty());
        gate.open();
        program.expect_said("stands for election again");
        let leads = waits.join().unwrap();
        program.signal("TSTP");
        wait_until("it is stopped", || is_stopped(program.pid()));
        program.signal("CONT");
        leads.unlock().unwrap();
    });
    drop(other);
    let command: u32 = program.expect("").parse().unwrap();
    for _ in 0..10 {
        // A process that the machine keeps busy may seem to be stopped in one look.
        wait_until("it is not stopped", || !is_stopped(program.pid()));
        assert!(lives(command));
        std::thread::sleep(ms(50));
    }
    program.signal("TERM");
    program.ends_with(128 + 15);
    server.assert_clean();
}
