//! The screen: `State` to cells. No I/O.

use std::time::Duration;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::row::Row;
use super::state::State;
use super::table::{Column, GAP, columns};
use crate::text::{fit, padded, time, width};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const TROUBLE: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
/// Not by colour alone: grey is hard to see on some backgrounds, and dim does nothing on some
/// terminals.
const STALE: Style = Style::new().fg(Color::DarkGray).add_modifier(Modifier::DIM);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
const TITLES: Style = Style::new().add_modifier(Modifier::BOLD).add_modifier(Modifier::UNDERLINED);
/// Seen on dark and on light backgrounds.
const WAITED_FOR: Style = Style::new().fg(Color::Magenta).add_modifier(Modifier::BOLD);
const QUIET: Style = Style::new().fg(Color::DarkGray);

const KEYS: [(&str, &str); 6] =
    [("q", "quit"), ("↑↓", "choose"), ("s", "sort"), ("r", "reverse"), ("/", "filter"), ("space", "pause")];
/// With fewer lines there is no room for what helps.
const LINES_FOR_HELP: u16 = 9;

pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State, now: Duration) {
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

/// A line of an area, if the area has it.
fn line(buffer: &mut Buffer, area: Rect, place: u16, line: &Line<'_>) {
    if place < area.height {
        buffer.set_line(area.x, area.y + place, line, area.width);
    }
}

/// In plain words, what keeps new looks from coming.
fn trouble(state: &State, now: Duration) -> Option<String> {
    let age = time(now.saturating_sub(state.answered.0));
    match (&state.trouble, state.silent_for(now)) {
        (Some(why), _) => Some(format!("the store cannot be asked; this is {age} old: {why}")),
        (None, Some(silent)) => Some(format!("the store has not answered for {}", time(silent))),
        (None, None) => None,
    }
}

fn draw_header(buffer: &mut Buffer, area: Rect, state: &State, now: Duration) {
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
    let (at, took) = state.answered;
    let mut second = vec![
        Span::styled(format!("{} locks", state.all.len()), BOLD),
        Span::raw(format!(", {held} held, {waiting} waiting")),
        Span::raw(format!("   looked {}, in {}", ago(now.saturating_sub(at)), time(took))),
    ];
    if !state.filter.is_empty() || state.is_typing {
        second.insert(0, Span::styled(format!("{} with \"{}\" of ", state.rows.len(), state.filter), BOLD));
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

fn draw_table(buffer: &mut Buffer, titles: Rect, rows: Rect, state: &State, is_stale: bool) {
    let columns = columns(state, titles.width.into());
    let title = |(column, width): &(Column, usize)| Span::styled(cell(&title(state, *column), *column, *width), TITLES);
    let mut spans: Vec<Span<'_>> = Vec::new();
    for column in &columns {
        if !spans.is_empty() {
            spans.push(Span::styled(" ".repeat(GAP), TITLES));
        }
        spans.push(title(column));
    }
    line(buffer, titles, 0, &filled(spans, titles.width));
    for (place, row) in (0..rows.height).zip(state.rows.iter().skip(state.offset)) {
        let style: fn(&Row, Column) -> Style = match state.offset + usize::from(place) == state.selected {
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

fn title(state: &State, column: Column) -> String {
    let mark = match state.is_reversed {
        _ if column.sort() != Some(state.sort) => "",
        false => "▾",
        true => "▴",
    };
    format!("{}{mark}", column.title())
}

/// As wide as the screen, so that a style can be seen all over it.
fn row_line<'r>(row: &Row, columns: &[(Column, usize)], screen: u16, style: fn(&Row, Column) -> Style) -> Line<'r> {
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

fn key_help(state: &State) -> Line<'static> {
    if state.is_typing {
        let filter = format!("names with: {}▏", state.filter);
        return Line::from(vec![Span::styled(filter, BOLD), Span::raw("   Enter keeps it, Esc shows all")]);
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
