//! Threads under full load for some time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the threads did in one round.
pub(crate) struct Tally {
    /// Grants before the end of the round.
    pub(crate) grants: Vec<u64>,
    pub(crate) longest_wait: Duration,
    took: Duration,
    /// Grants including those after the end, to threads that were waiting.
    pub(crate) all: u64,
}

impl Tally {
    pub(crate) fn rate(&self) -> f64 {
        self.grants.iter().sum::<u64>() as f64 / self.took.as_secs_f64()
    }
}

/// Runs one thread for each worker, all at once, each in a loop of `work` for `span`. `work`
/// acquires and releases, and calls its second argument in between.
pub(crate) fn load<W: Send>(
    workers: &mut [W],
    span: Duration,
    work: impl Fn(&mut W, &mut dyn FnMut()) + Sync,
) -> Tally {
    let start = Barrier::new(workers.len() + 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let (start, stop, work) = (&start, &stop, &work);
                scope.spawn(move || {
                    let (mut grants, mut all, mut longest) = (0, 0, Duration::ZERO);
                    start.wait();
                    while !stop.load(Ordering::Relaxed) {
                        let asked = Instant::now();
                        work(worker, &mut || {
                            longest = longest.max(asked.elapsed());
                            all += 1;
                            grants += u64::from(!stop.load(Ordering::Relaxed));
                        });
                    }
                    (grants, all, longest)
                })
            })
            .collect();
        start.wait();
        let begin = Instant::now();
        std::thread::sleep(span);
        stop.store(true, Ordering::Relaxed);
        let took = begin.elapsed();
        let mut tally = Tally { grants: Vec::new(), longest_wait: Duration::ZERO, took, all: 0 };
        for thread in threads {
            let (grants, all, longest) = thread.join().expect("a worker");
            tally.grants.push(grants);
            tally.all += all;
            tally.longest_wait = tally.longest_wait.max(longest);
        }
        tally
    })
}

/// How often per second `cycle` runs in this thread.
pub(crate) fn rate_of(span: Duration, mut cycle: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut cycles = 0;
    while begin.elapsed() < span {
        cycle();
        cycles += 1;
    }
    f64::from(cycles) / begin.elapsed().as_secs_f64()
}
