//! The JSON of each type, word for word: programs read these keys, so none may change its name.

use super::*;
use crate::base::counters::{Counters, HandOver, Outcome};
use crate::base::data::HoldData;
use crate::base::error::{Error, ErrorKind};
use crate::base::lease::LeaseState;
use crate::base::loss::LossReason;
use crate::fencing::FencingToken;
use crate::observe::holder::Known;
use crate::report::outcomes::RunOutcome;
use crate::report::traffic::TrafficCounts;

const MS: fn(u64) -> Duration = Duration::from_millis;

#[track_caller]
fn is(value: &impl Serialize, json: &str) {
    // A golden text has several lines, the JSON only one.
    let json: String = json.lines().map(str::trim).collect();
    assert_eq!(serde_json::to_string(value).unwrap(), json);
}

fn owner() -> HolderOwner {
    HolderOwner::read("billing-7", "4711", "host-a").unwrap()
}

const OWNER: &str = r#"{"label":"billing-7","pid":4711,"host":"host-a"}"#;

fn holder() -> LockHolder {
    let known = Known {
        owner: Some(owner()),
        held_for: Some(MS(12_000)),
        lease: Some(MS(30_000)),
        announced_ago: Some(MS(9_000)),
    };
    LockHolder {
        id: "a8a5ef81-7b21-8f02-9b43-cfe1a3d3b2a1:30".to_owned(),
        hold_count: 2,
        remaining: Some(MS(21_999)),
        is_this_client: true,
        known,
        data: Some(HoldData::new(b"build \"812\"\xff")),
    }
}

fn foreign_holder() -> LockHolder {
    let id = "0f2e5d3c-9f1f-4d3e-8b43-cfe1a3d3b2a1:9".to_owned();
    let known = Known::default();
    LockHolder { id, hold_count: 1, remaining: None, is_this_client: false, known, data: None }
}

const FOREIGN: &str = r#"{"id":"0f2e5d3c-9f1f-4d3e-8b43-cfe1a3d3b2a1:9","hold_count":1,"remaining_ms":null,
    "held_for_ms":null,"lease_ms":null,"announced_ago_ms":null,"owner":null,"foreign":true,"kept":false,"this_client":false,
    "data":null}"#;

fn lock(primitive: Primitive) -> LockSummary {
    LockSummary {
        name: "report".to_owned(),
        primitive,
        holders: Vec::new(),
        unlisted: 0,
        waiting: None,
        number: None,
        masters: None,
        last_token: None,
    }
}

const FREE: &str = r#"{"name":"report","kind":"mutex","holders":[],"unlisted":0,"remaining_ms":null,"waiting":null,
    "permits":null,"left_to_count":null,"masters":null,"last_token":null}"#;

fn waiter() -> LockWaiter {
    LockWaiter {
        id: "b7:4".to_owned(),
        remaining: Some(MS(4_000)),
        is_this_client: false,
        owner: Some(owner()),
    }
}

#[test]
fn kinds_checks_and_severities_are_their_names() {
    is(
        &Primitive::ALL,
        r#"["mutex","fair","read","write","multi","semaphore","counting_semaphore","latch","rate_limiter","once"]"#,
    );
    is(&[Check::LogIn, Check::Quorum], r#"["log_in","quorum"]"#);
    let severities = [Severity::Ok, Severity::Note, Severity::Warning, Severity::Problem];
    is(&severities, r#"["ok","note","warning","problem"]"#);
    is(&LockInfo::new("report", Primitive::Fair), r#"{"name":"report","kind":"fair"}"#);
}

#[test]
fn a_token_is_its_number() {
    is(&FencingToken::new(u64::MAX), "18446744073709551615");
    assert_eq!(serde_json::from_str::<FencingToken>("34").unwrap(), FencingToken::new(34));
    for text in ["-1", "\"34\"", "3.5", "null"] {
        assert!(serde_json::from_str::<FencingToken>(text).is_err(), "{text}");
    }
}

#[test]
fn holders_say_who_they_are() {
    is(&owner(), OWNER);
    is(
        &holder(),
        &format!(
            r#"{{"id":"a8a5ef81-7b21-8f02-9b43-cfe1a3d3b2a1:30","hold_count":2,"remaining_ms":21999,"held_for_ms":12000,"lease_ms":30000,"announced_ago_ms":9000,
            "owner":{OWNER},"foreign":false,"kept":false,"this_client":true,"data":"build \"812\"�"}}"#
        ),
    );
    is(&foreign_holder(), FOREIGN);
}

#[test]
fn what_is_locked() {
    is(&lock(Primitive::Mutex), FREE);
    let read = LockSummary {
        holders: vec![foreign_holder()],
        unlisted: 7,
        waiting: Some(1),
        masters: Some((2, 3)),
        last_token: Some(FencingToken::new(17)),
        ..lock(Primitive::Read)
    };
    is(
        &read,
        &format!(
            r#"{{"name":"report","kind":"read","holders":[{FOREIGN}],"unlisted":7,"remaining_ms":null,"waiting":1,
            "permits":null,"left_to_count":null,"masters":{{"on":2,"of":3}},"last_token":17}}"#
        ),
    );
    let semaphore = LockSummary { number: Some(-1), unlisted: 4, ..lock(Primitive::Semaphore) };
    is(
        &semaphore,
        r#"{"name":"report","kind":"semaphore","holders":[],"unlisted":4,"remaining_ms":null,"waiting":null,
        "permits":{"free":-1,"taken":4},"left_to_count":null,"masters":null,"last_token":null}"#,
    );
    let counting = LockSummary { number: Some(2), ..lock(Primitive::CountingSemaphore) };
    is(
        &counting,
        r#"{"name":"report","kind":"counting_semaphore","holders":[],"unlisted":0,"remaining_ms":null,"waiting":null,
        "permits":{"free":2,"taken":null},"left_to_count":null,"masters":null,"last_token":null}"#,
    );
    let latch = LockSummary { number: Some(3), ..lock(Primitive::Latch) };
    is(
        &latch,
        r#"{"name":"report","kind":"latch","holders":[],"unlisted":0,"remaining_ms":null,"waiting":null,
        "permits":null,"left_to_count":3,"masters":null,"last_token":null}"#,
    );
    let announced = AnnouncedLocks { locks: vec![lock(Primitive::Mutex)], unlisted: 5 };
    is(&announced, &format!(r#"{{"locks":[{FREE}],"unlisted":5}}"#));
}

#[test]
fn everything_under_a_name() {
    let queued =
        format!(r#"{{"id":"b7:4","place_ends_in_ms":4000,"owner":{OWNER},"this_client":false}}"#);
    is(&waiter(), &queued);
    let report = LockReport {
        name: "report".to_owned(),
        locks: vec![lock(Primitive::Mutex)],
        queue: vec![waiter()],
        number: Some(3),
        last_token: Some(FencingToken::new(17)),
    };
    is(
        &report,
        &format!(
            r#"{{"name":"report","locks":[{FREE}],"queue":[{queued}],"number":3,"last_token":17}}"#
        ),
    );
}

#[test]
fn what_a_diagnosis_found() {
    let findings = vec![
        Finding::problem(Check::Role, "a replica").advise("name the primary").at("a:1"),
        Finding::note(Check::Lease, "short"),
    ];
    is(
        &Diagnosis::new(findings),
        r#"{"severity":"problem","problems":1,"warnings":0,"notes":1,"findings":[
        {"check":"role","severity":"problem","node":"a:1","found":"a replica","advice":"name the primary"},
        {"check":"lease","severity":"note","node":null,"found":"short","advice":null}]}"#,
    );
}

#[test]
fn how_servers_are() {
    is(&NodeState::Voting, r#"{"state":"voting","quarantine_ms":null}"#);
    is(
        &NodeState::Quarantined { remaining: None },
        r#"{"state":"quarantined","quarantine_ms":null}"#,
    );
    let refused =
        Error::new(ErrorKind::Unreachable, "no answer").caused_by(std::io::Error::other("reset"));
    let mut node = NodeStatus {
        address: "a:1".to_owned(),
        state: NodeState::Quarantined { remaining: Some(MS(900)) },
        latency: Some(Duration::from_nanos(250_900)),
        last_error: Some(refused),
        slots: vec![0..=5460, 7000..=7000],
    };
    is(
        &node,
        r#"{"address":"a:1","state":"quarantined","quarantine_ms":900,"latency_us":250,
        "last_error":"no answer: reset","slots":[[0,5460],[7000,7000]]}"#,
    );
    (node.state, node.latency, node.last_error, node.slots) =
        (NodeState::Down, None, None, Vec::new());
    is(
        &node,
        r#"{"address":"a:1","state":"down","quarantine_ms":null,"latency_us":null,"last_error":null,"slots":[]}"#,
    );
}

#[test]
fn what_a_client_does_now() {
    let id = std::thread::current().id();
    let thread = ThreadInfo { id, name: Some("worker".to_owned()) };
    let by = format!(r#"{{"id":"{id:?}","name":"worker"}}"#);
    is(&thread, &by);
    is(&ThreadInfo { id, name: None }, &format!(r#"{{"id":"{id:?}","name":null}}"#));
    let hold = HoldInfo {
        name: "report".into(),
        primitive: Primitive::Write,
        hold_count: 2,
        thread: thread.clone(),
        owned: true,
        held_for: MS(1_500),
        left: Some(MS(28_500)),
        state: LeaseState::Suspect,
        token: Some(FencingToken::new(17)),
    };
    let held = format!(
        r#"{{"name":"report","kind":"write","hold_count":2,"thread":{by},"owned":true,"held":true,"held_for_ms":1500,
        "remaining_ms":28500,"fencing_token":17}}"#
    );
    is(&hold, &held);
    let lost = HoldInfo { state: LeaseState::Lost, left: None, token: None, ..hold.clone() };
    is(
        &lost,
        &held
            .replace(r#""held":true"#, r#""held":false"#)
            .replace("28500", "null")
            .replace(":17", ":null"),
    );
    let wait = WaitInfo {
        name: "other".into(),
        primitive: Primitive::Fair,
        thread: thread.clone(),
        waited: MS(300),
        left: None,
        holders: vec![Blocker::Thread(thread.clone()), Blocker::OwnedGuard(thread)],
    };
    let waits = format!(
        r#"{{"name":"other","kind":"fair","thread":{by},"waited_ms":300,"time_left_ms":null,
        "blockers":[{{"thread":{by},"owned":false}},{{"thread":{by},"owned":true}}]}}"#
    );
    is(&wait, &waits);
    is(&wait.holders[1], &format!(r#"{{"thread":{by},"owned":true}}"#));
    let deadlock = Deadlock { waits: vec![wait.clone()] };
    is(&deadlock, &format!(r#"{{"waits":[{waits}]}}"#));
    let snapshot = Snapshot {
        client_name: "billing".to_owned(),
        holds: vec![hold],
        waits: vec![wait],
        deadlocks: vec![deadlock],
    };
    is(
        &snapshot,
        &format!(
            r#"{{"client_name":"billing","holds":[{held}],"waits":[{waits}],"deadlocks":[{{"waits":[{waits}]}}]}}"#
        ),
    );
}

const NO_TIMES: &str = r#"{"count":0,"sum_us":0,"mean_us":0,"p50_us":0,"p99_us":0,"max_us":0}"#;

/// Each count is different, so that no two can be confused.
fn figures() -> (Figures, String) {
    let counters = Counters::default();
    let waited = Some(MS(3));
    let (closed, no_quorum) =
        (Error::new(ErrorKind::Closed, ""), Error::new(ErrorKind::NoQuorum, ""));
    let outcomes = [
        (Outcome::Granted, None),
        (Outcome::Granted, waited),
        (Outcome::Reentered, None),
        (Outcome::Busy, None),
        (Outcome::TimedOut, waited),
        (Outcome::Failed(&closed), None),
        (Outcome::Failed(&no_quorum), None),
    ];
    for (times, (outcome, waited)) in (1..).zip(outcomes) {
        for _ in 0..times {
            counters.ended(outcome, waited);
        }
    }
    for (times, how) in (8..).zip([HandOver::PassedOn, HandOver::WithRelease, HandOver::Joined]) {
        for _ in 0..times {
            counters.handed_over(how);
        }
    }
    for _ in 0..12 {
        counters.renewed(true);
    }
    for _ in 0..13 {
        counters.renewed(false);
    }
    for _ in 0..14 {
        counters.lost(LossReason::TakenAway);
    }
    let json = format!(
        r#"{{"calls":28,"granted_at_once":1,"granted_after_wait":2,"reentered":3,"busy":4,"timed_out":5,"stopped":6,
        "failed":7,"errors":{{"closed":6,"no_quorum":7}},"contended":11,"passed_on":8,"acquired_with_release":9,
        "joined":10,"renewals":12,"renewal_failures":13,"lost":14,"losses":{{"taken_away":14}},
        "waits":{{"count":7,"sum_us":21000,"mean_us":3000,"p50_us":3000,"p99_us":3000,"max_us":3000}},
        "holds":{NO_TIMES}}}"#
    );
    (counters.read(), json)
}

#[test]
fn what_was_counted() {
    is(&Histogram::default(), NO_TIMES);
    let (figures, json) = figures();
    is(&figures, &json);
    let named =
        NameStats { name: "report".into(), primitive: Primitive::Mutex, figures: figures.clone() };
    let named_json = format!(r#"{{"name":"report","kind":"mutex","figures":{json}}}"#);
    is(&named, &named_json);
    let traffic =
        TrafficCounts { requests: 4, sent: 5, received: 6, opened: 7, broken: 8, reopened: 9 };
    let mut job = JobStats::new("report".into());
    job.add(RunOutcome::Done, Some(MS(1500)));
    job.add(RunOutcome::GaveUp, None);
    let job_json = r#"{"name":"report","done":1,"failed":0,"unrecorded":0,"already_done":0,"gave_up":1,"not_run":0,
        "last_done_unix_ms":1500}"#;
    is(&job, job_json);
    let election = ElectionStats { name: "boss".into(), terms: 3, leads: true };
    let election_json = r#"{"name":"boss","terms":3,"leads":true}"#;
    is(&election, election_json);
    let mut stats = Stats {
        client_name: "billing".to_owned(),
        uptime: MS(60_500),
        total: figures.clone(),
        primitives: vec![(Primitive::Mutex, figures)],
        names: vec![named],
        jobs: vec![job],
        elections: vec![election],
        holds: 1,
        waiting: 2,
        unknown_outcomes: 3,
        traffic: Some(traffic),
    };
    is(
        &stats,
        &format!(
            r#"{{"client_name":"billing","uptime_ms":60500,"holds":1,"waiting":2,"unknown_outcomes":3,"requests":4,
            "bytes_sent":5,"bytes_received":6,"connections_opened":7,"connections_broken":8,"reconnects":9,
            "total":{json},"primitives":{{"mutex":{json}}},"names":[{named_json}],
            "jobs":[{job_json}],"elections":[{election_json}]}}"#
        ),
    );
    stats.traffic = None;
    let in_memory = serde_json::to_value(&stats).unwrap();
    let traffic = [
        "requests",
        "bytes_sent",
        "bytes_received",
        "connections_opened",
        "connections_broken",
        "reconnects",
    ];
    assert!(traffic.iter().all(|key| in_memory[key].is_null()), "{in_memory}");
}
