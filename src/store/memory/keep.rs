//! Locks that stay taken for some time after their holder has given them up.

use super::entry::{Entry, HolderEntry};
use super::queue::Queue;
use super::state::MemoryState;
use crate::base::lease::Moment;
use crate::base::lock_name::Kind;
use crate::store::{Release, Released};

impl MemoryState {
    /// Notifies waiters as a release does: the end that they know of is out of date.
    pub(super) fn keep(&mut self, release: &Release<'_>, until: Moment, now: Moment) -> Released {
        let Release { name, holder, .. } = *release;
        let current = match self.entry(&name.key, now) {
            Some(Entry::Lock(current)) => Some(current),
            Some(Entry::ReadWrite(lock)) => lock.writer.as_mut(),
            _ => None,
        };
        let kept = holder.kept();
        match current {
            Some(current) if current.holder == *holder => {
                *current = HolderEntry { holder: kept, count: 1, until }
            }
            // A repeat.
            Some(current) if current.holder == kept => current.until = current.until.min(until),
            _ => return Released::NotHeld,
        }
        let head = self.queues.get(&name.key).and_then(Queue::head).map(|head| head.holder.clone());
        match (name.kind, head) {
            (Kind::Fair, None) => {}
            (Kind::Fair, Some(head)) => {
                self.notify_turn(name, &head);
            }
            (kind, _) => {
                self.publish(kind, &name.key);
            }
        }
        Released::StillHeld
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::tests::{Bench, LEASE};
    use crate::store::{Acquired, Renewal, Renewed};

    #[test]
    fn it_ends_in_time_and_its_holder_is_gone() {
        for kind in [Kind::Mutex, Kind::Fair, Kind::Write] {
            for least in [LEASE / 4, LEASE * 4] {
                let mut bench = Bench::new();
                let name = bench.name("n", kind);
                let clock = bench.clock.clone();
                let holder = bench.granted(&name);
                let other = bench.holder();
                let began = bench.now();
                let until = bench.now().plus(least);
                let release = |bench: &mut Bench, until| {
                    let now = bench.now();
                    let release =
                        Release { kept_until: Some(until), ..Release::of_all(&name, &holder, 1) };
                    bench.state.release(&release, now).unwrap()
                };
                assert_eq!(release(&mut bench, until), Released::StillHeld);
                assert_eq!(
                    bench.acquire(&name, &other).unwrap(),
                    Acquired::Busy { ttl: Some(least) }
                );
                assert_eq!(bench.reenter(&name, &holder, 1).unwrap(), Acquired::Gone);
                let renewal = Renewal {
                    name: name.clone(),
                    holder: holder.clone(),
                    permits: 1,
                    lease: LEASE * 9,
                    token: 0,
                };
                let now = bench.now();
                assert!(
                    matches!(bench.state.renew(&renewal, now), Renewed::Gone),
                    "{kind:?}: it comes late"
                );
                assert_eq!(release(&mut bench, until.plus(LEASE)), Released::StillHeld, "a repeat");
                clock.advance(least / 2);
                let rest = until.since(began.plus(least / 2));
                assert_eq!(
                    bench.acquire(&name, &other).unwrap(),
                    Acquired::Busy { ttl: Some(rest) },
                    "never later"
                );
                clock.advance(rest);
                assert!(
                    matches!(bench.acquire(&name, &other), Ok(Acquired::Granted(_))),
                    "{kind:?}"
                );
                assert_eq!(release(&mut bench, until), Released::NotHeld, "it is another's");
            }
        }
    }
}
