//! One exchange with a master: sent, and read when something has come.

use super::{Node, UnreadReply};
use crate::base::error::Error;
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::store::redis::wire::{Connection, Failure, InFlight, Reply, Request, UnknownOutcome};

/// Requests under way to one master.
pub(crate) struct Call<'n> {
    pub(super) node: &'n Node,
    /// Taken out when it is over.
    pub(super) out: Option<Out>,
    pub(super) requests: Vec<Request>,
    pub(super) holder: Option<Holder>,
    pub(super) replies: Vec<Reply>,
    /// Reading them has failed.
    pub(super) failed: Option<Failure>,
}

pub(super) struct Out {
    pub(super) connection: Connection,
    pub(super) flight: InFlight,
    /// Replies of earlier requests that come first.
    pub(super) owed: usize,
    /// What nothing can come of any more once the reply is here: those connections are killed in front of the requests,
    /// or need not be. Not what others have come to unknown outcome meanwhile.
    pub(super) settles: Vec<UnknownOutcome>,
}

impl Call<'_> {
    pub(crate) fn connection(&self) -> &Connection {
        &self.out.as_ref().expect("it is under way").connection
    }

    pub(crate) fn sent_at(&self) -> Moment {
        self.out.as_ref().expect("it is under way").flight.sent_at
    }

    /// Reads what has come; true when that is all, or the connection has failed, which `finish` says. Replies that an
    /// earlier request is owed come first, and the rest can be long after them.
    pub(crate) fn is_over(&mut self) -> bool {
        let Some(Out { connection, flight, owed, .. }) = &mut self.out else { return true };
        let mut fresh = true;
        while *owed > 0 || self.replies.len() < self.requests.len() {
            match connection.recv_now(flight, std::mem::take(&mut fresh)) {
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
    /// True: they are those of a repeat, and the first attempt may have run as well.
    pub(crate) fn finish(
        mut self,
        make: impl Fn(&Connection, &str) -> Vec<Request>,
    ) -> std::result::Result<(Vec<Reply>, bool), Failure> {
        match self.read() {
            // As in `send`. Made anew and not repeated, because it may have ended with the server process: one that came
            // back with old data remembers that the run_id of the process before it had a vote.
            Err(Failure::Unknown { stale: true, unknown, .. }) => {
                let mut again = self.node.send(self.holder.as_ref(), make)?;
                let may_have_run = again.connection().may_have_run(&unknown);
                again.read().map(|replies| (replies, may_have_run))
            }
            outcome => outcome.map(|replies| (replies, false)),
        }
    }

    fn read(&mut self) -> std::result::Result<Vec<Reply>, Failure> {
        let Out { mut connection, flight, owed, settles } = self.out.take().expect("it is read once");
        let node = self.node;
        let replies = std::mem::take(&mut self.replies);
        let outcome = match self.failed.take() {
            Some(failure) => Err(failure),
            None => read_all(&mut connection, &flight, owed, replies, &self.requests),
        };
        match outcome {
            Ok(replies) => {
                let latency = node.clock().now().since(flight.sent_at);
                {
                    let mut state = node.state.lock();
                    state.health.latency = Some(latency);
                    state
                        .unknowns
                        .retain(|(unknown, _)| !settles.iter().any(|resolved| resolved.same_connection(unknown)));
                }
                if !replies.iter().any(Reply::is_demotion) {
                    node.give_back(connection);
                }
                Ok(replies)
            }
            Err(failure) => Err(node.failed(failure, self.holder.as_ref())),
        }
    }

    /// Nobody waits for the reply any more: the master has `io_timeout` for it, and whatever this holder sends next goes
    /// out behind it.
    pub(crate) fn leave(mut self) {
        let (Some(out), Some(holder)) = (self.out.take(), self.holder.take()) else { return };
        let owed = out.owed + self.requests.len() - self.replies.len();
        let since = out.flight.sent_at;
        let mut state = self.node.state.lock();
        if state.down.is_some() || state.closed {
            state.unknowns.push((out.flight.unknown, Some(holder)));
        } else {
            state.late.push(UnreadReply { connection: out.connection, flight: out.flight, owed, holder, since });
        }
    }

    /// It took too long: the master is not asked again before it answers.
    pub(crate) fn give_up(mut self, error: Error) -> Failure {
        let out = self.out.take().expect("it is under way");
        let unknown = out.flight.unknown;
        self.node.failed(Failure::Unknown { error, unknown, stale: false }, self.holder.as_ref())
    }
}

impl Drop for Call<'_> {
    /// After a panic: what was sent may run.
    fn drop(&mut self) {
        if let Some(out) = self.out.take() {
            self.node.state.lock().unknowns.push((out.flight.unknown, self.holder.take()));
        }
    }
}

fn read_all(
    connection: &mut Connection,
    flight: &InFlight,
    owed: usize,
    mut replies: Vec<Reply>,
    requests: &[Request],
) -> std::result::Result<Vec<Reply>, Failure> {
    for _ in 0..owed {
        connection.recv(flight)?;
    }
    while replies.len() < requests.len() {
        replies.push(connection.recv(flight)?);
    }
    for (reply, request) in replies.iter_mut().zip(requests) {
        // Nothing ran: sent whole, it is known from there on.
        if reply.is_error("NOSCRIPT")
            && let Some(whole) = request.whole()
        {
            let again = connection.send(std::iter::once(&whole))?;
            *reply = connection.recv(&again)?;
        }
    }
    Ok(replies)
}
