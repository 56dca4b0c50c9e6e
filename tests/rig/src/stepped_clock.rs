//! A server's clock that a test sets forward or back, as an administrator or NTP would. `libfaketime`
//! cannot be loaded beside the allocator of Debian's Redis, so a library of our own is loaded before
//! the C library. It is compiled by the linker that Rust needs in any case.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Wall-clock time is shifted by the seconds in a file; all other clocks go on as they are.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long step(void) {
    static volatile const long *at;
    if (!at) {
        int file = open(getenv("LEASEHOLD_CLOCK"), O_RDONLY);
        at = mmap(0, sizeof *at, PROT_READ, MAP_SHARED, file, 0);
        close(file);
    }
    return *at;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += step();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec fine;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &fine)) return -1;
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    if (now) *now = fine.tv_sec;
    return fine.tv_sec;
}
"#;

/// The clock of one server.
pub(super) struct SteppedClock {
    library: PathBuf,
    seconds: PathBuf,
}

impl SteppedClock {
    /// In a directory of the server.
    pub(super) fn new(dir: &Path) -> Self {
        let clock = Self { library: dir.join("clock.so"), seconds: dir.join("clock") };
        let source = dir.join("clock.c");
        fs::write(&source, SOURCE).unwrap();
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&clock.library, &source])
            .output();
        let compiled = compiled.expect("`cc`, with which Rust links");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        clock.step(0);
        clock
    }

    /// From now on it is this many seconds ahead of the machine's.
    pub(super) fn step(&self, seconds: i64) {
        let file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.seconds)
            .unwrap();
        // In place, because the server has mapped the file.
        file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    /// To be called for the command that starts the server.
    pub(super) fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("LEASEHOLD_CLOCK", &self.seconds);
    }
}
