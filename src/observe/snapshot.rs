//! What a client does right now: its holds, its waits, and threads that wait for each other.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::stats::shortened;
use crate::base::lease::LeaseState;
use crate::base::lock_name::{Kind, LockName};
use crate::base::primitive::Primitive;
use crate::fencing::FencingToken;
use crate::lease::hold_table::OutstandingPermits;
use crate::lease::records::{Owner, Tenure};
use crate::os::{
    self, HashMap,
    thread::{Thread, ThreadId},
};
use crate::wait::client_state::ClientState;
use crate::wait::waits::ListedWait;

/// Maximum number of holds, and of waits, that `Display` writes.
const SHOWN: usize = 100;

/// What a client holds and what it waits for at one moment. Made by
/// [`LockClient::snapshot`](crate::LockClient::snapshot).
///
/// `Display` writes one line for each hold and each wait (100 of each at most), and one for each
/// cycle of threads that wait for each other: for a log, or for an operator who sends `SIGUSR1`.
/// See [`guide::operations`](crate::guide::operations#a-job-hangs).
///
/// [As JSON](crate::observe#as-json) it is an object with `client_name` and the lists `holds`,
/// `waits` and `deadlocks`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Snapshot {
    pub(super) client_name: String,
    pub(super) holds: Vec<HoldInfo>,
    pub(super) waits: Vec<WaitInfo>,
    pub(super) deadlocks: Vec<Deadlock>,
}

/// A thread of this program.
///
/// [As JSON](crate::observe#as-json) it is an object with `id`, as `Debug` writes it, such as
/// `ThreadId(7)`, and `name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadInfo {
    pub(super) id: ThreadId,
    pub(super) name: Option<String>,
}

/// One hold: part of a [`Snapshot`].
///
/// [As JSON](crate::observe#as-json) it is an object with `name`, `kind`, `hold_count`, `thread`,
/// `owned`, `held`, `held_for_ms`, `remaining_ms` and `fencing_token`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HoldInfo {
    pub(super) name: Arc<str>,
    pub(super) primitive: Primitive,
    pub(super) hold_count: u32,
    pub(super) thread: ThreadInfo,
    pub(super) owned: bool,
    pub(super) held_for: Duration,
    pub(super) left: Option<Duration>,
    pub(super) state: LeaseState,
    pub(super) token: Option<FencingToken>,
}

/// One call that waits: part of a [`Snapshot`].
///
/// [As JSON](crate::observe#as-json) it is an object with `name`, `kind`, `thread`, `waited_ms`,
/// `time_left_ms` and `blockers`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WaitInfo {
    pub(super) name: Arc<str>,
    pub(super) primitive: Primitive,
    pub(super) thread: ThreadInfo,
    pub(super) waited: Duration,
    pub(super) left: Option<Duration>,
    pub(super) holders: Vec<Blocker>,
}

/// A hold of this client that keeps a call waiting.
///
/// [As JSON](crate::observe#as-json) it is an object with `thread`, and whether the guard is
/// `owned`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blocker {
    /// This thread holds it, with a guard that cannot leave the thread.
    Thread(ThreadInfo),
    /// An owned guard holds it, which this thread acquired. Another thread may have the guard by
    /// now.
    OwnedGuard(ThreadInfo),
}

/// Threads of this client that wait for each other in a cycle: part of a [`Snapshot`].
///
/// It ends when one of the waits times out, or one of the leases ends.
///
/// [As JSON](crate::observe#as-json) it is an object with the list `waits`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Deadlock {
    pub(super) waits: Vec<WaitInfo>,
}

impl ThreadInfo {
    fn of(thread: &Thread) -> Self {
        Self { id: thread.id(), name: thread.name().map(str::to_owned) }
    }

    /// The id within the process.
    #[must_use]
    pub fn id(&self) -> ThreadId {
        self.id
    }

    /// The name, if the thread has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl fmt::Display for ThreadInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name:?} ({:?})", self.id),
            None => write!(f, "{:?}", self.id),
        }
    }
}

impl HoldInfo {
    fn of(tenure: &Tenure) -> Self {
        let name = tenure.lock_name();
        let counts = tenure.counts();
        Self {
            name: name.name.clone(),
            primitive: name.kind.into(),
            hold_count: counts.main.saturating_add(counts.reads),
            thread: ThreadInfo::of(&tenure.thread),
            owned: tenure.user.owner == Owner::Guard,
            held_for: tenure.held(),
            left: Some(tenure.remaining()),
            state: tenure.state(),
            token: (tenure.token > 0).then(|| FencingToken::new(tenure.token)),
        }
    }

    fn of_permits(permits: &OutstandingPermits, held_for: Duration) -> Self {
        Self {
            name: permits.name.name.clone(),
            primitive: permits.name.kind.into(),
            hold_count: permits.permits,
            thread: ThreadInfo::of(&permits.thread),
            owned: true,
            held_for,
            left: None,
            state: LeaseState::Held,
            token: None,
        }
    }

    /// The name, as the caller gave it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of lock.
    #[must_use]
    pub fn primitive(&self) -> Primitive {
        self.primitive
    }

    /// The hold count; for a counting semaphore, the number of permits.
    #[must_use]
    pub fn hold_count(&self) -> u32 {
        self.hold_count
    }

    /// The thread that took it; if it is [owned](Self::is_owned), its guard may have moved to
    /// another thread since.
    #[must_use]
    pub fn thread(&self) -> &ThreadInfo {
        &self.thread
    }

    /// Whether its guard can move between threads.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        self.owned
    }

    /// How long ago it was requested.
    #[must_use]
    pub fn held_for(&self) -> Duration {
        self.held_for
    }

    /// How long its lease lasts unless it is renewed; zero if it is over; `None` for permits
    /// without leases.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.left
    }

    /// Whether it is held: neither lost, nor being released.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.state, LeaseState::Held | LeaseState::Suspect)
    }

    /// Its fencing token, if it has one.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.token
    }
}

impl fmt::Display for HoldInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = shortened(&self.name, 60);
        let primitive = self.primitive;
        let count = self.hold_count;
        write!(f, "held    \"{name}\" {primitive}")?;
        if count > 1 {
            write!(f, " x{count}")?;
        }
        let how = if self.owned { "owned, taken by" } else { "by" };
        write!(f, " {how} {} for {:.1?}", self.thread, self.held_for)?;
        match (self.state, self.left) {
            (LeaseState::Held | LeaseState::Suspect, Some(left)) => {
                write!(f, ", lease ends in {left:.1?}")?;
            }
            (LeaseState::Held | LeaseState::Suspect, None) => write!(f, ", no lease")?,
            (LeaseState::Lost, _) => write!(f, ", LOST")?,
            (LeaseState::Released | LeaseState::Closed, _) => {
                write!(f, ", its release is under way")?;
            }
        }
        if self.state == LeaseState::Suspect {
            write!(f, " (its last renewal failed)")?;
        }
        self.token.map_or(Ok(()), |token| write!(f, ", token {}", token.get()))
    }
}

impl WaitInfo {
    fn of(wait: &ListedWait, now: Instant, holders: Vec<Blocker>) -> Self {
        Self {
            name: wait.name.name.clone(),
            primitive: wait.primitive,
            thread: ThreadInfo::of(&wait.thread),
            waited: now.saturating_duration_since(wait.since),
            left: wait.deadline.remaining(now),
            holders,
        }
    }

    /// The name that it waits for; for a multi-lock, the one that is taken.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of lock.
    #[must_use]
    pub fn primitive(&self) -> Primitive {
        self.primitive
    }

    /// The thread that waits.
    #[must_use]
    pub fn thread(&self) -> &ThreadInfo {
        &self.thread
    }

    /// How long it has waited since the lock was found taken.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How long it will still wait at most; `None` without a timeout.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.left
    }

    /// The holds of this client that block it. If there are none, another client blocks it, as far
    /// as this one knows; the method `holder` or `holders` of the lock queries the server for it.
    /// (For a semaphore, these are the permits of this client; other clients may have the rest.)
    #[must_use]
    pub fn blockers(&self) -> &[Blocker] {
        &self.holders
    }
}

impl fmt::Display for WaitInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = shortened(&self.name, 60);
        let primitive = self.primitive;
        write!(f, "waiting \"{name}\" {primitive} by {} for {:.1?}", self.thread, self.waited)?;
        match self.left {
            Some(left) => write!(f, ", gives up in {left:.1?}")?,
            None => write!(f, ", without a timeout")?,
        }
        match &self.holders[..] {
            [] if primitive == Primitive::Latch => write!(f, "; the latch is counting"),
            [] if matches!(primitive, Primitive::CountingSemaphore | Primitive::RateLimiter) => {
                write!(f, "; too few permits are free")
            }
            [] if primitive == Primitive::Once => write!(f, "; it is not done"),
            [] => write!(f, "; another client has it"),
            [first, rest @ ..] => {
                write!(f, "; held by {first}")?;
                if rest.is_empty() { Ok(()) } else { write!(f, " and {} more", rest.len()) }
            }
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(thread) => thread.fmt(f),
            Self::OwnedGuard(thread) => write!(f, "an owned guard that {thread} took"),
        }
    }
}

impl Deadlock {
    /// The waits in order: each waits for what the thread of the next one holds, and the last one
    /// for what the thread of the first one holds.
    #[must_use]
    pub fn waits(&self) -> &[WaitInfo] {
        &self.waits
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "deadlock: ")?;
        let next = self.waits.iter().cycle().skip(1);
        for (place, (wait, next)) in self.waits.iter().zip(next).enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(
                f,
                "{comma}{} waits for {} (\"{}\")",
                wait.thread,
                next.thread,
                shortened(&wait.name, 40)
            )?;
        }
        Ok(())
    }
}

impl Snapshot {
    pub(crate) fn of(client: &ClientState) -> Self {
        let client_name = client.who.client_name.clone();
        if client.is_forked() {
            return Self {
                client_name,
                holds: Vec::new(),
                waits: Vec::new(),
                deadlocks: Vec::new(),
            };
        }
        // Waits are read first: what a thread held when it began to wait, it holds while it waits.
        let waits = client.seen.waits.all();
        let now = os::now();
        let entries = client.holds.all();
        let permits: Vec<_> = client.holds.outstanding_permits.lock().values().cloned().collect();
        let mut holds: Vec<_> = entries.iter().map(|entry| HoldInfo::of(entry)).collect();
        let lease_now = client.clock.now();
        holds.extend(
            permits
                .iter()
                .map(|permits| HoldInfo::of_permits(permits, lease_now.since(permits.since))),
        );
        holds.sort_by_key(|hold| std::cmp::Reverse(hold.held_for));
        let in_the_way = |wait: &ListedWait| -> Vec<Blocker> {
            let own = entries
                .iter()
                .filter(|entry| is_in_the_way(entry, &wait.name))
                .map(|entry| blocker(entry));
            let without_lease = permits.iter().filter(|permits| permits.name.key == wait.name.key);
            own.chain(
                without_lease.map(|permits| Blocker::OwnedGuard(ThreadInfo::of(&permits.thread))),
            )
            .collect()
        };
        let waits: Vec<_> =
            waits.iter().map(|wait| WaitInfo::of(wait, now, in_the_way(wait))).collect();
        let deadlocks = circles(&waits);
        Self { client_name, holds, waits, deadlocks }
    }

    /// The name of the client, see [`Builder::client_name`](crate::Builder::client_name).
    #[must_use]
    pub fn client_name(&self) -> &str {
        &self.client_name
    }

    /// What the client holds, the oldest first; those of a multi-lock one by one.
    #[must_use]
    pub fn holds(&self) -> &[HoldInfo] {
        &self.holds
    }

    /// The calls that wait, the one that has waited longest first. A call is listed from the reply
    /// that the lock is taken until the call ends.
    #[must_use]
    pub fn waits(&self) -> &[WaitInfo] {
        &self.waits
    }

    /// Threads of this client that wait for each other: at least one cycle for each group of
    /// threads that are in any. Only guards that are bound to their threads count, because any
    /// thread may drop an owned guard; and cycles through other clients cannot be seen from here.
    #[must_use]
    pub fn deadlocks(&self) -> &[Deadlock] {
        &self.deadlocks
    }
}

fn blocker(entry: &Tenure) -> Blocker {
    let thread = ThreadInfo::of(&entry.thread);
    if entry.user.owner == Owner::Guard {
        Blocker::OwnedGuard(thread)
    } else {
        Blocker::Thread(thread)
    }
}

/// Whether a hold keeps a call for the name waiting.
fn is_in_the_way(entry: &Tenure, name: &LockName) -> bool {
    let held = entry.lock_name().kind;
    let excludes = match name.kind {
        Kind::Read => held == Kind::Write && entry.counts().main > 0,
        Kind::Write => matches!(held, Kind::Read | Kind::Write),
        Kind::Mutex | Kind::Fair => matches!(held, Kind::Mutex | Kind::Fair),
        kind => held == kind,
    };
    excludes
        && entry.lock_name().key == name.key
        && matches!(entry.state(), LeaseState::Held | LeaseState::Suspect)
}

/// Follows each wait to the threads that hold what it waits for.
fn circles(waits: &[WaitInfo]) -> Vec<Deadlock> {
    let by_thread: HashMap<ThreadId, usize> =
        waits.iter().enumerate().map(|(at, wait)| (wait.thread.id, at)).collect();
    let next = |at: usize| -> Vec<usize> {
        let bound = waits[at].holders.iter().filter_map(|holder| match holder {
            Blocker::Thread(thread) => by_thread.get(&thread.id).copied(),
            Blocker::OwnedGuard(_) => None,
        });
        bound.collect()
    };
    let mut found = Vec::new();
    let mut seen = vec![false; waits.len()];
    for start in 0..waits.len() {
        // A search in depth without recursion: a program may have thousands of threads.
        let mut path: Vec<(usize, Vec<usize>)> = Vec::new();
        if !std::mem::replace(&mut seen[start], true) {
            path.push((start, next(start)));
        }
        while let Some((_, open)) = path.last_mut() {
            let Some(to) = open.pop() else {
                path.pop();
                continue;
            };
            if let Some(begin) = path.iter().position(|(at, _)| *at == to) {
                found.push(Deadlock {
                    waits: path[begin..].iter().map(|(at, _)| waits[*at].clone()).collect(),
                });
            } else if !std::mem::replace(&mut seen[to], true) {
                path.push((to, next(to)));
            }
        }
    }
    found
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holds = self.holds.len();
        let waits = self.waits.len();
        writeln!(f, "client {}: {holds} held, {waits} waiting", shortened(&self.client_name, 40))?;
        self.deadlocks.iter().try_for_each(|deadlock| writeln!(f, "{deadlock}"))?;
        self.waits.iter().take(SHOWN).try_for_each(|wait| writeln!(f, "{wait}"))?;
        self.holds.iter().take(SHOWN).try_for_each(|hold| writeln!(f, "{hold}"))?;
        let more = waits.saturating_sub(SHOWN) + holds.saturating_sub(SHOWN);
        if more > 0 { writeln!(f, "and {more} more") } else { Ok(()) }
    }
}
