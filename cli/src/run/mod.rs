//! `leasehold run`: runs a command under a lock.

mod args;
mod command;
mod help;
mod job;
mod lead;
mod lock;
mod nested;
mod patience;
mod start;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::time::{Duration, Instant};

use leasehold::observe::LockSummary;
use leasehold::{Error, ErrorKind, LockClient};

use crate::failure::{Failure, say, status, status_of};
use crate::holders::who;
use crate::looks::no_thread;
use crate::show::describe;
use crate::stderr;
use crate::store::StoreArgs;
use crate::text::visible;
use crate::words::chain;
use args::Wait;
pub(crate) use args::{Once, RunArgs};
pub(crate) use lead::{LeadArgs, lead};
use lock::{Guard, Lock};
use nested::{held_above, may_be_nested};
use patience::Patience;
use start::{ended_before_start, oversee, start_command, status_after};
pub(crate) use system::Signals;
#[cfg(unix)]
pub(crate) use system::be_backstop;
use system::{Child, Ended, may_write_in_the_background};
#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

/// A release that has not reached the store by then is left to the end of its lease.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// The same after a loss: nothing is left to release, and a store that is down would not be told of
/// the end of this client in a longer time either.
const CLOSE_TIMEOUT_AFTER_LOSS: Duration = Duration::from_millis(200);

/// How long a run under another run waits for a holder to announce its owner, which runs do just
/// after they got their lock.
const LONGEST_INTRODUCTION: Duration = Duration::from_secs(1);
const INTRODUCTION_PAUSE: Duration = Duration::from_millis(20);

/// Returns the exit status.
pub(crate) fn run(store: &StoreArgs, args: &RunArgs) -> Result<u8, Failure> {
    status_after(run_to_its_end(store, args))
}

fn run_to_its_end(store: &StoreArgs, args: &RunArgs) -> Result<Ended, Failure> {
    may_write_in_the_background();
    stderr::write_on_a_thread().map_err(|e| no_thread(&e))?;
    // Before any lock can be taken: from here on, no signal ends the process without releasing it.
    let signals = Signals::take_in()?;
    let builder = store.builder()?.lease(args.lease).owner(args.owner()).busy_poll(false);
    let at_the_start = args.retry_store.map_or(Wait::Not, Wait::AtMost);
    let patience = Patience::new(at_the_start, !args.quiet, signals.token());
    // A signal does not end the attempt to connect; only the timeout does.
    let connected = patience.until_it_answers(|| builder.clone().build());
    let client =
        connected.map_err(|e| ended_before_start(args, &signals).unwrap_or_else(|| e.into()))?;
    // Over ZooKeeper it is that of the session.
    let args = &RunArgs { lease: client.lease(), ..args.clone() };
    let ended = match &args.once {
        Some(once) => job::run_once(&client, once, args, &signals, &patience),
        None => under_lock(&client, args, &signals, &patience),
    };
    // Places in queues and failed releases are cleaned up in the background, and this waits for
    // that.
    let is_lost =
        ended.as_ref().map_or_else(|failure| failure.status == status::LOST, |ended| ended.is_lost);
    if let Err(e) = client.close(if is_lost { CLOSE_TIMEOUT_AFTER_LOSS } else { CLOSE_TIMEOUT }) {
        say(format_args!("{}: {}", args.name(), chain(&e)));
    }
    ended
}

fn under_lock(
    client: &LockClient,
    args: &RunArgs,
    signals: &Signals,
    patience: &Patience<'_>,
) -> Result<Ended, Failure> {
    let lock = Lock::new(client, args, signals.token());
    let waiting = Patience::new(args.wait(), !args.quiet, signals.token());
    let failed = |e: Error| {
        ended_before_start(args, signals).unwrap_or_else(|| refused(client, args, &lock, e))
    };
    if let Some(other) = patience.until_it_answers(|| lock.set_permits()).map_err(failed)?
        && !args.permits_as_set
    {
        return Err(other.refusal(args.name()));
    }
    let taken = patience.until_it_answers(|| lock.take(Wait::Not));
    let taken = match (taken, args.wait()) {
        (Ok(None), Wait::Not) => Ok(None),
        (Ok(None), _) => {
            look_at_others(client, args, &lock, signals)?;
            waiting.until_it_answers(|| lock.take(waiting.left()))
        }
        (taken, _) => taken,
    };
    let guard = match taken {
        Ok(Some(guard)) => guard,
        Ok(None) => return conflict(args, &lock),
        Err(e) => return Err(failed(e)),
    };
    // If no command was started, other machines need not be kept from running theirs.
    let child = start_command(&*guard, &[], args, signals).inspect_err(|_| guard.end_min_hold())?;
    run_with(guard, child, args, signals)
}

fn conflict(args: &RunArgs, lock: &Lock) -> Result<Ended, Failure> {
    if !args.quiet {
        say(format_args!("{}: {}", args.name(), lock.who_has_it()));
    }
    Ok(Ended::with(args.conflict_status))
}

/// Before a wait: refuses a wait that would never end, and says who holds the lock. If the store
/// cannot be queried now, the wait itself reports it.
fn look_at_others(
    client: &LockClient,
    args: &RunArgs,
    lock: &Lock,
    signals: &Signals,
) -> Result<(), Failure> {
    let start = Instant::now();
    let report = loop {
        let report = match client.inspect(args.name()) {
            Ok(Some(report)) => report,
            Err(e) if e.kind() == ErrorKind::WrongType => {
                return Err(refused(client, args, lock, e));
            }
            Ok(None) | Err(_) => return Ok(()),
        };
        if let Some(holder) = held_above(&report) {
            let why = "this run was started under that one, so it would wait for itself";
            return Err(Failure::new(
                status::NOT_HAD,
                format!("{}: {}: {why}", args.name(), who(holder)),
            ));
        }
        // A run above this one may not have announced its owner yet.
        if !may_be_nested(&report)
            || start.elapsed() > LONGEST_INTRODUCTION
            || signals.token().is_cancelled()
        {
            break report;
        }
        std::thread::sleep(INTRODUCTION_PAUSE);
    };
    if args.says_who() {
        let holders: Vec<String> =
            report.locks().iter().flat_map(|lock| lock.holders()).map(describe).collect();
        let who = match &holders[..] {
            [] => "earlier waiters".to_owned(),
            [one] => one.clone(),
            [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        };
        say(format_args!("{}: waiting for {who}", args.name()));
    }
    Ok(())
}

/// Why the lock cannot be had. If one of another kind has its name, that is how it is taken.
fn refused(client: &LockClient, args: &RunArgs, lock: &Lock, error: Error) -> Failure {
    if error.kind() != ErrorKind::WrongType {
        return error.into();
    }
    let report = client.inspect(args.name()).ok().flatten();
    let others = report.iter().flat_map(|report| report.locks()).map(LockSummary::primitive);
    match others.filter_map(|other| lock.how_to_take(other)).next() {
        Some(how) => {
            Failure::new(status_of(error.kind()), format!("{}: {how}", visible(args.name())))
        }
        None => error.into(),
    }
}

/// In this order: if a thread panics here, the child is dropped first, and ends its command before
/// the lock is released.
fn run_with(
    guard: Guard,
    child: Child,
    args: &RunArgs,
    signals: &Signals,
) -> Result<Ended, Failure> {
    let ended = oversee(&*guard, child, args, signals)?;
    if args.min_hold_on_success && ended.status != 0 {
        guard.end_min_hold();
    }
    match guard.give_up() {
        Err(e) if e.kind() == ErrorKind::Lost && !ended.is_lost => {
            let why =
                format!("{} (the command has ended, with status {})", chain(&e), ended.status);
            Err(Failure::new(status::LOST, why))
        }
        // Any other failure is retried in the background, and closing the client reports what is
        // left.
        _ => Ok(ended),
    }
}
