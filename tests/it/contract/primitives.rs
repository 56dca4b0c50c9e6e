//! The table of all primitives that can act as an exclusive lock, behind one interface.

use std::time::{Duration, Instant};

use leasehold::{
    CancelToken, FairMutex, FairMutexGuard, LockClient, Loss, LossWait, MultiLock, MultiLockGuard,
    OwnedFairMutexGuard, OwnedMultiLockGuard, OwnedMutexGuard, OwnedRwLockWriteGuard,
    ReentrantMutex, ReentrantMutexGuard, Result, RwLock, RwLockWriteGuard, Semaphore,
    SemaphorePermit,
};

use crate::rig::ms;

/// What every guard can do.
pub(crate) trait Held: Sync {
    fn is_held(&self) -> bool;
    fn remaining(&self) -> Duration;
    fn ensure_held(&self) -> Result<()>;
    fn wait_lost(&self, timeout: Duration) -> LossWait;
    fn wait_lost_or_cancelled(&self, timeout: Duration, token: &CancelToken) -> Result<LossWait>;
    fn on_lost(&self, callback: Box<dyn FnOnce(&Loss) + Send>);
    fn extend(&self, lease: Duration) -> Result<()>;
    fn unlock(self: Box<Self>) -> Result<()>;
    fn token(&self) -> Option<u64>;
}

impl Primitive {
    /// Whether it runs on a single ordinary server.
    pub(crate) fn is_plain_row(&self) -> bool {
        self.masters == 1 && !self.over_tls && !self.by_sentinel && !self.in_cluster
    }
}

pub(crate) type Guard = Box<dyn Held>;
pub(crate) type MovableGuard = Box<dyn Held + Send>;

/// A lock of one client, with its waiting method in four forms.
pub(crate) trait Exclusive: Send + Sync {
    fn lock(&self) -> Result<Guard>;
    fn try_lock(&self) -> Result<Option<Guard>>;
    fn try_lock_for(&self, timeout: Duration) -> Result<Option<Guard>>;
    fn try_lock_until(&self, deadline: Instant) -> Result<Option<Guard>>;
    /// `None` if its guards are bound to their threads.
    fn lock_to_move(&self) -> Option<Result<MovableGuard>>;
    /// The same lock, with calls that the token cancels.
    fn with_cancel(&self, token: &CancelToken) -> Box<dyn Exclusive>;
    /// The same lock with this minimum hold time; `None` if it has no such option.
    fn with_min_hold(&self, least: Duration) -> Option<Box<dyn Exclusive>>;
    /// Makes the client stop waiting.
    fn stop_waiting(&self);
    /// Closes the client.
    fn close(&self, timeout: Duration) -> Result<()>;
}

/// A row of the table.
pub(crate) struct Primitive {
    pub(crate) label: &'static str,
    /// The number of servers that it needs.
    pub(crate) masters: usize,
    /// The servers use TLS.
    pub(crate) over_tls: bool,
    /// A sentinel names the servers.
    pub(crate) by_sentinel: bool,
    /// The servers are the primaries of a cluster.
    pub(crate) in_cluster: bool,
    /// `Type.method`, as in the sources.
    pub(crate) method: &'static str,
    /// Opens this lock of a client. If a lease is given, it is fixed.
    pub(crate) open: fn(LockClient, &str, Option<Duration>) -> Box<dyn Exclusive>,
    /// Creates what must exist in the store before anybody can acquire it.
    pub(crate) prepare: fn(&LockClient, &str),
    /// The keys that exist while nobody holds it; `{}` stands for the name.
    pub(crate) stays: &'static [&'static str],
    /// How long after its lease a hold that is not renewed becomes available to others.
    pub(crate) grace: Duration,
    pub(crate) has_token: bool,
}

/// `$token`: how to read its fencing token. `$give_up`: the call that releases it.
macro_rules! held {
    ($guard:ident, $token:expr) => {
        held!($guard, $token, unlock);
    };
    ($guard:ident, $token:expr, $give_up:ident) => {
        // Inherent methods take precedence over those of the trait.
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

            fn wait_lost(&self, timeout: Duration) -> LossWait {
                self.wait_lost(timeout)
            }

            fn wait_lost_or_cancelled(
                &self,
                timeout: Duration,
                token: &CancelToken,
            ) -> Result<LossWait> {
                self.wait_lost_or_cancelled(timeout, token)
            }

            fn on_lost(&self, callback: Box<dyn FnOnce(&Loss) + Send>) {
                self.on_lost(callback);
            }

            fn extend(&self, lease: Duration) -> Result<()> {
                self.extend(lease)
            }

            fn unlock(self: Box<Self>) -> Result<()> {
                (*self).$give_up()
            }

            fn token(&self) -> Option<u64> {
                let token: fn(&Self) -> Option<u64> = $token;
                token(self)
            }
        }
    };
    ($guard:ident) => {
        held!($guard, |guard| guard.fencing_token().ok().map(|token| token.get()));
    };
}

held!(ReentrantMutexGuard);
held!(OwnedMutexGuard);
held!(FairMutexGuard);
held!(OwnedFairMutexGuard);
held!(RwLockWriteGuard);
held!(OwnedRwLockWriteGuard);
held!(SemaphorePermit, |_| None, release);
held!(MultiLockGuard, |guard| guard
    .names()
    .next()
    .and_then(|name| guard.fencing_token(name).ok())
    .map(|token| token.get()));
held!(OwnedMultiLockGuard, |guard| guard
    .names()
    .next()
    .and_then(|name| guard.fencing_token(name).ok())
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

/// `kept`: the lock supports a minimum hold time; `freed`: it does not.
macro_rules! kept {
    (kept, $open:ident, $least:ident) => {
        Some(Box::new(Open {
            client: $open.client.clone(),
            lock: $open.lock.clone().min_hold($least),
        }))
    };
    (freed, $open:ident, $least:ident) => {{
        let _: (&Open, Duration) = ($open, $least);
        None
    }};
}

macro_rules! primitive {
    (
        $label:literal, $type:ident by $made:expr,
        $method:ident, $try:ident, $try_for:ident, $try_until:ident -> $guard:ident $moves:ident $keeps:ident,
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
                self.lock.$method().map(boxed)
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
                movable!($moves, self.lock.$method())
            }

            fn with_cancel(&self, token: &CancelToken) -> Box<dyn Exclusive> {
                Box::new(Self {
                    client: self.client.clone(),
                    lock: self.lock.clone().with_cancel(token),
                })
            }

            fn with_min_hold(&self, least: Duration) -> Option<Box<dyn Exclusive>> {
                let open = self;
                kept!($keeps, open, least)
            }

            fn stop_waiting(&self) {
                self.client.stop_waiting();
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

        Primitive {
            label: $label,
            masters: 1,
            over_tls: false,
            by_sentinel: false,
            in_cluster: false,
            method: concat!(stringify!($type), ".", stringify!($method)),
            open,
            prepare: $prepare,
            stays: $stays,
            grace: $grace,
            has_token: $has_token,
        }
    }};
}

/// A lock: it has a token, needs no preparation, and leaves no key.
macro_rules! lock {
    (
        $label:literal, $type:ident by $made:expr,
        $method:ident, $try:ident, $try_for:ident, $try_until:ident -> $guard:ident $moves:ident
    ) => {
        primitive!(
            $label,
            $type by $made,
            $method, $try, $try_for, $try_until -> $guard $moves kept,
            true,
            |_, _| {},
            &[],
            Duration::ZERO
        )
    };
}

/// Two names locked as one. The suite checks the first of them.
fn two(client: &LockClient, name: &str) -> MultiLock {
    client.multi([&*format!("{name}-too"), name])
}

/// Locks with data: the same promises, by other requests.
fn mutex_with_data(client: &LockClient, name: &str) -> ReentrantMutex {
    client.mutex(name).with_data(name)
}

fn fair_with_data(client: &LockClient, name: &str) -> FairMutex {
    client.fair(name).with_data(name)
}

pub(crate) static PRIMITIVES: [Primitive; 16] = [
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
    lock!(
        "plain-with-data",
        ReentrantMutex by mutex_with_data,
        lock, try_lock, try_lock_for, try_lock_until -> ReentrantMutexGuard stays
    ),
    lock!(
        "fair-with-data",
        FairMutex by fair_with_data,
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
    primitive!(
        "semaphore-of-1",
        Semaphore by LockClient::semaphore,
        acquire, try_acquire, try_acquire_for, try_acquire_until -> SemaphorePermit moves freed,
        false,
        |client, name| assert_eq!(client.semaphore(name).try_set_permits(1).unwrap(), leasehold::SetPermits::New),
        &["{}"],
        // Redisson removes expired permits by its own clock, so permits become available two
        // seconds after their lease.
        ms(2000)
    ),
    Primitive {
        label: "over-tls",
        over_tls: true,
        ..lock!("", ReentrantMutex by LockClient::mutex, lock, try_lock, try_lock_for, try_lock_until -> ReentrantMutexGuard stays)
    },
    Primitive {
        label: "by-sentinel",
        by_sentinel: true,
        ..lock!("", ReentrantMutex by LockClient::mutex, lock, try_lock, try_lock_for, try_lock_until -> ReentrantMutexGuard stays)
    },
    Primitive {
        label: "in-cluster",
        in_cluster: true,
        ..lock!("", ReentrantMutex by LockClient::mutex, lock, try_lock, try_lock_for, try_lock_until -> ReentrantMutexGuard stays)
    },
    Primitive {
        label: "redlock",
        masters: 3,
        ..lock!("", ReentrantMutex by LockClient::mutex, lock, try_lock, try_lock_for, try_lock_until -> ReentrantMutexGuard stays)
    },
    Primitive {
        label: "redlock-owned",
        masters: 3,
        ..lock!(
            "",
            ReentrantMutex by LockClient::mutex,
            lock_owned, try_lock_owned, try_lock_owned_for, try_lock_owned_until -> OwnedMutexGuard moves
        )
    },
];

/// Methods that wait but take no exclusive lock, each with the reason.
pub(crate) const EXCEPTIONS: [(&str, &str); 8] = [
    ("LockClient.lock", "short for ReentrantMutex.lock, which is in the table"),
    ("RwLock.read", "many readers hold it at once"),
    ("RwLock.read_owned", "many readers hold it at once"),
    ("Semaphore.acquire_many", "the same code as acquire, which is in the table"),
    ("CountingSemaphore.acquire", "no lease: it cannot be lost, and a crash leaks it"),
    ("CountingSemaphore.acquire_many", "no lease: it cannot be lost, and a crash leaks it"),
    ("CountDownLatch.wait", "nobody holds it"),
    ("RateLimiter.acquire", "nobody holds it"),
];
