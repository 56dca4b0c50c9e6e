//! The arguments of `leasehold watch`.

use std::path::PathBuf;
use std::time::Duration;

use crate::{duration, looks};

const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

const DETAILS: &str = "\
Each line says how long after the start something was seen: who took the lock, from whom, for how long it was held, how many
wait. What happens between two looks is not seen: a lock that is taken and given up between them shows as free, and of two
holders of which one hands it to the other, times are as exact as --interval. A holder that has not yet told the store who
it is appears by its id first.

It ends when --for is over, at Ctrl-C or by SIGTERM, all with status 0, and then writes the share of the time that each holder
had the lock, with bars if stdout is a terminal. A store that goes away is waited for; that time counts as unknown.

--svg writes a picture of it at the end: a row for each holder, how many waited, and where the store could not be asked. Up
to 30 holders have a row; those that had the lock for the shortest time share one. The file is replaced as a whole.

With --json each event is one object in one line, and the last line is the summary.";

/// Show who has a lock, as it changes
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct WatchArgs {
    /// The name of the lock
    pub(super) name: String,

    /// The time from one look to the next: 10ms or more
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "200ms")]
    pub(super) interval: Duration,

    /// Watch for so long. Without it until Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse)]
    pub(super) time: Option<Duration>,

    /// Write a picture of it to this file at the end
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,

    /// Print each event as one JSON object in one line, and the summary as the last one
    #[arg(long)]
    pub(super) json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    looks::interval(text, SHORTEST_INTERVAL)
}
