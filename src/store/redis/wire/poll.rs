//! Waiting for whichever of several connections answers first.

#[cfg(unix)]
use std::os::fd::AsFd;
use std::time::Duration;

/// Which of the sockets can be read, or have ended; waits for `timeout` at most until one can. What a parser has read
/// ahead does not show.
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
        // A signal; whoever asks looks at the clock and asks again.
        Err(_) => vec![false; streams.len()],
    }
}

/// Whether one socket can be read now, or has ended. Without the allocations: it is asked before every request.
#[cfg(unix)]
pub(super) fn is_readable(stream: &impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&at_once)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            // Nothing is known of it, so it is not to be trusted.
            Err(_) => return true,
        }
    }
}

/// Without a way to ask, each is read in its turn, for its own timeout at most.
#[cfg(not(unix))]
pub(super) fn readable<S>(streams: &[&S], _timeout: Duration) -> Vec<bool> {
    vec![true; streams.len()]
}
