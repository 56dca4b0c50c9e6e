//! `leasehold lead`: runs a command on one of several machines, and on another one when that ends.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use clap::ValueHint;
use leasehold::LockClient;

use super::args::{RunArgs, Wait};
use super::lock::{Guard, Lock};
use super::patience::Patience;
use super::system::{Ended, Signals, may_write_in_the_background};
use super::{CLOSE_TIMEOUT, ended_before_start, refused, run_with, start_command, status_after};
use crate::failure::{Failure, say, status};
use crate::looks::no_thread;
use crate::store::StoreArgs;
use crate::words::chain;
use crate::{duration, stderr};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The part of a lease that a command has at most to end. Over ZooKeeper a healthy hold has five
/// twelfths left when it is renewed, and the lease is looked at every twelfth.
const PART_TO_END: u32 = 4;

const DETAILS: &str = "\
Example: leasehold lead scheduler --data \"$(hostname)\" -- /usr/local/bin/scheduler

Start it on every machine. The one that holds the lock NAME leads, and runs the command; the others wait. `leasehold
show NAME` shows who leads, with what data, and in which term: the term is the fencing token, LEASEHOLD_TOKEN in the
command's environment, which grows from leader to leader.

If the command succeeds, its exit status is that of leasehold, and the next one leads. With --again it stands for
election again instead, at most ten times a second. If the command fails, it stands again after a pause, which grows
from 0.1 s to a lease.

If the lease can no longer be renewed, the command receives SIGTERM while the lease still lasts, and SIGKILL before it
ends: no two commands run at a time, as long as this machine is not suspended. A receiver of what the command does
refuses a token that is lower than one it has seen.

A signal ends the wait, or is passed on to the command, and then leasehold ends with it. While the store is unavailable,
it keeps trying.";

/// Run a command on the machine that leads, and on another one when that ends
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct LeadArgs {
    /// The name of the election, which is that of a lock
    name: String,

    /// What others see of the leader, such as the address at which it can be reached
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    data: String,

    /// Stand for election again after a command that succeeded
    #[arg(long)]
    again: bool,

    /// How long the next leader waits if this machine or process dies. It is renewed every third of
    /// this time
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "30s")]
    lease: Duration,

    /// The time between SIGTERM and SIGKILL for a command whose term ends; at most a quarter of
    /// the lease. On Windows, which has no such signals, the command is ended at once
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "10s")]
    kill_after: Duration,

    /// The owner's name that others see: 1 to 100 characters. Defaults to the name of the command
    #[arg(long, value_name = "LABEL")]
    owner: Option<String>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

impl LeadArgs {
    fn of_each_term(&self) -> RunArgs {
        RunArgs {
            data: Some(self.data.clone()),
            lease: self.lease,
            kill_after: self.kill_after,
            owner: self.owner.clone(),
            ends_before_its_lease: true,
            ..RunArgs::of(&self.name, &self.command)
        }
    }
}

/// Returns the exit status.
pub(crate) fn lead(store: &StoreArgs, args: &LeadArgs) -> Result<u8, Failure> {
    status_after(lead_to_the_end(store, args))
}

fn lead_to_the_end(store: &StoreArgs, args: &LeadArgs) -> Result<Ended, Failure> {
    may_write_in_the_background();
    stderr::write_on_a_thread().map_err(|e| no_thread(&e))?;
    // Before any lock can be taken: from here on, no signal ends the process without releasing it.
    let signals = Signals::take_in()?;
    let mut term = args.of_each_term();
    let builder = store.builder()?.lease(term.lease).owner(term.owner()).busy_poll(false);
    let patience = Patience::new(Wait::ForEver, true, signals.token());
    let connected = patience.until_it_answers(|| builder.clone().build());
    let client =
        connected.map_err(|e| ended_before_start(&term, &signals).unwrap_or_else(|| e.into()))?;
    term.lease = client.lease();
    term.kill_after = term.kill_after.min(term.lease / PART_TO_END);
    let ended = Candidate { args: &term, signals: &signals, patience }.terms(&client, args.again);
    if let Err(e) = client.close(CLOSE_TIMEOUT) {
        say(format_args!("{}: {}", args.name, chain(&e)));
    }
    ended
}

struct Candidate<'a> {
    args: &'a RunArgs,
    signals: &'a Signals,
    patience: Patience<'a>,
}

impl Candidate<'_> {
    /// Runs the command in each term, until it succeeds or a signal has arrived.
    fn terms(&self, client: &LockClient, again: bool) -> Result<Ended, Failure> {
        let lock = Lock::new(client, self.args, self.signals.token());
        let mut pause = FIRST_PAUSE;
        loop {
            let guard = self.stand(client, &lock)?;
            let begun = Instant::now();
            let child = start_command(&*guard, &[], self.args, self.signals);
            let run = child.and_then(|child| run_with(guard, child, self.args, self.signals));
            let ended = match run {
                // Lost just as the command ended or was about to start, which is what it says.
                Err(failure) if failure.status == status::LOST => {
                    say(&failure);
                    Ended::with(status::LOST)
                }
                ended => ended?,
            };
            let succeeded = ended.status == 0 && !ended.is_lost;
            if self.signals.token().is_cancelled() || succeeded && !again {
                return Ok(ended);
            }
            self.signals.leave_those_of_a_command();
            if succeeded || begun.elapsed() >= self.args.lease {
                pause = FIRST_PAUSE;
            }
            if succeeded {
                // A command that ends at once would otherwise be started as fast as it can be.
                let _ = self.signals.token().wait_timeout(pause.saturating_sub(begun.elapsed()));
            } else {
                let status = ended.status;
                say(format_args!(
                    "{}: the command ended with status {status}; stands for election again in {pause:.1?}",
                    self.args.name()
                ));
                let _ = self.signals.token().wait_timeout(pause);
                pause = (pause * 2).min(self.args.lease.max(FIRST_PAUSE));
            }
        }
    }

    /// Waits until this machine leads.
    fn stand(&self, client: &LockClient, lock: &Lock) -> Result<Guard, Failure> {
        let taken = self.patience.until_it_answers(|| lock.take(Wait::ForEver)).map_err(|e| {
            ended_before_start(self.args, self.signals)
                .unwrap_or_else(|| refused(client, self.args, lock, e))
        })?;
        Ok(taken.expect("a wait without an end ends with a grant or an error"))
    }
}
