//! The parts that are measured.

use std::time::{Duration, Instant};

use leasehold::{CancelToken, LockClient, ReentrantMutex, Result};

use super::bare::Bare;
use super::figures::{Figures, Samples, median, per_second};
use super::hand_off::hand_off;
use crate::failure::{Failure, status};

/// In how many rounds leasehold and the bare scripts take turns, so that other load on the machine
/// affects both.
pub(super) const ROUNDS: u32 = 10;

pub(super) struct Bench<'b> {
    /// One for each thread.
    pub(super) clients: &'b [LockClient],
    /// The prefix of all names.
    pub(super) prefix: &'b str,
    /// How long each part is measured.
    pub(super) time: Duration,
    pub(super) token: &'b CancelToken,
}

pub(super) struct Part {
    pub(super) label: &'static str,
    pub(super) clients: usize,
    pub(super) threads: usize,
    pub(super) figures: Figures,
}

/// The figures of the bare scripts, and the ratio of leasehold to them.
pub(super) struct Compared {
    pub(super) bare: Figures,
    /// The median of the rounds.
    pub(super) per_second: f64,
    pub(super) p50: f64,
}

/// The result of all parts.
pub(super) struct Outcome {
    pub(super) parts: Vec<Part>,
    /// The error says why there is nothing to compare with.
    pub(super) compared: std::result::Result<Compared, String>,
    pub(super) time: Duration,
    pub(super) threads: usize,
}

impl Bench<'_> {
    /// The name that the bare scripts lock.
    pub(super) fn bare_name(prefix: &str) -> String {
        format!("{prefix}:bare")
    }

    fn mutex(&self, client: usize, name: &str) -> ReentrantMutex {
        self.clients[client].mutex(format!("{}:{name}", self.prefix)).with_cancel(self.token)
    }

    /// One thread locks and unlocks, taking turns with the bare scripts.
    pub(super) fn cycle(
        &self,
        bare: Option<Bare>,
    ) -> std::result::Result<(Part, Option<Compared>), Failure> {
        let mutex = self.mutex(0, "cycle");
        // Opens connections and loads scripts.
        cycle_of(&mutex)?;
        let round = self.time / ROUNDS;
        let (mut ours, mut theirs, mut ratios) =
            (Samples::default(), Samples::default(), Vec::new());
        let mut bare = bare;
        for _ in 0..ROUNDS {
            let mut their_rate = None;
            if let Some(bare) = &mut bare {
                let mut samples = Samples::default();
                samples.fill(round, || self.still_wanted().and_then(|()| bare.cycle()))?;
                their_rate = Some(per_second(samples.len(), samples.total()));
                theirs.append(samples);
            }
            let mut samples = Samples::default();
            samples.fill(round, || cycle_of(&mutex))?;
            let our_rate = per_second(samples.len(), samples.total());
            ratios.extend(their_rate.map(|rate| our_rate / rate));
            ours.append(samples);
        }
        let figures = |samples: Samples| {
            let within = samples.total();
            samples.figures(within)
        };
        let ours = figures(ours).expect("each round has a sample");
        let compared = figures(theirs).zip(median(ratios)).map(|(bare, per_second)| Compared {
            p50: ours.p50.as_secs_f64() / bare.p50.as_secs_f64().max(f64::EPSILON),
            per_second,
            bare,
        });
        Ok((Part { label: "cycle", clients: 1, threads: 1, figures: ours }, compared))
    }

    /// All threads compete for one name: through one client, or each through a client of its own.
    pub(super) fn one_name(&self, is_of_one_client: bool) -> std::result::Result<Part, Failure> {
        let (label, clients) = if is_of_one_client {
            ("one_name_one_client", 1)
        } else {
            ("one_name_many_clients", self.clients.len())
        };
        let mutex = |thread: usize| self.mutex(thread % clients, label);
        self.side_by_side(label, clients, mutex)
    }

    /// All threads of one client, each with a name of its own.
    pub(super) fn own_names(&self) -> std::result::Result<Part, Failure> {
        self.side_by_side("own_names", 1, |thread| self.mutex(0, &format!("own-{thread}")))
    }

    /// Two clients: from the unlock of one to the lock of the other, which waits.
    pub(super) fn hand_off(&self) -> std::result::Result<Part, Failure> {
        let players = [0, 1].map(|client| (self.mutex(client, "hand_off"), &self.clients[client]));
        let samples = hand_off(players, self.time, self.token)?;
        let within = samples.total();
        let figures = samples.figures(within).ok_or_else(|| self.too_short())?;
        Ok(Part { label: "hand_off", clients: 2, threads: 2, figures })
    }

    /// A thread for each client, all at the same time.
    fn side_by_side(
        &self,
        label: &'static str,
        clients: usize,
        mutex: impl Fn(usize) -> ReentrantMutex,
    ) -> std::result::Result<Part, Failure> {
        let threads = self.clients.len();
        let mutexes: Vec<ReentrantMutex> = (0..threads).map(mutex).collect();
        // Opens connections and loads scripts.
        mutexes.iter().try_for_each(cycle_of)?;
        let begin = Instant::now();
        let run = |mutex: &ReentrantMutex| {
            let mut samples = Samples::default();
            let filled = samples.fill(self.time, || cycle_of(mutex));
            // A thread that fails ends all: without it, the others would measure something else.
            filled.inspect_err(|_| self.token.cancel()).map(|()| samples)
        };
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let run = &run;
            let started: Vec<_> =
                mutexes.iter().map(|mutex| scope.spawn(move || run(mutex))).collect();
            started
                .into_iter()
                .map(|thread| thread.join().expect("a thread of the bench panicked"))
                .collect()
        });
        let within = begin.elapsed();
        let figures =
            Samples::together(outcomes)?.figures(within).ok_or_else(|| self.too_short())?;
        Ok(Part { label, clients, threads, figures })
    }

    fn still_wanted(&self) -> std::result::Result<(), Failure> {
        if self.token.is_cancelled() {
            Err(Failure::new(status::UNAVAILABLE, "cancelled"))
        } else {
            Ok(())
        }
    }

    #[cold]
    fn too_short(&self) -> Failure {
        Failure::new(status::UNAVAILABLE, format!("nothing was measured in {:?}", self.time))
    }
}

fn cycle_of(mutex: &ReentrantMutex) -> Result<()> {
    mutex.lock()?.unlock()
}
