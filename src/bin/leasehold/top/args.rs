//! The arguments of `leasehold top`.

use std::time::Duration;

use crate::looks;

const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

const DETAILS: &str = "\
Columns: the name; what kind of lock it is; who holds it, as its owner says (or the id of the holder), and how many more; for
how long; when its lease ends unless it is renewed; how many wait, as far as the store knows that; how often its holder
changed, per second, during the last minute; of a semaphore the permits that are free and all of them, of a latch what is
left to count; with Redlock, on how many masters it stands. A narrow terminal shows fewer columns.

The rate is a lower bound: it counts who is there at one look and was not at the look before. What comes and goes between
two looks is not seen.

Keys: arrows, PgUp, PgDn, Home and End choose a lock; s sorts by the next column, r turns the order around; / shows only the
names with a text in them; space pauses; q, Esc and Ctrl-C end it. While the store cannot be asked, what it said last stays,
in grey.

Each look is one search over the store, as that of `leasehold ls`: give a large store a longer interval, or a pattern.
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
