//! The arguments of `leasehold run`.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use crate::duration;

/// The longest label of an owner.
const LONGEST_LABEL: usize = 100;

const DETAILS: &str = "\
Example: leasehold run nightly --no-wait -- /usr/local/bin/backup --full

The lock is renewed while the command runs, and given up when it ends. The status is the command's, or 128 + n if signal n
ended it. Statuses of leasehold itself: 75 if somebody else has the lock (stderr says who), 70 if the lock was lost, 69 if the
store cannot be asked, 64 for bad arguments, 76 if the store cannot keep this lock, 77 if it refuses the log-in, 126 if the
command cannot be executed, 127 if it was not found.

Waiting: without --wait and --no-wait it waits for as long as it takes, as flock does. A signal ends the wait and leaves
nothing behind.

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

impl RunArgs {
    pub(super) fn wait(&self) -> Wait {
        match self.wait {
            Some(longest) => Wait::AtMost(longest),
            None if self.no_wait => Wait::Not,
            None => Wait::ForEver,
        }
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
