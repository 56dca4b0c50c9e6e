//! Several plain locks taken and given up as one.

use super::entry::Entry;
use super::state::MemoryState;
use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::base::lock_name::Kind;
use crate::store::{AcquireAll, AcquiredAll, Part, Release, Released};

impl MemoryState {
    /// `again`: an earlier run of the same request may have taken them.
    pub(super) fn acquire_all(
        &mut self,
        acquire: &AcquireAll<'_>,
        again: bool,
        now: Moment,
    ) -> Result<AcquiredAll> {
        let AcquireAll { parts, lease, token, .. } = acquire;
        // All are checked before the first is taken.
        let refused =
            parts.iter().enumerate().find_map(|(at, part)| self.refuse_part(at, part, now));
        if let Some(refused) = refused {
            if again {
                // The earlier run took all, and one of them has been lost since (force-unlocked,
                // for example).
                self.take_back(parts, now);
            }
            return refused;
        }
        let mut tokens = Vec::with_capacity(parts.len());
        for part in parts {
            tokens.push(self.token(*token, part.held));
            self.take_lock(part.name, part.holder, part.held, now.plus(*lease), now);
        }
        Ok(AcquiredAll::Granted { tokens, sent_at: now, session: None })
    }

    fn refuse_part(
        &mut self,
        at: usize,
        part: &Part<'_>,
        now: Moment,
    ) -> Option<Result<AcquiredAll>> {
        let Part { name, holder, held } = part;
        match self.typed(&name.key, now, Entry::lock) {
            Ok(Some(current)) if current.holder == **holder => None,
            _ if *held > 0 => Some(Ok(AcquiredAll::Gone { at })),
            Ok(Some(current)) => {
                Some(Ok(AcquiredAll::Busy { at, ttl: Some(current.until.since(now)) }))
            }
            Ok(None) => None,
            Err(e) => Some(Err(e.for_name(&name.name))),
        }
    }

    fn take_back(&mut self, parts: &[Part<'_>], now: Moment) {
        for Part { name, holder, .. } in parts.iter().filter(|part| part.held == 0) {
            if self
                .entry(&name.key, now)
                .and_then(Entry::lock)
                .is_some_and(|current| current.holder == **holder)
            {
                self.remove(&name.key);
                self.publish(Kind::Mutex, &name.key);
            }
        }
    }

    pub(super) fn release_all(&mut self, releases: &[Release<'_>], now: Moment) -> Vec<Released> {
        // All are released before the first notification, so that a waiter for all of them succeeds
        // at its first attempt.
        let mut outcomes: Vec<_> =
            releases.iter().map(|release| self.leave_part(release, now)).collect();
        for (outcome, release) in outcomes.iter_mut().zip(releases) {
            if let Released::Freed { listeners, .. } = outcome {
                *listeners = Some(self.publish(Kind::Mutex, &release.name.key));
            }
        }
        outcomes
    }

    fn leave_part(&mut self, release: &Release<'_>, now: Moment) -> Released {
        match release.keeps_for(|| now) {
            Some(rest) => self.keep(release, now.plus(rest), now),
            None => self.leave_lock(release, now),
        }
    }
}

#[cfg(test)]
#[path = "multi_tests.rs"]
mod tests;
