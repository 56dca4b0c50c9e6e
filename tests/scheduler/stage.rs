//! Two clients on one store in memory, and what must hold when a scenario is over.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use leasehold::os::thread::{JoinHandle, running, sleep, spawn};
use leasehold::testing::Faults;
use leasehold::{Builder, LockClient};
use shuttle::rand::{RngCore, thread_rng};

use crate::book::Book;

/// Longer than anything takes except waiting for a lost wake-up. Leases are thirty seconds.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// The payload with which a scenario panics on purpose.
#[derive(Debug)]
pub(crate) struct OnPurpose;

/// Runs a step of a thread that goes on if the step panics on purpose.
pub(crate) fn may_panic_on_purpose(step: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(step))
        && !payload.is::<OnPurpose>()
    {
        resume_unwind(payload);
    }
}

#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) one: LockClient,
    pub(crate) other: LockClient,
    pub(crate) faults: Faults,
    pub(crate) book: Arc<Book>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(settings: impl Fn(Builder) -> Builder) -> Self {
        let one =
            settings(LockClient::builder()).build_in_memory().expect("the settings are valid");
        let other = settings(LockClient::builder())
            .build_in_memory_shared(&one)
            .expect("the settings are valid");
        let faults = Faults::of(&one).expect("it is in memory");
        Self { one, other, faults, book: Arc::default() }
    }

    pub(crate) fn client(&self, is_one: bool) -> &LockClient {
        if is_one { &self.one } else { &self.other }
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        run: impl FnOnce(Self) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let stage = self.clone();
        spawn(move || run(stage))
    }

    /// Closes both clients, which must have nothing left to release.
    pub(crate) fn end(self) {
        for client in [&self.one, &self.other] {
            let snapshot = client.snapshot();
            assert!(
                snapshot.waits().is_empty(),
                "a call that has returned still waits: {snapshot:?}"
            );
            assert!(snapshot.holds().is_empty(), "a hold is left: {snapshot:?}");
        }
        self.close();
    }

    /// Closes both clients, and waits until nothing is left of them.
    pub(crate) fn close(self) {
        for client in [&self.one, &self.other] {
            client.close(Duration::from_secs(1)).expect("it closes within the timeout");
        }
        self.leaves_nothing();
    }

    /// Waits until nothing is left of two clients that were closed.
    pub(crate) fn leaves_nothing(self) {
        let Self { one, other, faults, .. } = self;
        drop((one, other));
        let mut pause = Duration::from_micros(100);
        while !running().is_empty() || !faults.held().is_empty() {
            sleep(pause);
            pause *= 2;
            let (threads, held) = (running(), faults.held());
            assert!(
                pause < Duration::from_secs(5),
                "left behind: threads {threads:?}, names {held:?}"
            );
        }
    }
}

/// Waits for a condition that a scenario needs before it continues.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let mut pause = Duration::from_micros(20);
    while !condition() {
        assert!(pause < Duration::from_secs(2), "{what}: it did not happen");
        sleep(pause);
        pause *= 2;
    }
}

pub(crate) fn join_all<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
}

/// A random choice that a repeated schedule makes again.
pub(crate) fn choose(choices: usize) -> usize {
    (thread_rng().next_u64() % choices as u64) as usize
}
