//! `leasehold once`: what the store keeps of a job, for operators.

use std::time::Duration;

use leasehold::ScheduledJob;

use crate::duration;
use crate::failure::{Failure, say, status};
use crate::run::Once;
use crate::store::StoreArgs;
use crate::text::{time, visible};

const DETAILS: &str = "\
forget: lets an occurrence run again, although it or a newer one was done, and with all its attempts. A run that is under
way goes on. If a newer one was done, it may run again for the time of --keep only: then its time has passed as before.
The status is 0, also if nothing was known of the occurrence.

force-out: ends the lease of the run that is under way, whichever occurrence it is for. Its command is ended, and its
success is not recorded; the next run may begin at once, before that command has noticed. The status is 75 if nothing
runs.

Both requests are sent only once: if the store does not answer, they may have run.";

/// Let an occurrence of a job run again, or end a run
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct OnceArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Let an occurrence run again
    Forget {
        /// The job, and the label of the occurrence
        #[arg(value_name = "KEY=OCCURRENCE")]
        once: Once,

        /// For how long it may run again if a newer occurrence was done
        #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "1d")]
        keep: Duration,
    },
    /// End the lease of the run that is under way
    ForceOut {
        /// The job
        key: String,
    },
}

pub(crate) fn once(store: &StoreArgs, args: &OnceArgs) -> Result<u8, Failure> {
    match &args.what {
        What::Forget { once, keep } => {
            let Some(label) = &once.label else {
                let why = "an occurrence is missing: leasehold once forget KEY=OCCURRENCE";
                return Err(Failure::new(status::USAGE, why));
            };
            let job = store.builder()?.build()?.once(&once.key, label).keep(*keep);
            forget(&job, label, *keep)
        }
        What::ForceOut { key } => {
            // The lease is that of all occurrences.
            force_out(&store.builder()?.build()?.once(key, "any"))
        }
    }
}

fn forget(job: &ScheduledJob, label: &str, keep: Duration) -> Result<u8, Failure> {
    let was_known = job.forget()?;
    let name = visible(job.name());
    say(format_args!(
        "{name}: {label} may run again, for {} if a newer one was done{}",
        time(keep),
        if was_known { "" } else { "; nothing was known of it" }
    ));
    Ok(0)
}

fn force_out(job: &ScheduledJob) -> Result<u8, Failure> {
    let name = visible(job.name());
    if job.force_out()? {
        say(format_args!("{name}: the run that was under way has lost its lease"));
        Ok(0)
    } else {
        say(format_args!("{name}: nothing runs"));
        Ok(status::NOT_HAD)
    }
}
