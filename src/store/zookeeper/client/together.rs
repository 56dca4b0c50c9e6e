//! What several threads want at the same time, as one request.
//!
//! A server reads about one frame of a connection in a round over all connections, and each change
//! costs it a log entry of its own. So a connection that many threads use is the limit long before
//! the server is. Once [`MOST_UNDER_WAY`] changes have no answer yet, further ones queue. The next
//! answer lets them go: as one transaction, and behind it what each of them wants to read, also as
//! one request if the server is known to have that.
//!
//! | in between | what happens |
//! |---|---|
//! | the server refuses one of the changes | none has run. Each is sent again alone, and what was read behind them is not used. For [`AFTER_A_REFUSAL`] nothing else is joined |
//! | the server refuses to read for several | each is read again alone, and from then on always on this connection, unless the server was only busy |
//! | no answer comes for [`LONGEST_QUEUED`], or one took longer than that | the server is slow, and two of its answers may not fit in an I/O timeout: what queues is sent alone, and nothing is joined for [`WHILE_SLOW`] |
//! | the connection ends, or an answer is overdue | the outcome of all is unknown, also of those that queue: nothing of them is sent on the next connection |
//! | it ends in the first joint look, or by an answer that makes no sense | the server may not know the request, or its answer was too long: from then on each call of the client looks alone |
//! | the session has ended | no change of the transaction has run, and each call learns of it |
//! | the client is closed | what queues is not sent |
//! | two of them draw a token in the same queue | they go in two transactions: nodes of one transaction have the same number, and two holders would have the same token |
//!
//! Each call counts its lease from the instant at which it queued, which is earlier than that of
//! the write.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use super::joint::{Answer, Change, JointLooks, Look, Looking, Together};
use super::slot::Slot;
use super::state::{Link, Pending, Then};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::store::zookeeper::wire::{Reply, Request, Shape};

/// How many changes may be under way before further ones queue. Fewer threads never queue.
const MOST_UNDER_WAY: usize = 8;

/// How long a change queues at most.
pub(super) const LONGEST_QUEUED: Duration = Duration::from_millis(100);

/// Where calls are refused again and again (there is no directory yet, for example), joining them
/// would often cost the others a second request.
const AFTER_A_REFUSAL: Duration = Duration::from_millis(50);

const WHILE_SLOW: Duration = Duration::from_secs(1);

impl Link {
    fn may_send_changes(&self, now: Moment) -> bool {
        self.changes.under_way < MOST_UNDER_WAY || self.changes.is_apart(now)
    }

    /// Sends a change and what is read behind it, or queues it.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub(super) fn change(
        &mut self,
        requests: &[Request],
        slot: &Arc<Slot>,
        now: Moment,
    ) -> Result<()> {
        if self.may_send_changes(now) {
            return self.send_alone(requests, slot, now);
        }
        let requests = requests.to_vec();
        self.changes.queue.push_back(Change { requests, slot: slot.clone(), is_alone: false });
        Ok(())
    }

    /// Sends the changes that queue, if few enough are under way.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub(super) fn send_queued(&mut self, now: Moment) -> Result<()> {
        if !self.may_send_changes(now) {
            return Ok(());
        }
        while !self.changes.queue.is_empty() {
            let together = self.changes.take_together(now);
            match &together[..] {
                [Change { requests, slot, .. }] => self.send_alone(requests, slot, now)?,
                _ => self.send_together(together, now)?,
            }
        }
        Ok(())
    }

    /// The change of this caller has queued for long enough, if it still does.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub(super) fn send_overdue(&mut self, slot: &Arc<Slot>, now: Moment) -> Result<()> {
        if !self.changes.queue.iter().any(|change| Arc::ptr_eq(&change.slot, slot)) {
            return Ok(());
        }
        self.changes.join_nothing_until(now.plus(WHILE_SLOW));
        self.send_queued(now)
    }

    fn send_alone(&mut self, requests: &[Request], slot: &Arc<Slot>, now: Moment) -> Result<()> {
        self.changes.under_way += 1;
        let looks = (1..requests.len()).map(|place| Then::Answer(slot.clone(), place));
        let thens = iter::once(Then::Changed(slot.clone())).chain(looks);
        self.send(requests.iter().zip(thens), now)
    }

    fn send_together(&mut self, changes: Vec<Change>, now: Moment) -> Result<()> {
        self.changes.under_way += 1;
        let mut looks = Vec::new();
        for Change { requests, slot, .. } in &changes {
            for (place, request) in requests.iter().enumerate().skip(1) {
                looks.push(Look { request: request.clone(), slot: slot.clone(), place });
            }
        }
        let mut all = vec![Request::multi(changes.iter().map(|change| &change.requests[0]))];
        let mut thens = Vec::new();
        if self.changes.looking == Looking::Together && looks.len() > 1 {
            all.push(Request::multi_read(looks.iter().map(|look| &look.request)));
            thens.push(Then::LookedTogether(looks));
        } else {
            for Look { request, slot, place } in looks {
                all.push(request);
                thens.push(Then::Answer(slot, place));
            }
        }
        let first = Then::ChangedTogether(Together { changes, looks: thens.len() });
        self.send(all.iter().zip(iter::once(first).chain(thens)), now)
    }

    /// A change, or several as one, has its answer. `took`: after how long.
    pub(super) fn change_answered(
        &mut self,
        reply: &Reply,
        shape: &Shape,
        took: Duration,
        now: Moment,
    ) {
        self.changes.under_way -= 1;
        if took > LONGEST_QUEUED {
            self.changes.join_nothing_until(now.plus(WHILE_SLOW));
        }
        if self.changes.looking == Looking::Unknown {
            // Servers had the request for it before they began to report numbers.
            self.changes.looking = match reply.reports_numbers(shape) {
                Some(true) => Looking::Together,
                Some(false) => Looking::Apart,
                None => Looking::Unknown,
            };
        }
    }

    /// Several changes have their answer. Returns that of each call; none if one was refused: then
    /// each queues again.
    ///
    /// # Errors
    /// The reply does not match the changes.
    pub(super) fn changed_together(
        &mut self,
        together: Together,
        reply: &Reply,
        now: Moment,
    ) -> Result<Vec<Answer>> {
        let Together { changes, looks } = together;
        let replies = if reply.code.is_ok() {
            reply.split(changes.iter().map(|change| &change.requests[0].shape))
        } else if reply.code.is_for_all() {
            Ok(Some(vec![reply.clone(); changes.len()]))
        } else {
            Ok(None)
        };
        if let Ok(Some(replies)) = replies {
            let all = changes.into_iter().zip(replies);
            let answer =
                |(change, reply): (Change, _)| Answer { slot: change.slot, place: 0, reply };
            return Ok(all.map(answer).collect());
        }
        // Their replies come next.
        for pending in self.pending.iter_mut().take(looks) {
            pending.then = Then::Nothing;
        }
        for change in changes.into_iter().rev() {
            self.changes.queue.push_front(Change { is_alone: true, ..change });
        }
        self.changes.join_nothing_until(now.plus(AFTER_A_REFUSAL));
        replies.map(|_| Vec::new())
    }

    /// A joint look has its answer. Returns that of each call; none if it was refused: then each is
    /// sent again.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), and a reply that does not match the looks.
    pub(super) fn looked_together(
        &mut self,
        looks: Vec<Look>,
        reply: &Reply,
        now: Moment,
    ) -> Result<Vec<Answer>> {
        if !reply.code.is_ok() {
            self.changes.join_nothing_until(now.plus(AFTER_A_REFUSAL));
            if !reply.code.is_for_all() {
                self.changes.looking = Looking::Apart;
            }
            let looks = looks.into_iter();
            let (requests, thens): (Vec<_>, Vec<_>) =
                looks.map(|look| (look.request, Then::Answer(look.slot, look.place))).unzip();
            return self.send(requests.iter().zip(thens), now).map(|()| Vec::new());
        }
        let replies = reply.split_looks(looks.len()).map_err(|why| {
            self.changes.joint_looks.end_connections = true;
            // Each is asked for by itself again, and so is what is behind them.
            let text = "a reply to several looks could not be read";
            let why = Error::new(ErrorKind::Unreachable, text).caused_by(why);
            for look in &looks {
                look.slot.fail(&why);
            }
            why
        })?;
        self.changes.joint_looks.work = true;
        let all = looks.into_iter().zip(replies);
        let answer =
            |(look, reply): (Look, _)| Answer { slot: look.slot, place: look.place, reply };
        Ok(all.map(answer).collect())
    }

    /// What the end of this connection shows about joint looks.
    pub(super) fn joint_looks_after(&self, why: &Error) -> JointLooks {
        let JointLooks { work, end_connections } = self.changes.joint_looks;
        let is_joint = |pending: &Pending| pending.shape.is_multi_read();
        let is_suspect = !work || why.kind() == ErrorKind::Protocol;
        let ends = is_suspect && self.pending.iter().any(is_joint);
        JointLooks { work, end_connections: end_connections || ends }
    }
}
