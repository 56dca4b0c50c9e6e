//! `LockClient`: makes the handles of locks, and offers shortcuts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::error::Result;
use crate::base::node_status::NodeStatus;
use crate::fencing::FencedValue;
use crate::observe::{self, AnnouncedLocks, LockReport, LockSummary, Snapshot, Stats};
use crate::report::diagnosis::{Check, Diagnosis, Finding};
use crate::store::Diagnose;
use crate::sync::counting_semaphore::CountingSemaphore;
use crate::sync::election::Election;
use crate::sync::fair_mutex::FairMutex;
use crate::sync::latch::CountDownLatch;
use crate::sync::multi_lock::MultiLock;
use crate::sync::mutex::{ReentrantMutex, ReentrantMutexGuard};
use crate::sync::once::{Occurrence, ScheduledJob};
use crate::sync::rate_limiter::RateLimiter;
use crate::sync::rwlock::RwLock;
use crate::sync::semaphore::Semaphore;
use crate::wait::client_state::ClientState;

/// Locks in Redis (one server, behind sentinels, a cluster, or a majority of several), in
/// PostgreSQL, in MySQL, in ZooKeeper, or [in memory](Self::in_memory).
///
/// # Threads and cloning
/// `Send` and `Sync`. A clone is another handle to the same client: same identity, connections, and
/// background threads. Guards and lock handles are handles too; the threads end with the last of
/// them. Dropping the last one blocks for up to two I/O timeouts (4 s) if a server hangs while an
/// unknown outcome is to be resolved, what the client announces to be withdrawn, or a ZooKeeper
/// session to be ended. Make one client per process and share it.
///
/// A client has no thread until it needs one. Then two stay, whatever the load: one renews leases,
/// one receives release messages. Behind [sentinels][crate::Sentinel] and over ZooKeeper there is
/// one more, and one more once `on_lost` or `lost` of a guard was called, plus up to 16 (in a close
/// 32) while callbacks run. Others live for [one task](crate::guide::operations#threads). A client
/// for [Redlock][crate::Redlock] has the first of them from the start: it checks masters that are
/// down or have no vote.
///
/// # Forks
/// In a child process made by `fork()` nothing of the client may be used: methods fail with
/// [`Forked`](crate::ErrorKind::Forked), guards hold nothing, and dropping them does nothing.
#[cfg_attr(not(feature = "redis"), doc = include_str!("links/redis.md"))]
#[cfg_attr(not(feature = "redlock"), doc = include_str!("links/redlock.md"))]
#[derive(Clone)]
pub struct LockClient {
    state: Arc<ClientState>,
}

impl LockClient {
    pub(crate) fn new(state: ClientState) -> Self {
        Self { state: Arc::new(state) }
    }

    pub(crate) fn state(&self) -> &Arc<ClientState> {
        &self.state
    }

    /// A handle to the lock of this name; no I/O.
    ///
    /// A name has 1 to 1024 bytes, including the [prefix](crate::Builder::key_prefix). In Redis it
    /// may contain no braces, or a first pair that is not empty, as in `a{b}c`:
    /// [the rules](crate::guide::operations#names) say why. The first call on the handle reports
    /// any other name as [`InvalidInput`](crate::ErrorKind::InvalidInput). The same holds for the
    /// other primitives. Every name may be a `&str` or a `String`, such as
    /// `format!("report:{day}")`.
    #[doc(alias = "RLock")]
    #[must_use]
    pub fn mutex(&self, name: impl AsRef<str>) -> ReentrantMutex {
        ReentrantMutex::new(&self.state, name.as_ref())
    }

    /// A handle to the fair lock of this name: first come, first served; no I/O.
    #[doc(alias = "RFairLock")]
    #[must_use]
    pub fn fair(&self, name: impl AsRef<str>) -> FairMutex {
        FairMutex::new(&self.state, name.as_ref())
    }

    /// A handle to the read-write lock of this name; no I/O.
    #[doc(alias = "RReadWriteLock")]
    #[must_use]
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(&self.state, name.as_ref())
    }

    /// A handle to several plain locks that are taken as one, all or none: 1 to 1000 names in any
    /// order, where a repeated name counts once; no I/O. The first method call reports names that
    /// cannot work.
    #[doc(alias = "RMultiLock")]
    #[must_use]
    pub fn multi(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> MultiLock {
        MultiLock::new(&self.state, names)
    }

    /// A handle to the count-down latch of this name; no I/O. It is open until somebody [sets its
    /// count](CountDownLatch::set_count).
    #[doc(alias = "RCountDownLatch")]
    #[must_use]
    pub fn latch(&self, name: impl AsRef<str>) -> CountDownLatch {
        CountDownLatch::new(&self.state, name.as_ref())
    }

    /// A handle to the semaphore of this name, whose permits have leases; no I/O. Nobody gets a
    /// permit until somebody [sets how many there are](Semaphore::try_set_permits).
    #[doc(alias = "RPermitExpirableSemaphore")]
    #[must_use]
    pub fn semaphore(&self, name: impl AsRef<str>) -> Semaphore {
        Semaphore::new(&self.state, name.as_ref())
    }

    /// A handle to the counting semaphore of this name, whose permits a crash leaks; no I/O.
    /// Usually [`semaphore`](Self::semaphore) is the right choice.
    #[doc(alias = "RSemaphore")]
    #[must_use]
    pub fn counting_semaphore(&self, name: impl AsRef<str>) -> CountingSemaphore {
        CountingSemaphore::new(&self.state, name.as_ref())
    }

    /// A handle to the rate limiter of this name: at most so many permits within an interval; no
    /// I/O. Nobody gets a permit until somebody [sets the rate](RateLimiter::try_set_rate). On
    /// Redis and in memory.
    #[must_use]
    pub fn rate_limiter(&self, name: impl AsRef<str>) -> RateLimiter {
        RateLimiter::new(&self.state, name.as_ref())
    }

    /// A handle to the election of a leader among all who stand for it under this name, which is
    /// that of a plain lock; no I/O.
    #[doc(alias = "LeaderSelector")]
    #[doc(alias = "leader election")]
    #[must_use]
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(&self.state, name.as_ref())
    }

    /// A handle to one occurrence of the scheduled job of this name, which runs once however many
    /// machines start it; no I/O. The occurrence is a label, such as `"2026-11-23T02:00Z"`, or the
    /// last fire time by the clock of the store, such as
    /// `Every::new(Duration::from_secs(3600))`. The name and a lock of the same name have nothing
    /// to do with each other. On all stores but Redlock and MySQL.
    ///
    /// # Examples
    /// ```
    /// # use leasehold::{LockClient, Once};
    /// # let client = LockClient::in_memory();
    /// let send = || client.once("report", "2026-11-23").run(|_job| Ok::<_, String>("sent"));
    /// assert!(matches!(send()?, Once::Done("sent")));
    /// assert!(matches!(send()?, Once::AlreadyDone { .. }));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[doc(alias = "cron")]
    #[doc(alias = "schedule")]
    #[must_use]
    pub fn once(&self, name: impl AsRef<str>, occurrence: impl Into<Occurrence>) -> ScheduledJob {
        ScheduledJob::new(&self.state, name.as_ref(), occurrence.into())
    }

    /// Short for [`mutex(name).lock()`](ReentrantMutex::lock): blocks until the caller holds the
    /// lock.
    ///
    /// A thread that has the lock gets it again, so in a pool that steals work (rayon) it does not
    /// exclude one job from another: use [`non_reentrant`](ReentrantMutex::non_reentrant) there.
    ///
    /// # Errors
    /// The same as [`ReentrantMutex::lock`].
    #[doc(alias = "acquire")]
    pub fn lock(&self, name: impl AsRef<str>) -> Result<ReentrantMutexGuard> {
        self.mutex(name).lock()
    }

    /// Short for [`mutex(name).try_lock()`](ReentrantMutex::try_lock): one round trip.
    ///
    /// Keep the guard: `if client.try_lock("job")?.is_some() { .. }` gives it up before the block,
    /// and `if let Some(_guard) = ..` has it inside.
    ///
    /// # Errors
    /// The same as [`ReentrantMutex::lock`].
    pub fn try_lock(&self, name: impl AsRef<str>) -> Result<Option<ReentrantMutexGuard>> {
        self.mutex(name).try_lock()
    }

    /// Short for [`mutex(name).try_lock_for(timeout)`](ReentrantMutex::try_lock_for).
    ///
    /// # Errors
    /// The same as [`ReentrantMutex::lock`].
    #[doc(alias = "timeout")]
    pub fn try_lock_for(
        &self,
        name: impl AsRef<str>,
        timeout: Duration,
    ) -> Result<Option<ReentrantMutexGuard>> {
        self.mutex(name).try_lock_for(timeout)
    }

    /// Short for [`mutex(name).try_lock_until(deadline)`](ReentrantMutex::try_lock_until).
    ///
    /// # Errors
    /// The same as [`ReentrantMutex::lock`].
    pub fn try_lock_until(
        &self,
        name: impl AsRef<str>,
        deadline: Instant,
    ) -> Result<Option<ReentrantMutexGuard>> {
        self.mutex(name).try_lock_until(deadline)
    }

    /// A value in Redis (not with Redlock) or in memory that refuses writes from stale holders; no
    /// I/O. See [`FencedValue`].
    #[must_use]
    pub fn fenced_value(&self, key: impl AsRef<str>) -> FencedValue {
        FencedValue::new(&self.state, key.as_ref())
    }

    /// The lease of this client's locks. That is the one of
    /// [`Builder::lease`](crate::Builder::lease), except over ZooKeeper: there all holds share the
    /// session, and this is the session timeout that the server has granted, once there was a
    /// connection. No I/O.
    #[must_use]
    pub fn lease(&self) -> Duration {
        let state = if self.state.is_forked() { None } else { self.state.store.shared_lease() };
        state.unwrap_or(self.state.config.lease)
    }

    /// Each server of this client as it was last seen: whether it votes, its latency, and its last
    /// error. No I/O. Empty in a forked child.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeStatus> {
        if self.state.is_forked() { Vec::new() } else { self.state.store.nodes() }
    }

    /// Checks everything about each server of this client that matters to locks, and says how to
    /// correct what is wrong: whether it can be reached, its version and role, what it forgets, the
    /// user's rights one by one, its clock, and its latency compared with the lease. See [`Check`].
    ///
    /// Servers are asked side by side, over separate connections that end with the call. It usually
    /// takes some milliseconds, and blocks for at most ten I/O timeouts (20 s with the default of 2
    /// s), and three more where the servers have to be found first (sentinels, a cluster). It may
    /// be repeated and called by several threads, even while locks are held: it takes no lock,
    /// writes no key, and makes no table. (With [Redlock][crate::Redlock], the client's background
    /// thread writes its usual marks.) On servers older than Redis 7, missing rights are found by
    /// trying, which the `ACL LOG` shows.
    ///
    /// A server that cannot be asked is a finding, not an error: a problem, or a warning if the
    /// other servers suffice and locks work. To diagnose servers to which a client cannot be
    /// [built](crate::Builder::build), build it with
    /// [`connect_lazily`](crate::Builder::connect_lazily).
    ///
    /// # Examples
    /// ```no_run
    /// let builder = leasehold::LockClient::builder().url("redis://127.0.0.1/");
    /// let client = builder.connect_lazily().build()?;
    /// let diagnosis = client.diagnose();
    /// println!("{diagnosis}");
    /// assert!(diagnosis.is_healthy());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[cfg_attr(not(feature = "redlock"), doc = include_str!("links/redlock.md"))]
    #[must_use]
    pub fn diagnose(&self) -> Diagnosis {
        let state = &self.state;
        if let Err(e) = state.check_usable() {
            return Diagnosis::new(vec![Finding::problem(Check::Connect, e.to_string())]);
        }
        let asked = Diagnose { lease: self.lease(), key_prefix: &state.config.key_prefix };
        Diagnosis::new(state.store.diagnose(&asked))
    }

    /// How many acquisitions of a [Redlock][crate::Redlock] client needed a second round for
    /// their fencing token since the client was built, because a clock was behind. No I/O.
    #[cfg_attr(not(feature = "redlock"), doc = include_str!("links/redlock.md"))]
    #[must_use]
    pub fn token_rounds(&self) -> u64 {
        self.state.store.token_rounds()
    }

    /// What the client has done since it was built, in numbers. Takes a few microseconds, and
    /// copies some kilobytes; does no I/O and waits for none. All zero in a forked child.
    ///
    /// # Examples
    /// ```
    /// let client = leasehold::LockClient::in_memory();
    /// drop(client.lock("job")?);
    /// let stats = client.stats();
    /// assert_eq!(stats.total().granted_at_once(), 1);
    /// println!("{stats}");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(&self.state)
    }

    /// What the client holds and what it waits for at this moment. Does no I/O and waits for none,
    /// so it works while a server hangs. Empty in a forked child.
    ///
    /// It takes mutexes briefly, so it must not be called inside a signal handler. Let a thread
    /// wait for the signal and call it, as the chapter
    /// [operations](crate::guide::operations#a-job-hangs) shows.
    ///
    /// # Examples
    /// ```
    /// let client = leasehold::LockClient::in_memory();
    /// let _guard = client.lock("job")?;
    /// let snapshot = client.snapshot();
    /// assert_eq!(snapshot.holds()[0].name(), "job");
    /// println!("{snapshot}");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.state)
    }

    /// Lists what the store has under the [prefix](crate::Builder::key_prefix) of this client, from
    /// any client in any language, sorted by name: for people who investigate what hangs. It only
    /// reads, and may be repeated.
    ///
    /// `pattern` is for the name without the prefix, as in a shell: `*` is any text, `?` one
    /// character, `[a-z0]` one of these, `[^a-z]` none of these; a backslash makes the next
    /// character literal. `*` matches every name.
    ///
    /// # What it lists
    /// Only what cannot be anything else:
    ///
    /// - *In Redis* a lock is a hash with one field, whose name is the id of a holder (a UUID, a
    ///   colon and more) and whose value is a number above zero. A read-write lock also has a field
    ///   `mode`, which is `read` or `write`. A free fair lock is found by its queue. A semaphore is
    ///   a number with a sorted set of permits of 16 bytes beside it, so it is listed while permits
    ///   are taken. A latch, itself a plain number, is listed only for a minute after an opening,
    ///   if it was set again. **Other latches and semaphores, and counting semaphores, are not
    ///   listed:** they are numbers as in any program. [`inspect`](Self::inspect) shows those by
    ///   name. Names that this library [refuses](crate::guide::operations#names) are left out, and
    ///   so are names that the user of the client may not read.
    /// - *Over [several masters](crate::guide::redlock)*, the plain locks of each, and [on how
    ///   many](LockSummary::masters) each is held.
    /// - *In a database and in memory*, everything that is held, has a queue, or counts.
    /// - *Over ZooKeeper* every directory below that of the URL that contains nodes of holders as
    ///   made by Curator, or permits. Not latches, which are four bytes in a node.
    ///
    /// How many [wait](LockSummary::waiting) for locks that are not fair is known in Redis, if the
    /// user may ask (`PUBSUB NUMSUB`), and over ZooKeeper.
    ///
    /// Whatever is taken or given up during the call may or may not be in the list. While a slot of
    /// a cluster that contains a lock is moving, the answer may be
    /// [`NotReady`](crate::ErrorKind::NotReady): call again.
    ///
    /// # Cost
    /// Redis: `SCAN` visits all keys twice, 500 at a time, and checks each hash. 400 000 keys cost
    /// the server a second of its time, in 1600 portions of 0.6 ms, between which the call pauses;
    /// it takes some ten seconds in total. A shared server notices that: for a screen or a
    /// dashboard use [`announced_locks`](Self::announced_locks). In a cluster the primaries are
    /// asked one after the other, and with Redlock the masters. If only one name can match the
    /// pattern, it is looked up without `SCAN`. A database: one query for each 1000 names.
    /// ZooKeeper: each directory is listed. Up to 256 clients that hold something are asked for
    /// their owner, with one request each. Every single request blocks for at most the I/O timeout;
    /// the whole call has no limit. The list stays in memory: some hundred bytes for each lock.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an invalid pattern.
    /// [`Denied`](crate::ErrorKind::Denied) if the user may not `SCAN`: the [ACL
    /// rule](crate::guide::operations#acl-rule) of locks does not include it.
    /// [`NoQuorum`](crate::ErrorKind::NoQuorum) if too few masters answer; otherwise any failure to
    /// ask a server: the list is never incomplete.
    ///
    /// # Examples
    /// ```
    /// let client = leasehold::LockClient::in_memory();
    /// let _guard = client.lock("nightly:report")?;
    /// for lock in client.locks("nightly:*")? {
    ///     println!("{lock}"); // "nightly:report" mutex held by ..., its lease ends in 21 s
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn locks(&self, pattern: &str) -> Result<Vec<LockSummary>> {
        observe::locks(&self.state, pattern)
    }

    /// Lists what the clients of this library have announced to hold, and what is waited for: like
    /// [`locks`](Self::locks), without searching the keys of other programs. It only reads, and may
    /// be repeated.
    ///
    /// # What it lists
    /// - *In Redis*, and with Redlock, the names that clients have announced
    ///   ([`Builder::announce_owner`](crate::Builder::announce_owner)), and those whose channels
    ///   have listeners, in any language, if the user may ask (`PUBSUB CHANNELS`). Each name is
    ///   then looked up, so whatever is listed exists now. **Not listed, unless somebody waits for
    ///   it:** a hold of less than a second
    ///   ([`LockHolder::owner`](crate::observe::LockHolder::owner) says when clients write), the
    ///   holds of Java clients and of releases before this one, what stays taken by `min_hold`
    ///   after its client has ended, a free fair lock that has only waiters of other clients, and
    ///   the holds for which there was no [room](AnnouncedLocks::unlisted): a client writes 16 KB
    ///   of names, the oldest holds first.
    /// - *In a database, in memory and over ZooKeeper* the same as `locks`.
    ///
    /// # Cost
    /// Redis: one request for the index of clients, one for the channels, one for each 25 clients
    /// and one for each 25 names. Each takes at most some hundred microseconds of the server's
    /// time, whatever else the server stores: no key of another program is touched.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an invalid pattern.
    /// [`Denied`](crate::ErrorKind::Denied) if the user may not read `leasehold_client:*`.
    /// Otherwise like [`locks`](Self::locks).
    ///
    /// # Examples
    /// ```
    /// let client = leasehold::LockClient::in_memory();
    /// let _guard = client.lock("nightly:report")?;
    /// let announced = client.announced_locks("nightly:*")?;
    /// assert_eq!(announced.locks()[0].name(), "nightly:report");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn announced_locks(&self, pattern: &str) -> Result<AnnouncedLocks> {
        observe::announced_locks(&self.state, pattern)
    }

    /// Everything under one name, of any kind: who holds it, who waits in which order, permits,
    /// counts, and the last fencing token. `None` if there is nothing. It only reads, and may be
    /// repeated. One round trip (over ZooKeeper two to four; with Redlock to every master), another
    /// for a rate limiter, or if there is nothing but perhaps a [job](ScheduledJob) that runs, and
    /// one for each client, up to 256, that is asked for its owner.
    ///
    /// It shows more than [`locks`](Self::locks), because the caller states that the name is a
    /// lock: holders may have ids of any form, and a plain number is [returned](LockReport::number)
    /// as it is.
    ///
    /// # Errors
    /// [`WrongType`](crate::ErrorKind::WrongType) for something other than a lock, semaphore, latch
    /// or rate limiter; [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name that no lock
    /// can have; [`Unsupported`](crate::ErrorKind::Unsupported) for a rate limiter of Redisson with
    /// a rate for each client; otherwise like [`ReentrantMutex::holder`].
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Option<LockReport>> {
        observe::inspect(&self.state, name.as_ref())
    }

    /// The random identity of this client: the first part of its holder ids in Redis.
    #[must_use]
    pub fn id(&self) -> &str {
        self.state.who.id.as_str()
    }

    /// Ends all waiting of this client, for all its handles, and keeps what it holds: the first
    /// step of a [clean shutdown](crate::guide::shutdown), before the running jobs have ended.
    ///
    /// From now on every call that takes something or waits returns
    /// [`Closed`](crate::ErrorKind::Closed), including the `try_` forms: blocked calls return at
    /// once, later ones without asking the server. Their places in queues and their wait markers
    /// are removed at once, in the background, so that other clients move up. A call with a request
    /// under way ends with the reply, after a few I/O timeouts at most if the server hangs; if that
    /// reply, or another thread of this client at that very moment, gives it the lock, it returns
    /// the guard.
    ///
    /// Holds continue: they are renewed, and may be extended, re-entered by their threads,
    /// downgraded and released. Counting down a latch, changing counts and queries still work.
    /// [`close`](Self::close) ends the rest.
    ///
    /// Final, may be called again, and does nothing in a closed client or a forked child. Wakes the
    /// waiting threads and waits neither for them nor for a server: it does no I/O.
    pub fn stop_waiting(&self) {
        self.state.stop_waiting();
    }

    /// Ends the client for all its handles: wakes waiters with
    /// [`Closed`](crate::ErrorKind::Closed), releases what is held, resolves unknown outcomes, and
    /// joins the two threads that renew and that receive messages. Blocks for at most `timeout`,
    /// plus a few I/O timeouts if a request is under way when that ends. The threads that ask
    /// sentinels and the nodes of a cluster, and those that look up a name or ask for credentials,
    /// end by themselves, an I/O timeout later at most, or when the name server or your provider
    /// answers.
    ///
    /// Guards that still exist hold nothing from then on, and somebody else may have their locks.
    /// Before the first lock is given up, everybody who waits for the loss of one of them is
    /// notified as if it were lost: `is_held` is false, `wait_lost` ends, `on_lost` callbacks run;
    /// `unlock` and `ensure_held` return `Closed`. So let jobs end before this is called.
    ///
    /// A second call waits for the first, for at most its own `timeout`, and returns the same.
    ///
    /// # Errors
    /// [`Unreachable`](crate::ErrorKind::Unreachable) lists what is not confirmed to be released,
    /// by name, and how long it can stay locked: until its lease ends (longer only if the server
    /// itself hangs meanwhile). Leases that had already ended are no error.
    pub fn close(&self, timeout: Duration) -> Result<()> {
        self.state.close(timeout)
    }
}

impl std::fmt::Debug for LockClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.state.fmt(f)
    }
}
