//! The times in which guards believe, during a sequence of server faults: never two at the same
//! time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{LockClient, Result};
use parking_lot::Mutex;

use super::{server, url_of_both};
use crate::rig::Postgres;
use crate::rig::{ms, wait_until};
use crate::support::Clients;

const LEASE: Duration = ms(900);

/// A guard reported at both ends, and so in between, that it holds the lock.
#[derive(Debug, Clone, Copy)]
struct Belief {
    from: Instant,
    to: Instant,
    token: i64,
}

/// The observations of all workers, by the clock of this process.
#[derive(Default)]
struct Record {
    beliefs: Mutex<Vec<Belief>>,
    grants: AtomicU64,
    over: AtomicBool,
}

/// A guard of any kind that excludes others of its kind from `k`.
type Held = (i64, Box<dyn Fn() -> bool>);

fn take(client: &LockClient, way: usize) -> Result<Held> {
    Ok(match way % 4 {
        0 | 1 => {
            let guard = client.mutex("k").lock_owned()?;
            (guard.fencing_token().unwrap().as_i64(), Box::new(move || guard.is_held()))
        }
        2 => {
            let guard = client.fair("k").lock_owned()?;
            (guard.fencing_token().unwrap().as_i64(), Box::new(move || guard.is_held()))
        }
        _ => {
            let guard = client.multi(["k", "l"]).lock_owned()?;
            (guard.fencing_token("k").unwrap().as_i64(), Box::new(move || guard.is_held()))
        }
    })
}

impl Record {
    fn work(&self, client: &LockClient, worker: usize) {
        for turn in worker.. {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let Ok((token, is_held)) = take(client, turn) else {
                std::thread::sleep(ms(5));
                continue;
            };
            let (start, mut believed) = (Instant::now(), None);
            // Sometimes longer than the lease, so that the watchdog must renew it.
            let span = if turn % 50 == 49 { LEASE + ms(200) } else { ms(turn as u64 % 9) };
            loop {
                let now = Instant::now();
                if !is_held() {
                    break;
                }
                let belief = believed.get_or_insert(Belief { from: now, to: now, token });
                belief.to = now;
                if start.elapsed() >= span {
                    break;
                }
                std::thread::sleep(ms(1));
            }
            // Recorded before the release: otherwise the next one might be recorded earlier.
            self.beliefs.lock().extend(believed);
            self.grants.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits until the workers continue after a fault.
    #[track_caller]
    fn goes_on(&self, after: &str) {
        let before = self.grants.load(Ordering::SeqCst);
        wait_until(after, || self.grants.load(Ordering::SeqCst) > before + 15);
    }

    /// `forgot`: when a failover began that may have forgotten grants. Only a belief from before it
    /// may overlap with one from after it.
    #[track_caller]
    fn check(self, forgot: Instant) {
        let mut beliefs = self.beliefs.into_inner();
        beliefs.sort_by_key(|belief| belief.from);
        let mut forgotten = 0;
        for (place, earlier) in beliefs.iter().enumerate() {
            // As long as no belief lasts longer than the run, all later ones are found here.
            let mut later =
                beliefs[place + 1..].iter().take_while(|later| later.from <= earlier.to).peekable();
            // It may overlap with several that came after one another.
            forgotten += u32::from(later.peek().is_some());
            for later in later {
                assert!(
                    earlier.from < forgot && later.from > forgot,
                    "{earlier:?} and {later:?}, forgot: {forgot:?}"
                );
            }
        }
        for two in beliefs.windows(2) {
            assert!(two[0].token < two[1].token, "{two:?}");
        }
        assert!(
            forgotten <= 1,
            "at most one holder was forgotten, and notified at its next renewal: {forgotten}"
        );
    }
}

/// Backends are ended; the server is suspended for longer than a lease, restarted and crashed; then
/// its asynchronous standby is promoted.
#[test]
fn no_two_believe_in_a_lock_at_a_time() {
    let primary = server!(Postgres::start_with("wal_level = replica"));
    drop(primary.client());
    let standby = primary.standby("hot_standby = on");
    standby.run();
    let both = url_of_both(&primary, &standby);
    let client = || {
        let mut built = None;
        // On a busy machine a connection may take longer than the I/O timeout.
        wait_until("a client", || {
            let builder = LockClient::builder().url(&both).lease(LEASE).io_timeout(ms(400));
            built = builder.build().ok();
            built.is_some()
        });
        built.unwrap()
    };
    let (record, clients) = (Record::default(), [client(), client(), client()]);
    let forgot = std::thread::scope(|s| {
        for worker in 0..6 {
            let (record, client) = (&record, &clients[worker % 3]);
            s.spawn(move || record.work(client, worker));
        }
        // Also when an assertion fails.
        let over = Over(&record.over);
        record.goes_on("they begin");
        for _ in 0..3 {
            primary.end_backends();
            record.goes_on("backends were ended");
        }
        for longer in [ms(200), LEASE + ms(300)] {
            primary.suspend();
            std::thread::sleep(longer);
            primary.resume();
            record.goes_on("the server was suspended");
        }
        for mode in ["fast", "immediate"] {
            primary.stop(mode);
            primary.run();
            record.goes_on(mode);
        }
        primary.stop("immediate");
        let forgot = Instant::now();
        standby.promote();
        record.goes_on("the standby was promoted");
        standby.end_backends();
        record.goes_on("backends of the new primary were ended");
        drop(over);
        forgot
    });
    record.check(forgot);
    drop(clients);
    standby.assert_clean();
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
