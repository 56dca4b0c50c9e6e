//! The command of a killed run has ended before anybody else can have the lock.

use crate::loss::STUBBORN;
use crate::program::{Program, is_stopped, leasehold, leasehold_at, lives, path};
use crate::rig::{CAP, Proxy, Server, wait_until};
use crate::support::Clients;

/// Half a lease after the kill would be too late: less than that is left of it.
#[test]
fn a_command_does_not_outlive_a_lease_that_is_not_renewed() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let start = |name, options: &[&str]| {
        let always = ["run", name, "--lease", "6s", "--kill-after", "1m"];
        let words = [&always[..], options, &["--", "sh", "-c", STUBBORN]].concat();
        let url = if name == "away" { proxy.url() } else { server.url() };
        let program = Program::start(leasehold_at(&url, &words));
        let command: u32 = program.expect("").parse().unwrap();
        (name, command, program)
    };
    let runs = [start("long", &["--max-hold", "100ms"]), start("away", &[]), start("stopped", &[])];
    proxy.refuse(true);
    proxy.cut_all();
    let (_, command, stopped) = &runs[2];
    stopped.signal("TSTP");
    wait_until("both are stopped", || is_stopped(*command) && is_stopped(stopped.pid()));
    for (name, _, program) in &runs {
        wait_until("little is left", || server.pttl(name) < 2500);
        program.signal("KILL");
    }
    let client = server.client();
    for (name, command, _) in &runs {
        assert!(
            client.mutex(*name).try_lock_for(CAP).unwrap().is_some(),
            "{name}: its lease has ended"
        );
        assert!(!lives(*command), "{name}");
    }
    drop((runs, proxy, client));
    server.assert_clean();
}

/// The inner run is killed with the group of the outer one, and only then notices its own backstop.
#[test]
fn a_run_below_does_not_outlive_the_lease_either() {
    let server = Server::start();
    let inner =
        ["run", "inner", "--lease", "15s", "--kill-after", "1m", "--", "sh", "-c", STUBBORN];
    let outer = ["run", "outer", "--lease", "8s", "--kill-after", "2s", "--", path()];
    let program = Program::start(leasehold(&server, &[&outer[..], &inner].concat()));
    let command: u32 = program.expect("").parse().unwrap();
    program.signal("KILL");
    let client = server.client();
    assert!(client.mutex("outer").try_lock_for(CAP).unwrap().is_some(), "its lease has ended");
    assert!(!lives(command));
    assert!(client.mutex("inner").force_unlock().unwrap());
    drop(client);
    server.assert_clean();
}
