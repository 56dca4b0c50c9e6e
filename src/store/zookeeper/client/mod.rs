//! One session with an ensemble: requests that calling threads write, and one thread that reads.
//!
//! Requests are answered in order, so each thread writes as many as it likes in one write and waits
//! for its replies. When a connection ends, the outcome of what was sent on it is unknown; the next
//! one resumes the session, at another server if need be. What was sent before may still run then,
//! if a server had read it: see [`gate`](super::gate).
//!
//! A mutex guards the state, and requests are written under it, so the order of the writes is the
//! order in which replies are expected. A write is a few hundred bytes, for many threads at once up
//! to some hundred KiB, and has a timeout.

mod io;
mod joint;
mod slot;
mod state;
mod together;
mod watches;

pub(super) use state::Session;
pub(super) use watches::{NodeWatch, WatchingWaiter};

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use self::slot::Slot;
use self::state::{Deletion, SessionState, Then};
use self::together::LONGEST_QUEUED;
use super::wire::{Reply, Request, Servers, is_an_end};
use crate::base::error::{Error, ErrorKind, Result, invalid};
use crate::base::lease::Moment;
use crate::base::log;
use crate::base::node_status::{NodeState, NodeStatus};
use crate::os::{Condvar, Mutex, MutexGuard};
use crate::signal::clock::Clock;
use crate::signal::worker::{Phase, Worker};
use crate::store::{Received, Topic};

/// The settings of a client.
pub(crate) struct ClientSettings {
    pub(crate) servers: Servers,
    /// The path below which all nodes are; empty for none.
    pub(crate) chroot: String,
    /// The session timeout to ask for.
    pub(crate) lease: Duration,
    /// The `tickTime` of the servers, if it is known.
    pub(crate) tick: Option<Duration>,
    pub(crate) io_timeout: Duration,
    pub(crate) client_name: String,
}

pub(super) struct Client {
    inner: Arc<Inner>,
    worker: Worker,
    client_name: String,
}

struct Inner {
    servers: Servers,
    /// The node that a heartbeat checks.
    root: String,
    lease: Duration,
    tick: Option<Duration>,
    io_timeout: Duration,
    clock: Arc<dyn Clock>,
    state: Mutex<SessionState>,
    changed: Condvar,
    /// How many nodes are held: a majority is asked to agree as long as there are any.
    held: AtomicUsize,
    /// Called when the node of a hold is gone.
    losses: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// The channel for the waiters' messages.
    outlet: Mutex<Option<Sender<Result<Received>>>>,
    warned: AtomicBool,
}

/// Replies to requests that were sent together. The code of each has to be looked at: the server
/// may have refused it.
#[derive(Debug)]
#[must_use]
pub(super) struct Exchange {
    /// The session in which they ran.
    pub(super) session: Session,
    /// The number of the connection over which they ran.
    pub(super) connection: u64,
    /// The instant before they were sent.
    pub(super) sent_at: Moment,
    /// One for each request.
    pub(super) replies: Vec<Reply>,
}

#[derive(Debug)]
pub(super) enum ZooKeeperFailure {
    /// Nothing has run.
    NotSent(Error),
    /// Each may have run, if the session is still this one.
    Unknown { error: Error, generation: u64 },
}

impl ZooKeeperFailure {
    /// No `From`: with one, the public type would have a second conversion, and `?` in a closure of
    /// a user could no longer tell which error is meant.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::NotSent(error) | Self::Unknown { error, .. } => error,
        }
    }
}

/// An error of the caller's own, which leaves nothing unknown.
impl From<Error> for ZooKeeperFailure {
    fn from(error: Error) -> Self {
        Self::NotSent(error)
    }
}

impl Client {
    pub(super) fn new(settings: ClientSettings) -> Self {
        let ClientSettings { servers, chroot, lease, tick, io_timeout, client_name } = settings;
        let root = if chroot.is_empty() { "/".to_owned() } else { chroot };
        let inner = Inner {
            clock: servers.clock.clone(),
            servers,
            root,
            lease,
            tick,
            io_timeout,
            state: Mutex::default(),
            changed: Condvar::new(),
            held: AtomicUsize::new(0),
            losses: OnceLock::new(),
            outlet: Mutex::default(),
            warned: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner), worker: Worker::default(), client_name }
    }

    pub(super) fn now(&self) -> Moment {
        self.inner.clock.now()
    }

    pub(super) fn servers(&self) -> &Servers {
        &self.inner.servers
    }

    pub(super) fn io_timeout(&self) -> Duration {
        self.inner.io_timeout
    }

    /// Sends requests in one write and waits for their replies. Each of the `watches` is notified
    /// when something happens to the node at its path: one of the requests has to watch it.
    ///
    /// Waits for a connection first, but fails as soon as every server has been tried in vain. Each
    /// of the two waits takes at most the I/O timeout.
    pub(super) fn ask(
        &self,
        requests: &[Request],
        watches: Vec<(String, NodeWatch)>,
    ) -> std::result::Result<Exchange, ZooKeeperFailure> {
        self.exchange(requests, |state, slot, now| {
            for (path, watch) in watches {
                state.watches.add(path, watch);
            }
            let thens = (0..requests.len()).map(|place| Then::Answer(slot.clone(), place));
            let link = state.link.as_mut().expect("it is connected");
            link.send(requests.iter().zip(thens), now)
        })
    }

    /// [`ask`](Self::ask) for a transaction or a deletion, and for what is read behind it: if many
    /// threads want a change at the same time, it becomes part of a larger transaction.
    pub(super) fn change(
        &self,
        requests: &[Request],
    ) -> std::result::Result<Exchange, ZooKeeperFailure> {
        self.exchange(requests, |state, slot, now| {
            state.link.as_mut().expect("it is connected").change(requests, slot, now)
        })
    }

    fn exchange(
        &self,
        requests: &[Request],
        send: impl FnOnce(&mut SessionState, &Arc<Slot>, Moment) -> Result<()>,
    ) -> std::result::Result<Exchange, ZooKeeperFailure> {
        for request in requests {
            check_length(request.length())?;
        }
        let slot = Arc::new(Slot::new(requests.len()));
        let mut state = self.connected()?;
        let session = state.present();
        let sent_at = self.now();
        let link = state.link.as_ref().expect("it is connected");
        let number = link.number;
        let address = link.address.clone();
        if let Err(error) = send(&mut state, &slot, sent_at) {
            self.write_failed(state, &error);
        } else {
            drop(state);
        }
        let generation = session.generation;
        let began = Instant::now();
        let io_timeout = self.inner.io_timeout;
        let replies = slot.wait(began + LONGEST_QUEUED.min(io_timeout / 4)).or_else(|| {
            self.send_overdue(number, &slot);
            slot.wait(began + io_timeout)
        });
        let replies = replies.unwrap_or_else(|| {
            let why = format!(
                "{address:?} did not answer within {:?} (io_timeout)",
                self.inner.io_timeout
            );
            let error = Error::new(ErrorKind::Unreachable, why);
            self.give_up(number, &error);
            Err(error)
        });
        match replies {
            Ok(replies) => Ok(Exchange { session, connection: number, sent_at, replies }),
            Err(error) => Err(ZooKeeperFailure::Unknown { error, generation }),
        }
    }

    /// The request of a caller that has no answer yet may still queue.
    #[cold]
    fn send_overdue(&self, number: u64, slot: &Arc<Slot>) {
        let now = self.now();
        let mut state = self.inner.state.lock();
        let is_open = state.phase == Phase::Running;
        let present = state.link.as_mut().filter(|link| is_open && link.number == number);
        if let Some(link) = present
            && let Err(error) = link.send_overdue(slot, now)
        {
            self.write_failed(state, &error);
        }
    }

    /// Whether the waiter will be notified on the present connection when this node goes.
    pub(super) fn is_watched_by(&self, path: &str, waiter: &Topic) -> bool {
        self.inner.state.lock().watches.is_watched_by(path, waiter)
    }

    /// This waiter is no longer notified.
    pub(super) fn unwatch(&self, waiter: &Topic) {
        let mut state = self.inner.state.lock();
        let unwatched = state.watches.remove_waiter(waiter);
        self.remove_watches(state, unwatched);
    }

    /// The server sends no more messages about these paths.
    fn remove_watches(&self, mut state: MutexGuard<'_, SessionState>, unwatched: Vec<String>) {
        let removals: Vec<_> = unwatched.iter().map(|path| Request::remove_watches(path)).collect();
        let SessionState { link: Some(link), .. } = &mut *state else {
            // All watches have ended with the last connection.
            for path in &unwatched {
                state.watches.removed(path);
            }
            return;
        };
        if removals.is_empty() {
            return;
        }
        let answers = unwatched.into_iter().map(Then::Unwatched);
        if let Err(error) = link.send(removals.iter().zip(answers), self.now()) {
            self.write_failed(state, &error);
        }
    }

    /// Those of the nodes that are not watched for their holder on the present connection, and the
    /// session. `None` while there is no connection.
    pub(super) fn unguarded<'p>(
        &self,
        paths: impl Iterator<Item = &'p String>,
    ) -> Option<(Session, HashSet<&'p str>)> {
        let state = self.inner.state.lock();
        state.link.as_ref()?;
        let unguarded =
            paths.map(String::as_str).filter(|path| !state.watches.is_guarded(path)).collect();
        Some((state.present(), unguarded))
    }

    /// These nodes are given up: their deletion is no loss.
    pub(super) fn unguard(&self, paths: &[String]) {
        let mut state = self.inner.state.lock();
        for path in paths {
            state.watches.remove_guard(path);
        }
    }

    /// Until when the present session is known to be alive.
    pub(super) fn lives_until(&self) -> Moment {
        self.inner.state.lock().term.until()
    }

    /// A request that a majority has to agree to, but that changes nothing.
    pub(super) fn quorum_check(&self) -> Request {
        Request::quorum_check(&self.inner.root)
    }

    /// The state while there is a connection.
    fn connected(&self) -> Result<MutexGuard<'_, SessionState>> {
        let mut state = self.inner.state.lock();
        self.start(&mut state)?;
        let is_closed = |state: &SessionState| state.phase != Phase::Running;
        let state = self.linked(state, Instant::now() + self.inner.io_timeout, is_closed)?;
        if is_closed(&state) { Err(closed()) } else { Ok(state) }
    }

    /// Waits for a connection until this deadline, and until `is_over`.
    fn linked<'s>(
        &'s self,
        mut state: MutexGuard<'s, SessionState>,
        deadline: Instant,
        is_over: impl Fn(&SessionState) -> bool,
    ) -> Result<MutexGuard<'s, SessionState>> {
        // A round that is already under way may have failed for a reason that no longer exists.
        let under_way = state.rounds;
        while state.link.is_none() {
            if is_over(&state) {
                return Err(closed());
            }
            if state.failed_round > under_way {
                return Err(state.last_error.clone().unwrap_or_else(closed));
            }
            state.is_wanted = true;
            self.inner.changed.notify_all();
            if self.inner.changed.wait_until(&mut state, deadline).timed_out()
                && state.link.is_none()
            {
                return Err(self.no_connection(state.last_error.clone()));
            }
        }
        Ok(state)
    }

    /// The present round has not ended, so only an earlier one can have said why.
    #[cold]
    fn no_connection(&self, earlier: Option<Error>) -> Error {
        let Inner { servers, io_timeout, .. } = &*self.inner;
        let why =
            format!("ZooKeeper at {servers:?} did not answer within {io_timeout:?} (io_timeout)");
        let error = Error::new(ErrorKind::Unreachable, why);
        match earlier {
            Some(cause) => error.caused_by(cause),
            None => error,
        }
    }

    fn start(&self, state: &mut SessionState) -> Result<()> {
        let inner = self.inner.clone();
        let phase = &mut state.phase;
        self.worker.start(phase, format_args!("lh-zk-{}", self.client_name), move || inner.run())
    }

    /// If the server has ended the connection, the thread that reads ends the link in a moment: the
    /// server may have said before why it refuses what was sent.
    fn write_failed(&self, mut state: MutexGuard<'_, SessionState>, error: &Error) {
        if is_an_end(error) {
            return;
        }
        let topics = state.end_link(error);
        drop(state);
        self.inner.publish(topics);
    }

    /// Gives up a connection on which an answer is overdue: what was sent has an unknown outcome,
    /// which is resolved over the next connection.
    fn give_up(&self, number: u64, why: &Error) {
        let mut state = self.inner.state.lock();
        if state.link.as_ref().is_some_and(|link| link.number == number) {
            let topics = state.end_link(why);
            drop(state);
            self.inner.publish(topics);
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection().is_some()
    }

    /// The number of the present connection. Later ones have greater numbers.
    pub(super) fn connection(&self) -> Option<u64> {
        self.inner.state.lock().link.as_ref().map(|link| link.number)
    }

    /// The generation of the present session, or of the last one while there is no session.
    pub(super) fn generation(&self) -> u64 {
        self.inner.state.lock().generation
    }

    pub(super) fn last_error(&self) -> Error {
        let error = self.inner.state.lock().last_error.clone();
        error.unwrap_or_else(|| {
            Error::new(ErrorKind::Unreachable, "there is no connection to ZooKeeper")
        })
    }

    /// Deletes nodes of the session of this generation without waiting: the request is repeated,
    /// over each new connection as well, until the server has reported that they are gone.
    pub(super) fn delete_later(&self, generation: u64, paths: impl IntoIterator<Item = String>) {
        let now = self.now();
        let mut state = self.inner.state.lock();
        if state.generation != generation || state.session.is_none() {
            return;
        }
        state.deletions.extend(paths.into_iter().map(|path| Deletion { path, sent: false }));
        if let Err(error) = state.send_deletions(now) {
            self.write_failed(state, &error);
        }
    }

    /// From now on, also over each new connection, the topic is notified when the latch at the path
    /// is made, changed or deleted.
    pub(super) fn watch_latch(&self, path: &str, topic: &Topic) -> Result<()> {
        let now = self.now();
        let mut state = self.inner.state.lock();
        self.start(&mut state)?;
        state.watches.add(path.to_owned(), NodeWatch::Latch(topic.clone()));
        state.watch_latch(path, now)
    }

    pub(super) fn unwatch_latch(&self, path: String, topic: &Topic) {
        let mut state = self.inner.state.lock();
        let is_over = state.watches.remove_latch(&path, topic);
        self.remove_watches(state, is_over.then_some(path).into_iter().collect());
    }

    /// Whether somebody waits for the latch at this path.
    pub(super) fn is_latch_watched(&self, path: &str) -> bool {
        !self.inner.state.lock().watches.latch(path).is_empty()
    }

    /// How many nodes are held.
    pub(super) fn set_held(&self, held: usize) {
        self.inner.held.store(held, Ordering::Release);
    }

    /// Sets what is called when the node of a hold is gone. Only the first call has an effect.
    pub(super) fn tell_losses(&self, told: Box<dyn Fn() + Send + Sync>) {
        let _ = self.inner.losses.set(told);
    }

    pub(super) fn moves(&self) -> u64 {
        self.inner.state.lock().moves
    }

    /// The session timeout that was granted.
    pub(super) fn granted(&self) -> Option<Duration> {
        self.inner.state.lock().rhythm.map(|rhythm| rhythm.timeout)
    }

    /// From now on the messages for waiters go to this channel.
    pub(super) fn publish_to(&self, outlet: Option<Sender<Result<Received>>>) {
        *self.inner.outlet.lock() = outlet;
    }

    pub(super) fn nodes(&self) -> Vec<NodeStatus> {
        let state = self.inner.state.lock();
        let connected = state.link.as_ref().map(|link| &link.address);
        let last_error = if connected.is_none() { state.last_error.clone() } else { None };
        // Without a connection and without a failure, no server has been tried yet.
        let status = |address| NodeStatus {
            address: format!("{address:?}"),
            state: if last_error.is_some() { NodeState::Down } else { NodeState::Voting },
            latency: None,
            last_error: last_error.clone(),
            slots: Vec::new(),
        };
        self.inner.servers.addresses.iter().map(status).collect()
    }

    /// Asks the server to end the session. `None`: there is no answer in time.
    fn end_session(
        &self,
        mut state: MutexGuard<'_, SessionState>,
        deadline: Instant,
    ) -> Option<Result<Vec<Reply>>> {
        let slot = Arc::new(Slot::new(1));
        let link = state.link.as_mut().expect("it is connected");
        // If it cannot be sent, the thread that reads ends the link, and with it the wait.
        let _ = link.send_one(&Request::close_session(), Then::Closed(slot.clone()), self.now());
        drop(state);
        let answer = slot.wait(deadline);
        if let Some(Ok(replies)) = &answer
            && let Some(refused) = replies.iter().find(|reply| !reply.code.is_ok())
        {
            let why = refused.code.to_error("the session");
            log::debug!(
                "the server did not end the session, whose nodes stay until it ends by itself: {why}"
            );
        }
        answer
    }

    /// Ends the session, and with it all of its nodes. Waits for the server's answer and for the
    /// thread, in total for at most the I/O timeout.
    pub(super) fn close(&self) {
        let deadline = Instant::now() + self.inner.io_timeout;
        let mut state = self.inner.state.lock();
        match state.phase {
            Phase::NotStarted | Phase::Ended => {
                state.phase = Phase::Ended;
                return;
            }
            // From now on no call sends anything.
            Phase::Running | Phase::Stopping => state.phase = Phase::Stopping,
        }
        // A session that is not ended would keep its nodes for its whole timeout.
        let is_over = |state: &SessionState| state.session.is_none() || state.phase == Phase::Ended;
        while !is_over(&state) {
            let linked = self.linked(state, deadline, is_over);
            let answer = linked.ok().and_then(|state| self.end_session(state, deadline));
            state = self.inner.state.lock();
            // Otherwise the connection has ended first, and there is another one.
            if !matches!(answer, Some(Err(_))) {
                break;
            }
        }
        state.session = None;
        state.term.end(Moment::NEVER);
        let topics = state.end_link(&closed());
        // If it is in a connect, the thread ends after that.
        self.worker.stop(state, |state| &mut state.phase, &self.inner.changed, deadline);
        self.inner.publish(topics);
    }
}

impl Inner {
    fn send(&self, received: Result<Received>) {
        if let Some(outlet) = &*self.outlet.lock() {
            // Fails only if nobody is receiving any more.
            let _ = outlet.send(received);
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("servers", &self.inner.servers).finish_non_exhaustive()
    }
}

/// Servers end the connection of a client that sends more than this (`jute.maxbuffer`, 1 MiB by
/// default), and with it the client's other requests. A transaction grows by some bytes for each of
/// its changes before it is written to a log.
const LONGEST_REQUEST: usize = 960_000;

/// # Errors
/// `InvalidInput` for a request that is too long for servers to read.
pub(super) fn check_length(bytes: usize) -> Result<()> {
    if bytes <= LONGEST_REQUEST {
        return Ok(());
    }
    let why = format!(
        "a request of {bytes} bytes is more than the {LONGEST_REQUEST} that are safe to send: servers take no longer \
         ones (jute.maxbuffer); ask for fewer names or permits at once"
    );
    Err(invalid(why))
}

#[cold]
fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}
