//! The worker processes of a run, including the dead ones.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

use crate::deployment::Deployment;
use crate::event::{Kind, Nanos, now};
use crate::history::History;
use crate::plan::Shape;
use crate::rig::{Child, ms};
use crate::worker::Settings;

/// How far the clocks of every second process are ahead of the others'.
const APART: Duration = ms(300);

/// How long a visitor stays.
const VISIT: Duration = ms(400);

struct Worker {
    label: String,
    child: Child,
    journal: PathBuf,
}

impl Worker {
    /// Waits until it has ended. If it hangs, it prints what it waits for.
    fn end(&mut self) {
        let ended = catch_unwind(AssertUnwindSafe(|| drop(self.child.expect("ended"))));
        if ended.is_err() {
            self.child.say("snapshot");
            let _ = catch_unwind(AssertUnwindSafe(|| drop(self.child.expect("snapshot"))));
        }
        self.child.kill();
    }
}

/// The kinds in `STORM_ONLY`, if it is set: `plain,fair`.
fn chosen(kinds: Vec<Kind>) -> Vec<Kind> {
    let Ok(only) = std::env::var("STORM_ONLY") else { return kinds };
    let kinds: Vec<Kind> =
        kinds.into_iter().filter(|kind| only.split(',').any(|word| word == kind.word())).collect();
    assert!(!kinds.is_empty(), "none of {only} is taken here");
    kinds
}

/// A process that has ended; `killed` by a fault.
struct Dead {
    label: String,
    journal: PathBuf,
    killed: Option<Nanos>,
}

pub(crate) struct Crew {
    dir: PathBuf,
    seed: u64,
    shape: Shape,
    /// Indexed by slot.
    workers: Vec<Worker>,
    /// Short-lived processes: with a client for a few turns.
    visitors: Vec<Worker>,
    dead: Vec<Dead>,
    /// The number of processes started so far.
    spawned: u64,
}

impl Crew {
    pub(super) fn new(dir: PathBuf, seed: u64, shape: Shape) -> Self {
        Self {
            dir,
            seed,
            shape,
            workers: Vec::new(),
            visitors: Vec::new(),
            dead: Vec::new(),
            spawned: 0,
        }
    }

    pub(super) fn start(&mut self, deployment: &dyn Deployment) {
        self.workers =
            (0..self.shape.slots).map(|slot| self.spawn(slot, deployment, None)).collect();
        for worker in &mut self.workers {
            drop(worker.child.expect("ready"));
        }
    }

    /// Does not wait until it is ready. A visitor begins after `visit`.
    fn spawn(
        &mut self,
        slot: usize,
        deployment: &dyn Deployment,
        visit: Option<Duration>,
    ) -> Worker {
        self.spawned += 1;
        let label = format!("{}{slot}-{}", if visit.is_some() { 'v' } else { 'p' }, self.spawned);
        let journal = self.dir.join(&label);
        let settings = Settings {
            address: deployment.address(slot),
            journal: journal.clone(),
            seed: self.seed.wrapping_mul(1009).wrapping_add(self.spawned),
            threads: self.shape.threads,
            lease: self.shape.lease,
            kinds: chosen(deployment.kinds()),
            clock: APART * u32::try_from(self.spawned % 2).unwrap(),
            min_hold: deployment.has_min_hold(),
            pause: if visit.is_some() { self.shape.pause.min(VISIT / 8) } else { self.shape.pause },
            delay: visit.unwrap_or_default(),
            life: visit.map(|_| VISIT),
            slow_names: slot == 2,
        };
        let env = settings.to_env();
        let env: Vec<(&str, &str)> =
            env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Worker { label, child: Child::spawn("worker::working_process", &env), journal }
    }

    /// Kills the process with SIGKILL, and starts another one in its slot.
    pub(super) fn replace(&mut self, slot: usize, deployment: &dyn Deployment) {
        let next = self.spawn(slot, deployment, None);
        let mut old = std::mem::replace(&mut self.workers[slot], next);
        let at = now();
        old.child.kill();
        self.dead.push(Dead { label: old.label, journal: old.journal, killed: Some(at) });
    }

    /// A process that begins after this time and stays for a moment, over the connections of this
    /// slot.
    pub(super) fn invite(&mut self, slot: usize, after: Duration, deployment: &dyn Deployment) {
        let visitor = self.spawn(slot, deployment, Some(after));
        self.visitors.push(visitor);
    }

    /// Waits until the visitors have gone.
    pub(super) fn see_off(&mut self) {
        for mut visitor in std::mem::take(&mut self.visitors) {
            visitor.end();
            self.dead.push(Dead { label: visitor.label, journal: visitor.journal, killed: None });
        }
    }

    pub(super) fn signal(&self, slot: usize, signal: &str) {
        self.workers[slot].child.signal(signal);
    }

    pub(super) fn say(&mut self, slot: usize, line: &str) {
        self.workers[slot].child.say(line);
    }

    /// Sends a process the command for a fault, and waits until the fault has happened.
    pub(super) fn tell(&mut self, slot: usize, line: &str) {
        self.say(slot, line);
        self.workers[slot].child.expect("done");
    }

    /// Lets a process free a name by force, whoever holds it.
    pub(super) fn force(&mut self, slot: usize, kinds: &[Kind], rng: &mut StdRng) -> String {
        let names =
            if kinds.contains(&Kind::Fair) { &["m0", "m1", "f0", "e0"][..] } else { &["m0", "m1"] };
        let name = names[rng.random_range(0..names.len())];
        self.say(slot, &format!("force {name}"));
        self.workers[slot].child.expect("forced");
        name.to_owned()
    }

    /// The process ids and the files of the processes that are never killed.
    pub(crate) fn steady(&self) -> impl Iterator<Item = (u32, &Path)> {
        self.workers
            .iter()
            .take(self.shape.steady)
            .map(|worker| (worker.child.pid(), worker.journal.as_path()))
    }

    /// Ends all processes, and waits for that.
    pub(super) fn stop(&mut self) {
        self.see_off();
        for worker in &mut self.workers {
            worker.child.say("stop");
        }
        for worker in &mut self.workers {
            worker.end();
        }
    }

    pub(super) fn read_into(&self, history: &mut History) {
        for dead in &self.dead {
            history.read(&dead.label, dead.killed, &dead.journal);
        }
        for worker in &self.workers {
            history.read(&worker.label, None, &worker.journal);
        }
    }
}
