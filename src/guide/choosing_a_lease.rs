//! How long the lease and the timeouts should be.
//!
//! Keep the defaults unless you have a reason not to: a lease of 30 s, an I/O timeout of 2 s.
//!
//! # What the lease decides
//!
//! The [lease](crate::Builder::lease) answers two questions with one number:
//!
//! - *How long does a lock outlive a holder that dies?* One lease at most. A shorter lease frees it
//!   sooner.
//! - *How long can a holder survive without the server?* A lease is renewed when a third of it has
//!   passed, and it ends 1 % and 2 ms early, as a margin for clocks that run at different speeds. A
//!   failed renewal is retried, with pauses of up to a tenth of the lease (1 s at most). So an
//!   outage of up to two thirds of the lease, less the margin and a pause, loses no lock. A longer
//!   lease survives a longer outage.
//!
//! | lease | renewed every | an outage that loses no lock, about | a dead holder blocks for at most |
//! |---|---|---|---|
//! | 5 s | 1.7 s | 2.7 s | 5 s |
//! | 10 s | 3.3 s | 5.5 s | 10 s |
//! | 30 s (default) | 10 s | 18 s | 30 s |
//! | 60 s | 20 s | 38 s | 60 s |
//!
//! Choose a lease of at least twice the longest of these:
//!
//! - *The failover time of your server*: from the failure until clients reach the new primary at
//!   the same address. A restart that loads a large dataset counts as well.
//! - *The longest pause* that a healthy holder may have: a virtual machine that is migrated, a
//!   machine that swaps, a debugger. A pause of more than two thirds of the lease can lose the
//!   lock, and one that is longer than the lease does.
//! - *A network outage* that you want to survive.
//!
//! Then check that you can wait for one lease after a crash. If you cannot, the two requirements
//! conflict: prefer the short lease, and restart jobs that lose their lock.
//!
//! Renewal is cheap. All locks of a client share one thread, and the renewals that are due within
//! half a second (a twelfth of the lease at most) go out in one write. See `BENCHMARKS.md` for 10
//! 000 locks.
//!
//! # Short leases
//!
//! The range is 20 ms to 365 days. Below 200 ms every thread must get a core at once: the I/O
//! timeout is then a quarter of the lease, and waiting for a core uses it up. Measured with four
//! busy threads on two cores: at 20 ms, 3 of 50 holds were lost within 400 ms and one call in five
//! failed; at 50 ms, none. The round trip of the grant also counts against the lease.
//!
//! # Leases that are not renewed
//!
//! | you want | set | the lock ends |
//! |---|---|---|
//! | a lock that always ends, for work whose maximum duration you know | [`with_lease`](crate::ReentrantMutex::with_lease) on the handle | when the lease ends; [`extend`](crate::ReentrantMutexGuard::extend) lengthens it |
//! | renewal up to a limit, because a holder may hang | [`max_hold`](crate::ReentrantMutex::max_hold) on the handle, or [`Builder::max_hold`](crate::Builder::max_hold) for all | up to one lease after that time |
//! | a lock that stays taken for a minimum time even if the job took less: jobs that many machines start at the same time, with clocks that differ | [`min_hold`](crate::ReentrantMutex::min_hold) on the handle | when that time is over; later if the guard lives longer |
//! | renewal for as long as the guard lives (default) | nothing | when the guard is dropped, the process dies, or the server cannot be reached |
//!
//! A renewed lock of a holder that *hangs* (and does not die) is held for ever, unless it has a
//! `max_hold`. The watchdog also checks fixed leases, every third of the lease and at least every
//! 10 s, so that a holder learns when an operator has freed its lock. It checks read holds once a
//! second, because a [Java reader](crate::guide::redisson#readers-of-both-sides) can shorten them.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! let client = leasehold::LockClient::builder()
//!     .url("redis://127.0.0.1/")
//!     .lease(Duration::from_secs(15))
//!     .max_hold(Duration::from_secs(600)) // no job takes ten minutes
//!     .build()?;
//! let import = client.mutex("import").with_lease(Duration::from_secs(60)); // this one: fixed
//! # drop(import);
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! # The other times
//!
//! | setting | default | what it limits | when to change it |
//! |---|---|---|---|
//! | [`io_timeout`](crate::Builder::io_timeout) | 2 s, or a quarter of the lease if that is less | each connect, write and reply. A call to a hung server can run into two or three of them in a row | lower it if a caller must fail fast; it must be shorter than the lease. Raise it for a server that also runs slow commands |
//! | ... of renewals | the I/O timeout, and never more than a quarter of the lease | the same, for the background thread | cannot be set: it follows the lease, so that one slow reply does not cost a lease |
//! | ... with [Redlock](crate::guide::redlock) | 500 ms, and never more than a quarter of the lease | the reply of one master | lower it if the masters are close: a call waits that long for a master that hangs, until it is known to be down |
//! | [`outage_timeout`](crate::Builder::outage_timeout) | one lease | how long a call that is *already waiting* tolerates an outage of the server | raise it if waiters should outlast a long failover; zero makes them fail at the first error |
//! | [`waiter_timeout`](crate::Builder::waiter_timeout) | 5 s | how long a dead waiter of a fair lock, or a dead waiting writer, delays the others | lower it for a quicker recovery; each living waiter sends one command every third of it |
//! | [`java_waiter_timeout`][crate::Redis::java_waiter_timeout] | 5 minutes | the timeout of Java waiters in a fair queue | only beside Java: see [`redisson`](crate::guide::redisson) |
//! | [`longest_lease`][crate::Redlock::longest_lease] | the lease, or 30 s if that is more | with Redlock: the longest lease of any client of these masters, and so the quarantine of a master that restarted | the same on all clients |
//!
//! A connect includes the look-up of the host name and the answer of a [credentials
//! provider][crate::CredentialsProvider]. If one of these is late, the last addresses, or the last
//! credentials that the server accepted, are used after a quarter of that time: a name server that
//! is away costs no lock.
//!
//! # Permits
//!
//! A [semaphore](crate::Semaphore)'s permits come back when their lease has ended; on Redis two
//! seconds later, because each Java client judges it by its own clock.
#![cfg_attr(not(feature = "redis"), doc = include_str!("../links/redis.md"))]
#![cfg_attr(not(feature = "redlock"), doc = include_str!("../links/redlock.md"))]
