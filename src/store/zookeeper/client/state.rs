//! What the threads of a client share: the session, the present connection with the requests that
//! wait for a reply, and what is watched.

use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::slot::Slot;
use crate::base::error::{Error, Result};
use crate::base::lease::{Moment, SessionTerm};
use crate::store::Topic;
use crate::store::net::{Address, Stream};
use crate::store::zookeeper::lease::{Rhythm, SessionLease};
use crate::store::zookeeper::wire::{Opcode, PING_XID, Request, SessionId, to_error};

/// A session, told from those before it.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) generation: u64,
    pub(crate) term: Arc<SessionTerm>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) link: Option<Link>,
    /// What the next connection resumes.
    pub(super) session: Option<SessionId>,
    /// Of the present session, or of the last one while there is none.
    pub(super) generation: u64,
    pub(super) term: Arc<SessionTerm>,
    /// Of the present session, for the next connection.
    pub(super) until: Option<Moment>,
    /// The rhythm of the last connection.
    pub(super) rhythm: Option<Rhythm>,
    pub(super) last_zxid: i64,
    pub(super) watches: HashMap<String, Vec<Watch>>,
    /// What is watched for as long as somebody waits: latches, by path.
    pub(super) kept_watches: HashMap<String, Topic>,
    /// Nodes that must go, until the server has said that they are gone.
    pub(super) deletions: Vec<Deletion>,
    /// How often the servers were tried, one after the other.
    pub(super) rounds: u64,
    /// The last of these rounds in which none could be used.
    pub(super) failed_round: u64,
    pub(super) last_error: Option<Error>,
    /// A call waits for a connection.
    pub(super) is_wanted: bool,
    /// How often a connection began or ended.
    pub(super) moves: u64,
    pub(super) phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    #[default]
    NotStarted,
    Running,
    Closing,
    Ended,
}

/// Who is told when something happens to a node.
#[derive(Debug, Clone)]
pub(crate) enum Watch {
    /// A waiter whose turn may have come.
    Turn(Vec<Topic>),
    /// The holder of this node: it is gone.
    Own(Arc<AtomicBool>),
}

pub(super) struct Deletion {
    pub(super) path: String,
    /// It was requested on the present connection.
    pub(super) sent: bool,
}

/// What happens with a reply.
pub(super) enum Then {
    Answer(Arc<Slot>, usize),
    Heartbeat,
    /// This node was to go.
    Deleted(String),
    /// From here on nothing is missed that happens to this node.
    Watching(Topic),
}

pub(super) struct Pending {
    pub(super) xid: i32,
    pub(super) opcode: Opcode,
    pub(super) sent_at: Moment,
    pub(super) then: Then,
}

/// The present connection.
pub(super) struct Link {
    /// Tells it from those before it.
    pub(super) number: u64,
    pub(super) address: Address,
    writer: Stream,
    next_xid: i32,
    /// In the order in which the server answers them.
    pub(super) pending: VecDeque<Pending>,
    /// When it was pinged, if it has not answered since.
    pub(super) pinged: Option<Moment>,
    pub(super) lease: SessionLease,
    last_sent: Moment,
    /// When the last request went out that goes through the leader.
    pub(super) last_through: Moment,
}

impl Link {
    pub(super) fn new(number: u64, address: Address, writer: Stream, lease: SessionLease, now: Moment) -> Self {
        Self {
            number,
            address,
            writer,
            next_xid: 1,
            pending: VecDeque::new(),
            pinged: None,
            lease,
            last_sent: now,
            last_through: now,
        }
    }

    /// Writes the requests, as one. `now`: read just before.
    ///
    /// # Errors
    /// The connection is of no use any more. The requests are among the pending ones, and may run.
    pub(super) fn send<'r>(&mut self, requests: impl Iterator<Item = (&'r Request, Then)>, now: Moment) -> Result<()> {
        let mut frames = Vec::with_capacity(256);
        for (request, then) in requests {
            let xid = self.next_xid;
            self.next_xid = self.next_xid.checked_add(1).unwrap_or(1);
            request.write_to(xid, &mut frames);
            if request.opcode.goes_through_the_leader() {
                self.last_through = now;
            }
            self.writer.meter().requests(1);
            self.pending.push_back(Pending { xid, opcode: request.opcode, sent_at: now, then });
        }
        self.last_sent = now;
        self.write(&frames)
    }

    pub(super) fn ping(&mut self, now: Moment) -> Result<()> {
        let mut frame = Vec::new();
        Request::ping().write_to(PING_XID, &mut frame);
        (self.last_sent, self.pinged) = (now, Some(now));
        self.writer.meter().requests(1);
        self.write(&frame)
    }

    fn write(&mut self, frames: &[u8]) -> Result<()> {
        self.writer.write_all(frames).map_err(|e| to_error(e, &self.address))
    }

    pub(super) fn silent_since(&self) -> Option<Moment> {
        self.pending.front().map(|first| first.sent_at).into_iter().chain(self.pinged).min()
    }

    pub(super) fn idle_since(&self) -> Moment {
        self.last_sent
    }
}

impl State {
    pub(super) fn present(&self) -> Session {
        Session { generation: self.generation, term: self.term.clone() }
    }

    /// The connection has ended: whoever waits for a reply is told, and all waiters have to look
    /// for themselves, because watches end with their connection. Returns what they wait for.
    pub(super) fn end_link(&mut self, why: &Error) -> Vec<Topic> {
        let Some(link) = self.link.take() else { return Vec::new() };
        if self.phase == Phase::Running {
            link.writer.meter().broke();
        }
        link.writer.shutdown();
        self.until = Some(link.lease.until());
        self.moves += 1;
        self.last_error = Some(why.clone());
        for pending in link.pending {
            if let Then::Answer(slot, _) = pending.then {
                slot.fail(why);
            }
        }
        self.deletions.iter_mut().for_each(|deletion| deletion.sent = false);
        let watches = std::mem::take(&mut self.watches);
        let waiting = watches.into_values().flatten().filter_map(|watch| match watch {
            Watch::Turn(topics) => Some(topics),
            Watch::Own(_) => None,
        });
        waiting.flatten().chain(self.kept_watches.values().cloned()).collect()
    }

    /// The session is over, and all of its nodes are gone.
    pub(super) fn end_session(&mut self, now: Moment) {
        self.term.end(now);
        (self.session, self.until) = (None, None);
        self.deletions.clear();
        self.moves += 1;
    }

    /// Something happened to a node that was watched. Returns who waits for it.
    pub(super) fn fired(&mut self, path: &str) -> Vec<Topic> {
        let mut topics = Vec::new();
        for watch in self.watches.remove(path).into_iter().flatten() {
            match watch {
                Watch::Turn(waiting) => topics.extend(waiting),
                Watch::Own(is_lost) => is_lost.store(true, Ordering::Release),
            }
        }
        topics
    }

    /// Requests the deletions that have not been requested on this connection.
    pub(super) fn send_deletions(&mut self, now: Moment) -> Result<()> {
        let (Some(link), deletions) = (&mut self.link, &mut self.deletions) else { return Ok(()) };
        let mut requests = Vec::new();
        for deletion in deletions.iter_mut().filter(|deletion| !deletion.sent) {
            deletion.sent = true;
            requests.push((Request::delete(&deletion.path), Then::Deleted(deletion.path.clone())));
        }
        if requests.is_empty() {
            return Ok(());
        }
        let (requests, thens): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
        link.send(requests.iter().zip(thens), now)
    }

    /// Watches what has to be watched on this connection.
    pub(super) fn renew_watch(&mut self, path: &str, now: Moment) -> Result<()> {
        let Some(topic) = self.kept_watches.get(path).cloned() else { return Ok(()) };
        let Some(link) = &mut self.link else { return Ok(()) };
        link.send([(&Request::exists(path, true), Then::Watching(topic))].into_iter(), now)
    }
}
