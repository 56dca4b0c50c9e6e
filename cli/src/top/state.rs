//! What the screen shows, and what keys do to it. No I/O; all times are since the start.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use leasehold::observe::LockSummary;

use super::args::{Sort, TopArgs};
use super::rates::{Rates, Seen};
use super::row::{Key, Row};
use crate::looks::{Look, rest};
use crate::text::visible;
use crate::words::chain;

/// Longer than any text that somebody searches for.
const LONGEST_FILTER: usize = 60;

pub(super) enum Input {
    Text(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    Interrupt,
    /// Ctrl-Z.
    Suspend,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Todo {
    Draw,
    Quit,
    Suspend,
}

pub(super) struct TopState {
    pub(super) store: String,
    pub(super) pattern: String,
    interval: Duration,
    /// The time from the last poll to the next.
    rest: Duration,
    rates: Rates,
    /// All rows of the last answer.
    pub(super) all: Vec<Row>,
    /// The rows that are shown, sorted.
    pub(super) rows: Vec<Row>,
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    pub(super) filter: String,
    pub(super) is_typing: bool,
    pub(super) is_paused: bool,
    pub(super) trouble: Option<String>,
    /// When the last answer arrived, and how long it took.
    pub(super) answered: (Duration, Duration),
    /// When the last poll ended, with or without an answer.
    asked: Duration,
    pub(super) selected: usize,
    /// The first row on the screen, and how many rows fit: known once it was drawn.
    pub(super) offset: usize,
    pub(super) page: usize,
}

impl TopState {
    pub(super) fn new(store: String, args: &TopArgs) -> Self {
        Self {
            store,
            pattern: visible(&args.pattern),
            interval: args.interval,
            rest: args.interval,
            rates: Rates::default(),
            all: Vec::new(),
            rows: Vec::new(),
            sort: args.sort,
            is_reversed: false,
            filter: String::new(),
            is_typing: false,
            is_paused: false,
            trouble: None,
            answered: (Duration::ZERO, Duration::ZERO),
            asked: Duration::ZERO,
            selected: 0,
            offset: 0,
            page: 1,
        }
    }

    pub(super) fn look(&mut self, look: Look<Vec<LockSummary>>, start: Instant) {
        let at = look.begun.saturating_duration_since(start);
        self.asked = at + look.took;
        self.rest = rest(self.interval, &look);
        match look.answer {
            Ok(locks) => {
                self.rates.see(at, locks.iter().map(Seen::from));
                let rows = locks
                    .iter()
                    .map(|lock| Row::new(lock, self.rates.of(&Key::of(lock))))
                    .collect();
                self.answered = (at + look.took, look.took);
                self.set_rows(rows);
            }
            Err(e) => self.trouble = Some(visible(&chain(&e))),
        }
    }

    pub(super) fn set_rows(&mut self, rows: Vec<Row>) {
        self.trouble = None;
        self.all = rows;
        self.arrange();
    }

    /// How long there has been no result, once one is overdue: the store neither answers nor fails.
    pub(super) fn silent_for(&self, now: Duration) -> Option<Duration> {
        const GRACE: Duration = Duration::from_secs(1);
        let silent = now.saturating_sub(self.asked);
        (!self.is_paused && silent > self.rest + GRACE).then_some(silent)
    }

    /// Whether what is shown is out of date.
    pub(super) fn is_stale(&self, now: Duration) -> bool {
        self.trouble.is_some() || self.silent_for(now).is_some()
    }

    pub(super) fn press(&mut self, input: &Input) -> Todo {
        match input {
            Input::Interrupt => return Todo::Quit,
            Input::Suspend => return Todo::Suspend,
            Input::Up => self.select(self.selected.saturating_sub(1)),
            Input::Down => self.select(self.selected.saturating_add(1)),
            Input::PageUp => self.select(self.selected.saturating_sub(self.page)),
            Input::PageDown => self.select(self.selected.saturating_add(self.page)),
            Input::Home => self.select(0),
            Input::End => self.select(usize::MAX),
            other if self.is_typing => self.type_filter(other),
            Input::Escape | Input::Text('q') => return Todo::Quit,
            Input::Text('s') => {
                self.sort = self.sort.next();
                self.arrange();
            }
            Input::Text('r') => {
                self.is_reversed = !self.is_reversed;
                self.arrange();
            }
            Input::Text('/') => self.is_typing = true,
            Input::Text(' ') => self.is_paused = !self.is_paused,
            _ => {}
        }
        Todo::Draw
    }

    fn type_filter(&mut self, input: &Input) {
        match input {
            Input::Text(c) if self.filter.chars().count() < LONGEST_FILTER => {
                self.filter.push_str(&visible(&c.to_string()));
            }
            Input::Backspace => drop(self.filter.pop()),
            Input::Enter => self.is_typing = false,
            Input::Escape => {
                self.is_typing = false;
                self.filter.clear();
            }
            _ => {}
        }
        self.arrange();
    }

    fn select(&mut self, place: usize) {
        self.selected = place.min(self.rows.len().saturating_sub(1));
    }

    /// Filters and sorts the rows. The same lock stays selected wherever it moves.
    fn arrange(&mut self) {
        let selected = self.rows.get(self.selected).map(|row| row.key.clone());
        self.rows =
            self.all.iter().filter(|row| row.name.contains(&self.filter)).cloned().collect();
        let sort = self.sort;
        let is_reversed = self.is_reversed;
        self.rows.sort_by(|a, b| by(sort, is_reversed, a, b));
        let place = selected.and_then(|key| self.rows.iter().position(|row| row.key == key));
        self.select(place.unwrap_or(self.selected));
    }

    /// Chooses the rows that fit, so that the selected one is among them.
    pub(super) fn scroll_to(&mut self, page: usize) {
        self.page = page.max(1);
        let first = (self.selected + 1).saturating_sub(self.page);
        let last = self.rows.len().saturating_sub(self.page);
        self.offset = self.offset.clamp(first, self.selected.max(first)).min(last);
    }
}

/// Unknown values come last in either direction.
fn by(sort: Sort, is_reversed: bool, a: &Row, b: &Row) -> Ordering {
    let turned = |order: Ordering| if is_reversed { order.reverse() } else { order };
    let known = |a: Option<Ordering>, a_is_known: bool, b_is_known: bool| match a {
        Some(order) => turned(order),
        None => b_is_known.cmp(&a_is_known),
    };
    let order = match sort {
        Sort::Name => return turned(a.key.cmp(&b.key)),
        Sort::Held => {
            known(a.held.zip(b.held).map(|(a, b)| b.cmp(&a)), a.held.is_some(), b.held.is_some())
        }
        Sort::Left => {
            known(a.left.zip(b.left).map(|(a, b)| a.cmp(&b)), a.left.is_some(), b.left.is_some())
        }
        Sort::Waiting => known(
            a.waiting.zip(b.waiting).map(|(a, b)| b.cmp(&a)),
            a.waiting.is_some(),
            b.waiting.is_some(),
        ),
        Sort::Rate => known(
            a.rate.zip(b.rate).map(|(a, b)| b.total_cmp(&a)),
            a.rate.is_some(),
            b.rate.is_some(),
        ),
    };
    order.then_with(|| a.key.cmp(&b.key))
}
