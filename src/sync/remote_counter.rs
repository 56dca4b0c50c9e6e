//! Counts in Redis that nobody holds: a latch's, and how many permits a semaphore has.

use std::sync::Arc;
use std::time::Duration;

use crate::base::backoff::Backoff;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::limits::{IDEMPOTENCY_TTL, MOST_PERMITS};
use crate::base::lock_name::{Kind, LockName};
use crate::session::{Shared, closed};
use crate::store::{Count, CountAnswer, HoldCounts, Undo, UnknownOutcomes};
use crate::sync::handle::Handle;

pub(crate) struct Counter<'a> {
    handle: &'a Handle,
}

impl<'a> Counter<'a> {
    pub(crate) fn new(handle: &'a Handle) -> Self {
        Self { handle }
    }

    /// What is left or free, and how many permits are held.
    pub(crate) fn ask(&self) -> Result<(i64, i64)> {
        let name = self.handle.usable()?;
        self.handle.shared.store.counts().and_then(|counts| counts.counted(name)).map_err(|e| e.for_name(&name.name))
    }

    pub(crate) fn add(&self, permits: i64) -> Result<i64> {
        let name = self.handle.usable()?;
        if permits == 0 || permits.unsigned_abs() > u64::from(MOST_PERMITS) {
            let why = format!("{permits} is not between 1 and 2^31 - 1, or that many fewer");
            return Err(Error::named(ErrorKind::InvalidInput, &name.name, why));
        }
        self.change(Count::Add(permits)).map(|answer| answer.value)
    }

    /// Changes the count once, however many repeats that takes: they carry one id, which the server remembers for a
    /// while.
    ///
    /// # Errors
    /// When the server cannot be asked. If that happened after the request went out, it may have been done.
    pub(crate) fn change(&self, change: Count) -> Result<CountAnswer> {
        let (shared, name) = (&self.handle.shared, self.handle.usable()?);
        let _call = shared.begin_call().map_err(|e| e.for_name(&name.name))?;
        let answer = repeat(shared, name, change).map_err(|e| e.for_name(&name.name))?;
        // Whoever of this client waits for the count looks again: sooner than the message does.
        shared.local_queues.notify(&name.key);
        Ok(answer)
    }
}

/// What is in unknown outcome may have been done, but must not be done from now on: the name may stand for another count by then.
fn resolve(shared: &Arc<Shared>, name: &LockName, holder: Holder, unknowns: UnknownOutcomes) {
    if !unknowns.is_empty() {
        // Takes nothing back; it marks the id as used, once nothing of it can run any more.
        let name = Arc::new(name.of_kind(Kind::CountingSemaphore));
        let expires = shared.clock.now().plus(IDEMPOTENCY_TTL);
        shared.watchdog.undo(Undo {
            name,
            holder,
            permits: 1,
            left: HoldCounts::NONE,
            granted: false,
            unknowns,
            expires,
        });
    }
}

fn repeat(shared: &Arc<Shared>, name: &LockName, change: Count) -> Result<CountAnswer> {
    let counts = shared.store.counts()?;
    let id = shared.id.fresh_holder();
    let mut unknowns = UnknownOutcomes::default();
    let mut pause = Backoff::new(Duration::from_millis(10), Duration::from_millis(200));
    // Of the clock that counts suspended time: the mark is forgotten meanwhile.
    let (first, patience) = (shared.clock.now(), shared.config.io_timeout * 2);
    loop {
        let error = match counts.count(name, change, id.as_str(), &mut unknowns) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let spent = shared.clock.now().since(first);
        // Once the mark may be forgotten a repeat could count twice.
        let may_repeat = spent < patience && spent + shared.config.io_timeout * 2 < IDEMPOTENCY_TTL;
        let over = if unknowns.is_empty() || !error.kind().is_outage() || !may_repeat {
            Some(error)
        } else {
            shared.is_closed().then(closed)
        };
        if let Some(error) = over {
            resolve(shared, name, id, unknowns);
            return Err(error);
        }
        std::thread::sleep(pause.next());
    }
}

/// What both semaphores do with the number of their permits.
macro_rules! permit_methods {
    () => {
        /// Gives the semaphore its permits, if it has none yet: false, and nothing is changed, if it has. 1 to 2^31 − 1. One
        /// round trip, repeat-safe.
        ///
        /// # Errors
        /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a number out of range, or when the server cannot be asked.
        pub fn try_set_permits(&self, permits: u32) -> $crate::Result<bool> {
            $crate::base::limits::check_count(permits, $crate::base::limits::MOST_PERMITS)
                .map_err(|e| e.for_name(self.name()))?;
            $crate::sync::remote_counter::Counter::new(&self.handle)
                .change($crate::store::Count::Set(permits))
                .map(|answer| answer.done)
        }

        /// Adds permits, or takes some away for good: then fewer are free, or less than none until enough have come back. One
        /// round trip, repeat-safe. Answers how many are free now.
        ///
        /// # Errors
        /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for 0, or when the number of free permits would not be within
        /// 2^31 − 1; otherwise when the server cannot be asked.
        pub fn add_permits(&self, permits: i64) -> $crate::Result<i64> {
            $crate::sync::remote_counter::Counter::new(&self.handle).add(permits)
        }

        /// How many permits are free now; less than 0 after more were taken away than were free. One round trip; out of date
        /// as soon as it is told.
        ///
        /// # Errors
        /// When the server cannot be asked.
        pub fn available_permits(&self) -> $crate::Result<i64> {
            $crate::sync::remote_counter::Counter::new(&self.handle).ask().map(|(free, _)| free)
        }
    };
}

pub(crate) use permit_methods;
