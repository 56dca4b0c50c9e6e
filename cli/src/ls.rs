//! `leasehold ls`: lists the locks in the store.

use std::time::Duration;

use leasehold::Primitive;
use leasehold::observe::LockSummary;

use crate::failure::{Failure, say};
use crate::holders::{data_of, who};
use crate::output::{write_json, write_out};
use crate::store::StoreArgs;
use crate::text::{padded, time, visible, width};

const DETAILS: &str = "\
In Redis it lists the holds that clients of this library announce, and the locks that somebody waits for, in any
language: it reads the index of clients and the names of channels, and queries 25 names in one request. That costs the
server some hundred microseconds, and about 20 for each lock, however many other keys it has. Not listed, unless
somebody waits for them: holds that have lasted for less than a second, locks of clients of Java and of earlier
releases, locks that --min-hold keeps taken after their client has ended, and, if a client has very many holds, those
that it took last (stderr says how many).

With --all it also finds these: it scans all keys, twice, 500 at a time, with pauses in between. With 400 000 keys, that
costs the server 1 s of its time, in 1 600 portions of 0.6 ms for which other clients have to wait, and takes 10 s in
all. Even so it lists only what it can identify: in Redis, latches and counting semaphores are plain numbers, and so is
a semaphore of which no permit is taken. `leasehold show NAME` shows those. Other stores contain nothing but locks:
there, everything is listed with and without --all.

HELD BY is the owner's name, or the holder's id: Redisson announces no owner. FOR is known for holders that announce
themselves. LEFT is the remaining lease, which a living holder renews. WAITING is the length of the queue of a fair
lock, and of every lock in ZooKeeper; for other locks in Redis, it is the number of clients that are subscribed to the
release (`w`: writers wait for a read lock); `-` means unknown. For a semaphore the free and taken permits are shown,
for Redlock the number of masters on which the lock is held. DATA, what a holder has written beside its hold, is there if
any of them has.

With --json it prints an array. The status is 0 even if there are no locks.";

/// List locks: who holds them, and for how long
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct LsArgs {
    /// The names to list, as a shell pattern: * is any text, ? one character, [a-z] one of these
    #[arg(default_value = "*", hide_default_value = true)]
    pattern: String,

    /// Find all locks, also those of other libraries, by a search over all keys. Slow, and it slows
    /// down other clients of a large Redis
    #[arg(long)]
    all: bool,

    /// Print JSON, as `leasehold schema` describes it
    #[arg(long)]
    json: bool,
}

pub(crate) fn ls(store: &StoreArgs, args: &LsArgs) -> Result<u8, Failure> {
    let client = store.builder()?.build()?;
    let (locks, unlisted) = if args.all {
        (client.locks(&args.pattern)?, 0)
    } else {
        let announced = client.announced_locks(&args.pattern)?;
        (announced.locks().to_vec(), announced.unlisted())
    };
    if unlisted > 0 {
        say(format_args!(
            "{unlisted} more holds, of clients that have very many, are not listed; --all finds them"
        ));
    }
    if args.json {
        let _ = write_json(&locks)?;
    } else if locks.is_empty() {
        let others = if args.all { "" } else { "; --all also finds those of other libraries" };
        say(format_args!("no locks match {}{others}", visible(&args.pattern)));
    } else {
        let mut rows: Vec<Vec<String>> = locks.iter().map(row).collect();
        let mut header = vec!["NAME", "KIND", "HELD BY", "FOR", "LEFT", "WAITING"];
        let data: Vec<Option<String>> = locks.iter().map(data).collect();
        if data.iter().any(Option::is_some) {
            header.push("DATA");
            rows.iter_mut().zip(data).for_each(|(row, data)| row.push(data.unwrap_or_default()));
        }
        let _ = write_out(table(&header, &rows).as_bytes())?;
    }
    Ok(0)
}

fn row(lock: &LockSummary) -> Vec<String> {
    vec![
        visible(lock.name()),
        lock.primitive().to_string(),
        held_by(lock),
        time_or_dash(lock.holders().iter().filter_map(|holder| holder.held_for()).max()),
        time_or_dash(lock.remaining()),
        waiting(lock),
    ]
}

fn held_by(lock: &LockSummary) -> String {
    let mut text = match (lock.primitive(), lock.number(), lock.holders()) {
        (Primitive::Latch, Some(left), _) => format!("{left} left to count"),
        (Primitive::CountingSemaphore, Some(free), _) => format!("{free} free"),
        (_, Some(free), _) => format!("{free} free, {} taken", lock.taken()),
        (_, None, []) => "-".to_owned(),
        (_, None, [one]) => who(one),
        (_, None, [first, rest @ ..]) => format!("{} +{}", who(first), rest.len()),
    };
    if let Some((on, of)) = lock.masters() {
        text.push_str(&format!(", on {on} of {of} masters"));
    }
    text
}

/// Exclusive locks have one holder at most.
fn data(lock: &LockSummary) -> Option<String> {
    const COLUMNS: usize = 60;
    data_of(lock.holders().first()?, COLUMNS)
}

fn waiting(lock: &LockSummary) -> String {
    match lock.waiting() {
        None => "-".to_owned(),
        Some(1..) if lock.primitive() == Primitive::Read => "w".to_owned(),
        Some(waiting) => waiting.to_string(),
    }
}

fn time_or_dash(known: Option<Duration>) -> String {
    known.map_or_else(|| "-".to_owned(), time)
}

/// Aligns the columns. The last one is not padded.
fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            rows.iter()
                .map(|row| width(&row[column]))
                .chain([width(header[column])])
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (cell, wide) in cells.zip(&widths) {
            line.push_str(cell);
            line.push_str(&padded("", wide - width(cell) + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    };
    line(&mut header.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let rows =
            [vec!["名".to_owned(), "x".to_owned()], vec!["abcdef".to_owned(), String::new()]];
        assert_eq!(table(&["A", "B"], &rows), "A       B\n名      x\nabcdef\n");
    }
}
