//! The PostgreSQL servers that the other tests start.

use crate::rig::{Child, Postgres, wait_until};

#[test]
fn servers_end_with_the_process_that_started_them() {
    if !Postgres::is_installed() {
        return;
    }
    let mut child = Child::spawn("rig_postgres::starts_servers", &[]);
    let directories = child.expect("directories: ");
    let all = || directories.split(' ').map(std::path::Path::new);
    assert!(all().all(|directory| directory.join("data/postmaster.pid").exists()));
    child.kill();
    // A shell removes it when the server has stopped.
    wait_until("the servers end", || !all().any(std::path::Path::exists));
}

#[test]
#[ignore = "a program for another test"]
fn starts_servers() {
    let servers = [Postgres::start().unwrap(), Postgres::start().unwrap(), Postgres::shared().unwrap()];
    servers[1].suspend();
    println!(
        "@@directories: {} {} {}",
        servers[0].dir().display(),
        servers[1].dir().display(),
        servers[2].dir().display()
    );
    std::thread::park();
}
