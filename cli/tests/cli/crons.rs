//! Machines that start the same job at the same time.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::program::path;
use crate::rig::{Server, wait_for};

const CRONS: usize = 200;
/// The limit for all of them on a machine with two busy cores, where they take some seconds.
const LONGEST: Duration = Duration::from_secs(120);

/// Two hundred processes without two hundred pipes and reader threads: each writes its output to a
/// file.
struct Crons {
    processes: Vec<(Child, PathBuf)>,
}

impl Crons {
    /// They wait for the end of `start`, and begin together.
    fn prepare(server: &Server, start: &std::io::PipeReader, ran: &Path) -> Self {
        let cron = |number| {
            let said = server.dir().join(format!("said-{number}"));
            let mut shell = Command::new("sh");
            let line =
                r#"read line; exec "$0" run nightly $OPTIONS -- sh -c 'echo $$ >> "$0"' "$1""#;
            shell.args(["-c", line, path()]).arg(ran).env("LEASEHOLD_URL", server.url());
            // The connect of one of so many may take longer than the I/O timeout.
            shell.env("OPTIONS", "--no-wait --min-hold 10m --retry-store 1m");
            shell.stdin(Stdio::from(start.try_clone().unwrap())).stdout(Stdio::null());
            (shell.stderr(File::create(&said).unwrap()).spawn().unwrap(), said)
        };
        Self { processes: (0..CRONS).map(cron).collect() }
    }

    /// The status and the output of each.
    fn ends(&mut self) -> Vec<(Option<i32>, String)> {
        wait_for(LONGEST, "all crons have ended", || {
            self.processes.iter_mut().all(|(cron, _)| cron.try_wait().unwrap().is_some())
        });
        let end = |(cron, said): &mut (Child, PathBuf)| {
            let said = std::fs::read_to_string(said).unwrap();
            let lines = said.lines().filter(|line| !line.contains("retrying"));
            (cron.wait().unwrap().code(), lines.collect::<Vec<_>>().join("\n"))
        };
        self.processes.iter_mut().map(end).collect()
    }
}

impl Drop for Crons {
    fn drop(&mut self) {
        for (cron, _) in &mut self.processes {
            let _ = cron.kill();
            let _ = cron.wait();
        }
    }
}

#[test]
fn of_two_hundred_crons_one_runs_and_the_others_say_so() {
    let server = Server::start();
    let ran = server.dir().join("ran");
    let (start, begin) = std::io::pipe().unwrap();
    let mut crons = Crons::prepare(&server, &start, &ran);
    drop(begin);
    let ends = crons.ends();
    for (status, said) in &ends {
        let is_said = match status {
            Some(75) => said.lines().count() == 1 && said.starts_with("leasehold: nightly: "),
            _ => said.is_empty(),
        };
        assert!(is_said, "{status:?} {said:?}");
    }
    let count = |wanted| ends.iter().filter(|(status, _)| *status == Some(wanted)).count();
    assert_eq!((count(0), count(75)), (1, CRONS - 1), "{ends:?}");
    assert_eq!(std::fs::read_to_string(&ran).unwrap().lines().count(), 1);
    assert!(server.pttl("nightly") > 300_000, "it is kept");
    server.cmd::<()>(&["DEL", "nightly"]);
    server.assert_clean();
}

/// What a crontab runs in this text, with another job.
fn line_of(text: &str, job: &Path) -> String {
    let line = text.lines().find_map(|line| line.split_once("5 3 * * * ")).expect("a line").1;
    let (leasehold, _) = line.rsplit_once(" -- ").expect("a command");
    format!("{leasehold} -- {}", job.display())
}

/// cron's environment: no more than this, and what the crontab sets.
fn under_cron(server: &Server, home: &Path, line: &str) -> std::process::Output {
    let mut cron = Command::new("sh");
    cron.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home);
    cron.env("LEASEHOLD_URL", server.url()).args(["-c", line]).output().unwrap()
}

#[test]
fn the_crontabs_of_the_documentation_run_the_job_once_and_are_silent() {
    let server = Server::start();
    let help = Command::new(path()).args(["run", "--help"]).output().unwrap().stdout;
    let guide = include_str!("../../../src/guide/operations.rs");
    let home = server.dir().join("home");
    std::fs::create_dir_all(home.join(".cargo/bin")).unwrap();
    std::os::unix::fs::symlink(path(), home.join(".cargo/bin/leasehold")).unwrap();
    for (n, text) in [&*String::from_utf8(help).unwrap(), guide].into_iter().enumerate() {
        let ran = server.dir().join(format!("ran-{n}"));
        let job = server.dir().join(format!("job-{n}"));
        std::fs::write(&job, format!("#!/bin/sh\necho run >> {}\n", ran.display())).unwrap();
        std::fs::set_permissions(&job, std::fs::Permissions::from_mode(0o755)).unwrap();
        let line = line_of(text, &job);
        for machine in 0..3 {
            let ended = under_cron(&server, &home, &line);
            let said = [ended.stdout, ended.stderr].concat();
            assert_eq!((ended.status.code(), said.len()), (Some(0), 0), "{machine}: {line}");
        }
        assert_eq!(std::fs::read_to_string(&ran).unwrap(), "run\n", "{line}");
    }
    let bare = under_cron(&server, &home, "leasehold run job -- true");
    assert_eq!(bare.status.code(), Some(127), "the reason why it is spelt out");
}
