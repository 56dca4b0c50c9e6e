//! A command that is run once for each occurrence of a job.

use std::time::{Duration, Instant, SystemTime};

use leasehold::{Error, Every, JobRun, LockClient, Occurrence, ScheduledJob};

use super::args::{Once, RunArgs};
use super::patience::Patience;
use super::start::{ended_before_start, oversee, start_command};
#[cfg(unix)]
use super::unix::{Child, Ended, Signals};
#[cfg(windows)]
use super::windows::{Child, Ended, Signals};
use crate::failure::{Failure, say, status};
use crate::text::visible;
use crate::words::chain;

/// How long a run waits for another one before it looks whether that has died.
const LOOK: Duration = Duration::from_secs(5);

/// Why an attempt has failed.
enum Failed {
    /// The command has a status other than 0, or its lease was lost.
    Ended(Ended),
    /// It could not be started, or watched.
    Not(Failure),
}

pub(super) fn run_once(
    client: &LockClient,
    once: &Once,
    args: &RunArgs,
    signals: &Signals,
    at_the_start: &Patience<'_>,
) -> Result<Ended, Failure> {
    let job = job_of(client, once, args)?.with_cancel(signals.token());
    let failed = |e: Error| ended_before_start(args, signals).unwrap_or_else(|| e.into());
    let begun = Instant::now();
    let waiting = Patience::new(args.wait(), !args.quiet, signals.token());
    let mut patience = at_the_start;
    loop {
        let run = || job.run(|run| attempt(run, args, signals));
        let why = match patience.until_it_answers(run).map_err(failed)? {
            leasehold::Once::Done(ended) | leasehold::Once::Failed(Failed::Ended(ended)) => {
                return Ok(ended);
            }
            leasehold::Once::Failed(Failed::Not(failure)) => return Err(failure),
            leasehold::Once::Unrecorded(ended, why) => return Err(unrecorded(args, &ended, &why)),
            leasehold::Once::AlreadyDone { by, at, .. } => {
                return Ok(nothing_to_do(args, &format!("done by {by} {} ago", age_of(at))));
            }
            leasehold::Once::Passed { newest, .. } => {
                let why = newest.map_or_else(
                    || "it is later than --grace allows".to_owned(),
                    |newest| format!("{newest} was done"),
                );
                return Ok(nothing_to_do(args, &format!("its time has passed: {why}")));
            }
            leasehold::Once::Running { by, occurrence, .. } => {
                let which = occurrence.map(|label| format!(" {label}")).unwrap_or_default();
                format!("{by} runs{which}")
            }
            leasehold::Once::Pausing { left, .. } => format!("it may be tried again in {left:.0?}"),
            leasehold::Once::GaveUp { attempts, .. } => {
                // Nobody does it any more: no run that comes second may call that a success.
                let why = format!("{}: it was tried {attempts} times", visible(args.name()));
                return Err(Failure::new(status::NOT_HAD, why));
            }
            // What is newer than this command.
            _ => return Ok(conflict(args, "it does not run")),
        };
        if waiting.left().most().is_zero() {
            return Ok(conflict(args, &why));
        }
        if args.says_who() && begun.elapsed() < LOOK {
            say(format_args!("{}: waiting: {why}", visible(args.name())));
        }
        patience = &waiting;
        // Ends as soon as it is done, or given up.
        let wait = || job.wait_done_for(waiting.left().most().min(LOOK));
        patience.until_it_answers(wait).map_err(failed)?;
    }
}

fn job_of(client: &LockClient, once: &Once, args: &RunArgs) -> Result<ScheduledJob, Failure> {
    let occurrence = match (&once.label, args.every) {
        (Some(label), None) => Occurrence::from(label),
        (None, Some(interval)) => {
            let mut every = Every::new(interval).offset(args.offset.unwrap_or_default());
            if let Some(early) = args.early {
                every = every.early(early);
            }
            if let Some(grace) = args.grace {
                every = every.grace(grace);
            }
            every.into()
        }
        _ => {
            let why = "--once needs an occurrence: KEY=OCCURRENCE, or KEY with --every TIME";
            return Err(Failure::new(status::USAGE, why));
        }
    };
    let job = client.once(&once.key, occurrence).attempts(args.attempts).keep(args.keep);
    Ok(match args.max_hold {
        Some(most) => job.max_hold(most),
        None => job,
    })
}

/// The command, with the lease of the job.
fn attempt(run: &JobRun, args: &RunArgs, signals: &Signals) -> Result<Ended, Failed> {
    let environment = [
        ("LEASEHOLD_OCCURRENCE", run.occurrence().to_owned()),
        ("LEASEHOLD_ATTEMPT", run.attempt().to_string()),
    ];
    let child: Child = start_command(run, &environment, args, signals).map_err(Failed::Not)?;
    let ended = oversee(run, child, args, signals).map_err(Failed::Not)?;
    if ended.status == 0 && !ended.is_lost { Ok(ended) } else { Err(Failed::Ended(ended)) }
}

fn unrecorded(args: &RunArgs, ended: &Ended, why: &Error) -> Failure {
    let what = format!(
        "the command has ended, with status {}, and this was not recorded, so it may be run again: {}",
        ended.status,
        chain(why)
    );
    Failure::new(status::LOST, format!("{}: {what}", visible(args.name())))
}

fn nothing_to_do(args: &RunArgs, why: &str) -> Ended {
    say_why(args, why);
    Ended::with(0)
}

fn conflict(args: &RunArgs, why: &str) -> Ended {
    say_why(args, why);
    Ended::with(args.conflict_status)
}

fn say_why(args: &RunArgs, why: &str) {
    if !args.quiet {
        say(format_args!("{}: {}", visible(args.name()), visible(why)));
    }
}

/// By this machine's clock, which may be behind that of the store.
fn age_of(at: SystemTime) -> String {
    let age = SystemTime::now().duration_since(at).unwrap_or_default();
    format!("{:.0?}", Duration::from_secs(age.as_secs()))
}
