//! What a terminal shows after everything that was written to it.

use std::collections::BTreeMap;

/// The lines of a screen of this size. Panics at an escape sequence that the command itself does
/// not write: it must come from a name in the store.
#[track_caller]
pub(crate) fn screen(written: &str, rows: usize, columns: usize) -> Vec<String> {
    let mut screen = Screen { cells: BTreeMap::new(), row: 0, column: 0 };
    let mut rest = written;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\u{1b}' => match rest.strip_prefix('[').and_then(|rest| {
                let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
                Some((&rest[..end], rest[end..].chars().next()?, &rest[end + 1..]))
            }) {
                Some((parameters, what, behind)) => {
                    screen.obey(parameters, what);
                    rest = behind;
                }
                // The rest of the sequence has not arrived yet.
                None if rest.len() < 12 && !rest.contains(']') => break,
                None => panic!(
                    "an escape sequence from elsewhere: {:?}",
                    rest.chars().take(20).collect::<String>()
                ),
            },
            '\r' => screen.column = 0,
            '\n' => screen.row += 1,
            c => {
                assert!(!c.is_control(), "a control character from elsewhere: {c:?}");
                screen.cells.insert((screen.row, screen.column), c);
                screen.column += 1;
            }
        }
    }
    let line = |row| {
        let cell = |column| screen.cells.get(&(row, column)).copied().unwrap_or(' ');
        (0..columns).map(cell).collect::<String>().trim_end().to_owned()
    };
    (0..rows).map(line).collect()
}

struct Screen {
    cells: BTreeMap<(usize, usize), char>,
    row: usize,
    column: usize,
}

impl Screen {
    fn obey(&mut self, parameters: &str, what: char) {
        match (parameters, what) {
            (_, 'H') => {
                let mut numbers =
                    parameters.split(';').map(|number| number.parse().unwrap_or(1_usize));
                self.row = numbers.next().unwrap_or(1) - 1;
                self.column = numbers.next().unwrap_or(1) - 1;
            }
            ("2", 'J') => self.cells.clear(),
            ("?1049" | "?25", 'h' | 'l') | (_, 'm') => {}
            other => panic!("an escape sequence from elsewhere: {other:?}"),
        }
    }
}
