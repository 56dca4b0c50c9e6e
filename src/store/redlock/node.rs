//! One master of several: its connections, and when it is better not asked.
//!
//! What one holder sends to one master runs there in the order in which it was sent, although the caller does not wait
//! for every reply: a connection whose reply nobody waited for is kept with the holder that is owed it, and when one
//! breaks, the next that goes to this master kills it first.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::holder::Holder;
use crate::lease::Moment;
use crate::script;
use crate::wire::{Dialer, Doubt, Failure, InFlight, Link, Reply, Request};

/// Connections to a master that owe a reply, beyond which it is not asked for more.
const MOST_LATE: usize = 16;

pub(super) struct Node {
    pub(super) dialer: Dialer,
    state: Mutex<State>,
}

struct State {
    free: Vec<Link>,
    late: Vec<Late>,
    /// Connections that broke with something unanswered, which may still run, and whose it is.
    doubts: Vec<(Doubt, Option<Holder>)>,
    down: Option<Down>,
    standing: Standing,
    closed: bool,
}

/// A connection whose reply nobody waited for.
struct Late {
    link: Link,
    flight: InFlight,
    owed: usize,
    holder: Holder,
    since: Moment,
}

impl Late {
    /// What has come, and no more: nobody waits for a slow master here.
    fn read(&mut self) -> std::result::Result<(), Failure> {
        while self.owed > 0 && self.link.recv_now(&self.flight)?.is_some() {
            self.owed -= 1;
        }
        Ok(())
    }
}

/// Not asked before it has been reached again in the background.
struct Down {
    error: Error,
    again: Moment,
    pause: Backoff,
}

/// What is known of a master, for [`nodes`](crate::LockClient::nodes).
#[derive(Debug, Clone, Default)]
pub(super) struct Standing {
    pub(super) latency: Option<Duration>,
    pub(super) last_error: Option<Error>,
    /// It has said that it has no vote; the moment is when it can be admitted, as far as this client knows.
    pub(super) quarantined: Option<Option<Moment>>,
}

/// Requests under way to one master.
pub(super) struct Call<'n> {
    node: &'n Node,
    /// Taken out when it is over.
    out: Option<Out>,
    requests: Vec<Request>,
    holder: Option<Holder>,
    replies: Vec<Reply>,
    /// Reading them has failed.
    failed: Option<Failure>,
}

struct Out {
    link: Link,
    flight: InFlight,
    /// Replies of earlier requests that come first.
    owed: usize,
    /// What nothing can come of any more once the reply is here: those connections are killed in front of the requests,
    /// or need not be. Not what others have come to doubt meanwhile.
    settles: Vec<Doubt>,
}

impl Node {
    pub(super) fn new(dialer: Dialer) -> Self {
        let state = State {
            free: Vec::new(),
            late: Vec::new(),
            doubts: Vec::new(),
            down: None,
            standing: Standing { quarantined: Some(None), ..Standing::default() },
            closed: false,
        };
        Self { dialer, state: Mutex::new(state) }
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.dialer.clock
    }

    pub(super) fn standing(&self) -> (Standing, Option<Error>) {
        let state = self.state.lock();
        (state.standing.clone(), state.down.as_ref().map(|down| down.error.clone()))
    }

    pub(super) fn quarantine(&self, until: Option<Option<Moment>>) {
        self.state.lock().standing.quarantined = until;
    }

    /// Whether a request to it goes out without a connect.
    pub(super) fn has_link(&self) -> bool {
        let state = self.state.lock();
        !state.free.is_empty() || !state.late.is_empty() || state.down.is_some()
    }

    /// Sends what `make` makes for the connection and the run_id of the process at its other end, in one write. `holder`: whose requests they are, so that
    /// they follow its earlier ones.
    ///
    /// # Errors
    /// Nothing was sent: it is down, or slower than others, or cannot be reached.
    pub(super) fn send(
        &self,
        holder: Option<&Holder>,
        make: impl Fn(&Link, &str) -> Vec<Request>,
    ) -> std::result::Result<Call<'_>, Failure> {
        match self.send_once(holder, false, &make) {
            // The connection had ended in its sleep, which says nothing about the master.
            Err(Failure::InDoubt { stale: true, .. }) => self.send_once(holder, false, &make),
            outcome => outcome,
        }
    }

    /// [`send`](Self::send), also to one that owes others a reply and has no connection free: it is needed.
    pub(super) fn send_anyway(
        &self,
        holder: Option<&Holder>,
        make: impl Fn(&Link, &str) -> Vec<Request>,
    ) -> std::result::Result<Call<'_>, Failure> {
        self.send_once(holder, true, make)
    }

    fn send_once(
        &self,
        holder: Option<&Holder>,
        anyway: bool,
        make: impl Fn(&Link, &str) -> Vec<Request>,
    ) -> std::result::Result<Call<'_>, Failure> {
        let (mut link, owed, earlier) = self.take(holder, anyway).map_err(Failure::NotSent)?;
        let doubts: Vec<Doubt> = self.state.lock().doubts.iter().map(|(doubt, _)| doubt.clone()).collect();
        let mut requests = match link.kills_for(doubts.iter()) {
            Ok(kills) => kills,
            Err(wait) => {
                match earlier {
                    // The next to use it would take the replies that it owes for its own.
                    Some(doubt) => self.state.lock().doubts.push((doubt, holder.cloned())),
                    None => self.give_back(link),
                }
                let why =
                    format!("an earlier attempt can still reach it for {wait:?}, and CLIENT KILL is not permitted");
                return Err(Failure::NotSent(Error::new(ErrorKind::Unreachable, why)));
            }
        };
        let Some(run_id) = link.run_id().map(str::to_owned) else {
            self.give_back(link);
            let why = "INFO does not tell its run_id, which Redlock needs to see restarts";
            return Err(Failure::NotSent(Error::new(ErrorKind::Denied, why)));
        };
        let own = make(&link, &run_id);
        requests.extend(own.iter().cloned());
        match link.send(requests.iter()) {
            Ok(mut flight) => {
                let owed = owed + requests.len() - own.len();
                if let Some(earlier) = earlier {
                    flight.doubt.includes(&earlier);
                }
                let out = Some(Out { link, flight, owed, settles: doubts });
                Ok(Call { node: self, out, requests: own, holder: holder.cloned(), replies: Vec::new(), failed: None })
            }
            Err(mut failure) => {
                if let (Failure::InDoubt { doubt, .. }, Some(earlier)) = (&mut failure, earlier) {
                    doubt.includes(&earlier);
                }
                Err(self.failed(failure, holder))
            }
        }
    }

    /// A connection, how many replies come on it first, and what they belong to.
    fn take(&self, holder: Option<&Holder>, anyway: bool) -> Result<(Link, usize, Option<Doubt>)> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::new(ErrorKind::Closed, "the client was closed"));
        }
        if let Some(down) = &state.down {
            return Err(down.error.clone());
        }
        self.drain(&mut state)?;
        if let Some(at) = holder.and_then(|holder| state.late.iter().position(|late| late.holder == *holder)) {
            let late = state.late.swap_remove(at);
            return Ok((late.link, late.owed, Some(late.flight.doubt)));
        }
        if let Some(link) = state.free.pop() {
            return Ok((link, 0, None));
        }
        // A connect would have to wait for it as well.
        if let Some(oldest) = state.late.iter().map(|late| late.since).min()
            && !anyway
        {
            let late = self.clock().now().since(oldest);
            return Err(Error::new(ErrorKind::Unreachable, format!("it has not answered for {late:?}")));
        }
        drop(state);
        self.dialer.dial().inspect_err(|e| self.mark_down(e)).map(|link| (link, 0, None))
    }

    /// Reads the replies that have come in late. One that is overdue means that the master hangs.
    fn drain(&self, state: &mut State) -> Result<()> {
        if state.late.is_empty() {
            return Ok(());
        }
        let links: Vec<&Link> = state.late.iter().map(|late| &late.link).collect();
        let answered = Link::answered(&links, Duration::ZERO);
        let (mut kept, now) = (Vec::new(), self.clock().now());
        for (mut late, ready) in std::mem::take(&mut state.late).into_iter().zip(answered) {
            let read = if ready { late.read() } else { Ok(()) };
            match read {
                Ok(()) if late.owed == 0 => {
                    late.link.mark_idle();
                    state.free.push(late.link);
                }
                Ok(()) if now.since(late.since) <= self.dialer.io_timeout && kept.len() < MOST_LATE => kept.push(late),
                _ => state.doubts.push((late.flight.doubt, Some(late.holder))),
            }
        }
        let lost = !state.doubts.is_empty() && kept.is_empty() && state.free.is_empty();
        state.late = kept;
        if lost {
            let error = Error::new(ErrorKind::Unreachable, "it did not answer within its timeout (io_timeout)");
            self.put_down(state, &error);
            return Err(error);
        }
        Ok(())
    }

    fn give_back(&self, mut link: Link) {
        link.mark_idle();
        let mut state = self.state.lock();
        if !state.closed && state.down.is_none() {
            state.free.push(link);
        }
    }

    /// A connection broke. Those that lie idle have most likely ended too.
    fn failed(&self, failure: Failure, holder: Option<&Holder>) -> Failure {
        match &failure {
            Failure::InDoubt { stale: true, doubt, .. } => {
                let mut state = self.state.lock();
                state.free.clear();
                state.doubts.push((doubt.clone(), holder.cloned()));
            }
            Failure::InDoubt { error, doubt, .. } => {
                let mut state = self.state.lock();
                state.doubts.push((doubt.clone(), holder.cloned()));
                self.put_down(&mut state, error);
            }
            Failure::NotSent(_) => {}
        }
        failure
    }

    fn mark_down(&self, error: &Error) {
        self.put_down(&mut self.state.lock(), error);
    }

    fn put_down(&self, state: &mut State, error: &Error) {
        log::debug!("{:?} is not asked until it answers again: {error}", self.dialer.endpoint);
        state.free.clear();
        for late in state.late.drain(..) {
            state.doubts.push((late.flight.doubt, Some(late.holder)));
        }
        state.standing.last_error = Some(error.clone());
        let first = Duration::from_millis(50);
        let mut pause = Backoff::new(first, Duration::from_secs(2));
        let again = self.clock().now().plus(pause.next());
        state.down.get_or_insert(Down { error: error.clone(), again, pause });
    }

    /// In the background: reaches out to a master that is down. True: it is back; `None`: it was not the time for that.
    pub(super) fn probe(&self) -> Option<bool> {
        {
            let mut state = self.state.lock();
            // Also when nobody asks it meanwhile: one that hangs is seen to.
            let _ = self.drain(&mut state);
            match &state.down {
                Some(down) if down.again <= self.clock().now() => {}
                _ => return None,
            }
        }
        let dialed = self.dialer.dial();
        let mut state = self.state.lock();
        match dialed {
            Ok(link) => {
                log::debug!("{:?} answers again", self.dialer.endpoint);
                state.down = None;
                if !state.closed {
                    state.free.push(link);
                }
                Some(true)
            }
            Err(error) => {
                let now = self.clock().now();
                state.standing.last_error = Some(error.clone());
                if let Some(down) = &mut state.down {
                    down.error = error;
                    down.again = now.plus(down.pause.next());
                }
                Some(false)
            }
        }
    }

    /// Whether it may still run what this holder sent: it has not answered, and has not been told to forget it.
    pub(super) fn may_still_run(&self, holder: &Holder) -> bool {
        let state = self.state.lock();
        state.late.iter().any(|late| late.holder == *holder)
            || state.doubts.iter().any(|(_, whose)| whose.as_ref() == Some(holder))
    }

    /// When [`probe`](Self::probe) has something to do; `None`: nothing is wrong.
    pub(super) fn probe_at(&self) -> Option<Moment> {
        let state = self.state.lock();
        let late = state.late.iter().map(|late| late.since.plus(self.dialer.io_timeout)).min();
        state.down.as_ref().map(|down| down.again).or(late)
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.free.clear();
        state.late.clear();
    }
}

impl Call<'_> {
    pub(super) fn link(&self) -> &Link {
        &self.out.as_ref().expect("it is under way").link
    }

    pub(super) fn sent_at(&self) -> Moment {
        self.out.as_ref().expect("it is under way").flight.sent_at
    }

    /// Reads what has come; true when that is all, or the connection has failed, which `finish` says. Replies that an
    /// earlier request is owed come first, and the rest can be long after them.
    pub(super) fn is_over(&mut self) -> bool {
        let Some(Out { link, flight, owed, .. }) = &mut self.out else { return true };
        while *owed > 0 || self.replies.len() < self.requests.len() {
            match link.recv_now(flight) {
                Ok(Some(_)) if *owed > 0 => *owed -= 1,
                Ok(Some(reply)) => self.replies.push(reply),
                Ok(None) => return false,
                Err(failure) => {
                    self.failed = Some(failure);
                    return true;
                }
            }
        }
        true
    }

    /// Reads the replies that have not been read yet: blocks for them. `make`: as for [`send`](Node::send).
    pub(super) fn finish(
        mut self,
        make: impl Fn(&Link, &str) -> Vec<Request>,
    ) -> std::result::Result<Vec<Reply>, Failure> {
        match self.read() {
            // As in `send`. Made anew and not repeated, because it may have ended with the server process: one that came
            // back with old data remembers that the run_id of the process before it had a vote.
            Err(Failure::InDoubt { stale: true, .. }) => self.node.send(self.holder.as_ref(), make)?.read(),
            outcome => outcome,
        }
    }

    fn read(&mut self) -> std::result::Result<Vec<Reply>, Failure> {
        let Out { mut link, flight, owed, settles } = self.out.take().expect("it is read once");
        let node = self.node;
        let replies = std::mem::take(&mut self.replies);
        let outcome = match self.failed.take() {
            Some(failure) => Err(failure),
            None => read_all(&mut link, &flight, owed, replies, &self.requests),
        };
        match outcome {
            Ok(replies) => {
                let latency = node.clock().now().since(flight.sent_at);
                {
                    let mut state = node.state.lock();
                    state.standing.latency = Some(latency);
                    state.doubts.retain(|(doubt, _)| !settles.iter().any(|settled| settled.same_connection(doubt)));
                }
                if !replies.iter().any(Reply::is_demotion) {
                    node.give_back(link);
                }
                Ok(replies)
            }
            Err(failure) => Err(node.failed(failure, self.holder.as_ref())),
        }
    }

    /// Nobody waits for the reply any more: the master has `io_timeout` for it, and whatever this holder sends next goes
    /// out behind it.
    pub(super) fn leave(mut self) {
        let (Some(out), Some(holder)) = (self.out.take(), self.holder.take()) else { return };
        let owed = out.owed + self.requests.len() - self.replies.len();
        let since = out.flight.sent_at;
        let mut state = self.node.state.lock();
        if state.down.is_some() || state.closed {
            state.doubts.push((out.flight.doubt, Some(holder)));
        } else {
            state.late.push(Late { link: out.link, flight: out.flight, owed, holder, since });
        }
    }

    /// It took too long: the master is not asked again before it answers.
    pub(super) fn give_up(mut self, error: Error) -> Failure {
        let out = self.out.take().expect("it is under way");
        let doubt = out.flight.doubt;
        self.node.failed(Failure::InDoubt { error, doubt, stale: false }, self.holder.as_ref())
    }
}

impl Drop for Call<'_> {
    /// After a panic: what was sent may run.
    fn drop(&mut self) {
        if let Some(out) = self.out.take() {
            self.node.state.lock().doubts.push((out.flight.doubt, self.holder.take()));
        }
    }
}

fn read_all(
    link: &mut Link,
    flight: &InFlight,
    owed: usize,
    mut replies: Vec<Reply>,
    requests: &[Request],
) -> std::result::Result<Vec<Reply>, Failure> {
    for _ in 0..owed {
        link.recv(flight)?;
    }
    while replies.len() < requests.len() {
        replies.push(link.recv(flight)?);
    }
    for (reply, request) in replies.iter_mut().zip(requests) {
        // Nothing ran: sent whole, it is known from there on.
        if reply.is_error("NOSCRIPT")
            && let Some(whole) = request.whole()
        {
            let again = link.send(std::iter::once(&whole))?;
            *reply = link.recv(&again)?;
        }
    }
    Ok(replies)
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("endpoint", &self.dialer.endpoint).finish_non_exhaustive()
    }
}

/// An error of one master in a word or two, for the message about all of them.
pub(super) fn in_short(failure: &Failure) -> &Error {
    match failure {
        Failure::NotSent(error) | Failure::InDoubt { error, .. } => error,
    }
}

/// Replies that may be errors as a result of one.
pub(super) fn one(replies: Vec<Reply>) -> Result<Reply> {
    let mut replies = replies.into_iter();
    replies.next().ok_or_else(|| Error::new(ErrorKind::Protocol, "no reply")).and_then(script::fail_on_error)
}
