//! The arguments of `leasehold top`.

use std::time::Duration;

use crate::looks;

const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

const DETAILS: &str = "\
Columns: the name; the kind of lock; who holds it, by the owner's name (or the holder's id), and how many more do; for
how long; when its lease ends unless it is renewed; how many wait (in Redis, except for fair locks: clients, not
threads); how often it was granted, per second, during the last minute; for a semaphore, the free permits and all
permits; for a latch, the remaining count; with Redlock, on how many masters it is held. A narrow terminal shows fewer
columns.

The rate counts fencing tokens: each grant draws one, also between two polls. It is a little too high where a client
draws some in advance for its threads and does not use them. Without tokens (Java locks, Redlock, ZooKeeper, semaphores,
and programs that have turned them off) it counts holders that the previous poll did not show: at most one for each
poll, which is too low.

Keys: the arrow keys, PgUp, PgDn, Home and End select a lock; s sorts by the next column, r reverses the order; / shows
only the names that contain a text; space pauses; q, Esc and Ctrl-C quit. While the store cannot be queried, its last
answer stays on the screen, in grey.

Each poll lists the locks as `leasehold ls` does, whose help describes its cost and what it does not list. The pause
after a poll is at least ten times as long as the poll took, to leave the store to others, so a large list is polled
less often than --interval says. With --all the names that `ls --all` finds are shown as well: it searches once, before
the first poll. With --json, each poll is one JSON object on one line, until the reader leaves or a signal arrives.";

/// Show all locks, live
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct TopArgs {
    /// The names to show: `*` is any text, `?` one character, `[a-c]` one of these
    #[arg(default_value = "*")]
    pub(super) pattern: String,

    /// The time from one poll to the next: 100ms or more
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1s")]
    pub(super) interval: Duration,

    /// Also show the locks of other libraries, which one search over all keys finds at the start.
    /// It slows down other clients of a large Redis
    #[arg(long)]
    pub(super) all: bool,

    /// The column by which the locks are sorted
    #[arg(long, value_enum, default_value = "name")]
    pub(super) sort: Sort,

    /// Print each poll as one JSON object on one line
    #[arg(long)]
    pub(super) json: bool,
}

/// The sort order: the largest first, except for names and remaining leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Sort {
    Name,
    Held,
    Left,
    Waiting,
    Rate,
}

impl Sort {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Name => Self::Held,
            Self::Held => Self::Left,
            Self::Left => Self::Waiting,
            Self::Waiting => Self::Rate,
            Self::Rate => Self::Name,
        }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    looks::interval(text, SHORTEST_INTERVAL)
}
