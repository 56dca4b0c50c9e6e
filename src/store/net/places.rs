//! The places of a pool's connections, and who waits for one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batch::{Batch, QueuedRequest, RequestState, take_batch};
use super::failure::Failure;
use super::pace::Pace;
use super::pooled::PooledConnector;
use crate::base::error::Error;
use crate::os::{self, MutexGuard};

/// Up to so many callers have a connection each: nobody has to be woken.
const FEW: usize = 4;
/// From so many callers on, what takes the time is to wake all of them.
const MANY: usize = 32;
/// The answers of a near server come sooner, unless it is stopped, busy with something long, or no
/// longer there.
pub(super) const LATE: Duration = Duration::from_millis(10);
/// How many writes wait behind the one whose answers are being read: the server has work when it
/// has answered that one. With more, callers that could share a write do not meet.
const MOST_BEHIND: usize = 1;

/// How callers share the connections that carry requests behind each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// All use one, and send behind each other: callers that can share a write, a read and a
    /// wake-up meet.
    One,
    /// They use so many connections.
    Few,
    /// They use all, each for one batch at a time. To a server that is not near: it is idle while a
    /// batch travels, so each needs its own. For many callers: the threads that read from them
    /// share the work of waking the others.
    All,
}

impl Sharing {
    pub(super) fn of(callers: usize, is_near: bool) -> Self {
        match callers {
            _ if !is_near => Self::All,
            0..=FEW => Self::Few,
            MANY.. => Self::All,
            _ => Self::One,
        }
    }

    /// How many connections serve the callers.
    fn most(self) -> usize {
        match self {
            Self::One => 1,
            Self::Few => FEW,
            Self::All => usize::MAX,
        }
    }
}

/// Invariant: while the queue is not empty, the first line that serves others is not idle, or one
/// is being made; whoever has it will serve the queue. A line may stop to serve others because its
/// answers are late, which nobody notes at that moment: who queues looks again after that time.
pub(super) struct PoolState<C: PooledConnector> {
    pub(super) lines: Vec<Line<C>>,
    /// How many lines there have been.
    numbers: u64,
    /// A place is reserved for a connection that is being made.
    pub(super) connecting: bool,
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
    sender: Option<C::Sender>,
    pipelines: bool,
    phase: Phase,
    /// When the last answer came, or a thread took the connection; `None` while nobody has it.
    waits_since: Option<Instant>,
    /// In the order of their answers.
    pub(super) flights: VecDeque<Batch<C>>,
}

/// What else may be sent over a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
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

    pub(super) fn is_ending(&self) -> bool {
        self.phase == Phase::Ending
    }

    /// Nothing is under way on it.
    pub(super) fn note_idle(&mut self) {
        self.waits_since = None;
        self.turn(Phase::Idle);
    }

    /// A thread has taken its connection.
    pub(super) fn note_taken(&mut self) {
        self.waits_since = Some(os::now());
    }

    /// Requests were sent over it while nothing was under way.
    pub(super) fn note_sent(&mut self, may_be_followed: bool) {
        self.turn(if may_be_followed { Phase::Open } else { Phase::Alone });
    }

    pub(super) fn end(&mut self) {
        self.phase = Phase::Ending;
    }

    fn turn(&mut self, phase: Phase) {
        if !self.is_ending() {
            self.phase = phase;
        }
    }

    /// The next batch whose answers are due.
    pub(super) fn next_flight(&mut self) -> Option<Batch<C>> {
        self.note_taken();
        self.flights.pop_front()
    }

    pub(super) fn return_sender(&mut self, sender: C::Sender) {
        self.sender = Some(sender);
    }

    /// Whether others may use it when, or before, the answers that are due have come. Not if they
    /// are late: a connection that was cut in silence must not hold up callers that need not use
    /// it.
    fn serves_others(&self, late: Duration) -> bool {
        let is_late = || self.waits_since.is_some_and(|since| os::since(since) > late);
        matches!(self.phase, Phase::Idle | Phase::Open) && !is_late()
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
    pub(super) fn reserve(&mut self, most: usize, sharing: Sharing) -> Option<Maker> {
        let first = self.open() == 0;
        if self.closed
            || self.connecting
            || self.open() >= self.wanted(most, sharing)
            || !first && !self.pace.pause().is_zero()
        {
            return None;
        }
        self.connecting = true;
        Some(if first { Maker::Caller } else { Maker::Aside })
    }

    /// How many connections the callers need, beside those that serve no others. For requests that
    /// go alone: as many as there may be.
    fn wanted(&self, most: usize, sharing: Sharing) -> usize {
        if self.pipelines() && self.queue.iter().all(|queued| C::may_follow(&queued.request)) {
            let taken = self.lines.iter().filter(|line| !line.serves_others(self.late)).count();
            most.min(sharing.most().saturating_add(taken))
        } else {
            most
        }
    }

    fn pipelines(&self) -> bool {
        self.lines.iter().all(|line| line.pipelines)
    }

    /// Puts a connection into its place, for the thread that has made it.
    pub(super) fn add(&mut self, connection: &C::Connection) -> u64 {
        self.numbers += 1;
        let sender = C::sender(connection);
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
    pub(super) fn take_idle(&mut self, sharing: Sharing) -> Option<(u64, C::Connection)> {
        let number = self.serving(sharing).find(|line| line.is_idle())?.number;
        self.borrow(number)
    }

    /// Any idle connection, and rather one that serves no others.
    pub(super) fn take_any_idle(&mut self) -> Option<(u64, C::Connection)> {
        let number = self.lines.iter().rev().find(|line| line.is_idle())?.number;
        self.borrow(number)
    }

    fn borrow(&mut self, number: u64) -> Option<(u64, C::Connection)> {
        let line = self.line(number)?;
        line.note_taken();
        Some((number, line.connection.take()?))
    }

    /// The lines that serve the callers. Where connections carry one batch at a time: all.
    fn serving(&self, sharing: Sharing) -> impl Iterator<Item = &Line<C>> {
        let most = if self.pipelines() { sharing.most() } else { usize::MAX };
        let late = self.late;
        self.lines.iter().filter(move |line| line.serves_others(late)).take(most)
    }

    /// Whether a line that is returned sends the queue. If not, another one will.
    pub(super) fn serves(&self, number: u64, sharing: Sharing) -> bool {
        self.serving(sharing).any(|line| line.number == number)
    }

    /// The means to send the queue behind what is under way: over the line on which the fewest
    /// answers are due.
    pub(super) fn begin_to_follow(&mut self, sharing: Sharing) -> Option<Follower<C>> {
        let first = self.queue.front()?;
        if sharing == Sharing::All || !C::may_follow(&first.request) {
            return None;
        }
        let may_take = |line: &&Line<C>| {
            line.phase == Phase::Open && line.sender.is_some() && line.flights.len() < MOST_BEHIND
        };
        let open = self.serving(sharing).filter(may_take);
        let line = open.min_by_key(|line| line.flights.len())?.number;
        Some(Follower { line, sender: self.line(line)?.sender.take()? })
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
