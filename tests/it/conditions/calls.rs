//! The columns: every public verb. `tidy` compares them with the interface.

#![allow(clippy::unit_arg, reason = "a call that answers nothing succeeds")]

use std::time::{Duration, Instant};

use leasehold::fencing::{FencedValue, FencingToken, ValueClaim};
use leasehold::{
    CancelToken, CountDownLatch, CountingPermit, CountingSemaphore, FairMutex, FairMutexGuard,
    LockClient, MultiLock, MultiLockGuard, Once, OwnedFairMutexGuard, OwnedMultiLockGuard,
    OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, PermitId, RateLimiter,
    ReentrantMutex, ReentrantMutexGuard, Result, RwLock, RwLockReadGuard, RwLockWriteGuard,
    ScheduledJob, Semaphore, SemaphorePermit,
};

use super::cell::Cell;
use super::row::Class;
use crate::rig::{ms, wait_until};

/// The time that the timed forms are given.
const TIME: Duration = ms(300);
const HOUR: Duration = Duration::from_secs(3600);
/// Longer than the lease of the clients.
const LONGER: Duration = Duration::from_secs(60);

/// A column.
pub(super) struct Call {
    /// The type and the method.
    pub(super) name: &'static str,
    pub(super) class: Class,
    /// The time that it is given to wait.
    pub(super) time: Duration,
    /// Prepares, makes the call through [`Cell::under`] or [`Cell::across`], and returns its
    /// outcome.
    pub(super) run: fn(&Cell<'_>) -> Result<()>,
}

fn mutex(client: &LockClient, name: &str) -> ReentrantMutex {
    client.mutex(name)
}

fn fair(client: &LockClient, name: &str) -> FairMutex {
    client.fair(name)
}

fn rw(client: &LockClient, name: &str) -> RwLock {
    client.rw_lock(name)
}

fn multi(client: &LockClient, name: &str) -> MultiLock {
    client.multi([name, &second(name)])
}

/// The other name of the multi-lock of a cell.
pub(super) fn second(name: &str) -> String {
    format!("{name}-b")
}

/// The key of the fenced value of a cell.
pub(super) fn value_of(name: &str) -> String {
    format!("{name}-value")
}

/// Two permits, which nobody has.
fn semaphore(cell: &Cell<'_>) -> Result<Semaphore> {
    let semaphore = cell.client.semaphore(cell.name());
    let _ = semaphore.try_set_permits(2)?;
    let ending = cell.other.semaphore(cell.name());
    cell.at_the_end(move || ending.delete().map(drop));
    Ok(semaphore)
}

/// Two permits, which nobody has.
fn counting(cell: &Cell<'_>) -> Result<CountingSemaphore> {
    let semaphore = cell.client.counting_semaphore(cell.name());
    let _ = semaphore.try_set_permits(2)?;
    let ending = cell.other.counting_semaphore(cell.name());
    cell.at_the_end(move || ending.delete().map(drop));
    Ok(semaphore)
}

/// It counts from two.
fn latch(cell: &Cell<'_>) -> Result<CountDownLatch> {
    let latch = cell.client.latch(cell.name());
    latch.set_count(2)?;
    let ending = cell.other.latch(cell.name());
    cell.at_the_end(move || ending.delete().map(drop));
    Ok(latch)
}

/// Four permits an hour, which nobody has taken.
fn rate(cell: &Cell<'_>) -> Result<RateLimiter> {
    let limiter = cell.client.rate_limiter(cell.name());
    limiter.try_set_rate(4, HOUR)?;
    let ending = cell.other.rate_limiter(cell.name());
    cell.at_the_end(move || ending.delete().map(drop));
    Ok(limiter)
}

/// Calls of what `$prepare` makes while all is well.
macro_rules! calls {
    ($calls:ident, $kind:literal, $prepare:expr; $($class:ident $verb:literal $(in $time:ident)? $call:expr;)*) => {
        $($calls.push(Call {
            name: concat!($kind, "::", $verb),
            class: Class::$class,
            time: Duration::ZERO $(+ $time)?,
            run: |cell| {
                let prepared = ($prepare)(cell)?;
                cell.under(|| ($call)(prepared)).map(drop)
            },
        });)*
    };
}

/// The same for calls that leave it as it is.
macro_rules! calls_on {
    ($calls:ident, $kind:literal, $prepare:expr; $($class:ident $verb:literal $(in $time:ident)? $call:expr;)*) => {
        $($calls.push(Call {
            name: concat!($kind, "::", $verb),
            class: Class::$class,
            time: Duration::ZERO $(+ $time)?,
            run: |cell| {
                let prepared = ($prepare)(cell)?;
                cell.under(|| ($call)(&prepared)).map(drop)
            },
        });)*
    };
}

/// Takes what nobody has, in each form.
macro_rules! takes {
    ($calls:ident, $class:ident $kind:literal, $handle:expr;
        $($lock:ident $try:ident $for:ident $until:ident ($($arg:expr)?);)*) => {
        $(takes!(@ $calls $class $kind $lock, Duration::ZERO, $handle, |handle| handle.$lock($($arg)?));
        takes!(@ $calls $class $kind $try, Duration::ZERO, $handle, |handle| handle.$try($($arg)?));
        takes!(@ $calls $class $kind $for, TIME, $handle, |handle| handle.$for($($arg,)? TIME));
        takes!(@ $calls $class $kind $until, TIME, $handle, |handle| handle.$until($($arg,)? Instant::now() + TIME));)*
    };
    (@ $calls:ident $class:ident $kind:literal $verb:ident, $time:expr, $handle:expr, |$prepared:ident| $call:expr) => {
        $calls.push(Call {
            name: concat!($kind, "::", stringify!($verb)),
            class: Class::$class,
            time: $time,
            run: |cell| {
                let $prepared = ($handle)(cell)?;
                cell.under(|| $call).map(drop)
            },
        });
    };
}

/// The same for a lock with guards of both kinds.
macro_rules! locks {
    ($calls:ident, $kind:literal, $handle:expr) => {
        takes!($calls, Take $kind, $handle;
            lock try_lock try_lock_for try_lock_until ();
            lock_owned try_lock_owned try_lock_owned_for try_lock_owned_until ();
        );
    };
}

/// Waits for what the other client has.
macro_rules! waits {
    ($calls:ident, $($kind:literal $handle:ident $taken:ident $lock:ident;)*) => {
        $($calls.push(Call {
            name: concat!($kind, "::", stringify!($lock), ", waiting"),
            class: Class::Wait,
            time: Duration::ZERO,
            run: |cell| {
                let taken = $handle(&cell.other, cell.name()).$taken()?;
                let handle = $handle(&cell.client, cell.name());
                cell.across(taken, || handle.$lock().map(drop))
            },
        });)*
    };
}

/// Enters once more what this thread has.
macro_rules! reenters {
    ($calls:ident, $($kind:literal $handle:ident $lock:ident;)*) => {
        $($calls.push(Call {
            name: concat!($kind, "::", stringify!($lock), ", again"),
            class: Class::Reenter,
            time: Duration::ZERO,
            run: |cell| {
                let handle = $handle(&cell.client, cell.name());
                let _held = handle.$lock()?;
                cell.under(|| handle.$lock()).map(drop)
            },
        });)*
    };
}

/// Waits for permits that the other client has.
macro_rules! waits_for_permits {
    ($calls:ident, $($kind:literal $semaphore:ident $handle:ident;)*) => {
        $($calls.push(Call {
            name: concat!($kind, "::acquire, waiting"),
            class: Class::WaitForPermit,
            time: Duration::ZERO,
            run: |cell| {
                let permits = $semaphore(cell)?;
                let taken = cell.other.$handle(cell.name()).acquire_many(2)?;
                cell.across(taken, || permits.acquire().map(drop))
            },
        });)*
    };
}

/// Every call with its class.
pub(super) fn all() -> Vec<Call> {
    let mut calls = Vec::new();
    of_clients(&mut calls);
    of_handles(&mut calls);
    of_guards(&mut calls);
    of_waits(&mut calls);
    of_permits(&mut calls);
    of_counted_permits(&mut calls);
    of_latches(&mut calls);
    of_rates(&mut calls);
    of_jobs(&mut calls);
    calls
}

fn of_clients(calls: &mut Vec<Call>) {
    type Named = (LockClient, String);
    fn client(cell: &Cell<'_>) -> Result<Named> {
        Ok((cell.client.clone(), cell.name().to_owned()))
    }
    calls!(calls, "LockClient", client;
        Take "lock" |(client, name): Named| client.lock(name);
        Take "try_lock" |(client, name): Named| client.try_lock(name);
        Take "try_lock_for" in TIME |(client, name): Named| client.try_lock_for(name, TIME);
        Take "try_lock_until" in TIME |(client, name): Named| client.try_lock_until(name, Instant::now() + TIME);
        Look "inspect" |(client, name): Named| client.inspect(name);
        List "locks" |(client, name): Named| client.locks(&name);
        List "announced_locks" |(client, name): Named| client.announced_locks(&name);
        Local "nodes" |(client, _): Named| Ok(client.nodes());
        Local "stats" |(client, _): Named| Ok(client.stats());
        Local "snapshot" |(client, _): Named| Ok(client.snapshot());
        Report "diagnose" |(client, _): Named| Ok(client.diagnose());
    );
    calls!(calls, "Election", client;
        Look "leader" |(client, name): Named| client.election(name).leader();
        // Nobody leads, so it changes nothing.
        Look "request" |(client, name): Named| client.election(name).request();
    );
    type Fenced = (FencedValue, FencingToken, ReentrantMutexGuard);
    fn held(cell: &Cell<'_>) -> Result<Fenced> {
        let guard = cell.client.lock(cell.name())?;
        Ok((cell.client.fenced_value(value_of(cell.name())), guard.fencing_token()?, guard))
    }
    calls!(calls, "FencedValue", held; Change "claim" |(value, token, _guard): Fenced| value.claim(token););
    type Claimed = (ValueClaim, ReentrantMutexGuard);
    fn claimed(cell: &Cell<'_>) -> Result<Claimed> {
        let (value, token, guard) = held(cell)?;
        Ok((value.claim(token)?, guard))
    }
    calls!(calls, "ValueClaim", claimed; Change "write" |(claim, _guard): Claimed| claim.write("written"););
}

fn of_handles(calls: &mut Vec<Call>) {
    locks!(calls, "ReentrantMutex", |cell: &Cell<'_>| Ok(mutex(&cell.client, cell.name())));
    calls!(calls, "ReentrantMutex", |cell: &Cell<'_>| Ok(mutex(&cell.client, cell.name()));
        Look "is_locked" |mutex: ReentrantMutex| mutex.is_locked();
        Take "lock, with data" |mutex: ReentrantMutex| mutex.with_data("x").lock();
        Look "holder" |mutex: ReentrantMutex| mutex.holder();
        Look "last_holder" |mutex: ReentrantMutex| mutex.last_holder();
        Local "is_held_by_current_thread" |mutex: ReentrantMutex| Ok(mutex.is_held_by_current_thread());
        Force "force_unlock" |mutex: ReentrantMutex| mutex.force_unlock();
    );
    locks!(calls, "FairMutex", |cell: &Cell<'_>| Ok(fair(&cell.client, cell.name())));
    calls!(calls, "FairMutex", |cell: &Cell<'_>| Ok(fair(&cell.client, cell.name()));
        Look "is_locked" |fair: FairMutex| fair.is_locked();
        Take "lock, with data" |fair: FairMutex| fair.with_data("x").lock();
        Look "holder" |fair: FairMutex| fair.holder();
        Look "last_holder" |fair: FairMutex| fair.last_holder();
        Local "is_held_by_current_thread" |fair: FairMutex| Ok(fair.is_held_by_current_thread());
        Look "queue_len" |fair: FairMutex| fair.queue_len();
        Look "position" |fair: FairMutex| fair.position();
        Force "force_unlock" |fair: FairMutex| fair.force_unlock();
    );
    takes!(calls, Take "RwLock", |cell: &Cell<'_>| Ok(rw(&cell.client, cell.name()));
        read try_read try_read_for try_read_until ();
        read_owned try_read_owned try_read_owned_for try_read_owned_until ();
        write try_write try_write_for try_write_until ();
        write_owned try_write_owned try_write_owned_for try_write_owned_until ();
    );
    calls!(calls, "RwLock", |cell: &Cell<'_>| Ok(rw(&cell.client, cell.name()));
        Look "is_locked" |rw: RwLock| rw.is_locked();
        Look "holders" |rw: RwLock| rw.holders();
        Local "is_read_held_by_current_thread" |rw: RwLock| Ok(rw.is_read_held_by_current_thread());
        Local "is_write_held_by_current_thread" |rw: RwLock| Ok(rw.is_write_held_by_current_thread());
        Force "force_unlock" |rw: RwLock| rw.force_unlock();
    );
    locks!(calls, "MultiLock", |cell: &Cell<'_>| Ok(multi(&cell.client, cell.name())));
}

fn of_waits(calls: &mut Vec<Call>) {
    waits!(calls,
        "ReentrantMutex" mutex lock lock;
        "ReentrantMutex" mutex lock lock_owned;
        "FairMutex" fair lock lock;
        "FairMutex" fair lock lock_owned;
        "RwLock" rw write read;
        "RwLock" rw write read_owned;
        "RwLock" rw write write;
        "RwLock" rw read write_owned;
        "MultiLock" multi lock lock;
        "MultiLock" multi lock lock_owned;
    );
    reenters!(calls,
        "ReentrantMutex" mutex lock;
        "FairMutex" fair lock;
        "RwLock" rw read;
        "RwLock" rw write;
    );
    waits_for_permits!(calls,
        "Semaphore" semaphore semaphore;
        "CountingSemaphore" counting counting_semaphore;
    );
}

/// What every guard has, each on a hold of its own.
macro_rules! guards {
    ($calls:ident, $kind:literal, $handle:ident, $lock:ident, $guard:ty) => {
        calls_on!($calls, $kind, |cell: &Cell<'_>| $handle(&cell.client, cell.name()).$lock();
            Local "is_held" |guard: &$guard| Ok(guard.is_held());
            Local "remaining" |guard: &$guard| Ok(guard.remaining());
            Local "ensure_held" |guard: &$guard| guard.ensure_held();
            Local "loss" |guard: &$guard| Ok(guard.loss());
            Local "lost" |guard: &$guard| Ok(guard.lost());
            Local "on_lost" |guard: &$guard| Ok(guard.on_lost(|_| ()));
            Local "on_renewal_failed" |guard: &$guard| Ok(guard.on_renewal_failed(|_| ()));
            Local "wait_lost" in TIME |guard: &$guard| Ok(guard.wait_lost(TIME));
            Local "wait_lost_or_cancelled" in TIME |guard: &$guard| guard.wait_lost_or_cancelled(TIME, &CancelToken::new());
            Keep "extend" |guard: &$guard| guard.extend(LONGER);
        );
        calls!($calls, $kind, |cell: &Cell<'_>| $handle(&cell.client, cell.name()).$lock();
            Release "unlock" |guard: $guard| guard.unlock();
            Drop "drop" |guard: $guard| Ok(drop(guard));
        );
    };
}

/// What a hold with data has.
macro_rules! guards_with_data {
    ($calls:ident, $($kind:literal $handle:ident $lock:ident $guard:ty;)*) => {
        $(calls_on!($calls, $kind, |cell: &Cell<'_>| $handle(&cell.client, cell.name()).with_data("x").$lock();
            Change "set_data" |guard: &$guard| guard.set_data("y");
        );
        calls!($calls, $kind, |cell: &Cell<'_>| $handle(&cell.client, cell.name()).with_data("x").$lock();
            Release "unlock, with data" |guard: $guard| guard.unlock();
        );)*
    };
}

fn of_guards(calls: &mut Vec<Call>) {
    guards_with_data!(calls,
        "ReentrantMutexGuard" mutex lock ReentrantMutexGuard;
        "OwnedMutexGuard" mutex lock_owned OwnedMutexGuard;
        "FairMutexGuard" fair lock FairMutexGuard;
        "OwnedFairMutexGuard" fair lock_owned OwnedFairMutexGuard;
    );
    guards!(calls, "ReentrantMutexGuard", mutex, lock, ReentrantMutexGuard);
    guards!(calls, "OwnedMutexGuard", mutex, lock_owned, OwnedMutexGuard);
    guards!(calls, "FairMutexGuard", fair, lock, FairMutexGuard);
    guards!(calls, "OwnedFairMutexGuard", fair, lock_owned, OwnedFairMutexGuard);
    guards!(calls, "RwLockReadGuard", rw, read, RwLockReadGuard);
    guards!(calls, "OwnedRwLockReadGuard", rw, read_owned, OwnedRwLockReadGuard);
    guards!(calls, "RwLockWriteGuard", rw, write, RwLockWriteGuard);
    guards!(calls, "OwnedRwLockWriteGuard", rw, write_owned, OwnedRwLockWriteGuard);
    guards!(calls, "MultiLockGuard", multi, lock, MultiLockGuard);
    guards!(calls, "OwnedMultiLockGuard", multi, lock_owned, OwnedMultiLockGuard);
    calls_on!(calls, "ReentrantMutexGuard", |cell: &Cell<'_>| mutex(&cell.client, cell.name()).lock();
        Local "hold_count" |guard: &ReentrantMutexGuard| Ok(guard.hold_count());
        Local "end_min_hold" |guard: &ReentrantMutexGuard| Ok(guard.end_min_hold());
        Local "fencing_token" |guard: &ReentrantMutexGuard| guard.fencing_token();
    );
    calls!(calls, "RwLockWriteGuard", |cell: &Cell<'_>| rw(&cell.client, cell.name()).write();
        Keep "downgrade" |guard: RwLockWriteGuard| guard.downgrade();
    );
    calls!(calls, "OwnedRwLockWriteGuard", |cell: &Cell<'_>| rw(&cell.client, cell.name()).write_owned();
        Keep "downgrade" |guard: OwnedRwLockWriteGuard| guard.downgrade();
    );
}

fn of_permits(calls: &mut Vec<Call>) {
    takes!(calls, TakePermit "Semaphore", semaphore;
        acquire try_acquire try_acquire_for try_acquire_until ();
        acquire_many try_acquire_many try_acquire_many_for try_acquire_many_until (2);
    );
    calls!(calls, "Semaphore", semaphore;
        Change "try_set_permits" |permits: Semaphore| permits.try_set_permits(2);
        Change "add_permits" |permits: Semaphore| permits.add_permits(1);
        Change "delete" |permits: Semaphore| permits.delete();
        Look "available_permits" |permits: Semaphore| permits.available_permits();
        Look "acquired_permits" |permits: Semaphore| permits.acquired_permits();
        TakePermit "drain_permits" |permits: Semaphore| permits.drain_permits();
    );
    calls!(calls, "SemaphorePermit", |cell: &Cell<'_>| semaphore(cell)?.acquire();
        Release "release" |permit: SemaphorePermit| permit.release();
        Drop "drop" |permit: SemaphorePermit| Ok(drop(permit));
    );
    calls_on!(calls, "SemaphorePermit", |cell: &Cell<'_>| semaphore(cell)?.acquire();
        Local "is_held" |permit: &SemaphorePermit| Ok(permit.is_held());
        Keep "extend" |permit: &SemaphorePermit| permit.extend(LONGER);
    );
    fn forgotten(cell: &Cell<'_>) -> Result<(Semaphore, PermitId)> {
        let semaphore = semaphore(cell)?;
        let id = semaphore.acquire()?.forget();
        Ok((semaphore, id))
    }
    calls!(calls, "Semaphore", forgotten;
        Release "release" |(permits, id): (Semaphore, PermitId)| permits.release(&id);
        Keep "extend" |(permits, id): (Semaphore, PermitId)| permits.extend(&id, LONGER);
    );
}

fn of_counted_permits(calls: &mut Vec<Call>) {
    takes!(calls, TakePermit "CountingSemaphore", counting;
        acquire try_acquire try_acquire_for try_acquire_until ();
        acquire_many try_acquire_many try_acquire_many_for try_acquire_many_until (2);
    );
    calls!(calls, "CountingSemaphore", counting;
        Change "try_set_permits" |permits: CountingSemaphore| permits.try_set_permits(2);
        Change "add_permits" |permits: CountingSemaphore| permits.add_permits(1);
        Change "delete" |permits: CountingSemaphore| permits.delete();
        Look "available_permits" |permits: CountingSemaphore| permits.available_permits();
        TakePermit "drain_permits" |permits: CountingSemaphore| permits.drain_permits();
    );
    calls!(calls, "CountingPermit", |cell: &Cell<'_>| counting(cell)?.acquire();
        Return "release" |permit: CountingPermit| permit.release();
        Drop "drop" |permit: CountingPermit| Ok(drop(permit));
    );
}

fn of_latches(calls: &mut Vec<Call>) {
    calls!(calls, "CountDownLatch", latch;
        Change "try_set_count" |latch: CountDownLatch| latch.try_set_count(2);
        Change "count_down" |latch: CountDownLatch| latch.count_down();
        Change "delete" |latch: CountDownLatch| latch.delete();
        Look "count" |latch: CountDownLatch| latch.count();
        Look "try_wait" |latch: CountDownLatch| latch.try_wait();
        Look "wait_for" in TIME |latch: CountDownLatch| latch.wait_for(TIME);
        Look "wait_until" in TIME |latch: CountDownLatch| latch.wait_until(Instant::now() + TIME);
    );
    calls.push(Call {
        name: "CountDownLatch::set_count",
        class: Class::Change,
        time: Duration::ZERO,
        run: |cell| {
            let latch = latch(cell)?;
            latch.delete()?;
            cell.under(|| latch.set_count(3))
        },
    });
    calls.push(Call {
        name: "CountDownLatch::wait, waiting",
        class: Class::Wait,
        time: Duration::ZERO,
        run: |cell| {
            let latch = latch(cell)?;
            let opens = Opens(cell.other.latch(cell.name()));
            cell.across(opens, || latch.wait())
        },
    });
}

fn of_rates(calls: &mut Vec<Call>) {
    takes!(calls, TakePermit "RateLimiter", rate;
        acquire try_acquire try_acquire_for try_acquire_until (2);
    );
    calls!(calls, "RateLimiter", rate;
        Change "try_set_rate" |limiter: RateLimiter| limiter.try_set_rate(4, HOUR);
        Change "set_rate" |limiter: RateLimiter| limiter.set_rate(4, HOUR);
        Change "delete" |limiter: RateLimiter| limiter.delete();
        Look "available_permits" |limiter: RateLimiter| limiter.available_permits();
        Look "rate" |limiter: RateLimiter| limiter.rate();
    );
    calls.push(Call {
        name: "RateLimiter::acquire, waiting",
        class: Class::WaitForRate,
        time: Duration::ZERO,
        run: |cell| {
            let limiter = rate(cell)?;
            limiter.acquire(4)?;
            cell.across(Frees(limiter.clone()), || limiter.acquire(1))
        },
    });
}

/// Frees the permits when dropped, or tells the waiters that there is no limiter any more.
struct Frees(RateLimiter);

impl Drop for Frees {
    fn drop(&mut self) {
        wait_until("the limiter is set anew, or gone", || match self.0.rate() {
            Ok(Some(_)) => self.0.set_rate(4, HOUR).is_ok(),
            Ok(None) => self.0.delete().is_ok(),
            Err(_) => false,
        });
    }
}

/// Runs a job once; a success that is not recorded is no success.
fn run(job: &ScheduledJob) -> Result<()> {
    match job.run(|run| run.ensure_held())? {
        Once::Failed(why) | Once::Unrecorded((), why) => Err(why),
        _ => Ok(()),
    }
}

fn job(cell: &Cell<'_>) -> Result<ScheduledJob> {
    Ok(cell.client.once(cell.name(), "1"))
}

fn of_jobs(calls: &mut Vec<Call>) {
    calls!(calls, "ScheduledJob", job;
        Take "run" |job: ScheduledJob| run(&job);
        Look "wait_done_for" in TIME |job: ScheduledJob| job.wait_done_for(TIME);
        Force "forget" |job: ScheduledJob| job.forget();
        Force "force_out" |job: ScheduledJob| job.force_out();
    );
    calls.push(Call {
        name: "ScheduledJob::wait_done, waiting",
        class: Class::Wait,
        time: Duration::ZERO,
        run: |cell| {
            let job = job(cell)?;
            cell.across(Does(cell.other.once(cell.name(), "1")), || job.wait_done().map(drop))
        },
    });
}

/// Does the job when dropped.
struct Does(ScheduledJob);

impl Drop for Does {
    fn drop(&mut self) {
        // The condition may have an end of its own.
        let is_done = || matches!(self.0.run(|_| Ok::<_, ()>(())), Ok(Once::Done(())));
        wait_until("it is done", || {
            is_done() || matches!(self.0.wait_done_for(ms(1)), Ok(Some(_)))
        });
    }
}

/// Opens the latch when dropped.
struct Opens(CountDownLatch);

impl Drop for Opens {
    fn drop(&mut self) {
        // The condition may have an end of its own, such as that of a script that was just killed.
        wait_until("it counts to zero", || self.0.count_down().is_ok_and(|left| left == 0));
    }
}
