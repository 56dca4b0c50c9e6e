//! Test fixtures: private servers, a proxy that breaks connections at a chosen point, child
//! processes. They do not depend on the library. The fixtures that open its clients at these
//! servers are in `tests/support`.

mod acl_rule;
mod certificates;
mod child;
mod cluster;
mod frames;
mod java;
mod logs;
pub mod mysql;
mod places;
mod postgres;
mod proxy;
mod sentinels;
mod server;
mod shared;
mod stepped_clock;
mod tls_front;
pub mod zookeeper;

use std::time::{Duration, Instant};

pub use acl_rule::{acl_rule, acl_words, mysql_grants, role_grants};
pub use certificates::{Certificates, Identity};
pub use child::{Child, run_for_ever};
pub use cluster::{Cluster, ClusterOptions};
pub use java::{JavaProgram, Version};
pub use logs::{logged, logged_anywhere, record_logs};
pub use mysql::Mysql;
pub use places::{TO_BUS, free_port, fresh_dir, kept_dir};
pub use postgres::Postgres;
pub use proxy::{Fault, Proxy};
pub use sentinels::{FAIL_OVER_SOON, MASTER_NAME, SentinelOptions, Sentinels, sentinel_of};
pub use server::{CLIENT_INDEX, Listen, PROMPT_SYNC, Server, start_together};
pub use shared::Shared;
pub use tls_front::TlsFront;

/// The longest time that a test waits for something that must happen: more than a busy machine
/// needs, and less than the default lease.
pub const CAP: Duration = Duration::from_secs(20);

/// Far shorter than the leases and timers that would otherwise end a wait.
pub const PROMPT: Duration = Duration::from_secs(8);

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Records that this user lacks a right that the test needs. `tests/run.sh` names a file for that
/// in `LEASEHOLD_SKIPPED`, and shows it in its summary; without one the test fails.
#[track_caller]
pub fn cannot_run(why: &str) {
    use std::io::Write;
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let file = std::env::var_os("LEASEHOLD_SKIPPED");
    let file = file.unwrap_or_else(|| panic!("{why} (leave this out: --skip {test})"));
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
    writeln!(file, "{test}: {why}").unwrap();
}

/// Polls until `done`, at most for [`CAP`].
#[track_caller]
pub fn wait_until(what: &str, done: impl FnMut() -> bool) {
    wait_for(CAP, what, done);
}

/// The same for what takes longer, such as several waits in a row.
#[track_caller]
pub fn wait_for(longest: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        let waited = start.elapsed();
        assert!(waited < longest, "waited {longest:?} in vain for: {what}");
        // A poll is often a request of its own, and tests running in parallel need the processor:
        // the longer the wait, the rarer the polls.
        std::thread::sleep((waited / 16).clamp(ms(1), ms(25)));
    }
}

/// The number of threads of this process whose names begin with `prefix` (Linux cuts names to 15
/// characters). A thread that was joined may be among them for a moment: the kernel says that it
/// has ended before it removes it.
#[cfg(target_os = "linux")]
pub fn threads_named(prefix: &str) -> usize {
    let prefix = &prefix[..prefix.len().min(15)];
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with(prefix))
        .count()
}

/// Sends a signal by name to a process. After STOP, returns once all of its threads have stopped:
/// the others run on until the kernel schedules the thread that it chose to handle the signal.
pub fn signal(pid: u32, name: &str) {
    let status = std::process::Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()
        .unwrap();
    assert!(status.success(), "kill -{name} {pid}");
    if name == "STOP" {
        wait_until("it is stopped", || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            // `pid (comm) state ...`
            let stat = |task: std::io::Result<std::fs::DirEntry>| {
                std::fs::read_to_string(task.unwrap().path().join("stat"))
            };
            // A child of a stopped process stays a zombie when it ends.
            tasks
                .map(stat)
                .all(|stat| stat.is_ok_and(|stat| stat.contains(") T ") || stat.contains(") Z ")))
        });
    }
}
