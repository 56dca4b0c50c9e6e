//! The I/O thread of a client: it connects, reads all replies and events, and keeps the session
//! alive.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Inner;
use super::joint::Changes;
use super::state::{Link, Pending, SessionState, Then};
use super::watches::Fired;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::base::log;
use crate::base::random::Backoff;
use crate::signal::worker::Phase;
use crate::store::net::{Stream, is_timeout};
use crate::store::zookeeper::lease::{Rhythm, SessionLease};
use crate::store::zookeeper::wire::{
    Code, EventKind, FrameReader, Greeting, PING_XID, Reply, SessionRequest, WATCH_XID, is_an_end,
    to_error,
};
use crate::store::{Received, Topic};

/// The longest pause between two connections; after one that lasted for longer there is none.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// However the thread ends, no caller may go on waiting for it.
struct SessionExit<'a>(&'a Inner);

impl Drop for SessionExit<'_> {
    fn drop(&mut self) {
        let why = Error::new(ErrorKind::Closed, "the client was closed");
        let mut state = self.0.state.lock();
        // After a panic no heartbeat is sent any more.
        state.term.end(Moment::NEVER);
        let topics = state.end_link(&why);
        state.phase = Phase::Ended;
        drop(state);
        self.0.changed.notify_all();
        self.0.publish(topics);
    }
}

/// A connection as the I/O thread sees it.
struct Reading {
    number: u64,
    stream: Stream,
    reader: FrameReader,
    /// How long one read waits.
    tick: Duration,
}

impl Inner {
    pub(super) fn run(&self) {
        let _exit_guard = SessionExit(self);
        let mut pause = Backoff::new(Duration::from_millis(20), LONGEST_PAUSE);
        while self.state.lock().goes_on() {
            match self.connect() {
                Ok(Some(mut reading)) => {
                    let began = std::time::Instant::now();
                    let why = self.serve(&mut reading);
                    self.end_link(reading.number, &why);
                    // A server that refuses the client, or talks nonsense, does so again on the
                    // next connection: without a pause, what is sent there at once (deletions,
                    // watches) would make this thread connect without end.
                    let has_ended = why.kind().is_outage() && why.kind() != ErrorKind::Protocol;
                    if has_ended || began.elapsed() > LONGEST_PAUSE {
                        pause.reset();
                    } else {
                        self.failed(why, pause.next());
                    }
                }
                Ok(None) => {}
                Err(error) => self.failed(error, pause.next()),
            }
        }
    }

    /// No server could be used. Pauses, but only until somebody wants a connection.
    #[cold]
    fn failed(&self, error: Error, pause: Duration) {
        log::debug!("no connection to ZooKeeper: {}", error.chain());
        let mut state = self.state.lock();
        state.last_error = Some(error);
        state.is_wanted = false;
        state.failed_round = state.rounds;
        self.changed.notify_all();
        let deadline = std::time::Instant::now() + pause;
        // A short pause in any case: callers that come again at once must not make it spin.
        let least = std::time::Instant::now() + pause.min(Duration::from_millis(20));
        while state.goes_on() {
            let is_called = state.is_wanted && std::time::Instant::now() >= least;
            let until = if state.is_wanted { least } else { deadline };
            if is_called || self.changed.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }

    /// `None`: the session was over, and a new one has to be made.
    fn connect(&self) -> Result<Option<Reading>> {
        let mut state = self.state.lock();
        state.rounds += 1;
        let session = state.session;
        let last_zxid = state.last_zxid;
        // A call waits for the connection for one I/O timeout, and should learn within it why
        // connecting failed.
        let patience = self.io_timeout - self.io_timeout / 8;
        let within = match (session, state.rhythm) {
            // Short, so that servers that hang do not cost the session, and at most an I/O timeout
            // for each server: one that is starting may accept a connection and never answer on it.
            (Some(_), Some(rhythm)) => {
                let servers = u32::try_from(self.servers.addresses.len()).unwrap_or(u32::MAX);
                rhythm.silence.min(patience.saturating_mul(servers))
            }
            _ => patience,
        };
        // No server has answered for so long that the session can only be alive if there was no
        // majority to end it.
        let is_hopeless = state.heard_at.zip(state.rhythm).is_some_and(|(heard_at, rhythm)| {
            session.is_some() && self.clock.now() > heard_at.plus(rhythm.timeout.saturating_mul(2))
        });
        drop(state);
        let asked = SessionRequest { session, last_zxid, timeout: self.lease };
        let connected = match self.servers.connect(asked, within) {
            Err(error) if is_hopeless => return self.begin_anew(error, within),
            connected => connected?,
        };
        match connected {
            Some(greeting) => self.begin(greeting, session.is_some()).map(Some),
            None => {
                let mut state = self.state.lock();
                state.end_session(self.clock.now());
                // Otherwise a close has ended it, whose answer was lost.
                let is_lost = state.phase == Phase::Running;
                drop(state);
                if is_lost {
                    log::warn!(
                        "the ZooKeeper session has expired: all holds of this client are lost"
                    );
                }
                Ok(None)
            }
        }
    }

    /// Servers that have lost their data, or were restored from an old copy, refuse a client that
    /// has seen later changes, and would do so for ever. They do not refuse a new session.
    #[cold]
    fn begin_anew(&self, error: Error, within: Duration) -> Result<Option<Reading>> {
        let asked = SessionRequest { session: None, last_zxid: 0, timeout: self.lease };
        let Ok(Some(greeting)) = self.servers.connect(asked, within) else {
            return Err(error);
        };
        log::warn!(
            "the servers refuse the ZooKeeper session, and give a new one: {}",
            error.chain()
        );
        let mut state = self.state.lock();
        state.end_session(self.clock.now());
        drop(state);
        self.begin(greeting, false).map(Some)
    }

    fn begin(&self, greeting: Greeting, resumed: bool) -> Result<Reading> {
        let Greeting { mut stream, reader, address, session, timeout, sent_at } = greeting;
        let tick = (timeout / 24).clamp(Duration::from_millis(5), Duration::from_secs(1));
        let failed = |e| to_error(e, &address);
        stream.set_timeouts(tick, self.io_timeout).map_err(failed)?;
        let writer = stream.twin();
        if timeout < self.lease && !self.warned.swap(true, Ordering::Relaxed) {
            log::warn!(
                "the server grants a session of {timeout:?} and not of {:?}: that is the lease (maxSessionTimeout)",
                self.lease
            );
        }
        let now = self.clock.now();
        let mut state = self.state.lock();
        if !state.goes_on() {
            return Err(Error::new(ErrorKind::Closed, "the client was closed"));
        }
        let before = state.rhythm.filter(|_| resumed).map_or(timeout, |rhythm| rhythm.timeout);
        // Never more than any server of the session has granted: a server that granted less may
        // still report, with its own timeout, what it received on an earlier connection.
        let rhythm = Rhythm::of(timeout.min(before), self.tick);
        let lease = if resumed {
            let until = state.until.unwrap_or(Moment::from_nanos(0));
            SessionLease::resumed(rhythm, sent_at, until, timeout < before)
        } else {
            state.generation += 1;
            state.term = std::sync::Arc::default();
            SessionLease::new(rhythm, sent_at)
        };
        if timeout < before {
            state.term.shorten(lease.until());
        }
        state.term.lengthen(lease.until());
        state.session = Some(session);
        state.rhythm = Some(rhythm);
        state.is_wanted = false;
        state.heard_at = Some(sent_at);
        state.moves += 1;
        let number = state.moves;
        let agreed_at = (!resumed).then_some(sent_at);
        let mut link = Link::new(number, address, writer, lease, agreed_at, now);
        link.changes = Changes::new(state.joint_looks);
        state.link = Some(link);
        let mut begun = state.send_deletions(now);
        for path in state.watches.latches() {
            begun = begun.and_then(|()| state.watch_latch(&path, now));
        }
        drop(state);
        self.changed.notify_all();
        if let Err(error) = begun {
            self.end_link(number, &error);
        }
        Ok(Reading { number, stream, reader, tick })
    }

    fn end_link(&self, number: u64, why: &Error) {
        let mut state = self.state.lock();
        if state.link.as_ref().is_none_or(|link| link.number != number) {
            return;
        }
        log::debug!("the connection to ZooKeeper ended: {}", why.chain());
        if let Some(link) = &state.link {
            self.servers.avoid(&link.address);
        }
        let topics = state.end_link(why);
        drop(state);
        self.changed.notify_all();
        self.publish(topics);
    }

    /// Reads until the connection ends. Returns why.
    fn serve(&self, reading: &mut Reading) -> Error {
        let ended = || Error::new(ErrorKind::Unreachable, "the connection was given up");
        loop {
            match self.take_in_all(reading).and_then(|()| self.keep_alive(reading.number)) {
                Ok(true) => {}
                Ok(false) => return ended(),
                Err(error) => return error,
            }
            // A TLS record whose bytes trickle in must not delay the heartbeat.
            let mut stream = reading.stream.until(std::time::Instant::now() + reading.tick);
            match reading.reader.fill(&mut stream) {
                Err(e) if !is_timeout(&e) => {
                    let state = self.state.lock();
                    return state
                        .link
                        .as_ref()
                        .map_or_else(ended, |link| to_error(e, &link.address));
                }
                _ => {}
            }
        }
    }

    /// Takes in what was read.
    fn take_in_all(&self, reading: &mut Reading) -> Result<()> {
        while let Some(frame) = reading.reader.next()? {
            self.take_in(reading.number, &frame)?;
        }
        Ok(())
    }

    /// # Errors
    /// What was received does not answer what was asked: the connection is no longer usable.
    fn take_in(&self, number: u64, frame: &[u8]) -> Result<()> {
        let reply = Reply::decode(frame)?;
        let now = self.clock.now();
        let mut state = self.state.lock();
        let SessionState { link, last_zxid, .. } = &mut *state;
        let Some(link) = link.as_mut().filter(|link| link.number == number) else { return Ok(()) };
        // Only from what is an answer: a number out of half a frame is larger than any that the
        // servers have, and they would refuse the client until its session is over.
        let mut has_seen = || *last_zxid = (*last_zxid).max(reply.zxid);
        match reply.xid {
            WATCH_XID => {
                let event = reply.event()?;
                has_seen();
                let (fired, renewed) = state.fired(&event.path, event.kind, now);
                drop(state);
                self.tell(fired);
                return renewed;
            }
            PING_XID => {
                let sent_at = link.pinged.take().ok_or_else(|| unexpected(reply.xid))?;
                if reply.code.demands_an_identity() {
                    link.refused(&reply);
                }
                // A server that refuses a ping has not heard it.
                if !reply.code.is_ok() {
                    return Err(reply.code.to_error("the session"));
                }
                has_seen();
                link.lease.answered(sent_at, now);
                return Ok(());
            }
            _ => {}
        }
        // It stays among the pending ones if this is not its answer, so that it fails with them.
        if link.pending.front().is_none_or(|first| first.xid != reply.xid) {
            return Err(unexpected(reply.xid));
        }
        if reply.code.demands_an_identity() {
            link.refused(&reply);
            return Err(reply.code.to_error("the session"));
        }
        // Nothing is taken from a reply that cannot be read: its request may have made a node, and
        // its outcome is unknown, like that of the others.
        let verdict = reply.verdict(&link.pending[0].shape)?;
        let Pending { shape, sent_at, then, .. } =
            link.pending.pop_front().expect("it was just looked at");
        has_seen();
        let is_over = verdict.ends_the_connection();
        if !is_over {
            // Before `answered`: this write's own answer does not show that the leader knew of the
            // write when it was agreed to.
            if verdict.is_ok() && shape.opcode.is_write() {
                let until = link.agreed(sent_at);
                state.term.lengthen(until);
            }
            if let Some(link) = &mut state.link {
                link.lease.answered(sent_at, now);
            }
        }
        let over = if is_over { Err(verdict.to_error("the session")) } else { Ok(()) };
        match then {
            // The answer to a transaction of a session that is over is of no use to anybody.
            then if is_over && reply.code.is_ok() => then.fail(&verdict.to_error("the session")),
            Then::Answer(slot, place) => {
                drop(state);
                slot.answer(place, reply);
            }
            Then::Closed(slot) => {
                state.session = None;
                drop(state);
                slot.answer(0, reply);
            }
            Then::Changed(slot) => {
                if let Some(link) = &mut state.link {
                    link.change_answered(&reply, &shape, now.since(sent_at), now);
                }
                drop(state);
                slot.answer(0, reply);
            }
            Then::ChangedTogether(together) => {
                let Some(link) = &mut state.link else { return over };
                link.change_answered(&reply, &shape, now.since(sent_at), now);
                let answers = link.changed_together(together, &reply, now)?;
                drop(state);
                for answer in answers {
                    answer.give();
                }
            }
            then @ Then::LookedTogether(_) if is_over => then.refuse(&reply),
            Then::LookedTogether(looks) => {
                let Some(link) = &mut state.link else { return over };
                let answers = link.looked_together(looks, &reply, now);
                drop(state);
                for answer in unless_ended(answers)?.unwrap_or_default() {
                    answer.give();
                }
            }
            Then::Nothing => {}
            Then::Heartbeat => {
                if let Some(link) = &mut state.link {
                    link.is_heartbeat_pending = false;
                }
            }
            Then::Deleted(path) => {
                if !is_over {
                    let failed = state.deletion_answered(&path, reply.code, now);
                    drop(state);
                    if let Some(error) = failed {
                        log::warn!(
                            "a node could not be deleted, and stays until the session ends: {error}"
                        );
                    }
                }
            }
            // If the server has refused it (it is overloaded, for example), a message comes for a
            // node that nobody watches, or wakes a later watch of it, which then has the server's
            // only one.
            Then::Unwatched(path) => state.watches.removed(&path),
            Then::Renewed(path) => {
                let fired = match reply.code {
                    Code::OK => return over,
                    Code::NO_NODE => state.watches.fired(&path, EventKind::Deleted),
                    _ => state.watches.failed(&path),
                };
                drop(state);
                self.tell(fired);
            }
            Then::Watching(path) => match reply.code {
                Code::OK | Code::NO_NODE => {
                    let topics = state.watches.latch(&path);
                    drop(state);
                    if !topics.is_empty() {
                        self.send(Ok(Received::Watching(topics)));
                    }
                }
                code => {
                    let why = code.to_error(&path);
                    state.latch_is_unwatched(path, now);
                    drop(state);
                    log::debug!("a latch is not watched yet: {why}");
                }
            },
        }
        over
    }

    /// Sends a heartbeat or a ping if one is due. False: the connection was given up.
    ///
    /// # Errors
    /// The server has not answered for too long.
    fn keep_alive(&self, number: u64) -> Result<bool> {
        let now = self.clock.now();
        let is_held = self.held.load(Ordering::Acquire) > 0;
        let mut state = self.state.lock();
        let is_running = state.phase != Phase::Ended;
        let is_open = state.phase == Phase::Running;
        let (Some(rhythm), Some(link)) = (state.rhythm, state.link.as_mut()) else {
            return Ok(false);
        };
        if link.number != number {
            return Ok(false);
        }
        // After the close of the session nothing would answer them.
        if is_open {
            unless_ended(link.send_queued(now))?;
        }
        if link.silent_since().is_some_and(|since| now.since(since) > rhythm.silence) {
            let why = format!(
                "{:?} has not answered for {:?}, a third of the session",
                link.address, rhythm.silence
            );
            return Err(Error::new(ErrorKind::Unreachable, why));
        }
        let has_beaten = is_held && link.heartbeat_if_due(&self.root, &rhythm, now)?;
        if !has_beaten && link.pinged.is_none() && now.since(link.last_sent) >= rhythm.ping {
            link.ping(now)?;
        }
        state.ask_again_if_due(now)?;
        Ok(is_running)
    }

    /// Wakes the waiters for what has happened to a node, and reports a loss.
    fn tell(&self, fired: Fired) {
        if fired.is_loss
            && let Some(told) = self.losses.get()
        {
            told();
        }
        self.publish(fired.woken);
    }

    /// Wakes the waiters for these topics.
    pub(super) fn publish(&self, topics: Vec<Topic>) {
        if !topics.is_empty() {
            self.send(Ok(Received::Notified(topics)));
        }
    }
}

/// If the server has ended the connection, what it has said before is read first. `None`: it has.
fn unless_ended<T>(sent: Result<T>) -> Result<Option<T>> {
    match sent {
        Err(error) if is_an_end(&error) => Ok(None),
        sent => sent.map(Some),
    }
}

#[cold]
fn unexpected(xid: i32) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!("the server answered a request that was never sent (xid {xid})"),
    )
}
