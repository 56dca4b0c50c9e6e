//! One lock as a row of the screen.

use std::time::Duration;

use leasehold::Primitive;
use leasehold::observe::{LockHolder, LockSummary};

use crate::text::{short_id, visible};

/// Identifies a lock from one poll to the next. One name may have a lock, permits, a latch and a
/// job; a lock may change from plain to fair, and from read to write.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    name: String,
    class: u8,
}

impl Key {
    pub(super) fn of(lock: &LockSummary) -> Self {
        let class = match lock.primitive() {
            Primitive::Semaphore | Primitive::CountingSemaphore => 1,
            Primitive::Latch => 2,
            Primitive::Once => 3,
            _ => 0,
        };
        Self { name: lock.name().to_owned(), class }
    }

    #[cfg(test)]
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), class: 0 }
    }
}

/// All texts are safe for a terminal.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) key: Key,
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) holder: String,
    pub(super) held: Option<Duration>,
    pub(super) left: Option<Duration>,
    pub(super) waiting: Option<u64>,
    pub(super) rate: Option<f64>,
    pub(super) permits: String,
    pub(super) masters: String,
    pub(super) is_taken: bool,
    /// The lock in one sentence.
    pub(super) detail: String,
}

impl Row {
    pub(super) fn new(lock: &LockSummary, rate: Option<f64>) -> Self {
        let oldest = lock
            .holders()
            .iter()
            .max_by(|a, b| a.held_for().cmp(&b.held_for()).then(b.id().cmp(a.id())));
        Self {
            key: Key::of(lock),
            name: visible(lock.name()),
            kind: kind(lock.primitive()),
            holder: oldest
                .map(|holder| name_of(holder, lock.holders().len() - 1))
                .unwrap_or_default(),
            held: oldest.and_then(LockHolder::held_for),
            left: lock.remaining(),
            waiting: lock.waiting(),
            rate,
            permits: permits(lock),
            masters: lock.masters().map(|(on, of)| format!("{on}/{of}")).unwrap_or_default(),
            is_taken: lock.taken() > 0,
            detail: visible(&lock.to_string()),
        }
    }
}

fn kind(primitive: Primitive) -> &'static str {
    match primitive {
        // The full name is wider than the column.
        Primitive::CountingSemaphore => "counting",
        other => other.as_str(),
    }
}

fn name_of(holder: &LockHolder, more: usize) -> String {
    // In front of the part that a narrow column cuts off.
    let more = if more == 0 { String::new() } else { format!(" +{more}") };
    match holder.owner() {
        Some(owner) => {
            visible(&format!("{}{more} (pid {} on {})", owner.label(), owner.pid(), owner.host()))
        }
        None if holder.is_kept() => format!("nobody (--min-hold){more}"),
        None => short_id(holder.id()) + &more,
    }
}

fn permits(lock: &LockSummary) -> String {
    match (lock.primitive(), lock.number()) {
        (Primitive::Latch, Some(left)) => format!("{left} left"),
        (_, Some(free)) => match i64::try_from(lock.taken()) {
            Ok(taken) if lock.primitive() == Primitive::Semaphore => {
                format!("{free}/{}", free.saturating_add(taken))
            }
            _ => format!("{free} free"),
        },
        (_, None) => String::new(),
    }
}
