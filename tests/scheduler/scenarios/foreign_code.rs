//! Loggers and listeners of a user that panic or are slow.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold::observe::{Listener, LockInfo};
use leasehold::os::thread::sleep;
use leasehold::testing::{Failure, Operation};

use crate::book::As;
use crate::stage::{OnPurpose, Stage, choose, join_all};

static LOGGER_PANICS: AtomicBool = AtomicBool::new(false);

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        LOGGER_PANICS.load(Ordering::SeqCst)
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            panic_any(OnPurpose);
        }
    }

    fn flush(&self) {}
}

pub(crate) fn install_logger() {
    log::set_logger(&Logger).expect("it is the only one");
    log::set_max_level(log::LevelFilter::Debug);
}

/// From here on the logger panics, or it does not.
pub(crate) fn logger_panics(panics: bool) {
    LOGGER_PANICS.store(panics, Ordering::SeqCst);
}

/// A logger that panics in the middle of an acquire or a release, or on a thread of the library
/// (while it undoes that request, for example, which fails as well), blocks nobody's access to the
/// lock.
pub(crate) fn panicking_logger() {
    let stage = Stage::new();
    let failure = [Failure::BeforeItRan, Failure::AfterItRan][choose(2)];
    stage.faults.fail_next([Operation::Acquire, Operation::Release][choose(2)], failure);
    for _ in 0..choose(3) {
        stage.faults.fail_next(Operation::Release, failure);
    }
    logger_panics(true);
    join_all([true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let _ = catch_unwind(AssertUnwindSafe(|| {
                // Not `expect`: a message for each of these panics would bury that of a failure.
                let guard =
                    stage.client(is_one).lock("job").unwrap_or_else(|_| panic_any(OnPurpose));
                stage.book.section("job", As::Writer, None, &guard);
                guard.unlock()
            }));
        })
    }));
    logger_panics(false);
    for client in [&stage.one, &stage.other] {
        let guard = client.try_lock_for("job", Duration::from_secs(5)).expect("the store answers");
        guard.expect("nothing is left of it").unlock().expect("it is held");
    }
    stage.end();
}

/// Panics in some of its calls, or sleeps when this thread begins to wait.
struct Rude {
    sleeps: Option<(u32, Duration)>,
    waits: AtomicU32,
}

impl Rude {
    fn act(&self) {
        match self.sleeps {
            Some((nth, duration)) if self.waits.fetch_add(1, Ordering::SeqCst) == nth => {
                sleep(duration);
            }
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
    let stage = Stage::with(|builder| {
        builder.listener(Arc::new(Rude { sleeps: None, waits: AtomicU32::new(0) }))
    });
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
    let sleeps = Some((1, Duration::from_millis(400)));
    let stage = Stage::with(|builder| {
        builder.listener(Arc::new(Rude { sleeps, waits: AtomicU32::new(0) }))
    });
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

/// A leader that is inside its listener keeps nobody from the lock: neither the threads behind it,
/// nor readers or fair waiters of another client by what it has left in the store.
pub(crate) fn blocking_listener() {
    let sleeps = Some((0, Duration::from_secs(60)));
    let stage = Stage::with(|builder| {
        builder.listener(Arc::new(Rude { sleeps, waits: AtomicU32::new(0) }))
    });
    let kind = choose(3);
    let held: Box<dyn Any> = match kind {
        0 => Box::new(stage.other.mutex("job").lock().expect("it is free")),
        1 => Box::new(stage.other.fair("job").lock().expect("it is free")),
        _ => Box::new(stage.other.rw_lock("job").read().expect("it is free")),
    };
    let blocked = stage.spawn(move |stage| match kind {
        0 => stage.one.mutex("job").lock().expect("it becomes free").unlock(),
        1 => stage.one.fair("job").lock().expect("it becomes free").unlock(),
        _ => stage.one.rw_lock("job").write().expect("it becomes free").unlock(),
    });
    sleep(Duration::from_millis(5));
    let soon = Duration::from_millis(500);
    let others = [true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let client = stage.client(is_one);
            let got = match kind {
                0 => client.try_lock_for("job", soon).map(|guard| guard.is_some()),
                1 => client.fair("job").try_lock_for(soon).map(|guard| guard.is_some()),
                _ => client.rw_lock("job").try_read_for(soon).map(|guard| guard.is_some()),
            };
            assert!(
                got.expect("the store answers"),
                "a listener of another call keeps it from kind {kind}"
            );
        })
    });
    sleep(Duration::from_millis(5));
    drop(held);
    join_all(others);
    blocked.join().expect("it does not panic").expect("it is held");
    stage.end();
}
