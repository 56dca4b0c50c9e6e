//! The measurements, for people.

use std::fmt::Write;

use super::figures::Figures;
use super::parts::{Outcome, Part, ROUNDS};

const LABEL: usize = 46;

pub(super) fn page(outcome: &Outcome) -> String {
    let mut text = String::new();
    let _ =
        writeln!(text, "{:<LABEL$} {:>9} {:>9} {:>9} {:>9}", "", "a second", "p50", "p99", "max");
    for part in &outcome.parts {
        row(&title(part), &part.figures, &mut text);
        if let (Ok(compared), "cycle") = (&outcome.compared, part.label) {
            row("  by two bare scripts", &compared.bare, &mut text);
        }
    }
    let _ = match &outcome.compared {
        Ok(compared) => writeln!(
            text,
            "\nleasehold makes {:.2} times as many cycles as bare scripts (the median of {ROUNDS} rounds), with {:.2} times\n\
             their p50",
            compared.per_second, compared.p50,
        ),
        Err(why) => writeln!(text, "\nno ratio to bare scripts: {why}"),
    };
    text
}

fn title(part: &Part) -> String {
    let Part { threads, clients, .. } = part;
    match part.label {
        "cycle" => "lock and unlock, one thread".to_owned(),
        "one_name_one_client" => format!("one name, {threads} threads of one client"),
        "one_name_many_clients" => format!("one name, {clients} clients"),
        "hand_off" => "hand-off to another client that waits".to_owned(),
        _ => format!("own names, {threads} threads of one client"),
    }
}

fn row(title: &str, figures: &Figures, text: &mut String) {
    let Figures { per_second, p50, p99, max, .. } = figures;
    let [p50, p99, max] = [p50, p99, max].map(|time| format!("{time:.1?}"));
    let _ = writeln!(text, "{title:<LABEL$} {per_second:>9.0} {p50:>9} {p99:>9} {max:>9}");
}
