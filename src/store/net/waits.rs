//! Waiting for sockets, and not waiting: for the first of several that has input, until a deadline,
//! or not at all.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::Duration;
#[cfg(unix)]
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
// On Windows it stands for `AsSocket`.
use rustix::fd::AsFd;

/// The longest wait of one poll: a longer one does not fit into the type that some systems have for
/// it. Callers check their deadline and poll again.
const LONGEST_POLL: Duration = Duration::from_secs(86_400);

/// Which sockets can be read or have ended. Waits at most `timeout` for the first. Bytes that a
/// parser has read ahead do not count.
pub(crate) fn readable(streams: &[&impl AsFd], timeout: Duration) -> Vec<bool> {
    let mut fds: Vec<PollFd<'_>> =
        streams.iter().map(|stream| PollFd::new(*stream, PollFlags::IN)).collect();
    match poll(&mut fds, Some(&timespec(timeout))) {
        Ok(_) => fds.iter().map(|fd| !fd.revents().is_empty()).collect(),
        // A signal; the caller checks its deadline and polls again.
        Err(_) => vec![false; streams.len()],
    }
}

/// Whether one socket can be read now or has ended. It runs before every request, so it allocates
/// nothing and uses the cheapest system call for this.
#[cfg(unix)]
pub(crate) fn is_readable(stream: &impl AsFd) -> bool {
    let flags = rustix::net::RecvFlags::DONTWAIT | rustix::net::RecvFlags::PEEK;
    // After another error its state is unknown, so the connection must not be used. No signal
    // interrupts a call that does not wait.
    !matches!(rustix::net::recv(stream, &mut [0; 1][..], flags), Err(rustix::io::Errno::AGAIN))
}

/// Whether one socket can be read now or has ended. No read of Winsock leaves the mode of the
/// socket alone and does not wait, and in another mode a write of another thread would fail.
#[cfg(windows)]
pub(crate) fn is_readable(stream: &impl AsFd) -> bool {
    // After an error its state is unknown, so the connection must not be used.
    !matches!(
        poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&timespec(Duration::ZERO))),
        Ok(0)
    )
}

/// One read that waits for input until `deadline`. After that it does not wait, but still reads: a
/// process that was stopped meanwhile finds what has arrived.
///
/// For unix sockets, where a read with a timeout costs more on Linux although it is one system call
/// and not two: whenever the other end takes what was sent to it, the kernel wakes a thread that
/// sleeps in a read of the socket, in vain. A thread that sleeps in poll is woken only by input.
#[cfg(unix)]
pub(crate) fn read_until(
    stream: &impl AsFd,
    buffer: &mut [u8],
    deadline: Instant,
) -> io::Result<usize> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&timespec(left))) {
            Ok(0) if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            // A signal, such as the one that continues a process that was stopped.
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => {
                let flags = rustix::net::RecvFlags::DONTWAIT;
                match rustix::net::recv(stream, &mut *buffer, flags) {
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                    read => return Ok(read?.1),
                }
            }
            Err(e) => return Err(e.into()),
        }
    }
}

fn timespec(timeout: Duration) -> Timespec {
    Timespec::try_from(timeout.min(LONGEST_POLL)).expect("a day is short enough")
}

/// One read with the timeout of the socket.
#[cfg(unix)]
pub(super) fn read_in_time(mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    stream.read(buffer)
}

/// One read with the timeout of the socket. Winsock does not promise that the connection can still
/// be used after a read that has timed out: what arrived at that time may be lost. So the timeout
/// ends a poll, and never a read. A socket without a timeout does not wait,
/// see [`set_nonblocking`](super::stream::Stream::set_nonblocking).
#[cfg(windows)]
pub(super) fn read_in_time(mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    if let Some(timeout) = stream.read_timeout()?
        && poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&timespec(timeout)))? == 0
    {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.read(buffer)
}

/// One read that does not wait, whatever the socket's timeouts; `WouldBlock` if nothing has
/// arrived.
#[cfg(unix)]
pub(crate) fn read_now(stream: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let flags = rustix::net::RecvFlags::DONTWAIT;
    Ok(rustix::io::retry_on_intr(|| rustix::net::recv(stream, &mut *buffer, flags))?.1)
}

/// One read that does not wait, whatever the socket's timeouts; `WouldBlock` if nothing has
/// arrived. What has arrived is still there after the poll, because only one thread reads a
/// connection at a time.
#[cfg(windows)]
pub(crate) fn read_now(mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    if is_readable(stream) { stream.read(buffer) } else { Err(io::ErrorKind::WouldBlock.into()) }
}
