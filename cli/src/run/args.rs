//! The arguments of `leasehold run`.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueHint;

use crate::failure::status;
use crate::{duration, permits};

/// Maximum number of characters in an owner's label.
const LONGEST_LABEL: usize = 100;

const DETAILS: &str = "\
Example: leasehold run nightly --no-wait -- /usr/local/bin/backup --full

The lock is renewed while the command runs and released when it ends. The exit status is that of the command, or 128 + n
if signal n ended it. leasehold itself exits with 75, or the status of --conflict-status, if somebody else holds the
lock (stderr says who), 70 if the lock was lost, 69 if the store is unavailable, 64 for bad arguments, 76 if the store
cannot keep this lock (a lock of another kind has its name, or --permits differs from the number that was set), 77 if it
refuses the login, 126 if the command cannot be executed, and 127 if it was not found.

Cron: this line for a crontab on every machine runs the job on one of them, and is silent on the others:

  5 3 * * * $HOME/.cargo/bin/leasehold run nightly -nq --conflict-status 0 --min-hold 5m --retry-store 10m -- /opt/job.sh

cron looks for commands in /usr/bin and /bin alone, but `cargo install` puts leasehold into ~/.cargo/bin: give the path.
LEASEHOLD_URL=redis://cache/ is a line of its own above it. --min-hold is longer than the clocks of the machines differ.
In a crontab a % ends the line: write \\%.

COMMAND is a program with its arguments, and not a line for a shell: for `a && b`, a pipe or a variable, say
-- sh -c 'a && b'.

Once: with --once the success of a command is recorded, and no other run does the same occurrence again, however late it
comes. This line for a crontab on every machine makes a report at two in the morning in UTC:

  0 2 * * * $HOME/.cargo/bin/leasehold run -nq --conflict-status 0 --once report --every 1d --offset 2h -- /opt/job.sh

If the machine dies in the command, another run does it again: so several lines, at 2:00, 2:10 and 2:20, try again, and
do nothing if it was done. Without --no-wait a run waits until another one has done it, or has failed. The command's
environment also contains LEASEHOLD_OCCURRENCE and LEASEHOLD_ATTEMPT. Status 70: the command has ended well, but another
run may do it again. If all --attempts are used up, it says so and ends with 75, whatever --quiet and --conflict-status
say.

Waiting: without --wait or --no-wait, it waits as long as it takes, as flock does. At a terminal, or with --verbose, it
says on stderr who holds the lock. A signal ends the wait and leaves nothing behind. Two waits that could never succeed
are refused at once: for a name under which the store keeps something other than a lock (76), and for a lock that is
held by a `leasehold run` above this one (75).

If the store is unavailable when the run begins, the run fails with status 69 within milliseconds, whatever --wait says:
--wait is for locks that others hold. --retry-store TIME retries for that long. If the store becomes unavailable while
the run waits, the run goes on waiting, until the time of --wait is over (69).

The command's environment contains LEASEHOLD_NAME and, for an exclusive lock, LEASEHOLD_TOKEN: the fencing token, which
is larger than that of every earlier holder. A resource that remembers the largest token can refuse a late writer.
LEASEHOLD_URL is passed on only if it contains no password.";

/// What holds on every system, and then what holds on this one.
fn details() -> String {
    format!("{DETAILS}\n\n{}", super::help::ON_THIS_SYSTEM)
}

/// Run a command under a lock
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = details())]
pub(crate) struct RunArgs {
    /// The name of the lock
    #[arg(required_unless_present = "once")]
    pub(super) name: Option<String>,

    /// Run the command once for this occurrence of the job KEY, whoever else starts it: a label,
    /// such as 2026-11-23, of which later ones are greater, or with --every the last fire time. A
    /// command that fails is tried again by the next run, --attempts times in all. If it was done,
    /// the status is 0
    #[arg(long, value_name = "KEY[=OCCURRENCE]", conflicts_with_all = ["name", "kind", "min_hold", "data"])]
    pub(super) once: Option<Once>,

    // Clap drops a requirement that the name excludes, so each of these excludes the name as well.
    /// The job is due at the multiples of this time, by the clock of the store, in UTC (1h, 1d)
    #[arg(long, value_name = "TIME", value_parser = duration::parse, requires = "once", conflicts_with = "name")]
    pub(super) every: Option<Duration>,

    /// The job is due so much later than the multiples of --every
    #[arg(long, value_name = "TIME", value_parser = duration::parse, requires = "every", conflicts_with = "name")]
    pub(super) offset: Option<Duration>,

    /// A run that begins so much before a fire time means that one. Defaults to 30s, or a tenth of
    /// --every if that is less
    #[arg(long, value_name = "TIME", value_parser = duration::parse, requires = "every", conflicts_with = "name")]
    pub(super) early: Option<Duration>,

    /// A run that begins later than this after the fire time does nothing. Defaults to --every
    #[arg(long, value_name = "TIME", value_parser = duration::parse, requires = "every", conflicts_with = "name")]
    pub(super) grace: Option<Duration>,

    /// How often the command of one occurrence is tried
    #[arg(long, value_name = "N", default_value = "3", requires = "once", conflicts_with = "name")]
    pub(super) attempts: u32,

    /// How long the store remembers an occurrence. The newest one is remembered for a year
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "1d", requires = "once", conflicts_with = "name")]
    pub(super) keep: Duration,

    /// Wait at most this long for the lock (500ms, 30s, 5m, 1h30m). Without --wait or --no-wait,
    /// wait as long as it takes
    #[arg(long, short, value_name = "TIME", value_parser = duration::parse)]
    pub(super) wait: Option<Duration>,

    /// Do not wait: exit with status 75 if somebody else holds the lock
    #[arg(long, short, conflicts_with = "wait")]
    pub(super) no_wait: bool,

    /// The exit status if somebody else holds the lock, instead of 75. With 0, a cron job that
    /// comes second does not count as a failure
    #[arg(long, value_name = "N", default_value = "75", hide_default_value = true)]
    pub(super) conflict_status: u8,

    /// Do not say who holds the lock, nor that the store is retried. Errors are still reported
    #[arg(long, short, conflicts_with = "verbose")]
    pub(super) quiet: bool,

    /// Say who holds the lock while waiting, even if stderr is not a terminal
    #[arg(long, short)]
    pub(super) verbose: bool,

    /// If the store is unavailable at the start, retry for this long. Without it, the run fails at
    /// once with status 69
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(super) retry_store: Option<Duration>,

    /// Take a fair lock: waiters get it in the order in which they came
    #[arg(long, group = "kind")]
    pub(super) fair: bool,

    /// Take a read lock, which other --read runs share. It excludes --write runs
    #[arg(long, group = "kind", conflicts_with = "min_hold")]
    pub(super) read: bool,

    /// Take a write lock, which excludes --read and --write runs. All runs with this name must give
    /// --read or --write: without them, the lock is of another kind
    #[arg(long, group = "kind")]
    pub(super) write: bool,

    /// Take one of N permits: at most N commands run at a time. The first run sets the number, and
    /// `leasehold permits` changes it. A run that gives another N is refused with status 76
    #[arg(long, group = "kind", value_name = "N", value_parser = permits::number(), conflicts_with = "min_hold")]
    pub(super) permits: Option<u32>,

    /// If the number of permits was set to another one than that of --permits, run with the one
    /// that was set
    #[arg(long, requires = "permits")]
    pub(super) permits_as_set: bool,

    /// How long the lock stays taken if this machine or process dies. It is renewed every third of
    /// this time
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "30s")]
    pub(super) lease: Duration,

    /// End a command that takes longer than this: the lock is then no longer renewed, is lost at
    /// most one lease later, and the command is ended as for any lost lock
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(super) max_hold: Option<Duration>,

    /// Keep the lock taken for at least this time, even if the command ends earlier, or fails: for
    /// jobs that many machines start at about the same time. Not with ZooKeeper
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(super) min_hold: Option<Duration>,

    /// Only if the command succeeds: after a failure the lock is free at once, so that another
    /// machine can do the job (with --min-hold)
    #[arg(long, requires = "min_hold")]
    pub(super) min_hold_on_success: bool,

    /// The time between SIGTERM and SIGKILL for a command whose lock was lost. On Windows, which
    /// has no such signals, the command is ended at once
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "10s")]
    pub(super) kill_after: Duration,

    /// What others see of the holder in `ls` and `show`: at most 1024 bytes. A plain or a fair lock
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["read", "write", "permits"])]
    pub(super) data: Option<String>,

    /// Ends the command while the lease still lasts, if that is not renewed: for `lead`.
    #[arg(skip)]
    pub(super) ends_before_its_lease: bool,

    /// The owner's name that others see: 1 to 100 characters. Defaults to the name of the command
    #[arg(long, value_name = "LABEL")]
    pub(super) owner: Option<String>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(super) command: Vec<OsString>,
}

/// How long to wait for the lock.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wait {
    Not,
    AtMost(Duration),
    ForEver,
}

impl Wait {
    /// The rest of a wait that began at `start`.
    pub(super) fn left(self, start: Instant) -> Self {
        match self {
            Self::AtMost(longest) => Self::AtMost(longest.saturating_sub(start.elapsed())),
            wait => wait,
        }
    }

    pub(super) fn most(self) -> Duration {
        match self {
            Self::Not => Duration::ZERO,
            Self::AtMost(longest) => longest,
            // A time that is longer than the clock can count means no deadline.
            Self::ForEver => Duration::MAX,
        }
    }
}

/// A job, and the label of an occurrence if it has one.
#[derive(Debug, Clone)]
pub(crate) struct Once {
    pub(crate) key: String,
    pub(crate) label: Option<String>,
}

impl std::str::FromStr for Once {
    type Err = std::convert::Infallible;

    /// No label has an equals sign.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.rsplit_once('=') {
            Some((key, label)) => Self { key: key.to_owned(), label: Some(label.to_owned()) },
            None => Self { key: text.to_owned(), label: None },
        })
    }
}

impl RunArgs {
    /// A run of this command under a plain lock, with the default settings.
    pub(super) fn of(name: &str, command: &[OsString]) -> Self {
        Self {
            name: Some(name.to_owned()),
            once: None,
            every: None,
            offset: None,
            early: None,
            grace: None,
            attempts: 0,
            keep: Duration::ZERO,
            wait: None,
            no_wait: false,
            conflict_status: status::NOT_HAD,
            quiet: false,
            verbose: false,
            retry_store: None,
            fair: false,
            read: false,
            write: false,
            permits: None,
            permits_as_set: false,
            lease: Duration::ZERO,
            max_hold: None,
            min_hold: None,
            min_hold_on_success: false,
            kill_after: Duration::ZERO,
            data: None,
            ends_before_its_lease: false,
            owner: None,
            command: command.to_vec(),
        }
    }

    /// The name of the lock, or of the job.
    pub(super) fn name(&self) -> &str {
        let once = self.once.as_ref().map(|once| &once.key);
        self.name.as_ref().or(once).map_or("", String::as_str)
    }

    pub(super) fn wait(&self) -> Wait {
        match self.wait {
            Some(longest) => Wait::AtMost(longest),
            None if self.no_wait => Wait::Not,
            None => Wait::ForEver,
        }
    }

    /// Whether to say who holds the lock while waiting.
    pub(super) fn says_who(&self) -> bool {
        !self.quiet && (self.verbose || std::io::stderr().is_terminal())
    }

    pub(super) fn owner(&self) -> String {
        let file_name =
            |path: &OsString| Some(Path::new(path).file_name()?.to_string_lossy().into_owned());
        let of_command = || {
            let name = self.command.first().and_then(file_name).unwrap_or_default();
            let name: String =
                name.chars().filter(|c| !c.is_control()).take(LONGEST_LABEL).collect();
            if name.is_empty() { "leasehold".to_owned() } else { name }
        };
        self.owner.clone().unwrap_or_else(of_command)
    }
}
