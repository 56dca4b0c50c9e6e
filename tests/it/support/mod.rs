//! What the tests stand on: private servers, a proxy that breaks one chosen exchange, child processes, leak checks.

#![allow(dead_code, unused_imports, reason = "a toolbox: not every run of the tests needs every tool")]

pub(crate) mod leak;
pub(crate) mod logs;
pub(crate) mod process;

mod carry;
mod fault;
mod inspect;
mod monitor;
mod net;
mod proxy;
mod resp;
mod server;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) use fault::{
    Action, Fault, Rule, any_request, any_word, command, evalsha_containing, script_containing, word_containing,
};
pub(crate) use leak::{Leak, threads_named};
pub(crate) use monitor::{Line, Monitor};
pub(crate) use process::Child;
pub(crate) use proxy::Proxy;
pub(crate) use server::{Options, Server};

/// The longest that a helper waits for something that must happen.
pub(crate) const CAP: Duration = Duration::from_secs(10);

/// So many milliseconds.
pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Polls until `done`; panics with `what` when the cap has passed.
#[track_caller]
pub(crate) fn wait_until(what: &str, cap: Duration, mut done: impl FnMut() -> bool) {
    assert!(became_true(cap, &mut done), "waited {cap:?} in vain until {what}");
}

/// Polls until `done`; whether it came true within the cap, for callers that have more to say than a text.
pub(crate) fn became_true(cap: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        // The time is read before the check, so that a machine that stalls between the two costs no false alarm.
        let late = start.elapsed() >= cap;
        if done() {
            return true;
        }
        if late {
            return false;
        }
        std::thread::sleep(ms(2));
    }
}

/// A name that no other call gives, in this process or another on this machine.
pub(crate) fn unique_name(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Sends a signal by name. The shell's own `kill` is used: minimal images lack the program.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = std::process::Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(status.success(), "kill -{name} {pid}: {status}");
    #[cfg(target_os = "linux")]
    if name == "STOP" {
        // The call returns before every thread of the target has stopped.
        wait_until(&format!("process {pid} has stopped"), CAP, || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // The name in parentheses may contain anything, so the state is found from the right.
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 'Z', 'X']))
        });
    }
}
