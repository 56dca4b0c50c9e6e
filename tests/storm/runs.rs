//! The runs that people start: a short one for each deployment, and as many as fit into a given
//! time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::deployment::{NAMES, start};
use crate::plan::Shape;
use crate::rig::ms;
use crate::run::{Report, asleep, attempt, run};

/// The number of processes that take locks.
pub(crate) const SLOTS: usize = 3;

/// The number of threads of each of them.
pub(crate) const THREADS: u32 = 3;

pub(crate) const LEASE: Duration = ms(2000);

/// So short that threads meet all the time.
const PAUSE: Duration = ms(12);

/// The time for which a fault may still explain what happens, plus some margin.
pub(crate) const fn rest(lease: Duration) -> Duration {
    ms(2 * lease.as_millis() as u64 + 2500 + 2500)
}

/// The shape of a run of a quarter of a minute.
fn short_shape() -> Shape {
    Shape {
        bursts: 1,
        burst: ms(5000),
        rest: rest(LEASE),
        lease: LEASE,
        slots: SLOTS,
        threads: THREADS,
        steady: 0,
        pause: PAUSE,
    }
}

/// One of the shapes between which a longer storm alternates. Every third one has ten processes,
/// which do no more together than the few of the others.
fn long_shape(seed: u64) -> Shape {
    if std::env::var_os("STORM_BRIEF").is_some() {
        return short_shape();
    }
    let lease = if seed.is_multiple_of(2) { LEASE } else { ms(3000) };
    let (slots, threads) = if seed.is_multiple_of(3) { (10, 1) } else { (SLOTS, THREADS) };
    Shape {
        bursts: 2,
        burst: ms(9000),
        rest: rest(lease),
        lease,
        slots,
        threads,
        steady: 0,
        pause: PAUSE,
    }
}

/// The checks that failed, with their number of violations: `exclusion 3, waits 1`.
fn checks(report: &Report) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for violation in &report.violations {
        *counts.entry(violation.check).or_default() += 1;
    }
    let counts: Vec<String> =
        counts.iter().map(|(check, count)| format!("{check} {count}")).collect();
    counts.join(", ")
}

pub(crate) fn line(report: &Report) -> String {
    let mut faults: Vec<String> =
        report.faults.iter().map(|(fault, count)| format!("{fault:?} {count}")).collect();
    if report.stalls > 0 {
        faults.push(format!("the machine stood still {} times", report.stalls));
    }
    let verdict = match report.violations.as_slice() {
        [] => "ok".to_owned(),
        [first, ..] => {
            let path =
                report.picture.as_ref().map_or(String::new(), |path| path.display().to_string());
            format!("FAILED ({}), first: {}; {path}", checks(report), first.text.replace('\n', " "))
        }
    };
    format!(
        "{:<12} seed {:<8} {:>6} acquisitions, longest wait {:>6.2} s, {}: {verdict}",
        report.store,
        report.seed,
        report.acquisitions,
        report.longest_wait.as_secs_f64(),
        faults.join(", ")
    )
}

pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

pub(crate) fn seed() -> u64 {
    // Short enough to type.
    number("STORM_SEED").unwrap_or_else(|| rand::random_range(0..1_000_000))
}

/// The variable that disables a deployment, if it is set to 0.
pub(crate) fn left_out(store: &str) -> Option<&'static str> {
    let variables = [
        ("postgres", "LEASEHOLD_POSTGRES"),
        ("mysql", "LEASEHOLD_MYSQL"),
        ("zookeeper", "LEASEHOLD_ZOOKEEPER"),
    ];
    let (_, variable) = variables.into_iter().find(|(prefix, _)| store.starts_with(prefix))?;
    (std::env::var(variable).as_deref() == Ok("0")).then_some(variable)
}

fn short(store: &str) {
    if let Some(variable) = left_out(store) {
        println!("@@storm {store:<12} left out: {variable}=0");
        return;
    }
    let report = run(store, seed(), short_shape());
    println!("@@storm {}", line(&report));
    assert!(report.violations.is_empty(), "{}", line(&report));
}

/// One short run for each deployment, as a test, so that a filter selects one: `storm::redis`.
mod storm {
    macro_rules! short {
        ($($test:ident: $store:literal),+ $(,)?) => {
            $(
                #[test]
                fn $test() {
                    super::short($store);
                }
            )+

            #[test]
            fn each_deployment_has_a_short_run() {
                assert_eq!([$($store),+], crate::deployment::NAMES);
            }
        };
    }
    short! {
        redis: "redis",
        replicas: "replicas",
        sentinel: "sentinel",
        cluster: "cluster",
        redlock: "redlock",
        postgres: "postgres",
        postgres_standby: "postgres-standby",
        mysql: "mysql",
        zookeeper: "zookeeper",
        zookeeper_three: "zookeeper-three",
        memory: "memory",
    }
}

/// Runs until the time is over or, with `STORM_UNTIL_CAUGHT`, until a run fails.
#[test]
#[ignore = "as long as one likes: sh tests/storm.sh"]
fn long() {
    let minutes = number("STORM_MINUTES").unwrap_or(10);
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let only = std::env::var("STORM_ON").ok();
    let stores: Vec<&str> =
        NAMES.into_iter().filter(|name| only.as_deref().is_none_or(|only| only == *name)).collect();
    assert!(!stores.is_empty(), "no deployment {only:?}: one of {NAMES:?}");
    let until_caught = std::env::var_os("STORM_UNTIL_CAUGHT").is_some();
    let (mut table, first) = (BTreeMap::<&str, [usize; 3]>::new(), seed());
    let mut failed = 0;
    'runs: for round in 0.. {
        for store in &stores {
            if left_out(store).is_some() {
                continue;
            }
            if Instant::now() >= end && round > 0 || failed > 0 && until_caught {
                break 'runs;
            }
            let seed = first + round;
            let shape = long_shape(seed);
            let report = attempt(store, seed, shape, &mut asleep(shape.rest));
            println!("@@storm {}", line(&report));
            let row = table.entry(store).or_default();
            row[0] += 1;
            row[1] += report.acquisitions;
            let fails = usize::from(!report.violations.is_empty());
            row[2] += fails;
            failed += fails;
        }
    }
    println!("@@storm {:<12} {:>6} {:>13} {:>7}", "store", "runs", "acquisitions", "failed");
    for (store, [runs, acquisitions, failed]) in table {
        println!("@@storm {store:<12} {runs:>6} {acquisitions:>13} {failed:>7}");
    }
    assert_eq!(failed, 0, "runs failed");
}

/// A deployment that does not start or does not return to rest makes its runs useless.
#[test]
#[ignore = "starts every deployment: for whoever changes one"]
fn every_deployment_starts_and_is_clean() {
    for name in NAMES.into_iter().filter(|name| left_out(name).is_none()) {
        start(name, SLOTS).assert_clean();
    }
}
