//! What exists under each name, shared by the clients of one memory under one mutex.

use std::sync::Arc;
#[cfg(feature = "testing")]
use std::sync::Weak;
use std::time::Duration;

use super::answers::Answers;
use super::entry::{Entry, Marker, Written, another_kind};
use super::faults::Faults;
use super::job_records::Jobs;
use super::queue::Queue;
use super::subscriptions::Subscriptions;
use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::base::lock_name::Kind;
use crate::os::{HashMap, Mutex, atomic::AtomicU64};
use crate::signal::clock::{Clock, MovableClock};
use crate::store::{
    Acquire, Acquired, LockStatus, Release, Released, Renewal, Renewed, TokenRule, Topic,
};

const NOBODY: &str = "nobody holds a latch, or the record of a job";

/// With this many names or more, expired ones are removed.
const SWEEP_AT: usize = 1024;

/// The state behind the stores of several clients.
pub(crate) struct Memory {
    pub(crate) clock: Arc<MovableClock>,
    pub(super) state: Mutex<MemoryState>,
    pub(super) next_store: AtomicU64,
    #[cfg(feature = "testing")]
    pub(super) clients: Mutex<Vec<Weak<dyn ClientInTest>>>,
}

#[cfg(feature = "testing")]
/// A client of the store, as the store's faults see it.
pub(crate) trait ClientInTest: Send + Sync {
    /// Wakes all its sleeping threads, which check the store and the clock again.
    fn recheck(&self);

    /// Whether the threads of the library have done what is due for it.
    fn is_settled(&self) -> bool;
}

impl Memory {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(MovableClock::default());
        Self {
            state: Mutex::new(MemoryState::new(clock.clone())),
            clock,
            next_store: AtomicU64::new(0),
            #[cfg(feature = "testing")]
            clients: Mutex::default(),
        }
    }
}

pub(super) struct MemoryState {
    pub(super) clock: Arc<dyn Clock>,
    entries: HashMap<Arc<str>, Entry>,
    /// The queues of fair locks, held or free.
    pub(super) queues: HashMap<Arc<str>, Queue>,
    /// The markers of waiting writers, whether or not the lock is held.
    pub(super) markers: HashMap<Arc<str>, Marker>,
    /// What the last holder with data has written.
    pub(super) data: HashMap<Arc<str>, Written>,
    pub(super) answers: Answers,
    pub(super) jobs: Jobs,
    pub(super) subscriptions: Subscriptions,
    pub(super) faults: Faults,
    /// What each client wrote about itself, and until when it is valid.
    pub(super) owners: HashMap<String, (String, Moment)>,
    last_token: u64,
    sweep_at: usize,
}

impl MemoryState {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            entries: HashMap::default(),
            queues: HashMap::default(),
            markers: HashMap::default(),
            data: HashMap::default(),
            answers: Answers::default(),
            jobs: Jobs::default(),
            subscriptions: Subscriptions::default(),
            faults: Faults::default(),
            owners: HashMap::default(),
            last_token: 0,
            sweep_at: SWEEP_AT,
        }
    }

    /// What exists under the name now. Removes leases that have ended.
    pub(super) fn entry(&mut self, key: &str, now: Moment) -> Option<&mut Entry> {
        if self.entries.get_mut(key)?.drop_ended(now) {
            self.entries.remove(key);
        }
        self.entries.get_mut(key)
    }

    /// What exists under the name, even if nobody holds it (yet).
    pub(super) fn unchecked_entry(&mut self, key: &str) -> Option<&mut Entry> {
        self.entries.get_mut(key)
    }

    /// # Errors
    /// `WrongType` if `pick` does not accept what exists under the name.
    pub(super) fn typed<T>(
        &mut self,
        key: &str,
        now: Moment,
        pick: fn(&mut Entry) -> Option<&mut T>,
    ) -> Result<Option<&mut T>> {
        match self.entry(key, now) {
            None => Ok(None),
            Some(entry) => pick(entry).map(Some).ok_or_else(another_kind),
        }
    }

    /// All names, including those where everything has expired.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.entries.keys().chain(self.queues.keys())
    }

    pub(super) fn insert(&mut self, key: &Arc<str>, entry: Entry, now: Moment) {
        if self.entries.len() + self.queues.len() + self.markers.len() >= self.sweep_at {
            self.sweep(now);
        }
        self.entries.insert(key.clone(), entry);
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.entries.remove(key);
    }

    /// Removes all that has expired.
    fn sweep(&mut self, now: Moment) {
        self.entries.retain(|_, entry| !entry.drop_ended(now));
        self.queues.retain(|_, queue| !queue.is_over(now));
        self.markers.retain(|_, marker| marker.until > now);
        self.sweep_at =
            SWEEP_AT.max(2 * (self.entries.len() + self.queues.len() + self.markers.len()));
    }

    /// One counter serves all names: the tokens of each name grow, and nothing has to be kept for a
    /// name. It starts at the wall clock, so that a restarted process does not begin below a token
    /// that a resource has seen.
    pub(super) fn token(&mut self, rule: TokenRule, held: u32) -> u64 {
        self.tokens(rule, held, 1)
    }

    /// Several tokens in a row; returns the first.
    pub(super) fn tokens(&mut self, rule: TokenRule, held: u32, count: u32) -> u64 {
        if rule == TokenRule::Off || held > 0 {
            return 0;
        }
        let first = self.micros().max(self.last_token + 1);
        self.last_token = first + u64::from(count.max(1)) - 1;
        first
    }

    /// The wall clock in microseconds.
    pub(super) fn micros(&self) -> u64 {
        u64::try_from(self.clock.wall().as_micros()).unwrap_or(u64::MAX)
    }

    /// `place`: how long a waiter keeps its place until its next attempt.
    pub(super) fn acquire(
        &mut self,
        acquire: &Acquire<'_>,
        place: Duration,
        now: Moment,
    ) -> Result<Acquired> {
        let acquired = match acquire.name.kind {
            Kind::Mutex | Kind::Job => self.acquire_mutex(acquire, now)?,
            Kind::Fair => self.acquire_fair(acquire, place, now)?,
            Kind::Read => self.acquire_read(acquire, now)?,
            Kind::Write => self.acquire_write(acquire, place, now)?,
            Kind::Semaphore => self.acquire_permits(acquire, now)?,
            Kind::CountingSemaphore => self.acquire_counted(acquire, now)?,
            Kind::RateLimiter => self.acquire_at_rate(acquire, now)?,
            Kind::Latch | Kind::Done => unreachable!("{NOBODY}"),
        };
        self.data_granted(acquire, &acquired, now);
        Ok(acquired)
    }

    pub(super) fn release(&mut self, release: &Release<'_>, now: Moment) -> Result<Released> {
        let released = self.release_kind(release, now)?;
        self.data_released(release, &released, now);
        Ok(released)
    }

    fn release_kind(&mut self, release: &Release<'_>, now: Moment) -> Result<Released> {
        if let Some(rest) = release.keeps_for(|| now) {
            return Ok(self.keep(release, now.plus(rest), now));
        }
        Ok(match release.name.kind {
            Kind::Mutex | Kind::Job => self.release_mutex(release, now),
            Kind::Fair => self.release_fair(release, now),
            Kind::Read | Kind::Write => self.release_rw(release, now),
            Kind::Semaphore => self.release_permits(release, now),
            Kind::CountingSemaphore => self.release_counted(release, now)?,
            Kind::RateLimiter => self.undo_at_rate(release, now),
            Kind::Latch | Kind::Done => unreachable!("{NOBODY}"),
        })
    }

    pub(super) fn renew(&mut self, renewal: &Renewal, now: Moment) -> Renewed {
        let Renewal { name, holder, lease, .. } = renewal;
        let until = now.plus(*lease);
        let stands = match (name.kind, self.entry(&name.key, now)) {
            (Kind::Mutex | Kind::Fair | Kind::Job, Some(Entry::Lock(current)))
                if current.holder == *holder =>
            {
                current.lengthen(until);
                true
            }
            (Kind::Read | Kind::Write, Some(Entry::ReadWrite(lock))) => {
                lock.lengthen(holder, until)
            }
            (Kind::Semaphore, Some(Entry::Semaphore(permits))) => {
                permits.lengthen(holder, until, now)
            }
            _ => false,
        };
        let mut renewed = if stands {
            Renewed::Held { sent_at: now, again: false, beside: None, asked: 0 }
        } else {
            Renewed::Gone
        };
        self.data_renewed(renewal, &mut renewed, now);
        renewed
    }

    pub(super) fn inspect(&mut self, key: &str, now: Moment) -> Result<Option<LockStatus>> {
        let (until, holders) = match self.entry(key, now) {
            None => return Ok(None),
            Some(Entry::Lock(current)) => {
                (current.until, vec![(current.holder.as_str().to_owned(), current.count.into())])
            }
            Some(Entry::ReadWrite(lock)) => lock.holders(),
            Some(_) => return Err(another_kind()),
        };
        let data = holders.first().and_then(|(holder, _)| self.data_of(key, holder));
        Ok(Some(LockStatus { ttl: Some(until.since(now)), holders, owners: Vec::new(), data }))
    }

    /// Returns false if it was free.
    pub(super) fn force_unlock(&mut self, kind: Kind, key: &Arc<str>, now: Moment) -> Result<bool> {
        match (kind, self.entry(key, now)) {
            (_, None) => return Ok(false),
            (Kind::Mutex | Kind::Fair | Kind::Job, Some(Entry::Lock(_)))
            | (Kind::Read | Kind::Write, Some(Entry::ReadWrite(_))) => {}
            (_, Some(_)) => return Err(another_kind()),
        }
        self.lose(key, now);
        Ok(true)
    }

    /// The names under which somebody holds something or has a place in a queue.
    #[cfg(feature = "testing")]
    pub(super) fn held(&mut self, now: Moment) -> std::collections::BTreeSet<Arc<str>> {
        self.sweep(now);
        let is_held = |entry: &Entry| match entry {
            Entry::Lock(_) | Entry::ReadWrite(_) => true,
            Entry::Semaphore(permits) => permits.held() > 0,
            Entry::CountingSemaphore(_)
            | Entry::Latch(_)
            | Entry::RateLimiter(_)
            | Entry::Value(_) => false,
        };
        let held = self.entries.iter().filter(|(_, entry)| is_held(entry)).map(|(key, _)| key);
        held.chain(self.queues.keys()).chain(self.markers.keys()).cloned().collect()
    }

    /// Notifies the waiters that something under the name came free. Returns the number of clients.
    pub(super) fn publish(&mut self, kind: Kind, key: &Arc<str>) -> u64 {
        self.subscriptions.publish(&Topic { kind, key: key.clone(), turn_of: None })
    }

    /// Removes all holders under the name and notifies the waiters. False: nobody held it.
    pub(super) fn lose(&mut self, key: &Arc<str>, now: Moment) -> bool {
        match self.entry(key, now) {
            Some(Entry::Lock(_)) => {
                self.entries.remove(key);
                self.publish(Kind::Mutex, key);
                self.notify_head(key, now);
            }
            Some(Entry::ReadWrite(_)) => {
                self.entries.remove(key);
                self.publish(Kind::Write, key);
            }
            Some(Entry::Semaphore(permits)) => {
                if !permits.take_all_back() {
                    return false;
                }
                self.publish(Kind::Semaphore, key);
            }
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;
    use crate::store::memory::tests::{Bench, SECOND};

    #[test]
    fn what_is_over_is_swept_though_nobody_asks_for_it() {
        let mut bench = Bench::new();
        for n in 0..5 * SWEEP_AT {
            let name = bench.name(&format!("n{n}"), Kind::Mutex);
            bench.granted(&name);
            bench.clock.advance(SECOND);
        }
        assert!(bench.state.entries.len() <= SWEEP_AT);
    }

    #[test]
    fn tokens_grow_from_the_wall_clock() {
        let mut bench = Bench::new();
        bench.clock.jump_wall(Duration::from_secs(1_700_000_000));
        let tokens = [0; 3].map(|_| bench.state.token(TokenRule::On, 0));
        assert_eq!(tokens, [1_700_000_000_000_000, 1_700_000_000_000_001, 1_700_000_000_000_002]);
        assert_eq!(
            (bench.state.token(TokenRule::Off, 0), bench.state.token(TokenRule::On, 1)),
            (0, 0)
        );
    }

    #[test]
    fn a_name_is_of_one_kind() {
        let mut bench = Bench::new();
        let name = bench.name("n", Kind::Mutex);
        bench.granted(&name);
        let as_write = Arc::new(name.of_kind(Kind::Write));
        assert_eq!(
            bench.acquire(&as_write, &bench.holder()).unwrap_err().kind(),
            ErrorKind::WrongType
        );
        let force = bench.state.force_unlock(Kind::Write, &name.key, bench.now());
        assert_eq!(force.unwrap_err().kind(), ErrorKind::WrongType);
        bench.clock.advance(SECOND);
        assert!(
            matches!(bench.acquire(&as_write, &bench.holder()), Ok(Acquired::Granted(_))),
            "the lease is over"
        );
    }
}
