//! `leasehold ls`: what stands in the store.

use std::time::Duration;

use leasehold::Primitive;
use leasehold::observe::LockSummary;

use crate::failure::{Failure, say};
use crate::holders::who;
use crate::output::{write_json, write_out};
use crate::store::StoreArgs;
use crate::text::{padded, time, visible, width};

const DETAILS: &str = "\
In Redis it lists what clients of this library say that they hold, and what somebody waits for, in any language: it reads the
index of clients and the names of channels, and looks at 25 names in one request. That costs the server some hundred
microseconds, and some 20 for each lock, however many other keys it has. Not listed are, unless somebody waits for them: holds
that have lasted for less than a second, locks of clients of Java and of releases before this one, what --min-hold keeps taken
after its client has ended, and of a client with very many holds those that it took last (stderr says how many).

With --all it also finds these: it goes over all keys, twice, 500 at a time, with rests between. 400 000 keys cost the server
1 s of its time, in 1 600 portions of 0.6 ms for which other clients have to wait, and take 10 s in all. Even so it shows what nothing else looks like: latches and counting semaphores are plain numbers in Redis, and so is
a semaphore of which no permit is taken. `leasehold show NAME` shows those. Other stores have nothing but locks: there both
list everything.

HELD BY is what a holder says of itself, or its id: Redisson says nothing. FOR is known of holders that say who they are. LEFT
is what is left of the lease; who lives renews it. WAITING is the queue of a fair lock and of everything over ZooKeeper; in
Redis otherwise the clients that listen for a release (`w`: for a lock that is read); `-` if it is not known. A semaphore shows
its free and taken permits, Redlock on how many masters a lock stands.

With --json an array. Status 0 also if there are none.";

/// List locks: what is held, by whom, for how long
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct LsArgs {
    /// Which names, as in a shell: * is any text, ? one character, [a-z] one of these
    #[arg(default_value = "*", hide_default_value = true)]
    pattern: String,

    /// Find all, also those of other libraries, by a search over all keys. Slow, and felt by others
    /// who use a large Redis
    #[arg(long)]
    all: bool,

    /// Print JSON, as `leasehold schema` describes it
    #[arg(long)]
    json: bool,
}

pub(crate) fn ls(store: &StoreArgs, args: &LsArgs) -> Result<u8, Failure> {
    let client = store.builder()?.build()?;
    let (locks, unlisted) = match args.all {
        true => (client.locks(&args.pattern)?, 0),
        false => {
            let announced = client.announced_locks(&args.pattern)?;
            (announced.locks().to_vec(), announced.unlisted())
        }
    };
    if unlisted > 0 {
        say(format_args!("{unlisted} more holds, of clients that have very many, are not listed; --all finds them"));
    }
    if args.json {
        let _ = write_json(&locks)?;
    } else if locks.is_empty() {
        let others = if args.all { "" } else { "; --all also finds those of other libraries" };
        say(format_args!("no locks match {}{others}", visible(&args.pattern)));
    } else {
        let rows: Vec<Vec<String>> = locks.iter().map(row).collect();
        let _ = write_out(table(&["NAME", "KIND", "HELD BY", "FOR", "LEFT", "WAITING"], &rows).as_bytes())?;
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

/// Rows with the columns below each other. The last column is not padded.
fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..header.len())
        .map(|column| rows.iter().map(|row| width(&row[column])).chain([width(header[column])]).max().unwrap_or(0))
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
        let rows = [vec!["名".to_owned(), "x".to_owned()], vec!["abcdef".to_owned(), String::new()]];
        assert_eq!(table(&["A", "B"], &rows), "A       B\n名      x\nabcdef\n");
    }
}
