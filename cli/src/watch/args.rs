//! The arguments of `leasehold watch`.

use std::path::PathBuf;
use std::time::Duration;

use crate::{duration, looks};

const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

const DETAILS: &str = "\
Each line says how long after the start something was seen: who took the lock, from whom, how long it was held, how many
wait. Changes between two polls are not seen: a lock that is taken and released between them shows as free, and if one
holder hands it to another, the times are only as exact as --interval. A holder that has not announced itself yet
appears by its id first.

It ends when --for is over, at Ctrl-C or by SIGTERM, each with status 0, and then prints each holder's share of the
time, with bars if stdout is a terminal. If the store becomes unavailable, it waits for the store to answer again; that
time counts as unknown.

--svg writes a picture at the end: a row for each holder, the number of waiters, and the times when the store could not
be queried. There are at most 30 rows; the holders with the shortest times share the last one. The file is replaced
atomically.

With --json each event is one JSON object on one line, and the last line is the summary.";

/// Show who holds a lock, as it changes
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct WatchArgs {
    /// The name of the lock
    pub(super) name: String,

    /// The time from one poll to the next: 10ms or more
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "200ms")]
    pub(super) interval: Duration,

    /// Watch for this long. Without it, watch until Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse)]
    pub(super) time: Option<Duration>,

    /// Write a picture of the time line to this SVG file at the end
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,

    /// Print each event as one JSON object on one line, and the summary on the last line
    #[arg(long)]
    pub(super) json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    looks::interval(text, SHORTEST_INTERVAL)
}
