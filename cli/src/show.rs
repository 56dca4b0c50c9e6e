//! `leasehold show`: everything under one name.

use std::time::Duration;

use leasehold::observe::{LockHolder, LockReport, LockSummary};
use leasehold::{ErrorKind, LockClient, Primitive, Settled};
use serde::Serialize;

use crate::failure::{Failure, status};
use crate::holders::{data_of, who, who_or_id};
use crate::output::{write_json, write_out};
use crate::store::StoreArgs;
use crate::text::{time, visible};

const DETAILS: &str = "\
Shows everything under the name: the kind, the holders with their owners, ids and data, the remaining leases, the queue
in its order, the permits, and the last fencing token.

A holder without an owner is a client of Redisson, or a client of this library that does not announce itself. Redisson's
ids are the ones in its own logs: the client's UUID and the number of the thread.

Of a scheduled job it shows who runs it now, and the newest occurrence that was done.

If the lock is free, it prints \"free\" and the status is 1.";

/// Show one lock: holders, queue, permits, fencing token
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct ShowArgs {
    /// The name of the lock
    name: String,

    /// Print JSON, as `leasehold schema` describes it
    #[arg(long)]
    json: bool,
}

/// The report for a free name: the library makes none.
#[derive(Default, Serialize)]
struct FreeView<'n> {
    name: &'n str,
    locks: [(); 0],
    queue: [(); 0],
    number: Option<i64>,
    last_token: Option<u64>,
}

#[derive(Serialize)]
struct ShowView<R> {
    #[serde(flatten)]
    report: R,
    newest_done: Option<String>,
}

/// Every other label comes after it.
const FIRST_LABEL: &str = "+";

/// The newest occurrence of the job of this name that was done; `None` also where that is not to be
/// known.
fn newest_done(client: &LockClient, name: &str) -> Result<Option<String>, Failure> {
    match client.once(name, FIRST_LABEL).wait_done_for(Duration::ZERO) {
        Ok(Some(Settled::Passed { newest, .. })) => Ok(newest),
        Ok(_) => Ok(None),
        Err(e) => match e.kind() {
            // Redlock has no jobs, and the user may have no right to their keys.
            ErrorKind::Unsupported | ErrorKind::Denied => Ok(None),
            ErrorKind::InvalidInput | ErrorKind::WrongType => Ok(None),
            _ => Err(e.into()),
        },
    }
}

pub(crate) fn show(store: &StoreArgs, args: &ShowArgs) -> Result<u8, Failure> {
    let client = store.builder()?.build()?;
    let report = client.inspect(&args.name)?;
    let newest_done = newest_done(&client, &args.name)?;
    if args.json {
        let _ = match &report {
            Some(report) => write_json(&ShowView { report, newest_done }),
            None => {
                let report = FreeView { name: &args.name, ..FreeView::default() };
                write_json(&ShowView { report, newest_done })
            }
        }?;
    } else {
        let mut text =
            report.as_ref().map_or_else(|| format!("{}: free\n", visible(&args.name)), text_of);
        if let Some(label) = newest_done {
            text += &format!("  done     {}, the newest occurrence of this job\n", visible(&label));
        }
        let _ = write_out(text.as_bytes())?;
    }
    Ok(if report.is_some() { 0 } else { status::FREE })
}

fn text_of(report: &LockReport) -> String {
    let mut lines = vec![visible(report.name())];
    let mut add = |what: &str, text: String| lines.push(format!("  {what:<9}{text}"));
    if let Some(number) = report.number() {
        add(
            "number",
            format!("{number} (a latch or a semaphore: nothing in the store shows which)"),
        );
    }
    for lock in report.locks() {
        add("kind", lock.primitive().to_string());
        if let Some(text) = count(lock) {
            add("count", text);
        }
        if let Some((on, of)) = lock.masters() {
            add("masters", format!("on {on} of {of}"));
        }
        for holder in lock.holders() {
            match lock.primitive() {
                Primitive::Semaphore => {
                    add("permit", format!("{}, {}", describe(holder), made_by(holder)));
                }
                _ => add("held by", describe(holder)),
            }
            if let Some(data) = data_of(holder, usize::MAX) {
                add("data", data);
            }
        }
        match lock.waiting() {
            Some(1) if lock.primitive() == Primitive::Read => add("waiting", "writers".to_owned()),
            Some(waiting @ 1..) => add("waiting", waiting.to_string()),
            _ => {}
        }
    }
    for (place, waiter) in report.queue().iter().enumerate() {
        let ends = match waiter.remaining() {
            Some(left) if left.is_zero() => ", expired: it was silent for too long".to_owned(),
            Some(left) => format!(", its place ends in {} unless it is renewed", time(left)),
            None => String::new(),
        };
        add("queue", format!("{}. {}{ends}", place + 1, who_or_id(waiter.owner(), waiter.id())));
    }
    if let Some(token) = report.last_token() {
        add("token", format!("{token}, the last one that was issued"));
    }
    lines.join("\n") + "\n"
}

fn count(lock: &LockSummary) -> Option<String> {
    Some(match lock.primitive() {
        Primitive::Latch => format!("{} left to count", lock.number()?),
        Primitive::CountingSemaphore => format!("{} free", lock.number()?),
        _ => format!("{} free, {} taken", lock.number()?, lock.taken()),
    })
}

fn made_by(permit: &LockHolder) -> &'static str {
    if permit.is_foreign() { "of another library" } else { "of this library" }
}

/// Describes a holder in one line.
pub(crate) fn describe(holder: &LockHolder) -> String {
    let mut text = who(holder);
    if holder.hold_count() > 1 {
        text.push_str(&format!(" x{}", holder.hold_count()));
    }
    if let Some(held_for) = holder.held_for() {
        text.push_str(&format!(" for {}", time(held_for)));
    }
    if let Some(left) = holder.remaining() {
        text.push_str(&format!(", its lease ends in {}", time(left)));
    }
    if holder.owner().is_some() && !holder.is_kept() {
        text.push_str(&format!(", id {}", visible(holder.id())));
    }
    text
}
