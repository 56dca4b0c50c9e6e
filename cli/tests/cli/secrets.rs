//! Passwords appear neither on a command line nor in the environment of the command.

use std::process::Command;

use crate::program::{Program, leasehold, leasehold_at, run};
use crate::rig::Server;

const SECRET: &str = "s3cr3t-of-the-test";

fn server() -> Server {
    Server::start_with(&["--requirepass", SECRET])
}

fn of_process(pid: u32, what: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/{what}")).unwrap()).into_owned()
}

/// Inspects a run and its command, which must be `sh` and print its process id first.
#[track_caller]
fn look_at(program: &Program) -> String {
    let command: u32 = program.expect("").parse().unwrap();
    for pid in [program.pid(), command] {
        assert!(!of_process(pid, "cmdline").contains(SECRET));
    }
    let ps = Command::new("ps").args(["-eo", "pid,args"]).output().unwrap();
    let ps = String::from_utf8_lossy(&ps.stdout).into_owned();
    let own = |line: &&str| {
        line.contains("leasehold run") || line.trim_start().starts_with(&format!("{command} "))
    };
    let lines: Vec<&str> = ps.lines().filter(own).collect();
    assert!(lines.len() >= 2 && !lines.iter().any(|line| line.contains(SECRET)), "{lines:?}");
    let environment = of_process(command, "environ");
    assert!(environment.contains("LEASEHOLD_NAME=job"), "{environment}");
    assert!(!environment.contains(SECRET), "the command has the password in its environment");
    environment
}

const SCRIPT: [&str; 4] =
    ["--", "sh", "-c", "trap 'exit 0' USR1; echo $$; while :; do sleep 0.02; done"];

#[test]
fn a_url_with_a_password_stays_with_the_run() {
    let server = server();
    let url = format!("{}?pass={SECRET}", server.url());
    let program = Program::start(leasehold_at(&url, &[&["run", "job"][..], &SCRIPT].concat()));
    let environment = look_at(&program);
    assert!(!environment.contains("LEASEHOLD_URL="));
    program.signal("USR1");
    assert_eq!(program.ends_with(0), "");
}

#[test]
fn a_password_file_is_read_and_the_url_handed_on() {
    let server = server();
    let file = server.dir().join("password");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    let options = ["run", "job", "--password-file", file.to_str().unwrap()];
    let program = Program::start(leasehold(&server, &[&options[..], &SCRIPT].concat()));
    let environment = look_at(&program);
    assert!(environment.contains(&format!("LEASEHOLD_URL={}", server.url())));
    program.signal("USR1");
    assert_eq!(program.ends_with(0), "");
}

#[test]
fn a_password_as_an_argument_is_refused_and_not_repeated() {
    // Another password: the other tests inspect all command lines.
    const OPEN: &str = "0p3n-of-the-test";
    let server = server();
    for url in [format!("{}?pass={OPEN}", server.url()), format!("redis://:{OPEN}@localhost/")] {
        let (status, out, said) =
            run(leasehold(&server, &["run", "job", "--url", &url, "--", "true"]));
        assert_eq!((status, &*out), (Some(64), ""));
        assert!(said.contains("LEASEHOLD_URL") && said.contains("--password-file"), "{said}");
        assert!(!said.contains(OPEN));
    }
}

#[test]
fn no_message_has_the_password() {
    let server = server();
    for url in [
        format!("{}?pass=not-{SECRET}", server.url()),
        format!("redis://:{SECRET}@127.0.0.1:1/"),
        format!("redis://:{SECRET}/x@127.0.0.1:1/"),
        format!("http://:{SECRET}@127.0.0.1:1/"),
    ] {
        let (status, _, said) = run(leasehold_at(&url, &["run", "job", "--", "true"]));
        assert!([Some(64), Some(69), Some(77)].contains(&status), "{status:?}");
        assert!(
            said.starts_with("leasehold: ") && !said.contains(SECRET),
            "the password is printed"
        );
    }
}
