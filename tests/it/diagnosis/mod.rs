//! The findings of `diagnose`: each check on a server that is misconfigured for it, and no bad
//! finding on one that is not.

#[cfg(feature = "postgres")]
mod postgres;
mod redis;
mod rights;
mod several;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::time::Instant;

use leasehold::observe::{Check, Diagnosis, Finding, Severity};
use leasehold::{Builder, LockClient};

use crate::rig::ms;

/// The I/O timeout of tests with a server that hangs.
const IO_TIMEOUT: std::time::Duration = ms(1000);

/// Diagnoses without an earlier connection, and checks that the report is bounded and readable.
#[track_caller]
fn diagnosed(builder: Builder) -> Diagnosis {
    let client = builder.connect_lazily().build().unwrap();
    diagnosis_of(&client)
}

#[track_caller]
fn diagnosis_of(client: &LockClient) -> Diagnosis {
    let start = Instant::now();
    let diagnosis = client.diagnose();
    let longest = ms(2000) * 20;
    assert!(start.elapsed() < longest, "it took {:?}", start.elapsed());
    for finding in diagnosis.findings() {
        assert!(!finding.found().is_empty(), "{finding:?}");
        let is_bad = finding.severity() >= Severity::Warning;
        let says_what_to_do = finding.advice().is_some() || finding.found().contains("guide::");
        // The text of an error explains it.
        let is_an_error = [Check::Connect, Check::Tls, Check::Version].contains(&finding.check());
        assert!(!is_bad || says_what_to_do || is_an_error, "nothing to do: {finding}");
    }
    diagnosis
}

#[track_caller]
fn is_healthy(diagnosis: &Diagnosis) {
    assert!(diagnosis.is_healthy(), "{diagnosis}");
}

/// The worst finding of a check.
#[track_caller]
fn found(diagnosis: &Diagnosis, check: Check) -> &Finding {
    let of_check = diagnosis.findings().iter().filter(|finding| finding.check() == check);
    of_check
        .max_by_key(|finding| finding.severity())
        .unwrap_or_else(|| panic!("nothing about {check}:\n{diagnosis}"))
}

/// Checks that this is the worst severity of the check, and that a finding of it contains this
/// text.
#[track_caller]
fn says(diagnosis: &Diagnosis, check: Check, severity: Severity, text: &str) {
    assert_eq!(found(diagnosis, check).severity(), severity, "{check}:\n{diagnosis}");
    let mut worst =
        diagnosis.findings().iter().filter(|f| f.check() == check && f.severity() == severity);
    assert!(
        worst.any(|finding| finding.to_string().contains(text)),
        "{check} does not say {text:?}:\n{diagnosis}"
    );
}

/// Checks that only these checks have bad findings.
#[track_caller]
fn only(diagnosis: &Diagnosis, checks: &[Check]) {
    for finding in
        diagnosis.findings().iter().filter(|finding| finding.severity() >= Severity::Warning)
    {
        assert!(checks.contains(&finding.check()), "{finding}\n{diagnosis}");
    }
}

#[test]
fn locks_in_memory_say_so() {
    let diagnosis = LockClient::in_memory().diagnose();
    says(&diagnosis, Check::Reachable, Severity::Note, "memory of this process");
    is_healthy(&diagnosis);
}

#[test]
fn a_closed_client_says_so() {
    let client = LockClient::in_memory();
    client.close(ms(100)).unwrap();
    says(&client.diagnose(), Check::Connect, Severity::Problem, "closed");
}
