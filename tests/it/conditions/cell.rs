//! One call under one condition: prepared while all is well, made while the condition lasts, and
//! cleared away afterwards.

use std::cell::{Cell as Counter, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::observe::{Listener, LockInfo};
use leasehold::{Error, ErrorKind, LockClient, Loss, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::rig::wait_until;

/// The moments that all cells of a row reach together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// All is prepared: the condition may begin.
    Prepared,
    /// The condition has begun: the calls may be made.
    Begun,
    /// Each call has its answer: the condition may end.
    Answered,
    /// The condition is over.
    Over,
}

/// How far the cells of a row, and the row itself, have come.
#[derive(Default)]
pub(super) struct Steps {
    /// Cells prepare one after the other: all at once would need more than an I/O timeout on a busy
    /// machine.
    turn: Mutex<()>,
    /// For each moment of the cells the number of them that have reached it.
    reached: Mutex<[usize; 4]>,
    changed: Condvar,
}

impl Steps {
    fn reach(&self, moment: Moment, cells: usize) {
        self.reached.lock()[moment as usize] += cells;
        self.changed.notify_all();
    }

    /// For the row: waits until this many cells are there. False if some are not, in time.
    pub(super) fn all_reach(&self, moment: Moment, cells: usize, longest: Duration) -> bool {
        let until = Instant::now() + longest;
        let mut reached = self.reached.lock();
        while reached[moment as usize] < cells {
            if self.changed.wait_until(&mut reached, until).timed_out() {
                return false;
            }
        }
        true
    }

    /// For the row: lets the cells go on.
    pub(super) fn let_go(&self, moment: Moment) {
        self.reach(moment, 1);
    }

    fn wait(&self, moment: Moment) {
        let mut reached = self.reached.lock();
        while reached[moment as usize] == 0 {
            self.changed.wait(&mut reached);
        }
    }
}

/// What a call has answered, and after what time.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) kind: Option<ErrorKind>,
    pub(super) text: String,
    pub(super) after: Duration,
}

impl Outcome {
    fn of<T>(answer: &Result<T>, after: Duration) -> Self {
        match answer {
            Ok(_) => Self { kind: None, text: String::new(), after },
            Err(e) => Self { kind: Some(e.kind()), text: e.to_string(), after },
        }
    }
}

/// The names for which a call of the client has begun to wait.
pub(super) struct Waiters {
    names: Mutex<Vec<String>>,
    /// The listener of the row.
    inner: Option<Arc<dyn Listener>>,
}

impl Waiters {
    pub(super) fn before(inner: Option<Arc<dyn Listener>>) -> Self {
        Self { names: Mutex::default(), inner }
    }

    fn has(&self, name: &str) -> bool {
        self.names.lock().iter().any(|waits| waits == name)
    }
}

impl Listener for Waiters {
    fn waiting(&self, lock: &LockInfo<'_>) {
        self.names.lock().push(lock.name().to_owned());
        if let Some(inner) = &self.inner {
            inner.waiting(lock);
        }
    }

    fn acquired(&self, lock: &LockInfo<'_>, waited: Option<Duration>) {
        if let Some(inner) = &self.inner {
            inner.acquired(lock, waited);
        }
    }

    fn gave_up(&self, lock: &LockInfo<'_>, waited: Option<Duration>, error: Option<&Error>) {
        if let Some(inner) = &self.inner {
            inner.gave_up(lock, waited, error);
        }
    }

    fn released(&self, lock: &LockInfo<'_>, held: Duration) {
        if let Some(inner) = &self.inner {
            inner.released(lock, held);
        }
    }

    fn lost(&self, lock: &LockInfo<'_>, loss: &Loss) {
        if let Some(inner) = &self.inner {
            inner.lost(lock, loss);
        }
    }

    fn renewal_failed(&self, lock: &LockInfo<'_>, error: &Error, left: Duration) {
        if let Some(inner) = &self.inner {
            inner.renewal_failed(lock, error, left);
        }
    }
}

pub(super) type Ending = Box<dyn FnOnce() -> Result<()> + Send>;

pub(super) struct Cell<'s> {
    pub(super) client: LockClient,
    /// What another client has is not this one's.
    pub(super) other: LockClient,
    name: String,
    steps: &'s Steps,
    waiters: &'s Waiters,
    turn: RefCell<Option<MutexGuard<'s, ()>>>,
    passed: Counter<usize>,
    outcome: Mutex<Option<Outcome>>,
    endings: Mutex<Vec<Ending>>,
}

impl<'s> Cell<'s> {
    /// Blocks until it may prepare.
    pub(super) fn new(
        (client, other): (&LockClient, &LockClient),
        name: &str,
        steps: &'s Steps,
        waiters: &'s Waiters,
    ) -> Self {
        Self {
            client: client.clone(),
            other: other.clone(),
            name: name.to_owned(),
            steps,
            waiters,
            turn: RefCell::new(Some(steps.turn.lock())),
            passed: Counter::new(0),
            outcome: Mutex::default(),
            endings: Mutex::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is prepared.
    pub(super) fn has_passed(&self) -> bool {
        self.passed.get() > 0
    }

    /// Passes the moments up to this one, as far as it has not yet.
    fn pass(&self, last: Moment) {
        // The preparation is over.
        self.turn.take();
        for moment in [Moment::Prepared, Moment::Begun, Moment::Answered, Moment::Over] {
            if moment as usize >= self.passed.get() && moment as usize <= last as usize {
                self.passed.set(moment as usize + 1);
                match moment {
                    Moment::Prepared | Moment::Answered => self.steps.reach(moment, 1),
                    Moment::Begun | Moment::Over => self.steps.wait(moment),
                }
            }
        }
    }

    /// Makes the call while the condition lasts.
    pub(super) fn under<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.pass(Moment::Begun);
        let began = Instant::now();
        let answer = call();
        *self.outcome.lock() = Some(Outcome::of(&answer, began.elapsed()));
        self.pass(Moment::Over);
        answer
    }

    /// Makes a call that waits already when the condition begins, for what `taken` holds: that is
    /// given back when the condition is over, and the time counts from then.
    pub(super) fn across<T: Send, G>(
        &self,
        taken: G,
        call: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                let answer = call();
                (Instant::now(), answer)
            });
            wait_until("the call waits", || waiter.is_finished() || self.waiters.has(&self.name));
            self.pass(Moment::Over);
            let over = Instant::now();
            drop(taken);
            let (ended, answer) = waiter.join().expect("a call does not panic");
            *self.outcome.lock() =
                Some(Outcome::of(&answer, ended.saturating_duration_since(over)));
            answer
        })
    }

    /// Clears away what the call has left on purpose.
    pub(super) fn at_the_end(&self, ending: impl FnOnce() -> Result<()> + Send + 'static) {
        self.endings.lock().push(Box::new(ending));
    }

    /// The outcome, none if the preparation failed; and what clears away what the call has left, for
    /// when nothing of it is under way any more.
    pub(super) fn finish(self) -> (Option<Outcome>, Vec<Ending>) {
        self.pass(Moment::Over);
        (self.outcome.into_inner(), self.endings.into_inner())
    }
}
