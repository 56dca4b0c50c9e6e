//! A diagnosis for people.

use std::fmt::Write;
use std::io::{IsTerminal, stdout};

use leasehold::observe::{Diagnosis, Finding, Severity};

use crate::platform::columns_of_stdout;
use crate::words;

/// Widths of the columns of the severity and of the check, each with a space after it.
const SEVERITY: usize = 8;
const CHECK: usize = 12;
/// Where the text begins.
const INDENT: usize = 2 + SEVERITY + CHECK;
/// On a narrower terminal, the terminal itself wraps the lines.
const NARROWEST: usize = INDENT + 30;

pub(super) struct Page {
    has_colours: bool,
    /// In columns; `None`: lines are not wrapped.
    width: Option<usize>,
}

impl Page {
    /// Colours and a width only where stdout is a terminal.
    pub(super) fn for_stdout() -> Self {
        if !stdout().is_terminal() {
            return Self { has_colours: false, width: None };
        }
        Self {
            // As https://no-color.org defines it: set, and not empty.
            has_colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            width: columns_of_stdout().filter(|columns| *columns >= NARROWEST),
        }
    }

    /// Server by server, one line for each finding, and at the end the number of findings of each
    /// severity.
    pub(super) fn of(&self, diagnosis: &Diagnosis) -> String {
        let mut text = String::new();
        let mut shown = None;
        for finding in diagnosis.findings() {
            if shown != Some(finding.node()) {
                let gap = if shown.is_some() { "\n" } else { "" };
                let _ = writeln!(
                    text,
                    "{gap}{}",
                    self.painted("1", finding.node().unwrap_or("all servers"))
                );
                shown = Some(finding.node());
            }
            self.add(finding, &mut text);
        }
        let plural = |severity, word: &str| {
            let count = diagnosis.count(severity);
            format!("{count} {word}{}", if count == 1 { "" } else { "s" })
        };
        let (problems, warnings) =
            (plural(Severity::Problem, "problem"), plural(Severity::Warning, "warning"));
        let _ = writeln!(text, "\n{problems}, {warnings}, {}", plural(Severity::Note, "note"));
        text
    }

    fn add(&self, finding: &Finding, text: &mut String) {
        let label = finding.severity().label();
        let check = finding.check().label();
        let label = self.painted(colour(finding.severity()), &format!("{label:<SEVERITY$}"));
        let _ = writeln!(text, "  {label}{check:<CHECK$}{}", self.wrapped(finding.found(), INDENT));
        if let Some(advice) = finding.advice().and_then(words::advice) {
            let _ = writeln!(text, "{:INDENT$}-> {}", "", self.wrapped(&advice, INDENT + 3));
        }
    }

    fn painted(&self, colour: &str, text: &str) -> String {
        if self.has_colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Breaks the text between words; what follows the first line begins at the column `indent`.
    fn wrapped(&self, text: &str, indent: usize) -> String {
        let Some(width) = self.width else { return text.to_owned() };
        let mut lines = String::new();
        let mut column = indent;
        for word in text.split(' ') {
            let length = word.chars().count();
            if column > indent && column + 1 + length > width {
                let _ = write!(lines, "\n{:indent$}", "");
                column = indent;
            } else if column > indent {
                lines.push(' ');
                column += 1;
            }
            lines.push_str(word);
            column += length;
        }
        lines
    }
}

fn colour(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "32",
        Severity::Note => "36",
        Severity::Warning => "33",
        _ => "1;31",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_keep_their_indent() {
        let page = Page { has_colours: false, width: Some(16) };
        assert_eq!(page.wrapped("one two three four", 4), "one two\n    three four");
        assert_eq!(
            page.wrapped("a-word-that-is-too-long for it", 4),
            "a-word-that-is-too-long\n    for it"
        );
        let endless = Page { has_colours: false, width: None };
        assert_eq!(endless.wrapped("one two three four", 4), "one two three four");
    }

    #[test]
    fn colours_are_around_the_severity_alone() {
        let diagnosis = leasehold::LockClient::in_memory().diagnose();
        let plain = Page { has_colours: false, width: None }.of(&diagnosis);
        assert!(plain.starts_with("all servers\n  note    reachable   "), "{plain}");
        assert!(plain.ends_with("\n\n0 problems, 0 warnings, 1 note\n"), "{plain}");
        let coloured = Page { has_colours: true, width: None }.of(&diagnosis);
        assert!(coloured.contains("\x1b[36mnote    \x1b[0mreachable"), "{coloured}");
    }
}
