//! Text of other programs, and times, as they are shown to people.

use std::time::Duration;

use leasehold::{HolderOwner, LockHolder};
use ratatui::text::Span;

/// Names, labels and ids are what other programs have written: control characters and those that
/// change the direction of text would reach the terminal of whoever looks at them.
pub(crate) fn plain(text: &str) -> String {
    let is_safe = |c: char| {
        !c.is_control()
            && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().map(|c| if is_safe(c) { c.to_string() } else { c.escape_unicode().to_string() }).collect()
}

/// As exact as people need it.
pub(crate) fn rough(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// What is not known is a dash.
pub(crate) fn rough_or_dash(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), rough)
}

/// Who holds it: what it says of itself, or else its id.
pub(crate) fn who(holder: &LockHolder) -> String {
    // Its owner has given it up.
    if is_kept(holder) {
        return "nobody (min_hold)".to_owned();
    }
    who_or_id(holder.owner(), holder.id())
}

pub(crate) fn who_or_id(owner: Option<&HolderOwner>, id: &str) -> String {
    plain(&owner.map_or_else(|| id.to_owned(), ToString::to_string))
}

/// Whether it was given up, and stays taken until its shortest hold is over.
pub(crate) fn is_kept(holder: &LockHolder) -> bool {
    holder.id().ends_with(":kept")
}

/// Rows with the columns below each other. The last column is not padded.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |text: &str| Span::raw(text).width();
    let widths: Vec<usize> = (0..header.len())
        .map(|column| rows.iter().map(|row| width(&row[column])).chain([width(header[column])]).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (cell, wide) in cells.zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', wide - width(cell) + 2));
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
    fn what_could_act_on_a_terminal_is_escaped() {
        assert_eq!(plain("job-ä 名"), "job-ä 名");
        assert_eq!(plain("\u{1b}[2Jx\n\u{9b}y\u{202e}"), "\\u{1b}[2Jx\\u{a}\\u{9b}y\\u{202e}");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let rows = [vec!["名".to_owned(), "x".to_owned()], vec!["abcdef".to_owned(), String::new()]];
        assert_eq!(table(&["A", "B"], &rows), "A       B\n名      x\nabcdef\n");
    }

    #[test]
    fn times_are_rough() {
        for (millis, text) in
            [(5, "5 ms"), (119_999, "119 s"), (120_000, "2 min"), (7_200_000, "2 h"), (172_800_000, "2 d")]
        {
            assert_eq!(rough(Duration::from_millis(millis)), text);
        }
    }
}
