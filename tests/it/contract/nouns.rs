//! The table of everything that can be an exclusive lock, behind one interface.

use std::time::{Duration, Instant};

use leasehold::{
    FairMutex, FairMutexGuard, LockClient, MultiLock, MultiLockGuard, OwnedFairMutexGuard, OwnedMultiLockGuard,
    OwnedMutexGuard, OwnedRwLockWriteGuard, ReentrantMutex, ReentrantMutexGuard, Result, RwLock, RwLockWriteGuard,
    Semaphore, SemaphorePermit,
};

use crate::rig::ms;

/// What every guard can do.
pub(crate) trait Held: Sync {
    fn is_held(&self) -> bool;
    fn remaining(&self) -> Duration;
    fn ensure_held(&self) -> Result<()>;
    fn wait_lost(&self, timeout: Duration) -> bool;
    fn on_lost(&self, callback: Box<dyn FnOnce() + Send>);
    fn extend(&self, lease: Duration) -> Result<()>;
    fn unlock(self: Box<Self>) -> Result<()>;
    fn token(&self) -> Option<u64>;
}

pub(crate) type Guard = Box<dyn Held>;
pub(crate) type MovableGuard = Box<dyn Held + Send>;

/// A lock of one client: its waiting verb in the four forms.
pub(crate) trait Exclusive: Send + Sync {
    fn lock(&self) -> Result<Guard>;
    fn try_lock(&self) -> Result<Option<Guard>>;
    fn try_lock_for(&self, timeout: Duration) -> Result<Option<Guard>>;
    fn try_lock_until(&self, deadline: Instant) -> Result<Option<Guard>>;
    /// `None`: its guards are bound to their threads.
    fn lock_to_move(&self) -> Option<Result<MovableGuard>>;
    /// Closes the client.
    fn close(&self, timeout: Duration) -> Result<()>;
}

/// A row of the table.
pub(crate) struct Noun {
    pub(crate) label: &'static str,
    /// On how many servers it rests.
    pub(crate) masters: usize,
    /// `Type.verb`, as the sources have it.
    pub(crate) verb: &'static str,
    /// This lock of a client; the lease, if there is one, is fixed.
    pub(crate) open: fn(LockClient, &str, Option<Duration>) -> Box<dyn Exclusive>,
    /// What must stand in the store before anybody can have it.
    pub(crate) prepare: fn(&LockClient, &str),
    /// The keys that stay when nobody has it, for names to be put in.
    pub(crate) stays: &'static [&'static str],
    /// How long after its lease a hold that nobody renews is given to others.
    pub(crate) grace: Duration,
    pub(crate) has_token: bool,
}

/// `$token`: how to read its fencing token.
macro_rules! held {
    ($guard:ident, $token:expr) => {
        // Inherent methods come before those of the trait.
        impl Held for $guard {
            fn is_held(&self) -> bool {
                self.is_held()
            }

            fn remaining(&self) -> Duration {
                self.remaining()
            }

            fn ensure_held(&self) -> Result<()> {
                self.ensure_held()
            }

            fn wait_lost(&self, timeout: Duration) -> bool {
                self.wait_lost(timeout)
            }

            fn on_lost(&self, callback: Box<dyn FnOnce() + Send>) {
                self.on_lost(callback);
            }

            fn extend(&self, lease: Duration) -> Result<()> {
                self.extend(lease)
            }

            fn unlock(self: Box<Self>) -> Result<()> {
                (*self).unlock()
            }

            fn token(&self) -> Option<u64> {
                let token: fn(&Self) -> Option<u64> = $token;
                token(self)
            }
        }
    };
    ($guard:ident) => {
        held!($guard, |guard| guard.fencing_token().map(|token| token.get()));
    };
}

held!(ReentrantMutexGuard);
held!(OwnedMutexGuard);
held!(FairMutexGuard);
held!(OwnedFairMutexGuard);
held!(RwLockWriteGuard);
held!(OwnedRwLockWriteGuard);
held!(SemaphorePermit, |_| None);
held!(MultiLockGuard, |guard| guard.names().next().and_then(|name| guard.fencing_token(name)).map(|token| token.get()));
held!(OwnedMultiLockGuard, |guard| guard
    .names()
    .next()
    .and_then(|name| guard.fencing_token(name))
    .map(|token| token.get()));

/// `moves`: the guard is `Send`; `stays`: it is not.
macro_rules! movable {
    (moves, $won:expr) => {
        Some($won.map(|guard| Box::new(guard) as MovableGuard))
    };
    (stays, $won:expr) => {
        None
    };
}

macro_rules! noun {
    (
        $label:literal, $type:ident by $made:expr,
        $verb:ident, $try:ident, $try_for:ident, $try_until:ident -> $guard:ident $moves:ident,
        $has_token:expr, $prepare:expr, $stays:expr, $grace:expr
    ) => {{
        struct Open {
            client: LockClient,
            lock: $type,
        }

        fn boxed(guard: $guard) -> Guard {
            Box::new(guard)
        }

        impl Exclusive for Open {
            fn lock(&self) -> Result<Guard> {
                self.lock.$verb().map(boxed)
            }

            fn try_lock(&self) -> Result<Option<Guard>> {
                self.lock.$try().map(|won| won.map(boxed))
            }

            fn try_lock_for(&self, timeout: Duration) -> Result<Option<Guard>> {
                self.lock.$try_for(timeout).map(|won| won.map(boxed))
            }

            fn try_lock_until(&self, deadline: Instant) -> Result<Option<Guard>> {
                self.lock.$try_until(deadline).map(|won| won.map(boxed))
            }

            fn lock_to_move(&self) -> Option<Result<MovableGuard>> {
                movable!($moves, self.lock.$verb())
            }

            fn close(&self, timeout: Duration) -> Result<()> {
                self.client.close(timeout)
            }
        }

        fn open(client: LockClient, name: &str, lease: Option<Duration>) -> Box<dyn Exclusive> {
            let lock: $type = $made(&client, name);
            let lock = match lease {
                Some(lease) => lock.with_lease(lease),
                None => lock,
            };
            Box::new(Open { client, lock })
        }

        Noun {
            label: $label,
            masters: 1,
            verb: concat!(stringify!($type), ".", stringify!($verb)),
            open,
            prepare: $prepare,
            stays: $stays,
            grace: $grace,
            has_token: $has_token,
        }
    }};
}

/// A lock: it has a token, needs nothing before it is taken, and leaves nothing.
macro_rules! lock {
    (
        $label:literal, $type:ident by $made:expr,
        $verb:ident, $try:ident, $try_for:ident, $try_until:ident -> $guard:ident $moves:ident
    ) => {
        noun!(
            $label,
            $type by $made,
            $verb, $try, $try_for, $try_until -> $guard $moves,
            true,
            |_, _| {},
            &[],
            Duration::ZERO
        )
    };
}

/// Two names as one; the first of them is the one that the suite knows.
fn two(client: &LockClient, name: &str) -> MultiLock {
    client.multi([&*format!("{name}-too"), name])
}

pub(crate) static NOUNS: [Noun; 11] = [
    lock!("plain", ReentrantMutex by LockClient::mutex, lock, try_lock, try_lock_for, try_lock_until -> ReentrantMutexGuard stays),
    lock!(
        "plain-owned",
        ReentrantMutex by LockClient::mutex,
        lock_owned, try_lock_owned, try_lock_owned_for, try_lock_owned_until -> OwnedMutexGuard moves
    ),
    lock!("fair", FairMutex by LockClient::fair, lock, try_lock, try_lock_for, try_lock_until -> FairMutexGuard stays),
    lock!(
        "fair-owned",
        FairMutex by LockClient::fair,
        lock_owned, try_lock_owned, try_lock_owned_for, try_lock_owned_until -> OwnedFairMutexGuard moves
    ),
    lock!("write", RwLock by LockClient::rw_lock, write, try_write, try_write_for, try_write_until -> RwLockWriteGuard stays),
    lock!(
        "write-owned",
        RwLock by LockClient::rw_lock,
        write_owned, try_write_owned, try_write_owned_for, try_write_owned_until -> OwnedRwLockWriteGuard moves
    ),
    lock!("multi", MultiLock by two, lock, try_lock, try_lock_for, try_lock_until -> MultiLockGuard stays),
    lock!(
        "multi-owned",
        MultiLock by two,
        lock_owned, try_lock_owned, try_lock_owned_for, try_lock_owned_until -> OwnedMultiLockGuard moves
    ),
    noun!(
        "semaphore-of-1",
        Semaphore by LockClient::semaphore,
        acquire, try_acquire, try_acquire_for, try_acquire_until -> SemaphorePermit moves,
        false,
        |client, name| assert!(client.semaphore(name).try_set_permits(1).unwrap()),
        &["{}"],
        // Java sweeps by its own clock: permits come back two seconds after their lease.
        ms(2000)
    ),
    Noun {
        label: "redlock",
        masters: 3,
        ..lock!("", ReentrantMutex by LockClient::mutex, lock, try_lock, try_lock_for, try_lock_until -> ReentrantMutexGuard stays)
    },
    Noun {
        label: "redlock-owned",
        masters: 3,
        ..lock!(
            "",
            ReentrantMutex by LockClient::mutex,
            lock_owned, try_lock_owned, try_lock_owned_for, try_lock_owned_until -> OwnedMutexGuard moves
        )
    },
];

/// Verbs that wait for something and are no exclusive lock, each with the reason.
pub(crate) const EXCEPTIONS: [(&str, &str); 7] = [
    ("LockClient.lock", "short for ReentrantMutex.lock, which is in the table"),
    ("RwLock.read", "many readers hold it at once"),
    ("RwLock.read_owned", "many readers hold it at once"),
    ("Semaphore.acquire_many", "the same code as acquire, which is in the table"),
    ("CountingSemaphore.acquire", "no lease: it cannot be lost, and a crash leaks it"),
    ("CountingSemaphore.acquire_many", "no lease: it cannot be lost, and a crash leaks it"),
    ("CountDownLatch.wait", "nobody holds it"),
];
