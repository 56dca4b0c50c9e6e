//! Counts in Redis that nobody holds: a latch's, and how many permits a semaphore has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::error::{Error, ErrorKind, Result};
use crate::handle::Handle;
use crate::key::LockKeys;
use crate::limits::{MOST_PERMITS, ONCE};
use crate::shared::{Shared, closed};
use crate::store::{Count, CountAnswer, Doubts};

pub(crate) struct Counter<'a> {
    handle: &'a Handle,
}

impl<'a> Counter<'a> {
    pub(crate) fn new(handle: &'a Handle) -> Self {
        Self { handle }
    }

    /// What is left or free, and how many permits are held.
    pub(crate) fn ask(&self) -> Result<(i64, i64)> {
        let keys = self.handle.usable()?;
        self.handle.shared.store.counted(keys).map_err(|e| e.for_name(&keys.name))
    }

    pub(crate) fn add(&self, permits: i64) -> Result<i64> {
        let keys = self.handle.usable()?;
        if permits == 0 || permits.unsigned_abs() > u64::from(MOST_PERMITS) {
            let why = format!("{permits} is not between 1 and 2^31 - 1, or that many fewer");
            return Err(Error::named(ErrorKind::InvalidInput, &keys.name, why));
        }
        self.change(Count::Add(permits)).map(|answer| answer.value)
    }

    /// Changes the count once, however many repeats that takes: they carry one id, which the server remembers for a
    /// while.
    ///
    /// # Errors
    /// When the server cannot be asked. If that happened after the request went out, it may have been done.
    pub(crate) fn change(&self, change: Count) -> Result<CountAnswer> {
        let (shared, keys) = (&self.handle.shared, self.handle.usable()?);
        let _call = shared.begin_call().map_err(|e| e.for_name(&keys.name))?;
        let answer = repeat(shared, keys, change).map_err(|e| e.for_name(&keys.name))?;
        // Whoever of this client waits for the count looks again: sooner than the message does.
        shared.stations.ring(&keys.lock);
        Ok(answer)
    }
}

fn repeat(shared: &Arc<Shared>, keys: &LockKeys, change: Count) -> Result<CountAnswer> {
    let id = shared.id.fresh_holder();
    let mut doubts = Doubts::default();
    let mut pause = Backoff::new(Duration::from_millis(10), Duration::from_millis(200));
    let (first, patience) = (Instant::now(), shared.config.io_timeout * 2);
    loop {
        let error = match shared.store.count(keys, change, id.as_str(), &mut doubts) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let spent = first.elapsed();
        // Once the mark may be forgotten a repeat could count twice.
        let may_repeat = spent < patience && spent + shared.config.io_timeout * 2 < ONCE;
        if doubts.is_empty() || !error.kind().is_outage() || !may_repeat {
            return Err(error);
        }
        if shared.is_closed() {
            return Err(closed());
        }
        std::thread::sleep(pause.next());
    }
}
