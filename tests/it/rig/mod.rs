//! Test fixtures: private servers, a proxy that breaks connections at a chosen point, child
//! processes.

mod acl_rule;
mod bench;
mod certificates;
mod child;
mod cluster;
mod frames;
mod load;
mod logs;
mod masters;
mod places;
#[cfg(feature = "postgres")]
mod postgres;
mod proxy;
mod scripts;
mod sentinels;
mod server;
#[cfg(feature = "tls")]
mod tls_front;
#[cfg(feature = "zookeeper")]
#[allow(dead_code, unused_imports, reason = "the tests of the store use the rest")]
pub(crate) mod zookeeper;

use std::time::{Duration, Instant};

pub(crate) use acl_rule::{acl_rule, acl_words};
pub(crate) use bench::{Bench, Content, MILLIS, Picture, kilo};
pub(crate) use certificates::{Certificates, Identity};
pub(crate) use child::{Child, run_for_ever};
pub(crate) use cluster::{Cluster, ClusterOptions};
pub(crate) use load::Load;
pub(crate) use logs::{logged, logged_anywhere, record_logs};
pub(crate) use masters::{Masters, wait_for_votes};
pub(crate) use places::{TO_BUS, free_port, fresh_dir};
#[cfg(feature = "postgres")]
pub(crate) use postgres::Postgres;
pub(crate) use proxy::{Fault, Proxy};
pub(crate) use scripts::{script, scripts, sha};
pub(crate) use sentinels::{MASTER_NAME, SentinelOptions, Sentinels, sentinel_of};
pub(crate) use server::{CLIENT_INDEX, Listen, PROMPT_SYNC, Server, start_together};
#[cfg(feature = "tls")]
pub(crate) use tls_front::TlsFront;

/// The longest that a test waits for something that must happen.
pub(crate) const CAP: Duration = Duration::from_secs(15);

/// Far shorter than the leases and timers that would otherwise end a wait.
pub(crate) const PROMPT: Duration = Duration::from_secs(8);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Polls until `done`, at most for [`CAP`].
#[track_caller]
pub(crate) fn wait_until(what: &str, done: impl FnMut() -> bool) {
    wait_for(CAP, what, done);
}

/// The same for what takes longer, such as several waits of others.
#[track_caller]
pub(crate) fn wait_for(longest: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < longest, "waited {longest:?} in vain for: {what}");
        // To ask costs time too, which a busy machine lacks.
        std::thread::sleep((start.elapsed() / 16).clamp(ms(2), ms(25)));
    }
}

/// The number of threads of this process whose names begin with `prefix` (Linux cuts names to 15
/// characters).
#[cfg(target_os = "linux")]
pub(crate) fn threads_named(prefix: &str) -> usize {
    let prefix = &prefix[..prefix.len().min(15)];
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with(prefix))
        .count()
}

/// Sends a signal by name to a process. After STOP, returns once all of its threads have stopped:
/// until the kernel schedules the thread it chose to take the signal, the others run on.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = std::process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -{name} {pid}");
    if name == "STOP" {
        wait_until("it is stopped", || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            // `pid (comm) state ...`
            let stat =
                |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.unwrap().path().join("stat"));
            // A child of a process that is stopped stays a zombie when it ends.
            tasks.map(stat).all(|stat| stat.is_ok_and(|stat| stat.contains(") T ") || stat.contains(") Z ")))
        });
    }
}

/// Each of so many threads adds 20 to the key `counter` at `url`, each time under the lock `job`.
pub(crate) fn count_under_the_lock(client: &leasehold::LockClient, url: &str, threads: usize) {
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                let mut redis = redis::Client::open(url).unwrap().get_connection().unwrap();
                for _ in 0..20 {
                    let guard = client.lock("job").unwrap();
                    // Read and write are separate commands, so only the lock keeps the counter
                    // exact.
                    let old: u32 = redis::cmd("GET").arg("counter").query(&mut redis).unwrap();
                    redis::cmd("SET").arg("counter").arg(old + 1).exec(&mut redis).unwrap();
                    guard.unlock().unwrap();
                }
            });
        }
    });
}
