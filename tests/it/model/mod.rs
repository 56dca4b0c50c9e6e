//! Random operations of several holders, on Redis and on a model in memory that says what each
//! operation must answer.
//!
//! One operation at a time, so that a seed determines a run: `LEASEHOLD_SEED=<seed>` runs the same
//! operations again. Leases are longer than any run, and are ended through the server, so no run
//! waits for one.

mod counts;
mod fair;
mod reentrant;
mod rw;

use std::cell::RefCell;
use std::fmt::Debug;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use leasehold::{ErrorKind, LockClient, Result};

use crate::rig::{CAP, Fault, Proxy, Server, wait_until};

/// The name of the primitive under test.
const NAME: &str = "model";
/// So long that no lease ends, and none is renewed, before a run is over.
const LEASE: Duration = Duration::from_secs(3600);

/// The answer of an operation.
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
    redis: RefCell<redis::Connection>,
    proxy: Proxy,
    server: Server,
}

impl Run {
    fn new(primitive: &'static str) -> Self {
        let seed: u64 = std::env::var("LEASEHOLD_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
        println!("{primitive}: LEASEHOLD_SEED={seed}");
        let server = Server::start();
        let proxy = Proxy::start(&server);
        let redis = RefCell::new(server.connect());
        Self { primitive, seed, dice: seed, trace: Vec::new(), redis, proxy, server }
    }

    fn client(&self) -> LockClient {
        // The waiters of a fair lock, too, poll far later than a run ends.
        let builder = LockClient::builder().url(self.proxy.url()).lease(LEASE).io_timeout(Duration::from_secs(5));
        builder.waiter_timeout(Duration::from_secs(300)).build().unwrap()
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
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
        // Lost once, the request is repeated silently; lost twice, the call fails and is undone.
        let (times, fault) = match self.roll(20) {
            0 => (1, Fault::CutAfterApplied),
            1 => (1, Fault::CutBeforeSend),
            2 => (2, Fault::CutAfterApplied),
            3 => (2, Fault::CutBeforeSend),
            _ => return false,
        };
        self.trace.push(format!("{times} x {fault:?}"));
        self.proxy.inject_times(NAME, times, fault);
        true
    }

    /// Removes the fault if this operation sent nothing, so that it does not hit a later one.
    fn mend(&self) {
        self.proxy.inject("\u{1}no request has this\u{1}", Fault::CutBeforeSend);
    }

    fn cmd<T: redis::FromRedisValue>(&self, words: &[&[u8]]) -> T {
        let mut cmd = redis::Cmd::new();
        for word in words {
            cmd.arg(*word);
        }
        cmd.query(&mut self.redis.borrow_mut()).unwrap()
    }

    /// The keys of holders and waiters, sorted.
    fn delete_all(&self) {
        let keys = self.server.lock_keys();
        if !keys.is_empty() {
            let words: Vec<&[u8]> = std::iter::once(&b"DEL"[..]).chain(keys.iter().map(String::as_bytes)).collect();
            self.cmd::<u32>(&words);
        }
    }

    /// The message for a failure.
    fn story(&self) -> String {
        let from = self.trace.len().saturating_sub(40);
        format!("{}: LEASEHOLD_SEED={} after ...\n  {}", self.primitive, self.seed, self.trace[from..].join("\n  "))
    }

    /// All clients are gone: checks that nothing of theirs is left. `LEASEHOLD_TRACE` prints the
    /// operations.
    fn end(self) {
        if std::env::var_os("LEASEHOLD_TRACE").is_some() {
            println!("{}:\n  {}", self.primitive, self.trace.join("\n  "));
        }
        let Self { server, proxy, redis, .. } = self;
        drop((proxy, redis));
        server.assert_clean();
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
        assert!(unknown || allowed.contains(&got), "got {got:?}, not {allowed:?}\n{}", self.story());
        unknown
    }

    /// Checks that Redis agrees with the model: at once, or `soon` when something is resolved in
    /// the background.
    #[track_caller]
    fn stands<T: PartialEq + Debug>(&self, soon: bool, wanted: &T, look: impl Fn() -> T) {
        if soon {
            wait_until(&format!("{wanted:?} is in Redis\n{}", self.story()), || look() == *wanted);
        } else {
            self.same("in Redis", &look(), wanted);
        }
    }
}

/// A thread with holds of its own that runs operations for the test.
pub(crate) struct Actor<S> {
    jobs: Option<Sender<Job<S>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

impl<S: 'static> Actor<S> {
    pub(crate) fn new(make: impl FnOnce() -> S + Send + 'static) -> Self {
        let (sender, jobs) = unbounded::<Job<S>>();
        let thread = std::thread::spawn(move || {
            let mut state = make();
            jobs.iter().for_each(|job| job(&mut state));
        });
        Self { jobs: Some(sender), thread: Some(thread) }
    }

    fn start<R: Send + 'static>(&self, job: impl FnOnce(&mut S) -> R + Send + 'static) -> Receiver<R> {
        let (sender, answer) = bounded(1);
        let job: Job<S> = Box::new(move |state| {
            let _ = sender.send(job(state));
        });
        self.jobs.as_ref().unwrap().send(job).unwrap();
        answer
    }

    #[track_caller]
    pub(crate) fn run<R: Send + 'static>(&self, job: impl FnOnce(&mut S) -> R + Send + 'static) -> R {
        self.start(job).recv_timeout(CAP).expect("no answer in all that time")
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
