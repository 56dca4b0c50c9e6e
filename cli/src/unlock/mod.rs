//! `leasehold unlock`: frees a lock by force, for an operator.

mod signs_of_life;

use std::io::{BufRead, IsTerminal, Write};

use leasehold::observe::{LockHolder, LockReport, LockSummary};
use leasehold::{LockClient, Primitive};
use serde::Serialize;

use crate::failure::{Failure, say, status};
use crate::output::{write_json, write_out};
use crate::show::describe;
use crate::store::StoreArgs;
use crate::text::visible;
use signs_of_life::{renewed_since, sign_of_life};

const DETAILS: &str = "\
For a lock whose holder is gone or hangs. It shows who will lose the lock and how they notice, and frees the lock; the
next waiter gets it.

It refuses, with status 75, while a holder is alive: if it renewed the lock, or its client announced itself, less than a
third of its lease ago. Where that cannot be seen at once, it watches for up to 11 s whether the holder does so.

--force is needed for a hold that ends with a session (ZooKeeper), for one without a lease, and for one whose lease is not
known: of another library, of a client that announces nothing, or longer than that of its client. It may be a fixed lease,
which is never renewed, so its holder cannot be told from one that was killed. Such a lock is free when its lease ends.

It also refuses if another holder has taken the lock since it was shown or, without --force, if it was renewed since;
only a change in the last round trip before the lock is freed goes unnoticed.

The holder goes on with its work until it notices: only a resource that checks fencing tokens (LEASEHOLD_TOKEN) refuses
it at once. Permits of a semaphore are not freed by force: they end with their leases.

The status is 0 if the lock is free, also if it was free before.";

/// Free a lock by force, whoever holds it
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct UnlockArgs {
    /// The name of the lock
    name: String,

    /// Ask before the lock is freed. Needs a terminal at stdin
    #[arg(long)]
    ask: bool,

    /// Free the lock even if its holder is alive
    #[arg(long)]
    force: bool,

    /// Print JSON, as `leasehold schema` describes it
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct View<'l> {
    name: &'l str,
    freed: bool,
    /// Why it was not freed; `null` if it was, or was free before.
    refused: Option<String>,
    holders: &'l [LockHolder],
}

pub(crate) fn unlock(store: &StoreArgs, args: &UnlockArgs) -> Result<u8, Failure> {
    if args.ask && !std::io::stdin().is_terminal() {
        let why =
            "--ask needs a terminal at stdin; leave it out to free the lock without a question";
        return Err(Failure::new(status::USAGE, why));
    }
    let client = store.builder()?.build()?;
    let report = client.inspect(&args.name)?;
    let held = report.as_ref().and_then(held_lock);
    let Some(lock) = held else {
        refuse_what_is_no_lock(report.as_ref())?;
        return answer(args, &[], false, None);
    };
    match args.json {
        false => drop(write_out(announcement(lock).as_bytes())?),
        true if args.ask => announcement(lock).lines().for_each(say),
        true => {}
    }
    if !args.force
        && let Some(sign) = sign_of_life(&client, &args.name, lock)?
    {
        return answer(
            args,
            lock.holders(),
            false,
            Some(format!("{sign}; use --force to free it anyway")),
        );
    }
    if args.ask && !is_agreed()? {
        return answer(args, lock.holders(), false, Some("the answer was not yes".to_owned()));
    }
    if let Some(why) = changed(&client, args, report.as_ref(), lock)? {
        return answer(args, lock.holders(), false, Some(why));
    }
    let freed = free(&client, lock)?;
    answer(args, lock.holders(), freed, None)
}

/// What is held under the name.
fn held_lock(report: &LockReport) -> Option<&LockSummary> {
    report.locks().iter().find(|lock| is_lock(lock.primitive()) && !lock.holders().is_empty())
}

fn is_lock(primitive: Primitive) -> bool {
    matches!(primitive, Primitive::Mutex | Primitive::Fair | Primitive::Read | Primitive::Write)
}

fn refuse_what_is_no_lock(report: Option<&LockReport>) -> Result<(), Failure> {
    let Some(report) = report else { return Ok(()) };
    let other = report.locks().iter().find(|one| !is_lock(one.primitive()));
    if other.is_none() && report.number().is_none() {
        return Ok(());
    }
    let what = other.map_or_else(|| "number".to_owned(), |one| one.primitive().to_string());
    let is_semaphore = other.is_some_and(|one| one.primitive() == Primitive::Semaphore);
    let remedy =
        if is_semaphore { "; `leasehold permits` sets the number of its permits" } else { "" };
    let name = visible(report.name());
    let why =
        format!("{name}: it is not a lock but a {what}, which cannot be freed by force{remedy}");
    Err(Failure::new(status::PROTOCOL, why))
}

fn announcement(lock: &LockSummary) -> String {
    let mut text = format!("{}, {}, is held by\n", visible(lock.name()), lock.primitive());
    for holder in lock.holders() {
        text.push_str(&format!("  {}\n    {}\n", describe(holder), what_it_is_told(holder)));
    }
    text
}

fn what_it_is_told(holder: &LockHolder) -> &'static str {
    if holder.is_kept() {
        "nobody loses it: its holder has released it, and --min-hold keeps it taken"
    } else if holder.is_foreign() {
        if holder.remaining().is_some() {
            "a client of another library (Redisson): it learns of this only when its unlock fails"
        } else {
            // This is ZooKeeper: in no other store is a lock without a lease.
            "a client of another library: if it is Curator, it never learns of this; its release finds no node, and does \
             not fail"
        }
    } else {
        "learns at its next renewal, within a third of its lease, that it has lost the lock; `leasehold run` ends its command"
    }
}

fn is_agreed() -> Result<bool, Failure> {
    let failed = |e| Failure::new(status::USAGE, format!("cannot read the answer: {e}"));
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "Free it by force? [y/N] ").and_then(|()| stderr.flush());
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(failed)?;
    Ok(["y", "yes"].contains(&line.trim().to_ascii_lowercase().as_str()))
}

fn ids_of(lock: &LockSummary) -> Vec<String> {
    let mut ids: Vec<String> = lock.holders().iter().map(|holder| holder.id().to_owned()).collect();
    ids.sort_unstable();
    ids
}

/// Why the lock must not be freed any more, if it has changed since it was shown: the decision was
/// not about whoever got it meanwhile.
fn changed(
    client: &LockClient,
    args: &UnlockArgs,
    shown: Option<&LockReport>,
    lock: &LockSummary,
) -> Result<Option<String>, Failure> {
    let report = client.inspect(&args.name)?;
    // Two holds of one client may have the same id, but not the same token.
    let token = |report: Option<&LockReport>| report.and_then(LockReport::last_token);
    let now = report.as_ref().and_then(held_lock);
    if now.map(ids_of) != Some(ids_of(lock)) || token(report.as_ref()) != token(shown) {
        return Ok(Some("its holder has changed meanwhile: check again".to_owned()));
    }
    let renewed = now.and_then(|now| renewed_since(lock.holders(), now.holders()));
    Ok(renewed.filter(|_| !args.force).map(|sign| format!("{sign}; use --force to free it anyway")))
}

/// Frees the lock through its own kind of handle: only that of a fair lock passes it to the first
/// waiter in its queue.
fn free(client: &LockClient, lock: &LockSummary) -> Result<bool, Failure> {
    Ok(match lock.primitive() {
        Primitive::Read | Primitive::Write => client.rw_lock(lock.name()).force_unlock()?,
        Primitive::Fair => client.fair(lock.name()).force_unlock()?,
        _ => client.mutex(lock.name()).force_unlock()?,
    })
}

fn answer(
    args: &UnlockArgs,
    holders: &[LockHolder],
    freed: bool,
    refused: Option<String>,
) -> Result<u8, Failure> {
    let name = visible(&args.name);
    let status = if refused.is_some() { status::NOT_HAD } else { 0 };
    if args.json {
        let _ = write_json(&View { name: &args.name, freed, refused, holders })?;
        return Ok(status);
    }
    match refused {
        Some(why) => say(format_args!("{name}: not freed: {why}")),
        None if freed => say(format_args!("{name}: freed")),
        None => say(format_args!("{name}: it was free")),
    }
    Ok(status)
}
