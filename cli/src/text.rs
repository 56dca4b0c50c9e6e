//! Makes the text of other programs safe for a terminal, and formats times for people.

use std::time::Duration;

use ratatui::style::Style;
use ratatui::text::Span;

/// Characters of a name or a label that would move the cursor, change colours or reverse the
/// direction of writing are shown as `\u{1b}`. Selectors of emoji styles are left out: terminals
/// disagree about the width of a character that has one.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{fe00}'..='\u{fe0f}' => {}
            c if is_unseen(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{180e}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
        )
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// The number of columns that the text takes in a terminal.
pub(crate) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Cuts the text to this many columns, with `…` where something is missing.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let span = Span::raw(text);
    let mut shown = String::new();
    let mut taken = 0;
    for part in span.styled_graphemes(Style::new()) {
        taken += width(part.symbol);
        // One column is for the `…`.
        if taken >= columns {
            break;
        }
        shown.push_str(part.symbol);
    }
    if columns > 0 {
        shown.push('…');
    }
    shown
}

/// Cuts or pads the text to exactly this many columns.
pub(crate) fn padded(text: &str, columns: usize) -> String {
    let text = fit(text, columns);
    let missing = columns - width(&text);
    text + &" ".repeat(missing)
}

/// Shortens an id, because nobody reads a long one to its end.
pub(crate) fn short_id(id: &str) -> String {
    const LONGEST: usize = 16;
    let id = visible(id);
    if id.chars().count() <= LONGEST {
        return id;
    }
    id.chars().take(LONGEST - 1).chain(['…']).collect()
}

/// A time in at most seven columns: `640 ms`, `1.8 s`, `42.0 s`, `4m05s`, `2h03m`, `3d04h`.
pub(crate) fn time(time: Duration) -> String {
    let millis = time.as_millis();
    let seconds = time.as_secs();
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", seconds, millis % 1_000 / 100),
        60_000..3_600_000 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600_000..86_400_000 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(visible("a\u{1b}[2Jb\r\n"), "a\\u{1b}[2Jb\\u{d}\\u{a}");
        assert_eq!(visible("\u{9b}31m \u{202e}x\u{200d}y"), "\\u{9b}31m \\u{202e}x\\u{200d}y");
        assert_eq!(visible("Köln 東京 ❤\u{fe0f}"), "Köln 東京 ❤");
    }

    #[test]
    fn texts_are_cut_by_columns() {
        assert_eq!(fit("report", 6), "report");
        assert_eq!(fit("report", 5), "repo…");
        assert_eq!(fit("東京都", 5), "東京…");
        assert_eq!(fit("東京都", 4), "東…");
        assert_eq!(fit("東京都", 1), "…");
        assert_eq!(fit("report", 0), "");
        assert_eq!(padded("東", 4), "東  ");
        assert_eq!(padded("東京都", 4), "東… ");
    }

    #[test]
    fn times_are_short() {
        for (millis, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_800, "1.8 s"),
            (59_999, "59.9 s"),
            (245_000, "4m05s"),
            (7_380_000, "2h03m"),
            (273_600_000, "3d04h"),
        ] {
            assert_eq!(time(Duration::from_millis(millis)), text);
        }
    }
}
