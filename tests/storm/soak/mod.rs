//! A run of hours: a storm of low intensity on all stores at once, to find what grows.
//!
//! Two processes of each store live from the start to the end. At each interval a sample of them,
//! and of what the servers keep, is written to a file; at the end the samples are judged and drawn.
//! `sh tests/soak.sh` starts it.

mod growth;
mod plot;
mod samples;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::growth::{Verdict, verdicts};
use self::samples::{Samples, Series};
use crate::deployment::NAMES;
use crate::plan::Shape;
use crate::rig::ms;
use crate::run::{Report, attempt};
use crate::runs::{LEASE, SLOTS, THREADS, left_out, line, number, rest, seed};

/// All stores together use a few percent of a core: a soak is for days on a machine that has other
/// work.
const PAUSE: Duration = ms(2500);

/// The times of a soak.
struct Plan {
    began: Instant,
    length: Duration,
    /// Between two samples.
    every: Duration,
    /// Between two faults of one store.
    calm: Duration,
    into: PathBuf,
}

impl Plan {
    fn from_env() -> Self {
        let seconds =
            |name: &str, default: u64| Duration::from_secs(number(name).unwrap_or(default));
        let length = seconds("SOAK_SECONDS", 3600);
        let into =
            std::env::var_os("SOAK_INTO").expect("SOAK_INTO names the directory of the results");
        Self {
            began: Instant::now(),
            length,
            every: seconds("SOAK_EVERY", 60),
            calm: (length / 8).clamp(rest(LEASE), Duration::from_secs(60)),
            into: into.into(),
        }
    }

    /// At its end, or when somebody has asked for it.
    fn is_over(&self) -> bool {
        self.began.elapsed() >= self.length || self.into.join("stop").exists()
    }

    fn shape(&self) -> Shape {
        let bursts = usize::try_from(self.length.as_secs() / self.calm.as_secs()).unwrap() + 1;
        Shape {
            bursts,
            burst: ms(1),
            rest: self.calm,
            lease: LEASE,
            slots: SLOTS,
            threads: THREADS,
            steady: SLOTS - 1,
            pause: PAUSE,
        }
    }

    fn run(&self, store: &str, seed: u64) -> (Report, Series) {
        let mut samples = Samples::of(store, &self.into);
        let mut next = self.every;
        let report = attempt(store, seed, self.shape(), &mut |deployment, crew| {
            let calm_until = Instant::now() + self.calm;
            while Instant::now() < calm_until && !self.is_over() {
                // The first moments of a process are not what it grows from.
                if self.began.elapsed() >= next {
                    samples.take(self.began.elapsed(), deployment, crew);
                    next = self.began.elapsed() + self.every;
                }
                std::thread::sleep(ms(200));
            }
            if !self.is_over() {
                return true;
            }
            // A fault that has just ended may still explain what is checked at the end.
            std::thread::sleep(rest(LEASE));
            false
        });
        (report, samples.into_series())
    }
}

/// The result of one store.
struct Outcome {
    store: &'static str,
    report: Report,
    series: Series,
    verdicts: Vec<Verdict>,
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{:<17} {:<16} {:>9} {:>9} {:>9} {:>9}\n",
        "store", "series", "first", "2nd qu.", "4th qu.", "max"
    );
    for outcome in outcomes {
        for Verdict { series, first, second, fourth, max, verdict } in &outcome.verdicts {
            let store = outcome.store;
            writeln!(text, "{store:<17} {series:<16} {first:>9.1} {second:>9.1} {fourth:>9.1} {max:>9.1}  {verdict}")
                .unwrap();
        }
    }
    text
}

fn write_results(into: &Path, outcomes: &[Outcome]) {
    let mut text = String::new();
    for outcome in outcomes {
        writeln!(text, "{}", line(&outcome.report)).unwrap();
    }
    text.push('\n');
    text += &table(outcomes);
    std::fs::write(into.join("verdict.txt"), &text).unwrap();
    let stores: Vec<_> = outcomes.iter().map(|outcome| (outcome.store, &outcome.series)).collect();
    std::fs::write(into.join("soak.svg"), plot::draw(&stores)).unwrap();
    for line in text.lines() {
        println!("@@soak {line}");
    }
}

#[test]
#[ignore = "as long as one likes: sh tests/soak.sh"]
fn soak() {
    let (plan, seed) = (Plan::from_env(), seed());
    let only = std::env::var("STORM_ON").ok();
    let chosen = |name: &&&str| {
        only.as_deref().is_none_or(|only| only.split(',').any(|only| only == **name))
    };
    let stores: Vec<&str> =
        NAMES.iter().filter(chosen).filter(|name| left_out(name).is_none()).copied().collect();
    assert!(!stores.is_empty(), "no deployment {only:?}: one of {NAMES:?}");
    let plan = &plan;
    let outcomes: Vec<Outcome> = std::thread::scope(|s| {
        let runs: Vec<_> =
            stores.iter().map(|store| s.spawn(move || plan.run(store, seed))).collect();
        let outcome = |(store, (report, series)): (&&'static str, (Report, Series))| {
            let verdicts = verdicts(&series);
            Outcome { store, report, series, verdicts }
        };
        stores.iter().zip(runs.into_iter().map(|run| run.join().unwrap())).map(outcome).collect()
    });
    write_results(&plan.into, &outcomes);
    let failed = |outcome: &Outcome| {
        !outcome.report.violations.is_empty() || outcome.verdicts.iter().any(Verdict::grows)
    };
    let failed: Vec<&str> =
        outcomes.iter().filter(|outcome| failed(outcome)).map(|outcome| outcome.store).collect();
    assert!(failed.is_empty(), "{failed:?}: see {}", plan.into.join("verdict.txt").display());
}
