//! Random operations of several holders against Redis and against a model in memory that says what each must answer.
//!
//! One operation at a time, so that a seed says everything: `LEASEHOLD_SEED=<seed>` runs the same operations again. Leases
//! are longer than any run, and are ended through the server, so no run waits for one.

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

/// The name of what is operated on.
const NAME: &str = "model";
/// Never ended by time, nor looked after in the background, before a run is over.
const LEASE: Duration = Duration::from_secs(3600);

/// What an operation answered.
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

    /// Its reply was lost, and what it did is undone, or done all the same, in the background.
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

/// The dice, the server, and what has happened so far.
struct Run {
    noun: &'static str,
    seed: u64,
    dice: u64,
    trace: Vec<String>,
    redis: RefCell<redis::Connection>,
    proxy: Proxy,
    server: Server,
}

impl Run {
    fn new(noun: &'static str) -> Self {
        let seed: u64 = std::env::var("LEASEHOLD_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
        println!("{noun}: LEASEHOLD_SEED={seed}");
        let server = Server::start();
        let proxy = Proxy::start(&server);
        let redis = RefCell::new(server.connect());
        Self { noun, seed, dice: seed, trace: Vec::new(), redis, proxy, server }
    }

    fn client(&self) -> LockClient {
        // The waiters of a fair lock, too, are looked after far later than a run ends.
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

    /// One of those that are.
    fn pick(&mut self, from: impl Iterator<Item = usize>) -> Option<usize> {
        let all: Vec<_> = from.collect();
        if all.is_empty() { None } else { Some(all[self.roll(all.len())]) }
    }

    fn note(&mut self, step: String) {
        self.trace.push(step);
    }

    /// Now and then: the next request about the name is repeated or undone, because its reply is lost, or it is.
    fn maybe_break(&mut self) -> bool {
        // Lost once it is repeated, on the quiet; lost twice the caller is told, and it is undone.
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

    /// The fault must not meet a later operation, if this one sent nothing.
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

    /// The keys of whoever holds or waits, in order.
    fn delete_all(&self) {
        let keys = self.server.lock_keys();
        if !keys.is_empty() {
            let words: Vec<&[u8]> = std::iter::once(&b"DEL"[..]).chain(keys.iter().map(String::as_bytes)).collect();
            self.cmd::<u32>(&words);
        }
    }

    /// What to say when something is not as it must be.
    fn story(&self) -> String {
        let from = self.trace.len().saturating_sub(40);
        format!("{}: LEASEHOLD_SEED={} after ...\n  {}", self.noun, self.seed, self.trace[from..].join("\n  "))
    }

    /// All clients are gone, and nothing of theirs is left. `LEASEHOLD_TRACE` prints what was done.
    fn end(self) {
        if std::env::var_os("LEASEHOLD_TRACE").is_some() {
            println!("{}:\n  {}", self.noun, self.trace.join("\n  "));
        }
        let Self { server, proxy, redis, .. } = self;
        drop((proxy, redis));
        server.assert_clean();
    }

    #[track_caller]
    fn same<T: PartialEq + Debug>(&self, what: &str, got: &T, wanted: &T) {
        assert!(got == wanted, "{what}: got {got:?}, not {wanted:?}\n{}", self.story());
    }

    /// `broken`: its reply may have been lost; then it may also say that nobody knows. True: it says so.
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

    /// What stands in Redis is what the model says: at once, or soon when something is settled in the background.
    #[track_caller]
    fn stands<T: PartialEq + Debug>(&self, soon: bool, wanted: &T, look: impl Fn() -> T) {
        if soon {
            wait_until(&format!("{wanted:?} stands in Redis\n{}", self.story()), || look() == *wanted);
        } else {
            self.same("in Redis", &look(), wanted);
        }
    }
}

/// A thread with holds of its own, which does as it is told.
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
            // One that still waits when a test has failed ends with the process.
            if !std::thread::panicking() {
                thread.join().unwrap();
            }
        }
    }
}
