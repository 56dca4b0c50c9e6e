//! One round over several masters: the calling thread sends to all of them, and reads each reply as
//! it arrives.

use std::time::Duration;

use super::node::{Evidence, Node, NodeCall, has_run};
use super::quorum::{NodeSet, grace, majority};
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::os::{self, Mutex};
use crate::store::redis::script::says_quarantined;
use crate::store::redis::wire::{Connection, RedisFailure, Reply, Request};

/// The outcome of a request to one master.
#[derive(Debug)]
pub(super) enum NodeOutcome {
    Replies(Vec<Reply>),
    /// Nothing was sent, or the outcome is unknown.
    Failed(RedisFailure),
    /// It was asked, and the round ended before its reply: the other replies had decided it.
    Unread(Evidence),
    /// It was not asked.
    Skipped,
}

impl NodeOutcome {
    /// Whether the master has run the request, as far as the first reply shows.
    pub(super) fn has_run(&self) -> bool {
        matches!(self, Self::Replies(replies) if has_run(replies))
    }

    /// Whether it has run the request, and has a vote.
    pub(super) fn has_voted(&self) -> bool {
        matches!(self, Self::Replies(replies) if has_run(replies) && !replies.iter().any(says_quarantined))
    }

    /// Whether it will not answer in this round that it has run the request.
    pub(super) fn has_refused(&self) -> bool {
        matches!(self, Self::Replies(_) | Self::Failed(_)) && !self.has_run()
    }
}

pub(super) struct Round {
    /// The instant before the first byte was sent to any master. Connects before that take nothing
    /// from the lease. [`Moment::NEVER`] if nothing was sent.
    pub(super) sent_at: Moment,
    pub(super) outcomes: Vec<NodeOutcome>,
    /// The masters that were asked twice, because their connection had ended while idle: the first
    /// request may have run as well.
    pub(super) repeated: NodeSet,
}

type Sending<'n> = std::result::Result<NodeCall<'n>, RedisFailure>;
/// The replies, and whether the master was asked twice.
type Finished = std::result::Result<(Vec<Reply>, bool), RedisFailure>;

/// What becomes of a master that has yet to answer earlier requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LateMaster {
    /// It is asked only if the others are no majority, or do not vote: the call must not wait.
    IfNeeded,
    /// It is asked like the others, and waited for: what it is not asked to free stays taken there.
    Asked,
}

/// Sends each of the masters in `asked` the requests that `ask` makes from its index, the
/// connection, and the run_id of the process at the other end. Reads until all have answered, until
/// `decided` returns that the rest cannot change the outcome, or until the timeout.
///
/// All masters that have a connection are asked before it waits for one that has none: that may
/// take the whole timeout (a slow name, a hung server), and the others work meanwhile.
///
/// Without a `holder` it waits for all: an unread reply can only be kept for its holder's next
/// request.
pub(super) fn ask_all(
    nodes: &[Node],
    holder: Option<&Holder>,
    ask: impl Fn(usize, &Connection, &str) -> Vec<Request> + Sync,
    asked: NodeSet,
    late: LateMaster,
    decided: impl Fn(&[NodeOutcome]) -> bool,
) -> Round {
    let outcomes = nodes.iter().map(|_| NodeOutcome::Skipped).collect();
    let mut round = Round { sent_at: Moment::NEVER, outcomes, repeated: NodeSet::default() };
    let order: Vec<usize> = (0..nodes.len()).filter(|&index| asked.contains(index)).collect();
    let quorum = majority(nodes.len());
    let ask = &ask;
    let make =
        |index: usize| move |connection: &Connection, run_id: &str| ask(index, connection, run_id);

    let mut sent = Vec::new();
    let mut later = Vec::new();
    for &index in &order {
        match nodes[index].send_now(holder, make(index)) {
            Some(call) => sent.push((index, call)),
            None => later.push(index),
        }
    }
    let mut calls = round.begin(sent);
    let connected = side_by_side(later, |index| (index, nodes[index].send(holder, make(index))));
    calls.extend(round.begin(connected));
    // Late masters that are needed are asked at once if too few others can be, or when too few of
    // the others have voted.
    let enough = |masters: usize| {
        late == LateMaster::IfNeeded && (order.len() < quorum || masters >= quorum)
    };
    if enough(calls.len()) {
        let unanswered =
            round.gather(nodes, std::mem::take(&mut calls), ask, holder.is_some(), &decided);
        if enough(voted(&round.outcomes)) {
            round.leave(unanswered);
            return round;
        }
        // It may have been decided only because some were not asked. Then the others have time
        // until these have answered.
        if unanswered.is_decided {
            calls = unanswered.calls;
        } else {
            round.leave(unanswered);
        }
    }
    let is_unasked = |index: &usize| {
        matches!(round.outcomes[*index], NodeOutcome::Failed(RedisFailure::NotSent(_)))
    };
    let unasked: Vec<usize> = order.into_iter().filter(is_unasked).collect();
    let anyway =
        side_by_side(unasked, |index| (index, nodes[index].send_anyway(holder, make(index))));
    calls.extend(round.begin(anyway));
    let unanswered = round.gather(nodes, calls, ask, holder.is_some(), &decided);
    round.leave(unanswered);
    round
}

fn voted(outcomes: &[NodeOutcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.has_voted()).count()
}

/// The calls whose replies did not come in time.
struct Unanswered<'n> {
    calls: Vec<(usize, NodeCall<'n>)>,
    /// The other replies had decided the round.
    is_decided: bool,
}

impl Round {
    fn note(&mut self, (index, outcome): (usize, Finished)) {
        self.outcomes[index] = match outcome {
            Ok((replies, repeated)) => {
                if repeated {
                    self.repeated.insert(index);
                }
                NodeOutcome::Replies(replies)
            }
            Err(failure) => NodeOutcome::Failed(failure),
        };
    }

    /// Notes what came of sending to each of these masters, and returns the calls under way.
    fn begin<'n>(&mut self, sent: Vec<(usize, Sending<'n>)>) -> Vec<(usize, NodeCall<'n>)> {
        let mut calls = Vec::new();
        for (index, sent) in sent {
            match sent {
                Ok(call) => {
                    self.sent_at = self.sent_at.min(call.sent_at());
                    self.outcomes[index] = NodeOutcome::Skipped;
                    calls.push((index, call));
                }
                Err(failure) => self.outcomes[index] = NodeOutcome::Failed(failure),
            }
        }
        calls
    }

    /// Reads the replies to these calls.
    fn gather<'n>(
        &mut self,
        nodes: &[Node],
        mut calls: Vec<(usize, NodeCall<'n>)>,
        ask: &(impl Fn(usize, &Connection, &str) -> Vec<Request> + Sync),
        may_leave: bool,
        decided: &impl Fn(&[NodeOutcome]) -> bool,
    ) -> Unanswered<'n> {
        let clock = &nodes[0].connector.clock;
        let started = clock.now();
        let timeout = nodes.iter().map(|node| node.connector.io_timeout).max().unwrap_or_default();
        let mut until = started.plus(timeout);
        let mut is_decided = false;
        let mut repeats = Vec::new();
        let finish = |(index, call): (usize, NodeCall<'_>)| {
            (index, call.finish(|connection, run_id| ask(index, connection, run_id)))
        };
        while !calls.is_empty() {
            if !is_decided && may_leave && decided(&self.outcomes) {
                is_decided = true;
                let now = clock.now();
                until = until.min(now.plus(grace(now.since(started))));
            }
            let left = until.since(clock.now());
            let connections: Vec<&Connection> =
                calls.iter().map(|(_, call)| call.connection()).collect();
            let answered = Connection::answered(&connections, left);
            let asked = calls.len();
            for ((index, mut call), is_ready) in
                std::mem::take(&mut calls).into_iter().zip(answered)
            {
                if !is_ready || !call.read_available() {
                    calls.push((index, call));
                } else if call.must_repeat() {
                    // It connects and waits: only when the replies of the others have been read.
                    repeats.push((index, call));
                } else {
                    self.note(finish((index, call)));
                }
            }
            if left == Duration::ZERO && calls.len() == asked {
                break;
            }
        }
        if !is_decided && voted(&self.outcomes) < majority(nodes.len()) {
            // A firewall forgets the connections to all masters at once.
            for (index, mut call) in std::mem::take(&mut calls) {
                let kept = if call.was_cut_in_silence() { &mut repeats } else { &mut calls };
                kept.push((index, call));
            }
        }
        for finished in side_by_side(repeats, finish) {
            self.note(finished);
        }
        Unanswered { calls, is_decided }
    }

    /// Their outcomes stay unknown.
    fn leave(&mut self, unanswered: Unanswered<'_>) {
        for (index, call) in unanswered.calls {
            self.outcomes[index] = if unanswered.is_decided {
                NodeOutcome::Unread(call.leave_unread())
            } else {
                NodeOutcome::Failed(call.give_up())
            };
        }
    }
}

/// Does this for each of the items, on threads of their own if there are several: each may take the
/// whole timeout, and together they must not take more.
fn side_by_side<X: Send, T: Send>(items: Vec<X>, ask: impl Fn(X) -> T + Sync) -> Vec<T> {
    if items.len() < 2 {
        return items.into_iter().map(ask).collect();
    }
    let items: Vec<Mutex<Option<X>>> =
        items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    let ask = &|item: &Mutex<Option<X>>| ask(item.lock().take().expect("it is asked once"));
    os::thread::scope(|scope| {
        let start = |item| {
            let thread = os::thread::Builder::new().name("lh-master".into());
            (item, thread.spawn_scoped(scope, move || ask(item)))
        };
        let threads: Vec<_> = items.iter().map(start).collect();
        let join = |(item, thread): (_, std::io::Result<os::thread::ScopedJoinHandle<'_, T>>)| {
            match thread {
                Ok(thread) => {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                }
                Err(_) => ask(item),
            }
        };
        threads.into_iter().map(join).collect()
    })
}
