//! The table of results.

use std::time::Duration;

#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<[String; 6]>,
    missed: Vec<String>,
    notes: Vec<String>,
    /// Appended to the name of each row.
    pub(crate) suffix: &'static str,
}

const HEADINGS: [&str; 6] = ["what", "raw", "leasehold", "ratio", "budget", "met"];

impl Table {
    /// `raw`, `ratio` and `budget` may be empty.
    pub(crate) fn row(
        &mut self,
        what: &str,
        raw: &str,
        ours: &str,
        ratio: Option<f64>,
        budget: &str,
        met: Option<bool>,
    ) {
        let ratio = ratio.map_or(String::new(), |r| format!("{r:.2}"));
        self.add(what, raw, ours, ratio, budget, met);
    }

    fn add(
        &mut self,
        what: &str,
        raw: &str,
        ours: &str,
        ratio: String,
        budget: &str,
        met: Option<bool>,
    ) {
        let what = format!("{what}{}", self.suffix);
        let met = match met {
            Some(true) => "yes",
            Some(false) => {
                self.missed.push(what.trim_start().to_owned());
                "NO"
            }
            None => "",
        };
        self.rows.push([&what, raw, ours, &ratio, budget, met].map(str::to_owned));
    }

    /// Compares two rates. `least`: the budget of their ratio, in `unit`.
    pub(crate) fn compare(
        &mut self,
        what: &str,
        bare: f64,
        ours: f64,
        least: Option<f64>,
        unit: &str,
    ) {
        let ratio = ours / bare;
        let wanted = least.map_or(String::new(), |least| format!("≥ {least:.2} {unit}"));
        self.row(
            what,
            &rate(bare),
            &rate(ours),
            Some(ratio),
            &wanted,
            least.map(|least| ratio >= least),
        );
    }

    /// Compares the rates in alternating rounds: the ratio of each round is between neighbours in
    /// time, so other load on the machine affects both.
    pub(crate) fn compare_rounds(
        &mut self,
        what: &str,
        bare: &[f64],
        ours: &[f64],
        least: Option<f64>,
        unit: &str,
    ) {
        let mut ratios: Vec<f64> = ours.iter().zip(bare).map(|(ours, bare)| ours / bare).collect();
        ratios.sort_by(f64::total_cmp);
        let quartile = |n: usize| ratios[(ratios.len() - 1) * n / 4];
        let ratio = format!("{:.2} ({:.2}–{:.2})", quartile(2), quartile(1), quartile(3));
        let wanted = least.map_or(String::new(), |least| format!("≥ {least:.2} {unit}"));
        let met = least.map(|least| quartile(2) >= least);
        self.add(what, &rate(median(bare)), &rate(median(ours)), ratio, &wanted, met);
    }

    pub(crate) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    pub(crate) fn as_text(&self) -> String {
        let heads = HEADINGS.map(str::to_owned);
        let all = || std::iter::once(&heads).chain(&self.rows);
        let widths: Vec<usize> =
            (0..6).map(|i| all().map(|r| r[i].chars().count()).max().unwrap_or(0)).collect();
        let mut text = String::new();
        for row in all() {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text + &self.notes.iter().map(|n| format!("- {n}\n")).collect::<String>()
    }

    pub(crate) fn as_markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = line(&HEADINGS.map(str::to_owned)) + "|---|---|---|---|---|---|\n";
        text.extend(self.rows.iter().map(|row| line(row)));
        text.push('\n');
        text + &self.notes.iter().map(|n| format!("- {n}\n")).collect::<String>()
    }

    pub(crate) fn verdict(&self) -> String {
        match &self.missed[..] {
            [] => "every budget measured here is met".to_owned(),
            missed => format!("missed: {}", missed.join("; ")),
        }
    }
}

pub(crate) fn rate(n: f64) -> String {
    format!("{n:.0}/s")
}

pub(crate) fn micros(d: Duration) -> String {
    format!("{:.0} µs", d.as_secs_f64() * 1e6)
}

pub(crate) fn millis(d: Duration) -> String {
    format!("{:.1} ms", d.as_secs_f64() * 1e3)
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// Jain's index: 1 if all have equal shares, 1/n if one has everything.
pub(crate) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&n| n as f64).sum();
    let squares: f64 = shares.iter().map(|&n| (n as f64).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}
