//! `leasehold top`: a live screen of all locks.

mod args;
mod draw;
mod live;
mod rates;
mod row;
mod screen;
mod state;
mod table;

use std::collections::HashSet;
use std::io::{IsTerminal, stdin, stdout};
use std::time::Instant;

use crossbeam_channel::select;
use leasehold::LockClient;
use leasehold::observe::LockSummary;
use serde::Serialize;

use crate::failure::{Failure, by_signal, say, status};
use crate::looks::{Look, Looks, asker_has_ended};
use crate::output::{Reader, millis, write_json};
use crate::platform::{TERMINATED, take_in};
use crate::shown_url::shown;
use crate::store::StoreArgs;
use crate::words::chain;
pub(crate) use args::TopArgs;
use rates::{Rates, Seen};
use row::Key;
use state::TopState;

/// Returns the exit status.
pub(crate) fn top(store: &StoreArgs, args: &TopArgs) -> Result<u8, Failure> {
    if !args.json && !stdout().is_terminal() {
        let why = "stdout is not a terminal: use `leasehold ls` to print the locks once, or `leasehold top --json`";
        return Err(Failure::new(status::USAGE, why));
    }
    let urls = shown(&store.urls(&[])?);
    let client = store.builder()?.busy_poll(false).build()?;
    let start = Instant::now();
    let looks = ask(client, args)?;
    // An error at the start, such as an invalid pattern, is reported without a screen.
    let first = looks.received.recv().map_err(|_| asker_has_ended())?;
    if let Err(e) = first.answer {
        return Err(e.into());
    }
    if args.json {
        return print(&looks, first, start);
    }
    let mut state = TopState::new(urls, args);
    state.look(first, start);
    live::show(&looks, state, start, stdin().is_terminal())
}

/// Maximum number of names found by a search that each poll queries, one by one.
const MOST_OTHERS: usize = 1000;

fn ask(client: LockClient, args: &TopArgs) -> Result<Looks<Vec<LockSummary>>, Failure> {
    let pattern = args.pattern.clone();
    let others: Vec<String> = if args.all {
        say("searching all keys once, which may take some seconds");
        client
            .locks(&pattern)?
            .iter()
            .take(MOST_OTHERS)
            .map(|lock| lock.name().to_owned())
            .collect()
    } else {
        Vec::new()
    };
    Looks::start(args.interval, move || look(&client, &pattern, &others))
}

/// The locks that are announced, and those under the other names that a search has found.
fn look(
    client: &LockClient,
    pattern: &str,
    others: &[String],
) -> leasehold::Result<Vec<LockSummary>> {
    let mut all = client.announced_locks(pattern)?.locks().to_vec();
    let known: HashSet<String> = all.iter().map(|lock| lock.name().to_owned()).collect();
    for name in others.iter().filter(|name| !known.contains(*name)) {
        match client.inspect(name) {
            Ok(report) => {
                all.extend(report.iter().flat_map(|report| report.locks().iter().cloned()));
            }
            // The name is used for something else by now.
            Err(e) if e.kind() == leasehold::ErrorKind::WrongType => {}
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

/// The result of one poll, as `--json` prints it.
#[derive(Serialize)]
struct TopView {
    /// Since the start.
    elapsed_ms: u64,
    /// How long the store took to answer.
    took_ms: u64,
    /// `null` if the store could not be queried.
    locks: Option<Vec<RatedView>>,
    error: Option<String>,
}

#[derive(Serialize)]
struct RatedView {
    #[serde(flatten)]
    lock: LockSummary,
    /// Grants per second; `null` at the first poll.
    rate: Option<f64>,
}

fn print(
    looks: &Looks<Vec<LockSummary>>,
    first: Look<Vec<LockSummary>>,
    start: Instant,
) -> Result<u8, Failure> {
    let signals = take_in()?;
    let mut rates = Rates::default();
    let mut look = first;
    while write_json(&view(&mut rates, look, start))? == Reader::Stays {
        select! {
            recv(looks.received) -> next => look = next.map_err(|_| asker_has_ended())?,
            recv(signals) -> signal => return Ok(by_signal(signal.unwrap_or(TERMINATED))),
        }
    }
    Ok(0)
}

fn view(rates: &mut Rates, look: Look<Vec<LockSummary>>, start: Instant) -> TopView {
    let at = look.begun.saturating_duration_since(start);
    let (locks, error) = match look.answer {
        Ok(locks) => {
            rates.see(at, locks.iter().map(Seen::from));
            let rated = |lock: LockSummary| {
                let thousandths = |rate: f64| (rate * 1e3).round() / 1e3;
                RatedView { rate: rates.of(&Key::of(&lock)).map(thousandths), lock }
            };
            (Some(locks.into_iter().map(rated).collect()), None)
        }
        Err(e) => (None, Some(chain(&e))),
    };
    TopView { elapsed_ms: millis(at), took_ms: millis(look.took), locks, error }
}
