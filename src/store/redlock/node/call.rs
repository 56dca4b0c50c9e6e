//! One exchange with a master: sending requests, and reading the replies as they come.

use super::evidence::Evidence;
use super::exchange::Exchange;
use super::{Effort, Node, Taken, UnreadReply, is_late};
use crate::base::error::{Error, ErrorKind};
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::store::redis::wire::{Connection, RedisFailure, Reply, Request, UnknownOutcome};

/// Requests under way to one master.
pub(crate) struct NodeCall<'n> {
    node: &'n Node,
    /// `None` once the call has ended.
    sent: Option<Exchange>,
    holder: Option<Holder>,
    /// Why the replies could not be read.
    failed: Option<RedisFailure>,
}

/// Sending is implemented here and not beside the state of [`Node`], so that only this file knows
/// both.
impl Node {
    /// Sends the requests that `make` makes, from the connection and the run_id of the process at
    /// the other end, in one write. They follow earlier requests of the same `holder`.
    ///
    /// # Errors
    /// The master is down, has unread replies and no free connection, or cannot be reached; or the
    /// outcome is unknown.
    pub(crate) fn send(
        &self,
        holder: Option<&Holder>,
        make: impl Fn(&Connection, &str) -> Vec<Request>,
    ) -> std::result::Result<NodeCall<'_>, RedisFailure> {
        self.send_again(holder, Effort::Connect, &make)
    }

    /// Sends once more if the connection had ended while it was idle, which says nothing about the
    /// master.
    fn send_again(
        &self,
        holder: Option<&Holder>,
        effort: Effort,
        make: impl Fn(&Connection, &str) -> Vec<Request>,
    ) -> std::result::Result<NodeCall<'_>, RedisFailure> {
        match self.send_once(holder, effort, &make) {
            Err(RedisFailure::Unknown { ended: true, unknown, .. }) => {
                self.send_once(holder, effort, &make).map_err(|repeat| after(unknown, repeat))
            }
            outcome => outcome,
        }
    }

    /// Like [`send`](Self::send), but never waits: `None` if a connection has to be made first.
    pub(crate) fn send_now(
        &self,
        holder: Option<&Holder>,
        make: impl Fn(&Connection, &str) -> Vec<Request>,
    ) -> Option<std::result::Result<NodeCall<'_>, RedisFailure>> {
        if !self.has_connection() {
            return None;
        }
        match self.send_once(holder, Effort::Open, make) {
            // It had ended while it was idle, or another thread has just taken it.
            Err(RedisFailure::Unknown { ended: true, .. }) => None,
            Err(RedisFailure::NotSent(_)) if !self.has_connection() => None,
            outcome => Some(outcome),
        }
    }

    /// Like [`send`](Self::send), but also sends to a master that has unread replies and no free
    /// connection, or that was down at the last attempt, because a majority needs it.
    pub(crate) fn send_anyway(
        &self,
        holder: Option<&Holder>,
        make: impl Fn(&Connection, &str) -> Vec<Request>,
    ) -> std::result::Result<NodeCall<'_>, RedisFailure> {
        self.probe();
        self.await_unread();
        self.send_again(holder, Effort::Anyway, make)
    }

    /// Asks only this master, also if it looks slow: no other can answer instead.
    pub(crate) fn ask_alone(
        &self,
        make: impl Fn(&Connection, &str) -> Vec<Request>,
    ) -> std::result::Result<Vec<Reply>, RedisFailure> {
        self.send_anyway(None, &make)?.finish(make).map(|(replies, _)| replies)
    }

    fn send_once(
        &self,
        holder: Option<&Holder>,
        effort: Effort,
        make: impl Fn(&Connection, &str) -> Vec<Request>,
    ) -> std::result::Result<NodeCall<'_>, RedisFailure> {
        let Taken { mut connection, missing, earlier, out } =
            self.take(holder, effort).map_err(RedisFailure::NotSent)?;
        let unknowns: Vec<UnknownOutcome> =
            self.state.lock().unknowns.iter().map(|(unknown, _)| unknown.clone()).collect();
        let kills = match connection.kills_for(unknowns.iter()) {
            Ok(kills) => kills,
            Err(wait) => {
                match earlier {
                    // The next user of this connection would take the pending replies for its own.
                    Some(unknown) => self.state.lock().unknowns.push((unknown, holder.cloned())),
                    None => self.give_back(&mut self.state.lock(), connection),
                }
                let why = format!(
                    "an earlier attempt can still reach it for {wait:?}, and CLIENT KILL is not permitted"
                );
                return Err(RedisFailure::NotSent(Error::new(ErrorKind::Unreachable, why)));
            }
        };
        let Some(run_id) = connection.run_id().map(str::to_owned) else {
            self.give_back(&mut self.state.lock(), connection);
            let why = "INFO does not contain its run_id, which Redlock needs to detect restarts";
            return Err(RedisFailure::NotSent(Error::new(ErrorKind::Denied, why)));
        };
        let own = make(&connection, &run_id);
        match connection.send(kills.iter().chain(&own)) {
            Ok(mut flight) => {
                if let Some(earlier) = earlier {
                    flight.unknown.includes(&earlier);
                }
                let kill_count = kills.len();
                let sent = Some(Exchange {
                    connection,
                    out,
                    flight,
                    earlier: missing,
                    requests: kills.into_iter().chain(own).collect(),
                    replies: Vec::new(),
                    kills: kill_count,
                    resolves: unknowns,
                    quarantined: false,
                });
                Ok(NodeCall { node: self, sent, holder: holder.cloned(), failed: None })
            }
            Err(mut failure) => {
                if let (RedisFailure::Unknown { unknown, .. }, Some(earlier)) =
                    (&mut failure, earlier)
                {
                    unknown.includes(&earlier);
                }
                Err(self.record_failure(failure, holder))
            }
        }
    }
}

impl NodeCall<'_> {
    pub(crate) fn connection(&self) -> &Connection {
        &self.sent.as_ref().expect("it is under way").connection
    }

    pub(crate) fn sent_at(&self) -> Moment {
        self.sent.as_ref().expect("it is under way").flight.sent_at
    }

    /// Reads what has arrived, without waiting. True when no more will come: all replies have been
    /// read, or the connection has failed ([`finish`](Self::finish) returns why).
    pub(crate) fn read_available(&mut self) -> bool {
        let Some(sent) = &mut self.sent else { return true };
        sent.read_available().unwrap_or_else(|failure| {
            self.failed = Some(failure);
            true
        })
    }

    /// Whether [`finish`](Self::finish) connects again and waits for a reply.
    pub(crate) fn must_repeat(&self) -> bool {
        matches!(self.failed, Some(RedisFailure::Unknown { ended: true, .. }))
    }

    /// The time for the replies is up. Whether the connection may have been cut in silence while it
    /// was idle, so that [`finish`](Self::finish) repeats the requests: the attempt before is
    /// killed, like that of a connection that has ended.
    pub(crate) fn was_cut_in_silence(&mut self) -> bool {
        let Some(Exchange { connection, flight, .. }) = &self.sent else { return false };
        self.failed = connection.cut_in_silence(flight);
        self.failed.is_some()
    }

    /// Waits for the replies that have not been read yet. `make`: as for [`send`](Node::send). True
    /// if the replies answer a repeat and the first attempt may have run as well.
    pub(crate) fn finish(
        mut self,
        make: impl Fn(&Connection, &str) -> Vec<Request>,
    ) -> std::result::Result<(Vec<Reply>, bool), RedisFailure> {
        match self.read() {
            // The same as in `send`. The requests are made again, because the server process may
            // have ended: one that came back with old data remembers that the old run_id had a
            // vote.
            Err(RedisFailure::Unknown { ended: true, unknown, .. }) => {
                let again = self.node.send(self.holder.as_ref(), make);
                let mut again = again.map_err(|repeat| after(unknown.clone(), repeat))?;
                let may_have_run = again.connection().may_have_run(&unknown);
                again.read().map(|replies| (replies, may_have_run))
            }
            Ok(replies) if replies.iter().any(Reply::is_refused_here) => {
                // The idle connections are logged out as well, or as wrong about the clock.
                self.node.state.lock().free.clear();
                let mut again = self.node.send(self.holder.as_ref(), make)?;
                // Refused requests did not run.
                let may_have_run = !replies.iter().all(Reply::is_refused_here);
                again.read().map(|replies| (replies, may_have_run))
            }
            outcome => outcome.map(|replies| (replies, false)),
        }
    }

    fn read(&mut self) -> std::result::Result<Vec<Reply>, RedisFailure> {
        let mut sent = self.sent.take().expect("it is under way");
        let node = self.node;
        let outcome = match self.failed.take() {
            Some(failure) => Err(failure),
            None => read_all(&mut sent),
        };
        match outcome {
            Ok(()) => {
                let latency = node.clock().now().since(sent.flight.sent_at);
                let mut state = node.state.lock();
                state.health.latency = Some(latency);
                Ok(node.settle(&mut state, sent))
            }
            Err(failure) => Err(node.record_failure(failure, self.holder.as_ref())),
        }
    }

    /// Leaves the reply unread. The master has `io_timeout` for it, and the next request of this
    /// holder is sent on the same connection. Whoever needs to know whether the requests have run
    /// keeps the evidence.
    pub(crate) fn leave_unread(mut self) -> Evidence {
        let (witness, evidence) = Evidence::new();
        let (Some(sent), Some(holder)) = (self.sent.take(), self.holder.take()) else {
            return evidence;
        };
        let mut state = self.node.state.lock();
        if state.down.is_some() || state.closed {
            state.unknowns.push((sent.flight.unknown, Some(holder)));
        } else {
            let since = sent.flight.sent_at;
            state.unread.push(UnreadReply { exchange: sent, holder, since, witness });
        }
        evidence
    }

    /// The reply took too long: the master counts as down until it answers.
    pub(crate) fn give_up(mut self) -> RedisFailure {
        let sent = self.sent.take().expect("it is under way");
        let unknown = sent.flight.unknown;
        self.node.record_failure(
            RedisFailure::Unknown { error: is_late(), unknown, ended: false },
            self.holder.as_ref(),
        )
    }
}

impl Drop for NodeCall<'_> {
    /// After a panic during a call, its requests may still run.
    fn drop(&mut self) {
        if let Some(sent) = self.sent.take() {
            self.node.state.lock().unknowns.push((sent.flight.unknown, self.holder.take()));
        }
    }
}

/// Why a repeat failed. If it was not sent, the first attempt may have run all the same: the caller
/// must undo it.
fn after(first: UnknownOutcome, repeat: RedisFailure) -> RedisFailure {
    let error = match repeat {
        RedisFailure::NotSent(error) => error,
        // Another idle connection that had ended.
        RedisFailure::Unknown { error, unknown, .. } if !unknown.was_sent() => error,
        repeat => return repeat,
    };
    if first.was_sent() {
        RedisFailure::Unknown { error, unknown: first, ended: false }
    } else {
        RedisFailure::NotSent(error)
    }
}

fn read_all(sent: &mut Exchange) -> std::result::Result<(), RedisFailure> {
    while sent.missing() > 0 {
        let reply = sent.connection.recv(&sent.flight)?;
        sent.take_in(reply);
    }
    let Exchange { connection, replies, requests, .. } = sent;
    for (reply, request) in replies.iter_mut().zip(requests) {
        // Nothing ran. The whole script is sent now, and the server knows it from then on.
        if reply.is_error("NOSCRIPT")
            && let Some(whole) = request.whole()
        {
            let again = connection.send(std::iter::once(&whole))?;
            *reply = connection.recv(&again)?;
        }
    }
    Ok(())
}
