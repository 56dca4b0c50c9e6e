//! Lists what is in the store, whoever holds it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::holder::{Known, LockHolder, Lookups, all_announced, rough};
use super::stats::shortened;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::glob::Glob;
use crate::base::job_name::JobName;
use crate::base::lock_name::{Kind, LockName};
use crate::base::primitive::Primitive;
use crate::fencing::FencingToken;
use crate::report::owner::HolderOwner;
use crate::store::{Found, FoundWaiter, NameFilter};
use crate::wait::client_state::ClientState;

/// Maximum number of places in a queue, from the front, whose owners are queried.
const MOST_WAITERS: usize = 16;
/// Maximum number of other clients that are queried for a whole list.
const MOST_LOOKUPS: usize = 256;

/// One use of a name: a lock, a semaphore, a latch or, of a [`LockReport`], a rate limiter. Made by
/// [`LockClient::locks`](crate::LockClient::locks) and as a part of a [`LockReport`].
///
/// `Display` writes one line: `"report" mutex held by billing-7 (pid 4711 on host-a) for 12 s, its
/// lease ends in 21 s; 3 wait`.
///
/// [As JSON](crate::observe#as-json) it is an object with `name`, `kind`, `holders`, `unlisted`
/// (how many of [`taken`](Self::taken) are not among the holders), `remaining_ms`, `waiting`,
/// `permits` (for a semaphore or a rate limiter, an object with `free` and `taken`, which is `null`
/// for a counting semaphore), `left_to_count` (for a latch), `masters` (an object with `on` and
/// `of`) and `last_token`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockSummary {
    pub(super) name: String,
    pub(super) primitive: Primitive,
    pub(super) holders: Vec<LockHolder>,
    pub(super) unlisted: u64,
    pub(super) waiting: Option<u64>,
    pub(super) number: Option<i64>,
    pub(super) masters: Option<(u32, u32)>,
    pub(super) last_token: Option<FencingToken>,
}

/// What the clients of this library announce that they hold, and what is waited for. Made by
/// [`LockClient::announced_locks`](crate::LockClient::announced_locks).
///
/// [As JSON](crate::observe#as-json) it is an object with `locks` and `unlisted`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnnouncedLocks {
    pub(super) locks: Vec<LockSummary>,
    pub(super) unlisted: u64,
}

impl AnnouncedLocks {
    /// Sorted by name.
    #[must_use]
    pub fn locks(&self) -> &[LockSummary] {
        &self.locks
    }

    /// How many holds have no room in the announcements of their clients: if a client holds many,
    /// those that it took last. [`locks`](crate::LockClient::locks) finds them.
    #[must_use]
    pub fn unlisted(&self) -> u64 {
        self.unlisted
    }
}

/// A waiter in the queue of a lock, part of a [`LockReport`].
///
/// `Display` writes it as `billing-8 (pid 4712 on host-b)`, or as its id if the owner is not known.
///
/// [As JSON](crate::observe#as-json) it is an object with `id`, `place_ends_in_ms`, `owner` and
/// `this_client`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockWaiter {
    pub(super) id: String,
    pub(super) remaining: Option<Duration>,
    pub(super) is_this_client: bool,
    pub(super) owner: Option<HolderOwner>,
}

/// Everything under one name. Made by [`LockClient::inspect`](crate::LockClient::inspect).
///
/// `Display` writes several lines, for a terminal.
///
/// [As JSON](crate::observe#as-json) it is an object with `name`, `locks`, `queue`, `number` and
/// `last_token`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockReport {
    pub(super) name: String,
    pub(super) locks: Vec<LockSummary>,
    pub(super) queue: Vec<LockWaiter>,
    pub(super) number: Option<i64>,
    pub(super) last_token: Option<FencingToken>,
}

impl LockSummary {
    /// `None` for a number whose kind nothing shows.
    fn of(lookups: &mut Lookups<'_>, name: &str, found: &Found) -> Option<Self> {
        Some(Self {
            name: name.to_owned(),
            primitive: found.kind?.into(),
            holders: lookups.holders(&found.key, found.holders.clone(), &found.owners),
            unlisted: found.unlisted,
            waiting: found.waiting,
            number: found.number,
            masters: found.masters,
            last_token: found.token.map(FencingToken::new),
        })
    }

    /// The name, without the [prefix](crate::Builder::key_prefix) of the client.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the name is used for. A fair lock shows as [`Mutex`](Primitive::Mutex) while nobody
    /// waits for it, and with ZooKeeper always, because the two look the same in the store. The
    /// locks of a multi-lock are each a `Mutex`. A read-write lock shows as
    /// [`Write`](Primitive::Write) or [`Read`](Primitive::Read), depending on how it is held.
    #[must_use]
    pub fn primitive(&self) -> Primitive {
        self.primitive
    }

    /// The holders, in no order; at most 1000, while [`taken`](Self::taken) counts all. A semaphore
    /// has one entry for each acquisition: its [id](LockHolder::id) is that of its
    /// [`PermitId`](crate::PermitId), or Java's id of one permit, and its [hold
    /// count](LockHolder::hold_count) is the number of its permits; its owner is known if the
    /// client announces it. Empty for latches, counting semaphores and rate limiters, which nobody
    /// holds, and for a free lock.
    #[must_use]
    pub fn holders(&self) -> &[LockHolder] {
        &self.holders
    }

    /// The time until the last of its holders loses it unless it is renewed. `None` without
    /// holders, for a hold that never expires, and with ZooKeeper, where holds end with sessions.
    /// With more than 1000 readers, only those that are listed count.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let all: Option<Vec<Duration>> = self.holders.iter().map(LockHolder::remaining).collect();
        all?.into_iter().max()
    }

    /// How many wait, as far as the store knows: for fair locks, and with ZooKeeper for all locks,
    /// the length of the queue. For the others, if releases go over channels whose subscribers can
    /// be counted ([`locks`](crate::LockClient::locks) says where), it is the number of subscribed
    /// clients, in any language: threads of one client count as one, and a client that has stopped
    /// waiting counts for a second more. Elsewhere, for a read-write lock, 1 means that writers
    /// wait, however many.
    #[must_use]
    pub fn waiting(&self) -> Option<u64> {
        self.waiting
    }

    /// How many permits of a semaphore or a rate limiter are free, or the remaining count of a
    /// latch.
    #[must_use]
    pub fn number(&self) -> Option<i64> {
        self.number
    }

    /// For a semaphore, the number of permits that are taken; for a counting semaphore always 0,
    /// because no store knows it; for anything else, the number of holders. Those that are not
    /// listed count too.
    #[must_use]
    pub fn taken(&self) -> u64 {
        let listed = match self.primitive {
            Primitive::Semaphore => {
                self.holders.iter().map(|holder| u64::from(holder.hold_count())).sum()
            }
            _ => self.holders.len() as u64,
        };
        listed.saturating_add(self.unlisted)
    }

    /// The last fencing token that was issued for the name, like [`LockReport::last_token`]. It
    /// grows by one for each grant, and by more where a client draws some for its threads in
    /// advance.
    #[must_use]
    pub fn last_token(&self) -> Option<FencingToken> {
        self.last_token
    }

    /// With [several masters](crate::guide::redlock): how many of them have it, and how many there
    /// are. On fewer than a majority it is not a lock but the rest of one, which ends with its
    /// lease.
    #[must_use]
    pub fn masters(&self) -> Option<(u32, u32)> {
        self.masters
    }

    fn write_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.primitive, self.number) {
            (Primitive::Latch, Some(left)) => write!(f, " {left} left to count")?,
            (Primitive::Semaphore | Primitive::RateLimiter, Some(free)) => {
                write!(f, " {free} free, {} taken", self.taken())?;
            }
            (_, Some(free)) => write!(f, " {free} free")?,
            (_, None) if self.holders.is_empty() => write!(f, " free")?,
            (_, None) => {}
        }
        if let Some((masters, all)) = self.masters {
            write!(f, " (on {masters} of {all} masters)")?;
        }
        Ok(())
    }
}

impl fmt::Display for LockSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" {}", shortened(&self.name, 60), self.primitive)?;
        if let (Some(first), None) = (self.holders.first(), self.number) {
            write!(f, " {first}")?;
            if self.taken() > 1 {
                write!(f, ", and {} more", self.taken() - 1)?;
            }
        }
        self.write_rest(f)?;
        match self.waiting {
            None | Some(0) => Ok(()),
            Some(1) if self.primitive == Primitive::Read => write!(f, "; a writer waits"),
            Some(waiting) => write!(f, "; {waiting} wait"),
        }
    }
}

impl LockWaiter {
    fn of(client: &ClientState, waiter: FoundWaiter, known: Known) -> Self {
        let FoundWaiter { id, left } = waiter;
        Self { is_this_client: client.who.id.owns(&id), owner: known.owner, remaining: left, id }
    }

    /// The holder id that it will have, like [`LockHolder::id`].
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The time until its place expires unless it is renewed, as a living waiter does: zero for a
    /// dead one. `None` with ZooKeeper, where the place ends with the session.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// Whether the waiter is the client that made the query.
    #[must_use]
    pub fn is_this_client(&self) -> bool {
        self.is_this_client
    }

    /// The owner that it announces, like [`LockHolder::owner`]. A client that holds nothing
    /// announces it while it waits, if it has a [label](crate::Builder::owner). Queried for the
    /// first 16 waiters of the queue.
    #[must_use]
    pub fn owner(&self) -> Option<&HolderOwner> {
        self.owner.as_ref()
    }
}

impl fmt::Display for LockWaiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Some(owner) => write!(f, "{owner}")?,
            None => write!(f, "{}", shortened(&self.id, 80))?,
        }
        match self.remaining {
            Some(Duration::ZERO) => write!(f, ", silent for so long that its place has expired"),
            Some(remaining) => write!(f, ", its place ends in {}", rough(remaining)),
            None => Ok(()),
        }
    }
}

impl LockReport {
    /// The name that was queried.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the name is used for, usually one entry. Empty for a [number](Self::number) whose kind
    /// nothing shows.
    #[must_use]
    pub fn locks(&self) -> &[LockSummary] {
        &self.locks
    }

    /// The waiters, the next one first; at most 1000, as far as the store
    /// [knows](LockSummary::waiting) them.
    #[must_use]
    pub fn queue(&self) -> &[LockWaiter] {
        &self.queue
    }

    /// A plain number under the name: the remaining count of a latch, the free permits of a
    /// counting semaphore or of a semaphore of which none is taken, or a number of another program.
    /// Nothing in the store shows which; the programs that use the name know.
    #[must_use]
    pub fn number(&self) -> Option<i64> {
        self.number
    }

    /// The last fencing token that was issued for the name, even if its holder no longer has the
    /// lock. `None` if none was issued, and with several masters. ZooKeeper and the store in memory
    /// keep no counter for each name: there it is the token of the present holder, if that has
    /// [data](crate::ReentrantMutex::with_data). It may be ahead of the holder's, but not of one
    /// with data:
    /// [`keep_token`](crate::ReentrantMutex::keep_token) says why.
    #[must_use]
    pub fn last_token(&self) -> Option<FencingToken> {
        self.last_token
    }
}

impl fmt::Display for LockReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", shortened(&self.name, 60))?;
        if let Some(number) = self.number {
            write!(
                f,
                "\n  the number {number} of a latch or a semaphore: nothing in the store shows which"
            )?;
        }
        for lock in &self.locks {
            write!(f, "\n  {}", lock.primitive)?;
            lock.write_rest(f)?;
            for holder in &lock.holders {
                write!(f, "\n    {holder}")?;
                if holder.hold_count() > 1 {
                    write!(f, " (x{})", holder.hold_count())?;
                }
            }
            if lock.unlisted > 0 {
                write!(f, "\n    and {} more", lock.unlisted)?;
            }
            match lock.waiting {
                Some(1) if lock.primitive == Primitive::Read => write!(f, "\n    a writer waits")?,
                Some(waiting @ 1..) => write!(f, "\n    {waiting} wait")?,
                _ => {}
            }
        }
        for (place, waiter) in self.queue.iter().enumerate() {
            write!(f, "\n    {}. {waiter}", place + 1)?;
        }
        self.last_token.map_or(Ok(()), |token| write!(f, "\n  last fencing token {}", token.get()))
    }
}

/// What [`LockClient::locks`](crate::LockClient::locks) does.
pub(crate) fn locks(client: &Arc<ClientState>, pattern: &str) -> Result<Vec<LockSummary>> {
    client.check_usable()?;
    let wanted =
        NameFilter { prefix: client.config.key_prefix.to_string(), pattern: Glob::parse(pattern)? };
    let found = client.store.listing().list(&wanted)?;
    let mut lookups = Lookups::new(client, MOST_LOOKUPS);
    let summary = |one: &Found| LockSummary::of(&mut lookups, wanted.name_of(&one.key)?, one);
    Ok(found.iter().filter_map(summary).collect())
}

/// What [`LockClient::announced_locks`](crate::LockClient::announced_locks) does.
pub(crate) fn announced_locks(client: &Arc<ClientState>, pattern: &str) -> Result<AnnouncedLocks> {
    client.check_usable()?;
    let wanted =
        NameFilter { prefix: client.config.key_prefix.to_string(), pattern: Glob::parse(pattern)? };
    let clients = client.store.owners().map(all_announced).transpose()?.unwrap_or_default();
    let holds = clients.iter().flat_map(|(_, announcement, _)| &announcement.holds);
    let keys: BTreeSet<String> = holds.map(|hold| hold.key.clone()).collect();
    let unlisted = clients.iter().map(|(_, announcement, _)| announcement.unlisted);
    // Each is what another client has written.
    let unlisted = unlisted.fold(0, u64::saturating_add);
    let found = client.store.listing().list_named(&wanted, &keys)?;
    let mut lookups = Lookups::new(client, MOST_LOOKUPS);
    if client.config.owner.is_some() {
        lookups.knows(clients);
    }
    let summary = |one: &Found| LockSummary::of(&mut lookups, wanted.name_of(&one.key)?, one);
    Ok(AnnouncedLocks { locks: found.iter().filter_map(summary).collect(), unlisted })
}

/// What is under the name. To a look at locks a rate limiter is something else, as a hash of an
/// application is: only its own question knows it.
fn look_at(client: &ClientState, name: &LockName) -> Result<Vec<Found>> {
    let looked = client.store.listing().look_at(name);
    let is_something_else = |e: &Error| e.kind() == ErrorKind::WrongType;
    let Ok(rates) = client.store.rates() else { return looked };
    if !looked.as_ref().is_err_and(is_something_else) {
        return looked;
    }
    match rates.rate_of(name) {
        Ok(Some((rate, free))) => {
            let taken = i64::try_from(rate.permits).unwrap_or(i64::MAX).saturating_sub(free);
            let unlisted = u64::try_from(taken).unwrap_or(0);
            let limiter = Found::new(&name.key, Kind::RateLimiter);
            Ok(vec![Found { number: Some(free), unlisted, ..limiter }])
        }
        Ok(None) => looked,
        Err(e) if is_something_else(&e) => looked,
        // The store does not answer any more, or it is a limiter of Java with a rate per client.
        Err(e) => Err(e),
    }
}

/// The lease of the job with this name, which has a key of its own. There is none with some names
/// that a lock may have.
fn look_at_job(client: &ClientState, name: &LockName) -> Result<Vec<Found>> {
    match client.store.jobs().and_then(|_| JobName::new(name, "any")) {
        Ok(job) => client.store.listing().look_at(&job.lease),
        Err(_) => Ok(Vec::new()),
    }
}

/// What [`LockClient::inspect`](crate::LockClient::inspect) does.
pub(crate) fn inspect(client: &Arc<ClientState>, name: &str) -> Result<Option<LockReport>> {
    let for_name = |e: Error| e.for_name(name);
    client.check_usable().map_err(for_name)?;
    let lock_name = LockName::new(&client.config.key_prefix, name, Kind::Mutex)?;
    client.store.check(&lock_name).map_err(for_name)?;
    let mut found = look_at(client, &lock_name).map_err(for_name)?;
    if found.is_empty() {
        found = look_at_job(client, &lock_name).map_err(for_name)?;
    }
    if found.is_empty() {
        return Ok(None);
    }
    let mut lookups = Lookups::new(client, MOST_LOOKUPS);
    let mut report = LockReport {
        name: name.to_owned(),
        locks: Vec::new(),
        queue: Vec::new(),
        number: found.iter().filter(|one| one.kind.is_none()).find_map(|one| one.number),
        last_token: found.iter().find_map(|one| one.token).map(FencingToken::new),
    };
    for one in &found {
        report.locks.extend(LockSummary::of(&mut lookups, name, one));
        for (place, waiter) in one.queue.iter().cloned().enumerate() {
            let known = if place < MOST_WAITERS {
                lookups.known_of(&waiter.id, &one.owners)
            } else {
                Known::default()
            };
            report.queue.push(LockWaiter::of(client, waiter, known));
        }
    }
    Ok(Some(report))
}
