//! Waiting for the first of several connections that has input.

#[cfg(unix)]
use std::os::fd::AsFd;
use std::time::Duration;

/// Which sockets can be read or have ended. Waits at most `timeout` for the first. Bytes that a
/// parser has read ahead do not count.
#[cfg(unix)]
pub(super) fn readable(streams: &[&impl AsFd], timeout: Duration) -> Vec<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds: Vec<PollFd<'_>> = streams.iter().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) => fds.iter().map(|fd| !fd.revents().is_empty()).collect(),
        // A signal; the caller checks its deadline and polls again.
        Err(_) => vec![false; streams.len()],
    }
}

/// Whether one socket can be read now or has ended. Allocates nothing, because it runs before every
/// request.
#[cfg(unix)]
pub(super) fn is_readable(stream: &impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&at_once)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            // Its state is unknown, so the connection must not be used.
            Err(_) => return true,
        }
    }
}

/// Without poll, the caller reads each in turn, each with its own timeout.
#[cfg(not(unix))]
pub(super) fn readable<S>(streams: &[&S], _timeout: Duration) -> Vec<bool> {
    vec![true; streams.len()]
}
