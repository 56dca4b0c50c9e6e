//! The measurements, as JSON.

use std::time::Duration;

use serde::Serialize;

use super::figures::Figures;
use super::parts::{Compared, Outcome, Part};
use crate::output::millis;

#[derive(Serialize)]
pub(super) struct BenchView<'o> {
    part_ms: u64,
    threads: usize,
    parts: Vec<PartView>,
    bare: Option<FiguresView>,
    ratio: Option<RatioView>,
    no_ratio: Option<&'o str>,
}

#[derive(Serialize)]
struct PartView {
    part: &'static str,
    clients: usize,
    threads: usize,
    figures: FiguresView,
}

#[derive(Serialize)]
struct FiguresView {
    operations: usize,
    per_second: u64,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
}

#[derive(Serialize)]
struct RatioView {
    per_second: f64,
    p50: f64,
}

impl<'o> From<&'o Outcome> for BenchView<'o> {
    fn from(outcome: &'o Outcome) -> Self {
        let compared = outcome.compared.as_ref();
        Self {
            part_ms: millis(outcome.time),
            threads: outcome.threads,
            parts: outcome.parts.iter().map(PartView::from).collect(),
            bare: compared.ok().map(|compared| FiguresView::from(&compared.bare)),
            ratio: compared.ok().map(RatioView::from),
            no_ratio: compared.err().map(String::as_str),
        }
    }
}

impl From<&Part> for PartView {
    fn from(part: &Part) -> Self {
        let Part { label, clients, threads, figures } = part;
        Self { part: label, clients: *clients, threads: *threads, figures: figures.into() }
    }
}

impl From<&Figures> for FiguresView {
    fn from(figures: &Figures) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            operations: figures.operations,
            per_second: figures.per_second.round() as u64,
            p50_us: micros(figures.p50),
            p99_us: micros(figures.p99),
            max_us: micros(figures.max),
        }
    }
}

impl From<&Compared> for RatioView {
    fn from(compared: &Compared) -> Self {
        let rounded = |ratio: f64| (ratio * 1000.0).round() / 1000.0;
        Self { per_second: rounded(compared.per_second), p50: rounded(compared.p50) }
    }
}
