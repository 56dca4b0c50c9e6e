//! A second process, which ends the command if this one is killed: by SIGKILL, for want of memory,
//! by a fault. Otherwise the command would go on without renewal, and run beside the next holder of
//! its lock as soon as the lease has ended.
//!
//! It is the same program, which reads a pipe that only the run has open for writing: the command's
//! process group and the end of the lease, again and again. If the pipe ends, the run is dead: a
//! run that has ended its command kills this process first. If the run has died before it could
//! name the group, that is found by a [mark](super::marked).

use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::io::ioctl_fionbio;
use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};

use super::{group, marked};
use crate::failure::say;
use crate::run::args::RunArgs;
use crate::{duration, stderr};

/// The argument that makes this program a backstop.
const ROLE: &str = "__backstop";
/// Its name for `ps`. `pkill leasehold` and `killall leasehold` do not find it, or SIGKILL from one
/// of them would end both processes, and the command would go on.
const NAME: &str = "lh-backstop";
/// In the environment of a command: the longest grace of a run that is started there, in
/// milliseconds. The backstop above kills such a run, and only then does that run's own backstop
/// begin to end its command.
const GRACE_VARIABLE: &str = "LEASEHOLD_LONGEST_GRACE";
/// The part of a lease that such a run gets. A killed run leaves a third of it at least, because a
/// healthy hold has five twelfths left when it is renewed (over ZooKeeper), and that was
/// [noted](super::oversee) a twelfth ago; and a half of that is left when the backstop kills.
const PART_BELOW: u32 = 8;

/// For how long the command of a run is searched for that was killed while it started it.
const LONGEST_SEARCH: Duration = Duration::from_secs(10);

/// The run's end of the pipe.
pub(super) struct Backstop {
    process: std::process::Child,
    pipe: ChildStdin,
    /// For the environment of the command. No other run has it.
    mark: String,
}

impl Backstop {
    /// To be called before the command is started.
    pub(super) fn start(args: &RunArgs) -> std::io::Result<Self> {
        let mark = format!("{}-{}", std::process::id(), clock().as_nanos());
        let mut command = Command::new(own_program()?);
        command.arg0(NAME).args([ROLE, args.name(), &in_millis(grace(args)), &mark]);
        // A group of its own: what a shell or a terminal sends to the run is not for it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        // It inherits the mask, so there is no moment at which a signal other than SIGKILL ends it.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let started = command.spawn();
        before.thread_set_mask()?;
        let mut process = started?;
        let pipe = process.stdin.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        // Somebody may stop it, and the pipe is full one day.
        ioctl_fionbio(&pipe, true)?;
        Ok(Self { process, pipe, mark })
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// What the command must have in its environment.
    pub(super) fn mark(&self) -> (&'static str, &str) {
        (marked::VARIABLE, &self.mark)
    }

    /// If this process is killed from now on, the group has ended when a lease has that ends in
    /// `left`. To be called before the command is started (its group is unknown then, and searched
    /// for; only on Linux), as soon as it was started, and from time to time.
    pub(super) fn protect(&mut self, group: Option<Pid>, left: Duration) {
        let line = format!("{} {}\n", Pid::as_raw(group), (clock() + left).as_millis());
        // A line as short as that is written as a whole, or not at all. It fails if the backstop
        // was killed, which the run notices by the signal, or stopped.
        let _ = self.pipe.write(line.as_bytes());
    }

    /// The command has ended. Not to be called once somebody has waited for the process: its id may
    /// belong to another one.
    pub(super) fn dismiss(mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The time between SIGTERM and SIGKILL, if the lease lasts long enough.
fn grace(args: &RunArgs) -> Duration {
    let above = std::env::var(GRACE_VARIABLE).ok().and_then(|above| duration::parse(&above).ok());
    args.kill_after.min(above.unwrap_or(Duration::MAX))
}

/// What the command passes on to the runs that it starts.
pub(super) fn for_runs_below(args: &RunArgs) -> (&'static str, String) {
    // Half of its own, because there may be runs below those.
    (GRACE_VARIABLE, in_millis((args.lease / PART_BELOW).min(grace(args) / 2)))
}

fn in_millis(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

/// The same in all processes, unlike an [`Instant`]. It counts the time that the machine sleeps, as
/// leases do.
fn clock() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "openbsd"))]
    const COUNTS_SLEEP: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "openbsd")))]
    const COUNTS_SLEEP: ClockId = ClockId::Monotonic;
    Duration::try_from(clock_gettime(COUNTS_SLEEP)).unwrap_or_default()
}

/// Also after the file was replaced or removed, by an upgrade.
fn own_program() -> std::io::Result<OsString> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe().map(Into::into)
}

/// If this process was started as a backstop: is one, and returns its exit status.
pub(crate) fn be_backstop() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    let mut next = || Some(arguments.next()?.to_string_lossy().into_owned());
    let name = next()?;
    let grace = duration::parse(&next()?).ok()?;
    let mark = next()?;
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(c"lh-backstop");
    if let Some(left) = left_by_a_run(std::io::stdin().lock())
        && let Some(group) = left.find(&mark)
    {
        // Nobody may read stderr.
        if stderr::write_on_a_thread().is_ok() {
            say(format_args!("{name}: this run was killed, so the command is ended"));
        }
        left.end(group, grace, clock);
        stderr::wait_until_written(stderr::PATIENCE);
    }
    Some(ExitCode::SUCCESS)
}

/// What a killed run leaves behind.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    /// None if the run was killed while it started the command.
    group: Option<Pid>,
    /// By [`clock`]. It may end later, if it was renewed since.
    lease_end: Duration,
}

impl Left {
    fn parse(line: &str) -> Option<Self> {
        let (group, end) = line.split_once(' ')?;
        let lease_end = Duration::from_millis(end.parse().ok()?);
        Some(Self { group: Pid::from_raw(group.parse().ok()?), lease_end })
    }

    /// None if there is no command, perhaps because none was started.
    fn find(&self, mark: &str) -> Option<Pid> {
        let half = self.lease_end.saturating_sub(clock()) / 2;
        self.group.or_else(|| marked::find(mark, Instant::now() + half.min(LONGEST_SEARCH)))
    }

    /// Half of what is left of the lease is for a slow machine, and for runs below.
    fn end(&self, group: Pid, grace: Duration, clock: impl Fn() -> Duration) {
        let now = clock();
        let grace = grace.min(self.lease_end.saturating_sub(now) / 2);
        // Others may have the lock by now: a command that is stopped must not go on.
        if !grace.is_zero() {
            group::ask_to_end(group);
        }
        // Who has inherited its processes waits for them.
        group::end(group, || clock() >= now + grace, || ());
    }
}

/// Blocks for as long as the run lives. `None` if it has started no command.
fn left_by_a_run(pipe: impl BufRead) -> Option<Left> {
    pipe.lines().map_while(Result::ok).filter_map(|line| Left::parse(&line)).last()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::BufReader;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn the_last_end_of_the_lease_counts() {
        let left = |group, end| {
            Some(Left { group: Pid::from_raw(group), lease_end: Duration::from_millis(end) })
        };
        for (said, expected) in [
            ("", None),
            ("0 3000\n", left(0, 3000)),
            ("0 3000\n17 3000\n", left(17, 3000)),
            ("17 3000\n17 3500\n", left(17, 3500)),
            ("17", None),
        ] {
            assert_eq!(left_by_a_run(said.as_bytes()), expected, "{said:?}");
        }
    }

    /// The machine slept for an hour after the command was asked to end, which it ignores.
    #[test]
    fn a_grace_goes_on_while_the_machine_sleeps() {
        const HOUR: Duration = Duration::from_secs(3600);
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo ready; read end"]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let _ = BufReader::new(process.stdout.take().unwrap()).read_line(&mut String::new());
        let group = Pid::from_child(&process);
        let (ended, end) = mpsc::channel();
        thread::spawn(move || {
            let now = Cell::new(HOUR);
            let left = Left { group: Some(group), lease_end: HOUR * 3 };
            left.end(group, HOUR, || now.replace(now.get() + HOUR));
            let _ = ended.send(());
        });
        let has_ended = end.recv_timeout(Duration::from_secs(60));
        let _ = process.kill();
        // Another test of this process may have waited for all children, as a run does.
        let _ = process.wait();
        assert_eq!(has_ended, Ok(()));
    }
}
