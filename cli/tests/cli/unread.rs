//! Nobody reads stderr, and its pipe is full: no message may keep a run from ending its command.

#![cfg(target_os = "linux")]

use crate::loss::STUBBORN;
use crate::program::{Program, children, leasehold, leasehold_at, lives, words_of};
use crate::rig::{CAP, Proxy, Server, wait_until};
use crate::support::Clients;

#[test]
fn a_killed_run_ends_its_command() {
    let server = Server::start();
    let words = ["run", "job", "--lease", "8s", "--", "sh", "-c", STUBBORN];
    let (program, reader) = Program::start_unread(leasehold(&server, &words));
    let command: u32 = program.expect("").parse().unwrap();
    let backstop = children(program.pid())
        .into_iter()
        .find(|pid| words_of(*pid).contains("__backstop"))
        .unwrap();
    program.signal("KILL");
    let client = server.client();
    assert!(client.mutex("job").try_lock_for(CAP).unwrap().is_some(), "its lease has ended");
    assert!(!lives(command));
    wait_until("nothing is left", || !lives(backstop));
    drop((reader, client));
    server.assert_clean();
}

#[test]
fn a_lost_lock_ends_the_command() {
    let server = Server::start();
    let words =
        ["run", "job", "--lease", "3s", "--kill-after", "300ms", "--", "sh", "-c", STUBBORN];
    let (program, reader) = Program::start_unread(leasehold(&server, &words));
    let command = program.expect("").parse().unwrap();
    assert!(server.client().mutex("job").force_unlock().unwrap());
    assert_eq!(program.end().status, Some(70));
    assert!(!lives(command));
    drop(reader);
    server.assert_clean();
}

/// The message that the lease cannot be renewed comes from another thread, and earlier.
#[test]
fn a_lease_that_cannot_be_renewed_ends_the_command() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let words =
        ["run", "job", "--lease", "3s", "--kill-after", "300ms", "--", "sh", "-c", STUBBORN];
    let (program, reader) = Program::start_unread(leasehold_at(&proxy.url(), &words));
    let command = program.expect("").parse().unwrap();
    proxy.refuse(true);
    proxy.cut_all();
    assert_eq!(program.end().status, Some(70));
    assert!(!lives(command));
    drop((reader, proxy));
    server.assert_clean();
}
