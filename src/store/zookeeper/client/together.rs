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
//! | the server refuses to read for several | each is read again alone |
//! | no answer comes for [`LONGEST_QUEUED`], or one took longer than that | the server is slow, and two of its answers may not fit in an I/O timeout: what queues is sent alone, and nothing is joined for [`WHILE_SLOW`] |
//! | the connection ends, or an answer is overdue | the outcome of all is unknown, also of those that queue: nothing of them is sent on the next connection |
//! | it ends in the first joint look, or by an answer that makes no sense | the server may not know the request, or its answer was too long: from then on each looks alone |
//! | the session has ended | no change of the transaction has run, and each call learns of it |
//! | the client is closed | what queues is not sent |
//! | two of them draw a token in the same queue | they go in two transactions: nodes of one transaction have the same number, and two holders would have the same token |
//!
//! Each call counts its lease from the instant at which it queued, which is earlier than that of
//! the write.

use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use super::state::{Link, Pending, Slot, Then};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::store::zookeeper::wire::{Reply, Request};

/// How many changes may be under way before further ones queue. Fewer threads never queue.
const MOST_UNDER_WAY: usize = 8;

/// How long a change queues at most.
pub(super) const LONGEST_QUEUED: Duration = Duration::from_millis(100);

/// How many bytes the changes of one transaction have at most: a quarter of what servers take.
const LONGEST: usize = 256 * 1024;

/// Where calls are refused again and again (there is no directory yet, for example), joining them
/// would often cost the others a second request.
const AFTER_A_REFUSAL: Duration = Duration::from_millis(50);

const WHILE_SLOW: Duration = Duration::from_secs(1);

/// What a call asks: a change, and what it wants to read behind it.
#[derive(Debug)]
pub(super) struct Change {
    requests: Vec<Request>,
    slot: Arc<Slot>,
    /// A transaction with it was refused.
    is_alone: bool,
}

impl Change {
    /// Nothing was sent.
    pub(super) fn refuse(self, reply: &Reply) {
        for place in 0..self.requests.len() {
            self.slot.answer(place, reply.clone());
        }
    }

    pub(super) fn fail(&self, why: &Error) {
        self.slot.fail(why);
    }
}

/// Changes that are one transaction.
#[derive(Debug)]
pub(super) struct Together {
    changes: Vec<Change>,
    /// How many requests behind it read for them.
    looks: usize,
}

impl Together {
    pub(super) fn refuse(self, reply: &Reply) {
        for change in self.changes {
            change.slot.answer(0, reply.clone());
        }
    }

    pub(super) fn fail(&self, why: &Error) {
        for change in &self.changes {
            change.fail(why);
        }
    }
}

/// What a call wants to read behind its change.
#[derive(Debug)]
pub(super) struct Look {
    request: Request,
    pub(super) slot: Arc<Slot>,
    pub(super) place: usize,
}

/// A reply for a call.
pub(super) struct Answer {
    slot: Arc<Slot>,
    place: usize,
    reply: Reply,
}

impl Answer {
    pub(super) fn give(self) {
        self.slot.answer(self.place, self.reply);
    }
}

/// How a server reads for several calls.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Looking {
    /// It may not know the request for it, and would end the connection.
    #[default]
    Unknown,
    Together,
    /// One request for each.
    Apart,
}

/// The changes of a connection.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// In order of arrival. While there are any, others are under way, whose answers let them go.
    pub(super) queue: VecDeque<Change>,
    /// How many have no answer yet.
    under_way: usize,
    apart_until: Option<Moment>,
    looking: Looking,
    /// It has read for several calls at once.
    has_looked: bool,
}

impl Changes {
    /// `look_apart`: an earlier connection has ended in a joint look.
    pub(super) fn new(look_apart: bool) -> Self {
        let looking = if look_apart { Looking::Apart } else { Looking::Unknown };
        Self { looking, ..Self::default() }
    }

    fn is_apart(&self, now: Moment) -> bool {
        self.apart_until.is_some_and(|until| now < until)
    }

    fn join_nothing_until(&mut self, until: Moment) {
        self.apart_until = self.apart_until.max(Some(until));
    }

    /// Takes those that can be one transaction from the queue, in order.
    fn take_together(&mut self, now: Moment) -> Vec<Change> {
        let Some(first) = self.queue.pop_front() else { return Vec::new() };
        if first.is_alone || self.is_apart(now) {
            return vec![first];
        }
        let mut length = first.requests[0].length();
        let mut draws_in = first.requests[0].draws_in().to_vec();
        let mut together = vec![first];
        for change in std::mem::take(&mut self.queue) {
            let request = &change.requests[0];
            let is_other = |queue: &String| !draws_in.contains(queue);
            if !change.is_alone
                && length + request.length() <= LONGEST
                && request.draws_in().iter().all(is_other)
            {
                length += request.length();
                draws_in.extend_from_slice(request.draws_in());
                together.push(change);
            } else {
                self.queue.push_back(change);
            }
        }
        together
    }
}

impl Link {
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
        if self.changes.under_way < MOST_UNDER_WAY || self.changes.is_apart(now) {
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
        if self.changes.under_way >= MOST_UNDER_WAY && !self.changes.is_apart(now) {
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

    /// A change, or several as one, has its answer.
    pub(super) fn change_answered(&mut self, reply: &Reply, asked: &Pending, now: Moment) {
        self.changes.under_way -= 1;
        if now.since(asked.sent_at) > LONGEST_QUEUED {
            self.changes.join_nothing_until(now.plus(WHILE_SLOW));
        }
        if self.changes.looking == Looking::Unknown {
            // Servers had the request for it before they began to report numbers.
            self.changes.looking = match reply.reports_numbers(&asked.shape) {
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
        let replies = reply.split_looks(looks.len()).inspect_err(|why| {
            self.changes.looking = Looking::Apart;
            for look in &looks {
                look.slot.fail(why);
            }
        })?;
        self.changes.has_looked = true;
        let all = looks.into_iter().zip(replies);
        let answer =
            |(look, reply): (Look, _)| Answer { slot: look.slot, place: look.place, reply };
        Ok(all.map(answer).collect())
    }

    /// Whether later connections have to look for each call alone, if this one ends because of
    /// this.
    pub(super) fn has_to_look_apart(&self, why: &Error) -> bool {
        let is_joint = |pending: &Pending| pending.shape.is_multi_read();
        let is_suspect = !self.changes.has_looked || why.kind() == ErrorKind::Protocol;
        self.changes.looking == Looking::Apart || is_suspect && self.pending.iter().any(is_joint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::zookeeper::wire::{Acl, Mode};

    fn make(directory: &str, bytes: usize) -> Request {
        let path = format!("{directory}/n-");
        let data = vec![0; bytes];
        Request::create(&path, &data, Acl::Open, Mode::EphemeralSequential).drawing_in(directory)
    }

    fn queue(changes: impl IntoIterator<Item = Request>) -> Changes {
        let change = |change| {
            let requests = vec![Request::multi([&change])];
            Change { requests, slot: Arc::new(Slot::new(1)), is_alone: false }
        };
        Changes { queue: changes.into_iter().map(change).collect(), ..Changes::default() }
    }

    /// How many are taken each time, until none is left.
    fn taken(mut changes: Changes, now: Moment) -> Vec<usize> {
        let next = || Some(changes.take_together(now).len());
        iter::from_fn(next).take_while(|taken| *taken > 0).collect()
    }

    const NOW: Moment = Moment::from_nanos(1_000_000_000);

    #[test]
    fn all_that_queue_go_together() {
        let changes = ["/a", "/b", "/c"].map(|directory| make(directory, 0));
        assert_eq!(taken(queue([]), NOW), [0; 0]);
        assert_eq!(
            taken(queue(changes.iter().chain([&Request::delete("/a/n")]).cloned()), NOW),
            [4]
        );
    }

    #[test]
    fn two_tokens_of_one_queue_are_drawn_one_after_the_other() {
        let directories = ["/a", "/b", "/a", "/c", "/a", "/b"];
        let mut changes = queue(directories.map(|directory| make(directory, 0)));
        let mut drawn = || {
            let taken = changes.take_together(NOW);
            let queues = taken.iter().flat_map(|change| change.requests[0].draws_in());
            queues.cloned().collect::<Vec<_>>()
        };
        assert_eq!([drawn(), drawn(), drawn()], [&["/a", "/b", "/c"][..], &["/a", "/b"], &["/a"]]);
    }

    #[test]
    fn a_transaction_has_a_greatest_length() {
        let changes = ["/a", "/b", "/c"].map(|directory| make(directory, LONGEST / 2));
        assert_eq!(taken(queue(changes), NOW), [1, 1, 1]);
        let changes = ["/a", "/b", "/c"].map(|directory| make(directory, LONGEST / 2 - 100));
        assert_eq!(taken(queue(changes), NOW), [2, 1]);
        assert_eq!(taken(queue([make("/a", 3 * LONGEST)]), NOW), [1], "it goes all the same");
    }

    #[test]
    fn for_a_moment_each_goes_alone() {
        let mut changes = queue(["/a", "/b", "/c"].map(|directory| make(directory, 0)));
        changes.join_nothing_until(NOW.plus(WHILE_SLOW));
        changes.join_nothing_until(NOW.plus(AFTER_A_REFUSAL));
        assert_eq!(changes.take_together(NOW.plus(AFTER_A_REFUSAL)).len(), 1);
        assert_eq!(changes.take_together(NOW.plus(WHILE_SLOW)).len(), 2);
    }

    #[test]
    fn what_was_refused_with_others_goes_alone() {
        let mut changes = queue(["/a", "/b", "/c", "/d"].map(|directory| make(directory, 0)));
        changes.queue[1].is_alone = true;
        assert_eq!(taken(changes, NOW), [3, 1]);
    }
}
