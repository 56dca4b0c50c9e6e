//! Who leads, for those who follow.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::primitive::Primitive;
use crate::fencing::FencingToken;
use crate::observe::{self, LockHolder};
use crate::signal::cancel::{CancelToken, Waking, cancelled};
use crate::sync::handle::Handle;

/// Who leads: who, with what data, in which term, from one look at the store. Made by
/// [`Election::leader`](crate::Election::leader) and [`watch`](crate::Election::watch).
///
/// It may be out of date when it is read. A receiver of a leader's requests compares their terms,
/// and refuses a lower one than it has seen.
///
/// `Display` writes it for a log, as [`LockHolder`] does, with the term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    holder: LockHolder,
    term: Option<FencingToken>,
}

impl Leader {
    pub(super) fn of(handle: &Handle) -> Result<Option<Self>> {
        let name = &handle.usable()?.name;
        let client = &handle.client;
        // A store without data has no elections, and would show the holder of a plain lock.
        client.store.data().map_err(|e| e.for_name(name))?;
        let Some(report) = observe::inspect(client, name)? else { return Ok(None) };
        let is_lock = |kind| matches!(kind, Primitive::Mutex | Primitive::Fair);
        let mut locks = report.locks().iter().filter(|lock| is_lock(lock.primitive()));
        let holder = locks.find_map(|lock| lock.holders().first());
        let leader = holder.filter(|holder| !holder.is_kept()).cloned().map(|holder| {
            // Whoever stands for election has data, and its token comes with it.
            let term = holder.data().and(report.last_token());
            Self { holder, term }
        });
        Ok(leader)
    }

    /// The holder of the lock: its owner, id, data and lease.
    #[must_use]
    pub fn holder(&self) -> &LockHolder {
        &self.holder
    }

    /// What the leader has written for others: [`with_data`](crate::Election::with_data). Empty for
    /// one that does not stand for election.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.holder.data().unwrap_or_default()
    }

    /// The number of its term; `None` for one that does not stand for election, such as a client of
    /// Java.
    #[must_use]
    pub fn term(&self) -> Option<FencingToken> {
        self.term
    }

    /// Whether the same holder leads with the same data.
    fn is_as(&self, other: &Self) -> bool {
        self.holder.id() == other.holder.id() && self.data() == other.data()
    }
}

impl fmt::Display for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.holder)?;
        match self.term {
            Some(term) => write!(f, ", in the term {term}"),
            None => Ok(()),
        }
    }
}

/// The leaders of an election, one after the other: see
/// [`Election::watch`](crate::Election::watch).
#[derive(Debug)]
#[must_use = "it looks only when it is asked for the next leader"]
pub struct LeaderWatch {
    handle: Handle,
    /// Cancelled when the watch has to end.
    stops: CancelToken,
    /// What was seen last; `None` before the first look.
    seen: Option<Option<Leader>>,
    highest: Option<FencingToken>,
    /// Whether the last item was an error.
    has_failed: bool,
    is_over: bool,
}

impl LeaderWatch {
    pub(super) fn new(handle: Handle) -> Self {
        let client = &handle.client;
        // A child process must not wait for a mutex that a thread of its parent had locked.
        let stops =
            if client.is_forked() { CancelToken::new() } else { client.life.stops().child() };
        Self { handle, stops, seen: None, highest: None, has_failed: false, is_over: false }
    }

    /// Pauses, unless it has to end.
    fn pause(&self) -> Result<()> {
        let lease = self.handle.client.config.lease;
        let pause = (lease / 3).min(Duration::from_secs(10));
        if self.seen.is_some() || self.has_failed {
            let _by_token = self.by_token();
            let _ = self.stops.wait_timeout(pause);
        }
        self.ensure_goes_on()
    }

    fn by_token(&self) -> Option<Waking<'_>> {
        let token = self.handle.terms.cancel.as_ref();
        token.map(|token| token.wakes(Arc::new(self.stops.clone())))
    }

    fn ensure_goes_on(&self) -> Result<()> {
        let handle = &self.handle;
        handle.client.check_usable()?;
        let is_cancelled = handle.terms.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
        let waits = handle.client.life.ensure_waits();
        waits.and_then(|()| if is_cancelled { Err(cancelled()) } else { Ok(()) })
    }

    /// Whether this is news, and not from before what was seen.
    fn is_new(&self, leader: Option<&Leader>) -> bool {
        if leader.is_some_and(|leader| leader.term.is_some() && leader.term < self.highest) {
            return false;
        }
        match (&self.seen, leader) {
            (Some(Some(seen)), Some(leader)) => !seen.is_as(leader),
            (Some(seen), leader) => seen.is_some() != leader.is_some(),
            (None, _) => true,
        }
    }

    fn next_change(&mut self) -> Result<Option<Leader>> {
        loop {
            self.pause().inspect_err(|_| self.is_over = true)?;
            let leader = Leader::of(&self.handle)?;
            if self.is_new(leader.as_ref()) {
                self.highest = self.highest.max(leader.as_ref().and_then(Leader::term));
                self.seen = Some(leader.clone());
                return Ok(leader);
            }
        }
    }
}

impl Iterator for LeaderWatch {
    /// `None` in it: nobody leads.
    type Item = Result<Option<Leader>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let name = self.handle.name().to_owned();
        let next = self.next_change().map_err(|e: Error| e.for_name(&name));
        self.has_failed = next.is_err();
        Some(next)
    }
}
