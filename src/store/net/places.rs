//! The places of a pool's connections, and who waits for one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batch::{Batch, QueuedRequest, RequestState, take_batch};
use super::callers::ALL;
use super::failure::Failure;
use super::pace::Pace;
use super::pooled::{PooledConnection, PooledConnector};
use crate::base::error::Error;
use crate::os::{self, MutexGuard};

/// The answers of a near server come sooner, unless it is stopped, busy with something long, or no
/// longer there.
pub(super) const LATE: Duration = Duration::from_millis(10);
/// How many writes wait behind the one whose answers are being read: the server has work when it
/// has answered that one. With more, callers that could share a write do not meet.
const MOST_BEHIND: usize = 1;

/// Invariant: while the queue is not empty, the first line that serves others is not idle, or one
/// is being made; whoever has it will serve the queue. A line may stop to serve others because its
/// answers are late, which nobody notes at that moment: who queues looks again after that time.
pub(super) struct PoolState<C: PooledConnector> {
    pub(super) lines: Vec<Line<C>>,
    /// How many lines there have been.
    numbers: u64,
    /// A place is reserved for a connection that is being made.
    pub(super) connecting: bool,
    /// Whether the connection that was made last carries requests behind each other: all of a
    /// server do, or none.
    pipelines: bool,
    pub(super) queue: VecDeque<Arc<QueuedRequest<C>>>,
    pub(super) pace: Pace,
    /// [`LATE`]; only tests change it.
    pub(super) late: Duration,
    pub(super) closed: bool,
}

/// A connection in its place: what of it no thread has at the moment, and the batches whose answers
/// are due.
pub(super) struct Line<C: PooledConnector> {
    pub(super) number: u64,
    /// `None` while a thread reads from it, or has it for itself.
    pub(super) connection: Option<C::Connection>,
    /// `None` while a thread writes behind others, or if the connection carries one write at a
    /// time.
    pub(super) sender: Option<C::Sender>,
    pipelines: bool,
    pub(super) phase: Phase,
    /// When the last answer came, or a thread took the connection; `None` while nobody has it.
    pub(super) waits_since: Option<Instant>,
    /// In the order of their answers.
    pub(super) flights: VecDeque<Batch<C>>,
}

/// What else may be sent over a line.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    /// Anything, by the thread that has the connection.
    Idle,
    /// Requests behind those that are under way.
    Open,
    /// Nothing before the answers that are due have come.
    Alone,
    /// Nothing any more.
    Ending,
}

impl<C: PooledConnector> Line<C> {
    pub(super) fn is_written_to(&self) -> bool {
        self.pipelines && self.sender.is_none()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.connection.is_some() && self.flights.is_empty() && !self.is_written_to()
    }

    /// A thread takes its connection.
    fn take(&mut self) -> Option<(u64, C::Connection)> {
        self.waits_since = Some(os::now());
        Some((self.number, self.connection.take()?))
    }

    /// The next batch whose answers are due.
    pub(super) fn next_flight(&mut self) -> Option<Batch<C>> {
        self.waits_since = Some(os::now());
        self.flights.pop_front()
    }

    /// Whether others may use it when, or before, the answers that are due have come. Not if they
    /// are late: a connection that was cut in silence must not hold up callers that need not use
    /// it.
    fn serves_others(&self, late: Duration) -> bool {
        let is_late = match self.waits_since {
            Some(since) => os::since(since) > late,
            None => false,
        };
        matches!(self.phase, Phase::Idle | Phase::Open) && !is_late
    }
}

/// Sends over a line while another thread reads from it.
pub(super) struct Follower<C: PooledConnector> {
    pub(super) line: u64,
    pub(super) sender: C::Sender,
}

/// Who makes a connection for which a place is reserved.
pub(super) enum Maker {
    /// A caller that has none to wait for.
    Caller,
    /// A thread of its own: the queue can be sent over another connection meanwhile.
    Aside,
}

impl<C: PooledConnector> PoolState<C> {
    pub(super) fn new(io_timeout: Duration) -> Self {
        Self {
            lines: Vec::new(),
            numbers: 0,
            connecting: false,
            pipelines: false,
            queue: VecDeque::new(),
            pace: Pace::new(io_timeout),
            late: LATE,
            closed: false,
        }
    }

    /// The number of connections that exist or are being made.
    pub(super) fn open(&self) -> usize {
        self.lines.len() + usize::from(self.connecting)
    }

    /// Reserves a place if a connection may be made now.
    pub(super) fn reserve(&mut self, most: usize, share: usize) -> Option<Maker> {
        let first = self.open() == 0;
        if self.closed
            || self.connecting
            || self.open() >= self.wanted(most, share)
            || !first && !self.pace.pause().is_zero()
        {
            return None;
        }
        self.connecting = true;
        Some(if first { Maker::Caller } else { Maker::Aside })
    }

    /// How many connections the callers need, beside those that serve no others. For requests that
    /// go alone: as many as there may be.
    fn wanted(&self, most: usize, share: usize) -> usize {
        if self.pipelines && self.queue.iter().all(|queued| C::may_follow(&queued.request)) {
            let taken = self.lines.iter().filter(|line| !line.serves_others(self.late)).count();
            most.min(share.saturating_add(taken))
        } else {
            most
        }
    }

    /// Puts a connection into its place, for the thread that has made it.
    pub(super) fn add(&mut self, connection: &C::Connection) -> u64 {
        self.numbers += 1;
        let sender = connection.sender();
        self.pipelines = sender.is_some();
        self.lines.push(Line {
            number: self.numbers,
            connection: None,
            pipelines: sender.is_some(),
            sender,
            phase: Phase::Idle,
            waits_since: Some(os::now()),
            flights: VecDeque::new(),
        });
        self.numbers
    }

    pub(super) fn line(&mut self, number: u64) -> Option<&mut Line<C>> {
        self.lines.iter_mut().find(|line| line.number == number)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Line<C>> {
        let place = self.lines.iter().position(|line| line.number == number)?;
        Some(self.lines.remove(place))
    }

    /// An idle connection for one thread, of those that serve the callers.
    pub(super) fn take_idle(&mut self, share: usize) -> Option<(u64, C::Connection)> {
        self.serving(share).find(|line| line.is_idle())?.take()
    }

    /// Any idle connection, and rather one that serves no others.
    pub(super) fn take_any_idle(&mut self) -> Option<(u64, C::Connection)> {
        self.lines.iter_mut().rev().find(|line| line.is_idle())?.take()
    }

    /// The lines that serve the callers. Where connections carry one batch at a time: all.
    fn serving(&mut self, share: usize) -> impl Iterator<Item = &mut Line<C>> {
        let most = if self.pipelines { share } else { ALL };
        let late = self.late;
        self.lines.iter_mut().filter(move |line| line.serves_others(late)).take(most)
    }

    /// Whether a line that is returned sends the queue. If not, another one will.
    pub(super) fn serves(&mut self, number: u64, share: usize) -> bool {
        self.serving(share).any(|line| line.number == number)
    }

    /// The means to send the queue behind what is under way: over the line on which the fewest
    /// answers are due.
    pub(super) fn begin_to_follow(&mut self, share: usize) -> Option<Follower<C>> {
        let first = self.queue.front()?;
        if share == ALL || !C::may_follow(&first.request) {
            return None;
        }
        let may_take = |line: &&mut Line<C>| {
            matches!(line.phase, Phase::Open)
                && line.sender.is_some()
                && line.flights.len() < MOST_BEHIND
        };
        let open = self.serving(share).filter(may_take);
        let line = open.min_by_key(|line| line.flights.len())?;
        Some(Follower { line: line.number, sender: line.sender.take()? })
    }

    /// The requests of the queue that may follow others, if the first one may.
    pub(super) fn take_followers(&mut self) -> Option<Vec<Arc<QueuedRequest<C>>>> {
        let first = self.queue.front()?;
        if C::may_follow(&first.request) { self.take_batch() } else { None }
    }

    /// Takes all idle connections out of their places.
    pub(super) fn remove_idle(&mut self) -> Vec<C::Connection> {
        let idle = self.lines.extract_if(.., |line| line.is_idle());
        idle.filter_map(|line| line.connection).collect()
    }

    /// The requests of the queue that are sent in one write.
    pub(super) fn take_batch(&mut self) -> Option<Vec<Arc<QueuedRequest<C>>>> {
        let first = self.queue.pop_front()?;
        Some(take_batch(first, &mut self.queue))
    }
}

/// All queued callers fail at once with the same error.
pub(super) fn fail_queue<C: PooledConnector>(
    mut state: MutexGuard<'_, PoolState<C>>,
    error: &Error,
) {
    let stranded = std::mem::take(&mut state.queue);
    drop(state);
    for queued in stranded {
        queued.set(RequestState::Done(Err(Failure::NotSent(error.clone()))));
    }
}
