//! The columns: which are shown, how wide they are, and what is in them.

use super::args::Sort;
use super::row::Row;
use super::state::TopState;
use crate::text::{time, width};

/// The space between two columns.
pub(super) const GAP: usize = 2;
const LONGEST_TEXT: usize = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    Kind,
    Holder,
    Held,
    Left,
    Waiting,
    Rate,
    Permits,
    Masters,
}

impl Column {
    const ALL: [Self; 9] = [
        Self::Name,
        Self::Kind,
        Self::Holder,
        Self::Held,
        Self::Left,
        Self::Waiting,
        Self::Rate,
        Self::Permits,
        Self::Masters,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::Kind => "KIND",
            Self::Holder => "HOLDER",
            Self::Held => "HELD",
            Self::Left => "LEFT",
            Self::Waiting => "WAIT",
            Self::Rate => "RATE/s",
            Self::Permits => "PERMITS",
            Self::Masters => "MASTERS",
        }
    }

    pub(super) fn sort(self) -> Option<Sort> {
        match self {
            Self::Name => Some(Sort::Name),
            Self::Held => Some(Sort::Held),
            Self::Left => Some(Sort::Left),
            Self::Waiting => Some(Sort::Waiting),
            Self::Rate => Some(Sort::Rate),
            _ => None,
        }
    }

    pub(super) fn is_number(self) -> bool {
        !matches!(self, Self::Name | Self::Kind | Self::Holder)
    }

    fn least_width(self) -> usize {
        match self {
            Self::Name => 12,
            Self::Kind => 9,
            Self::Holder => 14,
            Self::Held | Self::Left | Self::Rate | Self::Masters => 7,
            Self::Waiting => 5,
            Self::Permits => 9,
        }
    }

    pub(super) fn text(self, row: &Row) -> String {
        let time_of = |known: Option<_>| known.map_or("-".to_owned(), time);
        match self {
            Self::Name => row.name.clone(),
            Self::Kind => row.kind.to_owned(),
            Self::Holder if row.is_taken => row.holder.clone(),
            Self::Holder => "-".to_owned(),
            Self::Held => time_of(row.held),
            Self::Left => time_of(row.left),
            Self::Waiting => row.waiting.map_or("-".to_owned(), |waiting| waiting.to_string()),
            Self::Rate => row.rate.map_or("-".to_owned(), rate),
            Self::Permits => row.permits.clone(),
            Self::Masters => row.masters.clone(),
        }
    }
}

fn rate(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{rate:.2}"),
        ..100.0 => format!("{rate:.1}"),
        _ => format!("{rate:.0}"),
    }
}

/// The columns that fit and how wide each is; those on the right are left out first.
pub(super) fn columns(state: &TopState, screen: usize) -> Vec<(Column, usize)> {
    let has_any = |column: &Column| {
        !matches!(column, Column::Permits | Column::Masters)
            || state.all.iter().any(|row| !column.text(row).is_empty())
    };
    let mut columns: Vec<(Column, usize)> = Column::ALL
        .into_iter()
        .filter(has_any)
        .map(|column| (column, column.least_width()))
        .collect();
    while columns.len() > 1 && total(&columns) > screen {
        columns.pop();
    }
    let spare = screen.saturating_sub(total(&columns));
    let wants = |column| longest(state, column).saturating_sub(Column::least_width(column));
    let name = wants(Column::Name);
    let holder = wants(Column::Holder);
    // People find a row by its name, but a long name does not take all the space.
    let name = name.min((spare / 2).max(spare.saturating_sub(holder)));
    let holder = holder.min(spare - name);
    for (column, width) in &mut columns {
        match column {
            Column::Name => *width += name,
            Column::Holder => *width += holder,
            _ => {}
        }
    }
    if let [(_, only)] = &mut columns[..] {
        *only = (*only).min(screen);
    }
    columns
}

fn total(columns: &[(Column, usize)]) -> usize {
    columns.iter().map(|(_, width)| width + GAP).sum::<usize>().saturating_sub(GAP)
}

fn longest(state: &TopState, column: Column) -> usize {
    state.all.iter().map(|row| width(&column.text(row))).max().unwrap_or_default().min(LONGEST_TEXT)
}
