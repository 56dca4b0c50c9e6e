//! Folders are floors: a file imports from its own floor and from those below, and few files know
//! the `redis` crate.

use super::{Source, exports};

/// The folders, floor by floor: a file imports from its own floor and from those below.
const FLOORS: [&[&str]; 13] = [
    &["os"],
    &["base"],
    &["signal"],
    &["report"],
    &["store"],
    &["lease"],
    &["wait"],
    &["hold"],
    &["observe", "fencing"],
    &["sync"],
    &["client", "guide"],
    &["builder"],
    &["in_memory", "testing"],
];

/// The files that may use the `redis` crate: those that read its URLs and compute a script's hash.
const KNOW_REDIS: [&str; 4] = [
    // The bare scripts with which leasehold is compared.
    "cli/bench/bare.rs",
    "store/redis/keys.rs",
    "store/redis/wire/request.rs",
    "store/redis/wire/url.rs",
];

#[test]
fn imports_go_down_the_floors() {
    let exported = exports("src/lib.rs");
    let floor = |module: &str| FLOORS.iter().position(|floor| floor.contains(&module));
    // The command is a separate package, for which the compiler allows only the public interface.
    for file in Source::all().iter().filter(|file| file.path != "lib.rs" && file.module != "cli") {
        let own = floor(&file.module)
            .unwrap_or_else(|| panic!("src/{} is on no floor: add it", file.path));
        for (place, word) in file.words_after("crate::") {
            // Exported items can also be named without their module.
            let module = exported.get(word).map_or(word, String::as_str);
            let theirs =
                floor(module).unwrap_or_else(|| panic!("src/{place}: which floor is {word:?} on?"));
            assert!(
                theirs <= own,
                "src/{place}: floor {own} must not know {module}, which is on floor {theirs}"
            );
        }
        // Both would be ways around the check.
        if !file.path.contains('/') {
            file.lacks("super::");
        }
        file.lacks("super::super::");
    }
}

#[test]
fn the_lowest_floor_is_pure() {
    for file in Source::all().iter().filter(|file| file.module == "base") {
        for what in ["os::now", "os::since", "thread::", "std::net", "std::fs", "Condvar"] {
            file.lacks(what);
        }
    }
}

/// Code that runs under a scheduler may block, spawn, read a clock and use randomness through one
/// module only: the scheduler does not see any other way, and would explore nothing there, or hang.
#[test]
fn the_kernel_blocks_by_one_module() {
    let by_others = [
        "Instant::now",
        ".elapsed()",
        "SystemTime::now",
        "std::thread::",
        "parking_lot",
        "std::sync::atomic",
        "std::sync::mpsc",
        "std::sync::Mutex<",
        "std::collections::HashMap",
        "std::collections::HashSet",
        "SysRng",
    ];
    // Counters that are only displayed and never decide anything: their steps would only make
    // schedules longer. `process` detects a fork, which no scheduler has.
    let figures =
        ["base/counters.rs", "base/histogram.rs", "signal/process.rs", "report/traffic.rs"];
    let kernel = [
        "base",
        "signal",
        "report",
        "lease",
        "wait",
        "hold",
        "observe",
        "sync",
        "client",
        "in_memory",
        "testing",
    ];
    // The wire of Redis and Redlock. Not under the scheduler: the sockets of the system, and what
    // stands in for names in all clients of the process; sentinels, clusters, lists and diagnoses.
    let sockets = ["names", "scheduled", "stream", "tls_stream", "waits", "waker"]
        .map(|name| format!("store/net/{name}.rs"));
    let is_wire = |path: &str| match path.strip_prefix("store/redis/") {
        Some(file) => (!file.contains('/') || file.starts_with("wire/")) && file != "wire/ask.rs",
        None => {
            path.starts_with("store/redlock/")
                || path.starts_with("store/net/") && !sockets.iter().any(|file| file == path)
        }
    };
    let is_kernel = |file: &&Source| {
        kernel.contains(&&*file.module)
            || file.path.starts_with("store/memory")
            || is_wire(&file.path)
    };
    for file in Source::all().iter().filter(is_kernel) {
        for what in by_others
            .iter()
            .filter(|what| !(figures.contains(&&*file.path) && what.ends_with("atomic")))
        {
            file.lacks(what);
        }
    }
}

#[test]
fn few_files_know_the_redis_crate() {
    for file in Source::all() {
        let first = file.words_after("redis::").map(|(place, _)| place).next();
        assert_eq!(
            first.is_some(),
            KNOW_REDIS.contains(&&*file.path),
            "src/{}: {first:?}",
            file.path
        );
    }
}

/// A logger is code of the user and may panic. The macros of `base/log.rs` catch that, those of the
/// crate `log` do not, and the two look alike where they are called.
#[test]
fn log_lines_are_written_by_the_macros_that_catch_panics() {
    let of_the_library = |file: &&Source| file.module != "cli" && file.path != "base/log.rs";
    let mut writers = 0;
    for file in Source::all().iter().filter(of_the_library) {
        let writes = file
            .words_after("log::")
            .any(|(_, word)| ["warn", "info", "debug", "line"].contains(&word));
        let imports = file.code.iter().any(|(_, line)| line == "use crate::base::log;");
        assert!(!writes || imports, "src/{} writes to the log: use crate::base::log", file.path);
        writers += u32::from(writes);
        for own in ["log::error!", "log::trace!", "log::log!", "log_enabled!", " ::log::"] {
            file.lacks(own);
        }
    }
    assert!(writers > 20, "the log lines are found");
}
