//! Loggers and listeners of a user that panic or are slow.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold::observe::{Listener, LockInfo};
use leasehold::os::thread::{current, sleep};
use leasehold::testing::{Failure, Operation};

use crate::book::As;
use crate::stage::{OnPurpose, Stage, choose, join_all};

/// Threads of a scenario have no name; those of the library do.
fn is_of_the_scenario() -> bool {
    !current().name().is_some_and(|name| name.starts_with("lh-"))
}

static LOGGER_PANICS: AtomicBool = AtomicBool::new(false);

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        LOGGER_PANICS.load(Ordering::SeqCst)
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) && is_of_the_scenario() && !std::thread::panicking() {
            panic_any(OnPurpose);
        }
    }

    fn flush(&self) {}
}

pub(crate) fn install_logger() {
    log::set_logger(&Logger).expect("it is the only one");
    log::set_max_level(log::LevelFilter::Debug);
}

/// Called after a scenario that failed while the logger panicked.
pub(crate) fn calm_logger() {
    LOGGER_PANICS.store(false, Ordering::SeqCst);
}

/// A logger that panics in the middle of an acquire or a release blocks nobody's access to the
/// lock.
pub(crate) fn panicking_logger() {
    let stage = Stage::new();
    let failure = [Failure::BeforeItRan, Failure::AfterItRan][choose(2)];
    stage.faults.fail_next([Operation::Acquire, Operation::Release][choose(2)], failure);
    LOGGER_PANICS.store(true, Ordering::SeqCst);
    join_all([true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let guard = stage.client(is_one).lock("job").expect("a request that fails is logged, which panics");
                stage.book.section("job", As::Writer, None, &guard);
                guard.unlock()
            }));
        })
    }));
    LOGGER_PANICS.store(false, Ordering::SeqCst);
    for client in [&stage.one, &stage.other] {
        let guard = client.try_lock_for("job", Duration::from_secs(5)).expect("the store answers");
        guard.expect("nothing is left of it").unlock().expect("it is held");
    }
    stage.end();
}

/// Panics in some of its calls, or sleeps when a thread queues behind another waiter.
struct Rude {
    sleeps: Option<Duration>,
    waits: AtomicU32,
}

impl Rude {
    fn act(&self) {
        match self.sleeps {
            Some(duration) if self.waits.fetch_add(1, Ordering::SeqCst) == 1 => sleep(duration),
            Some(_) => {}
            None if choose(2) == 0 => panic_any(OnPurpose),
            None => {}
        }
    }
}

impl Listener for Rude {
    fn waiting(&self, _: &LockInfo<'_>) {
        self.act();
    }

    fn acquired(&self, _: &LockInfo<'_>, _: Option<Duration>) {
        if self.sleeps.is_none() {
            self.act();
        }
    }

    fn released(&self, _: &LockInfo<'_>, _: Duration) {
        if self.sleeps.is_none() {
            self.act();
        }
    }
}

/// A listener that panics has no effect.
pub(crate) fn panicking_listener() {
    let stage = Stage::with(|builder| builder.listener(Arc::new(Rude { sleeps: None, waits: AtomicU32::new(0) })));
    join_all([true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let guard = stage.client(is_one).lock("job").expect("it becomes free");
            stage.book.section("job", As::Writer, None, &guard);
            guard.unlock().expect("it is held");
        })
    }));
    stage.end();
}

/// A thread that is still inside its listener is given no hold: the hold would be idle and block
/// all others.
pub(crate) fn slow_listener() {
    let sleeps = Some(Duration::from_millis(400));
    let stage = Stage::with(|builder| builder.listener(Arc::new(Rude { sleeps, waits: AtomicU32::new(0) })));
    let guard = stage.one.lock("job").expect("it is free");
    // The first one leads the queue; the second one is queued behind it, inside its listener.
    let waiting = [(); 2].map(|()| {
        let thread = stage.spawn(|stage| {
            stage.one.lock("job").expect("it becomes free").unlock().expect("it is held");
        });
        sleep(Duration::from_millis(1));
        thread
    });
    guard.unlock().expect("it is held");
    sleep(Duration::from_millis(20));
    let guard = stage.other.try_lock("job").expect("the store answers");
    guard.expect("no thread could use the hold").unlock().expect("it is held");
    join_all(waiting);
    stage.end();
}
