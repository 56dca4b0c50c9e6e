//! Each holder's share of the time.

use std::fmt;
use std::time::Duration;

use leasehold::observe::HolderOwner;

use super::timeline::{Group, Timeline};
use crate::text::{padded, time, width};

/// More would not fit on a screen.
const MOST_LINES: usize = 20;
const WIDEST: usize = 50;

pub(super) struct Summary {
    pub(super) watched: Duration,
    pub(super) free: Duration,
    pub(super) unknown: Duration,
    /// Each client, those with the longest time first.
    pub(super) clients: Vec<Share>,
    /// The same; if there are many, clients with one label and host are one entry.
    shown: Vec<Share>,
}

pub(super) struct Share {
    pub(super) client: String,
    pub(super) owner: Option<HolderOwner>,
    pub(super) who: String,
    pub(super) held: Duration,
    pub(super) times: u64,
    /// The share of the whole time.
    pub(super) part: f64,
}

impl Summary {
    pub(super) fn of(timeline: &Timeline) -> Self {
        let share = |group: &Group| Share {
            client: group.client.clone(),
            owner: group.owner.clone(),
            who: group.who(),
            held: group.total,
            times: group.times,
            part: part(group.total, timeline.end),
        };
        let shares = |groups: &[Group]| {
            let mut shares: Vec<Share> = groups.iter().map(share).collect();
            shares.sort_by(|a, b| b.held.cmp(&a.held).then_with(|| a.client.cmp(&b.client)));
            shares
        };
        Self {
            watched: timeline.end,
            free: timeline.free,
            unknown: timeline.unknown_time(),
            clients: shares(&timeline.groups),
            shown: shares(&timeline.shown_groups()),
        }
    }
}

pub(super) fn part(time: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { time.as_secs_f64() / whole.as_secs_f64() }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.shown[..self.shown.len().min(MOST_LINES)];
        let names =
            shown.iter().map(|share| width(&share.who)).max().unwrap_or_default().clamp(8, WIDEST);
        writeln!(f, "\nwatched for {}", time(self.watched))?;
        let mut line = |name: &str, held: Duration, rest: &str| {
            let percent = part(held, self.watched) * 100.0;
            writeln!(f, "  {}  {percent:5.1} %  {:>7}{rest}", padded(name, names), time(held))
        };
        for Share { who, held, times, .. } in shown {
            let times = if *times == 1 { "  once".to_owned() } else { format!("  {times} times") };
            line(who, *held, &times)?;
        }
        let rest = &self.shown[shown.len()..];
        if !rest.is_empty() {
            line(&format!("{} more", rest.len()), rest.iter().map(|share| share.held).sum(), "")?;
        }
        line("free", self.free, "")?;
        if self.unknown.is_zero() { Ok(()) } else { line("unknown", self.unknown, "") }
    }
}
