//! Machines that start the same job at the same time.

use std::process::{Command, Stdio};

use crate::program::{Program, path};
use crate::rig::Server;

const CRONS: usize = 200;

#[test]
fn of_two_hundred_crons_one_runs_and_the_others_say_so() {
    let server = Server::start();
    let ran = server.dir().join("ran");
    let (start, started) = std::io::pipe().unwrap();
    let cron = |_| {
        let mut shell = Command::new("sh");
        // It reads the end of the pipe when all have been started.
        shell.args([
            "-c",
            r#"read line; exec "$0" run nightly --no-wait --min-hold 10m -- sh -c 'echo $$ >> "$0"' "$1""#,
        ]);
        shell.arg(path()).arg(&ran).env("LEASEHOLD_URL", server.url());
        Program::start({
            shell.stdin(Stdio::from(start.try_clone().unwrap()));
            shell
        })
    };
    let crons: Vec<Program> = (0..CRONS).map(cron).collect();
    drop(started);
    let mut statuses: Vec<Option<i32>> = Vec::new();
    for cron in crons {
        let end = cron.end();
        let said = match end.status {
            Some(75) => end.err.len() == 1 && end.err[0].starts_with("leasehold: nightly: "),
            _ => end.err.is_empty(),
        };
        assert!(said, "{:?} {:?}", end.status, end.err);
        statuses.push(end.status);
    }
    let count = |status| statuses.iter().filter(|one| **one == Some(status)).count();
    assert_eq!((count(0), count(75)), (1, CRONS - 1), "{statuses:?}");
    assert_eq!(std::fs::read_to_string(&ran).unwrap().lines().count(), 1);
    assert!(server.pttl("nightly") > 300_000, "it is kept");
    server.cmd::<()>(&["DEL", "nightly"]);
    server.assert_clean();
}
