//! `leasehold bench`: measures how fast locks are in a store.

mod bare;
mod figures;
mod hand_off;
mod page;
mod parts;
mod view;

use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use leasehold::LockClient;

use crate::failure::{Failure, by_signal, say};
use crate::output::{write_json, write_out};
use crate::run::Signals;
use crate::store::StoreArgs;
use crate::words::chain;
use bare::Bare;
use parts::{Bench, Outcome};
use view::BenchView;

/// A release that has not reached the store by then is left to the end of its lease.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

const DETAILS: &str = "\
What is measured:
  cycle                one thread locks and unlocks repeatedly
  one_name_one_client  all threads compete for one name through one client, like the threads of one process
  one_name_many_clients
                       all threads compete for one name, each through a client of its own, like processes
  hand_off             from the unlock of one client to the lock of another that waits
  own_names            all threads lock through one client, each with a name of its own

A latency covers a lock and its unlock, so it includes the wait for the others; for hand_off, it is the time from the
beginning of the unlock to the lock. Percentiles cover all operations of a part. \"A second\" of hand_off is calculated
from the mean latency: the pauses in between do not count.

With redis:// and redis+unix:// the cycle is compared with two bare scripts (take the lock if it is free; delete it if
the caller owns it) over one connection, in ten rounds in which the two take turns. The ratio is the median of the
rounds; 1 is the speed of bare scripts, and more is faster.

Locks have no fencing tokens here, like the bare scripts, so that no key remains. All names begin with a random prefix.
The load is real: do not measure a server that others need now.";

/// Measure the speed of locks in a store: cycles, contention, hand-off, and the ratio to bare
/// scripts
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct BenchArgs {
    /// The store, instead of --url and LEASEHOLD_URL. Give no password here: every user of the
    /// machine can see arguments
    #[arg(value_name = "URL")]
    urls: Vec<String>,

    /// How long each of the five parts is measured: 0.1 to 600. The bare scripts take as long again
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    seconds: Duration,

    /// The number of threads, and of clients where each thread has its own: 2 to 256. Defaults to
    /// the number of cores, but at least 2 and at most 8
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=256))]
    threads: Option<u16>,

    /// Print one JSON object on one line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(store: &StoreArgs, args: &BenchArgs) -> Result<u8, Failure> {
    // Before any lock can be taken: from here on, no signal ends the process without releasing it.
    let signals = Signals::take_in()?;
    signals.spare_this_thread();
    let threads = args.threads.map_or_else(cores, usize::from);
    let builder = store.builder_at(&args.urls)?.fencing(false);
    let clients: Result<Vec<LockClient>, _> =
        (0..threads).map(|_| builder.clone().build()).collect();
    let clients = clients?;
    let prefix = format!("leasehold-bench:{:032x}", rand::random::<u128>());
    let measured = measure(store, args, &clients, &prefix, &signals);
    close(&clients);
    match measured {
        Err(_) if signals.token().is_cancelled() => {
            let signal = signals.first();
            Err(Failure::new(
                by_signal(signal),
                format!("ended by signal {signal}, and every lock was released"),
            ))
        }
        Err(failure) => Err(failure),
        Ok(outcome) => {
            let _ = if args.json {
                write_json(&BenchView::from(&outcome))?
            } else {
                write_out(page::page(&outcome).as_bytes())?
            };
            Ok(0)
        }
    }
}

fn measure(
    store: &StoreArgs,
    args: &BenchArgs,
    clients: &[LockClient],
    prefix: &str,
    signals: &Signals,
) -> Result<Outcome, Failure> {
    let bare = Bare::connect(store, &store.urls(&args.urls)?, &Bench::bare_name(prefix));
    let threads = clients.len();
    let time = args.seconds;
    let takes = time * if bare.is_ok() { 6 } else { 5 };
    say(format_args!(
        "locking and unlocking as fast as the store answers, for about {takes:.1?}, with {threads} clients: other users \
         of the store will notice. All names begin with {prefix}. Ctrl-C ends it and leaves no lock behind"
    ));
    // A part that fails cancels this token.
    let token = signals.token().child();
    let bench = Bench { clients, prefix, time, token: &token };
    let (bare, reason) =
        bare.map_or_else(|reason| (None, reason), |bare| (Some(bare), String::new()));
    let (cycle, compared) = bench.cycle(bare)?;
    let parts = vec![
        cycle,
        bench.one_name(true)?,
        bench.one_name(false)?,
        bench.hand_off()?,
        bench.own_names()?,
    ];
    Ok(Outcome { parts, compared: compared.ok_or(reason), time, threads })
}

/// Failed releases are retried in the background, and this waits for that.
fn close(clients: &[LockClient]) {
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    for client in clients {
        if let Err(e) = client.close(deadline.saturating_duration_since(Instant::now())) {
            say(chain(&e));
        }
    }
}

fn cores() -> usize {
    available_parallelism().map_or(2, NonZero::get).clamp(2, 8)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 =
        text.parse().map_err(|_| "expected a number of seconds, such as 2 or 0.5".to_owned())?;
    if !(0.1..=600.0).contains(&seconds) {
        return Err("expected between 0.1 and 600 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_a_number_in_bounds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("600"), Ok(Duration::from_secs(600)));
        for text in ["", "2s", "0", "0.01", "601", "-1", "NaN", "inf"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
