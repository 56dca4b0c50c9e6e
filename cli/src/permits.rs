//! `leasehold permits`: sets the number of permits of a semaphore.

use std::time::Duration;

use leasehold::{LockClient, Semaphore, SetPermits};

use crate::failure::{Failure, say, status};
use crate::store::StoreArgs;
use crate::text::visible;

const DETAILS: &str = "\
`leasehold run NAME --permits N` sets the number only if the semaphore has none yet. This command sets it at any time:
programs that wait for a permit get those that are added. If fewer remain than are taken, nobody loses a permit, and no
more are given out until enough of them have been returned.

Several of these commands at once are carried out one after the other, under the lock NAME:permits. The status is 0 if
the semaphore has N permits now, also if it had them before; 75 if somebody else goes on changing the number; and 76 if
something other than a semaphore has the name.";

/// How long the others wait for one that was killed.
const LEASE: Duration = Duration::from_secs(5);
/// How long to wait for others that change the number: each needs some round trips.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Programs that change the number without this command's lock may be in between.
const ATTEMPTS: u32 = 3;

/// Set the number of permits of a semaphore, for runs with --permits
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct PermitsArgs {
    /// The name of the semaphore
    name: String,

    /// The number of permits, free and taken ones together
    #[arg(value_name = "N", value_parser = number())]
    permits: u32,
}

/// Parses a number of permits, which is positive and fits into 31 bits.
pub(crate) fn number() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(i32::MAX))
}

pub(crate) fn permits(store: &StoreArgs, args: &PermitsArgs) -> Result<u8, Failure> {
    let name = visible(&args.name);
    let client = store.builder()?.lease(LEASE).busy_poll(false).build()?;
    match set(&client, &client.semaphore(&args.name), args.permits)? {
        None => say(format_args!("{name}: it has {} permits now", args.permits)),
        Some(before) if before == i64::from(args.permits) => say(format_args!("{name}: it has {before} permits")),
        Some(before) => say(format_args!("{name}: it has {} permits now, and had {before} before", args.permits)),
    }
    Ok(0)
}

/// Returns the number before; `None` if there was none. Permits can only be added or removed, so
/// two that set the number at once would both add the difference: the lock keeps them apart.
fn set(client: &LockClient, semaphore: &Semaphore, permits: u32) -> Result<Option<i64>, Failure> {
    let busy = || Failure::new(status::NOT_HAD, format!("{}: others are changing it", visible(semaphore.name())));
    let turn = client.mutex(format!("{}:permits", semaphore.name()));
    let turn = turn.try_lock_owned_for(LONGEST_WAIT)?.ok_or_else(busy)?;
    let mut first = None;
    for _ in 0..ATTEMPTS {
        match semaphore.try_set_permits(permits)? {
            SetPermits::New => return Ok(first),
            SetPermits::Different { there_are } => {
                let before = *first.get_or_insert(there_are);
                turn.ensure_held()?;
                semaphore.add_permits(i64::from(permits) - there_are)?;
                if semaphore.try_set_permits(permits)? == SetPermits::Same {
                    return Ok(Some(before));
                }
            }
            SetPermits::Same | SetPermits::SetBefore { .. } => return Ok(Some(i64::from(permits))),
        }
    }
    Err(busy())
}
