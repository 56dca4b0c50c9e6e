//! The semaphore with leases.

use super::entry::{Entry, HolderEntry};
use super::state::MemoryState;
use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::base::lock_name::{Kind, LockName};
use crate::store::{Acquire, Acquired, Granted, Release, Released};

impl MemoryState {
    /// Returns the permits whose lease has ended, and notifies the waiters.
    pub(super) fn sweep_permits(&mut self, name: &LockName, now: Moment) -> Result<()> {
        let Some(permits) = self.typed(&name.key, now, Entry::semaphore)? else { return Ok(()) };
        if permits.take_back(|current| current.until <= now) && permits.free > 0 {
            self.publish(Kind::Semaphore, &name.key);
        }
        Ok(())
    }

    pub(super) fn acquire_permits(
        &mut self,
        acquire: &Acquire<'_>,
        now: Moment,
    ) -> Result<Acquired> {
        let Acquire { name, holder, permits: count, lease, .. } = *acquire;
        let granted =
            Acquired::Granted(Granted { token: 0, sent_at: now, session: None, next: None });
        let until = now.plus(lease);
        match self.typed(&name.key, now, Entry::semaphore)? {
            None => return Ok(Acquired::TooFew { permits: 0 }),
            Some(permits) => {
                if permits.lengthen(holder, until, now) {
                    return Ok(granted);
                }
            }
        }
        self.sweep_permits(name, now)?;
        let Some(permits) = self.typed(&name.key, now, Entry::semaphore)? else {
            return Ok(Acquired::Gone);
        };
        let wanted = i64::from(count);
        if permits.free >= wanted {
            permits.free -= wanted;
            permits.taken.push(HolderEntry { holder: holder.clone(), count, until });
            return Ok(granted);
        }
        let all = permits.free + permits.held();
        if all < wanted {
            return Ok(Acquired::TooFew { permits: u64::try_from(all).unwrap_or(0) });
        }
        let first = permits.taken.iter().map(|current| current.until).min();
        Ok(Acquired::Busy { ttl: first.map(|until| until.since(now)) })
    }

    pub(super) fn release_permits(&mut self, release: &Release<'_>, now: Moment) -> Released {
        let Release { name, holder, .. } = *release;
        let Ok(Some(permits)) = self.typed(&name.key, now, Entry::semaphore) else {
            return Released::NotHeld;
        };
        let in_time = permits.lengthen(holder, now, now);
        if !permits.take_back(|current| current.holder == *holder) {
            return Released::NotHeld;
        }
        let listeners = if permits.free > 0 { self.publish(Kind::Semaphore, &name.key) } else { 0 };
        if in_time {
            Released::Freed { listeners: Some(listeners), next: None }
        } else {
            Released::NotHeld
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::holder::Holder;
    use crate::store::Count;
    use crate::store::memory::tests::{Bench, LEASE};

    #[test]
    fn permits_come_back_when_their_lease_ends() {
        let mut bench = Bench::new();
        let name = bench.name("n", Kind::Semaphore);
        let take = |bench: &mut Bench, permits| {
            let holder = Holder::random_permits();
            (bench.acquire_permits(&name, &holder, permits).unwrap(), holder)
        };
        assert_eq!(take(&mut bench, 1).0, Acquired::TooFew { permits: 0 });
        bench.count(&name, Count::Set(3), "set");
        assert_eq!(take(&mut bench, 4).0, Acquired::TooFew { permits: 3 });
        let (_, two) = take(&mut bench, 2);
        bench.clock.advance(LEASE / 2);
        let (_, one) = take(&mut bench, 1);
        assert_eq!(take(&mut bench, 1).0, Acquired::Busy { ttl: Some(LEASE / 2) });
        assert_eq!(bench.counted(&name), (0, 3));
        bench.clock.advance(LEASE / 2);
        assert_eq!(bench.counted(&name), (2, 1));
        assert_eq!(bench.release(&name, &two), Released::NotHeld);
        assert!(matches!(bench.release(&name, &one), Released::Freed { .. }));
        assert_eq!(bench.release(&name, &one), Released::NotHeld);
        assert_eq!(bench.counted(&name), (3, 0));
    }

    #[test]
    fn a_repeat_finds_its_own_permits() {
        let mut bench = Bench::new();
        let name = bench.name("n", Kind::Semaphore);
        bench.count(&name, Count::Set(2), "set");
        let holder = Holder::random_permits();
        for _ in 0..2 {
            assert!(matches!(bench.acquire_permits(&name, &holder, 2), Ok(Acquired::Granted(_))));
        }
        assert_eq!(bench.counted(&name), (0, 2));
        bench.count(&name, Count::Add(-1), "fewer");
        assert!(matches!(bench.release(&name, &holder), Released::Freed { .. }));
        assert_eq!(bench.counted(&name), (1, 0));
    }
}
