//! One run: starts a deployment and its workers, injects the faults of a plan, ends everything, and
//! checks the history.

mod crew;
mod pulse;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

pub(crate) use self::crew::Crew;
use self::pulse::Pulse;
use crate::check::{Violation, judge, settles_within};
use crate::deployment::{self, Deployment};
use crate::event::{Kind, Nanos, now};
use crate::fault::{Disturbance, Fault};
use crate::history::History;
use crate::plan::{Shape, Step, plan};
use crate::rig::ms;
use crate::timeline;
use crate::worker::{COUNTED, LATCH, PERMITS, builder, names_of};

/// The faults of processes, on every deployment; the most effective one is listed twice.
const OF_PROCESSES: [Fault; 5] = [Fault::Kill, Fault::Stop, Fault::Stop, Fault::Fork, Fault::Force];

pub(crate) struct Report {
    pub(crate) store: String,
    pub(crate) seed: u64,
    /// How often each fault was injected.
    pub(crate) faults: BTreeMap<Fault, usize>,
    pub(crate) acquisitions: usize,
    pub(crate) longest_wait: Duration,
    /// How often the machine stood still.
    pub(crate) stalls: usize,
    pub(crate) violations: Vec<Violation>,
    /// The timeline of a failed run.
    pub(crate) picture: Option<PathBuf>,
}

/// The directory for the files of a run.
fn directory(store: &str, seed: u64) -> PathBuf {
    let dir =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("storm").join(format!("{store}-{seed}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

struct Run {
    deployment: Box<dyn Deployment>,
    store: String,
    shape: Shape,
    crew: Crew,
    disturbances: Vec<Disturbance>,
    rng: StdRng,
    /// See `History::load`.
    load: f64,
}

/// The number of threads that want a core divided by the number of cores, averaged over the last
/// minute.
fn load_now() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let threads: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    threads / std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}

/// The same as [`run`], but a panic of the rig (a server that does not start, an election that does
/// not end) counts as a violation.
pub(crate) fn attempt(store: &str, seed: u64, shape: Shape, rest: &mut Rest<'_>) -> Report {
    catch_unwind(AssertUnwindSafe(|| run_with(store, seed, shape, rest))).unwrap_or_else(|panic| {
        Report {
            store: store.to_owned(),
            seed,
            faults: BTreeMap::new(),
            acquisitions: 0,
            longest_wait: Duration::ZERO,
            stalls: 0,
            violations: vec![Violation { check: "rig", at: now(), text: said(&*panic) }],
            picture: None,
        }
    })
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// What happens in the quiet time after a burst of faults, and for how long. If it returns false,
/// no further burst follows.
pub(crate) type Rest<'a> = dyn FnMut(&dyn Deployment, &Crew) -> bool + 'a;

/// Runs one storm on a store. It keeps its files only if it failed.
pub(crate) fn run(store: &str, seed: u64, shape: Shape) -> Report {
    run_with(store, seed, shape, &mut asleep(shape.rest))
}

/// A quiet time in which nothing happens.
pub(crate) fn asleep(rest: Duration) -> impl FnMut(&dyn Deployment, &Crew) -> bool {
    move |_, _| {
        std::thread::sleep(rest);
        true
    }
}

fn run_with(store: &str, seed: u64, mut shape: Shape, rest: &mut Rest<'_>) -> Report {
    let dir = directory(store, seed);
    let deployment = deployment::start(store, shape.slots);
    if deployment.direct().is_none() {
        shape.slots = 1;
    }
    let crew = Crew::new(dir.clone(), seed, shape);
    let rng = StdRng::seed_from_u64(seed);
    let mut run = Run {
        deployment,
        store: store.to_owned(),
        shape,
        crew,
        disturbances: Vec::new(),
        rng,
        load: 1.0,
    };
    run.set_permits();
    run.crew.start(&*run.deployment);
    let (began, pulse) = (now(), Pulse::begin());
    run.weather(rest);
    let over = now();
    run.crew.stop();
    let counted_left = run.counted_left();
    let mut violations = run.clean_up();
    let mut history = run.history(over);
    history.counted_left = counted_left;
    history.stalls = pulse.end();
    violations.extend(judge(&history));
    violations.sort_by_key(|violation| violation.at);
    let mut report = report(store, seed, &history, violations);
    if report.violations.is_empty() {
        let _ = std::fs::remove_dir_all(&dir);
    } else {
        report.picture = Some(timeline::draw(&dir, &history, &report.violations, began));
        timeline::tell(&dir, &history, &report.violations, began);
    }
    report
}

fn report(store: &str, seed: u64, history: &History, violations: Vec<Violation>) -> Report {
    let mut faults = BTreeMap::new();
    history
        .faults
        .iter()
        .for_each(|disturbance| *faults.entry(disturbance.fault).or_default() += 1);
    let waits = history.attempts.iter().filter_map(|attempt| Some(attempt.got()? - attempt.asked));
    Report {
        store: store.to_owned(),
        seed,
        faults,
        acquisitions: history.attempts.iter().filter(|attempt| attempt.got().is_some()).count(),
        longest_wait: Duration::from_nanos(waits.max().unwrap_or(0)),
        stalls: history.stalls.len(),
        violations,
        picture: None,
    }
}

impl Run {
    fn weather(&mut self, rest: &mut Rest<'_>) {
        let mut faults = [self.deployment.faults(), OF_PROCESSES.to_vec()].concat();
        if self.deployment.direct().is_none() {
            // It would destroy the store as well.
            faults.retain(|fault| *fault != Fault::Kill);
        }
        let faults: Vec<Fault> = chosen(faults);
        let bursts = plan(&self.shape, &faults, &mut self.rng);
        std::thread::sleep(ms(500));
        for burst in bursts {
            self.visit(&[ms(500), ms(2000), self.shape.burst]);
            for step in &burst {
                self.step(step);
            }
            // After the time for which a fault may explain what happens.
            self.crew.see_off();
            let settled = Duration::from_nanos(settles_within(
                u64::try_from(self.shape.lease.as_nanos()).unwrap(),
            ));
            self.visit(&[settled, settled + ms(700)]);
            let goes_on = rest(&*self.deployment, &self.crew);
            // A load of 1.5 is the storm's own.
            self.load = self.load.max(load_now() / 1.5);
            if !goes_on {
                return;
            }
        }
    }

    /// Processes that live for a moment, each after one of these times.
    fn visit(&mut self, after: &[Duration]) {
        // The store in memory is in one process.
        if self.deployment.direct().is_none() {
            return;
        }
        for after in after {
            let slot = self.rng.random_range(0..self.shape.slots);
            self.crew.invite(slot, *after, &*self.deployment);
        }
    }

    fn step(&mut self, step: &Step) {
        std::thread::sleep(step.after);
        if step.keeps {
            // Holders keep their locks during the fault: an early end of a hold shows only while a
            // guard believes in it.
            self.crew.say(step.slot, &format!("keep {}", step.lasts.as_millis() + 700));
            std::thread::sleep(ms(50));
        }
        let from = now();
        let (target, names) = self.begin(step.fault, step.slot);
        match step.meanwhile {
            Some((other, slot)) => {
                std::thread::sleep(step.lasts / 2);
                let from = now();
                let (target, names) = self.begin(other, slot);
                self.note(other, from, target, names);
                std::thread::sleep(step.lasts / 2);
            }
            None => std::thread::sleep(step.lasts),
        }
        self.end(step.fault, step.slot);
        self.note(step.fault, from, target, names);
    }

    fn note(&mut self, fault: Fault, from: Nanos, target: String, names: Vec<String>) {
        let overlap =
            fault.overlap_on(&self.store, u64::try_from(self.shape.lease.as_nanos()).unwrap());
        let forgets_counts = fault.forgets_counts_on(&self.store);
        self.disturbances.push(Disturbance {
            fault,
            from,
            to: now(),
            names,
            overlap,
            forgets_counts,
            target,
        });
    }

    /// Returns whom the fault affects, and which names if not all.
    fn begin(&mut self, fault: Fault, slot: usize) -> (String, Vec<String>) {
        match fault {
            Fault::Kill => self.crew.replace(slot, &*self.deployment),
            Fault::Stop => self.crew.signal(slot, "STOP"),
            Fault::Fork => self.crew.say(slot, "fork"),
            Fault::Force => {
                let name = self.crew.force(slot, &self.deployment.kinds(), &mut self.rng);
                return (format!("p{slot} forces {name}"), vec![name]);
            }
            _ => {
                let Some(line) = self.deployment.line(fault, &mut self.rng) else {
                    return (self.deployment.begin(fault, slot, &mut self.rng), Vec::new());
                };
                self.crew.tell(slot, &line);
                return (line, Vec::new());
            }
        }
        (format!("p{slot}"), Vec::new())
    }

    fn end(&mut self, fault: Fault, slot: usize) {
        match fault {
            Fault::Stop => self.crew.signal(slot, "CONT"),
            Fault::Kill | Fault::Fork | Fault::Force => {}
            _ => self.deployment.end(fault, slot),
        }
        if [Fault::Flush, Fault::EmptyServer].contains(&fault) {
            self.set_permits();
        }
    }

    /// Sets the number of permits, and retries until the store accepts it.
    fn set_permits(&self) {
        if !self.deployment.kinds().contains(&Kind::Permit) {
            return;
        }
        self.operate(|client| {
            let set = |name: &&str| client.semaphore(name).try_set_permits(PERMITS).is_ok();
            let is_set = names_of(Kind::Permit)[0].iter().all(set);
            is_set && (!self.has_counted() || counted(client).try_set_permits(COUNTED).is_ok())
        });
    }

    fn has_counted(&self) -> bool {
        self.deployment.kinds().contains(&Kind::Count)
    }

    /// How many permits without a lease are free, once all workers have ended.
    fn counted_left(&self) -> Option<i64> {
        let mut left = None;
        if self.has_counted() {
            self.operate(|client| {
                left = counted(client).available_permits().ok();
                left.is_some()
            });
        }
        left
    }

    /// Runs an operator's work, and retries until it succeeds.
    fn operate(&self, mut work: impl FnMut(&leasehold::LockClient) -> bool) {
        let Some(address) = self.deployment.direct() else { return };
        let client = builder(&address, self.shape.lease).build().unwrap();
        crate::rig::wait_until("the store serves an operator", || work(&client));
    }

    /// Checks what is left behind once all workers have ended.
    fn clean_up(&self) -> Vec<Violation> {
        let clean = catch_unwind(AssertUnwindSafe(|| {
            if self.deployment.kinds().contains(&Kind::Permit) {
                self.operate(|client| {
                    let permits = names_of(Kind::Permit)[0].iter();
                    permits
                        .map(|name| client.semaphore(name).delete())
                        .all(|deleted| deleted.is_ok())
                        // A deployment with fair locks also has latches.
                        && (!self.deployment.kinds().contains(&Kind::Fair)
                            || client.latch(LATCH).delete().is_ok())
                        && (!self.has_counted() || counted(client).delete().is_ok())
                });
            }
            self.deployment.assert_clean();
        }));
        let Err(panic) = clean else { return Vec::new() };
        vec![Violation { check: "left-overs", at: now(), text: said(&*panic) }]
    }

    fn history(&self, over: Nanos) -> History {
        let mut history = History {
            faults: self.disturbances.clone(),
            over,
            permits: PERMITS as usize,
            counted: COUNTED as usize,
            lease: u64::try_from(self.shape.lease.as_nanos()).unwrap(),
            queues_all: self.deployment.queues_all(),
            load: self.load,
            ..History::default()
        };
        self.crew.read_into(&mut history);
        history
    }
}

fn counted(client: &leasehold::LockClient) -> leasehold::CountingSemaphore {
    client.counting_semaphore(names_of(Kind::Count)[0][0])
}

/// The faults in `STORM_FAULTS`, if it is set: `Kill,Stop`.
fn chosen(faults: Vec<Fault>) -> Vec<Fault> {
    let Ok(only) = std::env::var("STORM_FAULTS") else { return faults };
    let names: Vec<&str> = only.split(',').collect();
    let chosen: Vec<Fault> =
        faults.into_iter().filter(|fault| names.contains(&format!("{fault:?}").as_str())).collect();
    assert!(!chosen.is_empty(), "none of the faults {only} exists here");
    chosen
}
