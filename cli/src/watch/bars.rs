//! The time line as bars of block characters, one line for each holder.

use std::time::Duration;

use super::timeline::{Span, Timeline};
use crate::text::{padded, width};

const MOST_ROWS: usize = 12;
/// A narrower bar shows nothing useful.
const FEWEST_COLUMNS: usize = 20;

/// Empty if the terminal is too narrow.
pub(super) fn bars(timeline: &Timeline, columns: usize) -> String {
    let mut shown = timeline.shown_groups();
    shown.sort_by_key(|group| std::cmp::Reverse(group.total));
    shown.truncate(MOST_ROWS);
    let mut rows: Vec<(String, &[Span])> =
        shown.iter().map(|group| (group.who(), &group.spans[..])).collect();
    if !timeline.unknown.is_empty() {
        rows.push(("unknown".to_owned(), &timeline.unknown));
    }
    let longest = rows.iter().map(|(name, _)| width(name)).max().unwrap_or_default();
    let names = longest.min(columns / 3);
    let Some(cells) = columns.checked_sub(names + 5).filter(|cells| *cells >= FEWEST_COLUMNS)
    else {
        return String::new();
    };
    let mut text = String::from("\n");
    for (name, spans) in rows {
        text += &format!("  {} │{}│\n", padded(&name, names), bar(spans, timeline.end, cells));
    }
    text
}

/// Each cell is as dark as the part of its time that the spans cover.
fn bar(spans: &[Span], end: Duration, cells: usize) -> String {
    let cell = end.as_secs_f64() / cells as f64;
    let mut parts = vec![0.0_f64; cells];
    for (from, to) in spans {
        let from = from.as_secs_f64() / cell;
        let to = to.as_secs_f64() / cell;
        let first = from.floor() as usize;
        let last = (to.ceil() as usize).min(cells);
        for (place, part) in parts.iter_mut().enumerate().take(last).skip(first) {
            *part += (to.min((place + 1) as f64) - from.max(place as f64)).max(0.0);
        }
    }
    let shade = |part: &f64| match part {
        ..0.001 => '·',
        ..0.25 => '░',
        ..0.5 => '▒',
        ..0.8 => '▓',
        _ => '█',
    };
    parts.iter().map(shade).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_as_dark_as_they_are_full() {
        let ms = Duration::from_millis;
        assert_eq!(bar(&[(ms(0), ms(500)), (ms(900), ms(1_000))], ms(1_000), 10), "█████····█");
        assert_eq!(bar(&[(ms(50), ms(70)), (ms(130), ms(170))], ms(200), 2), "░▒");
        assert_eq!(bar(&[], ms(0), 3), "···");
        assert_eq!(bar(&[(ms(0), ms(0))], ms(0), 3).chars().count(), 3, "no time at all");
    }
}
