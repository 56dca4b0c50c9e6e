//! `leasehold show`: everything under one name.

use leasehold::Primitive;
use leasehold::observe::{LockHolder, LockReport, LockSummary};
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

pub(crate) fn show(store: &StoreArgs, args: &ShowArgs) -> Result<u8, Failure> {
    let report = store.builder()?.build()?.inspect(&args.name)?;
    if args.json {
        let _ = match &report {
            Some(report) => write_json(report),
            None => write_json(&FreeView { name: &args.name, ..FreeView::default() }),
        }?;
    } else {
        let text =
            report.as_ref().map_or_else(|| format!("{}: free\n", visible(&args.name)), text_of);
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
