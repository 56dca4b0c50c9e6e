//! The arguments of `leasehold top`.

use std::time::Duration;

use crate::looks;

const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

const DETAILS: &str = "\
Columns: the name; what kind of lock it is; who holds it, as its owner says (or the id of the holder), and how many more; for
how long; when its lease ends unless it is renewed; how many wait (in Redis, except for fair locks: clients, not threads); how
often it was granted, per second, during the last minute; of a semaphore the permits that are free and all of them, of a latch
what is left to count; with Redlock, on how many masters it stands. A narrow terminal shows fewer columns.

The rate counts fencing tokens: each grant draws one, also between two looks. It is a little too high where a client draws some
for its threads in advance and does not use them. Without tokens (locks of Java, Redlock, ZooKeeper, semaphores, and where a
program has turned them off) it counts who is there at one look and was not at the look before: then at most one for each look,
which is too low.

Keys: arrows, PgUp, PgDn, Home and End choose a lock; s sorts by the next column, r turns the order around; / shows only the
names with a text in them; space pauses; q, Esc and Ctrl-C end it. While the store cannot be asked, what it said last stays,
in grey.

Each look lists the locks as `leasehold ls` does, whose help says what that costs and what it does not find; between two looks
the store has at least ten times as long for others as a look took, so a large list is looked at more rarely than --interval
says. With --all the names that `ls --all` finds are shown as well: it searches once, before the first look.
With --json, each look is one line with one object, until the reader leaves or a signal comes.";

/// Show all locks, live
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct TopArgs {
    /// Which names: `*` is any text, `?` one character, `[a-c]` one of these
    #[arg(default_value = "*")]
    pub(super) pattern: String,

    /// The time from one look to the next: 100ms or more
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1s")]
    pub(super) interval: Duration,

    /// Also show the locks of other libraries, which one search over all keys finds at the start.
    /// Felt by others who use a large Redis
    #[arg(long)]
    pub(super) all: bool,

    /// What the locks are sorted by
    #[arg(long, value_enum, default_value = "name")]
    pub(super) sort: Sort,

    /// Print each look as one JSON object in one line
    #[arg(long)]
    pub(super) json: bool,
}

/// What the locks are sorted by; the largest first, except for names and what is left of leases.
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
