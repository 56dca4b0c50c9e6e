//! Packs requests for one write, and notes which replies are due after it.

use std::collections::VecDeque;
use std::time::Duration;

use super::fence::Fence;
use super::reply::{Reply, Shape};
use super::request::{Replicas, Request};
use super::unknown_outcome::{ConnectionFacts, Remedy, UnknownOutcome};
use crate::base::lease::Moment;

/// Sent and not yet answered: the unknown outcome of the requests until their replies are read.
pub(crate) struct InFlight {
    pub(crate) sent_at: Moment,
    pub(crate) unknown: UnknownOutcome,
    /// For what was sent while other replies were due.
    pub(super) behind: Option<Box<SentBehind>>,
}

/// What is due for requests that were sent behind others.
pub(super) struct SentBehind {
    pub(super) fence: Fence,
    pub(super) awaited: Awaited,
}

/// An unread reply.
pub(super) struct Due {
    pub(super) earlier: Vec<UnknownOutcome>,
    pub(super) shape: Shape,
    /// The replicas that must acknowledge the write that this reply reports.
    pub(super) replicas: Option<Replicas>,
    /// The reply to an `ASKING` comes first.
    pub(super) asking: bool,
    /// The script may refuse to run because it is too late.
    limited: bool,
}

impl Due {
    /// A reply that nobody has asked for.
    pub(super) fn unasked() -> Self {
        Self {
            earlier: Vec::new(),
            shape: Shape::Any,
            replicas: None,
            asking: false,
            limited: false,
        }
    }

    /// The reply, or an error if the script did not run because it was too late.
    pub(super) fn judge(&self, reply: Reply) -> Reply {
        if self.limited && reply.status() == Some(3) { Reply::too_late() } else { reply }
    }
}

/// The replies that are due on a connection, in their order.
#[derive(Default)]
pub(super) struct Awaited {
    /// Before the replies in `due` come those of the kills of these connections.
    pub(super) kills: Vec<UnknownOutcome>,
    pub(super) due: VecDeque<Due>,
    /// After the replies in `due` comes that of a `WAIT`.
    pub(super) replicas: bool,
}

impl Awaited {
    /// Appends the requests to `out`, each with its earlier attempts. The kills of those come
    /// first: the server has closed their connections before it runs the first request. Returns the
    /// number of commands, and the server time in microseconds after which none of the requests
    /// runs (0: no limit).
    pub(super) fn pack<'a>(
        &mut self,
        out: &mut Vec<u8>,
        facts: &ConnectionFacts,
        sent_at: Moment,
        io_timeout: Duration,
        requests: impl Iterator<Item = (&'a Request, &'a [UnknownOutcome])>,
    ) -> (u64, u64) {
        let begin = out.len();
        let mut kills = Vec::new();
        let connection_args = facts.connection_args(sent_at, io_timeout);
        let mut not_after = 0;
        let mut commands = 0;
        let mut wait: Option<Replicas> = None;
        for (request, earlier) in requests {
            self.kill(earlier, &mut kills, facts, sent_at);
            request.write(out, connection_args);
            let replicas = request.replicas;
            self.due.push_back(Due {
                earlier: earlier.to_vec(),
                shape: request.shape,
                replicas,
                asking: request.asking,
                limited: request.takes_limit,
            });
            commands += 1 + u64::from(request.asking);
            wait = replicas.map(|own| wait.map_or(own, |others| others.and(own))).or(wait);
            if request.takes_limit {
                not_after = connection_args.not_after;
            }
        }
        if !kills.is_empty() {
            out.splice(begin..begin, kills);
        }
        // One for the whole write, because it covers all writes of the connection before it. With
        // one for each request, a replica that hangs would cost the last one the time of all waits.
        if let Some(wait) = wait {
            wait.write_wait(out);
            self.replicas = true;
            commands += 1;
        }
        (commands + self.kills.len() as u64, not_after)
    }

    /// Appends the kills that the earlier attempts of a request need; one for each connection.
    fn kill(
        &mut self,
        earlier: &[UnknownOutcome],
        out: &mut Vec<u8>,
        facts: &ConnectionFacts,
        now: Moment,
    ) {
        for unknown in earlier {
            if let Remedy::Kill(request) = unknown.remedy(facts, now)
                && !self.kills.iter().any(|killed| killed.same_connection(unknown))
            {
                request.write_plain(out);
                self.kills.push(unknown.clone());
            }
        }
    }
}
