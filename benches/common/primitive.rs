//! All primitives, acquired and released by leasehold and by *raw*.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{
    CountDownLatch, CountingPermit, CountingSemaphore, FairMutex, FairMutexGuard, LockClient,
    ReentrantMutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphorePermit,
};

use super::scripts::script;
use super::server::connect;

/// Leasehold's defaults, which raw uses too.
const LEASE_MS: u64 = 30_000;
const TOKEN_TTL_MS: u64 = 24 * 60 * 60 * 1000;
const WAITER_MS: u64 = 5_000;
const ONCE_MS: u64 = 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Primitive {
    Mutex,
    Fair,
    Read,
    Write,
    /// With one permit.
    Semaphore,
    Counting,
    /// Acquired: set to one. Released: counted down.
    Latch,
}

impl Primitive {
    const ALL: [Self; 7] = [
        Self::Mutex,
        Self::Fair,
        Self::Read,
        Self::Write,
        Self::Semaphore,
        Self::Counting,
        Self::Latch,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mutex => "plain lock",
            Self::Fair => "fair lock",
            Self::Read => "read lock",
            Self::Write => "write lock",
            Self::Semaphore => "semaphore of 1",
            Self::Counting => "counting semaphore of 1",
            Self::Latch => "latch",
        }
    }

    pub(crate) fn parse(name: &str) -> Self {
        Self::ALL.into_iter().find(|primitive| primitive.name() == name).expect("a primitive")
    }

    /// Writes what Redis must contain before the first acquire.
    pub(crate) fn prepare(self, client: &LockClient, name: &str) {
        let set = match self {
            Self::Semaphore => client.semaphore(name).try_set_permits(1).map(drop),
            Self::Counting => client.counting_semaphore(name).try_set_permits(1).map(drop),
            _ => return,
        };
        set.expect("the private server answers");
    }

    fn sources(self) -> [&'static str; 2] {
        match self {
            Self::Mutex => [script("mutex_acquire"), script("mutex_release")],
            Self::Fair => [script("fair_acquire"), script("fair_release")],
            Self::Read => [script("read_acquire"), script("rw_release")],
            Self::Write => [script("write_acquire"), script("rw_release")],
            Self::Semaphore => [script("permit_acquire"), script("permit_release")],
            Self::Counting => [script("count_acquire"), script("count_release")],
            Self::Latch => [script("count_set"), script("latch_count_down")],
        }
    }

    fn channel(self, name: &str, holder: &str) -> String {
        match self {
            Self::Mutex => format!("redisson_lock__channel:{{{name}}}"),
            Self::Fair => format!("redisson_lock__channel:{{{name}}}:{holder}"),
            Self::Read | Self::Write => format!("redisson_rwlock:{{{name}}}"),
            Self::Semaphore | Self::Counting => format!("redisson_sc:{{{name}}}"),
            Self::Latch => format!("redisson_countdownlatch__channel__{{{name}}}"),
        }
    }
}

// ---- leasehold
// -----------------------------------------------------------------------------------------------------

/// A handle, kept as in a program.
pub(crate) enum Ours {
    /// Uses the shortcut, without a handle.
    Mutex(LockClient, String),
    Fair(FairMutex),
    Read(RwLock),
    Write(RwLock),
    Semaphore(Semaphore),
    Counting(CountingSemaphore),
    Latch(CountDownLatch),
}

pub(crate) enum Grip<'a> {
    Mutex(ReentrantMutexGuard),
    Fair(FairMutexGuard),
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
    Permit(SemaphorePermit),
    Counted(CountingPermit),
    Set(&'a CountDownLatch),
    /// A latch whose wait has ended.
    Open,
}

impl Ours {
    pub(crate) fn new(primitive: Primitive, client: &LockClient, name: &str) -> Self {
        primitive.prepare(client, name);
        match primitive {
            Primitive::Mutex => Self::Mutex(client.clone(), name.to_owned()),
            Primitive::Fair => Self::Fair(client.fair(name)),
            Primitive::Read => Self::Read(client.rw_lock(name)),
            Primitive::Write => Self::Write(client.rw_lock(name)),
            Primitive::Semaphore => Self::Semaphore(client.semaphore(name)),
            Primitive::Counting => Self::Counting(client.counting_semaphore(name)),
            Primitive::Latch => Self::Latch(client.latch(name)),
        }
    }

    pub(crate) fn take(&self) -> Grip<'_> {
        let taken = match self {
            Self::Mutex(client, name) => client.lock(name).map(Grip::Mutex),
            Self::Fair(lock) => lock.lock().map(Grip::Fair),
            Self::Read(lock) => lock.read().map(Grip::Read),
            Self::Write(lock) => lock.write().map(Grip::Write),
            Self::Semaphore(semaphore) => semaphore.acquire().map(Grip::Permit),
            Self::Counting(semaphore) => semaphore.acquire().map(Grip::Counted),
            Self::Latch(latch) => latch.set_count(1).map(|()| Grip::Set(latch)),
        };
        taken.expect("the private server answers")
    }

    /// Acquires it; waits, if it is a latch.
    pub(crate) fn wait(&self) -> Grip<'_> {
        match self {
            Self::Latch(latch) => {
                latch.wait().map(|()| Grip::Open).expect("the private server answers")
            }
            _ => self.take(),
        }
    }

    pub(crate) fn once(&self, granted: &mut dyn FnMut()) {
        let grip = self.take();
        granted();
        grip.give_back();
    }
}

impl Grip<'_> {
    pub(crate) fn give_back(self) {
        let given = match self {
            Self::Mutex(guard) => guard.unlock(),
            Self::Fair(guard) => guard.unlock(),
            Self::Read(guard) => guard.unlock(),
            Self::Write(guard) => guard.unlock(),
            Self::Permit(permit) => permit.release(),
            Self::Counted(permit) => permit.release(),
            Self::Set(latch) => latch.count_down().map(|left| assert_eq!(left, 0)),
            Self::Open => Ok(()),
        };
        given.expect("it was held");
    }

    /// 0 without a token.
    pub(crate) fn token(&self) -> u64 {
        let token = match self {
            Self::Mutex(guard) => guard.fencing_token().ok(),
            Self::Fair(guard) => guard.fencing_token().ok(),
            Self::Write(guard) => guard.fencing_token().ok(),
            _ => None,
        };
        token.map_or(0, |token| token.get())
    }
}

// ---- raw
// -----------------------------------------------------------------------------------------------------------

/// The two scripts on a connection of its own, without any other work.
pub(crate) struct Raw {
    primitive: Primitive,
    connection: redis::Connection,
    acquire: Packed,
    release: Packed,
    /// The request of a latch's waiter.
    look: Vec<u8>,
    channel: String,
    /// Numbers the requests that must not reuse an earlier id.
    requests: u64,
}

/// A request that is sent many times. If the server would mistake it for a repeat, its number is
/// overwritten each time.
struct Packed {
    bytes: Vec<u8>,
    number_at: Option<usize>,
}

const NO_NUMBER: &str = "#00000000000000#";

impl Packed {
    fn new(sha: &str, keys: &[String], args: Vec<Vec<u8>>) -> Self {
        let bytes =
            redis::cmd("EVALSHA").arg(sha).arg(keys.len()).arg(keys).arg(args).get_packed_command();
        let number_at =
            bytes.windows(NO_NUMBER.len()).position(|window| window == NO_NUMBER.as_bytes());
        Self { bytes, number_at }
    }

    fn numbered(&mut self, number: u64) -> &[u8] {
        if let Some(at) = self.number_at {
            let mut left = number;
            for digit in self.bytes[at..at + NO_NUMBER.len()].iter_mut().rev() {
                *digit = b'0' + (left % 10) as u8;
                left /= 10;
            }
        }
        &self.bytes
    }
}

impl Raw {
    pub(crate) fn new(primitive: Primitive, url: &str, name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut connection = connect(url);
        let mut load = |source: &str| -> String {
            redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(source)
                .query(&mut connection)
                .expect("the script is loaded")
        };
        let [acquire, release] = primitive.sources().map(&mut load);
        let (seconds, fraction): (u64, u64) =
            redis::cmd("TIME").query(&mut connection).expect("TIME");
        // The ids are as long as leasehold's.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // The last six digits of a client id are its `waiter_timeout`.
        let client =
            format!("{:08x}-0000-8000-8000-{number:06x}{WAITER_MS:06x}", std::process::id());
        let holder = format!("{client}:1");
        let mut permit = std::process::id().to_be_bytes().to_vec();
        permit.extend(number.to_be_bytes());

        let tag = format!("{{{name}}}");
        let [lock, token] = [name.to_owned(), format!("redisson_lock_token:{tag}")];
        let [queue, deadlines] =
            [format!("redisson_lock_queue:{tag}"), format!("redisson_lock_timeout:{tag}")];
        let [marker, leases] = [format!("leasehold_writer:{tag}"), format!("{tag}:timeout")];
        let once = format!("leasehold_once:{tag}:{client}:{NO_NUMBER}");
        let channel = primitive.channel(name, &holder);
        let release_channel = primitive.channel(name, "");
        let release_channel = release_channel.trim_end_matches(':');
        let floor = seconds * 1_000_000 + fraction;

        macro_rules! args {
            ($($arg:expr),*) => { vec![$(ToString::to_string(&$arg).into_bytes()),*] };
        }
        let with_permit = |mut args: Vec<Vec<u8>>| {
            args.insert(0, permit.clone());
            args
        };
        let (acquire, release) = match primitive {
            Primitive::Mutex => (
                Packed::new(
                    &acquire,
                    &[lock.clone(), token],
                    args![holder, LEASE_MS, 0, TOKEN_TTL_MS, 1, floor, 0],
                ),
                Packed::new(&release, &[lock], args![holder, 1, release_channel]),
            ),
            Primitive::Fair => (
                Packed::new(
                    &acquire,
                    &[lock.clone(), queue.clone(), deadlines.clone(), token],
                    args![
                        holder,
                        LEASE_MS,
                        0,
                        TOKEN_TTL_MS,
                        WAITER_MS,
                        0,
                        300_000,
                        release_channel,
                        floor,
                        0
                    ],
                ),
                Packed::new(&release, &[lock, queue, deadlines], args![holder, 1, release_channel]),
            ),
            Primitive::Read => (
                Packed::new(
                    &acquire,
                    &[lock.clone(), marker.clone()],
                    args![holder, LEASE_MS, 0, tag, 0],
                ),
                Packed::new(&release, &[lock, marker], args![holder, 0, 0, release_channel, tag]),
            ),
            Primitive::Write => (
                Packed::new(
                    &acquire,
                    &[lock.clone(), token, marker.clone()],
                    args![holder, LEASE_MS, 0, TOKEN_TTL_MS, WAITER_MS, floor, 0],
                ),
                Packed::new(&release, &[lock, marker], args![holder, 0, 0, release_channel, tag]),
            ),
            Primitive::Semaphore => (
                Packed::new(
                    &acquire,
                    &[lock.clone(), leases.clone()],
                    with_permit(args![1, LEASE_MS, release_channel, 0]),
                ),
                Packed::new(&release, &[lock, leases], with_permit(args![1, release_channel])),
            ),
            Primitive::Counting => (
                Packed::new(&acquire, &[lock.clone(), once.clone()], args![1, ONCE_MS, 0]),
                Packed::new(&release, &[lock, once], args![1, ONCE_MS, release_channel, 1]),
            ),
            Primitive::Latch => (
                Packed::new(
                    &acquire,
                    &[lock.clone(), once.clone()],
                    args![1, ONCE_MS, release_channel, 1, 0],
                ),
                Packed::new(
                    &release,
                    &[lock, once, format!("leasehold_once:{tag}:opened")],
                    args![ONCE_MS, release_channel, 0],
                ),
            ),
        };
        let look = redis::cmd("GET").arg(name).get_packed_command();
        Self { primitive, connection, acquire, release, look, channel, requests: 0 }
    }

    /// The channel of the release message.
    pub(crate) fn channel(&self) -> &str {
        &self.channel
    }

    pub(crate) fn try_acquire(&mut self) -> bool {
        self.requests += 1;
        let request = self.acquire.numbered(self.requests);
        self.connection.send_packed_command(request).expect("the private server answers");
        first_number(self.connection.recv_response()) == 1
    }

    /// For a latch: whether it is open; otherwise tries to acquire.
    pub(crate) fn try_wait(&mut self) -> bool {
        if self.primitive != Primitive::Latch {
            return self.try_acquire();
        }
        self.connection.send_packed_command(&self.look).expect("the private server answers");
        self.connection.recv_response().expect("an answer") == redis::Value::Nil
    }

    pub(crate) fn release(&mut self) {
        // Each change of a latch has its own idempotency key; the release of a permit reuses that
        // of its acquire.
        self.requests += u64::from(self.primitive == Primitive::Latch);
        let request = self.release.numbered(self.requests);
        self.connection.send_packed_command(request).expect("the private server answers");
        assert_ne!(first_number(self.connection.recv_response()), 0, "it was held");
    }

    pub(crate) fn ping(&mut self) -> Duration {
        let sent = Instant::now();
        self.connection
            .send_packed_command(b"*1\r\n$4\r\nPING\r\n")
            .expect("the private server answers");
        self.connection.recv_response().expect("PONG");
        sent.elapsed()
    }

    pub(crate) fn cycle(&mut self) {
        assert!(self.try_acquire(), "nobody else uses it");
        self.release();
    }

    /// Polls without a pause, like handwritten locks.
    pub(crate) fn poll(&mut self, granted: &mut dyn FnMut()) {
        while !self.try_acquire() {}
        granted();
        self.release();
    }
}

fn first_number(reply: redis::RedisResult<redis::Value>) -> i64 {
    match reply {
        Ok(redis::Value::Array(parts)) if matches!(parts.first(), Some(redis::Value::Int(_))) => {
            let redis::Value::Int(n) = parts[0] else { unreachable!() };
            n
        }
        other => panic!("a script answered {other:?}"),
    }
}
