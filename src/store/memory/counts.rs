//! What nobody holds: latches, the number of a semaphore's permits, permits without leases, and
//! values that refuse stale holders.

use std::sync::Arc;

use super::answers::Answer;
use super::entry::{Entry, Permits, Value, another_kind};
use super::state::MemoryState;
use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::base::limits::{IDEMPOTENCY_TTL, MOST_PERMITS, TAKEN_TTL};
use crate::base::lock_name::{Kind, LockName};
use crate::store::{
    Acquire, Acquired, Count, CountAnswer, FenceAnswer, Granted, Release, Released, out_of_range,
};

/// The id under which the time of a latch's last opening is kept; no request has this id.
const OPENED: &str = "opened";

impl MemoryState {
    /// A repeat has the same id and gets the answer of the first run.
    pub(super) fn count(
        &mut self,
        name: &LockName,
        change: Count,
        id: &str,
        now: Moment,
    ) -> Result<CountAnswer> {
        if let Some(Answer::Counted(answer)) = self.answers.get(&name.key, id, now) {
            return Ok(answer);
        }
        let answer = match change {
            Count::Set(count) => self.set_count(name, count, now)?,
            Count::Add(more) => self.add_permits(name, more, now)?,
            Count::Down => self.count_down(name, now)?,
            Count::Delete => self.delete_count(name, now)?,
        };
        if answer.done || change == Count::Down {
            self.answers.keep(&name.key, id, Answer::Counted(answer), IDEMPOTENCY_TTL, now);
        }
        Ok(answer)
    }

    /// The count of a latch or the number of free permits, if there is one.
    fn number(&mut self, name: &LockName, now: Moment) -> Result<Option<&mut i64>> {
        match (name.kind, self.entry(&name.key, now)) {
            (_, None) => Ok(None),
            (Kind::Semaphore, Some(Entry::Semaphore(permits))) => Ok(Some(&mut permits.free)),
            (Kind::CountingSemaphore, Some(Entry::CountingSemaphore(free))) => Ok(Some(free)),
            (Kind::Latch, Some(Entry::Latch(left))) => Ok(Some(left)),
            (_, Some(_)) => Err(another_kind()),
        }
    }

    fn begin_count(&mut self, name: &LockName, count: i64, now: Moment) {
        let entry = match name.kind {
            Kind::Semaphore => Entry::Semaphore(Permits::new(count)),
            Kind::CountingSemaphore => Entry::CountingSemaphore(count),
            Kind::Latch => Entry::Latch(count),
            kind => unreachable!("{kind:?} has no count"),
        };
        self.insert(&name.key, entry, now);
    }

    fn set_count(&mut self, name: &LockName, count: u32, now: Moment) -> Result<CountAnswer> {
        if let Some(&mut value) = self.number(name, now)? {
            return Ok(CountAnswer { done: false, value });
        }
        self.begin_count(name, count.into(), now);
        self.publish(name.kind, &name.key);
        Ok(CountAnswer { done: true, value: count.into() })
    }

    fn add_permits(&mut self, name: &LockName, more: i64, now: Moment) -> Result<CountAnswer> {
        let before = self.number(name, now)?.copied();
        let value = before.unwrap_or(0).saturating_add(more);
        if value.unsigned_abs() > MOST_PERMITS.into() {
            return Err(out_of_range(before.unwrap_or(0)));
        }
        match self.number(name, now)? {
            Some(free) => *free = value,
            None => self.begin_count(name, value, now),
        }
        if more > 0 && value > 0 {
            self.publish(name.kind, &name.key);
        }
        Ok(CountAnswer { done: true, value })
    }

    fn count_down(&mut self, name: &LockName, now: Moment) -> Result<CountAnswer> {
        let Some(left) = self.number(name, now)? else {
            return Ok(CountAnswer { done: false, value: 0 });
        };
        *left -= 1;
        let value = *left;
        if value == 0 {
            self.open_latch(name, now);
        }
        Ok(CountAnswer { done: true, value })
    }

    fn delete_count(&mut self, name: &LockName, now: Moment) -> Result<CountAnswer> {
        let done = self.number(name, now)?.is_some();
        if done && name.kind == Kind::Latch {
            self.open_latch(name, now);
        } else if done {
            // The waiters try again, and get an error because there is no semaphore.
            self.remove(&name.key);
            self.publish(name.kind, &name.key);
        }
        Ok(CountAnswer { done, value: 0 })
    }

    fn open_latch(&mut self, name: &LockName, now: Moment) {
        // A waiter that polls after the latch was set again learns from this time that it was open
        // in between. So the time must grow, even if the wall clock was set back.
        let opened =
            i64::try_from(self.micros()).unwrap_or(i64::MAX).max(self.opened(name, now) + 1);
        self.answers.keep(&name.key, OPENED, Answer::Opened(opened), IDEMPOTENCY_TTL, now);
        self.remove(&name.key);
        self.publish(name.kind, &name.key);
    }

    fn opened(&self, name: &LockName, now: Moment) -> i64 {
        match self.answers.get(&name.key, OPENED, now) {
            Some(Answer::Opened(at)) => at,
            _ => 0,
        }
    }

    /// The count of a latch or the number of free permits; and when the latch was last opened, or
    /// how many permits are held.
    pub(super) fn counted(&mut self, name: &LockName, now: Moment) -> Result<(i64, i64)> {
        if name.kind == Kind::Semaphore {
            self.sweep_permits(name, now)?;
        }
        let left = self.number(name, now)?.copied().unwrap_or(0);
        let more = match (name.kind, self.entry(&name.key, now)) {
            (Kind::Latch, _) => self.opened(name, now),
            (_, Some(Entry::Semaphore(permits))) => permits.held(),
            _ => 0,
        };
        Ok((left, more))
    }

    /// Permits without leases.
    pub(super) fn acquire_counted(
        &mut self,
        acquire: &Acquire<'_>,
        now: Moment,
    ) -> Result<Acquired> {
        let Acquire { name, holder, permits, .. } = *acquire;
        let granted =
            Acquired::Granted(Granted { token: 0, sent_at: now, session: None, next: None });
        match self.answers.get(&name.key, holder.as_str(), now) {
            Some(Answer::Taken) => return Ok(granted),
            Some(_) => return Ok(Acquired::Gone),
            None => {}
        }
        match self.typed(&name.key, now, Entry::counting_semaphore)? {
            Some(free) if *free >= i64::from(permits) => *free -= i64::from(permits),
            Some(_) => return Ok(Acquired::Busy { ttl: None }),
            None => return Ok(Acquired::TooFew { permits: 0 }),
        }
        self.answers.keep(&name.key, holder.as_str(), Answer::Taken, TAKEN_TTL, now);
        Ok(granted)
    }

    /// # Errors
    /// `WrongType` if the name has something of another kind by now: the permits are not returned,
    /// and no answer is kept.
    pub(super) fn release_counted(
        &mut self,
        release: &Release<'_>,
        now: Moment,
    ) -> Result<Released> {
        let Release { name, holder, permits, granted, .. } = *release;
        let known = self.answers.get(&name.key, holder.as_str(), now);
        let gives_back = match known {
            Some(Answer::Taken) => true,
            known => granted && known.is_none(),
        };
        if gives_back {
            self.typed(&name.key, now, Entry::counting_semaphore)?;
        }
        // Kept even if nothing was taken, so that a late acquire with this id takes nothing.
        self.answers.keep(&name.key, holder.as_str(), Answer::GivenBack, IDEMPOTENCY_TTL, now);
        if !gives_back {
            let before = Released::Freed { listeners: Some(0), next: None };
            return Ok(if granted { before } else { Released::NotHeld });
        }
        let free = match self.typed(&name.key, now, Entry::counting_semaphore)? {
            Some(free) => {
                *free += i64::from(permits);
                *free
            }
            None => {
                self.begin_count(name, permits.into(), now);
                permits.into()
            }
        };
        let listeners = if free > 0 { self.publish(name.kind, &name.key) } else { 0 };
        Ok(Released::Freed { listeners: Some(listeners), next: None })
    }
}

impl MemoryState {
    pub(super) fn claim(&mut self, key: &Arc<str>, token: u64, now: Moment) -> Result<FenceAnswer> {
        match self.typed(key, now, Entry::value)? {
            Some(value) if value.token > token => {
                Ok(FenceAnswer::Refused { standing: Some(value.token) })
            }
            Some(value) => {
                value.token = token;
                Ok(FenceAnswer::Accepted(value.bytes.clone()))
            }
            None => {
                self.insert(key, Entry::Value(Value { token, bytes: None }), now);
                Ok(FenceAnswer::Accepted(None))
            }
        }
    }

    pub(super) fn write(
        &mut self,
        key: &str,
        token: u64,
        bytes: &[u8],
        now: Moment,
    ) -> Result<FenceAnswer> {
        match self.typed(key, now, Entry::value)? {
            Some(value) if value.token == token => {
                value.bytes = Some(bytes.to_vec());
                Ok(FenceAnswer::Accepted(None))
            }
            standing => Ok(FenceAnswer::Refused { standing: standing.map(|value| value.token) }),
        }
    }
}

#[cfg(test)]
#[path = "counts_tests.rs"]
mod tests;
