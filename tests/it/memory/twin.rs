//! Random operations, each on a server and in memory: what the one answers, the other answers.
//!
//! `LEASEHOLD_SEED=<seed>` runs the same operations again. Leases are longer than any run, and who
//! is forced out gives up everything at once: when a hold learns of its loss in the background is
//! not compared.

use std::fmt::Debug;
use std::time::Duration;

use leasehold::{
    CountingPermit, FairMutexGuard, LockClient, MultiLockGuard, ReentrantMutexGuard, Result, RwLockReadGuard,
    RwLockWriteGuard, SemaphorePermit,
};

use crate::model::Actor;
use crate::rig::Server;

const STEPS: usize = 2500;
/// Longer than any run.
const LEASE: Duration = Duration::from_secs(3600);
/// Which client each thread uses.
const CLIENT_OF: [usize; 4] = [0, 0, 1, 2];

/// What one thread has in one of both.
struct Side {
    client: LockClient,
    mutex: Vec<ReentrantMutexGuard>,
    fair: Vec<FairMutexGuard>,
    reads: Vec<RwLockReadGuard>,
    writes: Vec<RwLockWriteGuard>,
    multi: Vec<MultiLockGuard>,
    permits: Vec<SemaphorePermit>,
    counted: Vec<CountingPermit>,
}

/// The answer without what differs between any two servers: tokens and times.
fn said<T: Debug>(answer: Result<T>) -> String {
    answer.map_or_else(|e| format!("{:?}", e.kind()), |answer| format!("{answer:?}"))
}

fn keep<G>(guards: &mut Vec<G>, won: Result<Option<G>>) -> String {
    said(won.map(|won| won.map(|guard| guards.push(guard))))
}

fn leave<G>(guards: &mut Vec<G>, dice: usize, unlock: fn(G) -> Result<()>) -> String {
    if guards.is_empty() {
        return String::new();
    }
    said(unlock(guards.swap_remove(dice % guards.len())))
}

fn leave_all<G>(guards: &mut Vec<G>, unlock: fn(G) -> Result<()>) -> String {
    guards.drain(..).map(|guard| said(unlock(guard)) + " ").collect()
}

impl Side {
    fn new(client: LockClient) -> Self {
        let (mutex, fair, reads, writes) = (vec![], vec![], vec![], vec![]);
        Self { client, mutex, fair, reads, writes, multi: vec![], permits: vec![], counted: vec![] }
    }

    /// `dice`: a number for whatever the operation has to choose.
    fn take(&mut self, operation: usize, dice: usize) -> String {
        let (few, client) = (1 + dice as u32 % 3, self.client.clone());
        match operation {
            0 => keep(&mut self.mutex, client.try_lock("a")),
            1 => keep(&mut self.fair, client.fair("fair").try_lock()),
            // With a lease of its own a read joins no other read of its client. A joined one is not
            // known to the store, and whether a thread joins is a matter of milliseconds.
            2 => keep(&mut self.reads, client.rw_lock("rw").with_lease(LEASE).try_read()),
            3 => keep(&mut self.writes, client.rw_lock("rw").try_write()),
            4 => keep(&mut self.multi, client.multi(["a", "b"]).try_lock()),
            5 => keep(&mut self.permits, client.semaphore("permits").try_acquire_many(few)),
            6 => keep(&mut self.counted, client.counting_semaphore("counted").try_acquire_many(few)),
            // Of a plain lock in place of a fair one, and the other way round.
            7 => keep(&mut self.mutex, client.try_lock("fair")),
            8 => keep(&mut self.fair, client.fair("b").try_lock()),
            _ => {
                let Some(guard) = self.writes.pop() else { return String::new() };
                keep(&mut self.reads, guard.downgrade().map(Some))
            }
        }
    }

    fn give_up(&mut self, operation: usize, dice: usize) -> String {
        match operation {
            0 => leave(&mut self.mutex, dice, ReentrantMutexGuard::unlock),
            1 => leave(&mut self.fair, dice, FairMutexGuard::unlock),
            2 => leave(&mut self.reads, dice, RwLockReadGuard::unlock),
            3 => leave(&mut self.writes, dice, RwLockWriteGuard::unlock),
            4 => leave(&mut self.multi, dice, MultiLockGuard::unlock),
            5 => leave(&mut self.permits, dice, SemaphorePermit::unlock),
            _ => leave(&mut self.counted, dice, CountingPermit::unlock),
        }
    }

    fn leave_locks(&mut self) -> String {
        leave_all(&mut self.mutex, ReentrantMutexGuard::unlock)
            + &leave_all(&mut self.fair, FairMutexGuard::unlock)
            + &leave_all(&mut self.reads, RwLockReadGuard::unlock)
            + &leave_all(&mut self.writes, RwLockWriteGuard::unlock)
            + &leave_all(&mut self.multi, MultiLockGuard::unlock)
    }

    fn change(&mut self, operation: usize, dice: usize) -> String {
        let Self { client, .. } = &self;
        let (semaphore, counting) = (client.semaphore("permits"), client.counting_semaphore("counted"));
        let (latch, more) = (client.latch("latch"), dice as i64 % 4 - 1);
        match operation {
            0 => said(semaphore.try_set_permits(5)),
            1 => said(semaphore.add_permits(more)),
            2 => said(counting.try_set_permits(5)),
            3 => said(counting.add_permits(more)),
            4 => said(latch.try_set_count(1 + dice as u32 % 3)),
            5 | 6 => said(latch.count_down()),
            7 => said(latch.try_wait()),
            // Now and then what everything else counts on is removed.
            _ if !dice.is_multiple_of(8) => String::new(),
            8 => said(semaphore.delete()),
            9 => said(counting.delete()),
            10 => said(latch.delete()),
            // Another kind than what mostly stands there. (Redis cannot tell numbers apart, nor
            // does it tell who holds permits.)
            11 => said(client.rw_lock("a").try_write().map(|won| won.is_some())),
            _ => said(client.try_lock("rw").map(|won| won.is_some())),
        }
    }

    fn force(&self, operation: usize) -> String {
        said(match operation {
            0 => self.client.mutex("a").force_unlock(),
            1 => self.client.fair("fair").force_unlock(),
            _ => self.client.rw_lock("rw").force_unlock(),
        })
    }

    /// All that can be asked from outside.
    fn look(&self) -> String {
        let Self { client, .. } = self;
        let rw = client.rw_lock("rw").holders().map(|holders| {
            let mut counts: Vec<_> = holders
                .iter()
                .map(|one| (one.id().ends_with(":write"), one.hold_count(), one.is_this_client()))
                .collect();
            counts.sort_unstable();
            counts
        });
        let mutex =
            |name| said(client.mutex(name).holder().map(|one| one.map(|one| (one.hold_count(), one.is_this_client()))));
        let (semaphore, counting) = (client.semaphore("permits"), client.counting_semaphore("counted"));
        [
            ["a", "b", "fair"].map(mutex).join(" "),
            said(rw),
            said(semaphore.available_permits()),
            said(semaphore.acquired_permits()),
            said(counting.available_permits()),
            said(client.latch("latch").count()),
            said(client.fair("fair").queue_len()),
            self.mutex.iter().map(|guard| format!("{}{} ", guard.is_held(), guard.hold_count())).collect(),
            self.reads.iter().map(|guard| format!("{}{} ", guard.is_held(), guard.hold_count())).collect(),
        ]
        .join(", ")
    }
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % sides as u64) as usize
    }
}

#[test]
fn a_store_in_memory_answers_what_a_server_answers() {
    let server = Server::start();
    compare(&server.url());
}

#[cfg(feature = "postgres")]
#[test]
fn a_store_in_memory_answers_what_a_database_answers() {
    let server = crate::rig::Postgres::start();
    compare(&server.url());
    server.assert_clean();
}

/// The same operations on this server and in memory.
fn compare(url: &str) {
    let seed: u64 = std::env::var("LEASEHOLD_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
    println!("LEASEHOLD_SEED={seed}");
    let mut dice = Dice(seed);
    let builder = LockClient::builder().lease(LEASE);
    let first = builder.clone().build_in_memory().unwrap();
    let pairs = [(); 3].map(|()| {
        let on_server = builder.clone().url(url).build().unwrap();
        [on_server, builder.clone().build_in_memory_shared(&first).unwrap()]
    });
    let actors = CLIENT_OF.map(|n| {
        let pair = pairs[n].clone();
        Actor::new(move || pair.map(Side::new))
    });
    let mut trace: Vec<String> = Vec::new();
    for _ in 0..STEPS {
        let (who, kind, dice_of_it) = (dice.roll(4), dice.roll(40), dice.roll(1 << 20));
        let operation = match kind {
            0..16 => dice.roll(10),
            16..30 => dice.roll(7),
            30..38 => dice.roll(13),
            _ => dice.roll(3),
        };
        let ask = move |side: &mut Side| match kind {
            0..16 => side.take(operation, dice_of_it),
            16..30 => side.give_up(operation, dice_of_it),
            30..38 => side.change(operation, dice_of_it),
            _ => side.force(operation),
        };
        let step = format!("{who}: {kind} {operation} {dice_of_it}");
        let mut compare = |what: &str, who: usize, ask: Box<dyn Fn(&mut Side) -> String + Send>| {
            let [server, memory] = actors[who].run(move |sides: &mut [Side; 2]| sides.each_mut().map(&ask));
            trace.push(format!("{what} -> {server}"));
            let from = trace.len().saturating_sub(60);
            let story = || format!("LEASEHOLD_SEED={seed}\n{}", trace[from..].join("\n"));
            assert_eq!(memory, server, "in memory, on the server; {}", story());
        };
        compare(&step, who, Box::new(ask));
        if kind >= 38 {
            (0..4).for_each(|who| compare("leaves all", who, Box::new(Side::leave_locks)));
        }
        compare("looks", who, Box::new(|side| side.look()));
    }
    if std::env::var_os("LEASEHOLD_TRACE").is_some() {
        println!("{}", trace.join("\n"));
    }
}
