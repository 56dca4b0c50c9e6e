use super::*;

const LEASE: Duration = Duration::from_secs(30);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The table of guide::choosing_a_lease.
#[test]
fn the_outage_that_a_lease_survives_is_that_of_the_guide() {
    for (lease, outage) in [(5, 2700), (10, 5500), (30, 18_000), (60, 38_000)] {
        let survived = survivable_outage(Duration::from_secs(lease));
        assert!(survived >= ms(outage) && survived < ms(outage + 1000), "{lease}: {survived:?}");
    }
}

#[test]
fn a_lease_that_is_too_short_for_the_latency_is_a_warning() {
    assert_eq!(lease_finding(LEASE, ms(1)).severity(), Severity::Ok);
    assert_eq!(lease_finding(ms(100), ms(1)).severity(), Severity::Note);
    let short = lease_finding(ms(1000), ms(251));
    assert_eq!((short.check(), short.severity()), (Check::Lease, Severity::Warning));
    assert!(short.advice().is_some() && short.found().contains("1.0s"), "{short}");
    assert_eq!(least_lease(ms(1)), SHORTEST_LEASE);
}

#[test]
fn the_slowest_of_the_round_trips_are_told() {
    let round_trips: Vec<Duration> = (1..=100).rev().map(ms).collect();
    let quick = latency_finding(round_trips.clone(), ms(2000));
    assert_eq!(quick.severity(), Severity::Ok);
    assert!(quick.found().contains("p50 51.0ms, p99 100.0ms, max 100.0ms"), "{quick}");
    assert_eq!(latency_finding(round_trips, ms(150)).severity(), Severity::Warning);
    assert_eq!(latency_finding(vec![ms(1)], ms(150)).severity(), Severity::Ok);
}

#[test]
fn a_clock_beyond_half_the_margin_is_a_warning() {
    let at = |server| ClockSample { server, asked: 10_000_000, answered: 10_100_000 };
    // Within the round trip no offset is certain.
    for server in [10_000_000, 10_050_000, 10_100_000] {
        assert_eq!(at(server).offset_micros(), 0);
    }
    assert_eq!(
        (at(9_000_000).offset_micros(), at(11_100_000).offset_micros()),
        (-1_000_000, 1_000_000)
    );
    let half = u64::try_from(tolerated_offset(LEASE).as_micros()).unwrap();
    assert_eq!(half, 151_000);
    for (server, severity) in [
        (10_100_000 + half, Severity::Ok),
        (10_100_000 + half + 1, Severity::Warning),
        (10_000_000 - half, Severity::Ok),
        (10_000_000 - half - 1, Severity::Warning),
    ] {
        let finding = clock_finding(at(server), LEASE);
        assert_eq!(finding.severity(), severity, "{finding}");
    }
    let ahead = clock_finding(at(12_100_000), LEASE);
    assert!(ahead.found().contains("2.0s ahead of ours"), "{ahead}");
}

#[test]
fn people_read_one_line_for_each_finding() {
    let findings = vec![
        Finding::ok(Check::Reachable, "connected").at("a:1"),
        Finding::problem(Check::Role, "a replica").advise("name the primary").at("a:1"),
        Finding::note(Check::Lease, "short"),
    ];
    let diagnosis = Diagnosis::new(findings);
    let text = "a:1\n  ok       reachable    connected\n  problem  role         a replica; name the primary\n\
                all together\n  note     lease        short\n1 problem, 0 warnings, 1 note\n";
    assert_eq!(diagnosis.to_string(), text);
    assert_eq!((diagnosis.severity(), diagnosis.is_healthy()), (Severity::Problem, false));
    assert!(Diagnosis::default().is_healthy());
}
