//! Locks on a pool that steals work: why `client.lock` excludes nothing there, and what does.
//!
//! A thread of rayon that waits for a part of its job (in `join`, `par_iter` or `scope`) runs
//! another job meanwhile. If both take the same lock, the second finds that its thread has the lock
//! already:
//!
//! - the re-entrant `lock` lets it in: two jobs are inside at once, with one fencing token;
//! - a `non_reentrant` handle refuses it with `Conflict`, in every form;
//! - an owned guard belongs to no thread, so `try_lock_owned` finds the lock taken. The blocking
//!   `lock_owned` would wait here for ever, like any mutex: for the job that is further down on its
//!   own stack.
//!
//! A job that is refused can be postponed. Better still, hold no lock across a `join`.
//!
//! `cargo run --example rayon_pool -- redis://127.0.0.1/`

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient, Result};

fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let client = LockClient::open(&url)?;
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("threads for the pool");

    let reentrant = client.mutex("job");
    let inside = jobs_inside(&pool, || reentrant.lock().map(Some))?;
    println!("lock: {inside} jobs inside at once");

    let strict = client.mutex("job").non_reentrant();
    let refused = AtomicU32::new(0);
    let inside = jobs_inside(&pool, || match strict.lock() {
        Err(e) if e.kind() == ErrorKind::Conflict => {
            refused.fetch_add(1, Ordering::SeqCst);
            Ok(None)
        }
        other => other.map(Some),
    })?;
    println!("non_reentrant().lock: {inside} job inside, {} refused", refused.into_inner());

    let owned = jobs_inside(&pool, || reentrant.try_lock_owned())?;
    println!("try_lock_owned: {owned} job inside");

    assert_eq!((inside, owned), (1, 1));
    println!("non_reentrant and owned guards let one job in at a time");
    Ok(())
}

/// Runs two jobs that take the lock; the second comes to the thread of the first while that one
/// waits for a part of its work. Returns how many were inside at once, at most; `take` returns
/// `None` when it is refused.
fn jobs_inside<G>(
    pool: &rayon::ThreadPool,
    take: impl Fn() -> Result<Option<G>> + Sync,
) -> Result<u32> {
    let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
    let job = |work: &dyn Fn()| -> Result<()> {
        if let Some(_guard) = take()? {
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            work();
            inside.fetch_sub(1, Ordering::SeqCst);
        }
        Ok(())
    };
    let (stolen, second_is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let second = Mutex::new(Ok(()));
    // The other thread of the pool steals this half, spawns the second job, and is busy until that
    // is over.
    let other_half = || {
        stolen.store(true, Ordering::SeqCst);
        rayon::scope(|scope| {
            scope.spawn(|_| {
                *second.lock().expect("nobody panics") = job(&|| ());
                second_is_over.store(true, Ordering::SeqCst);
            });
            wait_for(&second_is_over);
        });
    };
    pool.install(|| {
        job(&|| {
            rayon::join(|| wait_for(&stolen), other_half);
        })
    })?;
    second.into_inner().expect("nobody panics")?;
    Ok(most.into_inner())
}

fn wait_for(flag: &AtomicBool) {
    let start = Instant::now();
    while !flag.load(Ordering::SeqCst) {
        assert!(start.elapsed() < Duration::from_secs(60), "the pool runs both jobs");
        std::thread::sleep(Duration::from_millis(1));
    }
}
