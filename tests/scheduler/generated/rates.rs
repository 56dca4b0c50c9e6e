//! Steps with a rate limiter, and the model of it: in no interval more permits than its rate.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use leasehold::LockClient;
use leasehold::os::thread::sleep;
use leasehold::os::{now, since};

use super::bounds::SLACK;
use super::play::Play;
use super::program::{Client, Pace, Program, Step, Wait};
use super::text::name_of;

/// The rate of each limiter, and the one that a step sets: enough for all of a program at once.
pub(crate) const RATE: u32 = 2;
const MORE: u32 = 40;
pub(crate) const PER: Duration = Duration::from_secs(3);

/// How soon a waiter has its permits after its own client has set the rate anew.
const TOLD: Duration = Duration::from_secs(1);

thread_local! {
    static LIMITERS: RefCell<Vec<Limiter>> = const { RefCell::new(Vec::new()) };
}

#[derive(Default)]
struct Limiter {
    /// Of all calls so far.
    asked: u32,
    grants: Vec<Grant>,
    sets: Vec<Set>,
}

/// The rate is set anew, which forgets what was taken.
struct Set {
    from: Instant,
    /// `None`: it is under way, or nobody knows.
    to: Option<Instant>,
    by: Client,
}

/// Permits that were taken some time between the two.
struct Grant {
    from: Instant,
    to: Instant,
    permits: u32,
}

fn with<T>(thing: usize, run: impl FnOnce(&mut Limiter) -> T) -> T {
    LIMITERS.with_borrow_mut(|limiters| run(&mut limiters[thing]))
}

pub(crate) fn begin(things: usize) {
    LIMITERS.set((0..things).map(|_| Limiter::default()).collect());
}

impl Limiter {
    /// No program takes as many as the other rate allows.
    fn check(&self) {
        let set = self.sets.iter().map(|set| set.from).min();
        let counted = || self.grants.iter().filter(|one| set.is_none_or(|set| one.to < set));
        for first in counted() {
            let within = |one: &&Grant| one.from >= first.from && one.to < first.from + PER;
            let taken: u32 = counted().filter(within).map(|one| one.permits).sum();
            assert!(taken <= RATE, "{taken} permits within {PER:?}, at a rate of {RATE}");
        }
    }
}

impl Play {
    pub(crate) fn pace(&self, client: Client, pace: &Pace) {
        let Pace { thing, permits, wait } = *pace;
        let from = now();
        with(thing, |limiter| limiter.asked += permits);
        let limiter = self.client(client).rate_limiter(name_of(thing));
        let taken = match wait {
            Wait::Ever => limiter.acquire(permits).map(|()| true),
            Wait::Never => limiter.try_acquire(permits),
            Wait::For(time) => limiter.try_acquire_for(permits, time.time()),
        };
        let to = now();
        crate::runs::tell(|| format!("{from:?} + {:?}: {pace}: {taken:?}", to - from));
        match taken {
            Ok(true) => {
                with(thing, |limiter| limiter.grants.push(Grant { from, to, permits }));
                self.has_its_permits(client, pace, from, to);
            }
            Ok(false) => {
                if let Wait::For(time) = wait {
                    assert!(to - from >= time.time(), "{pace}: it gave up after {:?}", to - from);
                }
                let asked = with(thing, |limiter| limiter.asked);
                assert!(!self.is_calm() || asked > RATE, "{pace}: nobody had taken them");
            }
            Err(e) => self.expect(&e, client, false),
        }
    }

    fn has_its_permits(&self, client: Client, pace: &Pace, from: Instant, to: Instant) {
        let thing = pace.thing;
        let jumps = |step: &Step| matches!(step, Step::Advance(_));
        if !self.program.any(jumps) {
            with(thing, |limiter| limiter.check());
        }
        if !self.is_calm() {
            return;
        }
        let longest = self.program.longest_paces(thing);
        assert!(to - from <= longest, "{pace}: it waited {:?}, at most {longest:?}", to - from);
        let lease = self.program.settings.lease.time();
        with(thing, |limiter| {
            for Set { to: set, by, .. } in &limiter.sets {
                let Some(waited) = set.filter(|set| from < *set).map(|set| to - set) else {
                    continue;
                };
                let told = if *by == client { TOLD } else { lease + TOLD };
                assert!(waited <= told, "{pace}: it waited {waited:?} for a new rate");
            }
        });
    }

    pub(crate) fn set_rate(&self, client: Client, thing: usize) {
        let place = with(thing, |limiter| {
            limiter.sets.push(Set { from: now(), to: None, by: client });
            limiter.sets.len() - 1
        });
        match self.client(client).rate_limiter(name_of(thing)).set_rate(MORE, PER) {
            Ok(()) => with(thing, |limiter| limiter.sets[place].to = Some(now())),
            Err(e) => self.expect(&e, client, false),
        }
    }
}

/// All permits come back, also those of calls that never learned of them. Then it is deleted.
pub(super) fn comes_back(program: &Program, client: &LockClient, thing: usize) {
    let limiter = client.rate_limiter(name_of(thing));
    let began = now();
    let longest = PER + SLACK + program.longest_wait_at_all(thing) + program.settings.lease.time();
    loop {
        let free = limiter.available_permits();
        let all = limiter.rate();
        if let (Ok(free), Ok(Some((all, _)))) = (free, all)
            && i64::try_from(all).is_ok_and(|all| all == free)
        {
            break;
        }
        assert!(since(began) <= longest, "permits of {:?} do not come back", name_of(thing));
        sleep(Duration::from_millis(200));
    }
    limiter.delete().expect("the store answers");
}
