//! Random operations of several holders, on a server or in memory, and on a model of the result of
//! each operation.
//!
//! There is one operation at a time, so that a seed determines a run: `LEASEHOLD_SEED=<seed>`
//! repeats the same operations. Leases are longer than any run, and are ended through the server,
//! so no run waits for one.

mod counts;
mod fair;
mod place;
mod reentrant;
mod rw;

use std::fmt::Debug;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use leasehold::{ErrorKind, LockClient, Result};

use self::place::Place;
use crate::rig::{CAP, Fault, Proxy, wait_until};

/// A test of each primitive on Redis, in a PostgreSQL database, and in memory.
macro_rules! on_each_server {
    ($($name:ident: $primitive:literal by $run:expr;)*) => {
        $(
            #[test]
            fn $name() {
                $run(Run::on_redis($primitive));
            }
        )*

        #[cfg(feature = "testing")]
        mod in_memory {
            use super::*;

            $(
                #[test]
                fn $name() {
                    $run(Run::in_memory($primitive));
                }
            )*
        }

        #[cfg(feature = "postgres")]
        mod in_postgres {
            use super::*;

            $(
                #[test]
                fn $name() {
                    $run(Run::in_postgres($primitive));
                }
            )*
        }
    };
}
use on_each_server;

/// The same in MySQL, which does not have all of them.
macro_rules! in_mysql {
    ($($name:ident: $primitive:literal by $run:expr;)*) => {
        #[cfg(feature = "mysql")]
        mod in_mysql {
            use super::*;

            $(
                #[test]
                fn $name() {
                    $run(Run::at($primitive, crate::model::place::Place::mysql()));
                }
            )*
        }
    };
}
use in_mysql;

/// The name of the primitive under test.
const NAME: &str = "model";
/// Long enough that no lease ends or is renewed during a run.
const LEASE: Duration = Duration::from_secs(3600);

/// The result of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Won,
    Busy,
    Done,
    Failed(ErrorKind),
}

impl Outcome {
    const LOST: Self = Self::Failed(ErrorKind::Lost);
    const CONFLICT: Self = Self::Failed(ErrorKind::Conflict);

    /// Its reply was lost, and it is undone or completed in the background.
    fn is_unknown(self) -> bool {
        matches!(self, Self::Failed(ErrorKind::Unreachable | ErrorKind::Protocol))
    }

    fn of_try<T>(tried: Result<Option<T>>, keep: impl FnOnce(T)) -> Self {
        match tried {
            Ok(Some(won)) => {
                keep(won);
                Self::Won
            }
            Ok(None) => Self::Busy,
            Err(e) => Self::Failed(e.kind()),
        }
    }

    fn of_release(released: Result<()>) -> Self {
        released.map_or_else(|e| Self::Failed(e.kind()), |()| Self::Done)
    }
}

/// The random numbers, the server, and the operations so far.
struct Run {
    primitive: &'static str,
    seed: u64,
    dice: u64,
    trace: Vec<String>,
    proxy: Option<Proxy>,
    place: Place,
}

impl Run {
    fn on_redis(primitive: &'static str) -> Self {
        Self::at(primitive, Place::redis())
    }

    #[cfg(feature = "testing")]
    fn in_memory(primitive: &'static str) -> Self {
        Self::at(primitive, Place::memory())
    }

    #[cfg(feature = "postgres")]
    fn in_postgres(primitive: &'static str) -> Self {
        Self::at(primitive, Place::postgres())
    }

    fn at(primitive: &'static str, place: Place) -> Self {
        let seed: u64 = std::env::var("LEASEHOLD_SEED")
            .ok()
            .and_then(|s| s.parse().ok())
            .unwrap_or_else(rand::random);
        println!("{primitive}: LEASEHOLD_SEED={seed}");
        Self { primitive, seed, dice: seed, trace: Vec::new(), proxy: place.proxy(), place }
    }

    fn client(&self) -> LockClient {
        // The polls of fair waiters also come far later than the end of a run.
        let builder = LockClient::builder().lease(LEASE).waiter_timeout(Duration::from_secs(300));
        // Announcements are off: they name the lock too, so a fault meant for an operation could
        // affect one, and the client's record would then last for a lease.
        let builder = builder.io_timeout(Duration::from_secs(5)).announce_owner(false);
        self.place.open(builder, self.proxy.as_ref())
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.dice >> 33) % sides as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.roll(one_in) == 0
    }

    /// A random element.
    fn pick(&mut self, from: impl Iterator<Item = usize>) -> Option<usize> {
        let all: Vec<_> = from.collect();
        if all.is_empty() { None } else { Some(all[self.roll(all.len())]) }
    }

    fn note(&mut self, step: String) {
        self.trace.push(step);
    }

    /// Sometimes loses the next request about the name or its reply, so that the request is
    /// repeated or undone.
    fn maybe_break(&mut self) -> bool {
        // If it is lost once, the request is silently repeated; if twice, the call fails and is
        // undone.
        let (times, fault) = match self.roll(20) {
            0 => (1, Fault::CutAfterApplied),
            1 => (1, Fault::CutBeforeSend),
            2 => (2, Fault::CutAfterApplied),
            3 => (2, Fault::CutBeforeSend),
            _ => return false,
        };
        let Some(proxy) = &self.proxy else { return false };
        self.trace.push(format!("{times} x {fault:?}"));
        proxy.inject_times(NAME, times, fault);
        true
    }

    /// Removes the fault if this operation sent nothing, so that it does not affect a later one.
    fn mend(&self) {
        if let Some(proxy) = &self.proxy {
            proxy.inject("\u{1}no request has this\u{1}", Fault::CutBeforeSend);
        }
    }

    /// The message for a failure.
    fn story(&self) -> String {
        let from = self.trace.len().saturating_sub(40);
        format!(
            "{}: LEASEHOLD_SEED={} after ...\n  {}",
            self.primitive,
            self.seed,
            self.trace[from..].join("\n  ")
        )
    }

    /// Checks, after all clients have ended, that nothing of them is left. `LEASEHOLD_TRACE` prints
    /// the operations.
    fn end(self) {
        if std::env::var_os("LEASEHOLD_TRACE").is_some() {
            println!("{}:\n  {}", self.primitive, self.trace.join("\n  "));
        }
        let Self { place, proxy, .. } = self;
        drop(proxy);
        place.assert_clean();
    }

    #[track_caller]
    fn same<T: PartialEq + Debug>(&self, what: &str, got: &T, wanted: &T) {
        assert!(got == wanted, "{what}: got {got:?}, not {wanted:?}\n{}", self.story());
    }

    /// `broken`: its reply may have been lost, and then the outcome may also be unknown. True if it
    /// is.
    #[track_caller]
    fn answered(&mut self, got: Outcome, allowed: &[Outcome], broken: bool) -> bool {
        self.mend();
        if let Some(step) = self.trace.last_mut() {
            *step += &format!(" -> {got:?}");
        }
        let unknown = broken && got.is_unknown();
        assert!(
            unknown || allowed.contains(&got),
            "got {got:?}, not {allowed:?}\n{}",
            self.story()
        );
        unknown
    }

    /// Checks that the server agrees with the model: at once, or `soon` if something is resolved in
    /// the background.
    #[track_caller]
    fn stands<T: PartialEq + Debug>(&self, soon: bool, wanted: &T, look: impl Fn() -> T) {
        if soon {
            wait_until(&format!("{wanted:?} is at the server\n{}", self.story()), || {
                look() == *wanted
            });
        } else {
            self.same("at the server", &look(), wanted);
        }
    }
}

/// A thread with holds of its own that runs operations for the test.
struct Actor<S> {
    jobs: Option<Sender<Job<S>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

impl<S: 'static> Actor<S> {
    fn new(make: impl FnOnce() -> S + Send + 'static) -> Self {
        let (sender, jobs) = unbounded::<Job<S>>();
        let thread = std::thread::spawn(move || {
            let mut state = make();
            for job in &jobs {
                job(&mut state);
            }
        });
        Self { jobs: Some(sender), thread: Some(thread) }
    }

    fn start<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Receiver<R> {
        let (sender, answer) = bounded(1);
        let job: Job<S> = Box::new(move |state| {
            let _ = sender.send(job(state));
        });
        self.jobs.as_ref().unwrap().send(job).unwrap();
        answer
    }

    #[track_caller]
    fn run<R: Send + 'static>(&self, job: impl FnOnce(&mut S) -> R + Send + 'static) -> R {
        self.start(job).recv_timeout(CAP).expect("no result within the time limit")
    }
}

impl<S> Drop for Actor<S> {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A thread that still waits after a failed test ends with the process.
            if !std::thread::panicking() {
                thread.join().unwrap();
            }
        }
    }
}
