//! The arguments of `leasehold exporter`.

use std::time::Duration;

use crate::{duration, looks};

const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

const DETAILS: &str = "\
It serves the text format of Prometheus at /metrics. The names begin with leasehold_store_, and these samples have the
label `store`, so they do not mix with what clients publish about themselves (leasehold_*).

It polls the store on a thread of its own, as `leasehold ls` does, whose help describes the cost and what is not listed.
A request for /metrics gets the figures of the last poll: it never causes a poll and never waits for one. The pause
after a poll is at least ten times as long as the poll took. While the store cannot be queried, leasehold_store_up is 0,
and there are no samples of locks: an old figure would look like a true one.

  leasehold_store_up                           1 if the last poll succeeded, else 0
  leasehold_store_looks_total                  polls, by outcome: ok, failed
  leasehold_store_look_seconds                 how long the last poll took
  leasehold_store_last_look_timestamp_seconds  when the last poll succeeded, in seconds since 1970
  leasehold_store_locks                        names in use, by kind
  leasehold_store_waiting                      who waits for them, by kind, as far as the store knows
  leasehold_store_holds_unlisted               holds that clients have no room to announce
  leasehold_store_name_held_seconds            by name and kind: for how long the longest holder has had it
  leasehold_store_name_holders                 its holders; of a semaphore, the permits that are taken
  leasehold_store_name_waiting                 how many wait for it
  leasehold_store_name_remaining_seconds       until its last lease ends unless it is renewed
  leasehold_store_name_fencing_token           the last token that was issued
  leasehold_store_names_omitted                names beyond --limit, which have no samples of their own
  leasehold_store_server_up                    by server: 1 if it answers, else 0
  leasehold_store_server_latency_seconds       how long its last answer took, where that is measured
  leasehold_store_findings                     findings of `leasehold doctor`, by severity: warning, problem
  leasehold_exporter_info                      1, with the version as a label

Everybody who can connect can read the names of locks: listen on a private address. SIGTERM and Ctrl-C end it with
status 0. A store that is down at the start is reported and polled again, it does not end the exporter.";

/// Serve what is locked in the store to Prometheus
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct ExporterArgs {
    /// The names to serve: `*` is any text, `?` one character, `[a-c]` one of these
    #[arg(default_value = "*")]
    pub(super) pattern: String,

    /// The address and port to listen on. Without an address (`:9843`), those of all networks;
    /// where the system keeps IPv4 and IPv6 apart (OpenBSD, or bindv6only on Linux), those of IPv6,
    /// and 0.0.0.0:9843 those of IPv4. Port 0 takes a free one, which is printed
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9843")]
    pub(super) listen: String,

    /// The time from one poll to the next: 100ms or more
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "15s")]
    pub(super) every: Duration,

    /// How many names have samples of their own: those with the most waiters, then those held for
    /// the longest time
    #[arg(long, value_name = "NAMES", default_value_t = 200)]
    pub(super) limit: usize,

    /// The time from one examination of the servers to the next, as by `leasehold doctor`; 0s for
    /// none
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "5m")]
    pub(super) diagnose_every: Duration,

    /// The label `store` of the samples, instead of the URL without user and password
    #[arg(long, value_name = "TEXT")]
    pub(super) label: Option<String>,
}

fn interval(text: &str) -> Result<Duration, String> {
    looks::interval(text, SHORTEST_INTERVAL)
}
