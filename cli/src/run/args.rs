//! The arguments of `leasehold run`.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::duration;

/// The longest label of an owner.
const LONGEST_LABEL: usize = 100;

const DETAILS: &str = "\
Example: leasehold run nightly --no-wait -- /usr/local/bin/backup --full

The lock is renewed while the command runs, and given up when it ends. The status is the command's, or 128 + n if signal n
ended it. Statuses of leasehold itself: 75, or that of --conflict-status, if somebody else has the lock (stderr says who), 70 if the lock was lost, 69 if the
store cannot be asked, 64 for bad arguments, 76 if the store cannot keep this lock, 77 if it refuses the log-in, 126 if the
command cannot be executed, 127 if it was not found.

Waiting: without --wait and --no-wait it waits for as long as it takes, as flock does. At a terminal, and with --verbose, it says
on stderr for whom. A signal ends the wait and leaves nothing behind. What can never be had is refused at once: a name under
which something that is no lock stands (76), and a lock that is held by a `leasehold run` above this one (75).

A store that cannot be asked when the run begins ends it with status 69 within milliseconds, whatever --wait says: that counts
for locks that others have. --retry-store TIME asks again for so long. A store that goes away while the run waits is waited for.

The command's environment has LEASEHOLD_NAME and, for an exclusive lock, LEASEHOLD_TOKEN: the fencing token, larger than that
of every earlier holder. A resource that remembers the largest one can refuse a late writer. LEASEHOLD_URL is handed on only
if it has no password.

A lost lock (its lease could not be renewed, somebody freed it by force, --max-hold is over): the command's process group gets
SIGTERM, and SIGKILL after --kill-after. If the store goes away while the command runs, renewal is tried again until the
lease ends.

Signals: the command runs in a process group of its own, which is the foreground group if stdin, stdout and stderr are
terminals. If only stdin is (`leasehold run ... | less`), it becomes that as soon as the command reads the terminal or changes
its settings, and until others of the pipeline do. SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to that
group, except those that were ignored from the start (nohup; seen on Linux). When the command is stopped at a terminal
(Ctrl-Z), leasehold stops too, and the lease may end: then the command is ended when it is continued. A command that is stopped
otherwise keeps its lock.

If leasehold itself is killed by SIGKILL, the command goes on without renewal, and the lock is free when the lease has ended:
let the resource check the token. On Linux `-- setpriv --pdeathsig TERM command` ends the command in that case. What a
command leaves running in the background is no longer under the lock once the command itself has ended.";

/// Run a command under a lock
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct RunArgs {
    /// The name of the lock
    pub(super) name: String,

    /// Wait for the lock no longer than this (500ms, 30s, 5m, 1h30m). Without it and --no-wait,
    /// wait for as long as it takes
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    wait: Option<Duration>,

    /// Do not wait: exit with status 75 if somebody else has the lock
    #[arg(long, conflicts_with = "wait")]
    no_wait: bool,

    /// The status if somebody else has the lock, in place of 75; with 0 a cron line that comes
    /// second is no failure
    #[arg(long, value_name = "N", default_value = "75", hide_default_value = true)]
    pub(super) conflict_status: u8,

    /// Do not say who has the lock. What has gone wrong is still said
    #[arg(long, short, conflicts_with = "verbose")]
    pub(super) quiet: bool,

    /// Say for whom it waits, also if stderr is no terminal
    #[arg(long, short)]
    verbose: bool,

    /// If the store cannot be asked at the start, ask again for so long. Without it the run fails
    /// at once with status 69
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(super) retry_store: Option<Duration>,

    /// Take a fair lock: those who wait get it in the order in which they came
    #[arg(long, group = "kind")]
    pub(super) fair: bool,

    /// Take a read lock, which others that --read share; it keeps out those that --write
    #[arg(long, group = "kind", conflicts_with = "min_hold")]
    pub(super) read: bool,

    /// Take a write lock, which keeps out those that --read and those that --write. All runs of
    /// this name must say --read or --write: without, the lock is of another kind
    #[arg(long, group = "kind")]
    pub(super) write: bool,

    /// Take one of N permits: at most N commands run at a time. All runs of this name say the same
    /// N
    #[arg(long, group = "kind", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)),
          conflicts_with = "min_hold")]
    pub(super) permits: Option<u32>,

    /// How long the lock stays taken if this machine or process dies. Renewed at every third of it
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "30s")]
    pub(super) lease: Duration,

    /// End a command that takes longer: after this time the lock is not renewed any more, is lost
    /// up to one lease later, and the command is ended as with any lost lock
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(super) max_hold: Option<Duration>,

    /// Keep the lock taken for at least this time, even if the command ends earlier: for jobs that
    /// many machines start at about the same time. Not over ZooKeeper
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(super) min_hold: Option<Duration>,

    /// After a lost lock: how long the command has between SIGTERM and SIGKILL
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "10s")]
    pub(super) kill_after: Duration,

    /// Who others are told has the lock: 1 to 100 characters. Without it the name of the command
    #[arg(long, value_name = "LABEL")]
    owner: Option<String>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// For how long to wait for the lock.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wait {
    Not,
    AtMost(Duration),
    ForEver,
}

impl Wait {
    /// What is left of it, if it began at `start`.
    pub(super) fn left(self, start: Instant) -> Self {
        match self {
            Self::AtMost(longest) => Self::AtMost(longest.saturating_sub(start.elapsed())),
            wait => wait,
        }
    }
}

impl RunArgs {
    pub(super) fn wait(&self) -> Wait {
        match self.wait {
            Some(longest) => Wait::AtMost(longest),
            None if self.no_wait => Wait::Not,
            None => Wait::ForEver,
        }
    }

    /// Whether to say for whom it waits.
    pub(super) fn says_who(&self) -> bool {
        !self.quiet && (self.verbose || std::io::stderr().is_terminal())
    }

    pub(super) fn owner(&self) -> String {
        let file_name = |path: &OsString| Some(Path::new(path).file_name()?.to_string_lossy().into_owned());
        let of_command = || {
            let name = self.command.first().and_then(file_name).unwrap_or_default();
            let name: String = name.chars().filter(|c| !c.is_control()).take(LONGEST_LABEL).collect();
            if name.is_empty() { "leasehold".to_owned() } else { name }
        };
        self.owner.clone().unwrap_or_else(of_command)
    }
}
