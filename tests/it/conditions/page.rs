//! The page of the guide that says what each call answers under each condition: generated from the
//! rows, which the cells are judged by.

use leasehold::ErrorKind;

use super::row::{Class, Row};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/what_happens_when.rs");

const HEAD: &str = "\
//! What each call answers while something is wrong.
//!
//! This page is generated from the table that the tests use: each call of the crate is made under
//! each condition, beside a hold and calls that have nothing to do with it, and must answer what is
//! said here. An error is an [`ErrorKind`](crate::ErrorKind); its message names the condition.
//!
//! In every row:
//!
//! - Calls that send nothing ([`is_held`](crate::ReentrantMutexGuard::is_held), ...) answer at
//!   once, and a guard that is dropped blocks no longer than its `unlock`.
//! - A call ends within three [I/O timeouts](crate::Builder::io_timeout), beside the time that it
//!   was given to wait, and [`diagnose`](crate::LockClient::diagnose) within ten.
//! - A call that waits already goes on when the condition is over, unless the table says something
//!   else, or it took longer than the [outage timeout](crate::Builder::outage_timeout). A wait of
//!   a [rate limiter](crate::RateLimiter) asks nothing until its permits come back.
//! - When the condition is over, nothing is left. What could not be given back is given back in
//!   the background; where the server refused it, it ends with its lease.
//! - Other locks of the same client are not affected by a condition of one lock, and other clients
//!   of the program by none.
//! - The client has no more [connections](crate::guide::operations#connections) than it may have.
";

/// Classes in the order of the columns. What calls of one column answer differently, its cells name.
const COLUMNS: [(&str, &[Class]); 9] = [
    ("takes a lock", &[Class::Take]),
    ("takes a permit", &[Class::TakePermit]),
    ("waits already", &[Class::Wait, Class::WaitForPermit]),
    ("reads", &[Class::Look]),
    ("lists", &[Class::List]),
    ("extends, re-enters or downgrades", &[Class::Keep, Class::Reenter]),
    ("changes something else", &[Class::Change]),
    ("frees by force", &[Class::Force]),
    ("gives back", &[Class::Release, Class::Return]),
];

fn cell(row: &Row, classes: &[Class]) -> String {
    let mut kinds: Vec<Option<ErrorKind>> = Vec::new();
    for answer in classes.iter().flat_map(|class| (row.answers)(*class)) {
        if !kinds.contains(answer) {
            kinds.push(*answer);
        }
    }
    kinds.sort_by_key(Option::is_some);
    let texts: Vec<_> = kinds
        .iter()
        .map(|kind| kind.map_or("works".to_owned(), |kind| format!("`{kind:?}`")))
        .collect();
    match &texts[..] {
        [] => "not supported".to_owned(),
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => texts.concat(),
    }
}

fn section(title: &str, rows: &[Row]) -> String {
    let columns = COLUMNS.map(|(column, _)| column).join(" | ");
    let rule = "---|".repeat(COLUMNS.len() + 1);
    let mut text = format!("//!\n//! # {title}\n//!\n//! | condition | {columns} |\n//! |{rule}\n");
    for row in rows {
        let cells = COLUMNS.map(|(_, classes)| cell(row, classes)).join(" | ");
        text.push_str(&format!("//! | {} | {cells} |\n", row.words));
    }
    text
}

fn page() -> String {
    let sections = super::deployments().into_iter().map(|(title, rows)| section(title, &rows));
    HEAD.to_owned() + &sections.collect::<String>()
}

/// `LEASEHOLD_WRITE=1` writes it.
#[test]
fn the_page_of_the_guide_is_up_to_date() {
    let page = page();
    if std::env::var_os("LEASEHOLD_WRITE").is_some() {
        std::fs::write(FILE, &page).expect("the page");
    }
    let written = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(written == page, "{FILE} is out of date: run this test with LEASEHOLD_WRITE=1");
}
