//! A diagnosis as JSON.

use leasehold::{Diagnosis, Finding, Severity};
use serde::Serialize;

use crate::words::in_words_of_the_command;

#[derive(Serialize)]
pub(super) struct DiagnosisView<'d> {
    /// The worst of all findings.
    severity: &'static str,
    problems: usize,
    warnings: usize,
    notes: usize,
    findings: Vec<FindingView<'d>>,
}

#[derive(Serialize)]
struct FindingView<'d> {
    check: &'static str,
    severity: &'static str,
    node: Option<&'d str>,
    found: String,
    advice: Option<String>,
}

impl<'d> From<&'d Diagnosis> for DiagnosisView<'d> {
    fn from(diagnosis: &'d Diagnosis) -> Self {
        Self {
            severity: diagnosis.severity().label(),
            problems: count(diagnosis, Severity::Problem),
            warnings: count(diagnosis, Severity::Warning),
            notes: count(diagnosis, Severity::Note),
            findings: diagnosis.findings().iter().map(FindingView::from).collect(),
        }
    }
}

impl<'d> From<&'d Finding> for FindingView<'d> {
    fn from(finding: &'d Finding) -> Self {
        Self {
            check: finding.check().label(),
            severity: finding.severity().label(),
            node: finding.node(),
            found: in_words_of_the_command(finding.found()),
            advice: finding.advice().map(in_words_of_the_command),
        }
    }
}

pub(super) fn count(diagnosis: &Diagnosis, severity: Severity) -> usize {
    diagnosis.findings().iter().filter(|finding| finding.severity() == severity).count()
}
