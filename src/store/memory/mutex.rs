//! The re-entrant lock.

use super::entry::{Entry, HolderEntry};
use super::state::MemoryState;
use crate::base::error::Result;
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::lock_name::LockName;
use crate::store::{Acquire, Acquired, Granted, HoldCounts, Release, Released};

impl MemoryState {
    pub(super) fn acquire_mutex(&mut self, acquire: &Acquire<'_>, now: Moment) -> Result<Acquired> {
        match self.typed(&acquire.name.key, now, Entry::lock) {
            Ok(Some(current)) if current.holder == *acquire.holder => {}
            _ if acquire.held > 0 => return Ok(Acquired::Gone),
            Ok(Some(current)) => return Ok(Acquired::Busy { ttl: Some(current.until.since(now)) }),
            Ok(None) => {}
            Err(e) => return Err(e),
        }
        Ok(self.grant_lock(acquire, None, now))
    }

    /// Grants a mutex or a fair lock.
    pub(super) fn grant_lock(
        &mut self,
        acquire: &Acquire<'_>,
        next: Option<String>,
        now: Moment,
    ) -> Acquired {
        let Acquire { name, holder, lease, held, token, tokens, .. } = *acquire;
        let token = self.tokens(token, held, tokens);
        self.take_lock(name, holder, held, now.plus(lease), now);
        Acquired::Granted(Granted { token, sent_at: now, session: None, next })
    }

    /// The count is set, not incremented, so that a repeated request changes nothing more.
    pub(super) fn take_lock(
        &mut self,
        name: &LockName,
        holder: &Holder,
        held: u32,
        until: Moment,
        now: Moment,
    ) {
        match self.entry(&name.key, now) {
            Some(Entry::Lock(current)) => {
                current.count = held + 1;
                current.lengthen(until);
            }
            _ => {
                let entry = HolderEntry { holder: holder.clone(), count: held + 1, until };
                self.insert(&name.key, Entry::Lock(entry), now);
            }
        }
    }

    pub(super) fn release_mutex(&mut self, release: &Release<'_>, now: Moment) -> Released {
        match self.leave_lock(release, now) {
            Released::Freed { next, .. } => {
                let listeners = self.publish(release.name.kind, &release.name.key);
                Released::Freed { listeners: Some(listeners), next }
            }
            stays => stays,
        }
    }

    /// Releases a mutex or a fair lock, without a notification.
    pub(super) fn leave_lock(&mut self, release: &Release<'_>, now: Moment) -> Released {
        let Release { name, holder, left, .. } = *release;
        match self.entry(&name.key, now) {
            Some(Entry::Lock(current)) if current.holder == *holder => {
                if left != HoldCounts::NONE {
                    current.count = left.main;
                    return Released::StillHeld;
                }
                self.remove(&name.key);
                Released::Freed { listeners: None, next: None }
            }
            _ => Released::NotHeld,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::lock_name::Kind;
    use crate::store::memory::tests::{Bench, LEASE, SECOND};

    #[test]
    fn one_holder_at_a_time_for_its_lease() {
        let mut bench = Bench::new();
        let name = bench.name("n", Kind::Mutex);
        let first = bench.granted(&name);
        let second = bench.holder();
        bench.clock.advance(LEASE / 4);
        assert_eq!(
            bench.acquire(&name, &second).unwrap(),
            Acquired::Busy { ttl: Some(LEASE * 3 / 4) }
        );
        assert!(
            matches!(bench.acquire(&name, &first), Ok(Acquired::Granted(_))),
            "a repeat finds itself"
        );
        bench.clock.advance(LEASE * 3 / 4);
        assert_eq!(
            bench.acquire(&name, &second).unwrap(),
            Acquired::Busy { ttl: Some(LEASE / 4) },
            "which lengthened it"
        );
        bench.clock.advance(LEASE / 4);
        assert!(matches!(bench.acquire(&name, &second), Ok(Acquired::Granted(_))));
        assert_eq!(bench.release(&name, &first), Released::NotHeld);
        assert_eq!(bench.reenter(&name, &first, 1).unwrap(), Acquired::Gone);
        assert_eq!(
            bench.release(&name, &second),
            Released::Freed { listeners: Some(0), next: None }
        );
        assert_eq!(bench.state.inspect(&name.key, bench.now()).unwrap(), None);
    }

    #[test]
    fn counts_are_set_and_the_lease_is_never_shortened() {
        let mut bench = Bench::new();
        let name = bench.name("n", Kind::Mutex);
        let holder = bench.granted(&name);
        for _ in 0..2 {
            assert!(matches!(
                bench.reenter(&name, &holder, 1),
                Ok(Acquired::Granted(Granted { token: 0, .. }))
            ));
        }
        let status = bench.state.inspect(&name.key, bench.now()).unwrap().unwrap();
        assert_eq!(
            (status.holders, status.ttl),
            (vec![(holder.as_str().to_owned(), 2)], Some(LEASE))
        );
        let left = HoldCounts { main: 1, reads: 0 };
        for _ in 0..2 {
            assert_eq!(bench.release_to(&name, &holder, left), Released::StillHeld);
        }
        assert!(
            matches!(bench.release(&name, &holder), Released::Freed { .. }),
            "the last one frees it"
        );
        bench.clock.advance(SECOND);
    }
}
