//! The rate limiter: `client.rate_limiter(name)`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::deadline::{Deadline, ceil_millis};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{LONGEST_LEASE, MOST_PERMITS, TAKEN_TTL, check_count, in_words};
use crate::base::lock_name::Kind;
use crate::base::primitive::Primitive;
use crate::os;
use crate::store::{Rate, RateChange};
use crate::sync::handle::{Handle, handle_methods};
use crate::sync::remote_counter::repeat;
use crate::wait::attempt::{AcquireAttempt, Tried, Wanted};
use crate::wait::client_state::ClientState;
use crate::wait::contend::contend;
use crate::wait::contender::Contender;

/// At most so many permits within an interval, for all threads, processes and machines together,
/// and for Java processes with Redisson's `RRateLimiter`. A permit is taken and never returned: it
/// comes back by itself when the interval has passed since it was taken.
///
/// A cheap handle, created by [`LockClient::rate_limiter`](crate::LockClient::rate_limiter):
/// creating and cloning it costs no I/O.
///
/// # Start
/// The rate must be [set](Self::try_set_rate) first; until then an acquire returns an error.
///
/// # Stores
/// Redis (one server, behind sentinels, a cluster) and [in memory](crate::LockClient::in_memory).
/// With Redlock, PostgreSQL, MySQL and ZooKeeper every call returns
/// [`Unsupported`](ErrorKind::Unsupported).
///
/// # The interval
/// It slides: at no moment have more permits been taken within the last interval than the rate
/// says. All of them can be taken at once. Redis counts by its own clock, in milliseconds; if that
/// is set back, permits come back later by as much.
///
/// A caller that acts on a permit *after* an answer that was late can be later than Redis counts.
///
/// # Waiting
/// The server's answer says when enough permits come back, and a waiter sleeps for as long. It asks
/// again after a [lease](crate::Builder::lease) at the latest, because another client may have
/// [changed the rate](Self::set_rate). Threads of one client wait in the order of arrival, and only
/// the first of them asks. Clients are not ordered: one that asks for few permits is served before
/// one that waits for many.
///
/// # Repeats
/// Each acquisition has an id, so that a request whose reply was lost takes its permits only once
/// when it is repeated. If the call gives up, they are freed in the background. Changes of the rate
/// leave an idempotency key in Redis for a minute (`leasehold_once:{name}:..`).
///
/// # Source
/// Redisson's `RRateLimiter` of the type `OVERALL` on the wire. [What
/// differs](crate::guide::redisson#rate-limiters).
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// # let client = leasehold::LockClient::in_memory();
/// let calls = client.rate_limiter("calls of the api");
/// calls.try_set_rate(100, Duration::from_secs(1))?; // in every program: the first one sets it
/// calls.acquire(1)?; // blocks while 100 were made within the last second
/// if !calls.try_acquire_for(20, Duration::from_millis(50))? {
///     println!("too busy for twenty more");
/// }
/// # Ok::<(), leasehold::Error>(())
/// ```
#[doc(alias = "RRateLimiter")]
#[doc(alias = "throttle")]
#[derive(Debug, Clone)]
pub struct RateLimiter {
    handle: Handle,
}

impl RateLimiter {
    pub(crate) fn new(client: &Arc<ClientState>, name: &str) -> Self {
        Self { handle: Handle::new(client, name, Kind::RateLimiter) }
    }

    handle_methods!(name, cancel);

    /// Sets the rate if nobody has set one yet: `permits` (1 to 2^31 − 1) within any `per` (1 ms to
    /// 365 days, rounded up to milliseconds). If somebody has, whatever the [rate](Self::rate),
    /// returns false and changes nothing. One round trip. Safe to repeat: a repeat returns false.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a number or an interval out of range;
    /// [`WrongType`](ErrorKind::WrongType) when the name is used for something else;
    /// [`Unsupported`](ErrorKind::Unsupported) when the store has no rate limiters; otherwise when
    /// the request fails.
    pub fn try_set_rate(&self, permits: u32, per: Duration) -> Result<bool> {
        self.change(RateChange::Set(self.checked(permits, per)?))
    }

    /// Sets the rate, also if there is one. Everything that was taken is free again, so a program
    /// that does this whenever it starts exceeds the rate. One round trip. Waiters of this client
    /// ask again at once, those of others after a [lease](crate::Builder::lease) at the latest, and
    /// Redisson's when what they wait for would have come back. Safe to repeat, except that a
    /// repeat by the caller frees what was taken since.
    ///
    /// # Errors
    /// The same as [`try_set_rate`](Self::try_set_rate). If the server stopped answering *after*
    /// the request was sent, the rate may have been set.
    pub fn set_rate(&self, permits: u32, per: Duration) -> Result<()> {
        self.change(RateChange::Replace(self.checked(permits, per)?)).map(|_| ())
    }

    /// Takes `permits` permits (1 to 2^31 − 1), all or none, blocking until that many are free, for
    /// as long as it takes.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) when nobody has set the rate, or it was removed, or it is
    /// lower than `permits`; [`InvalidInput`](ErrorKind::InvalidInput) for a number out of range;
    /// [`WrongType`](ErrorKind::WrongType) when the name is used for something else;
    /// [`Unsupported`](ErrorKind::Unsupported) for a limiter of Redisson with a rate for each
    /// client (`PER_CLIENT`), and when the store has no rate limiters; otherwise the same as
    /// [`ReentrantMutex::lock`](crate::ReentrantMutex::lock).
    pub fn acquire(&self, permits: u32) -> Result<()> {
        self.take(permits, Deadline::Never).map(|_| ())
    }

    /// Takes the permits if they are free now. One round trip, or a few I/O timeouts if the server
    /// hangs.
    ///
    /// # Errors
    /// The same as [`acquire`](Self::acquire).
    pub fn try_acquire(&self, permits: u32) -> Result<bool> {
        self.take(permits, Deadline::Now)
    }

    /// Blocks until the permits are free, takes them and returns true, or returns false after
    /// `timeout` plus one round trip, which can take a few I/O timeouts if the server hangs.
    ///
    /// # Errors
    /// The same as [`acquire`](Self::acquire).
    pub fn try_acquire_for(&self, permits: u32, timeout: Duration) -> Result<bool> {
        self.take(permits, Deadline::after(os::now(), timeout))
    }

    /// Blocks until the permits are free, takes them and returns true, or returns false after
    /// `deadline` plus one round trip, which can take a few I/O timeouts if the server hangs.
    ///
    /// # Errors
    /// The same as [`acquire`](Self::acquire).
    pub fn try_acquire_until(&self, permits: u32, deadline: Instant) -> Result<bool> {
        self.take(permits, Deadline::At(deadline))
    }

    /// The number of free permits; 0 if nobody has set the rate, and negative after Java has
    /// lowered it below what was taken. One round trip; the answer may be outdated when it arrives.
    ///
    /// # Errors
    /// The same as [`rate`](Self::rate).
    pub fn available_permits(&self) -> Result<i64> {
        Ok(self.status()?.map_or(0, |(_, free)| free))
    }

    /// The rate, as permits within an interval; `None` if nobody has set it. One round trip.
    ///
    /// # Errors
    /// [`WrongType`](ErrorKind::WrongType) when the name is used for something else;
    /// [`Unsupported`](ErrorKind::Unsupported) as in [`acquire`](Self::acquire); otherwise when the
    /// request fails.
    pub fn rate(&self) -> Result<Option<(u64, Duration)>> {
        Ok(self.status()?.map(|(Rate { permits, per }, _)| (permits, per)))
    }

    /// Removes the limiter. Returns false if there was none. Waiters of this client get
    /// [`Conflict`](ErrorKind::Conflict) at once, those of others when they ask again. One round
    /// trip. Safe to repeat.
    ///
    /// # Errors
    /// [`WrongType`](ErrorKind::WrongType) when the name is used for something else, or when the
    /// request fails.
    pub fn delete(&self) -> Result<bool> {
        self.change(RateChange::Delete)
    }

    fn checked(&self, permits: u32, per: Duration) -> Result<Rate> {
        check_count(permits, MOST_PERMITS).map_err(|e| e.for_name(self.name()))?;
        if per.is_zero() || per > LONGEST_LEASE {
            let why = format!("an interval of {} is not between 1 ms and 365 days", in_words(per));
            return Err(Error::named(ErrorKind::InvalidInput, self.name(), why));
        }
        Ok(Rate { permits: permits.into(), per: Duration::from_millis(ceil_millis(per)) })
    }

    fn change(&self, change: RateChange) -> Result<bool> {
        let client = &self.handle.client;
        let name = self.handle.usable()?;
        let _call = client.life.count_call();
        client.life.ensure_open().map_err(|e| e.for_name(&name.name))?;
        let rates = client.store.rates().map_err(|e| e.for_name(&name.name))?;
        let done =
            repeat(client, name, |id, unknowns| rates.change_rate(name, change, id, unknowns))
                .map_err(|e| e.for_name(&name.name))?;
        // No message tells the waiters.
        client.local_queues.notify(&name.key);
        Ok(done)
    }

    fn status(&self) -> Result<Option<(Rate, i64)>> {
        let name = self.handle.usable()?;
        let rates = self.handle.client.store.rates();
        rates.and_then(|rates| rates.rate_of(name)).map_err(|e| e.for_name(&name.name))
    }

    fn take(&self, permits: u32, deadline: Deadline) -> Result<bool> {
        check_count(permits, MOST_PERMITS).map_err(|e| e.for_name(self.name()))?;
        let client = &self.handle.client;
        let name = self.handle.begin(Kind::RateLimiter)?;
        let cancel = self.handle.terms.cancel.as_ref();
        let taken = client.seen.observer.record(
            Primitive::RateLimiter,
            std::slice::from_ref(&name),
            deadline,
            |record| {
                let attempt = AcquireAttempt::new(
                    client,
                    &name,
                    Wanted::permits(&name, permits, UNDONE),
                    cancel,
                )?;
                let mut call = RateCall { attempt };
                contend(&mut call, deadline, record)
            },
        )?;
        Ok(taken.is_some())
    }
}

/// For how long permits of an acquisition with an unknown outcome are freed in the background.
/// After that they come back with their interval.
const UNDONE: Duration = TAKEN_TTL;

/// A call that takes permits.
struct RateCall<'a> {
    attempt: AcquireAttempt<'a>,
}

impl<'a> Contender<'a> for RateCall<'a> {
    type Won = ();

    fn attempt(&mut self) -> &mut AcquireAttempt<'a> {
        &mut self.attempt
    }

    fn try_once(&mut self, waits: bool) -> Result<Tried<()>> {
        Ok(match self.attempt.ask(waits)? {
            Tried::Won(_) => Tried::Won(()),
            Tried::Busy(until) => Tried::Busy(until),
        })
    }
}
