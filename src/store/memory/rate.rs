//! The requests of rate limiters.

use super::answers::Answer;
use super::entry::Entry;
use super::limiter::Limiter;
use super::state::MemoryState;
use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::base::limits::IDEMPOTENCY_TTL;
use crate::base::lock_name::LockName;
use crate::store::{Acquire, Acquired, Rate, RateChange, Release, Released};

impl MemoryState {
    pub(super) fn acquire_at_rate(
        &mut self,
        acquire: &Acquire<'_>,
        now: Moment,
    ) -> Result<Acquired> {
        let limiter = self.typed(&acquire.name.key, now, Entry::rate_limiter)?;
        Ok(limiter.map_or(Acquired::TooFew { permits: 0 }, |limiter| {
            limiter.acquire(acquire.holder, acquire.permits.into(), now)
        }))
    }

    /// Undoes an acquisition.
    pub(super) fn undo_at_rate(&mut self, release: &Release<'_>, now: Moment) -> Released {
        let limiter = self.typed(&release.name.key, now, Entry::rate_limiter).ok().flatten();
        if limiter.is_some_and(|limiter| limiter.give_back(release.holder)) {
            Released::Freed { listeners: Some(0), next: None }
        } else {
            Released::NotHeld
        }
    }

    /// A repeat has the same id and gets the answer of the first run.
    pub(super) fn change_rate(
        &mut self,
        name: &LockName,
        change: RateChange,
        id: &str,
        now: Moment,
    ) -> Result<bool> {
        if self.answers.get(&name.key, id, now).is_some() {
            return Ok(true);
        }
        let is_set = self.typed(&name.key, now, Entry::rate_limiter)?.is_some();
        match change {
            RateChange::Set(_) if is_set => return Ok(false),
            RateChange::Delete if !is_set => return Ok(false),
            RateChange::Set(rate) | RateChange::Replace(rate) => {
                self.insert(&name.key, Entry::RateLimiter(Limiter::new(rate)), now);
            }
            RateChange::Delete => self.remove(&name.key),
        }
        self.answers.keep(&name.key, id, Answer::Done, IDEMPOTENCY_TTL, now);
        Ok(true)
    }

    pub(super) fn rate_of(&mut self, name: &LockName, now: Moment) -> Result<Option<(Rate, i64)>> {
        let limiter = self.typed(&name.key, now, Entry::rate_limiter)?;
        Ok(limiter.map(|limiter| {
            (limiter.rate(), i64::try_from(limiter.free_at(now)).unwrap_or(i64::MAX))
        }))
    }
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
