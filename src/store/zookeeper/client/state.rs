//! The state that the threads of a client share: the session, the present connection with the
//! requests that wait for a reply, and what is watched.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;

use super::joint::{Changes, JointLooks, Look, Together};
use super::slot::Slot;
use super::watches::{Fired, Renew, Watches};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::{Moment, SessionTerm};
use crate::signal::worker::Phase;
use crate::store::Topic;
use crate::store::net::{Address, Stream};
use crate::store::zookeeper::lease::{Rhythm, SessionLease};
use crate::store::zookeeper::wire::{
    Code, EventKind, PING_XID, Reply, Request, SessionId, Shape, to_error,
};

/// A session, distinguished from earlier ones by its generation.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) generation: u64,
    pub(crate) term: Arc<SessionTerm>,
}

#[derive(Default)]
pub(super) struct SessionState {
    pub(super) link: Option<Link>,
    /// The session that the next connection resumes.
    pub(super) session: Option<SessionId>,
    /// The generation of the present session, or of the last one while there is no session.
    pub(super) generation: u64,
    pub(super) term: Arc<SessionTerm>,
    /// Until when the present session is known to be alive, for the next connection.
    pub(super) until: Option<Moment>,
    /// When the last request that a server answered in the present session was sent.
    pub(super) heard_at: Option<Moment>,
    /// The rhythm of the last connection.
    pub(super) rhythm: Option<Rhythm>,
    pub(super) last_zxid: i64,
    pub(super) watches: Watches,
    /// Nodes to be deleted, until the server has reported that they are gone.
    pub(super) deletions: Vec<Deletion>,
    /// The latches that the server has refused to watch.
    unwatched: Vec<String>,
    /// The server has postponed some of these requests: when it is asked again.
    again_at: Option<Moment>,
    /// How often all servers have been tried, one after the other.
    pub(super) rounds: u64,
    /// The last of these rounds in which no server could be used.
    pub(super) failed_round: u64,
    pub(super) last_error: Option<Error>,
    /// A call waits for a connection.
    pub(super) is_wanted: bool,
    /// How often a connection began or ended.
    pub(super) moves: u64,
    pub(super) joint_looks: JointLooks,
    pub(super) phase: Phase,
}

pub(super) struct Deletion {
    pub(super) path: String,
    /// Whether the deletion was requested on the present connection.
    pub(super) sent: bool,
}

/// What to do with a reply.
pub(super) enum Then {
    Answer(Arc<Slot>, usize),
    /// The reply to the end of the session.
    Closed(Arc<Slot>),
    /// The first reply to a call that changes something.
    Changed(Arc<Slot>),
    /// The first reply to each of several such calls.
    ChangedTogether(Together),
    /// The replies to what several calls wanted to read.
    LookedTogether(Vec<Look>),
    Nothing,
    Heartbeat,
    /// The reply to the deletion of this node.
    Deleted(String),
    /// The watches on this node were removed.
    Unwatched(String),
    /// The watch on this node was set again.
    Renewed(String),
    /// From here on nothing that happens to the latch at this path is missed.
    Watching(String),
}

impl Then {
    /// The reply is this one. Nothing has run.
    pub(super) fn refuse(self, reply: &Reply) {
        match self {
            Self::Answer(slot, place) => slot.answer(place, reply.clone()),
            Self::Changed(slot) | Self::Closed(slot) => slot.answer(0, reply.clone()),
            Self::ChangedTogether(together) => together.refuse(reply),
            Self::LookedTogether(looks) => {
                for look in looks {
                    look.slot.answer(look.place, reply.clone());
                }
            }
            _ => {}
        }
    }

    /// No reply comes.
    pub(super) fn fail(&self, why: &Error) {
        match self {
            Self::Answer(slot, _) | Self::Changed(slot) | Self::Closed(slot) => slot.fail(why),
            Self::ChangedTogether(together) => together.fail(why),
            Self::LookedTogether(looks) => {
                for look in looks {
                    look.slot.fail(why);
                }
            }
            _ => {}
        }
    }
}

pub(super) struct Pending {
    pub(super) xid: i32,
    pub(super) shape: Shape,
    pub(super) sent_at: Moment,
    pub(super) then: Then,
}

/// The present connection.
pub(super) struct Link {
    /// Distinguishes it from earlier connections.
    pub(super) number: u64,
    pub(super) address: Address,
    writer: Stream,
    next_xid: i32,
    /// In the order in which the server answers them.
    pub(super) pending: VecDeque<Pending>,
    pub(super) changes: Changes,
    /// When it was pinged, if there has been no answer since.
    pub(super) pinged: Option<Moment>,
    pub(super) lease: SessionLease,
    /// When something was last sent.
    pub(super) last_sent: Moment,
    /// When the last write to which a majority has agreed was sent. `None`: none on this
    /// connection.
    agreed_at: Option<Moment>,
    /// When the last heartbeat was sent.
    last_heartbeat: Option<Moment>,
    /// Whether the last heartbeat has no answer yet.
    pub(super) is_heartbeat_pending: bool,
}

impl Link {
    /// `agreed_at`: when a new session was asked for.
    pub(super) fn new(
        number: u64,
        address: Address,
        writer: Stream,
        lease: SessionLease,
        agreed_at: Option<Moment>,
        now: Moment,
    ) -> Self {
        Self {
            number,
            address,
            writer,
            next_xid: 1,
            pending: VecDeque::new(),
            changes: Changes::default(),
            pinged: None,
            lease,
            last_sent: now,
            agreed_at,
            last_heartbeat: None,
            is_heartbeat_pending: false,
        }
    }

    /// Sends the requests in one write. `now`: read just before.
    ///
    /// # Errors
    /// The connection is no longer usable. The requests are among the pending ones, and may run.
    pub(super) fn send<'r>(
        &mut self,
        requests: impl Iterator<Item = (&'r Request, Then)>,
        now: Moment,
    ) -> Result<()> {
        let mut frames = Vec::with_capacity(256);
        for (request, then) in requests {
            let xid = self.next_xid;
            self.next_xid = self.next_xid.checked_add(1).unwrap_or(1);
            request.write_to(xid, &mut frames);
            self.writer.meter.requests(1);
            self.pending.push_back(Pending {
                xid,
                shape: request.shape.clone(),
                sent_at: now,
                then,
            });
        }
        self.last_sent = now;
        self.write(&frames)
    }

    /// [`send`](Self::send) for one request.
    pub(super) fn send_one(&mut self, request: &Request, then: Then, now: Moment) -> Result<()> {
        self.send(std::iter::once((request, then)), now)
    }

    pub(super) fn ping(&mut self, now: Moment) -> Result<()> {
        let mut frame = Vec::new();
        Request::ping().write_to(PING_XID, &mut frame);
        self.last_sent = now;
        self.pinged = Some(now);
        self.writer.meter.requests(1);
        self.write(&frame)
    }

    /// Sends a heartbeat, to which a majority has to agree, if one is due. False: none is due.
    ///
    /// A write counts only when it is answered without an error, not when it is sent: otherwise a
    /// client whose writes are all refused would never send a heartbeat, and would lose what it
    /// holds.
    pub(super) fn heartbeat_if_due(
        &mut self,
        root: &str,
        rhythm: &Rhythm,
        now: Moment,
    ) -> Result<bool> {
        let is_old = |at: Option<Moment>, age| at.is_none_or(|at| now.since(at) >= age);
        // A refused heartbeat (by an overloaded server, for example) is soon repeated.
        let is_due =
            is_old(self.agreed_at, rhythm.heartbeat) && is_old(self.last_heartbeat, rhythm.ping);
        if self.is_heartbeat_pending || !is_due {
            return Ok(false);
        }
        self.is_heartbeat_pending = true;
        self.last_heartbeat = Some(now);
        self.send_one(&Request::quorum_check(root), Then::Heartbeat, now).map(|()| true)
    }

    /// A majority has agreed to a write. Returns until when the session is alive.
    pub(super) fn agreed(&mut self, sent_at: Moment) -> Moment {
        self.agreed_at = self.agreed_at.max(Some(sent_at));
        self.lease.agreed(sent_at)
    }

    /// The server demands an identity. Nothing that was sent on this connection runs, so each
    /// request has the answer of the first one, and none has an unknown outcome. (What the server
    /// ran before it has answered before.)
    pub(super) fn refused(&mut self, reply: &Reply) {
        for pending in self.pending.drain(..) {
            pending.then.refuse(reply);
        }
        for change in self.changes.queue.drain(..) {
            change.refuse(reply);
        }
    }

    fn write(&mut self, frames: &[u8]) -> Result<()> {
        self.writer.write_all(frames).map_err(|e| to_error(e, &self.address))
    }

    pub(super) fn silent_since(&self) -> Option<Moment> {
        self.pending.front().map(|first| first.sent_at).into_iter().chain(self.pinged).min()
    }
}

impl SessionState {
    /// Whether there is something to connect for: also to end the session of a client that is being
    /// closed.
    pub(super) fn goes_on(&self) -> bool {
        self.phase == Phase::Running || self.phase == Phase::Stopping && self.session.is_some()
    }

    pub(super) fn present(&self) -> Session {
        Session { generation: self.generation, term: self.term.clone() }
    }

    /// The connection has ended: whoever waits for a reply gets an error, and all waiters have to
    /// check for themselves, because watches end with their connection. Returns the topics of these
    /// waiters.
    pub(super) fn end_link(&mut self, why: &Error) -> Vec<Topic> {
        let Some(link) = self.link.take() else { return Vec::new() };
        if self.phase == Phase::Running {
            link.writer.meter.broke();
        }
        link.writer.shutdown();
        self.until = Some(link.lease.until());
        self.heard_at = self.heard_at.max(link.lease.heard_at());
        self.moves += 1;
        self.last_error = Some(why.clone());
        self.joint_looks = link.joint_looks_after(why);
        // A reply that makes no sense is the outcome of the request whose turn it was. What is
        // behind it can be sent again at once.
        let behind = if why.kind() == ErrorKind::Protocol {
            let text = "a reply before this one could not be read";
            Error::new(ErrorKind::Unreachable, text).caused_by(why.clone())
        } else {
            why.clone()
        };
        for (place, pending) in link.pending.iter().enumerate() {
            // Of what several wanted together, each is asked for by itself again.
            let is_joint =
                matches!(pending.then, Then::ChangedTogether(_) | Then::LookedTogether(_));
            pending.then.fail(if place == 0 && !is_joint { why } else { &behind });
        }
        for change in &link.changes.queue {
            change.fail(&behind);
        }
        for deletion in &mut self.deletions {
            deletion.sent = false;
        }
        // The next connection watches all, and deletes all.
        self.unwatched.clear();
        self.again_at = None;
        self.watches.ended()
    }

    /// The session is over, and all of its nodes are gone.
    pub(super) fn end_session(&mut self, now: Moment) {
        self.term.end(now);
        self.session = None;
        self.until = None;
        self.heard_at = None;
        // A new session sees all that was agreed to before it. Servers that have lost their data
        // would refuse a client that has seen more.
        self.last_zxid = 0;
        self.deletions.clear();
        self.moves += 1;
    }

    /// Something happened to a node that was watched.
    ///
    /// # Errors
    /// The watch could not be renewed: the connection is no longer usable.
    pub(super) fn fired(
        &mut self,
        path: &str,
        event: EventKind,
        now: Moment,
    ) -> (Fired, Result<()>) {
        let fired = self.watches.fired(path, event);
        let renewed = match (fired.renew, &mut self.link) {
            (Renew::Latch, _) => self.watch_latch(path, now),
            (Renew::Data, Some(link)) => {
                link.send_one(&Request::get_data(path, true), Then::Renewed(path.to_owned()), now)
            }
            _ => Ok(()),
        };
        (fired, renewed)
    }

    /// Processes the server's answer to a deletion. Returns why the node stays, if it does.
    pub(super) fn deletion_answered(
        &mut self,
        path: &str,
        code: Code,
        now: Moment,
    ) -> Option<Error> {
        let error = match code {
            Code::OK | Code::NO_NODE => None,
            code => Some(code.to_error(path)),
        };
        if error.as_ref().is_some_and(|error| error.kind().is_outage()) {
            // Nothing has run, because the server is overloaded, for example.
            for deletion in self.deletions.iter_mut().filter(|deletion| deletion.path == path) {
                deletion.sent = false;
            }
            self.ask_again_later(now);
            return None;
        }
        self.deletions.retain(|deletion| deletion.path != path);
        error
    }

    /// Sends the deletions that have not been requested on this connection.
    pub(super) fn send_deletions(&mut self, now: Moment) -> Result<()> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let mut requests = Vec::new();
        let mut thens = Vec::new();
        for deletion in self.deletions.iter_mut().filter(|deletion| !deletion.sent) {
            deletion.sent = true;
            requests.push(Request::delete(&deletion.path));
            thens.push(Then::Deleted(deletion.path.clone()));
        }
        if requests.is_empty() {
            return Ok(());
        }
        link.send(requests.iter().zip(thens), now)
    }

    /// Watches the latch at this path, if there is a connection and somebody waits for the latch.
    pub(super) fn watch_latch(&mut self, path: &str, now: Moment) -> Result<()> {
        let Some(link) = self.link.as_mut().filter(|_| !self.watches.latch(path).is_empty()) else {
            return Ok(());
        };
        link.send_one(&Request::exists(path, true), Then::Watching(path.to_owned()), now)
    }

    /// The server has refused to watch the latch: it is asked again a little later, and until then
    /// those who wait look by themselves.
    pub(super) fn latch_is_unwatched(&mut self, path: String, now: Moment) {
        self.unwatched.push(path);
        self.ask_again_later(now);
    }

    fn ask_again_later(&mut self, now: Moment) {
        self.again_at = self.again_at.or(self.rhythm.map(|rhythm| now.plus(rhythm.ping)));
    }

    /// Repeats what was refused, if it is time to do so.
    pub(super) fn ask_again_if_due(&mut self, now: Moment) -> Result<()> {
        if self.again_at.is_none_or(|at| now < at) {
            return Ok(());
        }
        self.again_at = None;
        for path in std::mem::take(&mut self.unwatched) {
            self.watch_latch(&path, now)?;
        }
        self.send_deletions(now)
    }
}
