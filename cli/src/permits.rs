//! `leasehold permits`: sets the number of permits of a semaphore.

use std::time::Duration;

use leasehold::{LockClient, Semaphore, SetPermits};

use crate::failure::{Failure, say, status, status_of};
use crate::store::StoreArgs;
use crate::text::visible;
use crate::words::chain;

const DETAILS: &str = "\
`leasehold run NAME --permits N` sets the number only if the semaphore has none yet. This command sets it at any time:
programs that wait for a permit get those that are added. If fewer remain than are taken, nobody loses a permit, and no
more are given out until enough of them have been returned.

Several of these commands at once are carried out one after the other, under the lock permits:NAME, so NAME has at most
1016 bytes here. The status is 0 if the semaphore has N permits now, also if it had them before; 75 if others were
changing the number for 30 seconds; 76 if something other than a semaphore has the name; and 70 if this command was
stopped for so long that others may have changed the number meanwhile. If the message says that the number may be wrong,
also with another status, run the command again: it looks at the number that there is.";

/// How long the others wait for one that was killed.
const LEASE: Duration = Duration::from_secs(5);
/// How long to wait for others that change the number: each needs some round trips.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

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
        Some(before) if before == i64::from(args.permits) => {
            say(format_args!("{name}: it has {before} permits"));
        }
        Some(before) => say(format_args!(
            "{name}: it has {} permits now, and had {before} before",
            args.permits
        )),
    }
    Ok(0)
}

/// Returns the number before; `None` if there was none. Permits can only be added or removed, so
/// two that set the number at once would both add the difference: the lock keeps them apart.
fn set(client: &LockClient, semaphore: &Semaphore, permits: u32) -> Result<Option<i64>, Failure> {
    let name = visible(semaphore.name());
    let busy = || Failure::new(status::NOT_HAD, format!("{name}: others are changing it"));
    // In front: what ends with a word and has braces may be a key of another name.
    let turn = client.mutex(format!("permits:{}", semaphore.name()));
    let turn = turn.try_lock_owned_for(LONGEST_WAIT)?.ok_or_else(busy)?;
    let before = match semaphore.try_set_permits(permits)? {
        SetPermits::New => return Ok(None),
        SetPermits::Same | SetPermits::SetBefore { .. } => return Ok(Some(i64::from(permits))),
        SetPermits::Different { current } => current,
    };
    turn.ensure_held()?;
    // If the lease ended before the permits were added, another one may have added them as well.
    let added = semaphore.add_permits(i64::from(permits) - before).and_then(|_| turn.unlock());
    let may_be_wrong = "the number of permits may be wrong now, so run this again";
    added.map_err(|e| {
        Failure::new(status_of(e.kind()), format!("{name}: {may_be_wrong}: {}", chain(&e)))
    })?;
    Ok(Some(before))
}
