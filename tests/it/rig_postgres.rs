//! Tests of the PostgreSQL servers that the other tests start.

use std::process::Command;

use crate::rig::{Child, Postgres, wait_until};

#[test]
fn a_missing_server_is_a_failure_with_its_remedy() {
    let without = |directory: &str| {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["rig_postgres::asks_for_a_server", "--exact", "--ignored"]);
        let output = program.env("LEASEHOLD_POSTGRES", directory).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (passes, says) = without("/no/such/directory");
    assert!(!passes && says.contains("LEASEHOLD_POSTGRES") && says.contains("apt-get"), "{says}");
}

#[test]
#[ignore = "a program for another test"]
fn asks_for_a_server() {
    drop(Postgres::prepare(""));
}

#[test]
fn servers_end_with_the_process_that_started_them() {
    let mut child = Child::spawn("rig_postgres::starts_servers", &[]);
    // Each of them may start slowly on a busy machine.
    let directories: Vec<String> = (0..3).map(|_| child.expect("directory: ")).collect();
    let all = || directories.iter().map(std::path::Path::new);
    assert!(all().all(|directory| directory.join("data/postmaster.pid").exists()));
    child.kill();
    // A shell removes the directory when the server has stopped.
    wait_until("the servers end", || !all().any(std::path::Path::exists));
}

#[test]
#[ignore = "a program for another test"]
fn starts_servers() {
    let says = |server: Postgres| {
        println!("@@directory: {}", server.dir().display());
        server
    };
    let _running = [says(Postgres::start()), says(Postgres::shared())];
    let stopped = Postgres::start();
    stopped.suspend();
    println!("@@directory: {}", stopped.dir().display());
    std::thread::park();
}
