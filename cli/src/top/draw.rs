//! Draws a `TopState` into the cells of the screen. No I/O.

use std::time::Duration;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::row::Row;
use super::state::TopState;
use super::table::{Column, GAP, columns};
use crate::text::{fit, padded, time, width};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const TROUBLE: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
/// Not by colour alone: grey is hard to see on some backgrounds, and dim does nothing on some
/// terminals.
const STALE: Style = Style::new().fg(Color::DarkGray).add_modifier(Modifier::DIM);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
const TITLES: Style = Style::new().add_modifier(Modifier::BOLD).add_modifier(Modifier::UNDERLINED);
/// Visible on dark and on light backgrounds.
const WAITED_FOR: Style = Style::new().fg(Color::Magenta).add_modifier(Modifier::BOLD);
const QUIET: Style = Style::new().fg(Color::DarkGray);

const KEYS: [(&str, &str); 6] = [
    ("q", "quit"),
    ("↑↓", "choose"),
    ("s", "sort"),
    ("r", "reverse"),
    ("/", "filter"),
    ("space", "pause"),
];
/// With fewer lines there is no room for help.
const LINES_FOR_HELP: u16 = 9;

pub(super) fn draw(frame: &mut Frame<'_>, state: &mut TopState, now: Duration) {
    let help = if frame.area().height >= LINES_FOR_HELP { 1 } else { 0 };
    let trouble = trouble(state, now);
    let lines = [2, u16::from(trouble.is_some()), help, 1];
    let [header, middle, gap, titles, rows, gap_below, detail, keys] = Layout::vertical([
        Constraint::Length(lines[0]),
        Constraint::Length(lines[1]),
        Constraint::Length(lines[2]),
        Constraint::Length(lines[3]),
        Constraint::Fill(1),
        Constraint::Length(help),
        Constraint::Length(help),
        Constraint::Length(help),
    ])
    .areas(frame.area());
    let _ = (gap, gap_below);
    state.scroll_to(rows.height.into());
    let buffer = frame.buffer_mut();
    draw_header(buffer, header, state, now);
    if let Some(trouble) = trouble {
        line(buffer, middle, 0, &Line::styled(fit(&trouble, middle.width.into()), TROUBLE));
    }
    draw_table(buffer, titles, rows, state, state.is_stale(now));
    if let Some(row) = state.rows.get(state.selected) {
        line(buffer, detail, 0, &Line::raw(fit(&row.detail, detail.width.into())));
    }
    line(buffer, keys, 0, &key_help(state));
}

/// Draws one line of an area, if the area has that many.
fn line(buffer: &mut Buffer, area: Rect, place: u16, line: &Line<'_>) {
    if place < area.height {
        buffer.set_line(area.x, area.y + place, line, area.width);
    }
}

/// Why there are no new answers, in plain words.
fn trouble(state: &TopState, now: Duration) -> Option<String> {
    let age = time(now.saturating_sub(state.answered.0));
    match (&state.trouble, state.silent_for(now)) {
        (Some(why), _) => Some(format!("the store cannot be queried; this is {age} old: {why}")),
        (None, Some(silent)) => Some(format!("the store has not answered for {}", time(silent))),
        (None, None) => None,
    }
}

fn draw_header(buffer: &mut Buffer, area: Rect, state: &TopState, now: Duration) {
    let mut first = vec![Span::styled(" leasehold top", SELECTED.add_modifier(Modifier::BOLD))];
    if state.is_paused {
        first.push(Span::styled("  PAUSED", SELECTED.add_modifier(Modifier::BOLD)));
    }
    first.push(Span::styled(format!("  {}", state.store), SELECTED));
    if state.pattern != "*" {
        first.push(Span::styled(format!("  names {}", state.pattern), SELECTED));
    }
    line(buffer, area, 0, &filled(first, area.width));
    let held = state.all.iter().filter(|row| row.is_taken).count();
    let waiting: u64 = state.all.iter().filter_map(|row| row.waiting).sum();
    let at_least = if state.all.iter().any(|row| row.waiting.is_none() && row.is_taken) {
        "at least "
    } else {
        ""
    };
    let (at, took) = state.answered;
    let mut second = vec![
        Span::styled(
            format!("{} {}", state.all.len(), if state.all.len() == 1 { "lock" } else { "locks" }),
            BOLD,
        ),
        Span::raw(format!(", {held} held, {at_least}{waiting} waiting")),
        Span::raw(format!("   updated {}, in {}", ago(now.saturating_sub(at)), time(took))),
    ];
    if !state.filter.is_empty() || state.is_typing {
        second.insert(
            0,
            Span::styled(format!("{} with \"{}\" of ", state.rows.len(), state.filter), BOLD),
        );
    }
    line(buffer, area, 1, &Line::from(second));
}

/// Without tenths, which would only flicker.
fn ago(age: Duration) -> String {
    match age.as_secs() {
        0 | 1 => "just now".to_owned(),
        ..60 => format!("{} s ago", age.as_secs()),
        _ => format!("{} ago", time(age)),
    }
}

fn draw_table(buffer: &mut Buffer, titles: Rect, rows: Rect, state: &TopState, is_stale: bool) {
    let columns = columns(state, titles.width.into());
    let title = |(column, width): &(Column, usize)| {
        Span::styled(cell(&title(state, *column), *column, *width), TITLES)
    };
    let mut spans: Vec<Span<'_>> = Vec::new();
    for column in &columns {
        if !spans.is_empty() {
            spans.push(Span::styled(" ".repeat(GAP), TITLES));
        }
        spans.push(title(column));
    }
    line(buffer, titles, 0, &filled(spans, titles.width));
    for (place, row) in (0..rows.height).zip(state.rows.iter().skip(state.offset)) {
        let style: fn(&Row, Column) -> Style =
            match state.offset + usize::from(place) == state.selected {
                true => |_, _| SELECTED,
                false if is_stale => |_, _| STALE,
                false => style,
            };
        line(buffer, rows, place, &row_line(row, &columns, rows.width, style));
    }
    if state.rows.is_empty() {
        line(buffer, rows, 0, &Line::styled("no locks", QUIET));
    }
}

fn title(state: &TopState, column: Column) -> String {
    let mark = match state.is_reversed {
        _ if column.sort() != Some(state.sort) => "",
        false => "▾",
        true => "▴",
    };
    format!("{}{mark}", column.title())
}

/// As wide as the screen, so that the style covers the whole line.
fn row_line<'r>(
    row: &Row,
    columns: &[(Column, usize)],
    screen: u16,
    style: fn(&Row, Column) -> Style,
) -> Line<'r> {
    let mut spans = Vec::new();
    for (column, width) in columns {
        let style = style(row, *column);
        if !spans.is_empty() {
            spans.push(Span::styled(" ".repeat(GAP), style.remove_modifier(Modifier::BOLD)));
        }
        spans.push(Span::styled(cell(&column.text(row), *column, *width), style));
    }
    filled(spans, screen)
}

fn filled(mut spans: Vec<Span<'_>>, screen: u16) -> Line<'_> {
    let used: usize = spans.iter().map(Span::width).sum();
    let style = spans.last().map(|span| span.style).unwrap_or_default();
    spans.push(Span::styled(" ".repeat(usize::from(screen).saturating_sub(used)), style));
    Line::from(spans)
}

fn style(row: &Row, column: Column) -> Style {
    match column {
        Column::Name => BOLD,
        Column::Waiting if row.waiting.is_some_and(|waiting| waiting > 0) => WAITED_FOR,
        Column::Rate if row.rate == Some(0.0) => QUIET,
        _ => Style::new(),
    }
}

/// As wide as its column.
fn cell(text: &str, column: Column, columns: usize) -> String {
    if !column.is_number() {
        return padded(text, columns);
    }
    let text = fit(text, columns);
    " ".repeat(columns - width(&text)) + &text
}

fn key_help(state: &TopState) -> Line<'static> {
    if state.is_typing {
        let filter = format!("names with: {}▏", state.filter);
        return Line::from(vec![
            Span::styled(filter, BOLD),
            Span::raw("   Enter keeps it, Esc shows all"),
        ]);
    }
    let mut spans = Vec::new();
    for (key, what) in KEYS {
        spans.push(Span::styled(key, BOLD));
        spans.push(Span::raw(format!(" {what}   ")));
    }
    let last = (state.offset + state.page).min(state.rows.len());
    if last < state.rows.len() || state.offset > 0 {
        spans.push(Span::raw(format!("{}-{last} of {}", state.offset + 1, state.rows.len())));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::args::{Sort, TopArgs};
    use super::super::row::Key;
    use super::super::state::{Input, Todo};
    use super::*;

    const NOW: Duration = Duration::from_millis(300);

    fn row(name: &str) -> Row {
        Row {
            key: Key::new(name),
            name: name.to_owned(),
            kind: "mutex",
            holder: "billing-7 (pid 4711 on host-a)".to_owned(),
            held: Some(Duration::from_secs(12)),
            left: Some(Duration::from_secs(21)),
            waiting: Some(3),
            rate: Some(0.25),
            permits: String::new(),
            masters: String::new(),
            is_taken: true,
            detail: format!("\"{name}\" mutex held by billing-7"),
        }
    }

    fn state(rows: Vec<Row>) -> TopState {
        let args = TopArgs {
            pattern: "*".to_owned(),
            interval: Duration::from_secs(1),
            sort: Sort::Name,
            json: false,
            all: false,
        };
        let mut state = TopState::new("redis://host/".to_owned(), &args);
        state.set_rows(rows);
        state
    }

    fn many(count: usize) -> TopState {
        state((0..count).map(|n| row(&format!("job-{n:03}"))).collect())
    }

    fn screen(state: &mut TopState, width: u16, height: u16, now: Duration) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state, now)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| {
            (0..width)
                .map(|x| buffer[(x, y)].symbol().to_owned())
                .collect::<String>()
                .trim_end()
                .to_owned()
        };
        (0..height).map(line).collect()
    }

    #[test]
    fn any_size_can_be_drawn() {
        let mut wide = row("東京:集計");
        wide.permits = "3/5".to_owned();
        wide.masters = "3/3".to_owned();
        for rows in [
            vec![],
            vec![wide.clone()],
            (0..40).map(|n| row(&format!("job-{n}"))).chain([wide]).collect(),
        ] {
            let mut state = state(rows);
            for width in (1..=12).chain([20, 37, 80, 81, 200]) {
                for height in (1..=12).chain([24]) {
                    for trouble in [None, Some("no route to host".to_owned())] {
                        state.trouble = trouble;
                        screen(&mut state, width, height, NOW);
                        state.press(&Input::End);
                        screen(&mut state, width, height, NOW);
                    }
                }
            }
        }
    }

    #[test]
    fn the_columns_line_up() {
        let mut rows = vec![row("report"), row("東京:集計"), row(&"long".repeat(30))];
        rows[1].permits = "3/5".to_owned();
        let mut state = state(rows);
        let shown = screen(&mut state, 120, 12, NOW);
        assert_eq!(shown[0], " leasehold top  redis://host/");
        assert_eq!(shown[1], "3 locks, 3 held, 9 waiting   updated just now, in 0 ms");
        let column = |line: &String, part: &str| {
            let place = line.find(part).unwrap_or_else(|| panic!("no {part:?} in {line:?}"));
            width(&line[..place]) + width(part)
        };
        // The buffer has an empty cell behind a wide character.
        let end = column(&shown[3], "WAIT");
        for line in &shown[4..6] {
            assert_eq!(column(line, " 3 ") - 1, end, "{line:?}");
        }
        assert!(shown[4].contains(
            "…  mutex      billing-7 (pid 4711 on host-a)   12.0 s   21.0 s      3     0.25"
        ));
    }

    #[test]
    fn a_narrow_screen_loses_columns_from_the_right() {
        let mut state = many(3);
        for (columns, last) in [
            (100, "RATE/s"),
            (68, "WAIT"),
            (61, "LEFT"),
            (54, "HELD"),
            (45, "HOLDER"),
            (30, "KIND"),
        ] {
            let titles = &screen(&mut state, columns, 20, NOW)[3];
            assert!(titles.ends_with(last), "{columns}: {titles:?}");
        }
        assert_eq!(screen(&mut state, 8, 20, NOW)[4], "job-000");
        assert_eq!(screen(&mut state, 5, 20, NOW)[4], "job-…");
    }

    #[test]
    fn it_scrolls_to_what_is_selected_and_keeps_it() {
        let mut state = many(100);
        let shown = |state: &mut TopState| screen(state, 100, 20, NOW)[4].clone();
        assert!(shown(&mut state).starts_with("job-000"));
        state.press(&Input::PageDown);
        state.press(&Input::PageDown);
        assert!(shown(&mut state).starts_with("job-014"), "{}", shown(&mut state));
        state.press(&Input::End);
        assert!(shown(&mut state).starts_with("job-087"), "{}", shown(&mut state));
        // Other locks come and go: the same one stays selected.
        state.set_rows((50..120).map(|n| row(&format!("job-{n:03}"))).collect());
        assert!(screen(&mut state, 100, 20, NOW)[18].starts_with("\"job-099\" mutex"));
        state.set_rows(vec![row("job-000")]);
        assert!(shown(&mut state).starts_with("job-000"));
        state.press(&Input::Home);
        state.press(&Input::Up);
        assert_eq!(state.selected, 0);
    }

    #[test]
    fn it_is_sorted_by_what_is_known() {
        let mut rows: Vec<Row> = ["a", "b", "c"].map(row).into();
        rows[0].held = None;
        rows[2].held = Some(Duration::from_secs(99));
        let mut state = state(rows);
        let names =
            |state: &TopState| state.rows.iter().map(|row| row.name.clone()).collect::<String>();
        assert_eq!(names(&state), "abc");
        state.press(&Input::Text('r'));
        assert_eq!(names(&state), "cba");
        state.press(&Input::Text('r'));
        state.press(&Input::Text('s'));
        assert_eq!(names(&state), "cba", "the longest first");
        state.press(&Input::Text('r'));
        assert_eq!(names(&state), "bca", "the unknown is last all the same");
        assert!(screen(&mut state, 100, 20, NOW)[3].contains("HELD▴"));
    }

    #[test]
    fn trouble_is_said_and_what_was_seen_stays() {
        let mut state = many(3);
        state.trouble = Some("127.0.0.1:6379: refused".to_owned());
        let shown = screen(&mut state, 100, 20, Duration::from_secs(5));
        assert_eq!(
            shown[2],
            "the store cannot be queried; this is 5.0 s old: 127.0.0.1:6379: refused"
        );
        assert!(shown[5].starts_with("job-000"));
        state.set_rows(vec![row("job-000")]);
        let shown = screen(&mut state, 100, 20, Duration::from_secs(5));
        assert_eq!(shown[2], "the store has not answered for 5.0 s");
        state.press(&Input::Text(' '));
        let shown = screen(&mut state, 100, 20, Duration::from_secs(5));
        assert!(shown[0].contains("PAUSED") && shown[2].is_empty(), "{shown:?}");
    }

    #[test]
    fn a_filter_is_typed_and_a_q_in_it_does_not_quit() {
        let mut state = state(["queue", "report", "quota"].map(row).into());
        for input in ['/', 'q', 'u', 'o'] {
            assert_eq!(state.press(&Input::Text(input)), Todo::Draw);
        }
        assert!(screen(&mut state, 100, 20, NOW)[19].starts_with("names with: quo"));
        assert_eq!(state.rows.len(), 1);
        state.press(&Input::Enter);
        assert!(screen(&mut state, 100, 20, NOW)[1].starts_with("1 with \"quo\" of 3 locks"));
        state.press(&Input::Text('/'));
        state.press(&Input::Escape);
        assert_eq!((state.rows.len(), state.press(&Input::Escape)), (3, Todo::Quit));
    }
}
