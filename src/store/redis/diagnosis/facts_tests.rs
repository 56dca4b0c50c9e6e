use super::*;
use crate::base::fuzz_tests::{Dice, fuzz};
use crate::report::diagnosis::Severity;

const ALONE: Subject = Subject {
    lease: std::time::Duration::from_secs(30),
    key_prefix: String::new(),
    part: Part::Alone,
    replicas: None,
};

/// The report of a server that is in order, with one change.
fn facts(from: &str, to: &str) -> ServerFacts {
    let sections = [
        "redis_version:7.0.15\r\nredis_mode:standalone\r\n",
        "role:master\r\nconnected_slaves:0\r\n",
        "used_memory:950000\r\nmaxmemory:1000000000\r\nmaxmemory_policy:noeviction\r\n",
        "aof_enabled:1\r\naof_last_write_status:ok\r\n",
        "connected_clients:5\r\nmaxclients:100\r\n",
    ];
    assert!(sections.iter().any(|section| section.contains(from)));
    let settings = ["", "everysec", "0"].map(|value| Some(value.to_owned()));
    ServerFacts { sections: sections.map(|section| section.replace(from, to)), settings }
}

/// States that a test cannot produce on a server, or only slowly.
#[test]
fn what_a_server_says_is_judged() {
    for (from, to, check, severity, text) in [
        (
            "aof_last_write_status:ok",
            "aof_last_write_status:err",
            Check::Persistence,
            Severity::Problem,
            "failed",
        ),
        ("aof_enabled:1", "", Check::Persistence, Severity::Note, "does not report"),
        ("maxmemory_policy:noeviction", "", Check::Eviction, Severity::Note, "does not report"),
        (
            "used_memory:950000",
            "used_memory:950000000",
            Check::Eviction,
            Severity::Warning,
            "905 MiB of 953 MiB",
        ),
        (
            "connected_clients:5",
            "connected_clients:90",
            Check::Connections,
            Severity::Warning,
            "90 of 100",
        ),
        (
            "connected_clients:5",
            "connected_clients:89",
            Check::Connections,
            Severity::Ok,
            "89 of 100",
        ),
        ("connected_slaves:0", "", Check::Replication, Severity::Note, "does not report"),
        ("role:master", "", Check::Role, Severity::Note, "does not report"),
        ("redis_version:7.0.15", "redis_version:6.0.1", Check::Version, Severity::Problem, "6.0.1"),
        (
            "connected_slaves:0",
            "connected_slaves:1",
            Check::Replication,
            Severity::Note,
            "1 replica;",
        ),
    ] {
        let findings = facts(from, to).findings(&ALONE);
        let finding = findings.iter().find(|finding| finding.check() == check).unwrap();
        assert_eq!(finding.severity(), severity, "{to:?}: {finding}");
        assert!(finding.found().contains(text), "{to:?}: {finding}");
        let worse = findings
            .iter()
            .filter(|other| other.check() != check && other.severity() > Severity::Note);
        assert_eq!(worse.count(), 0, "{to:?}: {findings:?}");
    }
}

#[test]
fn sizes_are_for_people() {
    assert_eq!(
        [0, 1 << 20, 500 << 20, (1 << 20) - 1].map(size),
        ["0 KiB", "1 MiB", "500 MiB", "1023 KiB"]
    );
}

#[test]
fn fuzzed_reports_are_judged() {
    let valid = |dice: &mut Dice| {
        let number = |dice: &mut Dice| dice.number();
        let memory = format!("used_memory:{}\r\nmaxmemory:{}\r\n", number(dice), number(dice));
        let clients =
            format!("connected_clients:{}\r\nmaxclients:{}\r\n", number(dice), number(dice));
        format!("{memory}{clients}connected_slaves:{}\r\nmaxmemory_policy:x\r\n", number(dice))
            .into_bytes()
    };
    fuzz(valid, |bytes, _| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let value = Some(text.clone());
        let facts = ServerFacts {
            sections: std::array::from_fn(|_| text.clone()),
            settings: [value.clone(), value, None],
        };
        for finding in &facts.findings(&ALONE) {
            assert!(!finding.found().is_empty());
        }
    });
}
